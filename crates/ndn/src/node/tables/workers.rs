//! Tables that each worker has for itself: PIT and Content Store, worker by worker, page by page.

use std::sync::mpsc::{Receiver, RecvTimeoutError};

use kaido_ndn_tables::{NackSeverity, NodeInstant, OutRecord};
use kaido_node::api::{Problem, Question};

use super::{Listing, TURN_MAX, Tables, limit, milliseconds, no_page, prefix_of, uri};
use crate::node::api::{
    CachedData, ListNdnCs, ListNdnPit, NdnCs, NdnPit, PendingInterest, PitDownstream, PitUpstream,
};
use crate::router::{CsRow, PitRow, TablePage, TableReading, WorkerTable};

/// A question for a table that each worker has for itself.
pub(super) trait WorkerQuestion: Question<Answer: Default> {
    type Row: Send + 'static;
    const TABLE: WorkerTable;

    fn page(&self) -> (Option<&str>, Option<&str>, usize);
    fn rows(page: &TablePage, worker: usize, into: &mut Vec<Self::Row>);
    fn answer(rows: Vec<Self::Row>, next: Option<String>) -> Self::Answer;
}

impl WorkerQuestion for ListNdnPit {
    type Row = PendingInterest;
    const TABLE: WorkerTable = WorkerTable::Pit;

    fn page(&self) -> (Option<&str>, Option<&str>, usize) {
        (self.from.as_deref(), self.prefix.as_deref(), self.limit)
    }

    fn rows(page: &TablePage, worker: usize, into: &mut Vec<PendingInterest>) {
        into.extend(page.pit.iter().map(|row| pending(page, row, worker)));
    }

    fn answer(entries: Vec<PendingInterest>, next: Option<String>) -> NdnPit {
        NdnPit { entries, next }
    }
}

impl WorkerQuestion for ListNdnCs {
    type Row = CachedData;
    const TABLE: WorkerTable = WorkerTable::Cs;

    fn page(&self) -> (Option<&str>, Option<&str>, usize) {
        (self.from.as_deref(), self.prefix.as_deref(), self.limit)
    }

    fn rows(page: &TablePage, worker: usize, into: &mut Vec<CachedData>) {
        let shown = |row: &CsRow| CachedData {
            worker,
            name: uri(page.cs_name(row)),
            bytes: row.packet.len.into(),
            fresh_ms: milliseconds(row.packet.fresh),
            from_disk: row.packet.is_from_disk,
        };
        into.extend(page.cs.iter().map(shown));
    }

    fn answer(entries: Vec<CachedData>, next: Option<String>) -> NdnCs {
        NdnCs { entries, next }
    }
}

fn pending(page: &TablePage, row: &PitRow, worker: usize) -> PendingInterest {
    let (downstreams, upstreams) = (page.downstreams(row), page.upstreams(row));
    let mut nonces: Vec<u32> = downstreams.iter().map(|record| record.nonce).collect();
    nonces.extend(upstreams.iter().map(|record| record.nonce));
    nonces.sort_unstable();
    nonces.dedup();
    let left = |expires| milliseconds(NodeInstant::since(expires, page.now));
    let sent = |record: &OutRecord| milliseconds(page.now.since(record.sent));
    PendingInterest {
        worker,
        name: uri(page.pit_name(row)),
        can_be_prefix: row.selectors.can_be_prefix,
        must_be_fresh: row.selectors.must_be_fresh,
        parked: row.is_parked,
        age_ms: upstreams.iter().map(sent).max(),
        expires_ms: downstreams.iter().map(|record| left(record.expires)).max().unwrap_or(0),
        nonces: nonces.len(),
        downstreams: downstreams
            .iter()
            .map(|record| PitDownstream {
                face: record.face.0.into(),
                nonce: record.nonce,
                expires_ms: left(record.expires),
            })
            .collect(),
        upstreams: upstreams
            .iter()
            .map(|record| PitUpstream {
                face: record.face.0.into(),
                nonce: record.nonce,
                sent_ms: sent(record),
                nack: record.nack.map(|nack| nack_name(nack).to_owned()),
            })
            .collect(),
    }
}

const fn nack_name(nack: NackSeverity) -> &'static str {
    match nack {
        NackSeverity::Congestion => "congestion",
        NackSeverity::Duplicate => "duplicate",
        NackSeverity::NoRoute => "no-route",
        NackSeverity::Other => "other",
    }
}

/// Rows of a table that each worker has for itself: worker by worker, page by page.
pub(super) struct WorkerListing<Q: WorkerQuestion> {
    limit: usize,
    prefix: Vec<u8>,
    worker: usize,
    from: u32,
    reading: Option<Receiver<Box<TableReading>>>,
    rows: Vec<Q::Row>,
}

impl<Q: WorkerQuestion> Listing for WorkerListing<Q> {
    type Asked = Q;

    fn begin(asked: Q) -> Result<Self, Problem> {
        let (from, prefix, wanted) = asked.page();
        let place = |from: &str| {
            let (worker, number) = from.split_once('.')?;
            Some((worker.parse().ok()?, number.parse().ok()?))
        };
        let (worker, from) = from.map_or(Ok((0, 0)), |from| place(from).ok_or_else(|| no_page(from)))?;
        Ok(Self {
            limit: limit(wanted)?,
            prefix: prefix_of(prefix)?,
            worker,
            from,
            reading: None,
            rows: Vec::new(),
        })
    }

    fn turn(&mut self, Tables { router, .. }: &Tables<'_>) -> Result<Option<Q::Answer>, Problem> {
        let is_whole = self.worker >= router.workers_len();
        if is_whole || self.rows.len() >= self.limit {
            let next = (!is_whole).then(|| format!("{}.{}", self.worker, self.from));
            return Ok(Some(Q::answer(std::mem::take(&mut self.rows), next)));
        }
        let Self { worker, from, .. } = *self;
        let busy = || Problem::unavailable(format!("worker {worker} has too much to do: ask again"));
        let rows = self.limit - self.rows.len();
        let known = self.reading.take();
        let reading = known.or_else(|| router.read_table(worker, (Q::TABLE, from), &self.prefix, rows));
        let reading = reading.ok_or_else(busy)?;
        match reading.recv_timeout(TURN_MAX) {
            Ok(read) => {
                Q::rows(&read.page, self.worker, &mut self.rows);
                match read.page.next {
                    Some(next) => self.from = next,
                    None => (self.worker, self.from) = (self.worker + 1, 0),
                }
                Ok(None)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.reading = Some(reading);
                Ok(None)
            }
            Err(RecvTimeoutError::Disconnected) => Err(busy()),
        }
    }
}
