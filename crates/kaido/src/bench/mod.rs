//! `kaido bench`: the user plane measured in memory, and its control plane over loopback.

mod args;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use miette::{Context, IntoDiagnostic};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

pub(crate) use self::args::BenchArgs;
use self::args::{Benchmark, ControlArgs, MicroArgs};

/// Runs the benchmark that the arguments name.
///
/// # Errors
/// When a measurement fails, when a packet comes out wrong, or when the report cannot be written.
pub(crate) fn run(args: &BenchArgs) -> miette::Result<()> {
    match &args.benchmark {
        Benchmark::Micro(args) => micro(args),
        Benchmark::Control(args) => control(args),
    }
}

fn micro(args: &MicroArgs) -> miette::Result<()> {
    let plan = args.plan();
    // Reserved huge pages are given back whatever ends the run.
    let stop = stop_flag()?;
    let file = args.json_file().map(create).transpose()?;
    let report = kaido_bench::run(&plan, &stop, &|line| eprintln!("{line}")).into_diagnostic()?;
    if args.json_to_stdout() {
        eprint!("{report}");
        return write_json(&report, std::io::stdout().lock()).into_diagnostic().wrap_err("standard output");
    }
    print!("{report}");
    file.map_or(Ok(()), |(path, file)| {
        write_json(&report, file).into_diagnostic().wrap_err_with(|| path.display().to_string())
    })
}

fn control(args: &ControlArgs) -> miette::Result<()> {
    let stop = stop_flag()?;
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    let file = args.json.as_deref().filter(|_| !to_stdout).map(create).transpose()?;
    let progress = |line: &str| eprintln!("{line}");
    let report = kaido_bench::measure_control(&args.plan(), &stop, &progress).into_diagnostic()?;
    if to_stdout {
        eprint!("{report}");
        return write_json(&report, std::io::stdout().lock()).into_diagnostic().wrap_err("standard output");
    }
    print!("{report}");
    file.map_or(Ok(()), |(path, file)| {
        write_json(&report, file).into_diagnostic().wrap_err_with(|| path.display().to_string())
    })
}

/// Set by SIGINT and SIGTERM.
fn stop_flag() -> miette::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .into_diagnostic()
            .wrap_err("handlers of SIGINT and SIGTERM")?;
    }
    Ok(stop)
}

/// Before the run: nobody wants to learn after minutes that there is no such folder.
fn create(path: &Path) -> miette::Result<(&Path, File)> {
    let file = File::create(path).into_diagnostic().wrap_err_with(|| path.display().to_string())?;
    Ok((path, file))
}

fn write_json(report: &impl Serialize, mut to: impl Write) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut to, report)?;
    to.write_all(b"\n")
}
