//! The configuration file: one TOML file, checked whole before anything is opened.
//!
//! `function` says what the node does. Each function has a type for its part of the file beside [`Base`], which all have; its
//! schema is the reference of its fields. To add a function, add it to [`FUNCTIONS`] and [`Config`].
//!
//! Serde finds what is misspelt or of the wrong kind, [`check`] what is impossible together; either way
//! the user sees the file, the line, the field, and what is allowed.

mod base;
mod check;
pub(crate) mod fault;
mod foreign;
mod gre;
mod metrics;
mod ndn;
mod node;
mod port;
mod prefix;
mod reference;
mod schema;
mod spanned;
mod upf;
mod wanted;

use std::path::Path;

use serde::Deserialize;
use toml::de::DeTable;

use self::check::Findings;
use self::fault::Fault;
use self::schema::FunctionSchema;
use crate::run::function::ConfiguredFunction;

pub(crate) use base::{Base, DEFAULT_SOCKET, LogFormat};
pub(crate) use fault::ConfigFault;
pub(crate) use gre::GreConfig;
pub(crate) use metrics::MetricsListen;
pub(crate) use ndn::{
    AdmitName, FaceConfig, KeyConfig, ListenConfig, ModuleName, NdnConfig, UnsolicitedName, group_number,
};
pub(crate) use node::{Datapath, NodeConfig};
pub(crate) use port::{Attach, CopyMode, Driver, PortConfig};
pub(crate) use prefix::Prefix;
pub(crate) use spanned::{Spanned, unplaced};
#[cfg(test)]
pub(crate) use upf::testing::upf_of_ports;
pub(crate) use upf::{MssClampConfig, Role, SourcePort, UpfConfig, UpfNode, UpfPort};

/// A function that a node can have.
#[derive(Clone, Copy)]
struct Function {
    schema: FunctionSchema,
    /// Reads its part of a file.
    read: fn(&str, Base) -> Result<Config, toml::de::Error>,
}

/// The functions. The first is that of a file without `function`.
const FUNCTIONS: [Function; 3] = [
    Function {
        schema: upf::SCHEMA,
        read: |text, base| Ok(Config::Upf(Box::new(UpfConfig::read(text, base)?))),
    },
    Function {
        schema: gre::SCHEMA,
        read: |text, base| Ok(Config::Gre(Box::new(GreConfig::read(text, base)?))),
    },
    Function {
        schema: ndn::SCHEMA,
        read: |text, base| Ok(Config::Ndn(Box::new(NdnConfig::read(text, base)?))),
    },
];

/// What their files have.
fn schemas() -> [FunctionSchema; FUNCTIONS.len()] {
    FUNCTIONS.map(|function| function.schema)
}

/// The reference as Markdown: `docs/configuration.md`.
pub(crate) fn reference() -> String {
    reference::reference(&schemas())
}

/// The whole file.
#[derive(Debug)]
pub(crate) enum Config {
    /// Of a user plane.
    Upf(Box<UpfConfig>),
    /// Of a GRE header remover.
    Gre(Box<GreConfig>),
    /// Of an NDN router.
    Ndn(Box<NdnConfig>),
}

/// What says which function's file it is.
#[derive(Deserialize)]
struct Choice {
    function: Option<Spanned<String>>,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigFault> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigFault::Unreadable {
            path: path.to_owned(),
            error,
            described: "`kaido reference`",
        })?;
        Self::parse(path, text)
    }

    fn parse(path: &Path, text: String) -> Result<Self, ConfigFault> {
        match Self::sections(&text) {
            Ok(Ok(config)) => {
                let faults = config.check();
                if faults.is_empty() { Ok(config) } else { Err(fault::faults(path, text, faults)) }
            }
            Ok(Err(foreign)) => Err(fault::faults(path, text, foreign)),
            Err(error) => Err(fault::syntax(path, text, &error, &schemas())),
        }
    }

    /// The sections as they are written, or what does not belong into the file.
    fn sections(text: &str) -> Result<Result<Self, Vec<Fault>>, toml::de::Error> {
        let table = DeTable::parse(text)?;
        let Choice { function } = toml::from_str(text)?;
        let Function { schema, read } = match function {
            None => FUNCTIONS[0],
            Some(name) => match FUNCTIONS.iter().find(|known| known.schema.name == name.get_ref()) {
                Some(function) => *function,
                None => return Ok(Err(vec![foreign::function(&name, &schemas())])),
            },
        };
        let foreign = foreign::foreign(table.get_ref(), &schema, &schemas());
        if !foreign.is_empty() {
            return Ok(Err(foreign));
        }
        read(text, toml::from_str(text)?).map(Ok)
    }

    /// Everything that is wrong with a configuration that reads well.
    fn check(&self) -> Vec<Fault> {
        let mut findings = Findings::new(&match self {
            Self::Upf(_) => upf::SCHEMA,
            Self::Gre(_) => gre::SCHEMA,
            Self::Ndn(_) => ndn::SCHEMA,
        });
        // A router's worker sends by the port of another where there is one queue.
        check::base(self.base(), matches!(self, Self::Ndn(_)), &mut findings);
        match self {
            Self::Upf(config) => upf::check::check(config, &mut findings),
            Self::Gre(config) => gre::check(config, &mut findings),
            Self::Ndn(config) => ndn::check(config, &mut findings),
        }
        findings.faults
    }

    /// The file in a few words.
    pub(crate) fn summary(&self) -> String {
        let ports = self.base().ports.len();
        match self {
            Self::Upf(config) => {
                format!("{ports} ports, up to {} sessions", config.node.sessions_max.get_ref())
            }
            Self::Gre(config) => format!("GRE header removal, {ports} ports, {} rules", config.rules()),
            Self::Ndn(config) => format!(
                "NDN router, {ports} ports, {} faces and {} routes from the start",
                config.ndn.faces.len(),
                config.ndn.routes.len()
            ),
        }
    }

    /// The function, with its part of the file.
    pub(crate) fn function(&self) -> &dyn ConfiguredFunction {
        match self {
            Self::Upf(config) => &**config,
            Self::Gre(config) => &**config,
            Self::Ndn(config) => &**config,
        }
    }

    /// What every function has.
    pub(crate) const fn base(&self) -> &Base {
        match self {
            Self::Upf(config) => &config.base,
            Self::Gre(config) => &config.base,
            Self::Ndn(config) => &config.base,
        }
    }
}

#[cfg(test)]
mod tests;
