//! What control and workers share: the table of sessions and all that their packets move, what workers tell the control plane,
//! and what that orders them to do.

mod control_planes;
mod live;
mod mss;
mod named;
mod settings;

use std::collections::VecDeque;
use std::fs::File;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use kaido_engine::Notifier;
use kaido_table::{Domain, LineSlab, RegionError, Table};

use self::control_planes::ControlPlaneInbox;
pub use self::control_planes::ControlPlaneMessage;
pub(crate) use self::live::Live;
pub use self::live::{BufferLimits, LiveSettings, TunnelSettings};
pub use self::mss::{MssClamp, MssLimit, TUNNEL_OVERHEAD_IPV4};
pub(crate) use self::named::Names;
pub use self::named::{ForwardingPolicy, NamedSettings, PolicyTarget};
pub use self::settings::{EndpointScope, Instance, NodeSettings, OuterSourcePort, PortRole, UdpChecksums};
pub use crate::marking::DscpMarking;

use crate::apps::{Applications, FlowEnds};
use crate::buffered::BufferedBytes;
use crate::echo::{AwaitedEchoes, recovery_time_stamp};
use crate::ethernet::{Ethernet, Station};
use crate::extended::{ExtendedActions, UeToUe};
use crate::fragment::Fragments;
use crate::framed::FramedLengths;
use crate::ids::{AppNumber, SessionIndex};
use crate::key::SessionKey;
use crate::lan::LanNeighbours;
use crate::line_numbers;
use crate::monitoring::Clock;
use crate::qos::Policers;
use crate::record::{LINES_MAX, LineMemory, Record};
use crate::rule::Detection;
use crate::shared::Interner;
use crate::slow_path::SlowPathCounters;
use crate::trace::Tracer;
use crate::tunnels::{Tunnel, Tunnels};
use crate::ue_networks::UeNetworks;
use crate::usage::{UsageCounters, UsageSlot};
use kaido_n4::{PacketDelays, PdrId, Qfi, Teid, UrrId};

/// What a worker tells the control plane. Never about a packet as such: each kind is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A URR's counter crossed a threshold.
    Threshold {
        /// The session.
        session: SessionIndex,
        /// The counter.
        slot: UsageSlot,
    },
    /// The first packet of a session was buffered.
    Buffered {
        /// The session.
        session: SessionIndex,
        /// The rule it matched.
        pdr: PdrId,
        /// Its differentiated services code point.
        dscp: u8,
    },
    /// A packet of a session was dropped that was, or should have been, buffered, and the session's rules have that
    /// told (DDPN).
    Discarded {
        /// The session.
        session: SessionIndex,
        /// The rule it matched.
        pdr: PdrId,
    },
    /// The delays of a monitored QoS flow were measured.
    Delay {
        /// The session.
        session: SessionIndex,
        /// The flow.
        qfi: Qfi,
        /// What was measured.
        delays: PacketDelays,
    },
    /// A flow that belongs to an application has begun, or goes on.
    Application {
        /// The session.
        session: SessionIndex,
        /// The rule it matched.
        pdr: PdrId,
        /// The application.
        app: AppNumber,
        /// The flow.
        flow: FlowEnds,
    },
    /// So many packets of a URR were dropped that it is to be reported.
    Dropped {
        /// The session.
        session: SessionIndex,
        /// The URR.
        urr: UrrId,
    },
    /// A session has come to have, or has lost, Ethernet addresses.
    Stations {
        /// The session.
        session: SessionIndex,
    },
    /// A peer sent an Error Indication.
    ErrorIndication {
        /// The TEID that the peer does not know.
        teid: Teid,
        /// The peer.
        peer: IpAddr,
    },
    /// A peer sent an Echo Response that was waited for.
    EchoResponse {
        /// The peer.
        peer: IpAddr,
        /// Its sequence number.
        sequence: u16,
        /// When the peer last restarted, in seconds since 1900, if it says.
        restarted: Option<u32>,
    },
}

/// What the control plane asks of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerOrder {
    /// Send an End Marker into the tunnel (TS 29.281 7.3.2).
    EndMarker(Tunnel),
    /// Tell the LAN of a network instance that an Ethernet address is here (TS 23.502 4.3.5.8).
    Announce(Station),
    /// Send an Echo Request (TS 29.281 7.2.1).
    EchoRequest {
        /// To whom.
        peer: IpAddr,
        /// Its sequence number.
        sequence: u16,
    },
}

/// A session was changed, and packets of it may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferChange {
    /// The session.
    pub session: SessionIndex,
    /// Whether what waits is to be dropped.
    pub discard: bool,
}

/// Changes that a worker may be behind by; one that is further behind looks at all it holds.
const CHANGES_MAX: usize = 4096;

/// Events that may wait for the control plane.
const EVENTS_MAX: usize = 16_384;

/// Keys of so many sessions: each has a tunnel and up to two UE addresses; dual-stack tunnels have two.
pub fn keys_max(sessions: u32) -> u32 {
    sessions.saturating_mul(4)
}

/// Usage counters of so many sessions.
pub fn usage_cells(sessions: u32) -> u32 {
    sessions.saturating_mul(4)
}

/// Token buckets of QERs of so many sessions.
pub fn policer_cells(sessions: u32) -> u32 {
    sessions.saturating_mul(4)
}

/// Lines for the rules of a session: those of two keys.
const RULE_LINES: u32 = 8;
const _: () = assert!(RULE_LINES as usize == 2 * LINES_MAX);

/// Lines for the records of so many sessions, for their rules where they have several, and for counters.
fn lines(sessions: u32, counters: u32) -> u32 {
    let records = Table::<SessionKey, Record>::records_of(keys_max(sessions));
    let rules = sessions.saturating_mul(RULE_LINES);
    records.saturating_add(rules).saturating_add(counters)
}

/// Memory of a node that a datapath in the kernel uses too, where there is one.
#[derive(Debug)]
pub struct NodeMemory {
    /// Counters that others count in too.
    pub usage: UsageCounters,
    /// Policers that others take from too.
    pub policers: Policers,
    /// Which networks have UEs, where a datapath in the kernel asks. Not used where [`LiveSettings::ue_to_ue`] is
    /// [`UeToUe::Route`].
    pub ue_networks: Option<UeNetworks>,
}

/// Everything that control and workers share.
#[derive(Debug)]
pub struct Node {
    /// How it is set up.
    pub settings: NodeSettings,
    /// Of the settings what may change.
    pub(crate) live: Live,
    /// Grace periods of the records.
    pub domain: Domain,
    /// The one table: tunnels and UE addresses to records.
    pub table: Table<SessionKey, Record>,
    /// Where the rules of records with several lie.
    pub(crate) lines: Arc<LineMemory>,
    /// What rules ask of packets.
    pub(crate) detections: Interner<Detection>,
    /// What few rules ask for beside their action.
    pub(crate) extended_actions: Interner<ExtendedActions>,
    /// What applications are known by.
    pub(crate) applications: Applications,
    /// Lengths of the framed routes in the table.
    pub(crate) framed: FramedLengths,
    /// Which destinations of packets from UEs may be other UEs, where that matters.
    pub(crate) ue_networks: Option<Arc<UeNetworks>>,
    /// The far ends that records name by number.
    pub tunnels: Tunnels,
    /// Usage counters.
    pub usage: UsageCounters,
    /// Neighbours in the LANs.
    pub lan_neighbours: LanNeighbours,
    /// Ethernet addresses, and whose they are.
    pub ethernet: Ethernet,
    /// Memory of buffered packets.
    pub buffered: BufferedBytes,
    /// Echo Responses that are waited for.
    pub echoes: AwaitedEchoes,
    /// Sessions whose packets are traced.
    pub tracer: Tracer,
    /// Fragments that wait for their rest.
    pub fragments: Fragments,
    /// When the node came up, as a Recovery Time Stamp.
    pub recovery: u32,
    /// Token buckets.
    pub policers: Policers,
    /// Packets that took the slow path, by reason.
    pub slow_path: SlowPathCounters,
    /// Shows the time that packets are stamped with.
    pub(crate) clock: Clock,
    /// Whether sessions of before a restart are still on their way into the table.
    restoring: AtomicBool,
    events: SyncSender<WorkerEvent>,
    /// Where the control side hears of events while it sleeps.
    listener: OnceLock<Arc<Notifier>>,
    /// Where workers hear of orders and changes while they sleep.
    notifiers: Mutex<Vec<Arc<Notifier>>>,
    /// Events that workers have sent, and those of them that the control side has received.
    events_sent: AtomicU64,
    events_received: AtomicU64,
    /// Moves whenever a session that may hold buffered packets was changed.
    buffer_changes: AtomicU64,
    /// The last changes, the newest of them the `buffer_changes`th.
    changes: Mutex<VecDeque<BufferChange>>,
    orders: Mutex<Vec<WorkerOrder>>,
    orders_waiting: AtomicU64,
    /// What control planes have sent over N4.
    pub(crate) from_control_planes: ControlPlaneInbox,
}

impl Node {
    /// A node without sessions, and where the workers' events come out.
    ///
    /// # Errors
    /// [`RegionError`] when the tables do not fit into memory.
    pub fn new(settings: NodeSettings) -> Result<(Arc<Self>, Receiver<WorkerEvent>), RegionError> {
        let lines = LineSlab::new(lines(settings.sessions_max, usage_cells(settings.sessions_max)))?;
        Self::counting_among(settings, &lines)
    }

    /// As [`Node::new`], with usage counters in the memory of a file, which has them when the process is gone:
    /// [`Upf::restore`](crate::control::Upf::restore) goes before the first session.
    ///
    /// # Errors
    /// [`RegionError`] when the tables do not fit into memory, or the file cannot be mapped.
    pub fn over(
        settings: NodeSettings,
        memory: File,
    ) -> Result<(Arc<Self>, Receiver<WorkerEvent>), RegionError> {
        let counters = usage_cells(settings.sessions_max);
        let lines = LineSlab::over(memory, lines(settings.sessions_max, counters))?;
        Self::counting_among(settings, &lines)
    }

    fn counting_among(
        settings: NodeSettings,
        lines: &LineSlab,
    ) -> Result<(Arc<Self>, Receiver<WorkerEvent>), RegionError> {
        let counters = usage_cells(settings.sessions_max);
        let memory = NodeMemory {
            usage: UsageCounters::among(lines.clone(), counters),
            policers: Policers::new(policer_cells(settings.sessions_max))?,
            ue_networks: None,
        };
        Self::among(settings, lines, memory)
    }

    /// As [`Node::new`], with memory that the kernel's datapath uses too: then `workers_share_sessions` must be set.
    ///
    /// # Errors
    /// [`RegionError`] when the tables do not fit into memory.
    pub fn beside_kernel(
        settings: NodeSettings,
        memory: NodeMemory,
    ) -> Result<(Arc<Self>, Receiver<WorkerEvent>), RegionError> {
        let lines = LineSlab::new(lines(settings.sessions_max, 0))?;
        Self::among(settings, &lines, memory)
    }

    /// With its records among lines.
    fn among(
        settings: NodeSettings,
        lines: &LineSlab,
        NodeMemory { usage, policers, ue_networks }: NodeMemory,
    ) -> Result<(Arc<Self>, Receiver<WorkerEvent>), RegionError> {
        let domain = Domain::new();
        let table = Table::among(&domain, keys_max(settings.sessions_max), lines)?;
        let (events, receiver) = sync_channel(EVENTS_MAX);
        let node = Self {
            buffered: BufferedBytes::new(settings.live.buffer.bytes_max),
            live: Live::new(settings.live.clone()),
            tracer: Tracer::default(),
            fragments: Fragments::new(&settings.fragments),
            domain,
            table,
            lines: Arc::new(line_numbers::rules(lines.clone())),
            applications: Applications::default(),
            framed: FramedLengths::default(),
            ue_networks: match settings.live.ue_to_ue {
                UeToUe::Route => None,
                UeToUe::Forward | UeToUe::Drop => {
                    Some(Arc::new(ue_networks.map_or_else(|| UeNetworks::new(settings.sessions_max), Ok)?))
                }
            },
            tunnels: Tunnels::default(),
            usage,
            detections: Interner::default(),
            extended_actions: Interner::default(),
            lan_neighbours: LanNeighbours::default(),
            ethernet: Ethernet::new(&settings.ethernet),
            echoes: AwaitedEchoes::default(),
            recovery: recovery_time_stamp(settings.recovery.unwrap_or_else(SystemTime::now)),
            policers,
            slow_path: SlowPathCounters::default(),
            clock: Clock::new(),
            settings,
            restoring: AtomicBool::new(false),
            events,
            listener: OnceLock::new(),
            notifiers: Mutex::default(),
            events_sent: AtomicU64::new(0),
            events_received: AtomicU64::new(0),
            buffer_changes: AtomicU64::new(0),
            changes: Mutex::default(),
            orders: Mutex::default(),
            orders_waiting: AtomicU64::new(0),
            from_control_planes: ControlPlaneInbox::new(),
        };
        Ok((Arc::new(node), receiver))
    }

    /// A key is in the table now.
    pub(crate) fn key_added(&self, key: &SessionKey) {
        self.framed.added(key);
        if let Some(ues) = &self.ue_networks {
            ues.add(key);
        }
    }

    /// Of the settings what may change, as it is now.
    pub fn live(&self) -> LiveSettings {
        self.live.get()
    }

    /// What control planes may name, and may have named.
    pub(crate) fn names(&self) -> Arc<Names> {
        self.live.names()
    }

    /// Has control and workers obey other settings, each from its next turn on.
    pub(crate) fn set_live(&self, settings: LiveSettings) {
        self.buffered.set_max(settings.buffer.bytes_max);
        self.live.set(settings);
        self.notify();
    }

    /// Says whether sessions of before a restart are still on their way into the table.
    pub(crate) fn set_restoring(&self, restoring: bool) {
        self.restoring.store(restoring, Ordering::Relaxed);
    }

    /// Whether a session that is not in the table may be one of before a restart.
    pub(crate) fn is_restoring(&self) -> bool {
        self.restoring.load(Ordering::Relaxed)
    }

    /// Sends an event to the control side; `false` when too many wait already.
    #[must_use]
    pub fn send_event(&self, event: WorkerEvent) -> bool {
        let sent = self.events.try_send(event).is_ok();
        self.events_sent.fetch_add(sent.into(), Ordering::Relaxed);
        if let Some(listener) = self.listener.get() {
            listener.notify();
        }
        sent
    }

    /// Notifies the control side at each event; the first notifier that is given counts.
    pub fn listen(&self, notifier: Arc<Notifier>) {
        // Whoever asks again has the same in mind.
        let _ = self.listener.set(notifier);
    }

    /// Notifies a worker at orders and changes.
    pub(crate) fn attach(&self, notifier: &Arc<Notifier>) {
        self.notifiers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(notifier));
    }

    fn notify(&self) {
        let notifiers = self.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        notifiers.iter().for_each(|notifier| notifier.notify());
    }

    /// Notes that the control side has taken an event.
    pub(crate) fn event_received(&self) {
        self.events_received.fetch_add(1, Ordering::Relaxed);
    }

    /// Events that workers have sent so far, and of these how many wait.
    pub fn events(&self) -> (u64, u64) {
        let received = self.events_received.load(Ordering::Relaxed);
        // What was received between two looks would make it less than none.
        let sent = self.events_sent.load(Ordering::Relaxed).max(received);
        (sent, sent - received)
    }

    /// Counts the changes that workers with buffered packets must look at.
    #[inline]
    pub fn buffer_changes(&self) -> u64 {
        // Acquire: the records of a change are seen with its count.
        self.buffer_changes.load(Ordering::Acquire)
    }

    /// Has workers look at the packets that they buffer of a session.
    pub fn buffer_changed(&self, change: BufferChange) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() == CHANGES_MAX {
            changes.pop_front();
        }
        changes.push_back(change);
        self.buffer_changes.fetch_add(1, Ordering::Release);
        drop(changes);
        self.notify();
    }

    /// The changes after the first `since`; `None` when they are too many to be still known.
    pub fn changes(&self, since: u64) -> Option<Vec<BufferChange>> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = usize::try_from(self.buffer_changes.load(Ordering::Relaxed).wrapping_sub(since)).ok()?;
        let known = changes.len().checked_sub(wanted)?;
        Some(changes.range(known..).copied().collect())
    }

    /// Hands the workers a message that came over N4, if it is a control plane's and there are not too many.
    pub fn hear_control_plane(&self, message: ControlPlaneMessage) {
        let is_known = self.tunnels.is_control_plane(message.from.ip());
        self.from_control_planes.put(message, is_known, Instant::now());
        self.notify();
    }

    /// Asks the workers; the next to look does it.
    pub fn order(&self, order: WorkerOrder) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.push(order);
        self.orders_waiting.store(orders.len() as u64, Ordering::Release);
        drop(orders);
        self.notify();
    }

    /// Whether something was asked that no worker has taken.
    #[inline]
    pub(crate) fn has_orders(&self) -> bool {
        self.orders_waiting.load(Ordering::Acquire) > 0
    }

    /// Takes what was asked; costs one load while nothing was.
    #[inline]
    pub fn take_orders(&self) -> Vec<WorkerOrder> {
        if !self.has_orders() {
            return Vec::new();
        }
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        self.orders_waiting.store(0, Ordering::Relaxed);
        std::mem::take(&mut *orders)
    }
}
