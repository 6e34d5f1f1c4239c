//! What differs between two texts of a configuration, field by field.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Its path: `pfcp.allow`, `port[n3].mtu`, `gre.rule[2].source`. Of tables in a list that have a name the name stands there, of
    /// others the number, from 0.
    pub field: String,
    /// What it was, as the file has it; none where it was not there.
    pub before: Option<String>,
    /// What it is now.
    pub now: Option<String>,
}

impl Difference {
    /// The field without what stands for the tables of a list: `port.mtu`.
    pub fn pattern(&self) -> String {
        let mut depth = 0_u32;
        let outside = |letter: &char| {
            match letter {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => return depth == 0,
            }
            false
        };
        self.field.chars().filter(outside).collect()
    }
}

/// What differs, in the order of the fields.
///
/// # Errors
/// When one of the texts is not TOML.
pub fn differences(before: &str, now: &str) -> Result<Vec<Difference>, toml::de::Error> {
    let [mut before, mut now] = [fields(before)?, fields(now)?];
    let names: Vec<String> = before.keys().chain(now.keys()).cloned().collect();
    let mut found = BTreeMap::new();
    for field in names {
        let (old, new) = (before.remove(&field), now.remove(&field));
        if old != new {
            found.insert(field, (old, new));
        }
    }
    Ok(found.into_iter().map(|(field, (before, now))| Difference { field, before, now }).collect())
}

/// Each field with its value.
fn fields(text: &str) -> Result<BTreeMap<String, String>, toml::de::Error> {
    let mut fields = BTreeMap::new();
    add_table(&toml::from_str(text)?, "", &mut fields);
    Ok(fields)
}

fn add_table(table: &Table, path: &str, fields: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        add(value, path, fields);
    }
}

fn add(value: &Value, path: String, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) => add_table(table, &path, fields),
        Value::Array(list) if list.iter().any(Value::is_table) => {
            for (at, value) in list.iter().enumerate() {
                let name = value.get("name").and_then(Value::as_str);
                let of = name.map_or_else(|| at.to_string(), str::to_owned);
                add(value, format!("{path}[{of}]"), fields);
            }
        }
        _ => {
            fields.insert(path, value.to_string());
        }
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
        let now = "a = 1 # the same\n[[port]]\nmtu = 1600\nname = \"n3\"\n[[port]]\nname = \"n6\"\n[[rule]]\nx = 2\n[pfcp]\nallow = []\n";
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
    fn tables_in_a_list_are_in_no_pattern() {
        let difference = |field: &str| Difference { field: field.to_owned(), before: None, now: None };
        let patterns = ["pfcp.allow", "port[n3].mtu", "a[x]b].c[0].d"].map(|of| difference(of).pattern());
        assert_eq!(patterns, ["pfcp.allow", "port.mtu", "ab.c.d"]);
    }

    #[test]
    fn what_is_no_toml_is_an_error() {
        assert!(differences("a = 1", "a = ").is_err());
    }
}
