//! Ports over `net_af_packet`, and over `net_pcap` on an interface, each at one end of a veth pair; at the other is
//! the kernel.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

use kaido_dpdk::{DpdkError, DpdkOptions, DpdkPool, DpdkPort};
use kaido_engine::{DropReason, FramePool};

#[path = "../../engine/tests/it/rig/mod.rs"]
mod rig;
mod support;

use rig::socket::{receive, udp_at};
use rig::{Pair, eventually, frame, is_root};
use support::{Driven, FRAMES, NONE_OUT, pattern, start};

/// Packets for a buffer that nobody empties, and the bytes of each: more than the 2 MiB that libpcap asks for.
const FLOOD: u16 = 6000;
const FLOOD_BYTES: usize = 1400;

/// One test: DPDK starts once in a process, and finds the devices in the namespace where it does.
#[test]
fn packets_go_to_the_kernel_and_back_and_none_is_unaccounted_for() {
    if !is_root("dpdk_af_packet") {
        return;
    }
    Pair::run(2, 1500, |pair| {
        let eal = start(&["net_af_packet0,iface=ke-a0", "net_pcap0,iface=ke-a1"]);
        let pool = FramePool::leak(FRAMES).unwrap();
        let memory = DpdkPool::register(&eal, pool).unwrap();
        let mut port = Driven::open(&memory, pool, "net_af_packet0", &DpdkOptions::default());
        assert_eq!(port.port.info().mac, rig::mac("ke-a0"));
        exchange(pair, &mut port);
        assert_eq!(port.port.mbufs_out(), NONE_OUT);
        drop(port);
        let mut port = Driven::open(&memory, pool, "net_pcap0", &DpdkOptions::default());
        flood(pair, &mut port);
        assert_eq!(port.port.mbufs_out(), NONE_OUT);
        drop(port);
        // A name that was closed stays without a device.
        eal.probe("net_af_packet0,iface=ke-a0").unwrap();
        let reopened = DpdkPort::open(&memory, "net_af_packet0", &DpdkOptions::default());
        assert!(matches!(reopened, Err(DpdkError::NoDevice { .. })));
        assert!(matches!(eal.probe("net_af_packet6,iface=none0"), Err(DpdkError::Call { .. })));
        for name in ["net_af_packet7", "net_af_packet8"] {
            eal.probe(&format!("{name},iface=ke-a0")).unwrap();
            let mut port = Driven::open(&memory, pool, name, &DpdkOptions::default());
            exchange(pair, &mut port);
        }
        drop((memory, eal));
        assert_eq!(pool.free_frames(), FRAMES);
    });
}

/// What the port sends reaches a socket, and what the socket sends the port.
fn exchange(pair: &Pair, port: &mut Driven) {
    let socket = pair.far(|| udp_at("10.77.0.2:4000"));
    let (near, far) = (port.port.info().mac, pair.far_mac("ke-b0"));
    for len in [1, 100, 1472] {
        let datagram = frame::udp(4000, &pattern(len));
        let packet = frame::v4([10, 77, 0, 1], [10, 77, 0, 2], 17, &datagram);
        port.send(&frame::eth(far, near, 0x0800, &packet));
        assert_eq!(receive(&socket), pattern(len));
        socket.send_to(&pattern(len), "10.77.0.1:5000").unwrap();
        let came = eventually("the datagram", || {
            port.poll().into_iter().map(|frame| frame.to_vec()).find(|bytes| frame::is_udp(bytes, 5000))
        });
        assert_eq!(came[42..], pattern(len));
    }
}

/// Without a worker the kernel's buffer fills; what it then drops is reported.
fn flood(pair: &Pair, port: &mut Driven) {
    while !port.poll().is_empty() {}
    port.losses();
    let socket = pair.far(|| udp_at("10.77.1.2:4001"));
    let mut datagram = vec![0; FLOOD_BYTES];
    for number in 0..FLOOD {
        datagram[..2].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&datagram, "10.77.1.1:5001").unwrap();
    }
    let mut came = 0u16;
    let mut last = None;
    loop {
        let frames = port.poll();
        if frames.is_empty() {
            break;
        }
        for frame in frames.iter().filter(|packet| frame::is_udp(packet.data(), 5001)) {
            let number = u16::from_be_bytes([frame.data()[42], frame.data()[43]]);
            assert!(last < Some(number), "{number} after {last:?}");
            last = Some(number);
            came += 1;
        }
        frames.into_iter().for_each(|frame| port.cache.release(frame));
    }
    assert!(came > 0 && came < FLOOD, "{came} of {FLOOD} came");
    let losses = port.losses();
    let lost = losses.iter().find(|(reason, _)| *reason == DropReason::RX_RING_FULL).unwrap().1;
    // The kernels' own packets may be among the lost.
    let missing = u64::from(FLOOD - came);
    assert!((missing..missing + 100).contains(&lost), "{missing} missing, {losses:?}");
    assert_eq!(port.losses(), [], "told once");
}
