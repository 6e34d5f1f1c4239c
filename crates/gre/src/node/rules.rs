//! What rules and programs have done, of all workers and of the kernel.

use std::sync::Arc;

use kaido_engine::PortTotals;
use kaido_node::board::PortBoard;

use super::api;
use super::config::GreConfig;
use super::ports::Programs;
use crate::xdp::{GreCounters, GreProgram, RuleBank};
use crate::{RuleCounters, RuleSet, SharedState};

/// Rules that are obeyed next.
pub(super) struct PreparedRules {
    rules: Arc<RuleSet>,
    /// Of each program.
    banks: Vec<RuleBank>,
}

/// Where it is read, and changed.
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

    /// Makes rules of another configuration ready, in all programs too.
    ///
    /// # Errors
    /// Why they cannot be.
    pub(super) fn prepare(&self, config: &GreConfig) -> Result<PreparedRules, String> {
        let now = self.shared.rules();
        let settings = config.settings(now.settings().ports.clone());
        let rules = now.next(settings).map_err(|error| error.to_string())?;
        let banks = self.programs.prepare(&rules).map_err(|error| error.to_string())?;
        Ok(PreparedRules { rules, banks })
    }

    /// Has all obey what was made ready.
    pub(super) fn take(&self, PreparedRules { rules, banks }: PreparedRules) {
        self.programs.obey(banks);
        if !self.shared.replace(rules) {
            tracing::warn!("a worker has not taken the new rules within a second");
        }
    }

    /// What is shown: every rule and encapsulation, and what the programs did.
    pub(super) fn status(&self) -> api::GreStatus {
        let rules = self.shared.rules();
        let mut totals = RuleCounters::sum(self.workers.iter().map(|counters| &**counters), &rules);
        for program in self.programs.read(GreProgram::totals).into_iter().flatten() {
            for (sum, more) in totals.iter_mut().zip(program) {
                sum.packets += more.packets;
                sum.octets += more.octets;
            }
        }
        let counted = rules.settings().counted().zip(totals);
        let counted = counted.map(|((name, verdict), totals)| api::GreRule {
            name: name.to_owned(),
            verdict: verdict.to_owned(),
            packets: totals.packets,
            bytes: totals.octets,
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
        api::GreStatus { rules: counted.collect(), kernel: kernel.collect() }
    }

    /// What the programs have counted, by port.
    pub(super) fn in_kernel(&self) -> Vec<Option<GreCounters>> {
        self.programs.read(GreProgram::counters)
    }

    /// Adds to the totals of a port what the programs did.
    pub(super) fn add_to(&self, at: usize, totals: &mut PortTotals, in_kernel: &[Option<GreCounters>]) {
        let rules = self.shared.rules();
        let ports = &rules.settings().ports;
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
