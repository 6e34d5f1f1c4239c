//! Usage counters, and the rules that count in them.
//!
//! A packet is counted in its rule, whose line is there anyhow. The rule's counts go to the usage cells after 64 KiB. A cell is a
//! line of its own, at a place that only the rule tells, so waiting for it would take as long as for the record. While a limit of a
//! cell is near, each packet is counted in the cell at once, so that the one that reaches the limit tells.

use std::sync::atomic::{AtomicU64, Ordering};

use kaido_xdp::Error;
use kaido_xdp::maps::SharedArray;

use super::abi::{COUNTED_FAR, COUNTED_MAX, COUNTED_NEAR, COUNTED_PACKET, Cell, DOWNLINK, RawRule};

/// Rules of one counter that may keep counts back. A session has one for its tunnel and one for each of two addresses, and
/// one of them is there twice while it is replaced.
const KEEPERS: usize = 4;
/// Most bytes of packets that are not in a usage cell at a time: each rule may have one packet more than it keeps.
pub(super) const KEPT_MAX: u64 = KEEPERS as u64 * 2 * COUNTED_MAX;
const _: () = assert!(KEPT_MAX < COUNTED_NEAR);

/// Of a counter: its session, and the rules that may keep counts back, by their places and one; zero for none.
type Owner = [u32; 1 + KEEPERS];

/// The usage cells, and where there may be counts that are not in them.
#[derive(Debug)]
pub(super) struct Usage {
    cells: SharedArray<Cell>,
    owners: Vec<Owner>,
}

impl Usage {
    pub(super) fn create(cells: u32) -> Result<Self, Error> {
        let cells = SharedArray::create("offload_cells", cells)?;
        let owners = vec![Owner::default(); cells.len() as usize];
        Ok(Self { cells, owners })
    }

    pub(super) fn cells(&self) -> &SharedArray<Cell> {
        &self.cells
    }

    /// The session that a counter is of.
    pub(super) fn session(&self, cell: u32) -> Option<u32> {
        self.owners.get(cell as usize).map(|[session, ..]| *session)
    }

    pub(super) fn set_session(&mut self, cell: u32, session: u32) {
        self.owners[cell as usize][0] = session;
    }

    /// The places of rules that may have counts of a counter.
    pub(super) fn keepers(&self, cell: u32) -> impl Iterator<Item = u32> + use<> {
        let [_, keepers @ ..] = self.owners.get(cell as usize).copied().unwrap_or_default();
        keepers.into_iter().filter_map(|keeper| keeper.checked_sub(1))
    }

    /// Whether a rule may keep counts back, which is noted: one at a place where none does so.
    pub(super) fn keep(&mut self, rule: &RawRule, place: u32) -> bool {
        let free = |owner: &Owner| owner[1..].iter().position(|&keeper| keeper == 0);
        if rule.passed().iter().any(|&cell| free(&self.owners[cell as usize]).is_none()) {
            return false;
        }
        for &cell in rule.passed() {
            let owner = &mut self.owners[cell as usize];
            // The same counter may be named twice.
            if let Some(at) = free(owner).filter(|_| !owner[1..].contains(&(place + 1))) {
                owner[1 + at] = place + 1;
            }
        }
        true
    }

    /// A rule, which is used no more, keeps nothing back.
    pub(super) fn release(&mut self, rule: &RawRule, place: u32) {
        for &cell in rule.passed() {
            let [_, keepers @ ..] = &mut self.owners[cell as usize];
            keepers.iter_mut().filter(|keeper| **keeper == place + 1).for_each(|keeper| *keeper = 0);
        }
    }

    /// Has what a rule has counted in the cells. Its next packet is counted there at once, and finds out whether a limit is near.
    pub(super) fn settle(&self, rule: &RawRule, counted: &AtomicU64) {
        let taken = counted.swap(0, Ordering::Relaxed) & !COUNTED_FAR;
        if taken == 0 {
            return;
        }
        for &cell in rule.passed() {
            // SAFETY: in range by `at`; zeroed at birth, made of atomics, and never anything else.
            add_counted(unsafe { &self.cells.at(cell).as_ref().counts }, rule, taken);
        }
    }
}

/// Adds what a rule has counted, packets and bytes in one word, to a usage cell.
pub(super) fn add_counted(counts: &[AtomicU64; 4], rule: &RawRule, taken: u64) {
    let direction = if rule.flags & DOWNLINK == 0 { 0 } else { 2 };
    counts[direction].fetch_add(taken % COUNTED_PACKET, Ordering::Relaxed);
    counts[direction + 1].fetch_add(taken / COUNTED_PACKET, Ordering::Relaxed);
}
