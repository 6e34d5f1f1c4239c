//! Management: routes, faces, strategies and the Content Store, by the protocol of `/localhost/nfd`.

mod authority;
mod keys;
mod parameters;
mod rib;

pub use authority::{Authority, Grant, Module, Refusal};
pub use keys::{CertificateError, TrustedKey};
pub use parameters::{ControlParameters, ControlResponse, Malformed, kinds};
pub use rib::{HopSink, Rib, RibError, Route, origin};
