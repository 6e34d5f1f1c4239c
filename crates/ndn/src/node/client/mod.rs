//! `kaido ndn`: an application of a router, Kaido's or another: commands it, lists what it has, asks and publishes.

mod change;
pub(crate) mod entries;
mod list;
mod ping;
mod tables;
mod transfer;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use kaido_wire::ndn::{Name, name_from_uri};
use miette::miette;

use crate::client::{Consumer, DEFAULT_ROUTER, ROUTER_VARIABLE, Router};

/// `kaido ndn`.
#[derive(Debug, Args)]
pub(crate) struct NdnArgs {
    /// The router: unix:///run/nfd/nfd.sock, tcp://host:6363 or udp://host:6363.
    #[arg(long, global = true, value_name = "URI", env = ROUTER_VARIABLE, default_value = DEFAULT_ROUTER)]
    router: Router,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what the router is and has done.
    Status,
    /// List, make and remove faces.
    #[command(subcommand)]
    Face(Face),
    /// List, add and remove routes.
    #[command(subcommand)]
    Route(Route),
    /// Show, configure and erase the Content Store.
    #[command(subcommand)]
    Cs(Cs),
    /// List and choose strategies.
    #[command(subcommand)]
    Strategy(Strategy),
    /// List the FIB of a node of this host: prefixes and their next hops.
    Fib {
        #[command(flatten)]
        of: tables::ListArgs,
        /// Only prefixes with a next hop over that face.
        #[arg(long, value_name = "NUMBER")]
        face: Option<u64>,
    },
    /// List the PIT of a node of this host: Interests that wait, from whom, and who was asked.
    Pit(tables::ListArgs),
    /// Show how full the tables of a node of this host are, worker by worker.
    Tables(tables::TablesArgs),
    /// Ask PREFIX/ping again and again, and say how long it took; or answer it.
    Ping(ping::PingArgs),
    /// Ask for one Data and write its content.
    Peek(transfer::PeekArgs),
    /// Fetch all segments of the newest version of a name and write them.
    Cat(transfer::CatArgs),
    /// Publish a file, or what comes in, under a name, until interrupted.
    Put(transfer::PutArgs),
}

#[derive(Debug, Subcommand)]
enum Face {
    /// List the faces.
    List,
    /// Make a face.
    Create {
        /// The other end: udp4://192.0.2.1:6363, tcp6:// and so on, or ether:// with an address in brackets.
        remote: String,
        /// This end, such as dev://eth0 for ether://.
        #[arg(long)]
        local: Option<String>,
        /// Keep it whatever happens to the connection.
        #[arg(long)]
        permanent: bool,
        /// Octets of a packet on the link.
        #[arg(long)]
        mtu: Option<u64>,
        /// Acknowledge packets, and send again what was lost; the other end must do so, too.
        #[arg(long)]
        reliability: bool,
    },
    /// Change a face.
    Update {
        /// Its number.
        face: u64,
        /// Octets of a packet on the link.
        #[arg(long)]
        mtu: Option<u64>,
        /// Whether packets are acknowledged, and sent again when they were lost.
        #[arg(long, value_name = "on|off", value_parser = switch)]
        reliability: Option<bool>,
    },
    /// Remove a face.
    Destroy {
        /// Its number.
        face: u64,
    },
}

#[derive(Debug, Subcommand)]
enum Route {
    /// List the routes.
    List,
    /// Add a route.
    Add {
        /// The prefix.
        prefix: NameArg,
        /// The number of the face, or the URI of its other end: a face that there is not is made.
        to: String,
        /// The lower, the sooner it is taken.
        #[arg(long, default_value_t = 0)]
        cost: u64,
        /// Longer prefixes that have routes do not have this one.
        #[arg(long)]
        no_inherit: bool,
        /// This prefix has none of the routes of shorter ones.
        #[arg(long)]
        capture: bool,
        /// Seconds after which it ends.
        #[arg(long, value_name = "SECONDS")]
        expires: Option<u64>,
    },
    /// Remove a route.
    Remove {
        /// The prefix.
        prefix: NameArg,
        /// The number of the face, or the URI of its other end.
        to: String,
    },
}

#[derive(Debug, Subcommand)]
enum Cs {
    /// Show the Content Store.
    Info,
    /// List the Data in memory of a node of this host.
    List(tables::ListArgs),
    /// Configure the Content Store.
    Config {
        /// Packets it may hold.
        #[arg(long)]
        capacity: Option<u64>,
        /// Whether it takes Data in.
        #[arg(long, value_name = "on|off", value_parser = switch)]
        admit: Option<bool>,
        /// Whether it answers Interests.
        #[arg(long, value_name = "on|off", value_parser = switch)]
        serve: Option<bool>,
    },
    /// Erase the Data of a prefix.
    Erase {
        /// The prefix.
        prefix: NameArg,
        /// At most so many.
        #[arg(long)]
        count: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
enum Strategy {
    /// List the prefixes that have a strategy of their own.
    List,
    /// Choose a strategy for a prefix.
    Set {
        /// The prefix.
        prefix: NameArg,
        /// The strategy: best-route, multicast, asf, ... or its whole name.
        strategy: String,
    },
    /// Let a prefix have the strategy of the shorter one again.
    Unset {
        /// The prefix.
        prefix: NameArg,
    },
}

/// A name on the command line.
#[derive(Clone, Debug)]
pub(crate) struct NameArg(Vec<u8>);

impl NameArg {
    fn name(&self) -> Name<'_> {
        // It was read when it came.
        Name::new(&self.0).unwrap_or_default()
    }
}

impl FromStr for NameArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |_| format!("{text:?} is no name: /like/this, with %20 for other octets than letters and digits");
        name_from_uri(text).map(Self).map_err(wrong)
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off".into()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "a number of seconds from 0".into())
}

/// Connects to the router.
fn connect(router: &Router) -> miette::Result<Consumer> {
    Consumer::connect(router).map_err(|error| {
        miette!(
            help = format!("does a router run there? Name another with --router, or by {ROUTER_VARIABLE}"),
            "cannot reach a router at {router}: {error}"
        )
    })
}

/// Runs a command.
///
/// # Errors
/// What kept it from being done.
pub(crate) fn run(args: &NdnArgs) -> miette::Result<()> {
    let json = args.json;
    let router = || connect(&args.router);
    match &args.command {
        Command::Fib { of, face } => tables::fib(json, of, *face),
        Command::Pit(of) => tables::pit(json, of),
        Command::Cs(Cs::List(of)) => tables::cs(json, of),
        Command::Tables(at) => tables::tables(json, at),
        Command::Status => list::status(&mut router()?, json),
        Command::Face(Face::List) => list::faces(&mut router()?, json),
        Command::Face(Face::Create { remote, local, permanent, mtu, reliability }) => {
            let wish = change::FaceRequest { mtu: *mtu, reliability: reliability.then_some(true) };
            change::create_face(&mut router()?, json, remote, local.as_deref(), *permanent, &wish)
        }
        Command::Face(Face::Update { face, mtu, reliability }) => change::update_face(
            &mut router()?,
            *face,
            &change::FaceRequest { mtu: *mtu, reliability: *reliability },
        ),
        Command::Face(Face::Destroy { face }) => change::destroy_face(&mut router()?, *face),
        Command::Route(Route::List) => list::routes(&mut router()?, json),
        Command::Route(Route::Add { prefix, to, cost, no_inherit, capture, expires }) => {
            let asked = change::RouteRequest {
                cost: *cost,
                inherit: !no_inherit,
                capture: *capture,
                expires: *expires,
            };
            change::add_route(&mut router()?, prefix, to, &asked)
        }
        Command::Route(Route::Remove { prefix, to }) => change::remove_route(&mut router()?, prefix, to),
        Command::Cs(Cs::Info) => list::cs(&mut router()?, json),
        Command::Cs(Cs::Config { capacity, admit, serve }) => {
            change::configure_cs(&mut router()?, *capacity, *admit, *serve)
        }
        Command::Cs(Cs::Erase { prefix, count }) => change::erase_cs(&mut router()?, prefix, *count),
        Command::Strategy(Strategy::List) => list::strategies(&mut router()?, json),
        Command::Strategy(Strategy::Set { prefix, strategy }) => {
            change::set_strategy(&mut router()?, prefix, strategy)
        }
        Command::Strategy(Strategy::Unset { prefix }) => change::unset_strategy(&mut router()?, prefix),
        Command::Ping(args) => ping::run(&mut router()?, json, args),
        Command::Peek(args) => transfer::peek(&mut router()?, args),
        Command::Cat(args) => transfer::cat(&mut router()?, args),
        Command::Put(args) => transfer::put(&mut router()?, args),
    }
}

/// Where content is written: a file, or standard output.
fn write_out(file: Option<&PathBuf>, content: &[u8]) -> miette::Result<()> {
    use std::io::Write as _;
    match file {
        Some(path) => {
            std::fs::write(path, content).map_err(|error| miette!("cannot write {}: {error}", path.display()))
        }
        None => std::io::stdout().write_all(content).map_err(|error| miette!("cannot write: {error}")),
    }
}
