//! Opens the ports of a configuration: devices, steering programs, routes.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kaido_engine::netlink::{self, Interface, InterfaceAddress, RouteWatcher, WatchSettings};
use kaido_engine::port::{PacketPort, Port, TapConfig, TapPort, UdpSink, XdpOptions, XdpPool};
use kaido_engine::{FramePool, KernelPath, PortId, Route, Routes, Wanted};
use kaido_pfcp::Features;
use kaido_upf::fragment::FragmentSettings;
use kaido_upf::node::{Instance, NodeSettings, OuterSourcePort, PortRole, UdpChecksums};
use kaido_upf::path::MssClamp;
use kaido_upf::record::InstanceId;
use kaido_upf::usage::UsageCounters;
use kaido_wire::gtpu;
use kaido_xdp::fastpath::FastCounters;
use kaido_xdp::{AttachMode, FastPath, PLAIN_MTU_MAX, Roles, Steering, SteeringConfig};
use kaido_xsk::BindMode;
use std::sync::mpsc::Receiver;

use super::StartFault;
use super::control::ShownPort;
use super::dpdk::DpdkDevices;
use super::fastpath::{self, Exit, InKernel, Surroundings};
use super::queues::{self, Plan, QueueFault};
use crate::config::{Attach, Config, CopyMode, Driver, MssClampConfig, PortConfig, Role, SourcePort};

/// A worker's queue of a port, and where packets go that are not ours.
type Queue = (Box<dyn Port>, KernelPath);

/// Octets that a tunnel puts before a packet at most: IP, UDP, GTP-U with a PDU session container.
const TUNNEL_OVERHEAD_IPV4: usize = 20 + 8 + 16;
const TUNNEL_OVERHEAD_IPV6: usize = 40 + 8 + 16;

/// A port before and after it is attached.
struct Device {
    config: PortConfig,
    interface: Interface,
    steering: Option<usize>,
    how: String,
}

/// All ports, and what must live as long as they do.
pub(super) struct Opened {
    devices: Vec<Device>,
    /// By worker, then by port.
    queues: Vec<Vec<Queue>>,
    steerings: Arc<Mutex<Vec<Steering>>>,
    routes: Arc<Routes>,
    endpoints: Vec<IpAddr>,
    fast: Option<FastPath>,
    _watcher: RouteWatcher,
    _sink: Option<UdpSink>,
}

pub(super) fn fault(
    config: &PortConfig,
    fault: impl std::fmt::Display,
    help: impl Into<String>,
) -> StartFault {
    StartFault::Port { port: config.name.get_ref().clone(), fault: fault.to_string(), help: help.into() }
}

impl Opened {
    /// Opens every port; no program is attached yet.
    pub(super) fn open(config: &Config, pool: &'static FramePool) -> Result<Self, StartFault> {
        let workers = usize::from(*config.node.workers.get_ref());
        let mut queues: Vec<Vec<Queue>> = (0..workers).map(|_| Vec::new()).collect();
        let mut steerings = Vec::new();
        let (routes, wanted) = Routes::new();
        let mut dpdk = DpdkDevices::new(config, pool);
        let found = config
            .ports
            .iter()
            .map(|port| interface(port.get_ref(), &mut dpdk))
            .collect::<Result<Vec<_>, _>>()?;
        let (found, made): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        // Behind the ports of the configuration come the kernel's sides of those that have one.
        let mut sides: Vec<Queue> = Vec::new();
        let endpoints = endpoints(config, &found)?;
        let multi_buffer = config.ports.iter().zip(&found).any(|(port, interface)| {
            *port.get_ref().driver.get_ref() == Driver::AfXdp && interface.mtu > PLAIN_MTU_MAX
        });
        let fast =
            fastpath::load(config).map_err(|error| StartFault::Datapath { fault: error.to_string() })?;
        let mut xdp_pool = None;
        let mut devices = Vec::new();
        for ((port, interface), made) in config.ports.iter().zip(found).zip(made) {
            let port = port.get_ref();
            let mut device = Device { config: port.clone(), interface, steering: None, how: String::new() };
            match port.driver.get_ref() {
                Driver::AfXdp => {
                    let pool = match &xdp_pool {
                        Some(pool) => pool,
                        None => xdp_pool.insert(XdpPool::register(pool).map_err(|error| {
                            fault(port, error, "AF_XDP needs root, or CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF; or use driver = \"af_packet\"")
                        })?),
                    };
                    let steering = device.open_xdp(
                        pool,
                        &endpoints,
                        multi_buffer,
                        Plan::of(&config.node),
                        &mut queues,
                        fast.as_ref(),
                    )?;
                    device.steering = Some(steerings.len());
                    steerings.push(steering);
                }
                Driver::AfPacket => {
                    let queue = PacketPort::open(device.interface.ifindex, device.interface.mtu as usize)
                        .map_err(|error| fault(port, error, "packet sockets need root or CAP_NET_RAW"))?;
                    if config.is_bridged(port.name.get_ref()) {
                        queue
                            .receive_all()
                            .map_err(|error| fault(port, error, "the interface must take every address"))?;
                    }
                    device.how = "af_packet".to_owned();
                    queues[0].push((Box::new(queue), KernelPath::Shared));
                }
                Driver::Tap => {
                    let queue =
                        made.tap.into_iter().map(|tap| (Box::new(tap) as Box<dyn Port>, KernelPath::None));
                    queues[0].extend(queue);
                    device.how = "tap".to_owned();
                }
                Driver::Dpdk => {
                    let side = PortId(u8::try_from(config.ports.len() + sides.len()).unwrap_or(u8::MAX));
                    if let (Some(tap), Some(DpdkQueue { queue, how, .. })) = (made.tap, made.dpdk) {
                        queues[0].push((queue, KernelPath::Tap(side)));
                        sides.push((Box::new(tap), KernelPath::None));
                        device.how = how;
                    }
                }
            }
            devices.push(device);
        }
        queues[0].append(&mut sides);
        let sink = sink(&devices, &endpoints)?;
        let steerings = Arc::new(Mutex::new(steerings));
        static_routes(&devices, &routes);
        let watcher = watch(&devices, &routes, wanted, &steerings)?;
        Ok(Self { devices, queues, steerings, routes, endpoints, fast, _watcher: watcher, _sink: sink })
    }

    /// The largest TCP segments to be announced: what passes every port, with a tunnel's headers where there is GTP-U.
    fn mss_clamp(&self, config: &Config) -> Option<MssClamp> {
        match *config.gtpu.mss_clamp.get_ref() {
            MssClampConfig::ByMtu(false) => None,
            MssClampConfig::To(most) => Some(MssClamp { ipv4: most, ipv6: most }),
            MssClampConfig::ByMtu(true) => {
                let is_ipv6 = self.endpoints.iter().any(IpAddr::is_ipv6);
                let overhead = if is_ipv6 { TUNNEL_OVERHEAD_IPV6 } else { TUNNEL_OVERHEAD_IPV4 };
                let room = |device: &Device| {
                    let mtu = device.interface.mtu as usize;
                    mtu.saturating_sub(if device.is_gtpu() { overhead } else { 0 })
                };
                let mtu = self.devices.iter().map(room).min()?;
                Some(MssClamp::for_mtu(u16::try_from(mtu).unwrap_or(u16::MAX)))
            }
        }
    }

    /// What the user plane is told of the ports.
    pub(super) fn settings(&self, config: &Config) -> Result<NodeSettings, StartFault> {
        let mut instances: Vec<Instance> = Vec::new();
        let mut ports = Vec::new();
        for device in &self.devices {
            let roles = device.config.roles.get_ref();
            let instance = roles.contains(&Role::N6).then(|| {
                let name = device.config.network_instance.clone();
                let place = instances.iter().position(|known| known.name == name).unwrap_or_else(|| {
                    instances.push(Instance { name });
                    instances.len() - 1
                });
                InstanceId(u16::try_from(place).unwrap_or(u16::MAX))
            });
            // Behind a TAP device the addresses are the kernel's, not ours.
            let own = *device.config.driver.get_ref() != Driver::Tap;
            ports.push(PortRole {
                mac: device.interface.mac,
                mtu: device.interface.mtu as usize,
                addresses: device.addresses().filter(|_| own).collect(),
                gtpu: device.is_gtpu(),
                instance,
            });
        }
        let lans = config.lans(&mut instances);
        let ethernet = config.ethernet(&mut instances);
        let forwarding_policies = config.forwarding_policies(&instances);
        let listening = config.pfcp.listen.get_ref().iter();
        Ok(NodeSettings {
            endpoints: self.endpoints.clone(),
            // Where PFCP listens on every address, those of ports are known anyway.
            control: listening.map(|listen| listen.0.ip()).filter(|addr| !addr.is_unspecified()).collect(),
            lans,
            ethernet,
            forwarding_policies,
            predefined: config.predefined(),
            instances,
            ports,
            outer_source_port: match config.gtpu.source_port {
                SourcePort::Entropy => OuterSourcePort::Entropy,
                SourcePort::Fixed => OuterSourcePort::Fixed,
            },
            udp_checksums: UdpChecksums {
                ipv4: config.gtpu.udp_checksum_ipv4,
                ipv6: !config.gtpu.udp_zero_checksum_ipv6,
                peers: config
                    .gtpu
                    .peers
                    .iter()
                    .map(|peer| (peer.prefix.addr, peer.prefix.len, peer.udp_checksum))
                    .collect(),
            },
            echo: config.gtpu.echo(),
            fragments: FragmentSettings {
                enabled: config.reassembly.enabled,
                limits: config.reassembly.limits(),
                oversize: config.gtpu.oversize.into(),
            },
            mss_clamp: self.mss_clamp(config),
            // Also where packets are steered by the UE: see docs/decisions/0013-affinity-is-no-ownership.md.
            workers_share_sessions: self.queues.len() > 1 || self.fast.is_some(),
            ue_to_ue: config.node.ue_to_ue.into(),
            sessions_max: *config.node.sessions_max.get_ref(),
            buffer_packets_per_session: config.buffer.packets_per_session as usize,
            buffer_packets_max: *config.buffer.packets.get_ref() as usize,
            buffer_bytes_per_session: config.buffer.bytes_per_session as usize,
            buffer_bytes_max: config.buffer.bytes,
            buffer_time_max: Duration::from_millis(config.buffer.time_ms.into()),
            inactivity_timer: (config.node.inactivity_s != 0)
                .then(|| Duration::from_secs(config.node.inactivity_s.into())),
            policer_window: Duration::from_millis((*config.qos.burst_ms.get_ref()).into()),
            answers_per_second: config.node.answers_per_second,
        })
    }

    /// The usage counters that the kernel counts in too; `None` when the workers do all.
    pub(super) fn usage(&self) -> Result<Option<UsageCounters>, StartFault> {
        let Some(fast) = &self.fast else { return Ok(None) };
        let fault = |fault: String| StartFault::Datapath { fault };
        let cells = fast.leak_usage_cells().map_err(|error| fault(error.to_string()))?;
        UsageCounters::over(cells).map(Some).map_err(|error| fault(error.to_string()))
    }

    /// The datapath in the kernel, where there is one, told of the node.
    pub(super) fn take_kernel(&mut self, settings: &NodeSettings) -> Result<Option<InKernel>, StartFault> {
        let Some(mut fast) = self.fast.take() else { return Ok(None) };
        let fault = |error: kaido_xdp::Error| StartFault::Datapath { fault: error.to_string() };
        fast.set_own_addresses(&settings.own_addresses().collect::<Vec<_>>()).map_err(fault)?;
        let mut around = Surroundings {
            exits: vec![None; self.devices.len()],
            ue_prefixes: vec![Vec::new(); settings.instances.len()],
            endpoints: settings.endpoints.clone(),
        };
        let mut steerings = self.steerings.lock().unwrap_or_else(PoisonError::into_inner);
        for ((device, role), exit) in self.devices.iter().zip(&settings.ports).zip(&mut around.exits) {
            let Some(steering) = device.steering.and_then(|at| steerings.get_mut(at)) else { continue };
            steering.set_instance(role.instance.map(|instance| instance.0)).map_err(fault)?;
            let prefixes = &device.config.ue_prefixes;
            if let Some(instance) = role.instance.filter(|_| !prefixes.is_empty()) {
                around.ue_prefixes[usize::from(instance.0)].push(prefixes.clone());
            }
            let Interface { ifindex, mtu, mac, .. } = device.interface;
            *exit = Some(Exit { ifindex, mtu, mac });
        }
        drop(steerings);
        Ok(Some(InKernel::new(fast, around, self.routes.next_hops())))
    }

    /// How to ask for what the kernel's datapath has counted.
    pub(super) fn kernel_counters(&self) -> KernelCounters {
        let of_port = self.devices.iter().map(|device| device.steering).collect();
        KernelCounters { steerings: self.steerings.clone(), of_port }
    }

    /// The queues, by worker.
    pub(super) fn take_queues(&mut self) -> Vec<Vec<Queue>> {
        std::mem::take(&mut self.queues)
    }

    /// Routes and neighbours.
    pub(super) fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// What the node can do by its ports: choose F-TEIDs, and end tunnels.
    pub(super) fn features(&self) -> Features {
        Features {
            allocates_f_teids: !self.endpoints.is_empty(),
            sends_end_markers: true,
            ..Features::default()
        }
    }

    /// Ports as they are shown.
    pub(super) fn shown(&self) -> Vec<ShownPort> {
        let shown = |device: &Device| ShownPort {
            name: device.config.name.get_ref().clone(),
            how: device.how.clone(),
            mtu: device.interface.mtu as usize,
        };
        self.devices.iter().map(shown).collect()
    }

    /// Attaches the steering programs: from here on packets come.
    pub(super) fn attach(&mut self) -> Result<(), StartFault> {
        let mut steerings = self.steerings.lock().unwrap_or_else(PoisonError::into_inner);
        for device in &mut self.devices {
            let Some(steering) = device.steering.and_then(|at| steerings.get_mut(at)) else { continue };
            let mode = match device.config.attach {
                Attach::Auto => AttachMode::Auto,
                Attach::Native => AttachMode::Native,
                Attach::Generic => AttachMode::Generic,
            };
            steering.attach_to(device.interface.ifindex, mode).map_err(|error| {
                let help = "attach = \"generic\" works with every driver; a program that another tool left is removed by `ip link set dev IF xdp off`";
                fault(&device.config, error, help)
            })?;
            if let Some(obtained) = steering.mode() {
                device.how = format!("{}, {obtained:?} program", device.how).to_lowercase();
            }
        }
        Ok(())
    }

    /// Detaches the steering programs.
    pub(super) fn detach(&mut self) {
        for steering in self.steerings.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if let Err(error) = steering.detach() {
                tracing::error!(%error, "a steering program could not be detached");
            }
        }
    }
}

/// The counters of the kernel's datapath.
pub(super) struct KernelCounters {
    steerings: Arc<Mutex<Vec<Steering>>>,
    of_port: Vec<Option<usize>>,
}

impl KernelCounters {
    /// By port: zero for those without a program.
    pub(super) fn read(&self) -> Vec<FastCounters> {
        let steerings = self.steerings.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |steering: &Option<usize>| {
            let counters = steerings.get((*steering)?)?.fast_counters();
            counters.map_err(|error| tracing::warn!(%error, "the kernel's counters")).ok()
        };
        self.of_port.iter().map(|steering| read(steering).unwrap_or_default()).collect()
    }
}

impl Device {
    fn is_gtpu(&self) -> bool {
        is_gtpu(&self.config)
    }

    /// The interface's addresses that packets may be routed to.
    fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        routable(&self.interface)
    }

    /// Opens the queues and loads the program that steers to them.
    fn open_xdp(
        &mut self,
        pool: &XdpPool,
        endpoints: &[IpAddr],
        multi_buffer: bool,
        plan: Plan,
        queues: &mut [Vec<Queue>],
        fast: Option<&FastPath>,
    ) -> Result<Steering, StartFault> {
        let config = &self.config;
        let name = &self.interface.name;
        let load = SteeringConfig {
            roles: Roles { gtpu: is_gtpu(config), routed: config.roles.get_ref().contains(&Role::N6) },
            mac: self.interface.mac,
            multi_buffer,
        };
        let steer = |error: kaido_xdp::Error| {
            fault(config, error, "steering needs root, or CAP_BPF and CAP_NET_ADMIN")
        };
        let loaded = fast.map_or_else(|| Steering::load(load), |fast| Steering::load_fast(load, fast));
        let mut steering = loaded.map_err(steer)?;
        steering.set_gtpu_addresses(endpoints).map_err(steer)?;
        let prefixes: Vec<_> = config.ue_prefixes.iter().map(|prefix| (prefix.addr, prefix.len)).collect();
        steering.set_ue_prefixes(&prefixes).map_err(steer)?;
        let options = XdpOptions {
            mode: match config.copy {
                CopyMode::Auto => BindMode::Auto,
                CopyMode::Copy => BindMode::Copy,
                CopyMode::ZeroCopy => BindMode::ZeroCopy,
            },
            multi_buffer,
            ..XdpOptions::default()
        };
        let device = queues::Device {
            ifindex: self.interface.ifindex,
            name,
            receive_queues: receive_queues(name),
            endpoints: if is_gtpu(config) { endpoints } else { &[] },
        };
        let (ports, mode) = plan
            .open(pool, &device, &options, |queue, socket| steering.register_socket(queue, socket))
            .map_err(|error| {
                let help = match &error {
                    QueueFault::Mismatch(mismatch) => mismatch.help(),
                    QueueFault::Open { .. } => {
                        "another program may use the queue; copy = \"copy\" works with every driver"
                            .to_owned()
                    }
                    QueueFault::Register(_) => "steering needs root, or CAP_BPF and CAP_NET_ADMIN".to_owned(),
                    QueueFault::Wake(_) => "raise the limit of open files".to_owned(),
                };
                fault(config, error, help)
            })?;
        self.how = format!("af_xdp, {mode:?}").to_lowercase();
        for (worker, port) in queues.iter_mut().zip(ports) {
            worker.push((port, KernelPath::Shared));
        }
        Ok(steering)
    }
}

fn is_gtpu(config: &PortConfig) -> bool {
    config.roles.get_ref().iter().any(|role| matches!(role, Role::N3 | Role::N9))
}

fn routable(interface: &Interface) -> impl Iterator<Item = IpAddr> + '_ {
    interface.addresses.iter().filter(|found| !found.link_local).map(|found| found.address)
}

/// How many queues an interface receives on.
pub(crate) fn receive_queues(name: &str) -> usize {
    let listed = std::fs::read_dir(format!("/sys/class/net/{name}/queues"));
    let names = listed.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|queue| queue.to_string_lossy().starts_with("rx-")).count().max(1)
}

/// What was made for a port before its interface could be looked up.
#[derive(Default)]
struct Made {
    tap: Option<TapPort>,
    dpdk: Option<DpdkQueue>,
}

/// The queue of a `dpdk` port.
pub(super) struct DpdkQueue {
    pub(super) queue: Box<dyn Port>,
    /// The device's Ethernet address.
    pub(super) mac: [u8; 6],
    /// What it is.
    pub(super) how: String,
}

/// The interface of a port; a TAP device is made here, and a DPDK device opened, whose address the TAP device has.
fn interface(port: &PortConfig, dpdk: &mut DpdkDevices<'_>) -> Result<(Interface, Made), StartFault> {
    let name = port.interface.as_ref().map_or("", |name| name.get_ref().as_str());
    let mut made = Made::default();
    let driver = *port.driver.get_ref();
    let mut mac = None;
    if driver == Driver::Dpdk {
        let queue = dpdk.open(port)?;
        mac = Some(queue.mac);
        made.dpdk = Some(queue);
    }
    if matches!(driver, Driver::Tap | Driver::Dpdk) {
        let config = TapConfig {
            name: name.to_owned(),
            mac,
            mtu: port.mtu,
            addresses: port.addresses.iter().map(|prefix| (prefix.addr, prefix.len)).collect(),
            arp: driver == Driver::Dpdk,
        };
        let tap = TapPort::create(&config).map_err(|error| {
            fault(port, error, "a TAP device needs root or CAP_NET_ADMIN, and a free name")
        })?;
        made.tap = Some(tap);
    }
    let found = netlink::interface(name)
        .map_err(|error| fault(port, error, "`ip link` lists the interfaces of this network namespace"))?;
    if !found.up {
        // Not fatal: a carrier may come later, and the other ports work meanwhile.
        tracing::warn!(
            port = port.name.get_ref(),
            interface = name,
            "the interface is down or has no carrier"
        );
    }
    Ok((found, made))
}

/// Our tunnel addresses: those of the configuration, or all of the ports that carry GTP-U.
fn endpoints(config: &Config, found: &[Interface]) -> Result<Vec<IpAddr>, StartFault> {
    let ports = config.ports.iter().map(toml::Spanned::get_ref).zip(found);
    let gtpu: Vec<_> = ports.filter(|(port, _)| is_gtpu(port)).collect();
    let own: Vec<IpAddr> = gtpu.iter().flat_map(|(_, interface)| routable(interface)).collect();
    let wanted = &config.gtpu.addresses;
    let Some((first, interface)) = gtpu.first() else { return Ok(Vec::new()) };
    if own.is_empty() {
        let name = &interface.name;
        return Err(fault(
            first,
            format!("{name} has no address for tunnels"),
            format!("`ip address add ADDRESS/LEN dev {name}`"),
        ));
    }
    if let Some(foreign) = wanted.iter().find(|addr| !own.contains(addr)) {
        let listed: Vec<_> = own.iter().map(ToString::to_string).collect();
        let said = format!("gtpu.addresses: {foreign} is not an address of an n3 or n9 port");
        return Err(fault(first, said, format!("their addresses are {}", listed.join(", "))));
    }
    Ok(if wanted.is_empty() { own } else { wanted.clone() })
}

/// Where packet sockets take GTP-U, the kernel must not answer it.
fn sink(devices: &[Device], endpoints: &[IpAddr]) -> Result<Option<UdpSink>, StartFault> {
    let Some(device) =
        devices.iter().find(|device| *device.config.driver.get_ref() == Driver::AfPacket && device.is_gtpu())
    else {
        return Ok(None);
    };
    let addresses = endpoints.iter().map(|&addr| SocketAddr::new(addr, gtpu::UDP_PORT));
    let sink = UdpSink::bind(addresses).map_err(|error| {
        fault(&device.config, error, "another process has UDP port 2152; `ss -lunp` shows which")
    })?;
    Ok(Some(sink))
}

/// Behind a TAP device is the kernel alone: it takes what is in the device's networks and, on the N6 side,
/// everything that no other route is for.
fn static_routes(devices: &[Device], routes: &Routes) {
    let mut fixed = Vec::new();
    for (number, device) in (0u8..).zip(devices) {
        if *device.config.driver.get_ref() != Driver::Tap {
            continue;
        }
        let route = Route { port: Some(PortId(number)), gateway: None, metric: u32::MAX };
        fixed.extend(device.config.addresses.iter().map(|prefix| (prefix.addr, prefix.len, route)));
        if device.config.roles.get_ref().contains(&Role::N6) {
            routes.set_elsewhere(PortId(number));
            fixed.push((IpAddr::from([0; 4]), 0, route));
            fixed.push((IpAddr::from([0; 16]), 0, route));
        }
        routes.set_sole_neighbour(PortId(number), device.interface.mac);
    }
    routes.set_fixed_routes(fixed);
}

/// Mirrors the kernel's routes and neighbours, and tells the programs of new addresses.
fn watch(
    devices: &[Device],
    routes: &Arc<Routes>,
    wanted: Receiver<Wanted>,
    steerings: &Arc<Mutex<Vec<Steering>>>,
) -> Result<RouteWatcher, StartFault> {
    let mirrored = (0u8..)
        .zip(devices)
        .filter(|(_, device)| *device.config.driver.get_ref() != Driver::Tap)
        .map(|(number, device)| (PortId(number), device.interface.ifindex))
        .collect();
    let told = steerings.clone();
    let on_addresses = move |addresses: &[InterfaceAddress]| {
        let local: Vec<_> = addresses.iter().map(|found| found.address).collect();
        for steering in told.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if let Err(error) = steering.set_local_addresses(&local) {
                tracing::error!(%error, "the steering program was not told of the node's addresses");
            }
        }
    };
    let settings = WatchSettings { on_addresses: Some(Box::new(on_addresses)), ..WatchSettings::default() };
    RouteWatcher::start_with(routes.clone(), wanted, mirrored, settings).map_err(|error| {
        let port = devices.first().map_or_else(String::new, |device| device.config.name.get_ref().clone());
        StartFault::Port {
            port,
            fault: format!("routes and neighbours: {error}"),
            help: "netlink must be reachable".into(),
        }
    })
}
