//! Answers: documents, and why there is none.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::api::Problem;

/// A JSON document, unless who asks has it.
pub(super) fn json(body: Bytes, headers: &HeaderMap) -> Response {
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
    let mut response = (status, [(CONTENT_TYPE, "application/problem+json")], body).into_response();
    if status == StatusCode::UNAUTHORIZED {
        // What is to be shown (RFC 6750 3).
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
