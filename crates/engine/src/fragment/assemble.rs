//! Makes one packet of its fragments.

use kaido_wire::layout::{Ipv4Fields, Ipv6Fields};
use kaido_wire::{IpProtocol, ecn, ipv4, ipv6};

use super::FRAGMENT_HEADER_LEN;
use crate::drop_reason::DropReason;
use crate::frame::Frame;

/// Copies the pieces of a packet, which are all there and front to back, into frames that are as full as they can be, so
/// that all its headers are in the first. `part` gives a piece's frame, whose IP header is at the front, and the octets
/// before the fragment's data.
///
/// # Errors
///
/// Why the packet is dropped: `no_frame` when there are too few free frames, or it is longer than an IP packet may be;
/// `congestion_mark` when one piece has CE and another cannot carry it (RFC 3168 5.3).
pub fn assemble<P>(
    pieces: &[P],
    part: impl Fn(&P) -> (&Frame, usize),
    allocate: impl FnMut() -> Option<Frame>,
) -> Result<Frame, DropReason> {
    let marks = pieces.iter().map(|piece| ecn::class(part(piece).0.data()) & ecn::MASK);
    let (mut congested, mut deaf) = (false, false);
    for mark in marks {
        congested |= mark == ecn::CE;
        deaf |= mark == ecn::NOT_ECT;
    }
    if congested && deaf {
        return Err(DropReason::CONGESTION_MARK);
    }
    let mut whole = join(pieces, part, allocate).ok_or(DropReason::NO_FRAME)?;
    if congested {
        let class = ecn::class(whole.data()) | ecn::CE;
        ecn::set_class(whole.data_mut(), class);
    }
    Ok(whole)
}

fn join<P>(
    pieces: &[P],
    part: impl Fn(&P) -> (&Frame, usize),
    mut allocate: impl FnMut() -> Option<Frame>,
) -> Option<Frame> {
    let (first, first_header_len) = part(pieces.first()?);
    let mut whole = allocate()?;
    let mut tail: Option<Frame> = None;
    let is_ipv4 = first.data().first()? >> 4 == 4;
    let headers = first.data().get(..first_header_len)?;
    let headers = if is_ipv4 { headers } else { headers.get(..headers.len() - FRAGMENT_HEADER_LEN)? };
    whole.append(headers.len())?.copy_from_slice(headers);
    for piece in pieces {
        let (frame, mut skip) = part(piece);
        for segment in frame.segments() {
            let mut data = segment.get(skip.min(segment.len())..).unwrap_or_default();
            skip = skip.saturating_sub(segment.len());
            while !data.is_empty() {
                let last = tail.as_mut().unwrap_or(&mut whole);
                let room = last.tailroom();
                if room == 0 {
                    if let Some(full) = tail.replace(allocate()?) {
                        whole.push_segment(full);
                    }
                    continue;
                }
                let (now, later) = data.split_at(data.len().min(room));
                last.append(now.len())?.copy_from_slice(now);
                data = later;
            }
        }
    }
    if let Some(last) = tail {
        whole.push_segment(last);
    }
    if is_ipv4 { finish_v4(&mut whole) } else { finish_v6(&mut whole, first, first_header_len) }?;
    Some(whole)
}

fn finish_v4(whole: &mut Frame) -> Option<()> {
    let total = u16::try_from(whole.packet_len()).ok()?;
    let header_len = usize::from(whole.data().first()? & 0xf) * 4;
    let header = whole.data_mut().get_mut(..header_len.max(ipv4::HEADER_LEN))?;
    let mut fields = Ipv4Fields::new(header.first_chunk_mut()?);
    fields.set_total_len(total);
    // Neither DF nor MF nor an offset.
    fields.set_flags_offset(0);
    ipv4::fill_checksum(header);
    Some(())
}

fn finish_v6(whole: &mut Frame, first: &Frame, header_len: usize) -> Option<()> {
    let payload_len = u16::try_from(whole.packet_len() - ipv6::HEADER_LEN).ok()?;
    // The fragment header was the last of those that were taken along: what named it names what it named.
    let fragment_at = header_len - FRAGMENT_HEADER_LEN;
    let follows = *first.data().get(fragment_at)?;
    let headers = whole.data_mut();
    Ipv6Fields::new(headers.first_chunk_mut()?).set_payload_len(payload_len);
    let (mut naming, mut at) = (ipv6::NEXT_HEADER_AT, ipv6::HEADER_LEN);
    while at < fragment_at {
        let [_, len] = *headers.get(at..)?.first_chunk::<2>()?;
        let is_authentication = IpProtocol(*headers.get(naming)?) == IpProtocol::AH;
        naming = at;
        at += if is_authentication { (usize::from(len) + 2) * 4 } else { (usize::from(len) + 1) * 8 };
    }
    *headers.get_mut(naming)? = follows;
    Some(())
}

#[cfg(test)]
mod tests;
