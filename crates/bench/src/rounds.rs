//! One round of the user plane's path: a pool of frames through a worker, restored before, judged after.

use std::sync::atomic::AtomicBool;

use kaido_engine::{Frame, FramePool, FrameSize, OwnedPool, PoolError};

use crate::BenchError;
use crate::clock::{TimeTaken, timed};
use crate::frames::{Direction, Template, Templates};
use crate::network::ETHERNET;
use crate::node::{Forwarder, stopped};
use crate::permutation::Permutation;
use crate::shape::Shape;

/// Steps after which packets that have not come out are lost.
const EMPTY_STEPS_MAX: usize = 4;
/// Rounds before each that is timed. What was measured before has driven the page tables of the sessions' memory out of the caches,
/// where they are under traffic: so many bring back those of 16 million sessions.
pub(crate) const UNTIMED_ROUNDS: usize = 4;
/// Packets of a round that are judged beside the first.
const JUDGED: usize = 64;

/// Packets that go round while they stay in the cache: with the lines of their headers a small part of its second level.
pub(crate) const HELD_PACKETS: usize = 512;
/// Times that they go round for one sample.
const HELD_TURNS: usize = 8;

/// All frames of a run, used by one case at a time.
#[derive(Debug)]
pub(crate) struct Frames {
    frames: Vec<Frame>,
    count: usize,
}

impl Frames {
    /// Takes `count` frames from the pool.
    pub(crate) fn new(pool: &'static FramePool, count: usize) -> Self {
        let mut cache = pool.cache();
        let frames: Vec<_> = std::iter::from_fn(|| cache.allocate()).take(count).collect();
        Self { count: frames.len(), frames }
    }

    /// Puts them into an order that has nothing to do with where they lie.
    fn mix(&mut self, seed: u64) {
        let order = Permutation::new(u32::try_from(self.count).unwrap_or(u32::MAX), seed);
        let mut places: Vec<_> = std::mem::take(&mut self.frames).into_iter().map(Some).collect();
        self.frames
            .extend((0..self.count as u64).filter_map(|place| places[order.at(place) as usize].take()));
    }

    /// Frames of a round.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Two halves of them, which come back by [`Self::join`].
    pub(crate) fn halves(&mut self) -> [Self; 2] {
        let half = self.count / 2;
        let [first, second] = [half, half].map(|count| self.frames.drain(..count).collect());
        [first, second].map(|frames| Self { frames, count: half })
    }

    /// Takes the halves back, behind the frame that was left where there is an odd one.
    pub(crate) fn join(&mut self, halves: [Self; 2]) {
        halves.into_iter().for_each(|half| self.frames.extend(half.frames));
    }
}

/// Frames of one size.
#[derive(Debug)]
pub(crate) struct FrameSet {
    pub(crate) pool: &'static FramePool,
    /// Those of a round.
    pub(crate) round: Frames,
    /// The few that stay in the cache.
    pub(crate) held: Frames,
    /// The last that is dropped.
    _own: OwnedPool,
}

impl FrameSet {
    fn new(size: FrameSize, packets_per_round: usize, mixed_by: Option<u64>) -> Result<Self, PoolError> {
        let own = OwnedPool(FramePool::leak_of(size, packets_per_round + HELD_PACKETS)?);
        let pool = *own;
        let [mut round, mut held] = [packets_per_round, HELD_PACKETS].map(|count| Frames::new(pool, count));
        if let Some(seed) = mixed_by {
            round.mix(seed);
            held.mix(seed);
        }
        Ok(Self { pool, round, held, _own: own })
    }
}

/// Frames for packets of all lengths of a run.
#[derive(Debug)]
pub(crate) struct FrameSets(Vec<FrameSet>);

/// Of the frames that a node has on links of such packets.
pub(crate) fn size_for(packet_len: usize) -> FrameSize {
    FrameSize::for_mtu(packet_len.saturating_sub(ETHERNET))
}

/// The sizes of frames that packets of these lengths lie in.
pub(crate) fn sizes_for(packet_lens: &[usize]) -> impl Iterator<Item = FrameSize> + '_ {
    FrameSize::ALL.into_iter().filter(|size| packet_lens.iter().any(|&len| size_for(len) == *size))
}

impl FrameSets {
    /// Frames for rounds of packets of these lengths, in the order of their pool, or in a random one by a seed.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn new(
        packet_lens: &[usize],
        packets_per_round: usize,
        mixed_by: Option<u64>,
    ) -> Result<Self, PoolError> {
        let frame_sets = sizes_for(packet_lens).map(|size| FrameSet::new(size, packets_per_round, mixed_by));
        frame_sets.collect::<Result<_, _>>().map(Self)
    }

    /// The pools of all sizes.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &'static FramePool> + '_ {
        self.0.iter().map(|frame_set| frame_set.pool)
    }

    /// The frames for packets of a length; `None` where there are none of that size.
    pub(crate) fn for_packets(&mut self, len: usize) -> Option<&mut FrameSet> {
        self.0.iter_mut().find(|frame_set| frame_set.pool.frame_size() == size_for(len))
    }
}

/// The order in which one direction of a node meets its sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    permutation: Permutation,
    place: u64,
    shape: Shape,
}

impl Order {
    pub(crate) fn new(sessions: u32, seed: u64) -> Self {
        Self { permutation: Permutation::new(sessions, seed), place: 0, shape: Shape::Plain }
    }

    /// Of sessions of a shape: those that are idle are left out.
    pub(crate) fn of_shape(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    /// The next session.
    pub(crate) fn next(&mut self) -> u32 {
        loop {
            let session = self.permutation.at(self.place);
            self.place += 1;
            if self.shape.is_active(session) {
                return session;
            }
        }
    }
}

/// Sends a few frames, which stay in the cache, through the node several times; nanoseconds a packet.
pub(crate) fn held_round(
    node: &mut Forwarder,
    frames: &mut Frames,
    template: &Template,
    order: &mut Order,
    stop: &AtomicBool,
) -> Result<f64, BenchError> {
    let mut ns = 0.0;
    for _ in 0..HELD_TURNS {
        ns += round(node, frames, template, order, stop)?.ns;
    }
    Ok(ns / (HELD_TURNS * frames.count()) as f64)
}

/// As [`round`], behind rounds that are not timed.
pub(crate) fn settled_round(
    node: &mut Forwarder,
    frames: &mut Frames,
    template: &Template,
    order: &mut Order,
    stop: &AtomicBool,
) -> Result<TimeTaken, BenchError> {
    settled_round_from(node, frames, template, order, stop, || ())
}

/// As [`settled_round`], whose timed round begins when `begin` returns.
pub(crate) fn settled_round_from(
    node: &mut Forwarder,
    frames: &mut Frames,
    template: &Template,
    order: &mut Order,
    stop: &AtomicBool,
    begin: impl FnOnce(),
) -> Result<TimeTaken, BenchError> {
    for _ in 0..UNTIMED_ROUNDS {
        round(node, frames, template, order, stop)?;
    }
    round_from(node, frames, template, order, stop, begin)
}

/// Has a worker step until it has received so many packets, or until nothing comes any more.
pub(crate) fn forward(packets: usize, mut step: impl FnMut() -> usize) {
    let (mut received, mut empty) = (0, 0);
    while received < packets && empty < EMPTY_STEPS_MAX {
        let count = step();
        received += count;
        empty = if count == 0 { empty + 1 } else { 0 };
    }
}

/// What the packets of a round look like.
pub(crate) trait Packets {
    /// The direction of all.
    fn direction(&self) -> Direction;

    /// That of a session's packet at a place of the run.
    fn at(&self, session: u32, place: u64) -> &Template;

    /// Whether they come out in another order, as those of a flow with a guaranteed rate leave before others: then they have numbers.
    fn are_numbered(&self) -> bool {
        false
    }
}

impl Packets for Template {
    fn direction(&self) -> Direction {
        self.direction
    }

    fn at(&self, _session: u32, _place: u64) -> &Template {
        self
    }
}

impl Packets for Templates {
    fn direction(&self) -> Direction {
        self.last().direction
    }

    fn at(&self, session: u32, place: u64) -> &Template {
        Templates::at(self, session, place)
    }

    fn are_numbered(&self) -> bool {
        true
    }
}

/// Sends every frame through the node once.
pub(crate) fn round(
    node: &mut Forwarder,
    frames: &mut Frames,
    packets: &impl Packets,
    order: &mut Order,
    stop: &AtomicBool,
) -> Result<TimeTaken, BenchError> {
    round_from(node, frames, packets, order, stop, || ())
}

/// As [`round`]; the worker begins when `begin` returns.
fn round_from(
    node: &mut Forwarder,
    frames: &mut Frames,
    packets: &impl Packets,
    order: &mut Order,
    stop: &AtomicBool,
    begin: impl FnOnce(),
) -> Result<TimeTaken, BenchError> {
    stopped(stop)?;
    let direction = packets.direction();
    let (first, sent) = (order.place, frames.count);
    let sessions: Vec<_> = (0..sent).map(|_| order.next()).collect();
    for ((&session, place), frame) in sessions.iter().zip(first..).zip(&mut frames.frames) {
        let template = packets.at(session, place);
        if !template.write(session, frame) {
            return Err(BenchError::FrameLength(template.len));
        }
        if packets.are_numbered() {
            // Rounds of such packets are short.
            template.number(u16::try_from(place - first).unwrap_or(u16::MAX), frame.data_mut());
        }
    }
    node.feeds(direction).0.load(std::mem::take(&mut frames.frames));
    // The ports take the frames over.
    node.step();
    begin();
    let ((), taken) = timed(|| forward(sent, || node.step()));
    let feeds = node.feeds(direction);
    feeds.0.want();
    feeds.1.want();
    node.step();
    node.feeds(direction).1.collect(&mut frames.frames);
    if frames.frames.len() != sent {
        return Err(BenchError::Lost {
            direction: direction.name(),
            sessions: order.permutation.len(),
            sent,
            lost: sent - frames.frames.len(),
            drops: node.drops(),
        });
    }
    let octets =
        sessions.iter().zip(first..).map(|(&session, place)| packets.at(session, place).user_octets());
    node.tally(direction, sent as u64, octets.sum());
    let sample = Permutation::new(u32::try_from(sent).unwrap_or(u32::MAX), first);
    for at in std::iter::once(0).chain((0..JUDGED.min(sent)).map(|n| sample.at(n as u64) as usize)) {
        let out = frames.frames[at].data();
        let sent_at = if packets.are_numbered() {
            // All flows have it at the same place.
            usize::from(packets.at(0, 0).number_of(out))
        } else {
            at
        };
        let Some(&session) = sessions.get(sent_at) else {
            let what = format!("it has the number {sent_at}");
            return Err(BenchError::WrongPacket { direction: direction.name(), session: 0, what });
        };
        packets.at(session, first + sent_at as u64).judge(session, out)?;
    }
    Ok(taken)
}

/// Cache lines of a packet that its headers span, before and after: those of the longest, or of a tunnel put before
/// the line at which received data begins.
pub(crate) const PACKET_LINES: usize = 2;

/// Bytes of these lines in all frames of a round.
pub(crate) fn touched_bytes(frames: usize) -> usize {
    frames * PACKET_LINES * crate::floor::LINE
}

#[cfg(test)]
mod tests {
    use kaido_engine::HEADROOM;

    use super::*;
    use crate::floor::LINE;
    use crate::frames::Direction;
    use crate::node::UpfNode;

    #[test]
    fn packets_lie_in_the_frames_that_a_node_would_have() {
        let mut frame_sets = FrameSets::new(&[64, 1424, 3024], 100, None).unwrap();
        assert!(frame_sets.pools().map(FramePool::frame_size).eq(FrameSize::ALL));
        let mut size = |len| frame_sets.for_packets(len).unwrap().pool.frame_size();
        assert_eq!(
            [64, 1514, 1784, 1785, 3600].map(&mut size).map(FrameSize::bytes),
            [2048, 2048, 2048, 4096, 4096]
        );
        let mut small = FrameSets::new(&[128], 100, None).unwrap();
        assert!(small.for_packets(3024).is_none());
        let FrameSet { pool, round, held, .. } = small.for_packets(128).unwrap();
        assert_eq!((round.count(), held.count(), pool.free_frames()), (100, HELD_PACKETS, 0));
    }

    #[test]
    fn mixed_frames_are_the_same_in_another_order() {
        let [ordered, mixed] = [None, Some(1)].map(|mixed_by| {
            let mut frame_sets = FrameSets::new(&[128], 1000, mixed_by).unwrap();
            let frame_set = frame_sets.for_packets(128).unwrap();
            frame_set.round.frames.iter().map(Frame::address).collect::<Vec<_>>()
        });
        assert_ne!(ordered, mixed);
        let sorted = |mut addresses: Vec<u64>| {
            addresses.sort_unstable();
            addresses
        };
        assert_eq!(sorted(ordered), sorted(mixed));
    }

    #[test]
    fn every_packet_comes_out_right_or_is_told_lost() {
        let pool = FramePool::leak(256).unwrap();
        let mut frames = Frames::new(pool, 200);
        let stop = AtomicBool::new(false);
        let mut node = UpfNode::new(20, pool, 200).unwrap();
        node.establish(20, &stop, &|_| ()).unwrap();
        node.modify(20, &stop).unwrap();
        node.delete(5, &stop).unwrap();
        for direction in Direction::ALL {
            for len in [64, 3024] {
                let mut order = Order::new(15, 1);
                let template = Template::new(direction, len);
                for _ in 0..3 {
                    round(&mut node.forwarder, &mut frames, &template, &mut order, &stop).unwrap();
                }
            }
        }
        let template = Template::new(Direction::Downlink, 128);
        let lost =
            round(&mut node.forwarder, &mut frames, &template, &mut Order::new(20, 1), &stop).unwrap_err();
        assert!(matches!(lost, BenchError::Lost { sent: 200, lost: 50, .. }), "{lost}");
        assert!(lost.to_string().contains("ue_unknown"), "{lost}");
    }

    #[test]
    fn headers_span_as_many_lines_as_is_said() {
        for direction in Direction::ALL {
            let headers = Template::new(direction, 0).headers.len();
            let tunnel = if direction == Direction::Downlink { 44 } else { 0 };
            let first = (HEADROOM - tunnel) / LINE;
            let last = (HEADROOM + headers - 1) / LINE;
            assert_eq!(last - first + 1, PACKET_LINES, "{direction:?}");
        }
    }
}
