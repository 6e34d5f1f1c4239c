//! QoS enforcement by QERs (TS 29.244 5.4): which packets pass, and at what rate.
//!
//! | of a QER | what it becomes |
//! |---|---|
//! | gate (8.2.7) | a flag of the record |
//! | MBR (8.2.8): session-AMBR, MFBR, APN-AMBR | a token bucket a direction, shared by all PDRs that name the QER |
//! | GBR (8.2.9) | a token bucket that says which packets are preferred at a full port |
//! | QER Correlation ID (8.2.10) | one bucket for the QERs of several sessions |
//! | Averaging Window (8.2.115) | the bucket's depth |
//! | Packet Rate (8.2.63) | a count of packets in a time unit a direction |
//! | QFI, RQI, PPI | the template of the tunnel; see [`crate::tunnels::EncapTemplate`] |
//!
//! A rate of zero is no limit in that direction: the element has a field for both, and "uplink and/or downlink"
//! (7.5.2.5) cannot be said otherwise; what shall not pass at all has a gate. Rates are those of user packets, from
//! their IP header on.
//!
//! All of a packet's buckets must have something left before any is taken from; see [`kaido_table::TokenBucket`] for
//! what is exact and what a burst may be.

mod enforcement;
mod packets;
mod policers;
mod slots;

pub use enforcement::{Enforcement, POLICERS_MAX};
pub use packets::PacketsLeft;
pub use policers::{PolicerSlot, Policers, WINDOW_DEFAULT, WINDOW_MAX, WINDOW_MIN};
pub(crate) use slots::{Correlation, PolicerSlots};
