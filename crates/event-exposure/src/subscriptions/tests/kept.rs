//! What is kept of subscriptions, and restored after a restart.

use super::*;
use crate::Api;

/// Keeps records in memory.
#[derive(Clone, Debug, Default)]
struct Records(BTreeMap<(KeptPart, u64), Vec<u8>>);

impl Keeper for Records {
    fn put(&mut self, part: KeptPart, number: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let mut record = Vec::new();
        write(&mut record);
        self.0.insert((part, number), record);
    }

    fn remove(&mut self, part: KeptPart, number: u64) {
        self.0.remove(&(part, number));
    }
}

impl Records {
    fn all(&self) -> Vec<KeptSubscription> {
        let of = |(&(_, number), record): (_, &Vec<u8>)| KeptSubscription {
            number,
            subscription: record.clone(),
            baseline: self.0.get(&(KeptPart::Baseline, number)).cloned(),
        };
        self.0.iter().filter(|((part, _), _)| *part == KeptPart::Subscription).map(of).collect()
    }
}

impl Rig {
    fn keep(&mut self, records: &mut Records) {
        self.subscriptions.keep(records, self.now());
    }

    /// Another process, with what was kept.
    fn restart(&mut self, records: &mut Records) -> Vec<Result<(), NotRestored>> {
        self.restart_for(records, |address| address.is_loopback())
    }

    fn restart_for(
        &mut self,
        records: &mut Records,
        allows: fn(IpAddr) -> bool,
    ) -> Vec<Result<(), NotRestored>> {
        self.subscriptions = Subscriptions::new(self.subscriptions.limits);
        let consumers = Arc::new(Consumers::new(allows, false));
        let (api, _) = Api::new(consumers, |text| Some(text.to_owned()), || ());
        let now = self.now();
        let restored = records
            .all()
            .iter()
            .map(|kept| api.restore(kept, &mut self.subscriptions, &mut self.sessions, now))
            .collect();
        self.keep(records);
        restored
    }

    /// Killed behind this turn.
    fn kill(&mut self, records: &mut Records) {
        self.keep(records);
        assert!(self.restart(records).iter().all(Result::is_ok));
    }
}

fn of(ue: &Value, mode: Value) -> Value {
    let mut more = ue.clone();
    more["eventReportingMode"] = mode;
    more
}

#[test]
fn a_subscription_goes_on_where_it_was() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    let mode = json!({"trigger": "PERIODIC", "repPeriod": 10, "maxReports": 3});
    let created = rig.create(&of(&of_ue(), mode));
    rig.sessions.pass(1, volume(3, 2));
    let first = rig.after(10_000);
    rig.answer(&first, true);
    rig.after(0);
    rig.sessions.pass(1, volume(1, 0));
    rig.keep(&mut records);
    rig.milliseconds += 3000;
    rig.sessions.pass(1, volume(0, 1));
    assert_eq!(rig.restart(&mut records), [Ok(())]);
    let (document, _) = rig.subscriptions.document(&created.id, "a").unwrap();
    assert_eq!(document, created.document);
    assert!(rig.subscriptions.document(&created.id, "b").is_err(), "it is another consumer's");
    assert!(rig.after(6_999).is_empty(), "its period is what it was");
    let next = rig.after(1);
    assert_eq!(next[0].octets(), one(200), "what came before the kill, and since");
    assert_eq!(next[0].items[0]["startTime"], first[0].items[0]["timeStamp"]);
    rig.answer(&next, true);
    rig.kill(&mut records);
    assert_eq!(rig.octets_after(10_000).len(), 1);
    assert!(rig.subscriptions.is_empty(), "that was the third report");
    rig.keep(&mut records);
    assert!(records.0.is_empty());
}

#[test]
fn what_has_ended_does_not_come_back() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    let mode = json!({"trigger": "PERIODIC", "repPeriod": 10, "expiry": "2027-01-15T08:01:05Z"});
    let [deleted, expires] = [(); 2].map(|()| rig.create(&of(&of_ue(), mode.clone())));
    rig.kill(&mut records);
    assert_eq!(records.all().len(), 2);
    rig.subscriptions.delete(&deleted.id, "a").unwrap();
    rig.kill(&mut records);
    assert!(rig.subscriptions.document(&deleted.id, "a").is_err());
    assert!(rig.subscriptions.document(&expires.id, "a").is_ok());
    rig.milliseconds = 65_000;
    assert_eq!(rig.restart(&mut records), [Err(NotRestored::Expired)]);
    assert!(records.0.is_empty());
    let created = rig.create(&of_ue());
    rig.kill(&mut records);
    assert!(rig.subscriptions.document(&created.id, "a").is_ok());
}

#[test]
fn a_modified_subscription_is_kept_as_it_is_now() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    let created = rig.create(&of_ue());
    rig.keep(&mut records);
    let wanted = wanted(&of(&of_ue(), json!({"trigger": "PERIODIC", "repPeriod": 5}))).unwrap();
    let now = rig.now();
    assert!(rig.subscriptions.modify(&created.id, "a", 0, wanted, now).unwrap());
    rig.kill(&mut records);
    let (document, _) = rig.subscriptions.document(&created.id, "a").unwrap();
    assert_eq!(document["eventReportingMode"]["repPeriod"], 5);
    assert_eq!(rig.octets_after(5000), one(0));
}

#[test]
fn what_was_acknowledged_is_not_told_again_and_the_rest_is() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    rig.create(&of_ue());
    rig.sessions.pass(1, volume(3, 2));
    let lost = rig.after(10_000);
    rig.kill(&mut records);
    let again = rig.after(10_000);
    assert_eq!(again[0].octets(), one(500), "nobody has acknowledged it");
    assert_eq!(again[0].items[0]["startTime"], lost[0].items[0]["startTime"]);
    rig.answer(&again, true);
    rig.kill(&mut records);
    assert_eq!(rig.octets_after(10_000), one(0));
}

#[test]
fn one_report_that_was_acknowledged_is_not_made_again() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    rig.create(&of(&of_ue(), json!({"trigger": "ONE_TIME"})));
    let told = rig.after(0);
    assert_eq!(told.len(), 1);
    rig.answer(&told, true);
    rig.kill(&mut records);
    assert!(rig.subscriptions.is_empty() && records.0.is_empty());
}

#[test]
fn reports_that_were_due_meanwhile_are_one() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    rig.create(&of_ue());
    rig.keep(&mut records);
    rig.milliseconds += 34_000;
    rig.sessions.pass(1, volume(4, 0));
    assert_eq!(rig.restart(&mut records), [Ok(())]);
    assert_eq!(rig.octets_after(0), one(400));
    assert!(rig.after(5_999).is_empty());
    assert_eq!(rig.octets_after(1), one(0), "periods do not shift");
    // A clock that was set back makes nobody wait.
    let created = rig.create(&of(&of_ue(), json!({"trigger": "ONE_TIME", "repPeriod": 20})));
    rig.keep(&mut records);
    rig.began += Duration::from_secs(15);
    rig.milliseconds -= 15_000;
    assert_eq!(rig.restart(&mut records).len(), 2);
    assert!(rig.subscriptions.document(&created.id, "a").is_ok());
    assert_eq!(rig.octets_after(20_000), one(0));
    assert!(rig.subscriptions.document(&created.id, "a").is_err());
}

#[test]
fn a_session_that_has_ended_is_told_of_after_a_restart() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    rig.create(&of_ue());
    rig.sessions.pass(1, volume(3, 2));
    let last = rig.sessions.end(1);
    rig.subscriptions.session_ended(last);
    rig.kill(&mut records);
    let lost = rig.after(10_000);
    assert_eq!(lost[0].octets(), one(500));
    rig.kill(&mut records);
    assert_eq!(rig.octets_after(10_000), one(500), "nobody has acknowledged it");
    rig.kill(&mut records);
    assert!(rig.octets_after(10_000).is_empty());
    assert_eq!(rig.subscriptions.counts().lost, 0);
}

#[test]
fn a_session_that_is_gone_unnoticed_is_counted_as_lost() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    rig.create(&of_ue());
    rig.keep(&mut records);
    rig.sessions.end(1);
    assert_eq!(rig.restart(&mut records), [Ok(())]);
    assert_eq!(rig.subscriptions.counts().lost, 1);
    rig.kill(&mut records);
    assert_eq!(rig.subscriptions.counts().lost, 0, "once");
}

#[test]
fn counters_that_have_lost_something_tell_nothing_twice() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    rig.create(&of_ue());
    rig.sessions.pass(1, volume(9, 9));
    assert_eq!(rig.octets_after(10_000), one(1800));
    rig.keep(&mut records);
    rig.sessions.places[0].as_mut().unwrap().whole = volume(7, 9);
    assert_eq!(rig.restart(&mut records), [Ok(())]);
    rig.sessions.pass(1, volume(3, 0));
    assert_eq!(rig.octets_after(10_000), one(300));
}

#[test]
fn flows_go_on_where_they_were() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    let flow = Scope::Flow(vec!["permit out 17 from any to assigned".to_owned()]);
    rig.sessions.places[0].as_mut().unwrap().parts = vec![(flow, volume(5, 0))];
    let event = |granularity: &str| {
        json!({"eventList": [{
            "type": "USER_DATA_USAGE_MEASURES", "measurementTypes": ["VOLUME_MEASUREMENT"],
            "granularityOfMeasurement": granularity,
        }], "ueIpAddress": {"ipv4Addr": UE}})
    };
    rig.create(&event("PER_FLOW"));
    let whole = rig.create(&event("PER_SESSION"));
    rig.sessions.pass(1, volume(2, 0));
    rig.kill(&mut records);
    rig.sessions.pass(1, volume(1, 0));
    let wanted = wanted(&event("PER_FLOW")).unwrap();
    let now = rig.now();
    assert!(rig.subscriptions.modify(&whole.id, "a", 0, wanted, now).unwrap());
    let told = rig.after(10_000);
    let octets: Vec<_> = told.iter().map(Told::octets).collect();
    assert_eq!(octets, [one(300), one(100)], "of the other flows were not kept");
}

#[test]
fn of_any_ue_sessions_count_from_the_restart() {
    let (mut rig, mut records) = (Rig::of(200), Records::default());
    let mode = json!({"trigger": "PERIODIC", "repPeriod": 10, "maxReports": 2});
    rig.create(&of(&json!({"anyUe": true}), mode));
    rig.after(0);
    rig.sessions.pass(1, volume(3, 2));
    assert_eq!(rig.octets_after(10_000), one(500));
    rig.sessions.pass(1, volume(4, 0));
    rig.kill(&mut records);
    let len: usize = records.0.values().map(Vec::len).sum();
    assert!(len < 1000, "{len}");
    rig.after(0);
    rig.sessions.pass(1, volume(1, 0));
    assert_eq!(rig.octets_after(10_000), one(100));
    assert!(rig.subscriptions.is_empty(), "the second report was the last");
}

#[test]
fn of_a_subscriber_sessions_that_have_begun_are_known() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    rig.create(&json!({"supi": "imsi-000000000000001"}));
    rig.after(0);
    rig.sessions.add(2);
    rig.sessions.places[1].as_mut().unwrap().supi = Some("imsi-000000000000001".to_owned());
    let now = rig.now();
    rig.subscriptions.session_began(SessionId(2), &mut rig.sessions, now);
    rig.kill(&mut records);
    rig.sessions.pass(2, volume(2, 0));
    rig.sessions.pass(1, volume(1, 0));
    let octets = rig.octets_after(10_000);
    assert_eq!(octets.values().copied().collect::<Vec<_>>(), [100, 200]);
}

#[test]
fn what_may_not_be_any_more_ends() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    (0..3).for_each(|_| drop(rig.create(&of_ue())));
    rig.keep(&mut records);
    rig.subscriptions.limits.subscriptions_max = 2;
    let restored = rig.restart(&mut records);
    assert!(
        matches!(&restored[..], [Ok(()), Ok(()), Err(NotRestored::Refused(why))] if why.contains("_max"))
    );
    assert_eq!((records.all().len(), rig.subscriptions.len()), (2, 2));
    let restored = rig.restart_for(&mut records, |_| false);
    let of_consumers =
        |of: &_| matches!(of, Err(NotRestored::Refused(why)) if why.contains("event_exposure.consumers"));
    assert!(restored.iter().all(of_consumers), "{restored:?}");
    assert!(records.0.is_empty());
}

#[test]
fn a_record_that_cannot_be_read_is_left() {
    let (mut rig, mut records) = (Rig::of(1), Records::default());
    let created = rig.create(&of_ue());
    rig.sessions.pass(1, volume(9, 0));
    rig.keep(&mut records);
    let whole = records.clone();
    let at = (KeptPart::Subscription, 0);
    for len in 0..whole.0[&at].len() {
        records.0.get_mut(&at).unwrap().truncate(len);
        let damaged = records.0.clone();
        assert_eq!(rig.restart(&mut records), [Err(NotRestored::Unreadable)], "{len}");
        assert_eq!(records.0, damaged);
        records = whole.clone();
    }
    records.0.get_mut(&at).unwrap()[0] = 2;
    assert_eq!(rig.restart(&mut records), [Err(NotRestored::Unreadable)], "of a later version");
    rig.create(&of_ue());
    rig.keep(&mut records);
    assert_eq!(
        records.all().iter().map(|kept| kept.number).collect::<Vec<_>>(),
        [0, 1],
        "nobody has its number"
    );
    records = whole;
    records.0.get_mut(&(KeptPart::Baseline, 0)).unwrap()[0] = 2;
    assert_eq!(rig.restart(&mut records), [Ok(())]);
    assert!(rig.subscriptions.document(&created.id, "a").is_ok());
    rig.sessions.pass(1, volume(1, 0));
    assert_eq!(rig.octets_after(10_000), one(100), "what was told is not known: it counts from now on");
}

/// What happens to the session, or a kill.
fn event_or_kill() -> impl Strategy<Value = Option<Event>> {
    prop_oneof![8 => event().prop_map(Some), 2 => Just(None)]
}

impl Rig {
    /// The session carries packets, or ends, if it is there; says how many octets have passed.
    fn happen(&mut self, event: &Event) -> u64 {
        let is_there = self.sessions.places[0].is_some();
        match event {
            Event::Pass(1, packets) if is_there => {
                self.sessions.pass(1, volume(*packets, 0));
                packets * 100
            }
            Event::End(1) if is_there => {
                let last = self.sessions.end(1);
                self.subscriptions.session_ended(last);
                0
            }
            _ => 0,
        }
    }
}

proptest! {
    /// Whatever is lost, and whenever the node is killed: in the end the consumer has each octet once.
    #[test]
    fn no_octet_is_lost_or_told_twice_over_kills(events in proptest::collection::vec(event_or_kill(), 0..60), has_threshold in any::<bool>()) {
        let (mut rig, mut records) = (Rig::of(1), Records::default());
        let threshold = json!({"trigger": "ON_EVENT_DETECTION", "volumeThreshold": {"ulVolume": "700 B"}});
        let periodic = json!({"trigger": "PERIODIC", "repPeriod": 10});
        rig.create(&of(&of_ue(), if has_threshold { threshold } else { periodic }));
        let (mut on_way, mut passed, mut heard) = (Vec::new(), 0, 0);
        let octets = |told: &[Told]| told.iter().flat_map(Told::octets).map(|(_, octets)| octets).sum::<u64>();
        for event in events.into_iter().chain([Some(Event::End(1))]) {
            match event {
                Some(Event::After(milliseconds)) => on_way.extend(rig.after(milliseconds)),
                Some(Event::Answer(is_acknowledged)) if !on_way.is_empty() => {
                    let first = [on_way.remove(0)];
                    rig.answer(&first, is_acknowledged);
                    heard += if is_acknowledged { octets(&first) } else { 0 };
                }
                Some(event) => passed += rig.happen(&event),
                None => {
                    rig.kill(&mut records);
                    on_way.clear();
                }
            }
        }
        for _ in 0..4 {
            rig.answer(&on_way, true);
            heard += octets(&on_way);
            rig.kill(&mut records);
            on_way = rig.after(11_000);
        }
        prop_assert_eq!(heard, passed);
    }

    #[test]
    fn any_octets_are_read(subscription in proptest::collection::vec(any::<u8>(), 0..60), baseline in proptest::collection::vec(any::<u8>(), 0..60)) {
        let (mut rig, mut records) = (Rig::of(1), Records::default());
        rig.create(&of_ue());
        rig.keep(&mut records);
        let version = |octets: &[u8]| [&[1], octets].concat();
        records.0.insert((KeptPart::Baseline, 0), version(&baseline));
        records.0.insert((KeptPart::Subscription, 1), version(&subscription));
        let restored = rig.restart(&mut records);
        prop_assert!(restored[0].is_ok());
        let _ = rig.octets_after(10_000);
    }
}
