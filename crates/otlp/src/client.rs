//! A collector, and a request to it: `POST` of protobuf over HTTP/1.1 (OTLP 1.7, "OTLP/HTTP").

use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use kaido_http_client::{ClientTls, ConnectFault, HttpUri, MalformedUri, connect};
use prost::Message;
use tokio::time::timeout;

use crate::headers::Headers;
use crate::message::ExportTraceServiceResponse;
use crate::retry::retry_after;

/// How long a collector may take, from the connection to the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Octets of an answer.
const ANSWER_MAX: usize = 64 << 10;
/// Where traces go below the endpoint of the configuration.
const PATH: &str = "v1/traces";

/// Where spans go.
#[derive(Clone, Debug)]
pub struct Collector {
    to: HttpUri,
    headers: Headers,
    tls: Option<ClientTls>,
}

impl Collector {
    /// Reads the address of a collector, such as `http://127.0.0.1:4318`; traces go to `/v1/traces` below it.
    ///
    /// # Errors
    /// [`MalformedUri`], also where it has a query.
    pub fn uri(endpoint: &str) -> Result<HttpUri, MalformedUri> {
        let base = HttpUri::parse(endpoint)?;
        if base.uri.query().is_some() {
            return Err(MalformedUri);
        }
        let mut parts = base.uri.into_parts();
        let below = parts.path_and_query.as_ref().map_or("", |path| path.path().trim_end_matches('/'));
        let path: PathAndQuery = format!("{below}/{PATH}").parse().map_err(|_| MalformedUri)?;
        parts.path_and_query = Some(path);
        let uri = Uri::from_parts(parts).map_err(|_| MalformedUri)?;
        Ok(HttpUri { uri, ..base })
    }

    /// A collector there, which is sent these headers, and whose certificate is checked by `tls`.
    pub const fn new(to: HttpUri, headers: Headers, tls: Option<ClientTls>) -> Self {
        Self { to, headers, tls }
    }

    /// Host and port, for people.
    pub(crate) fn name(&self) -> String {
        self.to.uri.authority().map(ToString::to_string).unwrap_or_default()
    }
}

/// Why a collector has not taken a batch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Connect(#[from] ConnectFault),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("it has not answered in {} s", PATIENCE.as_secs())]
    Silent,
    /// It is busy, and says when it is not.
    #[error("it answers {0}")]
    Busy(StatusCode, Option<Duration>),
    #[error("it answers {0}")]
    Refused(StatusCode),
    #[error("the request cannot be written")]
    Request,
}

impl Fault {
    /// Whether the same may be taken later (OTLP 1.7, "Failures").
    pub(crate) const fn is_passing(&self) -> bool {
        !matches!(self, Self::Refused(_) | Self::Request)
    }

    /// For how long the collector wants to be left alone.
    pub(crate) const fn asked(&self) -> Option<Duration> {
        match self {
            Self::Busy(_, asked) => *asked,
            _ => None,
        }
    }
}

/// What a collector says that has taken a batch.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Spans that it has not taken, and why.
    pub(crate) rejected: u64,
    pub(crate) why: String,
}

/// The connection to a collector, which is made when it is needed.
#[derive(Debug)]
pub(crate) struct Client {
    collector: Collector,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub(crate) const fn new(collector: Collector) -> Self {
        Self { collector, connection: None }
    }

    /// Sends a batch once.
    pub(crate) async fn send(&mut self, batch: Bytes) -> Result<Taken, Fault> {
        let was_open = self.connection.is_some();
        let first = self.attempt(batch.clone()).await;
        // A collector may close a connection that was idle just when it is used again.
        match first {
            Err(Fault::Http(_)) if was_open => self.attempt(batch).await,
            other => other,
        }
    }

    async fn attempt(&mut self, batch: Bytes) -> Result<Taken, Fault> {
        timeout(PATIENCE, self.exchange(batch)).await.unwrap_or(Err(Fault::Silent))
    }

    async fn exchange(&mut self, batch: Bytes) -> Result<Taken, Fault> {
        // It is put back when an answer was read whole.
        let mut connection = match self.connection.take() {
            Some(open) if open.is_ready() => open,
            _ => self.connect().await?,
        };
        let request = request(&self.collector, batch).ok_or(Fault::Request)?;
        let (head, body) = connection.send_request(request).await?.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await;
        if body.is_ok() && connection.ready().await.is_ok() {
            self.connection = Some(connection);
        }
        match head.status {
            status if status.is_success() => Ok(taken(body.ok().map(Collected::to_bytes))),
            status @ (StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT) => {
                let asked = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let asked = asked.and_then(|value| retry_after(value, SystemTime::now()));
                Err(Fault::Busy(status, asked))
            }
            status => Err(Fault::Refused(status)),
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Fault> {
        let Collector { to, tls, .. } = &self.collector;
        let stream = connect(to, tls.as_ref(), |_| true).await?;
        let (sender, connection) = handshake(TokioIo::new(stream.into_duplex())).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to a collector has ended");
            }
        });
        Ok(sender)
    }
}

fn request(collector: &Collector, batch: Bytes) -> Option<Request<Full<Bytes>>> {
    let mut request = Request::new(Full::new(batch));
    *request.method_mut() = Method::POST;
    // HTTP/1.1 has the path in its first line and the host in a header (RFC 9112 3.2.1).
    *request.uri_mut() = Uri::from(collector.to.uri.path_and_query()?.clone());
    let host = HeaderValue::from_str(collector.to.uri.authority()?.as_str()).ok()?;
    let headers = request.headers_mut();
    headers.extend(collector.headers.0.clone());
    headers.insert(HOST, host);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("kaido/", env!("CARGO_PKG_VERSION"))));
    Some(request)
}

/// What an answer says; nothing where it cannot be read, as the batch was taken.
fn taken(answer: Option<Bytes>) -> Taken {
    let answer = answer.and_then(|octets| ExportTraceServiceResponse::decode(octets).ok());
    let partial = answer.and_then(|answer| answer.partial_success);
    partial.map_or_else(Taken::default, |partial| Taken {
        rejected: u64::try_from(partial.rejected_spans).unwrap_or(0),
        why: partial.error_message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ExportTracePartialSuccess;

    #[test]
    fn traces_go_below_the_endpoint() {
        let path = |endpoint: &str| Collector::uri(endpoint).map(|to| to.uri.to_string());
        assert_eq!(path("http://127.0.0.1:4318").unwrap(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(path("http://127.0.0.1:4318/").unwrap(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(path("https://c.example/otlp/").unwrap(), "https://c.example/otlp/v1/traces");
        assert_eq!(path("http://127.0.0.1/?a=b"), Err(MalformedUri));
        assert_eq!(path("127.0.0.1:4318"), Err(MalformedUri));
    }

    #[test]
    fn a_request_has_path_host_and_type() {
        let headers = Headers(hyper::HeaderMap::from_iter([
            (hyper::header::AUTHORIZATION, HeaderValue::from_static("Bearer t")),
            (CONTENT_TYPE, HeaderValue::from_static("text/plain")),
        ]));
        let to = Collector::uri("http://collector:4318/otlp").unwrap();
        let request = request(&Collector::new(to, headers, None), Bytes::new()).unwrap();
        assert_eq!(request.uri(), "/otlp/v1/traces");
        assert_eq!(request.headers()[HOST], "collector:4318");
        assert_eq!(request.headers()[hyper::header::AUTHORIZATION], "Bearer t");
        let types: Vec<_> = request.headers().get_all(CONTENT_TYPE).iter().collect();
        assert_eq!(types, ["application/x-protobuf"]);
    }

    #[test]
    fn spans_that_were_not_taken_are_known() {
        let answer = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 2,
                error_message: "too old".to_owned(),
            }),
        };
        let Taken { rejected, why } = taken(Some(answer.encode_to_vec().into()));
        assert_eq!((rejected, &*why), (2, "too old"));
        assert_eq!(taken(Some(Bytes::from_static(b"\xff"))).rejected, 0);
        assert_eq!(taken(None).rejected, 0);
    }
}
