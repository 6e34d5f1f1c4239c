//! What a consumer asks for (TS 29.564 6.1.6.2): read, checked, and kept as it was asked.
//!
//! What this node does not measure is refused, and the answer names the IE: a consumer is not to wait for what never comes.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use kaido_http_client::HttpUri;
use serde_json::Value;

use crate::ie::{Ies, Presence, boolean, list, number, text};
use crate::problem::{Cause, Problem};
use crate::target::Consumers;
use crate::time;
use crate::usage::Scope;

/// Events of a subscription.
const EVENTS_MAX: usize = 8;
/// Flows, or applications, of an event.
const FILTERS_MAX: usize = 64;
/// Octets of a name.
const TEXT_MAX: usize = 256;
/// Octets of a flow description.
const FLOW_MAX: usize = 1024;
/// Longest period, in seconds: a year.
const PERIOD_MAX_S: u64 = 366 * 86_400;

/// Whom a subscription is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ue {
    /// Who has the address.
    Address(IpAddr),
    /// The subscriber.
    Supi(String),
    /// Everybody.
    Any,
}

/// When a subscription's consumer is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Once, after that time.
    OneTime(Duration),
    /// Again and again.
    Periodic(Duration),
    /// When so much was carried.
    Threshold(Threshold),
}

/// Octets at which a consumer is notified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Threshold {
    pub(crate) total: Option<u64>,
    pub(crate) uplink: Option<u64>,
    pub(crate) downlink: Option<u64>,
}

/// Which packets are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Granularity {
    /// Those of a session.
    Session,
    /// Those of flows: of these, or of all that are counted.
    Flows(Vec<String>),
    /// Those of applications: of these, or of all that are counted.
    Applications(Vec<String>),
}

impl Granularity {
    /// Whether a part of a session is told of.
    pub(crate) fn has(&self, scope: &Scope) -> bool {
        match (self, scope) {
            (Self::Flows(wanted), Scope::Flow(flows)) => {
                wanted.is_empty() || flows.iter().any(|flow| wanted.contains(flow))
            }
            (Self::Applications(wanted), Scope::Application(id)) => wanted.is_empty() || wanted.contains(id),
            _ => false,
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measurement {
    /// `USER_DATA_USAGE_MEASURES`.
    Usage { volume: bool, throughput: bool },
    /// `USER_DATA_USAGE_TRENDS`.
    Trends,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) measurement: Measurement,
    pub(crate) granularity: Granularity,
    pub(crate) is_immediate: bool,
}

/// A subscription as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub(crate) events: Vec<Event>,
    pub(crate) consumer: HttpUri,
    pub(crate) correlation: String,
    pub(crate) trigger: Trigger,
    pub(crate) reports_max: Option<u64>,
    pub(crate) expiry: Option<SystemTime>,
    pub(crate) ue: Ue,
    pub(crate) dnn: Option<String>,
    /// The `UpfEventSubscription` as it came.
    pub(crate) document: Value,
}

/// What reads flow descriptions as the node writes them.
pub(crate) type FlowReader<'r> = &'r dyn Fn(&str) -> Option<String>;

/// Reads the body of a Create request.
pub(crate) fn create(
    body: &[u8],
    consumers: &Consumers,
    flows: FlowReader<'_>,
) -> Result<Subscription, Problem> {
    let body = json(body)?;
    let ies = match body.is_object() {
        true => Ies::of(&body, "", Presence::Mandatory)?,
        false => return Err(Problem::new(Cause::InvalidMsgFormat, "the body is no object")),
    };
    let document = ies.mandatory("subscription", |value| Ok::<_, String>(value.clone()))?;
    ies.optional("supportedFeatures", |value| match text(value, TEXT_MAX) {
        Ok(text) if text.bytes().all(|octet| octet.is_ascii_hexdigit()) => Ok(()),
        _ => Err("it is no hexadecimal text".to_owned()),
    })?;
    subscription(document, "/subscription", consumers, flows)
}

/// Reads JSON.
pub(crate) fn json(body: &[u8]) -> Result<Value, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::new(Cause::InvalidMsgFormat, format!("the body is no JSON: {error}")))
}

/// Reads a `UpfEventSubscription`.
pub(crate) fn subscription(
    document: Value,
    at: &str,
    consumers: &Consumers,
    flows: FlowReader<'_>,
) -> Result<Subscription, Problem> {
    let ies = Ies::of(&document, at, Presence::Mandatory)?;
    let ue = ue(&ies)?;
    let mode = ies.mandatory("eventReportingMode", Ok::<&Value, String>)?;
    let mode = Ies::of(mode, &ies.pointer("eventReportingMode"), Presence::Mandatory)?;
    let mut events = Vec::new();
    for (event, at) in ies.items("eventList", EVENTS_MAX)? {
        events.push(self::event(&Ies::of(event, &at, Presence::Mandatory)?, &ue, flows)?);
    }
    let consumer = ies.mandatory("eventNotifyUri", |value| {
        consumers.read(value.as_str().unwrap_or_default()).map_err(|fault| fault.to_string())
    })?;
    let correlation =
        ies.mandatory("notifyCorrelationId", |value| text(value, TEXT_MAX).map(str::to_owned))?;
    ies.mandatory("nfId", |value| is_uuid(text(value, TEXT_MAX)?))?;
    let dnn = ies.optional("dnn", |value| text(value, TEXT_MAX).map(str::to_owned))?;
    for (name, why) in [
        ("snssai", "this node is not told of which network slice a session is"),
        ("gpsi", "this node is not told of GPSIs: name the UE by ueIpAddress or supi"),
        ("pei", "this node is not told of PEIs: name the UE by ueIpAddress or supi"),
    ] {
        ies.refuse(name, why)?;
    }
    let trigger = trigger(&mode, &events)?;
    let reports_max = mode.optional("maxReports", |value| number(value, 1, u32::MAX.into()))?;
    let expiry = mode.optional("expiry", |value| {
        time::parse(text(value, TEXT_MAX)?).ok_or_else(|| "it is no date-time of RFC 3339".to_owned())
    })?;
    for (name, why) in [
        ("partitioningCriteria", "this node does not sample"),
        ("notifFlag", "this node does not mute notifications"),
        ("mutingExcInstructions", "this node does not mute notifications"),
    ] {
        mode.refuse(name, why)?;
    }
    // All of the sessions are a sample of them as well.
    let ratio = mode.optional("sampRatio", |value| number(value, 1, 100))?;
    if ratio.is_some_and(|ratio| ratio != 100) {
        let why = "this node does not sample: leave it out, or ask for 100";
        return Err(Problem::of_ie(Cause::OptionalIeIncorrect, mode.pointer("sampRatio"), why));
    }
    Ok(Subscription { events, consumer, correlation, trigger, reports_max, expiry, ue, dnn, document })
}

fn is_uuid(text: &str) -> Result<(), String> {
    let is_uuid = text.len() == 36
        && text.bytes().enumerate().all(|(at, octet)| match at {
            8 | 13 | 18 | 23 => octet == b'-',
            _ => octet.is_ascii_hexdigit(),
        });
    if is_uuid { Ok(()) } else { Err("it is no UUID".to_owned()) }
}

fn ue(ies: &Ies<'_>) -> Result<Ue, Problem> {
    let address = match ies.object("ueIpAddress")? {
        None => None,
        Some(of) => {
            let parse = |value: &Value| -> Result<IpAddr, String> {
                text(value, TEXT_MAX)?.parse().map_err(|_| "it is no address".to_owned())
            };
            let v4 = of.optional("ipv4Addr", |value| match parse(value)? {
                address @ IpAddr::V4(_) => Ok(address),
                IpAddr::V6(_) => Err("it is no IPv4 address".to_owned()),
            })?;
            let v6 = of.optional("ipv6Addr", |value| match parse(value)? {
                address @ IpAddr::V6(_) => Ok(address),
                IpAddr::V4(_) => Err("it is no IPv6 address".to_owned()),
            })?;
            let prefix = of.optional("ipv6Prefix", |value| {
                let (address, len) = text(value, TEXT_MAX)?.split_once('/').ok_or("it has no length")?;
                let address = address.parse().map_err(|_| "it is no IPv6 prefix".to_owned())?;
                match len.parse() {
                    // A UE has a /64, which is found by any address in it.
                    Ok(64..=128u8) => Ok(IpAddr::V6(address)),
                    _ => Err("its length is not from 64 to 128".to_owned()),
                }
            })?;
            match [v4, v6, prefix].into_iter().flatten().collect::<Vec<_>>()[..] {
                [address] => Some(address),
                _ => {
                    let why = "it has not one of ipv4Addr, ipv6Addr, ipv6Prefix";
                    let at = ies.pointer("ueIpAddress");
                    return Err(Problem::of_ie(Cause::OptionalIeIncorrect, at, why));
                }
            }
        }
    };
    let supi = ies.optional("supi", |value| {
        let supi = text(value, TEXT_MAX)?;
        let digits = supi.strip_prefix("imsi-").unwrap_or_default();
        match (5..=15).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit()) {
            true => Ok(supi.to_owned()),
            false => Err("this node knows SUPIs that are IMSIs: `imsi-` and 5 to 15 digits".to_owned()),
        }
    })?;
    let any = ies.optional("anyUe", boolean)?.unwrap_or(false);
    match (address, supi, any) {
        (Some(address), None, false) => Ok(Ue::Address(address)),
        (None, Some(supi), false) => Ok(Ue::Supi(supi)),
        (None, None, true) => Ok(Ue::Any),
        (None, None, false) => {
            let why = "there is none of ueIpAddress, supi and anyUe";
            Err(Problem::of_ie(Cause::MandatoryIeMissing, ies.pointer("ueIpAddress"), why))
        }
        _ => {
            let why = "there is more than one of ueIpAddress, supi and anyUe";
            Err(Problem::of_ie(Cause::OptionalIeIncorrect, ies.pointer("ueIpAddress"), why))
        }
    }
}

fn event(ies: &Ies<'_>, ue: &Ue, flows: FlowReader<'_>) -> Result<Event, Problem> {
    let kind = ies.mandatory("type", |value| match text(value, TEXT_MAX)? {
        kind @ ("USER_DATA_USAGE_MEASURES" | "USER_DATA_USAGE_TRENDS") => Ok(kind),
        "QOS_MONITORING" => {
            Err("QoS monitoring is set up by the SMF, in a Session Reporting Rule (TS 29.244 5.24.4)"
                .to_owned())
        }
        _ => Err("this node does not support the event".to_owned()),
    })?;
    let of_any = *ue == Ue::Any;
    let refuse = |name: &str, why: &str| {
        Err::<(), _>(Problem::of_ie(Cause::OptionalIeIncorrect, ies.pointer(name), why))
    };
    let is_immediate = ies.optional("immediateFlag", boolean)?.unwrap_or(false);
    if is_immediate && *ue != Ue::Any && matches!(ue, Ue::Supi(_)) || is_immediate && of_any {
        refuse("immediateFlag", "an immediate report is of a UE that is named by its address")?;
    }
    let read_types = |value| {
        let items: &Vec<Value> = list(value, EVENTS_MAX)?;
        let names = items.iter().map(|item| text(item, TEXT_MAX)).collect::<Result<Vec<_>, _>>()?;
        let unknown =
            names.iter().find(|name| !["VOLUME_MEASUREMENT", "THROUGHPUT_MEASUREMENT"].contains(name));
        match unknown {
            Some(name) => Err(format!("this node does not measure {name}")),
            None => Ok((names.contains(&"VOLUME_MEASUREMENT"), names.contains(&"THROUGHPUT_MEASUREMENT"))),
        }
    };
    let granularity = granularity(ies, of_any, flows)?;
    let measurement = match kind {
        "USER_DATA_USAGE_MEASURES" => {
            // What is to be measured is said with this event.
            let (volume, throughput) = ies.mandatory("measurementTypes", read_types)?;
            Measurement::Usage { volume, throughput }
        }
        _ if of_any => {
            let why = "this node samples throughput of a UE that is named, and not of any UE";
            return Err(Problem::of_ie(Cause::MandatoryIeIncorrect, ies.pointer("type"), why));
        }
        _ => {
            let types = ies.optional("measurementTypes", read_types)?;
            if types.is_some_and(|(volume, _)| volume) {
                refuse("measurementTypes", "trends are of throughput")?;
            }
            if granularity != Granularity::Session {
                refuse("granularityOfMeasurement", "trends are of sessions")?;
            }
            if is_immediate {
                refuse("immediateFlag", "there are no trends before something was measured")?;
            }
            Measurement::Trends
        }
    };
    // How urgent a report is matters where reports are bundled, which is not done here: each leaves when it is due.
    ies.object("reportingSuggestionInfo")?;
    Ok(Event { measurement, granularity, is_immediate })
}

fn granularity(ies: &Ies<'_>, of_any: bool, flows: FlowReader<'_>) -> Result<Granularity, Problem> {
    let apps = ies.optional("appIds", |value| {
        let items = list(value, FILTERS_MAX)?;
        items.iter().map(|item| text(item, TEXT_MAX).map(str::to_owned)).collect::<Result<Vec<_>, _>>()
    })?;
    let filters = match ies.has("trafficFilters") {
        false => None,
        true => {
            let mut found = Vec::new();
            for (item, at) in ies.items("trafficFilters", FILTERS_MAX)? {
                let of = Ies::of(item, &at, Presence::Optional)?;
                let description = of.mandatory("flowDescription", |value| {
                    flows(text(value, FLOW_MAX)?).ok_or_else(|| "it is no flow description".to_owned())
                })?;
                for name in ["ethFlowDescription", "packFiltId", "tosTrafficClass", "spi", "flowLabel"] {
                    of.refuse(name, "this node tells flows apart by flowDescription")?;
                }
                found.push(description);
            }
            Some(found)
        }
    };
    let name = "granularityOfMeasurement";
    let wanted = ies.optional(name, |value| match text(value, TEXT_MAX)? {
        wanted @ ("PER_SESSION" | "PER_FLOW" | "PER_APPLICATION") => Ok(wanted),
        _ => Err("this node does not support the granularity".to_owned()),
    })?;
    let wrong = |name: &str, why: &str| Problem::of_ie(Cause::OptionalIeIncorrect, ies.pointer(name), why);
    match wanted.unwrap_or("PER_SESSION") {
        "PER_FLOW" | "PER_APPLICATION" if of_any => {
            Err(wrong(name, "flows and applications are told apart of a UE that is named, and not of any UE"))
        }
        "PER_FLOW" if apps.is_some() => Err(wrong("appIds", "the granularity is PER_FLOW")),
        "PER_FLOW" => Ok(Granularity::Flows(filters.unwrap_or_default())),
        "PER_APPLICATION" if filters.is_some() => {
            Err(wrong("trafficFilters", "the granularity is PER_APPLICATION"))
        }
        "PER_APPLICATION" => Ok(Granularity::Applications(apps.unwrap_or_default())),
        _ if apps.is_some() => Err(wrong("appIds", "the granularity is PER_SESSION")),
        _ if filters.is_some() => Err(wrong("trafficFilters", "the granularity is PER_SESSION")),
        _ => Ok(Granularity::Session),
    }
}

fn trigger(mode: &Ies<'_>, events: &[Event]) -> Result<Trigger, Problem> {
    let name = mode.mandatory("trigger", |value| match text(value, TEXT_MAX)? {
        name @ ("PERIODIC" | "ONE_TIME" | "ON_EVENT_DETECTION") => Ok(name),
        _ => Err("this node does not support the trigger".to_owned()),
    })?;
    let period =
        mode.optional("repPeriod", |value| number(value, 1, PERIOD_MAX_S).map(Duration::from_secs))?;
    let missing = |name: &str, why: &str| Problem::of_ie(Cause::MandatoryIeMissing, mode.pointer(name), why);
    if name != "ON_EVENT_DETECTION" {
        mode.refuse("volumeThreshold", "it goes with the trigger ON_EVENT_DETECTION")?;
    }
    match name {
        "PERIODIC" => {
            let why = "a periodic report has a period";
            period.map(Trigger::Periodic).ok_or_else(|| missing("repPeriod", why))
        }
        "ONE_TIME" => {
            // What is a rate, or changes, is measured over some time.
            let is_rate = |event: &Event| {
                matches!(event.measurement, Measurement::Trends | Measurement::Usage { throughput: true, .. })
            };
            let least = if events.iter().any(is_rate) { Duration::from_secs(1) } else { Duration::ZERO };
            Ok(Trigger::OneTime(period.unwrap_or(least)))
        }
        _ => {
            mode.refuse("repPeriod", "it goes with the trigger PERIODIC")?;
            let of = mode.object("volumeThreshold")?;
            let of = of.ok_or_else(|| missing("volumeThreshold", "there is no volume to detect"))?;
            let read = |name| of.optional(name, volume);
            let (total, uplink, downlink) = (read("totalVolume")?, read("ulVolume")?, read("dlVolume")?);
            if total.or(uplink).or(downlink).is_none() {
                let why = "there is none of totalVolume, ulVolume and dlVolume";
                return Err(missing("volumeThreshold", why));
            }
            Ok(Trigger::Threshold(Threshold { total, uplink, downlink }))
        }
    }
}

/// Octets of a `TrafficVolume`.
fn volume(value: &Value) -> Result<u64, String> {
    let fault = || "it is no volume of at least one octet, such as `1500 B` or `2.5 MB`".to_owned();
    let (number, unit) = text(value, 64)?.split_once(' ').ok_or_else(fault)?;
    let unit: u64 = match unit {
        "B" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err(fault()),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return Err(fault());
    }
    let part: u64 =
        format!("{part:0<12}").get(..12).and_then(|digits| digits.parse().ok()).ok_or_else(fault)?;
    let part = u128::from(part) * u128::from(unit) / 1_000_000_000_000;
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit)).ok_or_else(fault)?;
    let octets = u64::try_from(part).ok().and_then(|part| whole.checked_add(part));
    octets.filter(|octets| *octets > 0).ok_or_else(fault)
}

#[cfg(test)]
mod tests;
