//! The procedures of a session's life: what each begins with, and what it comes to once all its requests are answered.

use std::time::{Duration, Instant};

use kaido_n4::{
    CreatedPdr, FTeid, LocalFTeid, Modification, OuterHeaderCreation, OuterHeaderRemoval, Qfi,
    ReportingTriggers, SdfFilter, Seid, Teid, Urr,
};
use kaido_pfcp::{DedicatedFlow, PduSession, SessionTemplate};

use super::Churn;
use super::session::Phase;
use crate::fault::SimFault;
use crate::plan::gtpu_endpoint;
use crate::smf::{busy, not_chosen, of_family, rate, split, volume_urr};

/// Interval of periodic usage reports.
const PERIOD: Duration = Duration::from_secs(10);
/// The largest QFI.
const QFI_MAX: u8 = 63;

impl Churn<'_> {
    fn new_tunnel(&mut self, place: usize) -> OuterHeaderCreation {
        // A TEID comes again after four billion others.
        let teid = self.next_teid;
        self.next_teid = self.next_teid.checked_add(1).unwrap_or(1);
        self.tunnels.insert(teid, place);
        self.tunnel(teid)
    }

    fn tunnel(&self, teid: u32) -> OuterHeaderCreation {
        let (ipv4, ipv6) = split(self.plan.plan.sessions.gnb);
        OuterHeaderCreation { teid: Teid(teid), ipv4, ipv6 }
    }

    pub(super) fn attach(&mut self, place: usize) -> Result<(), SimFault> {
        let tunnel = self.new_tunnel(place);
        let plan = &self.plan.plan.sessions;
        let pdu = PduSession::new(plan.dialect, self.template(place, tunnel));
        let session = &mut self.sessions[place];
        session.begin(tunnel.teid.0, pdu);
        if let Some(upf) = plan.upf_gtpu {
            session.ue.upf = Some(gtpu_endpoint(upf));
            session.ue.uplink_teid = given_teid(plan.first_teid, place);
        }
        let mut request = session.pdu.establishment();
        if plan.qfi.is_none() {
            request.pdrs.iter_mut().for_each(|pdr| pdr.pdi.qfis.clear());
        }
        let seid = self.link.establish(request).map_err(busy)?;
        self.by_seid.insert(seid, place);
        self.sessions[place].seid = seid;
        self.tally.attaches += 1;
        Ok(())
    }

    fn template(&self, place: usize, tunnel: OuterHeaderCreation) -> SessionTemplate {
        let plan = &self.plan.plan.sessions;
        let n3 = match plan.upf_gtpu.map(split) {
            // The place is unique among those attached.
            Some((ipv4, ipv6)) => {
                LocalFTeid::Given(FTeid { teid: Teid(given_teid(plan.first_teid, place)), ipv4, ipv6 })
            }
            None => LocalFTeid::Choose {
                ipv4: tunnel.ipv4.is_some(),
                ipv6: tunnel.ipv6.is_some(),
                choose_id: None,
            },
        };
        let urr = volume_urr(plan.threshold);
        let triggers = urr.triggers.union(ReportingTriggers::PERIO);
        let ue = &self.sessions[place].ue;
        SessionTemplate {
            ue_ipv4: ue.ipv4,
            ue_ipv6: ue.ipv6,
            n3,
            outer_header_removal: OuterHeaderRemoval::GtpUUdpIp,
            gnb: Some(tunnel),
            access: None,
            core: plan.network_instance.clone(),
            qfi: plan.qfi.unwrap_or(Qfi(0)),
            session_rate: Some(rate(plan.dialect)),
            flow_rate: plan.qfi.map(|_| rate(plan.dialect)),
            urrs: vec![Urr { triggers, measurement_period: Some(PERIOD), ..urr }],
        }
    }

    pub(super) fn established(&mut self, seid: Seid, created: &[CreatedPdr]) -> Result<(), SimFault> {
        let Some(&place) = self.by_seid.get(&seid) else { return Ok(()) };
        let tunnel = self.tunnel(self.sessions[place].teid);
        let plan = &self.plan.plan.sessions;
        let session = &mut self.sessions[place];
        let chosen = session.pdu.established(created);
        if plan.upf_gtpu.is_none() {
            let n = u32::try_from(place).unwrap_or(u32::MAX);
            let (upf, teid) = chosen
                .and_then(|chosen| of_family(chosen, plan.gnb))
                .ok_or_else(|| not_chosen(n, "F-TEID", "leave out --choose and give --upf-gtpu"))?;
            session.ue.upf = Some(gtpu_endpoint(upf));
            session.ue.uplink_teid = teid.0;
        }
        session.requests = session.pdu.activate(tunnel).into();
        self.proceed(seid)
    }

    /// Begins a procedure in its phase with the first of its requests.
    fn start(&mut self, place: usize, phase: Phase, requests: Vec<Modification>) -> Result<(), SimFault> {
        let session = &mut self.sessions[place];
        session.enter(phase);
        session.requests = requests.into();
        let seid = session.seid;
        self.proceed(seid)
    }

    /// Sends the next request of a session's procedure. After the last the procedure is done.
    pub(super) fn proceed(&mut self, seid: Seid) -> Result<(), SimFault> {
        let Some(&place) = self.by_seid.get(&seid) else { return Ok(()) };
        match self.sessions[place].requests.pop_front() {
            Some(request) => self.link.modify(seid, &request).map_err(busy),
            None => {
                self.done(place);
                Ok(())
            }
        }
    }

    fn done(&mut self, place: usize) {
        let ends = self.dialect().sends_end_markers();
        let session = &mut self.sessions[place];
        match session.phase {
            Phase::Attaching => {
                session.enter(Phase::Active);
                self.attached += 1;
            }
            Phase::Idling => session.enter(Phase::Idle),
            Phase::Moving => {
                if !ends {
                    self.ended.push_back((session.teid, Instant::now()));
                } else if self.tunnels.contains_key(&session.teid) {
                    self.left.insert(session.teid, Instant::now());
                }
                session.teid = session.next_teid;
                session.enter(Phase::Active);
            }
            Phase::Flowing => {
                session.ue.qfi = Some(session.pdu.qfi());
                session.enter(Phase::Active);
            }
            _ => session.enter(Phase::Active),
        }
    }

    pub(super) fn idle(&mut self, place: usize) -> Result<(), SimFault> {
        if self.dialect().buffers() {
            // The replies to these find the UE asleep.
            self.send_from(place);
        } else if !self.sessions[place].waiting.is_empty() {
            // They would find no rule.
            return Ok(());
        }
        self.sessions[place].fall_asleep();
        self.tally.idles += 1;
        let requests = self.sessions[place].pdu.release_access();
        self.start(place, Phase::Idling, requests)
    }

    pub(super) fn hand_over(&mut self, place: usize) -> Result<(), SimFault> {
        let tunnel = self.new_tunnel(place);
        self.tally.handovers += 1;
        let session = &mut self.sessions[place];
        session.next_teid = tunnel.teid.0;
        let requests = session.pdu.switch_path(tunnel);
        self.start(place, Phase::Moving, requests)
    }

    pub(super) fn query_or_add_flow(&mut self, place: usize) -> Result<(), SimFault> {
        if self.dialect().adds_flows() && !self.sessions[place].pdu.has_flow() {
            return self.add_flow(place);
        }
        if !self.dialect().accounting().downlink {
            return Ok(());
        }
        self.tally.queries += 1;
        self.start(place, Phase::Querying, vec![SessionTemplate::query(&[])])
    }

    /// All that the UE sends and receives from then on belongs to the flow.
    fn add_flow(&mut self, place: usize) -> Result<(), SimFault> {
        let session = &mut self.sessions[place];
        let to = self.plan.traffic.to;
        let text = format!("permit out 17 from {} {} to assigned", to.ip(), to.port());
        let Ok(filter) = SdfFilter::parse(&text) else { return Ok(()) };
        let qfi = Qfi(session.pdu.qfi().0 % QFI_MAX + 1);
        self.tally.flows += 1;
        let requests = session.pdu.add_flow(DedicatedFlow { qfi, filter });
        self.start(place, Phase::Flowing, requests)
    }

    /// Releases what is buffered of an idle UE into its tunnel.
    pub(super) fn wake(&mut self, place: usize) -> Result<(), SimFault> {
        let tunnel = self.tunnel(self.sessions[place].teid);
        self.tally.wakes += 1;
        let requests = self.sessions[place].pdu.request_service(tunnel);
        self.start(place, Phase::Waking, requests)
    }

    pub(super) fn delete(&mut self, place: usize) -> Result<(), SimFault> {
        self.sessions[place].enter(Phase::Detaching);
        self.tally.detaches += 1;
        self.attached -= 1;
        self.link.delete(self.sessions[place].seid).map_err(busy)
    }

    pub(super) fn deleted(&mut self, seid: Seid) {
        if let Some(place) = self.by_seid.remove(&seid) {
            self.sessions[place].enter(Phase::Closing);
            self.closing.push_back(place);
        }
    }
}

/// The TEID that the UE at a place is given here.
fn given_teid(first: u32, place: usize) -> u32 {
    first.saturating_add(u32::try_from(place).unwrap_or(u32::MAX))
}
