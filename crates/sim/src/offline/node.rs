//! The node: the real control side behind a real socket, and workers over whatever ports a stage needs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kaido_engine::{
    FramePool, KernelPath, NeighbourRequest, Port, PortId, Route, Routes, Worker, WorkerSettings,
};
use kaido_n4::Ipv6Prefix;
use kaido_pfcp::{Config, DATAGRAM_MAX, Endpoint, Features, Instants, PeerPort};
use kaido_upf::control::{UePool, Upf};
use kaido_upf::ids::InstanceId;
use kaido_upf::node::{Instance, Node, NodeSettings, PortRole};
use kaido_upf::path::Path;

use crate::fault::SimFault;

/// The port towards the gNB.
pub(super) const N3: PortId = PortId(0);
/// The port towards the data network.
pub(super) const N6: PortId = PortId(1);
pub(super) const N3_MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];
pub(super) const N6_MAC: [u8; 6] = [2, 0, 0, 0, 6, 1];
pub(super) const GNB_MAC: [u8; 6] = [2, 0, 0, 0, 3, 2];
pub(super) const DN_MAC: [u8; 6] = [2, 0, 0, 0, 6, 2];
/// N3 address of the node.
pub(super) const UPF_GTPU: Ipv4Addr = Ipv4Addr::new(10, 100, 3, 1);
/// Its peer there.
pub(super) const GNB: Ipv4Addr = Ipv4Addr::new(10, 100, 3, 2);
const N6_V4: Ipv4Addr = Ipv4Addr::new(10, 100, 6, 1);
const N6_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 1);
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(10, 100, 6, 2);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 2);

/// Frames of 4096 bytes.
const FRAMES: usize = 2048;
/// Pause of the control side between two looks at its events.
const TICK: Duration = Duration::from_millis(2);

/// The node, its control side running.
pub(super) struct OfflineNode {
    node: Arc<Node>,
    routes: Arc<Routes>,
    pool: &'static FramePool,
    pfcp: SocketAddr,
    stop: Arc<AtomicBool>,
    control: JoinHandle<()>,
}

impl OfflineNode {
    /// Starts a node for `ues` sessions.
    pub(super) fn start(ues: u32) -> Result<Self, SimFault> {
        let built = |error: &dyn std::fmt::Display| SimFault::Node(error.to_string());
        let pool = FramePool::leak(FRAMES).map_err(|error| built(&error))?;
        let (node, events) = Node::new(settings(ues)).map_err(|error| built(&error))?;
        let pools = vec![UePool {
            instance: InstanceId(0),
            ipv4: Some((Ipv4Addr::new(10, 64, 0, 0), 10)),
            ipv6: Some(Ipv6Prefix::of(Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0), 44)),
        }];
        let upf = Upf::new(Arc::clone(&node), events, pools).map_err(|error| built(&error))?;
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let bind = |error| SimFault::bind("PFCP socket of the UPF", any, error);
        let socket = UdpSocket::bind(any).map_err(bind)?;
        let pfcp = socket.local_addr().map_err(bind)?;
        socket.set_read_timeout(Some(TICK)).map_err(bind)?;
        let mut config = Config::at(pfcp.ip());
        config.peer_port = PeerPort::AsSeen;
        config.features =
            Features { allocates_f_teids: true, allocates_ue_addresses: true, sends_end_markers: true };
        let endpoint = Endpoint::new(config, upf, Instants::now());
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let control = std::thread::Builder::new()
            .name("upf-control".to_owned())
            .spawn(move || serve(&socket, endpoint, &ended))
            .map_err(SimFault::system("cannot start a thread"))?;
        Ok(Self { node, routes: routes(), pool, pfcp, stop, control })
    }

    /// Where its PFCP is.
    pub(super) fn pfcp(&self) -> SocketAddr {
        self.pfcp
    }

    /// A worker over two ports, n3 and n6, to be turned by hand.
    pub(super) fn worker(&self, n3: Box<dyn Port>, n6: Box<dyn Port>) -> Result<Worker, SimFault> {
        let path = Path::new(&self.node, self.routes.next_hops())
            .map_err(|error| SimFault::Node(error.to_string()))?;
        let ports = vec![(n3, KernelPath::None), (n6, KernelPath::None)];
        Ok(Worker::new(self.pool, ports, Box::new(path), WorkerSettings::default()))
    }

    /// Ends the control side.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic was printed by its thread, and its silence failed the run.
        let _ = self.control.join();
    }
}

fn settings(ues: u32) -> NodeSettings {
    let n3 =
        PortRole { mac: N3_MAC, mtu: 9000, addresses: vec![UPF_GTPU.into()], gtpu: true, instance: None };
    let n6 = PortRole {
        mac: N6_MAC,
        mtu: 1500,
        addresses: vec![N6_V4.into(), N6_V6.into()],
        gtpu: false,
        instance: Some(InstanceId(0)),
    };
    NodeSettings {
        endpoints: vec![UPF_GTPU.into()],
        instances: vec![Instance { name: None }],
        ports: vec![n3, n6],
        sessions_max: ues,
        ..NodeSettings::default()
    }
}

/// What netlink would say.
fn routes() -> Arc<Routes> {
    let (routes, _wanted) = Routes::new();
    let route = |port, gateway: Option<IpAddr>| Route { port: Some(port), gateway, metric: 0 };
    routes.set_routes([
        (IpAddr::V4(UPF_GTPU), 24, route(N3, None)),
        (Ipv4Addr::UNSPECIFIED.into(), 0, route(N6, Some(ROUTER_V4.into()))),
        (Ipv6Addr::UNSPECIFIED.into(), 0, route(N6, Some(ROUTER_V6.into()))),
    ]);
    for (port, address, mac) in [
        (N3, IpAddr::V4(GNB), GNB_MAC),
        (N6, IpAddr::V4(ROUTER_V4), DN_MAC),
        (N6, IpAddr::V6(ROUTER_V6), DN_MAC),
    ] {
        routes.set_neighbour(NeighbourRequest { port, address }, Some(mac));
    }
    routes
}

/// The control side's loop: datagrams in, datagrams out, and what is due in between.
fn serve(socket: &UdpSocket, mut endpoint: Endpoint<Upf>, stop: &AtomicBool) {
    let mut out = Vec::new();
    let mut datagram = vec![0; DATAGRAM_MAX];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut datagram) {
            endpoint.handle(Instants::now(), from, datagram.get(..len).unwrap_or_default(), &mut out);
        }
        endpoint.poll(Instants::now(), &mut out);
        for transmit in out.drain(..) {
            // What is lost here the peer asks for again.
            let _ = socket.send_to(&transmit.bytes, transmit.to);
        }
    }
}
