//! The worker's side of traces: what becomes of a packet is written down beside its handling, which is the same.

use std::time::{Instant, SystemTime};

use kaido_engine::{Frame, Output, PortId, front_of};
use kaido_table::Guard;

use super::Worker;
use super::parse::Parsed;
use crate::node::Node;
use crate::record::{Action, Record, SessionIndex};
use crate::rules::PdrId;
use crate::trace::{TraceRecord, Traced};

/// What a worker knows of traces.
#[derive(Debug, Default)]
pub(super) struct Tracing {
    traced: Traced,
    /// Of the packet that is handled: the rule that it matched, when, and whether that buffers.
    matched: Option<(PdrId, Instant, bool)>,
}

impl Tracing {
    /// Whether no session is traced.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.traced.sessions.is_empty()
    }

    /// Whether a session is traced.
    #[inline]
    pub(super) fn has(&self, session: SessionIndex) -> bool {
        !self.is_empty() && self.traced.sessions.binary_search(&session).is_ok()
    }
}

impl Worker {
    /// Takes note of what is traced by now; one load where nothing has changed.
    #[inline]
    pub(super) fn follow_traces(&mut self) {
        if self.node.tracer.generation() != self.tracing.traced.generation {
            self.renew_traces();
        }
    }

    #[cold]
    fn renew_traces(&mut self) {
        self.tracing.traced = self.node.tracer.traced();
    }

    /// Notes the rule that a packet matched.
    #[inline]
    pub(super) fn note_match(&mut self, action: &Action) {
        if !self.tracing.is_empty() {
            self.tracing.matched = Some((action.pdr, Instant::now(), action.apply.buffer));
        }
    }

    /// Handles a packet of a traced session, and writes down what became of it.
    #[cold]
    #[allow(clippy::too_many_arguments)] // As `handle_read`, and the record by which its session was found.
    pub(super) fn handle_traced(
        &mut self,
        node: &Node,
        guard: &Guard<'_>,
        parsed: Parsed,
        (record, found): (&Record, Option<&Record>),
        port: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let (key, qfi) = match parsed {
            Parsed::Tunnel(key, outer) => (key, outer.header.qfi),
            Parsed::ToUe(key, ..) => (key, None),
            _ => return self.handle_parsed(node, guard, parsed, found, port, frame, out),
        };
        let snap = self.tracing.traced.snap;
        let (len, front) = (frame.packet_len(), front_of(&frame, snap));
        let (at, begun) = (SystemTime::now(), Instant::now());
        self.tracing.matched = None;
        out.witness(snap);
        self.handle_parsed(node, guard, parsed, found, port, frame, out);
        let fates = out.take_fates();
        let took = begun.elapsed();
        let matched = self.tracing.matched.take();
        self.node.tracer.push(TraceRecord {
            at,
            session: record.session(),
            direction: record.direction(),
            port,
            key,
            qfi,
            len,
            front,
            matched: matched.map(|(pdr, at, _)| (pdr, at.saturating_duration_since(begun))),
            took,
            buffered: matched.is_some_and(|(_, _, buffers)| buffers) && fates.is_empty(),
            fates,
        });
    }
}
