//! What the host port drops, for the worker to ask for.

use kaido_engine::DropReason;

use crate::NdnDrop;

/// Packets dropped since the worker asked last, by reason.
#[derive(Debug, Default)]
pub(super) struct LossCounts {
    slow: u64,
    malformed: u64,
    full: u64,
    host_full: u64,
    unknown: u64,
    failed: u64,
    no_frame: u64,
}

impl LossCounts {
    /// To a face whose other end reads too slowly.
    pub(super) fn slow(&mut self) {
        self.slow += 1;
    }

    /// What is no packet; of a stream, all that follows is lost with it.
    pub(super) fn malformed(&mut self) {
        self.malformed += 1;
    }

    /// From whom no face was made, as there are enough.
    pub(super) fn full(&mut self) {
        self.full += 1;
    }

    /// From a host that has as many faces as it may.
    pub(super) fn host_full(&mut self) {
        self.host_full += 1;
    }

    /// To a face that is no more.
    pub(super) fn unknown(&mut self) {
        self.unknown += 1;
    }

    /// That the kernel refused to send, or that was waiting when its connection was lost.
    pub(super) fn failed(&mut self, packets: usize) {
        self.failed += packets as u64;
    }

    /// For which the pool had no frame.
    pub(super) fn no_frame(&mut self) {
        self.no_frame += 1;
    }

    /// Tells and forgets.
    pub(super) fn report(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        let Self { slow, malformed, full, host_full, unknown, failed, no_frame } = std::mem::take(self);
        for (reason, count) in [
            (NdnDrop::FACE_SLOW, slow),
            (NdnDrop::LINK_MALFORMED, malformed),
            (NdnDrop::FACES_FULL, full),
            (NdnDrop::HOST_FACES_FULL, host_full),
            (NdnDrop::FACE_UNKNOWN, unknown),
            (DropReason::TX_ERROR, failed),
            (DropReason::NO_FRAME, no_frame),
        ] {
            if count > 0 {
                report(reason, count);
            }
        }
    }
}
