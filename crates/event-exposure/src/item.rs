//! What a notification says (TS 29.564 6.1.6.2.2 to 6.1.6.2.12).

use std::time::{Duration, SystemTime};

use kaido_n4::Volume;
use serde::Serialize;
use serde_json::{Value, json};

use crate::figures::{bit_rate, decimal, packet_rate, volume};
use crate::request::{Event, Granularity, Measurement};
use crate::time;
use crate::trend::Peaks;
use crate::usage::{Scope, SessionVolumes};

/// What a session has carried in a time.
#[derive(Debug)]
pub(crate) struct Carried<'s> {
    pub(crate) of: &'s SessionVolumes,
    pub(crate) whole: Volume,
    pub(crate) parts: Vec<(&'s Scope, Volume)>,
    /// Since when; none where that is since the session began.
    pub(crate) from: Option<SystemTime>,
    pub(crate) to: SystemTime,
    /// Of what rates are.
    pub(crate) time: Duration,
    pub(crate) peaks: Option<Peaks>,
}

/// A `NotificationItem`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    event_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ue_ipv4_addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ue_ipv6_prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ue_mac_addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dnn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    supi: Option<String>,
    time_stamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<String>,
    user_data_usage_measurements: Vec<Value>,
}

/// A `NotificationData`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NotificationData<'n> {
    pub(crate) notification_items: &'n [Item],
    pub(crate) correlation_id: &'n str,
}

/// The item of an event; none where there is nothing of what it is about.
pub(crate) fn item(event: &Event, carried: &Carried<'_>) -> Option<Item> {
    let (event_type, measurements) = match event.measurement {
        Measurement::Trends => ("USER_DATA_USAGE_TRENDS", vec![trends(carried)]),
        Measurement::Usage { volume, throughput } => {
            let measured = |of: &Volume| usage(of, carried.time, volume, throughput);
            let parts = || carried.parts.iter().filter(|(scope, _)| event.granularity.has(scope));
            let measurements = match event.granularity {
                Granularity::Session => vec![measured(&carried.whole)],
                Granularity::Flows(_) | Granularity::Applications(_) => {
                    parts().flat_map(|(scope, of)| named(scope, &measured(of))).collect()
                }
            };
            ("USER_DATA_USAGE_MEASURES", measurements)
        }
    };
    if measurements.is_empty() {
        return None;
    }
    let ue = &carried.of.ue;
    // One of them says whose it is.
    let ipv4 = ue.ipv4.map(|address| address.to_string());
    let ipv6 = ue.ipv6.filter(|_| ipv4.is_none()).map(|(address, len)| format!("{address}/{len}"));
    let mac = ue.mac.filter(|_| ipv4.is_none() && ipv6.is_none());
    let mac = mac.map(|octets| octets.map(|octet| format!("{octet:02x}")).join("-"));
    Some(Item {
        event_type,
        ue_ipv4_addr: ipv4,
        ue_ipv6_prefix: ipv6,
        ue_mac_addr: mac,
        dnn: carried.of.dnns.first().cloned(),
        supi: carried.of.supi.clone(),
        time_stamp: time::format(carried.to),
        start_time: carried.from.map(time::format),
        user_data_usage_measurements: measurements,
    })
}

/// `UserDataUsageMeasurements`, without what it is of.
fn usage(of: &Volume, time: Duration, has_volume: bool, has_throughput: bool) -> Value {
    let mut measured = json!({});
    if has_volume {
        measured["volumeMeasurement"] = json!({
            "totalVolume": volume(of.total_bytes()),
            "ulVolume": volume(of.uplink_bytes),
            "dlVolume": volume(of.downlink_bytes),
            "totalNbOfPackets": of.total_packets(),
            "ulNbOfPackets": of.uplink_packets,
            "dlNbOfPackets": of.downlink_packets,
        });
    }
    if has_throughput {
        measured["throughputMeasurement"] = json!({
            "ulThroughput": bit_rate(of.uplink_bytes, time),
            "dlThroughput": bit_rate(of.downlink_bytes, time),
            "ulPacketThroughput": packet_rate(of.uplink_packets, time),
            "dlPacketThroughput": packet_rate(of.downlink_packets, time),
        });
    }
    measured
}

/// With the flow or the application. Of several flows that are counted together each would have the volume of all: the first stands
/// for them.
fn named(scope: &Scope, measured: &Value) -> Option<Value> {
    let mut measured = measured.clone();
    match scope {
        Scope::Flow(flows) => measured["flowInfo"] = json!({"flowDescription": flows.first()?}),
        Scope::Application(id) => measured["appId"] = json!(id),
    }
    Some(measured)
}

/// `ThroughputStatisticsMeasurement`. One of its names has a capital letter more than the others in TS 29.564 A.2.
fn trends(carried: &Carried<'_>) -> Value {
    let Carried { whole: of, time, peaks, .. } = carried;
    let peaks = peaks.unwrap_or_default();
    let bits = |bytes: f64| format!("{} bps", decimal(8.0 * bytes));
    let packets = |packets: f64| format!("{} pps", decimal(packets));
    json!({"throughputStatisticsMeasurement": {
        "ulAverageThroughput": bit_rate(of.uplink_bytes, *time),
        "dlAverageThroughput": bit_rate(of.downlink_bytes, *time),
        "ulPeakThroughput": bits(peaks.uplink_bytes),
        "dlPeakThroughPut": bits(peaks.downlink_bytes),
        "ulAveragePacketThroughput": packet_rate(of.uplink_packets, *time),
        "dlAveragePacketThroughput": packet_rate(of.downlink_packets, *time),
        "ulPeakPacketThroughput": packets(peaks.uplink_packets),
        "dlPeakPacketThroughput": packets(peaks.downlink_packets),
    }})
}
