//! Create BAR and Update BAR (TS 29.244 7.5.2.6, 7.5.4.11).

use std::time::Duration;

use kaido_n4::{BufferingRule, Change, UpdateBar};
use rs_pfcp::ie::{Ie, IeType};

use super::number;
use super::urr::change;

pub(super) fn create_bar(rule: &BufferingRule) -> Ie {
    let whole = UpdateBar {
        id: rule.id,
        suggested_packets: rule.suggested_packets.into(),
        notification_delay: rule.notification_delay.into(),
        duration: Change::Keep,
        extended_packets: Change::Keep,
    };
    update_bar(IeType::CreateBar, &whole)
}

pub(super) fn update_bar(kind: IeType, rule: &UpdateBar) -> Ie {
    // Steps of 50 ms (8.2.28).
    let delay = |delay: Duration| vec![u8::try_from(delay.as_millis() / 50).unwrap_or(u8::MAX)];
    let mut parts = vec![number(IeType::BarId, [rule.id.0])];
    parts.extend(change(IeType::SuggestedBufferingPacketsCount, rule.suggested_packets, |count| vec![count]));
    parts.extend(change(IeType::DownlinkDataNotificationDelay, rule.notification_delay, delay));
    Ie::new_grouped(kind, parts)
}
