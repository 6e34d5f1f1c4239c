//! The configuration: one TOML file, checked whole before anything is opened. [`file`](crate::file) reads it.
//!
//! `function` says what the node does. Each function has a type for its part of the file beside [`Base`], which all have; its
//! schema is the reference of its fields.
//!
//! Serde finds what is misspelt or of the wrong kind, `check` what is impossible together; either way
//! the user sees the file, the line, the field, and what is allowed.

mod api;
mod base;
pub(crate) mod check;
pub mod difference;
pub mod fault;
mod findings;
pub(crate) mod foreign;
mod metrics;
mod node;
mod part;
mod port;
mod prefix;
pub(crate) mod reference;
pub(crate) mod reload;
mod schema;
mod socket_address;
mod spanned;
mod wanted;

pub use api::{AccessFiles, ApiConfig};
pub use base::{Base, ControlConfig, DEFAULT_SOCKET, LogFormat, socket_path};
pub(crate) use check::is_log_filter;
pub use check::{check_base, is_interface_name};
pub use fault::ConfigFault;
pub use findings::Findings;
pub use node::{Datapath, FRAMES_MIN, NodeConfig, QueueMode, WORKERS_MAX};
pub use part::FilePart;
pub use port::{Attach, CopyMode, Driver, PortConfig};
pub use prefix::Prefix;
pub use reload::{Reload, ReloadRule, reload_of};
pub use schema::{Field, FunctionSchema, Section, Sections, or_zero, schema_of};
pub use socket_address::SocketAddress;
pub use spanned::{Spanned, unplaced};
