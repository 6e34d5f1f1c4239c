//! The configuration file: one TOML file, checked whole before anything is opened.
//!
//! `function` says what the node does. Each function has a type for its file, of [`Base`], which all have, and sections
//! of its own: to add one, add it to [`FunctionName`] and [`Config`], and its fields to `reference`.
//!
//! Serde finds what is misspelt or of the wrong kind, [`check`] what is impossible together; either way
//! the user sees the file, the line, the field, and what is allowed.

mod base;
mod check;
pub(crate) mod fault;
mod gre;
mod metrics;
mod ndn;
mod node;
mod port;
mod prefix;
mod reference;
mod upf;
mod wanted;

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

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
pub(crate) use reference::reference;
#[cfg(test)]
pub(crate) use upf::testing::upf_of_ports;
pub(crate) use upf::{MssClampConfig, Role, SourcePort, UpfConfig, UpfNode, UpfPort};

/// What a node does: `function` of the file.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FunctionName {
    /// UPF or PGW-U.
    #[default]
    Upf,
    /// GRE header removal.
    Gre,
    /// NDN router.
    Ndn,
}

impl FunctionName {
    /// The name in the file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Upf => "upf",
            Self::Gre => "gre",
            Self::Ndn => "ndn",
        }
    }
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
    #[serde(default)]
    function: FunctionName,
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
                let faults = check::check(&config);
                if faults.is_empty() { Ok(config) } else { Err(fault::faults(path, text, faults)) }
            }
            Ok(Err(foreign)) => Err(fault::faults(path, text, foreign)),
            Err(error) => Err(fault::syntax(path, text, &error)),
        }
    }

    /// The sections as they are written, or those that do not belong into the file.
    fn sections(text: &str) -> Result<Result<Self, Vec<fault::Fault>>, toml::de::Error> {
        let table = DeTable::parse(text)?;
        let Choice { function } = toml::from_str(text)?;
        let foreign = reference::foreign(table.get_ref(), function);
        if !foreign.is_empty() {
            return Ok(Err(foreign));
        }
        let base: Base = toml::from_str(text)?;
        Ok(Ok(match function {
            FunctionName::Upf => Self::Upf(Box::new(UpfConfig::read(text, base)?)),
            FunctionName::Gre => Self::Gre(Box::new(GreConfig::read(text, base)?)),
            FunctionName::Ndn => Self::Ndn(Box::new(NdnConfig::read(text, base)?)),
        }))
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

    /// What every function has.
    pub(crate) const fn base(&self) -> &Base {
        match self {
            Self::Upf(config) => &config.base,
            Self::Gre(config) => &config.base,
            Self::Ndn(config) => &config.base,
        }
    }
}

/// A default value, which stands nowhere in the file.
fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
