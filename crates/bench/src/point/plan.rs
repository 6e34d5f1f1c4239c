//! What one point is.

use std::time::Duration;

use kaido_engine::FrameSize;
use kaido_engine::shared::{Order, QueueMode};
use serde::Serialize;

use crate::BenchError;
use crate::family::Family;
use crate::frames::{Direction, FRAME_BYTES_MAX, SESSIONS_MAX};
use crate::shape::Shape;

/// Most workers of a point.
pub const WORKERS_MAX: usize = 64;

/// Longest frame over links, in bytes: with a tunnel over IPv6 it still fits the longest that a plain XDP program takes on veth.
pub const LINK_FRAME_BYTES_MAX: usize = 3400;

/// What packets come in by, and leave by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Datapath {
    /// They lie in the frame pool: no device and no kernel takes part.
    #[default]
    Memory,
    /// Packet sockets on veth.
    AfPacket,
    /// AF_XDP sockets on veth, in copy mode, which is all that veth has.
    AfXdp,
}

impl Datapath {
    /// All.
    pub const ALL: [Self; 3] = [Self::Memory, Self::AfPacket, Self::AfXdp];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
        }
    }
}

/// By what a NIC would choose the queue, and so the worker, of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RssMode {
    /// The UE's address: the inner source uplink, the destination downlink.
    #[default]
    Ue,
    /// The TEID uplink, addresses downlink.
    Teid,
    /// Addresses, protocol and ports of the outermost headers, by a Toeplitz hash: receive side scaling as most NICs do
    /// it. All packets of one tunnel peer are one flow to it.
    FiveTuple,
}

impl RssMode {
    /// All.
    pub const ALL: [Self; 3] = [Self::Ue, Self::Teid, Self::FiveTuple];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ue => "ue",
            Self::Teid => "teid",
            Self::FiveTuple => "five-tuple",
        }
    }
}

/// Which sessions the packets are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Flows {
    /// All of one session.
    Single,
    /// Of all sessions in turn, in random order: none comes again before all others have.
    #[default]
    Multi,
}

impl Flows {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Multi => "multi",
        }
    }
}

/// What time counts while packets arrive at a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PointClock {
    /// The time that the worker ran: what the system gave to others meanwhile is left out.
    #[default]
    Cpu,
    /// The time on the wall, as packets of a real device would see it.
    Wall,
}

/// One point to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct PointPlan {
    /// By what they come and leave.
    pub datapath: Datapath,
    /// Which way the packets go.
    pub direction: Direction,
    /// IPv4 or IPv6, in the tunnel and outside.
    pub family: Family,
    /// Bytes of a frame, without FCS.
    pub frame_bytes: usize,
    /// Workers, each with a thread.
    pub workers: usize,
    /// How they get at the packets.
    pub queue: QueueMode,
    /// With [`QueueMode::Rss`]: by what packets are spread over them.
    pub spread: RssMode,
    /// Sessions in the node.
    pub sessions: u32,
    /// The rules of each.
    pub shape: Shape,
    /// Of which of them packets come.
    pub flows: Flows,
    /// Whether the outer UDP checksum is computed downlink.
    pub udp_checksum: bool,
    /// Packets offered a second; as fast as they are taken when `None`.
    pub rate_pps: Option<f64>,
    /// Packets that wait for a worker at most when they come at a rate: the descriptors of a receive ring.
    pub ring: usize,
    /// What time counts when they come at a rate.
    pub clock: PointClock,
    /// How long, in time of the user plane: making packets is not in it.
    pub duration: Duration,
    /// Ends the run after so many packets, if that is earlier: a burst.
    pub packets: Option<u64>,
    /// Parts of that, each of which gives a sample.
    pub samples: usize,
    /// Packets made ready at a time, at most.
    pub packets_per_round: usize,
    /// The order of sessions comes from it.
    pub seed: u64,
    /// Over links: whether a bare port and the kernel forward the same frames too, each as long.
    pub compare: bool,
}

impl Default for PointPlan {
    fn default() -> Self {
        Self {
            datapath: Datapath::default(),
            direction: Direction::Uplink,
            family: Family::default(),
            frame_bytes: 128,
            workers: 1,
            queue: QueueMode::Rss,
            spread: RssMode::default(),
            sessions: 65_536,
            shape: Shape::Plain,
            flows: Flows::default(),
            udp_checksum: false,
            rate_pps: None,
            ring: 4096,
            clock: PointClock::default(),
            duration: Duration::from_secs(1),
            packets: None,
            samples: 11,
            packets_per_round: 32_768,
            seed: 1,
            compare: false,
        }
    }
}

impl PointPlan {
    /// Packets of the next round, `offered` having been counted: all that are ready at a time, or those of about a
    /// twentieth of a second.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Clamped.
    pub(super) fn round_packets(&self, offered: u64) -> usize {
        let at_rate = self.rate_pps.map_or(f64::MAX, |rate| rate / 20.0);
        let round = (at_rate as usize).clamp(32.min(self.packets_per_round), self.packets_per_round);
        let left = self.packets.map_or(u64::MAX, |packets| packets.saturating_sub(offered).max(1));
        round.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// The order that the queue keeps; `None` with a queue for each worker.
    pub(super) fn shared_order(&self) -> Option<Order> {
        match self.queue {
            QueueMode::Rss => None,
            QueueMode::Shared => Some(Order::Free),
            QueueMode::SharedOrdered => Some(Order::KEPT),
        }
    }

    /// The frames that a node has on links of such packets.
    pub(super) fn frame_size(&self) -> FrameSize {
        crate::rounds::size_for(self.frame_bytes)
    }

    pub(super) fn check(&self) -> Result<(), BenchError> {
        let refuse = |what: String| Err(BenchError::Point(what));
        if !(64..=FRAME_BYTES_MAX).contains(&self.frame_bytes) {
            return refuse(format!("a frame has 64 to {FRAME_BYTES_MAX} bytes, not {}", self.frame_bytes));
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return refuse(format!("there are 1 to {WORKERS_MAX} workers, not {}", self.workers));
        }
        if !(1..=SESSIONS_MAX).contains(&self.sessions) {
            return refuse(format!("there are 1 to {SESSIONS_MAX} sessions, not {}", self.sessions));
        }
        if self.rate_pps.is_some_and(|rate| !rate.is_finite() || rate < 1.0) {
            return refuse("the rate is at least one packet a second".to_owned());
        }
        if self.rate_pps.is_some() && self.queue != QueueMode::Rss {
            return refuse("packets at a rate need a queue for each worker: queue mode rss".to_owned());
        }
        if !(1..=65_536).contains(&self.packets_per_round) {
            return refuse("a round has 1 to 65536 packets".to_owned());
        }
        if self.ring == 0 || self.samples == 0 || self.duration.is_zero() || self.packets == Some(0) {
            return refuse("ring, samples, packets and duration are more than nothing".to_owned());
        }
        if self.datapath != Datapath::Memory {
            let name = self.datapath.name();
            if self.workers != 1 || self.queue != QueueMode::Rss {
                return refuse(format!(
                    "the links of datapath {name} have one queue: take 1 worker and queue mode rss"
                ));
            }
            if self.frame_bytes > LINK_FRAME_BYTES_MAX {
                return refuse(format!(
                    "over links a frame has at most {LINK_FRAME_BYTES_MAX} bytes, to have room for a tunnel: not {}",
                    self.frame_bytes
                ));
            }
        }
        Ok(())
    }
}
