//! What the cores' distance costs: a cache line that goes to and fro between two of them.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::worker::pin;

/// Round trips of one measurement.
const TRIPS: u32 = 20_000;

/// Nanoseconds in which a cache line goes from CPU 0 to CPU 1 and back, both spinning for it. Everything that workers
/// hand to one another costs a part of it, and where CPUs are a guest's, the host may change it at any time.
///
/// # Errors
/// When a thread cannot be made or there is one CPU only.
pub fn round_trip_ns() -> io::Result<f64> {
    if std::thread::available_parallelism()?.get() < 2 {
        return Err(io::Error::other("there is one CPU only"));
    }
    let line = AtomicU32::new(0);
    // Each side waits for its turn, an even number or an odd one, and passes the next on.
    let side = |cpu: usize, first: u32| {
        pin(cpu);
        let began = Instant::now();
        for trip in 0..TRIPS {
            while line.load(Ordering::Acquire) != 2 * trip + first {
                std::hint::spin_loop();
            }
            line.store(2 * trip + first + 1, Ordering::Release);
        }
        began.elapsed()
    };
    std::thread::scope(|scope| {
        let far = std::thread::Builder::new().spawn_scoped(scope, || side(1, 1))?;
        let near = std::thread::Builder::new().spawn_scoped(scope, || side(0, 0))?;
        let panicked = |_| io::Error::other("a thread panicked");
        far.join().map_err(panicked)?;
        let elapsed = near.join().map_err(panicked)?;
        Ok(elapsed.as_secs_f64() * 1e9 / f64::from(TRIPS))
    })
}
