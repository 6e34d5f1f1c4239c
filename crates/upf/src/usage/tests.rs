use std::sync::Arc;

use super::*;

/// Counters with the numbers from 0 on.
fn counters(len: u32) -> UsageCounters {
    let counters = UsageCounters::among(LineSlab::new(len).unwrap(), len);
    let mut free = FreeSlots::of(&counters);
    (0..len).for_each(|slot| assert_eq!(free.take(&counters), Some(UsageSlot(slot))));
    counters
}

fn thresholds(thresholds: [u64; 3]) -> Limits {
    Limits { thresholds, quotas: [UNLIMITED; 3], exhausted: false }
}

#[test]
fn a_quota_follows_a_threshold_and_marks_the_counter() {
    let counters = counters(2);
    counters.keep_quotas().unwrap();
    let slot = UsageSlot(1);
    let quotas = [UNLIMITED, UNLIMITED, 1000];
    let limits = Limits { thresholds: [UNLIMITED, UNLIMITED, 800], quotas, exhausted: false };
    counters.set_limits(slot, &limits);
    assert!(!counters.count(slot, Direction::Uplink, 799, true));
    assert!(counters.count(slot, Direction::Downlink, 1, true), "the threshold");
    assert!(!counters.is_exhausted(slot));
    assert!(!counters.count(slot, Direction::Downlink, 199, true));
    assert!(counters.count(slot, Direction::Uplink, 100, true), "the quota");
    assert!(counters.is_exhausted(slot) && !counters.is_exhausted(UsageSlot(0)));
    assert!(!counters.count(slot, Direction::Uplink, 100, true), "told once");
    counters.set_limits(slot, &Limits { quotas: [UNLIMITED, UNLIMITED, 5000], ..limits });
    assert!(!counters.is_exhausted(slot), "granted anew");
    counters.exhaust(slot);
    assert!(counters.is_exhausted(slot));
    counters.end(slot);
    counters.begin(slot);
    assert!(!counters.is_exhausted(slot) && !counters.count(slot, Direction::Uplink, 9999, true));
}

/// Workers that count in one counter pass a packet more each, at most, than one worker would.
#[test]
fn a_quota_is_overshot_by_a_packet_of_each_worker_at_most() {
    const WORKERS: u64 = 4;
    let counters = counters(1);
    counters.keep_quotas().unwrap();
    let slot = UsageSlot(0);
    let quotas = [UNLIMITED, UNLIMITED, 1_000_000];
    let limits = Limits { thresholds: [UNLIMITED, UNLIMITED, 500_000], quotas, exhausted: false };
    counters.set_limits(slot, &limits);
    let told: u64 = std::thread::scope(|scope| {
        let worker = || {
            let packets = (0..20_000).take_while(|_| !counters.is_exhausted(slot));
            packets.map(|_| u64::from(counters.count(slot, Direction::Uplink, 100, true))).sum::<u64>()
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let passed = counters.read(slot).uplink_bytes;
    assert!((1_000_000..1_000_000 + WORKERS * 100).contains(&passed), "{passed}");
    assert!((1..=2).contains(&told), "threshold and quota, each told once or both at once");
}

#[test]
fn one_packet_may_cross_threshold_and_quota() {
    let counters = counters(1);
    counters.keep_quotas().unwrap();
    let limits =
        Limits { thresholds: [10, UNLIMITED, 20], quotas: [UNLIMITED, UNLIMITED, 30], exhausted: false };
    counters.set_limits(UsageSlot(0), &limits);
    assert!(counters.count(UsageSlot(0), Direction::Uplink, 100, false));
    assert!(counters.is_exhausted(UsageSlot(0)));
    assert!(!counters.count(UsageSlot(0), Direction::Uplink, 100, false));
}

#[test]
fn a_threshold_is_seen_by_one_packet() {
    let counters = counters(4);
    let slot = UsageSlot(3);
    counters.set_limits(slot, &thresholds([UNLIMITED, UNLIMITED, 1000]));
    assert!(!counters.count(slot, Direction::Uplink, 600, true));
    assert!(!counters.count(slot, Direction::Downlink, 399, true));
    assert!(counters.count(slot, Direction::Downlink, 1, true));
    assert!(!counters.count(slot, Direction::Uplink, 5000, true));
    let volume = counters.read(slot);
    assert_eq!((volume.uplink_bytes, volume.downlink_bytes), (5600, 400));
    assert_eq!((volume.uplink_packets, volume.downlink_packets), (2, 2));
    counters.end(slot);
    counters.begin(slot);
    assert_eq!(counters.read(slot), Volume::default());
    assert!(!counters.count(slot, Direction::Uplink, u64::MAX / 2, true), "a cleared counter has no limit");
}

#[test]
fn a_watched_counter_tells_of_its_next_packet() {
    let counters = counters(1);
    let slot = UsageSlot(0);
    counters.set_limits(slot, &thresholds([UNLIMITED, UNLIMITED, 1000]));
    assert!(!counters.count(slot, Direction::Uplink, 100, true));
    counters.watch(slot);
    assert!(counters.count(slot, Direction::Downlink, 1, true));
    assert!(!counters.count(slot, Direction::Uplink, 1, true), "told once");
    counters.set_limits(slot, &thresholds([UNLIMITED, UNLIMITED, 103]));
    counters.watch(slot);
    assert!(counters.count(slot, Direction::Uplink, 1, true));
}

#[test]
fn directions_have_thresholds_of_their_own() {
    let counters = counters(1);
    let slot = UsageSlot(0);
    counters.set_limits(slot, &thresholds([100, UNLIMITED, UNLIMITED]));
    assert!(!counters.count(slot, Direction::Downlink, 500, true));
    assert!(counters.count(slot, Direction::Uplink, 100, true));
}

#[derive(Debug)]
#[repr(align(64))]
struct Words([AtomicU64; 24]);

#[test]
fn given_memory_is_counted_in_as_it_lies() {
    let words: &'static Words = Box::leak(Box::new(Words([const { AtomicU64::new(0) }; 24])));
    assert_eq!(UsageCounters::over(&words.0[4..20]).unwrap_err(), UnfitMemory, "not aligned");
    assert_eq!(UsageCounters::over(&words.0[..20]).unwrap_err(), UnfitMemory, "half a cell");
    let counters = UsageCounters::over(&words.0).unwrap();
    assert_eq!(counters.len(), 3);
    let slot = UsageSlot(1);
    counters.set_limits(slot, &thresholds([UNLIMITED, 100, 200]));
    counters.count(slot, Direction::Uplink, 60, true);
    // As a program in the kernel counts downlink.
    words.0[8 + 2].fetch_add(99, Ordering::Relaxed);
    words.0[8 + 3].fetch_add(1, Ordering::Relaxed);
    assert!(counters.count(slot, Direction::Downlink, 1, true));
    let found: Vec<_> = words.0[8..16].iter().map(|word| word.load(Ordering::Relaxed)).collect();
    assert_eq!(found, [60, 1, 100, 2, 0, 0, !200, 0]);
    assert_eq!(counters.read(slot).total_bytes(), 160);
}

/// Who has counted bytes uplink of every counter that are in none yet.
#[derive(Debug)]
struct Keeper {
    cells: &'static Words,
    kept: AtomicU64,
    recalled: AtomicU64,
}

impl OffloadedCounters for Arc<Keeper> {
    fn sync(&self, slot: UsageSlot) {
        let kept = self.kept.swap(0, Ordering::Relaxed);
        self.cells.0[8 * slot.0 as usize].fetch_add(kept, Ordering::Relaxed);
    }

    fn flush(&self, slot: UsageSlot) {
        self.recalled.fetch_add(1, Ordering::Relaxed);
        self.sync(slot);
    }

    fn bytes_max(&self) -> u64 {
        500
    }
}

#[test]
fn what_is_kept_elsewhere_is_read_too_and_limits_are_told_earlier_by_as_much() {
    let words: &'static Words = Box::leak(Box::new(Words([const { AtomicU64::new(0) }; 24])));
    let keeper = Arc::new(Keeper { cells: words, kept: AtomicU64::new(0), recalled: AtomicU64::new(0) });
    let counters = UsageCounters::over(&words.0).unwrap().with_offloaded(Box::new(keeper.clone()));
    let slot = UsageSlot(2);
    let limits = thresholds([UNLIMITED, UNLIMITED, 10_000]);
    counters.set_limits(slot, &limits);
    assert_eq!(keeper.recalled.load(Ordering::Relaxed), 1);
    keeper.kept.store(500, Ordering::Relaxed);
    assert!(!counters.count(slot, Direction::Downlink, 9499, true));
    assert!(counters.count(slot, Direction::Downlink, 1, true), "the limit may have been reached");
    assert_eq!(counters.read(slot).total_bytes(), 10_000);
    // A limit that is near is told by the packet that reaches it.
    counters.set_limits(slot, &thresholds([UNLIMITED, UNLIMITED, 11_000]));
    assert!(!counters.count(slot, Direction::Downlink, 999, true));
    assert!(counters.count(slot, Direction::Downlink, 1, true));
    counters.watch(slot);
    assert_eq!(keeper.recalled.load(Ordering::Relaxed), 3);
}

#[test]
fn concurrent_packets_cross_a_threshold_once() {
    let counters = counters(1);
    counters.set_limits(UsageSlot(0), &thresholds([UNLIMITED, UNLIMITED, 50_000]));
    let crossed: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..1000)
                        .map(|_| u32::from(counters.count(UsageSlot(0), Direction::Uplink, 100, true)))
                        .sum::<u32>()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(crossed, 1);
    assert_eq!(counters.read(UsageSlot(0)).uplink_bytes, 400_000);
}
