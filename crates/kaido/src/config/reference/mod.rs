//! The configuration reference, from one table a function, so that the book and the binary say the same, and that a
//! field of another function is known for what it is.

mod base;
mod gre;
mod ndn;
mod upf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::FunctionName;
use super::fault::Fault;
use super::wanted::REFERENCE;

/// One field: section, name, kind, default, meaning.
type Field = (&'static str, &'static str, &'static str, &'static str, &'static str);

impl FunctionName {
    /// All, in the order of the reference.
    const ALL: [Self; 3] = [Self::Upf, Self::Gre, Self::Ndn];

    /// Fields that only its files have.
    const fn fields(self) -> &'static [Field] {
        match self {
            Self::Upf => upf::FIELDS,
            Self::Gre => gre::FIELDS,
            Self::Ndn => ndn::FIELDS,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Upf => "User plane",
            Self::Gre => "GRE header removal",
            Self::Ndn => "NDN router",
        }
    }
}

/// What is allowed for a field, by its section and name.
pub(super) fn allowed(field: &str) -> Option<&'static str> {
    let fields = FunctionName::ALL.into_iter().flat_map(FunctionName::fields);
    let is_it = |entry: &&Field| {
        let section = entry.0.trim_matches(['[', ']']);
        field.strip_prefix(section).and_then(|rest| rest.strip_prefix('.')) == Some(entry.1)
    };
    base::FIELDS.iter().chain(fields).find(is_it).map(|entry| entry.2)
}

/// The section at the top of the file that a field is in.
fn top(section: &str) -> &str {
    let name = section.trim_matches(['[', ']']);
    name.split_once('.').map_or(name, |(top, _)| top)
}

/// Sections and fields that belong into a file of another function, and sections that belong into none.
pub(super) fn foreign(file: &DeTable<'_>, own: FunctionName) -> Vec<Fault> {
    let is_own = |wanted: &dyn Fn(&Field) -> bool| base::FIELDS.iter().chain(own.fields()).any(wanted);
    let owner = |wanted: &dyn Fn(&Field) -> bool| {
        FunctionName::ALL.into_iter().find(|function| function.fields().iter().any(wanted))
    };
    let mut faults = Vec::new();
    for (section, value) in file {
        let (place, section) = (section.span(), section.get_ref().as_ref());
        let in_section = |field: &Field| top(field.0) == section;
        if section == "function" {
            continue;
        }
        if !is_own(&in_section) {
            faults.push(match owner(&in_section) {
                Some(owner) => others(place, section, own, owner),
                None => unknown(place, section, sections(own)),
            });
            continue;
        }
        for (name, place) in
            tables(value).flat_map(|table| table.keys().map(|key| (key.get_ref(), key.span())))
        {
            // A section within the section is not among the fields of this one.
            let is_it =
                |field: &Field| field.0.trim_matches(['[', ']']) == section && field.1 == name.as_ref();
            let is_section = |field: &Field| field.0.trim_matches(['[', ']']) == format!("{section}.{name}");
            if is_own(&is_it) || is_own(&is_section) {
                continue;
            }
            faults.push(match owner(&is_it) {
                Some(owner) => others(place, &format!("{section}.{name}"), own, owner),
                None => unknown(place, name, fields_of(section, own)),
            });
        }
    }
    faults.sort_by_key(|fault| fault.at.start);
    faults
}

/// The tables of a section: itself, or those of its list.
fn tables<'t, 'i>(value: &'t Spanned<DeValue<'i>>) -> impl Iterator<Item = &'t DeTable<'i>> {
    let list = value.get_ref().as_array().into_iter().flatten();
    let listed = list.filter_map(|value| value.get_ref().as_table());
    value.get_ref().as_table().into_iter().chain(listed)
}

fn others(at: std::ops::Range<usize>, field: &str, own: FunctionName, owner: FunctionName) -> Fault {
    let (own, owner) = (own.name(), owner.name());
    Fault {
        at,
        field: field.to_owned(),
        message: format!("of function = \"{owner}\", and this file's function is \"{own}\""),
        help: format!(
            "remove it, or write function = \"{owner}\" as the first line; a node has one function"
        ),
    }
}

/// The sections of a function's file.
fn sections(own: FunctionName) -> Vec<&'static str> {
    let mut sections = Vec::new();
    for section in base::FIELDS.iter().chain(own.fields()).map(|field| top(field.0)) {
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    sections
}

/// The fields of a section of a function's file.
fn fields_of(section: &str, own: FunctionName) -> Vec<&'static str> {
    let mut names = Vec::new();
    for (found, name, ..) in base::FIELDS.iter().chain(own.fields()) {
        let found = found.trim_matches(['[', ']']);
        // A section within it is a field, too.
        let within = found.strip_prefix(section).and_then(|rest| rest.strip_prefix('.'));
        let within = within.filter(|name| !name.contains('.'));
        names.extend((found == section).then_some(*name).or(within).filter(|name| !names.contains(name)));
    }
    names
}

/// As serde says it of a type that has all fields.
fn unknown(at: std::ops::Range<usize>, name: &str, expected: Vec<&str>) -> Fault {
    let expected: Vec<_> = expected.into_iter().map(|name| format!("`{name}`")).collect();
    let expected = match &expected[..] {
        [one] => one.clone(),
        [one, other] => format!("{one} or {other}"),
        many => format!("one of {}", many.join(", ")),
    };
    Fault {
        at,
        field: String::new(),
        message: format!("unknown field `{name}`, expected {expected}"),
        help: REFERENCE.to_owned(),
    }
}

/// The reference as Markdown: `docs/configuration.md`.
pub(crate) fn reference() -> String {
    let mut text = String::from(
        "# Configuration reference\n\n\
         Written by `kaido reference` from the code; do not edit.\n\n\
         One TOML file, given with `kaido run -c FILE`. `kaido check -c FILE` reads it without starting\n\
         anything. What is written `[[so]]` is a list of tables; the rest are single tables.\n\n\
         The line `function = \"upf\"`, `\"gre\"` or `\"ndn\"`, before all sections, says what the node does; without it, it is\n\
         a user plane. Sections and fields of other functions are refused.\n\n\
         # Every node\n",
    );
    write(&mut text, base::FIELDS);
    for function in FunctionName::ALL {
        text.push_str(&format!("\n# {}: `function = \"{}\"`\n", function.title(), function.name()));
        write(&mut text, function.fields());
    }
    text
}

fn write(text: &mut String, fields: &[Field]) {
    let mut section = "";
    for (found, name, kind, default, meaning) in fields {
        if *found != section {
            section = found;
            text.push_str(&format!(
                "\n## `[{found}]`\n\n| field | allowed | default | meaning |\n|---|---|---|---|\n"
            ));
        }
        text.push_str(&format!("| `{name}` | {kind} | {default} | {meaning} |\n"));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn error(function: FunctionName, text: &str) -> String {
        let text = format!("function = \"{}\"\n{text}", function.name());
        Config::parse(Path::new("kaido.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn the_book_has_this_reference() {
        let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let written = std::fs::read_to_string(&book).unwrap_or_default();
        assert!(written == reference(), "run `make docs/configuration.md` to write {}", book.display());
    }

    #[test]
    fn every_field_of_the_table_is_one_of_the_file() {
        for function in FunctionName::ALL {
            for (section, name, ..) in base::FIELDS.iter().chain(function.fields()) {
                // A table is of no field's kind: a field that exists complains of its kind, an unknown one of its name.
                let said = error(function, &format!("[{section}]\n{name} = {{ nothing = 1 }}\n"));
                assert!(!said.contains("unknown field"), "{section} {name}: {said}");
            }
        }
    }

    #[test]
    fn every_field_of_the_file_is_in_the_table() {
        for function in FunctionName::ALL {
            let fields = || base::FIELDS.iter().chain(function.fields());
            let mut sections: Vec<_> = fields().map(|field| field.0).collect();
            sections.dedup();
            for section in sections {
                let said = error(function, &format!("[{section}]\nno_such_field = 1\n"));
                let (_, allowed) = said.split_once("expected").unwrap_or_else(|| panic!("{section}: {said}"));
                for name in allowed.split('`').skip(1).step_by(2) {
                    let is_section =
                        fields().any(|field| field.0.trim_matches(['[', ']']).ends_with(&format!(".{name}")));
                    let everywhere = || {
                        base::FIELDS
                            .iter()
                            .chain(FunctionName::ALL.into_iter().flat_map(FunctionName::fields))
                    };
                    let listed = everywhere().any(|field| field.0 == section && field.1 == name);
                    assert!(listed || is_section, "{section}: {name} is missing from the reference");
                }
            }
        }
    }

    #[test]
    fn what_is_anothers_is_refused_with_its_place() {
        for (function, text, wanted) in [
            (FunctionName::Gre, "[pfcp]\nlisten = []\n", "kaido.toml:2: pfcp: of function = \"upf\""),
            (
                FunctionName::Gre,
                "[node]\nworkers = 1\nsessions_max = 1\n",
                "kaido.toml:4: node.sessions_max: of",
            ),
            (
                FunctionName::Gre,
                "[[port]]\nroles = [\"n3\"]\n",
                "kaido.toml:3: port.roles: of function = \"upf\"",
            ),
            (FunctionName::Upf, "[[gre.rule]]\n", "kaido.toml:2: gre: of function = \"gre\""),
            (
                FunctionName::Upf,
                "[[port]]\npeer_port = \"b\"\n",
                "kaido.toml:3: port.peer_port: of function = \"gre\"",
            ),
            (
                FunctionName::Upf,
                "[pfpc]\n",
                "kaido.toml:2: unknown field `pfpc`, expected one of `node`, `port`",
            ),
        ] {
            let said = error(function, text);
            assert!(said.contains(wanted), "{said}");
        }
    }
}
