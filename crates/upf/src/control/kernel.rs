//! Keeps the kernel's datapath in step with the table, so that every packet is handled by the rules before a change or
//! those after it, by the kernel or a worker, and counted once.
//!
//! | change of a key | order |
//! |---|---|
//! | new, and fits | table, kernel |
//! | fits, and the kernel has it | table, kernel |
//! | fits now, and did not | table, and the kernel when the workers have let go of what they held |
//! | fits no longer | kernel, table |
//! | gone | kernel, table |

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

use litemap::LiteMap;

use super::Upf;
use crate::key::SessionKey;
use crate::node::{LiveSettings, Node, WorkerEvent};
use crate::offload::{KernelKey, KernelRecord, OffloadRefusal, OffloadTarget};
use crate::record::Record;
use kaido_n4::{OuterHeaderCreation, Seid};

/// How long what must come after the packets on their way is put off: longer than a worker sleeps and than the kernel
/// takes for the packets of one interrupt.
const AFTERWARDS: Duration = Duration::from_millis(20);

/// What a datapath in the kernel does with packets of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelShare {
    /// The key.
    pub key: SessionKey,
    /// Whether it has a record of it.
    pub held: bool,
    /// Why packets of some rules, or all, are left to the workers. None, and no record: there is no room, or the address is not one
    /// that UEs have there.
    pub left: Vec<OffloadRefusal>,
}

/// What is put off.
#[derive(Debug)]
enum DelayedWork {
    /// The record of a key that the workers had alone goes to the kernel: buffered packets go first.
    Put(SessionKey),
    /// Nothing may follow an End Marker, and packets in the kernel's queues would.
    EndMarker(OuterHeaderCreation),
}

/// The kernel's datapath, and what is to be done with it.
#[derive(Debug)]
pub(super) struct Kernel {
    path: Box<dyn OffloadTarget>,
    later: VecDeque<(SystemTime, DelayedWork)>,
}

impl Kernel {
    pub(super) fn new(path: Box<dyn OffloadTarget>) -> Self {
        Self { path, later: VecDeque::new() }
    }

    /// Before the table changes: takes away what does not fit any more.
    pub(super) fn withdraw(
        &mut self,
        old: &BTreeSet<SessionKey>,
        records: &LiteMap<SessionKey, Record>,
        node: &Node,
    ) {
        for key in old {
            let fits = records.get(key).is_some_and(|record| KernelRecord::of(key, record, node).is_ok());
            if let Some(known) = KernelKey::of(key, &node.settings)
                && !fits
            {
                self.path.remove(&known);
            }
        }
    }

    /// After the table has changed: puts what fits.
    pub(super) fn admit(
        &mut self,
        old: &BTreeSet<SessionKey>,
        records: &LiteMap<SessionKey, Record>,
        node: &Node,
        now: SystemTime,
    ) {
        for (key, record) in records {
            let known = KernelKey::of(key, &node.settings);
            let (Some(known), Ok(record)) = (known, KernelRecord::of(key, record, node)) else { continue };
            if old.contains(key) && !self.path.holds(&known) {
                self.later.push_back((now + AFTERWARDS, DelayedWork::Put(*key)));
            } else if !self.path.put(&known, &record) {
                // What is there, if anything, is the rule of before.
                self.path.remove(&known);
            }
        }
    }

    /// The table could not be changed as planned: the kernel gets what is in it.
    pub(super) fn restore(&mut self, keys: &BTreeSet<SessionKey>, now: SystemTime) {
        self.later.extend(keys.iter().map(|&key| (now + AFTERWARDS, DelayedWork::Put(key))));
    }

    /// Takes away keys that go.
    pub(super) fn remove(&mut self, keys: &BTreeSet<SessionKey>, node: &Node) {
        for known in keys.iter().filter_map(|key| KernelKey::of(key, &node.settings)) {
            self.path.remove(&known);
        }
    }

    pub(super) fn settle(&mut self) {
        self.path.settle();
    }

    pub(super) fn end_marker(&mut self, creation: OuterHeaderCreation, now: SystemTime) {
        self.later.push_back((now + AFTERWARDS, DelayedWork::EndMarker(creation)));
    }

    pub(super) fn set_live(&mut self, settings: &LiveSettings) {
        self.path.set_live(settings);
    }

    pub(super) fn event(&mut self) -> Option<WorkerEvent> {
        self.path.event()
    }

    pub(super) fn len(&self) -> usize {
        self.path.len()
    }

    fn due(&mut self, now: SystemTime) -> Option<DelayedWork> {
        // A clock that was set back must not keep things for longer than they were put off.
        let due = |(at, _): &(SystemTime, DelayedWork)| *at <= now || *at > now + AFTERWARDS;
        if self.later.front().is_some_and(due) {
            self.later.pop_front().map(|(_, later)| later)
        } else {
            None
        }
    }
}

impl Upf {
    /// Has a datapath in the kernel forward what it can. It must count in the node's own counters and
    /// take from its own policers
    /// ([`Node::beside_kernel`]), and be set before there are sessions.
    pub fn set_kernel(&mut self, path: Box<dyn OffloadTarget>) {
        self.kernel = Some(Kernel::new(path));
    }

    /// How many records the kernel has; `None` without a datapath there.
    pub fn kernel_records(&self) -> Option<usize> {
        self.kernel.as_ref().map(Kernel::len)
    }

    /// What the kernel does of a session, by its keys; `None` without a datapath there, or such a session.
    pub fn kernel_shares(&mut self, seid: Seid) -> Option<Vec<KernelShare>> {
        let keys = self.keys_of(&[self.sessions.find(seid)?]);
        let kernel = self.kernel.as_ref()?;
        let guard = self.reader.pin();
        let share = |key: SessionKey| {
            let record = self.node.table.get(&guard, &key)?;
            let fitted = KernelRecord::of(&key, record, &self.node);
            let mut left = fitted.map_or_else(|unfit| vec![unfit], |record| record.left().collect());
            left.dedup();
            let held =
                KernelKey::of(&key, &self.node.settings).is_some_and(|known| kernel.path.holds(&known));
            Some(KernelShare { key, held, left })
        };
        Some(keys.into_iter().filter_map(share).collect())
    }

    /// Does what was put off and is due, and follows the routes.
    pub(super) fn turn_kernel(&mut self, now: SystemTime) {
        while let Some(later) = self.kernel.as_mut().and_then(|kernel| kernel.due(now)) {
            match later {
                DelayedWork::Put(key) => self.put_from_table(&key),
                DelayedWork::EndMarker(creation) => self.order_end_marker(creation),
            }
        }
        self.follow_routes();
    }

    /// Has the kernel know where packets go, by routes and neighbours as they are now.
    pub fn follow_routes(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            kernel.path.follow_routes();
        }
    }

    /// Gives the kernel what the table has under a key by now, if anything, and if it fits.
    fn put_from_table(&mut self, key: &SessionKey) {
        let Some(kernel) = &mut self.kernel else { return };
        let guard = self.reader.pin();
        let record = self.node.table.get(&guard, key);
        let record = record.and_then(|record| KernelRecord::of(key, record, &self.node).ok());
        let known = KernelKey::of(key, &self.node.settings);
        if let (Some(record), Some(known)) = (record, known)
            && !kernel.path.put(&known, &record)
        {
            kernel.path.remove(&known);
        }
    }
}
