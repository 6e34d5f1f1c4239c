//! The network between a control plane and the node: it delays, loses, repeats and reorders datagrams.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Message, REPORT};
use crate::random::Random;

/// Of a million datagrams.
const LOST: u64 = 50_000;
const REPEATED: u64 = 40_000;
const SLOW: u64 = 80_000;
/// Delays in microseconds: mostly, where a datagram is slow, and of one that comes again.
const DELAY: (u64, u64) = (100, 30_000);
const DELAY_SLOW: (u64, u64) = (30_000, 900_000);
const DELAY_AGAIN: (u64, u64) = (1_000, 2_000_000);

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Towards {
    /// To the node.
    Node,
    /// To the control plane.
    Smf,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// It comes once.
    Once,
    /// It comes twice.
    Twice,
    /// It never comes.
    Lost,
}

/// Datagrams by the time at which they come, and then in the order that they were sent.
type Queue = BTreeMap<(Duration, u64), Arc<[u8]>>;

/// The way between a control plane and the node.
#[derive(Debug)]
pub(crate) struct Link {
    random: Random,
    /// To the node, and to the control plane.
    on_the_way: [Queue; 2],
    sent: u64,
    /// Nothing gets through, but what is on its way to the node.
    pub is_cut: bool,
    /// Nothing is lost or repeated.
    pub is_calm: bool,
    /// Reports, by their numbers, of which a datagram was lost: a second is not. A report whose answers are all lost is told twice,
    /// which no user plane can prevent.
    spoiled: HashMap<u32, Duration>,
}

impl Link {
    /// A way with nothing on it.
    pub(crate) fn new(random: Random) -> Self {
        Self {
            random,
            on_the_way: Default::default(),
            sent: 0,
            is_cut: false,
            is_calm: false,
            spoiled: HashMap::new(),
        }
    }

    /// Sends a datagram.
    pub(crate) fn send(&mut self, now: Duration, towards: Towards, bytes: &Arc<[u8]>) -> Delivery {
        let delay = match self.random.happens(SLOW) && !self.is_calm {
            true => self.random.span(DELAY_SLOW.0, DELAY_SLOW.1),
            false => self.random.span(DELAY.0, DELAY.1),
        };
        let (is_lost, is_repeated) = (self.random.happens(LOST), self.random.happens(REPEATED));
        let again = self.random.span(DELAY_AGAIN.0, DELAY_AGAIN.1);
        if self.is_cut || is_lost && !self.is_calm && self.may_lose(now, bytes) {
            self.spoil(now, bytes);
            return Delivery::Lost;
        }
        self.put(now + delay, towards, bytes);
        if !is_repeated || self.is_calm {
            return Delivery::Once;
        }
        self.put(now + again, towards, bytes);
        Delivery::Twice
    }

    fn put(&mut self, at: Duration, towards: Towards, bytes: &Arc<[u8]>) {
        self.sent += 1;
        self.on_the_way[towards as usize].insert((at, self.sent), Arc::clone(bytes));
    }

    fn may_lose(&mut self, now: Duration, bytes: &[u8]) -> bool {
        let until = now.saturating_sub(Duration::from_secs(60));
        self.spoiled.retain(|_, at| *at >= until);
        report_number(bytes).is_none_or(|number| !self.spoiled.contains_key(&number))
    }

    fn spoil(&mut self, now: Duration, bytes: &[u8]) {
        if let Some(number) = report_number(bytes) {
            self.spoiled.insert(number, now);
        }
    }

    /// The next datagram that comes by `now`, and when.
    pub(crate) fn next(&mut self, now: Duration, towards: Towards) -> Option<(Duration, Arc<[u8]>)> {
        loop {
            let entry =
                self.on_the_way[towards as usize].first_entry().filter(|entry| entry.key().0 <= now)?;
            let ((at, _), bytes) = entry.remove_entry();
            if !self.is_cut || towards == Towards::Node {
                return Some((at, bytes));
            }
            self.spoil(at, &bytes);
        }
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.on_the_way.iter().all(BTreeMap::is_empty)
    }

    /// What is on its way to the control plane is lost.
    pub(crate) fn clear_answers(&mut self) {
        self.on_the_way[Towards::Smf as usize].clear();
    }

    /// What is on its way is lost.
    pub(crate) fn clear(&mut self) {
        self.on_the_way.iter_mut().for_each(BTreeMap::clear);
    }
}

/// The number of a Session Report Request, or of the response to one.
fn report_number(bytes: &[u8]) -> Option<u32> {
    Message::read(bytes).filter(|message| message.kind | 1 == REPORT | 1).map(|message| message.sequence)
}
