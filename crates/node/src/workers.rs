//! What workers say of themselves, for `kaido status`.

use std::sync::Arc;

use kaido_engine::shared::SharedTotals;
use kaido_engine::{PortId, PortTotals, WorkerCounters};

use super::board::PortView;
use crate::api;

/// Every worker: how it waits, and what it has done on each port.
pub(crate) fn workers(workers: &[Arc<WorkerCounters>], ports: &[PortView]) -> Vec<api::Worker> {
    workers.iter().map(|counters| worker(counters, ports)).collect()
}

fn worker(counters: &WorkerCounters, ports: &[PortView]) -> api::Worker {
    let polling = counters.polling();
    let port = |(number, port): (u8, &PortView)| {
        let number = PortId(number);
        let totals = PortTotals::of([counters], number);
        api::WorkerPort {
            name: port.name.clone(),
            rx_packets: totals.rx_packets,
            tx_packets: totals.tx_packets,
            shared: counters.shared(number).map(shared),
        }
    };
    api::Worker {
        busy_ns: polling.busy_ns,
        adaptive_ns: polling.adaptive_ns,
        interrupt_ns: polling.interrupt_ns,
        naps: polling.naps,
        wakeups: polling.wakeups,
        timeouts: polling.timeouts,
        ports: (0u8..).zip(ports).map(port).collect(),
    }
}

fn shared(totals: SharedTotals) -> api::SharedQueueCounts {
    api::SharedQueueCounts {
        blocks: totals.blocks,
        packets: totals.packets,
        cas_attempts: totals.cas_attempts,
        cas_retries: totals.cas_retries,
        claim_cycles: totals.claim_cycles,
        process_cycles: totals.process_cycles,
        commit_cycles: totals.commit_cycles,
        window_stalls: totals.window_stalls,
        stall_cycles: totals.stall_cycles,
        drained: totals.drained,
        drained_for_others: totals.drained_for_others,
    }
}
