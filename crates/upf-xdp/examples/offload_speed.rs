//! Nanoseconds a packet of the offload, over random sessions: `cargo run --release -p kaido-upf-xdp --example
//! offload_speed [sessions ...]`, as root. Each session has a record for its tunnel and one for its UE's address: of one rule with a
//! usage counter, the same with an AMBR, and with two rules before it. Rounds are interleaved; the median is printed, and the
//! spread.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use kaido_upf_xdp::offload::OffloadDirection;
use kaido_upf_xdp::speed::{Rules, Speed, filled};

const ROUNDS: usize = 7;
const REPEAT: u32 = 4_000_000;
const RULES: [(&str, Rules); 3] = [
    ("plain", Rules::PLAIN),
    ("AMBR", Rules { policers: 1, ..Rules::PLAIN }),
    ("AMBR and three rules", Rules { policers: 1, before: 2, ..Rules::PLAIN }),
];

fn main() -> Result<(), Box<dyn Error>> {
    let asked = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<Vec<u32>, _>>()?;
    let counts = if asked.is_empty() { vec![1, 65_536, 1_000_000] } else { asked };
    let mut paths = Vec::new();
    for &sessions in &counts {
        for (kind, rules) in RULES {
            let start = Instant::now();
            let path = filled(sessions, rules)?;
            let insert_ns = start.elapsed().as_nanos() / u128::from(sessions * 2);
            let speed = Speed::load(&path)?;
            println!("{sessions} sessions, {kind}: {insert_ns} ns to insert a record");
            paths.push(((sessions, kind), path, speed));
        }
    }
    let mut figures: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (sessions, _, speed) in &paths {
            for (name, direction) in
                [("uplink", OffloadDirection::Uplink), ("downlink", OffloadDirection::Downlink)]
            {
                let timing = speed.time(direction, sessions.0, REPEAT)?;
                figures.entry((*sessions, name)).or_default().push(timing.ns_per_packet());
            }
        }
    }
    for (((sessions, kind), name), mut all) in figures {
        all.sort_unstable();
        println!(
            "{sessions:>9} sessions, {kind:>20} {name:>8}: {} ns a packet ({}..{})",
            all[all.len() / 2],
            all[0],
            all[all.len() - 1]
        );
    }
    Ok(())
}
