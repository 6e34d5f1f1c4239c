//! Why a question has no answer, as HTTP says it (RFC 9457).

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a question has no answer: `application/problem+json` (RFC 9457 3). Its type is `about:blank`: the status says it all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The status code of the answer.
    #[schemars(range(min = 400, max = 599))]
    pub status: u16,
    /// What that means.
    pub title: Cow<'static, str>,
    /// What is the matter, and how to mend it.
    pub detail: String,
}

impl Problem {
    const fn of(status: u16, title: &'static str, detail: String) -> Self {
        Self { status, title: Cow::Borrowed(title), detail }
    }

    /// The question is not understood, or a value cannot be.
    pub const fn bad_request(detail: String) -> Self {
        Self::of(400, "Bad Request", detail)
    }

    /// Who asks is not known.
    pub const fn unauthorized(detail: String) -> Self {
        Self::of(401, "Unauthorized", detail)
    }

    /// Who asks may not.
    pub const fn forbidden(detail: String) -> Self {
        Self::of(403, "Forbidden", detail)
    }

    /// What is asked for is not there.
    pub const fn not_found(detail: String) -> Self {
        Self::of(404, "Not Found", detail)
    }

    /// The path is known, with another method.
    pub const fn method_not_allowed(detail: String) -> Self {
        Self::of(405, "Method Not Allowed", detail)
    }

    /// It cannot be done as things are now.
    pub const fn conflict(detail: String) -> Self {
        Self::of(409, "Conflict", detail)
    }

    /// There is too much in the request.
    pub const fn too_large(detail: String) -> Self {
        Self::of(413, "Content Too Large", detail)
    }

    /// The body is not JSON.
    pub const fn unsupported(detail: String) -> Self {
        Self::of(415, "Unsupported Media Type", detail)
    }

    /// The request is for another host.
    pub const fn misdirected(detail: String) -> Self {
        Self::of(421, "Misdirected Request", detail)
    }

    /// What would answer does not, or has too much to do.
    pub const fn unavailable(detail: String) -> Self {
        Self::of(503, "Service Unavailable", detail)
    }

    /// A fault of the node.
    pub const fn internal(detail: String) -> Self {
        Self::of(500, "Internal Server Error", detail)
    }
}
