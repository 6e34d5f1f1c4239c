//! Questions to a running node: how each is named, where it is found over HTTP, and what the answer is.
//!
//! ```text
//!   trait Question ──▶ Route ─┬─▶ the server's router: path, query and body ──▶ Asked ──▶ FunctionView
//!                             ├─▶ the OpenAPI document
//!                             └─▶ what a command sends
//! ```

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Problem;

/// What is done with a resource (RFC 9110 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// It is read. Nothing changes.
    Get,
    /// Something is made, or done.
    Post,
    /// It is set.
    Put,
    /// It is removed.
    Delete,
}

impl Method {
    /// As it stands in a request.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// Whether parameters that are not in the path are in the body, as JSON; else in the query.
    pub const fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put)
    }
}

/// What a client may do. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Read figures in which no subscriber is named.
    Watch,
    /// Read all.
    Read,
    /// Change something.
    Operate,
}

impl Role {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

/// A question. Its fields are parameters of the request: those that the path names, in the path; the others in the query, or in the
/// body. Its doc comment is what the OpenAPI document says of it.
pub trait Question: Serialize + DeserializeOwned + JsonSchema + 'static {
    /// What it is answered with; `()` is no content.
    type Answer: Serialize + DeserializeOwned + JsonSchema + 'static;

    /// Its name: the `operationId` in OpenAPI.
    const NAME: &'static str;
    /// Method of the request.
    const METHOD: Method = Method::Get;
    /// Path of the request: `/v1/sessions/{seid}`.
    const PATH: &'static str;
    /// Who may ask.
    const ROLE: Role = Role::Read;
    /// Whether the log has who asked.
    const IS_AUDITED: bool = matches!(Self::ROLE, Role::Operate);
}

/// A question without its values.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Its name.
    pub name: &'static str,
    /// Method of the request.
    pub method: Method,
    /// Path of the request.
    pub path: &'static str,
    /// Who may ask.
    pub role: Role,
    /// Whether the log has who asked.
    pub is_audited: bool,
    /// The schema of its parameters: an object.
    pub parameters: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of its answer.
    pub answer: fn(&mut SchemaGenerator) -> Schema,
}

impl Route {
    /// That of a question.
    pub const fn of<Q: Question>() -> Self {
        Self {
            name: Q::NAME,
            method: Q::METHOD,
            path: Q::PATH,
            role: Q::ROLE,
            is_audited: Q::IS_AUDITED,
            parameters: Q::json_schema,
            answer: SchemaGenerator::subschema_for::<Q::Answer>,
        }
    }

    /// Names of the parameters in its path.
    pub fn in_path(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
    }
}

/// An answer as JSON, or why there is none.
pub type Reply = Result<Value, Problem>;

/// A question that was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub parameters: Map<String, Value>,
}

impl Asked {
    /// A question with its values.
    pub fn of<Q: Question>(question: &Q) -> Self {
        let Ok(Value::Object(parameters)) = serde_json::to_value(question) else {
            // The answer to this one is that a parameter is missing.
            return Self { name: Q::NAME, parameters: Map::new() };
        };
        Self { name: Q::NAME, parameters }
    }

    /// Answers it if it is this one; `None` where it is another.
    pub fn on<Q: Question>(&self, answer: impl FnOnce(Q) -> Result<Q::Answer, Problem>) -> Option<Reply> {
        (self.name == Q::NAME).then(|| {
            let question = serde_json::from_value(Value::Object(self.parameters.clone()))
                .map_err(|error| Problem::bad_request(error.to_string()))?;
            answer(question).and_then(|answer| {
                serde_json::to_value(answer).map_err(|error| Problem::internal(error.to_string()))
            })
        })
    }
}
