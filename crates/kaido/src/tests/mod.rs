//! The lists that functions bring together.

use std::collections::HashSet;
use std::path::Path;

use kaido_metrics::{Family, Kind};

use super::*;

mod config;

fn families() -> Vec<&'static Family> {
    FUNCTIONS
        .iter()
        .flat_map(|function| function.families())
        .chain(kaido_node::metrics::NODE_FAMILIES)
        .collect()
}

#[test]
fn the_book_has_every_metric() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/observability.md");
    let written = std::fs::read_to_string(&book).unwrap_or_default();
    assert!(
        written.contains(&cli::metrics_table(FUNCTIONS)),
        "put what `kaido reference --metrics` prints into {}",
        book.display()
    );
}

#[test]
fn names_of_metrics_follow_the_conventions() {
    let names: HashSet<_> = families().iter().map(|family| family.name).collect();
    assert_eq!(names.len(), families().len(), "each once");
    for Family { name, kind, labels, help } in families() {
        assert!(name.starts_with("kaido_") || name.starts_with("process_"), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        let wrong_unit = ["_ns", "_us", "_ms", "_nanoseconds", "_kb", "_percent"];
        assert!(!wrong_unit.iter().any(|unit| name.ends_with(unit)), "{name} has no base unit");
        assert!(help.ends_with('.') && !help.contains(['|', '\n']), "{name}: {help}");
        assert!(
            labels.iter().all(|label| label.chars().all(|c| c.is_ascii_lowercase() || c == '_')),
            "{name}"
        );
    }
}

#[test]
fn the_command_line_is_sound() {
    cli::commands(Arguments::command(), FUNCTIONS).debug_assert();
}
