//! What the tests of XDP programs share: frames, packet memory, network namespaces with a veth pair between them.
//!
//! The namespaces have no names: they live on descriptors and threads of the test, so the kernel removes them, and
//! the `kb-` interfaces in them, however the test ends.
#![allow(
    dead_code,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "test support, of which each test uses a part"
)]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::ptr::NonNull;

use kaido_xsk::{Umem, UmemConfig};

pub mod frame;
pub mod port;
pub mod socket;

/// Whether this is root; else says by name that the test is skipped.
pub fn is_root(test: &str) -> bool {
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        // Not println: the test harness would keep it to itself.
        let mut out = std::io::stdout();
        writeln!(out, "SKIPPED {test}: needs root").unwrap();
    }
    root
}

/// Packet memory of `chunks` chunks, all zero.
pub fn umem(chunks: usize) -> Umem {
    let len = chunks * 4096;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let area = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(area, libc::MAP_FAILED);
    // SAFETY: mapped just now and never unmapped.
    unsafe { Umem::register(NonNull::new(area.cast()).unwrap(), len, UmemConfig::default()) }.unwrap()
}

fn unshare() -> OwnedFd {
    // SAFETY: gives this thread a namespace of its own.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", std::io::Error::last_os_error());
    run("ip link set lo up");
    File::open("/proc/thread-self/ns/net").unwrap().into()
}

/// Runs `body` on a thread in a fresh namespace, with the index of `lo`.
pub fn in_namespace(body: impl FnOnce(u32) + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _namespace = unshare();
            body(index("lo"));
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

/// The index of an interface of the thread's namespace.
#[track_caller]
pub fn index(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a C string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0);
    index
}

/// Two namespaces, joined by veth pairs `kb-a0`/`kb-b0`, `kb-a1`/`kb-b1`, ... with addresses 10.77.N.1 and .2.
pub struct Pair {
    near: OwnedFd,
    far: OwnedFd,
}

impl Pair {
    /// Runs `body` on a thread of its own, in the near namespace.
    pub fn run(links: usize, queues: usize, mtu: u32, body: impl FnOnce(&Self) + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let far = unshare();
                let near = unshare();
                let pair = Self { near, far };
                for link in 0..links {
                    pair.join(link, queues, mtu);
                }
                body(&pair);
            });
        });
    }

    fn join(&self, link: usize, queues: usize, mtu: u32) {
        let far_path = format!("/proc/self/fd/{}", self.far.as_raw_fd());
        let channels = format!("numrxqueues {queues} numtxqueues {queues}");
        // The child inherits no descriptors, so it is given the path by way of this process.
        let far_path = far_path.replace("self", &std::process::id().to_string());
        run(&format!(
            "ip link add kb-a{link} mtu {mtu} {channels} type veth peer name kb-b{link} mtu {mtu} {channels} netns {far_path}"
        ));
        run(&format!("ip addr add 10.77.{link}.1/24 dev kb-a{link}"));
        run(&format!("ip -6 addr add fd77:{link}::1/64 dev kb-a{link} nodad"));
        run(&format!("ip link set kb-a{link} up"));
        self.far(|| {
            run(&format!("ip addr add 10.77.{link}.2/24 dev kb-b{link}"));
            run(&format!("ip -6 addr add fd77:{link}::2/64 dev kb-b{link} nodad"));
            run(&format!("ip link set kb-b{link} up"));
        });
    }

    /// Does something in the far namespace. What is opened there stays there.
    pub fn far<R>(&self, body: impl FnOnce() -> R) -> R {
        enter(&self.far);
        let result = body();
        enter(&self.near);
        result
    }

    /// The MAC address of an interface of the near namespace.
    pub fn mac(&self, name: &str) -> [u8; 6] {
        kaido_xdp::interface_mac(index(name)).unwrap()
    }

    /// The MAC address of an interface of the far namespace.
    pub fn far_mac(&self, name: &str) -> [u8; 6] {
        self.far(|| self.mac(name))
    }
}

fn enter(namespace: &OwnedFd) {
    // SAFETY: moves this thread alone.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
