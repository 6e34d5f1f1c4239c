//! The two usual kinds of frames, told and done by a few loads and stores.

use kaido_engine::{Frame, PortId};
use kaido_wire::{EtherType, IpProtocol};

use crate::counters::{RuleCounters, Tally};
use crate::rules::{Condition, KeyMatch, Prefix, Propagation, Settings, Verdict, Way};

/// Octets of Ethernet, and of IPv4 and GRE without options.
const LINK: usize = 14;
const OUTER: usize = 24;
/// The least of an IPv4 packet, and of an IPv6 one.
const INNER: usize = 20;
const INNER_V6: usize = 40;
const FRONT: usize = LINK + OUTER + INNER;
/// EtherType of IPv4 with version, header length and class of service behind it, and which bits of these must be so: no options,
/// and not the bit of ECN that is set in each of the two values that go over to what was in the tunnel (RFC 6040 4.2).
const HEAD: u32 = 0x0800_4500;
const HEAD_MASK: u32 = 0xffff_ff01;
/// GRE headers without options.
const GRE_V4: u32 = EtherType::IPV4.0 as u32;
const GRE_V6: u32 = EtherType::IPV6.0 as u32;

/// What may be done at once, by port.
#[derive(Debug)]
pub(super) struct Quick(Box<[QuickPort]>);

/// What may be done at once with what comes in by one port.
#[derive(Debug)]
pub(super) struct QuickPort {
    /// Where all goes that is done at once.
    pub(super) across: Option<PortId>,
    /// Whether all that is no tunnel packet goes there as it is.
    plain: bool,
    /// Longest frame that fits there.
    fits: usize,
    /// Rules that tunnel packets without key can meet, in their order.
    rules: Box<[QuickRule]>,
    /// Whether headers go, and nothing else changes, where no rule is met.
    strips_unmatched: bool,
}

/// A rule, for packets of IPv4 without key that came in by the port.
#[derive(Clone, Copy, Debug)]
struct QuickRule {
    source: (u32, u32),
    destination: (u32, u32),
    /// GRE header of what may be in them; zero where it may not.
    inner: [u32; 2],
    /// Whether headers go, and nothing else changes.
    strips: bool,
    number: u16,
}

/// Whether a verdict takes the headers off and changes nothing else.
fn strips(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Decapsulate { ttl: Propagation::Pipe, dscp: Propagation::Pipe, way: Way::Across }
    )
}

impl QuickRule {
    /// The rule of that number; `None` where no such packet can meet it.
    fn of(number: usize, condition: &Condition, verdict: Verdict, port: usize) -> Option<Self> {
        let prefixes = [condition.source, condition.destination];
        let is_met = condition.port.is_none_or(|wanted| wanted.index() == port)
            && !matches!(condition.key, KeyMatch::Is(_))
            && prefixes.iter().flatten().all(Prefix::is_ipv4);
        // Masks of IPv4 have 32 bits.
        let [source, destination] = prefixes.map(|prefix| {
            let (mask, value) = prefix.map_or((0, 0), |prefix| prefix.mask());
            (u32::try_from(mask).unwrap_or(0), u32::try_from(value).unwrap_or(0))
        });
        let header = |is_there, header| if is_there { header } else { 0 };
        let inner = [header(condition.inner.ipv4, GRE_V4), header(condition.inner.ipv6, GRE_V6)];
        let number = u16::try_from(number).ok()?;
        is_met.then_some(Self { source, destination, inner, strips: strips(verdict), number })
    }

    #[inline(always)]
    fn meets(&self, source: u32, destination: u32, gre: u32) -> bool {
        (source & self.source.0) == self.source.1
            && (destination & self.destination.0) == self.destination.1
            && (gre == self.inner[0] || gre == self.inner[1])
    }
}

impl Quick {
    pub(super) fn of(settings: &Settings) -> Self {
        let ports = settings.ports.iter().enumerate().map(|(at, port)| {
            let encapsulates = settings.encapsulations.iter().any(|way| way.port.index() == at);
            let rules = settings.rules.iter().enumerate();
            QuickPort {
                across: port.across,
                plain: port.across.is_some() && !encapsulates,
                fits: port.across.map_or(0, |to| settings.ports[to.index()].mtu + LINK),
                rules: rules
                    .filter_map(|(number, rule)| QuickRule::of(number, &rule.condition, rule.verdict, at))
                    .collect(),
                strips_unmatched: strips(settings.unmatched),
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
    /// Does what may be done at once of a batch; a bit for each frame that goes across.
    // A function of its own: in the caller's, with all that frames of other kinds may need, registers run out.
    #[inline(never)]
    pub(super) fn pass_all(&self, batch: &mut [Frame], counters: &RuleCounters) -> u32 {
        let (mut tally, mut passed) = (Tally::default(), 0);
        for (at, frame) in batch.iter_mut().enumerate() {
            passed |= u32::from(self.pass(frame, &mut tally, counters)) << at;
        }
        tally.hand_over(counters);
        passed
    }

    /// Whether a frame is one of the usual two and goes across, its outer headers gone; of all others nothing has changed.
    #[inline(always)]
    fn pass(&self, frame: &mut Frame, tally: &mut Tally, counters: &RuleCounters) -> bool {
        let (len, is_chained) = (frame.packet_len(), frame.is_chained());
        let Some(front) = frame.data_mut().first_chunk_mut::<FRONT>() else { return false };
        let head = be32(front, 12);
        if head >> 16 != HEAD >> 16 || len > self.fits + OUTER {
            return false;
        }
        if front[23] != IpProtocol::GRE.0 {
            return self.plain && front[14] >> 4 == 4 && len <= self.fits;
        }
        // No options, no fragment, no mark to be handed on, a plain GRE header, and in it what it says.
        let total = usize::from(u16::from_be_bytes([front[16], front[17]]));
        let gre = be32(front, 34);
        let version = front[38] >> 4;
        let least = match gre {
            GRE_V4 if version == 4 => OUTER + INNER,
            GRE_V6 if version == 6 => OUTER + INNER_V6,
            _ => return false,
        };
        let is_usual = head & HEAD_MASK == HEAD
            && u16::from_be_bytes([front[20], front[21]]) & 0x3fff == 0
            && total >= least
            && total + LINK <= len
            && is_sum_right(front);
        if !is_usual || is_chained {
            return false;
        }
        let (source, destination) = (be32(front, 26), be32(front, 30));
        let found = self.rules.iter().find(|rule| rule.meets(source, destination, gre));
        if !found.map_or(self.strips_unmatched, |rule| rule.strips) {
            return false;
        }
        // The protocol of the GRE header lies where the EtherType is to be.
        front.copy_within(..12, OUTER);
        if let Some(rule) = found {
            tally.count(rule.number.into(), len, counters);
        }
        frame.trim(OUTER, LINK + total - OUTER)
    }
}

#[inline(always)]
fn be32(front: &[u8; FRONT], at: usize) -> u32 {
    u32::from_be_bytes([front[at], front[at + 1], front[at + 2], front[at + 3]])
}

/// Whether the checksum of the IPv4 header without options behind Ethernet is right. The sum is the same in either order of
/// octets (RFC 1071 2B), and there is none of zeros: the version is 4.
#[inline(always)]
fn is_sum_right(front: &[u8; FRONT]) -> bool {
    let word =
        |at: usize| u64::from(u32::from_ne_bytes([front[at], front[at + 1], front[at + 2], front[at + 3]]));
    let sum = word(14) + word(18) + word(22) + word(26) + word(30);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use kaido_wire::checksum;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_are_those_of_the_octets(mut octets in prop::collection::vec(any::<u8>(), FRONT), right: bool) {
            octets[14] = 0x45;
            if right {
                octets[24..26].fill(0);
                let sum = !checksum::sum(&octets[14..34]);
                octets[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            let front = octets.first_chunk().unwrap();
            prop_assert_eq!(is_sum_right(front), checksum::sum(&octets[14..34]) == 0xffff);
            prop_assert!(is_sum_right(front) || !right);
        }
    }
}
