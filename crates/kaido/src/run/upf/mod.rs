//! The user plane of `kaido run`.

mod control;
mod control_guard;
mod datapath;
mod exits;
mod kernel_return;
mod kernel_watch;
mod lag;
mod listen;
mod memory;
mod metrics;
mod n4_tunnels;
mod offload;
mod ports;
mod trace;
mod unknown_peers;

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kaido_engine::{FramePool, Notifier};
use kaido_n4::Ipv6Prefix;
use kaido_pfcp::{Endpoint, Features, Instants, NodeId, Retransmission};
use kaido_upf::control::{UePool, Upf};
use kaido_upf::node::Node;
use kaido_upf::path::Path;
use miette::{IntoDiagnostic, WrapErr, miette};

pub(crate) use self::datapath::no_room_for_tables;

use self::control::{Control, datagram_buffer, datagram_rooms};
use self::control_guard::ControlGuard;
use self::kernel_watch::KernelWatch;
use self::lag::Lag;
use self::listen::listen;
use self::memory::Memory;
use self::metrics::{Sources, UpfMetrics};
use self::ports::Ports;
use self::unknown_peers::UnknownPeers;
use super::board::{Health, Heartbeat};
use super::metrics::Figures;
use super::{NodeContext, StartFault, WorkerSet, export, notify};
use crate::config::{Datapath, Spanned, UpfConfig};

/// Runs a user plane until it is told to stop.
///
/// # Errors
/// What kept it from starting, or that a worker died.
pub(super) fn run(config: &UpfConfig, context: NodeContext) -> miette::Result<()> {
    let NodeContext { stop, server, scraped, pool } = context;
    let addresses = config.pfcp.listen.get_ref().iter().map(|listen| listen.0);
    let sockets = listen(addresses, |address| config.base.makes(address)).map_err(|(address, error)| {
        let help = "the address must be one of this host's, and no other PFCP node may use it".to_owned();
        StartFault::Listen { address, error, help }
    })?;
    check_memory(config, pool)?;
    let mut ports = Ports::open(config, pool)?;
    let control_guard = guard(&ports, &sockets, scraped.as_ref())
        .into_diagnostic()
        .wrap_err("PFCP and metrics cannot be guarded from the data network")?;
    let settings = ports.settings(config)?;
    let (node, events) = ports
        .cells()?
        .map_or_else(
            || Node::new(settings.clone()),
            |(usage, policers)| Node::beside_kernel(settings.clone(), usage, policers),
        )
        .into_diagnostic()
        .wrap_err("node.sessions_max: no memory for so many sessions")?;
    let mut upf = Upf::new(node.clone(), events, ue_pools(config, &node)).into_diagnostic()?;
    if let Some(kernel) = ports.take_kernel(&node)? {
        upf.set_kernel(Box::new(kernel));
    }
    let queues = ports.opened.take_queues();
    let kernel_return = Arc::new(ports.kernel_return());
    let worker_set = WorkerSet::start(&config.base, pool, queues, || {
        let path = Path::new(&node, ports.opened.routes().next_hops()).into_diagnostic()?;
        let path = path.with_kernel_return(kernel_return.clone());
        Ok(Box::new(match &ports.n4_tunnels {
            Some(link) => path.with_control_plane(link.clone()),
            None => path,
        }))
    })?;
    ports.opened.attach()?;
    let exits = ports.exit_watch();
    let (node_id, endpoint) = endpoint(config, upf, ports.features())?;
    ports.watch(&node.settings, worker_set.inboxes())?;
    let shown = ports.opened.board().clone();
    let heartbeat = Heartbeat::new();
    let health = Health { board: shown.clone(), heartbeat: heartbeat.clone() };
    let counters = worker_set.counters();
    tracing::info!(
        node_id,
        frames = pool.frames(),
        pages = %pool.pages(),
        ports = shown.len(),
        workers = counters.len(),
        "the user plane runs"
    );
    let notifier = Notifier::new().into_diagnostic()?;
    node.listen(notifier.clone());
    let choice = ports.choice().clone();
    let datapath = choice.chosen;
    let kernel = || choice.is_kernel().then(|| ports.kernel_counters());
    let exporter = scraped.map(|endpoint| {
        let figures =
            Figures::new(("upf", datapath.name()), node_id.clone(), pool, shown.clone(), counters.clone());
        let sources = Sources { figures, node: node.clone(), kernel: kernel() };
        let (source, asked) = UpfMetrics::new(sources, notifier.clone());
        export(endpoint, source, health).map(|exporter| (exporter, asked))
    });
    let (exporter, asked) = exporter.transpose()?.unzip();
    let mut control = Control {
        endpoint,
        lag: Lag::of(&sockets),
        memory: memory::Watch::new(Instant::now()),
        sockets,
        n4_tunnels: ports.n4_tunnels.clone(),
        control_guard,
        server,
        node_id,
        started: Instant::now(),
        pool,
        ports: shown,
        heartbeat,
        choice: choice.clone(),
        kernel: kernel(),
        kernel_watch: exits.map(KernelWatch::new),
        workers: counters,
        scrapes: asked,
        allow: config.pfcp.allow.clone(),
        unknown_peers: 0,
        waiting: UnknownPeers::default(),
        spoken_to: HashMap::new(),
        rooms: datagram_rooms(),
        buffer: datagram_buffer(),
        notifier,
    };
    warn_of_strangers(config);
    if config.gtpu.bind_gnb && datapath != Datapath::Engine {
        tracing::info!(
            "gtpu.bind_gnb: the uplink of bound sessions stays with the workers, as the kernel does not compare outer sources"
        );
    }
    notify(&[sd_notify::NotifyState::Ready]);
    control.run(&stop, || worker_set.has_lost());
    notify(&[sd_notify::NotifyState::Stopping]);
    if let Some(exporter) = exporter {
        // A scrape that waits for the control loop is told that there is none any more.
        control.scrapes = None;
        exporter.stop();
    }
    worker_set.end(&mut ports.opened, &stop)
}

/// Guards the sockets of PFCP and of the metrics from the data network.
fn guard(
    ports: &Ports,
    sockets: &[UdpSocket],
    scraped: Option<&kaido_metrics::Endpoint>,
) -> std::io::Result<ControlGuard> {
    let mut guarded = Vec::new();
    for socket in sockets {
        guarded.push((socket.as_fd().try_clone_to_owned()?, socket.local_addr()?.ip()));
    }
    if let Some(endpoint) = scraped {
        guarded.push((endpoint.as_fd().try_clone_to_owned()?, endpoint.address()?.ip()));
    }
    ControlGuard::new(ports.devices(), guarded)
}

/// Whether the machine has memory for as many sessions as it may be asked for.
fn check_memory(config: &UpfConfig, pool: &FramePool) -> Result<(), StartFault> {
    let frames = (pool.frames() * pool.frame_size().bytes()) as u64;
    let in_kernel = match config.base.node.datapath.get_ref() {
        // Where they are not sure to be, the choice looks for itself.
        Datapath::Engine | Datapath::Auto => 0,
        Datapath::Xdp | Datapath::Hybrid => offload::config(config).bytes(),
    };
    let sessions = *config.node.sessions_max.get_ref();
    match Memory::read().and_then(|memory| memory::too_many(sessions, frames + in_kernel, memory)) {
        Some(fault) => Err(StartFault::Memory { fault }),
        None => Ok(()),
    }
}

/// PFCP has no authentication of its own.
fn warn_of_strangers(config: &UpfConfig) {
    let listens = config.pfcp.listen.get_ref().iter().any(|listen| !listen.0.ip().is_loopback());
    if config.pfcp.allow.is_empty() && listens {
        tracing::warn!(
            "pfcp.allow is empty: whoever reaches pfcp.listen may make sessions; name the prefixes of your SMFs there"
        );
    }
}

fn ue_pools(config: &UpfConfig, node: &Node) -> Vec<UePool> {
    let pools = config.ue_pools.iter().map(Spanned::get_ref);
    pools
        .filter_map(|pool| {
            let name = pool.network_instance.as_ref().map(|name| name.get_ref().as_str());
            Some(UePool {
                instance: node.settings.instance(name)?,
                ipv4: pool.ipv4.as_ref().and_then(|prefix| prefix.get_ref().ipv4()),
                ipv6: pool
                    .ipv6
                    .as_ref()
                    .and_then(|prefix| prefix.get_ref().ipv6())
                    .map(|(addr, len)| Ipv6Prefix::of(addr, len)),
            })
        })
        .collect()
}

/// The PFCP endpoint and its name.
fn endpoint(config: &UpfConfig, upf: Upf, features: Features) -> miette::Result<(String, Endpoint<Upf>)> {
    let listening = config.pfcp.listen.get_ref().iter().map(|listen| listen.0.ip());
    let addresses: Vec<IpAddr> = listening.collect();
    let first = addresses.first().copied().ok_or_else(|| miette!("pfcp.listen: no address"))?;
    let node_id = match &config.pfcp.node_id {
        Some(text) => text.get_ref().parse::<NodeId>().into_diagnostic().wrap_err("pfcp.node_id")?,
        None => first.into(),
    };
    let settings = kaido_pfcp::Config {
        node_id: node_id.clone(),
        ipv4: addresses.iter().find_map(|addr| if let IpAddr::V4(v4) = addr { Some(*v4) } else { None }),
        ipv6: addresses.iter().find_map(|addr| if let IpAddr::V6(v6) = addr { Some(*v6) } else { None }),
        recovery: SystemTime::now(),
        features: Features {
            allocates_ue_addresses: upf.has_ue_pools(),
            allocates_f_teids: features.allocates_f_teids && config.pfcp.choose_f_teids,
            ..features
        },
        tells_load: config.pfcp.tell_load,
        control_planes: config.pfcp.control_planes.iter().map(|peer| peer.0).collect(),
        heartbeat_interval: Duration::from_secs((*config.pfcp.heartbeat_interval_s.get_ref()).into()),
        retransmission: Retransmission {
            t1: Duration::from_millis((*config.pfcp.t1_ms.get_ref()).into()),
            n1: (*config.pfcp.n1.get_ref()).into(),
        },
        ..kaido_pfcp::Config::at(first)
    };
    Ok((node_id.to_string(), Endpoint::new(settings, upf, Instants::now())))
}
