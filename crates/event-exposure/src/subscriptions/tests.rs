//! Subscriptions under a clock of their own, over sessions that are a list.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kaido_n4::Volume;
use proptest::prelude::*;

use super::*;
use crate::request;
use crate::target::Consumers;
use crate::usage::{Scope, UeAddress};

mod kept;

const UE: &str = "10.60.0.1";

/// Sessions of a node.
#[derive(Debug, Default)]
struct Sessions {
    places: Vec<Option<SessionVolumes>>,
    reads: usize,
}

fn volume(uplink: u64, downlink: u64) -> Volume {
    Volume {
        uplink_bytes: uplink * 100,
        downlink_bytes: downlink * 100,
        uplink_packets: uplink,
        downlink_packets: downlink,
    }
}

fn session(number: u64) -> SessionVolumes {
    let ipv4 = u32::from_be_bytes([10, 60, 0, 0]) + u32::try_from(number).unwrap();
    SessionVolumes {
        session: SessionId(number),
        ue: UeAddress { ipv4: Some(ipv4.into()), ..UeAddress::default() },
        supi: Some(format!("imsi-{number:015}")),
        dnns: vec![if number.is_multiple_of(2) { "ims" } else { "internet" }.to_owned()],
        whole: Volume::default(),
        parts: Vec::new(),
        counted: Some(Volume::default()),
    }
}

impl Sessions {
    fn of(count: u64) -> Self {
        Self { places: (1..=count).map(|number| Some(session(number))).collect(), reads: 0 }
    }

    fn add(&mut self, number: u64) {
        self.places.push(Some(session(number)));
    }

    fn pass(&mut self, number: u64, more: Volume) {
        let found = self.places.iter_mut().flatten().find(|of| of.session.0 == number).unwrap();
        let plus = |of: &Volume| Volume {
            uplink_bytes: of.uplink_bytes + more.uplink_bytes,
            downlink_bytes: of.downlink_bytes + more.downlink_bytes,
            uplink_packets: of.uplink_packets + more.uplink_packets,
            downlink_packets: of.downlink_packets + more.downlink_packets,
        };
        found.whole = plus(&found.whole);
        found.counted = Some(found.whole);
        for (_, part) in &mut found.parts {
            *part = plus(part);
        }
    }

    fn end(&mut self, number: u64) -> SessionVolumes {
        let place = self.places.iter_mut().find(|of| of.as_ref().is_some_and(|of| of.session.0 == number));
        place.unwrap().take().unwrap()
    }
}

impl UsageSource for Sessions {
    fn of_address(&mut self, address: IpAddr, limit: usize) -> Vec<SessionId> {
        let has = |of: &&SessionVolumes| of.ue.ipv4.map(IpAddr::V4) == Some(address);
        self.places.iter().flatten().filter(has).map(|of| of.session).take(limit).collect()
    }

    fn read(&mut self, session: SessionId) -> Option<SessionVolumes> {
        self.reads += 1;
        self.places.iter().flatten().find(|of| of.session == session).cloned()
    }

    fn supi(&mut self, session: SessionId) -> Option<String> {
        self.places.iter().flatten().find(|of| of.session == session)?.supi.clone()
    }

    fn places(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap()
    }

    fn counted(&mut self, place: u32) -> Option<(SessionId, Option<Volume>)> {
        self.places[place as usize].as_ref().map(|of| (of.session, of.counted))
    }
}

/// Subscriptions, and the time.
struct Rig {
    subscriptions: Subscriptions,
    sessions: Sessions,
    began: Instant,
    milliseconds: u64,
}

/// What a notification says.
#[derive(Debug)]
struct Told {
    notification: Notification,
    items: Vec<Value>,
}

impl Told {
    /// Octets by UE.
    fn octets(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for item in &self.items {
            for measured in item["userDataUsageMeasurements"].as_array().unwrap() {
                let text = measured["volumeMeasurement"]["totalVolume"].as_str().unwrap();
                let octets: u64 = text.strip_suffix(" B").unwrap().parse().unwrap();
                *all.entry(item["ueIpv4Addr"].as_str().unwrap().to_owned()).or_default() += octets;
            }
        }
        all
    }
}

impl Rig {
    fn of(sessions: u64) -> Self {
        let limits = Limits { subscriptions_max: 8, lifetime_max: Duration::from_secs(3600) };
        let (subscriptions, sessions) = (Subscriptions::new(limits), Sessions::of(sessions));
        Self { subscriptions, sessions, began: Instant::now(), milliseconds: 0 }
    }

    fn now(&self) -> Now {
        let since = Duration::from_millis(self.milliseconds);
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + since;
        Now { monotonic: self.began + since, wall }
    }

    fn try_create(&mut self, more: &Value) -> Result<Created, Problem> {
        let wanted = wanted(more)?;
        let now = self.now();
        self.subscriptions.create(wanted, "a".into(), &mut self.sessions, now)
    }

    fn create(&mut self, more: &Value) -> Created {
        self.try_create(more).unwrap()
    }

    /// Goes on in time, and takes what is to be sent.
    fn after(&mut self, milliseconds: u64) -> Vec<Told> {
        self.milliseconds += milliseconds;
        let (now, mut out) = (self.now(), Vec::new());
        loop {
            self.subscriptions.turn(&mut self.sessions, now, &mut out);
            if !self.subscriptions.is_behind() {
                break;
            }
        }
        let items = |of: &Notification| {
            let body: Value = serde_json::from_slice(&of.body).unwrap();
            assert_eq!(body["correlationId"], "c");
            body["notificationItems"].as_array().unwrap().clone()
        };
        out.into_iter().map(|notification| Told { items: items(&notification), notification }).collect()
    }

    fn answer(&mut self, told: &[Told], is_acknowledged: bool) {
        for told in told {
            self.subscriptions.outcome(told.notification.outcome(is_acknowledged));
        }
    }

    /// As [`Self::after`], with all of it acknowledged, and all octets.
    fn octets_after(&mut self, milliseconds: u64) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        let mut told = self.after(milliseconds);
        while !told.is_empty() {
            for (ue, octets) in told.iter().flat_map(Told::octets) {
                *all.entry(ue).or_default() += octets;
            }
            self.answer(&told, true);
            told = self.after(0);
        }
        all
    }
}

fn wanted(more: &Value) -> Result<Subscription, Problem> {
    let mut document = json!({
        "eventList": [{
            "type": "USER_DATA_USAGE_MEASURES",
            "measurementTypes": ["VOLUME_MEASUREMENT"],
            "granularityOfMeasurement": "PER_SESSION",
        }],
        "eventNotifyUri": "http://127.0.0.1:8080/notify",
        "notifyCorrelationId": "c",
        "eventReportingMode": {"trigger": "PERIODIC", "repPeriod": 10},
        "nfId": "11111111-2222-3333-4444-555555555555",
    });
    for (name, value) in more.as_object().unwrap() {
        document[name] = value.clone();
    }
    let consumers = Consumers::new(|address| address.is_loopback(), false);
    let body = json!({"subscription": document}).to_string();
    request::create(body.as_bytes(), &consumers, &|text| Some(text.to_owned()))
}

fn of_ue() -> Value {
    json!({"ueIpAddress": {"ipv4Addr": UE}})
}

fn one(octets: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(UE.to_owned(), octets)])
}

/// Conformance: TS 29.564 5.2.1.3.3 | User data usage of a session, periodically: what came since the last report
#[test]
fn each_report_has_what_came_since_the_last() {
    let mut rig = Rig::of(2);
    rig.sessions.pass(1, volume(100, 100));
    rig.create(&of_ue());
    rig.sessions.pass(1, volume(3, 2));
    rig.sessions.pass(2, volume(9, 9));
    assert!(rig.after(9_999).is_empty());
    let told = rig.after(1);
    let item = &told[0].items[0];
    assert_eq!(item["startTime"], "2027-01-15T08:00:00.000Z");
    assert_eq!(item["timeStamp"], "2027-01-15T08:00:10.000Z");
    assert_eq!(
        (item["supi"].as_str(), item["dnn"].as_str()),
        (Some("imsi-000000000000001"), Some("internet"))
    );
    let measured = &item["userDataUsageMeasurements"][0]["volumeMeasurement"];
    assert_eq!(
        *measured,
        json!({"totalVolume": "500 B", "ulVolume": "300 B", "dlVolume": "200 B",
            "totalNbOfPackets": 5, "ulNbOfPackets": 3, "dlNbOfPackets": 2})
    );
    rig.answer(&told, true);
    rig.sessions.pass(1, volume(1, 0));
    assert_eq!(rig.octets_after(10_000), one(100));
    assert_eq!(rig.octets_after(10_000), one(0), "a period without packets is told of, too");
}

#[test]
fn what_a_lost_notification_had_is_in_the_next() {
    let mut rig = Rig::of(1);
    rig.create(&of_ue());
    rig.sessions.pass(1, volume(3, 2));
    let lost = rig.after(10_000);
    assert_eq!(lost[0].octets(), one(500));
    rig.sessions.pass(1, volume(1, 0));
    assert!(rig.after(10_000).is_empty(), "nothing leaves while it is not known what became of the last");
    rig.answer(&lost, false);
    let next = rig.after(0);
    assert_eq!(next[0].octets(), one(600));
    assert_eq!(next[0].items[0]["startTime"], lost[0].items[0]["startTime"]);
    rig.answer(&next, true);
    assert_eq!(rig.octets_after(10_000), one(0));
    let Counts { acknowledged, failed, lost, .. } = rig.subscriptions.counts();
    assert_eq!((acknowledged, failed, lost), (2, 1, 0));
}

#[test]
fn a_session_that_ends_is_told_of_once_more() {
    let mut rig = Rig::of(1);
    rig.create(&of_ue());
    rig.sessions.pass(1, volume(3, 2));
    let told = rig.after(10_000);
    rig.sessions.pass(1, volume(1, 1));
    let last = rig.sessions.end(1);
    rig.subscriptions.session_ended(last);
    rig.answer(&told, true);
    let last = rig.after(10_000);
    assert_eq!(last[0].octets(), one(200));
    rig.answer(&last, false);
    rig.sessions.add(1);
    rig.sessions.places.last_mut().unwrap().as_mut().unwrap().session = SessionId(77);
    rig.sessions.pass(77, volume(5, 0));
    assert_eq!(rig.octets_after(10_000), one(700), "the last of the one, and all of another at its address");
    assert_eq!(rig.octets_after(10_000), one(0));
}

#[test]
fn reports_and_time_are_bounded() {
    let mut rig = Rig::of(1);
    let mut more = of_ue();
    more["eventReportingMode"] = json!({"trigger": "PERIODIC", "repPeriod": 10, "maxReports": 2});
    rig.create(&more);
    let lost = rig.after(10_000);
    rig.answer(&lost, false);
    for _ in 0..2 {
        assert_eq!(rig.octets_after(10_000).len(), 1, "one that nobody has taken is none");
    }
    assert!(rig.subscriptions.is_empty());
    more["eventReportingMode"] =
        json!({"trigger": "PERIODIC", "repPeriod": 10, "expiry": "2027-01-15T08:01:05Z"});
    let created = rig.create(&more);
    assert_eq!(created.document["eventReportingMode"]["expiry"], "2027-01-15T08:01:05.000Z");
    assert_eq!(rig.octets_after(10_000).len(), 1);
    assert_eq!(rig.subscriptions.counts().subscriptions, 1);
    assert!(rig.octets_after(40_000).is_empty());
    assert!(rig.subscriptions.is_empty());
    more["eventReportingMode"]["expiry"] = json!("2027-01-15T08:00:05Z");
    assert_eq!(rig.try_create(&more).unwrap_err().cause, Some("OPTIONAL_IE_INCORRECT"));
    more["eventReportingMode"] = json!({"trigger": "PERIODIC", "repPeriod": 10});
    let created = rig.create(&more);
    let last = created.document["eventReportingMode"]["expiry"].as_str().map(time::parse);
    assert_eq!(last, Some(Some(rig.now().wall + Duration::from_secs(3600))), "none lasts for ever");
    while rig.try_create(&more).is_ok() {}
    assert_eq!(rig.subscriptions.counts().subscriptions, 8);
    assert_eq!(rig.try_create(&more).unwrap_err().cause, Some("INSUFFICIENT_RESOURCES"));
}

#[test]
fn a_threshold_is_told_when_it_is_reached() {
    let mut rig = Rig::of(1);
    let mut more = of_ue();
    more["eventReportingMode"] =
        json!({"trigger": "ON_EVENT_DETECTION", "volumeThreshold": {"totalVolume": "1 kB"}});
    rig.create(&more);
    rig.sessions.pass(1, volume(5, 4));
    assert!(rig.after(60_000).is_empty());
    rig.sessions.pass(1, volume(0, 2));
    let told = rig.after(100);
    assert_eq!(told[0].octets(), one(1100));
    rig.answer(&told, false);
    rig.sessions.pass(1, volume(1, 0));
    assert_eq!(rig.octets_after(100), one(1200));
    rig.sessions.pass(1, volume(9, 0));
    assert!(rig.after(100).is_empty());
    let last = rig.sessions.end(1);
    rig.subscriptions.session_ended(last);
    assert_eq!(rig.octets_after(100), one(900), "the last of a session is told of whatever it is");
}

#[test]
fn one_report_is_made_until_somebody_takes_it() {
    let mut rig = Rig::of(1);
    rig.sessions.pass(1, volume(4, 4));
    let mut more = of_ue();
    more["eventReportingMode"] = json!({"trigger": "ONE_TIME"});
    rig.create(&more);
    let told = rig.after(0);
    assert_eq!(told[0].octets(), one(800), "what it has carried since it began");
    assert_eq!(told[0].items[0].get("startTime"), None);
    rig.answer(&told, false);
    assert!(rig.after(0).is_empty());
    assert!(rig.after(9_999).is_empty());
    assert_eq!(rig.octets_after(1), one(800));
    assert!(rig.subscriptions.is_empty());
    more["eventList"] = json!([{"type": "USER_DATA_USAGE_MEASURES", "immediateFlag": true,
        "measurementTypes": ["VOLUME_MEASUREMENT"]}]);
    let created = rig.create(&more);
    assert_eq!(created.reports.len(), 1);
    assert!(rig.subscriptions.is_empty(), "all was said in the answer");
}

#[test]
fn throughput_is_of_the_time_of_the_report() {
    let mut rig = Rig::of(1);
    let mut more = of_ue();
    more["eventList"] = json!([
        {"type": "USER_DATA_USAGE_MEASURES", "measurementTypes": ["VOLUME_MEASUREMENT", "THROUGHPUT_MEASUREMENT"]},
        {"type": "USER_DATA_USAGE_TRENDS"},
    ]);
    rig.create(&more);
    for second in 0..10 {
        rig.sessions.pass(1, volume(if second == 4 { 50 } else { 0 }, 1));
        let told = rig.after(1000);
        assert_eq!(told.is_empty(), second < 9);
        for told in told {
            let throughput = &told.items[0]["userDataUsageMeasurements"][0]["throughputMeasurement"];
            assert_eq!(
                *throughput,
                json!({"ulThroughput": "4000 bps", "dlThroughput": "800 bps",
                    "ulPacketThroughput": "5 pps", "dlPacketThroughput": "1 pps"})
            );
            let trends = &told.items[1]["userDataUsageMeasurements"][0]["throughputStatisticsMeasurement"];
            assert_eq!(trends["ulAverageThroughput"], "4000 bps");
            assert_eq!(trends["ulPeakThroughput"], "40000 bps");
            assert_eq!(trends["dlPeakThroughPut"], "800 bps");
            assert_eq!(trends["ulPeakPacketThroughput"], "50 pps");
        }
    }
}

#[test]
fn flows_are_told_apart() {
    let mut rig = Rig::of(1);
    let flow = |text: &str| (Scope::Flow(vec![text.to_owned()]), Volume::default());
    let app = (Scope::Application("video".to_owned()), Volume::default());
    rig.sessions.places[0].as_mut().unwrap().parts = vec![flow("a"), flow("b"), app];
    let mut more = of_ue();
    let event = |granularity: &str| {
        json!({"type": "USER_DATA_USAGE_MEASURES", "measurementTypes": ["VOLUME_MEASUREMENT"],
            "granularityOfMeasurement": granularity})
    };
    let mut only = event("PER_FLOW");
    only["trafficFilters"] = json!([{"flowDescription": "b"}]);
    more["eventList"] = json!([event("PER_FLOW"), only, event("PER_APPLICATION")]);
    rig.create(&more);
    rig.sessions.pass(1, volume(1, 1));
    let told = rig.after(10_000);
    let measured = |at: usize| told[0].items[at]["userDataUsageMeasurements"].as_array().unwrap().clone();
    let names = |at: usize| {
        measured(at).iter().map(|of| of["flowInfo"]["flowDescription"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((names(0), names(1)), (vec![json!("a"), json!("b")], vec![json!("b")]));
    assert_eq!(measured(2)[0]["appId"], "video");
    assert_eq!(measured(1)[0]["volumeMeasurement"]["totalVolume"], "200 B");
}

#[test]
fn any_ue_is_looked_at_in_turns() {
    let mut rig = Rig::of(3000);
    rig.sessions.pass(7, volume(1, 0));
    rig.create(&json!({"anyUe": true}));
    let (now, mut out) = (rig.now(), Vec::new());
    rig.subscriptions.turn(&mut rig.sessions, now, &mut out);
    assert_eq!(rig.sessions.reads, READS_A_TURN);
    assert!(rig.subscriptions.is_behind());
    rig.after(0);
    for number in 1..=300 {
        rig.sessions.pass(number, volume(number, 0));
    }
    rig.sessions.reads = 0;
    let told = rig.after(10_000);
    assert_eq!(told.len(), 4, "no more than a window is on its way");
    assert_eq!(told.iter().map(|told| told.items.len()).sum::<usize>(), 256);
    rig.answer(&told, true);
    let rest = rig.after(0);
    assert_eq!(rest.iter().map(|told| told.items.len()).sum::<usize>(), 44);
    rig.answer(&rest, true);
    assert_eq!(rig.sessions.reads, 300, "those that have carried nothing are not read");
    rig.sessions.add(4000);
    let now = rig.now();
    rig.subscriptions.session_began(SessionId(4000), &mut rig.sessions, now);
    rig.sessions.pass(4000, volume(1, 0));
    assert_eq!(rig.octets_after(10_000), BTreeMap::from([("10.60.15.160".to_owned(), 100)]));
}

#[test]
fn what_was_remembered_is_forgotten_in_turns() {
    let mut rig = Rig::of(5000);
    let id = rig.create(&json!({"anyUe": true})).id;
    rig.after(0);
    rig.subscriptions.delete(&id, "a").unwrap();
    let (now, mut out) = (rig.now(), Vec::new());
    let turns = (0..9).take_while(|_| {
        rig.subscriptions.turn(&mut rig.sessions, now, &mut out);
        rig.subscriptions.is_behind()
    });
    assert_eq!(turns.count(), 2);
}

#[test]
fn a_subscriber_is_found_by_supi_whenever_it_comes() {
    let mut rig = Rig::of(5);
    rig.create(&json!({"supi": "imsi-000000000000009"}));
    assert!(rig.octets_after(10_000).is_empty());
    rig.sessions.add(9);
    let now = rig.now();
    rig.subscriptions.session_began(SessionId(9), &mut rig.sessions, now);
    rig.sessions.pass(9, volume(2, 0));
    assert_eq!(rig.octets_after(10_000), BTreeMap::from([("10.60.0.9".to_owned(), 200)]));
}

#[test]
fn sessions_that_come_and_go_leave_nothing_behind() {
    let mut rig = Rig::of(0);
    rig.create(&json!({"supi": "imsi-000000000000009"}));
    rig.after(0);
    let begin = |rig: &mut Rig, number: u64| {
        rig.sessions.add(9);
        rig.sessions.places.last_mut().unwrap().as_mut().unwrap().session = SessionId(number);
        let now = rig.now();
        rig.subscriptions.session_began(SessionId(number), &mut rig.sessions, now);
    };
    for number in 100..140 {
        begin(&mut rig, number);
        let told = rig.after(10_000);
        assert_eq!(told.len(), 1);
        let last = rig.sessions.end(number);
        rig.subscriptions.session_ended(last);
        rig.answer(&told, true);
    }
    begin(&mut rig, 200);
    rig.sessions.pass(200, volume(2, 0));
    assert_eq!(rig.octets_after(10_000), BTreeMap::from([("10.60.0.9".to_owned(), 200)]));
}

#[test]
fn a_dnn_selects_sessions() {
    let mut rig = Rig::of(4);
    rig.create(&json!({"anyUe": true, "dnn": "ims"}));
    rig.after(0);
    (1..=4).for_each(|number| rig.sessions.pass(number, volume(number, 0)));
    let told = rig.octets_after(10_000);
    assert_eq!(told.keys().map(String::as_str).collect::<Vec<_>>(), ["10.60.0.2", "10.60.0.4"]);
    let mut more = of_ue();
    more["dnn"] = json!("ims");
    let problem = rig.try_create(&more).unwrap_err();
    assert_eq!((problem.status, problem.cause), (404, Some("CONTEXT_NOT_FOUND")));
}

#[test]
fn a_subscription_is_its_consumers_own() {
    let mut rig = Rig::of(1);
    let id = rig.create(&of_ue()).id;
    let (document, version) = rig.subscriptions.document(&id, "a").unwrap();
    assert_eq!(document["notifyCorrelationId"], "c");
    for (id, owner) in [(&*id, "b"), ("0", "a")] {
        assert_eq!(rig.subscriptions.document(id, owner).unwrap_err().cause, Some("SUBSCRIPTION_NOT_FOUND"));
        assert_eq!(rig.subscriptions.delete(id, owner).unwrap_err().status, 404);
    }
    let mut more = of_ue();
    more["eventReportingMode"] = json!({"trigger": "PERIODIC", "repPeriod": 3});
    let now = rig.now();
    assert_eq!(rig.subscriptions.modify(&id, "a", version, wanted(&more).unwrap(), now), Ok(true));
    assert_eq!(rig.subscriptions.modify(&id, "a", version, wanted(&more).unwrap(), now), Ok(false));
    rig.sessions.pass(1, volume(1, 0));
    assert_eq!(rig.octets_after(3_000), one(100));
    assert_eq!(rig.subscriptions.delete(&id, "a"), Ok(()));
    assert!(rig.octets_after(30_000).is_empty());
}

/// What may happen.
#[derive(Clone, Debug)]
enum Event {
    Pass(u64, u64),
    End(u64),
    After(u64),
    Answer(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..=3u64, 1..9u64).prop_map(|(number, packets)| Event::Pass(number, packets)),
        1 => (1..=3u64).prop_map(Event::End),
        4 => (0..15_000u64).prop_map(Event::After),
        4 => any::<bool>().prop_map(Event::Answer),
    ]
}

proptest! {
    /// Whatever is lost, and whenever sessions end: in the end the consumer has each octet once.
    #[test]
    fn no_octet_is_lost_or_told_twice(
        events in proptest::collection::vec(event(), 0..60),
        is_any in any::<bool>(),
        has_threshold in any::<bool>(),
    ) {
        let mut rig = Rig::of(3);
        let mut more = if is_any { json!({"anyUe": true}) } else { of_ue() };
        if has_threshold {
            more["eventReportingMode"] =
                json!({"trigger": "ON_EVENT_DETECTION", "volumeThreshold": {"ulVolume": "700 B"}});
        }
        rig.create(&more);
        let mut on_way = rig.after(0);
        let (mut passed, mut heard) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, u64>::new());
        let mut hear = |told: &[Told]| {
            for (ue, octets) in told.iter().flat_map(Told::octets) {
                *heard.entry(ue).or_default() += octets;
            }
        };
        let is_there = |rig: &Rig, number: u64| rig.sessions.places.iter().flatten().any(|of| of.session.0 == number);
        for event in events {
            match event {
                Event::Pass(number, packets) if is_there(&rig, number) => {
                    rig.sessions.pass(number, volume(packets, 0));
                    if is_any || number == 1 {
                        *passed.entry(format!("10.60.0.{number}")).or_default() += packets * 100;
                    }
                }
                Event::End(number) if is_there(&rig, number) => {
                    let last = rig.sessions.end(number);
                    rig.subscriptions.session_ended(last);
                }
                Event::After(milliseconds) => on_way.extend(rig.after(milliseconds)),
                Event::Answer(is_acknowledged) if !on_way.is_empty() => {
                    let first = [on_way.remove(0)];
                    rig.answer(&first, is_acknowledged);
                    if is_acknowledged {
                        hear(&first);
                    }
                }
                _ => {}
            }
        }
        // All that still is there ends, so that thresholds keep nothing back, and everything is acknowledged from here on.
        for number in 1..=3 {
            if is_there(&rig, number) {
                let last = rig.sessions.end(number);
                rig.subscriptions.session_ended(last);
            }
        }
        for _ in 0..4 {
            rig.answer(&on_way, true);
            hear(&on_way);
            on_way = rig.after(11_000);
        }
        heard.retain(|_, octets| *octets > 0);
        prop_assert_eq!(heard, passed);
    }
}
