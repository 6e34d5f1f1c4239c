//! Sockets on the loopback interface of a network namespace of our own; traffic is tested in `crates/upf-xdp`.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::ptr::NonNull;
use std::sync::Arc;

use kaido_xsk::{BindMode, BusyPoll, Error, Socket, Umem, UmemConfig};

const UMEM_LEN: usize = 32 * 4096;

/// Runs `body` on a thread in a fresh namespace with `lo` up, or says that it cannot.
fn in_namespace(test: &str, body: impl FnOnce(u32) + Send) {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        // Not println: the test harness would keep it to itself.
        let mut out = std::io::stdout();
        writeln!(out, "SKIPPED {test}: not root").unwrap();
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: gives this thread a namespace of its own; it goes with the thread.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
            assert!(up.success());
            // SAFETY: a C string.
            body(unsafe { libc::if_nametoindex(c"lo".as_ptr()) });
        });
    });
}

fn area() -> NonNull<u8> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let area = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            UMEM_LEN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(area, libc::MAP_FAILED);
    NonNull::new(area.cast()).unwrap()
}

fn umem() -> Umem {
    // SAFETY: mapped for this test alone and never unmapped.
    unsafe { Umem::register(area(), UMEM_LEN, UmemConfig::default()) }.unwrap()
}

#[test]
fn umem_layout_is_checked_before_the_kernel_is_asked() {
    let start = area();
    let default = UmemConfig::default();
    for (len, config) in [
        (0, default),
        (UMEM_LEN - 1, default),
        (UMEM_LEN, UmemConfig { chunk_size: 3000, ..default }),
        (UMEM_LEN, UmemConfig { chunk_size: 1024, ..default }),
        (UMEM_LEN, UmemConfig { chunk_size: 8192, ..default }),
        (UMEM_LEN, UmemConfig { headroom: 4096 - 256, ..default }),
    ] {
        // SAFETY: never reaches the kernel.
        let refused = unsafe { Umem::register(start, len, config) };
        assert!(matches!(refused, Err(Error::UmemLayout { .. })), "{len} {config:?}");
    }
    // SAFETY: never reaches the kernel, and stays inside the mapping.
    let refused = unsafe { Umem::register(start.add(64), 4096, default) };
    assert!(matches!(refused, Err(Error::UmemLayout { .. })));
}

#[test]
fn a_socket_says_what_it_got() {
    in_namespace("a_socket_says_what_it_got", |lo| {
        let umem = umem();
        assert_eq!((umem.chunks(), umem.len()), (32, UMEM_LEN));
        let (socket, mut rings) = Socket::builder(lo, 0).ring_sizes(32, 64, 128, 256).bind(&umem).unwrap();
        assert_eq!((socket.mode(), socket.ifindex(), socket.queue()), (BindMode::Copy, lo, 0));
        assert!(!socket.options().unwrap().zero_copy);
        assert_eq!(socket.statistics().unwrap(), kaido_xsk::Statistics::default());
        assert_eq!((rings.fill.capacity(), rings.fill.free()), (32, 32));
        assert_eq!((rings.completion.capacity(), rings.completion.available()), (64, 0));
        assert_eq!((rings.rx.capacity(), rings.rx.available()), (128, 0));
        assert_eq!((rings.tx.capacity(), rings.tx.free()), (256, 256));
        assert!(rings.tx.needs_wakeup());
        // SAFETY: the chunks were never used.
        assert_eq!(unsafe { rings.fill.supply(&[0, 4096, 8192]) }, 3);
        assert_eq!(rings.fill.free(), 29);
        socket.wake_rx().unwrap();
        assert!(socket.wake_tx().unwrap());
    });
}

#[test]
fn bytes_stay_within_their_chunk() {
    in_namespace("bytes_stay_within_their_chunk", |_| {
        let umem = umem();
        assert_eq!(umem.chunk_base(4096 + 300), 4096);
        assert_eq!(umem.bytes(4096 + 256, 3840).unwrap().len(), 3840);
        assert!(umem.bytes(4096 + 256, 3841).is_none());
        assert!(umem.bytes(UMEM_LEN as u64, 0).is_none());
        assert!(umem.bytes(u64::MAX, 1).is_none());
    });
}

#[test]
fn refusals_are_told_apart() {
    in_namespace("refusals_are_told_apart", |lo| {
        let umem = umem();
        let size = Socket::builder(lo, 0).ring_sizes(3, 64, 64, 64).bind(&umem);
        assert!(matches!(size, Err(Error::RingSize { ring: "fill", size: 3 })));
        let size = Socket::builder(lo, 0).ring_sizes(64, 64, 64, 0).bind(&umem);
        assert!(matches!(size, Err(Error::RingSize { ring: "TX", size: 0 })));
        let none = Socket::builder(9999, 0).bind(&umem);
        assert!(matches!(none, Err(Error::NoInterface { ifindex: 9999 })), "{none:?}");
        let queue = Socket::builder(lo, 7).bind(&umem);
        assert!(matches!(queue, Err(Error::BindInvalid { queue: 7, .. })), "{queue:?}");
        let zero_copy = Socket::builder(lo, 0).mode(BindMode::ZeroCopy).bind(&umem);
        assert!(matches!(zero_copy, Err(Error::ZeroCopyRefused { .. })), "{zero_copy:?}");
        // None of the failures above spoilt the UMEM.
        let first = Socket::builder(lo, 0).bind(&umem).unwrap();
        let second = Socket::builder(lo, 0).bind(&umem);
        assert!(second.is_err(), "{second:?}");
        let options = Socket::builder(lo, 0).need_wakeup(false).bind(&umem);
        assert!(matches!(options, Err(Error::SharedOptions { what: "need-wakeup" })));
        let options = Socket::builder(lo, 0).multi_buffer(true).bind(&umem);
        assert!(matches!(options, Err(Error::SharedOptions { what: "multi-buffer" })));
        drop(first);
    });
}

#[test]
fn a_queue_is_free_again_when_socket_and_rings_are_gone() {
    in_namespace("a_queue_is_free_again_when_socket_and_rings_are_gone", |lo| {
        let umem = umem();
        for _ in 0..3 {
            let (socket, rings) = bind_when_free(lo, &umem);
            drop(socket);
            let held = Socket::builder(lo, 0).bind(&umem);
            assert!(matches!(held, Err(Error::QueueBusy { .. })), "{held:?}");
            drop(rings);
        }
    });
}

/// The kernel tears a queue down after a grace period.
fn bind_when_free(ifindex: u32, umem: &Umem) -> (Socket, kaido_xsk::Rings) {
    for _ in 0..100 {
        match Socket::builder(ifindex, 0).bind(umem) {
            Ok(bound) => return bound,
            Err(Error::QueueBusy { .. }) => std::thread::sleep(std::time::Duration::from_millis(20)),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the queue stayed busy");
}

#[test]
fn busy_poll_and_plain_wakeup_bind() {
    in_namespace("busy_poll_and_plain_wakeup_bind", |lo| {
        let umem = umem();
        let busy = BusyPoll { time_us: 20, budget: 64 };
        let (socket, rings) = Socket::builder(lo, 0).need_wakeup(false).busy_poll(busy).bind(&umem).unwrap();
        assert!(rings.tx.needs_wakeup(), "without the flag the kernel must always be woken");
        assert!(!rings.fill.needs_wakeup());
        socket.wake_rx().unwrap();
        assert!(!socket.wait_rx(std::time::Duration::from_millis(1)).unwrap());
    });
}

#[test]
fn a_socket_goes_on_where_it_was_given_up() {
    in_namespace("a_socket_goes_on_where_it_was_given_up", |lo| {
        let umem = umem();
        let builder = Socket::builder(lo, 0).ring_sizes(32, 64, 128, 256);
        let (socket, mut rings) = builder.bind(&umem).unwrap();
        let fd = Arc::clone(socket.descriptor());
        let mut supplied = 0u64;
        for _ in 0..20 {
            // SAFETY: numbers of chunks that nothing is received into.
            supplied += unsafe { rings.fill.supply(&[0]) } as u64;
            drop(rings);
            // The memory as another process sees it: of its sockets are known those that were adopted.
            // SAFETY: mapped for this test alone and never unmapped.
            let umem = unsafe { Umem::adopt(area(), UMEM_LEN, UmemConfig::default()) }.unwrap();
            // SAFETY: the settings of the socket, whose rings were dropped.
            let (adopted, again) = unsafe { builder.adopt(Arc::clone(&fd), &umem) }.unwrap();
            assert_eq!((adopted.mode(), adopted.queue(), again.rx.capacity()), (BindMode::Copy, 0, 128));
            rings = again;
            assert_eq!(u64::from(rings.fill.free()), 32 - supplied);
            // It is by this one that others share the memory.
            let other = Socket::builder(lo, 0).need_wakeup(false).bind(&umem);
            assert!(matches!(other, Err(Error::SharedOptions { what: "need-wakeup" })), "{other:?}");
            // SAFETY: as above; nothing is adopted.
            let other = unsafe { builder.clone().multi_buffer(true).adopt(Arc::clone(&fd), &umem) };
            assert!(matches!(other, Err(Error::SharedOptions { what: "multi-buffer" })), "{other:?}");
            // SAFETY: as above; nothing is adopted.
            let other = unsafe { builder.clone().mode(BindMode::ZeroCopy).adopt(Arc::clone(&fd), &umem) };
            assert!(matches!(other, Err(Error::SharedOptions { what: "the bind mode" })), "{other:?}");
            // Memory of which no socket is known leaves it to the kernel's word.
            // SAFETY: mapped for this test alone and never unmapped.
            let unknown = unsafe { Umem::adopt(area(), UMEM_LEN, UmemConfig::default()) }.unwrap();
            // SAFETY: as above; nothing is adopted.
            let other = unsafe { builder.clone().mode(BindMode::ZeroCopy).adopt(Arc::clone(&fd), &unknown) };
            assert!(matches!(other, Err(Error::AdoptedOptions { what: "the bind mode" })), "{other:?}");
        }
        assert_eq!(supplied, 20);
        let file: std::os::fd::OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        // SAFETY: never gets to rings.
        let other = unsafe { builder.adopt(Arc::new(file), &umem) };
        assert!(matches!(other, Err(Error::Sys { .. })), "{other:?}");
    });
}
