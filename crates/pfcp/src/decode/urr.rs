//! Usage Reporting Rules (TS 29.244 7.5.2.4, 7.5.4.4).

use std::time::Duration;

use kaido_n4::{
    Cause, Change, DroppedTraffic, FarId, MeasurementInformation, MeasurementMethod, MonitoringTime,
    Rejection, ReportingTriggers, RuleId, TimeQuotaMechanism, UpdateUrr, Urr, UrrId,
};
use rs_pfcp::ie::IeType;

use super::leaf::{change, seconds, time, u8_of, u16_of, u32_of, volume};
use crate::walk::{Group, Parts, incorrect, octets, too_short, typed, unsupported};

/// What changes what is charged and is not done here. What only adds detail to reports is stepped over.
const UNSUPPORTED: [IeType; 1] = [IeType::AggregatedUrrs];

/// Triggers that go with an element, and the element (table 7.5.2.4-1). A quota may follow when it has been granted.
const CONDITIONS: [(ReportingTriggers, IeType); 7] = [
    (ReportingTriggers::PERIO, IeType::MeasurementPeriod),
    (ReportingTriggers::VOLTH, IeType::VolumeThreshold),
    (ReportingTriggers::TIMTH, IeType::TimeThreshold),
    (ReportingTriggers::EVETH, IeType::EventThreshold),
    (ReportingTriggers::QUHTI, IeType::QuotaHoldingTime),
    (ReportingTriggers::DROTH, IeType::DroppedDlTrafficThreshold),
    (ReportingTriggers::LIUSA, IeType::LinkedUrrId),
];

pub(super) fn create(value: &[u8]) -> Result<Urr, Rejection> {
    let group = Group::of(IeType::CreateUrr, value)?;
    let id = urr_id(&group)?;
    create_body(id, &group).map_err(|fault| fault.rule(RuleId::Urr(id)))
}

fn create_body(id: UrrId, group: &Group<'_>) -> Result<Urr, Rejection> {
    group.mandatory(IeType::MeasurementMethod)?;
    let triggers = reporting_triggers(group.mandatory(IeType::ReportingTriggers)?)?;
    for (_, element) in CONDITIONS.iter().filter(|(trigger, _)| triggers.contains(*trigger)) {
        group.conditional(*element)?;
    }
    if let Some(&kind) = OPTIONAL.iter().find(|&&kind| group.first(kind).is_some_and(<[u8]>::is_empty)) {
        return Err(too_short(kind, 1, 0));
    }
    let mut urr = Urr { id, ..Urr::default() };
    update_body(id, group)?.apply(&mut urr);
    Ok(urr)
}

/// Elements that an update may take away, and that have a value in a creation.
const OPTIONAL: [IeType; 14] = [
    IeType::DroppedDlTrafficThreshold,
    IeType::MeasurementPeriod,
    IeType::VolumeThreshold,
    IeType::VolumeQuota,
    IeType::TimeThreshold,
    IeType::TimeQuota,
    IeType::EventThreshold,
    IeType::EventQuota,
    IeType::QuotaHoldingTime,
    IeType::QuotaValidityTime,
    IeType::InactivityDetectionTime,
    IeType::TimeQuotaMechanism,
    IeType::NumberOfReports,
    IeType::EthernetInactivityTimer,
];

pub(super) fn update(value: &[u8]) -> Result<UpdateUrr, Rejection> {
    let group = Group::of(IeType::UpdateUrr, value)?;
    let id = urr_id(&group)?;
    update_body(id, &group).map_err(|fault| fault.rule(RuleId::Urr(id)))
}

/// The elements that Create and Update URR have in common.
fn update_body(id: UrrId, group: &Group<'_>) -> Result<UpdateUrr, Rejection> {
    group.refuse(&UNSUPPORTED)?;
    let triggers = group.first(IeType::ReportingTriggers).map(reporting_triggers).transpose()?;
    Ok(UpdateUrr {
        id,
        method: group.first(IeType::MeasurementMethod).map(measurement_method).transpose()?,
        triggers,
        measurement_period: change(group, IeType::MeasurementPeriod, some_seconds)?,
        volume_threshold: change(group, IeType::VolumeThreshold, volume)?,
        volume_quota: change(group, IeType::VolumeQuota, volume)?,
        time_threshold: change(group, IeType::TimeThreshold, seconds)?,
        time_quota: change(group, IeType::TimeQuota, seconds)?,
        event_threshold: change(group, IeType::EventThreshold, u32_of)?,
        event_quota: change(group, IeType::EventQuota, u32_of)?,
        dropped_threshold: change(group, IeType::DroppedDlTrafficThreshold, dropped_traffic)?,
        quota_holding_time: change(group, IeType::QuotaHoldingTime, seconds)?,
        quota_validity_time: change(group, IeType::QuotaValidityTime, seconds)?,
        inactivity_detection_time: change(group, IeType::InactivityDetectionTime, seconds)?,
        time_quota_mechanism: change(group, IeType::TimeQuotaMechanism, time_quota_mechanism)?,
        ethernet_inactivity_timer: change(group, IeType::EthernetInactivityTimer, some_seconds)?,
        monitoring_times: monitoring_times(group)?,
        linked: linked(group)?,
        quota_far: change(group, IeType::FarId, |kind, value| u32_of(kind, value).map(FarId))?,
        number_of_reports: change(group, IeType::NumberOfReports, u16_of)?,
        information: group.first(IeType::MeasurementInformation).map(measurement_information).transpose()?,
    })
}

/// Dropped DL Traffic Threshold (8.2.49): DLPA, DLBY, and eight octets for each.
fn dropped_traffic(kind: IeType, value: &[u8]) -> Result<DroppedTraffic, Rejection> {
    let flags = u8_of(kind, value)?;
    if flags & 3 == 0 {
        return Err(incorrect(kind, "no threshold given"));
    }
    let mut parts = Parts::of(kind, value, 1);
    let mut next = |flag: u8| match flags & flag {
        0 => Ok(None),
        _ => parts.take().map(|octets| Some(u64::from_be_bytes(octets))),
    };
    Ok(DroppedTraffic { packets: next(1)?, octets: next(2)? })
}

fn some_seconds(kind: IeType, value: &[u8]) -> Result<Duration, Rejection> {
    match seconds(kind, value)? {
        Duration::ZERO => Err(incorrect(kind, "a period of no time")),
        period => Ok(period),
    }
}

/// Linked URR IDs (8.2.57); one of no length takes all away.
fn linked(group: &Group<'_>) -> Result<Option<Vec<UrrId>>, Rejection> {
    const KIND: IeType = IeType::LinkedUrrId;
    let ids: Vec<_> = group.all(KIND).collect();
    if ids.len() > LIST_MAX {
        return Err(too_many(KIND));
    }
    let given = ids.iter().filter(|value| !value.is_empty()).map(|value| u32_of(KIND, value).map(UrrId));
    let given = given.collect::<Result<Vec<_>, _>>()?;
    Ok((!ids.is_empty()).then_some(given))
}

/// Monitoring Time with what is subsequent to it, and the additional ones (tables 7.5.2.4-1 and 7.5.2.4-3), in the
/// order in which they come.
fn monitoring_times(group: &Group<'_>) -> Result<Option<Vec<MonitoringTime>>, Rejection> {
    const FIRST: IeType = IeType::MonitoringTime;
    const MORE: IeType = IeType::AdditionalMonitoringTime;
    let mut times = Vec::new();
    match group.first(FIRST) {
        None if group.first(MORE).is_none() => return Ok(None),
        None | Some([]) => {}
        Some(_) => times.push(monitoring_time(group)?),
    }
    for value in group.all(MORE).filter(|value| !value.is_empty()) {
        if times.len() == LIST_MAX {
            return Err(too_many(MORE));
        }
        let inner = Group::of(MORE, value)?;
        inner.mandatory(FIRST)?;
        times.push(monitoring_time(&inner)?);
    }
    times.sort_by_key(|time| time.at);
    Ok(Some(times))
}

/// Most linked URRs, and most monitoring times, of a rule.
const LIST_MAX: usize = 16;

fn too_many(kind: IeType) -> Rejection {
    Rejection::new(Cause::NoResourcesAvailable, format!("more than {LIST_MAX} in a rule")).ie(kind as u16)
}

fn monitoring_time(group: &Group<'_>) -> Result<MonitoringTime, Rejection> {
    const KIND: IeType = IeType::MonitoringTime;
    let at = time(KIND, group.mandatory(KIND)?)?;
    let span = |kind| change(group, kind, seconds).map(Change::value);
    let volume = |kind| change(group, kind, volume).map(Change::value);
    let events = |kind| change(group, kind, u32_of).map(Change::value);
    Ok(MonitoringTime {
        at,
        volume_threshold: volume(IeType::SubsequentVolumeThreshold)?,
        time_threshold: span(IeType::SubsequentTimeThreshold)?,
        event_threshold: events(IeType::SubsequentEventThreshold)?,
        volume_quota: volume(IeType::SubsequentVolumeQuota)?,
        time_quota: span(IeType::SubsequentTimeQuota)?,
        event_quota: events(IeType::SubsequentEventQuota)?,
    })
}

/// Time Quota Mechanism (8.2.81): the type of the base time interval and its length.
fn time_quota_mechanism(kind: IeType, value: &[u8]) -> Result<TimeQuotaMechanism, Rejection> {
    let [interval_type, rest @ ..] = octets::<5>(kind, value)?;
    let continuous = match interval_type & 3 {
        0 => true,
        1 => false,
        other => return Err(incorrect(kind, format!("base time interval type {other}"))),
    };
    Ok(TimeQuotaMechanism { continuous, interval: some_seconds(kind, &rest)? })
}

fn urr_id(group: &Group<'_>) -> Result<UrrId, Rejection> {
    u32_of(IeType::UrrId, group.mandatory(IeType::UrrId)?).map(UrrId)
}

/// Measurement Method (8.2.40).
fn measurement_method(value: &[u8]) -> Result<MeasurementMethod, Rejection> {
    const KIND: IeType = IeType::MeasurementMethod;
    let read = typed(KIND, rs_pfcp::ie::measurement_method::MeasurementMethod::unmarshal(value))?;
    if !(read.duration || read.volume || read.event) {
        return Err(incorrect(KIND, "measures nothing"));
    }
    Ok(MeasurementMethod { duration: read.duration, volume: read.volume, event: read.event })
}

/// Reporting Triggers (8.2.19): two octets at first, three since release 16. The bits are not those of
/// the Usage Report Trigger (8.2.41).
fn reporting_triggers(value: &[u8]) -> Result<ReportingTriggers, Rejection> {
    let [first, second] = octets::<2>(IeType::ReportingTriggers, value)?;
    Ok(ReportingTriggers::from_octets([first, second, value.get(2).copied().unwrap_or(0)]))
}

/// Measurement Information (8.2.68). SSPOC, ASPOC and CIAM go with features that are not advertised.
fn measurement_information(value: &[u8]) -> Result<MeasurementInformation, Rejection> {
    const KIND: IeType = IeType::MeasurementInformation;
    let flags = u8_of(KIND, value)?;
    if flags & 0xe0 != 0 {
        return Err(unsupported(KIND, format!("measurement information {flags:#04x}")));
    }
    Ok(MeasurementInformation {
        before_qos: flags & 1 != 0,
        inactive: flags & 1 << 1 != 0,
        reduced_application: flags & 1 << 2 != 0,
        immediate_time: flags & 1 << 3 != 0,
        count_packets: flags & 1 << 4 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::testing::element;

    #[test]
    fn triggers_of_two_and_three_octets() {
        let two = reporting_triggers(&[0x03, 0x01]).unwrap();
        assert!(two.contains(ReportingTriggers::PERIO.union(ReportingTriggers::VOLTH)));
        assert!(two.contains(ReportingTriggers::VOLQU));
        assert_eq!(reporting_triggers(&[0x03, 0x01, 0]).unwrap(), two);
        assert_eq!(reporting_triggers(&[0x80, 0x08, 2]).unwrap().octets(), [0x80, 0x08, 2]);
        assert_eq!(reporting_triggers(&[1]).unwrap_err().cause, Cause::InvalidLength);
    }

    #[test]
    fn information_bits() {
        let read = measurement_information(&[0x13]).unwrap();
        assert!(read.before_qos && read.inactive && read.count_packets && !read.immediate_time);
        assert!(measurement_information(&[0x08]).unwrap().immediate_time);
        assert_eq!(measurement_information(&[0x20]).unwrap_err().cause, Cause::ServiceNotSupported);
        assert!(measurement_information(&[]).is_err());
    }

    fn rule(elements: &[(IeType, &[u8])]) -> Vec<u8> {
        let common = [(IeType::UrrId, &[0, 0, 0, 1][..])];
        common.iter().chain(elements).flat_map(|(kind, value)| element(*kind, value)).collect()
    }

    /// Conformance: TS 29.244 7.5.4.4 | Elements of no length take thresholds and quotas away
    #[test]
    fn an_element_of_no_length_removes_in_an_update_and_is_refused_in_a_creation() {
        let update =
            update(&rule(&[(IeType::VolumeQuota, &[]), (IeType::TimeQuota, &[0, 0, 0, 9])])).unwrap();
        assert_eq!(update.volume_quota, Change::Remove);
        assert_eq!(update.time_quota, Change::To(Duration::from_secs(9)));
        assert_eq!(update.event_quota, Change::Keep);
        let common: [(IeType, &[u8]); 2] =
            [(IeType::MeasurementMethod, &[2]), (IeType::ReportingTriggers, &[0, 0])];
        let empty = rule(&[&common[..], &[(IeType::VolumeQuota, &[])]].concat());
        let fault = create(&empty).unwrap_err();
        assert_eq!((fault.cause, fault.offending_ie), (Cause::InvalidLength, Some(73)));
        assert_eq!(fault.failed_rule, Some(RuleId::Urr(UrrId(1))));
    }

    #[test]
    fn dropped_traffic_is_bounded_in_packets_or_octets_or_both() {
        let numbers = [5u64.to_be_bytes(), 6u64.to_be_bytes()].concat();
        let read = |flags: u8| {
            dropped_traffic(IeType::DroppedDlTrafficThreshold, &[&[flags], &numbers[..]].concat())
        };
        for (flags, packets, octets) in [(1, Some(5), None), (2, None, Some(5)), (3, Some(5), Some(6))] {
            assert_eq!(read(flags), Ok(DroppedTraffic { packets, octets }));
        }
        assert_eq!(read(0xfc).unwrap_err().cause, Cause::MandatoryIeIncorrect);
    }

    #[test]
    fn triggers_need_their_elements() {
        for (octet, element) in
            [(1, 64), (1 << 1, 31), (1 << 2, 32), (1 << 3, 71), (1 << 6, 72), (1 << 7, 82)]
        {
            let fault =
                create(&rule(&[(IeType::MeasurementMethod, &[7]), (IeType::ReportingTriggers, &[octet, 0])]));
            let fault = fault.unwrap_err();
            assert_eq!((fault.cause, fault.offending_ie), (Cause::ConditionalIeMissing, Some(element)));
        }
    }

    #[test]
    fn monitoring_times_come_in_order_and_bounded() {
        let at = |seconds: u32| element(IeType::MonitoringTime, &(0xe000_0000u32 + seconds).to_be_bytes());
        let quota = element(IeType::SubsequentTimeQuota, &[0, 0, 0, 7]);
        let additional = [at(5), quota].concat();
        let first = (0xe000_0009u32).to_be_bytes();
        let read = update(&rule(&[
            (IeType::MonitoringTime, &first),
            (IeType::AdditionalMonitoringTime, &additional),
        ]));
        let times = read.unwrap().monitoring_times.unwrap();
        assert_eq!(times[1].at.duration_since(times[0].at).unwrap(), Duration::from_secs(4));
        assert_eq!(times[0].time_quota, Some(Duration::from_secs(7)));
        let taken = update(&rule(&[(IeType::MonitoringTime, &[])])).unwrap();
        assert_eq!(taken.monitoring_times, Some(Vec::new()));
        let many = vec![(IeType::AdditionalMonitoringTime, &additional[..]); 17];
        assert_eq!(update(&rule(&many)).unwrap_err().cause, Cause::NoResourcesAvailable);
        let fault = update(&rule(&[(IeType::AdditionalMonitoringTime, &[0, 33])])).unwrap_err();
        assert_eq!(fault.cause, Cause::InvalidLength);
    }

    #[test]
    fn time_is_used_up_by_intervals_of_two_kinds() {
        let kind = IeType::TimeQuotaMechanism;
        let read = time_quota_mechanism(kind, &[1, 0, 0, 0, 30]).unwrap();
        assert_eq!(read, TimeQuotaMechanism { continuous: false, interval: Duration::from_secs(30) });
        assert!(time_quota_mechanism(kind, &[0, 0, 0, 0, 1]).unwrap().continuous);
        assert_eq!(
            time_quota_mechanism(kind, &[2, 0, 0, 0, 1]).unwrap_err().cause,
            Cause::MandatoryIeIncorrect
        );
        assert_eq!(
            time_quota_mechanism(kind, &[0, 0, 0, 0, 0]).unwrap_err().cause,
            Cause::MandatoryIeIncorrect
        );
        assert_eq!(time_quota_mechanism(kind, &[0, 0]).unwrap_err().cause, Cause::InvalidLength);
    }
}
