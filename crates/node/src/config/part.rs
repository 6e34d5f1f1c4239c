//! What a function reads of a file.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, Deserializer};

use super::Base;

/// What a function reads: all sections, and its own ports.
pub struct FilePart<'t> {
    table: toml::Spanned<DeTable<'t>>,
    /// What every function has.
    pub base: Base,
}

impl<'t> FilePart<'t> {
    pub(crate) fn new(table: toml::Spanned<DeTable<'t>>) -> Result<Self, toml::de::Error> {
        let base = Base::deserialize(Deserializer::from(table.clone()))?;
        Ok(Self { table, base })
    }

    /// The part of the only function of a file.
    ///
    /// # Errors
    /// Where the text is no file.
    pub fn whole(text: &'t str) -> Result<Self, toml::de::Error> {
        Self::new(DeTable::parse(text)?)
    }

    /// The sections and fields of a function's type.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, toml::de::Error> {
        T::deserialize(Deserializer::from(self.table.clone()))
    }
}
