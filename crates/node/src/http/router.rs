//! Paths, and what answers them.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, RawPathParams, RawQuery, Request};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on};
use axum::{Extension, Router};
use kaido_metrics::Format;
use serde_json::Value;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate};

use super::access::{Access, Caller, Peer};
use super::answer::{json, refused};
use super::page::with_page;
use super::parameters::Parameters;
use super::{Served, openapi, stream};
use crate::api::{Asked, Method, Problem, Role, Route};
use crate::questions::PATIENCE;

/// Says which role who asks has, so that a page offers nothing else.
const ROLE: HeaderName = HeaderName::from_static("kaido-role");
/// Most octets of a request's body.
const BODY_MAX: usize = 64 << 10;

/// All paths, as who has that access sees them.
pub(super) fn router(served: &Arc<Served>, access: Access) -> Router {
    let own = served.clone();
    let mut router = Router::new();
    for route in &served.sources.routes {
        router = router.route(route.path, question(*route, served.clone()));
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
    with_page(router)
        .route(
            "/metrics",
            get(async move |caller: Extension<Caller>, headers: HeaderMap| {
                exposition(&metrics, &caller, &headers).await
            }),
        )
        .route("/healthz", get(async move || well(&health.sources.health.troubles())))
        .route("/readyz", get(async move || well(&not_ready(&ready))))
        .route(
            openapi::PATH,
            get(async move |headers: HeaderMap| json(document.document.clone().into(), &headers)),
        )
        .route(
            "/v1/events",
            get(async move |caller: Extension<Caller>, query: RawQuery| {
                stream::events(events, &caller, &query)
            }),
        )
        .route(
            "/v1/capture",
            get(async move |caller: Extension<Caller>, query: RawQuery| {
                stream::capture(capture, &caller, query).await
            }),
        )
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
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            let (served, access) = (own.clone(), access.clone());
            async move { admit(&served, &access, request, next).await }
        }))
}

/// Passes a request on with who asks, and logs who is refused.
async fn admit(served: &Served, access: &Access, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let admitted = match access.check_host(request.headers()) {
        Ok(()) => access.caller(request.headers(), &peer).await,
        Err(problem) => Err(problem),
    };
    let (response, who) = match admitted {
        Ok(caller) => {
            let (who, role) = (caller.name.clone(), caller.role);
            request.extensions_mut().insert(caller);
            let mut response = next.run(request).await;
            let role = role.map(|role| HeaderValue::from_static(role.name()));
            response.headers_mut().extend(role.map(|role| (ROLE, role)));
            (response, who)
        }
        Err(problem) => (refused(&problem), peer.place),
    };
    let is_refused = matches!(response.status().as_u16(), 401 | 403 | 421);
    if is_refused && served.refusals.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now()) {
        tracing::warn!(who, %method, path, status = response.status().as_u16(), "a request was refused");
    }
    response
}

/// What is worth compressing: no stream.
fn compressed() -> impl Predicate {
    DefaultPredicate::new().and(NotForContentType::const_new(stream::PCAPNG))
}

fn question(route: Route, served: Arc<Served>) -> MethodRouter {
    let parameters = Arc::new(Parameters::of(&route));
    let filter = match route.method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Delete => MethodFilter::DELETE,
    };
    on(
        filter,
        async move |caller: Extension<Caller>,
                    path: RawPathParams,
                    RawQuery(query): RawQuery,
                    headers: HeaderMap,
                    body: Result<Bytes, BytesRejection>| {
            let answered = async {
                caller.may(route.role)?;
                let body = body_of(&headers, body)?;
                let parameters = parameters.read(path.iter(), query.as_deref().unwrap_or_default(), &body)?;
                let told = route.is_audited.then(|| Value::Object(parameters.clone()).to_string());
                let reply = served.sources.node.ask(Asked { name: route.name, parameters }).await?;
                if let Some(parameters) = told {
                    let outcome = reply.as_ref().err().map_or("done", |problem| &*problem.detail);
                    tracing::info!(target: "audit", who = caller.name, what = route.name, parameters, outcome);
                }
                reply
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

async fn exposition(served: &Served, caller: &Caller, headers: &HeaderMap) -> Response {
    if let Err(problem) = caller.may(Role::Watch) {
        return refused(&problem);
    }
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
