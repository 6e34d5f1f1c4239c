//! The depth of a policer's bucket that TCP needs: a model of one CUBIC flow (RFC 9438) through the policers.
//!
//! The model sends a window per round trip, evenly spaced. A loss that three packets follow costs three tenths of the
//! window (fast recovery). Any other costs a retransmission timeout of 200 ms and the RTT, doubled when it repeats (RFC
//! 6298; 200 ms is Linux's minimum). A bucket below the timeout overflows meanwhile, so a flow with few packets in
//! flight does not get its rate. The model has neither HyStart nor partial recovery, and gives large windows less than
//! the kernel's TCP gets, which `python -m rig.ambr` measures.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

use std::time::{Duration, Instant};

use kaido_n4::BitRate;
use kaido_upf::node::LiveSettings;
use kaido_upf::qos::{PolicerSlot, Policers};
use kaido_upf::ue::Direction;

/// Octets of a packet, and how long a flow runs before the measurement and in it.
const PACKET: u64 = 1400;
const BEFORE: Duration = Duration::from_secs(20);
const COUNTED: Duration = Duration::from_secs(100);
/// Linux's minimum retransmission timeout, to which the RTT is added.
const TIMEOUT: Duration = Duration::from_millis(200);
/// CUBIC's scaling constant and its decrease.
const SCALE: f64 = 0.4;
const DECREASE: f64 = 0.7;

/// A flow's congestion window, in packets.
struct Flow {
    window: f64,
    threshold: f64,
    /// The window at the last loss, and when that was.
    most: f64,
    lost_at: Duration,
    timeouts: u32,
}

impl Flow {
    /// Grows the window after a round trip without a loss.
    fn grow(&mut self, now: Duration) {
        self.timeouts = 0;
        if self.window < self.threshold {
            self.window *= 2.0;
            return;
        }
        let regains = (self.most * (1.0 - DECREASE) / SCALE).cbrt();
        let cubic = self.most + SCALE * ((now - self.lost_at).as_secs_f64() - regains).powi(3);
        self.window = cubic.clamp(self.window + 0.5, self.window * 1.5);
    }

    /// Reduces the window after a round trip with a loss, of which `passed` packets arrived; returns how long the flow is
    /// silent then.
    fn lose(&mut self, now: Duration, rtt: Duration, passed: u64) -> Duration {
        (self.most, self.lost_at) = (self.window, now);
        self.threshold = (self.window * DECREASE).max(2.0);
        self.window = if passed > 3 { self.threshold } else { 1.0 };
        if passed > 3 {
            return Duration::ZERO;
        }
        self.timeouts += 1;
        (TIMEOUT + rtt) * (1 << (self.timeouts - 1).min(6))
    }
}

/// The share of a rate that one flow gets.
fn share(kbps: u64, rtt: Duration, depth: Duration) -> f64 {
    let (policers, began) = (Policers::new(1).unwrap(), Instant::now());
    let slot = PolicerSlot(0);
    policers.set(slot, BitRate { uplink_kbps: kbps, downlink_kbps: kbps }, depth);
    let mut flow =
        Flow { window: 10.0, threshold: f64::INFINITY, most: 0.0, lost_at: Duration::ZERO, timeouts: 0 };
    let (mut now, mut counted) = (Duration::ZERO, 0);
    while now < BEFORE + COUNTED {
        let sent = flow.window as u64;
        let passed = (0..sent).filter(|&n| {
            let at = policers.ticks(began + now + rtt.mul_f64(n as f64 / sent as f64));
            let admitted = policers.admits(slot, Direction::Uplink, at);
            if admitted {
                policers.take(slot, Direction::Uplink, at, PACKET, false);
            }
            admitted
        });
        let passed = passed.count() as u64;
        counted += if now < BEFORE { 0 } else { passed * PACKET };
        now += rtt;
        match passed == sent {
            true => flow.grow(now),
            false => now += flow.lose(now, rtt, passed),
        }
    }
    (counted * 8) as f64 / (kbps as f64 * 1000.0 * (now - BEFORE).as_secs_f64())
}

const RATES_KBPS: [u64; 4] = [1_000, 5_000, 20_000, 100_000];
const RTTS_MS: [u64; 3] = [2, 20, 100];

#[test]
fn one_flow_gets_its_rate_by_default() {
    let depth = LiveSettings::default().policer_window;
    for kbps in RATES_KBPS {
        for rtt in RTTS_MS {
            let share = share(kbps, Duration::from_millis(rtt), depth);
            let least = if kbps < 100_000 { 0.95 } else { 0.9 };
            assert!(share > least, "{kbps} kbit/s, {rtt} ms: {share:.3} of the rate");
        }
    }
}

#[test]
fn a_bucket_below_the_retransmission_timeout_loses_most_of_a_low_rate() {
    let share = share(1_000, Duration::from_millis(2), Duration::from_millis(10));
    assert!(share < 0.5, "{share:.3} of the rate");
}
