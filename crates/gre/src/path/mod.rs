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

use std::sync::atomic::{AtomicU32, Ordering};
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
use crate::matching::Matchers;
use crate::parse::{ParsedFrame, TunnelPacket, parse};
use crate::rules::{Pieces, PortSettings, Settings, SettingsError, Verdict};
use fast::Fast;
use pieces::Piece;

/// How often what has waited too long is looked for.
const SWEEP: Duration = Duration::from_millis(100);
/// ICMP errors that one worker sends in a second: what strangers send must not make us send more.
const ICMP_ERRORS_PER_SECOND: u32 = 100;

// The frames of a batch that were done at once are bits of a word.
const _: () = assert!(BATCH_MAX <= 64);

/// What the workers of a node share.
#[derive(Debug)]
pub struct SharedState {
    settings: Settings,
    matchers: Matchers,
    /// Pieces of tunnel packets: those of one may come to several workers.
    pieces: Mutex<Contexts<Piece>>,
    /// Identification of the last packet that was cut here (RFC 6864).
    identification: AtomicU32,
}

impl SharedState {
    /// What `settings` ask for; `limits` bound the pieces that wait for others.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn new(settings: Settings, limits: Limits) -> Result<Arc<Self>, SettingsError> {
        settings.check()?;
        Ok(Arc::new(Self {
            matchers: Matchers::of_rules(&settings),
            pieces: Mutex::new(Contexts::new(limits)),
            identification: AtomicU32::new(1),
            settings,
        }))
    }

    /// What was asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn identification(&self) -> u32 {
        self.identification.fetch_add(1, Ordering::Relaxed)
    }
}

/// The function of one worker.
pub struct Gre {
    shared: Arc<SharedState>,
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
        Self {
            counters: RuleCounters::new(shared.settings.names().len()),
            ports: shared.settings.ports.clone(),
            fast: Fast::of(&shared.settings, &shared.settings.ports),
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
            ParsedFrame::Piece { link_len, packet_len } => match self.shared.settings.pieces {
                Pieces::Assemble => self.piece(port, link_len, packet_len, frame, out),
                Pieces::Pass => self.peer_port(port, frame, out),
                Pieces::Drop => out.drop(port, frame, DropReason::OUTER_FRAGMENT),
            },
            ParsedFrame::Unreadable(reason) => {
                self.obey(self.shared.settings.unreadable, reason, port, frame, out);
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
        let settings = &self.shared.settings;
        let verdict = match self.shared.matchers.find(ends, port, gre.key, gre.protocol) {
            Some(number) => {
                self.counters.count(number.into(), frame.packet_len());
                settings.rules[usize::from(number)].verdict
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
        if !self.pending.is_empty() && self.next_hops.generation() != self.pending_tried {
            self.retry_pending(out);
        }
        if out.now().saturating_duration_since(self.swept) >= SWEEP {
            self.sweep(out);
        }
    }

    fn tick_due(&self) -> Option<Instant> {
        if !self.pending.is_empty() && self.next_hops.generation() != self.pending_tried {
            return Some(self.swept);
        }
        let waits = !self.pending.is_empty() || !lock(&self.shared.pieces).is_empty();
        waits.then(|| self.swept + SWEEP)
    }

    fn attach(&mut self, notifier: &Arc<Notifier>) {
        self.next_hops.attach(notifier);
    }

    fn port_changed(&mut self, port: PortId, link: &PortLink) {
        let Some(settings) = self.ports.get_mut(port.index()) else { return };
        (settings.mac, settings.mtu) = (link.mac, link.mtu);
        settings.addresses.clone_from(&link.addresses);
        self.fast = Fast::of(&self.shared.settings, &self.ports);
    }
}

/// The lock of what is never left half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
