//! What rules and programs have done, of all workers and of the kernel.

use std::sync::Arc;

use kaido_engine::PortTotals;
use kaido_node::board::PortBoard;

use super::api;
use super::ports::Programs;
use crate::xdp::{GreCounters, GreProgram};
use crate::{RuleCounters, RuleTotals, SharedState, Verdict};

/// Where it is read.
#[derive(Clone)]
pub(super) struct Rules {
    shared: Arc<SharedState>,
    workers: Vec<Arc<RuleCounters>>,
    programs: Programs,
    ports: PortBoard,
}

impl Rules {
    pub(super) fn new(
        shared: Arc<SharedState>,
        workers: Vec<Arc<RuleCounters>>,
        programs: Programs,
        ports: PortBoard,
    ) -> Self {
        Self { shared, workers, programs, ports }
    }

    /// What is shown: every rule and encapsulation, and what the programs did.
    pub(super) fn status(&self) -> api::GreStatus {
        let settings = self.shared.settings();
        let verdicts = settings.rules.iter().map(|rule| verdict_name(rule.verdict));
        let verdicts = verdicts.chain(settings.encapsulations.iter().map(|_| "encapsulate"));
        let mut totals = RuleCounters::sum(self.workers.iter().map(|counters| &**counters));
        totals.resize(settings.names().len(), RuleTotals::default());
        for program in self.programs.read(GreProgram::totals).into_iter().flatten() {
            for (sum, more) in totals.iter_mut().zip(program) {
                sum.packets += more.packets;
                sum.octets += more.octets;
            }
        }
        let rules =
            settings.names().into_iter().zip(verdicts).zip(totals).map(|((name, verdict), totals)| {
                api::GreRule {
                    name: name.to_owned(),
                    verdict: verdict.to_owned(),
                    packets: totals.packets,
                    bytes: totals.octets,
                }
            });
        let kernel = self.ports.list().into_iter().zip(self.in_kernel()).filter_map(|(port, counters)| {
            let counters = counters?;
            Some(api::GreInKernel {
                port: port.name,
                passed: counters.passed,
                stripped: counters.stripped,
                handed: counters.handed,
                kernel: counters.kernel,
                dropped: counters.dropped.iter().map(|(_, count)| count).sum(),
            })
        });
        api::GreStatus { rules: rules.collect(), kernel: kernel.collect() }
    }

    /// What the programs have counted, by port.
    pub(super) fn in_kernel(&self) -> Vec<Option<GreCounters>> {
        self.programs.read(GreProgram::counters)
    }

    /// Adds to the totals of a port what the programs did.
    pub(super) fn add_to(&self, at: usize, totals: &mut PortTotals, in_kernel: &[Option<GreCounters>]) {
        let ports = &self.shared.settings().ports;
        for (port, counters) in ports.iter().zip(in_kernel) {
            if let Some(counters) =
                counters.as_ref().filter(|_| port.peer_port.is_some_and(|to| to.index() == at))
            {
                totals.tx_packets += forwarded(counters);
                totals.tx_bytes += counters.octets_sent;
            }
        }
        let Some(own) = in_kernel.get(at).and_then(Option::as_ref) else { return };
        let dropped: u64 = own.dropped.iter().map(|(_, count)| count).sum();
        totals.rx_packets += forwarded(own) + dropped;
        totals.rx_bytes += own.octets;
        totals.to_kernel += own.kernel;
        for &(reason, count) in own.dropped.iter().filter(|(_, count)| *count > 0) {
            match totals.drops.iter_mut().find(|(found, _)| *found == reason) {
                Some((_, sum)) => *sum += count,
                None => totals.drops.push((reason, count)),
            }
        }
    }
}

/// Packets that a program sent on.
pub(super) const fn forwarded(counters: &GreCounters) -> u64 {
    counters.passed + counters.stripped
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Decapsulate { .. } => "decapsulate",
        Verdict::Pass => "pass",
        Verdict::Drop => "drop",
        Verdict::Punt => "punt",
    }
}
