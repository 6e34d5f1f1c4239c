//! Who a session is for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An IMSI (TS 23.003 2.2): up to fifteen digits, as they are on the wire (TBCD, TS 29.002 17.7.8). There are two to an octet, the
/// first in the lower half, and all ones behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imsi(pub [u8; 8]);

impl Imsi {
    /// Digits of the longest.
    const DIGITS_MAX: usize = 15;

    /// Of octets on the wire; `None` when they are no IMSI.
    pub fn from_tbcd(octets: &[u8]) -> Option<Self> {
        let mut all = [0xff; 8];
        all.get_mut(..octets.len())?.copy_from_slice(octets);
        let imsi = Self(all);
        let halves = || all.iter().flat_map(|octet| [octet & 15, octet >> 4]);
        let digits = imsi.digits().count();
        let is_whole = halves().skip(digits).all(|half| half == 15);
        (is_whole && (1..=Self::DIGITS_MAX).contains(&digits)).then_some(imsi)
    }

    fn digits(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().flat_map(|octet| [octet & 15, octet >> 4]).take_while(|digit| *digit < 10)
    }
}

impl fmt::Display for Imsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digits().try_for_each(|digit| write!(f, "{digit}"))
    }
}

/// What is no IMSI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no IMSI: write up to 15 digits, such as 001010000000001")]
pub struct NoImsi(String);

impl FromStr for Imsi {
    type Err = NoImsi;

    fn from_str(text: &str) -> Result<Self, NoImsi> {
        let no_imsi = || NoImsi(text.to_owned());
        let digits = text.strip_prefix("imsi-").unwrap_or(text).as_bytes();
        if digits.is_empty() || digits.len() > Self::DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
            return Err(no_imsi());
        }
        let mut octets = [0xff; 8];
        for (octet, pair) in octets.iter_mut().zip(digits.chunks(2)) {
            let [first, second] =
                [pair.first(), pair.get(1)].map(|digit| digit.map_or(15, |digit| digit - b'0'));
            *octet = second << 4 | first;
        }
        Ok(Self(octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conformance: TS 23.003 2.2 | An IMSI has up to fifteen digits, of which the first may be zeros
    #[test]
    fn digits_are_those_of_the_wire() {
        let wire = [0x00, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0xf1];
        let imsi = Imsi::from_tbcd(&wire).unwrap();
        assert_eq!(imsi.to_string(), "001010000000001");
        assert_eq!("001010000000001".parse(), Ok(imsi));
        assert_eq!("imsi-001010000000001".parse(), Ok(imsi));
        for short in ["2", "26", "262"] {
            let imsi: Imsi = short.parse().unwrap();
            assert_eq!((imsi.to_string(), Imsi::from_tbcd(&imsi.0)), (short.to_owned(), Some(imsi)));
        }
        assert_eq!(Imsi::from_tbcd(&[0x62, 0xf2]), "262".parse().ok());
    }

    #[test]
    fn what_is_no_imsi_is_none() {
        for wire in [&[][..], &[0xff], &[0x00; 8], &[0x00; 9], &[0xf0, 0x11], &[0x1a], &[0xa1]] {
            assert_eq!(Imsi::from_tbcd(wire), None, "{wire:02x?}");
        }
        for text in ["", "imsi-", "0010100000000012", "00101a", "+262", " 1"] {
            assert!(text.parse::<Imsi>().is_err(), "{text}");
        }
    }
}
