//! The control loop: PFCP datagrams, timers, and what is asked over HTTP, in one thread.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kaido_engine::BATCH_MAX;
use kaido_engine::port::DatagramRooms;
use kaido_node::Stage;
use kaido_node::board::PortBoard;
use kaido_node::config::Prefix;
use kaido_node::function::ControlLoop;
use kaido_otlp::Monitor;
use kaido_pfcp::{
    DATAGRAM_MAX, Endpoint, Instants, MsgType, TracedMessages, Transmit, UnreportedUsage, send_all,
};
use kaido_upf::control::Upf;
use kaido_upf::node::ControlPlaneMessage;
use rustix::event::{PollFd, PollFlags, poll};

use super::config::StoreConfig;
use super::control_guard::ControlGuard;
use super::datapath::Choice;
use super::exposure::Exposure;
use super::flows::FlowExport;
use super::kernel_watch::KernelWatch;
use super::lag::Lag;
use super::memory::Watch;
use super::metrics::MetricsQuestion;
use super::n4_tunnels::N4Tunnels;
use super::otlp::ProcedureExport;
use super::ports::KernelCounters;
use super::store::{NodeStore, StoreFault};
use super::unknown_peers::{SERVED_A_TURN, UnknownPeers, WaitingDatagram};
use super::view::UpfView;

/// Longest wait: how soon what has no deadline is done, such as echo requests that are due.
const PACE: Duration = Duration::from_millis(100);
/// The same with a datapath in the kernel, whose events wake nobody: the latency of their usage reports.
const PACE_IN_KERNEL: Duration = Duration::from_millis(10);
/// The same while a request waits for workers to come to the end of a batch.
const PACE_WAITING: Duration = Duration::from_micros(200);
/// Datagrams taken from one socket before the others have their turn.
const DATAGRAMS_A_TURN: usize = 256;
/// The same where most are of strangers, which are set aside: more than come while a turn lasts.
const DATAGRAMS_SET_ASIDE: usize = 8192;
/// Control planes whose socket is kept before those that are gone are looked for.
const SPOKEN_TO_MAX: usize = 4096;
/// Messages that wait to be sent together.
const ANSWERS_HELD: usize = 32;
/// Messages that wait for the journal before no more requests are taken.
const HELD_MAX: usize = 65_536;
/// How long control planes have to release their associations when the node stops.
const RELEASE_GRACE: Duration = Duration::from_secs(2);
/// How long those that have not are waited for between two acknowledgements of last usage reports.
const FAREWELL_GRACE: Duration = Duration::from_secs(2);
/// Longest wait for all of them.
const FAREWELL_MAX: Duration = Duration::from_secs(30);

/// Everything that the control loop works on.
pub(super) struct Control {
    pub(super) endpoint: Endpoint<Upf>,
    pub(super) sockets: Vec<Arc<UdpSocket>>,
    /// GTP-U with control planes that no port leads to.
    pub(super) n4_tunnels: Option<Arc<N4Tunnels>>,
    /// Of the sockets of PFCP and of the metrics.
    pub(super) control_guard: ControlGuard,
    pub(super) lag: Lag,
    pub(super) memory: Watch,
    /// Questions of the node, and whether it is to stop.
    pub(super) control: ControlLoop,
    pub(super) ports: PortBoard,
    /// Which datapath there is, and why.
    pub(super) choice: Choice,
    /// Of the datapath in the kernel, where there is one.
    pub(super) kernel: Option<KernelCounters>,
    pub(super) kernel_watch: Option<KernelWatch>,
    /// Flow records, where there are collectors.
    pub(super) flows: Option<FlowExport>,
    /// Subscriptions of consumers, where there may be any.
    pub(super) exposure: Option<Exposure>,
    /// Procedures for a collector, where there is one, and what became of them.
    pub(super) procedures: Option<ProcedureExport>,
    pub(super) monitor: Option<Monitor>,
    /// Who asks for metrics.
    pub(super) scrapes: MetricsQuestion,
    /// What survives this process.
    pub(super) store: NodeStore,
    pub(super) held: HeldAnswers,
    /// When this turn began.
    pub(super) turn_began: Instant,
    /// Control planes that are listened to; empty for all.
    pub(super) allow: Vec<Prefix>,
    /// Datagrams from elsewhere.
    pub(super) unknown_peers: u64,
    /// Datagrams of those who have no association, and who come last.
    pub(super) waiting: UnknownPeers,
    /// The socket that a control plane spoke to last, where there are several.
    pub(super) spoken_to: HashMap<IpAddr, usize>,
    /// Room for the datagrams of PFCP that one call takes.
    pub(super) rooms: DatagramRooms,
    /// Room for one datagram of N4 tunnels.
    pub(super) buffer: Box<[u8]>,
}

/// Rooms in which a datagram that is longer than any that is looked at can be told from it.
pub(super) fn datagram_rooms() -> DatagramRooms {
    DatagramRooms::new(DATAGRAM_MAX + 1)
}

/// Room for the longest UDP payload.
pub(super) fn datagram_buffer() -> Box<[u8]> {
    vec![0; 65_535].into()
}

impl Control {
    /// Turns until the node is to stop or `failed` says so. Then sessions are kept for the next start, or the control planes release
    /// what they have. Returns at once where the ports are to be handed over.
    ///
    /// # Errors
    /// When the store cannot be had again that another process was to have.
    pub(super) fn run(&mut self, config: &StoreConfig, failed: impl Fn() -> bool) -> Result<(), StoreFault> {
        while !self.control.is_stopping() && !failed() {
            match self.control.stage() {
                Stage::Runs => self.turn(),
                Stage::Freeze => self.freeze(),
                Stage::Thaw => self.thaw(config)?,
                Stage::Leave => {
                    self.finish_exports();
                    return Ok(());
                }
                Stage::Frozen | Stage::Left | Stage::Gone | Stage::Restart => self.frozen_turn(),
            }
        }
        if self.store.is_on() {
            while !self.settle_exposure() {
                self.frozen_turn();
            }
            self.store.finish(self.endpoint.service_mut());
        } else {
            self.release();
        }
        self.finish_exports();
        Ok(())
    }

    /// Sends the flow records that wait, and tells of the procedures that have ended.
    fn finish_exports(&mut self) {
        if let Some(procedures) = &self.procedures {
            procedures.turn(&mut self.endpoint);
        }
        if let Some(flows) = &mut self.flows {
            let now = Instants::now();
            let at = (now.monotonic, self.endpoint.node_time(now));
            flows.finish(self.endpoint.service_mut(), &self.ports, at);
        }
    }

    /// Changes nothing any more that another process is to know: what was answered is in the store.
    fn freeze(&mut self) {
        if !self.settle_exposure() {
            self.frozen_turn();
            return;
        }
        if let Some(number) = self.store.flush()
            && !self.store.is_durable(number)
        {
            // The disk is slow, or fails.
            self.frozen_turn();
            return;
        }
        self.send_held();
        self.reply_to_consumers();
        match self.store.freeze() {
            Ok(()) => self.control.freeze(),
            Err(error) => {
                tracing::error!(%error, "no other process can take over");
                self.control.want_thaw();
            }
        }
    }

    fn thaw(&mut self, config: &StoreConfig) -> Result<(), StoreFault> {
        let notifier = self.control.notifier().clone();
        self.store.thaw(config, &mut self.endpoint, move || notifier.notify())?;
        self.control.thaw();
        Ok(())
    }

    /// A turn in which nothing changes: requests wait in their sockets.
    fn frozen_turn(&mut self) {
        self.control.beat();
        std::thread::sleep(PACE_WAITING);
        self.answer();
    }

    /// Has control planes release what they have.
    fn release(&mut self) {
        let mut out = Vec::new();
        self.endpoint.request_release(Instants::now(), RELEASE_GRACE, &mut out);
        self.send(&mut out, None);
        let deadline = Instant::now() + RELEASE_GRACE;
        while self.endpoint.peers().next().is_some() && Instant::now() < deadline {
            self.turn();
        }
        self.tell_last_usage();
    }

    /// Ends the sessions of control planes that have not released their associations, tells them the last usage, and the log
    /// what they could not be told.
    fn tell_last_usage(&mut self) {
        self.endpoint.end_sessions();
        let began = Instant::now();
        let mut progress = (began, self.endpoint.last_reports_acknowledged());
        while !self.endpoint.is_told()
            && progress.0.elapsed() < FAREWELL_GRACE
            && began.elapsed() < FAREWELL_MAX
        {
            self.turn();
            let acknowledged = self.endpoint.last_reports_acknowledged();
            if acknowledged != progress.1 {
                progress = (Instant::now(), acknowledged);
            }
        }
        for UnreportedUsage { node, sessions, octets } in self.endpoint.abandon(Instants::now()) {
            let node = node.map_or_else(|| "a control plane".to_owned(), |node| node.to_string());
            tracing::error!(
                node,
                sessions,
                octets,
                "usage was not reported: the control plane does not answer"
            );
        }
    }

    fn turn(&mut self) {
        self.control.beat();
        self.wait();
        self.turn_began = Instant::now();
        self.control_guard.turn();
        if let Some(percent) = self.lag.look(Instant::now()) {
            self.endpoint.set_lag(percent);
        }
        if let Some(watch) = &mut self.kernel_watch {
            let counts = || self.kernel.as_ref().map(KernelCounters::read).unwrap_or_default();
            watch.turn(Instant::now(), self.endpoint.service_mut(), counts);
        }
        if let Some(is_short) = self.memory.look(Instant::now()) {
            self.endpoint.service_mut().set_memory_is_short(is_short);
        }
        self.store.turn(self.endpoint.service_mut(), Instant::now());
        if let Some(flows) = &mut self.flows {
            let now = Instants::now();
            let at = (now.monotonic, self.endpoint.node_time(now));
            flows.turn(self.endpoint.service_mut(), &self.ports, at);
        }
        if let Some(exposure) = &mut self.exposure {
            let now = Instants::now();
            let at = (now.monotonic, self.endpoint.node_time(now));
            exposure.turn(self.endpoint.service_mut(), at, self.store.recorder().as_ref());
        }
        self.reply_to_consumers();
        if !self.is_blocked() {
            for at in 0..self.sockets.len() {
                self.receive(at);
            }
            self.serve_strangers();
        }
        self.hear_tunnels();
        let mut out = Vec::new();
        self.endpoint.set_held_since(self.held.since());
        self.endpoint.poll(Instants::now(), &mut out);
        self.send(&mut out, None);
        self.send_held();
        if let Some(procedures) = &self.procedures {
            procedures.turn(&mut self.endpoint);
        }
        self.answer();
    }

    /// Answers consumers of event exposure, when what that acknowledges is as durable as was promised.
    fn reply_to_consumers(&mut self) {
        let Some(exposure) = self.exposure.as_mut().filter(|exposure| exposure.has_replies()) else { return };
        let behind = self.store.flush();
        exposure.reply(behind, |number| self.store.is_durable(number));
    }

    /// Brings what consumers have acknowledged to the journal; says whether nothing is left that is waited for.
    fn settle_exposure(&mut self) -> bool {
        let Some(exposure) = &mut self.exposure else { return true };
        let now = Instants::now();
        let at = (now.monotonic, self.endpoint.node_time(now));
        self.store.recorder().is_none_or(|recorder| exposure.settle(at, &recorder))
    }

    /// Answers who asks the node.
    fn answer(&mut self) {
        let unknown_peers = self.unknown_peers + self.waiting.dropped();
        let flows = self.flows.as_ref().map(|flows| flows.counts(self.endpoint.service()));
        let exposure = self.exposure.as_ref().map(|exposure| exposure.counts(self.endpoint.service()));
        let records = (flows, exposure);
        self.scrapes.serve(&self.endpoint, &self.lag, unknown_peers, self.store.status(), records);
        let mut usage_interval = None;
        let mut out = Vec::new();
        let is_frozen = self.control.stage() != Stage::Runs;
        self.control.serve(&mut UpfView {
            endpoint: &mut self.endpoint,
            ports: &self.ports,
            choice: &self.choice,
            kernel_watch: self.kernel_watch.as_ref(),
            store: self.store.status(),
            kernel: self.kernel.as_ref(),
            monitor: self.monitor.as_ref(),
            unknown_peers: [self.unknown_peers, self.waiting.dropped()],
            allow: &mut self.allow,
            usage_interval: &mut usage_interval,
            out: &mut out,
            is_frozen,
        });
        if !out.is_empty() {
            self.send(&mut out, None);
        }
        if let Some(interval) = usage_interval {
            self.store.set_usage_interval(interval);
        }
    }

    fn wait(&self) {
        let notifier = self.control.notifier();
        notifier.arm();
        // Checked after the notifier was armed: who has an event from now on notifies.
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: self.idle_for().subsec_nanos().into() };
        let own = [notifier.as_fd()].into_iter().chain(self.sockets.iter().map(AsFd::as_fd));
        let tunnels = self.n4_tunnels.iter().flat_map(|tunnels| tunnels.descriptors());
        let descriptors = own.chain(tunnels);
        let mut polled: Vec<_> = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // A signal ends the wait early, which is as well.
        let _ = poll(&mut polled, Some(&timeout));
        notifier.disarm();
    }

    /// How long nothing has to be done, if nobody says anything: less than a second.
    fn idle_for(&self) -> Duration {
        let upf = self.endpoint.service();
        let (_, events) = upf.node().events();
        let is_asked = !self.control.is_quiet();
        if is_asked
            || events > 0
            || !self.waiting.is_empty()
            || self.endpoint.has_more()
            || self.store.has_more()
            || self.flows.as_ref().is_some_and(FlowExport::is_behind)
            || self.exposure.as_ref().is_some_and(Exposure::is_behind)
        {
            return Duration::ZERO;
        }
        let hurries = self.endpoint.is_waiting() || self.scrapes.is_busy();
        let pace = match self.kernel {
            _ if hurries => PACE_WAITING,
            Some(_) => PACE_IN_KERNEL,
            None => PACE,
        };
        let now = Instants::now();
        let due_in =
            upf.next_due().map(|at| at.duration_since(self.endpoint.node_time(now)).unwrap_or_default());
        let deadline_in = self.endpoint.next_deadline().map(|at| at.saturating_duration_since(now.monotonic));
        let exposure_in = self.exposure.as_ref().and_then(Exposure::next_due);
        let exposure_in = exposure_in.map(|at| at.saturating_duration_since(now.monotonic));
        due_in.into_iter().chain(deadline_in).chain(exposure_in).fold(pace, Duration::min)
    }

    fn receive(&mut self, at: usize) {
        let mut rooms = std::mem::take(&mut self.rooms);
        let mut out = Vec::new();
        let (mut known, mut set_aside) = (0, 0);
        while known < DATAGRAMS_A_TURN && set_aside < DATAGRAMS_SET_ASIDE {
            let received = match rooms.receive(&self.sockets[at], BATCH_MAX) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    // ICMP errors of earlier datagrams come out here; the retries handle their loss.
                    tracing::debug!(%error, "PFCP socket");
                    known += 1;
                    continue;
                }
            };
            for (from, datagram) in rooms.datagrams() {
                let count =
                    if self.datagram(at, from, datagram, &mut out) { &mut known } else { &mut set_aside };
                *count += 1;
            }
            if received < BATCH_MAX {
                break;
            }
        }
        self.send(&mut out, Some(at));
        self.rooms = rooms;
    }

    /// Serves a datagram of a control plane, or sets one of anybody else aside: says which.
    fn datagram(&mut self, at: usize, from: SocketAddr, datagram: &[u8], out: &mut Vec<Transmit>) -> bool {
        if !self.allow.is_empty() && !self.allow.iter().any(|prefix| prefix.contains(from.ip())) {
            self.unknown_peers += 1;
            return false;
        }
        if !self.endpoint.is_expected(from.ip()) {
            self.waiting.put(from, at, datagram);
            return false;
        }
        self.lag.heard();
        self.endpoint.handle(Instants::now(), from, datagram, out);
        self.remember(from, at);
        if out.len() >= ANSWERS_HELD {
            self.send(out, Some(at));
        }
        true
    }

    /// Hands the workers what came in tunnels over N4.
    fn hear_tunnels(&mut self) {
        let Some(tunnels) = &self.n4_tunnels else { return };
        let node = self.endpoint.service().node();
        tunnels.receive(&mut self.buffer, |own, from, octets| {
            if let Some(endpoint) = node.settings.endpoint(own) {
                node.hear_control_plane(ControlPlaneMessage { from, endpoint, octets: octets.into() });
            }
        });
    }

    /// Serves some of those who have no association, after all who have.
    fn serve_strangers(&mut self) {
        for _ in 0..SERVED_A_TURN {
            let Some(WaitingDatagram { from, socket, datagram }) = self.waiting.take() else { return };
            self.lag.heard();
            let mut out = Vec::new();
            self.endpoint.handle(Instants::now(), from, &datagram, &mut out);
            self.remember(from, socket);
            self.send(&mut out, Some(socket));
        }
    }

    /// Keeps by which of our addresses a control plane knows us.
    fn remember(&mut self, from: SocketAddr, at: usize) {
        let address = from.ip();
        let is_news = self.sockets.len() > 1 && self.spoken_to.get(&address) != Some(&at);
        if !is_news || !self.endpoint.is_peer(address) {
            return;
        }
        if self.spoken_to.len() >= SPOKEN_TO_MAX {
            let endpoint = &self.endpoint;
            self.spoken_to.retain(|&address, _| endpoint.is_peer(address));
        }
        self.spoken_to.insert(address, at);
    }

    /// The first of the family of `to`.
    fn usual_socket(&self, to: SocketAddr) -> Option<usize> {
        self.sockets
            .iter()
            .position(|socket| socket.local_addr().is_ok_and(|own| own.is_ipv4() == to.is_ipv4()))
    }

    /// Sends messages when what they acknowledge or tell is as durable as was promised.
    fn send(&mut self, out: &mut Vec<Transmit>, from: Option<usize>) {
        let mut traced = self.endpoint.take_traced();
        match self.store.flush() {
            None if self.held.is_empty() => {
                self.transmit(out, from);
                self.endpoint.traced_sent(traced);
            }
            number => {
                // They say nothing but that the node is there.
                let (heartbeats, others): (Vec<_>, Vec<_>) = out.drain(..).partition(is_heartbeat);
                self.transmit(&heartbeats, from);
                self.endpoint.traced_sent(traced.take_heartbeats());
                self.endpoint.traced_held(&mut traced);
                let messages = HeldMessages { messages: others, from, traced };
                self.held.put(number.unwrap_or(0), self.turn_began, messages);
            }
        }
        out.clear();
    }

    /// Sends what waited for the journal.
    fn send_held(&mut self) {
        while let Some(number) = self.held.first()
            && self.store.is_durable(number)
            && let Some(HeldMessages { messages, from, mut traced }) = self.held.take()
        {
            self.endpoint.traced_durable(&mut traced);
            self.transmit(&messages, from);
            self.endpoint.traced_sent(traced);
        }
    }

    /// Whether so much waits for the journal that no further requests are taken.
    fn is_blocked(&self) -> bool {
        self.held.is_full() || self.store.is_blocked()
    }

    /// Sends from the socket that was spoken to, or that the control plane knows.
    fn transmit(&self, out: &[Transmit], from: Option<usize>) {
        let lost = |transmit: &Transmit, error: std::io::Error| {
            tracing::debug!(to = %transmit.to, %error, "a PFCP message could not be sent; it will be retried");
        };
        if let Some(socket) = from.and_then(|at| self.sockets.get(at)) {
            return send_all(socket, out, lost);
        }
        for transmit in out {
            let known = self.spoken_to.get(&transmit.to.ip()).copied();
            match known.or_else(|| self.usual_socket(transmit.to)).and_then(|at| self.sockets.get(at)) {
                Some(socket) => send_all(socket, [transmit], lost),
                None => {
                    tracing::warn!(to = %transmit.to, "no listening address of the family of this control plane");
                }
            }
        }
    }
}

/// Messages that wait until the journal has what they acknowledge or tell, in the order of its batches.
#[derive(Debug, Default)]
pub(super) struct HeldAnswers {
    waiting: VecDeque<HeldBatch>,
    messages: usize,
}

/// Messages behind a batch.
#[derive(Debug)]
struct HeldBatch {
    number: u64,
    /// They were made after this.
    since: Instant,
    held: HeldMessages,
}

/// Messages that are sent together.
#[derive(Debug)]
struct HeldMessages {
    messages: Vec<Transmit>,
    /// The socket that was spoken to.
    from: Option<usize>,
    /// Procedures of them that are traced.
    traced: TracedMessages,
}

impl HeldAnswers {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn is_full(&self) -> bool {
        self.messages >= HELD_MAX
    }

    /// Puts messages that were made after `since` behind those that wait, and behind a batch.
    fn put(&mut self, number: u64, since: Instant, held: HeldMessages) {
        if !held.messages.is_empty() {
            self.messages += held.messages.len();
            self.waiting.push_back(HeldBatch { number, since, held });
        }
    }

    /// Behind which batch the first wait.
    fn first(&self) -> Option<u64> {
        self.waiting.front().map(|batch| batch.number)
    }

    /// Since when nothing that was made has left.
    fn since(&self) -> Option<Instant> {
        self.waiting.front().map(|batch| batch.since)
    }

    fn take(&mut self) -> Option<HeldMessages> {
        let HeldBatch { held, .. } = self.waiting.pop_front()?;
        self.messages -= held.messages.len();
        Some(held)
    }
}

/// Whether a message is a heartbeat or the answer to one.
fn is_heartbeat(transmit: &Transmit) -> bool {
    let heartbeats = [MsgType::HeartbeatRequest, MsgType::HeartbeatResponse];
    transmit.kind().is_some_and(|kind| heartbeats.iter().any(|heartbeat| *heartbeat as u8 == kind))
}
