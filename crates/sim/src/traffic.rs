//! Generated traffic: numbered datagrams from all UEs in turn at an even pace, and the tally of replies.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::gnb::{Gnb, GnbCounters, count};
use super::numbered::{self, Payload};
use super::plan::Traffic;
use super::ue::Ue;

/// The UEs' port, by which replies are known.
pub(super) const SOURCE_PORT: u16 = 47_000;
/// The longest sleep, so that the end is seen in time.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// A sleep shorter than this takes longer than it says.
const SLEEP_MIN: Duration = Duration::from_micros(100);
/// What a stall may make up for at once: more would be a burst that no pace asked for.
const BURST_MAX: u64 = 4096;

/// The UE that sends the datagram with a number.
pub(super) fn sender(number: u64, ues: usize) -> usize {
    usize::try_from(number % ues.max(1) as u64).unwrap_or(0)
}

/// Sends all datagrams, or those that were due when `stop` was set.
pub(super) fn generate(traffic: &Traffic, gnb: &Gnb, ues: &[Ue], stop: &AtomicBool) {
    let mut uplink = gnb.uplink();
    let total = traffic.total();
    let begun = Instant::now();
    let mut number = 0;
    while number < total && !stop.load(Ordering::Relaxed) {
        let due = due(traffic.pps, begun.elapsed()).min(total).min(number + BURST_MAX);
        while number < due {
            let Some(ue) = ues.get(sender(number, ues.len())) else { break };
            send(traffic, number, ue, &mut uplink);
            number += 1;
        }
        uplink.flush();
        if number < total {
            let next = Duration::from_nanos((number + 1).saturating_mul(1_000_000_000) / traffic.pps);
            let ahead = next.saturating_sub(begun.elapsed());
            std::thread::sleep(ahead.clamp(SLEEP_MIN, SLEEP_MAX));
        }
    }
}

/// Datagrams that a pace allows after a time.
fn due(pps: u64, elapsed: Duration) -> u64 {
    u64::try_from(u128::from(pps) * elapsed.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}

fn send(traffic: &Traffic, number: u64, ue: &Ue, uplink: &mut super::gnb::Uplink<'_>) {
    let Some(address) = ue.address(traffic.to.ip()) else { return };
    let len = usize::from(traffic.bytes);
    let Some(packet) = uplink.space().get_mut(..len) else { return };
    if numbered::write(packet, number, SocketAddr::new(address, SOURCE_PORT), traffic.to).is_ok() {
        ue.counters.generated_sent.add(len);
        uplink.push(ue, len);
    }
}

/// Which datagrams were answered: a bit for each.
#[derive(Debug)]
pub(super) struct Replies {
    seen: Vec<u64>,
    total: u64,
    ues: usize,
}

impl Replies {
    /// Nothing of `traffic` was answered yet.
    pub(super) fn new(traffic: &Traffic, ues: usize) -> Self {
        let total = traffic.total();
        let words = usize::try_from(total.div_ceil(64)).unwrap_or(usize::MAX);
        Self { seen: vec![0; words], total, ues }
    }

    /// Reads a packet that may be a reply.
    pub(super) fn read(&self, packet: &[u8]) -> Option<Payload> {
        let datagram = numbered::datagram(packet).filter(|datagram| datagram.to.port() == SOURCE_PORT)?;
        match numbered::read(datagram.payload) {
            Payload::Foreign => None,
            Payload::Number(number) if number >= self.total => Some(Payload::Corrupt),
            found => Some(found),
        }
    }

    /// Counts a reply that came through the tunnel of the UE at `place`.
    pub(super) fn tally(
        &mut self,
        reply: Payload,
        place: usize,
        len: usize,
        ue: &Ue,
        counters: &GnbCounters,
    ) {
        let Payload::Number(number) = reply else { return count(&counters.corrupt) };
        if sender(number, self.ues) != place {
            return count(&counters.misdelivered);
        }
        ue.counters.generated_received.add(len);
        if !self.mark(number) {
            count(&ue.counters.duplicates);
        }
    }

    /// Whether a number is seen for the first time.
    fn mark(&mut self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok().and_then(|at| self.seen.get_mut(at));
        let bit = 1 << (number % 64);
        word.is_some_and(|word| {
            let first = *word & bit == 0;
            *word |= bit;
            first
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic() -> Traffic {
        "pps=100,bytes=100,seconds=1,to=198.51.100.1:9".parse().unwrap()
    }

    #[test]
    fn the_pace_is_even() {
        assert_eq!(due(1000, Duration::from_millis(1)), 1);
        assert_eq!(due(3, Duration::from_millis(999)), 2);
        assert_eq!(due(10_000_000, Duration::from_secs(86_400)), 864_000_000_000);
    }

    #[test]
    fn replies_are_told_from_copies_strays_and_the_rest() {
        let traffic = traffic();
        let ue = Ue::new(Some("10.60.0.2".parse().unwrap()), None);
        let counters = GnbCounters::default();
        let mut replies = Replies::new(&traffic, 3);
        let mut packet = vec![0; 100];
        let mut reply = |number: u64, port: u16| {
            let to = SocketAddr::new("10.60.0.2".parse().unwrap(), port);
            numbered::write(&mut packet, number, traffic.to, to).unwrap();
            packet.clone()
        };
        for number in [1, 4, 4, 2, 100] {
            let packet = reply(number, SOURCE_PORT);
            let found = replies.read(&packet).unwrap();
            replies.tally(found, 1, packet.len(), &ue, &counters);
        }
        assert_eq!(replies.read(&reply(1, 53)), None);
        assert_eq!(ue.counters.generated_received.read(), (3, 300));
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(
            (read(&ue.counters.duplicates), read(&counters.misdelivered), read(&counters.corrupt)),
            (1, 1, 1)
        );
    }
}
