//! A UPF in memory: all that this crate asks of the engine and of the session service.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use kaido_engine::port::Port;
use kaido_engine::{
    FramePool, Function, KernelPath, NeighbourRequest, PortId, PortTotals, Route, Routes, Worker,
    WorkerSettings,
};
use kaido_n4::{FarId, Modification, Seid, SessionService, UpdateFar, UpdateForwardingParameters, Volume};
use kaido_upf::control::{KernelShare, Upf};
use kaido_upf::ids::InstanceId;
use kaido_upf::lan::{Lan, Lans, VlanTags};
use kaido_upf::node::{Instance, Node, NodeSettings, PortRole};
use kaido_upf::path::Path;

use crate::BenchError;
use crate::family::Family;
use crate::frames::Direction;
use crate::network::{GNB_MAC, MTU, N3_MAC, N6_MAC, ROUTER_MAC, teid};
use crate::ports::Feed;
use crate::session_rules::tunnel;
use crate::shape::{Shape, VLAN_FIRST, tenant_name};

/// The N3 port and the N6 port.
const N3_PORT: PortId = PortId(0);
const N6_PORT: PortId = PortId(1);

/// Sessions between two looks at the clock and the stop flag.
const CHUNK: u32 = 16_384;

/// A node with its sessions, and a worker that is turned by hand.
pub(crate) struct UpfNode {
    family: Family,
    shape: Shape,
    node: Arc<Node>,
    upf: Upf,
    pub(crate) forwarder: Forwarder,
    seids: Vec<Seid>,
}

/// A worker, and what its ports are joined to.
pub(crate) struct Forwarder {
    worker: Worker,
    /// The far ends of the N3 and of the N6 port.
    feeds: [Feed; 2],
    /// What it has forwarded.
    forwarded: Volume,
}

impl UpfNode {
    /// An empty node for so many sessions, whose ports take up to `frames` frames at once.
    pub(crate) fn new(sessions: u32, pool: &'static FramePool, frames: usize) -> Result<Self, BenchError> {
        Self::of_shape(Shape::Plain, sessions, pool, frames)
    }

    /// As [`UpfNode::new`], with sessions of a shape.
    pub(crate) fn of_shape(
        shape: Shape,
        sessions: u32,
        pool: &'static FramePool,
        frames: usize,
    ) -> Result<Self, BenchError> {
        let settings = settings(Family::V4, shape, sessions);
        Self::with((Family::V4, shape), settings, pool, frames)
    }

    /// As [`UpfNode::of_shape`], set up otherwise, for sessions of a family.
    pub(crate) fn with(
        of: (Family, Shape),
        settings: NodeSettings,
        pool: &'static FramePool,
        frames: usize,
    ) -> Result<Self, BenchError> {
        let (node, events) = Node::new(settings)?;
        let upf = Upf::new(node.clone(), events, Vec::new())?;
        Self::of(of, (node, upf), pool, frames)
    }

    /// A node that is there, and has no sessions.
    pub(crate) fn of(
        (family, shape): (Family, Shape),
        (node, upf): (Arc<Node>, Upf),
        pool: &'static FramePool,
        frames: usize,
    ) -> Result<Self, BenchError> {
        let forwarder = Forwarder::new(&node, pool, frames)?;
        let seids = Vec::with_capacity(node.settings.sessions_max as usize);
        Ok(Self { family, shape, node, upf, forwarder, seids })
    }

    /// Establishes the sessions from the last one there up to `sessions`; the time that took, less that of writing and reading
    /// the requests.
    pub(crate) fn establish(
        &mut self,
        sessions: u32,
        stop: &AtomicBool,
        progress: &dyn Fn(u32),
    ) -> Result<Duration, BenchError> {
        let mut taken = Duration::ZERO;
        let first = u32::try_from(self.seids.len()).unwrap_or(u32::MAX);
        for session in first..sessions {
            if session % CHUNK == 0 {
                stopped(stop)?;
                progress(session);
            }
            let refused = |rejection| BenchError::Session { session, rejection };
            let request = self.shape.requested(self.family, session).map_err(refused)?;
            let began = Instant::now();
            let established = self.upf.establish(&request, SystemTime::now()).map_err(refused)?;
            taken += began.elapsed();
            self.seids.push(established.seid);
        }
        Ok(taken)
    }

    /// Moves the first sessions to other tunnels and back, as handovers do; the time for twice as many changes.
    pub(crate) fn modify(&mut self, sessions: u32, stop: &AtomicBool) -> Result<Duration, BenchError> {
        let began = Instant::now();
        for moved in [true, false] {
            for (session, &seid) in (0..sessions).zip(&self.seids) {
                if session % CHUNK == 0 {
                    stopped(stop)?;
                }
                self.upf
                    .modify(seid, &handover(self.family, session, moved), SystemTime::now())
                    .map_err(|rejection| BenchError::Session { session, rejection })?;
            }
        }
        Ok(began.elapsed())
    }

    /// Deletes the last sessions; the time that took.
    pub(crate) fn delete(&mut self, sessions: u32, stop: &AtomicBool) -> Result<Duration, BenchError> {
        let began = Instant::now();
        for count in 0..sessions {
            if count % CHUNK == 0 {
                stopped(stop)?;
            }
            let Some(seid) = self.seids.pop() else { break };
            let session = u32::try_from(self.seids.len()).unwrap_or(u32::MAX);
            self.upf
                .delete(seid, SystemTime::now())
                .map_err(|rejection| BenchError::Session { session, rejection })?;
        }
        Ok(began.elapsed())
    }

    /// What the kernel has of each session, by its keys; none without a datapath there.
    pub(crate) fn kernel_shares(&mut self) -> impl Iterator<Item = Vec<KernelShare>> {
        let upf = &mut self.upf;
        self.seids.iter().filter_map(|&seid| upf.kernel_shares(seid))
    }

    /// What the URRs of all sessions have counted.
    pub(crate) fn counted(&self) -> Volume {
        let volumes = self.seids.iter().filter_map(|&seid| self.upf.volume_of(seid));
        volumes.fold(Volume::default(), |sum, volume| sum.plus(&volume))
    }

    /// What workers forward by.
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Keys in the session table; the sessions made here have two each.
    pub(crate) fn keys(&self) -> u32 {
        u32::try_from(self.node.table.len()).unwrap_or(u32::MAX)
    }

    /// The pages under the session table.
    pub(crate) fn pages(&self) -> String {
        let pages = self.node.table.memory().pages;
        pages.to_string()
    }
}

impl Forwarder {
    /// A worker for a node, whose ports take up to `frames` frames at once.
    pub(crate) fn new(node: &Arc<Node>, pool: &'static FramePool, frames: usize) -> Result<Self, BenchError> {
        Ok(Self::of(path(node)?, pool, frames))
    }

    /// As [`Forwarder::new`], a worker beside which others forward packets of the same sessions.
    pub(crate) fn sharing(
        node: &Arc<Node>,
        pool: &'static FramePool,
        frames: usize,
    ) -> Result<Self, BenchError> {
        let path = Path::new(node, routes().next_hops())?.sharing_sessions();
        Ok(Self::of(Box::new(path), pool, frames))
    }

    fn of(function: Box<dyn Function>, pool: &'static FramePool, frames: usize) -> Self {
        let ((n3, n3_port), (n6, n6_port)) = (Feed::new(frames), Feed::new(frames));
        let worker = worker_of(function, pool, [Box::new(n3_port), Box::new(n6_port)]);
        Self { worker, feeds: [n3, n6], forwarded: Volume::default() }
    }

    /// Notes packets that came out, and their octets.
    pub(crate) fn tally(&mut self, direction: Direction, packets: u64, octets: u64) {
        self.forwarded = self.forwarded.plus(&volume(direction, packets, octets));
    }

    /// What it has forwarded so far, as usage is counted.
    pub(crate) fn forwarded(&self) -> Volume {
        self.forwarded
    }

    /// Where packets of a direction go in, and where they come out.
    pub(crate) fn feeds(&self, direction: Direction) -> (&Feed, &Feed) {
        let [n3, n6] = &self.feeds;
        match direction {
            Direction::Uplink => (n3, n6),
            Direction::Downlink => (n6, n3),
        }
    }

    /// One round of the worker; how many packets it received.
    #[inline]
    pub(crate) fn step(&mut self) -> usize {
        self.worker.step()
    }

    /// What the worker has dropped on both ports.
    pub(crate) fn drops(&self) -> Vec<(&'static str, u64)> {
        drops(&self.worker)
    }
}

/// A worker between an N3 and an N6 port.
pub(crate) fn worker(
    node: &Arc<Node>,
    pool: &'static FramePool,
    ports: [Box<dyn Port>; 2],
) -> Result<Worker, BenchError> {
    Ok(worker_of(path(node)?, pool, ports))
}

fn worker_of(function: Box<dyn Function>, pool: &'static FramePool, ports: [Box<dyn Port>; 2]) -> Worker {
    let ports = ports.map(|port| (port, KernelPath::None));
    Worker::new(pool, ports.into(), function, WorkerSettings::default())
}

/// Packets of a direction as usage is counted.
pub(crate) fn volume(direction: Direction, packets: u64, octets: u64) -> Volume {
    let none = Volume::default();
    match direction {
        Direction::Uplink => Volume { uplink_packets: packets, uplink_bytes: octets, ..none },
        Direction::Downlink => Volume { downlink_packets: packets, downlink_bytes: octets, ..none },
    }
}

/// What a worker does between an N3 and an N6 port.
pub(crate) fn path(node: &Arc<Node>) -> Result<Box<dyn Function>, BenchError> {
    Ok(Box::new(Path::new(node, routes().next_hops())?))
}

/// What a worker has dropped on both ports.
pub(crate) fn drops(worker: &Worker) -> Vec<(&'static str, u64)> {
    let counters = worker.counters();
    let of_port = |port| PortTotals::of([&*counters], port).drops_by_name().collect::<Vec<_>>();
    [N3_PORT, N6_PORT].into_iter().flat_map(of_port).collect()
}

/// The node that all measurements are about.
pub(crate) fn settings(family: Family, shape: Shape, sessions: u32) -> NodeSettings {
    let mut instances = NodeSettings::default().instances;
    let lans = shape.tenants().map_or_else(Lans::default, |tenants| {
        let named = |tenant| Instance { name: Some(tenant_name(tenant)) };
        instances.truncate(1);
        instances.extend((0..tenants).map(named));
        Lans::new((0..tenants).map(|tenant| lan(family, tenant)).collect())
    });
    NodeSettings {
        instances,
        lans,
        endpoints: vec![family.n3()],
        ports: vec![role(N3_MAC, family.n3(), None), role(N6_MAC, family.n6(), Some(InstanceId(0)))],
        sessions_max: sessions,
        // One worker forwards, unless a measurement says otherwise.
        workers_share_sessions: false,
        ..NodeSettings::default()
    }
}

/// The N6 LAN of a tenant: a VLAN on the N6 port, everything behind its router, which need not be asked for.
fn lan(family: Family, tenant: u16) -> Lan {
    let (prefix_len, router) = (if family == Family::V4 { 24 } else { 64 }, family.router());
    Lan {
        // The first one is that of the port.
        instance: InstanceId(tenant + 1),
        port: N6_PORT,
        tags: VlanTags { outer: VLAN_FIRST + tenant, inner: None },
        addresses: vec![(family.n6(), prefix_len)],
        gateways: vec![router],
        neighbours: vec![(router, ROUTER_MAC)],
    }
}

/// Ends what was asked to stop.
pub(crate) fn stopped(stop: &AtomicBool) -> Result<(), BenchError> {
    if stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
}

fn role(mac: [u8; 6], address: IpAddr, instance: Option<InstanceId>) -> PortRole {
    let gtpu = instance.is_none();
    PortRole { mac, mtu: MTU.into(), addresses: vec![address], gtpu, instance }
}

/// The gNB on the link of N3, everything else behind the router of N6, both resolved.
fn routes() -> Arc<Routes> {
    let (routes, _wanted) = Routes::new();
    let via = |port, gateway| Route { port: Some(port), gateway: Some(gateway), metric: 0 };
    routes.set_routes(Family::ALL.into_iter().flat_map(|family| {
        let host = if family == Family::V4 { 32 } else { 128 };
        let (gnb, router) = (family.gnb(), family.router());
        [(gnb, host, via(N3_PORT, gnb)), (family.unspecified(), 0, via(N6_PORT, router))]
    }));
    for family in Family::ALL {
        for (port, address, mac) in [(N3_PORT, family.gnb(), GNB_MAC), (N6_PORT, family.router(), ROUTER_MAC)]
        {
            routes.set_neighbour(NeighbourRequest { port, address }, Some(mac));
        }
    }
    routes
}

/// The downlink goes into another tunnel, or back into the first.
fn handover(family: Family, session: u32, moved: bool) -> Modification {
    let teid = teid(session) | u32::from(moved) << 31;
    let forwarding = UpdateForwardingParameters {
        outer_header_creation: Some(tunnel(family, teid)),
        ..UpdateForwardingParameters::default()
    };
    let far = UpdateFar { id: FarId(2), forwarding: Some(forwarding), ..UpdateFar::default() };
    Modification { update_fars: vec![far], ..Modification::default() }
}
