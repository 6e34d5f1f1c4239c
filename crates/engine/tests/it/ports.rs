//! AF_PACKET and TAP ports against the kernel's own sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use kaido_engine::port::{Layer, PacketPort, PortError, TapConfig, TapPort, Tun, UdpSink};
use kaido_engine::{FramePool, FrameSize, netlink};

use crate::rig;
use crate::rig::frame::{arp, checksum_holds, echo, eth, is_udp, udp, v4};
use crate::rig::socket::{receive, udp_at};
use crate::rig::{Driven, Pair, in_namespace, index, mac, pattern, run};

/// Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
const NEAR: [u8; 4] = [10, 77, 0, 1];
const FAR: [u8; 4] = [10, 77, 0, 2];

fn pool() -> &'static FramePool {
    FramePool::leak(1024).unwrap()
}

fn packet_port(pool: &'static FramePool, name: &str, mtu: usize) -> Driven<PacketPort> {
    Driven::new(PacketPort::open(index(name), mtu).unwrap(), pool)
}

#[test]
fn packets_of_a_kernel_socket_arrive_with_whole_checksums() {
    if !rig::is_root("packets_of_a_kernel_socket_arrive_with_whole_checksums") {
        return;
    }
    for size in FrameSize::ALL {
        Pair::run(1, 9000, |pair| {
            let pool = FramePool::leak_of(size, 1024).unwrap();
            let _sink =
                UdpSink::bind(["10.77.0.1:2152".parse().unwrap(), "[fd77:0::1]:2152".parse().unwrap()]);
            let mut port = packet_port(pool, "ke-a0", 9000);
            let raw = raw_socket("ke-a0");
            let far = pair.far(|| udp_at("10.77.0.2:0"));
            // A port unreachable would make the next send fail.
            far.connect("10.77.0.1:2152").unwrap();
            for len in [1, 18, 100, 1001, 1750, 1751, 3798, 3799, 3800, 8000, 8971, 8972] {
                let payload = pattern(len);
                far.send(&payload).unwrap();
                let frame = port.next(|frame| is_udp(frame, 2152));
                let bytes = frame.to_vec();
                assert!(bytes[HEADERS..] == payload, "{len} bytes differ");
                assert!(checksum_holds(&bytes), "{len} bytes");
                assert_eq!(frame.segments().count(), bytes.len().div_ceil(size.room()));
                port.cache.release(frame);
                let plain = raw.next(|frame| is_udp(frame, 2152));
                assert!(!checksum_holds(&plain), "the rig should send unfinished checksums");
            }
            let far = pair.far(|| udp_at("[fd77:0::2]:0"));
            for len in [1, 100, 5001] {
                far.send_to(&pattern(len), "[fd77:0::1]:2152").unwrap();
                let frame = port.next(|frame| frame[12..14] == [0x86, 0xdd] && frame[20] == 17);
                assert!(checksum_holds(&frame.to_vec()), "{len} bytes");
            }
            assert_eq!(port.port.drops(), kaido_engine::port::PacketDrops::default());
            port.close();
            assert_eq!(pool.free_frames(), pool.frames());
        });
    }
}

#[test]
fn without_a_sink_the_kernel_refuses() {
    if !rig::is_root("without_a_sink_the_kernel_refuses") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        let far = pair.far(|| udp_at("10.77.0.2:0"));
        far.connect("10.77.0.1:2152").unwrap();
        let refused = |tries| {
            (0..tries).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                far.send(b"x").is_err()
            })
        };
        assert!(refused(1000));
        let sink = UdpSink::bind(["10.77.0.1:2152".parse().unwrap()]).unwrap();
        far.take_error().unwrap();
        assert!(!refused(10));
        drop(sink);
        let taken = UdpSink::bind(["192.0.2.1:2152".parse().unwrap()]).unwrap_err();
        assert!(taken.to_string().contains("192.0.2.1:2152"), "{taken}");
    });
}

#[test]
fn sent_packets_reach_a_kernel_socket() {
    if !rig::is_root("sent_packets_reach_a_kernel_socket") {
        return;
    }
    Pair::run(1, 9000, |pair| {
        let pool = pool();
        let mut port = packet_port(pool, "ke-a0", 9000);
        let far = pair.far(|| udp_at("10.77.0.2:5000"));
        let (to, from) = (pair.far_mac("ke-b0"), mac("ke-a0"));
        let sized = |len| eth(to, from, 0x0800, &v4(NEAR, FAR, 17, &udp(5000, &pattern(len))));
        let frames: Vec<_> = (0..100).map(|number| port.make(&sized(64 + number))).collect();
        assert_eq!(port.transmit(frames), 0);
        for number in 0..100 {
            assert_eq!(receive(&far), pattern(64 + number));
        }
        for len in [3798, 3799, 8972] {
            let frame = port.make(&sized(len));
            assert_eq!(port.transmit([frame]), 0);
            assert!(receive(&far) == pattern(len), "{len} bytes differ");
        }
        // One byte too long, and no packet at all, among good ones.
        let frames: Vec<_> =
            [sized(10), sized(8973), sized(20), Vec::new(), sized(30)].map(|bytes| port.make(&bytes)).into();
        assert_eq!(port.transmit(frames), 2);
        for len in [10, 20, 30] {
            assert_eq!(receive(&far), pattern(len));
        }
        // What we and the kernel beside us send does not come back.
        assert!(port.find(Duration::from_millis(50), |frame| frame[6..12] == from).is_none());
        udp_at("10.77.0.1:0").send_to(b"hello", "10.77.0.2:5000").unwrap();
        assert_eq!(receive(&far), b"hello");
        assert!(port.find(Duration::from_millis(50), |frame| frame[6..12] == from).is_none());
        port.close();
        assert_eq!(pool.free_frames(), pool.frames());
    });
}

#[test]
fn vlan_tags_are_put_back() {
    if !rig::is_root("vlan_tags_are_put_back") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        let pool = pool();
        let mut near = packet_port(pool, "ke-a0", 1500);
        let mut far = pair.far(|| packet_port(pool, "ke-b0", 1500));
        let (to, from) = (mac("ke-a0"), [2, 0, 0, 0, 0, 9]);
        let inner = [&0x0800u16.to_be_bytes()[..], &v4(FAR, NEAR, 17, &udp(2152, b"tagged"))].concat();
        for tags in [&[0x8100u16, 0x2064][..], &[0x88a8, 0x0007, 0x8100, 0x0008], &[0x8100, 1, 0x8100, 2]] {
            let octets: Vec<u8> = tags[1..].iter().flat_map(|half| half.to_be_bytes()).collect();
            let bytes = eth(to, from, tags[0], &[&octets[..], &inner].concat());
            let frame = far.make(&bytes);
            assert_eq!(far.transmit([frame]), 0);
            let arrived = near.next(|frame| frame[6..12] == from);
            assert_eq!(arrived.to_vec(), bytes, "{tags:x?}");
        }
        near.close();
        far.close();
        assert_eq!(pool.free_frames(), pool.frames());
    });
}

/// TCP of a kernel on the same host leaves the cutting of its packets to a device that is none, and their checksums.
#[test]
fn packets_that_stand_for_several_are_cut() {
    if !rig::is_root("packets_that_stand_for_several_are_cut") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        let pool = pool();
        let mut port = packet_port(pool, "ke-a0", 1500);
        let near = TcpListener::bind("10.77.0.1:7000").unwrap();
        let mut far = pair.far(|| TcpStream::connect("10.77.0.1:7000").unwrap());
        let (_taken, _) = near.accept().unwrap();
        let syn = port.next(|frame| frame[12..14] == [8, 0] && frame[23] == 6).to_vec();
        assert!(checksum_holds(&syn), "a SYN");
        let sequence = |frame: &[u8]| u32::from_be_bytes(*frame[38..].first_chunk().unwrap());
        let sent = pattern(50_000);
        let (mut came, mut missing) = (vec![0; sent.len()], sent.len());
        let mut seen = std::collections::BTreeSet::new();
        let writing = std::thread::spawn({
            let sent = sent.clone();
            move || far.write_all(&sent).map(|()| far)
        });
        rig::eventually("all of it", || {
            for frame in port.poll() {
                let octets = frame.to_vec();
                if octets[12..14] != [8, 0] || octets[23] != 6 {
                    continue;
                }
                assert!(octets.len() <= 1514 && checksum_holds(&octets), "{} bytes", octets.len());
                let payload = &octets[34 + usize::from(octets[46] >> 4) * 4..];
                let at = sequence(&octets).wrapping_sub(sequence(&syn).wrapping_add(1)) as usize;
                if !payload.is_empty() && seen.insert(at) {
                    came[at..at + payload.len()].copy_from_slice(payload);
                    missing -= payload.len();
                }
            }
            (missing == 0).then_some(())
        });
        assert!(came == sent);
        drop(writing.join().unwrap().unwrap());
        assert_eq!(port.port.drops(), kaido_engine::port::PacketDrops::default());
        port.close();
        assert_eq!(pool.free_frames(), pool.frames());
    });
}

#[test]
fn a_pool_that_runs_dry_costs_packets_later_not_now() {
    if !rig::is_root("a_pool_that_runs_dry_costs_packets_later_not_now") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        let pool = FramePool::leak(8).unwrap();
        let mut port = packet_port(pool, "ke-a0", 1500);
        let far = pair.far(|| udp_at("10.77.0.2:0"));
        let _sink = UdpSink::bind(["10.77.0.1:2152".parse().unwrap()]).unwrap();
        for number in 0..30u8 {
            far.send_to(&[number], "10.77.0.1:2152").unwrap();
        }
        for number in 0..30u8 {
            let frame = port.next(|frame| is_udp(frame, 2152));
            assert_eq!(frame.data()[HEADERS], number);
        }
        port.close();
        assert_eq!(pool.free_frames(), 8);
    });
}

fn tap(name: &str) -> TapConfig {
    TapConfig {
        name: name.into(),
        mac: Some([2, 0, 0, 0, 0, 1]),
        mtu: 9000,
        addresses: vec![("10.77.0.1".parse().unwrap(), 24), ("fd77:0::1".parse().unwrap(), 64)],
        arp: true,
    }
}

#[test]
fn the_kernel_behind_a_tap_answers() {
    if !rig::is_root("the_kernel_behind_a_tap_answers") {
        return;
    }
    in_namespace(|| {
        let pool = pool();
        let mut port = Driven::new(TapPort::create(&tap("ke-tap")).unwrap(), pool);
        let interface = netlink::interface("ke-tap").unwrap();
        assert_eq!((interface.mac, interface.mtu, interface.up), ([2, 0, 0, 0, 0, 1], 9000, true));
        assert_eq!(interface.ifindex, port.port.device().ifindex());
        let (ours, theirs) = ([2, 0, 0, 0, 0, 2], interface.mac);
        let request = port.make(&eth([0xff; 6], ours, 0x0806, &arp(1, ours, FAR, [0; 6], NEAR)));
        assert_eq!(port.transmit([request]), 0);
        let reply = port.next(|frame| frame[12..14] == [8, 6]);
        assert_eq!(reply.data()[14..42], arp(2, theirs, NEAR, ours, FAR));
        drop(reply);
        for len in [0, 56, 3000, 3900, 8972] {
            let message = echo(&pattern(len));
            let ping = port.make(&eth(theirs, ours, 0x0800, &v4(FAR, NEAR, 1, &message)));
            assert_eq!(port.transmit([ping]), 0);
            let reply = port.next(|frame| frame[12..14] == [8, 0] && frame[23] == 1);
            let bytes = reply.to_vec();
            assert_eq!(bytes[34], 0, "an echo reply");
            assert!(bytes[42..] == pattern(len), "{len} bytes differ");
            assert_eq!(reply.segments().count(), bytes.len().div_ceil(3840));
        }
        let socket = udp_at("10.77.0.1:5000");
        socket.send_to(&pattern(8000), "10.77.0.2:6000").unwrap();
        let frame = port.next(|frame| is_udp(frame, 6000));
        assert!(frame.to_vec()[HEADERS..] == pattern(8000) && checksum_holds(&frame.to_vec()));
        drop(frame);
        let frame = port.make(&eth(theirs, ours, 0x0800, &v4(FAR, NEAR, 17, &udp(5000, &pattern(8000)))));
        let rest = port.make(&[]);
        assert_eq!(port.transmit([rest, frame]), 1, "an empty packet fails, and only it");
        assert!(receive(&socket) == pattern(8000));
        port.close();
        assert_eq!(pool.free_frames(), pool.frames());
        // A process that another test has just begun may hold it open until it becomes a program.
        rig::eventually("the device goes", || match netlink::interface("ke-tap") {
            Err(netlink::NetlinkError::NoInterface { .. }) => Some(()),
            _ => None,
        });
    });
}

#[test]
fn device_names_are_checked_and_not_taken_over() {
    if !rig::is_root("device_names_are_checked_and_not_taken_over") {
        return;
    }
    in_namespace(|| {
        for name in ["", "a name", "sl/ash", "sixteen-bytes-xx"] {
            assert!(matches!(Tun::create(name, Layer::Ethernet), Err(PortError::Name { .. })), "{name:?}");
        }
        run("ip tuntap add ke-mine mode tap");
        assert!(matches!(Tun::create("ke-mine", Layer::Ethernet), Err(PortError::Sys { .. })));
        assert!(netlink::interface("ke-mine").is_ok());
        let (first, second) =
            (Tun::create("ke-%d", Layer::Ip).unwrap(), Tun::create("ke-%d", Layer::Ip).unwrap());
        assert_eq!((first.name(), second.name()), ("ke-0", "ke-1"));
        let refused = first.set_mac([2; 6]).unwrap_err();
        assert!(
            refused.to_string().starts_with("ke-0: setting an interface's Ethernet address"),
            "{refused}"
        );
    });
}

#[test]
fn a_tun_device_carries_ip_packets() {
    if !rig::is_root("a_tun_device_carries_ip_packets") {
        return;
    }
    in_namespace(|| {
        let tun = Tun::create("ke-ue", Layer::Ip).unwrap();
        tun.set_mtu(1400).unwrap();
        tun.add_address("10.77.0.1".parse().unwrap(), 24).unwrap();
        tun.add_address("fd77:0::1".parse().unwrap(), 64).unwrap();
        // Again is no error.
        tun.add_address("10.77.0.1".parse().unwrap(), 24).unwrap();
        let down = tun.write(&v4(FAR, NEAR, 17, &udp(5000, b"down")));
        assert!(down.is_err());
        tun.set_up().unwrap();
        let interface = netlink::interface("ke-ue").unwrap();
        assert_eq!((interface.mtu, interface.mac, interface.up), (1400, [0; 6], true));
        let wanted: [std::net::IpAddr; 2] = ["10.77.0.1".parse().unwrap(), "fd77:0::1".parse().unwrap()];
        let global: Vec<_> =
            interface.addresses.iter().filter(|a| !a.link_local).map(|a| a.address).collect();
        assert_eq!(global, wanted);
        assert!(
            interface.addresses.iter().all(|a| a.prefix_len == if a.address.is_ipv4() { 24 } else { 64 })
        );
        let socket = udp_at("10.77.0.1:5000");
        socket.send_to(b"to the network", "10.77.0.2:80").unwrap();
        let mut packet = [0; 2000];
        let len = rig::eventually("a packet", || tun.read(&mut packet).ok().filter(|_| packet[0] == 0x45));
        assert_eq!(packet[28..len], *b"to the network");
        tun.write(&v4(FAR, NEAR, 17, &udp(5000, b"to the UE"))).unwrap();
        assert_eq!(receive(&socket), b"to the UE");
        let empty = rig::eventually("no more", || tun.read(&mut packet).err());
        assert_eq!(empty.kind(), std::io::ErrorKind::WouldBlock);
    });
}

/// Sees packets as `tcpdump` does, unfinished.
struct Raw(OwnedFd);

#[allow(clippy::cast_possible_truncation, reason = "small constants of C")]
fn raw_socket(name: &str) -> Raw {
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: plain calls on a descriptor and an address of this function's own.
    unsafe {
        let all = (libc::ETH_P_ALL as u16).to_be();
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(all));
        assert!(fd >= 0);
        let raw = Raw(OwnedFd::from_raw_fd(fd));
        let mut address: libc::sockaddr_ll = core::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = index(name).cast_signed();
        let len = size_of::<libc::sockaddr_ll>() as u32;
        assert_eq!(libc::bind(raw.0.as_raw_fd(), (&raw const address).cast(), len), 0);
        raw
    }
}

impl Raw {
    fn next(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut buffer = [0; 65536];
        loop {
            let (_, len) = rustix::net::recv(&self.0, &mut buffer, rustix::net::RecvFlags::empty()).unwrap();
            if wanted(&buffer[..len]) {
                return buffer[..len].to_vec();
            }
        }
    }
}

fn duplicate(fd: &impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn a_tap_lives_on_in_another_port() {
    if !rig::is_root("a_tap_lives_on_in_another_port") {
        return;
    }
    in_namespace(|| {
        let mut port = Driven::new(TapPort::create(&tap("ke-tap")).unwrap(), pool());
        let interface = netlink::interface("ke-tap").unwrap();
        // As an operator has set it.
        run("ip addr add 10.88.0.1/24 dev ke-tap");
        let to = UdpSocket::bind("10.77.0.1:0").unwrap();
        let ours = [2, 0, 0, 0, 0, 2];
        run("ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:02 dev ke-tap");
        for round in 0..20u8 {
            // One waits in the device, the next comes while nobody has it, another after.
            to.send_to(&[round, 1], "10.77.0.2:2152").unwrap();
            let other = File::from(duplicate(port.port.device().descriptor()));
            port.close();
            to.send_to(&[round, 2], "10.77.0.2:2152").unwrap();
            port = Driven::new(TapPort::adopt(other, &tap("ke-tap")).unwrap(), pool());
            to.send_to(&[round, 3], "10.77.0.2:2152").unwrap();
            for number in 1..=3 {
                let frame = port.next(|frame| is_udp(frame, 2152));
                assert_eq!(frame.data()[HEADERS..], [round, number]);
            }
            let message = echo(&[round; 9]);
            let ping = port.make(&eth(interface.mac, ours, 0x0800, &v4(FAR, NEAR, 1, &message)));
            assert_eq!(port.transmit([ping]), 0);
            let reply = port.next(|frame| frame[12..14] == [8, 0] && frame[23] == 1);
            assert_eq!(reply.data()[42..], [round; 9]);
        }
        let now = netlink::interface("ke-tap").unwrap();
        assert_eq!((now.ifindex, now.mac, now.up), (interface.ifindex, interface.mac, true));
        assert_eq!(now.addresses.len(), interface.addresses.len() + 1);
        port.close();
        // A program that another test starts has it too, until it runs.
        rig::eventually("the last descriptor is gone", || {
            netlink::interface("ke-tap").is_err().then_some(())
        });
        assert!(TapPort::adopt(File::open("/dev/null").unwrap(), &tap("ke-tap")).is_err());
    });
}

#[test]
fn a_packet_socket_lives_on_in_another_port() {
    if !rig::is_root("a_packet_socket_lives_on_in_another_port") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        let far = pair.far(|| udp_at("10.77.0.2:0"));
        let _sink = UdpSink::bind(["10.77.0.1:2152".parse().unwrap()]).unwrap();
        let mut port = packet_port(pool(), "ke-a0", 1500);
        for round in 0..20u8 {
            far.send_to(&[round, 1], "10.77.0.1:2152").unwrap();
            let other = duplicate(port.port.descriptor());
            port.close();
            far.send_to(&[round, 2], "10.77.0.1:2152").unwrap();
            port = Driven::new(PacketPort::adopt(other, index("ke-a0"), 1500).unwrap(), pool());
            for number in 1..=2 {
                let frame = port.next(|frame| is_udp(frame, 2152));
                assert_eq!(frame.data()[HEADERS..HEADERS + 2], [round, number]);
            }
        }
        assert!(port.find(Duration::from_millis(20), |frame| is_udp(frame, 2152)).is_none());
        assert!(PacketPort::adopt(duplicate(port.port.descriptor()), 1, 1500).is_err());
        assert!(PacketPort::adopt(duplicate(&far), index("ke-a0"), 1500).is_err());
    });
}
