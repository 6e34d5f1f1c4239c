//! The commands that every binary of functions has.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use miette::{IntoDiagnostic, Report, miette};

use crate::accounts;
use crate::config::{ConfigFault, DEFAULT_SOCKET};
use crate::file::{self, Config};
use crate::function::NetworkFunction;
use crate::http;
use crate::init_command;
use crate::metrics;
use crate::prepare::prepare;
use crate::reload::Reloader;
use crate::show::{self, ControlTarget, Watch};
use crate::token_command::{self, TokenArgs};

// No doc comment: it would describe the whole command line.
#[derive(Debug, Subcommand)]
enum NodeCommand {
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
    /// Make what a configuration asks for and only root can make, for a node that runs as another user: folders, and a BPF file
    /// system for `store.restart = "hitless"`. The service of the package does so before each start.
    Prepare {
        /// The configuration file.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// Who the node runs as.
        #[arg(long, value_name = "NAME", default_value = "kaido")]
        user: String,
    },
    /// Show what a running node is and does.
    Status {
        #[command(flatten)]
        at: ControlTarget,
        #[command(flatten)]
        watch: Watch,
    },
    /// Count the packets that did not come out, by port and reason.
    Drops {
        #[command(flatten)]
        at: ControlTarget,
        #[command(flatten)]
        watch: Watch,
    },
    /// List the kernel's routes, as a running node mirrors them: by which port and gateway packets leave.
    Routes {
        #[command(flatten)]
        at: ControlTarget,
        #[command(flatten)]
        of: show::RoutesArgs,
        #[command(flatten)]
        watch: Watch,
    },
    /// List the kernel's neighbours behind the ports of a running node, as it mirrors them.
    Neighbours {
        #[command(flatten)]
        at: ControlTarget,
        #[command(flatten)]
        of: show::NeighboursArgs,
        #[command(flatten)]
        watch: Watch,
    },
    /// Show what a function of a running node has done, beyond its status.
    Show {
        /// Its name, as the configuration has it.
        function: String,
        #[command(flatten)]
        at: ControlTarget,
        #[command(flatten)]
        watch: Watch,
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
    /// Have another program take over from a running node, without a gap; where it cannot, the running one goes on.
    Upgrade {
        #[command(flatten)]
        at: ControlTarget,
        /// The program: this one, unless another is given.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Have a running node read its configuration again: what can change without a restart does, all of it or nothing.
    Reload {
        #[command(flatten)]
        at: ControlTarget,
        /// Only say what differs, and whether it could change.
        #[arg(long)]
        dry_run: bool,
    },
    /// Show what a running node logs, or have it log something else.
    Log {
        /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,kaido_pfcp=debug`.
        level: Option<String>,
        #[command(flatten)]
        at: ControlTarget,
    },
    /// Let somebody ask a node over TCP, by a token that is shown once.
    Token(TokenArgs),
    /// Print the configuration reference as Markdown.
    Reference {
        /// The metrics that `metrics.listen` offers, instead.
        #[arg(long)]
        metrics: bool,
        /// The OpenAPI document of a node with all functions, instead.
        #[arg(long, conflicts_with = "metrics")]
        openapi: bool,
    },
}

/// A command line with the commands of every node, and those of the functions.
pub fn commands(command: Command, functions: &[&dyn NetworkFunction]) -> Command {
    let command = NodeCommand::augment_subcommands(command).subcommand(init_command::command(functions));
    let command = functions.iter().fold(command, |command, function| function.commands(command));
    show::with_selectors(command, functions)
}

/// Executes the command that was given; `None` where it is neither every node's nor a function's.
pub fn execute(matches: &ArgMatches, functions: &[&dyn NetworkFunction]) -> Option<miette::Result<()>> {
    if let Some(executed) = functions.iter().find_map(|function| function.execute(matches)) {
        return Some(executed);
    }
    if let Some(("init", given)) = matches.subcommand() {
        return Some(init_command::run(given, functions));
    }
    NodeCommand::has_subcommand(matches.subcommand_name()?).then(|| {
        let flow = || matches.subcommand().and_then(|(_, given)| show::flow_of(given, functions));
        match NodeCommand::from_arg_matches(matches).into_diagnostic()? {
            NodeCommand::Run { config } => {
                let read = Config::read_with_text(&config, functions).map_err(Report::from);
                let (read, text) = read.inspect_err(crate::upgrade::fail)?;
                crate::run::run(&read, Reloader::new(&config, text, functions).into_diagnostic()?)
            }
            NodeCommand::Check { config } => {
                let read = Config::read(&config, functions)?;
                println!("{}: good: {}", config.display(), read.summary());
                Ok(())
            }
            NodeCommand::Prepare { config, user } => {
                let read = Config::read(&config, functions).map_err(|fault| not_prepared(&config, &fault))?;
                prepare(&read, accounts::user("--user", &user)?)
            }
            NodeCommand::Status { at, watch } => watch.run(|| show::status(&at.socket, at.json, functions)),
            NodeCommand::Drops { at, watch } => watch.run(|| show::drops(&at.socket, at.json)),
            NodeCommand::Routes { at, of, watch } => watch.run(|| show::routes(&at.socket, at.json, &of)),
            NodeCommand::Neighbours { at, of, watch } => {
                watch.run(|| show::neighbours(&at.socket, at.json, &of))
            }
            NodeCommand::Show { function, at, watch } => {
                watch.run(|| show_function(&function, &at, functions))
            }
            NodeCommand::Trace { at, trace } => show::trace(&at.socket, at.json, &trace, flow()),
            NodeCommand::Capture { socket, capture } => show::capture(&socket, &capture, flow()),
            NodeCommand::Reload { at, dry_run } => show::reload(&at.socket, at.json, dry_run),
            NodeCommand::Upgrade { at, program } => show::upgrade(&at.socket, at.json, program),
            NodeCommand::Log { level, at } => show::log(&at.socket, level),
            NodeCommand::Token(args) => token_command::run(&args),
            NodeCommand::Reference { openapi: true, .. } => {
                let document = http::openapi::openapi(functions.iter().copied());
                println!("{}", serde_json::to_string_pretty(&document).into_diagnostic()?);
                Ok(())
            }
            NodeCommand::Reference { metrics, .. } => {
                print!("{}", if metrics { metrics_table(functions) } else { file::reference(functions) });
                Ok(())
            }
        }
    })
}

/// Why nothing is prepared, in a line: `kaido run` follows, and says all that is wrong.
fn not_prepared(config: &Path, fault: &ConfigFault) -> Report {
    let help = format!("`kaido check -c {}` says all that is wrong", config.display());
    miette!(help = help, "nothing is prepared: {fault}")
}

/// `kaido show NAME`.
fn show_function(name: &str, at: &ControlTarget, functions: &[&dyn NetworkFunction]) -> miette::Result<()> {
    let function = functions.iter().find(|function| function.name() == name).ok_or_else(|| {
        let names = functions.iter().map(|function| function.name()).collect::<Vec<_>>().join(", ");
        miette!(help = format!("there are {names}"), "there is no function {name}")
    })?;
    function.show(at).unwrap_or_else(|| {
        Err(miette!(
            help = "`kaido status` shows all of it",
            "of function {name} there is nothing more to show"
        ))
    })
}

/// The metrics of every node, then those of each function, as a Markdown table: part of `docs/observability.md`.
pub fn metrics_table(functions: &[&dyn NetworkFunction]) -> String {
    let of_functions = functions.iter().map(|function| function.families());
    metrics::table(&[metrics::NODE_FAMILIES].into_iter().chain(of_functions).collect::<Vec<_>>())
}
