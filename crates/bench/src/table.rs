//! The session table by itself: writers add, replace and delete while readers look up.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kaido_n4::Teid;
use kaido_table::{Domain, Guard, LOOKUP_BATCH_MAX, Table, TableError};
use kaido_upf::ids::EndpointId;
use kaido_upf::key::SessionKey;
use kaido_upf::record::Record;
use serde::Serialize;

use crate::BenchError;
use crate::machine::cores;
use crate::memory::resident;
use crate::node::stopped;
use crate::permutation::Permutation;

/// What the table's measurement gave for one number of writers.
#[derive(Clone, Debug, Serialize)]
pub struct TableResult {
    /// Keys: a session has two, its tunnel and its UE's address.
    pub keys: u32,
    /// Threads that write.
    pub writers: usize,
    /// Threads that look up all the time.
    pub readers: usize,
    /// More threads than CPUs: then the rates share them.
    pub oversubscribed: bool,
    /// Keys added a second, by all writers together.
    pub adds_per_second: f64,
    /// Values replaced a second, by all writers together.
    pub replaces_per_second: f64,
    /// Keys deleted a second, by all writers together.
    pub deletes_per_second: f64,
    /// Keys looked up a second by all readers together, while values were replaced.
    pub lookups_per_second: f64,
    /// Values that were replaced.
    pub replacements: u64,
    /// Lookups during these.
    pub lookups: u64,
    /// Of these, those that did not find their key, or found a value of another or in pieces: must be 0.
    pub lookup_misses: u64,
    /// Bytes of a key, its value and the place in its record.
    pub record_bytes: usize,
    /// Bytes that the process grew by, over the number of keys.
    pub bytes_per_key: f64,
}

const WORDS: usize = size_of::<Record>().div_ceil(8);

/// A value as large as the user plane's record; every word says whose it is, so that pieces show.
#[derive(Clone, Copy, Debug)]
struct Value([u64; WORDS]);

impl Value {
    fn new(key: u32, version: u64) -> Self {
        Self([version << 32 | u64::from(key); WORDS])
    }

    #[allow(clippy::cast_possible_truncation)] // The lower half is the key.
    fn is_of(&self, key: u32) -> bool {
        self.0[0] as u32 == key && self.0[WORDS - 1] == self.0[0]
    }
}

/// What writers do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Add,
    Replace,
    Delete,
    End,
}

/// One run.
struct Run<'r> {
    table: Table<SessionKey, Value>,
    keys: u32,
    writers: usize,
    replacements: u64,
    seed: u64,
    phase: AtomicU8,
    lookups: AtomicU64,
    misses: AtomicU64,
    stop: &'r AtomicBool,
}

/// Longest wait for readers to let go of a replaced value before that is an error.
const REFUSED_MAX: u32 = 1000;
/// Writes between two looks at the stop flag.
const CHUNK: u64 = 1 << 16;

/// Measures one number of writers.
pub(crate) fn measure(
    keys: u32,
    writers: usize,
    replacements: u64,
    seed: u64,
    stop: &AtomicBool,
) -> Result<TableResult, BenchError> {
    const READERS: usize = 1;
    let before = resident();
    let domain = Domain::new();
    let run = Run {
        table: Table::new(&domain, keys)?,
        keys,
        writers,
        replacements,
        seed,
        phase: AtomicU8::new(Phase::Add as u8),
        lookups: AtomicU64::new(0),
        misses: AtomicU64::new(0),
        stop,
    };
    let mut reader = domain.reader()?;
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| run.read(|batch| batch(&reader.pin())));
        let written = run.write_all(before);
        run.phase.store(Phase::End as u8, Ordering::Relaxed);
        let read = reading.join().map_err(|_| BenchError::Thread);
        let written = written?;
        read?;
        let rate = |count: u64, time: Duration| count as f64 / time.as_secs_f64();
        let lookups = run.lookups.load(Ordering::Relaxed);
        Ok(TableResult {
            keys,
            writers,
            readers: READERS,
            oversubscribed: writers + READERS > cores(),
            adds_per_second: rate(keys.into(), written.add),
            replaces_per_second: rate(replacements, written.replace),
            deletes_per_second: rate(keys.into(), written.delete),
            lookups_per_second: rate(lookups, written.replace),
            replacements,
            lookups,
            lookup_misses: run.misses.load(Ordering::Relaxed),
            record_bytes: size_of::<SessionKey>() + size_of::<Value>(),
            bytes_per_key: written.resident as f64 / f64::from(keys),
        })
    })
}

/// How long the phases took, and what the process grew by.
struct Written {
    add: Duration,
    replace: Duration,
    delete: Duration,
    resident: u64,
}

impl Run<'_> {
    fn key(key: u32) -> SessionKey {
        SessionKey::tunnel(EndpointId(0), Teid(key + 1))
    }

    fn write_all(&self, before: u64) -> Result<Written, BenchError> {
        let keys = self.keys as usize;
        let add = self.phase(Phase::Add, Self::add)?;
        self.holds("adding", keys)?;
        let resident = resident().saturating_sub(before);
        let replace = self.phase(Phase::Replace, Self::replace)?;
        self.holds("replacing", keys)?;
        let delete = self.phase(Phase::Delete, Self::delete)?;
        self.holds("deleting", 0)?;
        Ok(Written { add, replace, delete, resident })
    }

    fn holds(&self, after: &'static str, expected: usize) -> Result<(), BenchError> {
        let found = self.table.len();
        if found == expected { Ok(()) } else { Err(BenchError::TableLength { after, found, expected }) }
    }

    /// Has every writer do its share at once; the time until the last is done.
    fn phase(
        &self,
        phase: Phase,
        work: fn(&Self, u32) -> Result<(), BenchError>,
    ) -> Result<Duration, BenchError> {
        self.phase.store(phase as u8, Ordering::SeqCst);
        let start = Barrier::new(self.writers + 1);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..u32::try_from(self.writers).unwrap_or(u32::MAX))
                .map(|writer| {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        work(self, writer)
                    })
                })
                .collect();
            start.wait();
            let began = Instant::now();
            for writer in writers {
                writer.join().map_err(|_| BenchError::Thread)??;
            }
            Ok(began.elapsed())
        })
    }

    /// The keys of one writer: every `writers`th.
    fn share(&self, writer: u32) -> impl Iterator<Item = u32> {
        (writer..self.keys).step_by(self.writers)
    }

    fn add(&self, writer: u32) -> Result<(), BenchError> {
        for key in self.share(writer) {
            self.look(key.into())?;
            self.table
                .insert(Self::key(key), Value::new(key, 0))
                .map_err(|error| BenchError::Table("adding", error))?;
        }
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation)] // Writers are few.
    fn replace(&self, writer: u32) -> Result<(), BenchError> {
        let step = self.writers as u32;
        let own = (self.keys - writer).div_ceil(step);
        let order = Permutation::new(own, self.seed.wrapping_add(writer.into()));
        let share = self.replacements / u64::from(step)
            + u64::from(u64::from(writer) < self.replacements % u64::from(step));
        for version in 1..=share {
            self.look(version)?;
            let key = writer + order.at(version) * step;
            let mut refused = 0;
            while let Err(error) = self.table.replace(Self::key(key), Value::new(key, version)) {
                refused += 1;
                if error != TableError::Full || refused == REFUSED_MAX {
                    return Err(BenchError::Table("replacing", error));
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn delete(&self, writer: u32) -> Result<(), BenchError> {
        for key in self.share(writer) {
            self.look(key.into())?;
            if !self.table.remove(&Self::key(key)) {
                return Err(BenchError::Table("deleting", TableError::Absent));
            }
        }
        Ok(())
    }

    fn look(&self, count: u64) -> Result<(), BenchError> {
        if count.is_multiple_of(CHUNK) { stopped(self.stop) } else { Ok(()) }
    }

    /// Looks up random keys, a batch at a time, until the end; counts while values are being replaced.
    fn read(&self, mut under_guard: impl FnMut(&mut dyn FnMut(&Guard<'_>))) {
        let order = Permutation::new(self.keys, !self.seed);
        let mut place = 0u64;
        loop {
            let numbers: [u32; LOOKUP_BATCH_MAX] = std::array::from_fn(|at| order.at(place + at as u64));
            place += LOOKUP_BATCH_MAX as u64;
            let keys = numbers.map(Self::key);
            // SeqCst: a lookup that begins after the phase was seen finds all that the phase before has written.
            let began = self.phase.load(Ordering::SeqCst);
            let mut missed = 0;
            under_guard(&mut |guard| {
                let mut found = [None; LOOKUP_BATCH_MAX];
                self.table.get_batch(guard, &keys, &mut found);
                missed = found
                    .iter()
                    .zip(numbers)
                    .filter(|(value, number)| !value.is_some_and(|value: &Value| value.is_of(*number)))
                    .count();
            });
            let ended = self.phase.load(Ordering::SeqCst);
            if began == Phase::Replace as u8 && ended == began {
                self.lookups.fetch_add(LOOKUP_BATCH_MAX as u64, Ordering::Relaxed);
                self.misses.fetch_add(missed as u64, Ordering::Relaxed);
            }
            if ended == Phase::End as u8 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_missed_and_every_operation_is_done() {
        let stop = AtomicBool::new(false);
        for writers in [1, 3] {
            let result = measure(5000, writers, 20_001, 1, &stop).unwrap();
            assert_eq!((result.writers, result.keys, result.replacements), (writers, 5000, 20_001));
            assert_eq!(result.lookup_misses, 0);
            assert!(result.adds_per_second > 0.0 && result.deletes_per_second > 0.0);
        }
    }

    #[test]
    fn a_stop_ends_it() {
        let stop = AtomicBool::new(true);
        assert!(matches!(measure(5000, 1, 1, 1, &stop), Err(BenchError::Interrupted)));
    }

    #[test]
    fn values_of_others_and_in_pieces_are_told() {
        let mut value = Value::new(7, 3);
        assert!(value.is_of(7) && !value.is_of(8));
        value.0[WORDS - 1] += 1 << 32;
        assert!(!value.is_of(7));
    }
}
