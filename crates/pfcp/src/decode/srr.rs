//! Session Reporting Rules (TS 29.244 7.5.2.9, 7.5.4.20): QoS monitoring per QoS flow.

use std::time::Duration;

use kaido_n4::{
    Cause, PacketDelays, Qfi, QosMonitoring, Rejection, ReportingFrequency, RuleId, Srr, SrrId, UpdateSrr,
    WantedDelays,
};
use rs_pfcp::ie::IeType;

use super::leaf::{seconds, u8_of};
use crate::walk::{Group, Parts, incorrect, unsupported};

/// Of ATSSS, which is not done.
const UNSUPPORTED: [IeType; 1] = [IeType::AccessAvailabilityControlInformation];

/// Most parts of a rule, and most QoS flows of a part: there are no more of them.
const LIST_MAX: usize = 64;

pub(super) fn create(value: &[u8]) -> Result<Srr, Rejection> {
    let group = Group::of(IeType::CreateSrr, value)?;
    let id = srr_id(&group)?;
    group.refuse(&UNSUPPORTED).map_err(|fault| fault.rule(RuleId::Srr(id)))?;
    let monitoring = monitoring(&group).map_err(|fault| fault.rule(RuleId::Srr(id)))?;
    Ok(Srr { id, monitoring: monitoring.unwrap_or_default() })
}

pub(super) fn update(value: &[u8]) -> Result<UpdateSrr, Rejection> {
    let group = Group::of(IeType::UpdateSrr, value)?;
    let id = srr_id(&group)?;
    group.refuse(&UNSUPPORTED).map_err(|fault| fault.rule(RuleId::Srr(id)))?;
    let monitoring = monitoring(&group).map_err(|fault| fault.rule(RuleId::Srr(id)))?;
    Ok(UpdateSrr { id, monitoring })
}

pub(super) fn remove(value: &[u8]) -> Result<SrrId, Rejection> {
    srr_id(&Group::of(IeType::RemoveSrr, value)?)
}

fn srr_id(group: &Group<'_>) -> Result<SrrId, Rejection> {
    u8_of(IeType::SrrId, group.mandatory(IeType::SrrId)?).map(SrrId)
}

/// QoS Monitoring per QoS flow Control Information (table 7.5.2.9-3), as often as it is there.
fn monitoring(group: &Group<'_>) -> Result<Option<Vec<QosMonitoring>>, Rejection> {
    const KIND: IeType = IeType::QosMonitoringPerQosFlowControlInformation;
    let parts: Vec<_> = group.all(KIND).collect();
    if parts.len() > LIST_MAX {
        return Err(too_many(KIND));
    }
    // One of null length takes all away (5.6.3).
    let given = parts.iter().filter(|value| !value.is_empty());
    let given = given.map(|value| part(&Group::of(KIND, value)?)).collect::<Result<Vec<_>, _>>()?;
    Ok((!parts.is_empty()).then_some(given))
}

fn too_many(kind: IeType) -> Rejection {
    let detail = format!("more than {LIST_MAX} in a session reporting rule");
    Rejection::new(Cause::NoResourcesAvailable, detail).ie(kind as u16)
}

fn part(group: &Group<'_>) -> Result<QosMonitoring, Rejection> {
    group.mandatory(IeType::Qfi)?;
    let mut qfis = Vec::new();
    for value in group.all(IeType::Qfi) {
        let qfi = Qfi(u8_of(IeType::Qfi, value)? & 0x3f);
        if !qfis.contains(&qfi) {
            qfis.push(qfi);
        }
    }
    let wanted = wanted(group.mandatory(IeType::RequestedQosMonitoring)?)?;
    let frequency = frequency(group.mandatory(IeType::ReportingFrequency)?)?;
    if frequency.on_threshold {
        group.conditional(IeType::PacketDelayThresholds)?;
    }
    if frequency.periodic {
        group.conditional(IeType::MeasurementPeriod)?;
    }
    let time = |kind| group.present(kind).map(|value| seconds(kind, value)).transpose();
    let period = time(IeType::MeasurementPeriod)?;
    if period == Some(Duration::ZERO) {
        return Err(incorrect(IeType::MeasurementPeriod, "a period of no time"));
    }
    let thresholds = group.present(IeType::PacketDelayThresholds).map(thresholds).transpose()?;
    Ok(QosMonitoring {
        qfis,
        wanted,
        frequency,
        thresholds: thresholds.unwrap_or_default(),
        minimum_wait: time(IeType::MinimumWaitTime)?,
        period,
    })
}

/// Requested QoS Monitoring (8.2.167). GTPUPM needs the path monitoring of TS 23.501 5.33.3.3.
fn wanted(value: &[u8]) -> Result<WantedDelays, Rejection> {
    const KIND: IeType = IeType::RequestedQosMonitoring;
    let flags = u8_of(KIND, value)?;
    if flags & 1 << 3 != 0 {
        return Err(unsupported(KIND, "delays by GTP-U path monitoring"));
    }
    if flags & 7 == 0 {
        return Err(incorrect(KIND, "no delay asked for"));
    }
    Ok(WantedDelays { downlink: flags & 1 != 0, uplink: flags & 2 != 0, round_trip: flags & 4 != 0 })
}

/// Reporting Frequency (8.2.168).
fn frequency(value: &[u8]) -> Result<ReportingFrequency, Rejection> {
    const KIND: IeType = IeType::ReportingFrequency;
    let flags = u8_of(KIND, value)?;
    if flags & 7 == 0 {
        return Err(incorrect(KIND, "never reported"));
    }
    Ok(ReportingFrequency {
        on_threshold: flags & 1 != 0,
        periodic: flags & 2 != 0,
        at_release: flags & 4 != 0,
    })
}

/// Packet Delay Thresholds (8.2.169): flags, then milliseconds for each.
fn thresholds(value: &[u8]) -> Result<PacketDelays, Rejection> {
    const KIND: IeType = IeType::PacketDelayThresholds;
    let flags = u8_of(KIND, value)?;
    let mut parts = Parts::of(KIND, value, 1);
    let mut next = |bit: u8| match flags >> bit & 1 {
        0 => Ok(None),
        _ => parts.take().map(|octets| Some(u32::from_be_bytes(octets))),
    };
    Ok(PacketDelays { downlink: next(0)?, uplink: next(1)?, round_trip: next(2)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::testing::element;

    fn rule(parts: &[Part<'_>]) -> Vec<u8> {
        let inner: Vec<u8> = parts.iter().flat_map(|(kind, value)| element(*kind, value)).collect();
        let part = element(IeType::QosMonitoringPerQosFlowControlInformation, &inner);
        [element(IeType::SrrId, &[3]), part].concat()
    }

    type Part<'a> = (IeType, &'a [u8]);

    const QFI: Part<'_> = (IeType::Qfi, &[9]);
    const ALL: Part<'_> = (IeType::RequestedQosMonitoring, &[7]);
    const EVENT: Part<'_> = (IeType::ReportingFrequency, &[1]);
    const LIMITS: Part<'_> = (IeType::PacketDelayThresholds, &[5, 0, 0, 0, 20, 0, 0, 1, 0]);

    /// Conformance: TS 29.244 7.5.2.9 | QoS monitoring per QoS flow by session reporting rules
    #[test]
    fn a_rule_is_read() {
        let read = create(&rule(&[
            QFI,
            (IeType::Qfi, &[5]),
            QFI,
            ALL,
            (IeType::ReportingFrequency, &[7]),
            LIMITS,
            (IeType::MinimumWaitTime, &[0, 0, 0, 6]),
            (IeType::MeasurementPeriod, &[0, 0, 0, 30]),
        ]));
        let Srr { id, monitoring } = read.unwrap();
        let [part] = &monitoring[..] else { panic!("{monitoring:?}") };
        assert_eq!((id, &part.qfis[..]), (SrrId(3), &[Qfi(9), Qfi(5)][..]));
        assert_eq!(part.thresholds.each(), [Some(20), None, Some(256)]);
        assert_eq!(part.minimum_wait, Some(Duration::from_secs(6)));
        assert_eq!(part.period, Some(Duration::from_secs(30)));
        assert!(part.frequency.on_threshold && part.frequency.periodic && part.frequency.at_release);
    }

    #[test]
    fn faults_have_their_causes() {
        let period = (IeType::MeasurementPeriod, &[0, 0, 0, 0][..]);
        let periodic = (IeType::ReportingFrequency, &[2][..]);
        let cases: [(&[Part<'_>], Cause, IeType); 9] = [
            (&[ALL, EVENT, LIMITS], Cause::MandatoryIeMissing, IeType::Qfi),
            (&[QFI, EVENT, LIMITS], Cause::MandatoryIeMissing, IeType::RequestedQosMonitoring),
            (&[QFI, ALL], Cause::MandatoryIeMissing, IeType::ReportingFrequency),
            (&[QFI, ALL, EVENT], Cause::ConditionalIeMissing, IeType::PacketDelayThresholds),
            (&[QFI, ALL, periodic], Cause::ConditionalIeMissing, IeType::MeasurementPeriod),
            (&[QFI, ALL, periodic, period], Cause::MandatoryIeIncorrect, IeType::MeasurementPeriod),
            (
                &[QFI, (IeType::RequestedQosMonitoring, &[9]), EVENT, LIMITS],
                Cause::ServiceNotSupported,
                IeType::RequestedQosMonitoring,
            ),
            (
                &[QFI, ALL, (IeType::ReportingFrequency, &[0])],
                Cause::MandatoryIeIncorrect,
                IeType::ReportingFrequency,
            ),
            (
                &[QFI, ALL, EVENT, (IeType::PacketDelayThresholds, &[2, 0, 0])],
                Cause::InvalidLength,
                IeType::PacketDelayThresholds,
            ),
        ];
        for (parts, cause, element) in cases {
            let fault = create(&rule(parts)).unwrap_err();
            assert_eq!((fault.cause, fault.offending_ie), (cause, Some(element as u16)), "{parts:?}");
            assert_eq!(fault.failed_rule, Some(RuleId::Srr(SrrId(3))));
        }
    }

    #[test]
    fn an_update_keeps_replaces_or_takes_away_and_access_availability_is_refused() {
        let id = element(IeType::SrrId, &[3]);
        assert_eq!(update(&id).unwrap().monitoring, None);
        let nothing = element(IeType::QosMonitoringPerQosFlowControlInformation, &[]);
        assert_eq!(update(&[id.clone(), nothing].concat()).unwrap().monitoring, Some(Vec::new()));
        let access = element(IeType::AccessAvailabilityControlInformation, &element(IeType::Qfi, &[1]));
        let fault = create(&[id, access].concat()).unwrap_err();
        assert_eq!((fault.cause, fault.offending_ie), (Cause::ServiceNotSupported, Some(216)));
    }
}
