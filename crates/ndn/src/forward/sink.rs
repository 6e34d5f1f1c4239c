//! What the forwarding needs of the rest of the node.

use kaido_engine::{DropReason, Frame};
use kaido_ndn_tables::{Account, FaceId, Prefixes};

use crate::packet::{Annotations, Packet};

/// What the forwarding has to know of a face.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaceView {
    /// An application of this host: names under `/localhost` may go there.
    pub is_local: bool,
    /// Many hear what is sent: no Nacks go there.
    pub is_multi_access: bool,
    /// It has asked to be told where packets came from.
    pub local_fields: bool,
    /// What its waiting Interests are counted in.
    pub account: Account,
}

/// How Data or a Nack has come to a worker, where there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// It has been to no other worker.
    pub is_first: bool,
    /// It goes to no other worker from here, as far as is known.
    pub is_last: bool,
    /// At another worker someone has waited for it.
    pub was_served: bool,
}

impl Visit {
    /// That of a packet which is this worker's alone.
    pub const ONLY: Self = Self { is_first: true, is_last: true, was_served: false };
}

/// Where packets go.
pub trait Sink {
    /// A face that can send; `None` when there is none of this number, or it is down.
    fn face(&self, face: FaceId) -> Option<FaceView>;

    /// Sends a packet of the network layer, with what is to be said of it.
    fn send(&mut self, face: FaceId, frame: Frame, annotations: &Annotations);

    /// An empty frame.
    fn allocate(&mut self) -> Option<Frame>;

    /// Drops a packet that came from a face.
    fn drop(&mut self, face: FaceId, frame: Frame, reason: DropReason);

    /// How the packet at hand has come.
    #[inline]
    fn visit(&self) -> Visit {
        Visit::ONLY
    }

    /// Data that Interests wait for here, and whose name has this hash, is about to be sent to them: others may wait elsewhere.
    #[inline]
    fn satisfies(&mut self, _packet: &Packet, _name: u64) {}

    /// Takes Data or a Nack that nobody waits for here, if someone may elsewhere.
    #[inline]
    fn pass_on(&mut self, packet: Packet, _prefixes: &Prefixes) -> Option<Packet> {
        Some(packet)
    }
}
