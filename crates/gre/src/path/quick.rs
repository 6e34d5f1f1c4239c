//! The two usual kinds of frames, told and done by a few loads and stores.

use kaido_engine::{Frame, PortId};
use kaido_wire::{EtherType, IpProtocol, checksum};

use crate::counters::RuleCounters;
use crate::matching::{Matchers, Seen};
use crate::rules::{Propagation, Settings, Verdict, Way};

/// Octets of Ethernet, and of IPv4 and GRE without options.
const LINK: usize = 14;
const OUTER: usize = 24;
/// The least of an IPv4 packet.
const INNER: usize = 20;
const FRONT: usize = LINK + OUTER + INNER;
/// The bit of ECN that is set in each of the two values that go over to what was in the tunnel (RFC 6040 4.2).
const ECN_GOES_OVER: u8 = 1;

/// What may be done at once, by port.
#[derive(Debug)]
pub(super) struct Quick(Box<[QuickPort]>);

/// What may be done at once with what comes in by one port.
#[derive(Debug)]
pub(super) struct QuickPort {
    /// Where it goes, if all that is no tunnel packet goes there as it is.
    plain_to: Option<PortId>,
    /// Where what was in a tunnel goes.
    across: Option<PortId>,
    /// Longest frame that fits there.
    fits: usize,
    /// Rules that take the headers off and change nothing else, by number.
    strips: Box<[bool]>,
    /// Whether that is so where no rule is met.
    strips_unmatched: bool,
}

impl Quick {
    pub(super) fn of(settings: &Settings) -> Self {
        let strips = |verdict: &Verdict| {
            matches!(
                verdict,
                Verdict::Decapsulate { ttl: Propagation::Pipe, dscp: Propagation::Pipe, way: Way::Across }
            )
        };
        let ports = settings.ports.iter().enumerate().map(|(at, port)| {
            let encapsulates = settings.encapsulations.iter().any(|way| way.port.index() == at);
            QuickPort {
                plain_to: port.across.filter(|_| !encapsulates),
                across: port.across,
                fits: port.across.map_or(0, |to| settings.ports[to.index()].mtu + LINK),
                strips: settings.rules.iter().map(|rule| strips(&rule.verdict)).collect(),
                strips_unmatched: strips(&settings.unmatched),
            }
        });
        Self(ports.collect())
    }

    #[inline]
    pub(super) fn at(&self, port: PortId) -> &QuickPort {
        &self.0[port.index()]
    }
}

impl QuickPort {
    /// Where a frame goes that is one of the usual two, whose outer headers are gone then; `None`, and nothing has
    /// changed, for all others.
    #[inline(always)]
    pub(super) fn pass(
        &self,
        frame: &mut Frame,
        matchers: &Matchers,
        port: PortId,
        counters: &RuleCounters,
    ) -> Option<PortId> {
        let len = frame.packet_len();
        let front = *frame.data().first_chunk::<FRONT>()?;
        let word = |at: usize| u16::from_be_bytes([front[at], front[at + 1]]);
        if EtherType(word(12)) != EtherType::IPV4 || len > self.fits + OUTER {
            return None;
        }
        if front[23] != IpProtocol::GRE.0 {
            return self.plain_to.filter(|_| front[14] >> 4 == 4 && len <= self.fits);
        }
        // No options, no fragment, no mark to be handed on, a plain GRE header, and in it what it says.
        let total = usize::from(word(16));
        let inner = EtherType(word(36));
        let is_usual = front[14] == 0x45
            && word(20) & 0x3fff == 0
            && front[15] & ECN_GOES_OVER == 0
            && word(34) == 0
            && (inner == EtherType::IPV4 && front[38] >> 4 == 4
                || inner == EtherType::IPV6 && front[38] >> 4 == 6 && total >= OUTER + 40)
            && (OUTER + INNER..=len - LINK).contains(&total)
            && checksum::sum(&front[LINK..LINK + 20]) == 0xffff;
        if !is_usual || frame.is_chained() {
            return None;
        }
        let address =
            |at: usize| u32::from_be_bytes([front[at], front[at + 1], front[at + 2], front[at + 3]]);
        let seen = Seen { source: address(26), destination: address(30), port, key: None, protocol: inner };
        let number = matchers.v4.find(&seen);
        let strips = match number {
            Some(number) => self.strips[usize::from(number)],
            None => self.strips_unmatched,
        };
        let to = self.across.filter(|_| strips && LINK + total - OUTER <= self.fits)?;
        if !frame.strip(OUTER) {
            return None;
        }
        frame.truncate(LINK + total - OUTER);
        let link = frame.data_mut().first_chunk_mut::<LINK>()?;
        link[..12].copy_from_slice(&front[..12]);
        link[12..].copy_from_slice(&front[36..38]);
        if let Some(number) = number {
            counters.count(number.into(), len);
        }
        Some(to)
    }
}
