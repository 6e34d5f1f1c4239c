//! Cuts a packet into fragments that fit (RFC 791 3.2, RFC 8200 4.5).

use crate::frame::{Frame, Segments};
use kaido_wire::ipv4::{DONT_FRAGMENT, MORE_FRAGMENTS, OFFSET_MASK};
use kaido_wire::layout::{self, FragmentFields, Ipv4Fields, Ipv6Fields};
use kaido_wire::{IpProtocol, ipv4, ipv6};

use super::FRAGMENT_HEADER_LEN;

/// The bit of an IPv4 option's type that has it copied into every fragment.
const OPTION_COPIED: u8 = 0x80;

/// Why a packet was not cut; nothing has come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitFault {
    /// Its headers leave no room for data, or are not those of a packet that may be cut.
    Impossible,
    /// There were too few free frames.
    NoFrame,
}

/// Whether a router may cut an IPv4 packet.
pub fn split_v4_allowed(packet: &[u8]) -> bool {
    ipv4::may_fragment(packet)
}

/// Cuts the packet that `frame` begins with into fragments of at most `mtu` octets, front to back. Of IPv4 any, whatever
/// its DF; of IPv6 one without extension headers, as we make them.
///
/// # Errors
/// [`SplitFault`].
pub fn split(
    frame: &Frame,
    mtu: usize,
    identification: u32,
    mut allocate: impl FnMut() -> Option<Frame>,
) -> Result<Vec<Frame>, SplitFault> {
    let headers = Headers::read(frame.data()).ok_or(SplitFault::Impossible)?;
    let total = headers.total_len.min(frame.packet_len());
    let room = mtu.checked_sub(headers.first_len()).map(|room| room & !7).filter(|room| *room > 0);
    let room = room.ok_or(SplitFault::Impossible)?;
    let payload = total.checked_sub(headers.len).ok_or(SplitFault::Impossible)?;
    let mut source = Source::new(frame, headers.len);
    let mut fragments = Vec::with_capacity(payload.div_ceil(room));
    let mut offset = 0;
    while offset < payload {
        let len = room.min(payload - offset);
        let more = offset + len < payload;
        let mut fragment = allocate().ok_or(SplitFault::NoFrame)?;
        let header = headers.emit(&mut fragment, offset, len, more, identification);
        header.ok_or(SplitFault::Impossible)?;
        source.copy(len, &mut fragment, &mut allocate)?;
        fragments.push(fragment);
        offset += len;
    }
    Ok(fragments)
}

/// What is before the data that is cut.
struct Headers<'p> {
    octets: &'p [u8],
    /// Octets of header in the packet.
    len: usize,
    total_len: usize,
    is_ipv4: bool,
    /// IPv4 options that every fragment gets, padded.
    copied: Vec<u8>,
}

impl<'p> Headers<'p> {
    fn read(packet: &'p [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => {
                let header = ipv4::header_within(packet, usize::MAX).ok()?;
                let len = usize::from(header.header_len);
                let octets = packet.get(..len)?;
                let copied = copied_options(&octets[ipv4::HEADER_LEN..]);
                Some(Self { octets, len, total_len: header.total_len.into(), is_ipv4: true, copied })
            }
            6 => {
                let header = ipv6::header_within(packet, usize::MAX).ok()?;
                let octets = packet.get(..ipv6::HEADER_LEN)?;
                let is_plain = usize::from(header.header_len) == ipv6::HEADER_LEN;
                is_plain.then_some(Self {
                    octets,
                    len: ipv6::HEADER_LEN,
                    total_len: header.total_len as usize,
                    is_ipv4: false,
                    copied: Vec::new(),
                })
            }
            _ => None,
        }
    }

    /// Octets of header in the first fragment, which has the longest.
    fn first_len(&self) -> usize {
        if self.is_ipv4 { self.len } else { self.len + FRAGMENT_HEADER_LEN }
    }

    /// Puts the header of one fragment into an empty frame.
    fn emit(
        &self,
        fragment: &mut Frame,
        offset: usize,
        len: usize,
        more: bool,
        identification: u32,
    ) -> Option<()> {
        if self.is_ipv4 {
            self.emit_v4(fragment, offset, len, more, identification)
        } else {
            let header = fragment.append(ipv6::HEADER_LEN + FRAGMENT_HEADER_LEN)?;
            let (fixed, extension) = header.split_at_mut(ipv6::HEADER_LEN);
            fixed.copy_from_slice(self.octets);
            let payload_len = u16::try_from(len + FRAGMENT_HEADER_LEN).ok()?;
            let mut fixed = Ipv6Fields::new(layout::at_mut(fixed, 0));
            fixed.set_payload_len(payload_len);
            let mut extension = FragmentFields::new(layout::at_mut(extension, 0));
            extension.set_next_header(fixed.next_header());
            extension.set_reserved(0);
            extension.set_offset_more(u16::try_from(offset).ok()? | u16::from(more));
            extension.set_identification(identification);
            fixed.set_next_header(IpProtocol::FRAGMENT.0);
            Some(())
        }
    }

    fn emit_v4(
        &self,
        fragment: &mut Frame,
        offset: usize,
        len: usize,
        more: bool,
        identification: u32,
    ) -> Option<()> {
        // A fragment of a fragment goes on from where that lies, and is the last only if that was.
        let had = Ipv4Fields::new(layout::at(self.octets, 0)).flags_offset();
        let offset_units = (had & OFFSET_MASK) + u16::try_from(offset / 8).ok()?;
        let options = if offset == 0 { &self.octets[ipv4::HEADER_LEN..] } else { &self.copied[..] };
        let header_len = ipv4::HEADER_LEN + options.len();
        let header = fragment.append(header_len)?;
        header[..ipv4::HEADER_LEN].copy_from_slice(&self.octets[..ipv4::HEADER_LEN]);
        header[ipv4::HEADER_LEN..].copy_from_slice(options);
        let mut fields = Ipv4Fields::new(layout::at_mut(header, 0));
        fields.set_version_ihl(0x40 | u8::try_from(header_len / 4).ok()?);
        fields.set_total_len(u16::try_from(header_len + len).ok()?);
        if had & (OFFSET_MASK | MORE_FRAGMENTS) == 0 && had & DONT_FRAGMENT != 0 {
            // An atomic datagram's identification means nothing (RFC 6864); a fragment's must.
            #[allow(clippy::cast_possible_truncation)] // IPv4 has sixteen bits of it.
            fields.set_identification(identification as u16);
        }
        let more = if more { MORE_FRAGMENTS } else { had & MORE_FRAGMENTS };
        fields.set_flags_offset(offset_units & OFFSET_MASK | more);
        ipv4::fill_checksum(header);
        Some(())
    }
}

/// The options that every fragment gets (RFC 791 3.1), padded to whole words.
fn copied_options(options: &[u8]) -> Vec<u8> {
    let mut copied = Vec::new();
    let mut rest = options;
    while let Some(&kind) = rest.first() {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => rest.get(1).map_or(0, |&len| usize::from(len)),
        };
        let Some(option) = rest.get(..len).filter(|option| !option.is_empty()) else { break };
        if kind & OPTION_COPIED != 0 {
            copied.extend_from_slice(option);
        }
        rest = &rest[len..];
    }
    copied.resize(copied.len().next_multiple_of(4), 0);
    copied
}

/// The data of a packet, read front to back over its segments.
struct Source<'f> {
    segments: Segments<'f>,
    current: &'f [u8],
}

impl<'f> Source<'f> {
    fn new(frame: &'f Frame, skip: usize) -> Self {
        let mut segments = frame.segments();
        let first = segments.next().unwrap_or_default();
        Self { current: first.get(skip..).unwrap_or_default(), segments }
    }

    /// Copies the next `len` octets behind what `to` holds, into as many frames as it takes.
    fn copy(
        &mut self,
        mut len: usize,
        to: &mut Frame,
        allocate: &mut impl FnMut() -> Option<Frame>,
    ) -> Result<(), SplitFault> {
        let mut tail: Option<Frame> = None;
        while len > 0 {
            while self.current.is_empty() {
                self.current = self.segments.next().ok_or(SplitFault::Impossible)?;
            }
            let last = tail.as_mut().unwrap_or(to);
            if last.tailroom() == 0 {
                if let Some(full) = tail.replace(allocate().ok_or(SplitFault::NoFrame)?) {
                    to.push_segment(full);
                }
                continue;
            }
            let chunk = len.min(self.current.len()).min(last.tailroom());
            let (now, later) = self.current.split_at(chunk);
            last.append(chunk).ok_or(SplitFault::NoFrame)?.copy_from_slice(now);
            self.current = later;
            len -= chunk;
        }
        if let Some(last) = tail {
            to.push_segment(last);
        }
        Ok(())
    }
}
