//! The endpoint as a function of a node: its part of the file, its start, and what it shows.

use std::any::Any;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kaido_engine::netlink::Interface;
use kaido_engine::{KernelPath, PortId, PortTotals};
use kaido_node::api::{Asked, Question, Reply, Role, Route};
use kaido_node::board::Heartbeat;
use kaido_node::config::{
    Base, Datapath, FilePart, Findings, FunctionSchema, PortConfig, ReloadRule, Spanned, schema_of,
};
use kaido_node::families;
use kaido_node::function::{
    ConfiguredFunction, DatapathChoice, FunctionContext, FunctionStatus, FunctionView, NetworkFunction,
    PreparedReload, ReloadRefusal, Running, Traces,
};
use kaido_node::metrics::{Exposition, Family, MetricsSource};
use kaido_node::port_trace::PortTraces;
use kaido_node::ports::{Interfaces, OpenPorts, PortRequirements};
use kaido_node::show::{ControlTarget, ask, print_json, table};
use kaido_node::{Stage, StartFault};
use kaido_xdp::{IpMatch, PortMatch, PortSteering, PortSteeringConfig};
use miette::miette;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::counters::{SegmentCounters, SegmentTotals};
use crate::path::{UDP_PORT, Vxlan, VxlanDrop};
use crate::rules::{PortSettings, Segment, Settings, VNI_MAX};
use crate::shared::SharedSettings;

/// What forwards.
const DATAPATH: &str = "engine";

families! {
    FRAMES = Counter "kaido_vxlan_frames_total" ["vni", "direction"]
        "Frames of a segment that went into tunnels (encapsulated), each once, and that came out of them (decapsulated).";
    BYTES = Counter "kaido_vxlan_bytes_total" ["vni", "direction"] "Bytes of those, with their own Ethernet headers.";
}

/// Joins Ethernet segments by VXLAN.
pub struct VxlanFunction;

impl NetworkFunction for VxlanFunction {
    fn schema(&self) -> FunctionSchema {
        SCHEMA
    }

    fn read(&self, part: FilePart<'_>) -> Result<Box<dyn ConfiguredFunction>, toml::de::Error> {
        let config: VxlanConfig = part.read()?;
        Ok(Box::new(VxlanConfig { base: part.base, ..config }))
    }

    fn families(&self) -> &'static [Family] {
        FAMILIES
    }

    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn show(&self, at: &ControlTarget) -> Option<miette::Result<()>> {
        Some(show(at))
    }
}

/// What its files have.
const SCHEMA: FunctionSchema = FunctionSchema {
    name: "vxlan",
    title: "VXLAN endpoint",
    vlans: false,
    schema: schema_of::<VxlanConfig>,
    reload: &[
        ReloadRule::changes("vxlan", "from the next batch of each worker on"),
        ReloadRule::restart("vxlan.segment.port", "each port is opened as a segment's or as the underlay's"),
        ReloadRule::restart("vxlan.segment.local", "sockets and programs are opened for the address"),
    ],
};

/// The whole file.
#[derive(Debug, Deserialize, JsonSchema)]
struct VxlanConfig {
    #[serde(skip)]
    base: Base,
    /// The endpoint.
    #[serde(default)]
    vxlan: VxlanTable,
}

/// `[vxlan]`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct VxlanTable {
    /// Segments, one each. Ports without one are the underlay.
    #[serde(rename = "segment")]
    segments: Vec<Spanned<SegmentConfig>>,
}

/// A segment.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SegmentConfig {
    /// VXLAN network identifier.
    #[schemars(range(min = 0, max = VNI_MAX))]
    vni: Spanned<u32>,
    /// The port whose Ethernet it is.
    #[schemars(extend("x-allowed" = "name of a port"))]
    port: Spanned<String>,
    /// Our end of its tunnels: an address of this host at the underlay.
    local: IpAddr,
    /// The other endpoints, of the family of `local`.
    remotes: Spanned<Vec<IpAddr>>,
}

impl VxlanConfig {
    fn port(&self, name: &str) -> Option<PortId> {
        let place = self.base.ports.iter().position(|port| port.get_ref().name.get_ref() == name)?;
        u8::try_from(place).ok().map(PortId)
    }

    /// What the workers are told, given the ports; a segment of no port, which was refused, is left out.
    fn settings(&self, ports: Vec<PortSettings>) -> Settings {
        let segments = self.vxlan.segments.iter().map(Spanned::get_ref).filter_map(|segment| {
            Some(Segment {
                vni: *segment.vni.get_ref(),
                port: self.port(segment.port.get_ref())?,
                local: segment.local,
                remotes: segment.remotes.get_ref().clone(),
            })
        });
        Settings { segments: segments.collect(), ports }
    }

    fn is_underlay(&self, port: &PortConfig) -> bool {
        self.vxlan.segments.iter().all(|segment| segment.get_ref().port.get_ref() != port.name.get_ref())
    }
}

impl ConfiguredFunction for VxlanConfig {
    fn schema(&self) -> FunctionSchema {
        SCHEMA
    }

    fn base(&self) -> &Base {
        &self.base
    }

    fn check(&self, findings: &mut Findings) {
        if self.vxlan.segments.is_empty() {
            findings.add(0..0, "vxlan.segment", "missing", "add a [[vxlan.segment]] for each segment");
        }
        for segment in &self.vxlan.segments {
            let SegmentConfig { vni, port, .. } = segment.get_ref();
            findings.range(vni, "vxlan.segment.vni");
            if self.port(port.get_ref()).is_none() {
                let message = format!("there is no port `{}`", port.get_ref());
                findings.add(port.span(), "vxlan.segment.port", message, "give the name of a [[port]]");
            }
        }
        for (at, field) in self.settings(Vec::new()).check() {
            let place = self.vxlan.segments.get(at).map_or(0..0, Spanned::span);
            let (message, help) = match field {
                "vni" => ("another segment has this vni", "give each a vni of its own"),
                "port" => ("another segment has this port", "give each a port of its own"),
                _ => (
                    "no remote, one twice, or one that is no host of the family of `local`",
                    "give the addresses of the other endpoints, each once",
                ),
            };
            findings.add(place, format!("vxlan.segment.{field}"), message, help);
        }
        let datapath = &self.base.node.datapath;
        if matches!(datapath.get_ref(), Datapath::Xdp | Datapath::Hybrid) {
            let message =
                format!("\"{}\", and a VXLAN endpoint forwards in the engine", datapath.get_ref().name());
            findings.add(datapath.span(), "node.datapath", message, "use datapath = \"auto\" or \"engine\"");
        }
        if !self.base.ports.iter().any(|port| self.is_underlay(port.get_ref())) {
            findings.add(0..0, "port", "every port is a segment's", "add the port that tunnels leave by");
        }
    }

    fn summary(&self) -> String {
        format!("VXLAN endpoint, {} ports, {} segments", self.base.ports.len(), self.vxlan.segments.len())
    }

    fn run(&self, mut context: FunctionContext) -> miette::Result<()> {
        let mut ports = self.open(&context)?;
        let board = ports.board().clone();
        let of_port = |device: &kaido_node::ports::Device| PortSettings {
            mac: device.interface.mac,
            mtu: device.interface.mtu as usize,
        };
        let settings = self.settings(ports.devices.iter().map(of_port).collect());
        let mut counters = Vec::new();
        // Behind packet sockets the kernel has VXLAN too, and would refuse it.
        let locals = settings.segments.iter().map(|segment| SocketAddr::new(segment.local, UDP_PORT));
        let _sink = context.takeover.udp_sink(locals.collect::<BTreeSet<_>>()).map_err(|error| {
            miette!(help = "remove the kernel's vxlan device there", "vxlan.segment.local: {error}")
        })?;
        let shared = SharedSettings::new(settings);
        context.take_ports(&mut ports)?;
        let queues = ports.take_queues();
        let worker_set = context.start_workers(&self.base, queues, || {
            let function = Vxlan::new(&shared, ports.routes());
            counters.push(function.counters());
            Ok(Box::new(function))
        })?;
        ports.attach()?;
        ports.watch(worker_set.inboxes(), None)?;
        tracing::info!(
            ports = board.count(),
            segments = self.vxlan.segments.len(),
            "the VXLAN endpoint runs"
        );
        let segments = Segments { shared, counters };
        let traces = PortTraces::new(worker_set.tracer(), VxlanDrop::TABLE, board.clone());
        let mut control = context.run(Running {
            node_id: None,
            datapath: DATAPATH,
            board,
            mirror: ports.mirror(),
            workers: worker_set.counters(),
            metrics: Box::new(segments.clone()),
            heartbeat: Heartbeat::new(),
        });
        control.run(&mut VxlanView { segments, traces }, || worker_set.has_lost());
        if control.stage() == Stage::Leave {
            return control.hand_over(&mut ports, worker_set);
        }
        worker_set.end(&mut ports, control.is_stopping())
    }
}

impl VxlanConfig {
    /// Opens every port: of a segment's every frame is taken, of the underlay VXLAN to us.
    fn open(&self, context: &FunctionContext) -> Result<OpenPorts<PortSteering>, StartFault> {
        let takes_all = |port: &PortConfig| !self.is_underlay(port);
        let found = Interfaces::look(&self.base, context.pool, &context.takeover, takes_all)?;
        OpenPorts::open(found, context.pool, &mut PortNeeds(self), takes_all)
    }
}

/// The endpoint's demands on its ports.
struct PortNeeds<'c>(&'c VxlanConfig);

impl PortRequirements for PortNeeds<'_> {
    type Program = PortSteering;

    fn program(
        &self,
        at: usize,
        interface: &Interface,
        multi_buffer: bool,
    ) -> Result<PortSteering, kaido_xdp::Error> {
        let matches = match self.0.is_underlay(self.0.base.ports[at].get_ref()) {
            true => PortMatch { ip: Some(IpMatch::Udp { port: UDP_PORT }), ..PortMatch::default() },
            false => PortMatch { all: true, ..PortMatch::default() },
        };
        let mut steering =
            PortSteering::load(PortSteeringConfig { matches, mac: interface.mac, multi_buffer })?;
        let locals = self.0.vxlan.segments.iter().map(|segment| segment.get_ref().local);
        steering.set_addresses(&locals.collect::<Vec<_>>())?;
        Ok(steering)
    }

    fn kernel_path(&self) -> KernelPath {
        // The program has left the kernel what is its own.
        KernelPath::None
    }
}

/// What the workers have done, by segment.
#[derive(Clone)]
struct Segments {
    shared: Arc<SharedSettings>,
    counters: Vec<Arc<SegmentCounters>>,
}

impl Segments {
    fn status(&self) -> Vec<SegmentStatus> {
        let totals = SegmentCounters::sum(self.counters.iter().map(|counters| &**counters));
        let settings = self.shared.get();
        let segments = settings.segments.iter().zip(totals);
        segments
            .map(|(segment, SegmentTotals { encapsulated, decapsulated })| SegmentStatus {
                vni: segment.vni,
                remotes: segment.remotes.clone(),
                encapsulated,
                decapsulated,
            })
            .collect()
    }
}

impl MetricsSource for Segments {
    fn metrics(&self, out: &mut Exposition) {
        for (family, of) in [(&FRAMES, 0), (&BYTES, 1)] {
            let mut samples = out.family(family);
            for segment in self.status() {
                let vni = segment.vni.to_string();
                samples.add(&[&vni, "encapsulated"], segment.encapsulated[of]);
                samples.add(&[&vni, "decapsulated"], segment.decapsulated[of]);
            }
        }
    }
}

/// What may be asked of it over HTTP.
const ROUTES: &[Route] = &[Route::of::<GetVxlan>()];

/// What was done, by segment.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetVxlan {}

impl Question for GetVxlan {
    type Answer = VxlanStatus;
    const NAME: &'static str = "get_vxlan";
    const PATH: &'static str = "/v1/vxlan";
    const ROLE: Role = Role::Watch;
}

/// What a VXLAN endpoint has done.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct VxlanStatus {
    /// By VNI.
    segments: Vec<SegmentStatus>,
}

/// A segment, as it is shown.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct SegmentStatus {
    vni: u32,
    remotes: Vec<IpAddr>,
    /// Frames and their octets.
    encapsulated: [u64; 2],
    decapsulated: [u64; 2],
}

/// The control side.
struct VxlanView {
    segments: Segments,
    traces: PortTraces,
}

impl FunctionView for VxlanView {
    fn status(&mut self, by_workers: Vec<PortTotals>) -> FunctionStatus {
        let reason = "a VXLAN endpoint forwards in the engine".to_owned();
        FunctionStatus {
            datapath: DatapathChoice { chosen: DATAPATH, configured: DATAPATH, reason },
            counted: by_workers.into_iter().map(|totals| (totals, (0, 0))).collect(),
            more: Value::Null,
        }
    }

    fn answer(&mut self, asked: &Asked) -> Option<Reply> {
        asked.on(|GetVxlan {}| Ok(VxlanStatus { segments: self.segments.status() }))
    }

    fn traces(&mut self) -> &mut dyn Traces {
        &mut self.traces
    }

    fn prepare_reload(&mut self, config: &dyn Any) -> Result<PreparedReload, Vec<ReloadRefusal>> {
        // It is of the type with which this was started.
        let Some(config) = config.downcast_ref::<VxlanConfig>() else {
            return Err(vec![ReloadRefusal { path: "vxlan", why: "it is no VXLAN endpoint's".to_owned() }]);
        };
        Ok(Box::new(config.settings(self.segments.shared.get().ports.clone())))
    }

    fn commit_reload(&mut self, prepared: PreparedReload) {
        if let Ok(settings) = prepared.downcast::<Settings>() {
            self.segments.shared.replace(*settings);
        }
    }

    fn turn(&mut self) {
        self.traces.turn();
    }
}

/// `kaido show vxlan`.
fn show(at: &ControlTarget) -> miette::Result<()> {
    let status = ask(&at.socket, &GetVxlan {})?;
    if at.json {
        return print_json(&status);
    }
    let row = |segment: SegmentStatus| {
        let remotes: Vec<_> = segment.remotes.iter().map(ToString::to_string).collect();
        let counts =
            segment.encapsulated.into_iter().chain(segment.decapsulated).map(|count| count.to_string());
        [segment.vni.to_string(), remotes.join(" ")].into_iter().chain(counts).collect()
    };
    let headings = ["vni", "remotes", "encapsulated", "bytes", "decapsulated", "bytes"];
    table(&headings, &status.segments.into_iter().map(row).collect::<Vec<_>>());
    Ok(())
}
