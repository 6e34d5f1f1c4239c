//! An endpoint after a restart, with what it recorded: its peers notice nothing.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use kaido_n4::{Seid, SessionEvent, UsageReportTrigger};
use kaido_pfcp::{Config, Endpoint, Instants, Limits, MsgType, NoRecord, Transmit};
use kaido_store::{Kind, Recorder, changes};

use crate::rig::{
    Reply, SMF, STRANGER, Scripted, answer_report, ask, config, cp_f_seid, create_far, due, group, ie,
    message, node_id, pdr_parts, send_from, setup, sound_establishment, usage,
};

const REPORT: u8 = MsgType::SessionReportRequest as u8;

/// An endpoint that is recorded, and what was recorded so far.
struct Life {
    upf: Endpoint<Scripted>,
    recorder: Recorder,
    kept: BTreeMap<(Kind, u64), Vec<u8>>,
    now: Instants,
    config: Config,
}

impl Life {
    fn first() -> Self {
        Self::with(config())
    }

    fn with(config: Config) -> Self {
        let (now, recorder) = (Instants::now(), Recorder::on());
        let mut upf = Endpoint::new(config.clone(), Scripted::default(), now);
        upf.record_by(&recorder);
        let mut life = Self { upf, recorder, kept: BTreeMap::new(), now, config };
        assert_eq!(ask(&mut life.upf, now, &setup(1)).cause(), 1);
        life
    }

    fn read(&mut self) {
        let mut batch = Vec::new();
        self.recorder.take(&mut batch);
        for change in changes(&batch).map(Result::unwrap) {
            match change.value {
                Some(value) => self.kept.insert((change.kind, change.key), value.to_vec()),
                None => self.kept.remove(&(change.kind, change.key)),
            };
        }
    }

    /// The process ends and starts again `after` a while; its service has its sessions.
    fn again(mut self, after: Duration) -> Self {
        self.read();
        let now = self.now.after(after);
        let mut upf = Endpoint::new(self.config.clone(), self.upf.service().clone(), now);
        upf.record_by(&self.recorder);
        for kind in Endpoint::<Scripted>::RECORDED {
            for (&(_, key), record) in self.kept.range((kind, 0)..=(kind, u64::MAX)) {
                upf.take_in(kind, key, record, now).unwrap();
            }
        }
        Self { upf, now, ..self }
    }

    fn establish(&mut self, sequence: u32) -> u64 {
        let reply = ask(&mut self.upf, self.now, &sound_establishment(sequence));
        assert_eq!(reply.cause(), 1);
        reply.up_seid()
    }

    fn report(&mut self, seid: u64, ur_seqn: u32) -> Vec<Transmit> {
        let reports = vec![usage(1, ur_seqn, UsageReportTrigger::VOLTH, self.now.wall)];
        self.upf.service_mut().events.push_back(SessionEvent::Usage { seid: Seid(seid), reports });
        self.reports()
    }

    fn reports(&mut self) -> Vec<Transmit> {
        let sent = due(&mut self.upf, self.now).into_iter();
        sent.filter(|transmit| Reply::read(&transmit.bytes).kind == REPORT).collect()
    }
}

/// Conformance: TS 29.244 6.4 | A request that comes again after a restart gets the same answer, and is not carried out twice
#[test]
fn a_request_that_comes_again_gets_the_same_answer() {
    let mut life = Life::first();
    let mut first = Vec::new();
    life.upf.handle(life.now, SMF, &sound_establishment(2), &mut first);
    let mut life = life.again(Duration::from_secs(1));
    let mut again = Vec::new();
    life.upf.handle(life.now, SMF, &sound_establishment(2), &mut again);
    assert_eq!(again, first);
    assert_eq!(life.upf.service().sessions.len(), 1);
    // Much later the number means another request.
    let mut life = life.again(Duration::from_secs(600));
    life.establish(2);
    assert_eq!(life.upf.service().sessions.len(), 2);
}

/// Numbers of answers go round: the newest is not the highest.
#[test]
fn answers_are_written_over_in_the_order_that_they_were_given() {
    let limits = Limits { answers: 8, ..Limits::default() };
    let mut life = Life::with(Config { limits, ..config() });
    let mut first = BTreeMap::new();
    for sequence in 2..40 {
        let mut out = Vec::new();
        life.upf.handle(life.now, SMF, &sound_establishment(sequence), &mut out);
        first.insert(sequence, out);
        life = life.again(Duration::from_millis(5));
        // The last eight are kept, less the set-up's.
        for (&sequence, first) in first.range(sequence.saturating_sub(6)..) {
            let mut again = Vec::new();
            life.upf.handle(life.now, SMF, &sound_establishment(sequence), &mut again);
            assert_eq!(&again, first, "{sequence}");
        }
    }
    assert_eq!(life.upf.service().sessions.len(), 38);
}

/// Those that no answer of a node with fewer sessions is written over are not kept for ever.
#[test]
fn answers_of_a_node_that_kept_more_are_forgotten_when_they_are_old() {
    let mut life = Life::with(Config { limits: Limits { answers: 16, ..Limits::default() }, ..config() });
    for sequence in 2..14 {
        life.establish(sequence);
    }
    life.config.limits.answers = 8;
    for (after, left) in [(1, 13), (600, 7)] {
        life = life.again(Duration::from_secs(after));
        life.read();
        assert_eq!(life.kept.keys().filter(|(kind, _)| *kind == Kind::Answer).count(), left);
    }
}

/// A control plane that started anew begins with the same numbers.
#[test]
fn answers_to_a_control_plane_that_started_anew_do_not_come_back() {
    let mut life = Life::first();
    let before = life.establish(2);
    let later = message(5, None, 1, &[node_id(), ie(96, &[0xe0, 0, 0, 2])].concat());
    assert_eq!(ask(&mut life.upf, life.now, &later).cause(), 1);
    let mut life = life.again(Duration::from_secs(1));
    let after = life.establish(2);
    assert_ne!(before, after, "the session of before is gone");
}

#[test]
fn associations_and_sessions_are_whose_they_were() {
    let mut life = Life::first();
    let seid = life.establish(2);
    let mut life = life.again(Duration::from_secs(60));
    let peers: Vec<_> = life.upf.peers().map(|peer| (peer.address, peer.sessions, peer.down)).collect();
    assert_eq!(peers, [(SMF, 1, false)]);
    let query = message(52, Some(seid), 3, &[]);
    // Cause 72: no association; to the peer, 1.
    assert_eq!(send_from(STRANGER, &mut life.upf, life.now, &query)[0].cause(), 72);
    assert_eq!(ask(&mut life.upf, life.now, &query).cause(), 1);
    let other = life.establish(4);
    assert_eq!(ask(&mut life.upf, life.now, &message(54, Some(seid), 5, &[])).cause(), 1);
    let mut life = life.again(Duration::from_secs(60));
    assert_eq!(life.upf.session_count(), 1, "what was deleted does not come back");
    assert_eq!(ask(&mut life.upf, life.now, &message(52, Some(other), 6, &[])).cause(), 1);
    // The release of the association is kept, too.
    assert_eq!(ask(&mut life.upf, life.now, &message(9, None, 7, &node_id())).cause(), 1);
    let life = life.again(Duration::from_secs(60));
    assert_eq!((life.upf.peers().count(), life.upf.session_count()), (0, 0));
}

/// Conformance: TS 29.244 6.4 | A report without an answer is sent again after a restart as the same request
#[test]
fn usage_on_its_way_is_sent_again_as_the_same_request() {
    let mut life = Life::first();
    let seid = life.establish(2);
    let first = life.report(seid, 0);
    assert_eq!(first.len(), 1);
    let mut life = life.again(Duration::from_secs(1));
    let again = life.reports();
    assert_eq!(again, first);
    answer_report(&mut life.upf, life.now, SMF, &Reply::read(&again[0].bytes), 1, &[]);
    let mut life = life.again(Duration::from_secs(1));
    assert_eq!(life.reports(), [], "it was acknowledged");
}

/// Sessions are deleted by and by, and a restart may come before the last.
#[test]
fn sessions_that_were_yet_to_be_deleted_are_not_those_of_a_new_association() {
    let mut life = Life::first();
    life.upf.service_mut().sessions_max = 1000;
    for sequence in 2..302 {
        life.establish(sequence);
    }
    assert_eq!(ask(&mut life.upf, life.now, &message(9, None, 400, &node_id())).cause(), 1);
    let left = life.upf.session_count();
    assert!(left > 0);
    let mut life = life.again(Duration::from_secs(60));
    assert_eq!((life.upf.session_count(), life.upf.peers().count()), (left, 0));
    assert_eq!(ask(&mut life.upf, life.now, &setup(401)).cause(), 1);
    for _ in 0..5 {
        due(&mut life.upf, life.now);
    }
    assert!(!life.upf.has_more());
    assert_eq!((life.upf.session_count(), life.upf.peers().next().unwrap().sessions), (0, 0));
}

/// Conformance: TS 29.244 7.4.6 | A restart before the last session of a set is deleted deletes the rest, and keeps what came later
#[test]
fn a_set_deletion_goes_on_after_a_restart() {
    let set = ie(65, &[1, 10, 9, 0, 1, 0, 7]);
    let of_set = |sequence: u32| {
        let [.., high, low] = sequence.to_be_bytes();
        let ue = [ie(20, &[1]), ie(93, &[6, 10, 61, high, low])].concat();
        let mut parts = pdr_parts(1, 1);
        parts[2].1 = ue;
        let rules = [group(1, &parts), create_far(1), ie(65, &[1, 10, 9, 0, 1, 0, 7])].concat();
        message(50, Some(0), sequence, &[node_id(), cp_f_seid(sequence.into()), rules].concat())
    };
    let mut life = Life::first();
    life.upf.service_mut().sessions_max = 1000;
    for sequence in 2..402 {
        assert_eq!(ask(&mut life.upf, life.now, &of_set(sequence)).cause(), 1);
    }
    let joins = life.establish(500);
    let delete = message(14, None, 501, &[node_id(), set.clone()].concat());
    assert_eq!(ask(&mut life.upf, life.now, &delete).cause(), 1);
    assert_eq!(ask(&mut life.upf, life.now, &message(52, Some(joins), 502, &set)).cause(), 1);
    let made = ask(&mut life.upf, life.now, &of_set(503)).up_seid();
    assert!(life.upf.session_count() > 200);
    // Once more in the middle.
    let mut life = life.again(Duration::from_secs(60));
    due(&mut life.upf, life.now);
    let left = life.upf.session_count();
    assert!(life.upf.has_more() && left > 2, "{left}");
    let mut life = life.again(Duration::from_secs(1));
    while life.upf.has_more() {
        due(&mut life.upf, life.now);
    }
    let left: Vec<_> = life.upf.service().sessions.keys().map(|seid| seid.0).collect();
    assert_eq!((left, life.upf.session_count()), (vec![joins, made], 2));
    life.read();
    assert!(life.kept.keys().all(|(kind, _)| *kind != Kind::Selection), "it is over");
    // Another gets another number.
    assert_eq!(ask(&mut life.upf, life.now, &message(14, None, 504, &[node_id(), set].concat())).cause(), 1);
    let mut life = life.again(Duration::ZERO);
    while life.upf.has_more() {
        due(&mut life.upf, life.now);
    }
    assert_eq!(life.upf.session_count(), 0);
}

#[test]
fn usage_that_is_held_is_told_after_a_restart() {
    let mut life = Life::first();
    let seid = life.establish(2);
    life.report(seid, 0);
    for _ in 0..13 {
        life.now = life.now.after(Duration::from_secs(1));
        due(&mut life.upf, life.now);
    }
    assert_eq!(life.upf.service().held[&Seid(seid)].len(), 1);
    let mut life = life.again(Duration::from_secs(1));
    let told = life.reports();
    assert_eq!(told.len(), 1, "the peer may answer now");
    assert!(life.upf.service().held.is_empty());
}

#[test]
fn a_session_that_the_service_has_not_is_nobodys() {
    let mut life = Life::first();
    let seid = life.establish(2);
    life.upf.service_mut().sessions.remove(&Seid(seid));
    let mut life = life.again(Duration::ZERO);
    assert_eq!(life.upf.session_count(), 0);
    assert_eq!(ask(&mut life.upf, life.now, &message(52, Some(seid), 3, &[])).cause(), 65);
}

#[test]
fn octets_that_are_no_record_are_refused() {
    let mut life = Life::first();
    for kind in Kind::ALL {
        assert_eq!(life.upf.take_in(kind, 9, &[0xff; 30], life.now), Err(NoRecord), "{kind:?}");
        assert_eq!(life.upf.take_in(kind, u64::MAX, &[], life.now), Err(NoRecord), "{kind:?}");
    }
    assert_eq!((life.upf.peers().count(), life.upf.outstanding()), (1, 0));
}
