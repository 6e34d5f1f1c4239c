//! A span as it is built, and the messages of OTLP that it becomes.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::message::{
    AnyValue, ArrayValue, Event, ExportTraceServiceRequest, InstrumentationScope, KeyValue, KindMessage,
    ResourceAttributes, ResourceSpans, ScopeSpans, SpanMessage, Status, StatusCode, ValueMessage,
};
use crate::random::Random;

/// SPAN_FLAGS: W3C's `sampled`, and that the parent is known to be of this process.
const SAMPLED_AND_LOCAL: u32 = 0x101;

/// The identifier of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(pub u128);

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
    /// Several texts.
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<Value> for AnyValue {
    fn from(value: Value) -> Self {
        let value = match value {
            Value::Text(of) => ValueMessage::Text(of),
            Value::Number(of) => ValueMessage::Number(of),
            Value::Texts(of) => {
                let values = of.into_iter().map(|of| Self { value: Some(ValueMessage::Text(of)) }).collect();
                ValueMessage::Array(ArrayValue { values })
            }
        };
        Self { value: Some(value) }
    }
}

fn attribute(key: &str, value: impl Into<Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(value.into().into()) }
}

/// What a span is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A request of somebody else's.
    Server,
    /// A request of ours.
    Client,
    /// A part of either.
    Internal,
}

/// Where identifiers of spans come from.
#[derive(Debug)]
pub struct SpanIds(Random);

impl Default for SpanIds {
    fn default() -> Self {
        Self(Random::new())
    }
}

impl SpanIds {
    fn next(&mut self) -> Vec<u8> {
        // An identifier of zeros is none.
        self.0.next().max(1).to_be_bytes().to_vec()
    }
}

/// A span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span(SpanMessage);

impl Span {
    /// The root of a trace.
    pub fn root(
        trace: TraceId,
        ids: &mut SpanIds,
        name: impl Into<String>,
        kind: SpanKind,
        (began, ended): (SystemTime, SystemTime),
    ) -> Self {
        let kind = match kind {
            SpanKind::Server => KindMessage::Server,
            SpanKind::Client => KindMessage::Client,
            SpanKind::Internal => KindMessage::Internal,
        };
        Self(SpanMessage {
            trace_id: trace.0.to_be_bytes().to_vec(),
            span_id: ids.next(),
            flags: SAMPLED_AND_LOCAL,
            name: name.into(),
            kind: kind.into(),
            start_time_unix_nano: nanoseconds(began),
            end_time_unix_nano: nanoseconds(ended),
            ..SpanMessage::default()
        })
    }

    /// A part of this one.
    #[must_use]
    pub fn child(
        &self,
        ids: &mut SpanIds,
        name: impl Into<String>,
        (began, ended): (SystemTime, SystemTime),
    ) -> Self {
        Self(SpanMessage {
            trace_id: self.0.trace_id.clone(),
            span_id: ids.next(),
            parent_span_id: self.0.span_id.clone(),
            flags: SAMPLED_AND_LOCAL,
            name: name.into(),
            kind: KindMessage::Internal.into(),
            start_time_unix_nano: nanoseconds(began),
            end_time_unix_nano: nanoseconds(ended),
            ..SpanMessage::default()
        })
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.0.attributes.push(attribute(key, value));
    }

    /// Adds an attribute, where there is one.
    pub fn set_some(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Adds what happened meanwhile.
    pub fn event(&mut self, name: &str, at: SystemTime) {
        self.0.events.push(Event { time_unix_nano: nanoseconds(at), name: name.to_owned() });
    }

    /// Says that it has failed, and why.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.0.status = Some(Status { message: why.into(), code: StatusCode::Error.into() });
    }
}

fn nanoseconds(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// Who tells: attributes of all spans.
#[derive(Clone, Debug)]
pub struct Resource {
    resource: ResourceAttributes,
    scope: InstrumentationScope,
}

impl Resource {
    /// With these attributes, and the name and version of what makes the spans.
    pub fn new(attributes: &[(&str, &str)], (scope, version): (&str, &str)) -> Self {
        let attributes = attributes.iter().map(|&(key, value)| attribute(key, value)).collect();
        Self {
            resource: ResourceAttributes { attributes },
            scope: InstrumentationScope { name: scope.to_owned(), version: version.to_owned() },
        }
    }

    /// The request that exports spans.
    pub(crate) fn request(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let spans = spans.into_iter().map(|Span(span)| span).collect();
        let scope = ScopeSpans { scope: Some(self.scope.clone()), spans };
        let of = ResourceSpans { resource: Some(self.resource.clone()), scope_spans: vec![scope] };
        ExportTraceServiceRequest { resource_spans: vec![of] }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prost::Message;

    use super::*;

    #[test]
    fn a_span_is_what_the_protocol_says() {
        let mut ids = SpanIds(Random::seeded(7));
        let at = |ms: u64| UNIX_EPOCH + Duration::from_millis(ms);
        let mut root = Span::root(TraceId(5), &mut ids, "root", SpanKind::Server, (at(1), at(9)));
        root.set("text", "a");
        root.set("number", 3_i64);
        root.set_some("absent", None::<i64>);
        root.set("texts", Value::Texts(vec!["b".to_owned()]));
        root.event("again", at(4));
        root.fail("refused");
        let child = root.child(&mut ids, "part", (at(2), at(3)));
        let resource = Resource::new(&[("service.name", "kaido")], ("kaido-pfcp", "1"));
        let octets = resource.request(vec![root, child]).encode_to_vec();
        let read = ExportTraceServiceRequest::decode(&*octets).unwrap();
        let spans = &read.resource_spans[0].scope_spans[0].spans;
        assert_eq!(spans[0].trace_id, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!((spans[0].span_id.len(), spans[0].parent_span_id.len()), (8, 0));
        assert_eq!((spans[0].start_time_unix_nano, spans[0].end_time_unix_nano), (1_000_000, 9_000_000));
        let keys: Vec<_> = spans[0].attributes.iter().map(|of| of.key.as_str()).collect();
        assert_eq!(keys, ["text", "number", "texts"]);
        assert_eq!(spans[0].events[0].time_unix_nano, 4_000_000);
        assert_eq!(spans[0].status.as_ref().unwrap().message, "refused");
        assert_eq!((&spans[1].trace_id, &spans[1].parent_span_id), (&spans[0].trace_id, &spans[0].span_id));
        assert_ne!(spans[1].span_id, spans[0].span_id);
    }
}
