//! The order of frames: what a ring is filled with after long use lies together, as it did at first.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use kaido_engine::{BATCH_MAX, Frame, FramePool, PoolCache};

/// Frames of a ring to receive into.
const RING: usize = 512;
/// Frames that go to the ring at a time, as ports do it.
const BLOCK: usize = 64;

/// A node's frames: where they are from the ring to their end, which is at once, behind one of three ports that send
/// at their own pace, or some time later.
struct Node {
    cache: PoolCache,
    ring: VecDeque<Frame>,
    sending: [VecDeque<Frame>; 3],
    kept: Vec<Frame>,
    random: u64,
}

impl Node {
    fn new(pool: &'static FramePool) -> Self {
        let mut node = Self {
            cache: pool.cache(),
            ring: VecDeque::new(),
            sending: Default::default(),
            kept: Vec::new(),
            random: 1,
        };
        node.fill();
        node
    }

    fn fill(&mut self) {
        while RING - self.ring.len() >= BLOCK {
            self.ring.extend((0..BLOCK).map(|_| self.cache.allocate().unwrap()));
        }
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % end
    }

    /// Receives a batch; where its frames lie.
    fn round(&mut self) -> Vec<usize> {
        let len = 1 + self.below(BATCH_MAX);
        let batch: Vec<Frame> = self.ring.drain(..len).collect();
        let places = batch.iter().map(|frame| frame.data().as_ptr().addr()).collect();
        for frame in batch {
            match self.below(100) {
                0..10 => self.cache.release(frame),
                10 => self.kept.push(frame),
                _ => {
                    let port = self.below(3);
                    self.sending[port].push_back(frame);
                }
            }
        }
        for (port, depth) in [0, 50, 200].into_iter().enumerate() {
            let done = self.sending[port].len().saturating_sub(depth + self.below(40));
            self.sending[port].drain(..done).for_each(|frame| self.cache.release(frame));
        }
        if self.kept.len() > 20 {
            let which = self.below(self.kept.len());
            self.cache.release(self.kept.swap_remove(which));
        }
        self.fill();
        places
    }
}

/// Of the frames of a batch after long use of a pool, how many in a hundred are followed by their neighbour.
fn neighbours_percent(pool: &'static FramePool) -> usize {
    let mut node = Node::new(pool);
    (0..5000).for_each(|_| drop(node.round()));
    let (mut pairs, mut neighbours) = (0, 0);
    for _ in 0..200 {
        let places = node.round();
        pairs += places.len() - 1;
        neighbours += places.windows(2).filter(|pair| pair[1] == pair[0] + pool.frame_size().bytes()).count();
    }
    neighbours * 100 / pairs
}

#[test]
fn a_pool_keeps_its_order() {
    let percent = neighbours_percent(FramePool::leak(4096).unwrap());
    assert!(percent >= 90, "{percent} % of the frames are followed by their neighbour");
}

#[test]
fn a_pool_keeps_its_order_where_somebody_has_a_frame_of_each_block() {
    let pool = FramePool::leak(4096).unwrap();
    let (others, rest): (Vec<Frame>, Vec<Frame>) = std::iter::from_fn(|| pool.allocate())
        .partition(|frame| frame.data().as_ptr().addr() / pool.frame_size().bytes() % BLOCK == 5);
    drop(rest);
    let percent = neighbours_percent(pool);
    assert!(percent >= 90, "{percent} % of the frames are followed by their neighbour");
    drop(others);
}
