//! The file of a node: its functions, each with its part. A file of several has for each port the function whose it is.

use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::config::fault::{self, Fault};
use crate::config::{
    Base, ConfigFault, FilePart, Findings, FunctionSchema, Spanned, check, foreign, reference as book,
};
use crate::function::{ConfiguredFunction, NetworkFunction};

/// The reference as Markdown: `docs/configuration.md`.
pub fn reference(functions: &[&dyn NetworkFunction]) -> String {
    book::reference(&schemas(functions))
}

/// What their files have.
fn schemas(functions: &[&dyn NetworkFunction]) -> Vec<FunctionSchema> {
    functions.iter().map(|function| function.schema()).collect()
}

/// The whole file, checked.
pub struct Config {
    /// What every node has, with the ports of all functions.
    pub base: Base,
    /// The functions, in the order of the file, each with its ports.
    pub functions: Vec<Box<dyn ConfiguredFunction>>,
}

impl Config {
    /// Reads and checks a file of these functions.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(path: &Path, functions: &[&dyn NetworkFunction]) -> Result<Self, ConfigFault> {
        Self::read_with_text(path, functions).map(|(config, _)| config)
    }

    /// As [`Config::read`], with the text of the file.
    ///
    /// # Errors
    /// As there.
    pub fn read_with_text(
        path: &Path,
        functions: &[&dyn NetworkFunction],
    ) -> Result<(Self, String), ConfigFault> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigFault::Unreadable {
            path: path.to_owned(),
            error,
            described: "`kaido reference`",
        })?;
        Ok((Self::parse(path, text.clone(), functions)?, text))
    }

    /// Checks the text of a file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(path: &Path, text: String, functions: &[&dyn NetworkFunction]) -> Result<Self, ConfigFault> {
        match Self::read_unchecked(&text, functions) {
            Ok(Ok(config)) => {
                let faults = config.check();
                if faults.is_empty() { Ok(config) } else { Err(fault::faults(path, text, faults)) }
            }
            Ok(Err(faults)) => Err(fault::faults(path, text, faults)),
            Err(error) => Err(fault::syntax(path, text, &error, &schemas(functions))),
        }
    }

    /// Reads a text as it is written, unchecked; or what does not belong into the file.
    ///
    /// # Errors
    /// What is misspelt or of the wrong kind.
    pub fn read_unchecked(
        text: &str,
        functions: &[&dyn NetworkFunction],
    ) -> Result<Result<Self, Vec<Fault>>, toml::de::Error> {
        let table = DeTable::parse(text)?;
        let parts = match parts(&table, functions)? {
            Ok(parts) => parts,
            Err(faults) => return Ok(Err(faults)),
        };
        let own: Vec<_> = parts.iter().map(|(function, _)| function.schema()).collect();
        let foreign = foreign::foreign(table.get_ref(), &own, &schemas(functions));
        if !foreign.is_empty() {
            return Ok(Err(foreign));
        }
        let base = toml::from_str(text)?;
        let read = parts.into_iter().map(|(function, part)| function.read(part?));
        Ok(Ok(Self { base, functions: read.collect::<Result<_, _>>()? }))
    }

    /// Everything that is wrong with a configuration that reads well.
    fn check(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = Vec::new();
        for function in &self.functions {
            let mut findings = Findings::new(&function.schema());
            check::check_base(function.base(), &mut findings);
            function.check(&mut findings);
            // What every function has is said once.
            faults.extend(findings.faults);
        }
        if let Some(first) = self.functions.first() {
            let parts: Vec<_> = self.functions.iter().map(|function| function.base()).collect();
            faults.extend(check::whole(&self.base, &parts, &first.schema()));
        }
        let mut once: Vec<Fault> = Vec::new();
        for fault in faults {
            if !once.contains(&fault) {
                once.push(fault);
            }
        }
        once
    }

    /// The file in a few words.
    pub fn summary(&self) -> String {
        self.functions.iter().map(|function| function.summary()).collect::<Vec<_>>().join("; ")
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
fn parts<'f, 't>(
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
        match port.get_ref().as_table().and_then(foreign::function_of) {
            None if functions.len() > 1 => faults.push(fault(port.span(), "missing".to_owned())),
            Some((name, place)) if !functions.iter().any(|function| function.name() == name) => {
                faults.push(fault(place, format!("\"{name}\" is no function of this file")));
            }
            _ => {}
        }
    }
    faults
}

/// The file with the ports of one function.
fn of_function<'t>(file: &toml::Spanned<DeTable<'t>>, function: &str) -> toml::Spanned<DeTable<'t>> {
    let mut own = file.clone();
    if let Some(DeValue::Array(ports)) = own.get_mut().get_mut("port").map(toml::Spanned::get_mut) {
        let is_own = |port: &toml::Spanned<DeValue<'t>>| {
            port.get_ref().as_table().and_then(foreign::function_of).is_none_or(|(name, _)| name == function)
        };
        *ports = ports.clone().into_iter().filter(is_own).collect();
    }
    own
}
