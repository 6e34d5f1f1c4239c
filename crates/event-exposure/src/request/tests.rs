//! What is taken and what is refused, and by which cause.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn body() -> Value {
    json!({"subscription": {
        "eventList": [{"type": "USER_DATA_USAGE_MEASURES", "measurementTypes": ["VOLUME_MEASUREMENT"]}],
        "eventNotifyUri": "http://127.0.0.1:8080/notify",
        "notifyCorrelationId": "c",
        "eventReportingMode": {"trigger": "PERIODIC", "repPeriod": 10},
        "nfId": "11111111-2222-3333-4444-555555555555",
        "ueIpAddress": {"ipv4Addr": "10.60.0.1"},
    }})
}

fn read(body: &[u8]) -> Result<Subscription, Problem> {
    let consumers = Consumers::new(|address| address.is_loopback(), false);
    create(body, &consumers, &|text| text.starts_with("permit").then(|| text.to_owned()))
}

/// With a value at a place, or without what is there.
fn with(pointer: &str, value: Option<Value>) -> Vec<u8> {
    let mut body = body();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = body.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Object(object), Some(value)) => drop(object.insert(name.to_owned(), value)),
        (Value::Object(object), None) => drop(object.remove(name)),
        (Value::Array(items), Some(value)) => items[0] = value,
        _ => panic!("no place"),
    }
    body.to_string().into_bytes()
}

/// Conformance: TS 29.564 6.1.6.2.5 | A subscription without a mandatory IE is refused by MANDATORY_IE_MISSING, which names it
#[test]
fn mandatory_ies_are_missed() {
    assert!(read(body().to_string().as_bytes()).is_ok());
    for pointer in [
        "/subscription",
        "/subscription/eventList",
        "/subscription/eventNotifyUri",
        "/subscription/notifyCorrelationId",
        "/subscription/eventReportingMode",
        "/subscription/nfId",
        "/subscription/ueIpAddress",
        "/subscription/eventReportingMode/trigger",
        "/subscription/eventReportingMode/repPeriod",
        "/subscription/eventList/0/type",
        "/subscription/eventList/0/measurementTypes",
    ] {
        let problem = read(&with(pointer, None)).unwrap_err();
        assert_eq!((problem.status, problem.cause), (400, Some("MANDATORY_IE_MISSING")), "{pointer}");
        assert_eq!(problem.invalid_params[0].param, pointer);
    }
}

/// Conformance: TS 29.564 6.1.7 | What is not measured, or cannot be, is refused, and the IE is named
#[test]
fn what_is_not_done_is_refused() {
    let (mandatory, optional) = (Some("MANDATORY_IE_INCORRECT"), Some("OPTIONAL_IE_INCORRECT"));
    let event = "/subscription/eventList/0";
    let mode = "/subscription/eventReportingMode";
    for (cause, pointer, value) in [
        (mandatory, "/subscription/eventList", json!([])),
        (mandatory, "/subscription/eventList", json!([{}, {}, {}, {}, {}, {}, {}, {}, {}])),
        (mandatory, "/subscription/eventList/0", json!(7)),
        (mandatory, &*format!("{event}/type"), json!("QOS_MONITORING")),
        (mandatory, &*format!("{event}/type"), json!("TSC_MNGT_INFO")),
        (mandatory, &*format!("{event}/measurementTypes"), json!(["APPLICATION_RELATED_INFO"])),
        (optional, &*format!("{event}/granularityOfMeasurement"), json!("PER_CELL")),
        (optional, &*format!("{event}/appIds"), json!(["a"])),
        (optional, &*format!("{event}/trafficFilters"), json!([{"flowDescription": "permit"}])),
        (optional, &*format!("{event}/immediateFlag"), json!("yes")),
        (mandatory, "/subscription/eventNotifyUri", json!("http://192.0.2.1/")),
        (mandatory, "/subscription/eventNotifyUri", json!("https://127.0.0.1/")),
        (mandatory, "/subscription/eventNotifyUri", json!("gopher://127.0.0.1/")),
        (mandatory, "/subscription/eventNotifyUri", json!(7)),
        (mandatory, "/subscription/notifyCorrelationId", json!("a".repeat(257))),
        (mandatory, "/subscription/nfId", json!("1")),
        (optional, "/subscription/snssai", json!({"sst": 1})),
        (optional, "/subscription/gpsi", json!("msisdn-1")),
        (optional, "/subscription/supi", json!("nai-x")),
        (optional, "/subscription/supi", json!("imsi-001010000000001")),
        (optional, "/subscription/anyUe", json!(true)),
        (optional, "/subscription/ueIpAddress", json!({})),
        (optional, "/subscription/ueIpAddress", json!({"ipv4Addr": "10.0.0.1", "ipv6Addr": "2001:db8::1"})),
        (optional, "/subscription/ueIpAddress/ipv4Addr", json!("2001:db8::1")),
        (mandatory, &*format!("{mode}/trigger"), json!("CONTINUOUS")),
        (optional, &*format!("{mode}/repPeriod"), json!(0)),
        (optional, &*format!("{mode}/repPeriod"), json!(1e99)),
        (optional, &*format!("{mode}/maxReports"), json!(0)),
        (optional, &*format!("{mode}/expiry"), json!("tomorrow")),
        (optional, &*format!("{mode}/sampRatio"), json!(50)),
        (optional, &*format!("{mode}/notifFlag"), json!("DEACTIVATE")),
        (optional, &*format!("{mode}/volumeThreshold"), json!({"totalVolume": "1 B"})),
    ] {
        let problem = read(&with(pointer, Some(value.clone()))).expect_err(pointer);
        assert_eq!((problem.status, problem.cause), (400, cause), "{pointer} {value}: {problem:?}");
    }
    for body in [&b""[..], b"{", b"7", b"[]", b"\xff", &[b'['; 100_000]] {
        assert_eq!(read(body).unwrap_err().cause, Some("INVALID_MSG_FORMAT"));
    }
    assert!(read(&with(&format!("{mode}/sampRatio"), Some(json!(100)))).is_ok());
}

#[test]
fn of_any_ue_less_is_told() {
    let any = |event: Value| {
        let mut body = body();
        body["subscription"]["anyUe"] = json!(true);
        body["subscription"].as_object_mut().unwrap().remove("ueIpAddress");
        body["subscription"]["eventList"] = json!([event]);
        read(body.to_string().as_bytes())
    };
    let usage = |name: &str, value: Value| {
        let mut event =
            json!({"type": "USER_DATA_USAGE_MEASURES", "measurementTypes": ["VOLUME_MEASUREMENT"]});
        event[name] = value;
        event
    };
    assert_eq!(any(usage("immediateFlag", json!(false))).unwrap().ue, Ue::Any);
    assert!(any(usage("immediateFlag", json!(true))).is_err());
    assert!(any(usage("granularityOfMeasurement", json!("PER_FLOW"))).is_err());
    assert!(any(json!({"type": "USER_DATA_USAGE_TRENDS"})).is_err());
}

#[test]
fn volumes_are_read_to_the_octet() {
    let read = |text: &str| volume(&json!(text)).ok();
    assert_eq!(read("1500 B"), Some(1500));
    assert_eq!(read("2.5 MB"), Some(2_500_000));
    assert_eq!(read("0.000000000001 TB"), Some(1));
    assert_eq!(read("18446744073709551615 B"), Some(u64::MAX));
    for wrong in ["", "B", "1", "1 KB", "-1 B", "1. B", ".5 B", "0 B", "99999999999 TB", "1e3 B", "1  B"] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("PERIODIC")),
        Just(json!("PER_FLOW")),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let names = "[a-zA-Z]{1,8}|ipv4Addr|flowDescription|trigger|type|measurementTypes|repPeriod";
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(names, inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn any_octets_are_read(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&octets);
    }

    #[test]
    fn any_value_of_an_ie_is_read(value in any_json(), at in 0..12usize) {
        let names = ["eventList", "eventNotifyUri", "notifyCorrelationId", "eventReportingMode", "nfId",
            "ueIpAddress", "supi", "anyUe", "dnn", "snssai", "eventList/0", "eventReportingMode/expiry"];
        let _ = read(&with(&format!("/subscription/{}", names[at]), Some(value)));
    }
}
