//! kaido-xsk and xsk-rs at the two ends of a veth: numbered frames of all lengths, both ways, byte for byte.
//!
//! A five-instruction program of our own redirects everything on either end to its socket: libxdp's dispatcher does
//! not load on every kernel, and the loader of crates/xdp would bring a second libbpf.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use kaido_xsk::{Desc, Socket, Umem, UmemConfig};
use xsk_rs::config::{LibxdpFlags, SocketConfig};

mod redirect;

const FRAMES: usize = 512;
const CHUNKS: usize = 64;
const BATCH: usize = 16;
/// Local experimental EtherType 1 (IEEE 802), by which our frames are told from the kernel's own (ND, MLD).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const PATIENCE: Duration = Duration::from_secs(10);

/// Frame `number`: 60 to 1514 bytes, no two alike.
fn frame(number: usize) -> Vec<u8> {
    let len = 60 + number * 37 % 1455;
    let mut frame = vec![0; len];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&ETHERTYPE);
    frame[14..18].copy_from_slice(&u32::try_from(number).unwrap().to_be_bytes());
    for (at, byte) in frame[18..].iter_mut().enumerate() {
        *byte = u8::try_from((at * 7 + number * 13) % 256).unwrap();
    }
    frame
}

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {line}");
}

fn index(name: &std::ffi::CStr) -> u32 {
    // SAFETY: a C string.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// Runs the test on a thread in a namespace of its own, which goes with the thread.
fn in_namespace(test: &str, body: impl FnOnce() + Send) {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        // Not println: the test harness would keep it to itself.
        let mut out = std::io::stdout();
        writeln!(out, "SKIPPED {test}: needs root").unwrap();
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: moves this thread alone.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            ip("link add kb-a type veth peer name kb-b");
            for end in ["kb-a", "kb-b"] {
                ip(&format!("link set {end} addrgenmode none"));
                ip(&format!("link set {end} up"));
            }
            body();
        });
    });
}

fn our_umem() -> Umem {
    let len = CHUNKS * 4096;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let area = unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0)
    };
    assert_ne!(area, libc::MAP_FAILED);
    // SAFETY: mapped just now and never unmapped.
    unsafe { Umem::register(NonNull::new(area.cast()).unwrap(), len, UmemConfig::default()) }.unwrap()
}

fn their_umem() -> (xsk_rs::Umem, Vec<xsk_rs::FrameDesc>) {
    let frames = u32::try_from(CHUNKS).unwrap().try_into().unwrap();
    xsk_rs::Umem::new(xsk_rs::config::UmemConfig::default(), frames, false).unwrap()
}

fn their_config() -> SocketConfig {
    SocketConfig::builder().libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD).build()
}

#[test]
fn what_xsk_rs_sends_we_receive() {
    in_namespace("what_xsk_rs_sends_we_receive", || {
        let umem = our_umem();
        let (socket, mut rings) = Socket::builder(index(c"kb-a"), 0).bind(&umem).unwrap();
        let _near = redirect::attach(index(c"kb-a"), socket.as_fd().as_raw_fd());
        let chunks: Vec<u64> = (0..CHUNKS as u64).map(|chunk| chunk * 4096).collect();
        // SAFETY: all chunks are free.
        assert_eq!(unsafe { rings.fill.supply(&chunks) }, CHUNKS);

        let (their_umem, mut descs) = their_umem();
        // SAFETY: no other socket is on this queue.
        let (mut tx, their_rx, rest) =
            unsafe { xsk_rs::Socket::new(their_config(), &their_umem, &"kb-b".parse().unwrap(), 0) }.unwrap();
        let (_fill, mut completion) = rest.unwrap();
        // veth takes what is sent to it only by NAPI when the far end has XDP as well.
        let _far = redirect::attach(index(c"kb-b"), their_rx.fd().as_raw_fd());

        let mut expected = 0;
        for first in (0..FRAMES).step_by(BATCH) {
            for (at, desc) in descs[..BATCH].iter_mut().enumerate() {
                // SAFETY: the frame is ours: its completion was awaited below.
                unsafe { their_umem.data_mut(desc) }.cursor().write_all(&frame(first + at)).unwrap();
            }
            // SAFETY: as above, and not touched until the completion.
            assert_eq!(unsafe { tx.produce_and_wakeup(&descs[..BATCH]) }.unwrap(), BATCH);
            let deadline = Instant::now() + PATIENCE;
            let mut received = [Desc::default(); BATCH];
            while expected < first + BATCH {
                assert!(Instant::now() < deadline, "frame {expected} did not come");
                socket.wait_rx(Duration::from_millis(10)).unwrap();
                let count = rings.rx.receive(&mut received);
                for desc in &received[..count] {
                    let bytes = umem.bytes(desc.addr, desc.len).unwrap();
                    // SAFETY: the kernel gave us this chunk.
                    let bytes = unsafe { bytes.as_ref() };
                    if bytes[12..14] == ETHERTYPE {
                        assert!(bytes == frame(expected), "frame {expected}");
                        expected += 1;
                    }
                    // SAFETY: read, and ours to give back.
                    assert_eq!(unsafe { rings.fill.supply(&[umem.chunk_base(desc.addr)]) }, 1);
                }
            }
            let mut done = 0;
            while done < BATCH {
                assert!(Instant::now() < deadline, "xsk-rs got {done} of its frames back");
                // SAFETY: descriptors of this UMEM.
                done += unsafe { completion.consume(&mut descs[done..BATCH]) };
            }
            // The order in which they came back does not matter: take the next ones.
            descs.rotate_left(BATCH);
        }
        let statistics = socket.statistics().unwrap();
        assert_eq!((statistics.rx_dropped, statistics.rx_invalid_descs, statistics.rx_ring_full), (0, 0, 0));
    });
}

#[test]
fn what_we_send_xsk_rs_receives() {
    in_namespace("what_we_send_xsk_rs_receives", || {
        let (their_umem, descs) = their_umem();
        // SAFETY: no other socket is on this queue.
        let (_tx, mut rx, rest) =
            unsafe { xsk_rs::Socket::new(their_config(), &their_umem, &"kb-b".parse().unwrap(), 0) }.unwrap();
        let (mut fill, _completion) = rest.unwrap();
        let _far = redirect::attach(index(c"kb-b"), rx.fd().as_raw_fd());
        // SAFETY: all frames are free.
        assert_eq!(unsafe { fill.produce(&descs) }, CHUNKS);

        let umem = our_umem();
        let (socket, mut rings) = Socket::builder(index(c"kb-a"), 0).bind(&umem).unwrap();
        let _near = redirect::attach(index(c"kb-a"), socket.as_fd().as_raw_fd());
        let mut free: Vec<u64> = (0..CHUNKS as u64).map(|chunk| chunk * 4096).collect();

        let mut expected = 0;
        let mut received = descs.clone();
        for first in (0..FRAMES).step_by(BATCH) {
            let packets: Vec<Desc> = (first..first + BATCH)
                .map(|number| {
                    let (frame, chunk) = (frame(number), free.pop().unwrap());
                    let desc = Desc::new(chunk, u32::try_from(frame.len()).unwrap());
                    let mut room = umem.bytes(desc.addr, desc.len).unwrap();
                    // SAFETY: the chunk was on the free list.
                    unsafe { room.as_mut() }.copy_from_slice(&frame);
                    desc
                })
                .collect();
            // SAFETY: the chunks are off the free list until reaped.
            assert_eq!(unsafe { rings.tx.send(&packets) }, BATCH);
            let deadline = Instant::now() + PATIENCE;
            while free.len() < CHUNKS {
                assert!(Instant::now() < deadline, "{} of our chunks are still out", CHUNKS - free.len());
                if rings.tx.needs_wakeup() {
                    socket.wake_tx().unwrap();
                }
                let mut back = [0; BATCH];
                let count = rings.completion.reap(&mut back);
                free.extend_from_slice(&back[..count]);
            }
            while expected < first + BATCH {
                assert!(Instant::now() < deadline, "frame {expected} did not come");
                // SAFETY: descriptors of this UMEM.
                let count = unsafe { rx.poll_and_consume(&mut received, 10) }.unwrap();
                for desc in &received[..count] {
                    // SAFETY: the frame was received and is not yet given back.
                    let data = unsafe { their_umem.data(desc) };
                    if data.contents()[12..14] == ETHERTYPE {
                        assert!(data.contents() == frame(expected), "frame {expected}");
                        expected += 1;
                    }
                }
                // SAFETY: read, and ours to give back.
                assert_eq!(unsafe { fill.produce(&received[..count]) }, count);
            }
        }
        assert_eq!(socket.statistics().unwrap().tx_invalid_descs, 0);
    });
}
