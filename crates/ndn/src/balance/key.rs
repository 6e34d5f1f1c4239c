//! What tells the worker of a packet: as little of it is read as will do. The worker that it goes to reads all of it, and refuses
//! what is malformed.

use kaido_ndn_tables::{NameHash, STEP};
use kaido_wire::ndn::fast::value;
use kaido_wire::ndn::{tlv, types};

use crate::packet::Packet;

/// The first octets of an Interest and of a Name.
const INTEREST: u8 = 5;
const NAME: u8 = 7;

/// What a packet is, and the hash of its name without an implicit digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// An Interest, and where its elements behind the name begin in the first segment.
    Interest { hash: u64, behind: usize },
    /// An Interest that came back.
    Nack { hash: u64 },
    /// Data, and where its name's components lie.
    Data { at: usize, end: usize },
}

/// Reads the key of a packet; `None` when it has none, and is malformed.
#[inline]
pub(crate) fn key(packet: &Packet, hash: &NameHash) -> Option<Key> {
    let first = packet.frame.data();
    let outer = tlv::header(first).ok()?;
    let name = tlv::header(first.get(outer.header_len..)?).ok()?;
    let at = outer.header_len + name.header_len;
    let end = at.checked_add(name.len)?;
    if name.kind != types::NAME || end > first.len() {
        return None;
    }
    if outer.kind == types::DATA {
        return Some(Key::Data { at, end });
    }
    let hash = hash.plain(&first[at..end]).ok()?;
    Some(match packet.annotations.nack {
        None => Key::Interest { hash, behind: end },
        Some(_) => Key::Nack { hash },
    })
}

/// The hash of the name of an Interest, and where its elements behind the name begin, if it is one that the forwarding reads in
/// one pass. It is what [`key`] says of it, without a look at each octet. `None` of any other packet.
#[inline(always)]
pub(crate) fn fast_interest(packet: &Packet, hash: &NameHash) -> Option<(u64, usize)> {
    let octets = packet.frame.data_and_behind(STEP)?;
    if octets.first() != Some(&INTEREST) || packet.annotations.nack.is_some() {
        return None;
    }
    let (name, _) = value(octets, 0)?;
    let (at, end) = value(octets, name)?;
    if octets[name] != NAME || end + STEP > octets.len() {
        return None;
    }
    Some((hash.plain_in_steps(&octets[at..], end - at)?, end))
}

/// The components of the name of an Interest.
pub(crate) fn interest_name(first: &[u8]) -> Option<&[u8]> {
    let inner = first.get(tlv::header(first).ok()?.header_len..)?;
    let name = tlv::header(inner).ok()?;
    inner.get(name.header_len..name.header_len.checked_add(name.len)?)
}

/// The nonce of an Interest, looked for from `behind` its name on.
pub(crate) fn nonce(first: &[u8], mut behind: usize) -> Option<u32> {
    loop {
        let rest = first.get(behind..)?;
        let element = tlv::header(rest).ok()?;
        if element.kind == types::NONCE {
            let octets = rest.get(element.header_len..)?.first_chunk()?;
            return (element.len == 4).then(|| u32::from_be_bytes(*octets));
        }
        behind = behind.checked_add(element.element_len())?;
    }
}

#[cfg(test)]
mod tests {
    use kaido_engine::{Frame, FramePool};
    use kaido_ndn_tables::text::{name, with_digest};
    use kaido_ndn_tables::{FaceId, Prefixes};
    use kaido_wire::ndn::{DataRepr, InterestRepr, Name};

    use super::*;
    use crate::packet::{Annotations, NackReason};

    fn packet(octets: &[u8]) -> Packet {
        let pool = FramePool::leak(4).unwrap();
        let frame = Frame::from_slice(octets, || pool.allocate()).unwrap();
        Packet { frame, face: FaceId(300), annotations: Annotations::default() }
    }

    #[test]
    fn keys_are_those_that_the_tables_have() {
        let hash = NameHash::fixed(9);
        let hint = [Name::new(b"\x08\x01r").unwrap()];
        for octets in [name("a/b"), with_digest("a/b/c", [4; 32]), name(&"d/".repeat(40))] {
            let of = Name::new(&octets).unwrap();
            let mut prefixes = Prefixes::default();
            prefixes.fill(&hash, &octets).unwrap();
            for (can_be_prefix, forwarding_hint) in [(false, &[][..]), (true, &hint[..])] {
                let repr = InterestRepr {
                    name: of,
                    nonce: Some(77),
                    can_be_prefix,
                    forwarding_hint,
                    ..InterestRepr::default()
                };
                let mut interest = vec![0; repr.len()];
                repr.emit(&mut interest).unwrap();
                let mut read = packet(&interest);
                let Some(Key::Interest { hash: found, behind }) = key(&read, &hash) else {
                    panic!("{read:?} is an Interest")
                };
                assert_eq!((found, nonce(read.frame.data(), behind)), (prefixes.whole(), Some(77)));
                assert_eq!(interest_name(read.frame.data()), Some(&octets[..]));
                let is_plain = !prefixes.has_digest();
                assert_eq!(fast_interest(&read, &hash), is_plain.then_some((found, behind)));
                read.annotations.nack = Some(NackReason::NoRoute);
                assert_eq!(key(&read, &hash), Some(Key::Nack { hash: prefixes.whole() }));
                assert_eq!(fast_interest(&read, &hash), None);
            }
            let repr = DataRepr { name: of, ..DataRepr::default() };
            let mut data = vec![0; repr.len()];
            repr.emit(&mut data).unwrap();
            let read = packet(&data);
            let Some(Key::Data { at, end }) = key(&read, &hash) else { panic!("{read:?} is Data") };
            assert_eq!(fast_interest(&read, &hash), None);
            assert_eq!(read.frame.data()[at..end], octets);
        }
    }

    #[test]
    fn what_is_cut_has_no_key() {
        let repr = InterestRepr {
            name: Name::new(b"\x08\x03abc").unwrap(),
            nonce: Some(5),
            ..InterestRepr::default()
        };
        let mut interest = vec![0; repr.len()];
        repr.emit(&mut interest).unwrap();
        for len in 0..interest.len() {
            let (cut, hash) = (packet(&interest[..len]), NameHash::fixed(1));
            if let Some((fast, behind)) = fast_interest(&cut, &hash) {
                assert_eq!(key(&cut, &hash), Some(Key::Interest { hash: fast, behind }));
            }
            match key(&cut, &hash) {
                Some(Key::Interest { behind, .. }) => assert_eq!(nonce(&interest[..len], behind), None),
                other => assert_eq!(other, None),
            }
        }
    }
}
