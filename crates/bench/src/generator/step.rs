//! Makes several packets of a program at a time, field by field: what is the same for all of them is found out once, and
//! processors work on several values at once.
//!
//! ```text
//!                  packet 0   1   2  …  N-1
//!   variable 0   [ values               ]  ──▶ shifted, masked ──▶ written at the field's offset in every packet
//!   variable 1   [ values               ]              └──▶ added to the sums of the checksums that reach over it
//!   checksum 0   [ sums                 ]  ──▶ folded ──▶ written, and added to the sums of those further out
//! ```

use super::counter::{Rows, VARIABLES_MAX};
use super::program::{Cursor, Op, Program, SITES_MAX};
use crate::stream::Width;
use crate::trailer::{TRAILER_LEN, TrailerStart};

/// Space for what `N` packets differ in.
#[derive(Debug)]
pub(crate) struct Step<const N: usize> {
    values: Rows<N>,
    sums: [[u32; N]; SITES_MAX],
    fields: [u64; N],
    words: [u32; N],
    trailers: [[u64; 2]; N],
}

impl<const N: usize> Step<N> {
    pub(crate) fn new() -> Self {
        Self {
            values: [[0; N]; VARIABLES_MAX],
            sums: [[0; N]; SITES_MAX],
            fields: [0; N],
            words: [0; N],
            trailers: [[0; 2]; N],
        }
    }

    /// Makes the cursor's packets of `packets`, at most `N`, which hold head and payload of their shapes or an earlier packet
    /// of these, and moves the cursor on.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        program: &Program,
        cursor: &mut Cursor,
        trailer: &TrailerStart,
        shapes: &(impl Iterator<Item = u16> + Clone),
        packets: &mut [&mut [u8]],
    ) {
        let count = packets.len().min(N);
        program.counters.step(&mut cursor.counters, count, &mut self.values);
        self.begin_sums(program, shapes);
        for op in &program.ops {
            self.field(op, packets);
        }
        if program.trailer {
            let words = &mut self.words[..count];
            trailer.step(cursor.sequence, cursor.stride, &mut self.trailers[..count], words);
            self.trailers(program, packets);
        }
        self.checksums(program, packets);
        cursor.sequence += cursor.stride * count as u64;
    }

    /// Begins every checksum with what does not change.
    #[inline(always)]
    fn begin_sums(&mut self, program: &Program, shapes: &(impl Iterator<Item = u16> + Clone)) {
        for (site, sums) in self.sums.iter_mut().take(program.sites.len()).enumerate() {
            match &*program.shapes {
                [only] => sums.fill(only.base[site].into()),
                all => {
                    for (sum, shape) in sums.iter_mut().zip(shapes.clone()) {
                        *sum = all[usize::from(shape)].base[site].into();
                    }
                }
            }
        }
    }

    /// Writes one field of all packets.
    #[inline(always)]
    fn field(&mut self, op: &Op, packets: &mut [&mut [u8]]) {
        let count = packets.len().min(N);
        let fields = &mut self.fields[..count];
        let values = &self.values[usize::from(op.value) & (VARIABLES_MAX - 1)][..count];
        for (field, value) in fields.iter_mut().zip(values) {
            *field = ((value.wrapping_add(op.add) << op.left) >> op.right) & op.mask;
        }
        let at = usize::from(op.offset);
        match op.width {
            Width::One => put::<1>(packets, at, fields, op.mask),
            Width::Two => put::<2>(packets, at, fields, op.mask),
            Width::Four => put::<4>(packets, at, fields, op.mask),
            Width::Eight => put::<8>(packets, at, fields, op.mask),
        }
        if op.sites != 0 {
            for (word, field) in self.words.iter_mut().zip(fields) {
                *word = words(*field) << op.sum_shift;
            }
            self.add(op.sites, count);
        }
    }

    /// Writes all trailers.
    #[inline(always)]
    fn trailers(&mut self, program: &Program, packets: &mut [&mut [u8]]) {
        let count = packets.len().min(N);
        for (packet, words) in packets.iter_mut().zip(&self.trailers[..count]) {
            if let Some(end) = packet.last_chunk_mut::<TRAILER_LEN>() {
                end[..8].copy_from_slice(&words[0].to_be_bytes());
                end[8..].copy_from_slice(&words[1].to_be_bytes());
            }
        }
        for (word, packet) in self.words[..count].iter_mut().zip(packets) {
            // A trailer at an odd offset counts with the bytes of its words exchanged.
            *word <<= (packet.len() & 1) * 8;
        }
        let sites = program
            .sites
            .iter()
            .enumerate()
            .fold(0, |all, (site, of)| all | u8::from(of.has_trailer) << site);
        self.add(sites, count);
    }

    /// Writes all checksums.
    #[inline(always)]
    fn checksums(&mut self, program: &Program, packets: &mut [&mut [u8]]) {
        let count = packets.len().min(N);
        for (place, site) in program.sites.iter().enumerate() {
            for (word, sum) in self.words.iter_mut().zip(&self.sums[place & (SITES_MAX - 1)][..count]) {
                let checksum = !fold(*sum) & 0xffff;
                *word = if site.is_udp && checksum == 0 { 0xffff } else { checksum };
            }
            let at = usize::from(site.at);
            for (packet, word) in packets.iter_mut().zip(&self.words) {
                packet[at..at + 2].copy_from_slice(&word.to_be_bytes()[2..]);
            }
            self.add(site.outer, count);
        }
    }

    /// Adds the words to the sums of some checksums.
    #[inline(always)]
    fn add(&mut self, sites: u8, count: usize) {
        let words = &self.words[..count.min(N)];
        let mut left = sites;
        while left != 0 {
            let sums = &mut self.sums[left.trailing_zeros() as usize & (SITES_MAX - 1)];
            sums.iter_mut().zip(words).for_each(|(sum, word)| *sum += word);
            left &= left - 1;
        }
    }
}

/// Writes the `W` lower bytes of fields, as far as `mask` says, at one offset of packets.
#[inline(always)]
fn put<const W: usize>(packets: &mut [&mut [u8]], at: usize, fields: &[u64], mask: u64) {
    if mask == u64::MAX >> (64 - 8 * W) {
        for (packet, field) in packets.iter_mut().zip(fields) {
            packet[at..at + W].copy_from_slice(&field.to_be_bytes()[8 - W..]);
        }
        return;
    }
    for (packet, field) in packets.iter_mut().zip(fields) {
        let place = &mut packet[at..at + W];
        let mut there = [0; 8];
        there[8 - W..].copy_from_slice(place);
        let kept = u64::from_be_bytes(there) & !mask;
        place.copy_from_slice(&(kept | field).to_be_bytes()[8 - W..]);
    }
}

/// The sum of a value's four words.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Sums of words.
fn words(value: u64) -> u32 {
    let pairs = (value & 0xffff_0000_ffff) + (value >> 16 & 0xffff_0000_ffff);
    (pairs + (pairs >> 32)) as u32 & 0x3_ffff
}

/// Folds a sum, of at most 2^16 words, to 16 bits.
#[inline(always)]
fn fold(sum: u32) -> u32 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}
