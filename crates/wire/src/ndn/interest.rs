//! Interests.
//!
//! ```text
//!  Interest: Name [CanBePrefix] [MustBeFresh] [ForwardingHint] [Nonce] [InterestLifetime] [HopLimit]
//!            [ApplicationParameters [InterestSignatureInfo InterestSignatureValue]]
//! ```

use super::tlv::{self, Header, Order, Writer};
use super::{DIGEST_LEN, Digest, Name, Names, Result, SignatureInfo, parameters_digest, types};
use crate::Error;
use crate::bytes::array_at;

/// Milliseconds that an Interest waits which does not say how long.
pub const LIFETIME_DEFAULT_MS: u64 = 4000;

/// What an Interest carries for the producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters<'p> {
    /// Where the ApplicationParameters element begins, in octets from the front of the packet. The digest in the name is
    /// over all from there.
    pub at: usize,
    /// As much of its value as lies in the first segment.
    pub value: &'p [u8],
    /// Octets of the value.
    pub len: usize,
    /// How it is signed: SignatureInfo, the octets that are signed behind the name, SignatureValue.
    pub signature: Option<InterestSignature<'p>>,
}

/// The signature of an Interest that lies in one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterestSignature<'p> {
    /// How it is signed.
    pub info: SignatureInfo<'p>,
    /// From ApplicationParameters to InterestSignatureInfo; before these, the name without the digest of the parameters is
    /// signed.
    pub signed: &'p [u8],
    /// The signature.
    pub value: &'p [u8],
}

/// An Interest, in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest<'p> {
    /// The name; never the root.
    pub name: Name<'p>,
    /// Where the Name element begins.
    pub name_at: usize,
    /// Data of longer names are asked for too.
    pub can_be_prefix: bool,
    /// Stale Data is not asked for.
    pub must_be_fresh: bool,
    /// Where to send it if no route leads to the name.
    pub forwarding_hint: Option<Names<'p>>,
    /// The nonce, without which an Interest may come from an application but not from a node.
    pub nonce: Option<u32>,
    /// Where the Nonce element is, or belongs.
    pub nonce_at: usize,
    /// How long it waits, in milliseconds, if it says so.
    pub lifetime_ms: Option<u64>,
    /// Nodes that may still forward it.
    pub hop_limit: Option<u8>,
    /// Where the octet is that is the hop limit; 0 if there is none.
    pub hop_limit_at: usize,
    /// ApplicationParameters and what follows.
    pub parameters: Option<Parameters<'p>>,
}

/// What [`Interest::with_nonce`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RewrittenHead {
    /// Octets to be taken off the packet's front.
    pub strip: usize,
    /// Octets that come in their place.
    pub written: usize,
}

impl<'p> Interest<'p> {
    /// Reads an Interest of `total` octets whose first segment is `first`. All before the value of ApplicationParameters
    /// must be in it; what follows an ApplicationParameters that is not whole is not looked at.
    pub fn parse(first: &'p [u8], total: usize) -> Result<Self> {
        let outer = tlv::header(first)?;
        if outer.kind != types::INTEREST {
            return Err(Error::MessageType);
        }
        if outer.element_len() != total {
            return Err(Error::Length);
        }
        let name_at = outer.header_len;
        let (name, name_len) = Name::parse(first.get(name_at..).ok_or(Error::Truncated)?)?;
        if name.is_empty() {
            return Err(Error::Element);
        }
        let at = name_at + name_len;
        let mut interest = Self {
            name,
            name_at,
            can_be_prefix: false,
            must_be_fresh: false,
            forwarding_hint: None,
            nonce: None,
            nonce_at: at,
            lifetime_ms: None,
            hop_limit: None,
            hop_limit_at: 0,
            parameters: None,
        };
        interest.read(first, at, total)?;
        interest.check_digests()?;
        Ok(interest)
    }

    /// Reads what is behind the name.
    fn read(&mut self, first: &'p [u8], mut at: usize, total: usize) -> Result<()> {
        let mut order = Order::default();
        while at < total {
            let header = tlv::header(first.get(at..).unwrap_or_default())?;
            let end = at + header.element_len();
            if end > total {
                return Err(Error::Length);
            }
            let place = place(header.kind);
            if !order.admits(place, header.kind)? {
                at = end;
                continue;
            }
            if place >= PARAMETERS {
                return self.read_parameters(first, at, header, total);
            }
            let value = first.get(at + header.header_len..end).ok_or(Error::Truncated)?;
            self.take(place, value, at, end)?;
            at = end;
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self, place: u8, value: &'p [u8], at: usize, end: usize) -> Result<()> {
        match place {
            1 | 2 if !value.is_empty() => return Err(Error::Element),
            1 => self.can_be_prefix = true,
            2 => self.must_be_fresh = true,
            3 => self.forwarding_hint = Some(Names::new(value)?),
            4 if value.len() == 4 => self.nonce = Some(u32::from_be_bytes(array_at(value, 0))),
            5 => self.lifetime_ms = Some(tlv::integer(value)?),
            6 if value.len() == 1 => (self.hop_limit, self.hop_limit_at) = (Some(value[0]), end - 1),
            _ => return Err(Error::Element),
        }
        match place {
            1..=3 => self.nonce_at = end,
            4 => self.nonce_at = at,
            _ => {}
        }
        Ok(())
    }

    /// Reads ApplicationParameters, or a signature that misses it, and what follows.
    fn read_parameters(&mut self, first: &'p [u8], at: usize, header: Header, total: usize) -> Result<()> {
        if header.kind != types::APPLICATION_PARAMETERS {
            return Err(Error::Element);
        }
        let (begin, end) = (at + header.header_len, at + header.element_len());
        let value = &first[begin..end.min(first.len())];
        let mut parameters = Parameters { at, value, len: header.len, signature: None };
        if total == first.len() {
            parameters.signature = signature(first, at, end)?;
        }
        self.parameters = Some(parameters);
        Ok(())
    }

    /// A name has one digest of parameters at most, and one if there are parameters.
    fn check_digests(&self) -> Result<()> {
        let digests = self.name.components().filter(super::Component::is_parameters_digest).count();
        match (digests, self.parameters.is_some()) {
            (0, true) | (2.., _) => Err(Error::Element),
            _ => Ok(()),
        }
    }

    /// How long it waits, in milliseconds.
    #[inline]
    pub fn lifetime_or_default_ms(&self) -> u64 {
        self.lifetime_ms.unwrap_or(LIFETIME_DEFAULT_MS)
    }

    /// The digest of parameters that the name has.
    pub fn parameters_digest(&self) -> Option<Digest> {
        let component = self.name.components().find(super::Component::is_parameters_digest)?;
        component.value().first_chunk::<DIGEST_LEN>().copied()
    }

    /// Whether the digest of the parameters in the name is that of the parameters, given the packet's segments. An Interest
    /// with neither is in order, one that lacks either is not.
    pub fn is_digest_right<'s>(&self, segments: impl IntoIterator<Item = &'s [u8]>) -> bool {
        match (self.parameters_digest(), &self.parameters) {
            (None, None) => true,
            (Some(digest), Some(parameters)) => parameters_digest(segments, parameters.at) == digest,
            _ => false,
        }
    }

    /// The name as its signature covers it: the octets of the components but for the digest of the parameters, before and
    /// behind it.
    pub fn signed_name(&self) -> [&'p [u8]; 2] {
        let mut components = self.name.components();
        let all = self.name.value();
        let mut before = 0;
        while let Some(component) = components.next() {
            if component.is_parameters_digest() {
                return [&all[..before], components.rest()];
            }
            before += component.octets().len();
        }
        [all, &[]]
    }

    /// Gives an Interest without nonce one: writes what its front has to become to `head`, which has room when it is as
    /// long as [`Self::nonce_at`] and [`NONCE_ROOM`] more. `packet` is the first segment, `total` the packet's length.
    pub fn with_nonce(
        &self,
        packet: &[u8],
        total: usize,
        nonce: u32,
        head: &mut [u8],
    ) -> Result<RewrittenHead> {
        let mut writer = Writer::new(head);
        writer.header(types::INTEREST, total - self.name_at + 6)?;
        writer.octets(packet.get(self.name_at..self.nonce_at).ok_or(Error::Truncated)?)?;
        writer.element(types::NONCE, &nonce.to_be_bytes())?;
        Ok(RewrittenHead { strip: self.nonce_at, written: writer.len() })
    }
}

/// Octets by which the front of an Interest can grow when it is given a nonce.
pub const NONCE_ROOM: usize = 6 + 2;

/// From this place on elements belong to the parameters.
const PARAMETERS: u8 = 7;

/// Which of an Interest's elements behind the name a type is, from 1; 0 for others.
#[inline]
const fn place(kind: u32) -> u8 {
    match kind {
        types::CAN_BE_PREFIX => 1,
        types::MUST_BE_FRESH => 2,
        types::FORWARDING_HINT => 3,
        types::NONCE => 4,
        types::INTEREST_LIFETIME => 5,
        types::HOP_LIMIT => 6,
        types::APPLICATION_PARAMETERS => PARAMETERS,
        types::INTEREST_SIGNATURE_INFO => 8,
        types::INTEREST_SIGNATURE_VALUE => 9,
        _ => 0,
    }
}

/// The signature behind ApplicationParameters, which is from `at` to `end`.
fn signature(packet: &[u8], at: usize, end: usize) -> Result<Option<InterestSignature<'_>>> {
    let mut order = Order::default();
    order.admits(PARAMETERS, types::APPLICATION_PARAMETERS)?;
    let (mut info, mut value) = (None, None);
    let mut here = end;
    while here < packet.len() {
        let header = tlv::header(&packet[here..])?;
        let next = here + header.element_len();
        let octets = packet.get(here + header.header_len..next).ok_or(Error::Length)?;
        if order.admits(place(header.kind), header.kind)? {
            match header.kind {
                types::INTEREST_SIGNATURE_INFO => info = Some((SignatureInfo::parse(octets)?, next)),
                _ => value = Some(octets),
            }
        }
        here = next;
    }
    match (info, value) {
        (None, None) => Ok(None),
        (Some((info, end)), Some(value)) => {
            Ok(Some(InterestSignature { info, signed: &packet[at..end], value }))
        }
        _ => Err(Error::Element),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    fn read(value: &str) -> Result<Interest<'static>> {
        let value = hex(value);
        let mut packet = vec![0; tlv::element_len(types::INTEREST, value.len())];
        Writer::new(&mut packet).element(types::INTEREST, &value)?;
        let packet = packet.leak();
        Interest::parse(packet, packet.len())
    }

    const A: &str = "0703080161";

    fn with_digest(rest: &str) -> Result<Interest<'static>> {
        read(&format!("0722 0220{} {rest}", "ab".repeat(32)))
    }

    /// Conformance: NDN 0.3 Interest | Name, CanBePrefix, MustBeFresh, ForwardingHint, Nonce, InterestLifetime, HopLimit
    #[test]
    fn reads_all_elements() {
        let interest = read(&format!("{A} 2100 1200 1e05{A} 0a0401020304 0c0207d0 2201ff")).unwrap();
        assert_eq!(interest.name.to_string(), "/a");
        assert!(interest.can_be_prefix && interest.must_be_fresh);
        assert_eq!(interest.forwarding_hint.unwrap().iter().next().unwrap(), interest.name);
        assert_eq!((interest.nonce, interest.lifetime_ms), (Some(0x0102_0304), Some(2000)));
        assert_eq!((interest.hop_limit, interest.hop_limit_at), (Some(255), 30));
        assert_eq!((interest.name_at, interest.nonce_at), (2, 18));
        let bare = read(A).unwrap();
        assert_eq!((bare.nonce, bare.hop_limit, bare.lifetime_or_default_ms()), (None, None, 4000));
        assert!(!bare.can_be_prefix && !bare.must_be_fresh && bare.is_digest_right([&[][..]]));
    }

    /// Conformance: NDN 0.3 evolvability | Unknown or misplaced elements are skipped if not critical, else the packet refused
    #[test]
    fn critical_elements() {
        assert!(read(&format!("{A} fd03e800 2100 2000")).is_ok(), "unknown, not critical");
        assert_eq!(read(&format!("{A} fd03e900")), Err(Error::Unrecognised));
        assert_eq!(read(&format!("{A} 0b00")), Err(Error::Unrecognised));
        assert_eq!(read(&format!("{A} 1200 2100")), Err(Error::HeaderOrder), "out of order");
        assert_eq!(read(&format!("{A} 2100 2100")), Err(Error::HeaderOrder), "twice");
        assert_eq!(read(&format!("{A} 0a0400000000 1200")), Err(Error::HeaderOrder));
        let twice = read(&format!("{A} 220105 220107")).unwrap();
        assert_eq!(twice.hop_limit, Some(5), "HopLimit is not critical: the second is skipped");
    }

    /// Conformance: NDN 0.3 Interest | Elements of a wrong length are refused
    #[test]
    fn refuses_wrong_values() {
        for (value, error) in [
            ("", Error::Truncated),
            ("0700", Error::Element),
            ("2100 0703080161", Error::Element),
            ("0703080161 210100", Error::Element),
            ("0703080161 120100", Error::Element),
            ("0703080161 0a0301020 3", Error::Element),
            ("0703080161 0c03010203", Error::Element),
            ("0703080161 2200", Error::Element),
            ("0703080161 1e00", Error::Element),
            ("0703080161 0a0401", Error::Length),
            ("0703080261", Error::Truncated),
            ("0703080161 0a", Error::Truncated),
        ] {
            assert_eq!(read(value), Err(error), "{value}");
        }
        assert_eq!(Interest::parse(&hex("0603070108"), 5), Err(Error::MessageType));
        assert_eq!(
            Interest::parse(&hex("0505 0703080161 00"), 8),
            Err(Error::Length),
            "octets behind the packet"
        );
    }

    /// Conformance: NDN 0.3 Interest | ApplicationParameters and the digest of them in the name belong together
    #[test]
    fn parameters_need_their_digest() {
        assert_eq!(read(&format!("{A} 2400")), Err(Error::Element));
        let two = format!("0744 0220{0} 0220{0} 2400", "ab".repeat(32));
        assert_eq!(read(&two), Err(Error::Element));
        let lone = with_digest("").unwrap();
        assert!(!lone.is_digest_right([&[][..]]));
        let wrong = with_digest("2403010203").unwrap();
        assert_eq!(wrong.parameters.unwrap().value, [1, 2, 3]);
        assert_eq!(with_digest("2400 2c031b0100"), Err(Error::Element), "no value of the signature");
        assert_eq!(with_digest("2c031b0100 2e00"), Err(Error::Element), "a signature of nothing");
        assert!(with_digest("2400 2c031b0100 2e00").unwrap().parameters.unwrap().signature.is_some());
    }

    #[test]
    fn what_carries_on_in_later_segments() {
        let mut packet = hex("05fd0400 0722 0220");
        packet.extend([0xab; 32]);
        packet.extend(hex("0a0401020304 24fd03d2"));
        let total = 1028;
        let read = Interest::parse(&packet, total).unwrap();
        assert_eq!((read.parameters.unwrap().len, read.parameters.unwrap().value), (978, &[][..]));
        for cut in 0..packet.len() {
            assert!(Interest::parse(&packet[..cut], total).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_nonce_is_put_in_its_place() {
        for rest in ["", "2100", "1200 0c0107", "2201ff"] {
            let value = hex(&format!("{A} {rest}"));
            let mut packet = vec![5, u8::try_from(value.len()).unwrap()];
            packet.extend(&value);
            let interest = Interest::parse(&packet, packet.len()).unwrap();
            let mut head = [0; 64];
            let new = interest.with_nonce(&packet, packet.len(), 0xdead_beef, &mut head).unwrap();
            let made = [&head[..new.written], &packet[new.strip..]].concat();
            let again = Interest::parse(&made, made.len()).unwrap();
            assert_eq!(again.nonce, Some(0xdead_beef));
            assert_eq!((again.hop_limit, again.lifetime_ms), (interest.hop_limit, interest.lifetime_ms));
            assert!(new.written <= new.strip + NONCE_ROOM);
        }
    }
}
