//! The function: what is done with each frame, by one worker.
//!
//! Most frames are one of two: plain IPv4 that goes to the peer port, and GRE in IPv4 without options whose rule takes the
//! headers off. Both are told by a few loads of the first 58 octets and done at once ([`fast`]). All others go the
//! slow path, which reads everything and does all that rules can ask for.

mod decapsulate;
mod encapsulate;
mod fast;
mod pieces;
mod route;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kaido_engine::fragment::{Contexts, Limits};
use kaido_engine::{
    BATCH_MAX, Batch, DropReason, DropTable, Frame, Function, NextHops, Notifier, Output, PendingQueue,
    PortId, PortLink, RateLimit, Routes,
};
use kaido_wire::gre;

use crate::GreDrop;
use crate::counters::RuleCounters;
use crate::parse::{ParsedFrame, TunnelPacket, parse};
use crate::rule_set::RuleSet;
use crate::rules::{Pieces, PortSettings, Verdict};
use fast::Fast;
use pieces::Piece;

/// How often what has waited too long is looked for.
const SWEEP: Duration = Duration::from_millis(100);
/// How long workers may take to take other rules. One that sleeps is woken.
const PATIENCE: Duration = Duration::from_secs(1);
/// ICMP errors that one worker sends in a second: what strangers send must not make us send more.
const ICMP_ERRORS_PER_SECOND: u32 = 100;

// The frames of a batch that were done at once are bits of a word.
const _: () = assert!(BATCH_MAX <= 64);

/// What the workers of a node share.
#[derive(Debug)]
pub struct SharedState {
    rules: Mutex<Arc<RuleSet>>,
    /// Of `rules`, for workers to see that there are others.
    generation: AtomicU64,
    /// Of workers that may sleep.
    notifiers: Mutex<Vec<Arc<Notifier>>>,
    /// Pieces of tunnel packets: those of one may come to several workers.
    pieces: Mutex<Contexts<Piece>>,
    /// Identification of the last packet that was cut here (RFC 6864).
    identification: AtomicU32,
}

impl SharedState {
    /// With these rules; `limits` bound the pieces that wait for others.
    pub fn new(rules: Arc<RuleSet>, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            generation: AtomicU64::new(rules.generation()),
            rules: Mutex::new(rules),
            notifiers: Mutex::default(),
            pieces: Mutex::new(Contexts::new(limits)),
            identification: AtomicU32::new(1),
        })
    }

    /// The rules, as they are now.
    pub fn rules(&self) -> Arc<RuleSet> {
        lock(&self.rules).clone()
    }

    /// Has the workers obey other rules, which come [after](RuleSet::next) those of now. Each takes them between two batches.
    /// Whether all have, by the time that this returns: within a second. Nobody else may keep those of before.
    pub fn replace(&self, rules: Arc<RuleSet>) -> bool {
        let generation = rules.generation();
        let before = Arc::downgrade(&std::mem::replace(&mut *lock(&self.rules), rules));
        self.generation.store(generation, Ordering::Release);
        lock(&self.notifiers).iter().for_each(|notifier| notifier.notify());
        let until = Instant::now() + PATIENCE;
        while before.strong_count() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        before.strong_count() == 0
    }

    fn identification(&self) -> u32 {
        self.identification.fetch_add(1, Ordering::Relaxed)
    }
}

/// The function of one worker.
pub struct Gre {
    shared: Arc<SharedState>,
    rules: Arc<RuleSet>,
    counters: Arc<RuleCounters>,
    /// The ports of the settings, with their interfaces as they are now.
    ports: Vec<PortSettings>,
    fast: Fast,
    next_hops: NextHops,
    pending: PendingQueue,
    /// Generation of the next hops in which those that wait were last tried.
    pending_tried: u64,
    icmp_errors: RateLimit,
    swept: Instant,
}

impl Gre {
    /// The function of another worker; routed packets go by `routes`.
    pub fn new(shared: &Arc<SharedState>, routes: &Arc<Routes>) -> Self {
        let rules = shared.rules();
        let ports = rules.settings().ports.clone();
        Self {
            counters: RuleCounters::new(),
            fast: Fast::of(&rules, &ports),
            ports,
            rules,
            shared: shared.clone(),
            next_hops: routes.next_hops(),
            pending: PendingQueue::default(),
            pending_tried: 0,
            icmp_errors: RateLimit::new(ICMP_ERRORS_PER_SECOND),
            swept: Instant::now(),
        }
    }

    /// What its rules have done, to be read while it works.
    pub fn counters(&self) -> Arc<RuleCounters> {
        self.counters.clone()
    }

    /// A frame that is none of the usual two.
    #[inline(never)]
    fn slow(&mut self, port: PortId, frame: Frame, out: &mut Output<'_>) {
        match parse(frame.data(), frame.packet_len()) {
            ParsedFrame::Tunnel(outer) => self.tunnel(port, &outer, frame, out),
            ParsedFrame::Piece { link_len, packet_len } => match self.rules.settings().pieces {
                Pieces::Assemble => self.piece(port, link_len, packet_len, frame, out),
                Pieces::Pass => self.peer_port(port, frame, out),
                Pieces::Drop => out.drop(port, frame, DropReason::OUTER_FRAGMENT),
            },
            ParsedFrame::Unreadable(reason) => {
                self.obey(self.rules.settings().unreadable, reason, port, frame, out);
            }
            ParsedFrame::Broken(reason) => out.drop(port, frame, reason),
            ParsedFrame::Other => self.other(port, frame, out),
        }
    }

    /// A packet in GRE that can be read.
    fn tunnel(&mut self, port: PortId, outer: &TunnelPacket, frame: Frame, out: &mut Output<'_>) {
        if outer.gre.has_checksum && !is_sum_right(&frame, outer) {
            return out.drop(port, frame, GreDrop::CHECKSUM);
        }
        let TunnelPacket { ends, gre, .. } = *outer;
        let settings = self.rules.settings();
        let verdict = match self.rules.matchers.find(ends, port, gre.key, gre.protocol) {
            Some(number) => {
                let number = usize::from(number);
                self.counters.count(self.rules.place_of_rule(number), frame.packet_len());
                settings.rules[number].verdict
            }
            None => settings.unmatched,
        };
        self.obey_for(verdict, port, outer, frame, out);
    }

    fn obey_for(
        &mut self,
        verdict: Verdict,
        port: PortId,
        outer: &TunnelPacket,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        match verdict {
            Verdict::Decapsulate { ttl, dscp, forward } => {
                self.decapsulate((ttl, dscp, forward), port, outer, frame, out);
            }
            _ => self.obey(verdict, GreDrop::RULE, port, frame, out),
        }
    }

    /// What is done without a look into the tunnel.
    fn obey(
        &mut self,
        verdict: Verdict,
        reason: DropReason,
        port: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        match verdict {
            Verdict::Pass => self.peer_port(port, frame, out),
            Verdict::Punt => out.to_kernel(port, frame),
            // Settings with a decapsulation of what cannot be read are refused.
            Verdict::Drop | Verdict::Decapsulate { .. } => out.drop(port, frame, reason),
        }
    }

    /// Out of the port that `port` is connected with.
    fn peer_port(&self, port: PortId, frame: Frame, out: &mut Output<'_>) {
        let Some(to) = self.ports.get(port.index()).and_then(|port| port.peer_port) else {
            return out.to_kernel(port, frame);
        };
        if frame.packet_len() > self.ports[to.index()].mtu + LINK_LEN_MAX {
            return out.drop(port, frame, DropReason::TOO_BIG);
        }
        out.transmit(to, frame);
    }

    /// Whether the rules have changed since they were taken.
    fn has_other_rules(&self) -> bool {
        self.shared.generation.load(Ordering::Acquire) != self.rules.generation()
    }

    /// Obeys the rules of now from here on.
    #[cold]
    fn take_rules(&mut self) {
        let rules = self.shared.rules();
        let new = rules.places().iter().filter(|place| place.since > self.rules.generation());
        new.for_each(|place| self.counters.clear(place.number));
        self.fast = Fast::of(&rules, &self.ports);
        self.rules = rules;
    }

    /// Drops what has waited too long.
    fn sweep(&mut self, out: &mut Output<'_>) {
        self.swept = out.now();
        self.sweep_pieces(out);
        if !self.pending.is_empty() {
            self.retry_pending(out);
        }
    }
}

/// Octets of Ethernet with as many tags as there may be.
const LINK_LEN_MAX: usize = 14 + 4 * 4;

/// Whether the checksum over GRE header and payload is right.
fn is_sum_right(frame: &Frame, outer: &TunnelPacket) -> bool {
    let start = outer.link_len + outer.outer_len - usize::from(outer.gre.header_len);
    let end = outer.link_len + outer.packet_len;
    let mut at = 0;
    let parts = frame.segments().map(|segment| {
        let first = at;
        at += segment.len();
        let from = start.saturating_sub(first).min(segment.len());
        let to = end.saturating_sub(first).min(segment.len());
        &segment[from..to.max(from)]
    });
    gre::checksum_ok(parts)
}

impl Function for Gre {
    fn name(&self) -> &'static str {
        "gre"
    }

    fn drop_reasons(&self) -> &'static DropTable {
        GreDrop::TABLE
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        out.incoming(port).iter().for_each(Frame::prefetch_first);
        let fast = self.fast.at(port);
        let passed = fast.pass_all(batch, &self.counters);
        let exit = fast.peer_port.filter(|_| passed != 0);
        if let Some(exit) = exit.filter(|_| passed.count_ones() as usize == batch.len()) {
            return out.transmit_all(exit, batch);
        }
        for (at, frame) in batch.drain(..).enumerate() {
            match exit.filter(|_| passed >> at & 1 == 1) {
                Some(exit) => out.transmit(exit, frame),
                None => self.slow(port, frame, out),
            }
        }
    }

    fn tick(&mut self, out: &mut Output<'_>) {
        if self.has_other_rules() {
            self.take_rules();
        }
        if !self.pending.is_empty() && self.next_hops.generation() != self.pending_tried {
            self.retry_pending(out);
        }
        if out.now().saturating_duration_since(self.swept) >= SWEEP {
            self.sweep(out);
        }
    }

    fn tick_due(&self) -> Option<Instant> {
        let has_next_hops = !self.pending.is_empty() && self.next_hops.generation() != self.pending_tried;
        if has_next_hops || self.has_other_rules() {
            return Some(self.swept);
        }
        let waits = !self.pending.is_empty() || !lock(&self.shared.pieces).is_empty();
        waits.then(|| self.swept + SWEEP)
    }

    fn attach(&mut self, notifier: &Arc<Notifier>) {
        self.next_hops.attach(notifier);
        lock(&self.shared.notifiers).push(notifier.clone());
    }

    fn port_changed(&mut self, port: PortId, link: &PortLink) {
        let Some(settings) = self.ports.get_mut(port.index()) else { return };
        (settings.mac, settings.mtu) = (link.mac, link.mtu);
        settings.addresses.clone_from(&link.addresses);
        self.fast = Fast::of(&self.rules, &self.ports);
    }
}

/// The lock of what is never left half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
