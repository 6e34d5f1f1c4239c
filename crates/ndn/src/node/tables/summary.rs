//! How the workers are, and how full all tables.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use kaido_node::api::Problem;

use super::{Listing, TURN_MAX, Tables};
use crate::node::api::{
    CsSummary, DeadNonceSummary, DiskSummary, GetNdn, GetNdnTables, NdnTables, PitSummary, WorkerTables,
};
use crate::node::client::entries::Workers;
use crate::router::{Observer, WorkerReport};

/// How long workers have to say how full their tables are.
const REPORTED_WITHIN: Duration = Duration::from_secs(1);

/// The reports of all workers: each is asked, and says how it is when it has time.
struct Reports {
    waits: Vec<Option<Receiver<WorkerReport>>>,
    /// Of those that have answered, or have had no time.
    known: Vec<Option<WorkerReport>>,
    until: Instant,
}

impl Reports {
    /// Asks for them.
    fn begin(router: &Observer) -> Self {
        Self { waits: router.begin_reports(), known: Vec::new(), until: Instant::now() + REPORTED_WITHIN }
    }

    /// Takes what has come meanwhile; all of them, once none is waited for.
    fn turn(&mut self) -> Option<Vec<Option<WorkerReport>>> {
        let mut wait = TURN_MAX;
        while let Some(report) = self.waits.get(self.known.len()) {
            let answered = report.as_ref().map(|report| report.recv_timeout(wait));
            match answered {
                Some(Err(RecvTimeoutError::Timeout)) if Instant::now() < self.until => return None,
                Some(answered) => self.known.push(answered.ok()),
                None => self.known.push(None),
            }
            wait = Duration::ZERO;
        }
        Some(std::mem::take(&mut self.known))
    }
}

/// How the workers share the names.
#[derive(Default)]
pub(super) struct SharingListing(Option<Reports>);

impl Listing for SharingListing {
    type Asked = GetNdn;

    fn begin(_: GetNdn) -> Result<Self, Problem> {
        Ok(Self::default())
    }

    fn turn(&mut self, Tables { router, .. }: &Tables<'_>) -> Result<Option<Workers>, Problem> {
        let reports = self.0.get_or_insert_with(|| Reports::begin(router)).turn();
        Ok(reports.map(|reports| Workers::from(&router.sharing_of(reports))))
    }
}

/// How full all tables are.
#[derive(Default)]
pub(super) struct TableReports(Option<Reports>);

impl Listing for TableReports {
    type Asked = GetNdnTables;

    fn begin(_: GetNdnTables) -> Result<Self, Problem> {
        Ok(Self::default())
    }

    fn turn(&mut self, Tables { router, .. }: &Tables<'_>) -> Result<Option<NdnTables>, Problem> {
        let reports = self.0.get_or_insert_with(|| Reports::begin(router)).turn();
        let Some(reports) = reports else { return Ok(None) };
        let numbered = (0..).zip(reports);
        let shown = |(worker, report): (usize, Option<WorkerReport>)| {
            Some(worker_tables(worker, &report?, router.pit_max()))
        };
        let disk = router.tier().map(|tier| DiskSummary {
            packets: tier.packets,
            bytes: tier.octets,
            bytes_max: tier.octets_max,
            answered: tier.counters.answered,
        });
        Ok(Some(NdnTables {
            faces: router.faces(),
            fib_prefixes: router.prefixes(),
            strategies: router.strategies_len(),
            workers: numbered.filter_map(shown).collect(),
            disk,
        }))
    }
}

fn worker_tables(worker: usize, report: &WorkerReport, pit_max: u32) -> WorkerTables {
    let WorkerReport { forwarder, cs, .. } = report;
    WorkerTables {
        worker,
        pit: PitSummary {
            entries: report.pit_entries,
            entries_max: pit_max,
            satisfied: forwarder.satisfied,
            unsatisfied: forwarder.unsatisfied,
        },
        cs: CsSummary {
            entries: report.cs_entries,
            entries_max: report.cs_max,
            bytes: report.cs_octets,
            hits: cs.hits,
            misses: cs.misses,
            inserted: cs.inserted,
            evicted: cs.evicted,
            refused: cs.refused,
        },
        dead_nonces: DeadNonceSummary { nonces_max: report.dead_nonces_max, early: report.dead_nonces_early },
    }
}
