//! What a session's rules become: one immutable record per tunnel or UE address.
//!
//! A packet costs one lookup, whose result says everything: where it may come from, which rule it
//! matches, where it goes and which counters it moves. Where a key has one rule without filters, the
//! usual case, the rule is folded into the record, which with its key fills one cache line; otherwise the
//! record points to the rules in the order of precedence.

mod action;
mod key;
mod lines;
mod ways;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

pub use self::action::{
    Action, BufferBounds, Counted, Destination, Direction, FilteredRule, QuotaAction, SessionIndex,
    USAGE_SLOTS_MAX, UeAddresses, UsageSlots,
};
use self::key::upper_half;
pub use self::key::{EndpointId, InstanceId, KeyParts, SessionKey};
use self::lines::Line;
pub use self::lines::{FlowAsk, LINES_MAX};
pub(crate) use self::lines::{UsualFlow, UsualPorts, asks_of};
use self::ways::Flags;
pub(crate) use self::ways::{CommonWay, PlainWay, StraightWay};
use crate::classify::Classifier;
use crate::monitoring::{Monitor, Monitors};
use crate::qos::{Enforcement, PolicerSlot};
use crate::rules::{ApplyAction, FramedRoute, Ipv6Prefix, PdrId, Qfi, Teid};
pub use crate::special::{Bridging, Egress, EthernetRule, Exit, Local, PlainHeader, Special, UeToUe};
pub use crate::tunnels::{ShapeId, Tunnel, TunnelShape, Tunnels};
use crate::usage::UsageSlot;

/// The rules of a record, as [`Record::rules`] shows them.
#[derive(Clone, Copy, Debug)]
pub enum Rules<'r> {
    /// One that matches every packet, or those of the record's QoS flow.
    One(Action),
    /// Several, or with filters, in the order of precedence.
    Filtered(&'r [FilteredRule]),
}

/// What a record says of its session beside the rules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionFacts<'s> {
    /// The UE's addresses.
    pub(crate) ue: UeAddresses,
    /// Networks behind the UE.
    pub(crate) framed: &'s [FramedRoute],
    /// A rule of the session asks for an application.
    pub(crate) listens: bool,
    /// QoS flows whose delays are measured.
    pub(crate) monitors: &'s [(Qfi, Arc<Monitor>)],
    /// Its PDN type is Ethernet.
    pub(crate) ethernet: bool,
    /// Where its uplink may come from, if it is bound to that: gNBs into whose tunnels its downlink goes.
    pub(crate) gnbs: &'s [IpAddr],
}

/// Rules that do not fold into the record itself.
#[derive(Clone, Debug)]
#[repr(C)]
struct Wide {
    /// The first of them, as the fast path reads them: as many as the record says.
    lines: [Line; LINES_MAX],
    ue: UeAddresses,
    /// Networks behind the UE: sources uplink.
    framed: Box<[FramedRoute]>,
    /// Packets are listened to, to know their applications by.
    listens: bool,
    /// QoS flows whose delays are measured.
    monitors: Monitors,
    /// What comes are Ethernet frames.
    ethernet: bool,
    /// The only outer sources of uplink packets; none where any may be.
    gnbs: Box<[IpAddr]>,
    rules: Box<[FilteredRule]>,
    /// A rule asks for ports, which only the first fragment of a packet has.
    needs_ports: bool,
    /// Where there are many rules.
    classifier: Option<Box<Classifier>>,
}

impl Wide {
    /// Whether a rule is about that very address of the UE's.
    fn names(&self, addr: IpAddr) -> bool {
        self.rules.iter().any(|rule| rule.ue.is_some_and(|ue| ue.admits(addr)))
    }
}

/// Usage counters and policers that fold into a record together: free5GC's SMF asks for three counters and two rates.
const CELLS_MAX: usize = 5;
/// Those beside the /64 of a UE that has one.
const CELLS_BESIDE_IPV6: usize = 3;
/// Rates that fold into a record: the session's and the QoS flow's.
const POLICERS_MAX: usize = 2;

/// The record of a key: 48 octets, which with its key fill one cache line.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Record {
    session: SessionIndex,
    /// Numbers of usage counters, behind them of policers, and behind those the complement of the number of a counter of dropped
    /// packets, or zero. The last two are the upper half of the UE's /64 where it has one.
    cells: [u32; CELLS_MAX],
    wide: Option<Box<Wide>>,
    ue_ipv4: u32,
    /// The peer's TEID; of what is routed, the number of the network instance that it leaves by, plus one, or zero.
    teid: Teid,
    pdr: PdrId,
    flags: Flags,
    shape: ShapeId,
    /// Packets that a BAR suggests to keep; with [`Flags::QFI_MATCH`] the QoS flow that matches, as what is simply forwarded is
    /// never kept, or of a record that is not simply forwarded the number of its lines.
    buffer_suggested: u8,
    /// Bits 0 to 2: how many counters; bit 3: two policers, where [`Flags::POLICED`] says that there is any; bits 4 to 7: which
    /// of the first four counters count before QoS enforcement.
    cell_bits: u8,
}

const _: () = assert!(size_of::<Record>() == 48 && size_of::<SessionKey>() == 16);

impl Record {
    /// The record of `rules`, which are in the order of precedence and not none. Packets from a UE may come from the networks
    /// behind it too.
    pub(crate) fn new(
        session: SessionIndex,
        direction: Direction,
        SessionFacts { ue, framed, listens, monitors, ethernet, gnbs }: SessionFacts<'_>,
        rules: Vec<FilteredRule>,
    ) -> Self {
        let framed = if direction == Direction::Uplink { framed } else { &[] };
        let may_fold = !ethernet && framed.is_empty() && !listens && monitors.is_empty();
        let (folded, is_whole) =
            if may_fold { Self::fold_of(session, direction, ue, &rules) } else { (None, false) };
        if let Some(folded) = folded.as_ref().filter(|_| is_whole && gnbs.is_empty()) {
            return folded.clone();
        }
        let mut lines = [(); LINES_MAX].map(|()| Line::unused(session));
        let count = if may_fold && folded.is_none() {
            lines::fill(&mut lines, session, direction, ue, &rules)
        } else {
            0
        };
        let flags = Flags(0).with(Flags::UPLINK, direction == Direction::Uplink);
        let flags = flags.with(Flags::QFI_MATCH, count > 0);
        let empty = || Self { buffer_suggested: count, ..Self::empty(session, flags) };
        Self {
            wide: Some(Box::new(Wide {
                lines,
                ue,
                needs_ports: rules.iter().any(FilteredRule::needs_ports),
                framed: framed.into(),
                listens,
                monitors: monitors.into(),
                ethernet,
                gnbs: gnbs.into(),
                classifier: if ethernet { None } else { Classifier::new(&rules).map(Box::new) },
                rules: rules.into(),
            })),
            ..folded.unwrap_or_else(empty)
        }
    }

    /// The record of the one rule that packets of the fast path can match, if there is no more than one; and whether that is
    /// all that there is to say of the key.
    fn fold_of(
        session: SessionIndex,
        direction: Direction,
        ue: UeAddresses,
        rules: &[FilteredRule],
    ) -> (Option<Self>, bool) {
        let mut met = rules.iter().filter(|rule| rule.is_met(direction));
        let (Some(rule), None) = (met.next(), met.next()) else { return (None, false) };
        if !rule.matches_all_but_qfi() || rule.special.is_some() || !rule.on_quota.is_empty() {
            return (None, false);
        }
        let Some(mut folded) = Self::fold(session, direction, ue, &rule.action) else {
            return (None, false);
        };
        let one_qfi = rule.qfis.filter(|qfis| qfis.is_power_of_two());
        match rule.qfis {
            None => (Some(folded), rules.len() == 1),
            Some(_) if one_qfi.is_none() || !folded.flags.has(Flags::STRAIGHT) => (None, false),
            Some(qfis) => {
                folded.flags = folded.flags.with(Flags::QFI_MATCH, true).without(Flags::PLAIN);
                folded.flags = folded.flags.without(Flags::BUFFER_SUGGESTED);
                folded.buffer_suggested = u8::try_from(qfis.trailing_zeros()).unwrap_or(u8::MAX);
                (Some(folded), rules.len() == 1)
            }
        }
    }

    /// The record of a rule alone; `None` where that does not fold, or more is to be done than it says.
    fn of_rule(
        session: SessionIndex,
        direction: Direction,
        ue: UeAddresses,
        rule: &FilteredRule,
    ) -> Option<Self> {
        let is_simple = rule.special.is_none() && rule.on_quota.is_empty();
        is_simple.then(|| Self::fold(session, direction, ue, &rule.action)).flatten()
    }

    /// Whether packets of the usual shape find their rule by [`Record::of_flow`].
    #[inline(always)]
    pub(crate) fn has_lines(&self) -> bool {
        self.flags.0 & (Flags::QFI_MATCH | Flags::STRAIGHT) == Flags::QFI_MATCH
    }

    /// Brings its lines into the cache, ahead of [`Record::of_flow`].
    #[inline]
    pub(crate) fn prefetch_lines(&self) {
        if let Some(wide) = &self.wide {
            kaido_table::prefetch(&wide.lines);
        }
    }

    /// The record of the rule that a packet of the usual shape matches; `None` where the rules themselves must be looked at.
    #[inline]
    pub(crate) fn of_flow(&self, flow: &UsualFlow) -> Option<&Self> {
        let lines = self.wide.as_ref()?.lines.get(..usize::from(self.buffer_suggested))?;
        lines::choose(lines, flow)
    }

    /// The QoS flow that a packet of a folded record must be of, if that matters.
    #[inline(always)]
    pub(crate) fn folded_qfi(&self) -> Option<u8> {
        self.flags.has(Flags::QFI_MATCH | Flags::STRAIGHT).then_some(self.buffer_suggested)
    }

    /// Whether packets notice no difference between two records, as far as the records themselves tell: of rules that did not
    /// fold into one nothing is known.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let Self { session, cells, wide, ue_ipv4, teid, pdr, flags, shape, buffer_suggested, cell_bits } =
            self;
        wide.is_none()
            && other.wide.is_none()
            && (session, pdr, flags, cells) == (&other.session, &other.pdr, &other.flags, &other.cells)
            && (ue_ipv4, teid, shape) == (&other.ue_ipv4, &other.teid, &other.shape)
            && (buffer_suggested, cell_bits) == (&other.buffer_suggested, &other.cell_bits)
    }

    const fn empty(session: SessionIndex, flags: Flags) -> Self {
        Self {
            session,
            cells: [0; CELLS_MAX],
            wide: None,
            ue_ipv4: 0,
            teid: Teid(0),
            pdr: PdrId(0),
            flags,
            shape: ShapeId::NONE,
            buffer_suggested: 0,
            cell_bits: 0,
        }
    }

    /// A record that holds its one action itself; `None` where that does not fit.
    fn fold(session: SessionIndex, direction: Direction, ue: UeAddresses, action: &Action) -> Option<Self> {
        let apply = action.apply;
        if apply.duplicate {
            return None;
        }
        let no_tunnel = action.destination == Destination::NoTunnel;
        let straight = action.gate_open && apply.forward && !apply.drop && !apply.buffer && !no_tunnel;
        let flags = Flags(0)
            .with(Flags::UPLINK, direction == Direction::Uplink)
            .with(Flags::DROP, apply.drop)
            .with(Flags::FORWARD, apply.forward)
            .with(Flags::BUFFER, apply.buffer)
            .with(Flags::NOTIFY_CP, apply.notify_cp)
            .with(Flags::GATE_OPEN, action.gate_open)
            .with(Flags::UE_IPV4, ue.ipv4.is_some())
            .with(Flags::UE_IPV6, ue.ipv6.is_some())
            .with(Flags::BUFFER_SUGGESTED, action.buffer.packets.is_some())
            .with(Flags::STRAIGHT, straight)
            .with(Flags::NO_TUNNEL, no_tunnel);
        let mut record = Self { pdr: action.pdr, ..Self::empty(session, flags) };
        record.ue_ipv4 = ue.ipv4.map_or(0, Ipv4Addr::to_bits);
        if let Some(prefix) = ue.ipv6 {
            if prefix.len != 64 {
                return None;
            }
            record.put_upper_half(upper_half(prefix.addr));
        }
        if let Destination::Tunnel(tunnel) = action.destination {
            record.flags = record.flags.with(Flags::TUNNEL, true);
            (record.shape, record.teid) = (tunnel.id?, tunnel.teid);
        } else if let Some(InstanceId(exit)) = action.exit {
            record.teid = Teid(u32::from(exit) + 1);
        }
        record.put_cells(&action.usage, &action.qos)?;
        if action.buffer.time_ms.is_some() || apply.report_buffered || apply.report_discarded {
            return None;
        }
        record.buffer_suggested = u8::try_from(action.buffer.packets.unwrap_or(0)).ok()?;
        let counts_once = record.folded_usage().len() == 1 && !record.has_folded_quotas();
        let is_plain = straight && counts_once && !record.flags.has(Flags::POLICED);
        record.flags = record.flags.with(Flags::PLAIN, is_plain);
        Some(record)
    }

    /// Names counters and policers in the record; `None` when it has no room for all.
    fn put_cells(&mut self, usage: &UsageSlots, qos: &Enforcement) -> Option<()> {
        let policers = qos.only_policers()?.count();
        let of_dropped = || usage.iter().filter(|(_, what)| *what == Counted::Dropped);
        let (counters, apart) = (usage.of_passed().count(), of_dropped().count());
        if policers > POLICERS_MAX || apart > 1 || counters + policers + apart > self.cells_max() {
            return None;
        }
        let numbers = usage.of_passed().map(|slot| slot.0).chain(qos.only_policers()?.map(|slot| slot.0));
        let numbers = numbers.chain(of_dropped().map(|(slot, _)| !slot.0));
        self.cells.iter_mut().zip(numbers).for_each(|(cell, number)| *cell = number);
        self.cell_bits = u8::try_from(counters).ok()? | u8::from(policers == POLICERS_MAX) << 3;
        let whats = usage.iter().map(|(_, what)| what).filter(|what| *what != Counted::Dropped);
        for (at, _) in whats.enumerate().filter(|(_, what)| *what == Counted::All) {
            self.cell_bits |= (at < 4).then_some(0x10 << at)?;
        }
        self.flags = self.flags.with(Flags::POLICED, policers > 0).with(Flags::QUOTAS, usage.has_quotas());
        Some(())
    }

    /// How many numbers there is room for.
    const fn cells_max(&self) -> usize {
        if self.flags.has(Flags::UE_IPV6) { CELLS_BESIDE_IPV6 } else { CELLS_MAX }
    }

    /// The counter of dropped packets of a record that holds its action itself, if it has one.
    fn folded_dropped(&self) -> Option<UsageSlot> {
        let at = self.folded_usage().len() + self.folded_policers().len();
        let number = *self.cells.get(at).filter(|_| at < self.cells_max())?;
        (number != 0).then_some(UsageSlot(!number))
    }

    fn put_upper_half(&mut self, upper: u64) {
        #[allow(clippy::cast_possible_truncation)] // The lower half is kept apart.
        let halves = [(upper >> 32) as u32, upper as u32];
        self.cells[CELLS_BESIDE_IPV6..].copy_from_slice(&halves);
    }

    /// The upper half of the UE's /64, where it has one.
    #[inline(always)]
    fn upper_half(&self) -> u64 {
        let [.., high, low] = self.cells;
        u64::from(high) << 32 | u64::from(low)
    }

    /// The session.
    #[inline]
    pub fn session(&self) -> SessionIndex {
        self.session
    }

    /// Which way packets of this key go.
    #[inline]
    pub fn direction(&self) -> Direction {
        if self.flags.has(Flags::UPLINK) { Direction::Uplink } else { Direction::Downlink }
    }

    /// Whether every packet is forwarded, whatever it is, and that way.
    #[inline(always)]
    pub(crate) fn is_straight(&self, way: StraightWay) -> bool {
        self.flags.0 & (Flags::STRAIGHT | Flags::UPLINK) == way.0
    }

    /// Whether packets take that way.
    #[inline(always)]
    pub(crate) fn is_plain(&self, way: PlainWay) -> bool {
        self.flags.0 & way.told_by() == way.0
    }

    /// The one counter of a plain record.
    #[inline(always)]
    pub(crate) fn plain_usage(&self) -> UsageSlot {
        UsageSlot(self.cells[0])
    }

    /// Whether routed packets of a record that holds its action itself may leave by a port of that network instance; a port that
    /// is not of N6 has none.
    #[inline(always)]
    pub(crate) fn leaves_by(&self, port: Option<InstanceId>) -> bool {
        port.is_some_and(|InstanceId(own)| self.teid.0 == 0 || self.teid.0 == u32::from(own) + 1)
    }

    /// The tunnel of a record that holds its action itself, if that leads into one.
    #[inline]
    pub(crate) fn folded_tunnel(&self) -> Option<(ShapeId, Teid)> {
        self.flags.has(Flags::TUNNEL).then_some((self.shape, self.teid))
    }

    /// The counters of a record that holds its action itself; which of them count before QoS
    /// enforcement matters only where something is dropped.
    #[inline]
    pub(crate) fn folded_usage(&self) -> &[u32] {
        &self.cells[..usize::from(self.cell_bits & 7).min(CELLS_MAX)]
    }

    /// The policers of a record that holds its action itself.
    #[inline(always)]
    pub(crate) fn folded_policers(&self) -> &[u32] {
        if !self.flags.has(Flags::POLICED) {
            return &[];
        }
        let first = usize::from(self.cell_bits & 7);
        self.cells.get(first..first + 1 + usize::from(self.cell_bits >> 3 & 1)).unwrap_or_default()
    }

    /// Whether a counter of a record that holds its action itself has a quota.
    #[inline(always)]
    pub(crate) fn has_folded_quotas(&self) -> bool {
        self.flags.has(Flags::QUOTAS)
    }

    /// Whether ports decide which of its rules a packet matches.
    #[inline]
    pub(crate) fn needs_ports(&self) -> bool {
        self.wide.as_ref().is_some_and(|wide| wide.needs_ports)
    }

    /// Whether an address is the UE's, see [`UeAddresses::admits`], or of a network behind it. A session with several
    /// prefixes (IPv6 multi-homing) has them in its rules.
    pub fn admits(&self, addr: IpAddr) -> bool {
        self.ue().admits(addr)
            || self.wide.as_ref().is_some_and(|wide| wide.names(addr))
            || self.framed().iter().any(|route| route.contains(addr))
    }

    /// Whether packets are listened to, to know their applications by.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        self.wide.as_ref().is_some_and(|wide| wide.listens)
    }

    /// The QoS flows whose delays are measured.
    #[inline]
    pub(crate) fn monitors(&self) -> &[(Qfi, Arc<Monitor>)] {
        self.wide.as_ref().map_or(&[], |wide| &wide.monitors)
    }

    /// Whether packets may come out of a tunnel from that address.
    #[inline]
    pub(crate) fn admits_gnb(&self, from: IpAddr) -> bool {
        self.gnbs().is_empty() || self.gnbs().contains(&from)
    }

    /// The only addresses from which packets may come out of a tunnel; none where any may be.
    #[inline]
    pub(crate) fn gnbs(&self) -> &[IpAddr] {
        self.wide.as_ref().map_or(&[], |wide| &wide.gnbs)
    }

    /// Whether what comes are Ethernet frames, not IP packets.
    #[inline]
    pub(crate) fn is_ethernet(&self) -> bool {
        self.wide.as_ref().is_some_and(|wide| wide.ethernet)
    }

    /// Networks behind the UE from which packets may come.
    pub(crate) fn framed(&self) -> &[FramedRoute] {
        self.wide.as_ref().map_or(&[], |wide| &wide.framed)
    }

    /// As [`Record::admits`], of a record that holds its action itself.
    #[inline]
    pub(crate) fn admits_ipv4(&self, addr: u32) -> bool {
        (self.flags.has(Flags::UE_IPV4) && self.ue_ipv4 == addr) || self.is_relay()
    }

    /// As [`Record::admits`], of a record that holds its action itself and an address that is not
    /// link-local; `upper` is the upper half of the address.
    #[inline]
    pub(crate) fn admits_ipv6(&self, upper: u64) -> bool {
        (self.flags.has(Flags::UE_IPV6) && self.upper_half() == upper) || self.is_relay()
    }

    /// Whether packets go from tunnel to tunnel in a session that names no UE address: there is nothing to hold sources
    /// against, and nobody routes them here.
    #[inline]
    fn is_relay(&self) -> bool {
        self.flags.0 & (Flags::UE_IPV4 | Flags::UE_IPV6 | Flags::TUNNEL) == Flags::TUNNEL
    }

    /// The UE's addresses: the source uplink.
    pub(crate) fn ue(&self) -> UeAddresses {
        match &self.wide {
            Some(wide) => wide.ue,
            None => UeAddresses {
                ipv4: self.flags.has(Flags::UE_IPV4).then(|| Ipv4Addr::from_bits(self.ue_ipv4)),
                ipv6: self
                    .flags
                    .has(Flags::UE_IPV6)
                    .then(|| Ipv6Prefix::of(Ipv6Addr::from_bits(u128::from(self.upper_half()) << 64), 64)),
            },
        }
    }

    /// The rules.
    pub fn rules(&self, tunnels: &Tunnels) -> Rules<'_> {
        match &self.wide {
            Some(wide) => Rules::Filtered(&wide.rules),
            None => Rules::One(self.action(tunnels)),
        }
    }

    /// The index of the rules, where there are many.
    #[inline]
    pub(crate) fn classifier(&self) -> Option<&Classifier> {
        self.wide.as_ref()?.classifier.as_deref()
    }

    fn action(&self, tunnels: &Tunnels) -> Action {
        let mut usage = UsageSlots::default();
        for (at, &slot) in self.folded_usage().iter().enumerate() {
            let before_qos = at < 4 && self.cell_bits >> (4 + at) & 1 != 0;
            let what = if before_qos { Counted::All } else { Counted::Passed };
            // A record folds fewer counters than there is room for. That one of them has a quota is said of all: one
            // without is never used up.
            let _ = usage.push(UsageSlot(slot), what, self.has_folded_quotas());
        }
        if let Some(dropped) = self.folded_dropped() {
            // As above.
            let _ = usage.push(dropped, Counted::Dropped, false);
        }
        let mut qos = Enforcement::default();
        for &slot in self.folded_policers() {
            // As above.
            let _ = qos.push(PolicerSlot(slot));
        }
        let tunnel = self.folded_tunnel().and_then(|(id, teid)| {
            Some(Destination::Tunnel(Tunnel { shape: *tunnels.shape(id)?, id: Some(id), teid }))
        });
        let without =
            if self.flags.has(Flags::NO_TUNNEL) { Destination::NoTunnel } else { Destination::Routed };
        let exit = Some(self.teid.0).filter(|&exit| tunnel.is_none() && exit != 0);
        let exit = exit.and_then(|exit| u16::try_from(exit - 1).ok()).map(InstanceId);
        Action {
            pdr: self.pdr,
            apply: ApplyAction {
                drop: self.flags.has(Flags::DROP),
                forward: self.flags.has(Flags::FORWARD),
                buffer: self.flags.has(Flags::BUFFER),
                notify_cp: self.flags.has(Flags::NOTIFY_CP),
                ..ApplyAction::default()
            },
            gate_open: self.flags.has(Flags::GATE_OPEN),
            qos,
            destination: tunnel.unwrap_or(without),
            exit,
            usage,
            buffer: BufferBounds {
                packets: self.flags.has(Flags::BUFFER_SUGGESTED).then_some(self.buffer_suggested.into()),
                time_ms: None,
            },
        }
    }
}

#[cfg(test)]
mod tests;
