//! The PFCP header (TS 29.244 7.2.2) and what is checked before any element is looked at.
//!
//! ```text
//!  bits  8 7 6 | 5 4 | 3  | 2  | 1
//!        vers  |spare| FO | MP | S     type     length (of all behind octet 4)
//!        [ SEID, 8 octets, if S ]
//!        sequence number, 3 octets     priority/spare
//! ```
//!
//! `rs-pfcp` looks at neither version nor length and swallows bundled messages (FO) into the first; so this
//! file reads the header itself and hands on one message at a time.

use kaido_n4::Seid;
use rs_pfcp::message::MsgType;

use crate::counters::Discard;

/// The longest datagram looked at, in octets.
///
/// An establishment with a few rules takes 500 octets; 16 KiB hold about two hundred rules and ten times an
/// Ethernet frame. Longer ones are dropped unread: they are no session anyone sets up, and elements near
/// 64 KiB are known to trouble decoders.
pub const DATAGRAM_MAX: usize = 16 * 1024;

/// The most messages looked at in one datagram (FO flag, TS 29.244 6.5).
pub const BUNDLED_MAX: usize = 64;

const VERSION: u8 = 1;
const NODE_HEADER: usize = 8;
/// Octets of a header with a SEID.
pub(crate) const SESSION_HEADER: usize = 16;

/// Which end of the interface we are; it decides which messages may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    UserPlane,
    ControlPlane,
}

impl Role {
    /// Whether a message of this type may be sent to us (TS 29.244 table 7.3-1).
    fn receives(self, kind: MsgType) -> bool {
        use MsgType as M;
        match kind {
            M::HeartbeatRequest
            | M::HeartbeatResponse
            | M::AssociationSetupRequest
            | M::AssociationSetupResponse
            | M::AssociationUpdateRequest
            | M::AssociationUpdateResponse
            | M::VersionNotSupportedResponse => true,
            M::PfdManagementRequest
            | M::AssociationReleaseRequest
            | M::NodeReportResponse
            | M::SessionSetDeletionRequest
            | M::SessionSetModificationRequest
            | M::SessionEstablishmentRequest
            | M::SessionModificationRequest
            | M::SessionDeletionRequest
            | M::SessionReportResponse => self == Self::UserPlane,
            M::PfdManagementResponse
            | M::AssociationReleaseResponse
            | M::NodeReportRequest
            | M::SessionSetDeletionResponse
            | M::SessionSetModificationResponse
            | M::SessionEstablishmentResponse
            | M::SessionModificationResponse
            | M::SessionDeletionResponse
            | M::SessionReportRequest => self == Self::ControlPlane,
            M::Unknown => false,
        }
    }
}

/// Whether messages of this type ask for an answer.
pub(crate) fn is_request(kind: MsgType) -> bool {
    use MsgType as M;
    matches!(
        kind,
        M::HeartbeatRequest
            | M::PfdManagementRequest
            | M::AssociationSetupRequest
            | M::AssociationUpdateRequest
            | M::AssociationReleaseRequest
            | M::NodeReportRequest
            | M::SessionSetDeletionRequest
            | M::SessionSetModificationRequest
            | M::SessionEstablishmentRequest
            | M::SessionModificationRequest
            | M::SessionDeletionRequest
            | M::SessionReportRequest
    )
}

/// The type that answers a request: each response has the number after its request.
pub(crate) fn response_to(request: MsgType) -> MsgType {
    MsgType::from((request as u8).wrapping_add(1))
}

/// Whether the header of this type has a SEID (7.2.2.4.1).
pub(crate) fn is_session_related(kind: MsgType) -> bool {
    (50..100).contains(&(kind as u8)) && kind != MsgType::Unknown
}

/// One message, its header read and its length right. The elements are still unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: MsgType,
    /// Present in session related messages.
    pub(crate) seid: Option<Seid>,
    pub(crate) sequence: u32,
    /// Message priority, 0 the highest and 15 the lowest, where the MP flag is set (7.2.2.3).
    pub(crate) priority: Option<u8>,
    pub(crate) body: &'a [u8],
}

/// A session related message of ours as another request: with another sequence number and, if given, another SEID.
pub(crate) fn readdress(message: &[u8], seid: Option<Seid>, sequence: u32) -> Vec<u8> {
    let mut message = message.to_vec();
    if let (Some(seid), Some(place)) = (seid, message.get_mut(4..12)) {
        place.copy_from_slice(&seid.0.to_be_bytes());
    }
    if let Some(place) = message.get_mut(12..15) {
        place.copy_from_slice(&sequence.to_be_bytes()[1..]);
    }
    message
}

/// What was found where a message was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameResult<'a> {
    /// A message to work on.
    Message(Frame<'a>),
    /// A request whose length does not fit the datagram: answer cause 68 (7.6.3). The body is not usable.
    BadLength(Frame<'a>),
    /// A request of another version: answer Version Not Supported (7.4.4.7).
    OtherVersion { sequence: u32 },
    /// Nothing to answer.
    Nothing(Discard),
}

/// Splits a datagram into its messages (FO flag).
pub(crate) struct Frames<'a> {
    role: Role,
    rest: &'a [u8],
    left: usize,
    done: bool,
}

/// Looks at a datagram: yields at least one item.
pub(crate) fn frames(role: Role, datagram: &[u8]) -> Frames<'_> {
    Frames { role, rest: datagram, left: BUNDLED_MAX, done: false }
}

impl<'a> Iterator for Frames<'a> {
    type Item = FrameResult<'a>;

    fn next(&mut self) -> Option<FrameResult<'a>> {
        if self.done {
            return None;
        }
        if self.rest.len() > DATAGRAM_MAX {
            return Some(self.stop(FrameResult::Nothing(Discard::TooLong)));
        }
        if self.left == 0 {
            return Some(self.stop(FrameResult::Nothing(Discard::BundleTooLong)));
        }
        self.left -= 1;
        Some(self.read())
    }
}

impl<'a> Frames<'a> {
    fn stop(&mut self, last: FrameResult<'a>) -> FrameResult<'a> {
        self.done = true;
        last
    }

    fn read(&mut self) -> FrameResult<'a> {
        let octets = self.rest;
        let &[flags, raw_kind, length_high, length_low, ..] = octets else {
            return self.stop(FrameResult::Nothing(Discard::Truncated));
        };
        let has_seid = flags & 1 != 0;
        let follow_on = flags & 4 != 0;
        let header = if has_seid { SESSION_HEADER } else { NODE_HEADER };
        if octets.len() < header {
            return self.stop(FrameResult::Nothing(Discard::Truncated));
        }
        let kind = MsgType::from(raw_kind);
        let sequence = sequence_at(octets, header - 4);
        if flags >> 5 != VERSION {
            let answerable = is_request(kind) && self.role.receives(kind);
            return self.stop(if answerable {
                FrameResult::OtherVersion { sequence }
            } else {
                FrameResult::Nothing(Discard::Version)
            });
        }

        let end = 4 + usize::from(u16::from_be_bytes([length_high, length_low]));
        let fits = end >= header && if follow_on { end <= octets.len() } else { end == octets.len() };
        let verdict = self.judge(kind, has_seid);
        let priority = (has_seid && flags & 2 != 0).then(|| octets[header - 1] >> 4);
        let mut frame = Frame { kind, seid: None, sequence, priority, body: &[] };
        if has_seid {
            let mut seid = [0; 8];
            seid.copy_from_slice(&octets[4..12]);
            frame.seid = Some(Seid(u64::from_be_bytes(seid)));
        }
        if !fits {
            return self.stop(match verdict {
                Some(why) => FrameResult::Nothing(why),
                None if is_request(kind) => FrameResult::BadLength(frame),
                None => FrameResult::Nothing(Discard::Length),
            });
        }
        self.rest = &octets[end..];
        self.done = !follow_on;
        frame.body = &octets[header..end];
        verdict.map_or(FrameResult::Message(frame), FrameResult::Nothing)
    }

    /// Why a message of this type is not wanted here, if it is not.
    fn judge(&self, kind: MsgType, has_seid: bool) -> Option<Discard> {
        if kind == MsgType::Unknown {
            Some(Discard::UnknownType)
        } else if !self.role.receives(kind) {
            Some(Discard::WrongDirection)
        } else if has_seid != is_session_related(kind) {
            Some(Discard::SeidFlag)
        } else {
            None
        }
    }
}

/// The three octets of the sequence number. The caller has checked the length.
fn sequence_at(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, octets[at], octets[at + 1], octets[at + 2]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: [u8; 16] = [0x20, 1, 0, 12, 0, 0, 7, 0, 0, 96, 0, 4, 1, 2, 3, 4];
    const DELETION: [u8; 16] = [0x21, 54, 0, 12, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 8, 0];

    fn all(datagram: &[u8]) -> Vec<FrameResult<'_>> {
        frames(Role::UserPlane, datagram).collect()
    }

    fn nothing(why: Discard) -> Vec<FrameResult<'static>> {
        vec![FrameResult::Nothing(why)]
    }

    #[test]
    fn reads_both_headers() {
        let body = &HEARTBEAT[8..];
        let expected =
            Frame { kind: MsgType::HeartbeatRequest, seid: None, sequence: 7, priority: None, body };
        assert_eq!(all(&HEARTBEAT), vec![FrameResult::Message(expected)]);
        let kind = MsgType::SessionDeletionRequest;
        let expected = Frame { kind, seid: Some(Seid(9)), sequence: 8, priority: None, body: &[] };
        assert_eq!(all(&DELETION), vec![FrameResult::Message(expected)]);
        let mut urgent = DELETION;
        (urgent[0], urgent[15]) = (urgent[0] | 2, 0x30);
        assert!(matches!(all(&urgent)[..], [FrameResult::Message(Frame { priority: Some(3), .. })]));
    }

    #[test]
    fn every_truncation_is_silent_or_a_length_fault() {
        for end in 0..HEARTBEAT.len() {
            match all(&HEARTBEAT[..end])[..] {
                [FrameResult::Nothing(Discard::Truncated)] => assert!(end < 8),
                [FrameResult::BadLength(frame)] => assert_eq!((frame.sequence, end >= 8), (7, true)),
                ref other => panic!("{end}: {other:?}"),
            }
        }
        for end in 0..DELETION.len() {
            assert_eq!(all(&DELETION[..end]), nothing(Discard::Truncated));
        }
    }

    #[test]
    fn octets_behind_the_message_are_a_length_fault() {
        let mut longer = HEARTBEAT.to_vec();
        longer.push(0);
        assert!(matches!(all(&longer)[..], [FrameResult::BadLength(_)]));
        let mut response = longer.clone();
        response[1] = 2;
        assert_eq!(all(&response), nothing(Discard::Length));
    }

    #[test]
    fn a_length_shorter_than_the_header_is_a_fault() {
        let mut short = DELETION;
        short[3] = 4;
        assert!(matches!(all(&short)[..], [FrameResult::BadLength(_)]));
    }

    #[test]
    fn other_versions_are_told_so() {
        let mut other = HEARTBEAT;
        other[0] = 0x40;
        assert_eq!(all(&other), vec![FrameResult::OtherVersion { sequence: 7 }]);
        other[1] = 2;
        assert_eq!(all(&other), nothing(Discard::Version));
        other[1] = 11;
        assert_eq!(all(&other), nothing(Discard::Version));
    }

    #[test]
    fn unknown_and_wrong_direction_and_flag() {
        let mut message = DELETION;
        message[1] = 99;
        assert_eq!(all(&message), nothing(Discard::UnknownType));
        message[1] = 56;
        assert_eq!(all(&message), nothing(Discard::WrongDirection));
        message[1] = 1;
        assert_eq!(all(&message), nothing(Discard::SeidFlag));
        let mut message = HEARTBEAT;
        message[1] = 50;
        assert_eq!(all(&message), nothing(Discard::SeidFlag));
    }

    #[test]
    fn bundles_are_split() {
        let mut bundle = HEARTBEAT.to_vec();
        bundle[0] |= 4;
        bundle.extend_from_slice(&DELETION);
        let found = all(&bundle);
        assert_eq!(found.len(), 2);
        assert!(matches!(found[1], FrameResult::Message(f) if f.seid == Some(Seid(9))));

        bundle[3] = 200;
        assert!(matches!(all(&bundle)[..], [FrameResult::BadLength(_)]));
        let mut cut = HEARTBEAT;
        cut[0] |= 4;
        assert_eq!(all(&cut)[1], FrameResult::Nothing(Discard::Truncated));
    }

    #[test]
    fn bundles_and_datagrams_are_bounded() {
        let mut one = HEARTBEAT;
        one[0] |= 4;
        let many = one.repeat(BUNDLED_MAX + 10);
        let found = all(&many);
        assert_eq!(found.len(), BUNDLED_MAX + 1);
        assert_eq!(found[BUNDLED_MAX], FrameResult::Nothing(Discard::BundleTooLong));
        assert_eq!(all(&vec![0x20; DATAGRAM_MAX + 1]), nothing(Discard::TooLong));
    }
}
