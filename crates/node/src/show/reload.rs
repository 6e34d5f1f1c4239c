//! `kaido reload`.

use std::path::Path;

use miette::miette;

use super::{ask, print_json};
use crate::api::{self, Reloaded};

/// Has a node read its configuration again, and prints what differs.
///
/// # Errors
/// When the file is wrong, or something in it cannot change: then nothing has.
pub fn reload(socket: &Path, json: bool, dry_run: bool) -> miette::Result<()> {
    let answer = ask(socket, &api::Reload { dry_run })?;
    let Reloaded { fields, taken } = &answer;
    if json {
        print_json(&answer)?;
    } else {
        for field in fields {
            let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "not there".to_owned());
            let line = field.line.map_or_else(String::new, |line| format!(" (line {line})"));
            println!("{}{line}: {} -> {}", field.field, value(&field.before), value(&field.now));
            field.refused.iter().for_each(|why| println!("    cannot change: {why}"));
        }
    }
    let refused = fields.iter().filter(|field| field.refused.is_some()).count();
    match (refused, fields.len(), taken) {
        (1.., all, _) => Err(miette!(
            help = "restart the node, or put these back; `kaido upgrade` takes the whole file over without a gap",
            "{refused} of {all} fields that differ cannot change while the node runs: nothing has changed"
        )),
        _ if json => Ok(()),
        (_, 0, _) => {
            println!("the file says what is in force");
            Ok(())
        }
        (_, all, true) => {
            println!("taken: {all} fields");
            Ok(())
        }
        (_, all, false) => {
            println!("{all} fields can change; nothing has");
            Ok(())
        }
    }
}
