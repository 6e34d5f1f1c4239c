//! A bulk transfer through the tunnels, both ways, in memory: equal digests at both ends.

use std::fmt;
use std::sync::Arc;

use kaido_engine::port::MemoryWire;
use kaido_engine::{Worker, WorkerCounters};

use super::frames::{NumberedPacket, Site};
use super::judge::{self, Flaw, Verdicts, Volumes};
use super::node::OfflineNode;
use super::table::Table;
use crate::fault::SimFault;

/// Packets on the wires at once; below what a wire holds.
const WINDOW: usize = 1024;
/// Octets of a packet.
const LEN: usize = 1400;

/// FNV-1a of 64 bits over all payloads in the order of their arrival, and how many octets they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest {
    hash: u64,
    octets: u64,
}

impl Digest {
    const EMPTY: Self = Self { hash: 0xcbf2_9ce4_8422_2325, octets: 0 };

    fn add(&mut self, octets: &[u8]) {
        self.octets += octets.len() as u64;
        for &octet in octets {
            self.hash = (self.hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} of {}", self.hash, self.octets)
    }
}

struct TransferPath<'w> {
    name: &'static str,
    into: &'w MemoryWire,
    out: &'w MemoryWire,
    /// The payload's place from the end of a frame is the same at both ends, whatever the headers are.
    frame: &'w dyn Fn(&NumberedPacket) -> Vec<u8>,
    judge: &'w dyn Fn(&[u8]) -> Result<NumberedPacket, Flaw>,
}

/// Sends `bytes` of IP packets up and as many down. Returns the worker's counters.
pub(super) fn run(
    bytes: u64,
    site: &Site<'_>,
    node: &OfflineNode,
    volumes: &mut Volumes,
    table: &mut Table,
) -> Result<Arc<WorkerCounters>, SimFault> {
    let (n3, n6) = (MemoryWire::new(), MemoryWire::new());
    let mut worker = node.worker(Box::new(n3.port()), Box::new(n6.port()))?;
    let site = &site.with_length(LEN);
    let count = bytes.div_ceil(LEN as u64);
    let up = TransferPath {
        name: "transfer up",
        into: &n3,
        out: &n6,
        frame: &|packet| site.uplink_frame(packet),
        judge: &|frame| judge::uplink(site, frame),
    };
    carry(&up, count, site, &mut worker, table, |packet| volumes.up(packet));
    let down = TransferPath {
        name: "transfer down",
        into: &n6,
        out: &n3,
        frame: &Site::downlink_frame,
        judge: &|frame| judge::downlink(site, frame),
    };
    carry(&down, count, site, &mut worker, table, |packet| volumes.down(packet));
    Ok(worker.counters())
}

fn carry(
    path: &TransferPath<'_>,
    count: u64,
    site: &Site<'_>,
    worker: &mut Worker,
    table: &mut Table,
    mut arrived: impl FnMut(&NumberedPacket),
) {
    let (mut sent, mut received) = (Digest::EMPTY, Digest::EMPTY);
    let mut verdicts = Verdicts::new(0, usize::try_from(count).unwrap_or(usize::MAX));
    let mut numbers = 0..count;
    loop {
        let mut waiting = 0;
        for packet in numbers.by_ref().take(WINDOW).filter_map(|number| site.numbered(number)) {
            let frame = (path.frame)(&packet);
            sent.add(user_payload(&frame, &packet));
            waiting += usize::from(path.into.send(frame));
        }
        if waiting == 0 {
            break;
        }
        while worker.step() > 0 {}
        while let Some(frame) = path.out.receive() {
            if let Some(packet) = verdicts.take((path.judge)(&frame)) {
                received.add(user_payload(&frame, &packet));
                arrived(&packet);
            }
        }
    }
    verdicts.rows(path.name, table);
    table.equal(&format!("{}: digest of all payloads", path.name), sent, received);
}

/// The UDP payload of the user's packet, which ends the frame.
fn user_payload<'f>(frame: &'f [u8], packet: &NumberedPacket) -> &'f [u8] {
    let headers = if packet.host.is_ipv4() { 28 } else { 48 };
    frame.len().checked_sub(packet.len - headers).and_then(|at| frame.get(at..)).unwrap_or_default()
}
