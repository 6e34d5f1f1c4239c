//! What the endpoint knows again after a restart: associations, whose sessions are, which of them are being deleted, answers
//! that were given lately, and usage that no control plane has acknowledged.
//!
//! Usage on its way is sent again as the same request, so that a control plane that had it already takes it for a
//! repetition. Usage that was to be sent later goes back into the meters.

use std::borrow::Cow;
use std::net::SocketAddr;

use kaido_n4::{Seid, SessionService, UsageReport};
use kaido_store::{Kind, Recorder};
use rs_pfcp::message::MsgType;
use serde::{Deserialize, Serialize};

use super::report::Report;
use super::{Endpoint, Purpose};
use crate::answers::Octets;
use crate::association::AssociationId;
use crate::transaction::{Instants, Pending};

/// A record that is none of this program's format, or of something else than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no record of this program's format")]
pub struct NoRecord;

/// Usage that has left the meters, and is in no request of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageOnItsWay {
    /// It waits to be sent anew, under that count.
    Resent(u64),
    /// It had no room in a response.
    PutOff(u64),
}

impl UsageOnItsWay {
    /// Beside sequence numbers, which have 24 bits.
    const fn key(self) -> u64 {
        match self {
            Self::Resent(count) => 1 << 56 | count,
            Self::PutOff(count) => 2 << 56 | count,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum UsageRecord<'r> {
    /// In a request.
    Sent {
        to: SocketAddr,
        #[serde(borrow)]
        bytes: Octets<'r>,
        association: AssociationId,
        seid: Seid,
        usage: Cow<'r, [UsageReport]>,
    },
    /// The last of a session that is gone, in a request; with the octets that it tells of.
    Last { to: SocketAddr, bytes: Octets<'r>, association: AssociationId, octets: u64 },
    /// In none.
    Waits { seid: Seid, usage: Cow<'r, [UsageReport]> },
}

impl<S: SessionService> Endpoint<S> {
    /// Has what is to be known after a restart taken down.
    pub fn record_by(&mut self, recorder: &Recorder) {
        self.associations.record_by(recorder.clone());
        self.sessions.record_by(recorder.clone());
        self.purge.record_by(recorder.clone());
        self.answered.record_by(recorder.clone());
        self.recorder = recorder.clone();
    }

    /// What the endpoint records, in the order in which it is [taken in](Self::take_in).
    pub const RECORDED: [Kind; 5] = [Kind::Peer, Kind::Binding, Kind::Selection, Kind::Answer, Kind::Request];

    /// Takes in what was recorded before a restart, kind after kind as [`Self::RECORDED`], when the service has its sessions again.
    ///
    /// # Errors
    /// [`NoRecord`].
    pub fn take_in(
        &mut self,
        kind: Kind,
        number: u64,
        recorded: &[u8],
        now: Instants,
    ) -> Result<(), NoRecord> {
        match kind {
            Kind::Peer => self.associations.take_in(number, recorded, now.monotonic),
            Kind::Binding => self.take_in_binding(recorded),
            Kind::Selection => self.purge.take_in(number, recorded),
            Kind::Answer => self.answered.take_in(number, recorded, now),
            Kind::Request => self.take_in_usage(number, recorded, now),
            Kind::Node
            | Kind::Session
            | Kind::Pfd
            | Kind::Usage
            | Kind::Subscription
            | Kind::Baseline
            | Kind::Offset => None,
        }
        .ok_or(NoRecord)
    }

    fn take_in_binding(&mut self, recorded: &[u8]) -> Option<()> {
        let (seid, binding) = self.sessions.take_in(recorded)?;
        let (id, held) = (binding.association, binding.held);
        self.associations.reserve(id);
        if !self.service.has_session(seid) {
            // The service could not take its session in.
            self.sessions.remove(seid);
            return Some(());
        }
        match self.associations.get_mut(id) {
            Some(association) => {
                association.sessions += 1;
                if held {
                    association.held.push_back(seid);
                }
            }
            // It was yet to be deleted.
            None => self.purge.orphans += 1,
        }
        Some(())
    }

    fn take_in_usage(&mut self, number: u64, recorded: &[u8], now: Instants) -> Option<()> {
        match postcard::from_bytes(recorded).ok()? {
            UsageRecord::Waits { seid, usage } => {
                self.recorder.remove(Kind::Request, number);
                self.keep_usage(seid, &usage, false);
            }
            UsageRecord::Sent { to, bytes, association, seid, usage } => {
                let sequence = u32::try_from(number).ok()?;
                let mut report = Report::of(seid, association);
                report.usage = usage.into_owned();
                if let Some(association) = self.associations.get_mut(association) {
                    association.in_flight += 1;
                }
                let request = (MsgType::SessionReportRequest, sequence);
                let bytes = bytes.0.to_vec();
                self.outgoing.send_at_once(now.monotonic, to, request, bytes, Purpose::Report(report));
            }
            UsageRecord::Last { to, bytes, association, octets } => {
                let request = (MsgType::SessionReportRequest, u32::try_from(number).ok()?);
                let purpose = Purpose::LastUsage(association, octets);
                self.outgoing.send_at_once(now.monotonic, to, request, bytes.0.to_vec(), purpose);
            }
        }
        Some(())
    }

    /// Records usage that is in no request.
    pub(super) fn record_usage(&self, way: UsageOnItsWay, seid: Seid, usage: &[UsageReport]) {
        if self.recorder.is_on() && !usage.is_empty() {
            let waits = UsageRecord::Waits { seid, usage: usage.into() };
            self.recorder.put_value(Kind::Request, way.key(), &waits);
        }
    }

    /// Usage is in a request, or with the meters.
    pub(super) fn forget_usage(&self, way: UsageOnItsWay) {
        self.recorder.remove(Kind::Request, way.key());
    }

    /// Records a request that tells usage.
    pub(super) fn record_request(&self, (to, sequence): (SocketAddr, u32), bytes: &[u8], report: &Report) {
        if self.recorder.is_on() && !report.usage.is_empty() {
            let Report { seid, association, .. } = *report;
            let usage = (&*report.usage).into();
            let sent = UsageRecord::Sent { to, bytes: Octets(bytes), association, seid, usage };
            self.recorder.put_value(Kind::Request, sequence.into(), &sent);
        }
    }

    /// Records a request that tells the last usage of a session, which is gone.
    pub(super) fn record_last(
        &self,
        (to, sequence): (SocketAddr, u32),
        bytes: &[u8],
        (association, octets): (AssociationId, u64),
    ) {
        if self.recorder.is_on() {
            let last = UsageRecord::Last { to, bytes: Octets(bytes), association, octets };
            self.recorder.put_value(Kind::Request, sequence.into(), &last);
        }
    }

    /// A request is not outstanding any more.
    pub(super) fn forget_request(&self, pending: &Pending<Purpose>) {
        let is_recorded = match &pending.purpose {
            Purpose::Report(report) => !report.usage.is_empty(),
            Purpose::LastUsage(..) => true,
            _ => false,
        };
        if is_recorded {
            self.recorder.remove(Kind::Request, pending.sequence.into());
        }
    }
}
