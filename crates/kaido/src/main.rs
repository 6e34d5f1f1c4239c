//! Kaido: a fast, measurable user plane.
//!
//! `kaido run` is the node; `check`, `status`, `sessions`, `drops`, `show`, `trace` and `capture` look at it, `doctor` at the machine; `sim` is a small
//! control plane, gNB and UEs to exercise it with; `bench` measures it.

mod api;
mod bench;
mod config;
mod datapath;
mod doctor;
mod frames;
mod heap;
mod ndn;
mod run;
mod show;
mod signals;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{Config, DEFAULT_SOCKET};

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
    /// List the sessions of a running node.
    Sessions {
        #[command(flatten)]
        at: ControlTarget,
        /// Sessions to pass over.
        #[arg(long, default_value_t = 0)]
        skip: usize,
        /// Most sessions to list.
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        of: show::SessionsArgs,
    },
    /// Show a session with its rules as they are installed.
    Session {
        /// Its SEID, as `kaido sessions` shows it.
        #[arg(value_parser = show::seid)]
        seid: u64,
        #[command(flatten)]
        at: ControlTarget,
    },
    /// Count the packets that did not come out, by port and reason.
    Drops(ControlTarget),
    /// Show what the function of a running node has done.
    Show {
        /// What to show.
        #[command(subcommand)]
        what: ShowCommand,
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
    /// Command an NDN router, list what it has, ask it for Data and publish.
    Ndn(ndn::NdnArgs),
    /// Measure Kaido on this machine.
    Bench(Box<bench::BenchArgs>),
}

/// What `kaido show` shows.
#[derive(Debug, Subcommand)]
enum ShowCommand {
    /// Rules and encapsulations of a GRE header remover, with their packets and bytes.
    Gre(ControlTarget),
}

/// Where the running node answers.
#[derive(Debug, clap::Args)]
struct ControlTarget {
    /// The node's control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // Those write to more than a terminal, and must not end by half.
    if !matches!(command, Command::Run { .. } | Command::Sim(_) | Command::Bench(_)) {
        signals::end_with_the_reader();
    }
    match execute(&command) {
        Ok(code) => code,
        Err(report) => {
            eprintln!("{report:?}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: &Command) -> miette::Result<ExitCode> {
    match command {
        Command::Doctor(args) => return doctor::run(args),
        Command::Run { config } => run::run(&Config::read(config)?),
        Command::Check { config } => {
            let read = Config::read(config)?;
            println!("{}: good: {}", config.display(), read.summary());
            Ok(())
        }
        Command::Status(at) => show::status(&at.socket, at.json),
        Command::Sessions { at, skip, limit, of } => {
            show::sessions(&at.socket, at.json, (*skip, *limit), of.wanted())
        }
        Command::Session { seid, at } => show::session(&at.socket, at.json, *seid),
        Command::Drops(at) => show::drops(&at.socket, at.json),
        Command::Show { what: ShowCommand::Gre(at) } => show::gre(&at.socket, at.json),
        Command::Trace { at, trace } => show::trace(&at.socket, at.json, trace),
        Command::Capture { socket, capture } => show::capture(socket, capture),
        Command::Reference { metrics } => {
            print!("{}", if *metrics { run::metrics_table() } else { config::reference() });
            Ok(())
        }
        Command::Sim(args) => kaido_sim::run(args),
        Command::Ndn(args) => ndn::run(args),
        Command::Bench(args) => bench::run(args),
    }?;
    Ok(ExitCode::SUCCESS)
}
