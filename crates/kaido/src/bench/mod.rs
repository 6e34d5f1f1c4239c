//! `kaido bench`: the user plane measured in memory, its control plane over loopback, and devices of any kind measured and
//! judged with generated traffic; sweeps, searches and reports.

mod args;
mod flame;
mod live;
mod ndn;
mod point;
mod python;
mod traffic;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use kaido_bench::Report;
use kaido_metrics::PushTarget;
use miette::{Context, IntoDiagnostic};
use serde::Serialize;

pub(crate) use self::args::BenchArgs;
use self::args::{Benchmark, ControlArgs, GeneratorArgs, LruArgs, MicroArgs, PlatformsArgs};
use kaido_node::signals::stop_flag;

/// Runs the benchmark that the arguments name.
///
/// # Errors
/// When a measurement fails, when a packet comes out wrong, or when the report cannot be written.
pub(crate) fn run(args: &BenchArgs) -> miette::Result<()> {
    match &args.benchmark {
        Benchmark::Micro(args) => micro(args),
        Benchmark::Control(args) => control(args),
        Benchmark::Run(args) => traffic::run(args),
        Benchmark::Attach(args) => traffic::attach(args),
        Benchmark::Live(args) => live::run(args),
        Benchmark::Generator(args) => generator(args),
        Benchmark::Point(args) => point::run(args),
        Benchmark::Platforms(args) => platforms(args),
        Benchmark::Flame(args) => flame::run(args),
        Benchmark::Lru(args) => lru(args),
        Benchmark::Ndn(args) => ndn::run(args),
        Benchmark::Sweep(args) => python::run("sweep", args),
        Benchmark::Search(args) => python::run("search", args),
        Benchmark::Report(args) => python::run("report", args),
        Benchmark::Compare(args) => python::run("compare", args),
        Benchmark::Discoveries(args) => python::run("discoveries", args),
        Benchmark::Sources(args) => python::run("sources", args),
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
        write_json(&report, std::io::stdout().lock()).into_diagnostic().wrap_err("standard output")?;
    } else {
        print!("{report}");
    }
    if let Some((path, file)) = file {
        write_json(&report, file).into_diagnostic().wrap_err_with(|| path.display().to_string())?;
    }
    args.push.as_ref().map_or(Ok(()), |target| push(target, &args.job, &report))
}

/// Pushes a report, under a name of its own.
fn push(target: &PushTarget, job: &str, report: &Report) -> miette::Result<()> {
    let uid = kaido_bench::run_id().into_diagnostic().wrap_err("the kernel makes no name for the run")?;
    kaido_bench::push(target, job, &uid, report).into_diagnostic().wrap_err("--push")?;
    eprintln!("pushed to {target}: job {job}, uid {uid}");
    Ok(())
}

fn control(args: &ControlArgs) -> miette::Result<()> {
    let stop = stop_flag()?;
    let sink = Sink::new(args.json.as_deref())?;
    let progress = |line: &str| eprintln!("{line}");
    sink.put(&kaido_bench::measure_control(&args.plan(), &stop, &progress).into_diagnostic()?)
}

fn generator(args: &GeneratorArgs) -> miette::Result<()> {
    let stop = stop_flag()?;
    let sink = Sink::new(args.json.as_deref())?;
    let progress = |line: &str| eprintln!("{line}");
    sink.put(&kaido_bench::measure_generator(&args.plan(), &stop, &progress).into_diagnostic()?)
}

fn platforms(args: &PlatformsArgs) -> miette::Result<()> {
    let stop = stop_flag()?;
    let sink = Sink::new(args.json.as_deref())?;
    let progress = |line: &str| eprintln!("{line}");
    sink.put(&kaido_bench::platforms::measure_platforms(&args.plan(), &stop, &progress).into_diagnostic()?)
}

/// Where a report goes as JSON, beside its table.
enum Sink<'p> {
    Nowhere,
    Stdout,
    File(&'p Path, File),
}

impl<'p> Sink<'p> {
    /// Makes the file, if there is to be one.
    fn new(json: Option<&'p Path>) -> miette::Result<Self> {
        match json {
            None => Ok(Self::Nowhere),
            Some(path) if path == Path::new("-") => Ok(Self::Stdout),
            Some(path) => create(path).map(|(path, file)| Self::File(path, file)),
        }
    }

    /// Prints the table, and writes the JSON.
    fn put<R: Serialize + std::fmt::Display>(self, report: &R) -> miette::Result<()> {
        if let Self::Stdout = self {
            eprint!("{report}");
            return write_json(report, std::io::stdout().lock())
                .into_diagnostic()
                .wrap_err("standard output");
        }
        print!("{report}");
        match self {
            Self::File(path, file) => {
                write_json(report, file).into_diagnostic().wrap_err_with(|| path.display().to_string())
            }
            Self::Nowhere | Self::Stdout => Ok(()),
        }
    }
}

fn lru(args: &LruArgs) -> miette::Result<()> {
    let report = kaido_bench::measure_lru(args.sessions, stop_flag()?.as_ref()).into_diagnostic()?;
    write_json(&report, std::io::stdout().lock()).into_diagnostic().wrap_err("standard output")
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
