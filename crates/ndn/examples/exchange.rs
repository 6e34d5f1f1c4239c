//! What an exchange of an Interest and its Data costs the router, over Unix sockets or UDP, with so many Interests under way.
//!
//! ```text
//!  consumer ─Interest─▶ router ─Interest─▶ producer         cargo run --release -p kaido-ndn --example exchange [udp]
//!           ◀──Data────        ◀──Data────
//! ```
//! Consumer and producer look at nothing they need not; what is counted is the time on the processor of the router's worker
//! alone, as the kernel says. A number among the arguments is one of routes beside the one that is used.

// An example: what fails ends it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kaido_engine::{FramePool, KernelPath, Worker, WorkerSettings};
use kaido_ndn::cs::CsSettings;
use kaido_ndn::face::{FaceUri, Faces, Persistency};
use kaido_ndn::forward::{Forwarder, ForwarderSettings, SharedTables, Unsolicited};
use kaido_ndn::host::{HostPort, HostSettings};
use kaido_ndn::link::{Link, LinkSettings, PortKind};
use kaido_ndn::router::{ControlMailbox, Ndn};
use kaido_ndn_tables::{FaceId, Hop, NameHash, PitSettings};
use kaido_wire::ndn::{DataRepr, InterestRepr, LpHeader, LpPacket, Name, name_from_uri, tlv};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

/// How long each window is measured.
const MEASURED: Duration = Duration::from_secs(2);

fn main() {
    let siblings: u32 = std::env::args().find_map(|number| number.parse().ok()).unwrap_or(0);
    let is_udp = std::env::args().any(|word| word == "udp");
    let path = std::env::temp_dir().join(format!("kaido-exchange-{}.sock", std::process::id()));
    let faces = Faces::new(16);
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let settings = HostSettings { unix: Some(path.clone()), udp: vec![loopback], ..HostSettings::default() };
    let (port, host) = HostPort::open(settings, &faces).unwrap();
    let shared = SharedTables::new(NameHash::random(), siblings.max(1) * 2 + 1024).unwrap();
    let settings = ForwarderSettings {
        pit: PitSettings::for_entries(16_384, 0),
        cs: CsSettings { packets: 0, octets: 0 },
        dead_nonces: 1 << 20,
        measured_prefixes: 1024,
        unsolicited: Unsolicited::Drop,
    };
    let link = LinkSettings { ports: vec![PortKind::Host], ..LinkSettings::default() };
    let forwarder = Forwarder::new(&shared, &settings, Instant::now()).unwrap();
    let ndn = Ndn::new(Link::new(link, &faces), forwarder, Arc::new(ControlMailbox::new()));
    let pool = FramePool::leak(16_384).unwrap();
    let ports: Vec<(Box<dyn kaido_engine::Port>, KernelPath)> = vec![(Box::new(port), KernelPath::None)];
    let worker = Worker::new(pool, ports, Box::new(ndn), WorkerSettings::default());
    let stop = Arc::new(AtomicBool::new(false));
    let worker = worker.spawn("router".into(), stop.clone()).unwrap();

    let router = host.udp_addresses()[0];
    let connect = || match is_udp {
        true => Line::datagrams(router),
        false => Line::Stream(UnixStream::connect(&path).unwrap()),
    };
    let producer = connect();
    if let Line::Datagrams(socket) = &producer {
        let remote = FaceUri::Udp(socket.local_addr().unwrap());
        host.connect(remote, Persistency::Permanent, None).unwrap();
    }
    let hop = Hop { face: face_of_first(&faces), cost: 1 };
    shared.fib().add(&name_from_uri("/bench").unwrap(), hop).unwrap();
    for sibling in 0..siblings {
        shared.fib().add(&name_from_uri(&format!("/bench/{sibling}")).unwrap(), hop).unwrap();
    }
    std::thread::spawn(move || produce(producer));
    println!("{siblings} routes beside; window, exchanges/s, us on the processor per exchange");
    for window in [1, 8, 64, 256] {
        let (exchanges, took, cpu) = measure(connect(), window);
        let each = cpu.as_secs_f64() * 1e6 / f64::from(exchanges);
        println!("{window:6} {:12.0} {each:10.2}", f64::from(exchanges) / took.as_secs_f64());
    }
    stop.store(true, Ordering::Relaxed);
    host.wake();
    assert!(worker.join());
}

/// A way to the router.
enum Line {
    Stream(UnixStream),
    Datagrams(UdpSocket),
}

impl Line {
    fn datagrams(router: SocketAddr) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(router).unwrap();
        // What is lost is waited for in vain.
        let _ = set_socket_recv_buffer_size_force(&socket, 8 << 20);
        Self::Datagrams(socket)
    }

    /// Sends packets that lie one behind the other.
    fn send(&mut self, packets: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Stream(socket) => socket.write_all(packets),
            Self::Datagrams(socket) => {
                let mut rest = packets;
                while let Ok(header) = tlv::header(rest) {
                    let (packet, behind) = rest.split_at(header.element_len());
                    socket.send(packet)?;
                    rest = behind;
                }
                Ok(())
            }
        }
    }

    fn receive(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Stream(socket) => socket.read(room),
            Self::Datagrams(socket) => receive_all(socket, room),
        }
    }
}

/// Waits for a datagram, and takes those that have come behind it.
fn receive_all(socket: &UdpSocket, room: &mut [u8]) -> std::io::Result<usize> {
    let mut len = socket.recv(room)?;
    socket.set_nonblocking(true)?;
    while room.len() - len > 10_000
        && let Ok(more) = socket.recv(&mut room[len..])
    {
        len += more;
    }
    socket.set_nonblocking(false)?;
    Ok(len)
}

/// The face of who has connected first.
fn face_of_first(faces: &Faces) -> FaceId {
    loop {
        if let Some(face) = faces.all().first() {
            return face.id();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The time that the router's worker was on a processor.
fn worker_time() -> Duration {
    let of_worker =
        |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "router");
    let mut tasks = fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    let said = fs::read_to_string(tasks.find(of_worker).expect("the worker runs").join("schedstat")).unwrap();
    Duration::from_nanos(said.split_whitespace().next().unwrap().parse().unwrap())
}

/// Keeps `window` Interests under way; exchanges, how long they took, and the router's time.
fn measure(mut line: Line, window: u32) -> (u32, Duration, Duration) {
    let mut buffer = vec![0; 1 << 18];
    let (mut under_way, mut received, mut kept) = (0, 0, 0);
    // The names of one window are not those of another.
    let mut number = window << 22;
    let mut interests = Vec::new();
    let (mut began, mut cpu, mut is_warm) = (Instant::now(), worker_time(), false);
    loop {
        interests.clear();
        while under_way < window {
            interest(number, &mut interests);
            number += 1;
            under_way += 1;
        }
        line.send(&interests).unwrap();
        let len = line.receive(&mut buffer[kept..]).unwrap();
        assert!(len > 0, "the router is gone");
        let all = kept + len;
        let (packets, rest) = count(&buffer[..all]);
        received += packets;
        under_way -= packets;
        buffer.copy_within(all - rest..all, 0);
        kept = rest;
        if !is_warm && began.elapsed() > MEASURED / 4 {
            (is_warm, began, cpu, received) = (true, Instant::now(), worker_time(), 0);
        } else if is_warm && began.elapsed() > MEASURED {
            return (received, began.elapsed(), worker_time() - cpu);
        }
    }
}

fn interest(number: u32, into: &mut Vec<u8>) {
    let name = name_from_uri(&format!("/bench/data/segment/{number}")).unwrap();
    let name = Name::new(&name).unwrap();
    let repr = InterestRepr { name, nonce: Some(number), ..InterestRepr::default() };
    let at = into.len();
    into.resize(at + repr.len(), 0);
    repr.emit(&mut into[at..]).unwrap();
}

/// Packets of the link that are whole, and the octets behind them.
fn count(mut octets: &[u8]) -> (u32, usize) {
    let mut packets = 0;
    while let Ok(header) = tlv::header(octets) {
        let Some(rest) = octets.get(header.element_len()..) else { break };
        octets = rest;
        packets += 1;
    }
    (packets, octets.len())
}

/// Answers every Interest.
fn produce(mut line: Line) {
    let mut buffer = vec![0; 1 << 18];
    let (mut kept, mut answers) = (0, Vec::new());
    loop {
        let Ok(len @ 1..) = line.receive(&mut buffer[kept..]) else { return };
        let all = kept + len;
        let mut rest = &buffer[..all];
        answers.clear();
        while let Ok(header) = tlv::header(rest)
            && let Some((packet, behind)) = rest.split_at_checked(header.element_len())
        {
            answer(packet, &mut answers);
            rest = behind;
        }
        kept = rest.len();
        buffer.copy_within(all - kept..all, 0);
        if line.send(&answers).is_err() {
            return;
        }
    }
}

/// The Data for an Interest: 1000 octets under its name, with its token.
fn answer(packet: &[u8], into: &mut Vec<u8>) {
    const CONTENT: [u8; 1000] = [7; 1000];
    let link = LpPacket::parse(packet, packet.len()).unwrap();
    let interest = &packet[link.fragment_at..];
    let (name, _) = Name::parse(&interest[tlv::header(interest).unwrap().header_len..]).unwrap();
    let data = DataRepr { name, content: &CONTENT, ..DataRepr::default() };
    let said = LpHeader { pit_token: link.header.pit_token, ..LpHeader::default() };
    let at = into.len();
    let head = said.len(data.len());
    into.resize(at + head + data.len(), 0);
    said.emit(data.len(), &mut into[at..]).unwrap();
    data.emit(&mut into[at + head..]).unwrap();
}
