//! What requests of a session allocate, from the datagram to the answer: a counting allocator says it. None is made for an
//! information element; what there is belongs to rules that are kept and records that are made.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use kaido_n4::{
    FTeid, LocalFTeid, MeasurementMethod, OuterHeaderCreation, ReportingTriggers, Seid, Teid, Urr, UrrId,
    VolumeThreshold,
};
use kaido_pfcp::{
    Config, Dialect, Endpoint, Instants, Retransmission, SessionTemplate, Smf, SmfConfig, SmfEvent, Transmit,
};
use kaido_upf::control::Upf;
use kaido_upf::node::{Node, NodeSettings};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is handed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const UPF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 8805);
const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 8805);
const N3: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Sessions before those that are counted: tables and buffers have their size then.
const BEFORE: u32 = 3000;
const COUNTED: u32 = 1000;

/// What a phase may allocate for each session, a quarter more than it did when this was written.
const ESTABLISHMENT_MAX: f64 = 63.0;
const MODIFICATION_MAX: f64 = 75.0;
const DELETION_MAX: f64 = 60.0;

/// A control plane, and a user plane whose allocations are counted.
struct N4 {
    smf: Smf,
    endpoint: Endpoint<Upf>,
    out: Vec<Transmit>,
    allocations: u64,
}

impl N4 {
    fn new() -> Self {
        let smf = Smf::new(SmfConfig {
            node_id: SMF.ip().into(),
            ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)),
            ipv6: None,
            recovery: SystemTime::now(),
            retransmission: Retransmission::default(),
            outstanding: 16,
            dialect: Dialect::Plain,
        });
        let settings = NodeSettings {
            endpoints: vec![N3.into()],
            sessions_max: BEFORE + COUNTED,
            ..NodeSettings::default()
        };
        let (node, events) = Node::new(settings).unwrap();
        let upf = Upf::new(node, events, Vec::new()).unwrap();
        let endpoint = Endpoint::new(Config::at(UPF.ip()), upf, Instants::now());
        let mut n4 = Self { smf, endpoint, out: Vec::with_capacity(16), allocations: 0 };
        let mut sent = Vec::new();
        n4.smf.associate(Instants::now(), UPF, &mut sent).unwrap();
        n4.carry(sent);
        n4
    }

    fn carry(&mut self, sent: Vec<Transmit>) {
        for request in sent {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            self.endpoint.handle(Instants::now(), SMF, &request.bytes, &mut self.out);
            self.allocations += ALLOCATIONS.load(Ordering::Relaxed) - before;
            for answer in self.out.drain(..) {
                self.smf.handle(Instants::now(), UPF, &answer.bytes, &mut Vec::new());
            }
        }
        while let Some(event) = self.smf.next_event() {
            assert!(!matches!(event, SmfEvent::Refused { .. }), "{event:?}");
        }
    }

    /// The allocations of requests, one of each session: of the last [`COUNTED`] on average.
    fn phase(&mut self, sessions: &[Seid], mut send: impl FnMut(&mut Smf, Seid, &mut Vec<Transmit>)) -> f64 {
        let counted = sessions.len() - COUNTED as usize;
        for (place, &session) in sessions.iter().enumerate() {
            if place == counted {
                self.allocations = 0;
            }
            let mut sent = Vec::new();
            send(&mut self.smf, session, &mut sent);
            self.carry(sent);
        }
        self.allocations as f64 / f64::from(COUNTED)
    }

    fn establish(&mut self, urr: &Urr) -> (Vec<Seid>, f64) {
        let mut seids = Vec::new();
        let mut numbers = 0u32..;
        let placeholders = vec![Seid(0); (BEFORE + COUNTED) as usize];
        let each = self.phase(&placeholders, |smf, _, sent| {
            let number = numbers.next().unwrap();
            let template = SessionTemplate {
                ue_ipv4: Some(Ipv4Addr::from_bits(0x0a3c_0000 + number)),
                n3: LocalFTeid::Given(FTeid { teid: Teid(number + 1), ipv4: Some(N3), ipv6: None }),
                gnb: Some(tunnel(number + 1)),
                urrs: vec![urr.clone()],
                ..SessionTemplate::default()
            };
            seids.push(smf.establish(Instants::now(), UPF, template.establishment(), sent).unwrap());
        });
        (seids, each)
    }
}

fn tunnel(teid: u32) -> OuterHeaderCreation {
    OuterHeaderCreation { teid: Teid(teid), ipv4: Some(Ipv4Addr::new(192, 0, 2, 2)), ipv6: None }
}

fn volume() -> Urr {
    let method = MeasurementMethod { volume: true, ..MeasurementMethod::default() };
    Urr { id: UrrId(1), method, ..Urr::default() }
}

/// One test alone: the allocator counts for the whole process.
#[test]
fn requests_allocate_for_what_they_keep_and_not_for_elements() {
    let mut n4 = N4::new();
    let (sessions, establishment) = n4.establish(&volume());
    let modification = n4.phase(&sessions, |smf, session, sent| {
        let handover = SessionTemplate::forward(tunnel(1 << 31), false);
        smf.modify(Instants::now(), session, &handover, sent).unwrap();
    });
    let deletion = n4.phase(&sessions, |smf, session, sent| {
        smf.delete(Instants::now(), session, sent).unwrap();
    });
    let each = [establishment, modification, deletion];
    println!("allocations of an establishment, a handover, a deletion: {each:?}");
    let bounds = [ESTABLISHMENT_MAX, MODIFICATION_MAX, DELETION_MAX];
    assert!(each.iter().zip(bounds).all(|(count, most)| *count <= most), "{each:?} beyond {bounds:?}");
    assert_eq!(n4.endpoint.session_count(), 0);

    // Nine more elements in a rule, some of which have several parts.
    let volume_threshold = VolumeThreshold { total: Some(1 << 50), uplink: Some(1), downlink: Some(1) };
    let many = Urr {
        triggers: [ReportingTriggers::PERIO, ReportingTriggers::VOLTH, ReportingTriggers::TIMTH]
            .into_iter()
            .fold(ReportingTriggers::default(), ReportingTriggers::union),
        method: MeasurementMethod { duration: true, ..volume().method },
        measurement_period: Some(Duration::from_secs(3600)),
        volume_threshold: Some(volume_threshold),
        time_threshold: Some(Duration::from_secs(3600)),
        quota_holding_time: Some(Duration::from_secs(3600)),
        inactivity_detection_time: Some(Duration::from_secs(3600)),
        number_of_reports: Some(9),
        ..volume()
    };
    let (_, with_many) = n4.establish(&many);
    // A deadline has an entry in the wheel.
    assert!(with_many <= establishment + 1.0, "{with_many} with more elements, {establishment} without");
}
