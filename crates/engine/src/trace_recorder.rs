//! What became of a packet, for a function that traces it.

use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::port::PortId;

/// What became of a packet, or of one that it brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was handed to a port.
    Sent {
        /// The port.
        port: PortId,
        /// Octets of the frame.
        len: usize,
        /// Its front, as much as was asked for.
        front: Vec<u8>,
    },
    /// It was dropped.
    Dropped(DropReason),
    /// It was left to the kernel.
    ToKernel,
}

/// Writes down what a function does with its output.
#[derive(Debug)]
pub(crate) struct TraceRecorder {
    /// Octets of frames that are kept.
    snap: usize,
    fates: Vec<Fate>,
}

impl TraceRecorder {
    pub(crate) fn new(snap: usize) -> Self {
        Self { snap, fates: Vec::new() }
    }

    pub(crate) fn into_fates(self) -> Vec<Fate> {
        self.fates
    }

    #[cold]
    pub(crate) fn sent(&mut self, port: PortId, frame: &Frame) {
        let front = front_of(frame, self.snap);
        self.fates.push(Fate::Sent { port, len: frame.packet_len(), front });
    }

    #[cold]
    pub(crate) fn dropped(&mut self, reason: DropReason) {
        self.fates.push(Fate::Dropped(reason));
    }

    #[cold]
    pub(crate) fn left_to_kernel(&mut self) {
        self.fates.push(Fate::ToKernel);
    }
}

/// At most `snap` octets of a packet, from its first on.
pub fn front_of(frame: &Frame, snap: usize) -> Vec<u8> {
    let mut front = Vec::with_capacity(snap.min(frame.packet_len()));
    for segment in frame.segments() {
        let room = snap - front.len();
        front.extend_from_slice(&segment[..segment.len().min(room)]);
    }
    front
}
