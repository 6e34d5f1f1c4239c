//! IEs of a JSON object: read one by one, so that a refusal names the one at fault.

use serde_json::{Map, Value};

use crate::problem::{Cause, Problem};

/// Whether an object must be there, for the cause that what is wrong in it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Mandatory,
    Optional,
}

impl Presence {
    const fn incorrect(self) -> Cause {
        match self {
            Self::Mandatory => Cause::MandatoryIeIncorrect,
            Self::Optional => Cause::OptionalIeIncorrect,
        }
    }
}

/// An object and its place in the body.
#[derive(Clone, Debug)]
pub(crate) struct Ies<'v> {
    object: &'v Map<String, Value>,
    at: String,
}

impl<'v> Ies<'v> {
    /// The object at a place.
    pub(crate) fn of(value: &'v Value, at: &str, presence: Presence) -> Result<Self, Problem> {
        let object = value.as_object();
        let object = object.ok_or_else(|| Problem::of_ie(presence.incorrect(), at, "it is no object"))?;
        Ok(Self { object, at: at.to_owned() })
    }

    /// The JSON Pointer of an IE of it. Names are ours: none has what would be escaped.
    pub(crate) fn pointer(&self, name: &str) -> String {
        format!("{}/{name}", self.at)
    }

    fn present(&self, name: &str) -> Option<&'v Value> {
        self.object.get(name)
    }

    /// Whether there is such an IE.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// An IE that must be there.
    pub(crate) fn mandatory<T>(&self, name: &str, read: impl Read<'v, T>) -> Result<T, Problem> {
        let pointer = self.pointer(name);
        let missing = || Problem::of_ie(Cause::MandatoryIeMissing, &pointer, "it is missing");
        let value = self.present(name).ok_or_else(missing)?;
        read(value).map_err(|why| Problem::of_ie(Cause::MandatoryIeIncorrect, &pointer, why))
    }

    /// An IE that may be there.
    pub(crate) fn optional<T>(&self, name: &str, read: impl Read<'v, T>) -> Result<Option<T>, Problem> {
        let Some(value) = self.present(name) else { return Ok(None) };
        let wrong = |why| Problem::of_ie(Cause::OptionalIeIncorrect, self.pointer(name), why);
        read(value).map(Some).map_err(wrong)
    }

    /// An object that may be there.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Self>, Problem> {
        self.present(name).map(|value| Self::of(value, &self.pointer(name), Presence::Optional)).transpose()
    }

    /// The items of a list that must be there, with their places.
    pub(crate) fn items(&self, name: &str, most: usize) -> Result<Vec<(&'v Value, String)>, Problem> {
        let items = self.mandatory(name, |value| list(value, most))?;
        Ok(items
            .iter()
            .enumerate()
            .map(|(at, item)| (item, format!("{}/{at}", self.pointer(name))))
            .collect())
    }

    /// Refuses an IE that asks for what is not done.
    pub(crate) fn refuse(&self, name: &str, why: &str) -> Result<(), Problem> {
        match self.has(name) {
            true => Err(Problem::of_ie(Cause::OptionalIeIncorrect, self.pointer(name), why)),
            false => Ok(()),
        }
    }
}

/// Reads a value, or says what is wrong with it.
pub(crate) trait Read<'v, T>: FnOnce(&'v Value) -> Result<T, String> {}

impl<'v, T, F: FnOnce(&'v Value) -> Result<T, String>> Read<'v, T> for F {}

/// Text of so many octets at most.
pub(crate) fn text(value: &Value, most: usize) -> Result<&str, String> {
    match value.as_str() {
        Some("") => Err("it is empty".to_owned()),
        Some(text) if text.len() > most => Err(format!("it is longer than {most} octets")),
        Some(text) => Ok(text),
        None => Err("it is no text".to_owned()),
    }
}

/// A list of at least one item and so many at most.
pub(crate) fn list(value: &Value, most: usize) -> Result<&Vec<Value>, String> {
    match value.as_array() {
        Some(items) if items.is_empty() => Err("it is empty".to_owned()),
        Some(items) if items.len() > most => Err(format!("it has more than {most} items")),
        Some(items) => Ok(items),
        None => Err("it is no list".to_owned()),
    }
}

/// A number within bounds.
pub(crate) fn number(value: &Value, least: u64, most: u64) -> Result<u64, String> {
    match value.as_u64() {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("it is no whole number from {least} to {most}")),
    }
}

/// True or false.
pub(crate) fn boolean(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "it is neither true nor false".to_owned())
}
