//! One UE's session: where in its life it is, and what went through its tunnels.

use std::collections::VecDeque;
use std::time::Instant;

use kaido_n4::{Modification, Qfi, Seid};
use kaido_pfcp::PduSession;
use serde::Serialize;

use super::losses::{SentPacket, is_some_of};

use crate::report::Usage;
use crate::ue::Ue;

/// Where in its life a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is none.
    Detached,
    /// Its establishment is on the way.
    Attaching,
    /// It carries packets.
    Active,
    /// Its usage was asked for.
    Querying,
    /// A QoS flow is on the way.
    Flowing,
    /// A new tunnel is on the way.
    Moving,
    /// Its FAR is being told to buffer.
    Idling,
    /// Its FAR buffers.
    Idle,
    /// Its FAR is being told to forward.
    Waking,
    /// It sends nothing any more and waits for replies.
    Draining,
    /// Its deletion is on the way.
    Detaching,
    /// It is deleted; packets may be on their way.
    Closing,
}

impl Phase {
    /// Whether its UE sends packets in this phase. While it wakes it has rules only where idle sessions keep theirs.
    pub(super) fn sends(self, keeps_rules: bool) -> bool {
        matches!(self, Self::Active | Self::Querying | Self::Flowing | Self::Moving)
            || (self == Self::Waking && keeps_rules)
    }
}

/// Packets and octets of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Amount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Amount {
    /// Counts a packet.
    pub(super) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    /// What it is more than another; `None` when it is less.
    fn beyond(self, other: Self) -> Option<Self> {
        let packets = self.packets.checked_sub(other.packets)?;
        Some(Self { packets, bytes: self.bytes.checked_sub(other.bytes)? })
    }
}

/// A UE and its session, one after the other.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) ue: Ue,
    pub(super) phase: Phase,
    /// Since when it is in its phase.
    pub(super) since: Instant,
    pub(super) seid: Seid,
    /// What the SMF knows of it.
    pub(super) pdu: PduSession,
    /// Requests of its procedure that were not sent yet.
    pub(super) requests: VecDeque<Modification>,
    /// The downlink tunnel.
    pub(super) teid: u32,
    /// The one that it moves to.
    pub(super) next_teid: u32,
    /// Packets that were not answered yet.
    pub(super) waiting: Vec<SentPacket>,
    pub(super) sent: Amount,
    pub(super) received: Amount,
    pub(super) usage: Usage,
    /// When usage was reported last, or the session began.
    pub(super) reported: Instant,
}

impl Session {
    /// A UE without a session.
    pub(super) fn new(ue: Ue) -> Self {
        Self {
            ue,
            phase: Phase::Detached,
            since: Instant::now(),
            seid: Seid(0),
            pdu: PduSession::default(),
            requests: VecDeque::new(),
            teid: 0,
            next_teid: 0,
            waiting: Vec::new(),
            sent: Amount::default(),
            received: Amount::default(),
            usage: Usage::default(),
            reported: Instant::now(),
        }
    }

    /// A new session with that downlink tunnel.
    pub(super) fn begin(&mut self, teid: u32, pdu: PduSession) {
        (self.teid, self.next_teid) = (teid, teid);
        (self.pdu, self.ue.qfi) = (pdu, None);
        self.requests.clear();
        self.waiting.clear();
        self.sent = Amount::default();
        self.received = Amount::default();
        self.usage = Usage::default();
        self.reported = Instant::now();
        self.enter(Phase::Attaching);
    }

    /// Goes on to a phase.
    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
    }

    /// Counts a packet into the tunnel.
    pub(super) fn sent(&mut self, number: u64, len: usize) {
        self.sent.add(len);
        let asleep = matches!(self.phase, Phase::Idling | Phase::Idle | Phase::Waking);
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        self.waiting.push(SentPacket { number, len, at: Instant::now(), asleep });
    }

    /// The UE falls asleep: what is not answered yet may be buffered.
    pub(super) fn fall_asleep(&mut self) {
        self.waiting.iter_mut().for_each(|packet| packet.asleep = true);
    }

    /// Takes the reply to a packet; `false` for one that nothing waits for.
    pub(super) fn answered(&mut self, number: u64) -> bool {
        let found = self.waiting.iter().position(|waiting| waiting.number == number);
        found.is_some_and(|place| {
            self.waiting.swap_remove(place);
            true
        })
    }

    /// Whether a packet out of its tunnel has the QFI of its flow.
    pub(super) fn has_qfi(&self, qfi: Option<u8>) -> bool {
        let (now, before) = (self.pdu.qfi(), self.pdu.default_qfi());
        match qfi.map(Qfi) {
            // LTE.
            None => now == Qfi(0),
            Some(found) => found == now || (self.phase == Phase::Flowing && found == before),
        }
    }

    /// Whether the UPF reported just what went through, as far as it was asked to.
    pub(super) fn agrees(&self) -> bool {
        let asked = self.pdu.accounting();
        let expected = |through: Amount, wanted: bool| Amount {
            packets: if wanted && asked.packets { through.packets } else { 0 },
            bytes: if wanted { through.bytes } else { 0 },
        };
        (expected(self.sent, asked.uplink), expected(self.received, asked.downlink)) == self.charged()
            && self.usage.out_of_sequence == 0
            && self.usage.final_reports == self.pdu.counting_urrs()
    }

    /// What the UPF reported, up and down.
    fn charged(&self) -> (Amount, Amount) {
        let usage = &self.usage;
        let up = Amount { packets: usage.uplink_packets, bytes: usage.uplink_bytes };
        (up, Amount { packets: usage.downlink_packets, bytes: usage.downlink_bytes })
    }

    /// What was sent and not charged, and what was charged and not received; `None` when there is less than nothing.
    pub(super) fn lost(&self) -> Option<(Amount, Amount)> {
        let (up, down) = self.charged();
        Some((self.sent.beyond(up)?, down.beyond(self.received)?))
    }

    /// Whether the UPF reported just what went through where packets were lost: what was sent without packets that had no
    /// reply, and what was received with replies that are missing.
    pub(super) fn agrees_but_for_losses(&self) -> bool {
        self.lost().is_some_and(|(up, down)| {
            up.packets + down.packets <= self.waiting.len() as u64
                && is_some_of(up, &self.waiting)
                && is_some_of(down, &self.waiting)
        }) && self.usage.final_reports == self.pdu.counting_urrs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_and_usage_agree_only_to_the_octet() {
        let mut session = Session::new(Ue::new(None, None));
        session.begin(7, PduSession::default());
        session.sent(1, 100);
        assert!(!session.answered(2) && session.answered(1) && !session.answered(1));
        session.received.add(90);
        assert!(!session.agrees());
        session.usage.final_reports = 1;
        (session.usage.uplink_packets, session.usage.uplink_bytes) = (1, 100);
        (session.usage.downlink_packets, session.usage.downlink_bytes) = (1, 90);
        assert!(session.agrees());
        session.usage.downlink_bytes += 1;
        assert!(!session.agrees());
    }

    #[test]
    fn usage_of_a_session_that_lost_packets_is_that_of_some_of_them() {
        let mut session = Session::new(Ue::new(None, None));
        session.begin(7, PduSession::default());
        [(1, 100), (2, 200), (3, 300)].into_iter().for_each(|(number, len)| session.sent(number, len));
        assert!(session.answered(1));
        session.received.add(100);
        session.usage.final_reports = 1;
        // The second was lost on its way up, the reply to the third on its way down.
        (session.usage.uplink_packets, session.usage.uplink_bytes) = (2, 400);
        (session.usage.downlink_packets, session.usage.downlink_bytes) = (2, 400);
        assert!(!session.agrees() && session.agrees_but_for_losses());
        session.usage.downlink_bytes += 1;
        assert!(!session.agrees_but_for_losses());
        // More was charged than sent.
        (session.usage.downlink_bytes, session.usage.uplink_bytes) = (400, 700);
        assert!(!session.agrees_but_for_losses());
        // What was answered must be charged.
        (session.usage.uplink_packets, session.usage.uplink_bytes) = (0, 0);
        assert!(!session.agrees_but_for_losses());
    }
}
