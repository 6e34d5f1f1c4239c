//! What a command asks a node by: HTTP over its control socket.

use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use miette::{IntoDiagnostic, WrapErr, miette};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::net::UnixStream;
use tokio::runtime;
use tokio::time::timeout;

use crate::api::{Problem, Question, Route};

/// How often a node is asked that ends before it answers.
const TRIES: usize = 3;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most octets of an answer.
const ANSWER_MAX: usize = 1 << 30;
/// What stands for itself in a URI (RFC 3986 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Asks a node.
///
/// # Errors
/// When no node answers, it is of another version, or refuses.
pub fn ask<Q: Question>(socket: &Path, question: &Q) -> miette::Result<Q::Answer> {
    let other_version = "the node is of another version";
    let request = Outgoing::of(question).wrap_err("the question cannot be written")?;
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.into_diagnostic().wrap_err("cannot wait for an answer")?;
    // A process that another takes over from may end before it has answered: then the other does.
    let mut tries = (0..TRIES).map(|_| runtime.block_on(exchange(socket, &request)));
    let answer = tries.find(|answer| !matches!(answer, Ok(Incoming::Broken)));
    match answer.transpose()? {
        Some(Incoming::Answer(body)) if body.is_empty() => {
            serde_json::from_value(Value::Null).into_diagnostic().wrap_err(other_version)
        }
        Some(Incoming::Answer(body)) => {
            serde_json::from_slice(&body).into_diagnostic().wrap_err(other_version)
        }
        Some(Incoming::Refused(body)) => Err(match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => miette!("the node refused the question: {}", problem.detail),
            Err(_) => miette!("the node refused the question: {}", String::from_utf8_lossy(&body)),
        }),
        Some(Incoming::Broken) | None => {
            Err(miette!("the node does not answer: it ends each time before it has"))
        }
    }
}

/// A request.
#[derive(Debug)]
struct Outgoing {
    method: &'static str,
    target: String,
    body: String,
}

/// What came back.
enum Incoming {
    Answer(Bytes),
    Refused(Bytes),
    /// None: the connection ended first.
    Broken,
}

impl Outgoing {
    fn of<Q: Question>(question: &Q) -> miette::Result<Self> {
        let route = Route::of::<Q>();
        let mut parameters = fields(question)?;
        let mut target = String::new();
        for segment in route.path.split('/').skip(1) {
            target.push('/');
            match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                Some(name) => {
                    let value = parameters.remove(name).ok_or_else(|| miette!("it has no {name}"))?;
                    target.push_str(&encoded(&value));
                }
                None => target.push_str(segment),
            }
        }
        let mut body = String::new();
        if route.method.has_body() {
            body = Value::Object(parameters).to_string();
        } else {
            let flat = parameters.into_iter().flat_map(|(name, value)| match value {
                Value::Null => Vec::new(),
                Value::Array(values) => {
                    values.iter().map(|value| format!("{name}={}", encoded(value))).collect()
                }
                value => vec![format!("{name}={}", encoded(&value))],
            });
            let query: Vec<_> = flat.collect();
            if !query.is_empty() {
                target.push('?');
                target.push_str(&query.join("&"));
            }
        }
        Ok(Self { method: route.method.name(), target, body })
    }
}

fn fields(question: &impl Serialize) -> miette::Result<Map<String, Value>> {
    match serde_json::to_value(question).into_diagnostic()? {
        Value::Object(fields) => Ok(fields),
        _ => Err(miette!("it is no object")),
    }
}

fn encoded(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    utf8_percent_encode(&text, ENCODED).to_string()
}

async fn exchange(socket: &Path, request: &Outgoing) -> miette::Result<Incoming> {
    let stream = UnixStream::connect(socket).await.map_err(|error| {
        let help = match error.kind() {
            ErrorKind::PermissionDenied => {
                "root and the node's user may ask, and who is in its control.group"
            }
            _ => "is `kaido run` running, and is its control.socket this path? Name another with --socket",
        };
        miette!(help = help, "cannot reach a node at {}: {error}", socket.display())
    })?;
    let answered = timeout(PATIENCE, answer(stream, request)).await;
    let answered = answered.into_diagnostic().wrap_err("the node does not answer")?;
    answered.or_else(|error| match error {
        Broken::Ended => Ok(Incoming::Broken),
        Broken::NotHttp(why) => {
            Err(miette!("what answers at {} is no node of this version: {why}", socket.display()))
        }
    })
}

/// Why there is no answer.
enum Broken {
    /// The connection ended first.
    Ended,
    NotHttp(String),
}

impl From<hyper::Error> for Broken {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse() { Self::NotHttp(error.to_string()) } else { Self::Ended }
    }
}

async fn answer(stream: UnixStream, request: &Outgoing) -> Result<Incoming, Broken> {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let sent = Request::builder().method(request.method).uri(&request.target).header(HOST, "localhost");
        let sent = sent.header(CONTENT_TYPE, "application/json");
        let sent = sent.body(Full::new(Bytes::from(request.body.clone())));
        let sent = sent.map_err(|error| Broken::NotHttp(error.to_string()))?;
        let response = sender.send_request(sent).await?;
        let is_answer = response.status().is_success();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|_| Broken::Ended)?.to_bytes();
        Ok(if is_answer { Incoming::Answer(body) } else { Incoming::Refused(body) })
    };
    let mut exchange = pin!(exchange);
    tokio::select! {
        answered = exchange.as_mut() => answered,
        // It ends when there is nothing more to come, which may be a while before all is read.
        ended = connection => {
            ended?;
            exchange.await
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::api::Method;

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Find {
        name: String,
        seid: Option<u64>,
        ue: Option<String>,
        port: Vec<String>,
    }

    impl Question for Find {
        type Answer = ();
        const NAME: &'static str = "find";
        const PATH: &'static str = "/v1/x/{name}/y";
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Make {
        id: u32,
        dry_run: bool,
    }

    impl Question for Make {
        type Answer = ();
        const NAME: &'static str = "make";
        const METHOD: Method = Method::Post;
        const PATH: &'static str = "/v1/x/{id}";
    }

    #[test]
    fn parameters_are_in_path_query_or_body() {
        let find = Find {
            name: "eth0/1 a".to_owned(),
            seid: Some(7),
            ue: None,
            port: ["n3", "n&6"].map(str::to_owned).to_vec(),
        };
        let request = Outgoing::of(&find).unwrap();
        assert_eq!((request.method, &*request.body), ("GET", ""));
        assert_eq!(request.target, "/v1/x/eth0%2F1%20a/y?port=n3&port=n%266&seid=7");
        let request = Outgoing::of(&Make { id: 3, dry_run: true }).unwrap();
        assert_eq!((request.method, &*request.target), ("POST", "/v1/x/3"));
        assert_eq!(request.body, r#"{"dry_run":true}"#);
    }
}
