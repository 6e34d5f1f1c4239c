//! The faces of a node: made and removed by the control thread and the host port, read by every worker.
//!
//! A worker reads its own copy of the table, an array of references, and takes a new one when the table has changed, which
//! it sees by one number. Nobody waits for anybody.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_ndn_tables::FaceId;

use super::account::OnDemandFaces;
use super::{Face, FaceBounds, FaceSettings, FaceState};

/// The first number of a face that is made; those below are of the node itself.
const FIRST: u32 = 256;

/// What was done to a face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaceEventKind {
    /// It was made.
    Created,
    /// It is no more.
    Destroyed,
    /// It can send again.
    Up,
    /// It cannot send for now.
    Down,
}

/// Something was done to a face.
#[derive(Clone, Debug)]
pub struct FaceEvent {
    /// What.
    pub kind: FaceEventKind,
    /// The face, as it was if it is no more.
    pub face: Arc<Face>,
}

/// Events that wait to be taken, at most; then the oldest goes.
const EVENTS_MAX: usize = 1024;

/// Why a face is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaceError {
    /// As many as there may be.
    #[error("the node has as many faces as it may")]
    Full,
    /// As many as may be made by other hosts that come.
    #[error("as many faces as may be were made by hosts that came")]
    OnDemand,
    /// As many as may be made by this host.
    #[error("the host has as many faces as it may")]
    Host,
    /// As many as may be made by applications of this host.
    #[error("as many applications as may be are connected")]
    Applications,
}

type Slots = Box<[Option<Arc<Face>>]>;

#[derive(Debug)]
struct State {
    slots: Slots,
    next: u32,
    count: usize,
    comers: OnDemandFaces,
    events: VecDeque<FaceEvent>,
    events_lost: u64,
}

/// The table of faces. Clones share one table.
#[derive(Clone, Debug)]
pub struct Faces(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Counts the changes of `state.slots`.
    changes: AtomicU64,
    /// Workers that count at the faces, each in counters of its own.
    workers: usize,
    readers: AtomicUsize,
}

impl Faces {
    /// A table for up to `capacity` faces, rounded up to a power of two.
    pub fn new(capacity: usize) -> Self {
        Self::bounded(capacity, FaceBounds::NONE, 1)
    }

    /// As [`Faces::new`], with bounds of those that are made by who comes, and for so many workers.
    pub fn bounded(capacity: usize, bounds: FaceBounds, workers: usize) -> Self {
        let capacity = capacity.clamp(1, 1 << 20).next_power_of_two();
        let state = State {
            slots: std::iter::repeat_with(|| None).take(capacity).collect(),
            next: FIRST,
            count: 0,
            comers: OnDemandFaces::new(bounds),
            events: VecDeque::new(),
            events_lost: 0,
        };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            changes: AtomicU64::new(1),
            workers,
            readers: AtomicUsize::new(0),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Faces there may be.
    pub fn capacity(&self) -> usize {
        self.lock().slots.len()
    }

    /// Makes a face. Its number has not been another's for as long as there are numbers.
    ///
    /// # Errors
    /// [`FaceError`], by the bound that was met.
    pub fn create(&self, settings: FaceSettings) -> Result<Arc<Face>, FaceError> {
        self.create_in(&mut self.lock(), settings)
    }

    /// Makes a face, unless there is one of the same transport, which it gives then: for those that several workers may be about
    /// to make at once.
    ///
    /// # Errors
    /// [`FaceError`], by the bound that was met.
    pub fn find_or_create(&self, settings: FaceSettings) -> Result<Arc<Face>, FaceError> {
        let mut state = self.lock();
        // First, as it costs least: a host beyond its bound keeps asking.
        state.comers.admit(&settings)?;
        let known = state.slots.iter().flatten().find(|face| *face.transport() == settings.transport);
        match known.cloned() {
            Some(face) => Ok(face),
            None => self.create_in(&mut state, settings),
        }
    }

    fn create_in(&self, state: &mut State, settings: FaceSettings) -> Result<Arc<Face>, FaceError> {
        if state.count == state.slots.len() {
            return Err(FaceError::Full);
        }
        state.comers.admit(&settings)?;
        loop {
            let id = state.next;
            state.next = id.checked_add(1).unwrap_or(FIRST);
            let at = slot(id, state.slots.len());
            if state.slots[at].is_some() {
                continue;
            }
            // Peers may remember the numbers that a former face of the same address has used.
            let sequence = u64::from(id) << 40;
            let account = state.comers.account(FaceId(id), &settings);
            let face = Arc::new(Face::new(FaceId(id), settings, account, sequence, self.0.workers));
            state.comers.came(face.settings());
            state.slots[at] = Some(face.clone());
            state.count += 1;
            self.changed(state, FaceEventKind::Created, &face);
            return Ok(face);
        }
    }

    /// Removes a face; the face, if there was one of this number.
    pub fn destroy(&self, id: FaceId) -> Option<Arc<Face>> {
        let mut state = self.lock();
        let at = slot(id.0, state.slots.len());
        let face = state.slots[at].take_if(|face| face.id() == id)?;
        state.count -= 1;
        state.comers.went(face.settings());
        self.changed(&mut state, FaceEventKind::Destroyed, &face);
        Some(face)
    }

    /// Says that a face can send, or cannot for now.
    pub fn set_state(&self, face: &Arc<Face>, to: FaceState) {
        if face.set_state(to) {
            let kind = if to == FaceState::Up { FaceEventKind::Up } else { FaceEventKind::Down };
            note(&mut self.lock(), kind, face);
        }
    }

    fn changed(&self, state: &mut State, kind: FaceEventKind, face: &Arc<Face>) {
        note(state, kind, face);
        // Release: who sees the number and then takes the lock sees the change; the lock alone would do for that.
        self.0.changes.fetch_add(1, Ordering::Release);
    }

    /// The face of a number.
    pub fn get(&self, id: FaceId) -> Option<Arc<Face>> {
        let state = self.lock();
        state.slots[slot(id.0, state.slots.len())].as_ref().filter(|face| face.id() == id).cloned()
    }

    /// All faces, by number.
    pub fn all(&self) -> Vec<Arc<Face>> {
        let mut faces: Vec<Arc<Face>> = self.lock().slots.iter().flatten().cloned().collect();
        faces.sort_by_key(|face| face.id());
        faces
    }

    /// Faces there are.
    pub fn len(&self) -> usize {
        self.lock().count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The faces of `most` slots of the table from one on, each with its slot; and the slot behind these, if there are more. Workers
    /// that take a new copy of the table wait for no more than that.
    pub fn page(&self, from: usize, most: usize) -> (Vec<(usize, Arc<Face>)>, Option<usize>) {
        let state = self.lock();
        let len = state.slots.len();
        let (from, end) = (from.min(len), from.saturating_add(most).min(len));
        let numbered = (from..).zip(&state.slots[from..end]);
        let faces = numbered.filter_map(|(at, face)| Some((at, face.clone()?))).collect();
        (faces, (end < len).then_some(end))
    }

    /// What was done to faces since it was asked last, and how many events were lost for want of room since the beginning.
    pub fn take_events(&self) -> (Vec<FaceEvent>, u64) {
        let mut state = self.lock();
        (state.events.drain(..).collect(), state.events_lost)
    }

    /// A worker's view.
    pub fn reader(&self) -> FaceReader {
        // Relaxed: a number of its own is all that a reader needs.
        let worker = self.0.readers.fetch_add(1, Ordering::Relaxed);
        let mut reader = FaceReader { faces: self.clone(), worker, seen: 0, slots: Box::default() };
        reader.refresh();
        reader
    }
}

#[inline]
fn slot(id: u32, slots: usize) -> usize {
    id as usize & (slots - 1)
}

fn note(state: &mut State, kind: FaceEventKind, face: &Arc<Face>) {
    if state.events.len() == EVENTS_MAX {
        state.events.pop_front();
        state.events_lost += 1;
    }
    state.events.push_back(FaceEvent { kind, face: face.clone() });
}

/// The table as a worker reads it.
#[derive(Debug)]
pub struct FaceReader {
    faces: Faces,
    worker: usize,
    seen: u64,
    slots: Slots,
}

impl FaceReader {
    /// Takes what has changed since: to be called once a batch.
    #[inline]
    pub fn refresh(&mut self) {
        // Acquire pairs with the Release of `changed`.
        let changes = self.faces.0.changes.load(Ordering::Acquire);
        if changes != self.seen {
            self.copy();
        }
    }

    #[cold]
    fn copy(&mut self) {
        let state = self.faces.lock();
        // Under the lock nothing changes.
        self.seen = self.faces.0.changes.load(Ordering::Acquire);
        if self.slots.len() == state.slots.len() {
            self.slots.clone_from_slice(&state.slots);
        } else {
            self.slots = state.slots.clone();
        }
    }

    /// The number under which this worker counts at faces.
    #[inline]
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    /// The number of the change that was seen last.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.seen
    }

    /// The face of a number.
    #[inline]
    pub fn get(&self, id: FaceId) -> Option<&Arc<Face>> {
        self.slots[slot(id.0, self.slots.len())].as_ref().filter(|face| face.id() == id)
    }

    /// All faces.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Face>> {
        self.slots.iter().flatten()
    }

    /// The table itself.
    pub fn table(&self) -> &Faces {
        &self.faces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::{FaceUri, LinkType, PacketKind, Persistency, Scope, Transport};

    fn settings() -> FaceSettings {
        FaceSettings {
            remote: FaceUri::Internal,
            local: FaceUri::Internal,
            scope: Scope::Local,
            persistency: Persistency::Permanent,
            link_type: LinkType::PointToPoint,
            mtu: 8800,
            flags: 0,
            transport: Transport::Internal,
        }
    }

    #[test]
    fn numbers_are_not_given_again() {
        let faces = Faces::new(4);
        let ids: Vec<FaceId> = (0..4).map(|_| faces.create(settings()).unwrap().id()).collect();
        assert_eq!(ids[0], FaceId(256));
        assert_eq!(faces.create(settings()).unwrap_err(), FaceError::Full);
        assert!(faces.destroy(ids[2]).is_some() && faces.destroy(ids[2]).is_none());
        let again = faces.create(settings()).unwrap().id();
        assert!(again > ids[3]);
        assert!(faces.get(ids[2]).is_none() && faces.get(again).is_some());
        assert_eq!(faces.all().len(), 4);
    }

    #[test]
    fn a_host_has_so_many_and_applications_have_places_of_their_own() {
        let bounds = FaceBounds { on_demand: 5, per_host: 3, applications: 2 };
        let faces = Faces::bounded(64, bounds, 1);
        let from = |scope, remote: &str| FaceSettings {
            remote: remote.parse().unwrap(),
            scope,
            persistency: Persistency::OnDemand,
            ..settings()
        };
        let remote = |remote| faces.create(from(Scope::NonLocal, remote));
        let first = remote("udp4://192.0.2.1:1").unwrap();
        let second = remote("udp4://192.0.2.1:2").unwrap();
        remote("tcp4://192.0.2.1:3").unwrap();
        assert_eq!(remote("udp4://192.0.2.1:4").unwrap_err(), FaceError::Host);
        assert_eq!(first.account(), second.account());
        // A /64 is one host.
        let third = remote("udp6://[2001:db8::1]:1").unwrap();
        assert_eq!(third.account(), remote("udp6://[2001:db8::ffff]:1").unwrap().account());
        assert_eq!(remote("udp4://192.0.2.9:1").unwrap_err(), FaceError::OnDemand);
        let app = || faces.create(from(Scope::Local, "tcp4://127.0.0.1:9"));
        let (one, two) = (app().unwrap(), app().unwrap());
        assert!(one.account().is_local() && one.account() != two.account());
        assert_eq!(app().unwrap_err(), FaceError::Applications);
        let configured = FaceSettings {
            persistency: Persistency::Permanent,
            ..from(Scope::NonLocal, "udp4://192.0.2.1:6363")
        };
        assert_eq!(faces.create(configured).unwrap().account(), first.account());
        // What goes makes room, also when it was kept for good meanwhile.
        second.set_persistency(Persistency::Permanent);
        faces.destroy(second.id());
        assert_eq!(remote("udp4://192.0.2.1:4").unwrap().account(), first.account());
        faces.destroy(one.id());
        assert!(app().is_ok());
    }

    #[test]
    fn each_worker_counts_for_itself() {
        let faces = Faces::bounded(4, FaceBounds::NONE, 2);
        let face = faces.create(settings()).unwrap();
        // One more than were told of.
        let workers = [(); 3].map(|()| faces.reader().worker());
        for worker in workers {
            face.counters(worker).received.octets(10);
            face.counters(worker).sent.packet(PacketKind::Data);
        }
        assert!(std::ptr::eq(face.counters(workers[0]), face.counters(workers[2])));
        assert!(!std::ptr::eq(face.counters(workers[0]), face.counters(workers[1])));
        let totals = face.totals();
        assert_eq!((totals.received.octets, totals.received.data, totals.sent.data), (30, 0, 3));
    }

    #[test]
    fn faces_are_listed_slot_by_slot() {
        let faces = Faces::new(8);
        let ids: Vec<FaceId> = (0..5).map(|_| faces.create(settings()).unwrap().id()).collect();
        faces.destroy(ids[1]);
        let page = |from| {
            let (found, next) = faces.page(from, 3);
            (found.iter().map(|(slot, face)| (*slot, face.id())).collect::<Vec<_>>(), next)
        };
        assert_eq!(page(0), (vec![(0, ids[0]), (2, ids[2])], Some(3)));
        assert_eq!(page(3), (vec![(3, ids[3]), (4, ids[4])], Some(6)));
        assert_eq!((page(6), page(99)), ((vec![], None), (vec![], None)));
        assert_eq!((faces.len(), faces.is_empty()), (4, false));
    }

    #[test]
    fn readers_see_what_has_changed() {
        let faces = Faces::new(8);
        let mut reader = faces.reader();
        let face = faces.create(settings()).unwrap();
        assert!(reader.get(face.id()).is_none());
        reader.refresh();
        assert_eq!(reader.get(face.id()).unwrap().mtu(), 8800);
        face.set_mtu(1400);
        face.set_flags(5, 4);
        assert_eq!((reader.get(face.id()).unwrap().mtu(), face.flags()), (1400, 4));
        faces.destroy(face.id());
        assert!(reader.get(face.id()).is_some());
        reader.refresh();
        assert!(reader.get(face.id()).is_none());
        assert_eq!(reader.iter().count(), 0);
    }

    #[test]
    fn events_are_told_within_a_bound() {
        let faces = Faces::new(8);
        let face = faces.create(settings()).unwrap();
        faces.set_state(&face, FaceState::Down);
        faces.set_state(&face, FaceState::Down);
        faces.set_state(&face, FaceState::Up);
        faces.destroy(face.id());
        let (events, lost) = faces.take_events();
        let kinds: Vec<FaceEventKind> = events.iter().map(|event| event.kind).collect();
        use FaceEventKind::{Created, Destroyed, Down, Up};
        assert_eq!((kinds, lost), (vec![Created, Down, Up, Destroyed], 0));
        for _ in 0..EVENTS_MAX {
            let id = faces.create(settings()).unwrap().id();
            faces.destroy(id);
        }
        let (events, lost) = faces.take_events();
        assert_eq!((events.len(), lost), (EVENTS_MAX, EVENTS_MAX as u64));
    }
}
