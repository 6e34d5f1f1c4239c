//! What the user plane asks of its ports, and is told of them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use kaido_engine::FramePool;
use kaido_engine::netlink::Interface;
use kaido_engine::{Inbox, KernelPath, Vrf};
use kaido_node::config::{Datapath, Driver, PortConfig};
use kaido_node::function::WayOut;
use kaido_node::ports::{
    Device, Interfaces, OpenPorts, PortRequirements, fault, has_no_wire, lock, routable,
};
use kaido_node::takeover::Takeover;
use kaido_pfcp::Features;
use kaido_upf::control::Upf;
use kaido_upf::fragment::FragmentSettings;
use kaido_upf::ids::InstanceId;
use kaido_upf::lan::VlanTags;
use kaido_upf::node::{EndpointScope, Instance, LiveSettings, Node, NodeMemory, NodeSettings, PortRole};
use kaido_upf::{ExitInstances, ExitVrfs};
use kaido_upf_xdp::offload::{FrameLosses, LeftTables, LostFrames, VLANS_MAX, Vlan, VlanRole};
use kaido_upf_xdp::{OffloadError, Roles, SharedOffload, Steering, SteeringConfig};
use kaido_xdp::PinFolder;

use super::UpfStartFault;
use super::datapath::{self, Choice, Tables};
use super::exits::{ExitWatch, Exits};
use super::kernel_return::ProgramReturn;
use super::left::{self, LeftBehind};
use super::n4_tunnels::N4Tunnels;
use super::offload::{Exit, KernelCounts, OffloadContext, XdpOffload};
use super::store::NodeStore;
use crate::config::{Role, UpfConfig, UpfPort};

/// Where control planes, scrapers and operators speak to the node. Where one listens on every address, those of ports are known anyway.
fn control_addresses(config: &UpfConfig) -> impl Iterator<Item = IpAddr> + '_ {
    let pfcp = config.pfcp.listen.get_ref().iter().map(|listen| listen.0.ip());
    let metrics = config.base.metrics.listen.iter().map(|listen| listen.0.ip());
    let api = config.base.api.listen.iter().map(|listen| listen.get_ref().0.ip());
    let exposure = config.event_exposure.listen.iter().map(|listen| listen.get_ref().0.ip());
    pfcp.chain(metrics)
        .chain(api)
        .chain(exposure)
        .filter(|addr| !addr.is_unspecified() && !addr.is_loopback())
}

/// The user plane's demands.
struct PortNeeds<'w> {
    config: &'w UpfConfig,
    endpoints: &'w [IpAddr],
    pool: &'static FramePool,
    /// None until the sockets are open, where the node is to choose.
    choice: Option<Choice>,
    tables: Option<Tables>,
}

impl PortRequirements for PortNeeds<'_> {
    type Program = Steering;

    fn sockets_opened(&mut self, devices: &[Device]) {
        if self.choice.is_none() {
            let (choice, tables) = datapath::choose(self.config, devices, self.pool);
            (self.choice, self.tables) = (Some(choice), tables);
        }
    }

    fn asks_for_less(&mut self, error: &kaido_xdp::Error) -> bool {
        let Some(choice) = self.choice.as_mut().filter(|choice| choice.configured == Datapath::Auto) else {
            return false;
        };
        let had_tables = self.tables.take().is_some();
        if had_tables {
            choice.chosen = Datapath::Engine;
            choice.reason = format!("the kernel does not take the datapath: {error}");
        }
        had_tables
    }

    fn program(
        &self,
        at: usize,
        interface: &Interface,
        multi_buffer: bool,
    ) -> Result<Steering, kaido_xdp::Error> {
        let name = self.config.base.ports[at].get_ref().interface_name();
        let of_interface = || self.config.ports().filter(|(port, _)| port.interface_name() == name);
        // VLANs are taken whole; what is taken of the rest is said by the port that has it.
        let untagged = of_interface().find(|(port, _)| port.vlan.is_none()).map(|(_, of_port)| of_port);
        let load = SteeringConfig {
            roles: Roles {
                gtpu: untagged.is_some_and(UpfPort::is_gtpu),
                routed: untagged.is_some_and(UpfPort::is_n6),
            },
            mac: interface.mac,
            multi_buffer,
            no_wire: has_no_wire(&interface.name),
        };
        let slots = u32::try_from(of_interface().count()).unwrap_or(u32::MAX);
        let load_offload = |offload| Steering::load_offload_slots(load, offload, slots);
        let offload = self.tables.as_ref().map(|tables| &tables.offload);
        let mut steering = offload.map_or_else(|| Steering::load(load), load_offload)?;
        steering.set_own_vlans(&of_interface().filter_map(|(port, _)| port.vid()).collect())?;
        // Elsewhere they are addresses of the host as others are.
        let has_tunnels = of_interface().any(|(_, of_port)| of_port.is_gtpu());
        steering.set_gtpu_addresses(if has_tunnels { self.endpoints } else { &[] })?;
        steering.guard(
            control_addresses(self.config)
                .filter(|addr| !routable(interface).any(|own| own == *addr))
                .collect(),
        );
        let prefixes = untagged.iter().flat_map(|port| &port.ue_prefixes);
        let prefixes: Vec<_> = prefixes.map(|prefix| (prefix.addr, prefix.len)).collect();
        steering.set_ue_prefixes(&prefixes)?;
        Ok(steering)
    }

    fn tunnel_addresses(&self, port: &PortConfig) -> &[IpAddr] {
        if self.config.of_port(port).is_some_and(UpfPort::is_gtpu) { self.endpoints } else { &[] }
    }

    fn vrfs(&self) -> Vec<Vrf> {
        PortInstances::of(&self.config.ports).exits().vrfs()
    }

    fn is_way_out(&self, tap: &PortConfig) -> bool {
        self.config.of_port(tap).is_some_and(UpfPort::is_n6)
    }

    fn kernel_path(&self) -> KernelPath {
        KernelPath::Shared
    }
}

/// The network instances of ports.
#[derive(Debug, Default)]
struct PortInstances {
    instances: Vec<Instance>,
    of_ports: Vec<Option<InstanceId>>,
    route_tables: BTreeMap<InstanceId, u32>,
}

impl PortInstances {
    fn of(ports: &[UpfPort]) -> Self {
        let mut found = Self::default();
        for of_port in ports {
            let instance = of_port.is_n6().then(|| found.number(of_port.network_instance.clone()));
            found.of_ports.push(instance);
            let table = of_port.route_table.as_ref().map(|table| *table.get_ref());
            found.route_tables.extend(instance.zip(table));
        }
        found
    }

    fn exits(&self) -> ExitInstances<'_> {
        let Self { instances, of_ports, route_tables } = self;
        ExitInstances { instances, of_ports, route_tables }
    }

    fn number(&mut self, name: Option<String>) -> InstanceId {
        let known = self.instances.iter().position(|known| known.name == name);
        let place = known.unwrap_or_else(|| {
            self.instances.push(Instance { name });
            self.instances.len() - 1
        });
        InstanceId(u16::try_from(place).unwrap_or(u16::MAX))
    }
}

/// The data networks behind ports, each with its own routes.
pub(super) fn ways_out(ports: &[UpfPort]) -> Vec<WayOut> {
    let instances = PortInstances::of(ports);
    let exits = instances.exits();
    let numbers = (0..).map(InstanceId);
    // The first is of no instance in particular.
    let vrfs = exits.vrfs().into_iter().skip(1).zip(numbers);
    vrfs.map(|(vrf, instance)| WayOut { vrf, ports: exits.ports_of(instance) }).collect()
}

/// The ports, and what goes with them.
pub(super) struct Ports {
    pub(super) opened: OpenPorts<Steering>,
    /// What a user plane further has of each port.
    of_ports: Vec<UpfPort>,
    endpoints: Vec<IpAddr>,
    choice: Choice,
    offload: Option<SharedOffload>,
    /// Frames that it loses, until somebody watches.
    losses: Option<FrameLosses>,
    /// The same once the node is told of it, and where it may send from.
    kernel: Option<(SharedOffload, Exits)>,
    /// GTP-U with control planes that no port leads to.
    pub(super) n4_tunnels: Option<Arc<N4Tunnels>>,
}

impl Ports {
    /// Opens every port; no program is attached yet.
    pub(super) fn open(
        config: &UpfConfig,
        pool: &'static FramePool,
        takeover: &Arc<Takeover>,
    ) -> Result<Self, UpfStartFault> {
        let is_bridged = |port: &PortConfig| config.is_bridged(port.name.get_ref());
        let found = Interfaces::look(&config.base, pool, takeover, is_bridged)?;
        let endpoints = endpoints(config, &found)?;
        let (choice, tables) = datapath::asked_for(config)?.unzip();
        let mut needs = PortNeeds { config, endpoints: &endpoints, pool, choice, tables: tables.flatten() };
        let opened = OpenPorts::open(found, pool, &mut needs, is_bridged)?;
        let PortNeeds { choice, tables, .. } = needs;
        let choice = choice.unwrap_or_else(|| Choice::engine("no port was opened"));
        let n4_tunnels = n4_tunnels(&opened.devices, &config.ports, &endpoints, takeover)?.map(Arc::new);
        let (offload, losses) = tables.map(|Tables { offload, losses }| (offload, losses)).unzip();
        let (offload, losses) = (offload.map(SharedOffload::new), losses.flatten());
        choice.log();
        let of_ports = config.ports.clone();
        Ok(Self { opened, of_ports, endpoints, choice, offload, losses, kernel: None, n4_tunnels })
    }

    /// The ports, with what a user plane further has of each.
    pub(super) fn devices(&self) -> impl Iterator<Item = (&Device, &UpfPort)> {
        self.opened.devices.iter().zip(&self.of_ports)
    }

    /// Which datapath there is, and why.
    pub(super) const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// What keeps the datapath in the kernel in step with the devices that it sends out of, where there is one. It looks at them
    /// first when the programs are [attached](ExitWatch::attached).
    fn exit_watch(&mut self) -> Option<ExitWatch> {
        let (_, exits) = self.kernel.as_ref()?;
        let devices = &self.opened.devices;
        let names = devices.iter().map(|device| device.config.name.get_ref().clone()).collect();
        let routes = self.opened.routes().clone();
        let trusts = self.choice.configured != Datapath::Auto;
        Some(ExitWatch::new(exits.clone(), routes, names, self.losses.take(), trusts))
    }

    /// Whether all programs run behind the driver.
    fn is_generic(&self) -> bool {
        let mut programs = self.opened.devices.iter().filter(|device| device.program.is_some());
        programs.all(Device::is_generic)
    }

    /// How frames of each port are returned to the kernel that it was not given.
    pub(super) fn kernel_return(&self) -> ProgramReturn {
        let program = |device: &Device| device.program.filter(|_| device.side.is_none());
        let of_port = self.opened.devices.iter().map(program).collect();
        ProgramReturn::new(self.opened.programs().clone(), of_port)
    }

    /// What tunnels at one of our addresses are for: what its port is for.
    fn scope(&self, endpoint: IpAddr) -> EndpointScope {
        let at = |(device, of_port): &(&Device, &UpfPort)| {
            of_port.is_gtpu() && device.interface.addresses.iter().any(|own| own.address == endpoint)
        };
        let Some((device, of_port)) = self.devices().find(at) else { return EndpointScope::default() };
        let roles = of_port.roles.get_ref();
        let own = device.interface.addresses.iter().find(|own| own.address == endpoint);
        EndpointScope {
            access: roles.contains(&Role::N3),
            core: roles.contains(&Role::N9),
            // With N6 beside it the name is that of the UEs' addresses.
            instance: of_port.network_instance.clone().filter(|_| !of_port.is_n6()),
            subnet: own.map(|own| (own.address, own.prefix_len)),
        }
    }

    /// What the user plane is told of the ports.
    pub(super) fn settings(&self, config: &UpfConfig) -> Result<NodeSettings, UpfStartFault> {
        let PortInstances { mut instances, of_ports, route_tables } = PortInstances::of(&self.of_ports);
        let mut ports = Vec::new();
        for ((device, of_port), instance) in self.devices().zip(of_ports) {
            // Behind a TAP device the addresses are the kernel's, not ours.
            let own = *device.config.driver.get_ref() != Driver::Tap;
            ports.push(PortRole {
                mac: device.wire().mac,
                mtu: device.interface.mtu as usize,
                addresses: device.addresses().filter(|_| own).collect(),
                gtpu: of_port.is_gtpu(),
                instance,
            });
        }
        let lans = config.lans(&mut instances);
        let ethernet = config.ethernet(&mut instances);
        let named = Arc::new(config.named(&instances));
        Ok(NodeSettings {
            endpoint_scopes: self.endpoints.iter().map(|&addr| self.scope(addr)).collect(),
            endpoints: self.endpoints.clone(),
            control: control_addresses(config).collect(),
            lans,
            ethernet,
            instances,
            ports,
            route_tables,
            live: LiveSettings { named, ..config.live() },
            fragments: FragmentSettings {
                enabled: config.reassembly.enabled,
                limits: config.base.reassembly.limits(),
            },
            // Also where packets are steered by the UE: see docs/decisions/0013-affinity-is-no-ownership.md.
            workers_share_sessions: *config.base.node.workers.get_ref() > 1 || self.offload.is_some(),
            sessions_max: *config.node.sessions_max.get_ref(),
            // That of the store.
            recovery: None,
        })
    }

    /// The memory that the kernel uses too; `None` when the workers do all.
    pub(super) fn memory(&self) -> Result<Option<NodeMemory>, UpfStartFault> {
        let Some(offload) = &self.offload else { return Ok(None) };
        let memory = offload.memory();
        memory.map(Some).map_err(|error| UpfStartFault::Datapath { fault: error.to_string() })
    }

    /// The datapath in the kernel, where there is one, told of the node.
    pub(super) fn take_kernel(&mut self, node: &Node) -> Result<Option<XdpOffload>, UpfStartFault> {
        let Some(offload) = self.offload.take() else { return Ok(None) };
        let settings = &node.settings;
        offload.with(|offload| offload.begin_policers(node.policers.age()));
        let fault = |error: OffloadError| UpfStartFault::Datapath { fault: error.to_string() };
        offload
            .with(|offload| offload.set_own_addresses(&settings.own_addresses().collect::<Vec<_>>()))
            .map_err(|error| fault(error.into()))?;
        let mut exits = vec![None; self.opened.devices.len()];
        let mut around = OffloadContext {
            exits: Exits::default(),
            vrfs: ExitVrfs::default(),
            n6_only: settings.ports.iter().map(|port| port.instance.is_some() && !port.gtpu).collect(),
            ue_prefixes: vec![Vec::new(); settings.instances.len()],
            endpoints: settings.endpoints.clone(),
            lans: settings.lans.clone(),
            tunnels: settings.live.tunnels.clone(),
        };
        let mut steerings = lock(self.opened.programs());
        let mut vlans: Vec<BTreeMap<Vlan, VlanRole>> = vec![BTreeMap::new(); steerings.len()];
        let devices = self.opened.devices.iter().zip(&self.of_ports);
        for (((device, of_port), role), exit) in devices.zip(&settings.ports).zip(&mut exits) {
            let Some(program) = device.program else { continue };
            let instance = role.instance.map(|instance| instance.0);
            match device.config.vid() {
                None => steerings[program].set_instance(instance).map_err(fault)?,
                Some(vid) => {
                    let own = VlanRole { instance, gtpu: role.gtpu, lan: false, slot: slot(device) };
                    vlans[program].insert(Vlan { outer: None, inner: vid }, own);
                }
            }
            let prefixes = &of_port.ue_prefixes;
            if let Some(instance) = role.instance.filter(|_| !prefixes.is_empty()) {
                around.ue_prefixes[usize::from(instance.0)].push(prefixes.clone());
            }
            *exit = Some(Exit::of(device));
        }
        for (_, lan) in settings.lans.iter() {
            let device = &self.opened.devices[lan.port.index()];
            let Some(vlans) = device.program.and_then(|at| vlans.get_mut(at)) else { continue };
            if vlans.len() == VLANS_MAX {
                // Theirs is left to the workers.
                continue;
            }
            let instance = Some(lan.instance.0);
            let tenants = VlanRole { instance, gtpu: false, lan: true, slot: slot(device) };
            let VlanTags { outer, inner } = lan.tags;
            let key =
                inner.map_or(Vlan { outer: None, inner: outer }, |inner| Vlan { outer: Some(outer), inner });
            vlans.insert(key, tenants);
        }
        for (steering, vlans) in steerings.iter_mut().zip(&vlans) {
            steering.set_vlans(vlans).map_err(fault)?;
        }
        drop(steerings);
        around.exits = Exits::new(exits);
        self.kernel = Some((offload.clone(), around.exits.clone()));
        let next_hops = self.opened.routes().next_hops();
        around.vrfs = ExitVrfs::of_settings(settings, &next_hops);
        Ok(Some(XdpOffload::new(offload, around, next_hops)))
    }

    /// Offers the tables of the kernel's datapath, where there is one, to the next process, for as long as what is returned lives.
    pub(super) fn offer_tables(&self, takeover: &Takeover) -> Result<Vec<Arc<OwnedFd>>, UpfStartFault> {
        let Some((offload, _)) = &self.kernel else { return Ok(Vec::new()) };
        let fault = |error: kaido_xdp::Error| UpfStartFault::Datapath { fault: error.to_string() };
        let tables = offload.with(|offload| offload.descriptors()).map_err(fault)?;
        let offer = |(name, table): (&str, OwnedFd)| {
            let table = Arc::new(table);
            takeover.keep(&left::table_name(name), &table);
            table
        };
        Ok(LeftTables::NAMES.into_iter().zip(tables).map(offer).collect())
    }

    /// Pins the tables of the kernel's datapath, where a restart is to be hitless, beside those of before.
    pub(super) fn pin_tables(&self, config: &UpfConfig, store: &NodeStore) -> Result<Pins, UpfStartFault> {
        let fault = |error: kaido_xdp::Error| UpfStartFault::Pins { fault: error.to_string() };
        let path = store.number().map(|number| left::folder_of(config.store.pins.get_ref(), number));
        let stays = self.kernel.is_some() && config.store.is_hitless();
        let folder = path.as_deref().filter(|_| stays).map(PinFolder::make).transpose().map_err(fault)?;
        if let Some((folder, (offload, _))) = folder.as_ref().zip(self.kernel.as_ref()) {
            offload.with(|offload| offload.pin(folder)).map_err(fault)?;
        }
        Ok(Pins { folder, path })
    }

    /// Attaches the programs, in the place of those that a process before has left; from here on packets come. Where a restart is to
    /// be hitless, they stay when this process ends. What watches the devices that the kernel sends out of is returned.
    pub(super) fn take_over(
        &mut self,
        Pins { folder, path }: Pins,
        mut left: LeftBehind,
        upf: &mut Upf,
    ) -> Result<Option<ExitWatch>, UpfStartFault> {
        let fault = |error: kaido_xdp::Error| UpfStartFault::Pins { fault: error.to_string() };
        self.opened.left_links()?.append_to(&mut left.links);
        let mut exits = self.exit_watch();
        if let Some((watch, is_generic)) = exits.as_mut().zip(left.links.are_generic()) {
            // The kernel goes on to send where it did.
            watch.attached(is_generic);
            upf.follow_routes();
        }
        self.opened.attach_over(&mut left.links)?;
        left.add_rest(upf);
        match (folder, path) {
            (Some(folder), _) => left::keep(&folder, &mut self.opened).map_err(fault)?,
            (None, Some(path)) => {
                if let Some(folder) = PinFolder::find(&path).map_err(fault)? {
                    folder.remove_all().map_err(fault)?;
                }
            }
            (None, None) => {}
        }
        if let Some(watch) = &mut exits {
            watch.attached(self.is_generic());
        }
        Ok(exits)
    }

    /// Keeps the ports bound to their interfaces, and the datapath in the kernel in step with them.
    pub(super) fn watch(
        &mut self,
        settings: &NodeSettings,
        inboxes: Vec<Arc<Inbox>>,
    ) -> Result<(), UpfStartFault> {
        let Some((offload, exits)) = self.kernel.clone() else {
            return Ok(self.opened.watch(inboxes, None)?);
        };
        let mut settings = settings.clone();
        let sends: Vec<bool> = self.opened.devices.iter().map(|device| device.program.is_some()).collect();
        let hook = move |at: usize, device: Option<&Device>| {
            exits.set(at, device.filter(|_| sends[at]).map(Exit::of));
            settings.ports[at].addresses = device.into_iter().flat_map(Device::addresses).collect();
            let own: Vec<IpAddr> = settings.own_addresses().collect();
            if let Err(error) = offload.with(|offload| offload.set_own_addresses(&own)) {
                tracing::error!(%error, "the datapath in the kernel was not told of the node's addresses");
            }
        };
        Ok(self.opened.watch(inboxes, Some(Box::new(hook)))?)
    }

    /// How to ask for what the kernel's datapath has counted.
    pub(super) fn kernel_counters(&self) -> KernelCounters {
        let devices = &self.opened.devices;
        let of_port = |device: &Device| Some((device.program?, u32::from(slot(device))));
        let of_port = devices.iter().map(of_port).collect();
        let is_vlan = devices.iter().map(Device::is_vlan).collect();
        let exits = self.kernel.as_ref().map(|(_, exits)| exits.clone()).unwrap_or_default();
        KernelCounters { is_vlan, steerings: self.opened.programs().clone(), of_port, exits }
    }

    /// What the node can do by its ports: choose F-TEIDs, and end tunnels.
    pub(super) fn features(&self) -> Features {
        Features {
            allocates_f_teids: !self.endpoints.is_empty(),
            sends_end_markers: true,
            ..Features::default()
        }
    }
}

/// Where programs and tables stay when the process ends.
#[derive(Debug)]
pub(super) struct Pins {
    /// None where they are not to stay.
    folder: Option<PinFolder>,
    /// Where they would.
    path: Option<PathBuf>,
}

/// The counters of the kernel's datapath.
pub(super) struct KernelCounters {
    steerings: Arc<Mutex<Vec<Steering>>>,
    /// By port: the program, and its slot there.
    of_port: Vec<Option<(usize, u32)>>,
    /// By port. A worker sees no tags there.
    is_vlan: Vec<bool>,
    exits: Exits,
}

impl KernelCounters {
    /// By port: zero for those without a program.
    pub(super) fn read(&self) -> Vec<KernelCounts> {
        let steerings = lock(&self.steerings);
        let is_vlan = |port: usize| self.is_vlan.get(port).is_some_and(|&is_vlan| is_vlan);
        let read = |(at, of_port): (usize, &Option<(usize, u32)>)| {
            let (steering, slot) = (*of_port)?;
            let counters = steerings.get(steering)?.offload_counters_of(slot);
            let counters = counters.map_err(|error| tracing::warn!(%error, "the kernel's counters")).ok()?;
            Some(counters.without_tags(is_vlan(at), is_vlan))
        };
        let offload = self.of_port.iter().enumerate().map(|port| read(port).unwrap_or_default());
        let lost = self.exits.lost().into_iter().chain(std::iter::repeat(LostFrames::default()));
        offload.zip(lost).map(|(offload, lost)| KernelCounts { offload, lost }).collect()
    }
}

/// Where the program of a port's interface counts its packets.
fn slot(device: &Device) -> u16 {
    u16::try_from(device.place).unwrap_or(u16::MAX)
}

/// Our tunnel addresses: those of the configuration, or all of the ports that carry GTP-U.
fn endpoints(config: &UpfConfig, found: &Interfaces<'_>) -> Result<Vec<IpAddr>, UpfStartFault> {
    let gtpu = found.ports().zip(&config.ports).filter(|(_, of_port)| of_port.is_gtpu());
    let gtpu: Vec<_> = gtpu.map(|(port, _)| port).collect();
    let own: Vec<IpAddr> = gtpu.iter().flat_map(|(_, interface)| routable(interface)).collect();
    let wanted = &config.gtpu.addresses;
    let Some((first, interface)) = gtpu.first() else { return Ok(Vec::new()) };
    if own.is_empty() {
        let name = &interface.name;
        let help = match first.tap_name() {
            Some(_) => "addresses = [\"ADDRESS/LEN\"] of the port".to_owned(),
            None => format!("`ip address add ADDRESS/LEN dev {name}`"),
        };
        return Err(fault(first, format!("{name} has no address for tunnels"), help).into());
    }
    if let Some(foreign) = wanted.iter().find(|addr| !own.contains(addr)) {
        let listed: Vec<_> = own.iter().map(ToString::to_string).collect();
        let said = format!("gtpu.addresses: {foreign} is not an address of an n3 or n9 port");
        return Err(fault(first, said, format!("their addresses are {}", listed.join(", "))).into());
    }
    Ok(if wanted.is_empty() { own } else { wanted.clone() })
}

/// Sockets of the kernel at our tunnel addresses. Where packet sockets take GTP-U they must be there, lest the kernel refuses it.
fn n4_tunnels(
    devices: &[Device],
    of_ports: &[UpfPort],
    endpoints: &[IpAddr],
    takeover: &Takeover,
) -> Result<Option<N4Tunnels>, UpfStartFault> {
    if endpoints.is_empty() {
        return Ok(None);
    }
    let names = devices.iter().flat_map(|device| [device.wire(), &device.interface]);
    let names = names.map(|interface| (interface.name.clone(), interface.ifindex)).collect();
    // In VLANs the kernel sees no more than it is handed.
    let is_seen = |(device, of_port): &(&Device, &UpfPort)| {
        *device.config.driver.get_ref() == Driver::AfPacket && of_port.is_gtpu() && !device.is_vlan()
    };
    match (N4Tunnels::bind(endpoints, names, takeover), devices.iter().zip(of_ports).find(is_seen)) {
        (Ok(tunnels), _) => Ok(Some(tunnels)),
        (Err(error), Some((device, _))) => {
            let help = "another process has UDP port 2152; `ss -lunp` shows which";
            Err(fault(&device.config, error, help).into())
        }
        (Err(error), None) => {
            tracing::warn!(%error, "GTP-U of control planes that only N4 leads to is not sent and not received");
            Ok(None)
        }
    }
}
