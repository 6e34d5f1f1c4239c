//! Buffering Action Rules (TS 29.244 7.5.2.6, 7.5.4.11, 7.5.9.2).

use std::time::Duration;

use kaido_n4::{BarId, BufferingRule, Change, Rejection, RuleId, UpdateBar};
use rs_pfcp::ie::IeType;

use super::leaf::{change, u8_of};
use crate::walk::{Group, incorrect, too_short};

/// Create BAR.
pub(super) fn create(value: &[u8]) -> Result<BufferingRule, Rejection> {
    const OPTIONAL: [IeType; 2] =
        [IeType::SuggestedBufferingPacketsCount, IeType::DownlinkDataNotificationDelay];
    let group = Group::of(IeType::CreateBar, value)?;
    let id = bar_id(&group)?;
    if let Some(&kind) = OPTIONAL.iter().find(|&&kind| group.first(kind).is_some_and(<[u8]>::is_empty)) {
        return Err(too_short(kind, 1, 0).rule(RuleId::Bar(id)));
    }
    let mut bar = BufferingRule { id, ..BufferingRule::default() };
    body(id, &group).map_err(|fault| fault.rule(RuleId::Bar(id)))?.apply(&mut bar);
    Ok(bar)
}

/// Update BAR of a Session Modification Request.
pub(super) fn update(value: &[u8]) -> Result<UpdateBar, Rejection> {
    let group = Group::of(IeType::UpdateBar, value)?;
    let id = bar_id(&group)?;
    body(id, &group).map_err(|fault| fault.rule(RuleId::Bar(id)))
}

/// Update BAR of a Session Report Response, which alone has how long and how much is buffered meanwhile.
pub(crate) fn update_in_response(value: &[u8]) -> Result<UpdateBar, Rejection> {
    let group = Group::of(IeType::UpdateBarWithinSessionReportResponse, value)?;
    let id = bar_id(&group)?;
    Ok(UpdateBar {
        duration: change(&group, IeType::DlBufferingDuration, duration)?,
        extended_packets: change(&group, IeType::DlBufferingSuggestedPacketCount, packet_count)?,
        ..body(id, &group)?
    })
}

fn body(id: BarId, group: &Group<'_>) -> Result<UpdateBar, Rejection> {
    Ok(UpdateBar {
        id,
        suggested_packets: change(group, IeType::SuggestedBufferingPacketsCount, u8_of)?,
        notification_delay: change(group, IeType::DownlinkDataNotificationDelay, delay)?,
        duration: Change::Keep,
        extended_packets: Change::Keep,
    })
}

fn bar_id(group: &Group<'_>) -> Result<BarId, Rejection> {
    u8_of(IeType::BarId, group.mandatory(IeType::BarId)?).map(BarId)
}

/// Downlink Data Notification Delay (8.2.28): an octet of 50 ms each. `rs-pfcp` reads three.
fn delay(kind: IeType, value: &[u8]) -> Result<Duration, Rejection> {
    u8_of(kind, value).map(|steps| Duration::from_millis(50 * u64::from(steps)))
}

/// DL Buffering Duration (8.2.29): a timer unit in three bits, a value in five.
fn duration(kind: IeType, value: &[u8]) -> Result<Duration, Rejection> {
    let octet = u8_of(kind, value)?;
    let unit = match octet >> 5 {
        0 => 2,
        2 => 600,
        3 => 3600,
        4 => 36_000,
        // Infinite.
        7 => return Ok(Duration::MAX),
        // Minutes, and what other values are read as.
        _ => 60,
    };
    Ok(Duration::from_secs(unit * u64::from(octet & 0x1f)))
}

/// DL Buffering Suggested Packet Count (8.2.30): in one octet or two.
fn packet_count(kind: IeType, value: &[u8]) -> Result<u16, Rejection> {
    match *value {
        [count] => Ok(count.into()),
        [high, low] => Ok(u16::from_be_bytes([high, low])),
        _ => Err(incorrect(kind, "a packet count of neither one octet nor two")),
    }
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;
    use crate::decode::testing::element;

    /// Conformance: TS 29.244 8.2.28 | Downlink Data Notification Delay in steps of 50 ms
    #[test]
    fn delays_are_steps_of_50_ms() {
        let group = [
            element(IeType::BarId, &[1]),
            element(IeType::DownlinkDataNotificationDelay, &[3]),
            element(IeType::SuggestedBufferingPacketsCount, &[9]),
        ];
        let bar = create(&group.concat()).unwrap();
        assert_eq!(bar.notification_delay, Some(Duration::from_millis(150)));
        assert_eq!(bar.suggested_packets, Some(9));
        let removal =
            [element(IeType::BarId, &[1]), element(IeType::DownlinkDataNotificationDelay, &[])].concat();
        assert_eq!(update(&removal).unwrap().notification_delay, Change::Remove);
        let fault = create(&removal).unwrap_err();
        assert_eq!((fault.cause, fault.failed_rule), (Cause::InvalidLength, Some(RuleId::Bar(BarId(1)))));
    }

    /// Conformance: TS 29.244 8.2.29 | DL Buffering Duration in all its units
    #[test]
    fn durations_have_units() {
        let kind = IeType::DlBufferingDuration;
        for (octet, seconds) in
            [(0x05, 10), (0x25, 300), (0x45, 3000), (0x65, 18_000), (0x81, 36_000), (0xa2, 120)]
        {
            assert_eq!(duration(kind, &[octet]).unwrap(), Duration::from_secs(seconds));
        }
        assert_eq!(duration(kind, &[0xe0]).unwrap(), Duration::MAX);
        assert!(duration(kind, &[]).is_err());
    }

    #[test]
    fn counts_have_one_octet_or_two() {
        let group = [
            element(IeType::BarId, &[1]),
            element(IeType::DlBufferingSuggestedPacketCount, &[1, 0]),
            element(IeType::DlBufferingDuration, &[1]),
        ];
        let update = update_in_response(&group.concat()).unwrap();
        assert_eq!(update.extended_packets, Change::To(256));
        assert_eq!(update.duration, Change::To(Duration::from_secs(2)));
        assert_eq!(packet_count(IeType::DlBufferingSuggestedPacketCount, &[7]).unwrap(), 7);
        assert!(packet_count(IeType::DlBufferingSuggestedPacketCount, &[7, 7, 7]).is_err());
    }
}
