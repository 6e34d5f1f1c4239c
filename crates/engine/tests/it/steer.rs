//! The software stage of steering, over ports in memory.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::steer::{SteerQueue, SteerRules, SteeredPort, handoff_ports, relay, steer};
use kaido_engine::{Batch, DropReason, Frame, FramePool, PoolCache};
use kaido_wire::rss::{self, SpreadBy};
use rustix::event::{PollFd, PollFlags, poll};

const ENDPOINT: [u8; 4] = [192, 0, 2, 1];

/// A packet to a UE; its number is in the last octet.
fn downlink(ue: u8, number: u8) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 21, 0, 0, 0, 0, 64, 59, 0, 0, 198, 51, 100, 1, 10, 60, 0, ue, number]);
    frame
}

/// A packet from a UE in a tunnel to us.
fn uplink(ue: u8, teid: u8, number: u8) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 57, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 9]);
    frame.extend(ENDPOINT);
    frame.extend([8, 104, 8, 104, 0, 37, 0, 0, 0x30, 255, 0, 21, 0, 0, 0, teid]);
    frame.extend([0x45, 0, 0, 21, 0, 0, 0, 0, 64, 59, 0, 0, 10, 60, 0, ue, 198, 51, 100, 1, number]);
    frame
}

fn rules(by: SpreadBy) -> SteerRules {
    SteerRules { by, endpoints: vec![IpAddr::from(ENDPOINT)] }
}

/// Ports of workers of which the first `receivers` receive from a wire each; all send by the first wire.
fn ports(wires: &[MemoryWire], workers: usize, by: SpreadBy) -> Vec<SteeredPort> {
    let queue = |worker: usize| {
        let wire = wires.get(worker).unwrap_or(&wires[0]);
        SteerQueue { port: Box::new(wire.port()), receives: worker < wires.len() }
    };
    steer((0..workers).map(queue).collect(), &rules(by)).unwrap()
}

fn received(port: &mut SteeredPort, pool: &mut PoolCache) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    port.receive(pool, &mut batch);
    let packets = batch.iter().map(Frame::to_vec).collect();
    batch.drain(..).for_each(|frame| pool.release(frame));
    packets
}

/// All that the workers receive, by worker.
fn drain(ports: &mut [SteeredPort], pool: &'static FramePool) -> Vec<Vec<Vec<u8>>> {
    let mut caches: Vec<_> = ports.iter().map(|_| pool.cache()).collect();
    let mut all = vec![Vec::new(); ports.len()];
    loop {
        let mut idle = true;
        for ((port, cache), all) in ports.iter_mut().zip(&mut caches).zip(&mut all) {
            let packets = received(port, cache);
            idle &= packets.is_empty();
            all.extend(packets);
        }
        if idle {
            return all;
        }
    }
}

fn numbers_rise(packets: &[Vec<u8>], of: impl Fn(&[u8]) -> u8) {
    let mut last: HashMap<u8, u8> = HashMap::new();
    for packet in packets {
        let number = *packet.last().unwrap();
        if let Some(before) = last.insert(of(packet), number) {
            assert!(number > before, "{number} after {before}");
        }
    }
}

#[test]
fn both_directions_of_a_ue_meet_in_order_and_nothing_is_lost() {
    let pool = FramePool::leak(4096).unwrap();
    let (n3, n6) = (MemoryWire::new(), MemoryWire::new());
    let mut uplinks = ports(std::slice::from_ref(&n3), 3, SpreadBy::Ue);
    let mut downlinks = ports(std::slice::from_ref(&n6), 3, SpreadBy::Ue);
    for number in 0..20 {
        for ue in 0..50 {
            assert!(n3.send(uplink(ue, 99, number)) && n6.send(downlink(ue, number)));
        }
    }
    let (up, down) = (drain(&mut uplinks, pool), drain(&mut downlinks, pool));
    let mut total = 0;
    for (up, down) in up.iter().zip(&down) {
        assert!(!up.is_empty(), "50 UEs leave no worker without work");
        numbers_rise(up, |packet| packet[65]);
        numbers_rise(down, |packet| packet[33]);
        let ues = |packets: &[Vec<u8>], at: usize| {
            let mut ues: Vec<u8> = packets.iter().map(|packet| packet[at]).collect();
            ues.sort_unstable();
            ues
        };
        assert_eq!(ues(up, 14 + 36 + 15), ues(down, 14 + 19));
        total += up.len();
    }
    assert_eq!(total, 1000);
    drop((uplinks, downlinks));
    assert_eq!(pool.free_frames(), 4096);
}

#[test]
fn by_teid_a_tunnel_has_one_worker() {
    let pool = FramePool::leak(1024).unwrap();
    let n3 = MemoryWire::new();
    let mut ports = ports(std::slice::from_ref(&n3), 2, SpreadBy::Teid);
    (0..100).for_each(|ue| assert!(n3.send(uplink(ue, 7, 0))));
    let shares: Vec<usize> = drain(&mut ports, pool).iter().map(Vec::len).collect();
    let expected = rss::target(rss::teid_hash(&uplink(0, 7, 0), true).unwrap(), 2) as usize;
    assert_eq!((shares[expected], shares[1 - expected]), (100, 0));
}

#[test]
fn workers_that_all_receive_hand_over_to_each_other() {
    let pool = FramePool::leak(4096).unwrap();
    let wires = [MemoryWire::new(), MemoryWire::new()];
    let mut ports = ports(&wires, 3, SpreadBy::Ue);
    for ue in 0..120 {
        assert!(wires[usize::from(ue % 2)].send(downlink(ue, 0)));
    }
    let all = drain(&mut ports, pool);
    for (worker, packets) in all.iter().enumerate() {
        assert!(!packets.is_empty());
        for packet in packets {
            assert_eq!(rss::target(rss::ue_hash(packet, false).unwrap(), 3) as usize, worker);
        }
    }
    assert_eq!(all.iter().map(Vec::len).sum::<usize>(), 120);
}

#[test]
fn what_is_not_ip_stays_where_it_came_in() {
    let pool = FramePool::leak(64).unwrap();
    let wire = MemoryWire::new();
    let mut ports = ports(std::slice::from_ref(&wire), 2, SpreadBy::Ue);
    wire.send(vec![1; 60]);
    assert_eq!(drain(&mut ports, pool)[0], [vec![1; 60]]);
}

#[test]
fn what_finds_its_ring_full_is_dropped_and_counted() {
    let pool = FramePool::leak(4096).unwrap();
    let wire = MemoryWire::new();
    let mut ports = ports(std::slice::from_ref(&wire), 2, SpreadBy::Ue);
    let ue = (0..).find(|&ue| rss::target(rss::ue_hash(&downlink(ue, 0), false).unwrap(), 2) == 1).unwrap();
    (0..3000).for_each(|_| assert!(wire.send(downlink(ue, 0))));
    let (mut first, mut second) = (pool.cache(), pool.cache());
    for _ in 0..100 {
        assert_eq!(received(&mut ports[0], &mut first), [[0u8; 0]; 0]);
    }
    let mut taken = 0;
    loop {
        let packets = received(&mut ports[1], &mut second).len();
        if packets == 0 {
            break;
        }
        taken += packets;
    }
    let mut told = Vec::new();
    ports[0].losses(&mut |reason, count| told.push((reason, count)));
    assert_eq!(told, [(DropReason::HANDOFF_FULL, 3000 - taken as u64)]);
    ports[0].losses(&mut |reason, count| panic!("{reason:?} {count} is told twice"));
    drop((first, second));
    assert_eq!(pool.free_frames(), 4096);
}

#[test]
fn a_sleeping_worker_is_woken_by_what_is_handed_over() {
    let pool = FramePool::leak(64).unwrap();
    let wire = MemoryWire::new();
    let mut ports = ports(std::slice::from_ref(&wire), 2, SpreadBy::Ue);
    let mut caches = [pool.cache(), pool.cache()];
    let ue = (0..).find(|&ue| rss::target(rss::ue_hash(&downlink(ue, 0), false).unwrap(), 2) == 1).unwrap();
    let is_readable = |port: &SteeredPort| {
        let mut polled = [PollFd::from_borrowed_fd(port.readiness().unwrap(), PollFlags::IN)];
        poll(&mut polled, Some(&Duration::ZERO.try_into().unwrap())).unwrap() > 0
    };
    for round in 0..3 {
        assert!(ports[1].may_sleep());
        assert!(!is_readable(&ports[1]), "round {round}");
        wire.send(downlink(ue, 0));
        assert!(received(&mut ports[0], &mut caches[0]).is_empty());
        assert_eq!((ports[0].handoffs(), ports[0].handoffs()), (1, 0), "work, though not its own");
        assert!(is_readable(&ports[1]), "round {round}");
        assert!(!ports[1].may_sleep(), "something waits");
        assert_eq!(received(&mut ports[1], &mut caches[1]).len(), 1);
    }
}

fn frame(pool: &'static FramePool, octets: &[u8]) -> Frame {
    Frame::from_slice(octets, || pool.allocate()).unwrap()
}

fn is_readable(port: &dyn Port) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(port.readiness().unwrap(), PollFlags::IN)];
    poll(&mut polled, Some(&Duration::ZERO.try_into().unwrap())).unwrap() > 0
}

#[test]
fn a_crew_hands_frames_to_whom_they_name_in_order_and_in_bounds() {
    let pool = FramePool::leak(4096).unwrap();
    let mut ports = handoff_ports(3).unwrap();
    let mut cache = pool.cache();
    let mut batch = Batch::new();
    for number in 0..20 {
        for worker in [1, 2] {
            batch.push(frame(pool, &[worker, number]));
            if batch.is_full() {
                assert_eq!(ports[0].transmit(&mut cache, &mut batch), 0);
            }
        }
    }
    assert_eq!(ports[0].transmit(&mut cache, &mut batch), 0);
    batch.push(frame(pool, &[1, 99]));
    ports[2].transmit(&mut cache, &mut batch);
    for worker in [1, 2] {
        let mut got = Vec::new();
        loop {
            ports[worker].receive(&mut cache, &mut batch);
            if batch.is_empty() {
                break;
            }
            got.extend(batch.drain(..).map(|frame| frame.to_vec()));
        }
        let others = got.iter().filter(|frame| **frame == [99]).count();
        got.retain(|frame| *frame != [99]);
        assert_eq!(others, usize::from(worker == 1));
        assert_eq!(got, (0..20).map(|number| vec![number]).collect::<Vec<_>>());
    }
    // To itself, to nobody, and without a number.
    [&[0u8, 1][..], &[7, 1], &[]].iter().for_each(|octets| batch.push(frame(pool, octets)));
    assert_eq!(ports[0].transmit(&mut cache, &mut batch), 3);
    for _ in 0..40 {
        (0..32).for_each(|_| batch.push(frame(pool, &[1, 5])));
        ports[0].transmit(&mut cache, &mut batch);
    }
    let mut told = Vec::new();
    ports[0].losses(&mut |reason, count| told.push((reason, count)));
    assert_eq!(told, [(DropReason::HANDOFF_FULL, 40 * 32 - 1024)]);
    ports[0].losses(&mut |reason, count| panic!("{reason:?} {count} is told twice"));
    drop((ports, cache));
    assert_eq!(pool.free_frames(), 4096);
}

#[test]
fn a_sleeping_worker_is_woken_by_its_crew() {
    let pool = FramePool::leak(64).unwrap();
    let mut ports = handoff_ports(2).unwrap();
    let mut cache = pool.cache();
    let mut batch = Batch::new();
    for round in 0..3 {
        assert!(ports[1].may_sleep() && !is_readable(&ports[1]), "round {round}");
        batch.push(frame(pool, &[1, 7]));
        ports[0].transmit(&mut cache, &mut batch);
        assert!(is_readable(&ports[1]) && !ports[1].may_sleep(), "round {round}");
        ports[1].receive(&mut cache, &mut batch);
        assert_eq!(batch.drain(..).count(), 1);
        assert!(!is_readable(&ports[1]));
        assert!(ports[1].may_sleep());
        ports[1].waker().wake();
        assert!(is_readable(&ports[1]), "round {round}");
        ports[1].receive(&mut cache, &mut batch);
        assert!(batch.is_empty());
    }
}

#[test]
fn all_workers_send_by_the_device_of_one() {
    let pool = FramePool::leak(4096).unwrap();
    let wire = MemoryWire::new();
    let mut ports = relay(Box::new(wire.port()), 3).unwrap();
    let mut cache = pool.cache();
    let mut batch = Batch::new();
    assert!(wire.send(vec![1; 60]));
    for (worker, received) in [(1, 0), (2, 0), (0, 1)] {
        ports[worker].receive(&mut cache, &mut batch);
        assert_eq!(batch.drain(..).count(), received);
    }
    for (worker, port) in (0..).zip(&mut ports) {
        batch.push(frame(pool, &[worker; 60]));
        assert_eq!(port.transmit(&mut cache, &mut batch), 0);
    }
    let sent = || std::iter::from_fn(|| wire.receive()).map(|frame| frame[0]).collect::<Vec<_>>();
    assert_eq!(sent(), [0]);
    assert!(!ports[0].may_sleep(), "something waits to be sent");
    ports[0].receive(&mut cache, &mut batch);
    assert_eq!((sent(), ports[0].handoffs(), ports[0].handoffs()), (vec![1, 2], 2, 0));
    for _ in 0..40 {
        (0..32).for_each(|_| batch.push(frame(pool, &[1, 5])));
        ports[1].transmit(&mut cache, &mut batch);
    }
    let mut told = Vec::new();
    ports[1].losses(&mut |reason, count| told.push((reason, count)));
    assert_eq!(told, [(DropReason::HANDOFF_FULL, 40 * 32 - 1024)]);
    assert!(ports[1].readiness().is_none() && ports[1].is_exhausted(), "nothing is waited for there");
    drop((ports, cache));
    assert_eq!(pool.free_frames(), 4096);
}
