//! What a record leads to on the heap: its rules, and what few sessions have.

use std::net::IpAddr;
use std::sync::Arc;

use triomphe::ThinArc;

use super::lines::OwnLines;
use super::rule::Rule;
use crate::classify::Classifier;
use crate::monitoring::Monitors;
use crate::rule::Detection;
use crate::ue::UeAddresses;
use kaido_n4::FramedRoute;

/// What does not fold into the record itself, before the rules.
#[derive(Debug)]
pub(super) struct WideRecord {
    /// What the rule asks for that the record holds itself, if it does: it is not among those behind.
    pub(super) own: Option<Arc<Detection>>,
    pub(super) rare: Option<Box<RareFields>>,
    pub(super) ue: UeAddresses,
    /// How many of those come before that rule.
    pub(super) own_place: u16,
    /// They may be put into lines.
    pub(super) may_have_lines: bool,
    /// A rule asks for ports, which only the first fragment of a packet has.
    pub(super) needs_ports: bool,
    /// Packets are listened to, to know their applications by.
    pub(super) inspects: bool,
    /// What comes are Ethernet frames.
    pub(super) ethernet: bool,
}

const _: () = assert!(size_of::<WideRecord>() == 48);

/// What few sessions have.
#[derive(Debug, Default)]
pub(super) struct RareFields {
    /// The first rules, as the fast path reads them, if it does.
    pub(super) lines: Option<OwnLines>,
    /// Networks behind the UE: sources uplink.
    pub(super) framed: Box<[FramedRoute]>,
    /// QoS flows whose delays are measured.
    pub(super) monitors: Monitors,
    /// The only outer sources of uplink packets; none where any may be.
    pub(super) gnbs: Box<[IpAddr]>,
    /// Where there are many rules.
    pub(super) classifier: Option<Box<Classifier>>,
}

/// Where they are with their rules, shared by the copies of a record. What is read of them is [noted](kaido_table::waits).
#[derive(Clone, Debug)]
pub(super) struct SharedWideRecord(ThinArc<WideRecord, Rule>);

impl SharedWideRecord {
    pub(super) fn new(wide: WideRecord, rules: impl ExactSizeIterator<Item = Rule>) -> Self {
        Self(ThinArc::from_header_and_iter(wide, rules))
    }

    /// The rules, but for one that the record holds itself.
    #[inline]
    pub(super) fn others(&self) -> &[Rule] {
        kaido_table::waits::read(&self.0.header.header.ue);
        &self.0.slice
    }

    /// Gives it lines, before there are copies.
    pub(super) fn put_lines(&mut self, lines: OwnLines) {
        self.0.with_arc_mut(|own| {
            if let Some(own) = triomphe::Arc::get_mut(own) {
                own.header_mut().rare.get_or_insert_default().lines = Some(lines);
            }
        });
    }

    /// The lines, which note themselves when they are compared.
    pub(super) fn lines(&self) -> Option<&OwnLines> {
        self.0.header.header.rare.as_ref()?.lines.as_ref()
    }

    /// Whether a rule is about that very address of the UE's.
    pub(super) fn names(&self, addr: IpAddr) -> bool {
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
