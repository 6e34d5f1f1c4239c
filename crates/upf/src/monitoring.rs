//! QoS monitoring per QoS flow (TS 23.501 5.33.3.2, TS 38.415 5.4): what workers and control share of a flow, and what
//! the time stamps of a packet say.
//!
//! ```text
//!            user plane            access                 UE
//!   t1 ──── stamped packet ────▶ t2 ┄┄┄ DL delay result ┄┄▶
//!   t4 ◀─── t1, t2, t3, results ─── t3 ◀┄┄ UL delay result ┄┄
//! ```
//! The clocks of both ends need not agree. The way to the access and back takes `(t4 - t1) - (t3 - t2)`, and each way
//! half of that, as TS 23.501 has it where they are not synchronised. The access measures what lies behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use kaido_wire::gtpu::{NtpStamp, UplinkInformation};

use kaido_n4::{PacketDelays, Qfi};

/// Packets of a flow are stamped no more often than that, in nanoseconds.
const MARK_EVERY_NS: u64 = 100_000_000;
/// Measurements of a flow that control is told of come no more often than that, whatever the access sends.
const SAMPLE_EVERY_NS: u64 = 50_000_000;
/// Longer delays than that are none: stamps of another time.
const DELAY_MAX_NS: u64 = 60_000_000_000;

/// The node's clock: it goes as the monotonic one does, and shows the time of day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    began_unix_ns: u64,
}

impl Clock {
    /// A clock that shows the time of day now.
    pub(crate) fn new() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_unix_ns: nanoseconds(unix) }
    }

    /// Nanoseconds since the clock was made.
    fn elapsed(&self, now: Instant) -> u64 {
        nanoseconds(now.saturating_duration_since(self.began))
    }

    /// The time as a stamp.
    fn stamp(&self, now: Instant) -> NtpStamp {
        NtpStamp::from_unix_ns(self.began_unix_ns.saturating_add(self.elapsed(now)))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A monitored QoS flow of a session.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    /// From when on a packet is stamped.
    next_mark: AtomicU64,
    /// From when on a measurement is told.
    next_sample: AtomicU64,
    marked: AtomicU32,
}

/// The monitored flows of a session.
pub(crate) type Monitors = Box<[(Qfi, Arc<Monitor>)]>;

impl Monitor {
    /// The stamp that a packet to the UE is to have, if this is the time for one.
    pub(crate) fn mark(&self, clock: &Clock, now: Instant) -> Option<NtpStamp> {
        let due = pass(&self.next_mark, clock.elapsed(now), MARK_EVERY_NS);
        due.then(|| clock.stamp(now))
    }

    /// A stamped packet has left.
    pub(crate) fn sent(&self) {
        self.marked.fetch_add(1, Ordering::Relaxed);
    }

    /// How many stamped packets have left; wraps.
    pub(crate) fn marked(&self) -> u32 {
        self.marked.load(Ordering::Relaxed)
    }

    /// The delays that a packet from the access brings, if control is to know them.
    pub(crate) fn sample(
        &self,
        clock: &Clock,
        now: Instant,
        information: &UplinkInformation,
    ) -> Option<PacketDelays> {
        let delays = delays(information, clock.stamp(now));
        let wanted = !delays.is_empty() && pass(&self.next_sample, clock.elapsed(now), SAMPLE_EVERY_NS);
        wanted.then_some(delays)
    }
}

/// Whether `now` is not before `next`, which moves on then. Of several workers one is let pass.
fn pass(next: &AtomicU64, now: u64, every: u64) -> bool {
    let due = next.load(Ordering::Relaxed);
    // Relaxed: nothing else hangs on it.
    now >= due && next.compare_exchange(due, now + every, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// What the stamps and results of an uplink packet say that came at `now`: nothing where they contradict each other.
fn delays(information: &UplinkInformation, now: NtpStamp) -> PacketDelays {
    let Some(stamps) = information.stamps else { return PacketDelays::default() };
    let there_and_back = now.since_ns(stamps.repeated).zip(stamps.sending.since_ns(stamps.received));
    let transport = there_and_back.and_then(|(whole, waited)| whole.checked_sub(waited));
    let Some(transport) = transport.filter(|&ns| ns <= DELAY_MAX_NS) else { return PacketDelays::default() };
    let with = |ms: u32, transport: u64| {
        let ns = u64::from(ms) * 1_000_000 + transport;
        u32::try_from((ns + 500_000) / 1_000_000).ok().filter(|_| ns <= DELAY_MAX_NS)
    };
    let (down, up) = (information.delays.downlink, information.delays.uplink);
    PacketDelays {
        downlink: down.and_then(|ms| with(ms, transport / 2)),
        uplink: up.and_then(|ms| with(ms, transport / 2)),
        round_trip: down.zip(up).and_then(|(down, up)| with(down.checked_add(up)?, transport)),
    }
}

#[cfg(test)]
mod tests {
    use kaido_wire::gtpu::{UplinkDelays, UplinkStamps};
    use proptest::prelude::*;

    use super::*;

    fn answer(at: [u64; 3], delays: UplinkDelays) -> UplinkInformation {
        let [repeated, received, sending] = at.map(NtpStamp::from_unix_ns);
        let stamps = Some(UplinkStamps { repeated, received, sending });
        UplinkInformation { qfi: 9, stamps, delays, sequence: None }
    }

    const MS: u64 = 1_000_000;

    proptest! {
        /// Conformance: TS 23.501 5.33.3.2 | Packet delays of the access and of the tunnel, whatever its clock shows
        #[test]
        fn delays_add_up_whatever_the_other_clock_shows(
            t1 in 0u64..4_000_000_000_000_000_000,
            offset in 0u64..2_000_000_000_000_000_000,
            to in 0u64..10_000 * MS, waited in 0u64..10_000 * MS, back in 0u64..10_000 * MS,
            down in 0u32..10_000, up in 0u32..10_000,
        ) {
            let received = t1 + offset + to;
            let results = UplinkDelays { downlink: Some(down), uplink: Some(up), ..UplinkDelays::default() };
            let found = delays(
                &answer([t1, received, received + waited], results),
                NtpStamp::from_unix_ns(t1 + to + waited + back),
            );
            let near = |found: Option<u32>, ns: u64| {
                found.is_some_and(|ms| (u64::from(ms) * MS).abs_diff(ns) <= MS / 2 + 20)
            };
            prop_assert!(near(found.round_trip, to + back + u64::from(down + up) * MS), "{found:?}");
            prop_assert!(near(found.downlink, (to + back) / 2 + u64::from(down) * MS), "{found:?}");
            prop_assert!(near(found.uplink, (to + back) / 2 + u64::from(up) * MS), "{found:?}");
        }

        #[test]
        fn no_stamps_are_too_strange(a: u64, b: u64, c: u64, d: u64, down: Option<u32>, up: Option<u32>) {
            let stamps = UplinkStamps { repeated: NtpStamp(a), received: NtpStamp(b), sending: NtpStamp(c) };
            let results = UplinkDelays { downlink: down, uplink: up, ..UplinkDelays::default() };
            let information = UplinkInformation { qfi: 0, stamps: Some(stamps), delays: results, sequence: None };
            let found = delays(&information, NtpStamp(d));
            prop_assert!(found.each().into_iter().flatten().all(|ms| u64::from(ms) * MS <= DELAY_MAX_NS + MS));
        }
    }

    #[test]
    fn without_a_result_of_the_access_a_delay_is_unknown() {
        let results = UplinkDelays { uplink: Some(7), ..UplinkDelays::default() };
        let found = delays(&answer([0, 0, 0], results), NtpStamp::from_unix_ns(4 * MS));
        assert_eq!(found.each(), [None, Some(9), None]);
        assert!(delays(&UplinkInformation::default(), NtpStamp(0)).is_empty());
    }

    #[test]
    fn marks_and_samples_come_at_their_pace() {
        let (clock, monitor) = (Clock::new(), Monitor::default());
        let at = |ms| clock.began + Duration::from_millis(ms);
        let marks = (0..1000).filter(|&ms| monitor.mark(&clock, at(ms)).is_some()).count();
        assert_eq!(marks, 10);
        let results = UplinkDelays { uplink: Some(7), ..UplinkDelays::default() };
        let sample = |ms| {
            let stamp = clock.stamp(at(ms));
            let stamps = Some(UplinkStamps { repeated: stamp, received: stamp, sending: stamp });
            monitor.sample(
                &clock,
                at(ms),
                &UplinkInformation { qfi: 0, stamps, delays: results, sequence: None },
            )
        };
        assert_eq!((0..1000).filter_map(sample).count(), 20);
        assert_eq!(monitor.marked(), 0);
        monitor.sent();
        assert_eq!(monitor.marked(), 1);
    }
}
