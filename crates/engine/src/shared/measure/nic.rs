//! Two threads in place of a NIC behind the rings of a socket. One moves frames from the fill ring to the RX ring, the other from the TX
//! ring to the completion ring. They know by a packet's frame which one it is, and touch no packet.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::prefilled::Outcome;
use crate::pool::FramePool;
use crate::port::{RingPeer, RxPeer, TxPeer};
use crate::shared::cycles;
use crate::worker::pin;

/// Bytes of a packet.
const PACKET_LEN: usize = 64;
/// Packets that are delivered in one go.
const BURST: usize = 256;
/// How long nothing may have been sent.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the NIC has seen.
#[derive(Debug)]
pub(super) struct NicReport {
    pub(super) outcome: Outcome,
    /// From the first packet delivered to the last that was sent.
    pub(super) elapsed: Duration,
    /// The same in [`cycles`].
    pub(super) elapsed_cycles: u64,
}

/// Threads that the NIC takes.
pub(super) const THREADS: usize = 2;

/// Delivers so many packets, and waits until they are back; its threads run on `cpus`, if that is said.
pub(super) fn run(
    pool: &'static FramePool,
    peer: RingPeer,
    packets: u32,
    cpus: Option<[usize; THREADS]>,
) -> io::Result<NicReport> {
    // The sequence number of the packet that each frame carries.
    let sequences: Arc<[AtomicU32]> = (0..pool.frames()).map(|_| AtomicU32::new(u32::MAX)).collect();
    let RingPeer { rx, tx } = peer;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let delivering = std::thread::Builder::new().name("nic-rx".to_owned()).spawn_scoped(scope, || {
            cpus.iter().for_each(|&[cpu, _]| pin(cpu));
            deliver(rx, packets, &sequences, &ended, cpus.is_none())
        })?;
        let sending = std::thread::Builder::new().name("nic-tx".to_owned()).spawn_scoped(scope, || {
            cpus.iter().for_each(|&[_, cpu]| pin(cpu));
            let sent = collect(tx, packets, &sequences, cpus.is_none());
            let end = (Instant::now(), cycles::now());
            ended.store(true, Ordering::Release);
            sent.map(|sent| (Outcome::of(packets, sent.into_iter()), end))
        })?;
        let panicked = |_| io::Error::other("a thread of the NIC panicked");
        let (outcome, (end, end_cycles)) = sending.join().map_err(panicked)??;
        let (began, began_cycles) = delivering.join().map_err(panicked)?;
        let elapsed_cycles = end_cycles.saturating_sub(began_cycles);
        Ok(NicReport { outcome, elapsed: end.saturating_duration_since(began), elapsed_cycles })
    })
}

/// Delivers packets, as many as there are to be; when the first could be.
fn deliver(
    mut peer: RxPeer,
    packets: u32,
    sequences: &[AtomicU32],
    ended: &AtomicBool,
    shares_cpu: bool,
) -> (Instant, u64) {
    let mut began = (Instant::now(), cycles::now());
    let mut delivered = 0;
    while delivered < packets && !ended.load(Ordering::Relaxed) {
        let first = delivered;
        let most = ((packets - delivered) as usize).min(BURST);
        peer.deliver_untouched(most, PACKET_LEN, |frame| {
            if let Some(sequence) = sequences.get(usize::try_from(frame).unwrap_or(usize::MAX)) {
                // Relaxed: it is read behind the rings.
                sequence.store(delivered, Ordering::Relaxed);
            }
            delivered += 1;
        });
        if delivered == 0 {
            // Workers do not run yet, or have not supplied frames.
            began = (Instant::now(), cycles::now());
        }
        if delivered == first && shares_cpu {
            std::thread::yield_now();
        }
    }
    began
}

/// Takes packets that are sent, until all have come: their sequence numbers.
fn collect(
    mut peer: TxPeer,
    packets: u32,
    sequences: &[AtomicU32],
    shares_cpu: bool,
) -> io::Result<Vec<u32>> {
    let mut sent = Vec::with_capacity(packets as usize);
    let mut idle_since = None;
    while sent.len() < packets as usize {
        let taken = peer.take_untouched(|frame| {
            let sequence = sequences.get(usize::try_from(frame).unwrap_or(usize::MAX));
            sent.extend(sequence.map(|sequence| sequence.load(Ordering::Relaxed)));
        });
        if taken > 0 {
            idle_since = None;
            continue;
        }
        if idle_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if shares_cpu {
            std::thread::yield_now();
        }
    }
    Ok(sent)
}
