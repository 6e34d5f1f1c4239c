//! QoS Enforcement Rules (TS 29.244 7.5.2.5, 7.5.4.5).

use std::time::Duration;

use kaido_n4::{
    BitRate, Gate, PacketLimit, PacketRate, PagingPolicyIndicator, Qer, QerCorrelationId, QerId, Qfi,
    Rejection, RuleId, TimeUnit, UpdateQer,
};
use rs_pfcp::ie::IeType;

use super::leaf::{u8_of, u32_of};
use crate::walk::{Group, Parts, incorrect, octets, unsupported};

/// Marking for networks before LTE.
const UNSUPPORTED: [IeType; 1] = [IeType::DlFlowLevelMarking];

pub(super) fn create(value: &[u8]) -> Result<Qer, Rejection> {
    let group = Group::of(IeType::CreateQer, value)?;
    let id = qer_id(&group)?;
    let body = || {
        let gate = gate(group.mandatory(IeType::GateStatus)?)?;
        let parts = parts(id, &group)?;
        Ok(Qer {
            id,
            correlation: parts.correlation,
            gate,
            mbr: parts.mbr,
            gbr: parts.gbr,
            qfi: parts.qfi,
            reflective: parts.reflective.unwrap_or(false),
            paging_policy: parts.paging_policy,
            averaging_window: parts.averaging_window,
            packet_rate: parts.packet_rate,
            reports_packet_rate: parts.reports_packet_rate.unwrap_or(false),
        })
    };
    body().map_err(|fault: Rejection| fault.rule(RuleId::Qer(id)))
}

pub(super) fn update(value: &[u8]) -> Result<UpdateQer, Rejection> {
    let group = Group::of(IeType::UpdateQer, value)?;
    let id = qer_id(&group)?;
    parts(id, &group).map_err(|fault| fault.rule(RuleId::Qer(id)))
}

fn parts(id: QerId, group: &Group<'_>) -> Result<UpdateQer, Rejection> {
    group.refuse(&UNSUPPORTED)?;
    let rate = |kind| group.first(kind).map(|value| bit_rate(kind, value)).transpose();
    let octet = |kind| group.first(kind).map(|value| u8_of(kind, value)).transpose();
    let number = |kind| group.first(kind).map(|value| u32_of(kind, value)).transpose();
    Ok(UpdateQer {
        id,
        correlation: number(IeType::QerCorrelationId)?.map(QerCorrelationId),
        gate: group.first(IeType::GateStatus).map(gate).transpose()?,
        mbr: rate(IeType::Mbr)?,
        gbr: rate(IeType::Gbr)?,
        qfi: octet(IeType::Qfi)?.map(|octet| Qfi(octet & 0x3f)),
        reflective: octet(IeType::Rqi)?.map(|octet| octet & 1 != 0),
        paging_policy: octet(IeType::PagingPolicyIndicator)?.map(|octet| PagingPolicyIndicator(octet & 7)),
        averaging_window: number(IeType::AveragingWindow)?.map(|ms| Duration::from_millis(ms.into())),
        packet_rate: group.first(IeType::PacketRate).map(packet_rate).transpose()?,
        reports_packet_rate: octet(IeType::QerControlIndications)?.map(control_indications).transpose()?,
    })
}

fn qer_id(group: &Group<'_>) -> Result<QerId, Rejection> {
    u32_of(IeType::QerId, group.mandatory(IeType::QerId)?).map(QerId)
}

/// Gate Status (8.2.7): two bits each, DL in bits 1 and 2, UL in bits 3 and 4; anything but 0 is closed.
/// `rs-pfcp` reads the UL gate from bit 2.
fn gate(value: &[u8]) -> Result<Gate, Rejection> {
    let octet = u8_of(IeType::GateStatus, value)?;
    Ok(Gate { uplink: octet & 0x0c == 0, downlink: octet & 0x03 == 0 })
}

/// MBR and GBR (8.2.8, 8.2.9): five octets uplink, five downlink, in kbit/s.
fn bit_rate(kind: IeType, value: &[u8]) -> Result<BitRate, Rejection> {
    let [a, b, c, d, e, f, g, h, i, j] = octets::<10>(kind, value)?;
    Ok(BitRate {
        uplink_kbps: u64::from_be_bytes([0, 0, 0, a, b, c, d, e]),
        downlink_kbps: u64::from_be_bytes([0, 0, 0, f, g, h, i, j]),
    })
}

/// QER Control Indications (8.2.174): RCSR. Which data is that of exceptions, nobody tells the user plane (MOED, NORD).
fn control_indications(octet: u8) -> Result<bool, Rejection> {
    match octet & 0x06 {
        0 => Ok(octet & 1 != 0),
        _ => Err(unsupported(IeType::QerControlIndications, "tells normal and exception data apart")),
    }
}

/// Packet Rate (8.2.63): ULPR and DLPR, a time unit and a number for each. Additional rates (APRC) are for exception
/// data.
fn packet_rate(value: &[u8]) -> Result<PacketRate, Rejection> {
    const KIND: IeType = IeType::PacketRate;
    let flags = u8_of(KIND, value)?;
    if flags & 4 != 0 {
        return Err(unsupported(KIND, "additional packet rates"));
    }
    if flags & 3 == 0 {
        return Err(incorrect(KIND, "no packet rate given"));
    }
    let mut parts = Parts::of(KIND, value, 1);
    let mut next = |flag: u8| -> Result<Option<PacketLimit>, Rejection> {
        if flags & flag == 0 {
            return Ok(None);
        }
        let [unit, high, low] = parts.take()?;
        let unit = match unit & 7 {
            0 => TimeUnit::Minute,
            1 => TimeUnit::SixMinutes,
            2 => TimeUnit::Hour,
            3 => TimeUnit::Day,
            4 => TimeUnit::Week,
            other => return Err(incorrect(KIND, format!("time unit {other} is reserved"))),
        };
        Ok(Some(PacketLimit { packets: u16::from_be_bytes([high, low]), unit }))
    };
    Ok(PacketRate { uplink: next(1)?, downlink: next(2)? })
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;

    #[test]
    fn rates_have_forty_bits() {
        let value = [0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0];
        let read = bit_rate(IeType::Mbr, &value).unwrap();
        assert_eq!(read, BitRate { uplink_kbps: 0xff_ffff_ffff, downlink_kbps: 256 });
        assert_eq!(bit_rate(IeType::Gbr, &value[..9]).unwrap_err().cause, Cause::InvalidLength);
    }

    #[test]
    fn every_part_is_read_and_too_short_ones_name_themselves() {
        let element = |kind: IeType, value: &[u8]| {
            let mut octets = (kind as u16).to_be_bytes().to_vec();
            octets.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
            octets.extend_from_slice(value);
            octets
        };
        let id = element(IeType::QerId, &[0, 0, 0, 7]);
        // Spare bits are set throughout.
        let parts = [
            element(IeType::QerCorrelationId, &[0xff, 0, 0, 1]),
            element(IeType::Rqi, &[0xff]),
            element(IeType::PagingPolicyIndicator, &[0xfd]),
            element(IeType::AveragingWindow, &[0, 0, 7, 0xd0]),
            element(IeType::Qfi, &[0xc9]),
        ];
        let read = update(&[&id[..], &parts.concat()].concat()).unwrap();
        let expected = UpdateQer {
            id: QerId(7),
            correlation: Some(QerCorrelationId(0xff00_0001)),
            qfi: Some(Qfi(9)),
            reflective: Some(true),
            paging_policy: Some(PagingPolicyIndicator(5)),
            averaging_window: Some(Duration::from_secs(2)),
            ..UpdateQer::default()
        };
        assert_eq!(read, expected);
        for part in parts {
            let kind = u16::from_be_bytes([part[0], part[1]]);
            let short =
                [&part[..2], &(u16::try_from(part.len()).unwrap() - 5).to_be_bytes(), &part[5..]].concat();
            let fault = update(&[&id[..], &short].concat()).unwrap_err();
            let found = (fault.cause, fault.offending_ie, fault.failed_rule);
            assert_eq!(found, (Cause::InvalidLength, Some(kind), Some(RuleId::Qer(QerId(7)))));
        }
    }

    /// Conformance: TS 29.244 8.2.63 | Packet Rate and QER Control Indications, and what of them is refused
    #[test]
    fn packet_rates_are_read_by_their_flags() {
        let limit = |packets, unit| Some(PacketLimit { packets, unit });
        let both = [0xfb, 0xfc, 0xff, 0xff, 0x01, 0, 10];
        let expected =
            PacketRate { uplink: limit(u16::MAX, TimeUnit::Week), downlink: limit(10, TimeUnit::SixMinutes) };
        assert_eq!(packet_rate(&both).unwrap(), expected);
        let down = PacketRate { uplink: None, downlink: limit(258, TimeUnit::Hour) };
        assert_eq!(packet_rate(&[2, 2, 1, 2]).unwrap(), down);
        for (value, cause) in [
            (&both[..6], Cause::InvalidLength),
            (&[1, 0, 0], Cause::InvalidLength),
            (&[0], Cause::MandatoryIeIncorrect),
            (&[1, 5, 0, 1], Cause::MandatoryIeIncorrect),
            (&[5, 0, 0, 1, 0, 0, 1], Cause::ServiceNotSupported),
        ] {
            let fault = packet_rate(value).unwrap_err();
            assert_eq!((fault.cause, fault.offending_ie), (cause, Some(94)), "{value:?}");
        }
        assert_eq!(control_indications(0xf9), Ok(true));
        assert_eq!(control_indications(0), Ok(false));
        assert_eq!(control_indications(2).unwrap_err().offending_ie, Some(251));
    }

    #[test]
    fn gates_have_two_bits_each() {
        assert_eq!(gate(&[0]).unwrap(), Gate { uplink: true, downlink: true });
        assert_eq!(gate(&[1]).unwrap(), Gate { uplink: true, downlink: false });
        assert_eq!(gate(&[2]).unwrap(), Gate { uplink: true, downlink: false });
        assert_eq!(gate(&[4]).unwrap(), Gate { uplink: false, downlink: true });
        assert_eq!(gate(&[5]).unwrap(), Gate { uplink: false, downlink: false });
    }
}
