//! An application that asks for the names of another and answers for its own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kaido_ndn::client::{Consumer, ReceivedPacket, append_answer};
use kaido_wire::ndn::{Data, DataRepr, Interest, InterestRepr, LpHeader, Name, sha256};

use super::names::Names;
use super::popularity::Ranks;
use super::report::StationResult;
use super::{NdnError, NdnPlan};

/// Names that are drawn in vain, because they are under way, before the window stays as it is for a while.
const DRAWS_MAX: usize = 64;

/// One bit for each name: whether its Data has come.
struct AnsweredNames(Vec<u64>);

impl AnsweredNames {
    fn new(names: u32) -> Self {
        Self(vec![0; names as usize / 64 + 1])
    }

    /// Notes that the Data of a name has come; whether it has come before.
    fn note(&mut self, rank: u32) -> bool {
        let (word, bit) = (rank as usize / 64, 1 << (rank % 64));
        let before = self.0[word] & bit != 0;
        self.0[word] |= bit;
        before
    }
}

/// A station.
pub(super) struct Station<'p> {
    plan: &'p NdnPlan,
    consumer: Consumer,
    own: Names,
    others: Names,
    ranks: Ranks,
    /// What was asked for and has not come, and when it was.
    pending: HashMap<u32, Instant>,
    /// Where each name is asked for once.
    answered: Option<AnsweredNames>,
    nonce: u32,
    out: Vec<u8>,
    name: Vec<u8>,
    content: Vec<u8>,
    data: Vec<u8>,
    expected: Vec<u8>,
    result: StationResult,
}

impl<'p> Station<'p> {
    pub(super) fn new(plan: &'p NdnPlan, consumer: Consumer, own: Names, others: Names, seed: u64) -> Self {
        let is_once = plan.popularity == super::Popularity::Once;
        Self {
            ranks: Ranks::new(plan.popularity, others.len(), seed),
            answered: is_once.then(|| AnsweredNames::new(others.len())),
            pending: HashMap::with_capacity(2 * plan.window),
            nonce: std::process::id(),
            out: Vec::new(),
            name: Vec::new(),
            content: vec![0; plan.content],
            data: Vec::new(),
            expected: vec![0; plan.content],
            result: StationResult::default(),
            plan,
            consumer,
            own,
            others,
        }
    }

    /// Asks and answers until `until`, then answers for as long as an Interest lives, or until `stop` is set.
    pub(super) fn run(mut self, until: Instant, stop: &AtomicBool) -> Result<StationResult, NdnError> {
        let end = until + self.plan.lifetime;
        let mut swept = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now >= end || now >= until && self.pending.is_empty() && now >= until + self.plan.lifetime / 4
            {
                break;
            }
            if now < until {
                self.ask(now)?;
            }
            self.flush()?;
            // One that is waited for, and all that have come with it.
            let mut wait = now + Duration::from_millis(5);
            while let Some(received) = self.consumer.connection().receive(wait).map_err(NdnError::Gone)? {
                self.take(&received, Instant::now())?;
                wait = Instant::now();
            }
            if now.duration_since(swept) >= self.plan.lifetime / 8 {
                swept = now;
                self.sweep(now);
            }
        }
        self.result.lost += self.pending.len() as u64;
        Ok(self.result)
    }

    /// Asks for as many names as the window has room for.
    fn ask(&mut self, now: Instant) -> Result<(), NdnError> {
        let mut draws = 0;
        while self.pending.len() < self.plan.window && draws < DRAWS_MAX {
            let rank = self.ranks.draw();
            if self.answered.is_some() && rank >= u64::from(self.others.len()) {
                return Ok(());
            }
            // Below the count, which has 32 bits.
            let place = u32::try_from(rank % u64::from(self.others.len())).unwrap_or(0);
            let Entry::Vacant(entry) = self.pending.entry(place) else {
                draws += 1;
                continue;
            };
            entry.insert(now);
            self.others.write(rank, &mut self.name);
            self.nonce = self.nonce.wrapping_add(0x9e37_79b9);
            let interest = InterestRepr {
                name: Name::new(&self.name)?,
                // Nonces need to differ in names that repeat, and no more.
                nonce: Some(self.nonce),
                lifetime_ms: Some(u64::try_from(self.plan.lifetime.as_millis()).unwrap_or(u64::MAX)),
                ..InterestRepr::default()
            };
            let at = self.out.len();
            self.out.resize(at + interest.len(), 0);
            interest.emit(&mut self.out[at..])?;
            self.result.asked += 1;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NdnError> {
        if !self.out.is_empty() {
            self.consumer.connection().send(&self.out).map_err(NdnError::Gone)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Takes a packet: an Interest is answered, Data is judged.
    fn take(&mut self, received: &ReceivedPacket, now: Instant) -> Result<(), NdnError> {
        let Some((header, packet)) = received.packet() else {
            self.result.foreign += 1;
            return Ok(());
        };
        if let Ok(data) = Data::parse(packet, packet.len()) {
            self.judge(&data, now);
        } else if let Ok(interest) = Interest::parse(packet, packet.len()) {
            if header.nack.is_some() {
                self.refused(interest.name);
            } else {
                self.serve(interest.name, &header)?;
            }
        } else {
            self.result.foreign += 1;
        }
        Ok(())
    }

    fn serve(&mut self, name: Name<'_>, header: &LpHeader<'_>) -> Result<(), NdnError> {
        let Some(rank) = self.own.rank(name) else {
            self.result.foreign += 1;
            return Ok(());
        };
        self.own.content(rank, &mut self.content);
        let data = DataRepr { name, freshness_ms: 10_000, content: &self.content, ..DataRepr::default() };
        self.data.resize(data.len(), 0);
        data.emit(&mut self.data)?;
        append_answer(&mut self.out, header.pit_token, &self.data)?;
        self.result.served += 1;
        Ok(())
    }

    /// Whether Data is what it must be, whoever answered, and whether it was asked for.
    fn judge(&mut self, data: &Data<'_>, now: Instant) {
        let Some(rank) = self.others.rank(data.name) else {
            self.result.foreign += 1;
            return;
        };
        self.others.content(rank, &mut self.expected);
        let is_whole = data.signature.is_some_and(|signature| sha256([signature.signed]) == signature.value);
        if data.content != self.expected || !is_whole {
            self.result.wrong += 1;
        }
        let came_before = self.answered.as_mut().is_some_and(|answered| answered.note(rank));
        match self.pending.remove(&rank) {
            Some(_) if came_before => self.result.double += 1,
            Some(asked) => {
                self.result.answered += 1;
                let took = now.saturating_duration_since(asked).as_nanos();
                self.result.latency.record(u64::try_from(took).unwrap_or(u64::MAX));
            }
            None if came_before || self.answered.is_none() => self.result.double += 1,
            None => self.result.late += 1,
        }
    }

    fn refused(&mut self, name: Name<'_>) {
        let pending = self.others.rank(name).and_then(|rank| self.pending.remove(&rank));
        if pending.is_some() {
            self.result.refused += 1;
        } else {
            self.result.foreign += 1;
        }
    }

    /// Gives up what has waited for its lifetime.
    fn sweep(&mut self, now: Instant) {
        let lifetime = self.plan.lifetime;
        let before = self.pending.len();
        self.pending.retain(|_, asked| now.saturating_duration_since(*asked) < lifetime);
        self.result.lost += (before - self.pending.len()) as u64;
    }
}
