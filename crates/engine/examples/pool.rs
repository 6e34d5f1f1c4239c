//! What it costs to take a frame from the pool and to give it back, in nanoseconds for the two: where frames come back in
//! order, and where they come back in random order.
//!
//! `cargo run --release -p kaido-engine --example pool`

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use kaido_engine::{Frame, FramePool, PoolCache};

const FRAMES: usize = 16_384;
/// Frames that are away at a time, as in a ring.
const AWAY: usize = 4096;
/// Frames that are taken and given back at a time.
const BATCH: usize = 64;
const BATCHES: usize = 20_000;
const ROUNDS: usize = 11;

/// Nanoseconds a frame of a round; `which` of so many frames away comes back next.
fn round(cache: &mut PoolCache, away: &mut VecDeque<Frame>, mut which: impl FnMut(usize) -> usize) -> f64 {
    let mut back: Vec<Frame> = Vec::with_capacity(BATCH);
    let mut spent = Duration::ZERO;
    for _ in 0..BATCHES {
        for _ in 0..BATCH {
            // From the middle the last takes its place: moving all others would take longer than what is measured.
            back.extend(match which(away.len()) {
                0 => away.pop_front(),
                at => away.swap_remove_back(at),
            });
        }
        let began = Instant::now();
        back.drain(..).for_each(|frame| cache.release(frame));
        away.extend((0..BATCH).filter_map(|_| black_box(cache.allocate())));
        spent += began.elapsed();
    }
    #[allow(clippy::cast_precision_loss)] // For people.
    let ns = spent.as_nanos() as f64 / (BATCHES * BATCH) as f64;
    ns
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = FramePool::leak(FRAMES)?;
    let mut cache = pool.cache();
    let mut away: VecDeque<Frame> = (0..AWAY).filter_map(|_| cache.allocate()).collect();
    let mut random = 1u64;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(round(&mut cache, &mut away, |_| 0));
        times[1].push(round(&mut cache, &mut away, |len| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap_or(0) % len
        }));
    }
    for (name, mut times) in ["as taken", "random"].into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        println!(
            "back {name}: {:.2} ns (least {:.2}, most {:.2})",
            times[ROUNDS / 2],
            times[0],
            times[ROUNDS - 1]
        );
    }
    Ok(())
}
