//! What the kernel's hash maps still hold once as many entries are written as they have room for.
//!
//! A user plane that keeps its sessions in an LRU map loses some of them long before the map is full. The kernel takes
//! free entries in batches and for each CPU, and evicts where one CPU's share is used up.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use kaido_engine::{FramePool, OwnedPool};
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use crate::BenchError;
use crate::machine::cores;
use crate::memory::available;
use crate::network::teid;
use crate::node::{UpfNode, stopped};
use crate::permutation::Permutation;

/// `BPF_F_NO_PREALLOC` and `BPF_F_NO_COMMON_LRU`.
const NO_PREALLOC: u32 = 1;
const NO_COMMON_LRU: u32 = 2;
/// Percent of the entries written when it is counted what is held.
const LEVELS: [u32; 6] = [10, 25, 50, 75, 90, 100];
/// Sessions written between two looks at the stop flag; also what one CPU writes before the next goes on.
const CHUNK: u32 = 1024;

/// What all maps held.
#[derive(Clone, Debug, Serialize)]
pub struct LruReport {
    /// Sessions, and entries of each map.
    pub sessions: u32,
    /// CPUs that wrote in turn.
    pub cpus: usize,
    /// The maps.
    pub maps: Vec<LruMap>,
}

/// One map.
#[derive(Clone, Debug, Serialize)]
pub struct LruMap {
    /// Its kind, by the kernel's names.
    pub name: &'static str,
    /// How many sessions had been written, and how many of them were found then.
    pub held: Vec<HeldCount>,
    /// Sessions found once all had been written and each of them once more, as by a handover.
    pub found_after_rewriting: Option<u32>,
    /// Why there is no such map here.
    pub skipped: Option<String>,
}

/// A count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HeldCount {
    /// Sessions written, all different.
    pub written: u32,
    /// Of these, found.
    pub found: u32,
}

/// Writes `sessions` sessions into maps of as many entries and counts what is found, and does the same with the table of the
/// user plane.
///
/// # Errors
/// [`BenchError`] when interrupted, or the user plane refuses a session. A map that cannot be had is listed with the reason.
pub fn measure_lru(sessions: u32, stop: &AtomicBool) -> Result<LruReport, BenchError> {
    let kinds = [
        ("LRU_PERCPU_HASH", MapType::LruPercpuHash, 0),
        ("LRU_PERCPU_HASH, NO_COMMON_LRU", MapType::LruPercpuHash, NO_COMMON_LRU),
        ("PERCPU_HASH, NO_PREALLOC", MapType::PercpuHash, NO_PREALLOC),
    ];
    let mut maps = Vec::new();
    for (name, kind, flags) in kinds {
        stopped(stop)?;
        maps.push(match fill(sessions, kind, flags, stop) {
            Ok((held, after)) => LruMap { name, held, found_after_rewriting: Some(after), skipped: None },
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                let skipped = Some(error.to_string());
                LruMap { name, held: Vec::new(), found_after_rewriting: None, skipped }
            }
        });
    }
    let (held, after) = own_table(sessions, stop)?;
    let name = "Kaido's session table";
    maps.push(LruMap { name, held, found_after_rewriting: Some(after), skipped: None });
    Ok(LruReport { sessions, cpus: cores(), maps })
}

/// The CPUs on which this thread may run, in turn.
struct CpuRotation(Vec<usize>, CpuSet);

impl CpuRotation {
    fn new() -> Result<Self, BenchError> {
        let allowed = sched_getaffinity(None).map_err(std::io::Error::from)?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect(), allowed))
    }

    fn go_to(&self, turn: u32) -> Result<(), BenchError> {
        let mut one = CpuSet::new();
        if let Some(&cpu) = self.0.get(turn as usize % self.0.len().max(1)) {
            one.set(cpu);
            sched_setaffinity(None, &one).map_err(std::io::Error::from)?;
        }
        Ok(())
    }
}

impl Drop for CpuRotation {
    fn drop(&mut self) {
        // Where it fails the thread stays on one of its CPUs, which only makes it slower.
        let _ = sched_setaffinity(None, &self.1);
    }
}

fn fill(
    sessions: u32,
    kind: MapType,
    flags: u32,
    stop: &AtomicBool,
) -> Result<(Vec<HeldCount>, u32), BenchError> {
    let failed = |error: libbpf_rs::Error| BenchError::Point(error.to_string());
    let needed = u64::from(sessions) * (64 + 32 * cores() as u64);
    if needed > available() {
        return Err(BenchError::Point(format!("its entries need {needed} bytes")));
    }
    let opts = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        map_flags: flags,
        ..bpf_map_create_opts::default()
    };
    let map = MapHandle::create(kind, Some("kaido_lru"), 4, 8, sessions, &opts).map_err(failed)?;
    let values = vec![vec![0; 8]; libbpf_rs::num_possible_cpus().map_err(failed)?];
    let order = Permutation::new(sessions, 1);
    let turns = CpuRotation::new()?;
    let key = |place: u32| teid(order.at(place.into())).to_ne_bytes();
    let write = |places: Range<u32>| {
        for place in places {
            if place % CHUNK == 0 {
                stopped(stop)?;
                turns.go_to(place / CHUNK)?;
            }
            map.update_percpu(&key(place), &values, MapFlags::ANY).map_err(failed)?;
        }
        Ok::<_, BenchError>(())
    };
    let count = |written: u32| {
        let mut found = 0;
        for place in 0..written {
            if place % CHUNK == 0 {
                stopped(stop)?;
            }
            found += u32::from(map.lookup_percpu(&key(place), MapFlags::ANY).map_err(failed)?.is_some());
        }
        Ok::<_, BenchError>(found)
    };
    let (mut held, mut written) = (Vec::new(), 0);
    for level in LEVELS {
        let until = share(sessions, level);
        write(written..until)?;
        written = until;
        held.push(HeldCount { written, found: count(written)? });
    }
    write(0..sessions)?;
    Ok((held, count(sessions)?))
}

/// The table that packets look sessions up in, by both their keys.
fn own_table(sessions: u32, stop: &AtomicBool) -> Result<(Vec<HeldCount>, u32), BenchError> {
    let own = OwnedPool(FramePool::leak(64)?);
    let mut node = UpfNode::new(sessions, *own, 0)?;
    let mut held = Vec::new();
    for level in LEVELS {
        let written = share(sessions, level);
        node.establish(written, stop, &|_| ())?;
        // Two keys each: the TEID and the UE's address.
        held.push(HeldCount { written, found: node.keys() / 2 });
    }
    node.modify(sessions, stop)?;
    Ok((held, node.keys() / 2))
}

fn share(sessions: u32, percent: u32) -> u32 {
    u32::try_from(u64::from(sessions) * u64::from(percent) / 100).unwrap_or(sessions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_maps_and_our_table_hold_everything() {
        let report = measure_lru(3000, &AtomicBool::new(false)).unwrap();
        assert_eq!(report.maps.len(), 4);
        for map in &report.maps {
            if let Some(reason) = &map.skipped {
                assert!(!reason.is_empty() && map.held.is_empty());
                continue;
            }
            assert_eq!(
                map.held.iter().map(|held| held.written).collect::<Vec<_>>(),
                [300, 750, 1500, 2250, 2700, 3000]
            );
            let complete = map.held.iter().all(|held| held.found == held.written)
                && map.found_after_rewriting == Some(3000);
            assert!(complete || map.name.starts_with("LRU"), "{map:?}");
        }
    }
}
