//! What a running user plane takes of its file when that is read again.
//!
//! What control planes and the control loop use can change, what workers look up for few packets, and what templates of tunnels are made
//! of. What sessions and workers name by a number cannot: addresses, ports, network instances, and the ways out of them.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kaido_node::config::{Prefix, ReloadRule};
use kaido_node::function::{PreparedReload, ReloadRefusal};
use kaido_pfcp::{Endpoint, Instants, ProcedureTracing, Retransmission};
use kaido_upf::control::{PreparedPools, Upf};
use kaido_upf::extended::UeToUe;
use kaido_upf::node::LiveSettings;

use crate::config::UpfConfig;
use crate::ue_pools;

const NUMBERED: &str = "sessions and workers name it by the place that it had at the start";
const RECOMPILED: &str = "for new sessions at once, for others one after the other";
const NAMED: &str = "for new sessions at once, for others one after the other; what is taken out stays with those that have named it, until the next start";
const TUNNELS: &str = "from the next batch of each worker on, and from the next packet in the kernel";

/// Which fields of a user plane's own can change.
pub(crate) const RELOAD: &[ReloadRule] = &[
    ReloadRule::restart("gtpu", NUMBERED),
    ReloadRule::changes("gtpu.source_port", TUNNELS),
    ReloadRule::changes("gtpu.udp_checksum_ipv4", TUNNELS),
    ReloadRule::changes("gtpu.udp_zero_checksum_ipv6", TUNNELS),
    ReloadRule::changes("gtpu.peer", TUNNELS),
    ReloadRule::changes("gtpu.ecn", TUNNELS),
    ReloadRule::changes("gtpu.dscp", TUNNELS),
    ReloadRule::changes("gtpu.qfi_dscp", TUNNELS),
    ReloadRule::changes("gtpu.mss_clamp", TUNNELS),
    ReloadRule::changes("gtpu.bind_gnb", RECOMPILED),
    ReloadRule::restart("network_instance", NUMBERED),
    ReloadRule::restart("ethernet", NUMBERED),
    ReloadRule::changes("forwarding_policy", NAMED),
    ReloadRule::changes("predefined_rule", NAMED),
    ReloadRule::changes(
        "gtpu.echo_interval_s",
        "from the next Echo Request of each path on; not from 0, nor to it",
    ),
    ReloadRule::changes("gtpu.echo_t3_ms", "from the next Echo Request of each path on"),
    ReloadRule::changes("gtpu.echo_retries", "from the next Echo Request of each path on"),
    ReloadRule::changes("gtpu.oversize", "from the next packet on"),
    ReloadRule::changes("node.inactivity_s", "for sessions that are established from then on"),
    ReloadRule::changes(
        "node.ue_to_ue",
        "from the next batch of each worker on; not from \"route\", nor to it",
    ),
    ReloadRule::changes("node.answers_per_second", "from the next second on"),
    ReloadRule::changes("buffer", "for packets that come from then on"),
    ReloadRule::changes("qos.burst_ms", "for rates that are set from then on"),
    ReloadRule::restart("pfcp", "control planes were told when they set their associations up"),
    ReloadRule::restart("pfcp.listen", "the sockets are opened with the process"),
    ReloadRule::changes("pfcp.control_planes", "at once"),
    ReloadRule::changes("pfcp.allow", "from the next datagram on"),
    ReloadRule::changes("pfcp.tell_load", "from the next message on"),
    ReloadRule::changes("pfcp.heartbeat_interval_s", "from the next heartbeat of each peer on"),
    ReloadRule::changes("pfcp.t1_ms", "for requests that are sent from then on"),
    ReloadRule::changes("pfcp.n1", "for requests that are sent from then on"),
    ReloadRule::changes("ue_pool", "for the next UE"),
    ReloadRule::restart("ipfix", "collectors are told what records have when the process starts"),
    ReloadRule::restart(
        "event_exposure",
        "the socket is opened with the process; what `tokens`, `tls_certificate`, `tls_key` and `client_ca` say is read again when they change",
    ),
    ReloadRule::restart("otlp", "the exporter is started with the process"),
    ReloadRule::changes("otlp.sample", "for procedures that begin from then on"),
    ReloadRule::changes("otlp.heartbeats", "for heartbeats from then on"),
    ReloadRule::restart("store", "the journal and the memory of the counters are opened with the process"),
    ReloadRule::changes("store.usage_interval_s", "from the next checkpoint on"),
];

/// What is ready to be taken.
struct Prepared {
    allow: Vec<Prefix>,
    control_planes: Vec<SocketAddr>,
    heartbeat_interval: Duration,
    retransmission: Retransmission,
    tells_load: bool,
    usage_interval: Duration,
    tracing: ProcedureTracing,
    live: LiveSettings,
    /// Where they differ from those that there are.
    pools: Option<PreparedPools>,
}

/// What can change of a running user plane.
pub(super) struct Changeable<'c> {
    pub(super) endpoint: &'c mut Endpoint<Upf>,
    pub(super) allow: &'c mut Vec<Prefix>,
    /// Set where the configuration was read again.
    pub(super) usage_interval: &'c mut Option<Duration>,
}

/// Makes another configuration ready.
///
/// # Errors
/// Fields that cannot be as they are now.
pub(super) fn prepare(upf: &Upf, config: &dyn Any) -> Result<PreparedReload, Vec<ReloadRefusal>> {
    let refusal = |path, why: String| vec![ReloadRefusal { path, why }];
    // It is of the type with which this was started.
    let Some(config) = config.downcast_ref::<UpfConfig>() else {
        return Err(refusal("pfcp", "it is no user plane's".to_owned()));
    };
    let pools = ue_pools(config, upf.node());
    if pools.is_empty() == upf.has_ue_pools() {
        let why = if pools.is_empty() { "it is the last pool" } else { "it is the first pool" };
        let why = format!("{why}: control planes were told when they associated who chooses UE addresses");
        return Err(refusal("ue_pool", why));
    }
    let pools = upf.prepare_ue_pools(pools).map_err(|in_use| refusal("ue_pool", in_use.to_string()))?;
    let named = Arc::new(config.named(&upf.node().settings.instances));
    let live = LiveSettings { named, ..config.live() };
    if live.echo.interval.is_some() != upf.node().live().echo.interval.is_some() {
        let why = "the paths to ask are known from the first session on where any are asked";
        return Err(refusal("gtpu.echo_interval_s", why.to_owned()));
    }
    let routes = |live: &LiveSettings| live.ue_to_ue == UeToUe::Route;
    if routes(&live) != routes(&upf.node().live()) {
        let why = "which networks have UEs is known from the first session on where it is not \"route\"";
        return Err(refusal("node.ue_to_ue", why.to_owned()));
    }
    let pfcp = &config.pfcp;
    Ok(Box::new(Prepared {
        allow: pfcp.allow.clone(),
        control_planes: pfcp.control_planes.iter().map(|peer| peer.0).collect(),
        heartbeat_interval: pfcp.heartbeat_interval(),
        retransmission: pfcp.retransmission(),
        tells_load: pfcp.tell_load,
        usage_interval: config.store.usage_interval(),
        tracing: config.otlp.tracing(),
        live,
        pools,
    }))
}

/// Takes what was made ready.
pub(super) fn commit(prepared: PreparedReload, of: Changeable<'_>) {
    let Ok(prepared) = prepared.downcast::<Prepared>() else { return };
    let Changeable { endpoint, allow, usage_interval } = of;
    *allow = prepared.allow;
    *usage_interval = Some(prepared.usage_interval);
    endpoint.set_times(prepared.heartbeat_interval, prepared.retransmission, prepared.tells_load);
    endpoint.set_control_planes(prepared.control_planes, Instants::now());
    if endpoint.traces_procedures() {
        endpoint.trace_procedures(prepared.tracing);
    }
    let upf = endpoint.service_mut();
    upf.set_live(prepared.live);
    if let Some(pools) = prepared.pools {
        upf.set_ue_pools(pools);
    }
}
