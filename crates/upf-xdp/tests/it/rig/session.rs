//! One interface of both roles with a session, whose packets tests give to its program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use kaido_upf_xdp::offload::{
    Hop, OffloadCounters, OffloadDestination, OffloadDirection, OffloadKey, OffloadRecord, OffloadRule,
    PassReason, Template, UsageCell,
};
use kaido_upf_xdp::{Offload, Roles, Steering, SteeringConfig};
use kaido_wire::{IpProtocol, checksum, ipv4, ipv6};
use kaido_xdp::{Action, TestRun};

use super::frame::{Mac, eth, ipv4_packet};
use super::tables::{self, N3, N6, N6_V6, VRF};

pub const OURS: Mac = [2, 0, 0, 0, 0, 1];
pub const NEXT: Mac = [2, 0, 0, 0, 0, 7];
pub const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub const LOCAL6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 1);
pub const PEER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 2);
pub const UE: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 7);
/// One whose gNB has an IPv6 address.
pub const OTHER_UE: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 9);
pub const UE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x45, 7, 0, 0, 0, 9);
pub const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub const REMOTE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub const TEID: u32 = 7;
pub const DOWN_TEID: u32 = 0x0102_0304;
pub const QFI: u8 = 9;

pub fn v4(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    ipv4_packet(from, to, 17, payload)
}

pub fn v6(from: Ipv6Addr, to: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet.extend([17, 64]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(payload);
    packet
}

/// A T-PDU in the session's tunnel, with a PDU session container.
pub fn tunnelled(inner: &[u8]) -> Vec<u8> {
    eth(OURS, 0x0800, &v4(PEER, LOCAL, &frame_udp(&message(inner))))
}

/// That over IPv6.
pub fn tunnelled_over_ipv6(inner: &[u8]) -> Vec<u8> {
    eth(OURS, 0x86dd, &v6(PEER6, LOCAL6, &frame_udp(&message(inner))))
}

/// The packet with the right checksum, where it has one behind its IP header.
pub fn checked(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let (at, protocol, from, to) = if packet[0] >> 4 == 4 {
        let header = ipv4::header(&packet).unwrap();
        (header.header_len.into(), header.protocol, header.src.into(), header.dst.into())
    } else {
        let header = ipv6::header(&packet).unwrap();
        (40, header.next_header, IpAddr::from(header.src), IpAddr::from(header.dst))
    };
    let field = at
        + match protocol {
            IpProtocol::UDP => 6,
            IpProtocol::TCP => 16,
            IpProtocol::ICMP | IpProtocol::ICMPV6 => 2,
            _ => return packet,
        };
    let Some(place) = packet.get_mut(field..field + 2) else { return packet };
    place.fill(0);
    let len = packet.len() - at;
    let pseudo = match (from, to) {
        _ if protocol == IpProtocol::ICMP => 0,
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            checksum::pseudo_v4(from, to, protocol, len.try_into().unwrap())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            checksum::pseudo_v6(from, to, protocol, len.try_into().unwrap())
        }
        _ => unreachable!(),
    };
    let sent = checksum::udp_sent(!checksum::combine(&[pseudo, checksum::sum(&packet[at..])]));
    packet[field..field + 2].copy_from_slice(&sent.to_be_bytes());
    packet
}

pub fn message(inner: &[u8]) -> Vec<u8> {
    let mut message = vec![0x34, 255];
    message.extend(u16::try_from(8 + inner.len()).unwrap().to_be_bytes());
    message.extend(TEID.to_be_bytes());
    message.extend([0, 0, 0, 0x85, 1, 0x10, QFI, 0]);
    message.extend(inner);
    message
}

pub fn frame_udp(payload: &[u8]) -> Vec<u8> {
    super::frame::udp(2152, payload)
}

pub fn uplink() -> Vec<u8> {
    tunnelled(&v4(UE, REMOTE, &super::frame::udp(53, &[1; 40])))
}

pub fn downlink() -> Vec<u8> {
    eth(OURS, 0x0800, &v4(REMOTE, UE, &super::frame::udp(53, &[2; 40])))
}

pub fn record(direction: OffloadDirection) -> OffloadRecord {
    let destination = match direction {
        OffloadDirection::Uplink => OffloadDestination::Routed(VRF),
        OffloadDirection::Downlink => OffloadDestination::Tunnel {
            template: 3,
            teid: DOWN_TEID,
            qfi: Some(QFI),
            container_uplink: false,
        },
    };
    let rule = OffloadRule::to(destination).counting([UsageCell::of_passed(5)]);
    OffloadRecord { ue_ipv4: Some(UE), ue_ipv6: Some(UE6), ..OffloadRecord::of_rule(77, direction, rule) }
}

/// The uplink's record, with a rule that is changed.
pub fn uplink_with(change: impl Fn(&mut OffloadRule)) -> OffloadRecord {
    tables::changed(record(OffloadDirection::Uplink), change)
}

pub const TUNNEL_KEY: OffloadKey = OffloadKey::Tunnel { local: IpAddr::V4(LOCAL), teid: TEID };
pub const UE_KEY: OffloadKey = OffloadKey::Ipv4 { instance: 0, address: UE };

/// One interface of both roles, and one session.
pub struct Node {
    pub path: Offload,
    pub steering: Steering,
}

impl Node {
    pub fn new(records_max: u32) -> Self {
        let mut path = tables::path(&tables::config(records_max, true));
        let hop = |name, tag| Hop {
            ifindex: super::index(name),
            mtu: 1500,
            source: OURS,
            destination: NEXT,
            port: 6,
            tag,
            ..Hop::default()
        };
        path.set_hop(N3, Some(&hop("kb-n3", None))).unwrap();
        for n6 in [N6, N6_V6] {
            path.set_hop(n6, Some(&hop("kb-n6", None))).unwrap();
        }
        path.set_routes(&tables::default_routes()).unwrap();
        path.set_template(
            3,
            Some(&Template {
                local: LOCAL.into(),
                peer: PEER.into(),
                udp_checksum: false,
                tos: 0xb8,
                copied: 3,
                hop: N3,
            }),
        )
        .unwrap();
        let over_ipv6 = Template {
            local: LOCAL6.into(),
            peer: PEER6.into(),
            udp_checksum: true,
            tos: 0xb8,
            copied: 3,
            hop: N3,
        };
        path.set_template(4, Some(&over_ipv6)).unwrap();
        let to_other = OffloadDestination::Tunnel {
            template: 4,
            teid: DOWN_TEID,
            qfi: Some(QFI),
            container_uplink: false,
        };
        let other = OffloadRecord::of_rule(78, OffloadDirection::Downlink, OffloadRule::to(to_other));
        path.insert_or_replace(OffloadKey::Ipv4 { instance: 0, address: OTHER_UE }, &other).unwrap();
        let key = OffloadKey::Tunnel { local: LOCAL6.into(), teid: TEID };
        path.insert_or_replace(key, &record(OffloadDirection::Uplink)).unwrap();
        path.insert_or_replace(TUNNEL_KEY, &record(OffloadDirection::Uplink)).unwrap();
        path.insert_or_replace(UE_KEY, &record(OffloadDirection::Downlink)).unwrap();
        let key = OffloadKey::Ipv6 { instance: 0, address: UE6 };
        path.insert_or_replace(key, &record(OffloadDirection::Downlink)).unwrap();
        let roles = Roles { gtpu: true, routed: true };
        let config = SteeringConfig { roles, mac: OURS, multi_buffer: false, no_wire: false };
        let mut steering = Steering::load_offload(config, &path).unwrap();
        steering.set_gtpu_addresses(&[LOCAL.into(), LOCAL6.into()]).unwrap();
        steering.set_instance(Some(0)).unwrap();
        Self { path, steering }
    }

    pub fn run(&self, frame: &[u8]) -> TestRun {
        self.steering.test_run(frame, 1).unwrap()
    }

    pub fn counters(&self) -> OffloadCounters {
        self.steering.offload_counters().unwrap()
    }

    /// The frame is left as it came, for that reason.
    #[track_caller]
    pub fn hands(&self, frame: &[u8], reason: PassReason) {
        let before = self.counters();
        let run = self.run(frame);
        assert_eq!((run.frame.as_slice(), run.action == Action::Redirect), (frame, false));
        let after = self.counters();
        let counted = (after.handed(reason) - before.handed(reason), after.total() - before.total());
        assert_eq!(counted, (1, 1), "{reason:?}: {after:?}");
    }

    #[track_caller]
    pub fn forwards(&self, frame: &[u8]) -> Vec<u8> {
        let run = self.run(frame);
        assert_eq!(run.action, Action::Redirect, "{:?}", self.counters());
        run.frame
    }

    /// A cell's eight words, all counts in them.
    pub fn cell(&mut self, index: usize) -> [u64; 8] {
        self.path.sync(u32::try_from(index).unwrap());
        std::array::from_fn(|at| self.word(index, at).load(Ordering::Relaxed))
    }

    pub fn word(&self, cell: usize, word: usize) -> &AtomicU64 {
        let (base, len) = self.path.usage_memory();
        assert!(cell * 64 + 64 <= len);
        // SAFETY: within the mapping, which lives as long as the offload does.
        unsafe { base.cast::<AtomicU64>().add(cell * 8 + word).as_ref() }
    }
}

pub fn with_node(test: &str, body: impl FnOnce(Node) + Send) {
    if super::is_root(test) {
        super::in_namespace(|_| {
            tables::interfaces();
            body(Node::new(64));
        });
    }
}

/// Many test runs: each waits for the kernel's grace periods, so they are done side by side.
pub fn side_by_side<T: Sync>(items: &[T], body: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for part in items.chunks(items.len().div_ceil(16).max(1)) {
            let body = &body;
            scope.spawn(move || part.iter().for_each(body));
        }
    });
}
