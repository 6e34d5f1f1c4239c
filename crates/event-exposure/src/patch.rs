//! JSON Patch (RFC 6902) of a subscription's document. All of it is done, or nothing.

use serde_json::Value;

use crate::ie::{Ies, Presence, list, text};
use crate::problem::{Cause, Problem};

/// Operations of a patch.
const OPERATIONS_MAX: usize = 64;
/// Octets of a pointer.
const POINTER_MAX: usize = 1024;
/// A pointer may begin with the attribute that has the document in the answer to its creation.
const DOCUMENT: &str = "/subscription";
/// What may not become another: a subscription is about one UE, and of one consumer.
const FIXED: [&str; 7] = ["ueIpAddress", "supi", "gpsi", "pei", "anyUe", "dnn", "nfId"];

/// The document as a patch makes it.
///
/// # Errors
/// The operation at fault.
pub(crate) fn apply(document: &Value, patch: &Value) -> Result<Value, Problem> {
    let operations = list(patch, OPERATIONS_MAX)
        .map_err(|why| Problem::new(Cause::InvalidMsgFormat, format!("the patch: {why}")))?;
    let mut patched = document.clone();
    for (number, operation) in operations.iter().enumerate() {
        let ies = Ies::of(operation, &format!("/{number}"), Presence::Mandatory)?;
        let at = |value| pointer(value);
        let name = ies.mandatory("op", |value| text(value, POINTER_MAX))?;
        let path = ies.mandatory("path", at)?;
        let value = || ies.mandatory("value", |value| Ok::<_, String>(value.clone()));
        let done = match name {
            "add" => add(&mut patched, &path, value()?),
            "remove" => remove(&mut patched, &path).map(drop),
            "replace" => replace(&mut patched, &path, value()?),
            "test" if patched.pointer(&path) == Some(&value()?) => Ok(()),
            "test" => Err("the value is another".to_owned()),
            "copy" => {
                let from = ies.mandatory("from", at)?;
                let copied = patched.pointer(&from).cloned().ok_or_else(|| nothing(&from));
                copied.and_then(|value| add(&mut patched, &path, value))
            }
            "move" => {
                let from = ies.mandatory("from", at)?;
                if path.starts_with(&format!("{from}/")) {
                    Err("it would be moved into itself".to_owned())
                } else {
                    remove(&mut patched, &from).and_then(|value| add(&mut patched, &path, value))
                }
            }
            _ => Err(format!("`{name}` is no operation")),
        };
        done.map_err(|why| Problem::of_ie(Cause::MandatoryIeIncorrect, format!("/{number}"), why))?;
        // A copy of a whole may grow with each operation.
        if patched.to_string().len() > crate::BODY_MAX {
            return Err(Problem::plain(413, "the patched subscription is too large"));
        }
    }
    for name in FIXED {
        if document.get(name) != patched.get(name) {
            let why = "this may not be modified: subscribe anew";
            return Err(Problem::of_ie(Cause::ModificationNotAllowed, format!("/{name}"), why));
        }
    }
    Ok(patched)
}

fn nothing(path: &str) -> String {
    format!("there is nothing at {path}")
}

fn pointer(value: &Value) -> Result<String, String> {
    let path = value.as_str().filter(|path| path.len() <= POINTER_MAX).ok_or("it is no JSON Pointer")?;
    let path = match path.strip_prefix(DOCUMENT) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
        _ => path,
    };
    match path.is_empty() || path.starts_with('/') {
        true => Ok(path.to_owned()),
        false => Err("it is no JSON Pointer".to_owned()),
    }
}

/// The parent of a place, and its name there.
fn parent<'d>(document: &'d mut Value, path: &str) -> Result<(&'d mut Value, String), String> {
    let (before, name) = path.rsplit_once('/').ok_or("the whole cannot be patched")?;
    let parent = document.pointer_mut(before).ok_or_else(|| nothing(before))?;
    Ok((parent, name.replace("~1", "/").replace("~0", "~")))
}

fn index(name: &str) -> Option<usize> {
    let is_canonical = name == "0" || !name.starts_with('0');
    name.parse().ok().filter(|_| is_canonical && name.bytes().all(|digit| digit.is_ascii_digit()))
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    match parent(document, path)? {
        (Value::Object(object), name) => {
            object.insert(name, value);
            Ok(())
        }
        (Value::Array(items), name) => {
            let at = if name == "-" { Some(items.len()) } else { index(&name) };
            let at = at.filter(|at| *at <= items.len()).ok_or_else(|| nothing(path))?;
            items.insert(at, value);
            Ok(())
        }
        _ => Err(nothing(path)),
    }
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    let removed = match parent(document, path)? {
        (Value::Object(object), name) => object.remove(&name),
        (Value::Array(items), name) => index(&name).filter(|at| *at < items.len()).map(|at| items.remove(at)),
        _ => None,
    };
    removed.ok_or_else(|| nothing(path))
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    parent(document, path)?;
    let place = document.pointer_mut(path).ok_or_else(|| nothing(path))?;
    *place = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({"nfId": "n", "supi": "s", "eventReportingMode": {"repPeriod": 5}, "eventList": [{"type": "A"}, {"type": "B"}]})
    }

    /// Conformance: RFC 6902 4 | add, remove, replace, move, copy and test; a patch of which one operation fails changes nothing
    #[test]
    fn operations_are_done_in_their_order() {
        let patched = apply(
            &document(),
            &json!([
                {"op": "test", "path": "/eventReportingMode/repPeriod", "value": 5},
                {"op": "replace", "path": "/eventReportingMode/repPeriod", "value": 7},
                {"op": "add", "path": "/subscription/eventReportingMode/maxReports", "value": 3},
                {"op": "add", "path": "/eventList/-", "value": {"type": "C"}},
                {"op": "remove", "path": "/eventList/0"},
                {"op": "copy", "from": "/eventList/0", "path": "/eventList/0"},
                {"op": "move", "from": "/eventList/2", "path": "/eventList/0"},
            ]),
        );
        let patched = patched.unwrap();
        assert_eq!(patched["eventReportingMode"], json!({"repPeriod": 7, "maxReports": 3}));
        assert_eq!(patched["eventList"], json!([{"type": "C"}, {"type": "B"}, {"type": "B"}]));
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let fault = |operation: Value| apply(&document(), &json!([operation])).unwrap_err();
        for operation in [
            json!({"op": "test", "path": "/nfId", "value": "other"}),
            json!({"op": "remove", "path": "/absent"}),
            json!({"op": "replace", "path": "/absent", "value": 1}),
            json!({"op": "add", "path": "/eventList/3", "value": 1}),
            json!({"op": "add", "path": "/eventList/01", "value": 1}),
            json!({"op": "add", "path": "/nfId/x", "value": 1}),
            json!({"op": "move", "from": "/eventList", "path": "/eventList/0"}),
            json!({"op": "replace", "path": "", "value": 1}),
            json!({"op": "grow", "path": "/nfId"}),
        ] {
            assert_eq!(fault(operation.clone()).cause, Some("MANDATORY_IE_INCORRECT"), "{operation}");
        }
        assert_eq!(fault(json!({"op": "add", "path": "/x"})).cause, Some("MANDATORY_IE_MISSING"));
        assert_eq!(fault(json!({"path": "/x"})).cause, Some("MANDATORY_IE_MISSING"));
        let fixed = fault(json!({"op": "replace", "path": "/supi", "value": "t"}));
        assert_eq!((fixed.status, fixed.cause), (403, Some("MODIFICATION_NOT_ALLOWED")));
        assert_eq!(apply(&document(), &json!({})).unwrap_err().cause, Some("INVALID_MSG_FORMAT"));
        assert_eq!(apply(&document(), &json!([])).unwrap_err().cause, Some("INVALID_MSG_FORMAT"));
    }

    #[test]
    fn a_document_does_not_grow_beyond_a_body() {
        let long = json!({"op": "add", "path": "/eventList/-", "value": "a".repeat(20_000)});
        let double = json!({"op": "copy", "from": "/eventList", "path": "/eventList/-"});
        let patch = Value::Array([vec![long], vec![double; 40]].concat());
        assert_eq!(apply(&document(), &patch).unwrap_err().status, 413);
    }

    proptest! {
        #[test]
        fn any_pointer_is_read(path in "(/[a-zA-Z0-9~-]{0,6}){0,4}", from in "(/[a-z0-9-]{0,10}){0,3}") {
            for op in ["add", "remove", "replace", "test", "copy", "move"] {
                let _ = apply(&document(), &json!([{"op": op, "path": path, "from": from, "value": 1}]));
            }
        }
    }
}
