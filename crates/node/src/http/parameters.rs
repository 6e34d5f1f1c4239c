//! The parameters of a request, brought into the form of its question: names in path and query are typed by the question's schema.

use std::collections::BTreeMap;

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::api::{Problem, Route};
use crate::show::number;

/// What a parameter in a path or a query is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Truth,
    /// May be given several times.
    Texts,
}

/// How the parameters of a route are read.
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    kinds: BTreeMap<String, Kind>,
    has_body: bool,
}

impl Parameters {
    /// Of a route.
    pub(super) fn of(route: &Route) -> Self {
        Self::of_schema(route.parameters, route.method.has_body())
    }

    /// Of a request with that schema, and with a body or none.
    pub(super) fn of_schema(schema: fn(&mut SchemaGenerator) -> Schema, has_body: bool) -> Self {
        let schema = schema(&mut SchemaGenerator::default());
        let properties = schema.get("properties").and_then(Value::as_object);
        let kinds = properties.into_iter().flatten().map(|(name, schema)| (name.clone(), kind(schema)));
        Self { kinds: kinds.collect(), has_body }
    }

    /// Reads them.
    ///
    /// # Errors
    /// What is not as the schema says, or given twice.
    pub(super) fn read<'p>(
        &self,
        path: impl Iterator<Item = (&'p str, &'p str)>,
        query: &str,
        body: &[u8],
    ) -> Result<Map<String, Value>, Problem> {
        let mut read = match body {
            [] => Map::new(),
            _ if !self.has_body => return Err(bad("this request has no body".to_owned())),
            body => match serde_json::from_slice(body) {
                Ok(Value::Object(fields)) => fields,
                Ok(_) => return Err(bad("the body is no JSON object".to_owned())),
                Err(error) => return Err(bad(format!("the body is no JSON: {error}"))),
            },
        };
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        if self.has_body && !query.is_empty() {
            return Err(bad("the parameters of this request are in its body, as JSON".to_owned()));
        }
        for (name, value) in path {
            self.add(&mut read, name, value)?;
        }
        for (name, value) in &query {
            self.add(&mut read, name, value)?;
        }
        Ok(read)
    }

    fn add(&self, read: &mut Map<String, Value>, name: &str, text: &str) -> Result<(), Problem> {
        let kind = self.kinds.get(name).copied();
        let kind = kind.ok_or_else(|| bad(format!("{name}: there is no such parameter")))?;
        match (read.get_mut(name), typed(kind, name, text)?) {
            (Some(Value::Array(values)), Value::Array(more)) => values.extend(more),
            (Some(_), _) => return Err(bad(format!("{name}: it is given twice"))),
            (None, value) => {
                read.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }
}

fn typed(kind: Kind, name: &str, text: &str) -> Result<Value, Problem> {
    match kind {
        Kind::Text => Ok(text.into()),
        Kind::Texts => Ok(vec![text].into()),
        Kind::Number => number(text).map(Value::from).ok_or_else(|| {
            bad(format!("{name}: `{text}` is no number; write a decimal one, or one such as 0x3ef"))
        }),
        Kind::Truth => text
            .parse::<bool>()
            .map(Value::from)
            .map_err(|_| bad(format!("{name}: `{text}` is neither true nor false"))),
    }
}

fn kind(schema: &Value) -> Kind {
    let is = |wanted: &str| match schema.get("type") {
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
        _ => false,
    };
    match () {
        () if is("integer") => Kind::Number,
        () if is("boolean") => Kind::Truth,
        () if is("array") => Kind::Texts,
        () => Kind::Text,
    }
}

const fn bad(detail: String) -> Problem {
    Problem::bad_request(detail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;
    use crate::api::{Method, Question};

    #[derive(Debug, Serialize, Deserialize, JsonSchema)]
    struct Found {
        id: u32,
        seid: Option<u64>,
        #[serde(default)]
        all: bool,
        name: Option<String>,
        #[serde(default)]
        port: Vec<String>,
    }

    impl Question for Found {
        type Answer = ();
        const NAME: &'static str = "find";
        const PATH: &'static str = "/v1/x/{id}";
    }

    #[derive(Debug, Serialize, Deserialize, JsonSchema)]
    struct Made {
        id: u32,
        name: String,
    }

    impl Question for Made {
        type Answer = ();
        const NAME: &'static str = "make";
        const METHOD: Method = Method::Post;
        const PATH: &'static str = "/v1/x/{id}";
    }

    fn find(query: &str) -> Result<Value, String> {
        let parameters = Parameters::of(&Route::of::<Found>());
        let read = parameters.read([("id", "7")].into_iter(), query, &[]);
        read.map(Value::Object).map_err(|problem| problem.detail)
    }

    #[test]
    fn names_in_a_query_are_typed() {
        assert_eq!(find(""), Ok(json!({ "id": 7 })));
        assert_eq!(
            find("seid=0x8000000000000001&all=true&name=a%20b+c&port=n3&port=n6"),
            Ok(json!({
                "id": 7, "seid": 0x8000_0000_0000_0001_u64, "all": true, "name": "a b c", "port": ["n3", "n6"]
            }))
        );
        for (query, why) in [
            ("seid=x", "seid: `x` is no number"),
            ("seid=-1", "is no number"),
            ("all=1", "neither true nor false"),
            ("what=1", "what: there is no such parameter"),
            ("name=a&name=b", "name: it is given twice"),
            ("id=8", "id: it is given twice"),
        ] {
            assert!(find(query).unwrap_err().contains(why), "{query}");
        }
    }

    #[test]
    fn a_body_has_what_is_not_in_the_path() {
        let parameters = Parameters::of(&Route::of::<Made>());
        let make = |query: &str, body: &str| {
            let read = parameters.read([("id", "7")].into_iter(), query, body.as_bytes());
            read.map(Value::Object).map_err(|problem| problem.detail)
        };
        assert_eq!(make("", r#"{"name": "a"}"#), Ok(json!({ "id": 7, "name": "a" })));
        assert_eq!(make("", ""), Ok(json!({ "id": 7 })));
        for (query, body, why) in [
            ("", "[]", "no JSON object"),
            ("", "{", "no JSON"),
            ("", r#"{"id": 8}"#, "given twice"),
            ("name=a", "", "in its body"),
        ] {
            assert!(make(query, body).unwrap_err().contains(why), "{query} {body}");
        }
        let found = Parameters::of(&Route::of::<Found>());
        assert!(found.read(std::iter::empty(), "", b"{}").unwrap_err().detail.contains("no body"));
    }

    proptest! {
        #[test]
        fn any_query_and_body_are_read(query in "\\PC{0,40}", body in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = find(&query);
            let _ = Parameters::of(&Route::of::<Made>()).read(std::iter::empty(), &query, &body);
        }
    }
}
