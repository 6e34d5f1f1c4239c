//! `kaido doctor`: what this machine and its NICs can do for a node, and the commands that would improve it.
//!
//! It reads, and changes nothing. Facts are gathered first and judged then, so that what is said of them is tested without
//! the machine that has them.

mod datapath;
mod machine;
mod nic;
mod parse;
mod routes;

mod render;

use std::path::PathBuf;
use std::process::ExitCode;

use kaido_engine::FrameSize;
use kaido_engine::netlink::NetlinkError;
use kaido_node::config::{Driver, PortConfig, Spanned};
use kaido_node::file::Config;
use kaido_node::frames;
use kaido_node::function::{ConfiguredFunction, NetworkFunction};
use serde::Serialize;

/// Octets of the tables that a node is taken to have without a configuration: those of a user plane as it comes.
const TABLES_USUAL: u64 = 65_536 * 512;

/// Options of `kaido doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Look at the ports of this configuration, and at what it asks of the machine.
    #[arg(short, long, value_name = "FILE", conflicts_with = "interface")]
    config: Option<PathBuf>,
    /// Look at this interface; may be repeated. Without either, all physical interfaces.
    #[arg(short, long, value_name = "NAME")]
    interface: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What becomes of a node by what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// As it should be, or as good as it gets.
    Ok,
    /// It runs, and could run better.
    Advice,
    /// It cannot run.
    Fault,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Advice => "advice",
            Self::Fault => "FAULT",
        }
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// `machine`, or an interface.
    subject: String,
    /// What was looked at; stable, for programs.
    check: &'static str,
    verdict: Verdict,
    said: String,
    /// What would improve it, to be run as root.
    commands: Vec<String>,
}

impl Finding {
    fn new(subject: &str, check: &'static str, verdict: Verdict, said: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), check, verdict, said: said.into(), commands: Vec::new() }
    }

    fn ok(subject: &str, check: &'static str, said: impl Into<String>) -> Self {
        Self::new(subject, check, Verdict::Ok, said)
    }

    fn advice(subject: &str, check: &'static str, said: impl Into<String>) -> Self {
        Self::new(subject, check, Verdict::Advice, said)
    }

    fn fault(subject: &str, check: &'static str, said: impl Into<String>) -> Self {
        Self::new(subject, check, Verdict::Fault, said)
    }

    /// With a command that would improve it.
    fn run(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }
}

fn can_run(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.verdict != Verdict::Fault)
}

/// Looks, and prints what was found; the exit code is 1 when the node cannot run.
///
/// # Errors
/// When the configuration cannot be read, or JSON not be written.
pub fn run(args: &DoctorArgs, functions: &[&dyn NetworkFunction]) -> miette::Result<ExitCode> {
    let config = args.config.as_deref().map(|path| Config::read(path, functions)).transpose()?;
    let node = config.as_ref().map(|config| &config.base.node);
    let machine = machine::MachineInfo::gather();
    let size = config.as_ref().map_or(FrameSize::TwoKib, frames::size);
    let functions_of = || config.iter().flat_map(|config| &config.functions).map(|function| &**function);
    let tables = match &config {
        Some(_) => functions_of().map(ConfiguredFunction::table_bytes).sum(),
        None => TABLES_USUAL,
    };
    let mut findings = machine::judge(&machine, node, tables, size);
    let ports: Vec<(String, Option<&PortConfig>)> = match &config {
        Some(_) => functions_of().flat_map(ports_of).filter_map(configured).collect(),
        None if args.interface.is_empty() => nic::physical().into_iter().map(|name| (name, None)).collect(),
        None => args.interface.iter().map(|name| (name.clone(), None)).collect(),
    };
    let gather = |(name, port): (String, _)| InspectedInterface {
        facts: nic::NicInfo::gather(&name, machine.kernel),
        name,
        port,
    };
    let looks: Vec<InspectedInterface<'_>> = ports.into_iter().map(gather).collect();
    let mut is_kernel = false;
    for (finding, forwards) in functions_of().filter_map(|function| datapath::judge(function, &looks, size)) {
        is_kernel |= forwards;
        findings.push(finding);
    }
    let mut of_routes: Vec<Finding> = functions_of().flat_map(routes::judge).collect();
    for InspectedInterface { name, port, facts } in &looks {
        match facts {
            Ok(facts) => {
                // Of the function whose port it is: workers, and how packets are spread over them, are its affair.
                let owner = port.and_then(|port| functions_of().find(|of| of.base().has_port(port)));
                let tunnels = owner.zip(*port).is_some_and(|(owner, port)| owner.has_tunnels(port));
                let node = owner.map(|owner| &owner.base().node);
                findings.extend(nic::judge(facts, *port, tunnels, node, &machine));
                findings.extend(datapath::redirects(facts, *port).filter(|_| is_kernel));
                findings.extend(of_routes.extract_if(.., |finding| finding.subject == *name));
            }
            Err(error) => findings.push(Finding::fault(name, "interface", error.to_string()).run("ip link")),
        }
    }
    if args.json {
        println!("{:#}", render::json(&findings));
    } else {
        print!("{}", render::text(&findings));
    }
    Ok(if can_run(&findings) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn ports_of(function: &dyn ConfiguredFunction) -> impl Iterator<Item = &PortConfig> {
    function.base().ports.iter().map(Spanned::get_ref)
}

/// The interface of a port that must be there before the node.
fn configured(port: &PortConfig) -> Option<(String, Option<&PortConfig>)> {
    let is_made = *port.driver.get_ref() == Driver::Tap;
    let name = port.interface.as_ref().filter(|_| !is_made)?;
    Some((name.get_ref().clone(), Some(port)))
}

/// An interface, its port where one is configured, and what it is.
struct InspectedInterface<'c> {
    name: String,
    port: Option<&'c PortConfig>,
    facts: Result<nic::NicInfo, NetlinkError>,
}
