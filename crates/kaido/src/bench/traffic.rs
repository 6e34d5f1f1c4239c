//! `kaido bench run`: a file's streams through a device, and what the bench says of what came back.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use kaido_bench::attach::{AttachPlan, AttachedSessions, Sessions};
use kaido_bench::file::BenchPlan;
use kaido_bench::result::{Finding, RunResult, StreamResult, Volume};
use kaido_bench::traffic::{RunOutcome, open_ports, run_traffic};
use kaido_engine::port::PcapWriter;
use kaido_node::config::ConfigFault;
use kaido_node::config::fault::{Fault, faults};
use miette::{Context, IntoDiagnostic, miette};
use serde::Serialize;

use super::args::{AttachArgs, RunArgs};
use super::{Sink, stop_flag};

/// Findings that are shown in full; the others are in the JSON.
const SHOWN: usize = 5;

/// Runs the file.
pub(super) fn run(args: &RunArgs) -> miette::Result<()> {
    let mut plan = read(&args.config, args.bearers)?;
    if let Some(rate) = args.rate {
        plan.traffic.total = Some(rate.of_link());
    }
    if let Some(seconds) = args.duration {
        plan.settings.duration = Duration::from_secs_f64(seconds);
    }
    if args.check {
        println!("{}: good", args.config.display());
        return Ok(());
    }
    let sink = Sink::new(args.json.as_deref())?;
    let stop = stop_flag()?;
    let ports = open_ports(&plan.traffic).into_diagnostic()?;
    let progress = |elapsed: Duration, received| {
        eprintln!("{:.0} s: {received} packets came back", elapsed.as_secs_f64());
    };
    let outcome = run_traffic(&plan.traffic, &plan.rules, &plan.settings, ports, &stop, &progress);
    let RunOutcome { result, frames } = outcome.into_diagnostic()?;
    if let Some(path) = plan.save.as_deref().filter(|_| !frames.is_empty()) {
        save(path, result.started_unix_ns, &frames).wrap_err_with(|| path.display().to_string())?;
    }
    let is_clean = result.is_clean();
    sink.put(&ResultTable(result))?;
    if is_clean { Ok(()) } else { Err(miette!("packets were lost or wrong")) }
}

/// Sessions of a shape when no number is given.
const SHAPED: u32 = 1000;

/// Establishes the sessions of a file's bearers, or of a shape, and holds them.
pub(super) fn attach(args: &AttachArgs) -> miette::Result<()> {
    let sessions = match (&args.config, args.shape, args.n3.zip(args.gnb)) {
        (_, Some(shape), Some((upf, gnb))) => {
            Sessions::OfShape { shape, count: args.bearers.unwrap_or(SHAPED), tunnel: [upf, gnb] }
        }
        (Some(config), ..) => Sessions::OfBearers(read(config, args.bearers)?.bearers),
        // The command line asks for one of both.
        (None, ..) => return Err(miette!("name a file, or a shape")),
    };
    let stop = stop_flag()?;
    let plan = AttachPlan { upf: args.upf_pfcp, local: args.smf, window: args.window.into() };
    let progress = |line: &str| eprintln!("{line}");
    let (mut attached, took) =
        AttachedSessions::establish(plan, &sessions, &stop, &progress).into_diagnostic()?;
    let sessions = attached.sessions();
    let seconds = took.as_secs_f64();
    eprintln!("{sessions} sessions in {seconds:.2} s ({:.0}/s)", f64::from(sessions) / seconds.max(1e-9));
    // A script that does not read stdout any more is no reason to end.
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(b"ready\n").and_then(|()| stdout.flush());
    let held = attached.hold(&stop).into_diagnostic();
    attached.release(&progress).into_diagnostic()?;
    held
}

fn read(path: &Path, bearers: Option<u32>) -> Result<BenchPlan, ConfigFault> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigFault::Unreadable {
        path: path.to_owned(),
        error,
        described: "docs/bench.md",
    })?;
    BenchPlan::parse_of(&text, bearers).map_err(|found| {
        let help = |field: &str| match field {
            "" => "docs/bench.md has every section and field, with examples",
            _ => "docs/bench.md says what goes there",
        };
        let found = found.into_iter().map(|fault| Fault {
            help: help(&fault.field).to_owned(),
            at: nearer(&text, fault.at, &fault.field),
            field: fault.field,
            message: fault.message,
        });
        faults(path, text.clone(), found.collect())
    })
}

/// The line on which a field is written, as far as it has one of its own, of the table that begins at a place.
fn nearer(text: &str, at: Range<usize>, field: &str) -> Range<usize> {
    let mut best: Option<(usize, Range<usize>)> = None;
    let mut start = at.start;
    for (number, line) in text.get(at.start..).unwrap_or_default().split_inclusive('\n').enumerate() {
        let written = line.trim();
        // Tables within this one go on with it.
        if number > 0 && written.starts_with("[[") {
            break;
        }
        let key = written.split(['=', ']']).next().unwrap_or_default().trim_start_matches('[').trim();
        let key = key.rsplit('.').next().unwrap_or_default();
        let names = field.split('.').map(|part| part.split('[').next().unwrap_or_default());
        let depth = names.enumerate().filter(|(_, name)| *name == key).map(|(depth, _)| depth).last();
        if let Some(depth) = depth.filter(|depth| *depth > 0)
            && best.as_ref().is_none_or(|(deepest, _)| depth > *deepest)
        {
            best = Some((depth, start..start + line.trim_end().len()));
        }
        start += line.len();
    }
    best.map_or(at, |(_, found)| found)
}

/// Writes the frames of findings, at the times at which they came.
fn save(path: &Path, started_unix_ns: u64, frames: &[(u64, Vec<u8>)]) -> miette::Result<()> {
    let mut writer = PcapWriter::create(path).into_diagnostic()?;
    for (time_ns, frame) in frames {
        let time_ns = started_unix_ns.saturating_add(*time_ns);
        writer.write(time_ns, frame.len(), std::iter::once(frame.as_slice())).into_diagnostic()?;
    }
    writer.flush().into_diagnostic()
}

/// A result, with a table of it.
#[derive(Serialize)]
#[serde(transparent)]
struct ResultTable(RunResult);

fn microseconds(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3))
}

fn rate(volume: Volume, duration_ns: u64) -> String {
    let seconds = (duration_ns as f64 / 1e9).max(1e-9);
    format!("{:.0}", volume.packets as f64 / seconds)
}

/// The cells of a stream.
fn cells(stream: &StreamResult, duration_ns: u64) -> [String; 17] {
    let latency = &stream.latency;
    let counted = |count: u64| if stream.counted { count.to_string() } else { "-".to_owned() };
    let is_timed = latency.histogram.count() > 0;
    [
        stream.name.clone(),
        stream.sent.packets.to_string(),
        rate(stream.sent, duration_ns),
        counted(stream.received.packets),
        counted(stream.lost),
        counted(stream.withheld),
        counted(stream.duplicated),
        counted(stream.reordering.packets),
        counted(stream.late),
        counted(stream.corrupted),
        counted(stream.wrong),
        microseconds(is_timed.then_some(latency.min_ns)),
        latency.mean_ns().map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns / 1e3)),
        microseconds(latency.quantile_ns(0.5)),
        microseconds(latency.quantile_ns(0.99)),
        microseconds(latency.quantile_ns(0.99999)),
        if is_timed { format!("{:.1}", latency.jitter_ns / 1e3) } else { "-".to_owned() },
    ]
}

const HEADS: [&str; 17] = [
    "stream", "sent", "pps", "received", "lost", "withheld", "double", "reorder", "late", "corrupt", "wrong",
    "min", "mean", "p50", "p99", "p99.999", "jitter",
];

impl fmt::Display for ResultTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(result) = self;
        let seconds = result.duration_ns as f64 / 1e9;
        writeln!(
            f,
            "{seconds:.3} s on {} threads; latency in microseconds, jitter as of RFC 3550; a look at the clock takes {:.0} ns, up to {} packets share one",
            result.threads, result.clock.read_ns, result.clock.packets_per_stamp
        )?;
        let mut rows = vec![HEADS.map(str::to_owned)];
        rows.extend(result.streams.iter().map(|stream| cells(stream, result.duration_ns)));
        let widths: Vec<usize> = (0..HEADS.len())
            .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
            .collect();
        for row in &rows {
            let mut line = format!("{:1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                write!(line, "  {cell:>width$}")?;
            }
            writeln!(f, "{line}")?;
        }
        for stream in result.streams.iter().filter(|stream| stream.reordering.packets > 0) {
            let order = &stream.reordering;
            let mean = order.extent_sum as f64 / order.packets as f64;
            writeln!(
                f,
                "{}: reordered in {} blocks, of {} packets at most; extent {mean:.1} on average, {} at most (RFC 4737)",
                stream.name, order.blocks, order.block_packets_max, order.extent_max
            )?;
        }
        for port in &result.ports {
            writeln!(
                f,
                "port {}: {} sent, {} failed, {} received, of these {} control, {} of an earlier run and {} unrecognised",
                port.name,
                port.sent.packets,
                port.failed,
                port.received.packets,
                port.control,
                port.earlier,
                port.unrecognised
            )?;
            if port.held_up > 0 {
                writeln!(
                    f,
                    "port {}: the judge was too far behind {} times; what was lost may be the bench's own loss",
                    port.name, port.held_up
                )?;
            }
        }
        findings(f, result)
    }
}

fn findings(f: &mut fmt::Formatter<'_>, result: &RunResult) -> fmt::Result {
    let found = &result.findings;
    if found.total == 0 {
        return writeln!(f, "nothing wrong was found");
    }
    let list = |counts: &mut dyn Iterator<Item = (String, u64)>| {
        counts.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    };
    writeln!(
        f,
        "{} findings: {}",
        found.total,
        list(&mut found.kinds.iter().map(|(kind, count)| (kind.to_string(), *count)))
    )?;
    if !found.fields.is_empty() {
        writeln!(
            f,
            "wrong fields: {}",
            list(&mut found.fields.iter().map(|(field, count)| (field.clone(), *count)))
        )?;
    }
    // One of each kind before a second of any.
    let mut shown: Vec<&Finding> = Vec::new();
    for finding in &found.kept {
        if shown.len() < SHOWN
            && !shown.iter().any(|other| other.kind == finding.kind && other.detail == finding.detail)
        {
            shown.push(finding);
        }
    }
    shown.iter().try_for_each(|finding| write!(f, "\n{finding}"))
}

#[cfg(test)]
mod tests {
    use kaido_bench::result::{FindingKind, PortResult};

    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_stream_and_names_what_is_wrong() {
        let mut result = RunResult { duration_ns: 2_000_000_000, ..RunResult::default() };
        let mut stream =
            StreamResult { name: "uplink".to_owned(), counted: true, lost: 3, ..StreamResult::default() };
        stream.sent = Volume { packets: 1000, bytes: 64_000 };
        stream.latency.record(12_345);
        result.streams = vec![stream, StreamResult { name: "replay".to_owned(), ..StreamResult::default() }];
        result.ports = vec![PortResult { name: "n3".to_owned(), ..PortResult::default() }];
        let clean = ResultTable(result.clone()).to_string();
        let lines: Vec<_> = clean.lines().collect();
        assert!(lines[0].starts_with("2.000 s"), "{clean}");
        assert!(
            lines[2].contains("uplink") && lines[2].contains(" 500 ") && lines[2].contains("12.3"),
            "{clean}"
        );
        assert!(lines[3].contains("replay") && lines[3].contains(" - "), "{clean}");
        assert_eq!(lines[5], "nothing wrong was found");
        result.ports[0].held_up = 2;
        let behind = ResultTable(result.clone()).to_string();
        assert!(behind.contains("port n3: the judge was too far behind 2 times"), "{behind}");
        result.findings.total = 3;
        result.findings.kinds.insert(FindingKind::Lost, 3);
        result.findings.kept.push(Finding {
            kind: FindingKind::Lost,
            detail: "of 1000 that were sent".to_owned(),
            stream: Some("uplink".to_owned()),
            sequence: Some(7),
            port: String::new(),
            time_ns: 0,
            rows: Vec::new(),
        });
        let text = ResultTable(result).to_string();
        assert!(text.contains("3 findings: 3 lost"), "{text}");
        assert!(text.contains("lost: stream uplink, packet 7: of 1000 that were sent"), "{text}");
    }

    #[test]
    fn a_wrong_file_is_told_with_line_and_field() {
        let folder = std::env::temp_dir().join(format!("kaido-bench-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("bench.toml");
        let text = "[[port]]\nname = \"a\"\ndriver = { pcap = {} }\n[[stream]]\nname = \"s\"\nport = \"b\"\ntemplate = { bytes = \"00\" }\n";
        std::fs::write(&path, text).unwrap();
        let error = read(&path, None).unwrap_err().to_string();
        let shown = path.display();
        assert!(error.contains(&format!("{shown}:6: stream.s.port: there is no port `b`")), "{error}");
        assert!(error.contains(&format!("{shown}:7: stream.s.template.bytes: 1 bytes")), "{error}");
        std::fs::write(&path, text.replace("driver", "drivers")).unwrap();
        let error = read(&path, None).unwrap_err().to_string();
        assert!(error.contains(&format!("{shown}:3: unknown field `drivers`")), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(read(&path, None), Err(ConfigFault::Unreadable { .. })));
    }
}
