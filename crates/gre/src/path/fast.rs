//! The two usual kinds of frames, told and done by a few loads and stores.

use kaido_engine::{Frame, PortId};
use kaido_wire::layout::{self, EthernetFields, GreFields, Ipv4Fields};
use kaido_wire::{EtherType, IpProtocol, ethernet, gre, ipv4, ipv6};

use crate::counters::{RuleCounters, Tally};
use crate::rule_set::RuleSet;
use crate::rules::{Condition, ForwardingMode, KeyMatch, PortSettings, Prefix, Propagation, Rule, Verdict};

/// Octets of Ethernet, and of IPv4 and GRE without options.
const LINK: usize = ethernet::HEADER_LEN;
const IPV4: usize = ipv4::HEADER_LEN;
const GRE: usize = gre::HEADER_LEN;
const OUTER: usize = IPV4 + GRE;
/// The least of an IPv4 packet, and of an IPv6 one.
const INNER: usize = ipv4::HEADER_LEN;
const INNER_V6: usize = ipv6::HEADER_LEN;
const HEAD_LEN: usize = LINK + OUTER + INNER;
/// What is equal in all usual tunnel packets: which bits, and what they are. EtherType of IPv4 with version, header length and
/// class of service behind it. It has no options. Of ECN it has not the bit that is set in each of the two values that go over to
/// what was in the tunnel (RFC 6040 4.2).
const HEAD: MaskedWord =
    MaskedWord::new([0x08, 0x00, 0x45, 0, 0, 0, 0, 0], [0xff, 0xff, 0xff, 0x01, 0, 0, 0, 0]);
const HEAD_AT: usize = ethernet::TYPE_AT;
/// No fragment; the protocol.
const MIDDLE: MaskedWord =
    MaskedWord::new([0, 0, 0, IpProtocol::GRE.0, 0, 0, 0, 0], [0x3f, 0xff, 0, 0xff, 0, 0, 0, 0]);
const MIDDLE_AT: usize = LINK + 6;
/// GRE headers without options.
const GRE_V4: u32 = EtherType::IPV4.0 as u32;
const GRE_V6: u32 = EtherType::IPV6.0 as u32;

/// What may be done at once, by port.
#[derive(Debug)]
pub(super) struct Fast(Box<[FastPort]>);

/// What may be done at once with what comes in by one port.
#[derive(Debug)]
pub(super) struct FastPort {
    /// Where all goes that is done at once.
    pub(super) peer_port: Option<PortId>,
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
    /// Where it is counted.
    place: u16,
}

/// Whether a verdict takes the headers off and changes nothing else.
fn strips(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Decapsulate {
            ttl: Propagation::Pipe,
            dscp: Propagation::Pipe,
            forward: ForwardingMode::PeerPort
        }
    )
}

impl QuickRule {
    /// The rule that is counted at that place; `None` where no such packet can meet it.
    fn of(place: u16, condition: &Condition, verdict: Verdict, port: usize) -> Option<Self> {
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
        is_met.then_some(Self { source, destination, inner, strips: strips(verdict), place })
    }

    #[inline(always)]
    fn meets(&self, source: u32, destination: u32, gre: u32) -> bool {
        let [ipv4, ipv6] = self.inner;
        (source & self.source.0) == self.source.1
            && (destination & self.destination.0) == self.destination.1
            && (gre == ipv4 || gre == ipv6)
    }
}

impl Fast {
    /// As the rules say of `ports`, which are as they are now.
    pub(super) fn of(rules: &RuleSet, ports: &[PortSettings]) -> Self {
        let settings = rules.settings();
        let of_ports = ports.iter().enumerate().map(|(at, port)| {
            let encapsulates = settings.encapsulations.iter().any(|tunnel| tunnel.port.index() == at);
            let numbered = settings.rules.iter().enumerate();
            let quick = |(number, rule): (usize, &Rule)| {
                QuickRule::of(rules.place_of_rule(number), &rule.condition, rule.verdict, at)
            };
            FastPort {
                peer_port: port.peer_port,
                plain: port.peer_port.is_some() && !encapsulates,
                fits: port.peer_port.map_or(0, |to| ports[to.index()].mtu + LINK),
                rules: numbered.filter_map(quick).collect(),
                strips_unmatched: strips(settings.unmatched),
            }
        });
        Self(of_ports.collect())
    }

    #[inline]
    pub(super) fn at(&self, port: PortId) -> &FastPort {
        &self.0[port.index()]
    }
}

impl FastPort {
    /// The fast path over a batch; a bit for each frame that leaves by the peer port.
    // A function of its own: in the caller's, with all that frames of other kinds may need, registers run out.
    #[inline(never)]
    pub(super) fn pass_all(&self, batch: &mut [Frame], counters: &RuleCounters) -> u64 {
        let (mut tally, mut passed) = (Tally::default(), 0);
        for (at, frame) in batch.iter_mut().enumerate() {
            passed |= u64::from(self.pass(frame, &mut tally, counters)) << at;
        }
        tally.hand_over(counters);
        passed
    }

    /// Whether a frame is one of the usual two and leaves by the peer port without its outer headers; of all others nothing has changed.
    #[inline(always)]
    fn pass(&self, frame: &mut Frame, tally: &mut Tally, counters: &RuleCounters) -> bool {
        let (len, is_chained) = (frame.packet_len(), frame.is_chained());
        let Some(head) = frame.data_mut().first_chunk_mut::<HEAD_LEN>() else { return false };
        if !HEAD.is_at::<HEAD_AT>(head) || !MIDDLE.is_at::<MIDDLE_AT>(head) {
            return self.passes_plain(head, len);
        }
        // A plain GRE header, and in it what it says.
        let header = Ipv4Fields::new(layout::part::<LINK, IPV4, HEAD_LEN>(head));
        let total = usize::from(header.total_len());
        let gre = GreFields::new(layout::part::<{ LINK + IPV4 }, GRE, HEAD_LEN>(head)).whole();
        let [inner] = *layout::part::<{ LINK + OUTER }, 1, HEAD_LEN>(head);
        let least = match (gre, inner) {
            (GRE_V4, 0x45..=0x4f) => OUTER + INNER,
            (GRE_V6, 0x60..=0x6f) => OUTER + INNER_V6,
            _ => return false,
        };
        let fits = total + LINK <= len && len <= self.fits + OUTER;
        if total < least || !fits || is_chained || !header.has_sound_checksum() {
            return false;
        }
        let (source, destination) = (header.src(), header.dst());
        let found = self.rules.iter().find(|rule| rule.meets(source, destination, gre));
        if !found.map_or(self.strips_unmatched, |rule| rule.strips) {
            return false;
        }
        // The protocol of the GRE header lies where the EtherType is to be.
        head.copy_within(..ethernet::TYPE_AT, OUTER);
        if let Some(rule) = found {
            tally.count(rule.place, len, counters);
        }
        frame.trim(OUTER, LINK + total - OUTER)
    }

    /// Whether a frame is plain IPv4, or a fragment of it, that leaves by the peer port as it is.
    #[inline(always)]
    fn passes_plain(&self, head: &[u8; HEAD_LEN], len: usize) -> bool {
        let link = EthernetFields::new(layout::part::<0, LINK, HEAD_LEN>(head));
        let header = Ipv4Fields::new(layout::part::<LINK, IPV4, HEAD_LEN>(head));
        let is_ipv4 = link.ethertype() == EtherType::IPV4.0 && header.version_ihl() >> 4 == 4;
        self.plain && is_ipv4 && header.protocol() != IpProtocol::GRE.0 && len <= self.fits
    }
}

/// Eight octets of which some bits are always the same.
struct MaskedWord {
    mask: u64,
    value: u64,
}

impl MaskedWord {
    const fn new(value: [u8; 8], mask: [u8; 8]) -> Self {
        Self { mask: u64::from_ne_bytes(mask), value: u64::from_ne_bytes(value) }
    }

    #[inline(always)]
    fn is_at<const AT: usize>(&self, head: &[u8; HEAD_LEN]) -> bool {
        let mut octets = [0; 8];
        octets.copy_from_slice(&head[AT..AT + 8]);
        u64::from_ne_bytes(octets) & self.mask == self.value
    }
}
