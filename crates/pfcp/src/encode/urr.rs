//! Create URR and Update URR (TS 29.244 7.5.2.4, 7.5.4.4).

use std::time::Duration;

use kaido_n4::{
    Change, DroppedTraffic, MeasurementInformation, MonitoringTime, TimeQuotaMechanism, UpdateUrr, Urr,
    VolumeThreshold,
};
use rs_pfcp::ie::measurement_method::MeasurementMethod;
use rs_pfcp::ie::{Ie, IeType};

use super::{ntp_seconds, number};

pub(super) fn create_urr(rule: &Urr) -> Ie {
    urr(IeType::CreateUrr, &UpdateUrr::whole(rule))
}

pub(super) fn update_urr(rule: &UpdateUrr) -> Ie {
    urr(IeType::UpdateUrr, rule)
}

fn urr(kind: IeType, rule: &UpdateUrr) -> Ie {
    let mut parts = vec![number(IeType::UrrId, rule.id.0.to_be_bytes())];
    parts.extend(rule.method.map(|m| MeasurementMethod::new(m.duration, m.volume, m.event).to_ie()));
    parts.extend(rule.triggers.map(|triggers| number(IeType::ReportingTriggers, triggers.octets())));
    parts.extend(
        [
            change(IeType::MeasurementPeriod, rule.measurement_period, seconds),
            change(IeType::VolumeThreshold, rule.volume_threshold, volumes),
            change(IeType::VolumeQuota, rule.volume_quota, volumes),
            change(IeType::TimeThreshold, rule.time_threshold, seconds),
            change(IeType::TimeQuota, rule.time_quota, seconds),
            change(IeType::EventThreshold, rule.event_threshold, |events| events.to_be_bytes().to_vec()),
            change(IeType::EventQuota, rule.event_quota, |events| events.to_be_bytes().to_vec()),
            change(IeType::DroppedDlTrafficThreshold, rule.dropped_threshold, dropped_traffic),
            change(IeType::QuotaHoldingTime, rule.quota_holding_time, seconds),
            change(IeType::QuotaValidityTime, rule.quota_validity_time, seconds),
            change(IeType::InactivityDetectionTime, rule.inactivity_detection_time, seconds),
            change(IeType::EthernetInactivityTimer, rule.ethernet_inactivity_timer, seconds),
            change(IeType::TimeQuotaMechanism, rule.time_quota_mechanism, mechanism),
            change(IeType::FarId, rule.quota_far, |id| id.0.to_be_bytes().to_vec()),
            change(IeType::NumberOfReports, rule.number_of_reports, |reports| reports.to_be_bytes().to_vec()),
        ]
        .into_iter()
        .flatten(),
    );
    if let Some(linked) = &rule.linked {
        parts.extend(linked.iter().map(|id| number(IeType::LinkedUrrId, id.0.to_be_bytes())));
        parts.extend(linked.is_empty().then(|| number(IeType::LinkedUrrId, [])));
    }
    match rule.monitoring_times.as_deref() {
        None => {}
        Some([]) => parts.push(number(IeType::MonitoringTime, [])),
        Some([first, more @ ..]) => {
            parts.extend(monitoring_time(first));
            let additional = |time| Ie::new_grouped(IeType::AdditionalMonitoringTime, monitoring_time(time));
            parts.extend(more.iter().map(additional));
        }
    }
    parts.extend(rule.information.map(|flags| number(IeType::MeasurementInformation, [information(flags)])));
    Ie::new_grouped(kind, parts)
}

pub(super) fn change<T>(kind: IeType, field: Change<T>, write: impl FnOnce(T) -> Vec<u8>) -> Option<Ie> {
    match field {
        Change::Keep => None,
        Change::Remove => Some(Ie::new(kind, Vec::new())),
        Change::To(value) => Some(Ie::new(kind, write(value))),
    }
}

fn seconds(time: Duration) -> Vec<u8> {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX).to_be_bytes().to_vec()
}

/// Volume Threshold and Volume Quota (8.2.13, 8.2.50).
fn volumes(volume: VolumeThreshold) -> Vec<u8> {
    let parts = [volume.total, volume.uplink, volume.downlink];
    let mut value = vec![0];
    for (bit, octets) in parts.iter().enumerate().filter_map(|(bit, part)| part.map(|octets| (bit, octets))) {
        value[0] |= 1 << bit;
        value.extend_from_slice(&octets.to_be_bytes());
    }
    value
}

/// Dropped DL Traffic Threshold (8.2.49).
fn dropped_traffic(threshold: DroppedTraffic) -> Vec<u8> {
    let flags = u8::from(threshold.packets.is_some()) | u8::from(threshold.octets.is_some()) << 1;
    let counts = [threshold.packets, threshold.octets].into_iter().flatten();
    [vec![flags], counts.flat_map(u64::to_be_bytes).collect()].concat()
}

fn mechanism(mechanism: TimeQuotaMechanism) -> Vec<u8> {
    [vec![u8::from(!mechanism.continuous)], seconds(mechanism.interval)].concat()
}

fn monitoring_time(time: &MonitoringTime) -> Vec<Ie> {
    let events = |events: u32| events.to_be_bytes().to_vec();
    let mut parts = vec![number(IeType::MonitoringTime, ntp_seconds(time.at).to_be_bytes())];
    parts.extend(
        [
            change(IeType::SubsequentVolumeThreshold, time.volume_threshold.into(), volumes),
            change(IeType::SubsequentTimeThreshold, time.time_threshold.into(), seconds),
            change(IeType::SubsequentEventThreshold, time.event_threshold.into(), events),
            change(IeType::SubsequentVolumeQuota, time.volume_quota.into(), volumes),
            change(IeType::SubsequentTimeQuota, time.time_quota.into(), seconds),
            change(IeType::SubsequentEventQuota, time.event_quota.into(), events),
        ]
        .into_iter()
        .flatten(),
    );
    parts
}

/// Measurement Information (8.2.68).
fn information(information: MeasurementInformation) -> u8 {
    u8::from(information.before_qos)
        | u8::from(information.inactive) << 1
        | u8::from(information.reduced_application) << 2
        | u8::from(information.immediate_time) << 3
        | u8::from(information.count_packets) << 4
}
