//! What has gone through a face.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use kaido_wire::ndn::types;

/// What a packet of the network layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// An Interest.
    Interest,
    /// A Data.
    Data,
    /// An Interest that has come back.
    Nack,
}

impl PacketKind {
    /// The kind of what begins with this octet, which is the type of the element.
    #[inline]
    pub(crate) fn of(first: Option<&u8>, is_nack: bool) -> Option<Self> {
        match first.map(|kind| u32::from(*kind)) {
            Some(types::INTEREST) if is_nack => Some(Self::Nack),
            Some(types::INTEREST) => Some(Self::Interest),
            Some(types::DATA) if !is_nack => Some(Self::Data),
            _ => None,
        }
    }
}

/// Packets and octets of one direction. Octets are those of the packets of the link.
#[derive(Debug, Default)]
pub struct Direction {
    packets: [AtomicU64; 3],
    octets: AtomicU64,
}

/// The counters of one direction at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionTotals {
    /// Interests.
    pub interests: u64,
    /// Data.
    pub data: u64,
    /// Nacks.
    pub nacks: u64,
    /// Octets of the packets of the link.
    pub octets: u64,
}

impl AddAssign for DirectionTotals {
    fn add_assign(&mut self, more: Self) {
        self.interests += more.interests;
        self.data += more.data;
        self.nacks += more.nacks;
        self.octets += more.octets;
    }
}

// Counters are read one by one and order nothing: relaxed is enough everywhere.
impl Direction {
    /// Counts a packet of the network layer.
    #[inline]
    pub(crate) fn packet(&self, kind: PacketKind) {
        self.packets[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts octets of the link.
    #[inline]
    pub(crate) fn octets(&self, octets: usize) {
        self.octets.fetch_add(octets as u64, Ordering::Relaxed);
    }

    /// What has been counted.
    pub(super) fn totals(&self) -> DirectionTotals {
        let [interests, data, nacks] = self.packets.each_ref().map(|count| count.load(Ordering::Relaxed));
        DirectionTotals { interests, data, nacks, octets: self.octets.load(Ordering::Relaxed) }
    }
}

/// What one worker counts of a face.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct FaceCounters {
    /// From the face into the node.
    pub received: Direction,
    /// From the node out of the face.
    pub sent: Direction,
}

// On a line of its own, and on the next one that the hardware fetches with it: each worker counts in counters of its own.
const _: () = assert!(size_of::<FaceCounters>() == 128);

/// What has gone through a face at a moment, of all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaceTotals {
    /// From the face into the node.
    pub received: DirectionTotals,
    /// From the node out of the face.
    pub sent: DirectionTotals,
}
