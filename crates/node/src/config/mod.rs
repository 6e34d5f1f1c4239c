//! The configuration file: one TOML file, checked whole before anything is opened.
//!
//! `function` says what the node does. Each function has a type for its part of the file beside [`Base`], which all have; its
//! schema is the reference of its fields.
//!
//! Serde finds what is misspelt or of the wrong kind, [`check`] what is impossible together; either way
//! the user sees the file, the line, the field, and what is allowed.

mod base;
mod check;
pub mod fault;
mod foreign;
mod metrics;
mod node;
mod part;
mod port;
mod prefix;
mod reference;
mod schema;
mod spanned;
mod wanted;

use std::path::Path;

use toml::de::DeTable;

use self::fault::Fault;
use self::part::parts;
use crate::function::{ConfiguredFunction, NetworkFunction};

pub use base::{Base, DEFAULT_SOCKET, LogFormat, socket_path};
pub use check::{Findings, check_base, is_interface_name};
pub use fault::ConfigFault;
pub use metrics::MetricsListen;
pub use node::{Datapath, FRAMES_MIN, NodeConfig, QueueMode, WORKERS_MAX};
pub use part::FilePart;
pub use port::{Attach, CopyMode, Driver, PortConfig};
pub use prefix::Prefix;
pub use schema::{Field, FunctionSchema, Section, Sections, or_zero, schema_of};
pub use spanned::{Spanned, unplaced};

/// The reference as Markdown: `docs/configuration.md`.
pub fn reference(functions: &[&dyn NetworkFunction]) -> String {
    reference::reference(&schemas(functions))
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
        let text = std::fs::read_to_string(path).map_err(|error| ConfigFault::Unreadable {
            path: path.to_owned(),
            error,
            described: "`kaido reference`",
        })?;
        Self::parse(path, text, functions)
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
            check_base(function.base(), &mut findings);
            function.check(&mut findings);
            // What every function has is said once.
            faults.extend(findings.faults);
        }
        if self.functions.len() > 1 {
            faults.extend(check::across(&self.base, &self.functions[0].schema()));
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
