//! What a session's rules become: one immutable record per tunnel or UE address.
//!
//! A packet costs one lookup, whose result says everything: where it may come from, which rule it
//! matches, where it goes and which counters it moves. Where a key has one rule without filters, the
//! usual case, the rule is folded into the record, which with its key fills one cache line; otherwise the
//! record points to the rules in the order of precedence.

mod fast_path;
mod form;
mod lines;
mod rule;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use self::fast_path::Flags;
pub(crate) use self::fast_path::{CommonPath, FastPath, SimpleForward};
pub use self::form::{RecordForm, SlowPathCause};
use self::lines::OwnLines;
pub use self::lines::{FlowMatch, LINES_MAX};
pub(crate) use self::lines::{FlowPorts, LineMemory, PacketFlow, asks_of};
use self::rule::Rule;
pub use self::rule::{RuleList, RuleView};
use triomphe::ThinArc;

use crate::action::{Action, BufferBounds, CountScope, Destination, N6Exit, UsageSlots};
use crate::classify::Classifier;
use crate::ids::{InstanceId, SessionIndex};
use crate::key::upper_half;
use crate::lan::LanId;
use crate::monitoring::{Monitor, Monitors};
use crate::qos::{Enforcement, PolicerSlot};
use crate::rule::{Detection, FilteredRule};
use crate::tunnels::{EncapTemplateId, Tunnel, Tunnels};
use crate::ue::{Direction, UeAddresses};
use crate::usage::UsageSlot;
use kaido_n4::{ApplyAction, FramedRoute, Ipv6Prefix, PdrId, Qfi, Teid};

/// The rules of a record, as [`Record::rules`] shows them.
#[derive(Clone, Copy, Debug)]
pub enum Rules<'r> {
    /// One that matches every packet, or those of the record's QoS flow.
    One(Action),
    /// Several, or with filters, in the order of precedence.
    Filtered(RuleList<'r>),
}

/// What a record says of its session beside the rules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionFacts<'s> {
    /// The UE's addresses.
    pub(crate) ue: UeAddresses,
    /// Networks behind the UE.
    pub(crate) framed: &'s [FramedRoute],
    /// A rule of the session asks for an application.
    pub(crate) inspects: bool,
    /// QoS flows whose delays are measured.
    pub(crate) monitors: &'s [(Qfi, Arc<Monitor>)],
    /// Its PDN type is Ethernet.
    pub(crate) ethernet: bool,
    /// Where its uplink may come from, if it is bound to that: gNBs into whose tunnels its downlink goes.
    pub(crate) gnbs: &'s [IpAddr],
}

/// What does not fold into the record itself, before the rules.
#[derive(Debug)]
struct WideRecord {
    /// What the rule asks for that the record holds itself, if it does: it is not among those behind.
    own: Option<Arc<Detection>>,
    rare: Option<Box<RareFields>>,
    ue: UeAddresses,
    /// How many of those come before that rule.
    own_place: u16,
    /// They may be put into lines.
    may_have_lines: bool,
    /// A rule asks for ports, which only the first fragment of a packet has.
    needs_ports: bool,
    /// Packets are listened to, to know their applications by.
    inspects: bool,
    /// What comes are Ethernet frames.
    ethernet: bool,
}

const _: () = assert!(size_of::<WideRecord>() == 48);

/// What few sessions have.
#[derive(Debug, Default)]
struct RareFields {
    /// The first rules, as the fast path reads them, if it does.
    lines: Option<OwnLines>,
    /// Networks behind the UE: sources uplink.
    framed: Box<[FramedRoute]>,
    /// QoS flows whose delays are measured.
    monitors: Monitors,
    /// The only outer sources of uplink packets; none where any may be.
    gnbs: Box<[IpAddr]>,
    /// Where there are many rules.
    classifier: Option<Box<Classifier>>,
}

/// Where they are with their rules, shared by the copies of a record. What is read of them is [noted](kaido_table::waits).
#[derive(Clone, Debug)]
struct SharedWideRecord(ThinArc<WideRecord, Rule>);

impl SharedWideRecord {
    fn new(wide: WideRecord, rules: impl ExactSizeIterator<Item = Rule>) -> Self {
        Self(ThinArc::from_header_and_iter(wide, rules))
    }

    /// The rules, but for one that the record holds itself.
    #[inline]
    fn others(&self) -> &[Rule] {
        kaido_table::waits::read(&self.0.header.header.ue);
        &self.0.slice
    }

    /// Gives it lines, before there are copies.
    fn put_lines(&mut self, lines: OwnLines) {
        self.0.with_arc_mut(|own| {
            if let Some(own) = triomphe::Arc::get_mut(own) {
                own.header_mut().rare.get_or_insert_default().lines = Some(lines);
            }
        });
    }

    /// The lines, which note themselves when they are compared.
    fn lines(&self) -> Option<&OwnLines> {
        self.0.header.header.rare.as_ref()?.lines.as_ref()
    }

    /// Whether a rule is about that very address of the UE's.
    fn names(&self, addr: IpAddr) -> bool {
        self.others().iter().any(|rule| rule.detection().ue.is_some_and(|ue| ue.admits(addr)))
    }
}

impl std::ops::Deref for SharedWideRecord {
    type Target = WideRecord;

    #[inline(always)]
    fn deref(&self) -> &WideRecord {
        let wide = &self.0.header.header;
        kaido_table::waits::read(&wide.ue);
        wide
    }
}

/// Usage counters and policers that fold into a record together: free5GC's SMF asks for three counters and two rates.
const CELLS_MAX: usize = 5;
/// Those beside the /64 of a UE that has one.
const CELLS_BESIDE_IPV6: usize = 3;
/// Rates that fold into a record: the session's and the QoS flow's, and beside them what the flow is guaranteed.
const POLICERS_MAX: usize = 2;
/// In [`Record::buffer_suggested`] of what is simply forwarded.
const QFI_BITS: u8 = 0x3f;
const THREE_RATES: u8 = 1 << 6;
const GUARANTEED: u8 = 1 << 7;
/// In [`Record::cell_bits`].
const TWO_RATES: u8 = 1 << 3;

/// The record of a key: 48 octets, which with its key fill one cache line.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Record {
    session: SessionIndex,
    /// Numbers of usage counters, behind them of policers, and behind those the complement of the number of a counter of dropped
    /// packets, or zero. The last two are the upper half of the UE's /64 where it has one. Of a record with lines, their numbers.
    cells: [u32; CELLS_MAX],
    wide: Option<SharedWideRecord>,
    ue_ipv4: u32,
    /// The peer's TEID; of what goes into no tunnel, the [number](exit_number) of what it leaves by.
    teid: Teid,
    pdr: PdrId,
    flags: Flags,
    encap: EncapTemplateId,
    /// What is simply forwarded is never kept, so this says of such a record: in bits 0 to 5, with [`Flags::QFI_MATCH`], the QoS
    /// flow that matches; bit 6: a rate more; bit 7: the last rate is guaranteed. Of others: packets that a BAR
    /// suggests to keep, or the number of lines.
    buffer_suggested: u8,
    /// Bits 0 to 2: how many counters; bit 3: one rate more than one, where [`Flags::POLICED`] says that there is any; bits 4 to
    /// 7: which of the first four counters count before QoS enforcement.
    cell_bits: u8,
}

const _: () = assert!(size_of::<Record>() == 48);

impl Record {
    /// The record of `rules`, which are in the order of precedence and not none. Packets from a UE may come from the networks
    /// behind it too.
    pub(crate) fn new(
        session: SessionIndex,
        direction: Direction,
        SessionFacts { ue, framed, inspects, monitors, ethernet, gnbs }: SessionFacts<'_>,
        rules: Vec<FilteredRule>,
    ) -> Self {
        let framed = if direction == Direction::Uplink { framed } else { &[] };
        let may_fold = !ethernet && framed.is_empty() && !inspects && monitors.is_empty();
        let (folded, is_whole) =
            if may_fold { Self::fold_of(session, direction, ue, &rules) } else { (None, false) };
        if let Some(folded) = folded.as_ref().filter(|_| is_whole && gnbs.is_empty()) {
            return folded.clone();
        }
        let classifier = if ethernet { None } else { Classifier::new(&rules).map(Box::new) };
        let is_rare = classifier.is_some() || !(framed.is_empty() && monitors.is_empty() && gnbs.is_empty());
        let rare = || {
            let (framed, monitors, gnbs) = (framed.into(), monitors.into(), gnbs.into());
            Box::new(RareFields { lines: None, framed, monitors, gnbs, classifier })
        };
        let needs_ports = rules.iter().any(|rule| rule.detection.needs_ports());
        let mut rules = rules;
        let own = folded.as_ref().and_then(|_| {
            let place = rules.iter().position(|rule| rule.detection.is_met(direction))?;
            Some((u16::try_from(place).ok()?, rules.remove(place).detection))
        });
        let (own_place, own) = own.map_or((0, None), |(place, detection)| (place, Some(detection)));
        let wide = WideRecord {
            own,
            own_place,
            rare: is_rare.then(rare),
            ue,
            may_have_lines: may_fold && folded.is_none(),
            needs_ports,
            inspects,
            ethernet,
        };
        let rules = rules.into_iter().map(|rule| Rule::new(session, direction, ue, rule));
        let flags = Flags(0).with(Flags::UPLINK, direction == Direction::Uplink);
        Self {
            wide: Some(SharedWideRecord::new(wide, rules)),
            ..folded.unwrap_or_else(|| Self::empty(session, flags))
        }
    }

    /// With its rules in lines, near a line of theirs, if that is of use and there is memory for them.
    pub(crate) fn into_lines(mut self, memory: &Arc<LineMemory>, near: Option<u32>) -> Self {
        let direction = self.direction();
        let Some(wide) = self.wide.as_mut().filter(|wide| wide.may_have_lines) else { return self };
        let lines = lines::of_rules(self.session, direction, wide.others());
        let Some(lines) = OwnLines::put(memory, lines, near) else { return self };
        self.cells.iter_mut().zip(lines.numbers()).for_each(|(cell, &number)| *cell = number);
        self.buffer_suggested = u8::try_from(lines.numbers().len()).unwrap_or(0);
        self.flags = self.flags.with(Flags::QFI_MATCH, !lines.numbers().is_empty());
        wide.put_lines(lines);
        self
    }

    /// The record of the one rule that packets of the fast path can match, if there is no more than one; and whether that is
    /// all that there is to say of the key.
    fn fold_of(
        session: SessionIndex,
        direction: Direction,
        ue: UeAddresses,
        rules: &[FilteredRule],
    ) -> (Option<Self>, bool) {
        let mut met = rules.iter().filter(|rule| rule.detection.is_met(direction));
        let (Some(rule), None) = (met.next(), met.next()) else { return (None, false) };
        if !rule.detection.matches_all_but_qfi() || rule.extended.is_some() || !rule.on_quota.is_empty() {
            return (None, false);
        }
        let Some(mut folded) = Self::fold(session, direction, ue, &rule.action) else {
            return (None, false);
        };
        let one_qfi = rule.detection.qfis.filter(|qfis| qfis.is_power_of_two());
        match rule.detection.qfis {
            None => (Some(folded), rules.len() == 1),
            Some(_) if one_qfi.is_none() || !folded.flags.has(Flags::FAST) => (None, false),
            Some(qfis) => {
                folded.flags = folded.flags.with(Flags::QFI_MATCH, true).without(Flags::PLAIN);
                folded.buffer_suggested |= u8::try_from(qfis.trailing_zeros()).unwrap_or(u8::MAX) & QFI_BITS;
                (Some(folded), rules.len() == 1)
            }
        }
    }

    /// Whether packets eligible for the fast path find their rule by [`Record::of_flow`].
    #[inline(always)]
    pub(crate) fn has_lines(&self) -> bool {
        self.flags.0 & (Flags::QFI_MATCH | Flags::FAST) == Flags::QFI_MATCH
    }

    /// The numbers of its lines.
    #[inline(always)]
    pub(crate) fn line_numbers(&self) -> &[u32] {
        if !self.has_lines() {
            return &[];
        }
        self.cells.get(..usize::from(self.buffer_suggested)).unwrap_or_default()
    }

    /// The record of the rule that a packet eligible for the fast path matches; `None` where the rules themselves must be looked at.
    #[inline]
    pub(crate) fn of_flow(&self, memory: &LineMemory, flow: &PacketFlow) -> Option<&Self> {
        debug_assert!(self.are_lines_of(memory), "lines of another node");
        // SAFETY: its lines were put into the node's one memory of lines, and are given back after it was dropped.
        unsafe { lines::choose(memory, self.line_numbers(), flow) }
    }

    fn are_lines_of(&self, memory: &LineMemory) -> bool {
        let own = self.wide.as_ref().and_then(SharedWideRecord::lines);
        own.is_none_or(|own| own.are_of(memory))
    }

    /// The QoS flow that a packet of a folded record must be of, if that matters.
    #[inline(always)]
    pub(crate) fn folded_qfi(&self) -> Option<u8> {
        self.flags.has(Flags::QFI_MATCH | Flags::FAST).then_some(self.buffer_suggested & QFI_BITS)
    }

    /// Whether packets notice no difference between two records, as far as the records themselves tell: of rules that did not
    /// fold into one nothing is known.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let Self { session, cells, wide, ue_ipv4, teid, pdr, flags, encap, buffer_suggested, cell_bits } =
            self;
        wide.is_none()
            && other.wide.is_none()
            && (session, pdr, flags, cells) == (&other.session, &other.pdr, &other.flags, &other.cells)
            && (ue_ipv4, teid, encap) == (&other.ue_ipv4, &other.teid, &other.encap)
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
            encap: EncapTemplateId::NONE,
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
        let is_fast = action.gate_open && apply.forward && !apply.drop && !apply.buffer && !no_tunnel;
        let flags = Flags(0)
            .with(Flags::UPLINK, direction == Direction::Uplink)
            .with(Flags::DROP, apply.drop)
            .with(Flags::FORWARD, apply.forward)
            .with(Flags::BUFFER, apply.buffer)
            .with(Flags::NOTIFY_CP, apply.notify_cp)
            .with(Flags::GATE_OPEN, action.gate_open)
            .with(Flags::UE_IPV4, ue.ipv4.is_some())
            .with(Flags::UE_IPV6, ue.ipv6.is_some())
            .with(Flags::BUFFER_SUGGESTED, !is_fast && action.buffer.packets.is_some())
            .with(Flags::FAST, is_fast)
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
            (record.encap, record.teid) = (tunnel.id?, tunnel.teid);
        } else {
            record.teid = Teid(exit_number(action.exit));
        }
        if action.buffer.time_ms.is_some() || apply.report_buffered || apply.report_discarded {
            return None;
        }
        if !is_fast {
            record.buffer_suggested = u8::try_from(action.buffer.packets.unwrap_or(0)).ok()?;
        }
        record.put_cells(&action.usage, &action.qos)?;
        let counts_once = record.folded_usage().len() == 1 && !record.has_folded_quotas();
        let is_simple =
            is_fast && counts_once && !record.flags.has(Flags::POLICED) && record.folded_lan().is_none();
        record.flags = record.flags.with(Flags::PLAIN, is_simple);
        Some(record)
    }

    /// Names counters and policers in the record; `None` when it has no room for all.
    fn put_cells(&mut self, usage: &UsageSlots, qos: &Enforcement) -> Option<()> {
        if qos.packets().is_some() || (qos.guaranteed().is_some() && !self.flags.has(Flags::FAST)) {
            return None;
        }
        let rates = || qos.policers().chain(qos.guaranteed());
        let (policers, rates_len) = (qos.policers().count(), rates().count());
        let of_dropped = || usage.iter().filter(|(_, what)| *what == CountScope::Dropped);
        let (counters, apart) = (usage.of_passed().count(), of_dropped().count());
        if policers > POLICERS_MAX || apart > 1 || counters + rates_len + apart > self.cells_max() {
            return None;
        }
        let numbers = usage.of_passed().map(|slot| slot.0).chain(rates().map(|slot| slot.0));
        let numbers = numbers.chain(of_dropped().map(|(slot, _)| !slot.0));
        self.cells.iter_mut().zip(numbers).for_each(|(cell, number)| *cell = number);
        self.cell_bits = u8::try_from(counters).ok()? | if rates_len > 1 { TWO_RATES } else { 0 };
        if qos.guaranteed().is_some() {
            self.buffer_suggested = GUARANTEED | if rates_len > 2 { THREE_RATES } else { 0 };
        }
        let whats = usage.iter().map(|(_, what)| what).filter(|what| *what != CountScope::Dropped);
        for (at, _) in whats.enumerate().filter(|(_, what)| *what == CountScope::All) {
            self.cell_bits |= (at < 4).then_some(0x10 << at)?;
        }
        self.flags = self.flags.with(Flags::POLICED, rates_len > 0).with(Flags::QUOTAS, usage.has_quotas());
        Some(())
    }

    /// How many numbers there is room for.
    const fn cells_max(&self) -> usize {
        if self.flags.has(Flags::UE_IPV6) { CELLS_BESIDE_IPV6 } else { CELLS_MAX }
    }

    /// The counter of dropped packets of a record that holds its action itself, if it has one.
    fn folded_dropped(&self) -> Option<UsageSlot> {
        let at = self.folded_usage().len() + self.folded_rates().len();
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
    pub(crate) fn is_fast(&self, path: FastPath) -> bool {
        self.flags.0 & (Flags::FAST | Flags::UPLINK) == path.0
    }

    /// Whether packets take that way.
    #[inline(always)]
    pub(crate) fn is_simple(&self, path: SimpleForward) -> bool {
        self.flags.0 & path.told_by() == path.0
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

    /// The LAN of a record that holds its action itself, if that leads into one.
    #[inline(always)]
    pub(crate) fn folded_lan(&self) -> Option<LanId> {
        if self.flags.has(Flags::TUNNEL) { None } else { lan_of_exit(self.teid.0) }
    }

    /// The tunnel of a record that holds its action itself, if that leads into one.
    #[inline]
    pub(crate) fn folded_tunnel(&self) -> Option<(EncapTemplateId, Teid)> {
        self.flags.has(Flags::TUNNEL).then_some((self.encap, self.teid))
    }

    /// The counters of a record that holds its action itself; which of them count before QoS
    /// enforcement matters only where something is dropped.
    #[inline]
    pub(crate) fn folded_usage(&self) -> &[u32] {
        &self.cells[..usize::from(self.cell_bits & 7).min(CELLS_MAX)]
    }

    /// The rates of a record that holds its action itself, the guaranteed one behind the policers.
    #[inline(always)]
    pub(crate) fn folded_rates(&self) -> &[u32] {
        if !self.flags.has(Flags::POLICED) {
            return &[];
        }
        let first = usize::from(self.cell_bits & 7);
        let more = u8::from(self.cell_bits & TWO_RATES != 0);
        let more = more + u8::from(self.has_guarantee() && self.buffer_suggested & THREE_RATES != 0);
        self.cells.get(first..first + 1 + usize::from(more)).unwrap_or_default()
    }

    /// The policers of a record that holds its action itself, and its guaranteed rate.
    #[inline(always)]
    pub(crate) fn folded_policers(&self) -> (&[u32], Option<u32>) {
        match self.folded_rates() {
            [policers @ .., guarantee] if self.has_guarantee() => (policers, Some(*guarantee)),
            policers => (policers, None),
        }
    }

    #[inline(always)]
    fn has_guarantee(&self) -> bool {
        self.flags.has(Flags::POLICED | Flags::FAST) && self.buffer_suggested & GUARANTEED != 0
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
    pub(crate) fn inspects(&self) -> bool {
        self.wide.as_ref().is_some_and(|wide| wide.inspects)
    }

    /// The QoS flows whose delays are measured.
    #[inline]
    pub(crate) fn monitors(&self) -> &[(Qfi, Arc<Monitor>)] {
        self.rare().map_or(&[], |rare| &rare.monitors)
    }

    /// Whether packets may come out of a tunnel from that address.
    #[inline]
    pub(crate) fn admits_gnb(&self, from: IpAddr) -> bool {
        self.gnbs().is_empty() || self.gnbs().contains(&from)
    }

    /// The only addresses from which packets may come out of a tunnel; none where any may be.
    #[inline]
    pub(crate) fn gnbs(&self) -> &[IpAddr] {
        self.rare().map_or(&[], |rare| &rare.gnbs)
    }

    /// Whether what comes are Ethernet frames, not IP packets.
    #[inline]
    pub(crate) fn is_ethernet(&self) -> bool {
        self.wide.as_ref().is_some_and(|wide| wide.ethernet)
    }

    /// Networks behind the UE from which packets may come.
    pub(crate) fn framed(&self) -> &[FramedRoute] {
        self.rare().map_or(&[], |rare| &rare.framed)
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
            Some(wide) => Rules::Filtered(self.list(wide)),
            None => Rules::One(self.action(tunnels)),
        }
    }

    /// The index of the rules, where there are many.
    #[inline]
    pub(crate) fn classifier(&self) -> Option<&Classifier> {
        self.rare()?.classifier.as_deref()
    }

    fn list<'r>(&'r self, wide: &'r SharedWideRecord) -> RuleList<'r> {
        RuleList { others: wide.others(), own: wide.own.as_ref().map(|own| (self, &**own, wide.own_place)) }
    }

    /// What few sessions have.
    #[inline]
    fn rare(&self) -> Option<&RareFields> {
        self.wide.as_ref()?.rare.as_deref()
    }

    fn action(&self, tunnels: &Tunnels) -> Action {
        let mut usage = UsageSlots::default();
        for (at, &slot) in self.folded_usage().iter().enumerate() {
            let before_qos = at < 4 && self.cell_bits >> (4 + at) & 1 != 0;
            let what = if before_qos { CountScope::All } else { CountScope::Passed };
            // A record folds fewer counters than there is room for. That one of them has a quota is said of all: one
            // without is never used up.
            let _ = usage.push(UsageSlot(slot), what, self.has_folded_quotas());
        }
        if let Some(dropped) = self.folded_dropped() {
            // As above.
            let _ = usage.push(dropped, CountScope::Dropped, false);
        }
        let mut qos = Enforcement::default();
        let (policers, guarantee) = self.folded_policers();
        for &slot in policers {
            // As above.
            let _ = qos.push(PolicerSlot(slot));
        }
        guarantee.into_iter().for_each(|slot| qos.guarantee(PolicerSlot(slot)));
        let tunnel = self.folded_tunnel().and_then(|(id, teid)| {
            Some(Destination::Tunnel(Tunnel { encap: *tunnels.encap(id)?, id: Some(id), teid }))
        });
        let without =
            if self.flags.has(Flags::NO_TUNNEL) { Destination::NoTunnel } else { Destination::Routed };
        let exit = if tunnel.is_none() { exit_of_number(self.teid.0) } else { N6Exit::Any };
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

/// The bit of the [number](exit_number) of a LAN.
const LAN: u32 = 1 << 31;

/// What packets leave by, as a number: 0 for any port, the number of the network instance plus one, or that of the LAN with a bit
/// of its own.
fn exit_number(exit: N6Exit) -> u32 {
    match exit {
        N6Exit::Any => 0,
        N6Exit::Instance(InstanceId(instance)) => u32::from(instance) + 1,
        N6Exit::Lan(LanId(lan)) => LAN | u32::from(lan),
    }
}

fn exit_of_number(number: u32) -> N6Exit {
    let instance = || number.checked_sub(1).and_then(|instance| u16::try_from(instance).ok());
    match lan_of_exit(number) {
        Some(lan) => N6Exit::Lan(lan),
        None => instance().map_or(N6Exit::Any, |instance| N6Exit::Instance(InstanceId(instance))),
    }
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // The bit is above the number.
const fn lan_of_exit(number: u32) -> Option<LanId> {
    if number & LAN == 0 { None } else { Some(LanId(number as u16)) }
}

#[cfg(test)]
mod tests;
