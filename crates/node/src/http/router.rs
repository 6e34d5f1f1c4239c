//! Paths, and what answers them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, RawPathParams, RawQuery, Request};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on};
use kaido_metrics::Format;
use serde_json::Value;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate};

use super::access::Access;
use super::parameters::Parameters;
use super::{Served, openapi, stream};
use crate::api::{Asked, Method, Problem, Route};
use crate::questions::PATIENCE;

/// Most octets of a request's body.
const BODY_MAX: usize = 64 << 10;

/// All paths, as who has that access sees them.
pub(super) fn router(served: &Arc<Served>, access: Access) -> Router {
    let mut router = Router::new();
    for route in &served.sources.routes {
        router = router.route(route.path, question(*route, served.clone(), access));
    }
    let (metrics, health, ready, document, events, capture, other) = (
        served.clone(),
        served.clone(),
        served.clone(),
        served.clone(),
        served.clone(),
        served.clone(),
        served.clone(),
    );
    router
        .route("/", get(index))
        .route("/metrics", get(async move |headers: HeaderMap| exposition(&metrics, &headers).await))
        .route("/healthz", get(async move || well(&health.sources.health.troubles())))
        .route("/readyz", get(async move || well(&not_ready(&ready))))
        .route(
            openapi::PATH,
            get(async move |headers: HeaderMap| json(document.document.clone().into(), &headers)),
        )
        .route("/v1/events", get(async move |query: RawQuery| stream::events(events, &query)))
        .route("/v1/capture", get(async move |query: RawQuery| stream::capture(capture, access, query).await))
        .fallback(async move |uri: Uri| refused(&Problem::not_found(nothing_at(&other, uri.path()))))
        .method_not_allowed_fallback(async |method: HttpMethod, uri: Uri| {
            let path = uri.path();
            refused(&Problem::method_not_allowed(format!(
                "there is no {method} of {path}; see {}",
                openapi::PATH
            )))
        })
        .layer(CompressionLayer::new().compress_when(compressed()))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn(move |request: Request, next: Next| async move {
            match access.check_host(request.headers()) {
                Ok(()) => next.run(request).await,
                Err(problem) => refused(&problem),
            }
        }))
}

/// What is worth compressing: no stream.
fn compressed() -> impl Predicate {
    DefaultPredicate::new().and(NotForContentType::const_new(stream::PCAPNG))
}

fn question(route: Route, served: Arc<Served>, access: Access) -> MethodRouter {
    let parameters = Arc::new(Parameters::of(&route));
    let filter = match route.method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Delete => MethodFilter::DELETE,
    };
    on(
        filter,
        async move |path: RawPathParams,
                    RawQuery(query): RawQuery,
                    headers: HeaderMap,
                    body: Result<Bytes, BytesRejection>| {
            let answered = async {
                access.check(&route)?;
                let body = body_of(&headers, body)?;
                let parameters = parameters.read(path.iter(), query.as_deref().unwrap_or_default(), &body)?;
                served.sources.node.ask(Asked { name: route.name, parameters }).await?
            };
            match answered.await {
                Ok(Value::Null) => StatusCode::NO_CONTENT.into_response(),
                Ok(answer) => json(answer.to_string().into(), &headers),
                Err(problem) => refused(&problem),
            }
        },
    )
}

fn body_of(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<Bytes, Problem> {
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::too_large(format!("the body of a request has at most {BODY_MAX} octets"))
        }
        _ => Problem::bad_request(rejection.body_text()),
    })?;
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_json = kind
        .split(|&octet| octet == b';')
        .next()
        .is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"application/json"));
    if body.is_empty() || is_json {
        return Ok(body);
    }
    Err(Problem::unsupported("the body of a request is JSON, with Content-Type: application/json".to_owned()))
}

/// A JSON document, unless who asks has it.
fn json(body: Bytes, headers: &HeaderMap) -> Response {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|known| known.to_str().ok());
    // A proxy may have made it weak (RFC 9110 13.1.2 compares them so).
    let mut known =
        known.flat_map(|known| known.split(',')).map(|known| known.trim().trim_start_matches("W/"));
    let is_known = known.any(|known| known == tag || known == "*");
    let head = [(ETAG, tag), (CACHE_CONTROL, "no-cache".to_owned())];
    match is_known {
        true => (StatusCode::NOT_MODIFIED, head).into_response(),
        false => (head, [(CONTENT_TYPE, "application/json")], Body::from(body)).into_response(),
    }
}

/// Why there is no answer.
pub(super) fn refused(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_string(problem).unwrap_or_default();
    (status, [(CONTENT_TYPE, "application/problem+json")], body).into_response()
}

async fn index() -> &'static str {
    "Kaido: /metrics for Prometheus, /healthz, /readyz, and what /v1/openapi.json says\n"
}

async fn exposition(served: &Served, headers: &HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::for_accept(accept);
    match served.sources.metrics.ask(format).await {
        Ok(Some(text)) => ([(CONTENT_TYPE, format.content_type())], text).into_response(),
        Ok(None) => {
            let seconds = PATIENCE.as_secs();
            refused(&Problem::unavailable(format!("a control loop has not answered for {seconds} s")))
        }
        Err(problem) => refused(&problem),
    }
}

fn not_ready(served: &Served) -> Vec<String> {
    let mut troubles = served.sources.health.troubles();
    if served.sources.leaving.is_busy() {
        troubles.push("another process takes over".to_owned());
    }
    troubles
}

/// All is well, or what is the matter, a line each.
fn well(troubles: &[String]) -> Response {
    match troubles {
        [] => "ok\n".into_response(),
        troubles => (StatusCode::SERVICE_UNAVAILABLE, troubles.join("\n") + "\n").into_response(),
    }
}

fn nothing_at(served: &Served, path: &str) -> String {
    let functions: Vec<_> = served.sources.functions.iter().map(|name| format!("\"{name}\"")).collect();
    let functions = functions.join(", ");
    format!("function {functions} of this node has no {path}; {} says what there is", openapi::PATH)
}
