//! A gNB whose UEs are TUN devices, each with a delay in both directions: the kernel's TCP over a long path, on machines
//! whose kernel has no `netem`. `python -m rig.ambr` measures with it.
//!
//! ```text
//!   ue0 (TUN), 1 ms  ─┐
//!   ue1 (TUN), 50 ms ─┼─▶ uplink delay line ─▶ UDP 2152 ─▶ UPF
//!                     └◀─ downlink delay line ◀─┘
//! ```
//!
//! `delayed_ran GNB UPF` reads a line `NAME ADDRESS UPLINK_TEID DOWNLINK_TEID DELAY_US MTU` for each UE from stdin, then an
//! empty line. It prints `ready`, runs until stdin ends, and prints how many packets it dropped.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::io::{BufRead, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kaido_engine::port::{DatagramRooms, Layer, Tun};
use kaido_wire::MessageType;
use kaido_wire::gtpu::{self, GtpuRepr, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

/// Octets of the GTP-U header before an uplink packet, and of the longest packet.
const HEADER: usize = gtpu::HEADER_LEN;
const PACKET_MAX: usize = 2048;
/// Packets that are read from one source before the next is polled.
const BURST: usize = 32;
/// Most octets in a delay line.
const OCTETS_MAX: usize = 256 << 20;
const SOCKET_BUFFER: usize = 64 << 20;
/// Longest sleep, after which a thread checks whether it shall end.
const SLEEP_MAX: Duration = Duration::from_millis(50);

struct Ue {
    tun: Tun,
    address: Ipv4Addr,
    uplink_teid: u32,
    downlink_teid: u32,
    delay: Duration,
}

/// A packet in a delay line, and the index of its UE.
struct Delayed {
    due: Instant,
    ue: usize,
    octets: Vec<u8>,
}

/// A queue for each delay; the packets of a queue leave in the order of their arrival.
#[derive(Default)]
struct DelayLine {
    queues: BTreeMap<Duration, VecDeque<Delayed>>,
    spare: Vec<Vec<u8>>,
    octets: usize,
    dropped: u64,
}

impl DelayLine {
    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn push(&mut self, now: Instant, delay: Duration, ue: usize, octets: Vec<u8>) {
        if self.octets + octets.len() > OCTETS_MAX {
            self.dropped += 1;
            return self.spare.push(octets);
        }
        self.octets += octets.len();
        self.queues.entry(delay).or_default().push_back(Delayed { due: now + delay, ue, octets });
    }

    fn pop(&mut self, now: Instant) -> Option<Delayed> {
        let queue =
            self.queues.values_mut().find(|queue| queue.front().is_some_and(|first| first.due <= now))?;
        let packet = queue.pop_front()?;
        self.octets -= packet.octets.len();
        Some(packet)
    }

    /// Sleeps until a packet arrives at `polled` or one is due.
    fn wait(&self, polled: &mut [PollFd<'_>]) {
        let due = self.queues.values().filter_map(|queue| queue.front()).map(|first| first.due).min();
        let wait = due.map_or(SLEEP_MAX, |due| due.saturating_duration_since(Instant::now())).min(SLEEP_MAX);
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        // An interrupted wait is only a shorter one.
        let _ = poll(polled, Some(&wait));
    }
}

fn polled(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// From the devices into the tunnels. Returns how many packets were dropped.
fn uplink(ues: &[Ue], socket: &UdpSocket, upf: SocketAddr, ends: &AtomicBool) -> u64 {
    let mut line = DelayLine::default();
    let mut fds: Vec<_> = ues.iter().map(|ue| polled(ue.tun.as_fd())).collect();
    while !ends.load(Ordering::Relaxed) {
        line.wait(&mut fds);
        for (index, (ue, _)) in
            ues.iter().zip(&fds).enumerate().filter(|(_, (_, fd))| !fd.revents().is_empty())
        {
            for _ in 0..BURST {
                let mut octets = line.buffer();
                octets.resize(HEADER + PACKET_MAX, 0);
                let Ok(len) = ue.tun.read(&mut octets[HEADER..]) else {
                    line.spare.push(octets);
                    break;
                };
                octets.truncate(HEADER + len);
                // The kernel's own packets, as router solicitations, have another source.
                let is_own = octets.get(HEADER + 12..HEADER + 16) == Some(&ue.address.octets());
                let payload = u16::try_from(len).ok().filter(|_| is_own);
                let emitted = payload.map(|len| GtpuRepr::g_pdu(ue.uplink_teid, len).emit(&mut octets));
                match emitted {
                    Some(Ok(_)) => line.push(Instant::now(), ue.delay, index, octets),
                    _ => line.spare.push(octets),
                }
            }
        }
        while let Some(packet) = line.pop(Instant::now()) {
            line.dropped += u64::from(socket.send_to(&packet.octets, upf).is_err());
            line.spare.push(packet.octets);
        }
    }
    line.dropped
}

/// Out of the tunnels to the devices. Returns how many packets were dropped.
fn downlink(ues: &[Ue], socket: &UdpSocket, ends: &AtomicBool) -> u64 {
    let indices: BTreeMap<u32, usize> = ues.iter().enumerate().map(|(n, ue)| (ue.downlink_teid, n)).collect();
    let mut line = DelayLine::default();
    let mut rooms = DatagramRooms::new(HEADER + PACKET_MAX);
    while !ends.load(Ordering::Relaxed) {
        line.wait(&mut [polled(socket.as_fd())]);
        if rooms.receive(socket, BURST).is_ok() {
            let now = Instant::now();
            for (from, datagram) in rooms.datagrams() {
                let Ok(header) = gtpu::header(datagram) else { continue };
                if header.message_type == MessageType::ECHO_REQUEST {
                    line.dropped += u64::from(
                        answer_echo(datagram).is_none_or(|response| socket.send_to(&response, from).is_err()),
                    );
                }
                let payload = datagram.get(header.payload_offset.into()..);
                let (Some(&index), Some(payload)) = (indices.get(&header.teid), payload) else { continue };
                let mut octets = line.buffer();
                octets.clear();
                octets.extend_from_slice(payload);
                line.push(now, ues[index].delay, index, octets);
            }
        }
        while let Some(packet) = line.pop(Instant::now()) {
            line.dropped += u64::from(ues[packet.ue].tun.write(&packet.octets).is_err());
            line.spare.push(packet.octets);
        }
    }
    line.dropped
}

/// The response to an echo request.
fn answer_echo(request: &[u8]) -> Option<Vec<u8>> {
    let Ok(Message::EchoRequest { sequence, .. }) = Message::parse(request) else { return None };
    let response = Message::EchoResponse { sequence, recovery: 0, restarted: None };
    let mut octets = vec![0; response.len()];
    response.emit(&mut octets).ok()?;
    Some(octets)
}

fn attach(line: &str) -> Result<Ue, Box<dyn Error>> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let [name, address, uplink_teid, downlink_teid, delay_us, mtu] = fields[..] else {
        return Err(format!("not a UE: {line}").into());
    };
    let tun = Tun::create(name, Layer::Ip)?;
    tun.set_mtu(mtu.parse()?)?;
    let address = address.parse()?;
    tun.add_address(IpAddr::V4(address), 32)?;
    tun.set_up()?;
    let delay = Duration::from_micros(delay_us.parse()?);
    Ok(Ue { tun, address, uplink_teid: uplink_teid.parse()?, downlink_teid: downlink_teid.parse()?, delay })
}

fn main() -> Result<(), Box<dyn Error>> {
    let addresses: Vec<IpAddr> =
        std::env::args().skip(1).map(|given| given.parse()).collect::<Result<_, _>>()?;
    let [gnb, upf] = addresses[..] else { return Err("usage: delayed_ran GNB UPF".into()) };
    let socket = UdpSocket::bind((gnb, gtpu::UDP_PORT))?;
    let upf = SocketAddr::from((upf, gtpu::UDP_PORT));
    sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER)?;
    sockopt::set_socket_send_buffer_size_force(&socket, SOCKET_BUFFER)?;
    let mut input = std::io::stdin().lock();
    let mut ues = Vec::new();
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? <= 1 {
            break;
        }
        ues.push(attach(&line)?);
    }
    println!("ready");
    let (ends, dropped) = (AtomicBool::new(false), AtomicU64::new(0));
    let count = |packets| dropped.fetch_add(packets, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| count(uplink(&ues, &socket, upf, &ends)));
        scope.spawn(|| count(downlink(&ues, &socket, &ends)));
        // The end of stdin ends the run.
        let _ = input.read_to_end(&mut Vec::new());
        ends.store(true, Ordering::Relaxed);
    });
    println!("dropped {}", dropped.load(Ordering::Relaxed));
    Ok(())
}
