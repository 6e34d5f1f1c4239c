//! PFCP messages (TS 29.244 7.2.2) as somebody beside the two ends reads them, without the code under test.

use std::fmt;

use kaido_n4::{UrrId, Volume};

/// Usage Report in a Session Modification Response, a Session Deletion Response, and a Session Report Request.
const USAGE_REPORTS: [u16; 3] = [78, 79, 80];
const USAGE_REPORT_TRIGGER: u16 = 63;
const VOLUME_MEASUREMENT: u16 = 66;
const DURATION_MEASUREMENT: u16 = 67;
const URR_ID: u16 = 81;
const RECOVERY_TIME_STAMP: u16 = 96;
const UR_SEQN: u16 = 104;

/// Heartbeat Request and Response.
pub(crate) const HEARTBEATS: [u8; 2] = [1, 2];
/// Session Report Request.
pub(crate) const REPORT: u8 = 56;

/// A message that is alone in its datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'m> {
    /// Its type.
    pub kind: u8,
    /// The receiver's SEID.
    pub seid: Option<u64>,
    /// Its sequence number.
    pub sequence: u32,
    elements: &'m [u8],
}

/// A usage report: of which rule, its number, and what was measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReportedUsage {
    /// The rule.
    pub urr: UrrId,
    /// UR-SEQN.
    pub number: u32,
    /// Volume Measurement.
    pub volume: Volume,
    /// Duration Measurement, in seconds.
    pub seconds: u32,
    /// Usage Report Trigger: the quota is used up, of volume or of time.
    pub used_up: bool,
}

impl fmt::Debug for ReportedUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Volume { uplink_bytes, downlink_bytes, .. } = self.volume;
        let (urr, number, seconds) = (self.urr.0, self.number, self.seconds);
        write!(f, "{urr}#{number}: {uplink_bytes} up, {downlink_bytes} down, {seconds} s")
    }
}

impl<'m> Message<'m> {
    /// Reads a header; `None` of what is none.
    pub(crate) fn read(octets: &'m [u8]) -> Option<Self> {
        let (&[flags, kind, ..], rest) = octets.split_first_chunk::<4>()?;
        let (seid, rest) = match flags & 1 {
            0 => (None, rest),
            _ => rest.split_first_chunk().map(|(seid, rest)| (Some(u64::from_be_bytes(*seid)), rest))?,
        };
        let (&[a, b, c, _], elements) = rest.split_first_chunk::<4>()?;
        Some(Self { kind, seid, sequence: u32::from_be_bytes([0, a, b, c]), elements })
    }

    /// Whether it is a heartbeat or the answer to one.
    pub(crate) const fn is_heartbeat(&self) -> bool {
        self.kind == HEARTBEATS[0] || self.kind == HEARTBEATS[1]
    }

    /// Whether it is a request: of types in pairs, the first but for heartbeats and reports, whose pairs begin with
    /// other numbers.
    pub(crate) const fn is_request(&self) -> bool {
        matches!(self.kind, 1 | 3 | 5 | 7 | 9 | 12 | 14 | 16 | 50 | 52 | 54 | 56)
    }

    /// The Recovery Time Stamp.
    pub(crate) fn recovery(&self) -> Option<u32> {
        self.first(RECOVERY_TIME_STAMP)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// The usage that it reports.
    pub(crate) fn usage(&self) -> Vec<ReportedUsage> {
        let reports = elements(self.elements).filter(|(kind, _)| USAGE_REPORTS.contains(kind));
        reports.filter_map(|(_, report)| usage(report)).collect()
    }

    fn first(&self, wanted: u16) -> Option<&'m [u8]> {
        elements(self.elements).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }
}

fn usage(report: &[u8]) -> Option<ReportedUsage> {
    let of = |wanted: u16| elements(report).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let number = |wanted| of(wanted)?.try_into().ok().map(u32::from_be_bytes);
    Some(ReportedUsage {
        urr: UrrId(number(URR_ID)?),
        number: number(UR_SEQN)?,
        volume: of(VOLUME_MEASUREMENT).map(volume).unwrap_or_default(),
        seconds: number(DURATION_MEASUREMENT).unwrap_or_default(),
        used_up: of(USAGE_REPORT_TRIGGER)
            .is_some_and(|trigger| trigger.get(1).is_some_and(|octet| octet & 3 != 0)),
    })
}

/// Volume Measurement (8.2.44): a bit for each number that is there.
fn volume(value: &[u8]) -> Volume {
    let Some((&flags, mut rest)) = value.split_first() else { return Volume::default() };
    let mut next = |bit: u8| {
        if flags >> bit & 1 == 0 {
            return 0;
        }
        let Some((number, more)) = rest.split_first_chunk() else { return 0 };
        rest = more;
        u64::from_be_bytes(*number)
    };
    let [_, uplink_bytes, downlink_bytes, _, uplink_packets, downlink_packets] =
        [0, 1, 2, 3, 4, 5].map(&mut next);
    Volume { uplink_bytes, downlink_bytes, uplink_packets, downlink_packets }
}

fn elements(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (&[kind_high, kind_low, len_high, len_low], rest) = octets.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes([len_high, len_low]).into())?;
        octets = rest;
        Some((u16::from_be_bytes([kind_high, kind_low]), value))
    })
}
