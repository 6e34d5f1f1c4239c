//! The server name in QUIC (RFC 9000, RFC 9001, RFC 9369).
//!
//! A client's first packets are encrypted, but with keys that anyone derives from the connection ID in them. They hide
//! nothing from who is on the way, and are authentic to nobody.
//!
//! ```text
//!   Initial packet:  flags · version · DCID · SCID · token · length │ number · frames ─────────────── · tag
//!                                        │                            ╰ masked ╰ AES-128-GCM
//!                                        ╰─▶ HKDF ─▶ key, nonce, mask
//!   CRYPTO frames ─▶ their places in the ClientHello ─▶ server name
//! ```
//! A ClientHello may be spread over several packets, and its pieces may come in any order. All of it is octets from
//! anyone: what is kept of a flow, and what is done for a packet, is bounded.

use arrayvec::ArrayVec;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey, quic};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use super::sni::client_hello;

/// Most octets of a ClientHello that are put together.
pub const HELLO_MAX: usize = 4096;
/// Longest packet that is read.
const PACKET_MAX: usize = 2048;
/// Most pieces with gaps between them.
const GAPS_MAX: usize = 16;
/// Most frames of a packet that are looked at.
const FRAMES_MAX: usize = 256;
/// Longest connection ID (RFC 9000 17.2).
const CONNECTION_ID_MAX: usize = 20;
const TAG_LEN: usize = 16;
/// Octets from the packet number on of which the mask is made (RFC 9001 5.4.2).
const SAMPLE_AT: usize = 4;

/// What differs between the versions of QUIC.
struct Version {
    number: [u8; 4],
    /// Bits 5 and 4 of the first octet of an Initial packet.
    initial: u8,
    salt: [u8; 20],
    labels: [&'static [u8]; 3],
}

/// Version 1 (RFC 9001 5.2) and version 2 (RFC 9369 3.3).
const VERSIONS: [Version; 2] = [
    Version {
        number: [0, 0, 0, 1],
        initial: 0,
        salt: [
            0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad,
            0xcc, 0xbb, 0x7f, 0x0a,
        ],
        labels: [b"quic key", b"quic iv", b"quic hp"],
    },
    Version {
        number: [0x6b, 0x33, 0x43, 0xcf],
        initial: 1,
        salt: [
            0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb,
            0xf9, 0xbd, 0x2e, 0xd9,
        ],
        labels: [b"quicv2 key", b"quicv2 iv", b"quicv2 hp"],
    },
];

/// Where the parts of an Initial packet lie.
struct Initial<'p> {
    version: &'static Version,
    connection_id: &'p [u8],
    /// Octets before the packet number.
    number_at: usize,
    /// Octets of the packet.
    len: usize,
}

/// Octets that are taken from the front; `None` as soon as there are too few.
struct Octets<'p>(&'p [u8]);

impl<'p> Octets<'p> {
    fn take(&mut self, len: usize) -> Option<&'p [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    /// A connection ID with its length before it.
    fn connection_id(&mut self) -> Option<&'p [u8]> {
        let len = usize::from(self.take(1)?[0]);
        self.take(len).filter(|_| len <= CONNECTION_ID_MAX)
    }

    /// A number of one, two, four or eight octets (RFC 9000 16).
    fn number(&mut self) -> Option<usize> {
        let first = *self.0.first()?;
        let octets = self.take(1 << (first >> 6))?;
        let value = octets.iter().fold(0u64, |sum, &octet| sum << 8 | u64::from(octet));
        usize::try_from(value & u64::MAX >> (66 - 8 * octets.len())).ok()
    }
}

impl<'p> Initial<'p> {
    /// Reads the header of the first packet of a datagram.
    fn read(datagram: &'p [u8]) -> Option<Self> {
        let mut rest = Octets(datagram);
        let first = rest.take(1)?[0];
        let number = rest.take(4)?;
        let version = VERSIONS.iter().find(|version| version.number == number)?;
        // Long header, fixed bit, and the type that the version gives an Initial packet.
        if first >> 4 != 0b1100 | version.initial {
            return None;
        }
        let connection_id = rest.connection_id()?;
        rest.connection_id()?;
        let token_len = rest.number()?;
        rest.take(token_len)?;
        let behind_length = rest.number()?;
        let number_at = datagram.len() - rest.0.len();
        let whole = behind_length <= rest.0.len() && behind_length >= SAMPLE_AT + TAG_LEN;
        let len = number_at + behind_length;
        (whole && len <= PACKET_MAX).then_some(Self { version, connection_id, number_at, len })
    }
}

/// Whether a UDP payload begins as a client's first packets do.
pub fn is_initial(datagram: &[u8]) -> bool {
    Initial::read(datagram).is_some()
}

/// The keys of a client's Initial packets.
struct Keys {
    cipher: LessSafeKey,
    nonce: [u8; 12],
    mask: quic::HeaderProtectionKey,
}

impl Keys {
    /// Derives the keys from the connection ID that the client chose (RFC 9001 5.2).
    fn derive(version: &Version, connection_id: &[u8]) -> Option<Self> {
        let initial = Salt::new(HKDF_SHA256, &version.salt).extract(connection_id);
        let mut secret = [0; 32];
        expand(&initial, b"client in", &mut secret)?;
        let client = Prk::new_less_safe(HKDF_SHA256, &secret);
        let (mut key, mut nonce, mut mask) = ([0; 16], [0; 12], [0; 16]);
        let [key_label, nonce_label, mask_label] = version.labels;
        expand(&client, key_label, &mut key)?;
        expand(&client, nonce_label, &mut nonce)?;
        expand(&client, mask_label, &mut mask)?;
        Some(Self {
            cipher: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?),
            nonce,
            mask: quic::HeaderProtectionKey::new(&quic::AES_128, &mask).ok()?,
        })
    }

    /// The nonce of a packet (RFC 9001 5.3).
    fn nonce(&self, number: u32) -> Nonce {
        let mut nonce = self.nonce;
        for (octet, number) in nonce[8..].iter_mut().zip(number.to_be_bytes()) {
            *octet ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Takes the protection off a packet, in place; its frames.
    fn open<'s>(&self, packet: &'s mut [u8], number_at: usize) -> Option<&'s [u8]> {
        let sample = packet.get(number_at + SAMPLE_AT..)?.first_chunk::<16>()?;
        let [first_mask, number_mask @ ..] = self.mask.new_mask(sample).ok()?;
        packet[0] ^= first_mask & 0x0f;
        let number_len = usize::from(packet[0] & 3) + 1;
        let header_len = number_at + number_len;
        let mut number = 0;
        for (octet, mask) in packet.get_mut(number_at..header_len)?.iter_mut().zip(number_mask) {
            *octet ^= mask;
            number = number << 8 | u32::from(*octet);
        }
        let (header, sealed) = packet.split_at_mut(header_len);
        let frames = self.cipher.open_in_place(self.nonce(number), Aad::from(header), sealed).ok()?;
        Some(frames)
    }
}

/// As many octets of key material as are wanted.
struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label without context (RFC 8446 7.1).
fn expand(secret: &Prk, label: &[u8], out: &mut [u8]) -> Option<()> {
    let mut info: ArrayVec<u8, 32> = ArrayVec::new();
    info.try_extend_from_slice(&u16::try_from(out.len()).ok()?.to_be_bytes()).ok()?;
    info.try_push(u8::try_from(6 + label.len()).ok()?).ok()?;
    info.try_extend_from_slice(b"tls13 ").ok()?;
    info.try_extend_from_slice(label).ok()?;
    info.try_push(0).ok()?;
    secret.expand(&[&info], Len(out.len())).ok()?.fill(out).ok()
}

/// A ClientHello that is put together.
pub struct Hello {
    /// The keys by which its packets were opened.
    keys: Option<Keys>,
    octets: Box<[u8; HELLO_MAX]>,
    /// What is there, from and to, in order and apart.
    there: ArrayVec<(usize, usize), GAPS_MAX>,
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello").field("there", &self.there).finish_non_exhaustive()
    }
}

impl Default for Hello {
    fn default() -> Self {
        Self { keys: None, octets: Box::new([0; HELLO_MAX]), there: ArrayVec::new() }
    }
}

impl Hello {
    /// Forgets all of it.
    pub fn clear(&mut self) {
        self.keys = None;
        self.there.clear();
    }

    /// Reads a UDP payload of the client's; the server name, once enough of the ClientHello is there.
    pub fn hear(&mut self, datagram: &[u8]) -> Option<&[u8]> {
        let packet = Initial::read(datagram)?;
        let mut scratch = [0; PACKET_MAX];
        let own = Keys::derive(packet.version, packet.connection_id)?;
        // Later packets of the client have the server's connection ID, and the keys of the first.
        let earlier = self.keys.take();
        for keys in [Some(own), earlier].into_iter().flatten() {
            let sealed = scratch.get_mut(..packet.len)?;
            sealed.copy_from_slice(&datagram[..packet.len]);
            if let Some(frames) = keys.open(sealed, packet.number_at) {
                self.keys = Some(keys);
                self.take_frames(frames);
                return self.server_name();
            }
        }
        None
    }

    /// Reads the frames of a packet (RFC 9000 17.2.2: those that an Initial packet may have).
    pub fn take_frames(&mut self, frames: &[u8]) {
        let mut rest = Octets(frames);
        for _ in 0..FRAMES_MAX {
            let padding = rest.0.iter().take_while(|&&octet| octet == 0).count();
            let _ = rest.take(padding);
            if self.take_frame(&mut rest).is_none() {
                return;
            }
        }
    }

    fn take_frame(&mut self, rest: &mut Octets<'_>) -> Option<()> {
        const PING: usize = 1;
        const ACK: usize = 2;
        const ACK_WITH_ECN: usize = 3;
        const CRYPTO: usize = 6;
        match rest.number()? {
            PING => {}
            kind @ (ACK | ACK_WITH_ECN) => {
                // Largest acknowledged, delay, then ranges, the first of which is one number.
                rest.number()?;
                rest.number()?;
                let ranges = rest.number()?;
                let counts = if kind == ACK_WITH_ECN { 3 } else { 0 };
                let numbers = ranges.checked_mul(2)?.checked_add(1 + counts)?;
                for _ in 0..numbers {
                    rest.number()?;
                }
            }
            CRYPTO => {
                let at = rest.number()?;
                let len = rest.number()?;
                self.put(at, rest.take(len)?);
            }
            _ => return None,
        }
        Some(())
    }

    /// Puts a piece where it belongs; what lies beyond the bounds is left out.
    fn put(&mut self, at: usize, piece: &[u8]) {
        let Some(room) = self.octets.get_mut(at..) else { return };
        let len = piece.len().min(room.len());
        if len == 0 {
            return;
        }
        room[..len].copy_from_slice(&piece[..len]);
        let mut new = (at, at + len);
        let mut merged: ArrayVec<(usize, usize), GAPS_MAX> = ArrayVec::new();
        for &(from, to) in &self.there {
            if to < new.0 || from > new.1 {
                merged.push((from, to));
            } else {
                new = (from.min(new.0), to.max(new.1));
            }
        }
        // With more gaps than are kept the piece is forgotten.
        if merged.try_push(new).is_ok() {
            merged.sort_unstable();
            self.there = merged;
        }
    }

    /// The server name, if it lies in what is there without a gap.
    pub fn server_name(&self) -> Option<&[u8]> {
        let &(from, to) = self.there.first()?;
        client_hello(self.octets.get(..to).filter(|_| from == 0)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(octet).collect()
    }

    const CONNECTION_ID: &str = "8394c8f03e515708";
    /// The ClientHello of RFC 9001 appendix A.2, for `example.com`.
    const HELLO: &str = "010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c000004130113
        02010000c000000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d0017001800100007000504616c706e00
        0500050100000000003300260024001d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003
        020304000d0010000e0403050306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff05048000ff
        ff07048000ffff0801100104800075300901100f088394c8f03e51570806048000ffff";

    /// A client's Initial packet with some frames, padded to 1200 octets, sealed with the keys of `of_id`.
    fn seal(version: &Version, id: &[u8], of_id: &[u8], number: u32, frames: &[u8]) -> Vec<u8> {
        let keys = Keys::derive(version, of_id).unwrap();
        let mut packet = vec![0xc3 | version.initial << 4];
        packet.extend_from_slice(&version.number);
        packet.push(u8::try_from(id.len()).unwrap());
        packet.extend_from_slice(id);
        packet.extend_from_slice(&[0, 0]);
        let rest = 1200 - packet.len() - 2;
        packet.extend_from_slice(&(0x4000 | u16::try_from(rest).unwrap()).to_be_bytes());
        let number_at = packet.len();
        packet.extend_from_slice(&number.to_be_bytes());
        let mut payload = frames.to_vec();
        payload.resize(rest - 4 - TAG_LEN, 0);
        keys.cipher.seal_in_place_append_tag(keys.nonce(number), Aad::from(&packet), &mut payload).unwrap();
        packet.extend_from_slice(&payload);
        let [first, number @ ..] = keys.mask.new_mask(&packet[number_at + 4..number_at + 20]).unwrap();
        packet[0] ^= first & 0x0f;
        for (octet, mask) in packet[number_at..number_at + 4].iter_mut().zip(number) {
            *octet ^= mask;
        }
        packet
    }

    /// A CRYPTO frame.
    fn crypto(at: usize, piece: &[u8]) -> Vec<u8> {
        let number = |value: usize| (0x4000 | u16::try_from(value).unwrap()).to_be_bytes();
        [&[6][..], &number(at), &number(piece.len()), piece].concat()
    }

    /// Conformance: RFC 9001 5.2 | The server name in a client's first QUIC packet, version 1
    #[test]
    fn the_packet_of_the_standard_is_opened() {
        // Appendix A.2, whose CRYPTO frame has its offset in one octet.
        let frames = [hex("060040f1"), hex(HELLO)].concat();
        let id = hex(CONNECTION_ID);
        let packet = seal(&VERSIONS[0], &id, &id, 2, &frames);
        let begins = "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11d242b123dc9b";
        assert_eq!(packet[..38], hex(begins));
        assert!(is_initial(&packet));
        let mut hello = Hello::default();
        assert_eq!(hello.hear(&packet), Some(&b"example.com"[..]));
        hello.clear();
        assert_eq!(hello.server_name(), None);
    }

    /// Conformance: RFC 9369 3.3 | The server name in a client's first QUIC packet, version 2
    #[test]
    fn version_2_has_keys_of_its_own() {
        let id = hex(CONNECTION_ID);
        let packet = seal(&VERSIONS[1], &id, &id, 2, &crypto(0, &hex(HELLO)));
        assert_eq!(packet[0] & 0xf0, 0xd0);
        assert_eq!(Hello::default().hear(&packet), Some(&b"example.com"[..]));
    }

    /// Conformance: RFC 9001 4.1.3 | A ClientHello over several packets and out of order
    #[test]
    fn a_client_hello_in_pieces() {
        let (id, server) = (hex(CONNECTION_ID), hex("0102030405"));
        let hello = hex(HELLO);
        // As clients send it that do not want to be read: pieces back to front, with pings and padding between.
        let first = [crypto(80, &hello[80..120]), vec![1, 0, 0], crypto(40, &hello[40..80])].concat();
        let second = [vec![2, 0, 0, 0, 0], crypto(0, &hello[..50])].concat();
        let mut heard = Hello::default();
        assert_eq!(heard.hear(&seal(&VERSIONS[0], &id, &id, 0, &first)), None);
        // To the server's connection ID by now, with the keys of the first.
        let second = seal(&VERSIONS[0], &server, &id, 1, &second);
        assert_eq!(Hello::default().hear(&second), None, "nobody knows its keys");
        assert_eq!(heard.hear(&second), Some(&b"example.com"[..]));
    }

    #[test]
    fn other_packets_are_none() {
        let id = hex(CONNECTION_ID);
        let packet = seal(&VERSIONS[0], &id, &id, 2, &crypto(0, &hex(HELLO)));
        for at in [0, 1, 4, 5, 30, 700, 1199] {
            let mut other = packet.clone();
            other[at] ^= 0x10;
            assert_eq!(Hello::default().hear(&other), None, "{at}");
        }
        for end in 0..packet.len() {
            assert!(!is_initial(&packet[..end]), "{end}");
        }
        let long = [&packet[..], &[0x40; 900]].concat();
        assert!(is_initial(&long), "others may follow it in the datagram");
    }

    #[test]
    fn pieces_are_bounded() {
        let mut hello = Hello::default();
        for at in (0..200).rev() {
            hello.put(at * 3, &[1]);
        }
        assert_eq!(hello.there.len(), GAPS_MAX);
        hello.put(HELLO_MAX - 1, &[1; 9]);
        hello.put(HELLO_MAX, &[1; 9]);
        hello.put(usize::MAX, &[1; 9]);
        hello.put(0, &[0; HELLO_MAX]);
        assert_eq!(hello.there[..], [(0, HELLO_MAX)]);
        let many: Vec<u8> = (0..2 * FRAMES_MAX).flat_map(|_| [1, 0]).collect();
        hello.take_frames(&many);
        let ack = [&[2, 0, 0][..], &[0xff; 8], &[0; 40]].concat();
        hello.take_frames(&ack);
    }

    proptest! {
        /// Pieces in any order, with overlaps, make the whole.
        #[test]
        fn any_order_will_do(cuts in proptest::collection::vec(1usize..230, 0..12), seed: u64) {
            let hello = hex(HELLO);
            let mut cuts = [vec![0, hello.len()], cuts].concat();
            cuts.sort_unstable();
            cuts.dedup();
            let mut pieces: Vec<_> = cuts.windows(2).map(|ends| (ends[0], ends[1])).collect();
            let count = pieces.len() as u64;
            pieces.sort_by_key(|&(from, _)| (from as u64).wrapping_mul(seed | 1) % (count + 7));
            let mut heard = Hello::default();
            for (from, to) in pieces {
                let to = (to + 3).min(hello.len());
                heard.take_frames(&crypto(from, &hello[from..to]));
            }
            prop_assert_eq!(heard.server_name(), Some(&b"example.com"[..]));
            prop_assert_eq!(&heard.there[..], &[(0, hello.len())]);
        }

        #[test]
        fn nothing_is_too_strange(octets in proptest::collection::vec(any::<u8>(), 0..1400), frames: bool) {
            let mut hello = Hello::default();
            if frames {
                hello.take_frames(&octets);
            } else {
                hello.hear(&octets);
            }
            prop_assert!(hello.there.windows(2).all(|two| two[0].1 < two[1].0));
            prop_assert!(hello.server_name().is_none_or(|name| name.len() <= 253));
        }
    }
}
