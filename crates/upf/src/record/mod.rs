//! What a session's rules become: one immutable record per tunnel or UE address.
//!
//! A packet costs one lookup, whose result says everything: where it may come from, which rule it
//! matches, where it goes and which counters it moves. Where a key has one rule without filters, the
//! usual case, the rule is folded into the record, which with its key fills one cache line. Otherwise the
//! record points to the rules in the order of precedence.

mod exit;
mod fast_path;
mod fold;
mod folded;
mod form;
mod lines;
mod rule;
mod wide;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

pub(crate) use self::exit::exit_number;
use self::fast_path::Flags;
pub(crate) use self::fast_path::{CommonForward, CommonPath, FastPath};
use self::fold::CELLS_MAX;
pub(crate) use self::folded::Meters;
pub use self::form::{RecordForm, SlowPathCause};
pub use self::lines::{FlowMatch, LINES_MAX};
pub(crate) use self::lines::{FlowPorts, LineMemory, PacketFlow, asks_of};
use self::rule::Rule;
pub use self::rule::{RuleList, RuleView};
use self::wide::{RareFields, SharedWideRecord, WideRecord};

use crate::action::Action;
use crate::classify::Classifier;
use crate::ids::SessionIndex;
use crate::monitoring::Monitor;
use crate::rule::FilteredRule;
use crate::tunnels::Tunnels;
use crate::ue::{Direction, UeAddresses};
use kaido_n4::{FramedRoute, Ipv6Prefix, PdrId, Qfi, Teid};

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
    /// The peer's TEID; of what goes into no tunnel, the [number](exit::exit_number) of what it leaves by.
    teid: Teid,
    pdr: PdrId,
    flags: Flags,
    /// The peer's [`EncapTemplateId`](crate::tunnels::EncapTemplateId); of what goes into no tunnel, the [number](exit::ues_number) of the network instance of
    /// the UEs that it may be for.
    encap: u16,
    /// What is simply forwarded is never kept, so this says of such a record: in bits 0 to 5, with [`Flags::QFI_MATCH`], the QoS
    /// flow that matches. Bit 6: a rate more. Bit 7: the last rate is guaranteed. Of others: packets that a BAR suggests to
    /// keep, or the number of lines.
    buffer_suggested: u8,
    /// Bits 0 to 2: how many counters. Bit 3: one rate more than one, where [`Flags::POLICED`] says that there is any. Bits 4 to
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
        let may_fold = !ethernet && !inspects && monitors.is_empty();
        let (folded, is_whole) =
            if may_fold { Self::fold_of(session, direction, ue, &rules) } else { (None, false) };
        if let Some(folded) = folded.as_ref().filter(|_| is_whole && gnbs.is_empty() && framed.is_empty()) {
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
        let Some(lines) = memory.put(lines, near) else { return self };
        self.cells.iter_mut().zip(lines.numbers()).for_each(|(cell, &number)| *cell = number);
        self.buffer_suggested = u8::try_from(lines.numbers().len()).unwrap_or(0);
        self.flags = self.flags.with(Flags::QFI_MATCH, !lines.numbers().is_empty());
        wide.put_lines(lines);
        self
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
        lines::choose(memory, self, flow)
    }

    fn are_lines_of(&self, memory: &LineMemory) -> bool {
        let own = self.wide.as_ref().and_then(SharedWideRecord::lines);
        own.is_none_or(|own| own.are_of(memory))
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
            encap: 0,
            buffer_suggested: 0,
            cell_bits: 0,
        }
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
    pub(crate) fn is_common(&self, forward: CommonForward) -> bool {
        forward.is(self.flags)
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
            || self.admits_behind(addr)
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

    /// Whether an address is of a network behind the UE.
    #[cold]
    pub(crate) fn admits_behind(&self, addr: IpAddr) -> bool {
        self.framed().iter().any(|route| route.contains(addr))
    }

    /// Networks behind the UE from which packets may come.
    pub(crate) fn framed(&self) -> &[FramedRoute] {
        self.rare().map_or(&[], |rare| &rare.framed)
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
}

#[cfg(test)]
mod tests;
