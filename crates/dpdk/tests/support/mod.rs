//! What the tests share: DPDK, started once for a test's process, and ports turned by hand.
#![allow(
    dead_code,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "test support, of which each test uses a part"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kaido_dpdk::{DpdkError, DpdkOptions, DpdkPool, DpdkPort, Eal, MbufsOut};
use kaido_engine::{Batch, DropReason, Frame, FramePool, PoolCache, Port};

pub const PATIENCE: Duration = Duration::from_secs(10);

/// Frames of a test's pool: enough for the rings of two devices.
pub const FRAMES: usize = 12_288;

/// What makes DPDK independent of the machine: no huge pages, no NIC, no files that another process could have.
pub const ALONE: [&str; 5] = ["--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m256"];

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Lets one test at a time set devices up, which DPDK does not do in parallel.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts DPDK with virtual devices.
pub fn start(devices: &[&str]) -> Eal {
    let devices = devices.iter().map(|device| format!("--vdev={device}"));
    let arguments: Vec<String> = ALONE.iter().map(ToString::to_string).chain(devices).collect();
    Eal::start(&arguments).unwrap()
}

/// A library of DPDK that only its plugins need otherwise.
fn symbol(library: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: both are C strings; DPDK has loaded the library already, so nothing new is run.
    let found = unsafe { libc::dlsym(libc::dlopen(library.as_ptr(), libc::RTLD_NOW), name.as_ptr()) };
    assert!(!found.is_null(), "{library:?} has no {name:?}");
    found
}

type RingCreate = unsafe extern "C" fn(*const c_char, c_uint, c_int, c_uint) -> *mut c_void;
type FromRings = unsafe extern "C" fn(
    *const c_char,
    *const *mut c_void,
    c_uint,
    *const *mut c_void,
    c_uint,
    c_uint,
) -> c_int;

/// Makes two devices, `net_ring_NAMEa` and `net_ring_NAMEb`: what one sends the other receives, in rings of 1024.
pub fn cross(_eal: &Eal, name: &str) {
    // SAFETY: the functions' signatures in rte_ring.h and rte_eth_ring.h of 22.11.
    let (create, from_rings) = unsafe {
        let create = symbol(c"librte_ring.so.23", c"rte_ring_create");
        let from_rings = symbol(c"librte_net_ring.so.23", c"rte_eth_from_rings");
        (
            std::mem::transmute::<*mut c_void, RingCreate>(create),
            std::mem::transmute::<*mut c_void, FromRings>(from_rings),
        )
    };
    let text = |side: &str| CString::new(format!("{name}{side}")).unwrap();
    // SAFETY: the EAL is started, and the names live through the calls.
    let [there, back] = ["there", "back"].map(|side| unsafe { create(text(side).as_ptr(), 1024, -1, 0) });
    for (side, rx, tx) in [("a", back, there), ("b", there, back)] {
        assert!(!rx.is_null() && !tx.is_null());
        // SAFETY: as above; the rings live as long as DPDK.
        let port = unsafe { from_rings(text(side).as_ptr(), &raw const rx, 1, &raw const tx, 1, 0) };
        assert!(port >= 0, "{port}");
    }
}

/// Jumbo frames, with short rings.
pub const JUMBO: DpdkOptions =
    DpdkOptions { queues: 1, rx_descriptors: 256, tx_descriptors: 256, mtu: 9000, promiscuous: false };

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 251 + len) % 256).unwrap()).collect()
}

/// A port with its cache.
pub struct Driven {
    pub port: DpdkPort,
    pub cache: PoolCache,
}

impl Driven {
    pub fn open(memory: &DpdkPool, pool: &'static FramePool, name: &str, options: &DpdkOptions) -> Self {
        Self { port: open(memory, name, options).unwrap(), cache: pool.cache() }
    }

    pub fn make(&mut self, bytes: &[u8]) -> Frame {
        Frame::from_slice(bytes, || self.cache.allocate()).unwrap()
    }

    /// Receives what there is.
    pub fn poll(&mut self) -> Vec<Frame> {
        let mut batch = Batch::new();
        self.port.receive(&mut self.cache, &mut batch);
        batch.drain(..).collect()
    }

    /// The packet that comes next, and alone.
    #[track_caller]
    pub fn next(&mut self) -> Vec<u8> {
        let frame = self.collect(1).remove(0);
        let bytes = frame.to_vec();
        self.cache.release(frame);
        bytes
    }

    /// Receives `count` packets, and no more.
    #[track_caller]
    pub fn collect(&mut self, count: usize) -> Vec<Frame> {
        let deadline = Instant::now() + PATIENCE;
        let mut came = Vec::new();
        while came.len() < count {
            assert!(Instant::now() < deadline, "{} packets of {count} came", came.len());
            came.extend(self.poll());
        }
        assert_eq!(came.len(), count);
        came
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

    pub fn send(&mut self, bytes: &[u8]) {
        let frame = self.make(bytes);
        assert_eq!(self.transmit([frame]), 0);
    }

    pub fn losses(&mut self) -> Vec<(DropReason, u64)> {
        let mut losses = Vec::new();
        self.port.losses(&mut |reason, count| losses.push((reason, count)));
        losses
    }
}

pub fn open(memory: &DpdkPool, name: &str, options: &DpdkOptions) -> Result<DpdkPort, DpdkError> {
    DpdkPort::open(memory, name, options).map(|mut ports| ports.remove(0))
}

/// No mbuf is out.
pub const NONE_OUT: MbufsOut = MbufsOut { rx: 0, tx: 0 };
