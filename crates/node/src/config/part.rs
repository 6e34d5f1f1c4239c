//! The parts of a file: what each of its functions reads. A file of several has for each port the function whose it is.

use std::ops::Range;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::fault::Fault;
use super::foreign;
use super::{Base, Spanned, schemas};
use crate::function::NetworkFunction;

/// What a function reads: all sections, and its own ports.
pub struct FilePart<'t> {
    table: toml::Spanned<DeTable<'t>>,
    /// What every function has.
    pub base: Base,
}

impl<'t> FilePart<'t> {
    fn new(table: toml::Spanned<DeTable<'t>>) -> Result<Self, toml::de::Error> {
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

/// `function` of a file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Choice {
    One(String),
    Several(Vec<String>),
}

/// What says whose file it is.
#[derive(Deserialize)]
struct Head {
    function: Option<Spanned<Choice>>,
}

type Part<'f, 't> = (&'f dyn NetworkFunction, Result<FilePart<'t>, toml::de::Error>);

/// The functions of a file, which is that of the first where it does not say, and their parts; or what is wrong.
pub(super) fn parts<'f, 't>(
    file: &toml::Spanned<DeTable<'t>>,
    functions: &[&'f dyn NetworkFunction],
) -> Result<Result<Vec<Part<'f, 't>>, Vec<Fault>>, toml::de::Error> {
    let head = Head::deserialize(Deserializer::from(file.clone()))?;
    let named: Vec<(&str, _)> = match &head.function {
        None => functions.first().map(|function| (function.name(), 0..0)).into_iter().collect(),
        Some(choice) => match choice.get_ref() {
            Choice::One(name) => vec![(name, choice.span())],
            Choice::Several(names) => names.iter().map(|name| (name.as_str(), choice.span())).collect(),
        },
    };
    let mut faults = Vec::new();
    let mut chosen: Vec<&'f dyn NetworkFunction> = Vec::new();
    for (name, place) in &named {
        match functions.iter().find(|function| function.name() == *name) {
            Some(function) if chosen.iter().any(|other| other.name() == *name) => {
                let message = format!("\"{}\" is there twice", function.name());
                let help = "a node has each function once; it may have many ports".to_owned();
                faults.push(Fault { at: place.clone(), field: "function".to_owned(), message, help });
            }
            Some(function) => chosen.push(*function),
            None => faults.push(foreign::function(name, place.clone(), &schemas(functions))),
        }
    }
    if chosen.is_empty() && faults.is_empty() {
        let at = head.function.map_or(0..0, |choice| choice.span());
        let (field, message) = ("function".to_owned(), "a node has one function at least".to_owned());
        faults.push(Fault { at, field, message, help: "name one, such as \"upf\"".to_owned() });
    }
    faults.extend(ports(file.get_ref(), &chosen));
    if !faults.is_empty() {
        return Ok(Err(faults));
    }
    let part =
        |function: &'f dyn NetworkFunction| (function, FilePart::new(of_function(file, function.name())));
    Ok(Ok(chosen.into_iter().map(part).collect()))
}

/// Ports that do not say well whose they are.
fn ports(file: &DeTable<'_>, functions: &[&dyn NetworkFunction]) -> Vec<Fault> {
    let names: Vec<_> = functions.iter().map(|function| format!("\"{}\"", function.name())).collect();
    let help = format!("name a function of the file: {}", names.join(" or "));
    let fault = |at, message| Fault { at, field: "port.function".to_owned(), message, help: help.clone() };
    let mut faults = Vec::new();
    for port in file.get("port").and_then(|ports| ports.get_ref().as_array()).into_iter().flatten() {
        match function_of(port.get_ref()) {
            None if functions.len() > 1 => faults.push(fault(port.span(), "missing".to_owned())),
            Some((name, place)) if !functions.iter().any(|function| function.name() == name) => {
                faults.push(fault(place, format!("\"{name}\" is no function of this file")));
            }
            _ => {}
        }
    }
    faults
}

/// The function that a port names, and where.
fn function_of<'p>(port: &'p DeValue<'_>) -> Option<(&'p str, Range<usize>)> {
    let name = port.as_table()?.get("function")?;
    Some((name.get_ref().as_str()?, name.span()))
}

/// The file with the ports of one function.
fn of_function<'t>(file: &toml::Spanned<DeTable<'t>>, function: &str) -> toml::Spanned<DeTable<'t>> {
    let mut own = file.clone();
    if let Some(DeValue::Array(ports)) = own.get_mut().get_mut("port").map(toml::Spanned::get_mut) {
        let is_own = |port: &toml::Spanned<DeValue<'t>>| {
            function_of(port.get_ref()).is_none_or(|(name, _)| name == function)
        };
        *ports = ports.clone().into_iter().filter(is_own).collect();
    }
    own
}
