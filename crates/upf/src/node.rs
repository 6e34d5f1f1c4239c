//! What the node is: its addresses, ports and limits; and what control and workers share.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use kaido_engine::{Doorbell, PortId};
use kaido_table::{Domain, RegionError, Table};

use crate::apps::{AppNumber, Applications, FlowEnds};
use crate::buffered::BufferedBytes;
use crate::echo::{AwaitedEchoes, EchoSettings, recovery_time_stamp};
use crate::ethernet::{Ethernet, EthernetSettings, Station};
use crate::fragment::{FragmentSettings, Fragments};
use crate::framed::FramedLengths;
use crate::lan::{LanNeighbours, Lans};
use crate::monitoring::Clock;
use crate::path::MssClamp;
use crate::qos::{Policers, WINDOW_DEFAULT};
use crate::record::{EndpointId, InstanceId, Record, SessionIndex, SessionKey, Tunnel, Tunnels, UeToUe};
use crate::rules::{PacketDelays, PdrId, PredefinedRule, Qfi, Teid, UrrId};
use crate::trace::Tracer;
use crate::usage::{UsageCounters, UsageSlot};

/// A network instance: a UE address space behind one or more ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name; `None` answers to every name that no other instance has.
    pub name: Option<String>,
}

/// What a port is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRole {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet it takes, in bytes.
    pub mtu: usize,
    /// Its own addresses: packets to them are the kernel's, but for GTP-U.
    pub addresses: Vec<IpAddr>,
    /// GTP-U arrives here (N3, N9, S5-U, S1-U).
    pub gtpu: bool,
    /// Packets to UEs of this instance arrive here (N6, SGi).
    pub instance: Option<InstanceId>,
}

/// How the outer UDP source port is chosen (TS 29.281 4.4.2.0 leaves it to the sender).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OuterSourcePort {
    /// Always 2152, for peers and middleboxes that expect it.
    Fixed,
    /// By the inner flow, so that receivers can spread flows over their queues.
    #[default]
    Entropy,
}

/// Which outer UDP datagrams carry a computed checksum.
///
/// Over IPv4 zero is allowed and usual (TS 29.281 4.4.2.0, RFC 768); over IPv6 a checksum is computed
/// unless the path is known to take zero (RFC 6935 5, RFC 6936 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpChecksums {
    /// Computed over IPv4.
    pub ipv4: bool,
    /// Computed over IPv6.
    pub ipv6: bool,
    /// Peers for which it is otherwise: network, prefix length, whether computed. The longest prefix counts.
    pub peers: Vec<(IpAddr, u8, bool)>,
}

impl Default for UdpChecksums {
    fn default() -> Self {
        Self { ipv4: false, ipv6: true, peers: Vec::new() }
    }
}

impl UdpChecksums {
    /// Whether datagrams to `peer` carry a computed checksum.
    pub fn computed(&self, peer: IpAddr) -> bool {
        let own = self.peers.iter().filter(|(network, len, _)| is_within(peer, *network, *len));
        let default = if peer.is_ipv4() { self.ipv4 } else { self.ipv6 };
        own.max_by_key(|(_, len, _)| *len).map_or(default, |(.., computed)| *computed)
    }
}

/// Whether an address lies in a network.
pub(crate) fn is_within(addr: IpAddr, network: IpAddr, len: u8) -> bool {
    match (addr, network) {
        (IpAddr::V4(addr), IpAddr::V4(network)) => {
            (addr.to_bits() ^ network.to_bits()).checked_shr(32 - u32::from(len.min(32))).unwrap_or(0) == 0
        }
        (IpAddr::V6(addr), IpAddr::V6(network)) => {
            (addr.to_bits() ^ network.to_bits()).checked_shr(128 - u32::from(len.min(128))).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// A way out that control planes name (Forwarding Policy Identifier, TS 29.244 8.2.23).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingPolicy {
    /// Its name.
    pub name: String,
    /// Where packets go.
    pub way: PolicyWay,
}

/// Where a forwarding policy leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyWay {
    /// By the way to that address.
    NextHop(IpAddr),
    /// Out of that network instance.
    Instance(InstanceId),
}

/// How the node is set up. Does not change while it runs.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Local GTP-U addresses; their places are the [`EndpointId`]s.
    pub endpoints: Vec<IpAddr>,
    /// Addresses that PFCP listens on, which packets out of tunnels never go to.
    pub control: Vec<IpAddr>,
    /// Network instances; their places are the [`InstanceId`]s.
    pub instances: Vec<Instance>,
    /// Ports, in the order of their numbers.
    pub ports: Vec<PortRole>,
    /// Rules that control planes switch on by name.
    pub predefined: Vec<PredefinedRule>,
    /// Choice of the outer source port.
    pub outer_source_port: OuterSourcePort,
    /// Whether outer UDP checksums are computed or zero.
    pub udp_checksums: UdpChecksums,
    /// Packets of one session may be handled by several workers at a time; where not, counting is cheaper.
    pub workers_share_sessions: bool,
    /// What becomes of packets from UE to UE.
    pub ue_to_ue: UeToUe,
    /// Network instances behind VLANs.
    pub lans: Lans,
    /// Ethernet sessions.
    pub ethernet: EthernetSettings,
    /// What control planes may name by Forwarding Policy.
    pub forwarding_policies: Vec<ForwardingPolicy>,
    /// Most sessions.
    pub sessions_max: u32,
    /// Most packets buffered for one session, unless its BAR suggests fewer.
    pub buffer_packets_per_session: usize,
    /// Most packets buffered by one worker.
    pub buffer_packets_max: usize,
    /// Most bytes of packets buffered for one session.
    pub buffer_bytes_per_session: usize,
    /// Most bytes of packets buffered by all workers.
    pub buffer_bytes_max: u64,
    /// Longest time a packet is buffered, unless its BAR says otherwise.
    pub buffer_time_max: Duration,
    /// User plane inactivity timer of sessions whose control plane gives none.
    pub inactivity_timer: Option<Duration>,
    /// Depth of the token buckets of QERs without averaging window, as a time at their rate.
    pub policer_window: Duration,
    /// Error indications, ICMP errors and other answers to senders, per second and worker, of each kind.
    pub answers_per_second: u32,
    /// GTP-U path management.
    pub echo: EchoSettings,
    /// Fragments, and packets too large for their way.
    pub fragments: FragmentSettings,
    /// Largest TCP segments that may be announced, both ways.
    pub mss_clamp: Option<MssClamp>,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            control: Vec::new(),
            instances: vec![Instance { name: None }],
            ports: Vec::new(),
            predefined: Vec::new(),
            outer_source_port: OuterSourcePort::default(),
            udp_checksums: UdpChecksums::default(),
            workers_share_sessions: true,
            ue_to_ue: UeToUe::default(),
            lans: Lans::default(),
            ethernet: EthernetSettings::default(),
            forwarding_policies: Vec::new(),
            sessions_max: 65_536,
            buffer_packets_per_session: 64,
            buffer_packets_max: 4096,
            buffer_bytes_per_session: 1 << 20,
            buffer_bytes_max: 64 << 20,
            buffer_time_max: Duration::from_secs(10),
            inactivity_timer: None,
            policer_window: WINDOW_DEFAULT,
            answers_per_second: 100,
            echo: EchoSettings::default(),
            fragments: FragmentSettings::default(),
            mss_clamp: None,
        }
    }
}

impl NodeSettings {
    /// Every address of the node that a UE must not reach: of ports, GTP-U and PFCP.
    pub fn own_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let of_ports = self.ports.iter().flat_map(|port| &port.addresses);
        of_ports.chain(&self.endpoints).chain(&self.control).copied()
    }

    /// The endpoint with that address.
    #[inline]
    pub fn endpoint(&self, addr: IpAddr) -> Option<EndpointId> {
        #[allow(clippy::cast_possible_truncation)] // Configuration bounds the list at 256.
        self.endpoints.iter().position(|&own| own == addr).map(|at| EndpointId(at as u8))
    }

    /// The instance that answers to `name`; without a name the first.
    pub fn instance(&self, name: Option<&str>) -> Option<InstanceId> {
        let place = match name {
            None => (!self.instances.is_empty()).then_some(0),
            Some(name) => self
                .instances
                .iter()
                .position(|own| own.name.as_deref() == Some(name))
                .or_else(|| self.instances.iter().position(|own| own.name.is_none())),
        };
        #[allow(clippy::cast_possible_truncation)] // As above, at 65536.
        place.map(|at| InstanceId(at as u16))
    }
}

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

/// Everything that control and workers share.
#[derive(Debug)]
pub struct Node {
    /// How it is set up.
    pub settings: NodeSettings,
    /// Grace periods of the records.
    pub domain: Domain,
    /// The one table: tunnels and UE addresses to records.
    pub table: Table<SessionKey, Record>,
    /// What applications are known by.
    pub(crate) applications: Applications,
    /// Lengths of the framed routes in the table.
    pub(crate) framed: FramedLengths,
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
    /// Shows the time that packets are stamped with.
    pub(crate) clock: Clock,
    events: SyncSender<WorkerEvent>,
    /// Where the control side hears of events while it sleeps.
    listener: OnceLock<Arc<Doorbell>>,
    /// Where workers hear of orders and changes while they sleep.
    bells: Mutex<Vec<Arc<Doorbell>>>,
    /// Events that workers have told, and those of them that the control side has heard.
    events_told: AtomicU64,
    events_heard: AtomicU64,
    /// Moves whenever a session that may hold buffered packets was changed.
    buffer_changes: AtomicU64,
    /// The last changes, the newest of them the `buffer_changes`th.
    changes: Mutex<VecDeque<BufferChange>>,
    orders: Mutex<Vec<WorkerOrder>>,
    orders_waiting: AtomicU64,
}

impl Node {
    /// A node without sessions, and where the workers' events come out.
    ///
    /// # Errors
    /// [`RegionError`] when the tables do not fit into memory.
    pub fn new(settings: NodeSettings) -> Result<(Arc<Self>, Receiver<WorkerEvent>), RegionError> {
        let usage = UsageCounters::new(usage_cells(settings.sessions_max))?;
        Self::with_usage(settings, usage)
    }

    /// As [`Node::new`], with counters that others count in too: then `workers_share_sessions` must be set.
    ///
    /// # Errors
    /// [`RegionError`] when the tables do not fit into memory.
    pub fn with_usage(
        settings: NodeSettings,
        usage: UsageCounters,
    ) -> Result<(Arc<Self>, Receiver<WorkerEvent>), RegionError> {
        let domain = Domain::new();
        let table = Table::new(&domain, keys_max(settings.sessions_max))?;
        let (events, heard) = sync_channel(EVENTS_MAX);
        let node = Self {
            buffered: BufferedBytes::new(settings.buffer_bytes_max),
            tracer: Tracer::default(),
            fragments: Fragments::new(&settings.fragments),
            domain,
            table,
            applications: Applications::default(),
            framed: FramedLengths::default(),
            tunnels: Tunnels::default(),
            usage,
            lan_neighbours: LanNeighbours::default(),
            ethernet: Ethernet::new(&settings.ethernet),
            echoes: AwaitedEchoes::default(),
            recovery: recovery_time_stamp(SystemTime::now()),
            policers: Policers::new(policer_cells(settings.sessions_max))?,
            clock: Clock::new(),
            settings,
            events,
            listener: OnceLock::new(),
            bells: Mutex::default(),
            events_told: AtomicU64::new(0),
            events_heard: AtomicU64::new(0),
            buffer_changes: AtomicU64::new(0),
            changes: Mutex::default(),
            orders: Mutex::default(),
            orders_waiting: AtomicU64::new(0),
        };
        Ok((Arc::new(node), heard))
    }

    /// Tells the control plane; `false` when too much waits already.
    #[must_use]
    pub fn tell(&self, event: WorkerEvent) -> bool {
        let told = self.events.try_send(event).is_ok();
        self.events_told.fetch_add(told.into(), Ordering::Relaxed);
        if let Some(listener) = self.listener.get() {
            listener.ring();
        }
        told
    }

    /// Has each event ring a bell of the control side; the first that is given counts.
    pub fn listen(&self, bell: Arc<Doorbell>) {
        // Whoever asks again has the same in mind.
        let _ = self.listener.set(bell);
    }

    /// Has orders and changes ring a worker's bell.
    pub(crate) fn attach(&self, bell: &Arc<Doorbell>) {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(bell));
    }

    fn ring(&self) {
        let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.iter().for_each(|bell| bell.ring());
    }

    /// Notes that the control side has taken an event.
    pub(crate) fn heard(&self) {
        self.events_heard.fetch_add(1, Ordering::Relaxed);
    }

    /// Events that workers have told so far, and of these how many wait.
    pub fn events(&self) -> (u64, u64) {
        let heard = self.events_heard.load(Ordering::Relaxed);
        // What was heard between two looks would make it less than none.
        let told = self.events_told.load(Ordering::Relaxed).max(heard);
        (told, told - heard)
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
        self.ring();
    }

    /// The changes after the first `since`; `None` when they are too many to be still known.
    pub fn changes(&self, since: u64) -> Option<Vec<BufferChange>> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = usize::try_from(self.buffer_changes.load(Ordering::Relaxed).wrapping_sub(since)).ok()?;
        let known = changes.len().checked_sub(wanted)?;
        Some(changes.range(known..).copied().collect())
    }

    /// Asks the workers; the next to look does it.
    pub fn order(&self, order: WorkerOrder) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.push(order);
        self.orders_waiting.store(orders.len() as u64, Ordering::Release);
        drop(orders);
        self.ring();
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

    /// The port's role.
    #[inline]
    pub fn role(&self, port: PortId) -> &PortRole {
        &self.settings.ports[port.index()]
    }
}
