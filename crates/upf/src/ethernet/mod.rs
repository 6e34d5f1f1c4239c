//! Ethernet PDU sessions (TS 23.501 5.6.10.2, TS 29.244 5.13): the node is a bridge between sessions and N6 LANs.
//!
//! ```text
//!   session ─ tunnel ─▶ rules ─▶ source learned ─┬─▶ another session's rules ─▶ its tunnel
//!                                                └─▶ LAN, with its tags
//!   LAN ─▶ tags off ─▶ destination looked up ─▶ that session's rules ─▶ its tunnel
//! ```
//! - [`frame`]: what is read of a frame;
//! - [`lan`]: network instances whose LANs are bridged;
//! - [`fdb`]: where each Ethernet address is;
//! - [`bindings`]: which IP addresses each of them has.

pub mod bindings;
pub mod fdb;
pub mod frame;
pub mod lan;

use std::time::Duration;

use self::bindings::Bindings;
use self::fdb::FdbStations;
use self::frame::Vlan;
use self::lan::EthernetLans;
use crate::ids::InstanceId;
use kaido_n4::Mac;

/// Time without a frame after which an Ethernet address is forgotten, unless a URR has its own (IEEE 802.1Q 8.8.3).
pub const AGEING_DEFAULT: Duration = Duration::from_secs(300);

/// What becomes of a frame to an Ethernet address that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownUnicast {
    /// From a session it goes to the N6 side; from there it is dropped.
    #[default]
    Drop,
    /// It goes to all sessions of the network instance, too.
    Flood,
}

/// How frames are bridged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetSettings {
    /// Network instances whose LANs are bridged.
    pub lans: EthernetLans,
    /// Frames to nobody known.
    pub unknown_unicast: UnknownUnicast,
    /// Sessions that one frame to many goes to, at most.
    pub flood_max: usize,
    /// Ethernet addresses of all sessions, at most; and as many on the N6 side.
    pub addresses_max: u32,
    /// Ethernet addresses of one session, at most.
    pub addresses_per_session: usize,
    /// Time without a frame after which an address is forgotten.
    pub ageing: Duration,
}

impl Default for EthernetSettings {
    fn default() -> Self {
        Self {
            lans: EthernetLans::default(),
            unknown_unicast: UnknownUnicast::default(),
            flood_max: 256,
            addresses_max: 65_536,
            addresses_per_session: 64,
            ageing: AGEING_DEFAULT,
        }
    }
}

/// An Ethernet address in a VLAN of a network instance, as the N6 side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Station {
    /// The network instance.
    pub instance: InstanceId,
    /// The VLAN within it.
    pub vlan: Vlan,
    /// The address.
    pub mac: Mac,
}

impl kaido_table::Key for Station {
    fn words(&self) -> [u64; 2] {
        let [a, b, c, d, e, f] = self.mac.0;
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        [mac | u64::from(self.instance.0) << 48, self.vlan.number().into()]
    }
}

/// What control and workers share of Ethernet sessions.
#[derive(Debug)]
pub struct Ethernet {
    /// Where addresses are.
    pub(crate) fdb: FdbStations,
    /// Which IP addresses they have.
    pub(crate) bindings: Bindings,
}

impl Ethernet {
    /// Nothing known.
    pub(crate) fn new(settings: &EthernetSettings) -> Self {
        Self { fdb: FdbStations::new(settings), bindings: Bindings::default() }
    }
}
