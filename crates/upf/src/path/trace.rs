//! The worker's side of traces: what becomes of a packet is written down beside its handling, which is the same.

use std::time::{Instant, SystemTime};

use kaido_engine::{Frame, Output, PortId, head_of};

use super::Worker;
use super::context::{ArrivalInfo, FrameLookup, Origin};
use super::parse::ParsedFrame;
use crate::action::Action;
use crate::ids::SessionIndex;
use crate::key::SessionKey;
use crate::record::Record;
use crate::trace::{TraceRecord, TracedSessions};
use kaido_n4::PdrId;

/// What a worker knows of traces.
#[derive(Debug, Default)]
pub(super) struct Tracing {
    traced: TracedSessions,
    /// Of the packet that is handled: the rule that it matched, when, and whether that buffers.
    matched: Option<(PdrId, Instant, bool)>,
}

impl Tracing {
    /// Whether no session is traced.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.traced.keys.is_empty()
    }

    /// Whether a session is traced.
    #[inline]
    pub(super) fn has(&self, session: SessionIndex) -> bool {
        !self.is_empty() && self.traced.keys.binary_search(&session).is_ok()
    }
}

/// A packet whose trace has begun.
struct TraceStart {
    at: SystemTime,
    since: Instant,
    key: SessionKey,
    qfi: Option<u8>,
    port: PortId,
    len: usize,
    head: Vec<u8>,
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

    /// Handles a frame for an Ethernet session, and writes down what became of it where the session is traced. A frame
    /// from another session is part of that one's trace.
    pub(super) fn trace_frame(
        &mut self,
        record: &Record,
        arrival: ArrivalInfo,
        frame: Frame,
        out: &mut Output<'_>,
        handle: impl FnOnce(&mut Self, Frame, &mut Output<'_>),
    ) {
        if arrival.origin != Origin::Port || !self.tracing.has(record.session()) {
            return handle(self, frame, out);
        }
        let begun = self.begin_trace(arrival.key, arrival.qfi, arrival.port, &frame, out);
        handle(self, frame, out);
        self.end_trace(begun, record, out);
    }

    fn begin_trace(
        &mut self,
        key: SessionKey,
        qfi: Option<u8>,
        port: PortId,
        frame: &Frame,
        out: &mut Output<'_>,
    ) -> TraceStart {
        let snap = self.tracing.traced.snap;
        let (len, head) = (frame.packet_len(), head_of(frame, snap));
        let (at, since) = (SystemTime::now(), Instant::now());
        self.tracing.matched = None;
        out.record_trace(snap);
        TraceStart { at, since, key, qfi, port, len, head }
    }

    fn end_trace(&mut self, begun: TraceStart, record: &Record, out: &mut Output<'_>) {
        let TraceStart { at, since, key, qfi, port, len, head } = begun;
        let dispositions = out.take_dispositions();
        let took = since.elapsed();
        let matched = self.tracing.matched.take();
        self.node.tracer.push(TraceRecord {
            at,
            session: record.session(),
            direction: record.direction(),
            port,
            key,
            qfi,
            len,
            head,
            matched: matched.map(|(pdr, at, _)| (pdr, at.saturating_duration_since(since))),
            took,
            buffered: matched.is_some_and(|(_, _, buffers)| buffers) && dispositions.is_empty(),
            dispositions,
        });
    }

    /// Handles a packet of a traced session, and writes down what became of it; `record` is that by which its session was found.
    #[cold]
    pub(super) fn handle_traced(
        &mut self,
        lookup: &FrameLookup<'_>,
        record: &Record,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let (key, qfi) = match lookup.parsed {
            ParsedFrame::Tunnel(key, outer) => (key, outer.header.qfi),
            ParsedFrame::ToUe(key, ..) => (key, None),
            _ => return self.handle_parsed(lookup, frame, out),
        };
        let begun = self.begin_trace(key, qfi, lookup.port, &frame, out);
        self.handle_parsed(lookup, frame, out);
        self.end_trace(begun, record, out);
    }
}
