//! Answers that wait for packets on their way: the requests are carried out, and others are meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;

use kaido_n4::{Outcome, Seid, SessionService, Ticket};

use super::Endpoint;
use super::release::LastReport;
use crate::answers::Key;
use crate::association::AssociationId;
use crate::keyed::KeyedMap;
use crate::transaction::{Instants, Transmit};

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// These octets.
    Ready(Vec<u8>),
    /// None: the request may be carried out when it comes again.
    Silence,
    /// What will be said under that ticket.
    Later(Ticket, ResponseContext),
}

/// What the answer to a request about a session is made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseContext {
    pub(super) seid: Seid,
    /// The session's SEID at the control plane.
    pub(super) cp: Seid,
    /// The association of whoever asked.
    pub(super) speaker: AssociationId,
    pub(super) sequence: u32,
}

/// Who waits for what a service has put off.
#[derive(Debug)]
enum Waiter {
    /// The peer whose request it is.
    Peer(SocketAddr, Key, ResponseContext),
    /// An association that is being released.
    LastReport(LastReport),
}

/// All who wait.
#[derive(Debug, Default)]
pub(super) struct DeferredResponses(KeyedMap<Ticket, Waiter>);

impl<S: SessionService> Endpoint<S> {
    /// Whether something waits for packets on their way, such as the answer to a request that was carried out: [`Endpoint::poll`] is to be called within a
    /// fraction of a millisecond.
    pub fn is_waiting(&self) -> bool {
        !self.later.0.is_empty() || self.purge_waits()
    }

    pub(super) fn answer_later(&mut self, ticket: Ticket, to: SocketAddr, key: Key, asked: ResponseContext) {
        self.procedure_waits(ticket);
        self.later.0.insert(ticket, Waiter::Peer(to, key, asked));
    }

    pub(super) fn report_later(&mut self, ticket: Ticket, report: LastReport) {
        self.later.0.insert(ticket, Waiter::LastReport(report));
    }

    /// Sends the answers that the service has by now.
    pub(super) fn send_ended(&mut self, now: Instants, out: &mut Vec<Transmit>) {
        while let Some((ticket, outcome)) = self.service.next_ended(now.wall) {
            match (self.later.0.remove(&ticket), outcome) {
                (Some(Waiter::Peer(to, key, asked)), outcome) => {
                    self.procedure_goes_on(ticket);
                    let response: Arc<[u8]> = match outcome {
                        Outcome::Modified(modified) => self.modified(asked, modified),
                        Outcome::Deleted(deleted) => self.deleted(asked, &deleted),
                    }
                    .into();
                    self.answered.finish(now.wall, key, &response);
                    self.procedure_is_answered(&response);
                    self.transmit(to, response, out);
                }
                (Some(Waiter::LastReport(report)), Outcome::Deleted(deleted)) => {
                    self.send_late_report(now, report, deleted.usage_reports, out);
                }
                // A session that went with its association: its reports have no reader.
                (None, _) => self.purge.ended(),
                (Some(Waiter::LastReport(report)), Outcome::Modified(_)) => {
                    self.send_late_report(now, report, Vec::new(), out);
                }
            }
        }
    }
}
