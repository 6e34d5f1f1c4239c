//! Ports that are handed over in the middle of a stream, as to another process: a mapping and descriptors of its own; or that are closed
//! for it and opened again. Every packet comes out once, and every frame is in one place.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};

use kaido_engine::port::{SharedXdp, TakeoverError, XdpOptions, XdpPool, XdpPort, XdpState};
use kaido_engine::shared::{Order, SharedPort, SharedQueue};
use kaido_engine::{Batch, Frame, FramePool, FrameSize, PoolCache, Port};
use kaido_xdp::{AttachMode, IpMatch, PortMatch, PortSteering, PortSteeringConfig};
use kaido_xsk::{BindMode, Error};

use crate::rig;
use crate::rig::frame::{eth, is_udp, udp, v4};
use crate::rig::socket::udp_at;
use crate::rig::{Pair, eventually, index, mac, run};

/// Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
const NEAR: [u8; 4] = [10, 77, 0, 1];
const FAR: [u8; 4] = [10, 77, 0, 2];
const FRAMES: usize = 2048;
const ROUNDS: u32 = 20;
/// Packets that wait in the RX ring when a port is handed over.
const WAITING: u32 = 120;

const OPTIONS: XdpOptions = XdpOptions {
    mode: BindMode::Auto,
    need_wakeup: true,
    busy_poll: None,
    multi_buffer: false,
    fill: 256,
    completion: 128,
    rx: 128,
    tx: 128,
    segments_max: 1,
};

/// How the queue is opened.
trait Opened: Port + Sized {
    fn open(xdp: &XdpPool, ifindex: u32) -> Result<Self, Error>;

    /// Has its worker be done with what it has received.
    fn finish(&mut self) {}
}

impl Opened for XdpPort {
    fn open(xdp: &XdpPool, ifindex: u32) -> Result<Self, Error> {
        Self::open(xdp, ifindex, 0, &OPTIONS)
    }
}

impl Opened for SharedPort<SharedXdp> {
    fn open(xdp: &XdpPool, ifindex: u32) -> Result<Self, Error> {
        let device = SharedXdp::open(xdp, ifindex, 0, &OPTIONS)?;
        Ok(SharedQueue::new(device, Order::Free).port())
    }

    fn finish(&mut self) {
        let _ = self.claimed();
    }
}

/// What a process has of a port.
struct Process<P> {
    pool: &'static FramePool,
    xdp: XdpPool,
    port: Option<P>,
    cache: Option<PoolCache>,
}

fn duplicate(fd: &impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

impl<P: Opened> Process<P> {
    fn first() -> Self {
        let pool = FramePool::leak_shared(FrameSize::TwoKib, FRAMES).unwrap();
        let xdp = XdpPool::register(pool).unwrap();
        let port = Some(P::open(&xdp, index("ke-a0")).unwrap());
        let mut first = Self { pool, xdp, port, cache: Some(pool.cache()) };
        // Before the first packet the kernel must have frames to receive into.
        assert!(first.poll().is_empty());
        first
    }

    /// One that is to go on for another, which goes on meanwhile.
    fn next(of: &Self) -> Self {
        let memory = File::from(duplicate(&of.pool.descriptor().unwrap()));
        let pool = FramePool::adopt(memory, FrameSize::TwoKib, FRAMES).unwrap();
        let sockets = of.xdp.sockets().into_iter().map(|(socket, fd)| (socket, duplicate(&fd))).collect();
        let xdp = XdpPool::adopt(pool, sockets).unwrap();
        let mut next = Self { pool, xdp, port: None, cache: Some(pool.cache()) };
        assert_eq!((next.xdp.waiting(index("ke-a0")), next.xdp.unopened().unwrap().queue), (1, 0));
        next.port = Some(P::open(&next.xdp, index("ke-a0")).unwrap());
        assert_eq!(next.xdp.unopened(), None);
        // It does nothing, however it is used.
        assert!(next.poll().is_empty() && next.pool.allocate().is_none());
        assert!(matches!(
            XdpPort::open(&next.xdp, index("ke-a0"), 1, &OPTIONS),
            Err(Error::NotOffered { queue: 1, .. })
        ));
        next
    }

    fn poll(&mut self) -> Vec<Frame> {
        let mut batch = Batch::new();
        let port = self.port.as_mut().unwrap();
        port.receive(self.cache.as_mut().unwrap(), &mut batch);
        port.finish();
        batch.drain(..).collect()
    }

    /// Sends as many as the port takes; the others come back.
    fn transmit(&mut self, frames: Vec<Frame>) -> Vec<Frame> {
        let mut frames = frames.into_iter();
        loop {
            let mut batch = Batch::new();
            let room = batch.remaining_capacity();
            batch.extend(frames.by_ref().take(room));
            let before = batch.len();
            assert_eq!(self.port.as_mut().unwrap().transmit(self.cache.as_mut().unwrap(), &mut batch), 0);
            if before == 0 || batch.len() == before {
                return batch.drain(..).chain(frames).collect();
            }
            frames = batch.drain(..).chain(frames).collect::<Vec<_>>().into_iter();
        }
    }

    /// Closes the port in favour of another.
    fn leave(&mut self) -> Vec<XdpState> {
        self.xdp.leave();
        let open = self.xdp.states();
        assert!(matches!(open, Err(TakeoverError::Open { queue: 0, .. })), "{open:?}");
        (self.port, self.cache) = (None, None);
        let states = self.xdp.states().unwrap();
        let count = |state: &XdpState| assert_eq!((state.filling + state.sending) as usize, state.held.len());
        states.iter().for_each(count);
        let held: usize = states.iter().map(|state| state.held.len()).sum();
        assert_eq!(held + self.pool.free_frames(), FRAMES, "each frame is in one place");
        states
    }

    /// Goes on after all.
    fn stay(&mut self) {
        self.xdp.stay();
        self.cache = Some(self.pool.cache());
        self.port = Some(P::open(&self.xdp, index("ke-a0")).unwrap());
    }

    /// Goes on for the other.
    fn take_in(&mut self, states: &[XdpState]) {
        (self.port, self.cache) = (None, Some(self.pool.cache()));
        let others = vec![XdpState { id: 1, ..states[0].clone() }];
        let outside = vec![XdpState { held: vec![u32::try_from(FRAMES).unwrap()], ..states[0].clone() }];
        let held = states.iter().flat_map(|state| state.held.iter().copied());
        // SAFETY: the other process has closed its port, and these are its states; of others nothing is taken.
        unsafe {
            for wrong in [vec![], others] {
                let refused = self.xdp.take_in(wrong);
                assert!(matches!(refused, Err(TakeoverError::OtherSocket { queue: 0, .. })), "{refused:?}");
            }
            assert!(matches!(self.xdp.take_in(outside), Err(TakeoverError::Frame(_))));
            let more = [states, &[XdpState::default()]].concat();
            assert_eq!(self.xdp.take_in(more), Err(TakeoverError::UnknownSocket));
            self.pool.take_in(held).unwrap();
            self.xdp.take_in(states.to_vec()).unwrap();
        }
        self.port = Some(P::open(&self.xdp, index("ke-a0")).unwrap());
    }
}

/// The far end: numbers go to the port, and come back from it.
struct Numbers {
    from: UdpSocket,
    to: UdpSocket,
    sent: u32,
    received: u32,
}

impl Numbers {
    fn send(&mut self, count: u32) {
        for number in self.sent..self.sent + count {
            self.from.send_to(&number.to_be_bytes(), "10.77.0.1:2152").unwrap();
        }
        self.sent += count;
    }

    /// Takes what has come back, which is in order.
    fn take(&mut self) {
        let mut payload = [0; 64];
        while let Ok(len) = self.to.recv(&mut payload) {
            assert_eq!(payload[..len], self.received.to_be_bytes());
            self.received += 1;
        }
    }
}

/// Puts new headers in front of the payload, where it lies.
fn redirect(frame: &mut Frame, headers: &[u8]) {
    assert!(is_udp(frame.data(), 2152) && frame.strip(HEADERS));
    frame.prepend(HEADERS).unwrap()[..HEADERS].copy_from_slice(&headers[..HEADERS]);
}

/// Has a batch of what comes sent back to port 5000; how many there were.
fn answer<P: Opened>(process: &mut Process<P>, headers: &[u8], ready: &mut Vec<Frame>) -> usize {
    let arrived = process.poll();
    let count = arrived.len();
    for mut frame in arrived {
        redirect(&mut frame, headers);
        ready.push(frame);
    }
    *ready = process.transmit(std::mem::take(ready));
    count
}

/// The steering program on the near end, which has the socket whoever works it.
fn steer(socket: &impl AsFd) -> PortSteering {
    let matches =
        PortMatch { ethertype: None, ip: Some(IpMatch::Udp { port: 2152 }), routed: false, all: false };
    let config = PortSteeringConfig { matches, mac: mac("ke-a0"), multi_buffer: false };
    let mut steering = PortSteering::load(config).unwrap();
    steering.set_addresses(&["10.77.0.1".parse().unwrap()]).unwrap();
    steering.register_socket(0, socket.as_fd()).unwrap();
    steering.attach_to(index("ke-a0"), AttachMode::Native).unwrap();
    steering
}

/// Packets that the kernel has brought to the near end so far.
fn brought() -> u64 {
    let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let near = devices.lines().find_map(|line| line.trim().strip_prefix("ke-a0:")).unwrap();
    // Octets, then packets.
    near.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn take_over<P: Opened>(pair: &Pair) {
    let (far, near) = (pair.far_mac("ke-b0"), mac("ke-a0"));
    let near_mac = near.map(|octet| format!("{octet:02x}")).join(":");
    // Beside the kernel's own discovery, which a link that is down would start again.
    pair.far(|| run(&format!("ip neigh replace 10.77.0.1 lladdr {near_mac} dev ke-b0")));
    let headers = eth(far, near, 0x0800, &v4(NEAR, FAR, 17, &udp(5000, &[0; 4])));
    let (from, to) = pair.far(|| (udp_at("10.77.0.2:0"), udp_at("10.77.0.2:5000")));
    to.set_nonblocking(true).unwrap();
    let mut numbers = Numbers { from, to, sent: 0, received: 0 };
    let mut process = Process::<P>::first();
    let mut steering = steer(&process.xdp.sockets()[0].1);
    for round in 0..ROUNDS {
        let mut ready = Vec::new();
        let mut all = |process: &mut Process<P>, numbers: &mut Numbers| {
            eventually("all packets", || {
                answer(process, &headers, &mut ready);
                numbers.take();
                (numbers.received == numbers.sent).then_some(())
            });
        };
        numbers.send(40);
        all(&mut process, &mut numbers);
        // Some wait to be received. A link that goes down drops those that the kernel has yet to bring.
        let before = brought();
        numbers.send(WAITING);
        eventually("what was sent", || (brought() >= before + u64::from(WAITING)).then_some(()));
        let is_down = round % 2 == 0;
        if is_down {
            // Some were received, and wait to be sent.
            run("ip link set ke-a0 down");
            let mut ready = Vec::new();
            assert!(answer(&mut process, &headers, &mut ready) > 0 && ready.is_empty());
        }
        let mut next = Process::next(&process);
        if round % 3 == 0 {
            // It fails, and another is tried.
            process.leave();
            process.stay();
            next = Process::next(&process);
        }
        let states = process.leave();
        assert!(states.len() == 1 && (states[0].sending > 0 || !is_down), "{states:?}");
        next.take_in(&states);
        process = next;
        let mut ready = Vec::new();
        if is_down {
            run("ip link set ke-a0 up");
            // What waited is sent though nothing else is.
            let before = numbers.received;
            eventually("what waited to be sent", || {
                ready.extend(process.poll());
                numbers.take();
                (numbers.received > before).then_some(())
            });
            assert!(!ready.is_empty());
            for frame in &mut ready {
                redirect(frame, &headers);
            }
            ready = process.transmit(ready);
        }
        assert!(is_down || answer(&mut process, &headers, &mut ready) > 0, "what waited is received");
        numbers.send(20);
        all(&mut process, &mut numbers);
    }
    assert_eq!(numbers.received, ROUNDS * (60 + WAITING));
    assert_eq!(process.xdp.sockets().len(), 1);
    steering.detach().unwrap();
    (process.port, process.cache) = (None, None);
    assert_eq!(process.pool.free_frames(), FRAMES);
}

#[test]
fn a_port_is_taken_over_without_loss() {
    if rig::is_root("a_port_is_taken_over_without_loss") {
        Pair::run(1, 1500, take_over::<XdpPort>);
    }
}

#[test]
fn a_shared_queue_is_taken_over_without_loss() {
    if rig::is_root("a_shared_queue_is_taken_over_without_loss") {
        Pair::run(1, 1500, take_over::<SharedPort<SharedXdp>>);
    }
}
