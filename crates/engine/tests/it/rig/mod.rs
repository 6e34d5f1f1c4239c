//! What the tests of ports and netlink share: network namespaces with veth pairs between them, and a port that is
//! turned by hand.
//!
//! The namespaces have no names: they live on descriptors and threads of the test, so the kernel removes them, and
//! the `ke-` interfaces in them, however the test ends.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "test support, of which each test uses a part"
)]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use kaido_engine::{Batch, Frame, FramePool, PoolCache, Port, netlink};

pub mod frame;
#[path = "../../../../xdp/tests/it/rig/socket.rs"]
pub mod socket;

pub const PATIENCE: Duration = Duration::from_secs(10);

/// Whether this is root; else says by name that the test is skipped.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        // Not println: the test harness would keep it to itself.
        let mut out = std::io::stdout();
        writeln!(out, "SKIPPED {test}: needs root").unwrap();
    }
    root
}

fn unshare() -> OwnedFd {
    // SAFETY: gives this thread a namespace of its own.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", std::io::Error::last_os_error());
    run("ip link set lo up");
    File::open("/proc/thread-self/ns/net").unwrap().into()
}

fn enter(namespace: &OwnedFd) {
    // SAFETY: moves this thread alone.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Runs `body` on a thread in a fresh namespace.
pub fn in_namespace(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _namespace = unshare();
            body();
        });
    });
}

/// Runs a command line, split at blanks, in the thread's namespace; its output.
#[track_caller]
pub fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub fn index(name: &str) -> u32 {
    netlink::interface(name).unwrap().ifindex
}

#[track_caller]
pub fn mac(name: &str) -> [u8; 6] {
    netlink::interface(name).unwrap().mac
}

/// Waits until `check` says something.
#[track_caller]
pub fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Two namespaces, joined by veth pairs `ke-a0`/`ke-b0`, ... with addresses 10.77.N.1 and .2, fd77:N::1 and ::2.
pub struct Pair {
    near: OwnedFd,
    far: OwnedFd,
}

impl Pair {
    /// Runs `body` on a thread of its own, in the near namespace.
    pub fn run(links: usize, mtu: u32, body: impl FnOnce(&Self) + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let far = unshare();
                let near = unshare();
                let pair = Self { near, far };
                (0..links).for_each(|link| pair.join(link, mtu));
                (0..links).for_each(|link| pair.settle(link));
                body(&pair);
            });
        });
    }

    fn join(&self, link: usize, mtu: u32) {
        // The child inherits no descriptors, so it is given the path by way of this process.
        let far = format!("/proc/{}/fd/{}", std::process::id(), self.far.as_raw_fd());
        run(&format!(
            "ip link add ke-a{link} mtu {mtu} type veth peer name ke-b{link} mtu {mtu} netns {far}"
        ));
        self.far(|| setup(link, 'b', 2));
        setup(link, 'a', 1);
    }

    /// Waits until the kernel has noticed the carriers: before that it throws away what is sent.
    fn settle(&self, link: usize) {
        let is_up = |name: String| run(&format!("ip -o link show {name}")).contains("state UP");
        eventually("the near link is up", || is_up(format!("ke-a{link}")).then_some(()));
        self.far(|| eventually("the far link is up", || is_up(format!("ke-b{link}")).then_some(())));
    }

    /// Does something in the far namespace. What is opened there stays there.
    pub fn far<R>(&self, body: impl FnOnce() -> R) -> R {
        enter(&self.far);
        let result = body();
        enter(&self.near);
        result
    }

    pub fn far_mac(&self, name: &str) -> [u8; 6] {
        self.far(|| mac(name))
    }
}

fn setup(link: usize, side: char, host: u8) {
    let device = format!("ke-{side}{link}");
    run(&format!("ip addr add 10.77.{link}.{host}/24 dev {device}"));
    run(&format!("ip -6 addr add fd77:{link}::{host}/64 dev {device} nodad"));
    run(&format!("ip link set {device} up"));
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 251) % 256).unwrap()).collect()
}

/// A port with its cache, turned by hand.
pub struct Driven<P> {
    pub port: P,
    pub cache: PoolCache,
    arrived: Batch,
}

impl<P: Port> Driven<P> {
    pub fn new(port: P, pool: &'static FramePool) -> Self {
        Self { port, cache: pool.cache(), arrived: Batch::new() }
    }

    /// Receives what there is.
    pub fn poll(&mut self) -> Vec<Frame> {
        self.port.receive(&mut self.cache, &mut self.arrived);
        self.arrived.drain(..).collect()
    }

    /// The first frame that `wanted` takes; others are thrown away.
    #[track_caller]
    pub fn next(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Frame {
        self.find(PATIENCE, wanted).expect("no such packet came")
    }

    pub fn find(&mut self, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> Option<Frame> {
        let deadline = Instant::now() + patience;
        loop {
            // One at a time, so that none is lost behind the one that is wanted.
            let mut one = Batch::new();
            self.port.receive(&mut self.cache, &mut self.arrived);
            if !self.arrived.is_empty() {
                one.push(self.arrived.remove(0));
            }
            match one.pop() {
                Some(frame) if wanted(frame.data()) => return Some(frame),
                Some(frame) => self.cache.release(frame),
                None if Instant::now() > deadline => return None,
                None => self.wait(),
            }
        }
    }

    /// Sleeps on the port's descriptor, as a worker does.
    fn wait(&self) {
        let fd = self.port.readiness().unwrap();
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd.as_fd(), rustix::event::PollFlags::IN)];
        let timeout = Duration::from_millis(50).try_into().unwrap();
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
    }

    pub fn make(&mut self, bytes: &[u8]) -> Frame {
        Frame::from_slice(bytes, || self.cache.allocate()).unwrap()
    }

    /// Transmits all, however often that has to be tried; how many failed.
    #[track_caller]
    pub fn transmit(&mut self, frames: impl IntoIterator<Item = Frame>) -> usize {
        let mut frames = frames.into_iter();
        let deadline = Instant::now() + PATIENCE;
        let (mut batch, mut failed) = (Batch::new(), 0);
        loop {
            let room = batch.remaining_capacity();
            batch.extend(frames.by_ref().take(room));
            if batch.is_empty() {
                return failed;
            }
            assert!(Instant::now() < deadline, "{} packets stay", batch.len());
            failed += self.port.transmit(&mut self.cache, &mut batch);
        }
    }

    /// Closes the port and gives the cache back.
    pub fn close(self) {
        drop(self);
    }
}
