//! What a control plane knows of a session, and what of its usage is to be true.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use kaido_n4::{
    Change, ChooseOr, CreatedPdr, Establishment, LocalFTeid, Modification, ReportingTriggers, Teid,
    UpdateUrr, Urr, UrrId, Volume, VolumeThreshold,
};

use crate::clock::{Limit, MeasuredTime, TimePlan};
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
    /// Time is measured, too.
    pub time: Option<TimePlan>,
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
        let time = (quota.is_none() && random.happens(150_000)).then(|| {
            let limit = if random.happens(500_000) { Limit::Threshold } else { Limit::Quota };
            let span = Duration::from_secs(5 + random.below(6));
            TimePlan { span, limit, is_immediate: random.happens(500_000) }
        });
        Self {
            teid: random.happens(200_000).then_some(0x0100_0000 + number),
            ue: random.happens(300_000).then_some(Ipv4Addr::new(10, 60, high, low)),
            threshold: random.happens(400_000).then(|| 400 + random.below(6000)),
            period: random.happens(80_000).then(|| Duration::from_secs(2 + random.below(4))),
            quota,
            time,
            splits: quota.is_none() && time.is_none() && random.happens(250_000),
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
        if let Some(time) = self.time {
            let urr = &mut request.urrs[0];
            urr.method.duration = true;
            urr.information.immediate_time = time.is_immediate;
            let (limit, trigger) = match time.limit {
                Limit::Threshold => (&mut urr.time_threshold, ReportingTriggers::TIMTH),
                Limit::Quota => (&mut urr.time_quota, ReportingTriggers::TIMQU),
            };
            *limit = Some(time.span);
            urr.triggers = urr.triggers.union(trigger);
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
    /// How long it is measured.
    pub time: MeasuredTime,
    /// When a query, or its end, was asked for last.
    pub asked_at: Duration,
    /// It was told that its time is used up.
    is_time_used_up: bool,
    /// More time is asked for.
    is_time_asked: bool,
    /// What came out.
    pub passed: Octets,
    /// What of that may be lost with the memory of a machine.
    pub may_be_lost: Octets,
    /// An answer that may have told usage never came.
    pub is_uncertain: bool,
    /// What was reported, by rule and number.
    reported: BTreeMap<(UrrId, u32), (Volume, u32)>,
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
            time: MeasuredTime::default(),
            asked_at: Duration::ZERO,
            is_time_used_up: false,
            is_time_asked: false,
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
        match self.quota {
            Some(quota) => quota.disposition(self.octets()),
            None if self.has_time_quota() => Disposition::Either,
            None => Disposition::Passes,
        }
    }

    /// Whether its packets may be dropped.
    pub(crate) fn has_quota(&self) -> bool {
        self.quota.is_some() || self.has_time_quota()
    }

    fn has_time_quota(&self) -> bool {
        self.shape.time.is_some_and(|time| time.limit == Limit::Quota)
    }

    /// A packet has passed.
    pub(crate) fn pass(&mut self, direction: usize, octets: u64, time: Duration) {
        self.passed[direction] += octets;
        if self.shape.time.is_some() {
            self.time.begins(time);
        }
    }

    fn octets(&self) -> u64 {
        self.passed.iter().sum()
    }

    /// The request for more.
    pub(crate) fn grant(&self) -> Option<Modification> {
        let mut update = UpdateUrr { id: URR, ..UpdateUrr::default() };
        match self.quota {
            Some(quota) => update.volume_quota = Change::To(volume(quota.size)),
            None => update.time_quota = Change::To(self.shape.time?.span),
        }
        Some(Modification { update_urrs: vec![update], ..Modification::default() })
    }

    /// Whether it was told that its quota is used up.
    pub(crate) fn is_used_up(&self) -> bool {
        self.is_time_used_up || self.quota.is_some_and(|quota| quota.is_used_up())
    }

    /// Takes in a report. One that comes again is known by its number, and says the same.
    ///
    /// # Errors
    /// When it says something else.
    pub(crate) fn report(&mut self, usage: &ReportedUsage, time: Duration) -> Result<(), String> {
        let key = (usage.urr, usage.number);
        let measured = (usage.volume, usage.seconds);
        match self.reported.insert(key, measured) {
            Some(before) if before != measured => {
                Err(format!("{} has two reports {}: {before:?}, and {measured:?}", usage.urr, usage.number))
            }
            Some(_) => Ok(()),
            None => {
                self.is_told(usage, time);
                Ok(())
            }
        }
    }

    fn is_told(&mut self, usage: &ReportedUsage, time: Duration) {
        self.time.told_at = time;
        self.is_time_used_up |= self.has_time_quota() && usage.used_up;
        let (octets, told) = (self.octets(), self.reported_of(URR).iter().sum());
        if let Some(quota) = &mut self.quota {
            quota.take_report(time);
            if usage.used_up {
                quota.tell(usage.number, octets, told);
            }
        }
    }

    /// The node ends, and all is kept that was written down by a time.
    pub(crate) fn end_of_node(&mut self, kept_until: Duration) {
        if self.shape.time.is_some_and(|plan| !plan.is_immediate) {
            self.time.end_of_node(kept_until);
        }
    }

    /// More is asked for.
    pub(crate) fn ask_more(&mut self) {
        match &mut self.quota {
            Some(quota) => quota.ask(),
            None => (self.is_time_used_up, self.is_time_asked) = (false, true),
        }
    }

    /// A change is answered.
    pub(crate) fn change_answered(&mut self, time: Duration) {
        self.is_time_asked = false;
        self.time.tell_until(self.asked_at);
        if let Some(quota) = &mut self.quota {
            quota.answer(time);
        }
    }

    /// A change has no answer, and may have been carried out: whether it asked for more. More time is asked for again.
    pub(crate) fn change_given_up(&mut self) -> bool {
        let is_time = std::mem::take(&mut self.is_time_asked);
        self.is_time_used_up |= is_time;
        is_time || self.quota.as_mut().is_some_and(Quota::give_up)
    }

    fn reported_of(&self, urr: UrrId) -> Octets {
        let reports = self.reported.iter().filter(|((id, _), _)| *id == urr);
        reports.fold([0, 0], |sum, (_, (volume, _))| {
            [sum[0] + volume.uplink_bytes, sum[1] + volume.downlink_bytes]
        })
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
    pub(crate) fn check_usage(&self, now: Duration) -> Result<(), String> {
        self.check_time(now)?;
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
                    self.reports()
                ));
            }
        }
        Ok(())
    }

    fn check_time(&self, now: Duration) -> Result<(), String> {
        let Some(plan) = self.shape.time else { return Ok(()) };
        let told: u64 = self.reported.values().map(|&(_, seconds)| u64::from(seconds)).sum();
        let [least, most] = self.time.bounds(now);
        let least = if self.is_uncertain { 0 } else { least };
        if !(least..=most).contains(&told) {
            return Err(format!(
                "{told} s were reported, not {least} to {most}: {plan:?}, {:?}, {:?}",
                self.time,
                self.reports()
            ));
        }
        match self.is_up() && self.time.is_overdue(plan.span, now) {
            true => Err(format!(
                "its time is over, and its control plane is not told: {plan:?}, {:?}, {:?}",
                self.time,
                self.reports()
            )),
            false => Ok(()),
        }
    }

    fn reports(&self) -> Vec<ReportedUsage> {
        let of = |(&(urr, number), &(volume, seconds))| ReportedUsage {
            urr,
            number,
            volume,
            seconds,
            used_up: false,
        };
        self.reported.iter().map(of).collect()
    }
}
