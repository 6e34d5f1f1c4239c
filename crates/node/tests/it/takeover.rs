//! A node's ports that another takes over, or that goes on itself, while packets come: one of each driver, with workers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::io::{self, BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;

use kaido_engine::netlink::{self, Interface};
use kaido_engine::{Batch, FramePool, FrameSize, Function, KernelPath, Output, PortId};
use kaido_node::StartFault;
use kaido_node::config::{Base, PortConfig};
use kaido_node::ports::{Interfaces, OpenPorts, PortRequirements};
use kaido_node::takeover::{PortsOffer, PortsState, Takeover, TakeoverFault};
use kaido_node::worker_set::WorkerSet;
use kaido_xdp::{IpMatch, PortMatch, PortSteering, PortSteeringConfig};

use crate::rig::frame::{eth, is_udp, udp, v4};
use crate::rig::socket::udp_at;
use crate::rig::{Pair, eventually, is_root, mac, run};

/// Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
const FRAMES: u32 = 4096;
const ROUNDS: u32 = 20;
/// Packets that are sent to each port before, during and after.
const BURST: u32 = 50;

/// Not one of the numbers.
const NONE: [u8; 4] = [0xff; 4];

const CONFIG: &str = r#"
[node]
frames = 4096
workers = 1

[[port]]
name = "n3"
driver = "af_xdp"
interface = "ke-a0"

[[port]]
name = "n9"
driver = "af_packet"
interface = "ke-a1"

[[port]]
name = "n6"
driver = "tap"
interface = "ke-tap"
addresses = ["10.77.2.2/24"]
"#;

/// Takes GTP-U.
struct Needs;

impl PortRequirements for Needs {
    type Program = PortSteering;

    fn program(
        &self,
        _at: usize,
        interface: &Interface,
        multi_buffer: bool,
    ) -> Result<PortSteering, kaido_xdp::Error> {
        let ip = Some(IpMatch::Udp { port: 2152 });
        let matches = PortMatch { ethertype: None, ip, routed: false, all: false };
        let mut steering =
            PortSteering::load(PortSteeringConfig { matches, mac: interface.mac, multi_buffer })?;
        steering.set_addresses(&["10.77.0.1".parse().unwrap()])?;
        Ok(steering)
    }

    fn kernel_path(&self) -> KernelPath {
        KernelPath::Shared
    }
}

/// Sends what comes back to UDP port 5000, by headers for each port.
struct Answer(Vec<Vec<u8>>);

impl Function for Answer {
    fn name(&self) -> &'static str {
        "answer"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        for mut frame in batch.drain(..) {
            if !is_udp(frame.data(), 2152) {
                out.to_kernel(port, frame);
                continue;
            }
            let headers = &self.0[port.index()];
            assert!(frame.strip(HEADERS));
            frame.prepend(HEADERS).unwrap()[..HEADERS].copy_from_slice(headers);
            out.transmit(port, frame);
        }
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

/// A process.
struct Node {
    base: Base,
    takeover: Arc<Takeover>,
    pool: &'static FramePool,
    ports: OpenPorts<PortSteering>,
    headers: Vec<Vec<u8>>,
    workers: Option<WorkerSet>,
}

fn open(config: &str, takeover: Takeover) -> Result<Node, String> {
    let said = |fault: StartFault| fault.to_string();
    let base: Base = toml::from_str(config).unwrap();
    let takeover = Arc::new(takeover);
    let frames = (FrameSize::TwoKib, base.node.frame_bytes.is_some());
    let pool =
        takeover.frames(frames, *base.node.frames.get_ref(), true).map_err(|fault| fault.to_string())?;
    let takes_all = |_: &PortConfig| false;
    let found = Interfaces::look(&base, pool, &takeover, takes_all).map_err(said)?;
    let ports = OpenPorts::open(found, pool, &mut Needs, takes_all).map_err(said)?;
    takeover.check().map_err(|fault| fault.to_string())?;
    Ok(Node { base, takeover, pool, ports, headers: Vec::new(), workers: None })
}

impl Node {
    fn start(&mut self) {
        let queues = self.ports.take_queues();
        let answer = || Ok(Box::new(Answer(self.headers.clone())) as Box<dyn Function>);
        let workers = WorkerSet::start(&self.base, 0, self.pool, queues, None, answer).unwrap();
        self.ports.watch(workers.inboxes(), None).unwrap();
        self.workers = Some(workers);
    }

    /// What it offers, as it comes to another process.
    fn offer(&self) -> (PortsOffer, Vec<OwnedFd>) {
        let (offer, descriptors) = self.takeover.offer().unwrap();
        (serde_json::from_str(&serde_json::to_string(&offer).unwrap()).unwrap(), descriptors)
    }

    fn leave(&mut self) -> PortsState {
        let workers = self.workers.take().unwrap();
        self.ports.leave(&workers.inboxes()).unwrap();
        assert!(workers.stop());
        let states = self.takeover.states().unwrap();
        assert_eq!(self.takeover.frames_in_use(&states), 0);
        let frame = self.pool.allocate();
        assert_eq!(self.takeover.frames_in_use(&states), frame.iter().count());
        drop(frame);
        serde_json::from_str(&serde_json::to_string(&states).unwrap()).unwrap()
    }

    fn reopen(&mut self) {
        self.ports.reopen().unwrap();
        self.start();
    }
}

/// Numbers that go to a port and come back.
struct Numbers {
    from: UdpSocket,
    to: UdpSocket,
    at: &'static str,
    sent: u32,
    received: u32,
}

impl Numbers {
    fn new(from: UdpSocket, to: UdpSocket, at: &'static str) -> Self {
        to.set_nonblocking(true).unwrap();
        Self { from, to, at, sent: 0, received: 0 }
    }

    fn send(&mut self) {
        for number in self.sent..self.sent + BURST {
            self.from.send_to(&number.to_be_bytes(), self.at).unwrap();
        }
        self.sent += BURST;
    }

    /// Takes what has come back, each once and in order; whether all has.
    fn take(&mut self) -> bool {
        let mut payload = [0; 64];
        while let Ok(len) = self.to.recv(&mut payload) {
            if payload[..len] == NONE {
                continue;
            }
            assert_eq!(payload[..len], self.received.to_be_bytes(), "{}", self.at);
            self.received += 1;
        }
        self.received == self.sent
    }
}

fn hex(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// The far ends, and the headers by which packets come back to them, by port.
struct Streams {
    numbers: Vec<Numbers>,
    headers: Vec<Vec<u8>>,
    /// The kernel would refuse what the packet socket has too.
    _sink: UdpSocket,
}

impl Streams {
    /// To ports of [`CONFIG`], or the first of them.
    fn new(pair: &Pair, ports: usize) -> Self {
        for link in 0..2 {
            let own = hex(mac(&format!("ke-a{link}")));
            pair.far(|| run(&format!("ip neigh replace 10.77.{link}.1 lladdr {own} dev ke-b{link}")));
        }
        let headers = |to, from, link: u8| {
            let packet = v4([10, 77, link, 1], [10, 77, link, 2], 17, &udp(5000, &[0; 4]));
            eth(to, from, 0x0800, &packet)[..HEADERS].to_vec()
        };
        let far = |from: &str, to: &str, at| pair.far(|| Numbers::new(udp_at(from), udp_at(to), at));
        let mut numbers = vec![far("10.77.0.2:0", "10.77.0.2:5000", "10.77.0.1:2152")];
        let mut all = vec![headers(pair.far_mac("ke-b0"), mac("ke-a0"), 0)];
        if ports > 1 {
            let tap = [2, 0, 0, 0, 0, 9];
            run(&format!("ip neigh replace 10.77.2.1 lladdr {} dev ke-tap", hex(tap)));
            numbers.push(far("10.77.1.2:0", "10.77.1.2:5000", "10.77.1.1:2152"));
            numbers.push(Numbers::new(udp_at("10.77.2.2:0"), udp_at("10.77.2.2:5000"), "10.77.2.1:2152"));
            all.push(headers(pair.far_mac("ke-b1"), mac("ke-a1"), 1));
            all.push(headers(mac("ke-tap"), tap, 2));
        }
        Self { numbers, headers: all, _sink: udp_at("10.77.1.1:2152") }
    }

    /// Waits until there are frames to receive into, and the program.
    fn begin(&self) {
        eventually("a packet through AF_XDP", || {
            self.numbers[0].from.send_to(&NONE, self.numbers[0].at).unwrap();
            self.numbers[0].to.recv(&mut [0; 64]).ok()
        });
    }

    fn send(&mut self) {
        self.numbers.iter_mut().for_each(Numbers::send);
    }

    fn check(&mut self) {
        eventually("all packets", || {
            // Not `all`: each is read.
            let whole = self.numbers.iter_mut().filter_map(|of| of.take().then_some(())).count();
            (whole == self.numbers.len()).then_some(())
        });
    }
}

/// Has nodes of a configuration take over from each other while packets come.
fn take_over(pair: &Pair, config: &str) {
    let mut node = open(config, Takeover::default()).unwrap();
    let mut streams = Streams::new(pair, node.base.ports.len());
    node.headers.clone_from(&streams.headers);
    node.start();
    node.ports.attach().unwrap();
    streams.begin();
    // The program of the first stays: whose turn it is to work the sockets is nothing to it.
    let mut first = None;
    for round in 0..ROUNDS {
        streams.send();
        let (offer, descriptors) = node.offer();
        let mut next = open(config, Takeover::of(offer, descriptors).unwrap()).unwrap();
        next.headers.clone_from(&streams.headers);
        assert!(matches!(node.takeover.states(), Err(TakeoverFault::Sockets(_))), "its ports are open");
        let state = node.leave();
        streams.send();
        if round % 3 == 0 {
            // It fails: the node goes on.
            drop(next);
            node.reopen();
        } else {
            next.takeover.take_in(state).unwrap();
            next.reopen();
            first.get_or_insert(std::mem::replace(&mut node, next));
        }
        streams.send();
        streams.check();
    }
    let state = node.leave();
    assert_eq!(state.frames() + node.pool.free_frames(), FRAMES as usize);
}

#[test]
fn a_node_takes_over_from_another_without_loss() {
    if !is_root("a_node_takes_over_from_another_without_loss") {
        return;
    }
    Pair::run(2, 1500, |pair| {
        take_over(pair, CONFIG);
        eventually("its last descriptor is gone", || netlink::interface("ke-tap").is_err().then_some(()));
    });
}

/// What the other process is given: descriptors and an offer.
const OFFER: &str = "KAIDO_TEST_OFFER";

/// Says something from the other process to the first.
fn say(what: &str) {
    println!("takeover: {what}");
}

/// Waits for what the other process says.
fn hear(from: &mut impl BufRead) -> String {
    let mut lines = from.lines().map_while(Result::ok);
    let said = lines.find_map(|line| line.strip_prefix("takeover: ").map(str::to_owned));
    said.expect("the other process has ended")
}

/// The other process: takes over, and runs until it is told to end.
fn other_process(given: &str) {
    let (numbers, given) = given.split_once(' ').unwrap();
    let (offer, headers) = serde_json::from_str(given).unwrap();
    let own = |number: &str| {
        // SAFETY: inherited for this, and nobody else's here.
        unsafe { OwnedFd::from_raw_fd(number.parse().unwrap()) }
    };
    let descriptors = numbers.split(',').map(own).collect();
    let mut node = open(CONFIG, Takeover::of(offer, descriptors).unwrap()).unwrap();
    node.headers = headers;
    say("open");
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    node.takeover.take_in(serde_json::from_str(&line).unwrap()).unwrap();
    node.reopen();
    say("running");
    io::stdin().read_line(&mut line).unwrap();
    let held = node.leave().frames();
    say(&(held + node.pool.free_frames()).to_string());
}

#[test]
fn another_process_takes_over_without_loss() {
    if let Ok(given) = std::env::var(OFFER) {
        return other_process(&given);
    }
    if !is_root("another_process_takes_over_without_loss") {
        return;
    }
    Pair::run(2, 1500, |pair| {
        let mut node = open(CONFIG, Takeover::default()).unwrap();
        let mut streams = Streams::new(pair, 3);
        node.headers.clone_from(&streams.headers);
        node.start();
        node.ports.attach().unwrap();
        streams.begin();
        streams.send();
        let (offer, descriptors) = node.offer();
        let given = serde_json::to_string(&(offer, &streams.headers)).unwrap();
        let inherited = descriptors.iter().map(|fd| {
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).unwrap();
            fd.as_raw_fd().to_string()
        });
        let numbers = inherited.collect::<Vec<_>>().join(",");
        let mut other = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "takeover::another_process_takes_over_without_loss"])
            .env(OFFER, format!("{numbers} {given}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, mut from) = (other.stdin.take().unwrap(), BufReader::new(other.stdout.take().unwrap()));
        assert_eq!(hear(&mut from), "open");
        drop(descriptors);
        let state = node.leave();
        // Nothing of the ports is left here but the program that gives the sockets their packets.
        let _programs = node.ports.programs().clone();
        drop(node);
        streams.send();
        writeln!(to, "{}", serde_json::to_string(&state).unwrap()).unwrap();
        assert_eq!(hear(&mut from), "running");
        streams.send();
        streams.check();
        writeln!(to).unwrap();
        assert_eq!(hear(&mut from), FRAMES.to_string());
        assert!(other.wait().unwrap().success());
        eventually("its last descriptor is gone", || netlink::interface("ke-tap").is_err().then_some(()));
    });
}

#[test]
fn workers_that_share_a_queue_take_it_over_without_loss() {
    if is_root("workers_that_share_a_queue_take_it_over_without_loss") {
        Pair::run(2, 1500, |pair| {
            let first = CONFIG.split("[[port]]").take(2).collect::<Vec<_>>().join("[[port]]");
            let shared = "workers = 2\nqueue_mode = \"shared-ordered\"";
            take_over(pair, &first.replace("workers = 1", shared));
        });
    }
}

#[test]
fn a_device_behind_a_vlan_stays_as_it_is() {
    if !is_root("a_device_behind_a_vlan_stays_as_it_is") {
        return;
    }
    Pair::run(2, 1500, |_| {
        for driver in ["af_xdp", "af_packet"] {
            let config = CONFIG.split("[[port]]").take(2).collect::<Vec<_>>().join("[[port]]");
            let config = config.replace("driver = \"af_xdp\"", &format!("driver = \"{driver}\"\nvlan = 100"));
            let mut node = open(&config, Takeover::default()).unwrap();
            node.headers = vec![vec![0; HEADERS]; 2];
            node.start();
            run("ip addr add 10.99.0.1/24 dev n3.100");
            let before = netlink::interface("n3.100").unwrap();
            for round in 0..4 {
                let (offer, descriptors) = node.offer();
                let mut next = open(&config, Takeover::of(offer, descriptors).unwrap()).unwrap();
                next.headers.clone_from(&node.headers);
                let state = node.leave();
                if round % 2 == 0 {
                    drop(next);
                    node.reopen();
                } else {
                    next.takeover.take_in(state).unwrap();
                    next.reopen();
                    node = next;
                }
                let now = netlink::interface("n3.100").unwrap();
                assert_eq!((now.ifindex, now.mac, now.up), (before.ifindex, before.mac, before.up));
                assert!(
                    now.addresses.iter().any(|found| found.address == std::net::IpAddr::from([10, 99, 0, 1]))
                );
            }
            node.leave();
            drop(node);
            eventually("its last descriptor is gone", || netlink::interface("n3.100").is_err().then_some(()));
        }
    });
}

/// What a node of `config` says that is to take over from one of [`CONFIG`].
fn refused(node: &Node, config: &str) -> String {
    let (offer, descriptors) = node.offer();
    open(config, Takeover::of(offer, descriptors).unwrap()).err().expect("it takes over")
}

#[test]
fn another_configuration_is_refused_and_the_node_runs_on() {
    if !is_root("another_configuration_is_refused_and_the_node_runs_on") {
        return;
    }
    Pair::run(3, 1500, |_| {
        let mut node = open(CONFIG, Takeover::default()).unwrap();
        node.headers = vec![vec![0; HEADERS]; 3];
        node.start();
        let without = |port: &str| {
            let cut = CONFIG.split("[[port]]").filter(|part| !part.contains(&format!("name = \"{port}\"")));
            cut.collect::<Vec<_>>().join("[[port]]")
        };
        let with = |port: &str| format!("{CONFIG}\n[[port]]\nname = \"new\"\n{port}");
        let none = "which this configuration does not want";
        for (config, said) in [
            (without("n6"), format!("the running node has TAP device ke-tap, {none}")),
            (without("n9"), format!("the running node has packet socket of port n9, {none}")),
            (
                with("driver = \"tap\"\ninterface = \"ke-tap2\""),
                "port new: the running node has no TAP device ke-tap2, which this configuration wants".to_owned(),
            ),
            (
                with("driver = \"af_packet\"\ninterface = \"ke-a2\""),
                "port new: the running node has no packet socket of port new, which this configuration wants"
                    .to_owned(),
            ),
            (
                with("driver = \"af_xdp\"\ninterface = \"ke-a2\""),
                "port new: the running node has 0 queues of it, and this configuration wants 1".to_owned(),
            ),
            (
                CONFIG.replace("frames = 4096", "frames = 2048"),
                "node.frames: the running node has 4096 frames of 2048 bytes, and this configuration wants 2048 of 2048"
                    .to_owned(),
            ),
            (
                CONFIG.replace("driver = \"af_xdp\"", "driver = \"af_xdp\"\ncopy = \"zero_copy\""),
                "port n3: queue 0: a socket that is taken over keeps the bind mode: ask for the same".to_owned(),
            ),
        ] {
            assert_eq!(refused(&node, &config), said);
        }
        let (offer, mut descriptors) = node.offer();
        descriptors.pop();
        let fault = Takeover::of(offer, descriptors).err().unwrap();
        assert_eq!(fault.to_string(), "the running node offers 4 descriptors and sends 3");
        let left = refused(&node, &without("n3"));
        assert!(left.starts_with("the running node has AF_XDP socket on queue 0 of interface "), "{left}");
        // A state that is not the sockets'.
        let (offer, descriptors) = node.offer();
        let next = open(CONFIG, Takeover::of(offer, descriptors).unwrap()).unwrap();
        let nothing: PortsState = serde_json::from_str("[]").unwrap();
        let fault = next.takeover.take_in(nothing).unwrap_err().to_string();
        assert!(fault.ends_with("queue 0: its socket is not the one that was handed over"), "{fault}");
        drop(next);
        node.leave();
        node.reopen();
        // What DPDK has is the process's own.
        node.takeover.refuse("n3");
        let fault = node.takeover.offer().unwrap_err().to_string();
        assert_eq!(fault, "port n3: ports with driver dpdk cannot be handed over");
    });
}
