//! The workers' part of `kaido status`.

use super::table;
use crate::api::{SharedQueueCounts, Worker};

/// Prints how each worker has spent its time, and where queues are shared what that took.
pub(super) fn print(workers: &[Worker]) {
    let rows: Vec<_> = workers.iter().enumerate().map(|(number, worker)| polling(number, worker)).collect();
    table(
        &[
            "worker",
            "busy",
            "adaptive",
            "interrupt",
            "naps",
            "wakeups",
            "timeouts",
            "rx packets",
            "tx packets",
        ],
        &rows,
    );
    let mut rows = Vec::new();
    for (number, worker) in workers.iter().enumerate() {
        for port in &worker.ports {
            rows.extend(port.shared.as_ref().map(|shared| contention(number, &port.name, shared)));
        }
    }
    if !rows.is_empty() {
        println!();
        table(
            &[
                "worker",
                "shared port",
                "blocks",
                "packets",
                "CAS retries",
                "claim",
                "process",
                "commit",
                "window stalls",
                "stall cycles",
                "drained",
                "for others",
            ],
            &rows,
        );
        println!("claim, process and commit are cycles a packet");
    }
}

fn polling(number: usize, worker: &Worker) -> Vec<String> {
    let states = [worker.busy_ns, worker.adaptive_ns, worker.interrupt_ns];
    let total = states.iter().sum();
    let sum = |of: fn(&crate::api::WorkerPort) -> u64| worker.ports.iter().map(of).sum::<u64>();
    let counts = [
        worker.naps,
        worker.wakeups,
        worker.timeouts,
        sum(|port| port.rx_packets),
        sum(|port| port.tx_packets),
    ];
    let mut row = vec![number.to_string()];
    row.extend(states.map(|state| share(state, total)));
    row.extend(counts.map(|count| count.to_string()));
    row
}

/// A part of a total in percent, with one digit behind the point.
fn share(part: u64, total: u64) -> String {
    if total == 0 {
        return "-".to_owned();
    }
    let tenths = u128::from(part) * 1000 / u128::from(total);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn contention(number: usize, port: &str, shared: &SharedQueueCounts) -> Vec<String> {
    let a_packet =
        |cycles: u64| cycles.checked_div(shared.packets).map_or("-".to_owned(), |each| each.to_string());
    vec![
        number.to_string(),
        port.to_owned(),
        shared.blocks.to_string(),
        shared.packets.to_string(),
        shared.cas_retries.to_string(),
        a_packet(shared.claim_cycles),
        a_packet(shared.process_cycles),
        a_packet(shared.commit_cycles),
        shared.window_stalls.to_string(),
        shared.stall_cycles.to_string(),
        shared.drained.to_string(),
        shared.drained_for_others.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_total() {
        assert_eq!(share(1, 3), "33.3 %");
        assert_eq!(share(u64::MAX, u64::MAX), "100.0 %");
        assert_eq!(share(0, 0), "-");
    }

    #[test]
    fn a_queue_without_packets_has_no_cost_a_packet() {
        let row =
            contention(1, "n3", &SharedQueueCounts { claim_cycles: 40, ..SharedQueueCounts::default() });
        assert_eq!(row[5..8], ["-", "-", "-"]);
        let row = contention(
            1,
            "n3",
            &SharedQueueCounts { claim_cycles: 40, packets: 4, ..SharedQueueCounts::default() },
        );
        assert_eq!(row[5], "10");
    }
}
