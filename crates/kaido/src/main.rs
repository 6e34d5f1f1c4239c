//! Kaido: a fast, measurable user plane.
//!
//! `kaido run` is the node; `check`, `status`, `sessions`, `drops`, `show`, `trace` and `capture` look at it, `doctor` at the machine; `sim` is a small
//! control plane, gNB and UEs to exercise it with; `bench` measures it.

mod api;
mod bench;
mod config;
mod doctor;
mod frames;
mod heap;
mod ndn;
mod run;
mod show;
mod signals;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use miette::{IntoDiagnostic, miette};

use crate::config::{Config, DEFAULT_SOCKET};
use crate::run::function::NetworkFunction;
use crate::show::ControlTarget;

/// The network functions. A further one is a crate and a line here.
const FUNCTIONS: &[&dyn NetworkFunction] = &[&run::UpfFunction, &run::GreFunction, &run::NdnFunction];

/// A fast, measurable user plane: UPF and PGW-U, or GRE header remover.
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the node until SIGTERM or SIGINT.
    Run {
        /// The configuration file.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Read a configuration and say whether it is good, without starting anything.
    Check {
        /// The configuration file.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Show what a running node is and does.
    Status(ControlTarget),
    /// Count the packets that did not come out, by port and reason.
    Drops(ControlTarget),
    /// Show what a function of a running node has done, beyond its status.
    Show {
        /// Its name, as the configuration has it.
        function: String,
        #[command(flatten)]
        at: ControlTarget,
    },
    /// Show the way of each packet of a session, or of a port where there are no sessions: rules, verdict and time.
    Trace {
        #[command(flatten)]
        at: ControlTarget,
        #[command(flatten)]
        trace: show::TraceArgs,
    },
    /// Write the packets of a session, or of a port where there are no sessions, to a pcapng file, before and after, with rule
    /// and verdict in the comment.
    Capture {
        /// The node's control socket.
        #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
        socket: PathBuf,
        #[command(flatten)]
        capture: show::CaptureArgs,
    },
    /// Say what this machine and its NICs can do for a node, and how to improve it. Changes nothing.
    Doctor(doctor::DoctorArgs),
    /// Print the configuration reference as Markdown.
    Reference {
        /// The metrics that `metrics.listen` offers, instead.
        #[arg(long)]
        metrics: bool,
    },
    /// A small SMF, gNB and UEs: attach, send, report, detach.
    Sim(Box<kaido_sim::SimArgs>),
    /// Measure Kaido on this machine.
    Bench(Box<bench::BenchArgs>),
}

fn main() -> ExitCode {
    let command = FUNCTIONS.iter().fold(Arguments::command(), |command, function| function.commands(command));
    let matches = show::with_selectors(command, FUNCTIONS).get_matches();
    // Those write to more than a terminal, and must not end by half.
    if !matches!(matches.subcommand_name(), Some("run" | "sim" | "bench")) {
        signals::end_with_the_reader();
    }
    match execute(&matches) {
        Ok(code) => code,
        Err(report) => {
            eprintln!("{report:?}");
            ExitCode::FAILURE
        }
    }
}

fn execute(matches: &ArgMatches) -> miette::Result<ExitCode> {
    if let Some(executed) = FUNCTIONS.iter().find_map(|function| function.execute(matches)) {
        return executed.map(|()| ExitCode::SUCCESS);
    }
    let flow = || matches.subcommand().and_then(|(_, given)| show::flow_of(given, FUNCTIONS));
    match Arguments::from_arg_matches(matches).into_diagnostic()?.command {
        Command::Doctor(args) => return doctor::run(&args),
        Command::Run { config } => run::run(&Config::read(&config, FUNCTIONS)?),
        Command::Check { config } => {
            let read = Config::read(&config, FUNCTIONS)?;
            println!("{}: good: {}", config.display(), read.summary());
            Ok(())
        }
        Command::Status(at) => show::status(&at.socket, at.json, FUNCTIONS),
        Command::Drops(at) => show::drops(&at.socket, at.json),
        Command::Show { function, at } => show_function(&function, &at),
        Command::Trace { at, trace } => show::trace(&at.socket, at.json, &trace, flow()),
        Command::Capture { socket, capture } => show::capture(&socket, &capture, flow()),
        Command::Reference { metrics } => {
            print!("{}", if metrics { metrics_table() } else { config::reference(FUNCTIONS) });
            Ok(())
        }
        Command::Sim(args) => kaido_sim::run(&args),
        Command::Bench(args) => bench::run(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// `kaido show NAME`.
fn show_function(name: &str, at: &ControlTarget) -> miette::Result<()> {
    let function = FUNCTIONS.iter().find(|function| function.name() == name).ok_or_else(|| {
        let names = FUNCTIONS.iter().map(|function| function.name()).collect::<Vec<_>>().join(", ");
        miette!(help = format!("there are {names}"), "there is no function {name}")
    })?;
    function.show(at).unwrap_or_else(|| {
        Err(miette!(
            help = "`kaido status` shows all of it",
            "of function {name} there is nothing more to show"
        ))
    })
}

/// The metrics of every node, then those of each function.
fn metrics_table() -> String {
    let of_functions = FUNCTIONS.iter().map(|function| function.families());
    run::metrics_table(&[run::NODE_FAMILIES].into_iter().chain(of_functions).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
