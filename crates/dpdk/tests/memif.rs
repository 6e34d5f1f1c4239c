//! Ports of two processes, joined by `net_memif`: shared memory, into and out of which its driver copies.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;
use std::time::{Duration, Instant};

use kaido_dpdk::{DpdkOptions, DpdkPool, Eal};
use kaido_engine::{Frame, FramePool};

mod support;

use support::{Driven, FRAMES, PATIENCE, pattern, start};

/// The socket over which the ends find each other.
const SOCKET: &str = "KAIDO_MEMIF_SOCKET";

/// What the echo ends upon.
const END: &[u8] = b"that was all";

fn end(role: &str, socket: &str) -> (Driven, Eal, &'static FramePool) {
    let eal = start(&[&format!("net_memif0,role={role},id=7,socket-abstract=no,socket={socket}")]);
    let pool = FramePool::leak(FRAMES).unwrap();
    let memory = DpdkPool::register(&eal, pool).unwrap();
    let port = Driven::open(&memory, pool, "net_memif0", &DpdkOptions::default());
    (port, eal, pool)
}

#[test]
#[ignore = "run by the other, in a process of its own"]
fn child_that_echoes() {
    let (mut port, eal, pool) = end("client", &std::env::var(SOCKET).unwrap());
    let deadline = Instant::now() + PATIENCE;
    let mut ended = false;
    while !ended {
        assert!(Instant::now() < deadline, "nobody ends it");
        let frames = port.poll();
        ended = frames.iter().any(|frame| frame.data() == END);
        assert_eq!(port.transmit(frames), 0);
    }
    drop((port, eal));
    assert_eq!(pool.free_frames(), FRAMES);
}

#[test]
fn another_process_echoes_every_byte() {
    let socket = std::env::temp_dir().join(format!("kaido-memif-{}.sock", std::process::id()));
    let (mut port, eal, pool) = end("server", socket.to_str().unwrap());
    // A client must find its server when it starts.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_echoes", "--ignored"])
        .env(SOCKET, &socket)
        .spawn()
        .unwrap();
    // Waits in the port until the ends have found each other.
    for len in [60, 128, 1000, 1514] {
        port.send(&pattern(len));
        assert_eq!(port.next(), pattern(len), "{len} bytes");
    }
    for round in 0..100 {
        let frames: Vec<Frame> = (0..20).map(|at| port.make(&pattern(60 + round + 60 * at))).collect();
        assert_eq!(port.transmit(frames), 0);
        for (at, frame) in port.collect(20).into_iter().enumerate() {
            assert_eq!(frame.to_vec(), pattern(60 + round + 60 * at));
            port.cache.release(frame);
        }
    }
    port.send(END);
    assert!(child.wait().unwrap().success());
    // The driver closes an end on a thread of its own when the other goes, and does not bear to be disturbed in it.
    std::thread::sleep(Duration::from_millis(200));
    drop((port, eal));
    assert_eq!(pool.free_frames(), FRAMES);
}
