//! Sessions of before a restart: as they were recorded, put into the table again.
//!
//! ```text
//!   CountersInUse::of, all ─▶ which counters are in use ─▶ claim_counters
//!   restore, resume_all    ─▶ UE addresses, policers, records, limits, timers
//!
//!   one thread     each of several, a batch at a time
//!   read ────────▶ decode ─▶ compile, table: one at a time ─▶ pack: one at a time
//! ```
//! A batch stays with one thread, whose caches and heap have its sessions from the first to the last. Records are read twice: to
//! keep them costs more where the host has yet to find the memory.
//! Counters come first, as records are put where no counter is. From then on workers may run: a session is forwarded as soon as it is in
//! the table. So those are put there first that were used last, as far as their counters say. What lives in workers alone is gone:
//! packets that were buffered, applications and Ethernet addresses that were learned, the fill of token buckets.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::SystemTime;

use litemap::LiteMap;

use super::Upf;
use super::change::ReplacedState;
use super::counters::Counter;
use super::keys::own_keys;
use super::named::instance_named;
use super::packed::PackedSessions;
use super::paging::Paging;
use super::pool::Lease;
use super::remote_fteids::RemoteFTeids;
use super::session::{Session, SessionState};
use super::slots::Slots;
use super::tunnel_ends::remote_fteids;
use crate::echo::EchoSettings;
use crate::ids::{AppNumber, SessionIndex};
use crate::node::{Node, WorkerEvent};
use crate::usage::{RecordedUsage, UsageSlot, UsedAt};
use kaido_n4::{Cause, ChooseOr, Rejection, Seid, UrrId, Volume};
use kaido_store::{EachRecord, RecordBatch, Recorder, send_batches};

/// A record that is none of this program's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no record of this program's format")]
pub struct NoSession;

/// What became of the sessions of before a restart.
#[derive(Debug, Default)]
pub struct RestoredSessions {
    /// How many are in the table again.
    pub restored: usize,
    /// Those that are not, and why: what they ask for is not to be had any more.
    pub refused: Vec<(Seid, Rejection)>,
}

/// Sessions that are decoded, put into the table and packed together: about half of a core's second-level cache.
const BATCH: usize = 128;
/// Batches that wait for a thread at most.
const BATCHES_AHEAD: usize = 8;
/// Sessions whose memory is asked for together, before the first of them is put into the table: buckets, counters and records of
/// so many stay in the first-level cache.
const ASKED_TOGETHER: usize = 32;
/// Threads at most, beside the one that reads: one puts sessions into the table while the others decode and pack, and does not keep up
/// with more.
const THREADS_MAX: usize = 4;

/// The sessions of a batch of records.
fn decode(batch: &RecordBatch, now: SystemTime) -> Result<Vec<Session>, BadRecord> {
    // Sessions are large: they are not to be moved while it grows.
    let mut sessions = Vec::with_capacity(batch.len());
    batch.each(|number, record| {
        let mut session = RecordedSession::read(number, record).map_err(|_| BadRecord(number))?.0;
        session.state.begin_anew(now);
        sessions.push(session);
        Ok(())
    })?;
    Ok(sessions)
}

/// The number of a record that is none of a session.
#[derive(Clone, Copy, Debug)]
struct BadRecord(u64);

/// How many threads bring sessions back, beside the one that reads.
fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX)
}

/// What threads share that bring sessions back: batches, and where their sessions go.
struct Resuming<'r, 'u> {
    /// None after one had a record of no session: that ends all threads.
    batches: Mutex<Option<Receiver<RecordBatch>>>,
    table: Mutex<&'r mut Restoration<'u>>,
    known: Mutex<KnownSessions>,
    node: Arc<Node>,
    now: SystemTime,
}

/// What is known of sessions beside the table.
struct KnownSessions {
    packed: PackedSessions,
    remote_fteids: RemoteFTeids,
}

impl Resuming<'_, '_> {
    /// Brings batches back until there are no more.
    fn run(&self) -> Result<(), BadRecord> {
        let next = || lock(&self.batches).as_ref()?.recv().ok();
        while let Some(batch) = next() {
            if let Err(bad) = self.resume(&batch) {
                *lock(&self.batches) = None;
                return Err(bad);
            }
        }
        Ok(())
    }

    fn resume(&self, batch: &RecordBatch) -> Result<(), BadRecord> {
        let mut sessions = decode(batch, self.now)?;
        let given_up = lock(&self.table).resume_together(&mut sessions, self.now);
        let ends: Vec<_> =
            sessions.iter().map(|session| remote_fteids(&session.state.rules, &self.node.settings)).collect();
        let mut known = lock(&self.known);
        given_up.into_iter().for_each(|index| known.packed.forget(index));
        for (session, ends) in sessions.iter().zip(&ends) {
            if !known.packed.take_in(session.index) {
                return Err(BadRecord(session.index.0.into()));
            }
            known.packed.pack(session);
            known.remote_fteids.change(session.index, &[], ends);
        }
        Ok(())
    }
}

/// A thread that panicked is joined, and has its panic go on.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread came to.
fn joined<T>(thread: thread::Result<T>) -> T {
    thread.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
}

/// A session as it was recorded.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordedSession(Session);

impl RecordedSession {
    /// Reads a record, which has that number.
    ///
    /// # Errors
    /// [`NoSession`].
    pub fn read(number: u64, recorded: &[u8]) -> Result<Self, NoSession> {
        PackedSessions::read(session_index(number)?, recorded).map(Self).ok_or(NoSession)
    }
}

/// The session that is recorded under a number.
fn session_index(number: u64) -> Result<SessionIndex, NoSession> {
    u32::try_from(number).map(SessionIndex).map_err(|_| NoSession)
}

/// The counters that sessions of before a restart use.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CountersInUse {
    /// Sessions that were looked at.
    sessions: usize,
    /// Each counter of each session.
    slots: Vec<(UsageSlot, SessionIndex)>,
    /// Whether any session may use up a quota.
    may_stop: bool,
}

impl CountersInUse {
    /// Looks at all sessions, of which `read` hands out the records.
    ///
    /// # Errors
    /// Those of `read`, and that of a record that is none of a session.
    pub fn of<E>(
        read: impl FnOnce(&mut EachRecord<'_, E>) -> Result<(), E>,
        fault: impl Fn(u64, NoSession) -> E,
    ) -> Result<Self, E> {
        let mut found = Self::default();
        read(&mut |number, record| found.look(number, record).map_err(|error| fault(number, error)))?;
        Ok(found)
    }

    /// As [`CountersInUse::of`], by two threads.
    ///
    /// # Errors
    /// As [`CountersInUse::of`].
    pub fn of_two<E>(
        read: impl FnOnce([&mut (dyn FnMut(u64, &[u8]) -> Result<(), E> + Send); 2]) -> Result<(), E>,
        fault: impl Fn(u64, NoSession) -> E + Sync,
    ) -> Result<Self, E> {
        let [mut found, mut other] = [(); 2].map(|()| Self::default());
        let fault = &fault;
        read([
            &mut |number, record| found.look(number, record).map_err(|error| fault(number, error)),
            &mut |number, record| other.look(number, record).map_err(|error| fault(number, error)),
        ])?;
        found.sessions += other.sessions;
        found.slots.append(&mut other.slots);
        found.may_stop |= other.may_stop;
        Ok(found)
    }

    fn look(&mut self, number: u64, record: &[u8]) -> Result<(), NoSession> {
        let index = session_index(number)?;
        let counters = PackedSessions::read_counters(index, record).ok_or(NoSession)?;
        self.sessions += 1;
        self.slots.extend(counters.slots.into_iter().map(|slot| (slot, index)));
        self.may_stop |= counters.may_stop;
        Ok(())
    }
}

/// The counters of sessions of before a restart are taken: the sessions may come.
#[derive(Debug)]
pub struct ClaimedCounters {
    /// The numbers of some sessions that are to come back before the others: those that were used last, the last first, as far as
    /// counters say.
    pub recent: Vec<u64>,
}

/// Sessions of before a restart on their way into the table.
#[derive(Debug)]
pub struct Restoration<'u> {
    upf: &'u mut Upf,
    done: RestoredSessions,
}

/// Of so many sessions one at most comes back before others: its record is looked for by its number, which takes some times as long as to
/// have it read behind its neighbour's.
const RECENT_SHARE: usize = 8;
/// What was used within so many seconds comes back in the order of numbers, in which records lie.
const RECENT_STEP: u32 = 8;

/// The numbers of up to `len` sessions that were used last, by when each of their counters was.
fn recently_used(mut used: Vec<(UsedAt, SessionIndex)>, len: usize) -> Vec<u64> {
    used.retain(|(at, _)| *at != UsedAt::NEVER);
    // The last use of each session is the first of its own.
    used.sort_unstable_by_key(|&(at, index)| (index, Reverse(at)));
    used.dedup_by_key(|&mut (_, index)| index);
    let order = |&(at, index): &(UsedAt, SessionIndex)| (Reverse(at.step(RECENT_STEP)), index);
    if len < used.len() {
        used.select_nth_unstable_by_key(len, order);
        used.truncate(len);
    }
    used.sort_unstable_by_key(order);
    used.into_iter().map(|(_, index)| index.0.into()).collect()
}

impl Restoration<'_> {
    /// Puts all sessions into the table, of which `read` hands out the records. Other threads read, and do the same.
    ///
    /// # Errors
    /// Those of `read`, and that of a record that is none of a session.
    pub fn resume_all<E: Send>(
        &mut self,
        read: impl FnOnce(&mut EachRecord<'_, E>) -> Result<(), E> + Send,
        fault: impl Fn(u64, NoSession) -> E + Sync,
        now: SystemTime,
    ) -> Result<(), E> {
        let (sender, batches) = sync_channel(BATCHES_AHEAD);
        let known = KnownSessions {
            packed: std::mem::take(&mut self.upf.sessions),
            remote_fteids: std::mem::replace(
                &mut self.upf.remote_fteids,
                RemoteFTeids::new(EchoSettings::default()),
            ),
        };
        let resuming = Resuming {
            batches: Mutex::new(Some(batches)),
            node: self.upf.node.clone(),
            table: Mutex::new(self),
            known: Mutex::new(known),
            now,
        };
        let (done, read) = thread::scope(|scope| {
            let nobody_takes = |number| fault(number, NoSession);
            let reader = scope.spawn(move || send_batches(BATCH, read, &sender, nobody_takes));
            let others: Vec<_> = (1..threads()).map(|_| scope.spawn(|| resuming.run())).collect();
            let own = resuming.run();
            let done = others.into_iter().fold(own, |done, other| done.and(joined(other.join())));
            (done, joined(reader.join()))
        });
        let known = resuming.known.into_inner().unwrap_or_else(PoisonError::into_inner);
        (self.upf.sessions, self.upf.remote_fteids) = (known.packed, known.remote_fteids);
        done.map_err(|BadRecord(number)| fault(number, NoSession)).and(read)
    }

    /// Puts the session of one record into the table, all in this thread.
    ///
    /// # Errors
    /// [`NoSession`], also where its number is another's.
    pub fn resume_one(&mut self, number: u64, recorded: &[u8], now: SystemTime) -> Result<(), NoSession> {
        let RecordedSession(mut session) = RecordedSession::read(number, recorded)?;
        session.state.begin_anew(now);
        self.upf.sessions.take_in(session.index).then_some(()).ok_or(NoSession)?;
        match self.resume(&mut session, now) {
            true => {
                self.upf.sessions.pack(&session);
                let ends = remote_fteids(&session.state.rules, &self.upf.node.settings);
                self.upf.remote_fteids.change(session.index, &[], &ends);
            }
            false => self.upf.sessions.forget(session.index),
        }
        Ok(())
    }

    /// Puts sessions into the table, and takes those out that cannot be there any more.
    fn resume_together(&mut self, sessions: &mut Vec<Session>, now: SystemTime) -> Vec<SessionIndex> {
        let mut given_up = Vec::new();
        for together in sessions.chunks_mut(ASKED_TOGETHER) {
            self.upf.ask_for(together);
            for session in together {
                if !self.resume(session, now) {
                    given_up.push(session.index);
                }
            }
        }
        if !given_up.is_empty() {
            sessions.retain(|session| !given_up.contains(&session.index));
        }
        given_up
    }

    /// Puts a session into the table. What it asks for may not be to be had any more: then it ends.
    fn resume(&mut self, session: &mut Session, now: SystemTime) -> bool {
        session.state.leases = self.upf.claim_leases(&session.state);
        match self.upf.resume_session(session, now) {
            Ok(()) => {
                self.done.restored += 1;
                true
            }
            Err(why) => {
                self.upf.give_up(session);
                self.done.refused.push((session.seid, why));
                false
            }
        }
    }

    /// All sessions are there.
    pub fn finish(self) -> RestoredSessions {
        self.upf.sessions.find_free();
        self.upf.node.set_restoring(false);
        self.done
    }
}

impl Upf {
    /// Has changes of sessions taken down, so that they can be [restored](Upf::restore) after a restart.
    pub fn record_by(&mut self, recorder: Recorder) {
        self.slots.record_by(recorder.clone());
        self.sessions.record_by(recorder);
    }

    /// Takes in what an application is known by as it was recorded under a number.
    ///
    /// # Errors
    /// [`NoSession`].
    pub fn take_in_pfd(&mut self, number: u64, recorded: &[u8]) -> Result<(), NoSession> {
        let number = AppNumber(u16::try_from(number).map_err(|_| NoSession)?);
        let (id, pfd) = postcard::from_bytes(recorded).map_err(|_| NoSession)?;
        self.node.applications.take_in(number, id, pfd).then_some(()).ok_or(NoSession)
    }

    /// Takes the counters of all sessions of before a restart, before any record is put where one may be. `counted` says what is known of
    /// a counter whose memory has not outlived the process. From here on, until [`Restoration::finish`], nobody is told that a session
    /// is not there.
    ///
    /// # Errors
    /// When there are not so many counters.
    pub fn claim_counters(
        &mut self,
        CountersInUse { sessions, slots: mut owned, may_stop }: CountersInUse,
        mut counted: impl FnMut(UsageSlot) -> RecordedUsage,
    ) -> io::Result<ClaimedCounters> {
        self.remote_fteids.reserve(sessions);
        owned.sort_unstable();
        let mut slots: Vec<UsageSlot> = owned.iter().map(|&(slot, _)| slot).collect();
        slots.dedup();
        let usage = &self.node.usage;
        if may_stop {
            usage.keep_quotas().map_err(io::Error::other)?;
        }
        self.slots.claim(&slots, usage)?;
        slots.iter().for_each(|&slot| usage.restore(slot, &counted(slot)));
        let used = owned.into_iter().map(|(slot, index)| (usage.used_at(slot), index));
        self.node.set_restoring(true);
        Ok(ClaimedCounters { recent: recently_used(used.collect(), sessions / RECENT_SHARE) })
    }

    /// Restores sessions of before a restart, before any is made. A node whose counters lie in a file is to go through this also
    /// if there was no session.
    pub fn restore(&mut self, _counters: ClaimedCounters) -> Restoration<'_> {
        Restoration { upf: self, done: RestoredSessions::default() }
    }

    /// Records what the counters of `count` sessions from place `first` on have counted, and when last, and says from which place to
    /// go on. Those of sessions without a packet since are as they were recorded.
    pub fn record_usage(&mut self, first: usize, count: usize, now: SystemTime) -> Option<usize> {
        let end = first.saturating_add(count).min(self.sessions.places());
        let usage = &self.node.usage;
        let now = UsedAt::of(now);
        (first..end).for_each(|at| self.sessions.record_usage(at, usage, now));
        (end < self.sessions.places()).then_some(end)
    }

    /// Adds what was counted elsewhere after the counters were [claimed](Upf::claim_counters). Others may count meanwhile,
    /// where workers share sessions.
    pub fn add_usage(&mut self, counted: &[(UsageSlot, Volume)]) {
        let reached = counted.iter().filter(|(slot, more)| self.node.usage.add(*slot, more));
        let reached: BTreeSet<UsageSlot> = reached.map(|(slot, _)| *slot).collect();
        if reached.is_empty() {
            return;
        }
        for (session, slot) in self.sessions.of_counters(&reached) {
            if !self.node.send_event(WorkerEvent::Threshold { session, slot }) {
                // There is no more room: the next packet tells.
                return;
            }
        }
    }

    /// Asks for the memory that is read and written when these sessions are put into the table.
    fn ask_for(&mut self, sessions: &[Session]) {
        let Self { node, reader, .. } = self;
        let guard = reader.pin();
        let stages = node.table.stages(&guard);
        let mut keys = Vec::with_capacity(4 * sessions.len());
        for session in sessions {
            let of_frames = session.state.rules.ethernet.then_some(session.index);
            for pdr in session.state.rules.pdrs.values() {
                // What is wrong with a rule is said when it is compiled.
                let _ = own_keys(&node.settings, pdr, of_frames, &mut keys);
            }
        }
        keys.iter().for_each(|key| stages.ask(&stages.hash(key)));
        sessions.iter().flat_map(Session::counters).for_each(|slot| node.usage.prefetch(slot));
    }

    /// The UE addresses that a session was given, wherever their pools are now.
    fn claim_leases(&mut self, state: &SessionState) -> Vec<Lease> {
        if state.leases.is_empty() {
            return Vec::new();
        }
        let [v4, v6] = [
            |lease: &Lease| matches!(lease, Lease::Ipv4(..)),
            |lease: &Lease| matches!(lease, Lease::Ipv6(..)),
        ]
        .map(|of_family| state.leases.iter().any(of_family));
        let mut addresses = BTreeSet::new();
        for pdr in state.rules.ever_detecting() {
            let Ok(instance) = instance_named(&self.node.settings, pdr.pdi.network_instance.as_ref()) else {
                continue;
            };
            for ue in &pdr.pdi.ue_ip {
                let ipv4 = ue.ipv4.filter(|_| v4).and_then(ChooseOr::given);
                let ipv6 = ue.ipv6.filter(|_| v6).and_then(ChooseOr::given);
                addresses.insert((instance, ipv4, ipv6.map(|prefix| (prefix.addr, prefix.len))));
            }
        }
        let mut leases = Vec::new();
        for (instance, ipv4, ipv6) in addresses {
            leases.extend(ipv4.and_then(|addr| self.ue_pools.claim_ipv4(instance, addr)));
            let prefix = ipv6.map(|(addr, len)| kaido_n4::Ipv6Prefix::of(addr, len));
            leases.extend(prefix.and_then(|prefix| self.ue_pools.claim_ipv6(instance, prefix)));
        }
        leases
    }

    /// Puts a session into the table, with the counters that it had.
    fn resume_session(&mut self, session: &mut Session, now: SystemTime) -> Result<(), Rejection> {
        // Before a worker can count.
        self.arm_counters(session, now);
        let Session { index, state, .. } = session;
        let index = *index;
        let monitors = self.monitors_of(index, &state.rules)?;
        let drops = self.drop_counts(index, &state.rules);
        let slots = Slots { urrs: counters_of(state)?, activity: state.activity, monitors, drops };
        let nothing = ReplacedState::nothing();
        let policers =
            self.compile_and_commit(&state.cp_fseid, &mut state.rules, index, &nothing, &slots, now)?;
        self.finish_policers(policers, &state.rules);
        self.keep_drop_counts(index, slots.drops);
        state.watches = self.begin_watches(index, &state.rules, slots.monitors, now);
        self.set_times(session);
        Ok(())
    }

    /// Has the counters of a session, which nobody counts in, go on from what was reported of them, up to their limits.
    fn arm_counters(&self, session: &mut Session, now: SystemTime) {
        let usage = &self.node.usage;
        let SessionState { meters, rules, .. } = &mut session.state;
        for (id, meter) in meters {
            if let Some(urr) = rules.urrs.get(id) {
                meter.raise_counter(usage);
                meter.arm(urr, usage, now);
            }
        }
        session.arm_shared(usage, now);
    }

    /// Ends a session that cannot be put into the table.
    fn give_up(&mut self, session: &Session) {
        let slots: BTreeSet<UsageSlot> = session.state.slots().collect();
        self.release_counters(slots);
        self.give_back(&session.state.leases);
    }
}

impl SessionState {
    /// Forgets what has not outlived the process.
    fn begin_anew(&mut self, now: SystemTime) {
        self.rules.at(now);
        // Policers are others.
        self.rules.policers.clear();
        self.rules.guarantees.clear();
        // What was buffered is gone, so that the control plane is to be told of the next packet.
        self.paging = Paging::default();
    }
}

/// Where the URRs of a session count.
fn counters_of(state: &SessionState) -> Result<LiteMap<UrrId, Counter>, Rejection> {
    let is_before = |id: &UrrId| state.rules.urrs.get(id).is_some_and(|urr| urr.information.before_qos);
    let all_before = |slot: UsageSlot| {
        let mut of_slot = state.meters.iter().filter(|(_, meter)| meter.slot == slot);
        of_slot.all(|(id, _)| is_before(id))
    };
    let counter = |id: &UrrId| {
        let meter = state.meters.get(id).ok_or_else(|| {
            Rejection::new(Cause::SystemFailure, format!("URR {id} was recorded without its counter"))
        })?;
        let before_qos = all_before(meter.slot);
        let (slot, dropped, is_shared) = (meter.slot, meter.dropped, meter.is_shared);
        Ok((*id, Counter { slot, before_qos, dropped, is_shared, from: Volume::default() }))
    };
    state.rules.urrs.keys().map(counter).collect()
}
