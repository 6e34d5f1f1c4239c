//! `kaido store`: what an operator does with the store of a node that does not run.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::error::StoreError;
use crate::tools::{CheckReport, Exported, RepairReport, check, export, import, repair};

/// Faults that are printed to people.
const FAULTS: usize = 20;

/// Options of `kaido store`.
#[derive(Debug, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Read all of a store, and say what it has and what is wrong with it. Changes nothing.
    Check(Target),
    /// Put what is sound of a damaged store in its place, and move the damaged files to a folder within.
    Repair(Target),
    /// Write all entries as lines of JSON.
    Export {
        #[command(flatten)]
        at: Target,
        /// Where to; without it, to standard output.
        #[arg(value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Make a store of an export, in a folder that is empty or not there yet.
    Import {
        #[command(flatten)]
        at: Target,
        /// Where from; without it, from standard input.
        #[arg(value_name = "FILE")]
        input: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Target {
    /// The folder of the store: `store.folder` of the configuration.
    #[arg(long, value_name = "PATH", default_value = "/var/lib/kaido")]
    folder: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Executes the command; the exit code is 1 when a check finds faults.
///
/// # Errors
/// When the store cannot be used, for one of the reasons that its function names.
pub fn run(args: &StoreArgs) -> Result<ExitCode, StoreError> {
    match &args.command {
        StoreCommand::Check(at) => {
            let report = check(&at.folder)?;
            print(at.json, &report)?;
            return Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        StoreCommand::Repair(at) => print(at.json, &repair(&at.folder)?)?,
        StoreCommand::Export { at, output: Some(path) } => {
            let file = File::create(path).map_err(StoreError::file(path, "write the export"))?;
            let exported = export(&at.folder, BufWriter::new(&file))?;
            file.sync_all().map_err(StoreError::file(path, "write the export"))?;
            print(at.json, &Done { what: "exported", exported, file: path })?;
        }
        StoreCommand::Export { at, output: None } => {
            export(&at.folder, BufWriter::new(io::stdout().lock()))?;
        }
        StoreCommand::Import { at, input } => {
            let imported = match input {
                Some(path) => {
                    let file = File::open(path).map_err(StoreError::file(path, "read the export"))?;
                    import(&at.folder, BufReader::new(file))?
                }
                None => import(&at.folder, io::stdin().lock())?,
            };
            print(at.json, &Done { what: "imported", exported: imported, file: &at.folder })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a report for people or for machines.
fn print<T: Display + Serialize>(json: bool, report: &T) -> Result<(), StoreError> {
    let mut out = io::stdout().lock();
    let printed = match json {
        true => serde_json::to_string_pretty(report)
            .map_err(io::Error::other)
            .and_then(|text| writeln!(out, "{text}")),
        false => write!(out, "{report}"),
    };
    printed.map_err(StoreError::Output)
}

/// What was exported or imported, and into what.
#[derive(Serialize)]
struct Done<'f> {
    #[serde(skip)]
    what: &'static str,
    #[serde(flatten)]
    exported: Exported,
    file: &'f Path,
}

impl Display for Done<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { what, exported: Exported { entries, last_batch }, file } = self;
        writeln!(out, "{}: {what} entries: {entries}, up to batch {last_batch}", file.display())
    }
}

impl Display for CheckReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}: format {}, up to batch {}", self.folder.display(), self.format, self.last_batch)?;
        row(out, "entries", &counts(&self.entries))?;
        let snapshot = match self.folded {
            Some(batch) => format!("up to batch {batch}"),
            None => "it does not say how far it is".to_owned(),
        };
        row(out, "snapshot", &snapshot)?;
        for segment in &self.segments {
            let batches = match segment.batches {
                0 => "no batch".to_owned(),
                count => format!("batches {} to {}", segment.first_batch, segment.first_batch + count - 1),
            };
            row(
                out,
                "journal",
                &format!("{}: {batches}, octets {}", name_of(&segment.file), segment.octets),
            )?;
        }
        if self.cut > 0 {
            let what = format!(
                "octets {} at the end of the journal: not acknowledged, the next start cuts them",
                self.cut
            );
            row(out, "end", &what)?;
        }
        for fault in self.faults.iter().take(FAULTS) {
            row(out, "FAULT", &format!("{}: {}", name_of(&fault.file), fault.what))?;
        }
        let faults = self.faults.len() as u64 + self.more_faults;
        match faults {
            0 => writeln!(out, "\nthe store is sound"),
            _ => writeln!(
                out,
                "\nthe store is damaged; faults: {faults}; `kaido store repair` keeps the entries above"
            ),
        }
    }
}

impl Display for RepairReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sound(report) => {
                writeln!(out, "{}: the store is sound, and left as it is", report.folder.display())
            }
            Self::Repaired { kept, lost, lost_batches, last_batch, damaged, .. } => {
                writeln!(
                    out,
                    "repaired: the store opens, and has all up to batch {last_batch} that was sound"
                )?;
                row(out, "kept", &counts(kept))?;
                for (kind, count) in lost {
                    let what = match count {
                        Some(count) => format!("{kind}: {count} at most"),
                        None => format!("{kind}: nothing says how many there were"),
                    };
                    row(out, "LOST", &what)?;
                }
                if let Some(batches) = lost_batches {
                    let (first, last) = (batches.start(), batches.end());
                    row(out, "LOST", &format!("changes of batches {first} to {last}"))?;
                }
                row(out, "damaged", &format!("{} has the damaged files", damaged.display()))
            }
            Self::Finished { kept, damaged } => {
                writeln!(out, "finished: a repair was interrupted; the store opens now")?;
                row(out, "kept", &counts(kept))?;
                row(out, "damaged", &format!("{} has the damaged files", damaged.display()))
            }
        }
    }
}

fn row(out: &mut Formatter<'_>, name: &str, what: &str) -> fmt::Result {
    writeln!(out, "  {name:8}  {what}")
}

fn counts(entries: &BTreeMap<&'static str, u64>) -> String {
    let counts: Vec<_> = entries.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Fault, SegmentReport};

    fn report() -> CheckReport {
        CheckReport {
            folder: "/var/lib/kaido".into(),
            format: 1,
            entries: [("node", 1), ("session", 1000)].into(),
            last_batch: 1042,
            folded: Some(1000),
            segments: vec![SegmentReport {
                file: "/var/lib/kaido/journal-0000000000000007".into(),
                first_batch: 1001,
                batches: 42,
                octets: 8192,
            }],
            cut: 0,
            faults: Vec::new(),
            more_faults: 0,
        }
    }

    #[test]
    fn a_report_is_text_for_people() {
        let expected = "/var/lib/kaido: format 1, up to batch 1042\n\
            \x20 entries   node 1, session 1000\n\
            \x20 snapshot  up to batch 1000\n\
            \x20 journal   journal-0000000000000007: batches 1001 to 1042, octets 8192\n\
            \n\
            the store is sound\n";
        assert_eq!(report().to_string(), expected);
        let fault = Fault { file: "/var/lib/kaido/state.db".into(), what: "it is torn".into() };
        let damaged = CheckReport { folded: None, cut: 12, faults: vec![fault], more_faults: 1, ..report() };
        let expected = "/var/lib/kaido: format 1, up to batch 1042\n\
            \x20 entries   node 1, session 1000\n\
            \x20 snapshot  it does not say how far it is\n\
            \x20 journal   journal-0000000000000007: batches 1001 to 1042, octets 8192\n\
            \x20 end       octets 12 at the end of the journal: not acknowledged, the next start cuts them\n\
            \x20 FAULT     state.db: it is torn\n\
            \n\
            the store is damaged; faults: 2; `kaido store repair` keeps the entries above\n";
        assert_eq!(damaged.to_string(), expected);
    }

    #[test]
    fn a_repair_says_what_is_kept_and_lost() {
        let repaired = RepairReport::Repaired {
            kept: [("session", 998)].into(),
            lost: [("session", Some(2)), ("peer", None)].into(),
            lost_batches: Some(7..=9),
            last_batch: 6,
            damaged: "/var/lib/kaido/damaged-1".into(),
            faults: Vec::new(),
            more_faults: 0,
        };
        let expected = "repaired: the store opens, and has all up to batch 6 that was sound\n\
            \x20 kept      session 998\n\
            \x20 LOST      peer: nothing says how many there were\n\
            \x20 LOST      session: 2 at most\n\
            \x20 LOST      changes of batches 7 to 9\n\
            \x20 damaged   /var/lib/kaido/damaged-1 has the damaged files\n";
        assert_eq!(repaired.to_string(), expected);
        let json = serde_json::to_value(&repaired).unwrap();
        assert_eq!(json["outcome"], "repaired");
        assert_eq!(json["lost"]["peer"], serde_json::Value::Null);
        assert_eq!(serde_json::to_value(RepairReport::Sound(report())).unwrap()["outcome"], "sound");
    }
}
