//! Packet formats: zero-copy views, validated plain structs and builders, in safe Rust, without dependencies but for a hash.
//!
//! Each protocol has one file with up to three forms of the same header, and [`layout`] has a fourth of fixed ones:
//!
//! ```text
//!  bytes ──XxxView::new_checked──▶ XxxView<T>   one length check, then field by field, in place
//!        ──XxxRepr::parse────────▶ XxxRepr      plain values, validated;  emit() writes them back
//!        ──xxx::header───────────▶ XxxHeader    Copy, all that forwarding needs of any header, one pass
//!  &[u8; N] ──XxxFields::new──▶ XxxFields     named fields of a header of known length, nothing checked: fast paths
//! ```
//!
//! All multi-octet fields are in host order once read; lengths and offsets are in octets unless a name says
//! otherwise. No function here panics on any input, but for [`layout::at`] beyond a slice, as indexing does.

#![forbid(unsafe_code)]
// A header is never empty, so `len` without `is_empty` is right for every type of this crate.
#![allow(clippy::len_without_is_empty)]

mod bytes;
mod error;

pub mod arp;
pub mod checksum;
pub mod ecn;
pub mod ethernet;
pub mod gre;
pub mod gtpu;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod layout;
pub mod ndisc;
pub mod ndn;
pub mod rss;
pub mod tcp;
pub mod udp;
pub mod vlan;

pub use arp::{ArpOperation, ArpRepr, ArpView};
pub use error::Error;
pub use ethernet::{EtherType, EthernetRepr, EthernetView, MacAddr};
pub use gre::{GreHeader, GreRepr};
pub use gtpu::{GtpuHeader, GtpuRepr, GtpuView, MessageType, PduSession};
pub use ip::{Fragment, IpProtocol};
pub use ipv4::{Ipv4Header, Ipv4Repr, Ipv4View};
pub use ipv6::{Ipv6Header, Ipv6Repr, Ipv6View};
pub use tcp::{TcpFlags, TcpRepr, TcpView};
pub use udp::{UdpHeader, UdpRepr, UdpView};
pub use vlan::{Link, VlanRepr, VlanView};
