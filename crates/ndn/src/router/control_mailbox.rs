//! What the control thread wants of a worker that only the worker can do: its tables are its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kaido_engine::steer::Waker;

use super::table_page::{TableReading, WorkerTable};
use super::{HandoffCounters, WorkerSet};
use crate::cs::{CsCounters, CsErasure, CsSettings};
use crate::forward::{Forwarder, ForwarderCounters};

/// How long the control thread waits for a worker. One that does not answer has more to do than to report.
const PATIENCE: Duration = Duration::from_secs(1);

/// Orders that wait for a worker, at most.
const ORDERS_MAX: usize = 64;

/// Packets that an erasure looks at in a round of the worker, at most: some 100 us.
const ERASED_A_ROUND: u32 = 1024;

/// What a worker is to do.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// To say how it is.
    Report,
    /// To change the bounds of its Content Store.
    Bounds(CsSettings),
    /// To take Data in or not, and to answer Interests with it or not.
    Policy { admits: bool, serves: bool },
    /// To erase Data of a prefix.
    Erase(CsErasure),
    /// To read a page of a table of its own.
    Read(Option<Box<TableReading>>),
}

/// How a worker is, after it has done what it was asked for.
#[derive(Clone, Copy, Debug)]
pub struct WorkerReport {
    /// What its forwarding did.
    pub forwarder: ForwarderCounters,
    /// Interests that wait.
    pub pit_entries: u32,
    /// Data that it holds.
    pub cs_entries: u32,
    /// Data that it may hold.
    pub cs_max: u32,
    /// Octets of memory that they take.
    pub cs_octets: u64,
    /// What became of them.
    pub cs: CsCounters,
    /// Nonces that are remembered after their Interests, about.
    pub dead_nonces_max: u32,
    /// Of these, those that gave way to newer ones in less than their time.
    pub dead_nonces_early: u64,
    /// What it has handed to other workers.
    pub worker_set: HandoffCounters,
}

/// Where orders for one worker lie.
#[derive(Debug, Default)]
pub struct ControlMailbox {
    orders: Mutex<Vec<(Order, SyncSender<WorkerReport>)>>,
    has_orders: AtomicBool,
    /// Wakes the worker; of the one that has the host port, that port does.
    waker: Option<Waker>,
}

impl ControlMailbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty one of a worker that `waker` wakes.
    pub fn with_waker(waker: Waker) -> Self {
        Self { waker: Some(waker), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Order, SyncSender<WorkerReport>)>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the worker, which `wake` wakes if it sleeps and nothing else does, obey an order; `None` when it does not in time.
    pub(super) fn ask(&self, order: Order, wake: impl FnOnce()) -> Option<WorkerReport> {
        self.put(order, wake)?.recv_timeout(PATIENCE).ok()
    }

    /// As [`Self::ask`], without waiting for the report; `None` when it has too many orders.
    pub(super) fn begin_report(&self, wake: impl FnOnce()) -> Option<Receiver<WorkerReport>> {
        self.put(Order::Report, wake)
    }

    /// Has the worker read some entries of a table, from a number on; where they come out, `None` when it has too many orders.
    pub(super) fn read(
        &self,
        (table, from): (WorkerTable, u32),
        prefix: &[u8],
        rows_max: usize,
        wake: impl FnOnce(),
    ) -> Option<Receiver<Box<TableReading>>> {
        let (reading, read) = TableReading::new(table, prefix.to_vec(), from, rows_max);
        // It is answered by what was read.
        self.put(Order::Read(Some(reading)), wake).map(|_| read)
    }

    /// Has the worker erase until `until`; whether it has come to its end. How far it has come, `erasing` tells.
    pub(super) fn erase(&self, erasing: CsErasure, until: Instant, wake: impl FnOnce()) -> bool {
        let told = erasing.told().clone();
        let Some(report) = self.put(Order::Erase(erasing), wake) else { return false };
        let left = until.saturating_duration_since(Instant::now());
        let is_whole = report.recv_timeout(left).is_ok();
        if !is_whole {
            told.cut();
            // It ends in the worker's next round. A worker that has no time for that goes on to erase less than is told.
            let _ = report.recv_timeout(PATIENCE);
        }
        is_whole
    }

    /// Puts an order where the worker finds it.
    fn put(&self, order: Order, wake: impl FnOnce()) -> Option<Receiver<WorkerReport>> {
        let (answer, report) = sync_channel(1);
        {
            let mut orders = self.lock();
            if orders.len() >= ORDERS_MAX {
                return None;
            }
            orders.push((order, answer));
        }
        // Release: the worker that sees it finds the order. The lock would do for that, if it were taken each round.
        self.has_orders.store(true, Ordering::Release);
        match &self.waker {
            Some(waker) => waker.wake(),
            None => wake(),
        }
        Some(report)
    }

    /// The worker obeys what waits.
    #[inline]
    pub(super) fn serve(&self, forwarder: &mut Forwarder, worker_set: Option<&WorkerSet>) {
        if self.has_orders.load(Ordering::Acquire) {
            self.serve_all(forwarder, worker_set);
        }
    }

    #[cold]
    fn serve_all(&self, forwarder: &mut Forwarder, worker_set: Option<&WorkerSet>) {
        // Before they are taken: an order that comes now is seen in this round or the next.
        self.has_orders.store(false, Ordering::Relaxed);
        let orders = std::mem::take(&mut *self.lock());
        for (mut order, answer) in orders {
            if !obey(forwarder, &mut order) {
                // In the next round, after what has come meanwhile.
                self.lock().push((order, answer));
                self.has_orders.store(true, Ordering::Release);
                continue;
            }
            let cs = forwarder.cs();
            // Whoever asked may have lost patience.
            let _ = answer.try_send(WorkerReport {
                forwarder: forwarder.counters(),
                pit_entries: forwarder.pit().len(),
                cs_entries: cs.len(),
                cs_max: cs.bounds().packets,
                cs_octets: cs.octets(),
                cs: cs.counters(),
                dead_nonces_max: forwarder.dead_nonces().nonces_max(),
                dead_nonces_early: forwarder.dead_nonces().early(),
                worker_set: worker_set.map(WorkerSet::counters).unwrap_or_default(),
            });
        }
    }

    /// Whether the worker has more to do for the control thread.
    pub(super) fn has_orders(&self) -> bool {
        self.has_orders.load(Ordering::Relaxed)
    }
}

/// Does what an order says; `false` when there is more to do of it.
fn obey(forwarder: &mut Forwarder, order: &mut Order) -> bool {
    let cs = forwarder.cs_mut();
    match order {
        Order::Report => {}
        Order::Bounds(bounds) => cs.set_bounds(*bounds),
        Order::Policy { admits, serves } => cs.set_policy(*admits, *serves),
        Order::Erase(erasing) => {
            if !cs.erase(erasing, ERASED_A_ROUND) {
                return false;
            }
            forwarder.settle_tier();
        }
        Order::Read(reading) => {
            if let Some(reading) = reading.take() {
                reading.read(forwarder, Instant::now());
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erasure_that_takes_too_long_is_cut_and_tells_how_far_it_came() {
        let mailbox = ControlMailbox::new();
        let erasing = CsErasure::new(b"\x08\x01a".to_vec(), 7, 3);
        let told = erasing.told().clone();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| mailbox.erase(erasing, Instant::now(), || {}));
            let (order, answer) = loop {
                if let Some(order) = mailbox.lock().pop() {
                    break order;
                }
            };
            // Nobody has answered when the time is over: who erases learns of it.
            assert!(matches!(order, Order::Erase(_)));
            while !told.is_cut() {
                std::thread::yield_now();
            }
            drop(answer);
            assert!(!asked.join().unwrap());
        });
        assert_eq!((told.erased(), told.next()), (0, 3));
    }

    #[test]
    fn a_desk_with_too_many_orders_takes_no_more() {
        let mailbox = ControlMailbox::new();
        let waiting: Vec<_> = (0..ORDERS_MAX).map(|_| mailbox.put(Order::Report, || {}).unwrap()).collect();
        assert!(mailbox.ask(Order::Report, || {}).is_none());
        assert!(!mailbox.erase(CsErasure::new(Vec::new(), 1, 0), Instant::now(), || {}));
        drop(waiting);
    }
}
