//! The NDN router of `kaido run`.

mod api;
mod client;
mod config;
mod control;
mod families;
mod init;
mod keys;
mod listing;
mod management;
mod metrics;
mod multicast;
mod ports;
mod reload;
mod tables;
mod tier;
mod workers;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::{FromArgMatches, Subcommand};
use kaido_engine::PortId;
use kaido_metrics::Family;
use kaido_ndn_tables::{NameHash, PitSettings};
use kaido_node::accounts;
use kaido_node::api::Route;
use kaido_node::board::{Heartbeat, PortView};
use kaido_node::config::{Base, FilePart, Findings, FunctionSchema, Spanned};
use kaido_node::function::{ConfiguredFunction, FunctionContext, NetworkFunction, Running};
use kaido_node::init::FirstConfig;
use kaido_node::listing::Listing;
use kaido_node::port_trace::PortTraces;
use kaido_node::root_folder::{RootFolder, RootFolderKind};
use miette::{IntoDiagnostic, WrapErr, miette};

use self::control::{DATAPATH, RouterView};
use self::management::Management;
use self::metrics::NdnMetrics;
use self::ports::Ports;
use self::workers::Workers;
use crate::NdnDrop;
use crate::cs::{Admit, CsSettings};
use crate::face::{FaceBounds, FaceUri, Faces};
use crate::forward::{Forwarder, ForwarderSettings, SharedTables, Unsolicited};
use crate::host::{HostControl, HostPort, HostSettings, UnixAccess};
use crate::link::{Link, LinkSettings, PortKind, ReassemblyLimits};
use crate::mgmt::Authority;
use crate::node::client::NdnArgs;
use crate::node::config::{AdmitName, ListenConfig, NdnConfig, UnsolicitedName};
use crate::router::{Ndn, NodeParts, RouterNode};
use crate::tier::{FILES, Tier};

/// How the host port is shown.
const HOST_PORT: &str = "host";

/// Routes NDN.
pub struct NdnFunction;

// Commands that only a router has. No doc comment: it would describe the whole command line.
#[derive(Debug, clap::Subcommand)]
enum NdnCommand {
    /// Command an NDN router, list what it has, ask it for Data and publish.
    Ndn(NdnArgs),
}

impl NetworkFunction for NdnFunction {
    fn schema(&self) -> FunctionSchema {
        config::SCHEMA
    }

    fn read(&self, part: FilePart<'_>) -> Result<Box<dyn ConfiguredFunction>, toml::de::Error> {
        Ok(Box::new(NdnConfig::read(part)?))
    }

    fn first_config(&self) -> Option<FirstConfig> {
        Some(init::FIRST_CONFIG)
    }

    fn listing(&self) -> Option<Listing> {
        Some(listing::FACES)
    }

    fn families(&self) -> &'static [Family] {
        families::FAMILIES
    }

    fn routes(&self) -> &'static [Route] {
        api::ROUTES
    }

    fn commands(&self, command: clap::Command) -> clap::Command {
        NdnCommand::augment_subcommands(command)
    }

    fn execute(&self, command: &clap::ArgMatches) -> Option<miette::Result<()>> {
        NdnCommand::has_subcommand(command.subcommand_name()?).then(|| {
            let NdnCommand::Ndn(args) = NdnCommand::from_arg_matches(command).into_diagnostic()?;
            client::run(&args)
        })
    }
}

impl ConfiguredFunction for NdnConfig {
    fn schema(&self) -> FunctionSchema {
        config::SCHEMA
    }

    fn base(&self) -> &Base {
        &self.base
    }

    fn check(&self, findings: &mut Findings) {
        config::check(self, findings);
    }

    fn summary(&self) -> String {
        let (faces, routes) = (self.ndn.faces.len(), self.ndn.routes.len());
        let ports = self.base.ports.len();
        format!("NDN router, {ports} ports, {faces} faces and {routes} routes from the start")
    }

    fn has_long_packets(&self) -> bool {
        // Longer than any link's, and their names want to be in one piece.
        true
    }

    fn root_folders(&self) -> Vec<RootFolder> {
        let unix = self.ndn.listen.unix.parent().filter(|path| !path.as_os_str().is_empty());
        let disk = self.ndn.cs.disk.as_ref().map(|disk| disk.get_ref().path.as_path());
        let of = |field, kind| move |path: &Path| RootFolder { field, path: path.to_owned(), kind };
        let unix = unix.map(of("ndn.listen.unix", RootFolderKind::Plain));
        unix.into_iter().chain(disk.map(of("ndn.cs.disk.path", RootFolderKind::State(FILES)))).collect()
    }

    fn run(&self, context: FunctionContext) -> miette::Result<()> {
        run(self, context)
    }
}

/// Runs a router until it is told to stop.
///
/// # Errors
/// What kept it from starting, or that a worker died.
fn run(config: &NdnConfig, context: FunctionContext) -> miette::Result<()> {
    let pool = context.pool;
    context.takeover.refuse_function("an NDN router's faces and tables go with its process");
    let authority = Authority::new(keys::trust(config)?, SystemTime::now());
    let mut ports = Ports::open(config, pool, &context.takeover)?;
    let faces = faces(config);
    let (host, host_control) = open_host(config, ports.opened.devices.len(), &faces)?;
    let (team, queues) = Workers::arrange(config, &mut ports, host)?;
    let mut kinds = ports.kinds();
    kinds.push(PortKind::Host);
    let link = LinkSettings { ports: kinds, reassembly: reassembly(config) };
    let udp = ports.udp(config);
    let tier = tier::open(config)?;
    let hash = tier.as_ref().map_or_else(NameHash::random, Tier::name_hash);
    let shared = SharedTables::new(hash, *config.ndn.prefixes_max.get_ref())
        .into_diagnostic()
        .wrap_err("ndn.prefixes_max: no memory for the table of prefixes")?;
    for region in &config.ndn.regions {
        shared.add_region(&region.get_ref().0).map_err(|error| miette!("ndn.regions: {error}"))?;
    }
    let settings = forwarder(config);
    let admit = match config.ndn.cs.admit {
        AdmitName::All => Admit::All,
        AdmitName::AskedAgain => Admit::AskedAgain,
    };
    let mut mailboxes = Vec::new();
    let worker_set = context.start_workers(&config.base, queues, || {
        // At most 64.
        let number = u8::try_from(mailboxes.len()).unwrap_or(u8::MAX);
        let mut forwarder = Forwarder::new(&shared, &team.settings(&settings, number), Instant::now())
            .and_then(|mut forwarder| forwarder.cs_mut().admit(admit).map(|()| forwarder))
            .into_diagnostic()
            .wrap_err("ndn.pending_max, ndn.cs: no memory for the tables of a worker")?;
        if let Some(tier) = &tier {
            forwarder.attach(tier.handle(SystemTime::now(), team.wake(number, &host_control)));
        }
        let mailbox = Arc::new(team.mailbox(number));
        mailboxes.push(mailbox.clone());
        let mut worker_link = Link::new(link.clone(), &faces);
        if let Some(settings) = &udp {
            worker_link = worker_link.with_udp(settings.clone(), ports.opened.routes().next_hops());
        }
        let ndn = Ndn::new(worker_link, forwarder, mailbox);
        Ok(Box::new(team.join(ndn, shared.hash(), number)))
    })?;
    ports.opened.attach()?;
    let parts = NodeParts {
        faces,
        shared,
        channels: channels(config, &host_control),
        host: host_control.clone(),
        ethernet: ports.ethernet(),
        udp: ports.udp_ports(config),
        mailboxes,
        cs: team.settings(&settings, 0).cs,
        pit_max: settings.pit.entries,
        balance: team.balance.clone(),
        tier: tier.as_ref().map(Tier::control),
    };
    let node = RouterNode::new(parts, SystemTime::now());
    let router = node.observer();
    let management = Management::start(config, node, authority, &host_control)?;
    ports.opened.watch(worker_set.inboxes(), None)?;
    let board = ports.opened.board().clone();
    // Before those that are no ports of Ethernet.
    let traces = PortTraces::new(worker_set.tracer(), NdnDrop::TABLE, board.clone());
    board.push(PortView::steady(HOST_PORT, &listening(config), kaido_wire::ndn::PACKET_MAX));
    if let Some(name) = team.shown() {
        board.push(PortView::steady(name, "rings", kaido_wire::ndn::PACKET_MAX));
    }
    let workers = worker_set.counters();
    tracing::info!(
        frames = pool.frames(),
        pages = %pool.pages(),
        ports = board.count(),
        workers = workers.len(),
        "the NDN router runs"
    );
    let metrics = NdnMetrics::new(router.clone(), team.balance, context.first_worker);
    let mut control = context.run(Running {
        node_id: None,
        datapath: DATAPATH,
        board,
        mirror: ports.opened.mirror(),
        workers,
        metrics: Box::new(metrics),
        heartbeat: Heartbeat::new(),
    });
    let mut view = RouterView { router, management: &management, traces };
    control.run(&mut view, || worker_set.has_lost() || management.has_ended());
    management.stop();
    let ended = worker_set.end(&mut ports.opened, control.is_stopping());
    // After the workers, which have given it what they held.
    drop(tier);
    ended
}

/// The table of faces. Those who come cannot take the places of faces that are asked for.
fn faces(config: &NdnConfig) -> Faces {
    let (listen, all) = (&config.ndn.listen, *config.ndn.faces_max.get_ref() as usize);
    let bounds = FaceBounds {
        on_demand: (*listen.on_demand_max.get_ref() as usize).min(all / 2),
        per_host: *listen.on_demand_per_host.get_ref() as usize,
        applications: (*listen.applications_max.get_ref() as usize).min((all / 4).max(1)),
    };
    Faces::bounded(all, bounds, (*config.base.node.workers.get_ref()).into())
}

/// Who may connect to the socket of applications.
fn unix_access(listen: &ListenConfig) -> miette::Result<UnixAccess> {
    let group = listen.unix_group.as_deref().map(|name| accounts::group("ndn.listen.unix_group", name));
    Ok(UnixAccess { mode: listen.unix_mode.0, group: group.transpose()? })
}

fn open_host(config: &NdnConfig, at: usize, faces: &Faces) -> miette::Result<(HostPort, HostControl)> {
    let listen = &config.ndn.listen;
    let settings = HostSettings {
        port: PortId(u8::try_from(at).unwrap_or(u8::MAX)),
        unix: Some(listen.unix.clone()).filter(|path| !path.as_os_str().is_empty()),
        unix_access: unix_access(&config.ndn.listen)?,
        tcp: listen.tcp.clone(),
        udp: listen.udp.clone(),
        multicast: multicast::groups(&listen.multicast.get_ref().0)?,
        udp_mtu: *listen.udp_mtu.get_ref(),
        idle: Duration::from_secs((*listen.idle_s.get_ref()).into()),
        queue_octets_max: *listen.queue_kib.get_ref() as usize * 1024,
    };
    if let Some(parent) = settings.unix.as_deref().and_then(Path::parent) {
        std::fs::create_dir_all(parent).map_err(|error| {
            miette!(
                help = "`kaido prepare -c FILE`, as root, makes it for the node's user",
                "ndn.listen.unix: cannot make {}: {error}",
                parent.display()
            )
        })?;
    }
    HostPort::open(settings, faces).map_err(|error| {
        miette!(
            help = "another router may listen there: stop it, or give this one other paths and addresses",
            "ndn.listen: {error}"
        )
    })
}

fn forwarder(config: &NdnConfig) -> ForwarderSettings {
    let ndn = &config.ndn;
    let pending = *ndn.pending_max.get_ref();
    ForwarderSettings {
        pit: PitSettings {
            of_account: ndn.pending_per_host.as_ref().map_or(pending / 4, |share| *share.get_ref()),
            of_hosts: pending - pending / 4,
            ..PitSettings::for_entries(pending, 0)
        },
        cs: CsSettings {
            packets: *ndn.cs.packets.get_ref(),
            octets: u64::from(*ndn.cs.memory_mib.get_ref()) << 20,
        },
        dead_nonces: *ndn.dead_nonces.get_ref(),
        measured_prefixes: pending,
        unsolicited: match ndn.unsolicited {
            UnsolicitedName::Drop => Unsolicited::Drop,
            UnsolicitedName::CacheLocal => Unsolicited::CacheLocal,
            UnsolicitedName::CacheAll => Unsolicited::CacheAll,
        },
    }
}

fn reassembly(config: &NdnConfig) -> ReassemblyLimits {
    let limits = config.base.reassembly.limits();
    ReassemblyLimits {
        packets: limits.packets,
        packets_per_face: limits.packets_per_source,
        frames: limits.pieces,
        timeout: limits.time,
    }
}

/// Where applications and neighbours come in, as URIs.
fn channels(config: &NdnConfig, host: &HostControl) -> Vec<FaceUri> {
    let listen = &config.ndn.listen;
    let unix =
        listen.unix.to_str().filter(|path| !path.is_empty()).map(|path| FaceUri::Unix(path.to_owned()));
    let groups = host.groups().iter().map(|on| FaceUri::Udp(on.group()));
    let tcp = host.tcp_addresses().iter().map(|address| FaceUri::Tcp(*address));
    let on_ports = listen.udp_on_ports.iter().map(Spanned::get_ref);
    let udp = host.udp_addresses().iter().chain(on_ports).map(|address| FaceUri::Udp(*address));
    unix.into_iter().chain(tcp).chain(udp).chain(groups).collect()
}

/// Where the host port listens, in words.
fn listening(config: &NdnConfig) -> String {
    let listen = &config.ndn.listen;
    let kinds = [
        (!listen.unix.as_os_str().is_empty(), "unix"),
        (!listen.tcp.is_empty(), "tcp"),
        (!listen.udp.is_empty(), "udp"),
        (!listen.multicast.get_ref().0.is_empty(), "multicast"),
    ];
    kinds.iter().filter(|(is_on, _)| *is_on).map(|(_, kind)| *kind).collect::<Vec<_>>().join(", ")
}
