//! What the bench reads: its file, trailers of packets that come back, and capture files.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;

use kaido_bench::file::BenchPlan;
use kaido_bench::generator::CompiledTraffic;
use kaido_bench::receive::{JudgeSettings, Receiver};
use kaido_bench::result::ClockCosts;
use kaido_bench::trailer::{TRAILER_LEN, TrailerKey};
use kaido_engine::port::PcapReader;
use kaido_fuzz::{Script, fuzz_target};

fuzz_target!(bench, 20_000, run);

/// A file over bearers, as a start for others.
const FILE: &str = r#"
[[port]]
name = "a"
driver = { pcap = {} }
[[port]]
name = "c"
driver = { pcap = {} }
[[bearers]]
name = "b"
[bearers.of]
count = 10
teid_first = 1
access_teid_first = 1
ue_first = "10.60.0.1"
local = "10.100.3.1"
peer_first = "10.100.3.2"
qfi = 9
server = "8.8.8.8"
access = { port = "a", device_mac = "02:00:00:00:03:01", bench_mac = "02:00:00:00:03:02" }
core = { port = "c", device_mac = "02:00:00:00:06:01", bench_mac = "02:00:00:00:06:02" }
[[stream]]
name = "up"
bearers = "b"
direction = "uplink"
[[stream]]
name = "down"
bearers = "b"
direction = "downlink"
"#;

fn run(input: &[u8]) {
    let mut script = Script::new(input);
    match script.byte_or_zero() % 4 {
        0 => file(script.rest()),
        1 => changed_file(&mut script),
        2 => packets(&mut script),
        _ => capture(script.rest()),
    }
}

/// Any text is a plan whose packets can be made, or refused with places within it.
fn file(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    // Files are not for a fuzzer to name.
    if text.contains("capture") || text.contains("input") {
        return;
    }
    match BenchPlan::parse(&text) {
        Ok(plan) => {
            let compiled = CompiledTraffic::new(&plan.traffic).unwrap();
            for stream in 0..compiled.streams().count() {
                assert!(compiled.packet(stream, 1, 1).is_some());
            }
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            assert!(faults.iter().all(|fault| fault.at.end <= text.len() && !fault.message.is_empty()));
        }
    }
}

fn changed_file(script: &mut Script<'_>) {
    let at = usize::from(script.short()) % FILE.len();
    let take = usize::from(script.byte_or_zero()) % 16;
    let mut text = FILE.as_bytes().to_vec();
    let end = (at + take).min(text.len());
    text.splice(at..end, script.rest().iter().copied());
    file(&text);
}

/// What comes back, changed: every packet is counted in one way or another, and nothing is taken for a trailer that is none.
fn packets(script: &mut Script<'_>) {
    static COMPILED: OnceLock<(Arc<CompiledTraffic>, BenchPlan)> = OnceLock::new();
    let (compiled, plan) = COMPILED.get_or_init(|| {
        let plan = BenchPlan::parse(FILE).unwrap();
        (Arc::new(CompiledTraffic::new(&plan.traffic).unwrap()), plan)
    });
    let mut receiver = Receiver::new(compiled, &plan.rules, JudgeSettings::default()).unwrap();
    let mut came = 0;
    while let Some(what) = script.byte() {
        let mut packet = compiled.packet((what & 1).into(), script.short().into(), 0).unwrap();
        let at = usize::from(script.short()) % packet.len();
        match what >> 1 & 3 {
            0 => packet[at] ^= script.byte_or_zero(),
            1 => packet.truncate(at),
            2 => packet.extend(script.octets()),
            _ => packet = script.octets().to_vec(),
        }
        if let Some(trailer) = TrailerKey::new(1).read(&packet) {
            assert!(packet.len() >= TRAILER_LEN && trailer.sequence <= u64::from(u16::MAX));
        }
        receiver.arrive((what >> 3 & 1).into(), &packet, 5);
        came += 1;
    }
    let (result, _) = receiver.finish(&[], 5, ClockCosts::default());
    let received: u64 = result.ports.iter().map(|port| port.received.packets).sum();
    assert_eq!(received, came);
}

/// Any bytes are a capture, or end where they contradict the format.
fn capture(bytes: &[u8]) {
    let path: PathBuf = std::env::temp_dir().join(format!("kaido-fuzz-capture-{}", std::process::id()));
    fs::write(&path, bytes).unwrap();
    if let Ok(mut reader) = PcapReader::open(&path) {
        let mut total = 0;
        while let Ok(Some(packet)) = reader.read() {
            total += packet.bytes.len();
            assert!(total <= bytes.len());
        }
    }
    fs::remove_file(&path).unwrap();
}
