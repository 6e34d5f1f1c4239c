//! Captures through the engine: uplink in, out and judged; the data network's replies in, out and judged.

use std::path::Path;
use std::sync::Arc;

use kaido_engine::WorkerCounters;
use kaido_engine::port::{PcapError, PcapPort, PcapReader, PcapWriter};

use super::frames::{NumberedPacket, Site};
use super::judge::{self, Verdicts, Volumes};
use super::node::OfflineNode;
use super::table::Table;
use crate::fault::SimFault;

/// Packets of each UE, unless there are many UEs: every length in both families.
const PACKETS_PER_UE: u64 = 10;
/// Packets of a capture beyond which every UE has one at least.
const PACKETS_MAX: u64 = 100_000;

/// Nanoseconds between two packets of the captures made here.
const GAP_NS: u64 = 10_000;

/// Replays both ways. Returns the counters of the two workers.
pub(super) fn run(
    dir: &Path,
    site: &Site<'_>,
    node: &OfflineNode,
    volumes: &mut Volumes,
    table: &mut Table,
) -> Result<[Arc<WorkerCounters>; 2], SimFault> {
    let ues = site.ues.len() as u64;
    let count = (ues * PACKETS_PER_UE).min(PACKETS_MAX).max(ues);
    let path = |name: &str| dir.join(name);
    let (n3_in, n6_out) = (path("n3-in.pcapng"), path("n6-out.pcapng"));
    let sent = (0..count).filter_map(|number| site.numbered(number)).map(|packet| site.uplink_frame(&packet));
    write(&n3_in, sent.chain(site.bad_uplink()))?;
    let up = pass(
        node,
        PcapPort::open(Some(&n3_in), Some(&path("n3-answers.pcapng"))),
        PcapPort::open(None, Some(&n6_out)),
    )?;
    let mut verdicts = Verdicts::new(0, usize::try_from(count).unwrap_or(usize::MAX));
    let mut arrived = Vec::new();
    read(&n6_out, |frame| arrived.extend(verdicts.take(judge::uplink(site, frame))))?;
    arrived.iter().for_each(|packet| volumes.up(packet));
    verdicts.rows("n6-out", table);

    let (n6_in, n3_out) = (path("n6-in.pcapng"), path("n3-out.pcapng"));
    write(&n6_in, arrived.iter().map(Site::downlink_frame).chain(site.bad_downlink()))?;
    let down = pass(
        node,
        PcapPort::open(None, Some(&n3_out)),
        PcapPort::open(Some(&n6_in), Some(&path("n6-answers.pcapng"))),
    )?;
    let mut verdicts = Verdicts::new(0, arrived.len());
    read(&n3_out, |frame| note(&mut verdicts, judge::downlink(site, frame), volumes))?;
    verdicts.rows("n3-out", table);
    let answers = [count_in(&path("n3-answers.pcapng"))?, count_in(&path("n6-answers.pcapng"))?];
    table.equal(
        "answers: error indications on n3, ICMP errors on n6",
        "1, 1",
        &answers.map(|n| n.to_string()).join(", "),
    );
    Ok([up, down])
}

fn note(verdicts: &mut Verdicts, verdict: Result<NumberedPacket, judge::Flaw>, volumes: &mut Volumes) {
    if let Some(packet) = verdicts.take(verdict) {
        volumes.down(&packet);
    }
}

/// Turns a worker over two files until the input is through.
fn pass(
    node: &OfflineNode,
    n3: Result<PcapPort, PcapError>,
    n6: Result<PcapPort, PcapError>,
) -> Result<Arc<WorkerCounters>, SimFault> {
    let (n3, n6) = (n3.map_err(failed)?, n6.map_err(failed)?);
    let failures = [n3.failure(), n6.failure()];
    let mut worker = node.worker(Box::new(n3), Box::new(n6))?;
    while !worker.is_exhausted() {
        worker.step();
    }
    let counters = worker.counters();
    // Its ports hand the last packets to the system.
    drop(worker);
    match failures.iter().find_map(|failure| failure.get()) {
        Some(failure) => Err(failed(failure)),
        None => Ok(counters),
    }
}

fn write(path: &Path, frames: impl Iterator<Item = Vec<u8>>) -> Result<(), SimFault> {
    let mut file = PcapWriter::create(path).map_err(failed)?;
    for (place, frame) in (0u64..).zip(frames) {
        file.write(place * GAP_NS, frame.len(), std::iter::once(&frame[..])).map_err(failed)?;
    }
    file.flush().map_err(failed)
}

fn read(path: &Path, mut each: impl FnMut(&[u8])) -> Result<(), SimFault> {
    let mut file = PcapReader::open(path).map_err(failed)?;
    while let Some(packet) = file.read().map_err(failed)? {
        each(&packet.bytes);
    }
    Ok(())
}

fn count_in(path: &Path) -> Result<u64, SimFault> {
    let mut count = 0;
    read(path, |_| count += 1)?;
    Ok(count)
}

fn failed(error: impl std::fmt::Display) -> SimFault {
    SimFault::Capture(error.to_string())
}
