//! Answers that go on: events, and captures.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::RawQuery;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::access::Caller;
use super::answer::refused;
use super::parameters::Parameters;
use super::{Asking, Served, closing};
use crate::api::{
    Asked, BeginTrace, EndTrace, Flow, GetNode, ListDrops, Problem, Question, ReadTrace, Reply, Role,
    TraceBegun, TraceOf, TraceRead, whole_frame,
};
use crate::show::Pcapng;

/// The media type of a capture.
pub(super) const PCAPNG: &str = "application/x-pcapng";
/// How often a trace is read.
const PACE: Duration = Duration::from_millis(100);

/// How often events come.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Milliseconds from one to the next: 100 to 60 000; 1000 unless given.
    #[serde(default = "second")]
    #[schemars(range(min = 100, max = 60_000))]
    interval_ms: u64,
}

const fn second() -> u64 {
    1000
}

/// What is captured. Without a flow, the packets of ports.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CaptureQuery {
    /// Ports whose packets are captured, of a function without sessions; all unless given.
    #[serde(default)]
    port: Vec<String>,
    /// By what a flow is named: `ue` or `seid` of a user plane.
    by: Option<String>,
    /// Its name.
    value: Option<String>,
    /// Octets of each frame that are kept; all unless given.
    #[serde(default = "whole_frame")]
    snap: usize,
    /// Packets after which it ends.
    count: Option<usize>,
    /// Seconds after which it ends.
    seconds: Option<u64>,
}

/// Reads a query by its schema.
fn read<Q: DeserializeOwned + JsonSchema>(RawQuery(query): &RawQuery) -> Result<Q, Problem> {
    let parameters = Parameters::of_schema(Q::json_schema, false);
    let read = parameters.read(std::iter::empty(), query.as_deref().unwrap_or_default(), &[])?;
    serde_json::from_value(Value::Object(read)).map_err(|error| Problem::bad_request(error.to_string()))
}

fn permit(served: &Served) -> Result<OwnedSemaphorePermit, Problem> {
    let permit = served.streams.clone().try_acquire_owned();
    permit.map_err(|_| Problem::unavailable("too many streams are open: end one".to_owned()))
}

/// `/v1/events`.
pub(super) fn events(served: Arc<Served>, caller: &Caller, query: &RawQuery) -> Response {
    let begun = caller.may(Role::Watch).and_then(|()| read(query)).and_then(|EventsQuery { interval_ms }| {
        if !(100..=60_000).contains(&interval_ms) {
            return Err(Problem::bad_request("interval_ms: it is 100 to 60000".to_owned()));
        }
        Ok((permit(&served)?, Duration::from_millis(interval_ms)))
    });
    let (permit, every) = match begun {
        Ok(begun) => begun,
        Err(problem) => return refused(&problem),
    };
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let admission = served.admission.clone();
    let begun = (served, ticks, admission, Vec::new(), permit);
    let events = stream::unfold(begun, async |(served, mut ticks, mut admission, mut waiting, permit)| {
        if waiting.is_empty() {
            tokio::select! {
                _ = ticks.tick() => {}
                () = closing(&mut admission) => return None,
            }
            // The last is sent first.
            for asked in [Asked::of(&ListDrops {}), Asked::of(&GetNode {})] {
                waiting.push(event(&served.sources.node, asked).await);
            }
        }
        let next = waiting.pop()?;
        Some((Ok::<_, Infallible>(next), (served, ticks, admission, waiting, permit)))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// An answer as an event, or why there is none.
async fn event(node: &Asking<Asked, Reply>, asked: Asked) -> Event {
    let name = if asked.name == GetNode::NAME { "node" } else { "drops" };
    match node.ask(asked).await.and_then(|reply| reply) {
        Ok(answer) => Event::default().event(name).data(answer.to_string()),
        Err(problem) => {
            Event::default().event("problem").data(serde_json::to_string(&problem).unwrap_or_default())
        }
    }
}

/// A trace that is ended when dropped.
struct Trace {
    node: Asking<Asked, Reply>,
    id: u32,
}

impl Drop for Trace {
    fn drop(&mut self) {
        // If it cannot be told, the node ends it by itself.
        self.node.begin(Asked::of(&EndTrace { id: self.id }));
    }
}

/// Asks a question that has an answer.
async fn ask<Q: Question>(node: &Asking<Asked, Reply>, question: &Q) -> Result<Q::Answer, Problem> {
    let answer = node.ask(Asked::of(question)).await??;
    serde_json::from_value(answer).map_err(|error| Problem::internal(error.to_string()))
}

/// `/v1/capture`.
pub(super) async fn capture(served: Arc<Served>, caller: &Caller, query: RawQuery) -> Response {
    match begin_capture(&served, caller, &query).await {
        Ok(capture) => {
            let admission = served.admission.clone();
            let file = stream::unfold((capture, admission), async |(mut capture, mut admission)| {
                let next = tokio::select! {
                    next = capture.next() => next?,
                    () = closing(&mut admission) => return None,
                };
                Some((Ok::<Bytes, Infallible>(next), (capture, admission)))
            });
            ([(CONTENT_TYPE, PCAPNG)], Body::from_stream(file)).into_response()
        }
        Err(problem) => refused(&problem),
    }
}

/// A capture that is being sent.
struct Capture {
    trace: Trace,
    file: Pcapng<Vec<u8>>,
    /// Packets yet to come, where they are counted.
    left: Option<usize>,
    ends: Option<Instant>,
    _permit: OwnedSemaphorePermit,
}

async fn begin_capture(served: &Served, caller: &Caller, query: &RawQuery) -> Result<Capture, Problem> {
    caller.may(Role::Operate)?;
    let CaptureQuery { port, by, value, snap, count, seconds } = read(query)?;
    let of = match (by, value) {
        (Some(by), Some(value)) if port.is_empty() => TraceOf::Flow(Flow { by, value }),
        (None, None) => TraceOf::Ports(port),
        _ => {
            let why = "`by` and `value` name a flow together, and then no port is named";
            return Err(Problem::bad_request(why.to_owned()));
        }
    };
    let permit = permit(served)?;
    let node = served.sources.node.clone();
    let what = format!("{of:?}");
    let TraceBegun { id, ports } = ask(&node, &BeginTrace { of, snap }).await?;
    tracing::info!(target: "audit", who = caller.name, what = "stream_capture", of = what);
    let trace = Trace { node, id };
    let file = Pcapng::new(Vec::new(), &ports).map_err(|error| Problem::internal(error.to_string()))?;
    let ends = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.min(u64::from(u32::MAX))));
    Ok(Capture { trace, file, left: count, ends, _permit: permit })
}

impl Capture {
    /// The next part of the file; none behind its last.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let written = self.file.take();
            if !written.is_empty() {
                return Some(written.into());
            }
            let is_over = self.ends.is_some_and(|ends| Instant::now() >= ends);
            if is_over || self.left == Some(0) {
                return None;
            }
            // A trace that has ended ends the file.
            let TraceRead { packets, .. } =
                ask(&self.trace.node, &ReadTrace { id: self.trace.id }).await.ok()?;
            let is_quiet = packets.is_empty();
            for packet in packets.iter().take(self.left.unwrap_or(usize::MAX)) {
                self.file.packet(packet).ok()?;
            }
            self.left = self.left.map(|left| left.saturating_sub(packets.len()));
            if is_quiet {
                sleep(PACE).await;
            }
        }
    }
}
