//! Whole routers: their workers run, applications come over real sockets and command them as any router.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use kaido_engine::steer::{HandoffPort, handoff_ports, relay};
use kaido_engine::{FramePool, KernelPath, Port, PortId, Worker, WorkerHandle, WorkerSettings};
use kaido_ndn::balance::{Balance, BalanceSettings};
use kaido_ndn::client::{
    Connection, Consumer, FetchOptions, Publication, Router, command, dataset, fetch_versioned,
};
use kaido_ndn::cs::CsSettings;
use kaido_ndn::face::{FaceUri, Faces, Persistency};
use kaido_ndn::forward::{Forwarder, ForwarderSettings, SharedTables, Unsolicited};
use kaido_ndn::host::{HostControl, HostPort, HostSettings};
use kaido_ndn::link::{Link, LinkSettings, PortKind};
use kaido_ndn::mgmt::{Authority, ControlParameters, Manager, Module, Node as _, Route, Trust, origin};
use kaido_ndn::router::{ControlMailbox, Ndn, NodeParts, RouterNode, UdpPorts, WorkerSet};
use kaido_ndn_tables::{FaceId, NameHash, PitSettings};
use kaido_wire::ndn::{Interest, InterestRepr, LpHeader, Name, name_from_uri};

static NODES: AtomicU32 = AtomicU32::new(0);

/// A router whose workers and management run.
struct Node {
    path: PathBuf,
    host: HostControl,
    faces: Faces,
    shared: Arc<SharedTables>,
    stop: Arc<AtomicBool>,
    workers: Vec<WorkerHandle>,
    management: Option<JoinHandle<()>>,
}

impl Node {
    fn start(udp_mtu: u16, cached: u32) -> Self {
        Self::of(1, udp_mtu, cached)
    }

    fn of(workers: u8, udp_mtu: u16, cached: u32) -> Self {
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kaido-router-{}-{number}.sock", std::process::id()));
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let faces = Faces::new(64);
        let settings = HostSettings {
            unix: Some(path.clone()),
            tcp: vec![loopback],
            udp: vec![loopback],
            udp_mtu,
            ..HostSettings::default()
        };
        let (port, host) = HostPort::open(settings, &faces).unwrap();
        let shared = SharedTables::new(NameHash::random(), 1024).unwrap();
        let cs = CsSettings { packets: cached, octets: u64::from(cached) * 9000 };
        let stop = Arc::new(AtomicBool::new(false));
        let pool = FramePool::leak(8192).unwrap();
        let balance = Arc::new(Balance::new(workers.into(), BalanceSettings::default()));
        let mut mailboxes = Vec::new();
        let ports = relay(Box::new(port), workers.into())
            .unwrap()
            .into_iter()
            .zip(handoff_ports(workers.into()).unwrap());
        let worker = |(number, (port, worker_set)): (u8, (Box<dyn Port>, HandoffPort))| {
            let settings = ForwarderSettings {
                pit: PitSettings::for_entries(4096, number),
                cs,
                dead_nonces: 4096,
                measured_prefixes: 256,
                unsolicited: Unsolicited::Drop,
            };
            let link = LinkSettings { ports: vec![PortKind::Host], ..LinkSettings::default() };
            let forwarder = Forwarder::new(&shared, &settings, Instant::now()).unwrap();
            let mailbox = Arc::new(if workers > 1 {
                ControlMailbox::with_waker(worker_set.waker())
            } else {
                ControlMailbox::new()
            });
            mailboxes.push(mailbox.clone());
            let mut ndn = Ndn::new(Link::new(link, &faces), forwarder, mailbox);
            let mut ports: Vec<(Box<dyn Port>, KernelPath)> = vec![(port, KernelPath::None)];
            if workers > 1 {
                ports.push((Box::new(worker_set), KernelPath::None));
                ndn = ndn.with_worker_set(WorkerSet::new(balance.clone(), shared.hash(), number, PortId(1)));
            }
            let worker = Worker::new(pool, ports, Box::new(ndn), WorkerSettings::default());
            worker.spawn(format!("ndn-{number}"), stop.clone()).unwrap()
        };
        let workers = (0..).zip(ports).map(worker).collect();
        let parts = NodeParts {
            faces: faces.clone(),
            shared: shared.clone(),
            host: host.clone(),
            ethernet: Vec::new(),
            udp: UdpPorts::default(),
            mailboxes,
            cs,
            pit_max: 4096,
            balance,
            tier: None,
            channels: vec![FaceUri::Unix(path.display().to_string())],
        };
        let management = manage(RouterNode::new(parts, SystemTime::now()), &host, stop.clone());
        Self { path, host, faces, shared, stop, workers, management: Some(management) }
    }

    fn unix(&self) -> Router {
        Router::Unix(self.path.clone())
    }

    fn tcp(&self) -> Router {
        Router::Tcp(self.host.tcp_addresses()[0].to_string())
    }

    fn udp(&self) -> Router {
        Router::Udp(self.host.udp_addresses()[0].to_string())
    }

    fn consumer(&self) -> Consumer {
        Consumer::connect(&self.unix()).unwrap()
    }

    fn command(&self, module: Module, verb: &str, parameters: &ControlParameters) -> ControlParameters {
        command(&mut self.consumer(), module, verb, parameters).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.host.wake();
        assert!(self.workers.drain(..).all(WorkerHandle::join));
        self.management.take().unwrap().join().unwrap();
    }
}

/// Starts the management of a node, as an application of its own.
fn manage(node: RouterNode, host: &HostControl, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    let (face, stream) = host.application().unwrap();
    let trust = Trust { grants: Vec::new(), local: Module::ALL.to_vec(), loopback: vec![Module::Rib] };
    let mut manager = Manager::new(node, Authority::new(trust, SystemTime::now()), 1024);
    for prefix in ["/localhost/nfd", "/localhop/nfd"] {
        let route = Route {
            face: face.id(),
            origin: origin::STATIC,
            cost: 0,
            child_inherit: true,
            capture: false,
            expires: None,
        };
        let (mut rib, node) = manager.rib();
        rib.register(Name::new(&name_from_uri(prefix).unwrap()).unwrap(), route, &mut node.fib()).unwrap();
    }
    std::thread::spawn(move || {
        let served = manager.serve(&mut Connection::over_stream(stream), &stop, |_| {});
        assert!(served.is_ok() || stop.load(Ordering::Relaxed), "{served:?}");
    })
}

fn prefix(uri: &str) -> ControlParameters {
    ControlParameters { name: Some(name_from_uri(uri).unwrap()), ..ControlParameters::default() }
}

/// Answers the Interests of a publication that a router brings, until the other side is done.
struct Producer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Producer {
    /// Connects, registers the publication's prefix and answers.
    fn start(router: &Router, uri: &str, content: Vec<u8>) -> Self {
        let name = name_from_uri(uri).unwrap();
        let publication = Publication::new(Name::new(&name).unwrap(), 1, content, 7000, 10_000).unwrap();
        let mut consumer = Consumer::connect(router).unwrap();
        command(&mut consumer, Module::Rib, "register", &prefix(uri)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                let wait = Instant::now() + Duration::from_millis(20);
                let Ok(Some(received)) = consumer.connection().receive(wait) else { continue };
                let Some((header, packet)) = received.packet() else { continue };
                let Ok(interest) = Interest::parse(packet, packet.len()) else { continue };
                let Some(data) = publication.answer(&interest) else { continue };
                let said = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
                let mut octets = vec![0; said.len(data.len())];
                said.emit(data.len(), &mut octets).unwrap();
                octets.extend(data);
                consumer.connection().send(&octets).unwrap();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap()).collect()
}

fn fetched(router: &Router, uri: &str) -> Vec<u8> {
    let name = name_from_uri(uri).unwrap();
    let mut consumer = Consumer::connect(router).unwrap();
    fetch_versioned(&mut consumer, Name::new(&name).unwrap(), &FetchOptions::default()).unwrap()
}

/// Conformance: NDN management rib | An application registers a prefix, and is asked; the route goes with its face
#[test]
fn applications_register_and_answer() {
    for workers in [1, 2] {
        register_and_answer(&Node::of(workers, 8800, 0));
    }
}

fn register_and_answer(node: &Node) {
    for (router, number) in [(node.unix(), 0), (node.tcp(), 1)] {
        let uri = format!("/app/{number}");
        let producer = Producer::start(&router, &uri, content(30_000));
        for asker in [node.unix(), node.tcp(), node.udp()] {
            assert!(fetched(&asker, &uri) == content(30_000), "{router} asked from {asker}");
        }
        drop(producer);
    }
    let began = Instant::now();
    while node.shared.fib().table().len() > 2 {
        assert!(began.elapsed() < Duration::from_secs(10), "routes to faces that are gone stay");
        std::thread::sleep(Duration::from_millis(5));
    }
    let name = name_from_uri("/app/0").unwrap();
    let interest = InterestRepr { name: Name::new(&name).unwrap(), ..InterestRepr::default() };
    let error = node.consumer().ask(&interest).unwrap_err();
    assert!(error.to_string().contains("no route"), "{error}");
}

/// Conformance: NDN management scope | What begins with /localhost stays on the host
#[test]
fn strangers_do_not_command() {
    let node = Node::start(8800, 0);
    let name = name_from_uri("/localhost/nfd/status/general").unwrap();
    let interest = InterestRepr {
        name: Name::new(&name).unwrap(),
        can_be_prefix: true,
        lifetime_ms: Some(100),
        ..InterestRepr::default()
    };
    let mut stranger = Consumer::connect(&node.udp()).unwrap();
    assert!(stranger.ask(&interest).is_err(), "names under /localhost do not come from elsewhere");
    assert!(node.consumer().ask(&interest).is_ok());
    // Over TCP an application is of this host, but commands what was allowed to all of it, and no more.
    let mut over_tcp = Consumer::connect(&node.tcp()).unwrap();
    assert!(over_tcp.ask(&interest).is_ok());
    let refused = command(&mut over_tcp, Module::Cs, "erase", &prefix("/a")).unwrap_err();
    assert!(refused.to_string().contains("over TCP a command needs a key"), "{refused}");
}

/// Conformance: NDNLPv2 fragmentation | 10 MB through two routers, over UDP with a small MTU, come out as they went in
#[test]
fn ten_megabytes_pass_two_routers() {
    let (near, far) = (Node::start(600, 0), Node::start(600, 0));
    let _producer = Producer::start(&far.unix(), "/big", content(10_000_000));
    let remote = FaceUri::Udp(far.host.udp_addresses()[0]);
    let made = near.command(
        Module::Faces,
        "create",
        &ControlParameters {
            uri: Some(remote.to_string()),
            face_persistency: Some(Persistency::Permanent.code()),
            ..ControlParameters::default()
        },
    );
    let face = made.face.unwrap();
    near.command(Module::Rib, "register", &ControlParameters { face: Some(face), ..prefix("/big") });
    assert!(fetched(&near.unix(), "/big") == content(10_000_000));
    let face = near.faces.get(FaceId(u32::try_from(face).unwrap())).unwrap();
    assert_eq!(face.mtu(), 600);
    let received = face.totals().received;
    assert!(received.octets > 10_000_000 && received.data >= 1429);
}

/// Conformance: NDN management datasets | Faces, routes, strategies, the Content Store and the status are told
#[test]
fn routers_tell_and_obey() {
    for workers in [1, 2] {
        // The capacity of both together is twice what a worker has.
        tell_and_obey(&Node::of(workers, 8800, 100), if workers > 1 { 8 } else { 7 });
    }
}

fn tell_and_obey(node: &Node, capacity: u64) {
    let mut consumer = node.consumer();
    for path in [
        "faces/list",
        "faces/channels",
        "fib/list",
        "rib/list",
        "cs/info",
        "strategy-choice/list",
        "status/general",
    ] {
        assert!(!dataset(&mut consumer, path).unwrap().is_empty(), "{path}");
    }
    let producer = Producer::start(&node.unix(), "/kept", content(50_000));
    assert!(fetched(&node.unix(), "/kept") == content(50_000));
    drop(producer);
    let name = name_from_uri("/kept/v=1").unwrap();
    let options = FetchOptions { retries: 1, ..FetchOptions::default() };
    let kept = kaido_ndn::client::fetch(&mut consumer, Name::new(&name).unwrap(), &options).unwrap();
    assert!(kept == content(50_000), "from the Content Store");
    let erased = node.command(Module::Cs, "erase", &prefix("/kept"));
    // Where there are two workers, the Interest that may be a prefix was another one's than that of its segment.
    let workers = u64::try_from(node.workers.len()).unwrap();
    assert!((8..8 + workers).contains(&erased.count.unwrap()), "{erased:?}");
    let wanted = ControlParameters { capacity: Some(7), ..ControlParameters::default() };
    assert_eq!(node.command(Module::Cs, "config", &wanted).capacity, Some(capacity));
    let strategy = Some(name_from_uri("/localhost/nfd/strategy/multicast").unwrap());
    let chosen = node.command(Module::StrategyChoice, "set", &ControlParameters { strategy, ..prefix("/m") });
    assert_eq!(chosen.strategy, Some(name_from_uri("/localhost/nfd/strategy/multicast/v=4").unwrap()));
    node.command(Module::StrategyChoice, "unset", &prefix("/m"));
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let uri = Some(FaceUri::Udp(peer.local_addr().unwrap()).to_string());
    let made =
        node.command(Module::Faces, "create", &ControlParameters { uri, ..ControlParameters::default() });
    assert!(node.faces.get(FaceId(u32::try_from(made.face.unwrap()).unwrap())).is_some());
    let gone = ControlParameters { face: made.face, ..ControlParameters::default() };
    node.command(Module::Faces, "destroy", &gone);
    assert!(node.faces.get(FaceId(u32::try_from(made.face.unwrap()).unwrap())).is_none());
}
