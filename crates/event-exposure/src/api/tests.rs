//! Requests end to end, without a network.

use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use kaido_n4::Volume;

use super::*;
use crate::subscriptions::Limits;
use crate::usage::{SessionId, SessionVolumes, UeAddress};

/// One session.
struct One;

impl UsageSource for One {
    fn of_address(&mut self, address: IpAddr, _: usize) -> Vec<SessionId> {
        if address.to_string() == "10.60.0.1" { vec![SessionId(1)] } else { Vec::new() }
    }

    fn read(&mut self, session: SessionId) -> Option<SessionVolumes> {
        let ue = UeAddress { ipv4: "10.60.0.1".parse().ok(), ..UeAddress::default() };
        let (whole, parts, counted) = (Volume::default(), Vec::new(), None);
        Some(SessionVolumes { session, ue, supi: None, dnns: Vec::new(), whole, parts, counted })
    }

    fn supi(&mut self, _: SessionId) -> Option<String> {
        None
    }

    fn places(&self) -> u32 {
        1
    }

    fn counted(&mut self, _: u32) -> Option<(SessionId, Option<Volume>)> {
        Some((SessionId(1), None))
    }
}

fn body(ue: &str) -> String {
    json!({"subscription": {
        "eventList": [{"type": "USER_DATA_USAGE_MEASURES", "measurementTypes": ["VOLUME_MEASUREMENT"], "immediateFlag": true}],
        "eventNotifyUri": "http://127.0.0.1:8080/notify",
        "notifyCorrelationId": "c",
        "eventReportingMode": {"trigger": "PERIODIC", "repPeriod": 10},
        "nfId": "11111111-2222-3333-4444-555555555555",
        "ueIpAddress": {"ipv4Addr": ue},
    }})
    .to_string()
}

/// Asks, with a thread that does what is asked; gives the status, the header Location, and the body.
fn ask(asked: Vec<(&str, &str, &str, String)>) -> Vec<(u16, Option<String>, Value)> {
    let consumers = Arc::new(Consumers::new(|address| address.is_loopback(), false));
    let (api, mut commands) = Api::new(consumers, |text| Some(text.to_owned()), || ());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let limits = Limits { subscriptions_max: 2, lifetime_max: Duration::from_secs(60) };
        let serving = tokio::spawn(async move {
            let mut subscriptions = Subscriptions::new(limits);
            loop {
                while let Some(command) = commands.take() {
                    let now = Now { monotonic: Instant::now(), wall: SystemTime::now() };
                    let reply = command.run(&mut subscriptions, &mut One, now);
                    reply.into_iter().for_each(|reply| reply.send(&mut subscriptions));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let mut answers = Vec::new();
        let mut last = String::new();
        for (method, path, kind, body) in asked {
            let uri = path.replace("LAST", &last);
            let request = hyper::Request::builder().method(method).uri(uri).header(CONTENT_TYPE, kind);
            let request = request.body(Full::<Bytes>::from(body)).unwrap();
            let request = Request { request, owner: "a".into(), root: "http://127.0.0.1:1".to_owned() };
            let (head, body) = api.answer(request).await.into_parts();
            let location = head.headers.get(LOCATION).map(|of| of.to_str().unwrap().to_owned());
            if let Some(location) = &location {
                last = location.rsplit('/').next().unwrap().to_owned();
            }
            let body = body.collect().await.unwrap().to_bytes();
            answers.push((
                head.status.as_u16(),
                location,
                serde_json::from_slice(&body).unwrap_or(Value::Null),
            ));
        }
        serving.abort();
        answers
    })
}

const JSON: &str = "application/json";
const PATCH: &str = "application/json-patch+json";

/// Conformance: TS 29.564 6.1.3 | Subscriptions are made (201 with Location), modified (204) and deleted (204)
#[test]
fn a_subscription_lives() {
    let patch = |operations: Value| operations.to_string();
    let one = format!("{ROOT}/LAST");
    let answers = ask(vec![
        ("POST", ROOT, JSON, body("10.60.0.1")),
        (
            "PATCH",
            &one,
            PATCH,
            patch(json!([{"op": "replace", "path": "/eventReportingMode/repPeriod", "value": 5}])),
        ),
        (
            "PATCH",
            &one,
            PATCH,
            patch(json!([{"op": "replace", "path": "/eventReportingMode/repPeriod", "value": 0}])),
        ),
        ("PATCH", &one, PATCH, patch(json!([{"op": "add", "path": "/anyUe", "value": true}]))),
        ("PATCH", &one, JSON, "[]".to_owned()),
        ("PUT", &one, JSON, "{}".to_owned()),
        ("DELETE", &one, "", String::new()),
        ("DELETE", &one, "", String::new()),
    ]);
    let (status, location, created) = &answers[0];
    let location = location.as_deref().unwrap();
    assert_eq!(*status, 201, "{created}");
    assert!(location.starts_with("http://127.0.0.1:1/nupf-ee/v1/ee-subscriptions/"));
    assert_eq!(created["subscriptionId"], location);
    assert_eq!(created["reportList"][0]["ueIpv4Addr"], "10.60.0.1");
    let found: Vec<_> =
        answers[1..].iter().map(|(status, _, body)| (*status, body["cause"].as_str())).collect();
    assert_eq!(
        found,
        [
            (204, None),
            (400, Some("OPTIONAL_IE_INCORRECT")),
            (403, Some("MODIFICATION_NOT_ALLOWED")),
            (415, None),
            (405, None),
            (204, None),
            (404, Some("SUBSCRIPTION_NOT_FOUND")),
        ]
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let answers = ask(vec![
        ("POST", ROOT, JSON, body("10.60.0.2")),
        ("POST", ROOT, "text/plain", body("10.60.0.1")),
        ("POST", ROOT, JSON, "x".repeat(BODY_MAX + 1)),
        ("POST", ROOT, JSON, "{".to_owned()),
        ("GET", ROOT, JSON, String::new()),
        ("POST", "/nupf-ee/v2/ee-subscriptions", JSON, body("10.60.0.1")),
        ("POST", "/nupf-ee/v1/other", JSON, body("10.60.0.1")),
        ("DELETE", "/nupf-ee/v1/ee-subscriptions/a/b", JSON, String::new()),
        ("POST", ROOT, JSON, body("10.60.0.1")),
        ("POST", ROOT, JSON, body("10.60.0.1")),
        ("POST", ROOT, JSON, body("10.60.0.1")),
    ]);
    let found: Vec<_> = answers.iter().map(|(status, _, body)| (*status, body["cause"].as_str())).collect();
    assert_eq!(
        found,
        [
            (404, Some("CONTEXT_NOT_FOUND")),
            (415, None),
            (413, None),
            (400, Some("INVALID_MSG_FORMAT")),
            (405, None),
            (400, Some("INVALID_API")),
            (404, Some("RESOURCE_URI_STRUCTURE_NOT_FOUND")),
            (404, Some("RESOURCE_URI_STRUCTURE_NOT_FOUND")),
            (201, None),
            (201, None),
            (500, Some("INSUFFICIENT_RESOURCES")),
        ]
    );
}
