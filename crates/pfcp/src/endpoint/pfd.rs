//! PFD management (TS 29.244 6.2.5, 7.4.3): a control plane says what applications are known by.

use std::net::SocketAddr;

use kaido_n4::{Rejection, SessionService};
use rs_pfcp::message::MsgType;

use super::Endpoint;
use super::node::no_association;
use crate::decode;
use crate::encode::{Draft, accepted};
use crate::frame::Frame;
use crate::procedure::Phase;
use crate::walk::Group;

impl<S: SessionService> Endpoint<S> {
    /// PFD Management Request: planned whole, for all its applications, then applied.
    pub(super) fn pfd_management(
        &mut self,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<Vec<u8>, Rejection> {
        if !self.is_peer(from.ip()) {
            return Err(no_association());
        }
        let request = decode::pfd_management(&Group::of_message(frame.body)?)?;
        self.procedure_enters(Phase::Apply);
        self.service.provision_pfds(&request)?;
        self.procedure_enters(Phase::Encode);
        Ok(Draft::node(MsgType::PfdManagementResponse, frame.sequence).with(&accepted()).bytes())
    }
}
