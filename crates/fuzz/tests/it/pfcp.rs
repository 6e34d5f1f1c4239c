//! The PFCP endpoint over the real user plane: any datagrams, in any order, from two control planes and a stranger,
//! with time and traffic between them. No panic, every answer well formed, a refusal changes nothing, nothing is left
//! of what was ended, and a heartbeat is answered afterwards.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use crate::fixture::{N3, N6, SessionPlan, packets, settings};
use crate::site::{Lane, Site};
use kaido_fuzz::{Script, fuzz_target};
use kaido_n4::{Cause, ChooseOr, Establishment, LocalFTeid, SessionService, Urr, UrrId};
use kaido_pfcp::{Config, Endpoint, Features, Instants, Limits, NodeId, Peer, Transmit};
use kaido_upf::control::{SessionSummary, Upf};
use kaido_upf::node::NodeSettings;

fuzz_target!(pfcp, 3_000, run);

/// Sessions of the node.
const SESSIONS_MAX: u32 = 16;
/// URRs that a session can have when all have as many.
const URRS: u32 = 4;
/// Packets that may wait for a page.
const HELD_MAX: i64 = 64;
/// The control planes, the second told by a bit of the operation.
const SMFS: [SocketAddr; 2] = [peer(1), peer(2)];
const STRANGER: SocketAddr = peer(200);
/// Message types, the ones with most in them more often.
const KINDS: [u8; 24] =
    [1, 2, 3, 5, 5, 6, 7, 8, 9, 11, 13, 14, 16, 50, 50, 50, 50, 52, 52, 52, 52, 54, 54, 57];
const REPORT_RESPONSE: u8 = 57;

const fn peer(n: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), 8805)
}

thread_local! {
    static NODE: RefCell<Node> = RefCell::new(Node::new());
}

fn run(input: &[u8]) {
    NODE.with_borrow_mut(|node| {
        let lane = node.site.lane(node.endpoint.service());
        let mut turn = Turn { node, lane, requests: Vec::new(), last: None, sequence: 1, bundle: Vec::new() };
        let mut script = Script::new(input);
        while let Some(operation) = script.byte() {
            turn.step(operation, &mut script);
            turn.check();
        }
        turn.end();
    });
}

/// The node, which stays from one input to the next.
struct Node {
    site: Site,
    endpoint: Endpoint<Upf>,
    now: Instants,
}

impl Node {
    fn new() -> Self {
        let mut site = Site::new(NodeSettings { sessions_max: SESSIONS_MAX, ..settings() });
        let now = Instants::now();
        #[allow(clippy::needless_update)] // Features to come are off.
        let features = Features {
            allocates_f_teids: true,
            allocates_ue_addresses: true,
            sends_end_markers: true,
            ..Features::default()
        };
        let limits = Limits { associations: 4, answers: 64, outstanding: 32 };
        let config = Config { features, limits, ..Config::at(Ipv4Addr::new(10, 0, 0, 100).into()) };
        Self { endpoint: Endpoint::new(config, site.upf.take().unwrap(), now), site, now }
    }
}

/// What a refused request must leave as it was.
type Standing = (Vec<SessionSummary>, usize, Vec<Peer>);

struct Turn<'n> {
    node: &'n mut Node,
    lane: Lane,
    /// Requests of the node's that were not answered.
    requests: Vec<(SocketAddr, Header)>,
    /// The last datagram, and what was answered.
    last: Option<(SocketAddr, Vec<u8>, Vec<Transmit>)>,
    sequence: u32,
    /// Messages that go into one datagram with the next.
    bundle: Vec<u8>,
}

impl Turn<'_> {
    fn step(&mut self, operation: u8, script: &mut Script<'_>) {
        let from = SMFS[usize::from(operation >> 3 & 1)];
        match operation & 7 {
            0..=2 => self.message(from, operation & 0x10 != 0, script),
            3 => {
                let from = if operation & 0x10 != 0 { STRANGER } else { from };
                self.send(from, script.octets());
            }
            4 => self.wait(Duration::from_millis(1 << (script.byte_or_zero() % 18))),
            5 => self.traffic(script),
            6 => self.answer(script),
            _ => self.repeat(),
        }
    }

    /// A message with a sound header: to the session that the script chooses, if it is about one.
    fn message(&mut self, from: SocketAddr, bundled: bool, script: &mut Script<'_>) {
        let kind = KINDS[usize::from(script.byte_or_zero()) % KINDS.len()];
        let which = script.byte_or_zero();
        let body = script.octets();
        let seid = match kind {
            50 => Some(0),
            51.. => Some(self.seid(which)),
            _ => None,
        };
        self.sequence += 1;
        let mut message = header(kind, seid, self.sequence, body.len());
        message.extend_from_slice(body);
        if bundled && self.bundle.len() < 4096 {
            // FO: another message follows.
            message[0] |= 4;
            self.bundle.extend(message);
            return;
        }
        let mut datagram = std::mem::take(&mut self.bundle);
        datagram.extend(message);
        self.send(from, &datagram);
    }

    fn seid(&self, which: u8) -> u64 {
        let sessions = self.upf().sessions(0, SESSIONS_MAX as usize);
        let found = sessions.get(usize::from(which) % sessions.len().max(1));
        found.map_or(which.into(), |session| session.seid.0)
    }

    fn upf(&self) -> &Upf {
        self.node.endpoint.service()
    }

    fn standing(&self) -> Standing {
        let upf = self.upf();
        (upf.sessions(0, 100), upf.node().table.len(), self.node.endpoint.peers().collect())
    }

    fn send(&mut self, from: SocketAddr, datagram: &[u8]) {
        let before = self.standing();
        let mut out = Vec::new();
        self.node.endpoint.handle(self.node.now, from, datagram, &mut out);
        self.look_at(&out);
        let refuses = |transmit: &Transmit| Header::read(&transmit.bytes).refuses(&transmit.bytes);
        if !out.is_empty() && out.iter().all(refuses) {
            assert_eq!(before, self.standing(), "a refused request changed something");
        }
        self.last = Some((from, datagram.to_vec(), out));
    }

    /// All that the node sends is well formed; its requests are kept for an answer.
    fn look_at(&mut self, out: &[Transmit]) {
        for transmit in out {
            let header = well_formed(&transmit.bytes);
            if is_request(header.kind) {
                self.requests.push((transmit.to, header));
            }
        }
    }

    fn wait(&mut self, time: Duration) {
        // An answer is not kept for ever.
        self.last = None;
        self.node.now = self.node.now.after(time);
        let mut out = Vec::new();
        self.node.endpoint.poll(self.node.now, &mut out);
        self.look_at(&out);
    }

    /// Packets up and down for a session.
    fn traffic(&mut self, script: &mut Script<'_>) {
        let (which, size) = (script.byte_or_zero(), usize::from(script.byte_or_zero()) * 4);
        let sessions = self.upf().sessions(0, SESSIONS_MAX as usize);
        let Some(session) = sessions.get(usize::from(which) % sessions.len().max(1)) else { return };
        let ue = session.ue.ipv4.unwrap_or(Ipv4Addr::new(10, 60, 0, 1)).to_string();
        if let Some((teid, _)) = session.local.first() {
            let inner = packets::udp_between((&ue, 40_000), ("192.0.2.9", 53), size);
            self.lane.pass(N3, &packets::uplink(teid.0, &inner));
        }
        let down = packets::udp_between(("192.0.2.9", 53), (&ue, 40_000), size);
        self.lane.pass(N6, &packets::downlink(&down));
    }

    /// Answers a request of the node's: accepts it, or says what the script says.
    fn answer(&mut self, script: &mut Script<'_>) {
        let how = script.byte_or_zero();
        let Some((to, request)) = self.requests.pop() else { return };
        let accepted =
            [&[0, 60, 0, 5, 0, 10, 0, 0, 1][..], &[0, 19, 0, 1, 1], &[0, 96, 0, 4, 0xe0, 0, 0, 1]].concat();
        let body = if how & 1 == 0 { &accepted } else { script.octets() };
        let seid = request.seid.map(|_| self.seid(how));
        let mut datagram = header(request.kind + 1, seid, request.sequence, body.len());
        datagram.extend_from_slice(body);
        self.send(to, &datagram);
    }

    /// Sends the last datagram again: what was done once is answered with the same octets (TS 29.244 6.4).
    fn repeat(&mut self) {
        let Some((from, datagram, answers)) = self.last.take() else { return };
        let known = |node: &Node| node.endpoint.peers().any(|peer| peer.address == from);
        let single = Header::whole(&datagram).filter(|header| is_request(header.kind) && header.kind >= 50);
        let was_known = known(self.node);
        self.send(from, &datagram);
        if single.is_some() && was_known && known(self.node) {
            let again = &self.last.as_ref().unwrap().2;
            let octets =
                |out: &[Transmit]| out.iter().map(|transmit| transmit.bytes.clone()).collect::<Vec<_>>();
            assert_eq!(octets(&answers), octets(again), "an answer given twice differs");
        }
    }

    /// The counts of endpoint and user plane agree, and every packet is accounted for.
    fn check(&mut self) {
        let endpoint = &self.node.endpoint;
        let sessions = endpoint.service().len();
        assert_eq!(endpoint.session_count(), sessions);
        assert_eq!(endpoint.peers().map(|peer| peer.sessions).sum::<usize>(), sessions);
        assert!(sessions <= SESSIONS_MAX as usize && endpoint.outstanding() <= 32);
        self.lane.run();
        self.lane.accounts(HELD_MAX);
    }

    /// A heartbeat is answered; then all is released, and the node is as it was when it was new.
    fn end(mut self) {
        let mut out = Vec::new();
        let stamp = [0, 96, 0, 4, 0xe0, 0, 0, 1];
        let heartbeat = [header(1, None, 0x00ab_cdef, stamp.len()), stamp.to_vec()].concat();
        self.node.endpoint.handle(self.node.now, STRANGER, &heartbeat, &mut out);
        assert_eq!(out.len(), 1, "one answer to a heartbeat");
        let answer = well_formed(&out[0].bytes);
        assert_eq!((answer.kind, answer.sequence), (2, 0x00ab_cdef));
        let peers: Vec<Peer> = self.node.endpoint.peers().collect();
        for peer in peers {
            let name = node_id(&peer.node_id);
            self.sequence += 1;
            let release = [header(9, None, self.sequence, name.len()), name].concat();
            self.send(SocketAddr::new(peer.address.ip(), 8805), &release);
        }
        for _ in 0..8 {
            self.wait(Duration::from_secs(60));
        }
        self.lane.run();
        self.lane.accounts(0);
        let endpoint = &mut self.node.endpoint;
        assert_eq!((endpoint.peers().count(), endpoint.session_count(), endpoint.outstanding()), (0, 0, 0));
        drop(self.lane);
        self.node.site.pool_is_complete();
        fill(endpoint.service_mut());
        // Wall clocks do not run for years; the other one only runs forward.
        self.node.now.wall = SystemTime::now();
    }
}

/// Everything can be given out: all sessions, their usage counters, and a UE address for each.
fn fill(upf: &mut Upf) {
    assert!(upf.is_empty() && upf.node().table.is_empty(), "rules left behind");
    let now = SystemTime::now();
    let seids: Vec<_> = (0..SESSIONS_MAX).map(|_| upf.establish(&full(), now).unwrap().seid).collect();
    assert_eq!(upf.establish(&full(), now).unwrap_err().cause, Cause::NoResourcesAvailable);
    for seid in seids {
        assert_eq!(upf.delete(seid, now).unwrap().usage_reports.len(), URRS as usize);
    }
    assert!(upf.is_empty() && upf.node().table.is_empty(), "rules left behind");
}

/// A session for which the node chooses all that it can, with as many URRs as each of all sessions can have.
fn full() -> Establishment {
    let mut plan = SessionPlan::ipv4(1);
    plan.local = LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: None };
    plan.ue.ipv4 = Some(ChooseOr::Choose);
    let mut request = plan.establishment();
    let urr = request.urrs.remove(0);
    request.urrs = (1..=URRS).map(|n| Urr { id: UrrId(n), ..urr.clone() }).collect();
    request
}

/// The header of a PFCP message, read and written without the code under test (TS 29.244 7.2.2).
#[derive(Clone, Copy, Debug)]
struct Header {
    kind: u8,
    seid: Option<u64>,
    sequence: u32,
    elements_at: usize,
}

impl Header {
    fn read(octets: &[u8]) -> Self {
        let seid = (octets[0] & 1 != 0).then(|| u64::from_be_bytes(octets[4..12].try_into().unwrap()));
        let at = if seid.is_some() { 12 } else { 4 };
        let sequence = u32::from_be_bytes([0, octets[at], octets[at + 1], octets[at + 2]]);
        Self { kind: octets[1], seid, sequence, elements_at: at + 4 }
    }

    /// Of a datagram that is one message.
    fn whole(octets: &[u8]) -> Option<Self> {
        let length = usize::from(u16::from_be_bytes([*octets.get(2)?, *octets.get(3)?])) + 4;
        let least = if octets[0] & 1 != 0 { 16 } else { 8 };
        (octets[0] >> 5 == 1 && octets[0] & 4 == 0 && length == octets.len() && length >= least)
            .then(|| Self::read(octets))
    }

    /// Whether it refuses a request: version not supported, or a cause that does.
    fn refuses(self, octets: &[u8]) -> bool {
        self.kind == 11
            || elements(&octets[self.elements_at..]).iter().any(|&(kind, value)| kind == 19 && value[0] >= 64)
    }
}

fn header(kind: u8, seid: Option<u64>, sequence: u32, body: usize) -> Vec<u8> {
    let length = body + if seid.is_some() { 12 } else { 4 };
    let mut octets = vec![0x20 | u8::from(seid.is_some()), kind];
    octets.extend(u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    octets.extend(seid.iter().flat_map(|seid| seid.to_be_bytes()));
    octets.extend(&sequence.to_be_bytes()[1..]);
    octets.push(0);
    octets
}

fn is_request(kind: u8) -> bool {
    matches!(kind, 1 | 3 | 5 | 7 | 9 | 12 | 14 | 16 | 50 | 52 | 54 | 56)
}

/// Grouped elements that a user plane sends.
const GROUPS: [u16; 10] = [8, 51, 54, 78, 79, 80, 83, 99, 102, 128];

/// Reads a message of the node's to its last octet.
fn well_formed(octets: &[u8]) -> Header {
    assert!(octets.len() >= 8 && octets[0] >> 5 == 1, "version 1: {octets:02x?}");
    assert_eq!(usize::from(u16::from_be_bytes([octets[2], octets[3]])) + 4, octets.len(), "{octets:02x?}");
    let header = Header::read(octets);
    assert_eq!(header.seid.is_some(), header.kind >= 50, "a SEID for session messages alone");
    for (kind, value) in elements(&octets[header.elements_at..]) {
        if GROUPS.contains(&kind) {
            elements(value);
        }
    }
    // It asks for an F-SEID in refusals too, against 7.5.3.1.
    if !header.refuses(octets) {
        rs_pfcp::message::parse(octets).unwrap_or_else(|error| panic!("{error}: {octets:02x?}"));
    }
    assert_ne!(header.kind, REPORT_RESPONSE);
    header
}

fn elements(mut octets: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while !octets.is_empty() {
        assert!(octets.len() >= 4, "elements end within a header: {octets:02x?}");
        let length = usize::from(u16::from_be_bytes([octets[2], octets[3]]));
        assert!(octets.len() >= 4 + length, "an element ends beyond its parent: {octets:02x?}");
        found.push((u16::from_be_bytes([octets[0], octets[1]]), &octets[4..4 + length]));
        octets = &octets[4 + length..];
    }
    found
}

/// The Node ID element of a peer's name.
fn node_id(name: &NodeId) -> Vec<u8> {
    let value = match name.address() {
        Some(IpAddr::V4(addr)) => [&[0][..], &addr.octets()].concat(),
        Some(IpAddr::V6(addr)) => [&[1][..], &addr.octets()].concat(),
        None => {
            let text = name.to_string();
            let labels = text.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
            [2].into_iter().chain(labels).collect()
        }
    };
    [&[0, 60][..], &(value.len() as u16).to_be_bytes(), &value].concat()
}

/// The target would see little if the seeds were refused: what the corpus reaches.
#[test]
fn the_corpus_sets_up_sessions() {
    run(&[]);
    let mut most = 0;
    for input in kaido_fuzz::corpus("pfcp").unwrap() {
        NODE.with_borrow_mut(|node| {
            let lane = node.site.lane(node.endpoint.service());
            let mut turn =
                Turn { node, lane, requests: Vec::new(), last: None, sequence: 1, bundle: Vec::new() };
            let mut script = Script::new(&input);
            while let Some(operation) = script.byte() {
                turn.step(operation, &mut script);
                most = most.max(turn.upf().len());
            }
            turn.end();
        });
    }
    assert!(most >= 2, "no input sets up two sessions");
}
