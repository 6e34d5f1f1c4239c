//! What the exact-match table costs: `cargo run --release -p kaido-table --example lookup [keys ...]`.
//!
//! Records of 64 bytes (a 16-byte key and 48 bytes of value), keys in random order, one writer. A table
//! is filled, read in batches, replaced while another thread reads, and emptied. Times are those that the
//! thread had the processor: on a shared machine the wall clock would measure the neighbours.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::time::{ClockId, clock_gettime};

use kaido_table::{Domain, LOOKUP_BATCH_MAX, Reader, Table};

type Value = [u64; 6];
type Sessions = Table<u128, Value>;

const LOOKUPS: u32 = 1 << 23;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut sizes = Vec::new();
    for size in std::env::args().skip(1) {
        sizes.push(size.parse()?);
    }
    if sizes.is_empty() {
        sizes = vec![1, 65_536, 1 << 20, 1 << 24];
    }
    println!(
        "{:>9} {:>9} {:>9} {:>8} {:>8} {:>10} {:>10} {:>10} {:>6} {:>7} pages",
        "keys", "ns/lookup", "min", "+writes", "ns/get", "insert/s", "replace/s", "remove/s", "B/key", "load"
    );
    for keys in sizes {
        measure(keys)?;
    }
    Ok(())
}

fn measure(keys: u32) -> Result<(), Box<dyn std::error::Error>> {
    let domain = Domain::new();
    let table = Sessions::new(&domain, keys)?;
    let mut reader = domain.reader()?;
    let began = thread_s();
    for number in 0..keys {
        table.insert(key_of(number), [number.into(); 6])?;
    }
    let inserts = rate(keys, began);
    let memory = table.memory();

    let mut batched: Vec<f64> =
        (0..ROUNDS).map(|_| read_batches(&table, &mut reader, keys, LOOKUPS)).collect();
    batched.sort_by(f64::total_cmp);
    let single = read_singly(&table, &mut reader, keys);

    let done = AtomicBool::new(false);
    let (replaces, disturbed) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut rounds = Vec::new();
            while !done.load(Ordering::Relaxed) {
                rounds.push(read_batches(&table, &mut reader, keys, LOOKUPS >> 3));
            }
            rounds.sort_by(f64::total_cmp);
            rounds[rounds.len() / 2]
        });
        let began = thread_s();
        let mut numbers = Numbers::new(keys);
        let mut failed = 0;
        for _ in 0..LOOKUPS / 2 {
            let number = numbers.next();
            failed += u32::from(table.replace(key_of(number), [number.into(); 6]).is_err());
        }
        let replaces = rate(LOOKUPS / 2, began);
        assert!(failed == 0, "replacements failed");
        done.store(true, Ordering::Relaxed);
        (replaces, reading.join())
    });
    let disturbed = disturbed.map_err(|_| "the reader failed")?;

    let began = thread_s();
    for number in 0..keys {
        assert!(table.remove(&key_of(number)), "a key was missed");
    }
    let removes = rate(keys, began);
    println!(
        "{keys:>9} {:>9.1} {:>9.1} {disturbed:>8.1} {single:>8.1} {inserts:>10.0} {replaces:>10.0} {removes:>10.0} {:>6.1} {:>7.3} {}",
        batched[ROUNDS / 2],
        batched[0],
        memory.bytes() as f64 / f64::from(keys),
        memory.load,
        memory.pages,
    );
    Ok(())
}

/// Looks up random keys in batches; nanoseconds each.
fn read_batches(table: &Sessions, reader: &mut Reader, keys: u32, lookups: u32) -> f64 {
    let mut numbers = Numbers::new(keys);
    let batches = lookups as usize / LOOKUP_BATCH_MAX;
    let began = thread_s();
    for _ in 0..batches {
        let wanted: [u32; LOOKUP_BATCH_MAX] = std::array::from_fn(|_| numbers.next());
        let batch = wanted.map(key_of);
        let guard = reader.pin();
        let mut found = [None; LOOKUP_BATCH_MAX];
        table.get_batch(&guard, &batch, &mut found);
        let right = found
            .iter()
            .zip(wanted)
            .all(|(value, number)| value.is_some_and(|value| value[0] == u64::from(number)));
        assert!(right, "a key was missed");
    }
    (thread_s() - began) * 1e9 / (batches * LOOKUP_BATCH_MAX) as f64
}

/// Looks up random keys one at a time, each found before the next is begun; nanoseconds each.
fn read_singly(table: &Sessions, reader: &mut Reader, keys: u32) -> f64 {
    let mut numbers = Numbers::new(keys);
    let lookups = LOOKUPS >> 3;
    let guard = reader.pin();
    let began = thread_s();
    let mut chain = 0;
    for _ in 0..lookups {
        let number = numbers.next();
        // The last value, minus itself, makes each lookup wait for the one before.
        let found = table.get(&guard, &(key_of(number) + u128::from(chain)));
        chain = found.map_or(1, |value| value[0] - value[1]);
    }
    assert!(chain == 0, "a key was missed");
    (thread_s() - began) * 1e9 / f64::from(lookups)
}

/// Processor time of this thread in seconds.
fn thread_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn rate(count: u32, began: f64) -> f64 {
    f64::from(count) / (thread_s() - began)
}

/// A key without order.
fn key_of(number: u32) -> u128 {
    u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) & u128::from(u64::MAX)
}

/// Random numbers below a bound.
struct Numbers {
    state: u64,
    bound: u64,
}

impl Numbers {
    fn new(bound: u32) -> Self {
        Self { state: 0x2545_f491_4f6c_dd1d, bound: bound.into() }
    }

    #[allow(clippy::cast_possible_truncation)] // Less than the bound.
    fn next(&mut self) -> u32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (((self.state >> 32) * self.bound) >> 32) as u32
    }
}
