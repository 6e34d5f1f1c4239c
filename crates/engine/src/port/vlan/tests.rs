use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::batch::BATCH_MAX;
use crate::counters::PortTotals;
use crate::function::{Function, Output};
use crate::polling::WorkerSettings;
use crate::pool::FramePool;
use crate::port::{KernelPath, MemoryPort, MemoryWire, PortId};
use crate::worker::Worker;

/// A memory port that says when it may sleep, takes a number of frames at a time, and has a descriptor.
struct Device {
    port: MemoryPort,
    room: usize,
    may_sleep: bool,
    asked: Arc<Mutex<usize>>,
    fd: OwnedFd,
}

impl Device {
    fn new(wire: &MemoryWire, room: usize) -> Self {
        let fd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        Self { port: wire.port(), room, may_sleep: true, asked: Arc::default(), fd }
    }
}

impl Port for Device {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        self.port.receive(pool, batch);
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let some = self.room.min(batch.len());
        let mut taken: Batch = batch.drain(..some).collect();
        self.port.transmit(pool, &mut taken)
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        report(DropReason::RX_RING_FULL, 7);
    }

    fn backlog(&mut self) -> Option<u32> {
        Some(3)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn handoffs(&mut self) -> usize {
        5
    }

    fn may_sleep(&mut self) -> bool {
        *self.asked.lock().unwrap() += 1;
        self.may_sleep
    }

    fn needs_poll(&self) -> bool {
        true
    }
}

/// A frame with those tags, whose payload is a number.
fn frame(tags: &[u16], number: u32) -> Vec<u8> {
    let mut octets = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tci in tags {
        octets.extend([0x81, 0x00]);
        octets.extend(tci.to_be_bytes());
    }
    octets.extend([0x08, 0x00]);
    octets.extend(number.to_be_bytes());
    octets
}

fn received(port: &mut VlanPort, pool: &mut PoolCache) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    port.receive(pool, &mut batch);
    let frames = batch.iter().map(Frame::to_vec).collect();
    batch.drain(..).for_each(|frame| pool.release(frame));
    frames
}

fn losses(port: &mut VlanPort) -> Vec<(DropReason, u64)> {
    let mut found = Vec::new();
    port.losses(&mut |reason, count| found.push((reason, count)));
    found
}

#[test]
fn each_port_has_its_vlan_without_the_tag_and_the_untagged_one_the_rest() {
    let pool = FramePool::leak(64).unwrap();
    let mut cache = pool.cache();
    let wire = MemoryWire::new();
    let mut ports =
        vlan_ports(Box::new(wire.port()), &[Some(100), None, Some(200)], UnclaimedFrames::Dropped).unwrap();
    let sent = [
        frame(&[100], 0),
        frame(&[], 1),
        frame(&[200], 2),
        // Priority 5, and DEI.
        frame(&[0xb000 | 100], 3),
        frame(&[200, 100], 4),
        frame(&[300], 5),
        frame(&[0xe000], 6),
        vec![1, 2, 3],
    ];
    sent.iter().for_each(|frame| assert!(wire.send(frame.clone())));
    assert_eq!(received(&mut ports[0], &mut cache), [frame(&[], 0), frame(&[], 3)]);
    let rest = [sent[1].clone(), sent[5].clone(), sent[6].clone(), sent[7].clone()];
    assert_eq!(received(&mut ports[1], &mut cache), rest);
    assert_eq!(received(&mut ports[2], &mut cache), [frame(&[], 2), frame(&[100], 4)]);
    assert_eq!(losses(&mut ports[0]), []);
    // Of the service tag (802.1ad) too.
    let mut service = frame(&[100], 7);
    service[12..14].copy_from_slice(&[0x88, 0xa8]);
    wire.send(service);
    assert_eq!(received(&mut ports[0], &mut cache), [frame(&[], 7)]);
    drop((ports, cache));
    assert_eq!(pool.free_frames(), 64);
}

#[test]
fn what_no_port_has_is_counted() {
    let pool = FramePool::leak(64).unwrap();
    for (unclaimed, lost, left) in [
        (UnclaimedFrames::Dropped, vec![(DropReason::VLAN_UNKNOWN, 3)], 0),
        (UnclaimedFrames::Kernels, vec![], 3),
    ] {
        let mut cache = pool.cache();
        let wire = MemoryWire::new();
        let mut ports = vlan_ports(Box::new(wire.port()), &[Some(100), Some(200)], unclaimed).unwrap();
        for tags in [&[][..], &[300], &[100], &[0, 100]] {
            wire.send(frame(tags, 1));
        }
        assert_eq!(received(&mut ports[0], &mut cache), [frame(&[], 1)]);
        assert_eq!((losses(&mut ports[1]), ports[1].left_to_kernel()), (vec![], 0));
        assert_eq!((losses(&mut ports[0]), ports[0].left_to_kernel()), (lost, left));
        assert_eq!((losses(&mut ports[0]), ports[0].left_to_kernel()), (vec![], 0));
        // A port that is closed has no frames any more, and the others still have.
        ports.remove(1);
        wire.send(frame(&[200], 2));
        wire.send(frame(&[100], 3));
        assert_eq!(received(&mut ports[0], &mut cache), [frame(&[], 3)]);
    }
    assert_eq!(pool.free_frames(), 64);
}

#[test]
fn a_tag_goes_on_and_what_is_not_taken_is_as_it_was() {
    let pool = FramePool::leak(64).unwrap();
    let mut cache = pool.cache();
    let wire = MemoryWire::new();
    let mut ports =
        vlan_ports(Box::new(Device::new(&wire, 3)), &[Some(100), None], UnclaimedFrames::Dropped).unwrap();
    let mut batch = Batch::new();
    for number in 0..5 {
        batch.push(Frame::from_slice(&frame(&[], number), || cache.allocate()).unwrap());
    }
    // Too short to be a frame.
    batch.insert(1, Frame::from_slice(&[1, 2, 3], || cache.allocate()).unwrap());
    assert_eq!(ports[0].transmit(&mut cache, &mut batch), 1);
    let left: Vec<_> = batch.iter().map(Frame::to_vec).collect();
    assert_eq!(left, [frame(&[], 3), frame(&[], 4)]);
    assert_eq!(ports[1].transmit(&mut cache, &mut batch), 0);
    let sent: Vec<_> = std::iter::from_fn(|| wire.receive()).collect();
    let tagged = |number| frame(&[100], number);
    assert_eq!(sent, [tagged(0), tagged(1), tagged(2), frame(&[], 3), frame(&[], 4)]);
    // A chain, and a frame without room in front.
    let long = [frame(&[], 9), vec![7; 9000]].concat();
    batch.push(Frame::from_slice(&long, || cache.allocate()).unwrap());
    let mut full = cache.allocate().unwrap();
    assert!(full.occupy(2, 60));
    batch.push(full);
    assert_eq!((ports[0].transmit(&mut cache, &mut batch), batch.len()), (1, 0));
    assert_eq!(wire.receive(), Some([frame(&[100], 9), vec![7; 9000]].concat()));
    drop((ports, cache, batch));
    assert_eq!(pool.free_frames(), 64);
}

#[test]
fn the_first_port_speaks_for_the_device() {
    let pool = FramePool::leak(64).unwrap();
    let mut cache = pool.cache();
    let wire = MemoryWire::new();
    let mut device = Device::new(&wire, 64);
    device.may_sleep = false;
    let asked = device.asked.clone();
    let mut ports = vlan_ports(Box::new(device), &[Some(1), Some(2)], UnclaimedFrames::Dropped).unwrap();
    assert_eq!((losses(&mut ports[0]), losses(&mut ports[1])), (vec![(DropReason::RX_RING_FULL, 7)], vec![]));
    assert_eq!((ports[0].backlog(), ports[1].backlog()), (Some(3), Some(0)));
    assert_eq!((ports[0].handoffs(), ports[1].handoffs()), (5, 0));
    assert!(ports[0].needs_poll() && !ports[1].needs_poll());
    assert!(!ports[0].may_sleep() && ports[1].may_sleep());
    assert_eq!(*asked.lock().unwrap(), 1);
    // What waits is not slept over.
    wire.send(frame(&[2], 0));
    assert_eq!(received(&mut ports[0], &mut cache), Vec::<Vec<u8>>::new());
    assert_eq!((ports[1].may_sleep(), ports[1].backlog()), (false, Some(1)));
    assert_eq!(received(&mut ports[1], &mut cache).len(), 1);
    assert!(ports[1].may_sleep() && !ports[0].may_sleep());
    assert!(ports.iter().all(|port| port.readiness().is_some()));
    // A device that must be polled must be.
    let polled = vlan_ports(Box::new(wire.port()), &[Some(1), Some(2)], UnclaimedFrames::Dropped).unwrap();
    assert!(polled.iter().all(|port| port.readiness().is_none()));
}

#[test]
fn a_port_that_is_slow_leaves_frames_in_the_device() {
    let pool = FramePool::leak(1024).unwrap();
    let mut cache = pool.cache();
    let wire = MemoryWire::new();
    let mut ports = vlan_ports(Box::new(wire.port()), &[Some(1), Some(2)], UnclaimedFrames::Dropped).unwrap();
    let many = u32::try_from(10 * BATCH_MAX).unwrap();
    (0..many).for_each(|number| assert!(wire.send(frame(&[2], number))));
    wire.send(frame(&[1], many));
    for _ in 0..20 {
        assert_eq!(received(&mut ports[0], &mut cache), Vec::<Vec<u8>>::new());
    }
    assert!(ports[1].backlog().unwrap() as usize <= WAITING_MAX);
    let mut got = Vec::new();
    while got.len() < many as usize {
        got.extend(received(&mut ports[1], &mut cache));
        let own = received(&mut ports[0], &mut cache);
        assert!(own.is_empty() || own == [frame(&[], many)]);
    }
    assert_eq!(got, (0..many).map(|number| frame(&[], number)).collect::<Vec<_>>());
    assert_eq!(losses(&mut ports[0]), []);
    drop((ports, cache));
    assert_eq!(pool.free_frames(), 1024);
}

/// Sends each frame back by the port that it came in on.
struct Mirror;

impl Function for Mirror {
    fn name(&self) -> &'static str {
        "mirror"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        batch.drain(..).for_each(|frame| out.transmit(port, frame));
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

#[test]
fn a_worker_that_sleeps_wakes_for_every_vlan() {
    let pool = FramePool::leak(256).unwrap();
    let (near, far) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::NONBLOCK,
        None,
    )
    .unwrap();
    /// A datagram a frame.
    struct Wire(OwnedFd);
    impl Port for Wire {
        fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
            let mut room = [0; 2048];
            while !batch.is_full() {
                let Ok((len, _)) = rustix::net::recv(&self.0, &mut room, rustix::net::RecvFlags::empty())
                else {
                    return;
                };
                batch.push(Frame::from_slice(&room[..len], || pool.allocate()).unwrap());
            }
        }

        fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
            for frame in batch.drain(..) {
                rustix::net::send(&self.0, frame.data(), rustix::net::SendFlags::empty()).unwrap();
                pool.release(frame);
            }
            0
        }

        fn readiness(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }
    }
    let vids = [Some(1), Some(2), None];
    let ports = vlan_ports(Box::new(Wire(near)), &vids, UnclaimedFrames::Dropped).unwrap();
    // The first one is looked at last: what it sorts for the others waits for the next round.
    let queues = ports.into_iter().rev().map(|port| (Box::new(port) as Box<dyn Port>, KernelPath::None));
    let settings = WorkerSettings { spin_rounds: Some(0), ..WorkerSettings::default() };
    let worker = Worker::new(pool, queues.collect(), Box::new(Mirror), settings);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let handle = worker.spawn("worker-0".into(), stop.clone()).unwrap();
    for (number, tags) in [&[1][..], &[2], &[], &[2], &[3]].into_iter().enumerate() {
        // Long enough for the worker to be asleep.
        std::thread::sleep(Duration::from_millis(20));
        let sent = frame(tags, u32::try_from(number).unwrap());
        rustix::net::send(&far, &sent, rustix::net::SendFlags::empty()).unwrap();
        let mut polled = [rustix::event::PollFd::new(&far, rustix::event::PollFlags::IN)];
        let patience = Duration::from_secs(10).try_into().unwrap();
        assert_eq!(rustix::event::poll(&mut polled, Some(&patience)), Ok(1));
        let mut room = [0; 2048];
        let (len, _) = rustix::net::recv(&far, &mut room, rustix::net::RecvFlags::empty()).unwrap();
        assert_eq!(room[..len], sent);
    }
    let counters = handle.counters().clone();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(handle.join());
    let packets = |port| PortTotals::of([&*counters], PortId(port)).rx_packets;
    assert_eq!([packets(0), packets(1), packets(2)], [2, 2, 1]);
    assert_eq!(pool.free_frames(), 256);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// Whatever comes in whatever order, and whoever receives how often: each frame comes to its port once, in order, and
    /// goes back as it came.
    #[test]
    fn every_frame_comes_to_its_port_once_and_in_order(
        tags in proptest::collection::vec(0u16..5, 0..600),
        turns in proptest::collection::vec(0usize..3, 0..60),
        room in 1usize..70,
    ) {
        let pool = FramePool::leak(4096).unwrap();
        let mut cache = pool.cache();
        let wire = MemoryWire::new();
        let mut device = Device::new(&wire, room);
        device.room = room;
        let mut ports =
            vlan_ports(Box::new(device), &[Some(1), Some(2), None], UnclaimedFrames::Dropped).unwrap();
        let of = |tag: u16| match tag { 1 => 0, 2 => 1, _ => 2 };
        let with = |tag: u16, number: u32| if tag == 0 { frame(&[], number) } else { frame(&[tag], number) };
        for (number, &tag) in (0u32..).zip(&tags) {
            wire.send(with(tag, number));
        }
        let mut got = vec![Vec::new(); 3];
        let mut batch = Batch::new();
        let all = turns.into_iter().chain((0..3).cycle().take(3 * (tags.len() + 2)));
        for place in all {
            ports[place].receive(&mut cache, &mut batch);
            got[place].extend(batch.iter().map(Frame::to_vec));
            while !batch.is_empty() {
                prop_assert_eq!(ports[place].transmit(&mut cache, &mut batch), 0);
            }
        }
        let mut back: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 3];
        while let Some(octets) = wire.receive() {
            let tag = if octets[12] == 0x81 { u16::from_be_bytes([octets[14], octets[15]]) } else { 0 };
            back[of(tag)].push(octets);
        }
        for place in 0..3 {
            let came = (0u32..).zip(&tags).filter(|(_, tag)| of(**tag) == place);
            let own: Vec<_> = came.clone().map(|(number, &tag)| {
                if place == 2 { with(tag, number) } else { frame(&[], number) }
            }).collect();
            prop_assert_eq!(&got[place], &own);
            let sent: Vec<_> = came.map(|(number, &tag)| with(tag, number)).collect();
            prop_assert_eq!(&back[place], &sent);
        }
        prop_assert_eq!(losses(&mut ports[0]), vec![(DropReason::RX_RING_FULL, 7)]);
        drop((ports, cache, batch));
        prop_assert_eq!(pool.free_frames(), 4096);
    }
}
