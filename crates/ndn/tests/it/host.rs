//! The host port on real sockets: Unix, TCP and UDP on loopback, the port turned by hand.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kaido_engine::{BATCH_MAX, Batch, DropReason, Frame, FramePool, PoolCache, Port, PortId};
use kaido_ndn::NdnDrop;
use kaido_ndn::face::{FaceBounds, FaceEventKind, FaceState, FaceUri, Faces, LinkType, Persistency, Scope};
use kaido_ndn::host::{
    ConnectError, HostControl, HostPort, HostSettings, MULTICAST_GROUP, MulticastOn, UnixAccess,
};
use kaido_ndn_tables::FaceId;
use kaido_wire::ndn::MULTICAST_PORT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const PATIENCE: Duration = Duration::from_secs(10);

/// Who hears the group on the loopback hears all who send to it: one test at a time.
static GROUP: Mutex<()> = Mutex::new(());

struct Rig {
    port: HostPort,
    control: HostControl,
    faces: Faces,
    pool: &'static FramePool,
    cache: PoolCache,
    batch: Batch,
    lost: BTreeMap<DropReason, u64>,
}

fn socket_path(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("kaido-ndn-{test}-{}.sock", std::process::id()))
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

impl Rig {
    fn new(settings: HostSettings) -> Self {
        Self::bounded(settings, FaceBounds::NONE)
    }

    fn bounded(settings: HostSettings, bounds: FaceBounds) -> Self {
        let pool = FramePool::leak(1024).unwrap();
        let faces = Faces::bounded(64, bounds, 1);
        let (port, control) = HostPort::open(settings, &faces).unwrap();
        let (cache, batch) = (pool.cache(), Batch::new());
        Self { port, control, faces, pool, cache, batch, lost: BTreeMap::new() }
    }

    /// What arrives in one turn: the packets and their faces.
    fn turn(&mut self) -> Vec<(FaceId, Vec<u8>)> {
        self.port.receive(&mut self.cache, &mut self.batch);
        self.port.losses(&mut |reason, count| *self.lost.entry(reason).or_default() += count);
        let cache = &mut self.cache;
        self.batch
            .drain(..)
            .map(|frame| {
                let octets = frame.to_vec();
                cache.release(frame);
                (FaceId(u32::from_be_bytes(octets[..4].try_into().unwrap())), octets[4..].to_vec())
            })
            .collect()
    }

    /// Turns until so many packets have arrived, and no more.
    fn receive(&mut self, packets: usize) -> Vec<(FaceId, Vec<u8>)> {
        let began = Instant::now();
        let mut received = Vec::new();
        while received.len() < packets {
            assert!(
                began.elapsed() < PATIENCE,
                "{} of {packets} packets; lost {:?}",
                received.len(),
                self.lost
            );
            received.extend(self.turn());
        }
        received.extend(self.turn());
        assert_eq!(received.len(), packets);
        received
    }

    /// Turns until something holds.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(began.elapsed() < PATIENCE, "{what}");
            assert!(self.turn().is_empty());
        }
    }

    fn send(&mut self, face: FaceId, packet: &[u8]) {
        let octets = [&face.0.to_be_bytes()[..], packet].concat();
        let cache = &mut self.cache;
        self.batch.push(Frame::from_slice(&octets, || cache.allocate()).unwrap());
        assert_eq!(self.port.transmit(&mut self.cache, &mut self.batch), 0);
        assert!(self.batch.is_empty());
    }

    fn lost(&mut self, reason: DropReason) -> u64 {
        self.turn();
        self.lost.get(&reason).copied().unwrap_or(0)
    }

    fn events(&self) -> Vec<FaceEventKind> {
        self.faces.take_events().0.iter().map(|event| event.kind).collect()
    }

    /// All frames are back.
    fn finish(self) {
        drop((self.port, self.cache, self.batch));
        assert_eq!(self.pool.free_frames(), 1024);
    }
}

/// An element of the link: type, length and so many octets.
fn packet(kind: u8, len: usize) -> Vec<u8> {
    let value: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let long = u16::try_from(len).unwrap().to_be_bytes();
    match u8::try_from(len) {
        Ok(short @ ..=252) => [&[kind, short], &value[..]].concat(),
        _ => [&[kind, 0xfd, long[0], long[1]], &value[..]].concat(),
    }
}

fn read(socket: &mut impl Read, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    socket.read_exact(&mut octets).unwrap();
    octets
}

fn unix(test: &str) -> (Rig, PathBuf) {
    let path = socket_path(test);
    (Rig::new(HostSettings { unix: Some(path.clone()), ..HostSettings::default() }), path)
}

#[test]
fn unix_connections_are_faces() {
    let (mut rig, path) = unix("faces");
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let packets = [packet(5, 20), packet(6, 8000), packet(0x64, 300), packet(5, 0)];
    client.write_all(&packets.concat()).unwrap();
    let received = rig.receive(4);
    let face = received[0].0;
    assert!(received.iter().zip(&packets).all(|(got, sent)| got.0 == face && got.1 == *sent));
    let face = rig.faces.get(face).unwrap();
    assert_eq!((face.scope(), face.persistency()), (Scope::Local, Persistency::OnDemand));
    assert_eq!(face.local().to_string(), format!("unix://{}", path.display()));
    assert!(face.remote().to_string().starts_with("fd://"));
    for packet in &packets {
        rig.send(face.id(), packet);
    }
    assert!(read(&mut client, packets.concat().len()) == packets.concat());
    drop(client);
    rig.until("the face goes with its connection", |rig| rig.faces.get(face.id()).is_none());
    assert_eq!(rig.events(), [FaceEventKind::Created, FaceEventKind::Destroyed]);
    rig.send(face.id(), &packet(5, 1));
    assert_eq!(rig.lost(NdnDrop::FACE_UNKNOWN), 1);
    rig.finish();
    assert!(!path.exists(), "the name goes with the port");
}

#[test]
fn streams_come_in_any_pieces() {
    let packets = [packet(5, 3), packet(6, 300), packet(5, 252), packet(6, 5000)];
    for size in [1, 7, 4000] {
        let (mut rig, path) = unix("pieces");
        let mut client = UnixStream::connect(&path).unwrap();
        let mut received = Vec::new();
        for octets in packets.concat().chunks(size) {
            client.write_all(octets).unwrap();
            received.extend(rig.turn());
        }
        received.extend(rig.turn());
        received.extend(rig.turn());
        assert!(received.iter().map(|(_, octets)| octets).eq(&packets), "{size}");
        rig.finish();
    }
}

#[test]
fn many_packets_come_in_batches() {
    let (mut rig, path) = unix("many");
    let mut client = UnixStream::connect(&path).unwrap();
    let packets: Vec<Vec<u8>> = (0..1000).map(|n| packet(5, n % 100)).collect();
    client.write_all(&packets.concat()).unwrap();
    let mut received = Vec::new();
    let began = Instant::now();
    while received.len() < 1000 && began.elapsed() < PATIENCE {
        let some = rig.turn();
        assert!(some.len() <= BATCH_MAX);
        if some.len() == BATCH_MAX {
            assert!(!rig.port.may_sleep(), "more waits, of which the kernel does not know");
        }
        received.extend(some);
    }
    assert!(received.iter().map(|(_, octets)| octets).eq(&packets));
    rig.finish();
}

/// Hostile streams: what is no packet closes the connection, and nothing of it stays.
#[test]
fn what_is_no_packet_closes_a_stream() {
    let (mut rig, path) = unix("hostile");
    for octets in [
        &[0x07, 0x00][..],
        &[0x05, 0xfd, 0x00, 0x01],
        &[0x06, 0xfe, 0, 1, 0, 0],
        &[0x64, 0xfd, 0xff, 0xff],
        &[0],
    ] {
        let mut client = UnixStream::connect(&path).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(&packet(5, 1)).unwrap();
        client.write_all(octets).unwrap();
        rig.receive(1);
        rig.until("the face is gone", |rig| rig.faces.all().is_empty());
        assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0, "{octets:02x?}");
    }
    assert_eq!(rig.lost(NdnDrop::LINK_MALFORMED), 5);
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(&packet(6, 8800)[..8000]).unwrap();
    rig.until("it waits for the rest", |rig| rig.faces.all().len() == 1);
    drop(client);
    rig.until("a packet cut off by the end is gone", |rig| rig.faces.all().is_empty());
    rig.finish();
}

#[test]
fn as_many_connect_as_may() {
    let path = socket_path("bound");
    let settings = HostSettings { unix: Some(path.clone()), ..HostSettings::default() };
    let mut rig = Rig::bounded(settings, FaceBounds { applications: 2, ..FaceBounds::NONE });
    let clients: Vec<UnixStream> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
    rig.until("they connect", |rig| rig.faces.all().len() == 2);
    assert_eq!(rig.lost(NdnDrop::FACES_FULL), 1);
    drop(clients);
    rig.until("they go", |rig| rig.faces.all().is_empty());
    let _client = UnixStream::connect(&path).unwrap();
    rig.until("there is room again", |rig| rig.faces.all().len() == 1);
    rig.finish();
}

/// A host that sends from many ports has as many faces as it may; applications come in all the same.
#[test]
fn many_ports_of_a_host_keep_no_application_out() {
    let path = socket_path("host-bound");
    let (udp, unix) = (vec![loopback(0)], Some(path.clone()));
    let settings = HostSettings { udp, unix, ..HostSettings::default() };
    let mut rig = Rig::bounded(settings, FaceBounds { on_demand: 40, per_host: 8, applications: 2 });
    let ours = rig.control.udp_addresses()[0];
    let senders: Vec<UdpSocket> = (0..30).map(|_| UdpSocket::bind(loopback(0)).unwrap()).collect();
    for sender in &senders {
        sender.send_to(&packet(5, 20), ours).unwrap();
    }
    assert_eq!(rig.receive(8).len(), 8);
    assert_eq!((rig.lost(NdnDrop::HOST_FACES_FULL), rig.faces.all().len()), (22, 8));
    let other = UdpSocket::bind("127.0.0.2:0").unwrap();
    other.send_to(&packet(5, 20), ours).unwrap();
    rig.receive(1);
    let _clients = [0, 1].map(|_| UnixStream::connect(&path).unwrap());
    rig.until("applications connect", |rig| rig.faces.all().len() == 11);
    rig.finish();
}

/// Nobody but its user and group can connect, from the first moment on.
#[test]
fn the_socket_has_a_mode_and_a_group() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let path = socket_path("mode");
    for (mode, group) in [(0o660, None), (0o600, None), (0o666, Some(7))] {
        if group.is_some() && !rustix::process::geteuid().is_root() {
            println!("SKIPPED the_socket_has_a_mode_and_a_group, its group: needs root");
            continue;
        }
        let unix_access = UnixAccess { mode, group };
        let rig = Rig::new(HostSettings { unix: Some(path.clone()), unix_access, ..HostSettings::default() });
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, mode);
        assert!(group.is_none_or(|group| metadata.gid() == group));
        rig.finish();
        assert!(!path.exists());
    }
}

/// A reader that does not read: what waits is bounded, the rest is dropped, and what waited comes when it reads.
#[test]
fn slow_readers_keep_nobody_waiting() {
    let path = socket_path("slow");
    let settings =
        HostSettings { unix: Some(path.clone()), queue_octets_max: 100_000, ..HostSettings::default() };
    let mut rig = Rig::new(settings);
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(&packet(5, 1)).unwrap();
    let face = rig.receive(1)[0].0;
    let sent = packet(6, 8000);
    let mut count = 0u64;
    while rig.lost(NdnDrop::FACE_SLOW) == 0 {
        rig.send(face, &sent);
        count += 1;
        assert!(count < 10_000);
    }
    let face = rig.faces.get(face).unwrap();
    assert!((1..=100_000).contains(&face.backlog()));
    for _ in 0..count - 1 {
        let mut octets = vec![0; sent.len()];
        let mut at = 0;
        while at < octets.len() {
            rig.turn();
            at += client.read(&mut octets[at..]).unwrap();
        }
        assert!(octets == sent);
    }
    assert_eq!(face.backlog(), 0);
    rig.send(face.id(), &packet(5, 7));
    assert_eq!(read(&mut client, 9), packet(5, 7));
    rig.finish();
}

#[test]
fn tcp_is_taken_and_made() {
    let mut rig = Rig::new(HostSettings { tcp: vec![loopback(0)], ..HostSettings::default() });
    let mut client = TcpStream::connect(rig.control.tcp_addresses()[0]).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(&packet(5, 10)).unwrap();
    let (id, octets) = rig.receive(1).remove(0);
    assert_eq!(octets, packet(5, 10));
    let face = rig.faces.get(id).unwrap();
    assert_eq!((face.scope(), face.remote()), (Scope::Local, &FaceUri::Tcp(client.local_addr().unwrap())));
    rig.send(id, &packet(6, 6000));
    assert!(read(&mut client, 6004) == packet(6, 6000));

    let listener = TcpListener::bind(loopback(0)).unwrap();
    let remote = FaceUri::Tcp(listener.local_addr().unwrap());
    let made = rig.control.connect(remote.clone(), Persistency::Persistent, Some(1400)).unwrap();
    assert_eq!((made.mtu(), made.state(), made.scope()), (1400, FaceState::Down, Scope::Local));
    let again = rig.control.connect(remote, Persistency::Persistent, None).unwrap_err();
    assert_eq!(again, ConnectError::Exists(made.id()));
    rig.turn();
    let (mut peer, _) = listener.accept().unwrap();
    rig.until("it stands", |_| made.state() == FaceState::Up);
    rig.send(made.id(), &packet(5, 4));
    assert_eq!(read(&mut peer, 6), packet(5, 4));
    peer.write_all(&packet(6, 5)).unwrap();
    assert_eq!(rig.receive(1), [(made.id(), packet(6, 5))]);
    drop(peer);
    rig.until("a persistent face goes when its connection does", |rig| rig.faces.get(made.id()).is_none());
    rig.finish();
}

/// A permanent face tries again until its other end is there, and again when it is lost.
#[test]
fn permanent_faces_come_back() {
    let mut rig = Rig::new(HostSettings::default());
    let address = TcpListener::bind(loopback(0)).unwrap().local_addr().unwrap();
    let face = rig.control.connect(FaceUri::Tcp(address), Persistency::Permanent, None).unwrap();
    rig.turn();
    rig.turn();
    assert_eq!(face.state(), FaceState::Down);
    for _ in 0..2 {
        let listener = TcpListener::bind(address).unwrap();
        rig.until("it stands", |_| face.state() == FaceState::Up);
        let (mut peer, _) = listener.accept().unwrap();
        rig.send(face.id(), &packet(5, 4));
        assert_eq!(read(&mut peer, 6), packet(5, 4));
        drop((peer, listener));
        rig.until("it is lost", |_| face.state() == FaceState::Down);
        rig.send(face.id(), &packet(5, 4));
    }
    use FaceEventKind::{Created, Down, Up};
    assert_eq!(rig.events(), [Created, Down, Up, Down, Up, Down]);
    assert!(rig.control.destroy(face.id()).unwrap() && !rig.control.destroy(face.id()).unwrap());
    rig.turn();
    rig.finish();
}

#[test]
fn senders_of_datagrams_get_faces() {
    let settings = HostSettings { udp: vec![loopback(0)], ..HostSettings::default() };
    let mut rig = Rig::bounded(settings, FaceBounds { on_demand: 2, ..FaceBounds::NONE });
    let ours = rig.control.udp_addresses()[0];
    let senders: Vec<UdpSocket> = (0..3).map(|_| UdpSocket::bind(loopback(0)).unwrap()).collect();
    for sender in &senders {
        sender.set_read_timeout(Some(PATIENCE)).unwrap();
        sender.connect(ours).unwrap();
    }
    let mut ids = Vec::new();
    for (sender, len) in senders.iter().zip([20, 8000]) {
        sender.send(&packet(5, len)).unwrap();
        let (id, octets) = rig.receive(1).remove(0);
        assert!(octets == packet(5, len));
        let face = rig.faces.get(id).unwrap();
        assert_eq!(
            (face.scope(), face.remote()),
            (Scope::NonLocal, &FaceUri::Udp(sender.local_addr().unwrap()))
        );
        rig.send(id, &packet(6, len));
        let mut buffer = vec![0; 9000];
        let got = sender.recv(&mut buffer).unwrap();
        assert!(buffer[..got] == packet(6, len));
        ids.push(id);
    }
    senders[0].send(&packet(5, 1)).unwrap();
    assert_eq!(rig.receive(1)[0].0, ids[0], "the same sender, the same face");
    senders[2].send(&packet(5, 1)).unwrap();
    senders[2].send(b"no packet").unwrap();
    senders[2].send(&[5, 200, 1]).unwrap();
    rig.until("they are refused", |rig| rig.lost.values().sum::<u64>() == 3);
    assert_eq!((rig.lost(NdnDrop::FACES_FULL), rig.lost(NdnDrop::LINK_MALFORMED)), (1, 2));
    let made =
        rig.control.connect(FaceUri::Udp(senders[2].local_addr().unwrap()), Persistency::Persistent, None);
    let made = made.unwrap();
    assert_eq!(made.state(), FaceState::Up);
    rig.turn();
    rig.send(made.id(), &packet(5, 2));
    assert_eq!(senders[2].recv(&mut [0; 10]).unwrap(), 4);
    let six = FaceUri::Udp("[::1]:6363".parse().unwrap());
    let refused = rig.control.connect(six.clone(), Persistency::Persistent, None).unwrap_err();
    assert_eq!(refused, ConnectError::NoSocket(six));
    rig.finish();
}

#[test]
fn both_families_are_heard_at_one_port() {
    let port = UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let mut rig = Rig::new(HostSettings { udp: vec![v4, v6], ..HostSettings::default() });
    for (own, scheme) in [("127.0.0.1", "udp4"), ("::1", "udp6")] {
        let own: std::net::IpAddr = own.parse().unwrap();
        let sender = UdpSocket::bind((own, 0)).unwrap();
        sender.send_to(&packet(5, 1), (own, port)).unwrap();
        let (face, _) = rig.receive(1).remove(0);
        let faces = rig.faces.all();
        let made = faces.iter().find(|made| made.id() == face).unwrap();
        assert!(made.remote().to_string().starts_with(scheme), "{}", made.remote());
    }
    rig.finish();
}

#[test]
fn idle_senders_are_forgotten() {
    let settings =
        HostSettings { udp: vec![loopback(0)], idle: Duration::from_millis(1), ..HostSettings::default() };
    let mut rig = Rig::new(settings);
    let sender = UdpSocket::bind(loopback(0)).unwrap();
    sender.send_to(&packet(5, 1), rig.control.udp_addresses()[0]).unwrap();
    rig.receive(1);
    let kept = UdpSocket::bind(loopback(0)).unwrap().local_addr().unwrap();
    let kept = rig.control.connect(FaceUri::Udp(kept), Persistency::Persistent, None).unwrap();
    rig.until("it is forgotten", |rig| rig.faces.all().len() == 1);
    assert_eq!(rig.faces.all()[0].id(), kept.id());
    rig.finish();
}

#[test]
fn a_group_is_one_face() {
    let _alone = GROUP.lock().unwrap_or_else(PoisonError::into_inner);
    let on = vec![MulticastOn::V4(Ipv4Addr::LOCALHOST)];
    let mut rig = Rig::new(HostSettings { multicast: on, ..HostSettings::default() });
    let face = rig.faces.all().remove(0);
    assert_eq!(face.remote().to_string(), "udp4://224.0.23.170:56363");
    assert_eq!((face.link_type(), face.persistency()), (LinkType::MultiAccess, Persistency::Permanent));
    let sender = UdpSocket::bind(loopback(0)).unwrap();
    rustix::net::sockopt::set_ip_multicast_if(&sender, &Ipv4Addr::LOCALHOST).unwrap();
    sender.send_to(&packet(5, 9), (MULTICAST_GROUP, MULTICAST_PORT)).unwrap();
    assert_eq!(rig.receive(1), [(face.id(), packet(5, 9))]);
    rig.send(face.id(), &packet(5, 9));
    assert!(rig.turn().is_empty(), "what we send does not come back");
    assert_eq!(rig.lost(DropReason::TX_ERROR), 0);
    rig.finish();
}

/// Without a route for groups, as on loopback, nothing can be sent to that of IPv6: the integration tests do.
#[test]
fn groups_of_both_families_are_a_face_each() {
    let _alone = GROUP.lock().unwrap_or_else(PoisonError::into_inner);
    let index = rustix::net::netdevice::name_to_index(UdpSocket::bind(loopback(0)).unwrap(), "lo").unwrap();
    let own = Ipv6Addr::LOCALHOST;
    let six = MulticastOn::V6 { index, name: "lo".into(), own };
    let on = vec![MulticastOn::V4(Ipv4Addr::LOCALHOST), six.clone()];
    let mut rig = Rig::new(HostSettings { multicast: on, ..HostSettings::default() });
    let [four, group] = [0, 1].map(|at: usize| rig.faces.all().remove(at));
    assert_eq!(group.remote().to_string(), format!("udp6://[ff02::1234%{index}]:56363"));
    assert_eq!((group.local().to_string(), group.link_type()), ("dev://lo".into(), LinkType::MultiAccess));
    let sender = UdpSocket::bind(loopback(0)).unwrap();
    rustix::net::sockopt::set_ip_multicast_if(&sender, &Ipv4Addr::LOCALHOST).unwrap();
    sender.send_to(&packet(5, 7), (MULTICAST_GROUP, MULTICAST_PORT)).unwrap();
    assert_eq!(rig.receive(1), [(four.id(), packet(5, 7))]);
    assert_eq!(rig.control.groups(), [MulticastOn::V4(Ipv4Addr::LOCALHOST), six]);
    rig.finish();
}

#[test]
fn the_worker_is_woken() {
    let (mut rig, path) = unix("wake");
    let awake = |rig: &Rig| {
        let descriptor = rig.port.readiness().unwrap();
        let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    };
    rig.turn();
    assert!(!awake(&rig) && rig.port.may_sleep());
    let mut client = UnixStream::connect(&path).unwrap();
    assert!(awake(&rig));
    rig.turn();
    rig.turn();
    assert!(!awake(&rig));
    client.write_all(&packet(5, 1)).unwrap();
    assert!(awake(&rig));
    rig.receive(1);
    let remote = FaceUri::Tcp(loopback(1));
    rig.control.connect(remote, Persistency::Permanent, None).unwrap();
    assert!(awake(&rig), "by the control");
    rig.finish();
}

#[test]
fn names_of_sockets_that_nobody_listens_on_are_taken_over() {
    let path = socket_path("stale");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let settings = HostSettings { unix: Some(path.clone()), port: PortId(3), ..HostSettings::default() };
    let rig = Rig::new(settings.clone());
    let error = HostPort::open(settings, &rig.faces).unwrap_err();
    assert!(error.to_string().contains("stale"), "{error}");
    assert!(UnixStream::connect(&path).is_ok(), "who listens keeps the name");
    rig.finish();
}
