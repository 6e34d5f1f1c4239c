//! What a control plane knows of a session, and what of its usage is to be true.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use kaido_n4::{
    Change, ChooseOr, CreatedPdr, Establishment, LocalFTeid, Modification, ReportingTriggers, Teid,
    UpdateUrr, Urr, UrrId, Volume, VolumeThreshold,
};

use crate::fixture::SessionPlan;
use crate::message::ReportedUsage;
use crate::quota::{Disposition, Quota};
use crate::random::Random;

/// The rule that counts both directions, or the uplink alone.
pub(crate) const URR: UrrId = UrrId(1);
/// The rule that counts the downlink, where there are two.
pub(crate) const DOWNLINK_URR: UrrId = UrrId(2);

/// How a session is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The TEID of the uplink, unless the node chooses it.
    pub teid: Option<u32>,
    /// The address of the UE, unless the node chooses it.
    pub ue: Option<Ipv4Addr>,
    /// After so many octets usage is reported.
    pub threshold: Option<u64>,
    /// Usage is reported as often as that.
    pub period: Option<Duration>,
    /// After so many octets packets are dropped, until as many more are granted.
    pub quota: Option<u64>,
    /// A rule for each direction.
    pub splits: bool,
}

impl Shape {
    /// The longest period.
    pub(crate) const PERIOD_MAX: Duration = Duration::from_secs(5);

    /// One of them; `number` is that of no other session.
    pub(crate) fn any(random: &mut Random, number: u32) -> Self {
        let [_, _, high, low] = number.to_be_bytes();
        let quota = random.happens(150_000).then(|| 1000 + random.below(8000));
        Self {
            teid: random.happens(200_000).then_some(0x0100_0000 + number),
            ue: random.happens(300_000).then_some(Ipv4Addr::new(10, 60, high, low)),
            threshold: random.happens(400_000).then(|| 400 + random.below(6000)),
            period: random.happens(80_000).then(|| Duration::from_secs(2 + random.below(4))),
            quota,
            splits: quota.is_none() && random.happens(250_000),
        }
    }

    /// The request for it; downlink packets go into tunnel `gnb`.
    pub(crate) fn establishment(&self, gnb: u32) -> Establishment {
        let mut plan = SessionPlan { threshold: self.threshold, ..SessionPlan::ipv4(1) };
        plan.peer.teid = Teid(gnb);
        plan.ue.ipv4 = Some(self.ue.map_or(ChooseOr::Choose, ChooseOr::Given));
        plan.local = match (self.teid, plan.local) {
            (Some(teid), LocalFTeid::Given(fteid)) => {
                LocalFTeid::Given(kaido_n4::FTeid { teid: Teid(teid), ..fteid })
            }
            _ => LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: None },
        };
        let mut request = plan.establishment();
        if self.period.is_some() {
            let urr = &mut request.urrs[0];
            urr.measurement_period = self.period;
            urr.triggers = urr.triggers.union(ReportingTriggers::PERIO);
        }
        if self.quota.is_some() {
            let urr = &mut request.urrs[0];
            urr.volume_quota = self.quota.map(volume);
            urr.triggers = urr.triggers.union(ReportingTriggers::VOLQU);
        }
        if self.splits {
            let second = Urr { id: DOWNLINK_URR, ..request.urrs[0].clone() };
            request.urrs.push(second);
            request.pdrs[1].urr_ids = vec![DOWNLINK_URR];
        }
        request
    }

    /// Where its packets come in, by what the node has chosen.
    pub(crate) fn ends(&self, created: &[CreatedPdr]) -> Option<(u32, Ipv4Addr)> {
        let chosen = || created.iter().find_map(|pdr| pdr.local_fteid).map(|fteid| fteid.teid.0);
        let address = || created.iter().find_map(|pdr| pdr.ue_ip?.ipv4?.given());
        self.teid.or_else(chosen).zip(self.ue.or_else(address))
    }
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It was asked for.
    Establishing,
    /// It stands, and nothing is asked.
    Active,
    /// A change or a query is asked for.
    Changing,
    /// Its end is asked for.
    Deleting,
    /// Its end was asked for and not answered: it is asked for again.
    Unanswered,
    /// It has ended.
    Ended,
}

/// Where downlink packets of a session go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Downlink {
    /// Into a tunnel of the gNB.
    Tunnel(u32),
    /// They wait: the UE is idle.
    Buffer,
}

const fn volume(octets: u64) -> VolumeThreshold {
    VolumeThreshold { total: Some(octets), uplink: None, downlink: None }
}

/// Octets that passed, up and down.
pub(crate) type Octets = [u64; 2];

/// A session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// How it was asked for.
    pub shape: Shape,
    /// How far it is.
    pub state: State,
    /// The node's end.
    pub up_seid: u64,
    /// Where its packets come in.
    pub ends: Option<(u32, Ipv4Addr)>,
    /// Where its downlink may go: as was acknowledged last, and as was asked for since.
    pub downlink: Vec<Downlink>,
    /// Where it is asked to go now.
    pub asked: Option<Downlink>,
    /// The UE was idle at some time.
    pub was_idle: bool,
    /// The UE is to be paged: a packet for it waits.
    pub is_paged: bool,
    /// What it may use.
    pub quota: Option<Quota>,
    /// What came out.
    pub passed: Octets,
    /// What of that may be lost with the memory of a machine.
    pub may_be_lost: Octets,
    /// An answer that may have told usage never came.
    pub is_uncertain: bool,
    /// What was reported, by rule and number.
    reported: BTreeMap<(UrrId, u32), Volume>,
}

impl Session {
    /// One that is asked for.
    pub(crate) fn asked(shape: Shape, gnb: u32) -> Self {
        Self {
            shape,
            state: State::Establishing,
            up_seid: 0,
            ends: None,
            downlink: vec![Downlink::Tunnel(gnb)],
            asked: None,
            was_idle: false,
            is_paged: false,
            quota: shape.quota.map(Quota::of),
            passed: [0; 2],
            may_be_lost: [0; 2],
            is_uncertain: false,
            reported: BTreeMap::new(),
        }
    }

    /// Whether its packets must pass.
    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, State::Active | State::Changing)
    }

    /// Whether its downlink may go there.
    pub(crate) fn may_go(&self, there: Downlink) -> bool {
        self.downlink.contains(&there) || self.asked == Some(there)
    }

    /// Whether its downlink waits, for sure.
    pub(crate) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.downlink == [Downlink::Buffer]
    }

    /// What becomes of its next packet.
    pub(crate) fn disposition(&self) -> Disposition {
        self.quota.map_or(Disposition::Passes, |quota| quota.disposition(self.octets()))
    }

    fn octets(&self) -> u64 {
        self.passed.iter().sum()
    }

    /// The request for more.
    pub(crate) fn grant(&self) -> Option<Modification> {
        let volume_quota = Change::To(volume(self.quota?.size));
        let update = UpdateUrr { id: URR, volume_quota, ..UpdateUrr::default() };
        Some(Modification { update_urrs: vec![update], ..Modification::default() })
    }

    /// Whether it was told that its quota is used up.
    pub(crate) fn is_used_up(&self) -> bool {
        self.quota.is_some_and(|quota| quota.is_used_up())
    }

    /// Takes in a report. One that comes again is known by its number, and says the same.
    ///
    /// # Errors
    /// When it says something else.
    pub(crate) fn report(&mut self, usage: &ReportedUsage) -> Result<(), String> {
        let key = (usage.urr, usage.number);
        match self.reported.insert(key, usage.volume) {
            Some(before) if before != usage.volume => Err(format!(
                "{} has two reports {}: {before:?}, and {:?}",
                usage.urr, usage.number, usage.volume
            )),
            Some(_) => Ok(()),
            None => {
                self.is_told(usage);
                Ok(())
            }
        }
    }

    fn is_told(&mut self, usage: &ReportedUsage) {
        let (octets, told) = (self.octets(), self.reported_of(URR).iter().sum());
        if let Some(quota) = self.quota.as_mut().filter(|_| usage.used_up) {
            quota.tell(usage.number, octets, told);
        }
    }

    fn reported_of(&self, urr: UrrId) -> Octets {
        let reports = self.reported.iter().filter(|((id, _), _)| *id == urr);
        reports
            .fold([0, 0], |sum, (_, volume)| [sum[0] + volume.uplink_bytes, sum[1] + volume.downlink_bytes])
    }

    /// Whether it is used up, and nobody was told.
    pub(crate) fn is_stopped(&self) -> bool {
        self.disposition() == Disposition::Stops && !self.is_used_up()
    }

    /// How many reports there were.
    pub(crate) fn report_count(&self) -> usize {
        self.reported.len()
    }

    /// Whether what was reported is what passed.
    ///
    /// # Errors
    /// When it is more, or less than what may be lost.
    pub(crate) fn check_usage(&self) -> Result<(), String> {
        let reported = match self.shape.splits {
            true => [self.reported_of(URR)[0], self.reported_of(DOWNLINK_URR)[1]],
            false => self.reported_of(URR),
        };
        for direction in 0..2 {
            let (reported, passed) = (reported[direction], self.passed[direction]);
            let least = if self.is_uncertain { 0 } else { passed - self.may_be_lost[direction] };
            if reported > passed || reported < least {
                let name = ["uplink", "downlink"][direction];
                return Err(format!(
                    "{name}: {passed} octets passed, {reported} were reported, {least} at least were to be: {:?}",
                    self.reported
                        .iter()
                        .map(|(&(urr, number), &volume)| ReportedUsage {
                            urr,
                            number,
                            volume,
                            used_up: false
                        })
                        .collect::<Vec<_>>()
                ));
            }
        }
        Ok(())
    }
}
