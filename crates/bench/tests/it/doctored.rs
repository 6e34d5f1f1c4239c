//! The oracle against a user plane that is right, and against the same one with seeded faults: each is found, and called by its
//! name.
#![allow(clippy::unwrap_used)]

use crate::device::{Came, PACKETS, bearers, mend_ipv4, pass, places, traffic, victim};
use kaido_bench::oracle::Tag;
use kaido_bench::preset::Transport;
use kaido_bench::result::{FindingKind, RunResult};

/// Offsets within what comes out towards the access nodes over IPv4.
const OUTER: usize = 14;
const OUTER_UDP: usize = 34;
const GTPU: usize = 42;
const INNER: usize = 58;
/// And towards the data network.
const PLAIN: usize = 14;

const CUSTOMER: Tag = Tag { tpid: 0x8100, first: 100, count: 12, priority: 3 };
const SERVICE: Tag = Tag { tpid: 0x88a8, first: 7, count: 1, priority: 0 };

/// Which of the user planes is doctored.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Ipv4,
    /// IPv6 outside and inside.
    Ipv6,
    /// With a VLAN for each tenant.
    Tenants,
}

struct Fault {
    name: &'static str,
    on: On,
    doctor: fn(&mut Vec<Came>),
    kind: FindingKind,
    /// A field that must be named.
    field: &'static str,
}

const fn fault(
    name: &'static str,
    on: On,
    doctor: fn(&mut Vec<Came>),
    kind: FindingKind,
    field: &'static str,
) -> Fault {
    Fault { name, on, doctor, kind, field }
}

/// A change of one byte towards the access nodes, with the outer header's checksum kept right.
macro_rules! outer {
    ($at:expr, $flip:expr) => {
        |came| {
            let frame = victim(came, 0);
            frame[$at] ^= $flip;
            mend_ipv4(frame, OUTER);
        }
    };
}

use FindingKind::{
    Corrupted, Duplicated, Late, Lost, Padded, Reordered, Truncated, Unexpected, Unrecognised, WrongFields,
    WrongPort,
};

const FAULTS: &[Fault] = &[
    fault("wrong TEID", On::Ipv4, |came| victim(came, 0)[GTPU + 7] ^= 1, WrongFields, "gtpu.teid"),
    fault("wrong QFI", On::Ipv4, |came| victim(came, 0)[GTPU + 14] ^= 1, WrongFields, "gtpu.pdu_session.qfi"),
    fault(
        "container of the other direction",
        On::Ipv4,
        |came| victim(came, 0)[GTPU + 13] ^= 0x10,
        WrongFields,
        "gtpu.pdu_session.type",
    ),
    fault("wrong GTP-U length", On::Ipv4, |came| victim(came, 0)[GTPU + 3] ^= 4, WrongFields, "gtpu.length"),
    fault("wrong outer source", On::Ipv4, outer!(OUTER + 15, 2), WrongFields, "outer.ipv4.src"),
    fault("wrong access node", On::Ipv4, outer!(OUTER + 19, 1), WrongFields, "outer.ipv4.dst"),
    fault("wrong DSCP", On::Ipv4, outer!(OUTER + 1, 0xb8), WrongFields, "outer.ipv4.dscp"),
    fault("wrong outer TTL", On::Ipv4, outer!(OUTER + 8, 1), WrongFields, "outer.ipv4.ttl"),
    fault("DF lost", On::Ipv4, outer!(OUTER + 6, 0x40), WrongFields, "outer.ipv4.flags"),
    fault(
        "wrong UDP port",
        On::Ipv4,
        |came| victim(came, 0)[OUTER_UDP + 3] ^= 1,
        WrongFields,
        "outer.udp.dst_port",
    ),
    fault(
        "a flow that changes its source port",
        On::Ipv4,
        |came| victim(came, 0)[OUTER_UDP + 1] ^= 1,
        WrongFields,
        "outer.udp.src_port",
    ),
    fault(
        "stale outer checksum",
        On::Ipv4,
        |came| victim(came, 0)[OUTER + 10] ^= 1,
        WrongFields,
        "outer.ipv4.checksum",
    ),
    fault(
        "stale inner checksum",
        On::Ipv4,
        |came| victim(came, 1)[PLAIN + 11] ^= 1,
        WrongFields,
        "ipv4.checksum",
    ),
    fault(
        "stale checksum of the user's UDP",
        On::Ipv4,
        |came| victim(came, 1)[PLAIN + 27] ^= 1,
        WrongFields,
        "udp.checksum",
    ),
    fault(
        "lost TTL decrement",
        On::Ipv4,
        |came| {
            let frame = victim(came, 1);
            frame[PLAIN + 8] += 1;
            mend_ipv4(frame, PLAIN);
        },
        WrongFields,
        "ipv4.ttl",
    ),
    fault("stale hop limit", On::Ipv6, |came| victim(came, 1)[PLAIN + 7] += 1, WrongFields, "ipv6.hop_limit"),
    fault(
        "no checksum where one is due",
        On::Ipv6,
        |came| victim(came, 0)[60..62].fill(0),
        WrongFields,
        "outer.udp.checksum",
    ),
    fault(
        "wrong checksum over IPv6",
        On::Ipv6,
        |came| victim(came, 0)[60] ^= 1,
        WrongFields,
        "outer.udp.checksum",
    ),
    fault("wrong tenant", On::Tenants, |came| victim(came, 1)[19] ^= 1, WrongFields, "vlan[1].id"),
    fault("wrong service tag", On::Tenants, |came| victim(came, 1)[15] ^= 1, WrongFields, "vlan[0].id"),
    fault("wrong priority", On::Tenants, |came| victim(came, 0)[14] ^= 0x20, WrongFields, "vlan[0].priority"),
    fault(
        "a tag lost",
        On::Tenants,
        |came| {
            victim(came, 0).drain(12..16);
        },
        WrongFields,
        "vlan[0].id",
    ),
    fault("wrong destination MAC", On::Ipv4, |came| victim(came, 1)[5] ^= 1, WrongFields, "ethernet.dst"),
    fault("wrong source MAC", On::Ipv4, |came| victim(came, 0)[11] ^= 1, WrongFields, "ethernet.src"),
    fault(
        "another bearer's packet in the tunnel",
        On::Ipv4,
        |came| {
            // Of equal length: the lengths come in turn, three of them.
            let other = came[places(came, 0)[53]].1[..INNER].to_vec();
            victim(came, 0)[..INNER].copy_from_slice(&other);
        },
        WrongFields,
        "gtpu.teid",
    ),
    fault(
        "swapped bytes",
        On::Ipv4,
        |came| {
            let frame = victim(came, 1);
            frame.swap(60, 61);
        },
        Corrupted,
        "payload",
    ),
    fault(
        "flipped bit in the payload",
        On::Ipv4,
        |came| victim(came, 0)[INNER + 100] ^= 4,
        Corrupted,
        "payload",
    ),
    fault(
        "flipped bit in the trailer",
        On::Ipv4,
        |came| {
            *victim(came, 1).last_mut().unwrap() ^= 1;
        },
        Corrupted,
        "",
    ),
    fault(
        "truncated",
        On::Ipv4,
        |came| {
            let frame = victim(came, 1);
            frame.truncate(frame.len() - 7);
        },
        Truncated,
        "",
    ),
    fault("padded", On::Ipv4, |came| victim(came, 1).extend([0; 20]), Padded, "padding"),
    fault(
        "duplicated",
        On::Ipv4,
        |came| {
            let copy = came[places(came, 0)[50]].clone();
            came.push(copy);
        },
        Duplicated,
        "",
    ),
    fault(
        "lost",
        On::Ipv4,
        |came| {
            came.remove(places(came, 1)[50]);
        },
        Lost,
        "",
    ),
    fault(
        "the last one lost",
        On::Ipv4,
        |came| {
            came.remove(*places(came, 1).last().unwrap());
        },
        Lost,
        "",
    ),
    fault(
        "reordered block",
        On::Ipv4,
        |came| {
            let first = places(came, 1)[32];
            came[first..first + 64].rotate_left(32);
        },
        Reordered,
        "",
    ),
    fault(
        "late",
        On::Ipv4,
        |came| {
            let place = places(came, 0)[50];
            came[place].2 += 2_000_000_000;
        },
        Late,
        "",
    ),
    fault(
        "wrong port",
        On::Ipv4,
        |came| {
            let place = places(came, 0)[50];
            came[place].0 = 1;
        },
        WrongPort,
        "",
    ),
    fault(
        "a packet from nowhere",
        On::Ipv4,
        |came| {
            let mut frame = came[places(came, 1)[50]].clone();
            let len = frame.1.len();
            frame.1[len - 16..].fill(0xee);
            came.push(frame);
        },
        Unrecognised,
        "",
    ),
    fault(
        "forwarded without a hop left",
        On::Ipv4,
        |came| {
            // What the third stream sends, in the tunnel of its bearer.
            let bearers = bearers(false, false, [&[], &[]]);
            let compiled =
                kaido_bench::generator::CompiledTraffic::new(&traffic(&bearers, Transport::Udp)).unwrap();
            let mut frame = came[places(came, 0)[0]].clone();
            frame.1.truncate(INNER);
            frame.1.extend(&compiled.packet(2, 0, 0).unwrap()[14..]);
            came.push(frame);
        },
        Unexpected,
        "",
    ),
];

fn on(on: On, doctor: impl FnOnce(&mut Vec<Came>)) -> RunResult {
    let bearers = match on {
        On::Ipv4 => bearers(false, false, [&[], &[]]),
        On::Ipv6 => bearers(true, true, [&[], &[]]),
        On::Tenants => bearers(false, false, [&[CUSTOMER], &[SERVICE, CUSTOMER]]),
    };
    pass(&bearers, &traffic(&bearers, Transport::Udp), doctor)
}

fn findings(result: &RunResult) -> String {
    result.findings.kept.iter().map(ToString::to_string).collect()
}

/// Conformance: TS 29.281 5.2 | The bench's oracle judges every packet of a tunnel, in both directions and families
#[test]
fn a_right_user_plane_is_found_right() {
    for outer_ipv6 in [false, true] {
        for ue_ipv6 in [false, true] {
            for transport in [Transport::Udp, Transport::Tcp] {
                let bearers = bearers(outer_ipv6, ue_ipv6, [&[], &[]]);
                let result = pass(&bearers, &traffic(&bearers, transport), |_| ());
                let case = format!("outer IPv6 {outer_ipv6}, UE IPv6 {ue_ipv6}, {transport:?}");
                assert!(result.is_clean(), "{case}: {}", findings(&result));
                let counts = |stream: usize| {
                    let stream = &result.streams[stream];
                    (stream.sent.packets, stream.received.packets, stream.lost, stream.withheld)
                };
                assert_eq!(counts(0), (PACKETS, PACKETS, 0, 0), "{case}");
                assert_eq!(counts(1), (PACKETS, PACKETS, 0, 0), "{case}");
                assert_eq!(counts(2), (PACKETS, 0, 0, PACKETS), "{case}");
            }
        }
    }
    let tenants = on(On::Tenants, |_| ());
    assert!(tenants.is_clean(), "{}", findings(&tenants));
}

#[test]
fn every_seeded_fault_is_found_and_named() {
    assert!(FAULTS.len() >= 20);
    for Fault { name, on: which, doctor, kind, field } in FAULTS {
        let result = on(*which, doctor);
        assert!(!result.is_clean(), "{name}: not found");
        let found = &result.findings.kept;
        let named = found.iter().find(|finding| finding.kind == *kind);
        let Some(named) = named else { panic!("{name}: found as {}", findings(&result)) };
        if !field.is_empty() {
            let fields: Vec<_> = named.wrong_fields().collect();
            assert!(fields.contains(field), "{name}: {fields:?}\n{}", findings(&result));
        }
        // A fault is of one kind, whatever else follows from it: what is damaged beyond recognition is lost too.
        let others = result.findings.kinds.keys().filter(|found| *found != kind && **found != Lost).count();
        assert_eq!(others, 0, "{name}: {}", findings(&result));
    }
}

#[test]
fn a_reordered_block_is_told_from_reordered_packets() {
    let block = on(On::Ipv4, |came| {
        let first = places(came, 1)[32];
        came[first..first + 64].rotate_left(32);
    });
    let of = &block.streams[0].reordering;
    assert_eq!((of.packets, of.blocks, of.block_packets_max, of.extent_max), (32, 1, 32, 63));
    let pairs = on(On::Ipv4, |came| {
        for pair in places(came, 1)[32..64].chunks(2) {
            came.swap(pair[0], pair[1]);
        }
    });
    let of = &pairs.streams[0].reordering;
    assert_eq!((of.packets, of.blocks, of.block_packets_max, of.extent_max), (16, 16, 1, 1));
}
