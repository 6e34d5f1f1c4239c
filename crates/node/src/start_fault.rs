//! Why a node does not start.

use std::net::SocketAddr;

use miette::Diagnostic;
use thiserror::Error;

use crate::config::PortConfig;

/// Why the node could not start.
#[derive(Debug, Error, Diagnostic)]
pub enum StartFault {
    /// A port could not be opened.
    #[error("port {port}: {fault}")]
    Port {
        /// Its name.
        port: String,
        /// What went wrong.
        fault: String,
        /// How to mend it.
        #[help]
        help: String,
    },
    /// The address of a TCP socket could not be bound.
    #[error("{field}: cannot listen on {address}: {error}")]
    #[diagnostic(help("the address must be one of this host's, and nobody else may listen at the port"))]
    Listen {
        /// The field that names it.
        field: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        error: std::io::Error,
    },
}

/// Why a port cannot be used, and how to mend it.
pub fn fault(config: &PortConfig, fault: impl std::fmt::Display, help: impl Into<String>) -> StartFault {
    StartFault::Port { port: config.name.get_ref().clone(), fault: fault.to_string(), help: help.into() }
}
