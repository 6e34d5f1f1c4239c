//! An SMF and a user plane's endpoint talk in memory: how many sessions a second does the protocol allow?
//!
//! `cargo run --release -p kaido-pfcp --example loopback -- 100000`

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Instant, SystemTime};

use kaido_n4::{
    BitRate, Cause, DeletionResponse, Established, Establishment, FSeid, FTeid, LocalFTeid, Modification,
    Modified, OuterHeaderRemoval, Qfi, Rejection, Seid, SessionEvent, SessionService, Teid,
};
use kaido_pfcp::{Config, Endpoint, Instants, Retransmission, SessionTemplate, Smf, SmfConfig, SmfEvent};

const UPF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 8805);
const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 8805);
const BATCH: usize = 256;

/// A user plane that writes down its sessions and nothing else.
#[derive(Default)]
struct Ledger {
    sessions: HashMap<Seid, FSeid>,
    last: u64,
}

impl SessionService for Ledger {
    fn establish(&mut self, request: &Establishment, _now: SystemTime) -> Result<Established, Rejection> {
        self.last += 1;
        self.sessions.insert(Seid(self.last), request.cp_fseid);
        Ok(Established { seid: Seid(self.last), ..Established::default() })
    }

    fn modify(&mut self, _: Seid, _: &Modification, _: SystemTime) -> Result<Modified, Rejection> {
        Ok(Modified::default())
    }

    fn delete(&mut self, seid: Seid, _now: SystemTime) -> Result<DeletionResponse, Rejection> {
        let absent = || Rejection::new(Cause::SessionContextNotFound, "no such session");
        self.sessions.remove(&seid).map(|_| DeletionResponse::default()).ok_or_else(absent)
    }

    fn cp_fseid(&self, seid: Seid) -> Option<FSeid> {
        self.sessions.get(&seid).copied()
    }

    fn poll_events(&mut self, _now: SystemTime, _limit: usize) -> Vec<SessionEvent> {
        Vec::new()
    }
}

fn template(n: u32) -> SessionTemplate {
    let rate = Some(BitRate { uplink_kbps: 100_000, downlink_kbps: 100_000 });
    let n3 = FTeid { teid: Teid(n + 1), ipv4: Some(Ipv4Addr::new(192, 0, 2, 1)), ipv6: None };
    SessionTemplate {
        ue_ipv4: Some(Ipv4Addr::from_bits(0x0a3c_0000 + n)),
        ue_ipv6: None,
        n3: LocalFTeid::Given(n3),
        outer_header_removal: OuterHeaderRemoval::GtpUUdpIp,
        gnb: None,
        access: None,
        core: None,
        qfi: Qfi(9),
        session_rate: rate,
        flow_rate: rate,
        urrs: Vec::new(),
    }
}

/// Carries what one side sent to the other, until both are silent.
fn settle(now: Instants, smf: &mut Smf, upf: &mut Endpoint<Ledger>, out: &mut Vec<kaido_pfcp::Transmit>) {
    let mut back = Vec::new();
    while !out.is_empty() {
        out.drain(..).for_each(|transmit| upf.handle(now, SMF, &transmit.bytes, &mut back));
        back.drain(..).for_each(|transmit| smf.handle(now, UPF, &transmit.bytes, out));
    }
}

fn main() {
    let count: u32 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10_000);
    let now = Instants::now();
    let mut upf = Endpoint::new(Config::at(UPF.ip()), Ledger::default(), now);
    let mut smf = Smf::new(SmfConfig {
        node_id: SMF.ip().into(),
        ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)),
        ipv6: None,
        recovery: now.wall,
        retransmission: Retransmission::default(),
        outstanding: BATCH + 1,
        dialect: kaido_pfcp::Dialect::Plain,
    });
    let mut out = Vec::new();
    if smf.associate(now, UPF, &mut out).is_err() {
        return;
    }
    settle(now, &mut smf, &mut upf, &mut out);

    let start = Instant::now();
    let mut established = 0;
    for n in 0..count {
        if smf.establish(now, UPF, template(n).establishment(), &mut out).is_err() {
            break;
        }
        if out.len() == BATCH || n + 1 == count {
            settle(Instants::now(), &mut smf, &mut upf, &mut out);
        }
        while let Some(event) = smf.next_event() {
            established += u32::from(matches!(event, SmfEvent::Established { .. }));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{established} sessions, both sides on one core: {:.0} a second",
        f64::from(established) / seconds
    );
    for sample in upf.counters().samples().filter(|sample| sample.value > 0) {
        println!("{} {:?} {}", sample.name, sample.label, sample.value);
    }
}
