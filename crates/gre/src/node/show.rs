//! `kaido show gre`.

use std::path::Path;

use kaido_node::listing::{Listing, ListingPage, ListingRow};
use kaido_node::show::{ask, print_json, table};

use super::api::{GetGre, GreRule};

/// `kaido show gre`.
pub(crate) fn gre(socket: &Path, json: bool) -> miette::Result<()> {
    let status = ask(socket, &GetGre {})?;
    if json {
        return print_json(&status);
    }
    let rules: Vec<_> = status
        .rules
        .iter()
        .map(|rule| {
            vec![rule.name.clone(), rule.verdict.clone(), rule.packets.to_string(), rule.bytes.to_string()]
        })
        .collect();
    table(&["rule", "verdict", "packets", "bytes"], &rules);
    if !status.kernel.is_empty() {
        println!();
        let rows: Vec<_> = status
            .kernel
            .iter()
            .map(|port| {
                let counts = [port.passed, port.stripped, port.handed, port.kernel, port.dropped];
                let counts = counts.iter().map(ToString::to_string);
                std::iter::once(port.port.clone()).chain(counts).collect()
            })
            .collect();
        table(&["in the kernel", "passed", "stripped", "to engine", "to kernel", "dropped"], &rows);
    }
    Ok(())
}

/// The rules, for `kaido top`.
pub(crate) const RULES: Listing = Listing {
    title: "rules",
    columns: &["rule", "verdict", "packets"],
    directions: &["traffic"],
    filter: None,
    page: |socket, _, limit| {
        let status = ask(socket, &GetGre {})?;
        let total = status.rules.len();
        let row = |rule: GreRule| ListingRow {
            key: rule.name.clone(),
            cells: vec![rule.name, rule.verdict, rule.packets.to_string()],
            octets: vec![rule.bytes],
        };
        Ok(ListingPage { total, rows: status.rules.into_iter().take(limit).map(row).collect() })
    },
    detail: None,
};
