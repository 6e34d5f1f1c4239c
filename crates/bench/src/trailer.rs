//! The trailer: the last 16 bytes of a packet, by which it is known again whatever became of its headers.
//!
//! ```text
//!   0        2                   7                   12            16
//!   +--------+-------------------+-------------------+-------------+
//!   | stream |  sequence number  |  time stamp, ns   |   check     |   big-endian
//!   +--------+-------------------+-------------------+-------------+
//! ```
//! It ends where the innermost IP packet ends, which encapsulation and decapsulation leave alone. Time stamps count modulo 2^40
//! ns (18 minutes) and sequence numbers modulo 2^40. The check is a CRC-32C (RFC 9260 appendix A) over the run's key and the 12
//! bytes before it: other packets, and those of other runs, do not pass it. It says nothing of the payload, which the receiver
//! compares with what was sent.
//!
//! A CRC is linear: that of a trailer is the sum of those of its parts. A sender works out the part of a stream once, and that
//! of a stamp and of a sequence number's first four bytes once a batch. It looks the last byte up for each packet.

/// Bytes of a trailer.
pub const TRAILER_LEN: usize = 16;
/// Sequence numbers and time stamps are taken modulo this.
pub const MODULUS: u64 = 1 << 40;

const CHECKED: usize = 12;
const SEQUENCE_AT: usize = 2;
const TIME_AT: usize = 7;

/// CRC-32C, bit-reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The remainder that each byte, of each place among the checked ones, adds.
static PARTS: [[u32; 256]; CHECKED] = parts();

const fn step(mut remainder: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        remainder = if remainder & 1 == 1 { remainder >> 1 ^ POLYNOMIAL } else { remainder >> 1 };
        bit += 1;
    }
    remainder
}

const fn parts() -> [[u32; 256]; CHECKED] {
    let mut parts = [[0; 256]; CHECKED];
    let mut byte = 0;
    while byte < 256 {
        // The last place is followed by nothing, each one before it by one zero byte more.
        #[allow(clippy::cast_possible_truncation)] // Below 256.
        let mut remainder = step(byte as u32);
        let mut place = CHECKED;
        while place > 0 {
            place -= 1;
            parts[place][byte] = remainder;
            remainder = step(remainder);
        }
        byte += 1;
    }
    parts
}

/// What a trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Number of the stream.
    pub stream: u16,
    /// Sequence number modulo [`MODULUS`].
    pub sequence: u64,
    /// Time stamp in nanoseconds of the run, modulo [`MODULUS`].
    pub time_ns: u64,
}

/// Writes and reads the trailers of one run.
#[derive(Clone, Copy, Debug)]
pub struct TrailerKey {
    /// What the key, and the usual complements, add to every check.
    start: u32,
}

/// What all trailers of a stream with one stamp have in common.
#[derive(Clone, Copy, Debug)]
pub struct TrailerStart {
    stream: u16,
    time_ns: u64,
    check: u32,
}

#[allow(clippy::cast_possible_truncation)] // A byte of the value each time.
#[inline]
fn number(at: usize, value: u64) -> u32 {
    (0..5).fold(0, |sum, place| sum ^ PARTS[at + place][(value >> (32 - 8 * place)) as usize & 0xff])
}

impl TrailerKey {
    /// The trailers of the runs that have this key.
    pub fn new(key: u64) -> Self {
        let mut remainder = u32::MAX;
        for byte in key.to_be_bytes() {
            remainder = remainder >> 8 ^ step((remainder ^ u32::from(byte)) & 0xff);
        }
        // The key's remainder goes on into the first four checked bytes.
        let start = remainder
            .to_le_bytes()
            .iter()
            .zip(&PARTS)
            .fold(0, |sum, (byte, part)| sum ^ part[usize::from(*byte)]);
        Self { start: !start }
    }

    /// What the trailers of a stream have in common that are stamped with one time.
    pub fn start(self, stream: u16, time_ns: u64) -> TrailerStart {
        let time_ns = time_ns % MODULUS;
        let [high, low] = stream.to_be_bytes();
        let of_stream = PARTS[0][usize::from(high)] ^ PARTS[1][usize::from(low)];
        TrailerStart { stream, time_ns, check: self.start ^ of_stream ^ number(TIME_AT, time_ns) }
    }

    /// Reads the trailer at the end of some bytes; `None` when they are too few or the check does not hold.
    pub fn read(self, bytes: &[u8]) -> Option<Trailer> {
        let trailer: &[u8; TRAILER_LEN] = bytes.last_chunk()?;
        let unchecked = Trailer::unchecked(trailer);
        let check =
            self.start(unchecked.stream, unchecked.time_ns).check ^ number(SEQUENCE_AT, unchecked.sequence);
        (trailer[CHECKED..] == check.to_be_bytes()).then_some(unchecked)
    }
}

impl TrailerStart {
    /// The trailer of a packet, as two words in network order.
    pub fn words(&self, sequence: u64) -> [u64; 2] {
        let (mut words, mut sums) = ([[0; 2]], [0]);
        self.step(sequence, 1, &mut words, &mut sums);
        words[0]
    }

    /// The trailers of packets whose numbers lie `stride` apart, from `first` on, and of each the sum of its words of 16 bits.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // Bytes and words of what is longer.
    pub(crate) fn step(&self, first: u64, stride: u64, words: &mut [[u64; 2]], sums: &mut [u32]) {
        let time_high = self.time_ns >> 32;
        let time_low = self.time_ns & 0xffff_ffff;
        let constant = u64::from(self.stream) + time_high + (time_low >> 16) + (time_low & 0xffff);
        let front_constant = u64::from(self.stream) << 48 | time_high;
        // All but the last byte of a sequence number seldom change.
        let mut upper = u64::MAX;
        let (mut check_part, mut sum_part) = (0, 0);
        for (place, (words, sum)) in (0u64..).zip(words.iter_mut().zip(sums)) {
            let sequence = first.wrapping_add(place.wrapping_mul(stride)) % MODULUS;
            if sequence >> 8 != upper {
                upper = sequence >> 8;
                check_part = self.check ^ number(SEQUENCE_AT, upper << 8);
                sum_part = (constant + (upper >> 16) + (upper & 0xffff)) as u32;
            }
            let check = check_part ^ PARTS[SEQUENCE_AT + 4][(sequence & 0xff) as usize];
            *words = [front_constant | sequence << 8, time_low << 32 | u64::from(check)];
            *sum = sum_part + ((sequence as u32 & 0xff) << 8) + (check >> 16) + (check & 0xffff);
        }
    }
}

impl Trailer {
    /// What the trailer says, whether or not its check holds.
    pub fn unchecked(trailer: &[u8; TRAILER_LEN]) -> Self {
        let number = |at: usize| trailer[at..at + 5].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        Self {
            stream: u16::from_be_bytes([trailer[0], trailer[1]]),
            sequence: number(SEQUENCE_AT),
            time_ns: number(TIME_AT),
        }
    }

    /// The whole number nearest to `near` of which `low` are the lower 40 bits.
    pub fn extend(low: u64, near: u64) -> u64 {
        let ahead = low.wrapping_sub(near) % MODULUS;
        if ahead < MODULUS / 2 { near.saturating_add(ahead) } else { (near + ahead).saturating_sub(MODULUS) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// CRC-32C bit by bit.
    fn crc32c(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |remainder, byte| step_bytewise(remainder, *byte))
    }

    fn step_bytewise(remainder: u32, byte: u8) -> u32 {
        (0..8).fold(remainder ^ u32::from(byte), |remainder, _| {
            if remainder & 1 == 1 { remainder >> 1 ^ POLYNOMIAL } else { remainder >> 1 }
        })
    }

    fn bytes(key: TrailerKey, trailer: Trailer) -> [u8; 16] {
        let words = key.start(trailer.stream, trailer.time_ns).words(trailer.sequence);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&words[0].to_be_bytes());
        bytes[8..].copy_from_slice(&words[1].to_be_bytes());
        bytes
    }

    /// Conformance: RFC 9260 A | Trailers are checked with CRC-32C
    #[test]
    fn the_check_is_the_crc_of_key_and_trailer() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let key = 0x0123_4567_89ab_cdef_u64;
        let found = bytes(TrailerKey::new(key), Trailer { stream: 7, sequence: 0x12_3456_789a, time_ns: 99 });
        let mut all = key.to_be_bytes().to_vec();
        all.extend(&found[..12]);
        assert_eq!(found[12..], crc32c(&all).to_be_bytes());
    }

    proptest! {
        #[test]
        fn trailers_are_read_as_they_were_written(key: u64, stream: u16, sequence in 0..MODULUS, time_ns in 0..MODULUS, head: Vec<u8>) {
            let (key, trailer) = (TrailerKey::new(key), Trailer { stream, sequence, time_ns });
            let mut packet = head;
            packet.extend(bytes(key, trailer));
            prop_assert_eq!(key.read(&packet), Some(trailer));
        }

        #[test]
        fn no_flipped_bit_passes(key: u64, stream: u16, sequence in 0..MODULUS, time_ns in 0..MODULUS, bit in 0usize..128) {
            let key = TrailerKey::new(key);
            let mut packet = bytes(key, Trailer { stream, sequence, time_ns });
            packet[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(key.read(&packet), None);
        }

        #[test]
        fn any_bytes_are_a_trailer_or_none(key: u64, bytes: Vec<u8>) {
            if let Some(trailer) = TrailerKey::new(key).read(&bytes) {
                prop_assert!(trailer.sequence < MODULUS && trailer.time_ns < MODULUS);
            }
        }

        #[test]
        fn lower_bits_are_extended_to_the_nearest(near in 0u64..1 << 60, off in -1_000_000i64..1_000_000) {
            let whole = near.saturating_add_signed(off);
            prop_assert_eq!(Trailer::extend(whole % MODULUS, near), whole);
        }
    }

    #[test]
    fn another_key_does_not_fit() {
        let packet = bytes(TrailerKey::new(1), Trailer { stream: 1, sequence: 2, time_ns: 3 });
        assert!(TrailerKey::new(1).read(&packet).is_some());
        assert_eq!(TrailerKey::new(2).read(&packet), None);
    }
}
