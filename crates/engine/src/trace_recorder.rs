//! What became of a packet, for a function that traces it.

use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::port::PortId;

/// What became of a packet, or of one that it brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It was handed to a port.
    Sent {
        /// The port.
        port: PortId,
        /// Octets of the frame.
        len: usize,
        /// Its front, as much as was asked for.
        head: Vec<u8>,
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
    dispositions: Vec<Disposition>,
}

impl TraceRecorder {
    pub(crate) fn new(snap: usize) -> Self {
        Self { snap, dispositions: Vec::new() }
    }

    pub(crate) fn into_dispositions(self) -> Vec<Disposition> {
        self.dispositions
    }

    #[cold]
    pub(crate) fn sent(&mut self, port: PortId, frame: &Frame) {
        let head = head_of(frame, self.snap);
        self.dispositions.push(Disposition::Sent { port, len: frame.packet_len(), head });
    }

    #[cold]
    pub(crate) fn dropped(&mut self, reason: DropReason) {
        self.dispositions.push(Disposition::Dropped(reason));
    }

    #[cold]
    pub(crate) fn left_to_kernel(&mut self) {
        self.dispositions.push(Disposition::ToKernel);
    }
}

/// At most `snap` octets of a packet, from its first on.
pub fn head_of(frame: &Frame, snap: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(snap.min(frame.packet_len()));
    for segment in frame.segments() {
        let room = snap - head.len();
        head.extend_from_slice(&segment[..segment.len().min(room)]);
    }
    head
}
