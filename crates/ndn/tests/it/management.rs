//! Management from end to end: commands as applications send them, over a socket, to a node whose tables are real.

// Functions of a test, which clippy does not take for tests.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use kaido_ndn::client::{CommandError, Connection, Consumer, command, command_interest, dataset};
use kaido_ndn::face::{Face, FaceSettings, FaceUri, Faces, LinkType, Persistency, Scope, Transport};
use kaido_ndn::mgmt::{
    Authority, ControlParameters, ControlResponse, CreateError, CsInfo, CsUpdate, ErasureResult, FaceRequest,
    HeavyHitterInfo, Manager, Module, Node, Sharing, Totals, Trust, WorkerInfo, kinds,
};
use kaido_ndn_tables::{FaceId, Fib, Hop, Hops, NameHash};
use kaido_table::Domain;
use kaido_wire::ndn::tlv::Elements;
use kaido_wire::ndn::{Data, InterestRepr, LpHeader, Name, name_from_uri, types};

/// A node without a forwarder.
struct TestNode {
    faces: Faces,
    fib: Fib,
    strategies: Vec<(Vec<u8>, Vec<u8>)>,
    cs: CsInfo,
}

fn face(remote: &str, scope: Scope) -> FaceSettings {
    FaceSettings {
        remote: remote.parse().unwrap(),
        local: FaceUri::Internal,
        scope,
        persistency: Persistency::Persistent,
        link_type: LinkType::PointToPoint,
        mtu: 8800,
        flags: 0,
        transport: Transport::Internal,
    }
}

impl TestNode {
    fn new() -> Self {
        Self {
            faces: Faces::new(64),
            fib: Fib::new(&Domain::new(), NameHash::fixed(1), 1000).unwrap(),
            strategies: vec![(vec![], name_from_uri("/localhost/nfd/strategy/best-route/v=5").unwrap())],
            cs: CsInfo { capacity: 100, entries: 300, admits: true, serves: true, ..CsInfo::default() },
        }
    }
}

impl Node for TestNode {
    fn faces(&self) -> &Faces {
        &self.faces
    }

    fn fib(&self) -> &Fib {
        &self.fib
    }

    fn create_face(&mut self, wish: &FaceRequest) -> Result<Arc<Face>, CreateError> {
        if let Some(face) = self.faces.all().into_iter().find(|face| *face.remote() == wish.remote) {
            return Err(CreateError::Exists(face));
        }
        match wish.remote {
            FaceUri::Udp(_) => {
                let settings = FaceSettings {
                    persistency: wish.persistency,
                    flags: wish.flags,
                    mtu: wish.mtu.unwrap_or(1452),
                    ..face(&wish.remote.to_string(), Scope::NonLocal)
                };
                self.faces.create(settings).map_err(|_| CreateError::Full)
            }
            _ => Err(CreateError::Unsupported("only UDP")),
        }
    }

    fn channels(&self) -> Vec<FaceUri> {
        vec!["udp4://0.0.0.0:6363".parse().unwrap()]
    }

    fn destroy_face(&mut self, id: FaceId) {
        self.faces.destroy(id);
    }

    fn strategies(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.strategies.clone()
    }

    fn set_strategy(&mut self, prefix: &[u8], strategy: &[u8]) -> Result<Vec<u8>, String> {
        if strategy != name_from_uri("/localhost/nfd/strategy/multicast").unwrap() {
            return Err("there is no such strategy".into());
        }
        self.unset_strategy(prefix);
        let chosen = name_from_uri("/localhost/nfd/strategy/multicast/v=4").unwrap();
        self.strategies.push((prefix.to_vec(), chosen.clone()));
        Ok(chosen)
    }

    fn unset_strategy(&mut self, prefix: &[u8]) {
        self.strategies.retain(|(of, _)| of != prefix);
    }

    fn cs(&self) -> CsInfo {
        self.cs
    }

    fn configure_cs(&mut self, wish: &CsUpdate) {
        self.cs.capacity = wish.capacity.unwrap_or(self.cs.capacity);
        self.cs.admits = wish.admits.unwrap_or(self.cs.admits);
        self.cs.serves = wish.serves.unwrap_or(self.cs.serves);
    }

    fn erase_cs(&mut self, _: &[u8], count: Option<u64>, limit: u64) -> ErasureResult {
        let erased = count.unwrap_or(u64::MAX).min(limit).min(self.cs.entries);
        self.cs.entries -= erased;
        ErasureResult { count: erased, has_more: count != Some(erased) && erased == limit }
    }

    fn tick(&mut self, _: Instant) {}

    fn totals(&self) -> Totals {
        Totals { pit_entries: 3, measurements: 2, satisfied: 10, unsatisfied: 1 }
    }

    fn sharing(&self) -> Sharing {
        let worker = WorkerInfo { number: 1, packets: 300, cs_max: 70_000, ..WorkerInfo::default() };
        let hot = HeavyHitterInfo { name: Some(name_from_uri("/hot").unwrap()), share_ppm: 250_000 };
        let unnamed = HeavyHitterInfo { name: None, share_ppm: 100_000 };
        Sharing { workers: vec![WorkerInfo::default(), worker], hot: vec![hot, unnamed] }
    }

    fn began(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }
}

/// A manager, and an application of this host that speaks to it without a forwarder between.
struct Rig {
    manager: Manager<TestNode>,
    application: FaceId,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let node = TestNode::new();
        let application = node.faces.create(face("fd://7", Scope::Local)).unwrap().id();
        let authority =
            Authority::new(Trust { local: Module::ALL.to_vec(), ..Trust::default() }, SystemTime::now());
        let mut rig = Self { manager: Manager::new(node, authority, 100), application, now: Instant::now() };
        rig.manager.tick(rig.now);
        rig
    }

    fn command(&mut self, module: Module, verb: &str, asked: &ControlParameters) -> ControlResponse {
        self.command_from(self.application, module, verb, asked)
    }

    fn command_from(
        &mut self,
        from: FaceId,
        module: Module,
        verb: &str,
        asked: &ControlParameters,
    ) -> ControlResponse {
        let interest = command_interest(module, verb, asked).unwrap();
        let answer = self.manager.answer(&interest, from, self.now, SystemTime::now()).expect("an answer");
        ControlResponse::parse(Data::parse(&answer, answer.len()).unwrap().content).unwrap()
    }

    fn ask(&mut self, uri: &str, can_be_prefix: bool) -> Option<(String, Vec<u8>)> {
        let name = name_from_uri(uri).unwrap();
        let repr = InterestRepr { name: Name::new(&name).unwrap(), can_be_prefix, ..InterestRepr::default() };
        let mut interest = vec![0; repr.len()];
        repr.emit(&mut interest).unwrap();
        let answer = self.manager.answer(&interest, self.application, self.now, SystemTime::now())?;
        let data = Data::parse(&answer, answer.len()).unwrap();
        Some((data.name.to_string(), data.content.to_vec()))
    }

    fn dataset(&mut self, path: &str) -> Vec<Fields> {
        let (_, content) = self.ask(&format!("/localhost/nfd/{path}"), true).expect("a dataset");
        entries(&content)
    }

    fn hops(&self, uri: &str) -> Vec<Hop> {
        let name = name_from_uri(uri).unwrap();
        let read = |hops: Option<&Hops>| hops.into_iter().flat_map(Hops::iter).collect();
        self.manager.node().fib.table().with(&name, read).unwrap()
    }
}

/// The elements of an entry: types and values.
type Fields = Vec<(u32, Vec<u8>)>;

fn fields(octets: &[u8]) -> Fields {
    Elements::new(octets).map(|element| element.unwrap()).map(|e| (e.kind, e.value.to_vec())).collect()
}

fn entries(octets: &[u8]) -> Vec<Fields> {
    fields(octets).iter().map(|(_, value)| fields(value)).collect()
}

fn number(fields: &Fields, kind: u32) -> u64 {
    let value = &fields.iter().find(|(of, _)| *of == kind).expect("the field").1;
    value.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

fn text(fields: &Fields, kind: u32) -> String {
    String::from_utf8(fields.iter().find(|(of, _)| *of == kind).expect("the field").1.clone()).unwrap()
}

fn prefix(uri: &str) -> ControlParameters {
    ControlParameters { name: Some(name_from_uri(uri).unwrap()), ..ControlParameters::default() }
}

fn hop(face: u32, cost: u32) -> Hop {
    Hop { face: FaceId(face), cost }
}

/// Conformance: NDN management RIB | An application registers a prefix for its own face, until it is gone
#[test]
fn an_application_registers_a_prefix() {
    let mut rig = Rig::new();
    let own = rig.application.0;
    let response = rig.command(Module::Rib, "register", &prefix("/served"));
    let expected = ControlParameters {
        face: Some(own.into()),
        origin: Some(0),
        cost: Some(0),
        flags: Some(1),
        ..prefix("/served")
    };
    assert_eq!(response, ControlResponse::ok(expected));
    assert_eq!(rig.hops("/served"), [hop(own, 0)]);
    let listed = rig.dataset("rib/list");
    assert_eq!((listed.len(), &listed[0][0].1), (1, &name_from_uri("/served").unwrap()));
    let route = fields(&listed[0][1].1);
    assert_eq!([0x69, 0x6f, 0x6a, 0x6c].map(|kind| number(&route, kind)), [own.into(), 0, 0, 1]);
    rig.manager.node().faces.destroy(rig.application);
    rig.manager.tick(rig.now);
    assert_eq!(rig.hops("/served"), []);
}

/// Conformance: NDN management RIB | A route ends when its time is over
#[test]
fn a_route_ends() {
    let mut rig = Rig::new();
    let asked = ControlParameters { expiration_period: Some(5000), ..prefix("/short") };
    assert_eq!(rig.command(Module::Rib, "register", &asked).body.unwrap().expiration_period, Some(5000));
    rig.now += Duration::from_millis(4999);
    rig.manager.tick(rig.now);
    assert_eq!(rig.hops("/short").len(), 1);
    let left = fields(&rig.dataset("rib/list")[0][1].1);
    assert_eq!(number(&left, 0x6d), 1);
    rig.now += Duration::from_millis(1);
    rig.manager.tick(rig.now);
    assert_eq!(rig.hops("/short"), []);
}

#[test]
fn next_hops_of_the_fib_are_no_routes() {
    let mut rig = Rig::new();
    let own = rig.application.0;
    let asked = ControlParameters { cost: Some(9), face: Some(own.into()), ..prefix("/a") };
    assert_eq!(rig.command(Module::Fib, "add-nexthop", &asked).body.unwrap().cost, Some(9));
    assert_eq!(rig.command(Module::Rib, "register", &prefix("/a/b")).code, 200);
    assert_eq!((rig.hops("/a"), rig.hops("/a/b")), (vec![hop(own, 9)], vec![hop(own, 0)]));
    assert_eq!(rig.dataset("rib/list").len(), 1, "only what was registered");
    let listed = rig.dataset("fib/list");
    assert_eq!(listed.len(), 2);
    assert_eq!(number(&fields(&listed[0][1].1), 0x6a), 9);
    assert_eq!(rig.command(Module::Fib, "remove-nexthop", &prefix("/a")).code, 200);
    assert_eq!(rig.hops("/a"), []);
}

/// Conformance: NDN management ControlCommand | What cannot be done is refused with a code and changes nothing
#[test]
fn refusals_say_why_and_change_nothing() {
    let mut rig = Rig::new();
    let deep = prefix(&"/x".repeat(40));
    let nobody = ControlParameters { face: Some(9999), ..prefix("/a") };
    let huge = ControlParameters { face: Some(u64::MAX), ..prefix("/a") };
    let empty = ControlParameters::default();
    let uri = |uri: &str| ControlParameters { uri: Some(uri.into()), ..ControlParameters::default() };
    let flags = |flags, mask| ControlParameters { flags, mask, ..uri("udp4://192.0.2.1:6363") };
    for (module, verb, asked, code) in [
        (Module::Rib, "register", &empty, 400),
        (Module::Rib, "register", &nobody, 410),
        (Module::Rib, "register", &huge, 410),
        (Module::Rib, "register", &deep, 414),
        (Module::Rib, "unregister", &empty, 400),
        (Module::Rib, "announce", &prefix("/a"), 501),
        (Module::Fib, "add-nexthop", &nobody, 410),
        (Module::Faces, "create", &empty, 400),
        (Module::Faces, "create", &uri("gopher://host"), 400),
        (Module::Faces, "create", &uri("tcp4://192.0.2.1:6363"), 406),
        (Module::Faces, "create", &flags(Some(1), None), 400),
        (Module::Faces, "create", &flags(Some(8), Some(8)), 400),
        (
            Module::Faces,
            "create",
            &ControlParameters { flags: Some(2), mask: Some(2), ..uri("udp4://224.0.23.170:56363") },
            406,
        ),
        (
            Module::Faces,
            "create",
            &ControlParameters { flags: Some(2), mask: Some(2), ..uri("ether://[01:00:5e:00:17:aa]") },
            406,
        ),
        (
            Module::Faces,
            "create",
            &ControlParameters { face_persistency: Some(1), ..uri("udp4://192.0.2.1") },
            400,
        ),
        (Module::Faces, "create", &ControlParameters { mtu: Some(10), ..uri("udp4://192.0.2.1") }, 400),
        (Module::Faces, "update", &nobody, 404),
        (Module::Faces, "update", &ControlParameters { mtu: Some(10), ..empty.clone() }, 409),
        (Module::Faces, "update", &ControlParameters { face_persistency: Some(9), ..empty.clone() }, 409),
        (Module::Faces, "destroy", &empty, 400),
        (Module::Cs, "config", &ControlParameters { flags: Some(1), ..empty.clone() }, 400),
        (Module::Cs, "erase", &empty, 400),
        (Module::StrategyChoice, "set", &prefix("/a"), 400),
        (
            Module::StrategyChoice,
            "set",
            &ControlParameters { strategy: Some(vec![8, 1, 1]), ..prefix("/a") },
            404,
        ),
        (Module::StrategyChoice, "unset", &empty, 400),
        (Module::StrategyChoice, "unset", &prefix("/"), 400),
    ] {
        let response = rig.command(module, verb, asked);
        assert_eq!(response.code, code, "{} {verb} {asked:?}: {}", module.name(), response.text);
    }
    assert_eq!((rig.manager.node().faces.all().len(), rig.manager.rib().0.len()), (1, 0));
    assert_eq!((rig.manager.node().strategies.len(), rig.manager.node().cs.capacity), (1, 100));
}

/// Conformance: NDN management FaceMgmt | Faces are made, changed, listed, queried and removed
#[test]
fn faces_come_and_go() {
    let mut rig = Rig::new();
    let asked = ControlParameters {
        uri: Some("udp4://192.0.2.1:6363".into()),
        face_persistency: Some(2),
        flags: Some(4),
        mask: Some(4),
        mtu: Some(1000),
        ..ControlParameters::default()
    };
    let made = rig.command(Module::Faces, "create", &asked);
    let body = made.body.unwrap();
    let id = body.face.unwrap();
    assert_eq!((made.code, body.face_persistency, body.flags, body.mtu), (200, Some(2), Some(4), Some(1000)));
    let again = rig.command(Module::Faces, "create", &asked);
    assert_eq!((again.code, again.body.unwrap().face), (409, Some(id)));

    let changed = ControlParameters {
        face: Some(id),
        mtu: Some(800),
        flags: Some(0),
        mask: Some(4),
        ..ControlParameters::default()
    };
    let body = rig.command(Module::Faces, "update", &changed).body.unwrap();
    assert_eq!((body.mtu, body.flags), (Some(800), Some(0)));
    let reliable =
        ControlParameters { face: Some(id), flags: Some(2), mask: Some(2), ..ControlParameters::default() };
    assert_eq!(rig.command(Module::Faces, "update", &reliable).body.unwrap().flags, Some(2));
    let listed = rig.dataset("faces/list");
    assert_eq!(number(&listed[1], 0x6c), 2, "the dataset shows it");
    let group = FaceSettings {
        link_type: LinkType::MultiAccess,
        ..face("udp4://224.0.23.170:56363", Scope::NonLocal)
    };
    let group = rig.manager.node().faces.create(group).unwrap().id();
    let refused = ControlParameters { face: Some(group.0.into()), ..reliable.clone() };
    assert_eq!(rig.command(Module::Faces, "update", &refused).code, 409, "many are at its end");
    rig.manager.node().faces.destroy(group);
    let off = ControlParameters { flags: Some(0), ..reliable };
    assert_eq!(rig.command(Module::Faces, "update", &off).body.unwrap().flags, Some(0));
    let local_fields =
        ControlParameters { face: Some(id), flags: Some(1), mask: Some(1), ..ControlParameters::default() };
    assert_eq!(
        rig.command(Module::Faces, "update", &local_fields).code,
        409,
        "not an application of this host"
    );
    let own = ControlParameters { flags: Some(1), mask: Some(1), ..ControlParameters::default() };
    assert_eq!(rig.command(Module::Faces, "update", &own).body.unwrap().flags, Some(1), "its own face");

    let listed = rig.dataset("faces/list");
    assert_eq!(
        listed.iter().map(|face| text(face, 0x72)).collect::<Vec<_>>(),
        ["fd://7", "udp4://192.0.2.1:6363"]
    );
    assert_eq!((number(&listed[0], 0x84), number(&listed[1], 0x84)), (1, 0), "local and not");
    // A filter: the schema of the other end.
    let queried = rig.ask("/localhost/nfd/faces/query/%96%06%83%04udp4", true).unwrap();
    assert_eq!(entries(&queried.1).iter().map(|face| number(face, 0x69)).collect::<Vec<_>>(), [id]);
    assert_eq!(text(&rig.dataset("faces/channels")[0], 0x81), "udp4://0.0.0.0:6363");

    let named = ControlParameters { face: Some(id), ..ControlParameters::default() };
    for _ in 0..2 {
        assert_eq!(rig.command(Module::Faces, "destroy", &named).code, 200);
        assert_eq!(rig.manager.node().faces.all().len(), 1);
    }
}

/// Conformance: NDN management FaceMgmt | What is done to faces is told in notifications, in order
#[test]
fn what_is_done_to_faces_is_told() {
    let mut rig = Rig::new();
    let (name, first) = rig.ask("/localhost/nfd/faces/events", true).unwrap();
    assert_eq!(name, "/localhost/nfd/faces/events/seq=0", "the application's own face");
    let event = fields(&fields(&first)[0].1);
    assert_eq!((number(&event, 0xc1), text(&event, 0x72)), (1, "fd://7".into()));
    assert_eq!(rig.ask("/localhost/nfd/faces/events/seq=1", false), None, "it waits");
    rig.manager.node().faces.destroy(rig.application);
    let told = rig.manager.tick(rig.now);
    let data = Data::parse(&told[0], told[0].len()).unwrap();
    assert_eq!(data.name.to_string(), "/localhost/nfd/faces/events/seq=1");
    assert_eq!(number(&fields(&fields(data.content)[0].1), 0xc1), 2);
    assert!(rig.ask("/localhost/nfd/faces/events/seq=1", false).is_some());
    assert_eq!(rig.ask("/localhost/nfd/faces/events/seq=2", false), None);
}

/// Conformance: NDN management CsMgmt | The Content Store is configured, erased by prefix, and described
#[test]
fn the_content_store_is_managed() {
    let mut rig = Rig::new();
    let asked = ControlParameters {
        capacity: Some(7),
        flags: Some(0),
        mask: Some(2),
        ..ControlParameters::default()
    };
    let body = rig.command(Module::Cs, "config", &asked).body.unwrap();
    assert_eq!((body.capacity, body.flags), (Some(7), Some(1)), "it admits and does not serve");
    let info = rig.dataset("cs/info").remove(0);
    assert_eq!((number(&info, 0x83), number(&info, 0x6c)), (7, 1));
    let some = ControlParameters { count: Some(5), ..prefix("/a") };
    assert_eq!(rig.command(Module::Cs, "erase", &some).body.unwrap().count, Some(5));
    let all = rig.command(Module::Cs, "erase", &prefix("/a")).body.unwrap();
    assert_eq!((all.count, all.capacity), (Some(256), Some(256)), "and there may be more");
    let rest = rig.command(Module::Cs, "erase", &prefix("/a")).body.unwrap();
    assert_eq!((rest.count, rest.capacity), (Some(39), None), "all of it");
}

/// Conformance: NDN management StrategyChoice | Strategies are set, unset and listed
#[test]
fn strategies_are_chosen() {
    let mut rig = Rig::new();
    let strategy = Some(name_from_uri("/localhost/nfd/strategy/multicast").unwrap());
    let asked = ControlParameters { strategy, ..prefix("/a") };
    let chosen = rig.command(Module::StrategyChoice, "set", &asked).body.unwrap().strategy;
    assert_eq!(chosen, Some(name_from_uri("/localhost/nfd/strategy/multicast/v=4").unwrap()));
    assert_eq!(rig.dataset("strategy-choice/list").len(), 2);
    assert_eq!(rig.command(Module::StrategyChoice, "unset", &prefix("/a")).code, 200);
    assert_eq!(rig.dataset("strategy-choice/list").len(), 1);
}

#[test]
fn the_status_counts() {
    let mut rig = Rig::new();
    rig.command(Module::Rib, "register", &prefix("/a"));
    let (_, content) = rig.ask("/localhost/nfd/status/general", true).unwrap();
    let status = fields(&content);
    assert!(text(&status, 0x80).starts_with("Kaido "));
    assert_eq!([0x84, 0x85, 0x86, 0x99, 0x9a].map(|kind| number(&status, kind)), [1, 3, 2, 10, 1]);
    assert_eq!(number(&status, 0x81), 1_700_000_000_000);
}

#[test]
fn the_workers_and_the_hot_names_are_shown() {
    let mut rig = Rig::new();
    let (_, content) = rig.ask("/localhost/nfd/status/workers", true).unwrap();
    let kinds_of: Vec<u32> = fields(&content).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds_of, [kinds::WORKER, kinds::WORKER, kinds::HOT_NAME, kinds::HOT_NAME]);
    let entries = entries(&content);
    assert_eq!(
        [kinds::WORKER_NUMBER, kinds::WORKER_PACKETS, kinds::WORKER_CS_MAX]
            .map(|kind| number(&entries[1], kind)),
        [1, 300, 70_000]
    );
    assert_eq!(entries[2][0], (types::NAME, name_from_uri("/hot").unwrap()));
    assert_eq!([2, 3].map(|at: usize| number(&entries[at], kinds::HOT_SHARE)), [250_000, 100_000]);
    assert_eq!(entries[3].len(), 1, "its name is not known yet");
}

/// Who asks for a version gets all its segments, though the node has changed meanwhile; who asks anew gets what is.
#[test]
fn a_dataset_is_of_one_moment() {
    let mut rig = Rig::new();
    for n in 0..90 {
        rig.command(Module::Rib, "register", &prefix(&format!("/{}/{n}", "x".repeat(100))));
    }
    let (first, _) = rig.ask("/localhost/nfd/rib/list", true).unwrap();
    let version = first.strip_suffix("/seg=0").unwrap();
    rig.command(Module::Rib, "register", &prefix("/new"));
    rig.now += Duration::from_secs(5);
    assert!(rig.ask(&format!("{version}/seg=1"), false).is_some());
    assert_eq!(rig.ask(&format!("{version}/seg=2"), false), None);
    let (newer, _) = rig.ask("/localhost/nfd/rib/list", true).unwrap();
    assert_ne!(newer, first);
    rig.now += Duration::from_secs(6);
    rig.manager.tick(rig.now);
    assert_eq!(rig.ask(&format!("{version}/seg=1"), false), None, "it is not kept for ever");
}

/// Conformance: NDN management ControlCommand | An unsigned command is refused; what is no name of ours is not answered
#[test]
fn only_what_is_signed_commands() {
    let mut rig = Rig::new();
    let (_, content) = rig.ask("/localhost/nfd/rib/register/%68%05%07%03%08%01a", false).unwrap();
    assert_eq!(ControlResponse::parse(&content).unwrap().code, 403);
    for uri in [
        "/a",
        "/localhost/nfd",
        "/localhost/nfd/rib/unheard-of",
        "/localhost/nfd/faces/query/x",
        "/localhop/nfd/rib/list",
    ] {
        assert_eq!(rig.ask(uri, true), None, "{uri}");
    }
    let stranger = rig.manager.node().faces.create(face("udp4://192.0.2.9:1", Scope::NonLocal)).unwrap().id();
    for from in [stranger, FaceId(0), FaceId(u32::MAX)] {
        assert_eq!(rig.command_from(from, Module::Rib, "register", &prefix("/a")).code, 403);
    }
    assert!(rig.manager.rib().0.is_empty());
}

/// Any octets as an Interest to management: an answer or none, and nothing else.
#[test]
fn hostile_interests_are_survived() {
    let mut rig = Rig::new();
    let good = command_interest(Module::Rib, "register", &prefix("/a")).unwrap();
    for at in 0..good.len() {
        for value in [0, 1, 7, 0x7f, 0xfd, 0xff, good[at] ^ 1] {
            let mut changed = good.clone();
            changed[at] = value;
            rig.manager.answer(&changed, rig.application, rig.now, SystemTime::now());
            rig.manager.answer(&good[..at], rig.application, rig.now, SystemTime::now());
        }
    }
    assert!(rig.manager.rib().0.len() <= 1);
}

/// Over a socket, with the tokens that a forwarder gives: what was asked is answered with the token it came with.
#[test]
fn the_manager_is_an_application() {
    let (near, far) = UnixStream::pair().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        let mut rig = Rig::new();
        rig.manager.serve(&mut Connection::over_stream(far), &stopped, |_| {}).unwrap();
        rig.manager.rib().0.len()
    });
    let mut consumer = Consumer::over(Connection::over_stream(near));
    // No forwarder says where a command came in: it is nobody's.
    let refused = command(&mut consumer, Module::Rib, "register", &prefix("/a")).unwrap_err();
    assert!(matches!(&refused, CommandError::Refused(response) if response.code == 403), "{refused}");
    let interest = command_interest(Module::Rib, "register", &prefix("/a")).unwrap();
    let header = LpHeader { pit_token: b"token", incoming_face: Some(256), ..LpHeader::default() };
    let mut packet = vec![0; header.len(interest.len())];
    header.emit(interest.len(), &mut packet).unwrap();
    packet.extend(interest);
    consumer.connection().send(&packet).unwrap();
    let received = consumer.connection().receive(Instant::now() + Duration::from_secs(60)).unwrap().unwrap();
    let (header, data) = received.packet().unwrap();
    assert_eq!(header.pit_token, b"token");
    let response = ControlResponse::parse(Data::parse(data, data.len()).unwrap().content).unwrap();
    assert_eq!(response.code, 200, "{}", response.text);
    let listed = dataset(&mut consumer, "rib/list").unwrap();
    assert_eq!(entries(&listed).len(), 1);
    stop.store(true, Ordering::Relaxed);
    assert_eq!(thread.join().unwrap(), 1);
}
