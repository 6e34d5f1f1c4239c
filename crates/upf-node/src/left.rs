//! What a process before has left, where it still forwards: programs on the interfaces, and where they or its workers count.
//!
//! ```text
//!   find ─▶ counted, of each counter in use ─▶ programs and ports are taken over ─▶ add_rest
//! ```
//! Until then they go on to count where they did. What they counted meanwhile is the rest.

use std::fs::File;
use std::path::{Path, PathBuf};

use kaido_n4::Volume;
use kaido_node::ports::{LeftLinks, OpenPorts, PINNED_LINK};
use kaido_node::takeover::Takeover;
use kaido_upf::control::Upf;
use kaido_upf::usage::{LeftUsage, UsageSlot};
use kaido_upf_xdp::offload::{LAYOUT, LeftTables, wait_for_programs};
use kaido_upf_xdp::{Offload, Steering};
use kaido_xdp::{Error, PinFolder};
use miette::IntoDiagnostic;

/// Where a counter may be counted in: two tables, while one took the place of the other.
const PLACES: usize = 2;

/// What a process before has left.
#[derive(Debug, Default)]
pub(super) struct LeftBehind {
    /// Its programs.
    pub(super) links: LeftLinks,
    tables: Vec<LeftTables>,
    /// Where its workers count.
    usage: Option<LeftUsage>,
    /// Which counters were asked for, and what they had in each place.
    asked: Vec<(UsageSlot, [Volume; PLACES])>,
}

/// Where a node with a store of that number pins what is to stay.
pub(super) fn folder_of(pins: &Path, store: u64) -> PathBuf {
    pins.join(format!("{store:016x}-{LAYOUT}"))
}

impl LeftBehind {
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

    /// What a process has that this one takes over from: the tables of its kernel's datapath, where it is to have one.
    pub(super) fn of(takeover: &Takeover, is_kernel: bool) -> miette::Result<Self> {
        let mut left = Self::default();
        if is_kernel {
            let mut tables = Vec::new();
            for name in LeftTables::NAMES {
                // It is there, or that is the error.
                tables.extend(takeover.descriptor(&table_name(name))?);
            }
            left.tables.extend(LeftTables::of(tables).into_diagnostic()?);
        }
        Ok(left)
    }

    /// That process's workers count in the memory of a file.
    pub(super) fn with_usage(self, file: Option<File>) -> miette::Result<Self> {
        Ok(Self { usage: file.map(LeftUsage::over).transpose().into_diagnostic()?, ..self })
    }

    /// Whether there is nothing, so that no program forwards.
    pub(super) fn is_nothing(&self) -> bool {
        self.tables.is_empty() && self.links.is_empty() && self.usage.is_none()
    }

    /// Takes the programs off now, where none is to take their place: all that they counted is in the tables.
    pub(super) fn end(&mut self) {
        std::mem::take(&mut self.links).detach();
        self.settle();
    }

    /// What a counter has, to begin with.
    pub(super) fn counted(&mut self, slot: UsageSlot) -> Volume {
        let counted = self.each(slot);
        if !self.tables.is_empty() || self.usage.is_some() {
            self.asked.push((slot, counted));
        }
        // Of two tables the later began with what the first had.
        let [one, other] = counted;
        most(&one, &other)
    }

    /// What it has in each place.
    fn each(&self, slot: UsageSlot) -> [Volume; PLACES] {
        let in_kernel = self.tables.iter().map(|tables| volume(tables.counted(slot.0).counts));
        let mut each = in_kernel.chain(self.usage.iter().map(|usage| usage.read(slot)));
        std::array::from_fn(|_| each.next().unwrap_or_default())
    }

    /// Adds what was counted since, when nobody counts there any more.
    pub(super) fn add_rest(mut self, upf: &mut Upf) {
        std::mem::take(&mut self.links).detach();
        self.settle();
        let rest = |(slot, before): &(UsageSlot, [Volume; PLACES])| {
            let each = self.each(*slot).into_iter().zip(before);
            let rest = each.fold(Volume::default(), |rest, (now, before)| more(&rest, &now, before));
            (rest != Volume::default()).then_some((*slot, rest))
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

/// The more of each count.
pub(super) fn most(one: &Volume, other: &Volume) -> Volume {
    Volume {
        uplink_bytes: one.uplink_bytes.max(other.uplink_bytes),
        downlink_bytes: one.downlink_bytes.max(other.downlink_bytes),
        uplink_packets: one.uplink_packets.max(other.uplink_packets),
        downlink_packets: one.downlink_packets.max(other.downlink_packets),
    }
}

/// What is added by counts that were `before`, and are so much now.
fn more(sum: &Volume, now: &Volume, before: &Volume) -> Volume {
    let more = |of: fn(&Volume) -> u64| of(sum) + of(now).saturating_sub(of(before));
    Volume {
        uplink_bytes: more(|of| of.uplink_bytes),
        downlink_bytes: more(|of| of.downlink_bytes),
        uplink_packets: more(|of| of.uplink_packets),
        downlink_packets: more(|of| of.downlink_packets),
    }
}

/// By which name a table of the kernel's datapath is handed over.
pub(super) fn table_name(name: &str) -> String {
    format!("table {LAYOUT} {name}")
}

const fn volume([uplink_bytes, uplink_packets, downlink_bytes, downlink_packets]: [u64; 4]) -> Volume {
    Volume { uplink_bytes, uplink_packets, downlink_bytes, downlink_packets }
}
