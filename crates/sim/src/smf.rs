//! The SMF: associates, attaches UEs within a window, listens to reports, detaches.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kaido_n4::{
    BitRate, ChooseOr, CreatedPdr, Establishment, FTeid, LocalFTeid, MeasurementInformation,
    MeasurementMethod, Modification, OuterHeaderCreation, OuterHeaderRemoval, Qfi, ReportingTriggers, Seid,
    Teid, UeIpAddress, UeIpRole, Urr, UrrId, UsageReport, VolumeThreshold,
};
use kaido_pfcp::{Dialect, MsgType, PduSession, SessionTemplate, SmfError, SmfEvent};

use super::fault::SimFault;
use super::link::Link;
use super::plan::{Addressing, PoolFamily, SessionPlan, gtpu_endpoint};
use super::progress::Progress;
use super::report::Usage;
use super::ue::Ue;

/// Maximum of the session and of its flow: none, so that nothing is cut, and nothing is left to the workers alone.
const RATE: BitRate = BitRate { uplink_kbps: 0, downlink_kbps: 0 };
/// The same where a core's SMF is played: it says a rate, which is far from reached.
const DIALECT_RATE: BitRate = BitRate { uplink_kbps: 10_000_000, downlink_kbps: 10_000_000 };

/// The maximum rate of sessions and flows.
pub(super) fn rate(dialect: Dialect) -> BitRate {
    if dialect == Dialect::Plain { RATE } else { DIALECT_RATE }
}

/// How often the flags of signals are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// What the UPF reported beside usage.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportTally {
    /// First packets to idle UEs.
    pub(super) downlink_data: u64,
    /// Error Indications of the gNB's.
    pub(super) error_indications: u64,
}

/// How many sessions in what time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Sessions.
    pub(super) sessions: u32,
    /// From the first request to the last answer.
    pub(super) elapsed: Duration,
}

impl Pace {
    /// Sessions a second.
    pub(super) fn per_second(&self) -> f64 {
        f64::from(self.sessions) / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The control plane of all UEs.
#[derive(Debug)]
pub(super) struct ControlPlane {
    link: Link,
    plan: SessionPlan,
    ues: Vec<Ue>,
    sessions: HashMap<Seid, u32>,
    /// Requests that follow an establishment before its session carries data, as the dialect has it.
    activating: HashMap<Seid, VecDeque<Modification>>,
    /// Sessions that stand, in the order in which they were answered.
    attached: Vec<Seid>,
    usage: Vec<Usage>,
    reported: ReportTally,
    associated: bool,
    /// Answers to deletions.
    deleted: u32,
    /// The UPF wants us to go.
    release_wanted: bool,
}

impl ControlPlane {
    /// A control plane at `local` for the UPF at `upf`.
    pub(super) fn open(local: SocketAddr, upf: SocketAddr, plan: SessionPlan) -> Result<Self, SimFault> {
        let link = Link::open(local, upf, &plan)?;
        let ues = (0..plan.ues).map(|n| plan.addressing.of(n)).map(|(v4, v6)| Ue::new(v4, v6)).collect();
        Ok(Self {
            link,
            usage: vec![Usage::default(); plan.ues as usize],
            plan,
            ues,
            sessions: HashMap::new(),
            activating: HashMap::new(),
            attached: Vec::new(),
            reported: ReportTally::default(),
            associated: false,
            deleted: 0,
            release_wanted: false,
        })
    }

    /// Sets the association up.
    pub(super) fn associate(&mut self, stop: &AtomicBool) -> Result<(), SimFault> {
        self.link.associate().map_err(busy)?;
        while !self.associated && !stop.load(Ordering::Relaxed) {
            self.turn(LOOK)?;
            if let Some(error) = self.link.take_send_error() {
                return Err(SimFault::system("cannot send to the UPF's PFCP address")(error));
            }
        }
        Ok(())
    }

    /// Attaches all UEs, or those that were begun when `stop` was set.
    pub(super) fn attach(&mut self, stop: &AtomicBool, progress: &mut Progress) -> Result<Pace, SimFault> {
        progress.begin();
        let begun = Instant::now();
        let mut asked = 0;
        while asked < self.plan.ues || self.link.smf().outstanding() > 0 {
            if stop.load(Ordering::Relaxed) || self.release_wanted {
                asked = self.plan.ues;
            }
            while asked < self.plan.ues && self.link.smf().outstanding() < self.plan.window {
                let seid = self.link.establish(self.establishment(asked)).map_err(busy)?;
                self.sessions.insert(seid, asked);
                asked += 1;
            }
            self.turn(LOOK)?;
            progress.progress("attached", self.attached.len(), self.plan.ues);
        }
        let sessions = u32::try_from(self.attached.len()).unwrap_or(u32::MAX);
        Ok(Pace { sessions, elapsed: begun.elapsed() })
    }

    /// Deletes all sessions; their final usage is taken in.
    pub(super) fn detach(&mut self, progress: &mut Progress) -> Result<Pace, SimFault> {
        progress.begin();
        let begun = Instant::now();
        let all = u32::try_from(self.attached.len()).unwrap_or(u32::MAX);
        while !self.attached.is_empty() || self.link.smf().outstanding() > 0 {
            while self.link.smf().outstanding() < self.plan.window
                && let Some(seid) = self.attached.pop()
            {
                match self.link.delete(seid) {
                    // The user plane has ended it, and was heard.
                    Err(SmfError::NoSession(_)) => {}
                    asked => asked.map_err(busy)?,
                }
            }
            self.turn(LOOK)?;
            progress.progress("detached", self.deleted as usize, all);
        }
        Ok(Pace { sessions: self.deleted, elapsed: begun.elapsed() })
    }

    /// Releases the association.
    pub(super) fn release(&mut self) -> Result<(), SimFault> {
        if self.associated {
            self.link.release().map_err(busy)?;
            while self.associated {
                self.turn(LOOK)?;
            }
        }
        Ok(())
    }

    /// Releases the association after a failure, which is what is told.
    pub(super) fn abandon(&mut self) {
        let _ = self.release();
    }

    /// Answers the UPF for as long as `wait`.
    pub(super) fn turn(&mut self, wait: Duration) -> Result<(), SimFault> {
        self.link.turn(wait)?;
        while let Some(event) = self.link.next_event() {
            self.note(event)?;
        }
        Ok(())
    }

    /// Whether the UPF asked for the end of the association.
    pub(super) fn is_release_wanted(&self) -> bool {
        self.release_wanted
    }

    /// The UEs, for the data plane.
    pub(super) fn take_ues(&mut self) -> Vec<Ue> {
        std::mem::take(&mut self.ues)
    }

    /// Usage of each UE.
    pub(super) fn usage(&self) -> &[Usage] {
        &self.usage
    }

    /// Other reports.
    pub(super) fn reported(&self) -> ReportTally {
        self.reported
    }

    /// What the SMF counted.
    pub(super) fn counters(&self) -> &kaido_pfcp::Counters {
        self.link.smf().counters()
    }

    fn note(&mut self, event: SmfEvent) -> Result<(), SimFault> {
        match event {
            SmfEvent::Associated { .. } => self.associated = true,
            SmfEvent::Released { .. } => self.associated = false,
            SmfEvent::ReleaseWanted { .. } => self.release_wanted = true,
            SmfEvent::Established { seid, created_pdrs, .. } => return self.established(seid, &created_pdrs),
            SmfEvent::Deleted { seid, usage_reports } => {
                self.count(seid, &usage_reports);
                self.deleted += 1;
            }
            SmfEvent::Usage { seid, reports } => self.count(seid, &reports),
            SmfEvent::Modified { seid, usage_reports, .. } => {
                self.count(seid, &usage_reports);
                return self.activate(seid);
            }
            SmfEvent::DownlinkData { .. } => self.reported.downlink_data += 1,
            SmfEvent::ErrorIndication { .. } => self.reported.error_indications += 1,
            SmfEvent::Alive { .. } | SmfEvent::Inactive { .. } => {}
            SmfEvent::Refused { request, upf, seid, cause, offending_ie, failed_rule } => {
                self.gone(request);
                let ue = seid.and_then(|seid| self.sessions.get(&seid).copied());
                return Err(SimFault::refused(upf, request, ue, cause, offending_ie, failed_rule));
            }
            SmfEvent::NoAnswer { request, upf, .. } => {
                self.gone(request);
                return Err(self.link.no_answer(upf, request));
            }
        }
        Ok(())
    }

    /// A release that came to nothing is not tried again.
    fn gone(&mut self, request: MsgType) {
        if request == MsgType::AssociationReleaseRequest {
            self.associated = false;
        }
    }

    fn count(&mut self, seid: Seid, reports: &[UsageReport]) {
        let usage = self.sessions.get(&seid).and_then(|&ue| self.usage.get_mut(ue as usize));
        if let Some(usage) = usage {
            let counted = reports.iter().filter(|report| self.plan.dialect.counts(report.urr_id));
            counted.for_each(|report| usage.add(report));
        }
    }

    fn established(&mut self, seid: Seid, created: &[CreatedPdr]) -> Result<(), SimFault> {
        let Some(&n) = self.sessions.get(&seid) else { return Ok(()) };
        let mut session = self.session(n);
        let chosen = session.established(created);
        let requests = session.activate(self.tunnel(n));
        self.activating.insert(seid, requests.into());
        let Some(ue) = self.ues.get_mut(n as usize) else { return Ok(()) };
        match self.plan.upf_gtpu {
            Some(upf) => {
                ue.upf = Some(gtpu_endpoint(upf));
                ue.uplink_teid = self.plan.first_teid + n;
            }
            None => {
                let (upf, teid) = chosen
                    .and_then(|chosen| of_family(chosen, self.plan.gnb))
                    .ok_or_else(|| not_chosen(n, "F-TEID", "leave out --choose and give --upf-gtpu"))?;
                ue.upf = Some(gtpu_endpoint(upf));
                ue.uplink_teid = teid.0;
            }
        }
        if let Addressing::Pool(_) = self.plan.addressing {
            let given = created.iter().find_map(|pdr| pdr.ue_ip);
            let given = given.ok_or_else(|| not_chosen(n, "UE address", "leave out --ue-from-upf"))?;
            ue.ipv4 = given.ipv4.and_then(known);
            ue.ipv6 = given.ipv6.and_then(known);
        }
        self.activate(seid)
    }

    /// Sends the next request that has to be answered before a session carries data. After the last it is attached.
    fn activate(&mut self, seid: Seid) -> Result<(), SimFault> {
        let Some(requests) = self.activating.get_mut(&seid) else { return Ok(()) };
        if let Some(request) = requests.pop_front() {
            return self.link.modify(seid, &request).map_err(busy);
        }
        self.activating.remove(&seid);
        self.attached.push(seid);
        Ok(())
    }

    /// The gNB's end of the `n`th tunnel.
    fn tunnel(&self, n: u32) -> OuterHeaderCreation {
        let (ipv4, ipv6) = split(self.plan.gnb);
        OuterHeaderCreation { teid: Teid(self.plan.first_teid + n), ipv4, ipv6 }
    }

    /// The session of the `n`th UE.
    fn session(&self, n: u32) -> PduSession {
        let plan = &self.plan;
        let teid = Teid(plan.first_teid + n);
        let (ue_ipv4, ue_ipv6) = plan.addressing.of(n);
        let (gnb_v4, gnb_v6) = split(plan.gnb);
        let n3 = match plan.upf_gtpu.map(split) {
            Some((ipv4, ipv6)) => LocalFTeid::Given(FTeid { teid, ipv4, ipv6 }),
            None => LocalFTeid::Choose { ipv4: gnb_v4.is_some(), ipv6: gnb_v6.is_some(), choose_id: None },
        };
        let template = SessionTemplate {
            ue_ipv4,
            ue_ipv6,
            n3,
            outer_header_removal: OuterHeaderRemoval::of_tunnel(plan.gnb),
            gnb: Some(OuterHeaderCreation { teid, ipv4: gnb_v4, ipv6: gnb_v6 }),
            access: None,
            core: plan.network_instance.clone(),
            qfi: plan.qfi.unwrap_or(Qfi(0)),
            session_rate: Some(rate(plan.dialect)),
            flow_rate: plan.qfi.map(|_| rate(plan.dialect)),
            urrs: vec![volume_urr(plan.threshold)],
        };
        PduSession::new(plan.dialect, template)
    }

    /// The request for the `n`th UE.
    fn establishment(&self, n: u32) -> Establishment {
        let plan = &self.plan;
        let mut request = self.session(n).establishment();
        for pdr in &mut request.pdrs {
            if plan.qfi.is_none() {
                pdr.pdi.qfis.clear();
            }
            if let Addressing::Pool(family) = plan.addressing {
                // Each CHOOSE is an address of its own, so the downlink rule alone asks for it.
                pdr.pdi.ue_ip.clear();
                if pdr.id == SessionTemplate::DOWNLINK_PDR {
                    pdr.pdi.ue_ip.push(choose(family));
                }
            }
        }
        request
    }
}

/// Volume of both directions, packets too, reported at a threshold if there is one.
pub(super) fn volume_urr(threshold: Option<VolumeThreshold>) -> Urr {
    let volth = threshold.map(|_| ReportingTriggers::VOLTH);
    Urr {
        id: UrrId(1),
        method: MeasurementMethod { volume: true, ..MeasurementMethod::default() },
        triggers: volth.unwrap_or_default(),
        volume_threshold: threshold,
        information: MeasurementInformation { count_packets: true, ..MeasurementInformation::default() },
        ..Urr::default()
    }
}

fn choose(family: PoolFamily) -> UeIpAddress {
    UeIpAddress {
        ipv4: (family != PoolFamily::V6).then_some(ChooseOr::Choose),
        ipv6: (family != PoolFamily::V4).then_some(ChooseOr::Choose),
        role: UeIpRole::Destination,
    }
}

pub(super) fn split(addr: IpAddr) -> (Option<std::net::Ipv4Addr>, Option<std::net::Ipv6Addr>) {
    match addr {
        IpAddr::V4(addr) => (Some(addr), None),
        IpAddr::V6(addr) => (None, Some(addr)),
    }
}

fn known<T>(value: ChooseOr<T>) -> Option<T> {
    match value {
        ChooseOr::Given(value) => Some(value),
        ChooseOr::Choose => None,
    }
}

/// An F-TEID with its address of the gNB's family.
pub(super) fn of_family(fteid: FTeid, gnb: IpAddr) -> Option<(IpAddr, Teid)> {
    let addr = match gnb {
        IpAddr::V4(_) => fteid.ipv4.map(IpAddr::V4),
        IpAddr::V6(_) => fteid.ipv6.map(IpAddr::V6),
    };
    Some((addr?, fteid.teid))
}

pub(super) fn not_chosen(ue: u32, what: &'static str, help: &'static str) -> SimFault {
    SimFault::NotChosen { ue, what, help }
}

/// Never more is asked than the window allows, so this is a fault of ours.
pub(super) fn busy(error: SmfError) -> SimFault {
    SimFault::system("the SMF refuses a request of its own")(std::io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn plan() -> SessionPlan {
        SessionPlan {
            ues: 10,
            addressing: Addressing::Given { ipv4: Some(Ipv4Addr::new(10, 60, 0, 1)), ipv6: None },
            upf_gtpu: Some(Ipv4Addr::new(10, 100, 3, 1).into()),
            gnb: Ipv4Addr::new(10, 100, 3, 2).into(),
            qfi: Some(Qfi(9)),
            network_instance: None,
            threshold: None,
            first_teid: 100,
            window: 8,
            tries: 4,
            dialect: Dialect::Plain,
        }
    }

    fn request(plan: SessionPlan) -> Establishment {
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        ControlPlane::open(any, any, plan).unwrap().establishment(3)
    }

    #[test]
    fn a_session_has_the_rules_of_a_5g_ue() {
        let request = request(plan());
        assert_eq!((request.pdrs.len(), request.fars.len()), (2, 2));
        assert_eq!((request.qers.len(), request.urrs.len()), (2, 1));
        assert!(request.urrs[0].information.count_packets && request.urrs[0].triggers.is_empty());
        let uplink = &request.pdrs[0];
        assert_eq!(uplink.pdi.qfis, [Qfi(9)]);
        assert_eq!(uplink.outer_header_removal, Some(OuterHeaderRemoval::GtpUUdpIpv4));
        let Some(LocalFTeid::Given(fteid)) = uplink.pdi.local_fteid else { panic!("the TEID is ours") };
        assert_eq!(fteid.teid, Teid(103));
        let ue = request.pdrs[1].pdi.ue_ip[0];
        assert_eq!(ue.ipv4, Some(ChooseOr::Given(Ipv4Addr::new(10, 60, 0, 4))));
    }

    #[test]
    fn lte_has_no_flow_and_thresholds_their_trigger() {
        let threshold = Some(VolumeThreshold { total: Some(1000), ..Default::default() });
        let request = request(SessionPlan { qfi: None, threshold, ..plan() });
        assert!(request.pdrs.iter().all(|pdr| pdr.pdi.qfis.is_empty()));
        assert_eq!(request.qers.len(), 1);
        assert_eq!(request.urrs[0].triggers, ReportingTriggers::VOLTH);
    }

    #[test]
    fn a_dialect_writes_its_own_rules() {
        let choosing = SessionPlan { upf_gtpu: None, dialect: Dialect::Open5gs, ..plan() };
        let request = request(choosing);
        assert_eq!((request.pdrs.len(), request.bars.len()), (4, 1));
        assert_eq!(request.qers[0].mbr, Some(DIALECT_RATE));
    }

    #[test]
    fn what_the_upf_chooses_is_asked_for_once() {
        let gnb = Ipv6Addr::LOCALHOST.into();
        let addressing = Addressing::Pool(PoolFamily::V4v6);
        let request = request(SessionPlan { upf_gtpu: None, gnb, addressing, ..plan() });
        let asked = LocalFTeid::Choose { ipv4: false, ipv6: true, choose_id: None };
        assert_eq!(request.pdrs[0].pdi.local_fteid, Some(asked));
        assert!(request.pdrs[0].pdi.ue_ip.is_empty());
        assert_eq!(request.pdrs[1].pdi.ue_ip, [choose(PoolFamily::V4v6)]);
    }

    #[test]
    fn the_f_teid_is_taken_in_the_gnbs_family() {
        let v6 = Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 1);
        let fteid = FTeid { teid: Teid(7), ipv4: None, ipv6: Some(v6) };
        assert_eq!(of_family(fteid, v6.into()), Some((v6.into(), Teid(7))));
        assert_eq!(of_family(fteid, Ipv4Addr::LOCALHOST.into()), None);
    }
}
