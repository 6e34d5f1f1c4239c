//! Flows of which packets were sampled, until their records are sent.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use kaido_n4::Teid;
use kaido_upf::control::{SessionSummary, TraceFilter, Upf};
use kaido_wire::tcp::TcpFlags;

use super::packet::{FlowKey, SampledPacket};

/// A flow of whose packets none was sampled for so long is said to be idle.
const IDLE: Duration = Duration::from_secs(15);

/// What was sampled of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampledFlow {
    pub(super) key: FlowKey,
    pub(super) qfi: u8,
    pub(super) tos: u8,
    /// Of all samples together.
    pub(super) tcp_flags: u8,
    pub(super) packets: u64,
    pub(super) octets: u64,
    pub(super) first: SystemTime,
    pub(super) last: SystemTime,
    /// When its record was due.
    due: SystemTime,
}

impl SampledFlow {
    /// Whether a sample said that the connection ends.
    pub(super) fn has_ended(&self) -> bool {
        let flags = TcpFlags(self.tcp_flags);
        flags.contains(TcpFlags::FIN) || flags.contains(TcpFlags::RST)
    }

    /// Whether its last sample was long before its record is sent.
    pub(super) fn is_idle(&self) -> bool {
        self.due.duration_since(self.last).is_ok_and(|since| since >= IDLE)
    }
}

/// Whose flow it is: empty where no session, or more than one, has the tunnel or the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowOwner {
    pub(super) seid: u64,
    pub(super) imsi: String,
}

impl FlowOwner {
    /// Looked up by the tunnel of an uplink packet, or the destination of a downlink packet.
    pub(super) fn of(upf: &mut Upf, key: &FlowKey) -> Self {
        let of_ue = |upf: &mut Upf, address: IpAddr| upf.sessions_of(TraceFilter::Ue(address));
        let found = match key.teid {
            Some(teid) => upf.sessions_of_teid(Teid(teid)),
            None => of_ue(upf, key.dst),
        };
        let [SessionSummary { seid, imsi, .. }] = found.as_slice() else { return Self::default() };
        Self { seid: seid.0, imsi: imsi.map(|imsi| imsi.to_string()).unwrap_or_default() }
    }
}

/// The flows that are remembered.
#[derive(Debug)]
pub(super) struct SampledFlows {
    flows: HashMap<FlowKey, SampledFlow>,
    /// When whose record is due, in that order.
    due: VecDeque<(Instant, FlowKey)>,
    interval: Duration,
    flows_max: usize,
    lost: u64,
}

impl SampledFlows {
    /// For so many flows, each of which has a record that long after its first sample.
    pub(super) fn new(interval: Duration, flows_max: usize) -> Self {
        Self { flows: HashMap::new(), due: VecDeque::new(), interval, flows_max, lost: 0 }
    }

    /// Samples of flows for which there was no room.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Counts a sample.
    pub(super) fn add(&mut self, packet: &SampledPacket, at: SystemTime, now: Instant) {
        let SampledPacket { key, qfi, tos, tcp_flags, octets } = *packet;
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.packets += 1;
            flow.octets += octets;
            flow.tcp_flags |= tcp_flags;
            flow.last = flow.last.max(at);
            flow.first = flow.first.min(at);
            return;
        }
        if self.flows.len() >= self.flows_max {
            self.lost += 1;
            return;
        }
        let due = at + self.interval;
        let flow = SampledFlow { key, qfi, tos, tcp_flags, packets: 1, octets, first: at, last: at, due };
        self.flows.insert(key, flow);
        self.due.push_back((now + self.interval, key));
    }

    /// A flow whose record is due by then; any, without a time.
    pub(super) fn take(&mut self, by: Option<Instant>) -> Option<SampledFlow> {
        let (due, key) = *self.due.front()?;
        if by.is_some_and(|now| due > now) {
            return None;
        }
        self.due.pop_front();
        self.flows.remove(&key)
    }

    /// Whether a record is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.front().is_some_and(|(due, _)| *due <= now)
    }
}
