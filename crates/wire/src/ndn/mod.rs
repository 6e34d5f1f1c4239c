//! Named Data Networking: packet format 0.3, and the link protocol NDNLPv2.
//!
//! ```text
//!  octets ──Interest::parse──▶ Interest    the name and all that forwarding asks for, in place
//!         ──Data::parse──────▶ Data
//!         ──LpPacket::parse──▶ LpPacket    the fields of the link and the fragment behind them
//!         ──fast::interest, fast::data──▶  packets as they usually are, in one pass
//!  InterestRepr · DataRepr · LpHeader ──emit──▶ octets
//! ```
//!
//! A parser is given the first segment of a packet and the packet's length: what Content or ApplicationParameters carry
//! may go on in later segments, all that stands before them may not.
//!
//! Elements that are not known, or not where they belong, are skipped when their type is even and above 31. Others have
//! the packet refused. It is the rule of the format by which it can grow.

pub mod fast;
pub mod tlv;
pub mod types;

mod component;
mod data;
mod digest;
mod encode;
mod interest;
mod lp;
mod lp_header;
mod lp_reliability;
mod name;
mod signature;
mod uri;

pub use component::Component;
pub use data::{ContentType, Data, DataSignature, MetaInfo};
pub use digest::{DIGEST_LEN, Digest, implicit_digest, parameters_digest, sha256};
pub use encode::{DataRepr, InterestRepr, Signing, write_name};
pub use interest::{Interest, InterestSignature, LIFETIME_DEFAULT_MS, NONCE_ROOM, Parameters, RewrittenHead};
pub use lp::{LpPacket, PIT_TOKEN_MAX};
pub use lp_header::LpHeader;
pub use lp_reliability::LpReliability;
pub use name::{Components, Name, Names};
pub use signature::{SignatureInfo, SignatureType};
pub use uri::name_from_uri;

/// Octets of the longest packet of the network layer.
pub const PACKET_MAX: usize = 8800;

/// The EtherType of frames with NDN in them.
pub const ETHERTYPE: crate::EtherType = crate::EtherType(0x8624);

/// The UDP and TCP port of NDN.
pub const PORT: u16 = 6363;

/// The UDP port of the multicast group.
pub const MULTICAST_PORT: u16 = 56363;

/// What is wrong with an element, as the type of error of all parsers and builders.
type Result<T> = core::result::Result<T, crate::Error>;
