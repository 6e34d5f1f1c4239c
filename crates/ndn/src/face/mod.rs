//! Faces: where packets come from and go to.
//!
//! ```text
//!   control thread ─create, destroy──▶ Faces ◀──create on demand── host port, link
//!                  ◀──────events─────     │
//!                                         └─▶ FaceReader, a copy per worker
//! ```

mod account;
mod counters;
mod model;
mod table;
mod uri;

pub use account::FaceBounds;
pub use counters::{Direction, DirectionTotals, FaceCounters, FaceTotals, PacketKind};
pub use model::{
    FLAG_CONGESTION_MARKING, FLAG_LOCAL_FIELDS, FLAG_RELIABILITY, Face, FaceSettings, FaceState, LinkType,
    MTU_MIN, Persistency, Scope, Transport,
};
pub use table::{FaceError, FaceEvent, FaceEventKind, FaceReader, Faces};
pub use uri::{FaceUri, NotAFaceUri};
