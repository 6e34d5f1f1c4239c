//! Big-endian reads and writes at an offset, and the frame every view shares.
//!
//! Reads are plain indexing: a view's one length check makes the offsets valid, and the optimiser sees it.

use crate::Error;

#[inline]
pub(crate) fn u16_at(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

#[inline]
pub(crate) fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(octets, at))
}

#[inline]
pub(crate) fn array_at<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&octets[at..at + N]);
    array
}

#[inline]
pub(crate) fn put(octets: &mut [u8], at: usize, value: &[u8]) {
    octets[at..at + value.len()].copy_from_slice(value);
}

#[inline]
pub(crate) fn put_u16(octets: &mut [u8], at: usize, value: u16) {
    put(octets, at, &value.to_be_bytes());
}

#[inline]
pub(crate) fn put_u32(octets: &mut [u8], at: usize, value: u32) {
    put(octets, at, &value.to_be_bytes());
}

/// The first `len` octets of a buffer to emit into.
#[inline]
pub(crate) fn room(buffer: &mut [u8], len: usize) -> Result<&mut [u8], Error> {
    buffer.get_mut(..len).ok_or(Error::BufferTooSmall)
}

/// A length as the 16-bit field that carries it.
#[inline]
pub(crate) fn length_field(len: usize) -> Result<u16, Error> {
    u16::try_from(len).map_err(|_| Error::Range)
}

/// A header length as the count of 32-bit words that IPv4 and TCP carry in four bits.
#[inline]
pub(crate) fn word_count(len: usize) -> Result<u8, Error> {
    u8::try_from(len / 4).ok().filter(|words| *words < 16 && len.is_multiple_of(4)).ok_or(Error::Range)
}

/// Declares a view: the struct, `into_inner`, and the private accessors its methods are written with.
macro_rules! view {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<T: AsRef<[u8]>> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// Gives the buffer back.
            pub fn into_inner(self) -> T {
                self.buffer
            }

            #[inline]
            fn octets(&self) -> &[u8] {
                self.buffer.as_ref()
            }
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $name<T> {
            #[inline]
            fn octets_mut(&mut self) -> &mut [u8] {
                self.buffer.as_mut()
            }
        }
    };
}
pub(crate) use view;

/// The bytes a line of hexadecimal stands for.
#[cfg(test)]
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex"))
        .collect()
}
