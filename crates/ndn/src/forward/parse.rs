//! What the forwarding has to know of a packet, as offsets into its first segment.

use std::ops::Range;
use std::time::Duration;

use kaido_engine::{DropReason, Frame};
use kaido_ndn_tables::{NameError, NameHash, NodeInstant, Prefixes, STEP, Selectors};
use kaido_wire::ndn::{Data, Interest, tlv, types};

use super::fast;
use crate::NdnDrop;
use crate::packet::Packet;

/// Milliseconds that an Interest waits at most, whatever it asks for.
pub(super) const LIFETIME_MAX_MS: u32 = 120_000;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketContent {
    Interest,
    /// An Interest that came back.
    Nack,
    Data,
    /// Nothing that is forwarded.
    Refused(DropReason),
}

/// A packet that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParsedPacket {
    pub(super) what: PacketContent,
    /// Whether the name has been looked into: its prefixes are hashed.
    pub(super) is_hashed: bool,
    pub(super) name_at: u16,
    pub(super) name_end: u16,
    pub(super) selectors: Selectors,
    pub(super) nonce: Option<u32>,
    /// Where the Nonce element is, or belongs.
    pub(super) nonce_at: u16,
    pub(super) hop_limit: Option<u8>,
    pub(super) hop_limit_at: u16,
    pub(super) has_hint: bool,
    pub(super) lifetime_ms: u32,
    pub(super) freshness_ms: u64,
}

impl ParsedPacket {
    pub(super) const NOTHING: Self = Self {
        what: PacketContent::Refused(NdnDrop::MALFORMED),
        is_hashed: true,
        name_at: 0,
        name_end: 0,
        selectors: Selectors { can_be_prefix: false, must_be_fresh: false },
        nonce: None,
        nonce_at: 0,
        hop_limit: None,
        hop_limit_at: 0,
        has_hint: false,
        lifetime_ms: 0,
        freshness_ms: 0,
    };

    /// Reads a packet and hashes its name; not that of Data, if it `has_entry` by its token.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        packet: &Packet,
        has_entry: bool,
        hash: &NameHash,
        prefixes: &mut Prefixes,
    ) {
        let (first, total) = (packet.frame.data(), packet.frame.packet_len());
        let is_nack = packet.annotations.nack.is_some();
        if !is_nack
            && let Some(octets) = packet.frame.data_and_behind(STEP)
            && fast::read(octets, (first.len(), total), has_entry, hash, self, prefixes)
        {
            return;
        }
        *self = slow(first, total, is_nack, hash, prefixes);
    }

    /// Where the octets of the name's components are.
    #[inline(always)]
    pub(super) fn name(&self) -> Range<usize> {
        self.name_at.into()..self.name_end.into()
    }

    /// Until when an Interest waits that comes now.
    #[inline(always)]
    pub(super) fn expires(&self, now: NodeInstant) -> NodeInstant {
        now.plus_ms(self.lifetime_ms)
    }

    /// How long Data is fresh.
    #[inline]
    pub(super) fn freshness(&self) -> Duration {
        Duration::from_millis(self.freshness_ms)
    }
}

/// Reads any packet.
#[inline(never)]
pub(super) fn slow(
    first: &[u8],
    total: usize,
    is_nack: bool,
    hash: &NameHash,
    prefixes: &mut Prefixes,
) -> ParsedPacket {
    let mut parsed = match first.first() {
        Some(&5) => any_interest(first, total, is_nack),
        _ => any_data(first, total),
    };
    if !matches!(parsed.what, PacketContent::Refused(_))
        && let Err(error) = prefixes.fill(hash, &first[parsed.name()])
    {
        parsed.what = PacketContent::Refused(match error {
            NameError::Malformed => NdnDrop::MALFORMED,
            NameError::TooLong => NdnDrop::NAME_TOO_LONG,
        });
    }
    parsed
}

fn any_interest(first: &[u8], total: usize, is_nack: bool) -> ParsedPacket {
    let Ok(interest) = Interest::parse(first, total) else { return ParsedPacket::NOTHING };
    let selectors =
        Selectors { can_be_prefix: interest.can_be_prefix, must_be_fresh: interest.must_be_fresh };
    let lifetime_ms = interest.lifetime_or_default_ms().min(LIFETIME_MAX_MS.into());
    ParsedPacket {
        what: if is_nack { PacketContent::Nack } else { PacketContent::Interest },
        selectors,
        nonce: interest.nonce,
        nonce_at: short(interest.nonce_at),
        hop_limit: interest.hop_limit,
        hop_limit_at: short(interest.hop_limit_at),
        has_hint: interest.forwarding_hint.is_some(),
        lifetime_ms: u32::try_from(lifetime_ms).unwrap_or(LIFETIME_MAX_MS),
        ..named(first, interest.name_at, interest.name.value().len())
    }
}

fn any_data(first: &[u8], total: usize) -> ParsedPacket {
    let Ok(data) = Data::parse(first, total) else { return ParsedPacket::NOTHING };
    let named = named(first, data.name_at, data.name.value().len());
    ParsedPacket { what: PacketContent::Data, freshness_ms: data.meta.freshness_ms, ..named }
}

/// With a name whose element is at `at`.
fn named(first: &[u8], at: usize, len: usize) -> ParsedPacket {
    let at = at + tlv::header(&first[at..]).map_or(0, |header| header.header_len);
    ParsedPacket { name_at: short(at), name_end: short(at + len), ..ParsedPacket::NOTHING }
}

/// An offset into a frame.
#[inline]
fn short(offset: usize) -> u16 {
    u16::try_from(offset).unwrap_or(u16::MAX)
}

/// Gives an Interest that has none a nonce; `false` when there is no room for it.
pub(super) fn add_nonce(frame: &mut Frame, nonce: u32, scratch: &mut Vec<u8>) -> bool {
    let (first, total) = (frame.data(), frame.packet_len());
    let Ok(interest) = Interest::parse(first, total) else { return false };
    scratch.resize(interest.nonce_at + kaido_wire::ndn::NONCE_ROOM, 0);
    let Ok(head) = interest.with_nonce(first, total, nonce, scratch) else { return false };
    exchange(frame, head.strip, &scratch[..head.written])
}

/// Takes the forwarding hint off an Interest; `false` when it has none.
pub(super) fn strip_hint(frame: &mut Frame, scratch: &mut Vec<u8>) -> bool {
    let (first, total) = (frame.data(), frame.packet_len());
    let Ok(interest) = Interest::parse(first, total) else { return false };
    let mut at = interest.name_at;
    let hint = loop {
        let Ok(header) = tlv::header(first.get(at..).unwrap_or_default()) else { return false };
        if header.kind == types::FORWARDING_HINT {
            break at..at + header.element_len();
        }
        at += header.element_len();
    };
    scratch.resize(tlv::HEADER_LEN_MAX, 0);
    let mut writer = tlv::Writer::new(scratch);
    if writer.header(types::INTEREST, total - interest.name_at - hint.len()).is_err() {
        return false;
    }
    let header_len = writer.len();
    scratch.truncate(header_len);
    scratch.extend_from_slice(&first[interest.name_at..hint.start]);
    exchange(frame, hint.end, scratch)
}

/// Puts octets in the place of the first `strip` ones.
fn exchange(frame: &mut Frame, strip: usize, head: &[u8]) -> bool {
    if head.len() > strip + frame.headroom() || !frame.strip(strip) {
        return false;
    }
    frame.prepend(head.len()).is_some_and(|room| {
        room[..head.len()].copy_from_slice(head);
        true
    })
}

/// A copy of a packet in frames taken by `allocate`.
pub(crate) fn copy(frame: &Frame, mut allocate: impl FnMut() -> Option<Frame>) -> Option<Frame> {
    let mut packet: Option<Frame> = None;
    for octets in frame.segments() {
        let segment = Frame::from_slice(octets, &mut allocate)?;
        match &mut packet {
            Some(packet) => packet.push_segment(segment),
            None => packet = Some(segment),
        }
    }
    packet
}
