//! The field program as it is written down: variables, and where their values go.

use serde::{Deserialize, Serialize};

/// A value that changes with the sequence number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Its name, for [`Write::variable`] and [`Variable::after`].
    pub name: String,
    /// Bytes of the value.
    pub width: Width,
    /// How it changes.
    pub operation: Operation,
    /// Name of an earlier variable: this one takes its next value only when that one begins anew. Random variables change
    /// with every packet and can be neither end of such a chain.
    #[serde(default)]
    pub after: Option<String>,
}

/// How a variable changes. Values beyond the variable's width are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Up from `first` by `step` as far as `last`, and again.
    Increment {
        /// The first value.
        first: u64,
        /// The last that may come.
        last: u64,
        /// From one to the next; not zero.
        #[serde(default = "one")]
        step: u64,
    },
    /// Down from `first` by `step` as far as `last`, and again.
    Decrement {
        /// The first value.
        first: u64,
        /// The last that may come.
        last: u64,
        /// From one to the next; not zero.
        #[serde(default = "one")]
        step: u64,
    },
    /// Any value between two, equally likely.
    Random {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
        /// After so many values the same come again; 0 is never.
        #[serde(default)]
        repeat_after: u64,
    },
    /// These, in their order.
    List(Vec<u64>),
}

const fn one() -> u64 {
    1
}

/// An address and a port that change together: the address with every packet, the port whenever the addresses begin anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuple {
    /// Its name; the two values are `NAME.address` (four bytes) and `NAME.port` (two).
    pub name: String,
    /// First address.
    pub address_first: u32,
    /// Last address.
    pub address_last: u32,
    /// First port.
    pub port_first: u16,
    /// Last port.
    pub port_last: u16,
}

/// Bytes of a value. Written as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Width {
    /// One byte.
    One,
    /// Two bytes.
    Two,
    /// Four bytes.
    Four,
    /// Eight bytes.
    Eight,
}

impl Width {
    /// Bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// The largest value.
    pub const fn max(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }
}

/// A width that is none of 1, 2, 4 and 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes wide: 1, 2, 4 and 8 are possible")]
pub struct WidthError(u8);

impl TryFrom<u8> for Width {
    type Error = WidthError;

    fn try_from(bytes: u8) -> Result<Self, WidthError> {
        match bytes {
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            4 => Ok(Self::Four),
            8 => Ok(Self::Eight),
            _ => Err(WidthError(bytes)),
        }
    }
}

impl From<Width> for u8 {
    fn from(width: Width) -> Self {
        match width {
            Width::One => 1,
            Width::Two => 2,
            Width::Four => 4,
            Width::Eight => 8,
        }
    }
}

/// One place of a variable's value: the bits of `((value + add) << shift) & mask`, in network order, take the place of the
/// template's bits under `mask`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// Name of the variable.
    pub variable: String,
    /// Offset of the field in the template, in bytes.
    pub offset: u16,
    /// Bytes of the field; the variable's own width when not given.
    #[serde(default)]
    pub width: Option<Width>,
    /// Bits of the field that are written; all when not given.
    #[serde(default)]
    pub mask: Option<u64>,
    /// Bits by which the value is moved up, or down when negative.
    #[serde(default)]
    pub shift: i8,
    /// Added before that, modulo 2^64.
    #[serde(default)]
    pub add: i64,
}

impl Write {
    /// The whole value at an offset.
    pub fn new(variable: impl Into<String>, offset: u16) -> Self {
        Self { variable: variable.into(), offset, width: None, mask: None, shift: 0, add: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_numbers() {
        for (width, max) in [(1u8, 0xff), (2, 0xffff), (4, 0xffff_ffff), (8, u64::MAX)] {
            let read: Width = serde_json::from_str(&width.to_string()).unwrap();
            assert_eq!((u8::from(read), read.bytes(), read.max()), (width, width.into(), max));
        }
        let error = serde_json::from_str::<Width>("3").unwrap_err();
        assert!(error.to_string().contains("1, 2, 4 and 8"), "{error}");
    }

    #[test]
    fn operations_have_their_usual_steps() {
        let operation: Operation = serde_json::from_str(r#"{"increment": {"first": 1, "last": 9}}"#).unwrap();
        assert_eq!(operation, Operation::Increment { first: 1, last: 9, step: 1 });
        let operation: Operation = serde_json::from_str(r#"{"random": {"min": 1, "max": 9}}"#).unwrap();
        assert_eq!(operation, Operation::Random { min: 1, max: 9, repeat_after: 0 });
        assert!(serde_json::from_str::<Operation>(r#"{"increment": {"first": 1}}"#).is_err());
    }
}
