//! What does not belong into a file: sections and fields of another function, and those that no function has.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::fault::Fault;
use super::schema::{FunctionSchema, Sections};
use super::wanted::REFERENCE;

/// Sections and fields that belong into a file of other functions than its own, or into none. Of tables within sections serde tells.
pub(crate) fn foreign(
    file: &DeTable<'_>,
    own: &[FunctionSchema],
    functions: &[FunctionSchema],
) -> Vec<Fault> {
    let sections: Vec<(&FunctionSchema, Sections)> =
        own.iter().map(|function| (function, function.file())).collect();
    // Only where something is wrong it matters whose it is.
    let owner = |has: &dyn Fn(&Sections) -> bool| functions.iter().find(|function| has(&function.own()));
    let mut faults = Vec::new();
    for (section, value) in file {
        let (place, section) = (section.span(), section.get_ref().as_ref());
        if section == "function" {
            continue;
        }
        let has_section = |sections: &Sections| sections.tops().any(|top| top == section);
        if !sections.iter().any(|(_, sections)| has_section(sections)) {
            faults.push(match owner(&has_section) {
                Some(owner) => anothers(place, section, own, owner),
                None => unknown(place, section, all(&sections, |sections| sections.tops().collect())),
            });
            continue;
        }
        for table in tables(value) {
            // A port has what its function has, and all others what any has.
            let whose = function_of(table).map(|(name, _)| name).filter(|_| section == "port");
            let of_table =
                |(function, _): &&(&FunctionSchema, Sections)| whose.is_none_or(|name| name == function.name);
            for (name, place) in table.keys().map(|key| (key.get_ref(), key.span())) {
                let has_field = |sections: &Sections| sections.names(section).any(|known| known == name);
                if sections.iter().filter(of_table).any(|(_, sections)| has_field(sections)) {
                    continue;
                }
                faults.push(match owner(&has_field) {
                    Some(owner) => anothers(place, &format!("{section}.{name}"), own, owner),
                    None => {
                        unknown(place, name, all(&sections, |sections| sections.names(section).collect()))
                    }
                });
            }
        }
    }
    faults.sort_by_key(|fault| fault.at.start);
    faults
}

/// Names of the sections of several functions, each once.
fn all<'s>(
    sections: &'s [(&FunctionSchema, Sections)],
    names: impl Fn(&'s Sections) -> Vec<&'s str>,
) -> Vec<&'s str> {
    let mut all = Vec::new();
    for name in sections.iter().flat_map(|(_, sections)| names(sections)) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// The function that a port names, and where.
pub(crate) fn function_of<'p>(port: &'p DeTable<'_>) -> Option<(&'p str, Range<usize>)> {
    let name = port.get("function")?;
    Some((name.get_ref().as_str()?, name.span()))
}

/// That there is no function of that name.
pub(crate) fn function(name: &str, at: Range<usize>, functions: &[FunctionSchema]) -> Fault {
    let expected = one_of(functions.iter().map(|function| function.name));
    let message = format!("unknown value `{name}`, expected {expected}");
    Fault { at, field: String::new(), message, help: REFERENCE.to_owned() }
}

/// The tables of a section: itself, or those of its list.
fn tables<'t, 'i>(value: &'t toml::Spanned<DeValue<'i>>) -> impl Iterator<Item = &'t DeTable<'i>> {
    let list = value.get_ref().as_array().into_iter().flatten();
    let listed = list.filter_map(|value| value.get_ref().as_table());
    value.get_ref().as_table().into_iter().chain(listed)
}

fn anothers(at: Range<usize>, field: &str, own: &[FunctionSchema], owner: &FunctionSchema) -> Fault {
    let names: Vec<_> = own.iter().map(|function| format!("\"{}\"", function.name)).collect();
    let (names, owner) = (names.join(", "), owner.name);
    Fault {
        at,
        field: field.to_owned(),
        message: format!("of function = \"{owner}\", and this file's function is {names}"),
        help: format!(
            "remove it, or write function = \"{owner}\" as the first line, or function = [{names}, \"{owner}\"] for both"
        ),
    }
}

/// As serde says it of a type that has all fields.
fn unknown(at: Range<usize>, name: &str, expected: Vec<&str>) -> Fault {
    let message = format!("unknown field `{name}`, expected {}", one_of(expected.into_iter()));
    Fault { at, field: String::new(), message, help: REFERENCE.to_owned() }
}

/// Names of which one is expected, as serde says it.
fn one_of<'s>(names: impl Iterator<Item = &'s str>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    match &names[..] {
        [one] => one.clone(),
        [one, other] => format!("{one} or {other}"),
        many => format!("one of {}", many.join(", ")),
    }
}
