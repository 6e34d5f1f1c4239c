//! Management: routes, faces, strategies and the Content Store, by the protocol of `/localhost/nfd`.

mod authority;
mod datasets;
mod faces;
mod keys;
mod manager;
mod node;
mod parameters;
mod rib;
mod routes;
mod sparing;

pub use authority::{Authority, Grant, Module, Origin, Refusal, Trust};
pub use keys::{CertificateError, TrustedKey};
pub use manager::Manager;
pub use node::{
    CreateError, CsInfo, CsUpdate, DiskInfo, ErasureResult, FaceRequest, HeavyHitterInfo, Node, Sharing,
    Totals, WorkerInfo,
};
pub use parameters::{ControlParameters, ControlResponse, ParameterError, kinds};
pub use rib::{HopSink, Rib, RibError, Route, origin};
