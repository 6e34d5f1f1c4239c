//! What the file of a tier looks like. Numbers are little-endian; all but the contents of packets is checked.
//!
//! ```text
//!   file      superblock, 4096 octets │ segment │ segment │ …
//!   segment   header, 64 │ record │ record │ … free … │ entries, 16 each │ trailer, 64
//!   record    header, 48 │ packet │ up to a multiple of 64
//! ```
//! Checksums are keyed with the secret of the superblock: who sends packets cannot make one that passes for a record when
//! a damaged segment is searched. Who can write the file can; nothing that the file says leads out of it.

use kaido_ndn_tables::NameHash;
use kaido_wire::ndn::PACKET_MAX;

use crate::cs::LEVELS;

/// The version of the format; files of another are refused.
pub(super) const VERSION: u32 = 1;
/// What is told in units of so many octets begins at a multiple of them.
pub(super) const UNIT: u64 = 64;
/// Octets before the first segment.
pub(super) const PREFACE: u64 = 4096;
/// Octets of the superblock that mean something, of a segment's header, and of its trailer.
pub(super) const BLOCK: usize = 64;
/// Octets before a packet.
pub(super) const RECORD_HEADER: usize = 48;
/// Octets of the longest record.
pub(super) const RECORD_MAX: usize = RECORD_HEADER + PACKET_MAX;
/// Octets of an entry behind the records.
pub(super) const ENTRY: usize = 16;
/// Keys of a record: of its name, and of the prefixes by which it is found.
pub(super) const KEYS: usize = 1 + LEVELS;
/// Segments that were begun, at most: one a microsecond for eight years.
pub(super) const SEQUENCE_MAX: u64 = 1 << 48;

const SUPERBLOCK_MAGIC: &[u8; 8] = b"KAIDO-CS";
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"KSEGMENT");
const TRAILER_MAGIC: u64 = u64::from_le_bytes(*b"KTRAILER");
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"KDAT");
const ERASED_MAGIC: u32 = u32::from_le_bytes(*b"KDEL");

/// Numbers at their places.
fn number(octets: &[u8], at: usize) -> u64 {
    octets.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |octets| u64::from_le_bytes(*octets))
}

#[allow(clippy::cast_possible_truncation)] // The lower half.
fn half(octets: &[u8], at: usize) -> u32 {
    number(octets, at) as u32
}

fn put(octets: &mut [u8], at: usize, number: u64) {
    octets[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

/// The keyed checksum of octets.
pub(super) fn checksum(hash: &NameHash, octets: &[u8]) -> u64 {
    hash.extend(hash.root() ^ octets.len() as u64, octets)
}

/// Seals a block: its last eight octets are the checksum of those before.
fn seal(hash: &NameHash, block: &mut [u8]) {
    let at = block.len() - 8;
    let sum = checksum(hash, &block[..at]);
    put(block, at, sum);
}

fn is_sealed(hash: &NameHash, block: &[u8]) -> bool {
    let at = block.len() - 8;
    checksum(hash, &block[..at]) == number(block, at)
}

/// Why a file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormatError {
    /// It is something else.
    Foreign,
    /// It is of this version.
    Version(u32),
    /// Its checksum is wrong.
    Damaged,
}

/// What is said at the beginning of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) segment_octets: u64,
    /// Of the hash of names and of the checksums.
    pub(super) secret: [u64; 3],
}

impl Superblock {
    pub(super) fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..8].copy_from_slice(SUPERBLOCK_MAGIC);
        put(&mut block, 8, VERSION.into());
        put(&mut block, 16, self.segment_octets);
        for (place, word) in (3..).zip(self.secret) {
            put(&mut block, place * 8, word);
        }
        seal(&NameHash::of_secret(self.secret), &mut block);
        block
    }

    pub(super) fn decode(block: &[u8; BLOCK]) -> Result<Self, FormatError> {
        if &block[..8] != SUPERBLOCK_MAGIC {
            return Err(FormatError::Foreign);
        }
        if half(block, 8) != VERSION {
            return Err(FormatError::Version(half(block, 8)));
        }
        let secret = [24, 32, 40].map(|at| number(block, at));
        if !is_sealed(&NameHash::of_secret(secret), block) {
            return Err(FormatError::Damaged);
        }
        Ok(Self { segment_octets: number(block, 16), secret })
    }
}

/// The block that a segment begins with.
pub(super) fn segment_header(hash: &NameHash, sequence: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    put(&mut block, 0, SEGMENT_MAGIC);
    put(&mut block, 8, sequence);
    seal(hash, &mut block);
    block
}

/// The sequence number of a segment that begins with this block.
pub(super) fn segment_sequence(hash: &NameHash, block: &[u8; BLOCK]) -> Option<u64> {
    let sequence = number(block, 8);
    (number(block, 0) == SEGMENT_MAGIC && (1..SEQUENCE_MAX).contains(&sequence) && is_sealed(hash, block))
        .then_some(sequence)
}

/// What a segment ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) sequence: u64,
    /// Entries before the trailer.
    pub(super) entries: u32,
    /// Where in the segment the records end.
    pub(super) end: u64,
    /// Of the entries.
    pub(super) sum: u64,
}

impl Trailer {
    pub(super) fn encode(&self, hash: &NameHash) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let words = [TRAILER_MAGIC, self.sequence, self.entries.into(), self.end, self.sum];
        for (place, word) in (0..).zip(words) {
            put(&mut block, place * 8, word);
        }
        seal(hash, &mut block);
        block
    }

    pub(super) fn decode(hash: &NameHash, block: &[u8; BLOCK]) -> Option<Self> {
        let trailer = Self {
            sequence: number(block, 8),
            entries: half(block, 16),
            end: number(block, 24),
            sum: number(block, 32),
        };
        (number(block, 0) == TRAILER_MAGIC && is_sealed(hash, block)).then_some(trailer)
    }
}

/// That a hash leads to a record of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) hash: u64,
    /// Where in the segment, in [units](UNIT).
    pub(super) unit: u32,
    /// Octets of the record.
    pub(super) octets: u16,
    pub(super) is_below: bool,
    pub(super) is_stale: bool,
}

impl Entry {
    pub(super) fn encode(&self) -> [u8; ENTRY] {
        let mut octets = [0; ENTRY];
        put(&mut octets, 0, self.hash);
        let flags = u64::from(self.is_below) | u64::from(self.is_stale) << 1;
        put(&mut octets, 8, u64::from(self.unit) | u64::from(self.octets) << 32 | flags << 48);
        octets
    }

    /// An entry of a segment of so many octets; `None` when it leads out of it.
    #[allow(clippy::cast_possible_truncation)] // 16 bits.
    pub(super) fn decode(octets: &[u8; ENTRY], segment_octets: u64) -> Option<Self> {
        let rest = number(octets, 8);
        let entry = Self {
            hash: number(octets, 0),
            unit: half(octets, 8),
            octets: (rest >> 32) as u16,
            is_below: rest & 1 << 48 != 0,
            is_stale: rest & 1 << 49 != 0,
        };
        let is_within = u64::from(entry.unit) * UNIT + u64::from(entry.octets) <= segment_octets;
        let is_record = (RECORD_HEADER..=RECORD_MAX).contains(&usize::from(entry.octets));
        (is_within && is_record).then_some(entry)
    }
}

/// A packet to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'p> {
    /// The hash of its name, and those of the prefixes by which it is found; 0 is none.
    pub(super) keys: [u64; KEYS],
    pub(super) fresh_until_ms: u64,
    pub(super) packet: &'p [u8],
}

/// What is said before a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    /// Octets of the packet.
    pub(super) len: u32,
    /// Of the segment.
    pub(super) sequence: u64,
    /// Of the packet's name.
    pub(super) hash: u64,
    /// Milliseconds since 1970 until when it is fresh.
    pub(super) fresh_until_ms: u64,
    /// Of the packet.
    pub(super) sum: u64,
    /// Whether it was erased: its packet is there, and is not found.
    pub(super) is_erased: bool,
}

impl RecordHeader {
    pub(super) fn encode(&self, hash: &NameHash) -> [u8; RECORD_HEADER] {
        let mut octets = [0; RECORD_HEADER];
        let magic = if self.is_erased { ERASED_MAGIC } else { RECORD_MAGIC };
        put(&mut octets, 0, u64::from(magic) | u64::from(self.len) << 32);
        for (place, word) in (1..).zip([self.sequence, self.hash, self.fresh_until_ms, self.sum]) {
            put(&mut octets, place * 8, word);
        }
        seal(hash, &mut octets);
        octets
    }

    /// The header at the beginning of these octets, if there is a whole one.
    pub(super) fn decode(hash: &NameHash, octets: &[u8]) -> Option<Self> {
        let octets: &[u8; RECORD_HEADER] = octets.first_chunk()?;
        let header = Self {
            len: half(octets, 4),
            sequence: number(octets, 8),
            hash: number(octets, 16),
            fresh_until_ms: number(octets, 24),
            sum: number(octets, 32),
            is_erased: half(octets, 0) == ERASED_MAGIC,
        };
        let is_packet = (1..=PACKET_MAX).contains(&(header.len as usize));
        let is_record = header.is_erased || half(octets, 0) == RECORD_MAGIC;
        (is_record && is_packet && is_sealed(hash, octets)).then_some(header)
    }

    /// The packet behind it, if it is there and as it was.
    pub(super) fn packet<'o>(&self, hash: &NameHash, record: &'o [u8]) -> Option<&'o [u8]> {
        let packet = record.get(RECORD_HEADER..RECORD_HEADER + self.len as usize)?;
        (checksum(hash, packet) == self.sum).then_some(packet)
    }

    /// Octets of the record, up to where the next may begin.
    pub(super) fn octets(&self) -> u64 {
        (RECORD_HEADER as u64 + u64::from(self.len)).next_multiple_of(UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_as_they_were_written_and_not_if_a_bit_is_wrong() {
        let hash = NameHash::fixed(4);
        let superblock = Superblock { segment_octets: 1 << 20, secret: [3, 5, 7] };
        let trailer = Trailer { sequence: 9, entries: 2, end: 640, sum: 11 };
        let record = RecordHeader {
            len: 70,
            sequence: 9,
            hash: 1 << 60,
            fresh_until_ms: 77,
            sum: u64::MAX,
            is_erased: false,
        };
        let erased = RecordHeader { is_erased: true, ..record };
        assert_eq!(RecordHeader::decode(&hash, &erased.encode(&hash)), Some(erased));
        let (whole, header) = (superblock.encode(), segment_header(&hash, 9));
        let (end, before) = (trailer.encode(&hash), record.encode(&hash));
        assert_eq!(Superblock::decode(&whole), Ok(superblock));
        assert_eq!(segment_sequence(&hash, &header), Some(9));
        assert_eq!(Trailer::decode(&hash, &end), Some(trailer));
        assert_eq!((RecordHeader::decode(&hash, &before), record.octets()), (Some(record), 128));
        for bit in 0..BLOCK * 8 {
            let flip = |mut block: [u8; BLOCK]| {
                block[bit / 8] ^= 1 << (bit % 8);
                block
            };
            assert!(Superblock::decode(&flip(whole)).is_err());
            assert_eq!(segment_sequence(&hash, &flip(header)), None);
            assert_eq!(Trailer::decode(&hash, &flip(end)), None);
            if let Some(octet) = bit.checked_div(8).filter(|&octet| octet < RECORD_HEADER) {
                let mut wrong = before;
                wrong[octet] ^= 1 << (bit % 8);
                assert_eq!(RecordHeader::decode(&hash, &wrong), None);
            }
        }
        assert_eq!(segment_sequence(&hash, &segment_header(&hash, 0)), None);
        assert_eq!(segment_sequence(&hash, &segment_header(&hash, SEQUENCE_MAX)), None);
        assert_eq!(segment_sequence(&NameHash::fixed(5), &header), None, "another file's");
    }

    #[test]
    fn other_files_are_told_from_damaged_ones() {
        let mut block = Superblock { segment_octets: 1 << 20, secret: [3, 5, 7] }.encode();
        block[8] = 2;
        assert_eq!(Superblock::decode(&block), Err(FormatError::Version(2)));
        block[0] = b'k';
        assert_eq!(Superblock::decode(&block), Err(FormatError::Foreign));
    }

    #[test]
    fn entries_do_not_lead_out_of_their_segment() {
        let entry = Entry { hash: 5, unit: 3, octets: 100, is_below: true, is_stale: false };
        assert_eq!(Entry::decode(&entry.encode(), 1 << 16), Some(entry));
        let far = Entry { unit: 1 << 10, ..entry };
        assert_eq!(Entry::decode(&far.encode(), 1 << 16), None);
        assert_eq!(Entry::decode(&Entry { octets: 47, ..entry }.encode(), 1 << 16), None);
        assert_eq!(Entry::decode(&[0xff; ENTRY], u64::MAX), None, "too long for a record");
    }
}
