//! Which field an error of the reader is about, and what is allowed there: serde knows places and kinds, and no fields.

use super::schema::{FunctionSchema, allowed};

/// Where what is allowed can be read whole.
pub(super) const REFERENCE: &str = "`kaido reference` lists every section and field with what is allowed";

/// A field that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FieldError {
    /// Its section and name.
    pub(super) field: String,
    /// What is allowed.
    pub(super) help: String,
}

/// The field that an error at a place of the text is about, by what the reader said of it.
pub(super) fn at(text: &str, place: usize, said: &str, functions: &[FunctionSchema]) -> Option<FieldError> {
    if said.starts_with("unknown field") {
        return None;
    }
    let (section, name) = section_and_name(text, place);
    let missing = said.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
    let name = missing.map(|(name, _)| name).or(name);
    let Some(name) = name else {
        let is_list = said.starts_with("invalid type: map, expected a sequence");
        return is_list.then(|| FieldError {
            field: section.to_owned(),
            help: format!("write [[{section}]], of which there may be several; {REFERENCE}"),
        });
    };
    let field = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
    let allowed = allowed(functions, &field)?;
    Some(FieldError { help: format!("it takes: {allowed}; {REFERENCE}"), field })
}

/// The section that a place is in, and the field of its line or of the nearest line above it in the section.
fn section_and_name(text: &str, place: usize) -> (&str, Option<&str>) {
    let end = text.get(place..).and_then(|rest| rest.find('\n')).map_or(text.len(), |len| place + len);
    let (mut section, mut name) = ("", None);
    for line in text.get(..end).unwrap_or(text).lines() {
        if let Some(header) = header(line) {
            (section, name) = (header, None);
        } else if let Some((key, _)) = line.split_once('=').filter(|(key, _)| is_key(key.trim())) {
            name = Some(key.trim());
        }
    }
    (section, name)
}

/// The name in a line that begins a section.
fn header(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (name, _) = line.strip_prefix("[[").or_else(|| line.strip_prefix('['))?.split_once(']')?;
    is_key(name.trim()).then(|| name.trim())
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema::testing::FUNCTIONS;

    const TEXT: &str = "function = \"lamp\"\n[node] # all\nworkers = \"two\"\n\n[[port]]\naddresses = [\n  \"10.0.0.1/8\",\n  5,\n]\n\
                        [lamp]\nbulb.watts = -1\n[[lamp.shade]]\n";

    fn field(before: &str, said: &str) -> Option<String> {
        at(TEXT, TEXT.find(before).unwrap(), said, &FUNCTIONS).map(|wanted| wanted.field)
    }

    #[test]
    fn the_field_is_that_of_the_line_or_of_the_list() {
        assert_eq!(field("\"two\"", "invalid type").as_deref(), Some("node.workers"));
        assert_eq!(field("5,", "invalid type").as_deref(), Some("port.addresses"));
        assert_eq!(field("-1", "invalid value").as_deref(), Some("lamp.bulb.watts"));
        assert_eq!(field("[[port]]", "missing field `name`").as_deref(), Some("port.name"));
        assert_eq!(field("[[port]]", "missing field `taste`"), None);
        assert_eq!(field("[[port]]", "unknown field `ports`"), None);
        let section = "invalid type: map, expected a sequence";
        assert_eq!(field("[[lamp.shade]]", section).as_deref(), Some("lamp.shade"));
        assert_eq!(at(TEXT, usize::MAX, "duplicate key", &FUNCTIONS), None);
    }

    #[test]
    fn what_is_allowed_is_said() {
        let wanted = at(TEXT, TEXT.find("\"two\"").unwrap(), "invalid type", &FUNCTIONS).unwrap();
        assert!(wanted.help.starts_with("it takes: 1 to 64; "), "{}", wanted.help);
    }
}
