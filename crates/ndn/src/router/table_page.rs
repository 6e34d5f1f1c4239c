//! A worker's own tables, read for who lists them: page by page, between two rounds of the worker.
//!
//! ```text
//!   control thread ─ TableReading, with memory for a page ─▶ ControlMailbox ─▶ worker: some entries ─▶ the same, filled
//! ```
//! The worker looks at a bounded number of entries for a page, and neither waits nor asks for memory.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use kaido_ndn_tables::{DOWNSTREAMS_MAX, InRecord, NodeInstant, OutRecord, Selectors, Slot, UPSTREAMS_MAX};
use kaido_wire::ndn::PACKET_MAX;

use crate::cs::CachedPacket;
use crate::forward::Forwarder;

/// Entries that a worker looks at for one page, at most: some 100 us.
const LOOKED_AT_MAX: u32 = 1024;
/// Rows of a page, at most.
const ROWS_MAX: usize = 64;
/// Octets of their names, at most; no name is longer than a packet.
const NAMES_MAX: usize = 4 * PACKET_MAX;
/// Records of either kind, at most.
const RECORDS_MAX: usize = 4 * DOWNSTREAMS_MAX as usize;

/// A table of a worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerTable {
    /// Interests that wait.
    Pit,
    /// Data that is kept.
    Cs,
}

/// An entry of the PIT.
#[derive(Clone, Debug)]
pub struct PitRow {
    name: Range<usize>,
    downstreams: Range<usize>,
    upstreams: Range<usize>,
    /// What the Interest selects.
    pub selectors: Selectors,
    /// Whether it waits for the tier on disk.
    pub is_parked: bool,
}

/// An entry of the Content Store.
#[derive(Clone, Debug)]
pub struct CsRow {
    name: Range<usize>,
    /// What is told of the packet.
    pub packet: CachedPacket,
}

/// Some entries of a table of a worker's; the rows are of the table that was read.
#[derive(Clone, Debug, Default)]
pub struct TablePage {
    /// Of the PIT.
    pub pit: Vec<PitRow>,
    /// Of the Content Store.
    pub cs: Vec<CsRow>,
    names: Vec<u8>,
    downstreams: Vec<InRecord>,
    upstreams: Vec<OutRecord>,
    /// When it was read, by the worker's clock.
    pub now: NodeInstant,
    /// The number of the entry with which the next page begins; none behind the last entry.
    pub next: Option<u32>,
}

impl TablePage {
    /// The name of a row of the PIT, as components.
    pub fn pit_name(&self, row: &PitRow) -> &[u8] {
        self.names.get(row.name.clone()).unwrap_or_default()
    }

    /// The name of a row of the Content Store, as components.
    pub fn cs_name(&self, row: &CsRow) -> &[u8] {
        self.names.get(row.name.clone()).unwrap_or_default()
    }

    /// Who waits.
    pub fn downstreams(&self, row: &PitRow) -> &[InRecord] {
        self.downstreams.get(row.downstreams.clone()).unwrap_or_default()
    }

    /// Who was asked.
    pub fn upstreams(&self, row: &PitRow) -> &[OutRecord] {
        self.upstreams.get(row.upstreams.clone()).unwrap_or_default()
    }

    /// Memory for rows of a table.
    fn with_room(table: WorkerTable) -> Self {
        let (pit, cs, records) = match table {
            WorkerTable::Pit => (ROWS_MAX, 0, RECORDS_MAX),
            WorkerTable::Cs => (0, ROWS_MAX, 0),
        };
        Self {
            pit: Vec::with_capacity(pit),
            cs: Vec::with_capacity(cs),
            names: Vec::with_capacity(NAMES_MAX),
            downstreams: Vec::with_capacity(records),
            upstreams: Vec::with_capacity(records),
            ..Self::default()
        }
    }
}

/// A page that a worker is to read.
#[derive(Clone, Debug)]
pub struct TableReading {
    table: WorkerTable,
    prefix: Vec<u8>,
    from: u32,
    rows_max: usize,
    /// What was read.
    pub page: TablePage,
    /// To whom it goes then.
    answer: Option<SyncSender<Box<Self>>>,
}

impl TableReading {
    /// Up to `rows_max` entries of a table from the number `from` on, of names that begin with these components; and where the page
    /// comes out.
    pub(super) fn new(
        table: WorkerTable,
        prefix: Vec<u8>,
        from: u32,
        rows_max: usize,
    ) -> (Box<Self>, Receiver<Box<Self>>) {
        let (answer, read) = sync_channel(1);
        let page = TablePage::with_room(table);
        let rows_max = rows_max.min(ROWS_MAX);
        (Box::new(Self { table, prefix, from, rows_max, page, answer: Some(answer) }), read)
    }

    /// The worker reads.
    pub(super) fn read(mut self: Box<Self>, forwarder: &Forwarder, now: Instant) {
        self.page.now = forwarder.node_time(now);
        self.page.next = match self.table {
            WorkerTable::Pit => self.read_pit(forwarder),
            WorkerTable::Cs => self.read_cs(forwarder),
        };
        if let Some(answer) = self.answer.take() {
            // Whoever asked may have lost patience.
            let _ = answer.try_send(self);
        }
    }

    /// Reads entries of the PIT; the number of the next one, if there is any.
    fn read_pit(&mut self, forwarder: &Forwarder) -> Option<u32> {
        let pit = forwarder.pit();
        let end = self.from.saturating_add(LOOKED_AT_MAX).min(pit.numbers());
        for number in self.from..end {
            let Some(slot) = pit.at(number).filter(|slot| pit.is_below(*slot, &self.prefix)) else {
                continue;
            };
            if self.page.pit.len() >= self.rows_max || !self.take_pit(forwarder, slot) {
                return Some(number);
            }
        }
        (end < pit.numbers()).then_some(end)
    }

    /// Takes an entry of the PIT into the page, if there is memory for it.
    fn take_pit(&mut self, forwarder: &Forwarder, slot: Slot) -> bool {
        let (pit, page) = (forwarder.pit(), &mut self.page);
        let [downs, ups] = [page.downstreams.len(), page.upstreams.len()];
        let has_room = downs + usize::from(DOWNSTREAMS_MAX) <= page.downstreams.capacity()
            && ups + usize::from(UPSTREAMS_MAX) <= page.upstreams.capacity();
        let name = page.names.len();
        if !has_room || !pit.copy_name(slot, &mut page.names) {
            return false;
        }
        page.downstreams.extend(pit.downstreams(slot).take(DOWNSTREAMS_MAX.into()));
        page.upstreams.extend(pit.upstreams(slot).take(UPSTREAMS_MAX.into()));
        page.pit.push(PitRow {
            name: name..page.names.len(),
            downstreams: downs..page.downstreams.len(),
            upstreams: ups..page.upstreams.len(),
            selectors: pit.selectors(slot),
            is_parked: pit.is_parked(slot),
        });
        true
    }

    /// Reads entries of the Content Store; the number of the next one, if there is any.
    fn read_cs(&mut self, forwarder: &Forwarder) -> Option<u32> {
        let (cs, page) = (forwarder.cs(), &mut self.page);
        let end = self.from.saturating_add(LOOKED_AT_MAX).min(cs.numbers());
        for number in self.from..end {
            let Some(entry) = cs.at(number).filter(|entry| cs.is_below(*entry, &self.prefix)) else {
                continue;
            };
            let name = page.names.len();
            if page.cs.len() >= self.rows_max || !cs.copy_name(entry, &mut page.names) {
                return Some(number);
            }
            page.cs.push(CsRow { name: name..page.names.len(), packet: cs.packet(entry, page.now) });
        }
        (end < cs.numbers()).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kaido_engine::{Frame, FramePool};
    use kaido_ndn_tables::text::name;
    use kaido_ndn_tables::{NameHash, PitSettings, Prefixes};
    use kaido_wire::ndn::{Data, DataRepr, Name};

    use super::*;
    use crate::cs::{CsSettings, NewData};
    use crate::forward::{ForwarderSettings, SharedTables, Unsolicited};

    /// A worker that has cached so many Data of `/a`, and as many of `/b`.
    fn forwarder(packets: u32) -> Forwarder {
        let shared = SharedTables::new(NameHash::fixed(1), 16).unwrap();
        let settings = ForwarderSettings {
            pit: PitSettings::for_entries(16, 0),
            cs: CsSettings { packets: 4 * packets, octets: 1 << 22 },
            dead_nonces: 16,
            measured_prefixes: 16,
            unsolicited: Unsolicited::Drop,
        };
        let mut forwarder = Forwarder::new(&shared, &settings, Instant::now()).unwrap();
        let pool = FramePool::leak(8).unwrap();
        for text in (0..packets).flat_map(|number| [format!("a/{number}"), format!("b/{number}")]) {
            let octets = name(&text);
            let repr = DataRepr { name: Name::new(&octets).unwrap(), ..DataRepr::default() };
            let mut packet = vec![0; repr.len()];
            repr.emit(&mut packet).unwrap();
            let frame = Frame::from_slice(&packet, || pool.allocate()).unwrap();
            let name_at = Data::parse(frame.data(), packet.len()).unwrap().name_at + 2;
            let mut prefixes = Prefixes::default();
            prefixes.fill(&NameHash::fixed(1), &octets).unwrap();
            let data = NewData {
                frame: &frame,
                name_at,
                name_len: octets.len(),
                freshness: Duration::ZERO,
                is_on_disk: false,
            };
            assert!(forwarder.cs_mut().insert(&data, &prefixes, NodeInstant::default()));
        }
        forwarder
    }

    /// The names of all pages of a table, and how many pages there were.
    fn names(
        forwarder: &Forwarder,
        table: WorkerTable,
        prefix: &str,
        rows_max: usize,
    ) -> (Vec<Vec<u8>>, u32) {
        let (mut found, mut from, mut pages) = (Vec::new(), 0, 0);
        loop {
            let (reading, read) = TableReading::new(table, name(prefix), from, rows_max);
            reading.read(forwarder, Instant::now());
            let page = read.try_recv().unwrap().page;
            assert!(page.cs.len() <= rows_max.min(ROWS_MAX));
            found.extend(page.cs.iter().map(|row| page.cs_name(row).to_vec()));
            pages += 1;
            match page.next {
                Some(next) => from = next,
                None => return (found, pages),
            }
        }
    }

    #[test]
    fn pages_have_each_entry_once() {
        let forwarder = forwarder(1000);
        let (mut found, pages) = names(&forwarder, WorkerTable::Cs, "a", 1000);
        found.sort();
        found.dedup();
        assert_eq!((found.len(), pages), (1000, 16));
        assert!(found.iter().all(|found| found.starts_with(&name("a"))));
        assert_eq!(names(&forwarder, WorkerTable::Cs, "", 100).0.len(), 2000);
        assert_eq!(names(&forwarder, WorkerTable::Cs, "a/7", 3).0, [name("a/7")]);
        let (none, pages) = names(&forwarder, WorkerTable::Cs, "c", 64);
        assert_eq!((none.len(), pages), (0, 2), "as many entries are looked at as may be at once");
        assert_eq!(names(&forwarder, WorkerTable::Pit, "", 64), (Vec::new(), 1));
    }

    #[test]
    fn a_page_takes_no_more_memory_than_it_came_with() {
        let forwarder = forwarder(100);
        let (reading, read) = TableReading::new(WorkerTable::Cs, Vec::new(), 0, 1000);
        let room = |page: &TablePage| (page.cs.capacity(), page.names.capacity());
        let before = room(&reading.page);
        reading.read(&forwarder, Instant::now());
        let page = read.try_recv().unwrap().page;
        assert_eq!((page.cs.len(), room(&page)), (ROWS_MAX, before));
    }
}
