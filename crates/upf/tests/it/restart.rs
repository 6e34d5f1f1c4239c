//! Sessions after a restart: the same packets pass, and every octet is charged once.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::time::SystemTime;

use kaido_n4::{
    BitRate, ChooseOr, CreatedPdr, Establishment, FTeid, LocalFTeid, Modification, PdrId, Qer, QerId, Seid,
    SessionEvent, SessionService, Teid, UpdateFar, UpdatePdr, Urr, UrrId, Volume,
};
use kaido_store::{Change, Kind, Recorder, changes};
use kaido_upf::control::{CountersInUse, NoSession, RecordedSession, RestoredSessions, Upf};
use kaido_upf::usage::{RecordedUsage, UsageSlot};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, now, v4};
use crate::smf_shapes::{free5gc, open5gs};

pub(crate) fn memory() -> File {
    memfd_create("usage", MemfdFlags::CLOEXEC).unwrap().into()
}

/// The counters of sessions that were recorded.
pub(crate) fn in_use(kept: &BTreeMap<u64, Vec<u8>>) -> CountersInUse {
    let all = CountersInUse::of(
        |each| kept.iter().try_for_each(|(&number, value)| each(number, value)),
        |_, error| error,
    );
    all.unwrap()
}

/// A user plane whose sessions are recorded, and what was recorded so far.
pub(crate) struct Life {
    pub(crate) rig: Rig,
    pub(crate) recorder: Recorder,
    pub(crate) memory: File,
    pub(crate) kept: BTreeMap<u64, Vec<u8>>,
    /// What sessions have carried beside what their counters say.
    offsets: BTreeMap<u64, Vec<u8>>,
}

impl Life {
    pub(crate) fn first() -> Self {
        let memory = memory();
        let mut rig = Rig::over(memory.try_clone().unwrap());
        let counters = rig.upf.claim_counters(CountersInUse::default(), |_| RecordedUsage::default());
        rig.upf.restore(counters.unwrap()).finish();
        let recorder = Recorder::on();
        rig.upf.record_by(recorder.clone());
        Self { rig, recorder, memory, kept: BTreeMap::new(), offsets: BTreeMap::new() }
    }

    pub(crate) fn read(&mut self) {
        let mut batch = Vec::new();
        self.recorder.take(&mut batch);
        self.recorder.wrote_all();
        for change in changes(&batch).map(Result::unwrap) {
            let kept = match change.kind {
                Kind::Session => &mut self.kept,
                Kind::Offset => &mut self.offsets,
                kind => {
                    assert!(kind == Kind::Usage && change.value.is_none(), "a counter is nobody's");
                    continue;
                }
            };
            match change.value {
                Some(value) => kept.insert(change.key, value.to_vec()),
                None => kept.remove(&change.key),
            };
        }
    }

    /// The process is killed and starts again, with the memory of its counters or without.
    fn again(mut self, with_memory: bool, counted: impl Fn(u32) -> Volume) -> (Self, RestoredSessions) {
        self.read();
        let Self { rig, recorder, memory: before, kept, offsets } = self;
        drop(rig);
        let memory = if with_memory { before } else { memory() };
        let mut rig = Rig::over(memory.try_clone().unwrap());
        rig.upf.record_by(recorder.clone());
        let counters = rig.upf.claim_counters(in_use(&kept), |slot| counted(slot.0).into()).unwrap();
        let mut restoration = rig.upf.restore(counters);
        let read = restoration.resume_all(
            |each| kept.iter().try_for_each(|(&number, value)| each(number, value)),
            |_, error| error,
            now(),
        );
        read.unwrap();
        let restored = restoration.finish();
        let restore = |(&number, value): (_, &Vec<u8>)| rig.upf.restore_usage_offsets(number, value);
        offsets.iter().try_for_each(restore).unwrap();
        (Self { rig, recorder, memory, kept, offsets }, restored)
    }

    /// Whether a packet of 100 octets passes in each direction.
    fn pass(&mut self, teid: u32, ue: &str) -> [bool; 2] {
        let up = self.rig.pass(N3, &uplink(teid, &udp(ue, "8.8.8.8", 72)));
        let down = self.rig.pass(N6, &downlink(&udp("8.8.8.8", ue, 72)));
        [up, down].map(|sent| sent.len() == 1)
    }

    /// Lets so many packets pass, each way, of the usual session of UE 7.
    fn pass_times(&mut self, times: usize) {
        (0..times).for_each(|_| assert_eq!(self.pass(1007, "10.60.0.7"), [true; 2]));
    }

    /// What is charged by the time the session is deleted.
    fn charged(&mut self, seid: Seid) -> BTreeMap<UrrId, Volume> {
        let deleted = self.rig.upf.delete(seid, now()).unwrap();
        let reports = deleted.usage_reports.into_iter();
        reports.filter_map(|report| Some((report.urr_id, report.volume?))).collect()
    }
}

fn volume(packets: u64) -> Volume {
    Volume {
        uplink_bytes: 100 * packets,
        downlink_bytes: 100 * packets,
        uplink_packets: packets,
        downlink_packets: packets,
    }
}

/// Where a session's packets come in.
fn ends(request: &Establishment, created: &[CreatedPdr]) -> (u32, String) {
    let given = |pdr: &kaido_n4::Pdr| pdr.pdi.local_fteid.and_then(|local| local.given()).map(|it| it.teid);
    let chosen = || created.iter().find_map(|pdr| pdr.local_fteid).map(|fteid| fteid.teid);
    let teid = request.pdrs.iter().find_map(given).or_else(chosen).unwrap();
    let ue = request.pdrs.iter().flat_map(|pdr| &pdr.pdi.ue_ip).find_map(|ue| ue.ipv4?.given());
    let chosen = || created.iter().find_map(|pdr| pdr.ue_ip?.ipv4?.given());
    (teid.0, ue.or_else(chosen).unwrap().to_string())
}

fn shapes() -> Vec<Establishment> {
    let rate = BitRate { uplink_kbps: 1_000_000, downlink_kbps: 1_000_000 };
    let mut plain = SessionPlan::ipv4(1).establishment();
    plain.qers = vec![Qer { mbr: Some(rate), ..Qer::open(QerId(1)) }];
    let mut chosen = SessionPlan::ipv4(4).establishment();
    chosen.pdrs[0].pdi.local_fteid = Some(LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: Some(3) });
    for ue in chosen.pdrs.iter_mut().flat_map(|pdr| &mut pdr.pdi.ue_ip) {
        ue.ipv4 = Some(ChooseOr::Choose);
    }
    vec![plain, free5gc(2, rate), open5gs(3), chosen]
}

#[test]
fn sessions_go_on_after_the_process_was_killed() {
    let mut life = Life::first();
    let mut sessions = Vec::new();
    for request in shapes() {
        let made = life.rig.upf.establish(&request, now()).unwrap();
        let (teid, ue) = ends(&request, &made.created_pdrs);
        sessions.push((made.seid, teid, ue, request.urrs));
    }
    let mut passed: Vec<_> = sessions.iter().map(|(_, teid, ue, _)| life.pass(*teid, ue)).collect();
    assert_eq!(passed[0], [true; 2]);
    assert_eq!(passed[3], [true; 2]);
    assert!(passed.iter().all(|passed| passed.contains(&true)));
    for _ in 0..3 {
        let restored;
        (life, restored) = life.again(true, |_| Volume::default());
        assert_eq!((restored.restored, restored.refused.len()), (4, 0), "{restored:?}");
        assert_eq!(life.rig.upf.len(), 4);
        let again: Vec<_> = sessions.iter().map(|(_, teid, ue, _)| life.pass(*teid, ue)).collect();
        assert_eq!(again, passed);
    }
    for ((seid, _, ue, urrs), [up, down]) in sessions.iter().zip(passed.drain(..)) {
        let charged = life.charged(*seid);
        for urr in urrs {
            let times = |passes: bool| if passes { 400 } else { 0 };
            let found = charged[&urr.id];
            assert_eq!(
                (found.uplink_bytes, found.downlink_bytes),
                (times(up), times(down)),
                "{ue} {}",
                urr.id
            );
        }
    }
    // What ended does not come back.
    let (life, restored) = life.again(true, |_| Volume::default());
    assert_eq!((restored.restored, life.rig.upf.len()), (0, 0));
}

#[test]
fn nothing_is_given_out_twice() {
    let mut life = Life::first();
    let request = shapes().pop().unwrap();
    let (mut teids, mut ues, mut seids) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut count = 0;
    for _ in 0..4 {
        for _ in 0..20 {
            let made = life.rig.upf.establish(&request, now()).unwrap();
            let (teid, ue) = ends(&request, &made.created_pdrs);
            count += 1;
            assert!(teids.insert(teid) && ues.insert(ue) && seids.insert(made.seid));
        }
        (life, _) = life.again(true, |_| Volume::default());
        assert_eq!(life.rig.upf.len(), count);
    }
    for &seid in &seids {
        life.rig.upf.delete(seid, now()).unwrap();
    }
    let mut again = BTreeSet::new();
    for _ in 0..254 {
        let made = life.rig.upf.establish(&request, now()).unwrap();
        again.insert(ends(&request, &made.created_pdrs).1);
    }
    assert_eq!(again.len(), 254, "every address of the pool can be given out");
}

#[test]
fn a_threshold_is_where_it_was() {
    let mut life = Life::first();
    let plan = SessionPlan { threshold: Some(1000), ..SessionPlan::ipv4(7) };
    life.rig.upf.establish(&plan.establishment(), now()).unwrap();
    let due = |life: &mut Life| {
        let events = life.rig.upf.poll_events(now(), 10).into_iter();
        let usage = events.filter_map(|event| match event {
            SessionEvent::Usage { reports, .. } => reports[0].volume,
            _ => None,
        });
        usage.collect::<Vec<_>>()
    };
    life.pass_times(4);
    assert_eq!(due(&mut life), []);
    (life, _) = life.again(true, |_| Volume::default());
    assert_eq!(due(&mut life), []);
    life.pass_times(1);
    assert_eq!(due(&mut life), [volume(5)]);
    // It was reached while nobody was there to see it.
    life.pass_times(5);
    (life, _) = life.again(true, |_| Volume::default());
    assert_eq!(due(&mut life), [volume(5)]);
}

/// After a power cut counters are those of the last checkpoint: what was reported is not reported again.
#[test]
fn without_the_memory_of_the_counters_nothing_is_charged_twice() {
    let mut life = Life::first();
    let seid = life.rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap().seid;
    life.pass_times(6);
    let query = Modification { query_all_urrs: true, ..Modification::default() };
    let reported =
        |life: &mut Life| life.rig.upf.modify(seid, &query, now()).unwrap().usage_reports[0].volume.unwrap();
    assert_eq!(reported(&mut life), volume(6));
    life.pass_times(3);
    // A checkpoint of before the report.
    (life, _) = life.again(false, |_| volume(2));
    assert_eq!(reported(&mut life), volume(0));
    life.pass_times(1);
    assert_eq!(reported(&mut life), volume(1));
    // And one of after it.
    life.pass_times(4);
    (life, _) = life.again(false, |_| volume(9));
    assert_eq!(reported(&mut life), volume(2));
}

/// Which counters are written when usage is.
pub(crate) fn usage_written(
    upf: &mut Upf,
    recorder: &Recorder,
    now: SystemTime,
) -> BTreeMap<UsageSlot, RecordedUsage> {
    upf.record_usage(0, 100, now);
    let mut batch = Vec::new();
    recorder.take(&mut batch);
    let of_usage = changes(&batch).map(Result::unwrap).filter(|change| change.kind == Kind::Usage);
    let each = |change: Change<'_>| {
        Some((UsageSlot(u32::try_from(change.key).unwrap()), RecordedUsage::read(change.value?)?))
    };
    of_usage.filter_map(each).collect()
}

fn recorded_usage(life: &mut Life) -> Vec<Volume> {
    let written = usage_written(&mut life.rig.upf, &life.recorder, now());
    written.into_values().map(|recorded| recorded.volume).collect()
}

#[test]
fn usage_of_every_rule_is_written() {
    let mut life = Life::first();
    let mut request = SessionPlan::ipv4(7).establishment();
    request.urrs.push(Urr { id: UrrId(2), ..request.urrs[0].clone() });
    request.pdrs[1].urr_ids = vec![UrrId(2)];
    life.rig.upf.establish(&request, now()).unwrap();
    assert_eq!(recorded_usage(&mut life), [], "no packet has passed");
    life.rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 72)));
    let downlink_packets: u64 = recorded_usage(&mut life).iter().map(|volume| volume.downlink_packets).sum();
    assert_eq!(downlink_packets, 1);
    assert_eq!(recorded_usage(&mut life), [], "it is written already");
}

#[test]
fn usage_of_a_session_in_the_place_of_another_is_written() {
    let mut life = Life::first();
    for _ in 0..3 {
        let seid = life.rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap().seid;
        life.pass_times(2);
        assert_eq!(recorded_usage(&mut life), [volume(2)]);
        life.rig.upf.delete(seid, now()).unwrap();
    }
}

#[test]
fn what_a_modification_has_changed_is_kept() {
    let mut life = Life::first();
    let plan = SessionPlan::ipv4(7);
    let seid = life.rig.upf.establish(&plan.establishment(), now()).unwrap().seid;
    let mut peer = plan.peer;
    (peer.teid, peer.ipv4) = (Teid(9999), Some(v4("10.100.3.2")));
    let forwarding =
        kaido_n4::UpdateForwardingParameters { outer_header_creation: Some(peer), ..Default::default() };
    let update =
        UpdateFar { id: plan.downlink_far().id, forwarding: Some(forwarding), ..UpdateFar::default() };
    let request = Modification { update_fars: vec![update], ..Modification::default() };
    life.rig.upf.modify(seid, &request, now()).unwrap();
    (life, _) = life.again(true, |_| Volume::default());
    let sent = life.rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", 72)));
    // Ethernet, IPv4, UDP, four octets of GTP-U.
    assert_eq!(sent[0].1[46..50], 9999u32.to_be_bytes());
}

#[test]
fn what_cannot_be_had_any_more_is_refused_by_name_and_the_rest_goes_on() {
    let mut life = Life::first();
    let first = life.rig.upf.establish(&SessionPlan::ipv4(1).establishment(), now()).unwrap().seid;
    let second = life.rig.upf.establish(&SessionPlan::ipv4(2).establishment(), now()).unwrap().seid;
    life.read();
    // Two sessions with one tunnel, which no node has made.
    let of_first = life.kept[&0].clone();
    let twin = [&(second.0 & !0xffff_ffff | 7).to_le_bytes()[..], &of_first[8..]].concat();
    life.kept.insert(7, twin);
    let restored;
    (life, restored) = life.again(true, |_| Volume::default());
    assert_eq!((restored.restored, restored.refused.len()), (2, 1));
    assert!(restored.refused[0].1.to_string().contains("belongs to another session"));
    assert_eq!(life.rig.upf.len(), 2, "it is no session any more");
    assert_eq!(life.pass(1001, "10.60.0.1"), [true; 2]);
    assert_eq!(life.charged(first).len(), 1);
    let (life, restored) = life.again(true, |_| Volume::default());
    assert_eq!((restored.restored, life.rig.upf.len()), (1, 1), "it was recorded as gone");
}

#[test]
fn more_sessions_than_a_batch_go_on_and_a_bad_record_among_them_is_named() {
    let mut life = Life::first();
    let seids: Vec<Seid> = (0..950u32)
        .map(|n| {
            let mut plan = SessionPlan::ipv4(0);
            let [.., high, low] = n.to_be_bytes();
            plan.ue.ipv4 = Some(ChooseOr::Given([10, 60, high, low].into()));
            plan.local =
                LocalFTeid::Given(FTeid { teid: Teid(1000 + n), ipv4: Some(v4("10.100.3.1")), ipv6: None });
            life.rig.upf.establish(&plan.establishment(), now()).unwrap().seid
        })
        .collect();
    let restored;
    (life, restored) = life.again(true, |_| Volume::default());
    assert_eq!((restored.restored, restored.refused.len(), life.rig.upf.len()), (950, 0, 950));
    let listed = life.rig.upf.sessions(0, 1000).into_iter().map(|session| session.seid);
    assert_eq!(listed.collect::<Vec<_>>(), seids);
    for (teid, ue) in [(1000, "10.60.0.0"), (1255, "10.60.0.255"), (1256, "10.60.1.0"), (1949, "10.60.3.181")]
    {
        assert_eq!(life.pass(teid, ue), [true; 2], "{ue}");
    }
    life.read();
    // One in the second batch, and one in the last.
    for bad in [300, 949] {
        let mut rig = Rig::over(memory());
        let counters = rig.upf.claim_counters(in_use(&life.kept), |_| RecordedUsage::default());
        let mut restoration = rig.upf.restore(counters.unwrap());
        let resumed = restoration.resume_all(
            |each| {
                life.kept.iter().try_for_each(|(&number, value)| {
                    each(number, if number == bad { &value[..value.len() - 1] } else { value })
                })
            },
            |number, _| number,
            now(),
        );
        assert_eq!(resumed, Err(bad));
        // What fails while it is read is told as it is.
        let resumed = restoration.resume_all(|_| Err(77), |number, _| number, now());
        assert_eq!(resumed, Err(77));
    }
}

#[test]
fn octets_that_are_no_session_are_refused() {
    let mut life = Life::first();
    let counters = life.rig.upf.claim_counters(CountersInUse::default(), |_| RecordedUsage::default());
    let bad: [(u64, &[u8]); 3] = [(0, &[]), (0, &[0; 40]), (u64::MAX, &[1; 400])];
    for (number, record) in bad {
        assert_eq!(life.rig.upf.take_in_pfd(number, &record[..record.len().min(1)]), Err(NoSession));
    }
    let mut restoration = life.rig.upf.restore(counters.unwrap());
    for (number, record) in bad {
        let in_use = CountersInUse::of(|each| each(number, record), |number, _| number);
        assert_eq!(in_use.unwrap_err(), number);
        let resumed = restoration.resume_all(|each| each(number, record), |number, _| number, now());
        assert_eq!(resumed, Err(number));
    }
    assert_eq!(restoration.finish().restored, 0);
    assert!(life.rig.upf.is_empty());
}

/// What a node of this layout has written, one session a line, is what is written now: else a node that is upgraded would not know
/// its sessions. After a change of the layout write these anew with `KAIDO_RENEW=1`, and keep the old ones to be read.
#[test]
fn the_layout_of_a_recorded_session_stays() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/records");
    let now = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
    let mut life = Life::first();
    for mut request in shapes() {
        request.imsi = "262010000000001".parse().ok();
        request.inactivity_timer = Some(std::time::Duration::from_secs(60));
        // A TEID that the node chooses is another each time.
        for pdr in &mut request.pdrs {
            let is_choice = pdr.pdi.local_fteid.is_some_and(|local| local.given().is_none());
            if is_choice {
                pdr.pdi.local_fteid = SessionPlan::ipv4(4).uplink_pdr().pdi.local_fteid;
            }
        }
        life.rig.upf.establish(&request, now).unwrap();
    }
    life.read();
    let line =
        |record: &Vec<u8>| record[8..].iter().map(|octet| format!("{octet:02x}")).collect::<String>() + "\n";
    let written: String = life.kept.values().map(line).collect();
    let file = format!("{folder}/sessions-3.hex");
    if std::env::var_os("KAIDO_RENEW").is_some() {
        std::fs::write(&file, &written).unwrap();
    }
    assert_eq!(written, std::fs::read_to_string(file).unwrap());
    // What was written before counters came first, and before what reports concern did, is read as the same.
    for old in ["sessions-1.hex", "sessions-2.hex"] {
        let old = std::fs::read_to_string(format!("{folder}/{old}")).unwrap();
        assert_eq!(old.lines().count(), life.kept.len());
        for ((&number, record), line) in life.kept.iter().zip(old.lines()) {
            let octets = line.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            let octets = octets.map(|pair| u8::from_str_radix(pair, 16).unwrap());
            let old: Vec<u8> = record[..8].iter().copied().chain(octets).collect();
            assert_eq!(RecordedSession::read(number, &old), RecordedSession::read(number, record));
            let in_use = |record: &[u8]| CountersInUse::of(|each| each(number, record), |number, _| number);
            assert_eq!(in_use(&old), in_use(record));
            assert!(in_use(&[&record[..8], &[4]].concat()).is_err());
        }
    }
}

#[test]
fn what_a_followed_session_has_carried_goes_on_whatever_became_of_its_urrs() {
    let mut life = Life::first();
    life.rig.upf.follow_usage(true);
    let request = SessionPlan::ipv4(7).establishment();
    let seid = life.rig.upf.establish(&request, now()).unwrap().seid;
    life.pass_times(3);
    let urr_ids = Some(vec![UrrId(9)]);
    let change = Modification {
        remove_urrs: request.urrs.iter().map(|urr| urr.id).collect(),
        create_urrs: vec![Urr { id: UrrId(9), ..request.urrs[0].clone() }],
        update_pdrs: [1, 2]
            .map(|id| UpdatePdr { id: PdrId(id), urr_ids: urr_ids.clone(), ..UpdatePdr::default() })
            .to_vec(),
        ..Modification::default()
    };
    life.rig.upf.modify(seid, &change, now()).unwrap();
    life.pass_times(1);
    for more in 0..2 {
        (life, _) = life.again(true, |_| Volume::default());
        assert_eq!(life.rig.upf.usage_of(seid).unwrap().volume(), volume(4 + more));
        life.pass_times(1);
    }
    life.rig.upf.delete(seid, now()).unwrap();
    let ended = life.rig.upf.take_ended().unwrap();
    assert_eq!(ended.volume(), volume(6));
    life.read();
    assert!(life.offsets.is_empty(), "nobody asks any more");
    let seid = life.rig.upf.establish(&request, now()).unwrap().seid;
    life.rig.upf.modify(seid, &change, now()).unwrap();
    life.pass_times(1);
    life.rig.upf.follow_usage(false);
    life.read();
    assert!(life.offsets.is_empty());
    assert_eq!(life.rig.upf.restore_usage_offsets(0, &[0xff]), Err(NoSession));
}
