//! Packets end to end: AF_XDP sockets behind the steering program, kernel sockets at the far end of a veth.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::time::Duration;

use kaido_upf_xdp::{Class, Pass, Roles, Steering, SteeringConfig};
use kaido_xsk::{BindMode, BusyPoll, Desc, Error, Socket, Statistics};

use crate::rig;
use crate::rig::frame::{eth, udp, v4};
use crate::rig::port::{PATIENCE, Port};
use crate::rig::socket::{receive, udp_at};
use crate::rig::steered::{gtpu, register};
use crate::rig::{Pair, index, run, umem};

/// Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 251) % 256).unwrap()).collect()
}

#[test]
fn gtpu_reaches_the_socket_and_the_rest_the_kernel() {
    if !rig::is_root("gtpu_reaches_the_socket_and_the_rest_the_kernel") {
        return;
    }
    Pair::run(1, 1, 1500, |pair| {
        let mut steering = gtpu("kb-a0", "10.77.0.1", false);
        let memory = umem(64);
        let mut port = Port::bind(&Socket::builder(index("kb-a0"), 0), &memory, 0, 64);
        port.supply(32);
        register(&mut steering, &port);
        let near = udp_at("10.77.0.1:8805");
        let far = pair.far(|| udp_at("10.77.0.2:0"));
        for number in 0..20u8 {
            let payload = [number; 100];
            far.send_to(&payload, "10.77.0.1:2152").unwrap();
            let packet = port.receive(PATIENCE).expect("a GTP-U packet");
            assert_eq!(port.bytes(&packet)[HEADERS..], payload);
        }
        far.send_to(b"pfcp", "10.77.0.1:8805").unwrap();
        assert_eq!(receive(&near), b"pfcp");
        // ARP was needed for all of the above; asked for afresh, it is answered by the kernel again. So is ping.
        pair.far(|| run("ip neigh flush dev kb-b0"));
        far.send_to(b"again", "10.77.0.1:8805").unwrap();
        assert_eq!(receive(&near), b"again");
        pair.far(|| ping("10.77.0.1"));
        assert!(port.receive(Duration::from_millis(50)).is_none());
        let counters = steering.counters().unwrap();
        assert_eq!(counters.redirected(Class::Gtpu), 20);
        assert!(counters.passed(Pass::NotGtpu) >= 3, "{counters:?}");
        assert!(counters.passed(Pass::NotIp) >= 2, "{counters:?}");
        steering.detach().unwrap();
    });
}

/// An echo request by an unprivileged ICMP socket, or a raw one.
fn ping(to: &str) {
    // SAFETY: plain calls on a descriptor and buffers of this function's own.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_ICMP);
        assert!(fd >= 0);
        let timeout = libc::timeval { tv_sec: 5, tv_usec: 0 };
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const timeout).cast(), 16);
        let mut address: libc::sockaddr_in = core::mem::zeroed();
        address.sin_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap();
        address.sin_addr.s_addr = u32::from_ne_bytes(to.parse::<std::net::Ipv4Addr>().unwrap().octets());
        // Echo request, id 1, sequence 1; the checksum makes the sum all ones.
        let request = [8, 0, 0xf7, 0xfd, 0, 1, 0, 1u8];
        let sent = libc::sendto(fd, request.as_ptr().cast(), 8, 0, (&raw const address).cast(), 16);
        assert_eq!(sent, 8);
        let mut reply = [0u8; 64];
        let len = libc::recv(fd, reply.as_mut_ptr().cast(), 64, 0);
        libc::close(fd);
        assert_eq!(len, 28, "no reply from {to}");
        assert_eq!(reply[20], 0, "not an echo reply");
    }
}

#[test]
fn a_sent_frame_reaches_a_kernel_socket() {
    if !rig::is_root("a_sent_frame_reaches_a_kernel_socket") {
        return;
    }
    for need_wakeup in [true, false] {
        Pair::run(1, 1, 1500, |pair| {
            let memory = umem(64);
            let builder = Socket::builder(index("kb-a0"), 0).need_wakeup(need_wakeup).mode(BindMode::Copy);
            let mut port = Port::bind(&builder, &memory, 0, 64);
            let far = pair.far(|| udp_at("10.77.0.2:5000"));
            let to = pair.far_mac("kb-b0");
            // More than the 32 that one system call sends.
            let packets: Vec<Desc> = (0..50u8)
                .map(|number| port.write(&eth(to, 0x0800, &v4("10.77.0.2", 17, &udp(5000, &[number; 64])))))
                .collect();
            let back = port.send(&packets);
            assert_eq!(back, packets.iter().map(|packet| packet.addr).collect::<Vec<_>>());
            for number in 0..50u8 {
                assert_eq!(receive(&far), [number; 64]);
            }
            assert_eq!(port.socket.statistics().unwrap().tx_invalid_descs, 0);
        });
    }
}

#[test]
fn a_shared_umem_forwards_without_a_copy() {
    if !rig::is_root("a_shared_umem_forwards_without_a_copy") {
        return;
    }
    Pair::run(2, 1, 1500, |pair| {
        let mut steering = gtpu("kb-a0", "10.77.0.1", false);
        let memory = umem(64);
        let mut first = Port::bind(&Socket::builder(index("kb-a0"), 0), &memory, 0, 32);
        let mut second = Port::bind(&Socket::builder(index("kb-a1"), 0), &memory, 32, 32);
        first.supply(16);
        register(&mut steering, &first);
        let from = pair.far(|| udp_at("10.77.0.2:0"));
        let to = pair.far(|| udp_at("10.77.1.2:2152"));
        let mac = pair.far_mac("kb-b1");
        for number in 0..10u8 {
            let payload = pattern(200 + usize::from(number));
            from.send_to(&payload, "10.77.0.1:2152").unwrap();
            let packet = first.receive(PATIENCE).expect("a packet");
            // New headers in front of the payload where it lies.
            let frame = eth(mac, 0x0800, &v4("10.77.1.2", 17, &udp(2152, &payload)));
            second.overwrite(packet[0], &frame[..HEADERS]);
            assert_eq!(second.send(&packet), [packet[0].addr], "the very chunk that was received");
            assert_eq!(receive(&to), payload);
            first.free.push(memory.chunk_base(packet[0].addr));
            first.supply(1);
        }
        steering.detach().unwrap();
    });
}

#[test]
fn two_queues_share_the_flows() {
    if !rig::is_root("two_queues_share_the_flows") {
        return;
    }
    Pair::run(1, 2, 1500, |pair| {
        let mut steering = gtpu("kb-a0", "10.77.0.1", false);
        let memory = umem(256);
        let mut ports: Vec<Port> = (0..2u32)
            .map(|queue| {
                let builder = Socket::builder(index("kb-a0"), queue);
                let mut port = Port::bind(&builder, &memory, u64::from(queue) * 128, 128);
                port.supply(128);
                register(&mut steering, &port);
                port
            })
            .collect();
        for number in 0..64u8 {
            let far = pair.far(|| udp_at("10.77.0.2:0"));
            far.send_to(&[number; 32], "10.77.0.1:2152").unwrap();
        }
        let mut seen = Vec::new();
        let mut shares = [0, 0];
        for (port, share) in ports.iter_mut().zip(&mut shares) {
            while let Some(packet) = port.receive(Duration::from_millis(200)) {
                seen.push(port.bytes(&packet)[HEADERS]);
                *share += 1;
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..64).collect::<Vec<u8>>());
        assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
        steering.detach().unwrap();
    });
}

#[test]
fn busy_polling_receives() {
    if !rig::is_root("busy_polling_receives") {
        return;
    }
    Pair::run(1, 1, 1500, |pair| {
        let mut steering = gtpu("kb-a0", "10.77.0.1", false);
        let memory = umem(64);
        let busy = BusyPoll { time_us: 50, budget: 64 };
        let mut port = Port::bind(&Socket::builder(index("kb-a0"), 0).busy_poll(busy), &memory, 0, 64);
        port.supply(32);
        register(&mut steering, &port);
        let far = pair.far(|| udp_at("10.77.0.2:0"));
        for number in 0..20u8 {
            far.send_to(&[number; 40], "10.77.0.1:2152").unwrap();
            let mut packet = [Desc::default()];
            let deadline = std::time::Instant::now() + PATIENCE;
            while port.rings.rx.receive(&mut packet) == 0 {
                assert!(std::time::Instant::now() < deadline);
                port.socket.wake_rx().unwrap();
            }
            assert_eq!(port.bytes(&packet)[HEADERS..], [number; 40]);
        }
        steering.detach().unwrap();
    });
}

#[test]
fn a_jumbo_datagram_is_a_chain_both_ways() {
    if !rig::is_root("a_jumbo_datagram_is_a_chain_both_ways") {
        return;
    }
    Pair::run(1, 1, 9000, |pair| {
        let mut steering = gtpu("kb-a0", "10.77.0.1", true);
        let memory = umem(64);
        let builder = Socket::builder(index("kb-a0"), 0).multi_buffer(true);
        let mut port = Port::bind(&builder, &memory, 0, 64);
        port.supply(32);
        register(&mut steering, &port);
        let far = pair.far(|| udp_at("10.77.0.2:5000"));
        let mac = pair.far_mac("kb-b0");
        for len in [100, 3700, 5000, 8500, 8972] {
            let payload = pattern(len);
            far.send_to(&payload, "10.77.0.1:2152").unwrap();
            let packet = port.receive(PATIENCE).expect("a packet");
            let buffers = (HEADERS + len).div_ceil(4096 - 256);
            assert_eq!(packet.len(), buffers, "{len} bytes: {packet:?}");
            assert!(packet[..buffers - 1].iter().all(Desc::is_continued));
            assert!(port.bytes(&packet)[HEADERS..] == payload, "{len} bytes differ");
            let frame = eth(mac, 0x0800, &v4("10.77.0.2", 17, &udp(5000, &payload)));
            port.overwrite(packet[0], &frame[..HEADERS]);
            assert_eq!(port.send(&packet).len(), buffers);
            assert!(receive(&far) == payload, "{len} bytes differ on the way back");
        }
        steering.detach().unwrap();
    });
}

#[test]
fn a_routed_interface_takes_what_is_for_ues() {
    if !rig::is_root("a_routed_interface_takes_what_is_for_ues") {
        return;
    }
    Pair::run(1, 1, 1500, |pair| {
        let roles = Roles { gtpu: false, routed: true };
        let mac = pair.mac("kb-a0");
        let mut steering =
            Steering::load(SteeringConfig { roles, mac, multi_buffer: false, no_wire: false }).unwrap();
        steering.set_local_addresses(&["10.77.0.1".parse().unwrap(), "fd77:0::1".parse().unwrap()]).unwrap();
        steering.set_ue_prefixes(&[("10.45.0.0".parse().unwrap(), 16)]).unwrap();
        steering.attach_to(index("kb-a0"), kaido_xdp::AttachMode::Native).unwrap();
        let memory = umem(64);
        let mut port = Port::bind(&Socket::builder(index("kb-a0"), 0), &memory, 0, 64);
        port.supply(32);
        register(&mut steering, &port);
        let near = udp_at("10.77.0.1:9");
        let far = pair.far(|| {
            run("ip route add 10.45.0.0/16 via 10.77.0.1");
            udp_at("10.77.0.2:0")
        });
        far.send_to(b"to a UE", "10.45.1.2:80").unwrap();
        let packet = port.receive(PATIENCE).expect("a packet");
        assert_eq!(port.bytes(&packet)[HEADERS..], *b"to a UE");
        far.send_to(b"to us", "10.77.0.1:9").unwrap();
        assert_eq!(receive(&near), b"to us");
        assert_eq!(steering.counters().unwrap().redirected(Class::RoutedV4), 1);
        steering.detach().unwrap();
    });
}

#[test]
fn zero_copy_on_veth_is_refused_clearly() {
    if !rig::is_root("zero_copy_on_veth_is_refused_clearly") {
        return;
    }
    Pair::run(1, 1, 1500, |_| {
        let memory = umem(16);
        let refused = Socket::builder(index("kb-a0"), 0).mode(BindMode::ZeroCopy).bind(&memory);
        let error = refused.map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::ZeroCopyRefused { queue: 0, .. }), "{error}");
        assert!(error.to_string().contains("does not offer zero-copy"));
        let (socket, _rings) = Socket::builder(index("kb-a0"), 0).bind(&memory).unwrap();
        assert_eq!(socket.mode(), BindMode::Copy);
    });
}

#[test]
fn what_the_kernel_cannot_deliver_is_counted() {
    if !rig::is_root("what_the_kernel_cannot_deliver_is_counted") {
        return;
    }
    Pair::run(1, 1, 1500, |pair| {
        let mut steering = gtpu("kb-a0", "10.77.0.1", false);
        let memory = umem(64);
        let mut port =
            Port::bind(&Socket::builder(index("kb-a0"), 0).ring_sizes(64, 64, 4, 64), &memory, 0, 64);
        register(&mut steering, &port);
        let far = pair.far(|| udp_at("10.77.0.2:0"));
        let counted = |port: &Port, is: &dyn Fn(&Statistics) -> bool| {
            let deadline = std::time::Instant::now() + PATIENCE;
            loop {
                let statistics = port.socket.statistics().unwrap();
                if is(&statistics) {
                    return;
                }
                assert!(std::time::Instant::now() < deadline, "{statistics:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        far.send_to(b"no chunk", "10.77.0.1:2152").unwrap();
        counted(&port, &|statistics| statistics.rx_fill_ring_empty_descs >= 1);
        port.supply(16);
        for _ in 0..6 {
            far.send_to(b"x", "10.77.0.1:2152").unwrap();
        }
        counted(&port, &|statistics| statistics.rx_ring_full >= 2);
        assert_eq!(port.socket.statistics().unwrap().rx_ring_full, 2);
        assert_eq!(port.rings.rx.available(), 4);
        steering.detach().unwrap();
    });
}

#[test]
fn an_address_that_stays_is_never_missing() {
    if !rig::is_root("an_address_that_stays_is_never_missing") {
        return;
    }
    const PACKETS: usize = 2000;
    Pair::run(1, 1, 1500, |pair| {
        let mut steering = gtpu("kb-a0", "10.77.0.1", false);
        let memory = umem(2048);
        let mut port = Port::bind(&Socket::builder(index("kb-a0"), 0), &memory, 0, 2048);
        port.supply(2048);
        register(&mut steering, &port);
        let far = pair.far(|| udp_at("10.77.0.2:0"));
        let sender = std::thread::spawn(move || {
            for _ in 0..PACKETS {
                far.send_to(b"steady", "10.77.0.1:2152").unwrap();
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        let stays = "10.77.0.1".parse().unwrap();
        let mut swaps = 0u8;
        while !sender.is_finished() {
            swaps = swaps.wrapping_add(1);
            steering
                .set_gtpu_addresses(&[stays, [10, 1, 1, swaps].into(), [10, 1, 2, swaps].into()])
                .unwrap();
        }
        sender.join().unwrap();
        let deadline = std::time::Instant::now() + PATIENCE;
        while steering.counters().unwrap().redirected(Class::Gtpu) < PACKETS as u64 {
            assert!(std::time::Instant::now() < deadline, "{:?}", steering.counters());
        }
        assert_eq!(port.rings.rx.available() as usize, PACKETS);
        steering.detach().unwrap();
    });
}
