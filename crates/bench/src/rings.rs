//! The worker with the rings of an AF_XDP port, without the kernel. It takes frames from RX rings, gives empty ones to fill rings,
//! sends through TX rings and takes what was sent back from completion rings.
//!
//! ```text
//!   not timed   peer: writes a burst of packets into frames of the fill ring ──▶ RX ring
//!   timed       worker: RX ring ─▶ path ─▶ TX ring, fill ring, completion ring of the burst before
//!   not timed   peer: judges what is in the TX ring ──▶ completion ring
//! ```
//! Peer and worker share a CPU and take turns. After each such burst goes one of as many packets through ports that hand over frames as
//! they are: what the rings add is the difference.

use std::fmt::{self, Formatter};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kaido_engine::port::{Port, RingPeer, XdpOptions, ring_port};
use kaido_engine::{FramePool, OwnedPool, Worker};
use kaido_n4::Volume;
use kaido_upf::node::Node;
use serde::Serialize;

use crate::BenchError;
use crate::clock::timed;
use crate::frames::{Direction, Template};
use crate::node::{Forwarder, drops, volume, worker};
use crate::rounds::{FrameSets, Frames, HELD_PACKETS, Order, UNTIMED_ROUNDS, forward, round, size_for};
use crate::shape::Shape;
use crate::stats::Summary;

/// Bursts of a sample.
const BURSTS: usize = 32;
/// Of so many packets of a burst the first is judged.
const JUDGED_OF: usize = 128;
/// Frames that the caches in front of the pool may keep, beside those in rings.
const CACHED: usize = 1024;

/// What the rings add, of one direction and number of sessions.
#[derive(Clone, Debug, Serialize)]
pub struct RingsResult {
    /// Which way.
    pub direction: Direction,
    /// Sessions in the node, all of which the packets meet.
    pub sessions: u32,
    /// The rules of each.
    pub shape: Shape,
    /// Length of the frames that were sent, without FCS.
    pub frame_bytes: usize,
    /// Packets that lie in the RX ring when the worker begins.
    pub packets_per_burst: usize,
    /// Such bursts of a sample.
    pub bursts: usize,
    /// Entries of each ring.
    pub ring_entries: u32,
    /// Nanoseconds a packet with the rings: median.
    pub ns_per_packet: f64,
    /// Its interquartile range.
    pub ns_spread: f64,
    /// Least and most.
    pub ns_range: [f64; 2],
    /// The same worker's path without them, by as large bursts between these: median.
    pub bare_ns: f64,
    /// Its interquartile range.
    pub bare_spread: f64,
    /// What the rings add, by rounds: median.
    pub added_ns: f64,
    /// Least and most.
    pub added_range: [f64; 2],
}

/// A pool for the rings of so many nodes, for frames of a length.
pub(crate) fn pool(nodes: usize, frame_bytes: usize) -> Result<OwnedPool, BenchError> {
    let options = XdpOptions::default();
    let filled = 2 * options.fill as usize;
    Ok(OwnedPool(FramePool::leak_of(size_for(frame_bytes), nodes * (filled + HELD_PACKETS + CACHED))?))
}

/// A worker of a node with two ports over rings.
pub(crate) struct RingWorker {
    of: (Shape, u32),
    worker: Worker,
    /// At the far ends of the N3 and of the N6 port.
    peers: [RingPeer; 2],
    /// By direction.
    directions: [RingDirection; 2],
    forwarded: Volume,
}

/// What goes through in a direction.
struct RingDirection {
    template: Template,
    order: Order,
    ns: Vec<f64>,
    bare_ns: Vec<f64>,
}

impl RingWorker {
    /// For frames of `frame_bytes`; the ports have given their frames to the peers already.
    pub(crate) fn new(
        (shape, sessions): (Shape, u32),
        node: &Arc<Node>,
        pool: &'static FramePool,
        frame_bytes: usize,
        seed: u64,
    ) -> Result<Self, BenchError> {
        let port =
            || ring_port(pool, &XdpOptions::default()).map_err(|error| BenchError::Rings(error.to_string()));
        let ((n3_port, n3), (n6_port, n6)) = (port()?, port()?);
        let ports: [Box<dyn Port>; 2] = [Box::new(n3_port), Box::new(n6_port)];
        let mut worker = worker(node, pool, ports)?;
        worker.step();
        let directions = Direction::ALL.map(|direction| RingDirection {
            template: Template::of_shape(shape, direction, frame_bytes),
            order: Order::new(sessions, seed.rotate_left(17)).of_shape(shape),
            ns: Vec::new(),
            bare_ns: Vec::new(),
        });
        Ok(Self { of: (shape, sessions), worker, peers: [n3, n6], directions, forwarded: Volume::default() })
    }

    /// A sample of each direction, beside one of a worker without rings.
    pub(crate) fn round(
        &mut self,
        bare: &mut Forwarder,
        frame_sets: &mut FrameSets,
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        for at in 0..self.directions.len() {
            let len = self.directions[at].template.len;
            let frames = &mut frame_sets.for_packets(len).ok_or(BenchError::FrameLength(len))?.held;
            let (mut ns, mut bare_ns) = (0.0, 0.0);
            for burst in 0..UNTIMED_ROUNDS + BURSTS {
                let with = self.burst(at)?;
                let without = self.bare_burst(at, bare, frames, stop)?;
                if burst >= UNTIMED_ROUNDS {
                    (ns, bare_ns) = (ns + with, bare_ns + without);
                }
            }
            let direction = &mut self.directions[at];
            direction.ns.push(ns / (BURSTS * HELD_PACKETS) as f64);
            direction.bare_ns.push(bare_ns / (BURSTS * frames.count()) as f64);
        }
        Ok(())
    }

    /// Nanoseconds for a burst through the rings.
    fn burst(&mut self, at: usize) -> Result<f64, BenchError> {
        let RingDirection { template, order, .. } = &mut self.directions[at];
        let [n3, n6] = &mut self.peers;
        let (from, to) = match template.direction {
            Direction::Uplink => (n3, n6),
            Direction::Downlink => (n6, n3),
        };
        let sessions: Vec<_> = (0..HELD_PACKETS).map(|_| order.next()).collect();
        let mut too_long = false;
        let delivered = from.deliver(HELD_PACKETS, |number, room| {
            let written = template.write_into(sessions[number], room);
            too_long |= written.is_none();
            written.unwrap_or(0)
        });
        if too_long {
            return Err(BenchError::FrameLength(template.len));
        }
        let worker = &mut self.worker;
        let ((), taken) = timed(|| forward(delivered, || worker.step()));
        let mut fault = None;
        let came = to.take_sent(|number, packet| {
            let Some(&session) = sessions.get(number) else { return };
            if number % JUDGED_OF == 0 {
                fault = fault.take().or_else(|| template.judge(session, packet).err());
            }
        });
        if delivered != HELD_PACKETS || came != HELD_PACKETS {
            return Err(BenchError::Lost {
                direction: template.direction.name(),
                sessions: self.of.1,
                sent: HELD_PACKETS,
                lost: HELD_PACKETS - came.min(HELD_PACKETS),
                drops: drops(worker),
            });
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        let octets = template.user_octets() * HELD_PACKETS as u64;
        self.forwarded = self.forwarded.plus(&volume(template.direction, HELD_PACKETS as u64, octets));
        Ok(taken.ns)
    }

    fn bare_burst(
        &mut self,
        at: usize,
        bare: &mut Forwarder,
        frames: &mut Frames,
        stop: &AtomicBool,
    ) -> Result<f64, BenchError> {
        let RingDirection { template, order, .. } = &mut self.directions[at];
        Ok(round(bare, frames, template, order, stop)?.ns)
    }

    /// What it has forwarded so far through the rings.
    pub(crate) fn forwarded(&self) -> Volume {
        self.forwarded
    }

    /// Throws the samples away.
    pub(crate) fn forget(&mut self) {
        for RingDirection { ns, bare_ns, .. } in &mut self.directions {
            ns.clear();
            bare_ns.clear();
        }
    }

    /// The figures of a direction.
    pub(crate) fn result(&self, direction: Direction) -> Option<RingsResult> {
        let RingDirection { template, ns, bare_ns, .. } =
            self.directions.iter().find(|of| of.template.direction == direction)?;
        let added: Vec<_> = ns.iter().zip(bare_ns).map(|(with, without)| with - without).collect();
        let (with, bare, added) = (Summary::of(ns)?, Summary::of(bare_ns)?, Summary::of(&added)?);
        Some(RingsResult {
            direction,
            sessions: self.of.1,
            shape: self.of.0,
            frame_bytes: template.len,
            packets_per_burst: HELD_PACKETS,
            bursts: BURSTS,
            ring_entries: XdpOptions::default().rx,
            ns_per_packet: with.median,
            ns_spread: with.spread,
            ns_range: [with.min, with.max],
            bare_ns: bare.median,
            bare_spread: bare.spread,
            added_ns: added.median,
            added_range: [added.min, added.max],
        })
    }
}

/// As a table.
pub(crate) fn render(f: &mut Formatter<'_>, results: &[RingsResult]) -> fmt::Result {
    let Some(first) = results.first() else { return Ok(()) };
    writeln!(
        f,
        "\nWith rings: RX, fill, TX and completion rings of {} entries as an AF_XDP port has them, in memory, {} packets a burst, {} \
         bursts a round, frames of {} bytes; ns a packet, without what the rings' other end takes; bare: the path alone, by as \
         large bursts between these",
        first.ring_entries, first.packets_per_burst, first.bursts, first.frame_bytes,
    )?;
    writeln!(f, "  direction   sessions  rules     with rings      ±       bare      ±   rings add  range")?;
    for result in results {
        writeln!(
            f,
            "  {:9} {:>10}  {:7} {:>12.1} {:>6.1} {:>10.1} {:>6.1} {:>11.1}  {:.1} to {:.1}",
            result.direction.name(),
            result.sessions,
            result.shape.name(),
            result.ns_per_packet,
            result.ns_spread,
            result.bare_ns,
            result.bare_spread,
            result.added_ns,
            result.added_range[0],
            result.added_range[1],
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::UpfNode;

    #[test]
    fn every_packet_of_every_shape_goes_through_the_rings_and_is_counted() {
        let stop = AtomicBool::new(false);
        for shape in Shape::ALL {
            let mut frame_sets = FrameSets::new(&[128], 512, None).unwrap();
            let of_bare = frame_sets.for_packets(128).unwrap().pool;
            let mut node = UpfNode::of_shape(shape, 20, of_bare, 512).unwrap();
            node.establish(20, &stop, &|_| ()).unwrap();
            let of_rings = pool(1, 128).unwrap();
            let mut ringed = RingWorker::new((shape, 20), node.node(), *of_rings, 128, 1).unwrap();
            for _ in 0..2 {
                ringed.round(&mut node.forwarder, &mut frame_sets, &stop).unwrap();
            }
            for direction in Direction::ALL {
                let result = ringed.result(direction).unwrap();
                assert_eq!((result.frame_bytes, result.ring_entries), (128, 2048));
                assert!(result.ns_per_packet > 0.0 && result.bare_ns > 0.0, "{result:?}");
            }
            let packets = (2 * (UNTIMED_ROUNDS + BURSTS) * HELD_PACKETS) as u64;
            let forwarded = ringed.forwarded();
            assert_eq!([forwarded.uplink_packets, forwarded.downlink_packets], [packets; 2]);
            assert_eq!(node.counted(), forwarded.plus(&node.forwarder.forwarded()), "{shape:?}");
            ringed.forget();
            assert!(ringed.result(Direction::Uplink).is_none());
            drop(ringed);
            assert_eq!(of_rings.close(), Ok(()), "every frame came back");
        }
    }

    #[test]
    fn a_packet_that_does_not_come_out_ends_the_run() {
        let stop = AtomicBool::new(false);
        let mut frame_sets = FrameSets::new(&[128], 512, None).unwrap();
        let of_bare = frame_sets.for_packets(128).unwrap().pool;
        let mut node = UpfNode::new(20, of_bare, 512).unwrap();
        // One session fewer than its packets are of.
        node.establish(19, &stop, &|_| ()).unwrap();
        let of_rings = pool(1, 128).unwrap();
        let mut ringed = RingWorker::new((Shape::Plain, 20), node.node(), *of_rings, 128, 1).unwrap();
        let lost = ringed.round(&mut node.forwarder, &mut frame_sets, &stop).unwrap_err();
        assert!(matches!(lost, BenchError::Lost { sent: HELD_PACKETS, .. }), "{lost}");
    }
}
