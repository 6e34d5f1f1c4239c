//! Kaido: a fast, measurable user plane.
//!
//! `kaido run` is the node. `check`, `status`, `sessions`, `drops`, `show`, `trace` and `capture` look at it, `doctor` at the
//! machine, `store` at what a node keeps. `sim` is a small control plane, gNB and UEs to exercise it with. `bench` measures it.
//! `completions` and `man` print what packages install.
#![forbid(unsafe_code)]

mod bench;
mod heap;
mod manual;
mod rights;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use kaido_node::config::ConfigFault;
use kaido_node::function::NetworkFunction;
use kaido_node::{cli, signals};
use miette::IntoDiagnostic;

/// How `kaido run` ends where its file is not good, `EX_CONFIG` of sysexits.h: a service manager need not start it again before somebody
/// has mended that.
const BAD_FILE: u8 = 78;

/// The network functions. A further one is a crate and a line here. The first is that of a file that does not name its own.
const FUNCTIONS: &[&dyn NetworkFunction] = &[
    &kaido_upf_node::UpfFunction,
    &kaido_gre::GreFunction,
    &kaido_ndn::NdnFunction,
    &kaido_vxlan::VxlanFunction,
];

/// A fast, measurable user plane: UPF and PGW-U, GRE header remover, NDN router, VXLAN endpoint.
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Tool,
}

/// Commands beside those of a node and its functions.
#[derive(Debug, Subcommand)]
enum Tool {
    /// Say what this machine and its NICs can do for a node, and how to improve it. Changes nothing.
    Doctor(kaido_doctor::DoctorArgs),
    /// Check, repair, export or import what a node keeps over a restart.
    Store(kaido_store::cli::StoreArgs),
    /// Show a running node live: ports, workers, drops, and the sessions or rules that it has.
    Top(kaido_top::TopArgs),
    /// A small SMF, gNB and UEs: attach, send, report, detach.
    Sim(Box<kaido_sim::SimArgs>),
    /// Measure Kaido on this machine.
    Bench(Box<bench::BenchArgs>),
    /// Print what a shell completes this command line by.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual: a page for each command.
    Man {
        /// Where to, a folder; it is made.
        folder: PathBuf,
    },
}

/// The whole command line.
fn commands() -> Command {
    cli::commands(Arguments::command(), FUNCTIONS)
}

fn main() -> ExitCode {
    rights::take();
    let matches = commands().get_matches();
    // Those write to more than a terminal, and must not end by half.
    if !matches!(matches.subcommand_name(), Some("run" | "sim" | "bench")) {
        signals::end_with_the_reader();
    }
    match execute(&matches) {
        Ok(code) => code,
        Err(report) => {
            eprintln!("{report:?}");
            let is_file = matches.subcommand_name() == Some("run") && report.is::<ConfigFault>();
            if is_file { ExitCode::from(BAD_FILE) } else { ExitCode::FAILURE }
        }
    }
}

fn execute(matches: &ArgMatches) -> miette::Result<ExitCode> {
    if let Some(executed) = cli::execute(matches, FUNCTIONS) {
        return executed.map(|()| ExitCode::SUCCESS);
    }
    match Arguments::from_arg_matches(matches).into_diagnostic()?.command {
        Tool::Doctor(args) => return kaido_doctor::run(&args, FUNCTIONS),
        Tool::Store(args) => return Ok(store(&args)),
        Tool::Top(args) => kaido_top::run(&args, FUNCTIONS),
        Tool::Sim(args) => kaido_sim::run(&args),
        Tool::Bench(args) => bench::run(&args),
        Tool::Completions { shell } => manual::completions(commands(), shell),
        Tool::Man { folder } => manual::pages(commands(), &folder),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// `kaido store`. Its exit code is 1 where a store is damaged, and 2 where it cannot be read or written at all.
fn store(args: &kaido_store::cli::StoreArgs) -> ExitCode {
    kaido_store::cli::run(args).unwrap_or_else(|error| {
        eprintln!("{:?}", miette::Report::msg(error));
        ExitCode::from(2)
    })
}

#[cfg(test)]
mod tests;
