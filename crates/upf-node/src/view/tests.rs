//! Sessions of every shape from a control plane to what `kaido session` shows.

use std::net::SocketAddr;
use std::time::SystemTime;

use kaido_bench::{Family, Shape};
use kaido_n4::SessionService;
use kaido_pfcp::{Config, Dialect, Retransmission, Smf, SmfConfig, SmfEvent};
use kaido_upf::node::{Instance, Node, NodeSettings};
use serde_json::Value;

use super::*;

const SMF: &str = "192.0.2.1:8805";
const UPF: &str = "192.0.2.2:8805";

fn upf() -> Upf {
    let tenants = (100..116).map(|vid| Instance { name: Some(format!("tenant{vid}")) });
    let settings = NodeSettings {
        endpoints: vec!["192.168.3.1".parse().unwrap()],
        instances: [Instance { name: None }].into_iter().chain(tenants).collect(),
        sessions_max: 100,
        ..NodeSettings::default()
    };
    let (node, events) = Node::new(settings).unwrap();
    Upf::new(node, events, Vec::new()).unwrap()
}

/// A control plane and a user plane that hand each other their datagrams.
struct N4 {
    smf: Smf,
    endpoint: Endpoint<Upf>,
}

impl N4 {
    fn new() -> Self {
        let ours: SocketAddr = SMF.parse().unwrap();
        let smf = Smf::new(SmfConfig {
            node_id: ours.ip().into(),
            ipv4: Some("192.0.2.1".parse().unwrap()),
            ipv6: None,
            recovery: SystemTime::now(),
            retransmission: Retransmission::default(),
            outstanding: 16,
            dialect: Dialect::Plain,
        });
        let theirs: SocketAddr = UPF.parse().unwrap();
        let mut n4 = Self { smf, endpoint: Endpoint::new(Config::at(theirs.ip()), upf(), Instants::now()) };
        let mut out = Vec::new();
        n4.smf.associate(Instants::now(), theirs, &mut out).unwrap();
        n4.carry(out);
        n4
    }

    /// Hands datagrams over until none is left.
    fn carry(&mut self, mut to_upf: Vec<Transmit>) {
        while !to_upf.is_empty() {
            let mut back = Vec::new();
            for sent in to_upf.drain(..) {
                self.endpoint.handle(Instants::now(), SMF.parse().unwrap(), &sent.bytes, &mut back);
            }
            for sent in back {
                self.smf.handle(Instants::now(), UPF.parse().unwrap(), &sent.bytes, &mut to_upf);
            }
        }
    }

    /// Establishes a session; its SEID at the user plane.
    fn establish(&mut self, shape: Shape, session: u32) -> Seid {
        let mut out = Vec::new();
        let request = shape.establishment(Family::V4, session);
        self.smf.establish(Instants::now(), UPF.parse().unwrap(), request, &mut out).unwrap();
        self.carry(out);
        let events = std::iter::from_fn(|| self.smf.next_event());
        let established = events.filter(|event| matches!(event, SmfEvent::Established { .. })).count();
        assert_eq!(established, 1, "{shape:?}");
        self.endpoint.service().sessions(0, 1)[0].seid
    }
}

/// What `kaido session --json` has of the rules.
fn shown(upf: &mut Upf, seid: Seid) -> Value {
    let answer = serde_json::to_value(detail(upf, seid).unwrap()).unwrap();
    // As the client reads it.
    let detail: api::SessionDetail = serde_json::from_value(answer).unwrap();
    detail.rules
}

#[test]
fn sessions_of_every_shape_are_shown_as_they_were_asked_for() {
    // Each kind of session of the mixed shape, and an idle one.
    for (shape, session) in Shape::ALL.into_iter().flat_map(|shape| [0, 6, 9, 19].map(|n| (shape, n))) {
        let asked = shape.establishment(Family::V4, session);
        let mut direct = upf();
        let seid = direct.establish(&asked, SystemTime::now()).unwrap().seid;
        let expected = shown(&mut direct, seid);
        let mut n4 = N4::new();
        let seid = n4.establish(shape, session);
        let found = shown(n4.endpoint.service_mut(), seid);
        assert_eq!(found, expected, "{shape:?} {session}");
        let count = |kind: &str| found[kind].as_object().map_or(0, serde_json::Map::len);
        let counts = ["pdrs", "fars", "qers", "urrs"].map(count);
        let [pdrs, fars] = [asked.pdrs.len(), asked.fars.len()];
        assert_eq!(counts, [pdrs, fars, asked.qers.len(), asked.urrs.len()], "{shape:?}");
        let text = found.to_string();
        for rule in &asked.pdrs {
            let pdr = &found["pdrs"][rule.id.0.to_string()];
            assert_eq!(pdr["precedence"], rule.precedence, "{text}");
            let filters = pdr["pdi"]["sdf_filters"].as_array().map_or(0, Vec::len);
            assert_eq!(filters, rule.pdi.sdf_filters.len(), "{shape:?}: {text}");
        }
    }
}

#[test]
fn status_counts_sessions_by_where_their_rules_lie() {
    let of = |shape: Shape| {
        let mut upf = upf();
        let mut seids = Vec::new();
        for session in 0..20 {
            let request = shape.establishment(Family::V4, session);
            seids.push(upf.establish(&request, SystemTime::now()).unwrap().seid);
        }
        let forms: Vec<_> = upf.forms().map(form).collect();
        for seid in seids {
            upf.delete(seid, SystemTime::now()).unwrap();
        }
        assert_eq!(upf.forms().count(), 0, "none is left");
        let told = |form: &api::Form| {
            let reason = form.reason.as_ref().map(|[name, _]| name.clone());
            (form.path.clone(), reason.unwrap_or_default(), form.sessions)
        };
        forms.iter().map(told).collect::<Vec<_>>()
    };
    let expected = |forms: &[(&str, &str, u32)]| {
        forms.iter().map(|&(path, why, count)| (path.to_owned(), why.to_owned(), count)).collect::<Vec<_>>()
    };
    for shape in [Shape::Plain, Shape::Free5gc, Shape::Open5gs] {
        assert_eq!(of(shape), expected(&[("fast", "", 20)]), "{shape:?}");
    }
    assert_eq!(of(Shape::Volte), expected(&[("lines", "", 20)]));
    assert_eq!(of(Shape::Slice), expected(&[("lines", "", 20)]));
    assert_eq!(of(Shape::Mixed), expected(&[("fast", "", 18), ("lines", "", 2)]));
}
