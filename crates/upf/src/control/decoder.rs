//! Reads what `postcard` writes. Most of what a session has is a number of one octet, or a list without elements: these are read
//! in place here, where `postcard` calls a function for each. What is rare it reads itself.

use serde::Deserialize;
use serde::de::value::U32Deserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

/// Octets that no value begins with that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("octets that are no value of this program's format")]
pub(super) struct Malformed;

impl de::Error for Malformed {
    #[cold]
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self
    }
}

/// The value that octets begin with, and the octets behind it.
pub(super) fn take<'o, T: Deserialize<'o>>(octets: &'o [u8]) -> Result<(T, &'o [u8]), Malformed> {
    let mut decoder = Decoder { left: octets };
    let value = T::deserialize(&mut decoder)?;
    Ok((value, decoder.left))
}

/// Octets that are yet to be read.
struct Decoder<'o> {
    left: &'o [u8],
}

impl<'o> Decoder<'o> {
    #[inline(always)]
    fn octet(&mut self) -> Result<u8, Malformed> {
        self.left.split_off_first().copied().ok_or(Malformed)
    }

    /// A number of at most so many bits, seven in an octet, the lowest first.
    #[inline(always)]
    fn number(&mut self, bits: u32) -> Result<u64, Malformed> {
        match *self.left {
            [octet @ ..0x80, ref left @ ..] => {
                self.left = left;
                Ok(octet.into())
            }
            _ => self.long_number(bits),
        }
    }

    #[inline(never)]
    fn long_number(&mut self, bits: u32) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..bits).step_by(7) {
            let octet = self.octet()?;
            let part = u64::from(octet & 0x7f);
            if part >> (bits - shift).min(7) != 0 {
                return Err(Malformed);
            }
            number |= part << shift;
            if octet < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    #[inline(always)]
    fn count(&mut self) -> Result<usize, Malformed> {
        self.number(usize::BITS).and_then(|count| usize::try_from(count).map_err(|_| Malformed))
    }

    /// As many octets as they say themselves.
    fn octets(&mut self) -> Result<&'o [u8], Malformed> {
        let count = self.count()?;
        self.left.split_off(..count).ok_or(Malformed)
    }

    fn text(&mut self) -> Result<&'o str, Malformed> {
        std::str::from_utf8(self.octets()?).map_err(|_| Malformed)
    }

    /// A value that is rare.
    #[cold]
    fn rare<T: Deserialize<'o>>(&mut self) -> Result<T, Malformed> {
        let (value, left) = postcard::take_from_bytes(self.left).map_err(|_| Malformed)?;
        self.left = left;
        Ok(value)
    }

    // Not where it is called, so that what is done without elements is.
    #[inline(never)]
    fn sequence<V: Visitor<'o>>(&mut self, count: usize, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_seq(Elements { decoder: self, count })
    }

    #[inline(never)]
    fn map<V: Visitor<'o>>(&mut self, count: usize, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_map(Elements { decoder: self, count })
    }
}

/// Methods that read a number.
macro_rules! numbers {
    ($($method:ident $visit:ident $type:ident;)*) => {
        $(#[inline(always)]
        fn $method<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
            // It has no more bits.
            #[allow(clippy::cast_possible_truncation, clippy::cast_lossless)]
            visitor.$visit(self.number($type::BITS)? as $type)
        })*
    };
}

/// Methods that have `postcard` read.
macro_rules! rare {
    ($($method:ident $visit:ident $type:ty;)*) => {
        $(fn $method<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
            visitor.$visit(self.rare::<$type>()?)
        })*
    };
}

/// Methods for what is not written so.
macro_rules! unwritten {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'o>>(self, _: V) -> Result<V::Value, Malformed> {
            Err(Malformed)
        })*
    };
}

impl<'o> Deserializer<'o> for &mut Decoder<'o> {
    type Error = Malformed;

    numbers! {
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
    }

    rare! {
        deserialize_u128 visit_u128 u128;
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_i128 visit_i128 i128;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
        deserialize_char visit_char char;
    }

    unwritten!(deserialize_any deserialize_identifier deserialize_ignored_any);

    fn is_human_readable(&self) -> bool {
        false
    }

    #[inline(always)]
    fn deserialize_bool<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.octet()? {
            0 => visitor.visit_bool(false),
            1 => visitor.visit_bool(true),
            _ => Err(Malformed),
        }
    }

    #[inline(always)]
    fn deserialize_u8<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_u8(self.octet()?)
    }

    fn deserialize_str<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_borrowed_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_bytes<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_borrowed_bytes(self.octets()?)
    }

    fn deserialize_byte_buf<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_bytes(self.octets()?)
    }

    #[inline(always)]
    fn deserialize_option<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.octet()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self),
            _ => Err(Malformed),
        }
    }

    fn deserialize_unit<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'o>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        visitor.visit_unit()
    }

    #[inline(always)]
    fn deserialize_newtype_struct<V: Visitor<'o>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        visitor.visit_newtype_struct(self)
    }

    #[inline(always)]
    fn deserialize_seq<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.count()? {
            0 => visitor.visit_seq(Nothing),
            count => self.sequence(count, visitor),
        }
    }

    #[inline(always)]
    fn deserialize_tuple<V: Visitor<'o>>(self, count: usize, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_seq(Elements { decoder: self, count })
    }

    #[inline(always)]
    fn deserialize_tuple_struct<V: Visitor<'o>>(
        self,
        _: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.deserialize_tuple(count, visitor)
    }

    #[inline(always)]
    fn deserialize_map<V: Visitor<'o>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.count()? {
            0 => visitor.visit_map(Nothing),
            count => self.map(count, visitor),
        }
    }

    #[inline(always)]
    fn deserialize_struct<V: Visitor<'o>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    #[inline(always)]
    fn deserialize_enum<V: Visitor<'o>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        visitor.visit_enum(self)
    }
}

impl<'o> de::EnumAccess<'o> for &mut Decoder<'o> {
    type Error = Malformed;
    type Variant = Self;

    #[inline(always)]
    fn variant_seed<V: DeserializeSeed<'o>>(self, seed: V) -> Result<(V::Value, Self), Malformed> {
        let number: u32 = Deserialize::deserialize(&mut *self)?;
        let number: U32Deserializer<Malformed> = number.into_deserializer();
        Ok((seed.deserialize(number)?, self))
    }
}

impl<'o> de::VariantAccess<'o> for &mut Decoder<'o> {
    type Error = Malformed;

    fn unit_variant(self) -> Result<(), Malformed> {
        Ok(())
    }

    #[inline(always)]
    fn newtype_variant_seed<T: DeserializeSeed<'o>>(self, seed: T) -> Result<T::Value, Malformed> {
        seed.deserialize(self)
    }

    #[inline(always)]
    fn tuple_variant<V: Visitor<'o>>(self, count: usize, visitor: V) -> Result<V::Value, Malformed> {
        self.deserialize_tuple(count, visitor)
    }

    #[inline(always)]
    fn struct_variant<V: Visitor<'o>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}

/// So many elements, or pairs of them.
struct Elements<'d, 'o> {
    decoder: &'d mut Decoder<'o>,
    count: usize,
}

impl Elements<'_, '_> {
    /// How many there are at least room for: each takes an octet.
    fn hint(&self) -> Option<usize> {
        (self.count <= self.decoder.left.len()).then_some(self.count)
    }
}

impl<'o> de::SeqAccess<'o> for Elements<'_, 'o> {
    type Error = Malformed;

    #[inline(always)]
    fn next_element_seed<T: DeserializeSeed<'o>>(&mut self, seed: T) -> Result<Option<T::Value>, Malformed> {
        let Some(count) = self.count.checked_sub(1) else { return Ok(None) };
        self.count = count;
        seed.deserialize(&mut *self.decoder).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'o> de::MapAccess<'o> for Elements<'_, 'o> {
    type Error = Malformed;

    #[inline(always)]
    fn next_key_seed<K: DeserializeSeed<'o>>(&mut self, seed: K) -> Result<Option<K::Value>, Malformed> {
        de::SeqAccess::next_element_seed(self, seed)
    }

    #[inline(always)]
    fn next_value_seed<V: DeserializeSeed<'o>>(&mut self, seed: V) -> Result<V::Value, Malformed> {
        seed.deserialize(&mut *self.decoder)
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

/// No elements.
struct Nothing;

impl<'o> de::SeqAccess<'o> for Nothing {
    type Error = Malformed;

    #[inline(always)]
    fn next_element_seed<T: DeserializeSeed<'o>>(&mut self, _: T) -> Result<Option<T::Value>, Malformed> {
        Ok(None)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(0)
    }
}

impl<'o> de::MapAccess<'o> for Nothing {
    type Error = Malformed;

    #[inline(always)]
    fn next_key_seed<K: DeserializeSeed<'o>>(&mut self, _: K) -> Result<Option<K::Value>, Malformed> {
        Ok(None)
    }

    // There is no key before it.
    fn next_value_seed<V: DeserializeSeed<'o>>(&mut self, _: V) -> Result<V::Value, Malformed> {
        Err(Malformed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt::Debug;

    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;
    use crate::control::packed::RecordedCounters;
    use crate::control::session::SessionState;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Choice {
        Unit,
        One(u16),
        Two(bool, i64),
        Named { wide: u128, text: String },
    }

    /// Something of every kind that can be written.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct All {
        numbers: (u8, u16, u32, u64, u128),
        signed: (i8, i16, i32, i64, i128),
        real: (f32, f64),
        letter: char,
        choices: Vec<Choice>,
        text: Option<String>,
        map: BTreeMap<u32, Vec<u64>>,
        set: BTreeSet<u16>,
        unit: (),
        array: [u8; 4],
        flag: Option<bool>,
    }

    fn choice() -> impl Strategy<Value = Choice> {
        prop_oneof![
            Just(Choice::Unit),
            any::<u16>().prop_map(Choice::One),
            any::<(bool, i64)>().prop_map(|(flag, number)| Choice::Two(flag, number)),
            any::<(u128, String)>().prop_map(|(wide, text)| Choice::Named { wide, text }),
        ]
    }

    fn all() -> impl Strategy<Value = All> {
        let lists = (
            prop::collection::vec(choice(), 0..4),
            prop::collection::btree_map(any::<u32>(), prop::collection::vec(any::<u64>(), 0..3), 0..3),
            prop::collection::btree_set(any::<u16>(), 0..3),
        );
        let numbers = any::<((u8, u16, u32, u64, u128), (i8, i16, i32, i64, i128), (f32, f64))>();
        (numbers, lists, any::<(char, Option<String>, [u8; 4], Option<bool>)>()).prop_map(
            |((numbers, signed, real), (choices, map, set), (letter, text, array, flag))| All {
                numbers,
                signed,
                real,
                letter,
                choices,
                text,
                map,
                set,
                unit: (),
                array,
                flag,
            },
        )
    }

    /// Reads as `postcard` does, and refuses what that refuses.
    fn same<'o, T: Deserialize<'o> + Debug + PartialEq>(octets: &'o [u8]) {
        assert_eq!(take::<T>(octets).ok(), postcard::take_from_bytes::<T>(octets).ok(), "{octets:x?}");
    }

    /// As [`same`], of what has maps: of one that says that it has more elements than there are octets `postcard` makes room for all.
    fn same_if_read(octets: &[u8]) {
        if let Ok(read) = take::<SessionState>(octets) {
            assert_eq!(Ok(read), postcard::take_from_bytes(octets), "{octets:x?}");
        }
    }

    proptest! {
        #[test]
        fn what_postcard_writes_is_read(all in all(), behind: [u8; 2]) {
            let mut octets = postcard::to_allocvec(&all).unwrap();
            let len = octets.len();
            octets.extend(behind);
            prop_assert_eq!(take::<All>(&octets), Ok((all, &behind[..])));
            for cut in 0..len {
                prop_assert_eq!(take::<All>(&octets[..cut]), Err(Malformed));
            }
        }

        #[test]
        fn any_octets_are_read_or_refused_as_by_postcard(octets in prop::collection::vec(
            prop_oneof![2 => 0u8..4, 1 => Just(0xff), 1 => any::<u8>()], 0..40,
        )) {
            same::<u16>(&octets);
            same::<u32>(&octets);
            same::<u64>(&octets);
            same::<usize>(&octets);
            same::<(bool, Option<i16>, char)>(&octets);
            same::<Vec<Choice>>(&octets);
            same::<(&str, String, &[u8])>(&octets);
            same::<BTreeMap<u8, Option<u16>>>(&octets);
            same::<RecordedCounters>(&octets);
            same_if_read(&octets);
        }
    }

    /// Octets of sessions behind their SEID and counters.
    fn sessions() -> impl Iterator<Item = Vec<u8>> {
        let lines = include_str!("../../tests/it/records/sessions-3.hex").lines();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        lines.map(move |line| {
            let octets: Vec<u8> = line.as_bytes().chunks(2).map(pair).collect();
            take::<RecordedCounters>(&octets[1..]).unwrap().1.to_vec()
        })
    }

    #[test]
    fn sessions_are_read_or_refused_as_by_postcard() {
        for octets in sessions() {
            let (state, left) = take::<SessionState>(&octets).unwrap();
            assert!(left.is_empty());
            assert_eq!(postcard::to_allocvec(&state).unwrap(), octets);
            for cut in 0..octets.len() {
                assert_eq!(take::<SessionState>(&octets[..cut]), Err(Malformed));
            }
            for at in 0..octets.len() {
                for octet in [0, 1, 2, 0x7f, 0x80, 0xff] {
                    let mut changed = octets.clone();
                    changed[at] = octet;
                    same_if_read(&changed);
                }
            }
        }
    }
}
