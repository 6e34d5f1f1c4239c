//! What a process before has left in the kernel, where it still forwards: programs on the interfaces, and tables in which they count.
//!
//! ```text
//!   find ─▶ counted, of each counter in use ─▶ programs are taken over (`OpenPorts::attach_over`) ─▶ add_rest
//! ```
//! Until they are taken over, programs go on to count where they did. What they counted meanwhile is the rest.

use std::path::Path;

use kaido_n4::Volume;
use kaido_node::ports::{LeftLinks, OpenPorts, PINNED_LINK};
use kaido_upf::control::Upf;
use kaido_upf::usage::UsageSlot;
use kaido_upf_xdp::Offload;
use kaido_upf_xdp::Steering;
use kaido_upf_xdp::offload::{Counted, LAYOUT, LeftTables, wait_for_programs};
use kaido_xdp::{Error, PinFolder};

/// What a process before has left.
#[derive(Debug, Default)]
pub(super) struct LeftInKernel {
    /// Its programs.
    pub(super) links: LeftLinks,
    tables: Vec<LeftTables>,
    /// Which counters were asked for, and what they had, by table.
    asked: Vec<(UsageSlot, Vec<Counted>)>,
}

/// Where a node with a store of that number pins what is to stay.
pub(super) fn folder_of(pins: &Path, store: u64) -> std::path::PathBuf {
    pins.join(format!("{store:016x}-{LAYOUT}"))
}

impl LeftInKernel {
    /// What was pinned by a process with the store of that number.
    pub(super) fn find(pins: &Path, store: u64) -> Result<Self, Error> {
        let mut left = Self::default();
        let own = folder_of(pins, store);
        for folder in std::fs::read_dir(pins).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !name.starts_with(&format!("{store:016x}-")) {
                continue;
            }
            let Some(found) = PinFolder::find(&folder)? else { continue };
            for name in found.names()?.iter().filter(|name| name.starts_with(PINNED_LINK)) {
                if let Some(link) = found.get(name)? {
                    left.links.put(link);
                }
            }
            if folder == own {
                left.tables = LeftTables::find(&found)?;
            } else {
                tracing::warn!(
                    folder = %folder.display(),
                    "another version of the program has left it: what was counted there since the last checkpoint is lost"
                );
                found.remove_all()?;
            }
        }
        Ok(left)
    }

    /// Takes the programs off now, where none is to take their place: all that they counted is in the tables.
    pub(super) fn end(&mut self) {
        std::mem::take(&mut self.links).detach();
        self.settle();
    }

    /// What a counter has, to begin with.
    pub(super) fn counted(&mut self, slot: UsageSlot) -> Volume {
        if self.tables.is_empty() {
            return Volume::default();
        }
        let counted: Vec<Counted> = self.tables.iter().map(|tables| tables.counted(slot.0)).collect();
        // Of two tables the later began with what the first had.
        let begin = std::array::from_fn(|at| counted.iter().map(|of| of.counts[at]).max().unwrap_or(0));
        self.asked.push((slot, counted));
        volume(begin)
    }

    /// Adds what was counted since, when the programs were taken over.
    pub(super) fn add_rest(mut self, upf: &mut Upf) {
        std::mem::take(&mut self.links).detach();
        if self.tables.is_empty() {
            return;
        }
        self.settle();
        let rest = |(slot, before): &(UsageSlot, Vec<Counted>)| {
            let mut rest = [0; 4];
            for (tables, before) in self.tables.iter().zip(before) {
                let now = tables.counted(slot.0);
                let each = rest.iter_mut().zip(now.counts).zip(before.counts);
                each.for_each(|((rest, now), before)| *rest += now.saturating_sub(before));
            }
            (rest != [0; 4]).then(|| (*slot, volume(rest)))
        };
        let rest: Vec<_> = self.asked.iter().filter_map(rest).collect();
        upf.add_usage(&rest);
    }

    fn settle(&self) {
        if !self.tables.is_empty() {
            wait_for_programs();
            self.tables.iter().for_each(LeftTables::settle);
        }
    }
}

/// Keeps programs and tables for the next process.
pub(super) fn keep(folder: &PinFolder, opened: &mut OpenPorts<Steering>) -> Result<(), Error> {
    Offload::keep(folder)?;
    for name in folder.names()?.iter().filter(|name| name.starts_with(PINNED_LINK)) {
        folder.remove(name)?;
    }
    opened.pin(folder.clone())
}

const fn volume([uplink_bytes, uplink_packets, downlink_bytes, downlink_packets]: [u64; 4]) -> Volume {
    Volume { uplink_bytes, uplink_packets, downlink_bytes, downlink_packets }
}
