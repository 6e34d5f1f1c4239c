//! Packed sessions, as they are kept between requests.
//!
//! A session is touched when the control plane or a report concerns it, and lies idle for hours otherwise. So it is kept as a short
//! string of bytes, [without what others have too](super::dictionary), and unpacked when it is its turn. That takes a microsecond
//! then, and a twentieth of the memory always, which is what millions of sessions are made of.

use std::collections::BTreeSet;
use std::time::SystemTime;

use postcard::ser_flavors::Size;
use serde::{Deserialize, Serialize};

use crate::ids::{AppNumber, SessionIndex};
use crate::usage::{RecordedUsage, UsageCounters, UsageSlot, UsedAt};
use kaido_n4::{ApplicationId, Cause, FSeid, Imsi, Pfd, Rejection, Seid, Urr};
use kaido_store::{Kind, Recorder};

use super::decoder;
use super::dictionary::Dictionary;
use super::resting::{OldSessionState, SessionFront};
use super::ruleset::RuleSet;
use super::session::{Session, SessionState};

/// Whether a session with these rules can be put to rest, which is asked before any of them reaches the data plane.
///
/// # Errors
/// Cause 73 for what cannot be written, such as times before 1970.
pub(super) fn check(rules: &RuleSet, now: SystemTime) -> Result<(), Rejection> {
    match postcard::serialize_with_flavor(&(rules, now), Size::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Rejection::new(
            Cause::RuleCreationOrModificationFailure,
            format!("the session cannot be stored: {error}"),
        )),
    }
}

/// What a session at rest begins with, to be read without the rest.
#[derive(Debug, Deserialize)]
struct Head {
    imsi: Option<Imsi>,
    cp_fseid: FSeid,
}

/// Octets that a [`Head`] takes at most: two numbers of ten, addresses of 4 and 16, and what says which there are.
const HEAD_OCTETS: usize = 43;

/// What the sessions of a subscriber begin with at rest.
#[derive(Debug)]
pub(super) struct ImsiPrefix(Vec<u8>);

impl ImsiPrefix {
    /// That of a subscriber.
    pub(super) fn of(imsi: Imsi) -> Self {
        Self(Dictionary::head(&postcard::to_allocvec(&Some(imsi)).unwrap_or_default()))
    }
}

/// In how many counters the URRs of a session count, and in which the first does: to be read without unpacking.
#[derive(Clone, Copy, Debug)]
enum SessionCounters {
    None,
    One(UsageSlot),
    Several(UsageSlot),
}

impl SessionCounters {
    fn of(state: &SessionState) -> Self {
        let mut slots = state.meters.values().flat_map(|meter| [Some(meter.slot), meter.dropped]).flatten();
        match slots.next() {
            None => Self::None,
            Some(first) if slots.all(|slot| slot == first) => Self::One(first),
            Some(first) => Self::Several(first),
        }
    }

    const fn first(self) -> Option<UsageSlot> {
        match self {
            Self::None => None,
            Self::One(first) | Self::Several(first) => Some(first),
        }
    }
}

/// Begins what is recorded of a session, behind its SEID, where its counters come next, and then the session as it lies.
const FRONT_AHEAD: u8 = 3;
/// The same of an [`OldSessionState`], which begins with 0 or 1 where it has no counters before it.
const COUNTERS_AHEAD: u8 = 2;

/// What has to be known of all sessions before one is put into the table, so that it can be read without the rest.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedCounters {
    /// The counters, some of them several times.
    pub(super) slots: Vec<UsageSlot>,
    /// Whether a quota may be used up.
    pub(super) may_stop: bool,
}

impl RecordedCounters {
    fn of(state: &SessionState) -> Self {
        let may_stop = state.rules.urrs.values().any(Urr::may_stop);
        Self { slots: state.slots().collect(), may_stop }
    }
}

/// One place for a session.
#[derive(Debug)]
struct PackedSlot {
    seid: Seid,
    packed: Option<Box<[u8]>>,
    counters: SessionCounters,
}

impl PackedSlot {
    const EMPTY: Self = Self { seid: Seid(0), packed: None, counters: SessionCounters::None };
}

// There are sixteen million.
const _: () = assert!(size_of::<PackedSlot>() == 32);

/// All sessions of the node, by their numbers.
#[derive(Debug, Default)]
pub(super) struct PackedSessions {
    places: Vec<PackedSlot>,
    free: Vec<u32>,
    len: u32,
    dictionary: Dictionary,
    /// Room for a session that is packed.
    octets: Vec<u8>,
    /// Takes down what sessions are, for a restart.
    recorder: Recorder,
    /// How many packets the counters of each had counted when usage was recorded last, unless it was changed since: the low half.
    recorded: Vec<u32>,
}

impl PackedSessions {
    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// A number for a new session.
    pub(super) fn reserve(&mut self) -> SessionIndex {
        SessionIndex(self.free.pop().unwrap_or_else(|| {
            self.places.push(PackedSlot::EMPTY);
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        }))
    }

    /// Has changes of sessions taken down.
    pub(super) fn record_by(&mut self, recorder: Recorder) {
        self.recorder = recorder;
    }

    /// Records what the counters of a session have counted, if packets have passed since that was done last.
    #[allow(clippy::cast_possible_truncation)] // Places have 32 bits; of packets only whether they have changed is of interest.
    pub(super) fn record_usage(&mut self, at: usize, usage: &UsageCounters, now: UsedAt) {
        let read = |slot| usage.read(slot);
        let Some(place) = self.places.get(at) else { return };
        let (front, packets) = match place.counters {
            SessionCounters::None => return,
            SessionCounters::One(slot) => (None, read(slot).total_packets()),
            SessionCounters::Several(_) => {
                let front = self.front(SessionIndex(at as u32));
                let slots = front.iter().flat_map(SessionFront::slots);
                let packets = slots.map(|slot| read(slot).total_packets()).sum();
                (front, packets)
            }
        };
        if at >= self.recorded.len() {
            self.recorded.resize(self.places.len(), 0);
        }
        let packets = packets as u32;
        let before = std::mem::replace(&mut self.recorded[at], packets);
        if before == packets {
            return;
        }
        let front = front.or_else(|| self.front(SessionIndex(at as u32)));
        for slot in front.iter().flat_map(SessionFront::slots) {
            // A counter that was not looked at before may have been used before the restart.
            if before != 0 || usage.used_at(slot) == UsedAt::NEVER {
                usage.touch_offloaded(slot, now);
            }
            let recorded = RecordedUsage { volume: read(slot), used: usage.used_at(slot) };
            self.recorder.put_value(Kind::Usage, slot.0.into(), &recorded.record());
        }
    }

    /// The sessions that count in some counters, with these.
    pub(super) fn of_counters(&self, slots: &BTreeSet<UsageSlot>) -> Vec<(SessionIndex, UsageSlot)> {
        let mut found = Vec::new();
        for (number, place) in (0u32..).zip(&self.places) {
            let index = SessionIndex(number);
            match place.counters {
                SessionCounters::None => {}
                SessionCounters::One(slot) => found.extend(slots.get(&slot).map(|&slot| (index, slot))),
                SessionCounters::Several(_) => {
                    let front = self.front(index);
                    let own = front.iter().flat_map(SessionFront::slots);
                    found.extend(own.filter(|slot| slots.contains(slot)).map(|slot| (index, slot)));
                }
            }
        }
        found
    }

    /// Records what applications are known by.
    pub(super) fn record_pfds(&self, applications: Vec<(AppNumber, ApplicationId, Pfd)>) {
        for (number, id, pfd) in applications {
            self.recorder.put_value(Kind::Pfd, number.0.into(), &(id, pfd));
        }
    }

    /// A counter is nobody's: what it has counted is not to be known any more.
    pub(super) fn forget_usage(&self, slot: UsageSlot) {
        self.recorder.remove(Kind::Usage, slot.0.into());
    }

    /// Records what a session has carried beside what its counters say.
    pub(super) fn record_offsets(&self, index: SessionIndex, offsets: &impl Serialize) {
        self.recorder.put_value(Kind::Offset, index.0.into(), offsets);
    }

    /// Records that this is nothing any more.
    pub(super) fn forget_offsets(&self, index: SessionIndex) {
        self.recorder.remove(Kind::Offset, index.0.into());
    }

    /// How many places there are.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// A session as it was recorded under a number; `None` of what is none.
    pub(super) fn read(index: SessionIndex, recorded: &[u8]) -> Option<Session> {
        let (seid, octets) = recorded.split_first_chunk()?;
        let seid = Seid(u64::from_le_bytes(*seid));
        let old = |octets| decoder::take::<OldSessionState>(octets).map(|(old, rest)| (old.0, rest)).ok();
        let behind_counters = |octets| Some(decoder::take::<RecordedCounters>(octets).ok()?.1);
        let (state, rest) = match octets.split_first()? {
            (&FRONT_AHEAD, rest) => decoder::take(behind_counters(rest)?).ok()?,
            (&COUNTERS_AHEAD, rest) => old(behind_counters(rest)?)?,
            _ => old(octets)?,
        };
        let is_own = seid.0 >> 63 == 1 && u64::from(index.0) == seid.0 & 0xffff_ffff;
        (is_own && rest.is_empty()).then_some(Session { seid, index, state })
    }

    /// The counters of a session as it was recorded under a number; `None` of what is none.
    pub(super) fn read_counters(index: SessionIndex, recorded: &[u8]) -> Option<RecordedCounters> {
        match recorded.get(size_of::<Seid>()..)?.split_first()? {
            (&(FRONT_AHEAD | COUNTERS_AHEAD), rest) => decoder::take(rest).ok().map(|(counters, _)| counters),
            // Of a program before these were written.
            _ => Self::read(index, recorded).map(|session| RecordedCounters::of(&session.state)),
        }
    }

    /// Makes place for a session that is to be [packed](Self::pack) under its number; `false` where another has the number.
    pub(super) fn take_in(&mut self, index: SessionIndex) -> bool {
        let place = index.0 as usize;
        if self.places.get(place).is_some_and(|place| place.packed.is_some()) {
            return false;
        }
        while self.places.len() <= place {
            self.places.push(PackedSlot::EMPTY);
        }
        true
    }

    /// Looks for the numbers that are free among those that were taken in.
    pub(super) fn find_free(&mut self) {
        let places = (0u32..).zip(&self.places);
        self.free = places.filter(|(_, place)| place.packed.is_none()).map(|(number, _)| number).collect();
        // The lowest are given out first.
        self.free.reverse();
    }

    /// A session that was taken out has ended: it is not to come back after a restart.
    pub(super) fn end(&mut self, index: SessionIndex) {
        self.forget(index);
        self.release(index);
    }

    /// As [`PackedSessions::end`], of a session that never came back.
    pub(super) fn forget(&self, index: SessionIndex) {
        self.recorder.remove(Kind::Session, index.0.into());
    }

    /// Gives back a number that no session has.
    pub(super) fn release(&mut self, index: SessionIndex) {
        self.free.push(index.0);
    }

    /// Puts a session to rest, the first time or again, and records what it is.
    pub(super) fn put(&mut self, session: &Session) {
        self.pack(session);
        self.record(session);
    }

    /// As [`PackedSessions::put`], of a session whose usage alone was looked at.
    pub(super) fn store_front(&mut self, front: &SessionFront) {
        self.octets.clear();
        let written = front.write(&mut self.octets);
        self.keep(front.session(), written);
        self.record(front.session());
    }

    /// Records a session as it was packed just now.
    fn record(&self, Session { seid, index, state }: &Session) {
        let Self { recorder, octets, .. } = self;
        recorder.put(Kind::Session, index.0.into(), |record| {
            record.extend_from_slice(&seid.0.to_le_bytes());
            record.push(FRONT_AHEAD);
            // Room for it grows as it is needed.
            let _ = kaido_store::append(record, &RecordedCounters::of(state));
            record.extend_from_slice(octets);
        });
    }

    /// As [`PackedSessions::put`], of a session that is recorded as it is.
    pub(super) fn pack(&mut self, session: &Session) {
        self.octets.clear();
        let written = kaido_store::append(&mut self.octets, &session.state);
        self.keep(session, written);
    }

    /// Keeps what was written of a session.
    fn keep(&mut self, session: &Session, written: postcard::Result<()>) {
        let Some(place) = self.places.get_mut(session.index.0 as usize) else { return };
        // Bytes in memory take every value that rules can have.
        if let Err(error) = written {
            tracing::error!(%error, seid = %session.seid, "a session could not be packed");
            return;
        }
        match &place.packed {
            Some(before) => self.dictionary.forget(before),
            None => self.len += 1,
        }
        let counters = SessionCounters::of(&session.state);
        let packed = Some(self.dictionary.keep(&self.octets));
        *place = PackedSlot { seid: session.seid, packed, counters };
        // It may be another session, or count elsewhere.
        if let Some(recorded) = self.recorded.get_mut(session.index.0 as usize) {
            *recorded = 0;
        }
    }

    /// The session of a number.
    pub(super) fn get(&self, index: SessionIndex) -> Option<Session> {
        self.places.get(index.0 as usize).and_then(|place| self.unpack(index, place))
    }

    /// The number of the session with that SEID.
    #[allow(clippy::cast_possible_truncation)] // The low half of a SEID is the number.
    pub(super) fn find(&self, seid: Seid) -> Option<SessionIndex> {
        let index = SessionIndex(seid.0 as u32);
        let place = self.places.get(index.0 as usize)?;
        (place.packed.is_some() && place.seid == seid).then_some(index)
    }

    /// The SEID of the session of a number.
    pub(super) fn seid(&self, index: SessionIndex) -> Option<Seid> {
        self.places.get(index.0 as usize).filter(|place| place.packed.is_some()).map(|place| place.seid)
    }

    /// The SEID of the session of a number, and its counter where all its URRs count in that one; `None` without any counter.
    pub(super) fn only_counter(&self, index: SessionIndex) -> Option<(Seid, Option<UsageSlot>)> {
        let place = self.places.get(index.0 as usize)?;
        match place.counters {
            SessionCounters::None => None,
            SessionCounters::One(slot) => Some((place.seid, Some(slot))),
            SessionCounters::Several(_) => Some((place.seid, None)),
        }
    }

    /// The control plane's end of the session of a number: read without the rest of it.
    pub(super) fn cp_fseid(&self, index: SessionIndex) -> Option<FSeid> {
        self.head(index).map(|(_, cp_fseid)| cp_fseid)
    }

    /// Subscriber and control plane's end of the session of a number: read without the rest of it.
    pub(super) fn head(&self, index: SessionIndex) -> Option<(Option<Imsi>, FSeid)> {
        let packed = self.places.get(index.0 as usize)?.packed.as_deref()?;
        let octets = self.dictionary.read_first(packed, HEAD_OCTETS)?;
        decoder::take::<Head>(&octets).ok().map(|(head, _)| (head.imsi, head.cp_fseid))
    }

    /// Whether the session of a number may be that subscriber's: some nanoseconds; [`Self::head`] says whether it is.
    pub(super) fn may_be_of(&self, index: SessionIndex, prefix: &ImsiPrefix) -> bool {
        let packed = self.places.get(index.0 as usize).and_then(|place| place.packed.as_deref());
        packed.and_then(|packed| packed.get(1..)).is_some_and(|at| at.starts_with(&prefix.0))
    }

    /// Takes a session out; its number stays taken until it is [released](Self::release).
    pub(super) fn take(&mut self, index: SessionIndex) -> Option<Session> {
        let session = self.get(index)?;
        let place = self.places.get_mut(index.0 as usize)?;
        if let Some(packed) = place.packed.take() {
            self.dictionary.forget(&packed);
        }
        place.counters = SessionCounters::None;
        self.len -= 1;
        Some(session)
    }

    /// The counter of the first URR of each session at `count` places from `first` on, and the place to go on from,
    /// where there is one.
    pub(super) fn counters(
        &self,
        first: usize,
        count: usize,
    ) -> (impl Iterator<Item = UsageSlot> + '_, Option<usize>) {
        let end = first.saturating_add(count).min(self.places.len());
        let places = self.places.get(first..end).unwrap_or_default();
        (places.iter().filter_map(|place| place.counters.first()), (end < self.places.len()).then_some(end))
    }

    /// Sessions from the `skip`th on, at most `limit`, in the order of their numbers.
    pub(super) fn page(&self, skip: usize, limit: usize) -> impl Iterator<Item = Session> + '_ {
        let taken = (0u32..).zip(&self.places).filter(|(_, place)| place.packed.is_some());
        taken.skip(skip).take(limit).filter_map(|(index, place)| self.unpack(SessionIndex(index), place))
    }

    /// What usage reports concern of the session of a number.
    pub(super) fn front(&self, index: SessionIndex) -> Option<SessionFront> {
        let place = self.places.get(index.0 as usize)?;
        let octets = self.dictionary.read(place.packed.as_deref()?).unwrap_or_default();
        let seid = place.seid;
        unpacked(SessionFront::read(octets, |state| Session { seid, index, state }), seid)
    }

    fn unpack(&self, index: SessionIndex, place: &PackedSlot) -> Option<Session> {
        let octets = self.dictionary.read(place.packed.as_deref()?).unwrap_or_default();
        let seid = place.seid;
        unpacked(decoder::take(&octets).map(|(state, _)| Session { seid, index, state }), seid)
    }
}

/// What was read of a session. Only what was kept lies there.
fn unpacked<T>(read: Result<T, decoder::Malformed>, seid: Seid) -> Option<T> {
    let error =
        |error: &decoder::Malformed| tracing::error!(%error, %seid, "a session could not be unpacked");
    read.inspect_err(error).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use litemap::LiteMap;

    use super::*;
    use crate::control::app_instances::Instances;
    use crate::control::inactivity::Inactivity;
    use crate::control::paging::Paging;
    use crate::control::watches::Watches;
    use kaido_n4::{
        ApplicationId, ApplyAction, BitRate, ChooseOr, EthernetFilter, FSeid, FTeid, Far, FarId,
        ForwardingParameters, FramedRoute, Gate, Interface, Ipv6Prefix, LocalFTeid, NetworkInstance,
        OuterHeaderCreation, OuterHeaderRemoval, PacketLimit, PacketRate, PagingPolicyIndicator, Pdi, Pdr,
        PdrId, PredefinedName, Qer, QerCorrelationId, QerId, Qfi, SdfFilter, Teid, TimeUnit,
        TrafficEndpointId, UeIpAddress, UeIpRole, UrrId,
    };

    /// A session with something in every kind of field.
    fn session(index: SessionIndex) -> Session {
        let mut state = SessionState {
            imsi: "262010000000001".parse().ok(),
            cp_fseid: FSeid { seid: Seid(u64::MAX), ipv4: Some([10, 0, 0, 1].into()), ipv6: None },
            rules: RuleSet::default(),
            meters: LiteMap::new(),
            leases: vec![super::super::pool::Lease::Ipv4(0, 7)],
            activity: Some(UsageSlot(9)),
            paging: Paging::default(),
            stations_look: Some(7),
            usage_held: true,
            inactivity: Inactivity::new(Duration::from_secs(60), 5, 1_700_000_000_000),
            watches: Watches::default(),
            instances: Instances::default(),
        };
        let pdr = Pdr {
            id: PdrId(1),
            precedence: u32::MAX,
            pdi: Pdi {
                source_interface: Interface::Access,
                local_fteid: Some(LocalFTeid::Given(FTeid {
                    teid: Teid(0x1234_5678),
                    ipv4: Some([10, 0, 0, 2].into()),
                    ipv6: Some("2001:db8::1".parse().unwrap()),
                })),
                network_instance: Some(NetworkInstance("internet".into())),
                ue_ip: vec![UeIpAddress {
                    ipv4: Some(ChooseOr::Given([10, 60, 0, 1].into())),
                    ipv6: Some(ChooseOr::Given(Ipv6Prefix::of("2001:db8:1::".parse().unwrap(), 64))),
                    role: UeIpRole::Source,
                }],
                qfis: vec![Qfi(9)],
                sdf_filters: vec![SdfFilter::parse("permit out 17 from 10.0.0.0/8 53 to assigned").unwrap()],
                sdf_filter_ids: vec![7],
                framed_routes: vec![FramedRoute::of([192, 168, 1, 0].into(), 24)],
                traffic_endpoints: vec![TrafficEndpointId(3)],
                application_id: Some(ApplicationId("video".into())),
                ethernet: true,
                ethernet_filters: vec![EthernetFilter {
                    ethertype: Some(0x88f7),
                    ..EthernetFilter::default()
                }],
                ethernet_filter_ids: vec![9],
            },
            outer_header_removal: Some(OuterHeaderRemoval::GtpUUdpIp),
            deletes_container: false,
            far_id: Some(FarId(1)),
            urr_ids: vec![UrrId(1)],
            qer_ids: vec![QerId(1)],
            predefined: vec![PredefinedName("free".into())],
            activation: Some(std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000)),
            deactivation: None,
        };
        let far = Far {
            id: FarId(1),
            apply_action: ApplyAction { forward: true, ..ApplyAction::default() },
            forwarding: Some(ForwardingParameters {
                destination_interface: Interface::Core,
                network_instance: None,
                outer_header_creation: Some(OuterHeaderCreation {
                    teid: Teid(1),
                    ipv4: None,
                    ipv6: Some("2001:db8::9".parse().unwrap()),
                }),
                transport_level_marking: Some(0xb8),
                steering: None,
            }),
            bar_id: None,
        };
        let qer = Qer {
            id: QerId(1),
            correlation: Some(QerCorrelationId(u32::MAX)),
            gate: Gate { uplink: true, downlink: false },
            mbr: Some(BitRate { uplink_kbps: 1, downlink_kbps: 400_000_000 }),
            gbr: Some(BitRate { uplink_kbps: 0, downlink_kbps: 7 }),
            qfi: Some(Qfi(5)),
            reflective: true,
            paging_policy: Some(PagingPolicyIndicator(7)),
            averaging_window: Some(Duration::from_millis(2000)),
            packet_rate: Some(PacketRate {
                uplink: Some(PacketLimit { packets: u16::MAX, unit: TimeUnit::Week }),
                downlink: None,
            }),
            reports_packet_rate: true,
        };
        state.rules.add_pdr(pdr).unwrap();
        state.rules.add_far(far).unwrap();
        state.rules.add_qer(qer).unwrap();
        Session { seid: Seid(1 << 63 | u64::from(index.0)), index, state }
    }

    #[test]
    fn a_session_comes_back_as_it_was_put() {
        let mut sessions = PackedSessions::default();
        let index = sessions.reserve();
        let put = session(index);
        sessions.put(&put);
        assert_eq!(sessions.find(put.seid), Some(index));
        assert_eq!((sessions.get(index), sessions.seid(index)), (Some(put.clone()), Some(put.seid)));
        assert_eq!(sessions.cp_fseid(index), Some(put.state.cp_fseid));
        sessions.put(&put);
        assert_eq!((sessions.len(), sessions.page(0, 9).count(), sessions.page(1, 9).count()), (1, 1, 0));
        assert_eq!(sessions.take(index), Some(put.clone()));
        assert_eq!((sessions.len(), sessions.find(put.seid), sessions.get(index)), (0, None, None));
        assert_eq!((sessions.take(index), sessions.seid(index)), (None, None));
        assert_eq!(sessions.cp_fseid(index), None);
    }

    #[test]
    fn what_reports_concern_is_read_and_put_without_the_rest() {
        let mut sessions = PackedSessions::default();
        let index = sessions.reserve();
        let mut put = session(index);
        sessions.put(&put);
        let mut front = sessions.front(index).unwrap();
        assert!(front.session().state.rules.pdrs.is_empty() && front.session().state.leases.is_empty());
        for state in [&mut front.session_mut().state, &mut put.state] {
            state.usage_held = !state.usage_held;
            state.stations_look = None;
            state.rules.urrs.iter_mut().for_each(|(_, urr)| urr.monitoring_times.clear());
            state.meters.iter_mut().for_each(|(_, meter)| meter.slot = UsageSlot(u32::MAX));
        }
        sessions.store_front(&front);
        assert_eq!(sessions.get(index), Some(put.clone()));
        assert_eq!(sessions.only_counter(index), sessions_of(&put).only_counter(index));
        assert_eq!(sessions.octets, sessions_of(&put).octets, "as if all of it had been written");
    }

    /// A session alone, under its number.
    fn sessions_of(one: &Session) -> PackedSessions {
        let mut sessions = PackedSessions::default();
        sessions.take_in(one.index);
        sessions.put(one);
        sessions
    }

    #[test]
    fn the_control_planes_end_is_read_alone_however_long_it_is() {
        let mut sessions = PackedSessions::default();
        let ends = [
            FSeid { seid: Seid(1), ipv4: Some([10, 0, 0, 1].into()), ipv6: None },
            FSeid {
                seid: Seid(u64::MAX),
                ipv4: Some([255; 4].into()),
                ipv6: Some(std::net::Ipv6Addr::from_bits(u128::MAX)),
            },
        ];
        for (imsi, cp_fseid) in [(None, ends[0]), (None, ends[1]), (Some("999999999999999"), ends[1])] {
            let mut put = session(sessions.reserve());
            put.state.imsi = imsi.and_then(|imsi| imsi.parse().ok());
            put.state.cp_fseid = cp_fseid;
            sessions.put(&put);
            assert_eq!(sessions.cp_fseid(put.index), Some(cp_fseid));
        }
    }

    #[test]
    fn sessions_are_found_by_their_subscriber() {
        let mut sessions = PackedSessions::default();
        let subscribers = ["262010000000001", "262010000000002", "26201000000000", "001010000000000", "2"];
        for imsi in subscribers.map(Some).into_iter().chain([None, Some(subscribers[0])]) {
            let mut put = session(sessions.reserve());
            put.state.imsi = imsi.and_then(|imsi| imsi.parse().ok());
            sessions.put(&put);
        }
        let count = |text: &str| {
            let imsi = text.parse().unwrap();
            let prefix = ImsiPrefix::of(imsi);
            let numbers = (0..sessions.places()).map(|at| SessionIndex(u32::try_from(at).unwrap()));
            let may_be = numbers.filter(|&index| sessions.may_be_of(index, &prefix));
            may_be.filter(|&index| sessions.head(index).is_some_and(|(its, _)| its == Some(imsi))).count()
        };
        assert_eq!(subscribers.map(count), [2, 1, 1, 1, 1]);
        assert_eq!((count("262"), count("262010000000003")), (0, 0));
    }

    #[test]
    fn a_number_is_given_again_and_an_old_seid_does_not_find_it() {
        let mut sessions = PackedSessions::default();
        let first = sessions.reserve();
        let old = session(first);
        sessions.put(&old);
        sessions.take(first);
        assert_ne!(sessions.reserve(), first, "it is not released yet");
        sessions.release(first);
        let again = sessions.reserve();
        assert_eq!(again, first);
        sessions.put(&Session { seid: Seid(old.seid.0 | 1 << 40), ..old.clone() });
        assert_eq!(sessions.find(old.seid), None);
    }
}
