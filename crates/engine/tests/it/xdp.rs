//! AF_XDP ports behind the steering program, with kernel sockets at the far end.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kaido_engine::port::{ChecksumPort, SharedXdp, XdpOptions, XdpPool, XdpPort};
use kaido_engine::reorder::ReorderMeter;
use kaido_engine::shared::{Order, SharedQueue, SharedTotals};
use kaido_engine::{
    Batch, Frame, FramePool, FrameSize, Function, KernelPath, Output, Port, PortId, Worker, WorkerSettings,
};
use kaido_wire::{IpProtocol, checksum};
use kaido_xdp::{AttachMode, IpMatch, PortMatch, PortSteering, PortSteeringConfig};

use crate::rig;
use crate::rig::frame::{eth, is_udp, udp, v4};
use crate::rig::socket::{receive, udp_at};
use crate::rig::{Driven, Pair, eventually, index, mac, pattern};

/// Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
const NEAR: [u8; 4] = [10, 77, 0, 1];
const FAR: [u8; 4] = [10, 77, 0, 2];

const JUMBO: XdpOptions = XdpOptions { multi_buffer: true, ..SMALL };
const SMALL: XdpOptions = XdpOptions {
    mode: kaido_xsk::BindMode::Auto,
    need_wakeup: true,
    busy_poll: None,
    multi_buffer: false,
    fill: 256,
    completion: 256,
    rx: 256,
    tx: 256,
    segments_max: 17,
};

fn pool() -> (&'static FramePool, XdpPool) {
    pool_of(FrameSize::FourKib)
}

fn pool_of(size: FrameSize) -> (&'static FramePool, XdpPool) {
    let pool = FramePool::leak_of(size, 2048).unwrap();
    (pool, XdpPool::register(pool).unwrap())
}

/// Takes GTP-U.
const GTPU: PortMatch =
    PortMatch { ethertype: None, ip: Some(IpMatch::Udp { port: 2152 }), routed: false, all: false };

/// A port that takes GTP-U to 10.77.N.1. What comes before it is polled waits.
fn open(pool: &XdpPool, link: usize, options: &XdpOptions) -> (PortSteering, Driven<XdpPort>) {
    let name = format!("ke-a{link}");
    let ifindex = index(&name);
    let config = PortSteeringConfig { matches: GTPU, mac: mac(&name), multi_buffer: options.multi_buffer };
    let mut steering = PortSteering::load(config).unwrap();
    steering.set_addresses(&[format!("10.77.{link}.1").parse().unwrap()]).unwrap();
    steering.attach_to(ifindex, AttachMode::Native).unwrap();
    let port = Driven::new(XdpPort::open(pool, ifindex, 0, options).unwrap(), pool.pool());
    steering.register_socket(0, port.port.as_fd()).unwrap();
    (steering, port)
}

/// Puts new headers in front of the payload, where it lies.
fn redirect(frame: &mut Frame, headers: &[u8]) {
    assert!(frame.strip(HEADERS));
    frame.prepend(HEADERS).unwrap()[..HEADERS].copy_from_slice(headers);
}

#[test]
fn frames_go_from_port_to_port_as_they_are() {
    if !rig::is_root("frames_go_from_port_to_port_as_they_are") {
        return;
    }
    Pair::run(2, 1500, |pair| {
        let (pool, xdp) = pool_of(FrameSize::TwoKib);
        let (mut first_steering, mut first) = open(&xdp, 0, &SMALL);
        let (mut second_steering, mut second) = open(&xdp, 1, &SMALL);
        let from = pair.far(|| udp_at("10.77.0.2:0"));
        let to = pair.far(|| udp_at("10.77.1.2:2152"));
        let (far, near) = (pair.far_mac("ke-b1"), mac("ke-a1"));
        // Many times around the rings.
        for round in 0..50usize {
            for number in 0..40 {
                from.send_to(&pattern(100 + number), "10.77.0.1:2152").unwrap();
            }
            let mut number = 0;
            while number < 40 {
                let mut frames = vec![first.next(|frame| is_udp(frame, 2152))];
                frames.extend(first.poll());
                for (frame, len) in frames.iter_mut().zip(100 + number..) {
                    let packet = eth(
                        far,
                        near,
                        0x0800,
                        &v4([10, 77, 1, 1], [10, 77, 1, 2], 17, &udp(2152, &pattern(len))),
                    );
                    redirect(frame, &packet[..HEADERS]);
                }
                number += frames.len();
                assert_eq!(second.transmit(frames), 0);
            }
            for number in 0..40 {
                assert!(receive(&to) == pattern(100 + number), "round {round}, packet {number}");
            }
        }
        assert_eq!(second.port.statistics().unwrap().tx_invalid_descs, 0);
        assert_eq!(first.port.statistics().unwrap().rx_dropped, 0);
        first_steering.detach().unwrap();
        second_steering.detach().unwrap();
        first.close();
        second.close();
        assert_eq!(pool.free_frames(), pool.frames());
    });
}

/// A kernel at the other end of a veth pair leaves checksums to a device that is none.
#[test]
fn checksums_that_a_sender_of_this_host_leaves_are_finished() {
    if !rig::is_root("checksums_that_a_sender_of_this_host_leaves_are_finished") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        let from = pair.far(|| udp_at("10.77.0.2:0"));
        for finishes in [false, true] {
            let (pool, xdp) = pool();
            let (mut steering, Driven { port, .. }) = open(&xdp, 0, &SMALL);
            let port: Box<dyn Port> = Box::new(port);
            let mut port: Box<dyn Port> = if finishes { Box::new(ChecksumPort::new(port)) } else { port };
            let mut cache = pool.cache();
            for len in [1, 700, 1400] {
                from.send_to(&pattern(len), "10.77.0.1:2152").unwrap();
                let packet = eventually("the datagram comes", || {
                    let mut batch = Batch::new();
                    port.receive(&mut cache, &mut batch);
                    batch.drain(..).map(|frame| frame.to_vec()).find(|frame| frame[12..14] == [8, 0])
                });
                let upper_len = (8 + len).try_into().unwrap();
                let pseudo = checksum::pseudo_v4(
                    [10, 77, 0, 2].into(),
                    [10, 77, 0, 1].into(),
                    IpProtocol::UDP,
                    upper_len,
                );
                let sum = checksum::combine(&[pseudo, checksum::sum(&packet[34..])]);
                assert_eq!(sum == u16::MAX, finishes, "{len}");
                assert_eq!(packet[40..42] == pseudo.to_be_bytes(), !finishes, "{len}");
            }
            steering.detach().unwrap();
        }
    });
}

#[test]
fn a_jumbo_packet_is_a_chain_both_ways() {
    if !rig::is_root("a_jumbo_packet_is_a_chain_both_ways") {
        return;
    }
    for size in FrameSize::ALL {
        Pair::run(1, 9000, |pair| {
            let (pool, xdp) = pool_of(size);
            let (mut steering, mut port) = open(&xdp, 0, &JUMBO);
            let far = pair.far(|| udp_at("10.77.0.2:5000"));
            let (to, from) = (pair.far_mac("ke-b0"), mac("ke-a0"));
            for round in 0..100 {
                for len in [100, 1750, 1751, 3798, 3799, 5000, 8500, 8972] {
                    let payload = pattern(len);
                    far.send_to(&payload, "10.77.0.1:2152").unwrap();
                    let mut frame = port.next(|frame| is_udp(frame, 2152));
                    assert_eq!(
                        frame.segments().count(),
                        (HEADERS + len).div_ceil(size.room()),
                        "round {round}"
                    );
                    assert!(frame.to_vec()[HEADERS..] == payload, "{len} bytes differ");
                    let packet = eth(to, from, 0x0800, &v4(NEAR, FAR, 17, &udp(5000, &payload)));
                    redirect(&mut frame, &packet[..HEADERS]);
                    assert_eq!(port.transmit([frame]), 0);
                    assert!(receive(&far) == payload, "{len} bytes differ on the way back");
                }
            }
            steering.detach().unwrap();
            port.close();
            assert_eq!(pool.free_frames(), pool.frames());
        });
    }
}

#[test]
fn what_can_never_be_sent_fails_and_the_rest_goes() {
    if !rig::is_root("what_can_never_be_sent_fails_and_the_rest_goes") {
        return;
    }
    Pair::run(1, 9000, |pair| {
        let (pool, xdp) = pool();
        let mut port = Driven::new(XdpPort::open(&xdp, index("ke-a0"), 0, &JUMBO).unwrap(), pool);
        let far = pair.far(|| udp_at("10.77.0.2:5000"));
        let (to, from) = (pair.far_mac("ke-b0"), mac("ke-a0"));
        let bytes = |payload: &[u8]| eth(to, from, 0x0800, &v4(NEAR, FAR, 17, &udp(5000, payload)));
        // A packet in `count` segments, of which the first is `first` bytes.
        let cut = |port: &mut Driven<XdpPort>, bytes: &[u8], first: usize, count: usize| {
            let mut frame = port.make(&bytes[..first]);
            let rest = &bytes[first..];
            for part in rest.chunks(rest.len().div_ceil(count - 1)) {
                let segment = port.make(part);
                frame.push_segment(segment);
            }
            assert_eq!(frame.segments().count(), count);
            frame
        };
        let frames = [
            port.make(&bytes(b"first")),
            cut(&mut port, &bytes(&pattern(1000)), 50, 17),
            cut(&mut port, &bytes(&pattern(1000)), 50, 18),
            port.make(&[]),
            FramePool::leak(1).unwrap().allocate().unwrap(),
            // An emptied first segment is left out.
            cut(&mut port, &bytes(&pattern(300)), 0, 3),
            cut(&mut port, &bytes(&pattern(301)), 0, 2),
            port.make(&bytes(b"last")),
        ];
        assert_eq!(port.transmit(frames), 3);
        for payload in [&b"first"[..], &pattern(1000), &pattern(300), &pattern(301), b"last"] {
            assert_eq!(receive(&far), payload);
        }
        assert_eq!(port.port.statistics().unwrap().tx_invalid_descs, 0);
        port.close();
        assert_eq!(pool.free_frames(), pool.frames());
        // Without multi-buffer no chain goes.
        let mut port = Driven::new(XdpPort::open(&xdp, index("ke-a0"), 0, &SMALL).unwrap(), pool);
        let frames = [cut(&mut port, &bytes(&pattern(300)), 50, 2), port.make(&bytes(b"one"))];
        assert_eq!(port.transmit(frames), 1);
        assert_eq!(receive(&far), b"one");
        port.close();
        assert_eq!(pool.free_frames(), pool.frames());
    });
}

#[test]
fn a_burst_beyond_one_call_and_the_ring_is_sent_in_order() {
    if !rig::is_root("a_burst_beyond_one_call_and_the_ring_is_sent_in_order") {
        return;
    }
    for need_wakeup in [true, false] {
        Pair::run(1, 1500, |pair| {
            let (pool, xdp) = pool();
            let options = XdpOptions { need_wakeup, tx: 64, completion: 64, ..SMALL };
            let mut port = Driven::new(XdpPort::open(&xdp, index("ke-a0"), 0, &options).unwrap(), pool);
            let far = pair.far(|| udp_at("10.77.0.2:5000"));
            let (to, from) = (pair.far_mac("ke-b0"), mac("ke-a0"));
            for _ in 0..5 {
                let frames: Vec<_> = (0..150u8)
                    .map(|number| {
                        port.make(&eth(to, from, 0x0800, &v4(NEAR, FAR, 17, &udp(5000, &[number; 64]))))
                    })
                    .collect();
                assert_eq!(port.transmit(frames), 0);
                for number in 0..150u8 {
                    assert_eq!(receive(&far), [number; 64]);
                }
            }
            port.close();
            assert_eq!(pool.free_frames(), pool.frames());
        });
    }
}

#[test]
fn a_port_that_closes_under_load_loses_no_frame() {
    if !rig::is_root("a_port_that_closes_under_load_loses_no_frame") {
        return;
    }
    Pair::run(1, 9000, |pair| {
        let (pool, xdp) = pool();
        let far = pair.far(|| udp_at("10.77.0.2:0"));
        let (to, from) = (pair.far_mac("ke-b0"), mac("ke-a0"));
        for round in 0..5usize {
            // The queue is opened again right after it was closed.
            let (mut steering, mut port) = open(&xdp, 0, &JUMBO);
            for number in 0..40 {
                far.send_to(&pattern(number * 200), "10.77.0.1:2152").unwrap();
            }
            // Some received, some lie in the ring, some are on their way out.
            port.next(|frame| is_udp(frame, 2152));
            let mut batch: Batch = (0..32)
                .map(|_| port.make(&eth(to, from, 0x0800, &v4(NEAR, FAR, 17, &udp(5000, &pattern(5000))))))
                .collect();
            port.port.transmit(&mut port.cache, &mut batch);
            assert!(pool.free_frames() < pool.frames() - 200, "round {round}");
            if round % 2 == 0 {
                steering.detach().unwrap();
            }
            drop(batch);
            port.close();
            assert_eq!(pool.free_frames(), pool.frames(), "round {round}");
        }
    });
}

#[test]
fn a_small_pool_serves_what_it_can() {
    if !rig::is_root("a_small_pool_serves_what_it_can") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        // Fewer frames than the fill ring takes.
        let pool = FramePool::leak(100).unwrap();
        let xdp = XdpPool::register(pool).unwrap();
        let (mut steering, mut port) = open(&xdp, 0, &SMALL);
        let far = pair.far(|| udp_at("10.77.0.2:0"));
        for number in 0..300u32 {
            far.send_to(&number.to_be_bytes(), "10.77.0.1:2152").unwrap();
            let frame = port.next(|frame| is_udp(frame, 2152));
            assert_eq!(frame.data()[HEADERS..HEADERS + 4], number.to_be_bytes());
            port.cache.release(frame);
        }
        steering.detach().unwrap();
        port.close();
        assert_eq!(pool.free_frames(), 100);
    });
}

#[test]
fn busy_polling_receives_and_sends() {
    if !rig::is_root("busy_polling_receives_and_sends") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        let (pool, xdp) = pool();
        let busy_poll = Some(kaido_xsk::BusyPoll { time_us: 20, budget: 64 });
        let (mut steering, mut port) = open(&xdp, 0, &XdpOptions { busy_poll, ..SMALL });
        let far = pair.far(|| udp_at("10.77.0.2:5000"));
        let (to, from) = (pair.far_mac("ke-b0"), mac("ke-a0"));
        for number in 0..20u8 {
            far.send_to(&[number; 40], "10.77.0.1:2152").unwrap();
            let frame = port.next(|frame| is_udp(frame, 2152));
            drop(frame);
            let frame = port.make(&eth(to, from, 0x0800, &v4(NEAR, FAR, 17, &udp(5000, &[number]))));
            assert_eq!(port.transmit([frame]), 0);
            assert_eq!(receive(&far), [number]);
        }
        assert!(port.find(Duration::from_millis(20), |_| true).is_none());
        steering.detach().unwrap();
        port.close();
        assert_eq!(pool.free_frames(), pool.frames());
    });
}

/// Answers UDP to port 2152 with the same payload to port 5000; what else comes is left to the kernel.
struct Answer([u8; HEADERS]);

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
            // Blocks of uneven cost: the later one is finished first.
            if frame.data()[HEADERS + 3].is_multiple_of(16) {
                std::thread::yield_now();
            }
            redirect(&mut frame, &self.0);
            out.transmit(port, frame);
        }
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

#[test]
fn two_workers_share_a_queue_and_keep_its_order() {
    if !rig::is_root("two_workers_share_a_queue_and_keep_its_order") {
        return;
    }
    // The second window is one block: claims wait for the head.
    for (window, total) in [(1024, 20_000u32), (32, 5000)] {
        Pair::run(1, 1500, |pair| {
            let (pool, xdp) = pool();
            let ifindex = index("ke-a0");
            let config = PortSteeringConfig { matches: GTPU, mac: mac("ke-a0"), multi_buffer: false };
            let mut steering = PortSteering::load(config).unwrap();
            steering.set_addresses(&["10.77.0.1".parse().unwrap()]).unwrap();
            steering.attach_to(ifindex, AttachMode::Native).unwrap();
            let device = SharedXdp::open(&xdp, ifindex, 0, &SMALL).unwrap();
            let queue = SharedQueue::new(device, Order::Kept { window });
            steering.register_socket(0, queue.device().as_fd()).unwrap();
            let (far, near) = (pair.far_mac("ke-b0"), mac("ke-a0"));
            let answer = eth(far, near, 0x0800, &v4(NEAR, FAR, 17, &udp(5000, &[0; 4])));
            let stop = Arc::new(AtomicBool::new(false));
            let workers: Vec<_> = (0..2)
                .map(|number| {
                    let port: Box<dyn Port> = Box::new(queue.port());
                    let function = Box::new(Answer(answer[..HEADERS].try_into().unwrap()));
                    let ports = vec![(port, KernelPath::Shared)];
                    let mut worker = Worker::new(pool, ports, function, WorkerSettings::default());
                    // Before the first packet the kernel must have frames to receive into.
                    assert_eq!(worker.step(), 0);
                    worker.spawn(format!("worker-{number}"), stop.clone()).unwrap()
                })
                .collect();
            let from = pair.far(|| udp_at("10.77.0.2:0"));
            let to = pair.far(|| udp_at("10.77.0.2:5000"));
            let mut meter = ReorderMeter::new();
            // As many under way as a socket's buffer surely holds.
            let mut sent = 0;
            for number in 0..total {
                while sent < total && sent < number + 100 {
                    from.send_to(&sent.to_be_bytes(), "10.77.0.1:2152").unwrap();
                    sent += 1;
                }
                let payload = receive(&to);
                let sequence = u32::from_be_bytes(payload.try_into().unwrap());
                meter.arrived(sequence.into());
                assert_eq!(sequence, number, "window {window}");
            }
            assert_eq!((meter.counts().packets, meter.counts().reordered), (total.into(), 0));
            stop.store(true, Ordering::Relaxed);
            let mut totals = SharedTotals::default();
            for worker in workers {
                let counters = worker.counters().clone();
                assert!(worker.join());
                totals += counters.shared(PortId(0)).unwrap();
            }
            assert!(totals.packets >= total.into());
            assert_eq!(totals.blocks, totals.drained);
            assert_eq!(queue.device().statistics().unwrap().tx_invalid_descs, 0);
            steering.detach().unwrap();
            drop(queue);
            assert_eq!(pool.free_frames(), pool.frames());
        });
    }
}
