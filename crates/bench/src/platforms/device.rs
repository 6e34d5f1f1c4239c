//! The platforms: what stands between both links while it is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use kaido_engine::netlink::Interface;
use kaido_engine::port::{PacketPort, Port, XdpOptions, XdpPool, XdpPort};
use kaido_engine::{FramePool, Function, KernelPath, PortId, Worker, WorkerSettings};
use kaido_gre::xdp::{GreProgram, GreWork};
use kaido_gre::{RuleSet, Settings};
use kaido_upf_xdp::Steering;
use kaido_xdp::{AttachMode, PortSteering};
use std::os::fd::AsFd;

use super::PLATFORM;
use super::Reason;
#[cfg(feature = "dpdk")]
use super::dpdk::Dpdk;
use super::memory::{BarePort, function, settings};
#[cfg(not(feature = "dpdk"))]
use super::no_dpdk::Dpdk;
use super::offload::{AttachedSessions, KernelSessions};
use super::report::Kind;
use super::upf::Sessions;
use crate::rig::{self, interfaces};
use crate::traffic::steered;

/// Frames of the engine: the rings of two AF_XDP ports, several times.
const FRAMES: usize = 32_768;

/// What a platform needs that is made once.
pub(super) struct TestBed {
    pub(super) pool: &'static FramePool,
    xdp: Option<XdpPool>,
    dpdk: Dpdk,
    /// What the user plane forwards by, where it is that which is compared.
    pub(super) upf: Option<Sessions>,
    /// The CPU that the engine has for itself.
    pub(super) cpu: Option<usize>,
}

/// A platform at work, until dropped.
pub(super) struct RunningPlatform {
    engine: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
    // Behind the engine, whose sockets they feed.
    _programs: Vec<GreProgram>,
    _steerings: Vec<Steering>,
    _ports: Vec<PortSteering>,
    bridge: bool,
}

fn because(error: impl std::fmt::Display) -> Reason {
    error.to_string()
}

impl TestBed {
    pub(super) fn new(cpu: Option<usize>) -> Result<Self, Reason> {
        Ok(Self {
            pool: FramePool::leak(FRAMES).map_err(because)?,
            xdp: None,
            dpdk: Dpdk::new(),
            upf: None,
            cpu,
        })
    }

    /// How many of the user plane's sessions a platform in the kernel has.
    pub(super) fn kernel_sessions(&self, kind: Kind) -> Option<KernelSessions> {
        let in_kernel = matches!(kind, Kind::XdpNative | Kind::XdpGeneric);
        let offload = self.upf.as_ref().filter(|_| in_kernel)?.offload.as_ref().ok()?;
        Some(offload.sessions.clone())
    }

    /// Puts a platform between both links. A `busy` engine never sleeps.
    pub(super) fn start(&mut self, kind: Kind, busy: bool) -> Result<RunningPlatform, Reason> {
        let found = interfaces(PLATFORM).map_err(because)?;
        let mtu = found[0].mtu as usize;
        let settings = settings([found[0].mac, found[1].mac], mtu);
        let mut running = RunningPlatform {
            engine: None,
            _programs: Vec::new(),
            _steerings: Vec::new(),
            _ports: Vec::new(),
            bridge: false,
        };
        match kind {
            Kind::Cable => {}
            Kind::Bridge => {
                rig::ip("link add platform type bridge").map_err(because)?;
                running.bridge = true;
                for name in PLATFORM {
                    rig::ip(&format!("link set {name} master platform")).map_err(because)?;
                }
                rig::ip("link set platform up").map_err(because)?;
            }
            Kind::XdpNative | Kind::XdpGeneric => {
                let mode = if kind == Kind::XdpNative { AttachMode::Native } else { AttachMode::Generic };
                if self.upf.is_some() {
                    let AttachedSessions { programs, behind } = self.offload(&found, mode)?;
                    running._steerings = programs;
                    if let Some((ports, function)) = behind {
                        running.engine = Some(self.engine(ports, function, busy)?);
                    }
                    return Ok(running);
                }
                for at in 0..2 {
                    let mut program = program(&settings, at, GreWork::Program)?;
                    program.set_peer_port(found[1 - at].ifindex).map_err(because)?;
                    program.attach_to(found[at].ifindex, mode).map_err(because)?;
                    running._programs.push(program);
                }
            }
            Kind::AfPacket | Kind::BareAfPacket => {
                let open = |interface: &Interface| -> Result<Box<dyn Port>, Reason> {
                    let port =
                        PacketPort::open(interface.ifindex, interface.mtu as usize).map_err(because)?;
                    port.receive_all().map_err(because)?;
                    Ok(Box::new(port))
                };
                let ports = vec![open(&found[0])?, open(&found[1])?];
                running.engine = Some(self.engine(ports, self.work(kind, settings)?, busy)?);
            }
            Kind::Dpdk => {
                let mut open = |interface| self.dpdk.open(self.pool, interface);
                let ports = vec![open(&found[0])?, open(&found[1])?];
                running.engine = Some(self.engine(ports, self.work(kind, settings)?, busy)?);
            }
            Kind::AfXdp if self.upf.is_some() => {
                let mut ports: Vec<Box<dyn Port>> = Vec::new();
                for interface in &found {
                    let mut cache = self.pool.cache();
                    let (port, steering) = steered(self.xdp()?, &mut cache, interface, 0).map_err(because)?;
                    ports.push(Box::new(port));
                    running._ports.push(steering);
                }
                running.engine = Some(self.engine(ports, self.work(kind, settings)?, busy)?);
            }
            Kind::AfXdp | Kind::BareAfXdp => {
                let mut ports: Vec<Box<dyn Port>> = Vec::new();
                for (at, interface) in found.iter().enumerate() {
                    let mut program = program(&settings, at, GreWork::Engine)?;
                    let port = XdpPort::open(self.xdp()?, interface.ifindex, 0, &XdpOptions::default());
                    let port = port.map_err(because)?;
                    program.register_socket(0, port.as_fd()).map_err(because)?;
                    ports.push(Box::new(port));
                    running._programs.push(program);
                }
                running.engine = Some(self.engine(ports, self.work(kind, settings)?, busy)?);
                for (program, interface) in running._programs.iter_mut().zip(&found) {
                    program.attach_to(interface.ifindex, AttachMode::Native).map_err(because)?;
                }
            }
        }
        Ok(running)
    }

    /// The user plane's sessions in the kernel.
    fn offload(&mut self, found: &[Interface; 2], mode: AttachMode) -> Result<AttachedSessions, Reason> {
        self.xdp()?;
        let no_memory = || "no memory is registered".to_owned();
        let registered = self.xdp.as_ref().ok_or_else(no_memory)?;
        let offload = self.upf.as_ref().map(|upf| upf.offload.as_ref()).ok_or_else(no_memory)?;
        offload.map_err(Clone::clone)?.attach(found, mode, registered, self.pool)
    }

    fn xdp(&mut self) -> Result<&XdpPool, Reason> {
        if self.xdp.is_none() {
            self.xdp = Some(XdpPool::register(self.pool).map_err(because)?);
        }
        self.xdp.as_ref().ok_or_else(|| "no memory is registered".to_owned())
    }

    /// What a worker does.
    fn work(&self, kind: Kind, settings: Settings) -> Result<Box<dyn Function>, Reason> {
        match (kind, &self.upf) {
            (Kind::BareAfPacket | Kind::BareAfXdp, _) => Ok(Box::new(BarePort)),
            (_, Some(upf)) => upf.function().map_err(because),
            (_, None) => Ok(Box::new(function(settings).map_err(because)?)),
        }
    }

    fn engine(
        &self,
        ports: Vec<Box<dyn Port>>,
        function: Box<dyn Function>,
        busy: bool,
    ) -> Result<(Arc<AtomicBool>, JoinHandle<()>), Reason> {
        let usual = WorkerSettings::default();
        let settings = WorkerSettings {
            cpu: self.cpu,
            spin_rounds: if busy { None } else { usual.spin_rounds },
            ..usual
        };
        let ports = ports.into_iter().map(|port| (port, KernelPath::None)).collect();
        let worker = Worker::new(self.pool, ports, function, settings);
        let stop = Arc::new(AtomicBool::new(false));
        let handle = worker.spawn("platform".to_owned(), stop.clone()).map_err(because)?;
        let thread = std::thread::Builder::new().name("platform-end".to_owned()).spawn(move || {
            handle.join();
        });
        Ok((stop, thread.map_err(because)?))
    }
}

fn program(settings: &Settings, at: usize, work: GreWork) -> Result<GreProgram, Reason> {
    let port = PortId(u8::try_from(at).unwrap_or(u8::MAX));
    let rules = RuleSet::new(settings.clone()).map_err(because)?;
    GreProgram::load(&rules, port, work, false).map_err(because)
}

impl Drop for RunningPlatform {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.engine.take() {
            stop.store(true, Ordering::Relaxed);
            if thread.join().is_err() {
                eprintln!("the engine's thread has panicked");
            }
        }
        if self.bridge
            && let Err(error) = rig::ip("link delete platform")
        {
            eprintln!("{error}");
        }
    }
}
