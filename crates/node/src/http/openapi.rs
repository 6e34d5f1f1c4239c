//! The OpenAPI 3.1 document of a node: made of its routes, whose schemas and sentences come from the types of questions and answers.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::stream::{CaptureQuery, EventsQuery};
use crate::api::{Problem, ROUTES, Role, Route};
use crate::function::NetworkFunction;

/// Where the document is.
pub(super) const PATH: &str = "/v1/openapi.json";

/// The routes of a node with those functions.
pub(crate) fn routes<'f>(functions: impl Iterator<Item = &'f dyn NetworkFunction>) -> Vec<Route> {
    ROUTES.iter().chain(functions.flat_map(NetworkFunction::routes)).copied().collect()
}

/// The document of a node with those functions.
pub fn openapi<'f>(functions: impl Iterator<Item = &'f dyn NetworkFunction>) -> Value {
    document(&routes(functions))
}

/// The document of those routes.
pub(super) fn document(routes: &[Route]) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in routes {
        let operation = operation(route, &mut generator);
        add(&mut paths, route.path, &route.method.name().to_lowercase(), operation);
    }
    for (path, operation) in others(&mut generator) {
        add(&mut paths, path, "get", operation);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Kaido",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A running node. The control socket answers all of it, the metrics endpoint what needs the role `watch`, and the socket of `api.listen` what the role of a token allows.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        // None is needed at the control socket, and at the metrics endpoint.
        "security": [{}, { "token": [] }],
    })
}

fn add(paths: &mut Map<String, Value>, path: &str, method: &str, operation: Value) {
    let item = paths.entry(path).or_insert_with(|| json!({}));
    if let Some(item) = item.as_object_mut() {
        item.insert(method.to_owned(), operation);
    }
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let schema = (route.parameters)(generator).to_value();
    let in_path: Vec<_> = route.in_path().collect();
    let (named, rest) = parts(&schema, |name| in_path.contains(&name) || !route.method.has_body());
    let parameters: Vec<_> = named
        .into_iter()
        .map(|(name, schema, required)| {
            parameter(&name, schema, required, if in_path.contains(&&*name) { "path" } else { "query" })
        })
        .collect();
    let answer = (route.answer)(generator).to_value();
    let has_content = answer.get("type").is_none_or(|kind| kind != "null");
    let responses = if has_content {
        json!({ "200": content("The answer.", "application/json", &answer), "default": problem(generator) })
    } else {
        json!({ "204": { "description": "Done." }, "default": problem(generator) })
    };
    let mut operation = json!({
        "operationId": route.name,
        "tags": [tag(route.path)],
        "summary": schema.get("description").and_then(Value::as_str).unwrap_or_default(),
        "parameters": parameters,
        "responses": responses,
        "x-role": route.role.name(),
    });
    if let (true, Some(fields)) = (route.method.has_body() && !rest.is_empty(), operation.as_object_mut()) {
        fields.insert("requestBody".to_owned(), body(rest));
    }
    operation
}

/// A property: its name, its schema, and whether it must be there.
type Property = (String, Value, bool);

/// The properties of an object that are wanted, and the others.
fn parts(schema: &Value, is_wanted: impl Fn(&str) -> bool) -> (Vec<Property>, Vec<Property>) {
    let required = |name: &str| {
        schema.get("required").and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == name))
    };
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties
        .map(|(name, schema)| (name.clone(), schema.clone(), required(name)))
        .partition(|(name, ..)| is_wanted(name))
}

fn parameter(name: &str, mut schema: Value, required: bool, place: &str) -> Value {
    let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
    let mut parameter = json!({ "name": name, "in": place, "required": required, "schema": schema });
    if let (Some(description), Some(fields)) = (description, parameter.as_object_mut()) {
        fields.insert("description".to_owned(), description);
    }
    parameter
}

fn body(properties: Vec<Property>) -> Value {
    let required: Vec<_> =
        properties.iter().filter(|(.., required)| *required).map(|(name, ..)| name.clone()).collect();
    let is_required = !required.is_empty();
    let properties: Map<_, _> = properties.into_iter().map(|(name, schema, _)| (name, schema)).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if let (true, Some(fields)) = (is_required, schema.as_object_mut()) {
        fields.insert("required".to_owned(), required.into());
    }
    json!({ "required": is_required, "content": { "application/json": { "schema": schema } } })
}

/// What is no question: exposition, health, streams, this document.
fn others(generator: &mut SchemaGenerator) -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let mut get =
        |name: &str, path: &'static str, summary: &str, query: Option<Value>, answers: Value, role: Role| {
            let (named, _) = parts(&query.unwrap_or_default(), |_| true);
            let parameters: Vec<_> = named
                .into_iter()
                .map(|(name, schema, required)| parameter(&name, schema, required, "query"))
                .collect();
            let mut responses = answers;
            if let Some(responses) = responses.as_object_mut() {
                responses.insert("default".to_owned(), problem(generator));
            }
            let operation = json!({
                "operationId": name, "tags": [tag(path)], "summary": summary, "parameters": parameters,
                "responses": responses, "x-role": role.name(),
            });
            (path, operation)
        };
    let schema_of = |schema: schemars::Schema| Some(schema.to_value());
    let events = schema_of(EventsQuery::json_schema(&mut SchemaGenerator::default()));
    let capture = schema_of(CaptureQuery::json_schema(&mut SchemaGenerator::default()));
    let well = || {
        json!({
            "200": content("All is well.", "text/plain", &text()),
            "503": content("What is the matter, a line each.", "text/plain", &text()),
        })
    };
    vec![
        get(
            "get_metrics",
            "/metrics",
            "Counters for a Prometheus that scrapes.",
            None,
            json!({ "200": {
                "description": "In the form that the Accept header prefers.",
                "content": {
                    "text/plain": { "schema": text() }, "application/openmetrics-text": { "schema": text() },
                },
            } }),
            Role::Watch,
        ),
        get(
            "get_health",
            "/healthz",
            "Whether ports are up and control loops turn.",
            None,
            well(),
            Role::Watch,
        ),
        get(
            "get_readiness",
            "/readyz",
            "Whether the node is healthy and no other process takes over from it.",
            None,
            well(),
            Role::Watch,
        ),
        get(
            "stream_events",
            "/v1/events",
            "The node and its drops as server-sent events, again and again: `node` and `drops`, as /v1/node and /v1/drops have them.",
            events,
            json!({ "200": content("Events until the client leaves.", "text/event-stream", &text()) }),
            Role::Watch,
        ),
        get(
            "stream_capture",
            "/v1/capture",
            "A trace as a pcapng file that grows, until there are enough packets, the time is over, or the client leaves.",
            capture,
            json!({ "200": content(
                "A pcapng file.", "application/x-pcapng", &json!({ "type": "string", "format": "binary" })
            ) }),
            Role::Operate,
        ),
        get(
            "get_openapi",
            PATH,
            "This document.",
            None,
            json!({ "200": content("OpenAPI 3.1.", "application/json", &json!({ "type": "object" })) }),
            Role::Watch,
        ),
    ]
}

fn content(description: &str, kind: &str, schema: &Value) -> Value {
    json!({ "description": description, "content": { kind: { "schema": schema } } })
}

fn problem(generator: &mut SchemaGenerator) -> Value {
    content(
        "Why there is no answer (RFC 9457).",
        "application/problem+json",
        &generator.subschema_for::<Problem>().to_value(),
    )
}

/// What a path is about: its first word behind the version.
fn tag(path: &str) -> &str {
    let path = path.strip_prefix("/v1/").unwrap_or(path).trim_start_matches('/');
    path.split('/').next().unwrap_or(path)
}
