//! What sessions have carried, as the node says it.

use std::net::{Ipv4Addr, Ipv6Addr};

use kaido_n4::Volume;
use serde::{Deserialize, Serialize};

/// A session, by a number that no other one has or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// Which packets of a session a volume is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Those of flows with these descriptions (TS 29.214 5.3.8), sorted.
    Flow(Vec<String>),
    /// Those of an application.
    Application(String),
}

/// An address of a UE, as notifications name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeAddress {
    /// IPv4.
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 prefix.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Of an Ethernet session.
    pub mac: Option<[u8; 6]>,
}

impl UeAddress {
    /// Whether notifications can say whose they are: one of the three is mandatory.
    pub const fn is_known(&self) -> bool {
        self.ipv4.is_some() || self.ipv6.is_some() || self.mac.is_some()
    }
}

/// What a session has carried since it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionVolumes {
    /// Which session.
    pub session: SessionId,
    /// Its UE.
    pub ue: UeAddress,
    /// SUPI, if the node knows it: `imsi-` and digits.
    pub supi: Option<String>,
    /// DNNs by which it can be told from others; the first is shown.
    pub dnns: Vec<String>,
    /// In whole.
    pub whole: Volume,
    /// By flow and application, as far as they are counted apart.
    pub parts: Vec<(Scope, Volume)>,
    /// What [`UsageSource::counted`] says as long as nothing more is carried.
    pub counted: Option<Volume>,
}

/// Where volumes are read. Each call does little: a read takes some microseconds, the others less.
pub trait UsageSource {
    /// Sessions that have an address now, at most `limit`.
    fn of_address(&mut self, address: std::net::IpAddr, limit: usize) -> Vec<SessionId>;

    /// Reads a session; `None` of one that is gone.
    fn read(&mut self, session: SessionId) -> Option<SessionVolumes>;

    /// The SUPI of a session, without the rest.
    fn supi(&mut self, session: SessionId) -> Option<String>;

    /// Places of sessions, taken or free.
    fn places(&self) -> u32;

    /// The session at a place, and what its counter says where it has one alone: while that is the same, the session has carried nothing.
    fn counted(&mut self, place: u32) -> Option<(SessionId, Option<Volume>)>;
}
