//! A table that is read and replaced at the same time: `cargo run --release -p kaido-table --example lookup`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kaido_table::{Domain, LOOKUP_BATCH_MAX, Table};

const KEYS: u64 = 1 << 20;
const ROUNDS: u64 = 1 << 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let domain = Domain::new();
    let table = Table::new(&domain, u32::try_from(KEYS)?)?;
    for key in 0..KEYS {
        table.insert(key, key)?;
    }
    let memory = table.memory();
    let (bytes, pages) = (memory.bytes(), memory.pages);
    println!("{KEYS} keys in {} MiB, {pages}", bytes >> 20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut replaced = 0u64;
            while !done.load(Ordering::Relaxed) {
                let key = replaced.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS;
                if table.replace(key, key).is_ok() {
                    replaced += 1;
                }
            }
            replaced
        });
        let mut reader = domain.reader().ok()?;
        let began = Instant::now();
        let mut chance = 1u64;
        for _ in 0..ROUNDS {
            let keys: [u64; LOOKUP_BATCH_MAX] = std::array::from_fn(|_| {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (chance >> 33) % KEYS
            });
            let guard = reader.pin();
            let mut found = [None; LOOKUP_BATCH_MAX];
            table.get_batch(&guard, &keys, &mut found);
            assert!(found.iter().zip(&keys).all(|(value, key)| *value == Some(key)), "a key was missed");
        }
        let took = began.elapsed();
        done.store(true, Ordering::Relaxed);
        let lookups = ROUNDS * LOOKUP_BATCH_MAX as u64;
        println!("{:.1} ns a lookup, random keys", took.as_secs_f64() * 1e9 / lookups as f64);
        println!("{} replacements meanwhile, no key missed", writer.join().unwrap_or(0));
        Some(())
    })
    .ok_or("no reader")?;
    Ok(())
}
