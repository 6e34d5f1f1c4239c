//! Nanoseconds a packet of the fast path, over random sessions: `cargo run --release -p kaido-xdp --example
//! fastpath_speed [sessions ...]`, as root. Each session has a record for its tunnel and one for its UE's address, and one
//! usage counter. Rounds are interleaved; the median is printed, and the spread.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::Ipv4Addr;
use std::time::Instant;

use kaido_xdp::fastpath::{FastDestination, FastDirection, FastKey, FastRecord, Hop, Template, UsageCell};
use kaido_xdp::speed::Speed;
use kaido_xdp::{FastPath, FastPathConfig};

const ROUNDS: usize = 7;
const REPEAT: u32 = 4_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let asked = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<Vec<u32>, _>>()?;
    let counts = if asked.is_empty() { vec![1, 65_536, 1_000_000] } else { asked };
    let mut paths = Vec::new();
    for &sessions in &counts {
        let (path, insert_ns) = fill(sessions)?;
        let speed = Speed::load(&path)?;
        println!("{sessions} sessions: {insert_ns} ns to insert a record");
        paths.push((sessions, path, speed));
    }
    let mut figures: BTreeMap<(u32, &str), Vec<u64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (sessions, _, speed) in &paths {
            for (name, direction) in
                [("uplink", FastDirection::Uplink), ("downlink", FastDirection::Downlink)]
            {
                let timing = speed.time(direction, *sessions, REPEAT)?;
                figures.entry((*sessions, name)).or_default().push(timing.ns_per_packet());
            }
        }
    }
    for ((sessions, name), mut all) in figures {
        all.sort_unstable();
        println!(
            "{sessions:>9} sessions {name:>8}: {} ns a packet ({}..{})",
            all[all.len() / 2],
            all[0],
            all[all.len() - 1]
        );
    }
    Ok(())
}

/// A fast path of that many sessions, and the time to insert a record, in nanoseconds.
fn fill(sessions: u32) -> Result<(FastPath, u128), Box<dyn Error>> {
    let mut path = FastPath::load(&FastPathConfig {
        records_max: sessions * 2,
        usage_cells_max: sessions,
        templates_max: 1,
        hops_max: 2,
        fixed_source_port: false,
        seed: [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93],
    })?;
    // Test runs come in by the loopback interface: what leaves by it leaves by where it came in.
    let hop = Hop { ifindex: 1, mtu: 1500, source: [2; 6], destination: [4; 6], port: 0, tag: None };
    path.set_hop(0, Some(&hop))?;
    let peer = Ipv4Addr::new(192, 0, 2, 2);
    path.set_template(0, Some(&Template { local: Speed::LOCAL, peer, tos: 0, hop: 0 }))?;
    let start = Instant::now();
    for session in 0..sessions {
        let address = Speed::ue(session);
        let uplink = FastRecord {
            session,
            direction: FastDirection::Uplink,
            gate_open: true,
            far_drop: false,
            qfis: None,
            ue_ipv4: Some(address),
            ue_ipv6: None,
            usage: [Some(UsageCell { cell: session, before_qos: false }), None, None],
            destination: FastDestination::Hop(0),
        };
        let tunnel =
            FastDestination::Tunnel { template: 0, teid: session, qfi: Some(9), container_uplink: false };
        let downlink = FastRecord { direction: FastDirection::Downlink, destination: tunnel, ..uplink };
        path.insert_or_replace(FastKey::Tunnel { local: Speed::LOCAL, teid: session }, &uplink)?;
        path.insert_or_replace(FastKey::Ipv4 { instance: 0, address }, &downlink)?;
    }
    Ok((path, start.elapsed().as_nanos() / u128::from(sessions * 2)))
}
