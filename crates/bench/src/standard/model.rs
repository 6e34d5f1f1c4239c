//! What a user plane does with a packet by the standard's text: one rule after the other, in the words of its clauses, with no regard to
//! what is quick.
//!
//! Where the text leaves a choice, the model says which one it takes:
//!
//! - a gate, and a FAR that drops, stand before quotas, quotas before buffering, and rates last: a packet that waits pays when it leaves;
//! - a URR that measures before QoS enforcement (MBQE) measures what a gate, a FAR or a rate drops, and nothing that a quota stops;
//! - the packet that reaches a quota passes, and the next does not.

use super::packets::{LeavingFrame, Packet, Tunnel};
use super::rules::{FarPlan, FilterPlan, PdrPlan, QERS, RemotePlan, Rules, URRS};
use crate::frames::Direction;

/// Packets and octets, uplink and downlink.
pub(super) type Usage = [[u64; 2]; 2];

/// A session.
pub(super) struct Model {
    session: u32,
    pub(super) rules: Rules,
    /// PDRs that are there.
    pub(super) present: Vec<bool>,
    /// What each URR has measured.
    pub(super) measured: [Usage; URRS],
    /// Octets that it had measured when its quota was granted.
    granted_at: [u64; URRS],
    /// What each QER has let pass of a rate that admits one packet and no second in the time of a test.
    has_passed: [[bool; 2]; QERS],
    waiting: Vec<Packet>,
}

fn index(direction: Direction) -> usize {
    usize::from(direction == Direction::Downlink)
}

impl Model {
    pub(super) fn new(session: u32, rules: Rules) -> Self {
        Self {
            session,
            present: vec![true; rules.pdrs.len()],
            rules,
            measured: [Usage::default(); URRS],
            granted_at: [0; URRS],
            has_passed: [[false; 2]; QERS],
            waiting: Vec::new(),
        }
    }

    /// Whether packets wait.
    pub(super) fn is_buffering(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a PDR is the last of its direction.
    pub(super) fn is_last(&self, place: usize) -> bool {
        let present = || self.rules.pdrs.iter().zip(&self.present).filter(|(_, present)| **present);
        self.rules.pdrs.get(place).is_some_and(|pdr| {
            self.present[place]
                && present().filter(|(other, _)| other.direction == pdr.direction).count() == 1
        })
    }

    /// What leaves because of a packet that comes.
    pub(super) fn packet(&mut self, packet: &Packet) -> Vec<LeavingFrame> {
        self.judge(packet).into_iter().collect()
    }

    /// What leaves of the packets that wait, after a FAR was changed (5.2.3.1, 5.2.4): in the order in which they came, those within a
    /// guaranteed rate before others.
    pub(super) fn release(&mut self) -> Vec<LeavingFrame> {
        let waits = |packet: &Packet| {
            self.pdr_of(packet).is_some_and(|pdr| self.rules.fars[pdr.far] == FarPlan::Buffer)
        };
        let (still, released) = self.waiting.iter().partition(|packet| waits(packet));
        self.waiting = still;
        let released: Vec<Packet> = released;
        let mut judge = |packet| Some((!self.is_guaranteed(packet), self.judge(packet)?));
        let mut left: Vec<(bool, LeavingFrame)> = released.iter().filter_map(&mut judge).collect();
        left.sort_by_key(|(last, _)| *last);
        left.into_iter().map(|(_, left)| left).collect()
    }

    /// Whether a packet is within a guaranteed rate (5.4.4).
    fn is_guaranteed(&self, packet: &Packet) -> bool {
        self.pdr_of(packet).is_some_and(|pdr| pdr.qers.iter().any(|&qer| self.rules.qers[qer].guaranteed))
    }

    /// A quota that counts from now on (5.2.2.2).
    pub(super) fn grant(&mut self, urr: usize, octets: u64) {
        self.rules.urrs[urr].quota = Some(octets);
        self.granted_at[urr] = octets_of(&self.measured[urr]);
    }

    /// The PDR of a packet: of those of the session that match it the one of highest precedence, which is the lowest value (5.2.1).
    fn pdr_of(&self, packet: &Packet) -> Option<PdrPlan> {
        let mut in_order = self.rules.pdrs.iter().zip(&self.present);
        in_order.find(|(pdr, present)| **present && is_match(pdr, packet)).map(|(pdr, _)| pdr.clone())
    }

    fn judge(&mut self, packet: &Packet) -> Option<LeavingFrame> {
        let pdr = self.pdr_of(packet)?;
        let direction = index(packet.direction);
        let far = self.rules.fars[pdr.far];
        let is_open = pdr.qers.iter().all(|&qer| self.rules.qers[qer].gates[direction]);
        if !is_open || far == FarPlan::Drop {
            self.measure(&pdr, packet, true);
            return None;
        }
        if pdr.urrs.iter().any(|&urr| self.is_used_up(urr)) {
            return None;
        }
        if far == FarPlan::Buffer {
            self.waiting.push(*packet);
            return None;
        }
        let exceeds = |&&qer: &&usize| self.rules.qers[qer].narrow && self.has_passed[qer][direction];
        if far == FarPlan::NoTunnel || pdr.qers.iter().any(|qer| exceeds(&qer)) {
            self.measure(&pdr, packet, true);
            return None;
        }
        pdr.qers.iter().for_each(|&qer| self.has_passed[qer][direction] = true);
        self.measure(&pdr, packet, false);
        // Every forwarded packet has a hop less to go (RFC 791 3.2, RFC 8200 3).
        let left = packet.ip(self.session, 63);
        // QoS flow marking (5.4.4): the QFI of the QER goes into the PDU session container.
        let qfi = pdr.qers.iter().find_map(|&qer| self.rules.qers[qer].qfi);
        let tunnel = far.tunnel(self.session).map(|tunnel| Tunnel { qfi, ..tunnel });
        Some(LeavingFrame { tunnel, packet: left })
    }

    fn is_used_up(&self, urr: usize) -> bool {
        let used = octets_of(&self.measured[urr]) - self.granted_at[urr];
        self.rules.urrs[urr].quota.is_some_and(|quota| used >= quota)
    }

    /// Measures a packet (5.2.2.2): user octets from the IP header on.
    fn measure(&mut self, pdr: &PdrPlan, packet: &Packet, dropped: bool) {
        for &urr in &pdr.urrs {
            if !dropped || self.rules.urrs[urr].before_qos {
                let [packets, octets] = &mut self.measured[urr][index(packet.direction)];
                *packets += 1;
                *octets += packet.len as u64;
            }
        }
    }
}

fn octets_of(usage: &Usage) -> u64 {
    usage.iter().map(|[_, octets]| octets).sum()
}

/// Whether a packet has all that a PDI asks for: of QFIs and of filters any, where there are some (5.2.1, 7.5.2.2).
fn is_match(pdr: &PdrPlan, packet: &Packet) -> bool {
    pdr.direction == packet.direction
        && (pdr.qfis.is_empty() || packet.qfi.is_some_and(|qfi| pdr.qfis.contains(&qfi)))
        && (pdr.filters.is_empty() || pdr.filters.iter().any(|filter| is_flow(filter, packet)))
}

/// Whether a packet is of a flow (8.2.5, TS 29.212 5.4.2). Port conditions hold for packets with ports alone (RFC 6733 4.3.1).
fn is_flow(filter: &FilterPlan, packet: &Packet) -> bool {
    let in_ranges = |ranges: &[(u16, u16)], port: Option<u16>| {
        let holds = |port| ranges.iter().any(|&(low, high)| (low..=high).contains(&port));
        ranges.is_empty() || port.is_some_and(holds)
    };
    let (remote, local) = packet.ports().unzip();
    filter.protocol.is_none_or(|protocol| protocol == packet.protocol)
        && filter.remote.is_none_or(|network| is_in(network, packet))
        && in_ranges(&filter.remote_ports, remote)
        && in_ranges(&filter.local_ports, local)
        && filter.tos.is_none_or(|tos| tos == packet.tos)
}

fn is_in(RemotePlan { family, lower_half }: RemotePlan, packet: &Packet) -> bool {
    family == packet.family && (!lower_half || packet.host < 128)
}
