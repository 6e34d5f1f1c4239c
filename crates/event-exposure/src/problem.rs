//! Why a request is refused (TS 29.500 5.2.7.2, TS 29.571 5.2.4.1).

use serde::Serialize;

/// The causes that TS 29.500 table 5.2.7.2-1 has for what goes wrong here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The name of the API, or its version, is none of ours.
    InvalidApi,
    /// The body is no JSON, or not of the form that is asked for.
    InvalidMsgFormat,
    /// A mandatory IE is not there.
    MandatoryIeMissing,
    /// A mandatory IE has a value that cannot be.
    MandatoryIeIncorrect,
    /// An optional IE has a value that cannot be, or that this node does not do.
    OptionalIeIncorrect,
    /// What may not be modified.
    ModificationNotAllowed,
    /// There is no such subscription, or it is another consumer's.
    SubscriptionNotFound,
    /// There is no session of the UE.
    ContextNotFound,
    /// There is no such resource.
    ResourceUriStructureNotFound,
    /// There are as many subscriptions as there may be.
    InsufficientResources,
    /// The node is asked too much.
    NfCongestion,
}

impl Cause {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidApi => "INVALID_API",
            Self::InvalidMsgFormat => "INVALID_MSG_FORMAT",
            Self::MandatoryIeMissing => "MANDATORY_IE_MISSING",
            Self::MandatoryIeIncorrect => "MANDATORY_IE_INCORRECT",
            Self::OptionalIeIncorrect => "OPTIONAL_IE_INCORRECT",
            Self::ModificationNotAllowed => "MODIFICATION_NOT_ALLOWED",
            Self::SubscriptionNotFound => "SUBSCRIPTION_NOT_FOUND",
            Self::ContextNotFound => "CONTEXT_NOT_FOUND",
            Self::ResourceUriStructureNotFound => "RESOURCE_URI_STRUCTURE_NOT_FOUND",
            Self::InsufficientResources => "INSUFFICIENT_RESOURCES",
            Self::NfCongestion => "NF_CONGESTION",
        }
    }

    const fn status(self) -> u16 {
        match self {
            Self::InvalidApi
            | Self::InvalidMsgFormat
            | Self::MandatoryIeMissing
            | Self::MandatoryIeIncorrect
            | Self::OptionalIeIncorrect => 400,
            Self::ModificationNotAllowed => 403,
            Self::SubscriptionNotFound | Self::ContextNotFound | Self::ResourceUriStructureNotFound => 404,
            Self::InsufficientResources => 500,
            Self::NfCongestion => 503,
        }
    }
}

/// A `ProblemDetails`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The status code of the answer.
    pub status: u16,
    /// What that means.
    pub title: &'static str,
    /// What is the matter.
    pub detail: String,
    /// Its name in TS 29.500; a plain HTTP error has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// The IE at fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub invalid_params: Vec<InvalidParam>,
}

/// An IE at fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InvalidParam {
    /// Its JSON Pointer.
    pub param: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Problem {
    /// With a cause.
    pub fn new(cause: Cause, detail: impl Into<String>) -> Self {
        let status = cause.status();
        let (cause, invalid_params) = (Some(cause.name()), Vec::new());
        Self { status, title: title(status), detail: detail.into(), cause, invalid_params }
    }

    /// Of an IE, by its JSON Pointer.
    pub fn of_ie(cause: Cause, param: impl Into<String>, reason: impl Into<String>) -> Self {
        let (param, reason) = (param.into(), reason.into());
        let problem = Self::new(cause, format!("{param}: {reason}"));
        Self { invalid_params: vec![InvalidParam { param, reason }], ..problem }
    }

    /// A plain HTTP error.
    pub fn plain(status: u16, detail: impl Into<String>) -> Self {
        let (cause, invalid_params) = (None, Vec::new());
        Self { status, title: title(status), detail: detail.into(), cause, invalid_params }
    }
}

const fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        500 => "Internal Server Error",
        _ => "Service Unavailable",
    }
}
