//! What differs between two texts of a configuration, field by field.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its path: `pfcp.allow`, `port[n3].mtu`, `ue_pool[2].ipv4`. Of tables in a list that have names the name stands there, of
    /// others the number, from 0. A list by itself is one whose tables stand in another order.
    pub field: String,
    /// The path without what stands for the tables of a list: `port.mtu`.
    pub pattern: String,
    /// What it was, as the file has it; none where it was not there.
    pub before: Option<String>,
    /// What it is now.
    pub now: Option<String>,
    /// Its line in the text that is now, from 1; none where it is not there.
    pub line: Option<usize>,
}

/// What differs, in the order of the fields.
///
/// # Errors
/// When one of the texts is not TOML.
pub fn differences(before: &str, now: &str) -> Result<Vec<Difference>, toml::de::Error> {
    let [mut before, mut now] = [Fields::read(before)?, Fields::read(now)?];
    let mut found = BTreeMap::new();
    let names: Vec<String> = before.fields.keys().chain(now.fields.keys()).cloned().collect();
    for field in names {
        let (old, new) = (before.fields.remove(&field), now.fields.remove(&field));
        let value = |field: &Option<FieldValue>| field.as_ref().map(|field| field.value.clone());
        if value(&old) == value(&new) {
            continue;
        }
        let pattern = new.as_ref().or(old.as_ref()).map(|field| field.pattern.clone());
        let difference = Difference {
            pattern: pattern.unwrap_or_default(),
            before: value(&old),
            now: value(&new),
            line: new.map(|field| field.line),
            field,
        };
        found.insert(difference.field.clone(), difference);
    }
    for (field, list) in now.lists {
        let Some(old) = before.lists.get(&field) else { continue };
        let in_both = |own: &[String], other: &[String]| -> Vec<String> {
            own.iter().filter(|name| other.contains(name)).cloned().collect()
        };
        let (old, new) = (in_both(&old.names, &list.names), in_both(&list.names, &old.names));
        if old != new {
            let [before, now] = [old, new].map(|names| Some(names.join(", ")));
            let pattern = list.pattern;
            let difference = Difference { field: field.clone(), pattern, before, now, line: Some(list.line) };
            found.insert(field, difference);
        }
    }
    Ok(found.into_values().collect())
}

/// A field of a text.
struct FieldValue {
    pattern: String,
    value: String,
    line: usize,
}

/// The names of the tables of a list, in their order.
struct NamedTables {
    pattern: String,
    names: Vec<String>,
    line: usize,
}

/// Each field of a text, and each list of tables that have names.
struct Fields<'t> {
    text: &'t str,
    fields: BTreeMap<String, FieldValue>,
    lists: BTreeMap<String, NamedTables>,
}

impl<'t> Fields<'t> {
    fn read(text: &'t str) -> Result<Self, toml::de::Error> {
        let table = DeTable::parse(text)?;
        let mut fields = Self { text, fields: BTreeMap::new(), lists: BTreeMap::new() };
        fields.add_table(table.get_ref(), "", "")?;
        Ok(fields)
    }

    fn add_table(&mut self, table: &DeTable<'t>, path: &str, pattern: &str) -> Result<(), toml::de::Error> {
        let within = |path: &str, name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        for (name, value) in table {
            let name = name.get_ref();
            self.add(value, within(path, name), within(pattern, name))?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        value: &Spanned<DeValue<'t>>,
        path: String,
        pattern: String,
    ) -> Result<(), toml::de::Error> {
        let line = self.line(value.span().start);
        let tables = match value.get_ref() {
            DeValue::Table(table) => return self.add_table(table, &path, &pattern),
            DeValue::Array(list) if list.iter().any(|value| value.get_ref().is_table()) => list,
            _ => {
                let value = Value::deserialize(ValueDeserializer::from(value.clone()))?.to_string();
                self.fields.insert(path, FieldValue { pattern, value, line });
                return Ok(());
            }
        };
        let name = |value: &Spanned<DeValue<'_>>| {
            Some(value.get_ref().as_table()?.get("name")?.get_ref().as_str()?.to_owned())
        };
        let names: Vec<_> = tables.iter().filter_map(name).collect();
        // Two of one name could not be told apart.
        let are_told_apart =
            names.len() == tables.len() && names.iter().collect::<HashSet<_>>().len() == names.len();
        for (at, value) in tables.iter().enumerate() {
            let of = names.get(at).filter(|_| are_told_apart).cloned().unwrap_or_else(|| at.to_string());
            self.add(value, format!("{path}[{of}]"), pattern.clone())?;
        }
        if are_told_apart {
            self.lists.insert(path, NamedTables { pattern, names, line });
        }
        Ok(())
    }

    /// The line of a place, from 1.
    fn line(&self, place: usize) -> usize {
        self.text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(before: &str, now: &str) -> Vec<String> {
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let found = differences(before, now).unwrap().into_iter();
        found.map(|it| format!("{}: {} -> {}", it.field, text(it.before), text(it.now))).collect()
    }

    #[test]
    fn fields_are_compared_one_by_one() {
        let before = "a = 1\n[pfcp]\nallow = [\"10.0.0.0/8\"]\nt1_ms = 3\n[[port]]\nname = \"n3\"\nmtu = 1500\n[[rule]]\nx = 1\n";
        let now = "a = 0x1 # the same\n[[port]]\nmtu = 1600\nname = \"n3\"\n[[port]]\nname = \"n6\"\n[[rule]]\nx = 2\n[pfcp]\nallow = []\n";
        assert_eq!(
            said(before, now),
            [
                "pfcp.allow: [\"10.0.0.0/8\"] -> []",
                "pfcp.t1_ms: 3 -> -",
                "port[n3].mtu: 1500 -> 1600",
                "port[n6].name: - -> \"n6\"",
                "rule[0].x: 1 -> 2",
            ]
        );
        assert_eq!(said(before, before), [""; 0]);
    }

    #[test]
    fn the_order_of_tables_is_compared() {
        let list = |names: &[&str]| {
            names.iter().map(|name| format!("[[gre.rule]]\nname = \"{name}\"\n")).collect::<String>()
        };
        assert_eq!(said(&list(&["a", "b", "c"]), &list(&["c", "a", "b"])), ["gre.rule: a, b, c -> c, a, b"]);
        assert_eq!(
            said(&list(&["a", "b"]), &list(&["b", "x"])),
            ["gre.rule[a].name: \"a\" -> -", "gre.rule[x].name: - -> \"x\""]
        );
        // Names that are not told apart do not hide each other.
        assert_eq!(said(&list(&["a", "a"]), &list(&["a"])).len(), 3);
    }

    #[test]
    fn tables_in_a_list_are_in_no_pattern() {
        let now = "\n[[port]]\nname = \"a].b[\"\n\nmtu = 9\n[[port.peer]]\nx = 1\n";
        let found = differences("", now).unwrap().into_iter();
        let found: Vec<_> = found.map(|it| (it.field, it.pattern, it.line)).collect();
        let of = |field: &str, pattern: &str, line| (field.to_owned(), pattern.to_owned(), Some(line));
        assert_eq!(
            found,
            [
                of("port[a].b[].mtu", "port.mtu", 5),
                of("port[a].b[].name", "port.name", 3),
                of("port[a].b[].peer[0].x", "port.peer.x", 7),
            ]
        );
    }

    #[test]
    fn what_is_no_toml_is_an_error() {
        assert!(differences("a = 1", "a = ").is_err());
    }
}
