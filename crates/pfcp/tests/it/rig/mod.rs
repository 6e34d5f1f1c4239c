//! A user plane that keeps rules and moves no packets, a wire between two endpoints, and messages by hand.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use kaido_n4::{
    Cause, ChooseOr, CreatedPdr, DeletionResponse, Established, Establishment, FSeid, FTeid, LocalFTeid,
    Modification, Modified, Outcome, PathEvent, Pdr, PfdManagement, Progress, Rejection, RuleId, Seid,
    SessionEvent, SessionService, Teid, Ticket, UeIpAddress, UpdatePdr, UrrId, UsageReport,
    UsageReportTrigger, Volume,
};
use kaido_pfcp::{Config, Endpoint, Features, Instants, NodeId, Retransmission, Smf, SmfConfig, Transmit};

pub const UPF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 8805);
pub const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 8805);
pub const HEARTBEAT_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 200)), 9);
pub const STRANGER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 8805);

/// One session as the control plane made it.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub cp: FSeid,
    pub pdrs: BTreeSet<u16>,
    pub fars: BTreeSet<u32>,
    pub qers: BTreeSet<u32>,
    pub urrs: BTreeMap<u32, u32>,
}

/// A [`SessionService`] with limits, and with events put in by hand.
#[derive(Clone, Debug)]
pub struct Scripted {
    pub sessions: BTreeMap<Seid, Kept>,
    pub sessions_max: usize,
    pub rules_max: usize,
    pub next_seid: u64,
    pub next_teid: u32,
    pub events: VecDeque<SessionEvent>,
    pub establishments: Vec<Establishment>,
    pub modifications: Vec<(Seid, Modification)>,
    pub deletions: Vec<Seid>,
    pub provisioned: Vec<PfdManagement>,
    pub paths: VecDeque<PathEvent>,
    pub load: u8,
    /// Workers are in the middle of a batch: what changes or goes is answered later.
    pub is_busy: bool,
    /// Usage that is held, and whether it may have arrived.
    pub held: BTreeMap<Seid, Vec<(UsageReport, bool)>>,
    /// Who has a UE address, where two sessions may not have the same.
    pub owners: Option<BTreeMap<Ipv4Addr, Seid>>,
    /// When it was last asked for events.
    pub now: Option<SystemTime>,
    /// By how much the wall clock was set, each time.
    pub steps: Vec<i64>,
    put_off: VecDeque<(Ticket, Outcome)>,
}

impl Default for Scripted {
    fn default() -> Self {
        Self {
            sessions: BTreeMap::new(),
            sessions_max: 100,
            rules_max: 64,
            next_seid: 0x1000,
            next_teid: 0xa000_0000,
            events: VecDeque::new(),
            establishments: Vec::new(),
            modifications: Vec::new(),
            deletions: Vec::new(),
            provisioned: Vec::new(),
            paths: VecDeque::new(),
            load: 0,
            is_busy: false,
            held: BTreeMap::new(),
            owners: None,
            now: None,
            steps: Vec::new(),
            put_off: VecDeque::new(),
        }
    }
}

pub fn usage(urr: u32, ur_seqn: u32, trigger: UsageReportTrigger, now: SystemTime) -> UsageReport {
    UsageReport {
        volume: Some(Volume {
            uplink_bytes: 1000,
            downlink_bytes: 2_000_000_000_000,
            uplink_packets: 10,
            downlink_packets: 2000,
        }),
        with_packets: true,
        duration: Some(Duration::from_secs(30)),
        ..UsageReport::new(UrrId(urr), ur_seqn, trigger, now - Duration::from_secs(30), now)
    }
}

fn failure(rule: RuleId) -> Rejection {
    Rejection::new(Cause::RuleCreationOrModificationFailure, "no such rule, or one too many").rule(rule)
}

impl Scripted {
    fn create_pdr(&mut self, pdr: &Pdr) -> Option<CreatedPdr> {
        let local_fteid = match pdr.pdi.local_fteid {
            Some(LocalFTeid::Choose { ipv4, .. }) => {
                self.next_teid += 1;
                let ipv4 = ipv4.then_some(Ipv4Addr::new(192, 0, 2, 1));
                let ipv6 = ipv4.is_none().then(|| "2001:db8::1".parse().unwrap());
                Some(FTeid { teid: Teid(self.next_teid), ipv4, ipv6 })
            }
            _ => None,
        };
        let chosen = pdr.pdi.ue_ip.iter().find(|ue| ue.ipv4 == Some(ChooseOr::Choose));
        let given = Some(ChooseOr::Given(Ipv4Addr::new(10, 60, 0, 7)));
        let ue_ip = chosen.map(|ue| UeIpAddress { ipv4: given, ipv6: None, role: ue.role });
        (local_fteid.is_some() || ue_ip.is_some()).then_some(CreatedPdr { id: pdr.id, local_fteid, ue_ip })
    }

    fn later(&mut self, outcome: Outcome) -> Ticket {
        let ticket = Ticket(self.next_seid);
        self.next_seid += 1;
        self.put_off.push_back((ticket, outcome));
        ticket
    }

    fn report(kept: &mut Kept, urr: u32, trigger: UsageReportTrigger, now: SystemTime) -> UsageReport {
        let seqn = kept.urrs.entry(urr).or_default();
        let report = usage(urr, *seqn, trigger, now);
        *seqn += 1;
        report
    }
}

impl SessionService for Scripted {
    fn establish(&mut self, request: &Establishment, _now: SystemTime) -> Result<Established, Rejection> {
        let rules = request.pdrs.len() + request.fars.len() + request.qers.len() + request.urrs.len();
        if self.sessions.len() >= self.sessions_max || rules > self.rules_max {
            return Err(Rejection::new(Cause::NoResourcesAvailable, "full"));
        }
        let kept = Kept {
            cp: request.cp_fseid,
            pdrs: request.pdrs.iter().map(|rule| rule.id.0).collect(),
            fars: request.fars.iter().map(|rule| rule.id.0).collect(),
            qers: request.qers.iter().map(|rule| rule.id.0).collect(),
            urrs: request.urrs.iter().map(|rule| (rule.id.0, 0)).collect(),
        };
        let filters = request.pdrs.iter().flat_map(|pdr| &pdr.pdi.sdf_filters);
        let filters: BTreeSet<_> = filters.filter_map(|filter| filter.id).collect();
        for pdr in &request.pdrs {
            if !pdr.pdi.sdf_filter_ids.iter().all(|id| filters.contains(id)) {
                let absent = Rejection::new(Cause::MandatoryIeIncorrect, "no such filter");
                return Err(absent.ie(23).rule(RuleId::Pdr(pdr.id)));
            }
            let far = pdr.far_id.unwrap();
            if !kept.fars.contains(&far.0) {
                return Err(failure(RuleId::Pdr(pdr.id)));
            }
        }
        let ues = request.pdrs.iter().flat_map(|pdr| &pdr.pdi.ue_ip).filter_map(|ue| match ue.ipv4 {
            Some(ChooseOr::Given(address)) => Some(address),
            _ => None,
        });
        if let Some(owners) = &mut self.owners {
            let owner = ues.clone().find_map(|address| owners.get(&address));
            if let Some(&owner) = owner.filter(|owner| self.sessions.contains_key(owner)) {
                let taken =
                    Rejection::new(Cause::RuleCreationOrModificationFailure, "belongs to another session");
                return Err(taken.held_by(Some(owner)));
            }
            owners.extend(ues.map(|address| (address, Seid(self.next_seid))));
        }
        self.establishments.push(request.clone());
        let created_pdrs = request.pdrs.iter().filter_map(|pdr| self.create_pdr(pdr)).collect();
        let seid = Seid(self.next_seid);
        self.next_seid += 1;
        self.sessions.insert(seid, kept);
        Ok(Established { seid, created_pdrs, ..Established::default() })
    }

    fn modify(&mut self, seid: Seid, request: &Modification, now: SystemTime) -> Result<Modified, Rejection> {
        let absent = || Rejection::new(Cause::SessionContextNotFound, "no session");
        let mut kept = self.sessions.get(&seid).ok_or_else(absent)?.clone();
        let mut usage_reports = Vec::new();
        for far in &request.update_fars {
            kept.fars.get(&far.id.0).ok_or_else(|| failure(RuleId::Far(far.id)))?;
        }
        for pdr in &request.update_pdrs {
            kept.pdrs.get(&pdr.id.0).ok_or_else(|| failure(RuleId::Pdr(pdr.id)))?;
        }
        for id in &request.remove_pdrs {
            kept.pdrs.take(&id.0).ok_or_else(|| failure(RuleId::Pdr(*id)))?;
        }
        for id in &request.query_urrs {
            kept.urrs.get(&id.0).ok_or_else(|| failure(RuleId::Urr(*id)))?;
            usage_reports.push(Self::report(&mut kept, id.0, UsageReportTrigger::IMMER, now));
        }
        if request.query_all_urrs {
            for id in kept.urrs.keys().copied().collect::<Vec<_>>() {
                usage_reports.push(Self::report(&mut kept, id, UsageReportTrigger::IMMER, now));
            }
        }
        for id in &request.remove_urrs {
            kept.urrs.get(&id.0).ok_or_else(|| failure(RuleId::Urr(*id)))?;
            usage_reports.push(Self::report(&mut kept, id.0, UsageReportTrigger::TERMR, now));
            kept.urrs.remove(&id.0);
        }
        kept.pdrs.extend(request.create_pdrs.iter().map(|rule| rule.id.0));
        kept.fars.extend(request.create_fars.iter().map(|rule| rule.id.0));
        kept.urrs.extend(request.create_urrs.iter().map(|rule| (rule.id.0, 0)));
        kept.cp = request.cp_fseid.unwrap_or(kept.cp);
        let created_pdrs = request.create_pdrs.iter().filter_map(|pdr| self.create_pdr(pdr)).collect();
        let changed =
            |update: &UpdatePdr| Some(Pdr { id: update.id, pdi: update.pdi.clone()?, ..Pdr::default() });
        let changed: Vec<Pdr> = request.update_pdrs.iter().filter_map(changed).collect();
        let updated_pdrs = changed.iter().filter_map(|pdr| self.create_pdr(pdr)).collect();
        self.sessions.insert(seid, kept);
        self.modifications.push((seid, request.clone()));
        Ok(Modified { created_pdrs, updated_pdrs, usage_reports, ..Modified::default() })
    }

    fn delete(&mut self, seid: Seid, now: SystemTime) -> Result<DeletionResponse, Rejection> {
        let absent = || Rejection::new(Cause::SessionContextNotFound, "no session");
        let mut kept = self.sessions.remove(&seid).ok_or_else(absent)?;
        self.deletions.push(seid);
        let urrs: Vec<u32> = kept.urrs.keys().copied().collect();
        let term = UsageReportTrigger::TERMR;
        let usage_reports = urrs.into_iter().map(|id| Self::report(&mut kept, id, term, now)).collect();
        Ok(DeletionResponse { usage_reports, ..DeletionResponse::default() })
    }

    fn start_modification(
        &mut self,
        seid: Seid,
        request: &Modification,
        now: SystemTime,
    ) -> Result<Progress<Modified>, Rejection> {
        let modified = self.modify(seid, request, now)?;
        Ok(if self.is_busy {
            Progress::Waiting(self.later(Outcome::Modified(modified)))
        } else {
            Progress::Done(modified)
        })
    }

    fn start_deletion(
        &mut self,
        seid: Seid,
        now: SystemTime,
    ) -> Result<Progress<DeletionResponse>, Rejection> {
        let deleted = self.delete(seid, now)?;
        Ok(if self.is_busy {
            Progress::Waiting(self.later(Outcome::Deleted(deleted)))
        } else {
            Progress::Done(deleted)
        })
    }

    fn next_ended(&mut self, _now: SystemTime) -> Option<(Ticket, Outcome)> {
        if self.is_busy { None } else { self.put_off.pop_front() }
    }

    fn provision_pfds(&mut self, request: &PfdManagement) -> Result<(), Rejection> {
        self.provisioned.push(request.clone());
        Ok(())
    }

    fn cp_fseid(&self, seid: Seid) -> Option<FSeid> {
        self.sessions.get(&seid).map(|kept| kept.cp)
    }

    fn wall_clock_set(&mut self, by_ms: i64, _now: SystemTime) {
        self.steps.push(by_ms);
    }

    fn poll_events(&mut self, now: SystemTime, limit: usize) -> Vec<SessionEvent> {
        self.now = Some(now);
        let count = self.events.len().min(limit);
        self.events.drain(..count).collect()
    }

    fn hold_usage(&mut self, seid: Seid, reports: &[UsageReport], sent: bool) -> bool {
        let held = self.held.entry(seid).or_default();
        held.extend(reports.iter().map(|report| (report.clone(), sent)));
        self.sessions.contains_key(&seid)
    }

    /// All that is held, as it was.
    fn release_usage(&mut self, seid: Seid, _now: SystemTime) -> Vec<UsageReport> {
        self.held.remove(&seid).unwrap_or_default().into_iter().map(|(report, _)| report).collect()
    }

    fn usage_arrived(&mut self, seid: Seid, reports: &[UsageReport]) {
        if let Some(held) = self.held.get_mut(&seid) {
            held.retain(|(report, _)| !reports.contains(report));
        }
    }

    fn load(&self) -> u8 {
        self.load
    }

    fn poll_paths(&mut self, limit: usize) -> Vec<PathEvent> {
        let count = self.paths.len().min(limit);
        self.paths.drain(..count).collect()
    }
}

pub fn config() -> Config {
    let features =
        Features { allocates_f_teids: true, allocates_ue_addresses: true, sends_end_markers: true };
    Config { features, tells_load: true, ..Config::at(UPF.ip()) }
}

pub fn endpoint() -> (Endpoint<Scripted>, Instants) {
    let now = Instants::now();
    (Endpoint::new(config(), Scripted::default(), now), now)
}

pub fn smf() -> Smf {
    Smf::new(SmfConfig {
        node_id: SMF.ip().into(),
        ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)),
        ipv6: None,
        recovery: SystemTime::now(),
        retransmission: Retransmission::default(),
        outstanding: 1000,
        dialect: kaido_pfcp::Dialect::Plain,
    })
}

/// Carries datagrams to and fro until nothing is left; returns all that passed, with where it came from.
pub fn exchange(
    now: Instants,
    smf: &mut Smf,
    upf: &mut Endpoint<Scripted>,
    mut from_smf: Vec<Transmit>,
) -> Vec<(SocketAddr, Transmit)> {
    let mut passed = Vec::new();
    let mut from_upf = Vec::new();
    upf.poll(now, &mut from_upf);
    while !(from_smf.is_empty() && from_upf.is_empty()) {
        for transmit in std::mem::take(&mut from_smf) {
            assert_eq!(transmit.to, UPF);
            upf.handle(now, SMF, &transmit.bytes, &mut from_upf);
            passed.push((SMF, transmit));
        }
        for transmit in std::mem::take(&mut from_upf) {
            assert_eq!(transmit.to, SMF);
            smf.handle(now, UPF, &transmit.bytes, &mut from_smf);
            passed.push((UPF, transmit));
        }
        upf.poll(now, &mut from_upf);
    }
    passed
}

// Messages by hand.

pub fn ie(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut octets = kind.to_be_bytes().to_vec();
    octets.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
    octets.extend_from_slice(value);
    octets
}

pub fn message(kind: u8, seid: Option<u64>, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    if let Some(seid) = seid {
        rest.extend_from_slice(&seid.to_be_bytes());
    }
    rest.extend_from_slice(&sequence.to_be_bytes()[1..]);
    rest.push(0);
    rest.extend_from_slice(body);
    let mut octets = vec![0x20 | u8::from(seid.is_some()), kind];
    octets.extend_from_slice(&u16::try_from(rest.len()).unwrap().to_be_bytes());
    octets.extend(rest);
    octets
}

pub fn node_id() -> Vec<u8> {
    ie(60, &[0, 10, 0, 0, 1])
}

pub fn cp_f_seid(seid: u64) -> Vec<u8> {
    let mut value = vec![2];
    value.extend_from_slice(&seid.to_be_bytes());
    value.extend_from_slice(&[10, 0, 0, 1]);
    ie(57, &value)
}

pub fn setup(sequence: u32) -> Vec<u8> {
    let body = [node_id(), ie(96, &[0xe0, 0, 0, 1])].concat();
    message(5, None, sequence, &body)
}

pub const PDI: u16 = 2;

/// A PDR's parts, to be replaced one by one.
pub fn pdr_parts(id: u16, far: u32) -> Vec<(u16, Vec<u8>)> {
    let pdi = [ie(20, &[0]), ie(21, &[1, 0, 0, 0, 9, 192, 0, 2, 1]), ie(93, &[2, 10, 60, 0, 1])].concat();
    vec![
        (56, id.to_be_bytes().to_vec()),
        (29, vec![0, 0, 0, 255]),
        (PDI, pdi),
        (95, vec![0]),
        (108, far.to_be_bytes().to_vec()),
    ]
}

pub fn group(kind: u16, parts: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let inner: Vec<u8> = parts.iter().flat_map(|(kind, value)| ie(*kind, value)).collect();
    ie(kind, &inner)
}

pub fn create_pdr(id: u16, far: u32) -> Vec<u8> {
    group(1, &pdr_parts(id, far))
}

pub fn far_parts(id: u32) -> Vec<(u16, Vec<u8>)> {
    vec![(108, id.to_be_bytes().to_vec()), (44, vec![2]), (4, ie(42, &[1]))]
}

pub fn create_far(id: u32) -> Vec<u8> {
    group(3, &far_parts(id))
}

pub fn establishment(sequence: u32, rules: &[Vec<u8>]) -> Vec<u8> {
    let body = [node_id(), cp_f_seid(7), rules.concat()].concat();
    message(50, Some(0), sequence, &body)
}

pub fn sound_establishment(sequence: u32) -> Vec<u8> {
    establishment(sequence, &[create_pdr(1, 1), create_far(1)])
}

/// A response, taken apart without the code under test.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub kind: u8,
    pub seid: Option<u64>,
    pub sequence: u32,
    pub elements: Vec<(u16, Vec<u8>)>,
}

impl Reply {
    pub fn read(octets: &[u8]) -> Self {
        assert_eq!(octets[0] >> 5, 1);
        assert_eq!(usize::from(u16::from_be_bytes([octets[2], octets[3]])) + 4, octets.len());
        let seid = (octets[0] & 1 != 0).then(|| u64::from_be_bytes(octets[4..12].try_into().unwrap()));
        let at = if seid.is_some() { 12 } else { 4 };
        let sequence = u32::from_be_bytes([0, octets[at], octets[at + 1], octets[at + 2]]);
        Self { kind: octets[1], seid, sequence, elements: elements(&octets[at + 4..]) }
    }

    pub fn value(&self, kind: u16) -> Option<&[u8]> {
        self.elements.iter().find(|element| element.0 == kind).map(|element| element.1.as_slice())
    }

    pub fn cause(&self) -> u8 {
        self.value(19).expect("a cause")[0]
    }

    pub fn offending(&self) -> Option<u16> {
        self.value(40).map(|value| u16::from_be_bytes([value[0], value[1]]))
    }

    pub fn up_seid(&self) -> u64 {
        u64::from_be_bytes(self.value(57).expect("an F-SEID")[1..9].try_into().unwrap())
    }
}

pub fn elements(mut octets: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    while !octets.is_empty() {
        let length = usize::from(u16::from_be_bytes([octets[2], octets[3]]));
        found.push((u16::from_be_bytes([octets[0], octets[1]]), octets[4..4 + length].to_vec()));
        octets = &octets[4 + length..];
    }
    found
}

pub fn send_from(
    from: SocketAddr,
    upf: &mut Endpoint<Scripted>,
    now: Instants,
    datagram: &[u8],
) -> Vec<Reply> {
    let mut out = Vec::new();
    upf.handle(now, from, datagram, &mut out);
    // Answers go back to who asked; a report that is redirected goes where it was told to.
    assert!(out.iter().all(|transmit| transmit.to == from || Reply::read(&transmit.bytes).kind == 56));
    out.iter().map(|transmit| Reply::read(&transmit.bytes)).collect()
}

/// Sends a request of the SMF's and returns its one answer.
pub fn ask(upf: &mut Endpoint<Scripted>, now: Instants, datagram: &[u8]) -> Reply {
    let mut replies = send_from(SMF, upf, now, datagram);
    assert_eq!(replies.len(), 1, "one answer");
    replies.remove(0)
}

/// An endpoint with the SMF's association.
pub fn associated() -> (Endpoint<Scripted>, Instants) {
    let (mut upf, now) = endpoint();
    assert_eq!(ask(&mut upf, now, &setup(1)).cause(), 1);
    (upf, now)
}

/// An endpoint with one session, and its UP SEID.
pub fn with_session() -> (Endpoint<Scripted>, Instants, u64) {
    let (mut upf, now) = associated();
    let reply = ask(&mut upf, now, &sound_establishment(2));
    assert_eq!((reply.cause(), reply.seid), (1, Some(7)));
    let seid = reply.up_seid();
    (upf, now, seid)
}

/// The endpoint still answers, and knows just these many sessions. A stranger asks: the stamp of a peer's
/// heartbeat would count.
pub fn still_sound(upf: &mut Endpoint<Scripted>, now: Instants, sessions: usize) {
    let heartbeat = message(1, None, 0x00ab_cdef, &ie(96, &[0xe0, 0, 0, 1]));
    let reply = send_from(HEARTBEAT_PEER, upf, now, &heartbeat).remove(0);
    assert_eq!((reply.kind, reply.sequence), (2, 0x00ab_cdef));
    assert_eq!(upf.service().sessions.len(), sessions);
    assert_eq!(upf.session_count(), sessions);
}

pub fn fqdn(name: &str) -> NodeId {
    name.parse().unwrap()
}

/// Everything that is due at a moment.
pub fn due(upf: &mut Endpoint<Scripted>, now: Instants) -> Vec<Transmit> {
    let mut out = Vec::new();
    upf.poll(now, &mut out);
    out
}

/// A request of the SMF's to set up an association, with more elements than it must have.
pub fn setup_with(sequence: u32, more: &[Vec<u8>]) -> Vec<u8> {
    let body = [node_id(), ie(96, &[0xe0, 0, 0, 1]), more.concat()].concat();
    message(5, None, sequence, &body)
}

/// The SMF's acceptance of a request of the endpoint's.
pub fn accept(upf: &mut Endpoint<Scripted>, now: Instants, from: SocketAddr, request: &Reply) {
    let seid = request.seid.map(|_| upf.service().sessions.keys().next().map_or(1, |seid| seid.0));
    let answer = message(request.kind + 1, seid, request.sequence, &[node_id(), ie(19, &[1])].concat());
    assert!(send_from(from, upf, now, &answer).is_empty());
}

/// A request of the endpoint's for a session, answered by the SMF at an address.
pub fn answer_report(
    upf: &mut Endpoint<Scripted>,
    now: Instants,
    from: SocketAddr,
    request: &Reply,
    cause: u8,
    more: &[Vec<u8>],
) {
    let seid = upf.service().sessions.keys().next().map_or(1, |seid| seid.0);
    let answer = message(57, Some(seid), request.sequence, &[ie(19, &[cause]), more.concat()].concat());
    assert!(send_from(from, upf, now, &answer).iter().all(|sent| sent.kind == 56));
}
