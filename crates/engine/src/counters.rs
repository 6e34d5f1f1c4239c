//! Counters: each worker writes its own, readers add them up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::drop_reason::{DropReason, NUMBER_MAX};
use crate::drop_table::DropTable;
use crate::one_writer::add;
use crate::polling::{PollCounters, PollTotals};
use crate::port::PortId;
use crate::shared::{SharedCounters, SharedTotals};
use crate::timing::{HistogramTotals, Timing};

/// What one worker has seen on one port. Written by that worker alone.
#[derive(Debug)]
#[repr(align(128))]
pub struct PortCounters {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    to_kernel: AtomicU64,
    /// Packets that waited at the last look; `u64::MAX` where the device does not say.
    backlog: AtomicU64,
    /// By number: one for each that there can be, so that no bound has to be checked.
    drops: [AtomicU64; NUMBER_MAX + 1],
}

impl Default for PortCounters {
    fn default() -> Self {
        Self {
            rx_packets: AtomicU64::new(0),
            rx_bytes: AtomicU64::new(0),
            tx_packets: AtomicU64::new(0),
            tx_bytes: AtomicU64::new(0),
            to_kernel: AtomicU64::new(0),
            backlog: AtomicU64::new(u64::MAX),
            drops: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl PortCounters {
    #[inline]
    pub(crate) fn received(&self, packets: usize, bytes: usize) {
        add(&self.rx_packets, packets as u64);
        add(&self.rx_bytes, bytes as u64);
    }

    #[inline]
    pub(crate) fn sent(&self, packets: usize, bytes: usize) {
        add(&self.tx_packets, packets as u64);
        add(&self.tx_bytes, bytes as u64);
    }

    pub(crate) fn left_to_kernel(&self, packets: u64) {
        add(&self.to_kernel, packets);
    }

    #[inline]
    pub(crate) fn dropped(&self, reason: DropReason) {
        self.lost(reason, 1);
    }

    #[inline]
    pub(crate) fn set_backlog(&self, packets: Option<u32>) {
        self.backlog.store(packets.map_or(u64::MAX, u64::from), Ordering::Relaxed);
    }

    /// Packets that waited in the receive queue when it was last looked at; `None` where the device does not say.
    pub fn backlog(&self) -> Option<u64> {
        Some(self.backlog.load(Ordering::Relaxed)).filter(|&packets| packets != u64::MAX)
    }

    #[inline]
    pub(crate) fn lost(&self, reason: DropReason, count: u64) {
        add(&self.drops[reason.number()], count);
    }
}

/// The sum of a port's counters over all workers, since the process began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortTotals {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received, Ethernet headers included.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent, Ethernet headers included.
    pub tx_bytes: u64,
    /// Packets left or handed to the kernel.
    pub to_kernel: u64,
    /// Packets received here that were dropped, by reason; reasons without any are left out.
    pub drops: Vec<(DropReason, u64)>,
    /// What the reasons mean.
    pub reasons: &'static DropTable,
}

/// One worker's counters of all ports.
#[derive(Debug)]
pub struct WorkerCounters {
    ports: Box<[PortCounters]>,
    /// Of the ports that share their queue with other workers.
    shared: Box<[Option<Arc<SharedCounters>>]>,
    reasons: &'static DropTable,
    polling: PollCounters,
    timing: Timing,
}

impl WorkerCounters {
    /// Counters for `ports` ports of a function with these drop reasons.
    pub fn new(ports: usize, reasons: &'static DropTable) -> Self {
        Self::with_shared(vec![None; ports], reasons, &[])
    }

    /// Counters for as many ports as `shared` has entries, and a function with these drop reasons and stages.
    pub(crate) fn with_shared(
        shared: Vec<Option<Arc<SharedCounters>>>,
        reasons: &'static DropTable,
        stages: &[&'static str],
    ) -> Self {
        Self {
            reasons,
            ports: shared.iter().map(|_| PortCounters::default()).collect(),
            shared: shared.into(),
            polling: PollCounters::default(),
            timing: Timing::new(stages),
        }
    }

    /// Cycles that a packet took in each stage, of the batches that were timed: `receive`, `process` with the
    /// function's own stages behind it, `send`.
    pub fn stages(&self) -> Vec<(&'static str, HistogramTotals)> {
        self.timing.stages()
    }

    /// Nanoseconds from the receipt of a packet until what came of it was sent, of the batches that were timed.
    pub fn latency(&self) -> HistogramTotals {
        self.timing.latency()
    }

    /// Packets in a batch, of all batches.
    pub fn batches(&self) -> HistogramTotals {
        let packets = self.ports.iter().map(|port| port.rx_packets.load(Ordering::Relaxed)).sum();
        self.timing.batches(packets)
    }

    #[inline]
    pub(crate) fn timing(&self) -> &Timing {
        &self.timing
    }

    /// What this worker has done on a port whose queue it shares; `None` for other ports.
    pub fn shared(&self, port: PortId) -> Option<SharedTotals> {
        self.shared[port.index()].as_ref().map(|counters| counters.totals())
    }

    /// How this worker has spent its time.
    pub fn polling(&self) -> PollTotals {
        self.polling.totals()
    }

    pub(crate) fn poll_counters(&self) -> &PollCounters {
        &self.polling
    }

    /// This worker's counters of one port.
    #[inline]
    pub fn port(&self, port: PortId) -> &PortCounters {
        &self.ports[port.index()]
    }
}

impl PortTotals {
    /// Adds up what `workers` of one function have seen on `port`.
    pub fn of<'w>(workers: impl IntoIterator<Item = &'w WorkerCounters>, port: PortId) -> Self {
        let mut totals = Self {
            rx_packets: 0,
            rx_bytes: 0,
            tx_packets: 0,
            tx_bytes: 0,
            to_kernel: 0,
            drops: Vec::new(),
            reasons: DropTable::ENGINE,
        };
        let mut drops = [0u64; NUMBER_MAX + 1];
        for worker in workers {
            totals.reasons = worker.reasons;
            let counters = worker.port(port);
            totals.rx_packets += counters.rx_packets.load(Ordering::Relaxed);
            totals.rx_bytes += counters.rx_bytes.load(Ordering::Relaxed);
            totals.tx_packets += counters.tx_packets.load(Ordering::Relaxed);
            totals.tx_bytes += counters.tx_bytes.load(Ordering::Relaxed);
            totals.to_kernel += counters.to_kernel.load(Ordering::Relaxed);
            for (sum, count) in drops.iter_mut().zip(&counters.drops) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        let counted = drops.into_iter().enumerate().filter(|&(_, count)| count > 0);
        totals.drops =
            counted.filter_map(|(number, count)| Some((DropReason::numbered(number)?, count))).collect();
        totals
    }

    /// What was dropped, by the names of the reasons.
    pub fn drops_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.drops.iter().map(|&(reason, count)| (self.reasons.name(reason), count))
    }
}
