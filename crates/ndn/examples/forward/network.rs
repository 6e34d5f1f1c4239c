//! What a router has around it: consumers on one face, producers on another, and frames.

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, DropReason, Frame, PoolCache};
use kaido_ndn::forward::{FaceView, Sink};
use kaido_ndn::{Annotations, Packet};
use kaido_ndn_tables::{FaceId, TOKEN_LEN};

pub(crate) const CONSUMERS: FaceId = FaceId(301);
pub(crate) const PRODUCERS: FaceId = FaceId(302);

/// Takes what is sent, and keeps the tokens of Interests.
pub(crate) struct Network {
    pub(crate) cache: PoolCache,
    /// Their octets alone: to copy what was written in pieces in one would have the core wait.
    pub(crate) tokens: Vec<[u8; TOKEN_LEN]>,
    pub(crate) data: u64,
    pub(crate) drops: u64,
}

impl Network {
    pub(crate) fn new(cache: PoolCache) -> Self {
        Self { cache, tokens: Vec::new(), data: 0, drops: 0 }
    }
}

impl Sink for Network {
    fn face(&self, _face: FaceId) -> Option<FaceView> {
        Some(FaceView::default())
    }

    fn send(&mut self, face: FaceId, frame: Frame, annotations: &Annotations) {
        if annotations.nack.is_some() {
            self.drops += 1;
        } else if face == PRODUCERS {
            self.tokens.push(annotations.pit_token.octets().try_into().unwrap_or([0; TOKEN_LEN]));
        } else {
            self.data += 1;
        }
        self.cache.release(frame);
    }

    fn allocate(&mut self) -> Option<Frame> {
        self.cache.allocate()
    }

    fn drop(&mut self, _face: FaceId, frame: Frame, _reason: DropReason) {
        self.drops += 1;
        self.cache.release(frame);
    }
}

pub(crate) type Batch = ArrayVec<Packet, BATCH_MAX>;

/// Adds a packet to the last batch, or as the first of another.
pub(crate) fn push(batches: &mut Vec<Batch>, packet: Packet) {
    if batches.last().is_none_or(ArrayVec::is_full) {
        batches.push(Batch::new());
    }
    if let Some(batch) = batches.last_mut() {
        batch.push(packet);
    }
}
