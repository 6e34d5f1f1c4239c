//! What the header remover asks of its ports, and is told of them.

use std::sync::{Arc, Mutex};

use kaido_engine::netlink::Interface;
use kaido_engine::{FramePool, KernelPath, PortId};
use kaido_node::config::{Datapath, Driver, PortConfig};
use kaido_node::ports::{Device, Interfaces, OpenPorts, PortRequirements, lock, routable};
use kaido_node::takeover::Takeover;
use miette::IntoDiagnostic;

use crate::node::config::GreConfig;
use crate::xdp::{GreProgram, GreWork, RuleBank};
use crate::{PortSettings, RuleSet};

/// The header remover's demands.
struct PortNeeds<'w> {
    config: &'w GreConfig,
    rules: &'w RuleSet,
    /// By port.
    ifindexes: Vec<u32>,
}

impl PortNeeds<'_> {
    /// The port that the program of a port sends to, where it is to do the work and can.
    fn exit(&self, at: usize) -> Option<PortId> {
        let base = &self.config.base;
        let to = self.rules.settings().ports[at]
            .peer_port
            .filter(|_| *base.node.datapath.get_ref() == Datapath::Xdp)?;
        // What is redirected to a TAP device comes back to us.
        let driver = *base.ports[to.index()].get_ref().driver.get_ref();
        matches!(driver, Driver::AfXdp | Driver::AfPacket).then_some(to)
    }
}

impl PortRequirements for PortNeeds<'_> {
    type Program = GreProgram;

    fn program(
        &self,
        at: usize,
        _interface: &Interface,
        multi_buffer: bool,
    ) -> Result<GreProgram, kaido_xdp::Error> {
        let port = PortId(u8::try_from(at).unwrap_or(u8::MAX));
        let Some(exit) = self.exit(at) else {
            return GreProgram::load(self.rules, port, GreWork::Engine, multi_buffer);
        };
        let mut program = GreProgram::load(self.rules, port, GreWork::Program, multi_buffer)?;
        program.set_peer_port(self.ifindexes[exit.index()])?;
        Ok(program)
    }

    fn kernel_path(&self) -> KernelPath {
        // The program has left the kernel what is its own; what the engine finds more is lost, and counted.
        KernelPath::None
    }
}

/// The ports.
pub(super) struct Ports {
    pub(super) opened: OpenPorts<GreProgram>,
}

impl Ports {
    /// Opens every port; no program is attached yet. With the rules, which know of the ports.
    pub(super) fn open(
        config: &GreConfig,
        pool: &'static FramePool,
        takeover: &Arc<Takeover>,
    ) -> miette::Result<(Self, Arc<RuleSet>)> {
        // Frames on their way to others come in at a bump in the wire.
        let names: Vec<_> =
            config.base.ports.iter().map(|port| port.get_ref().name.get_ref().clone()).collect();
        let takes_all = |port: &PortConfig| {
            let at = names.iter().position(|name| name == port.name.get_ref());
            at.is_some_and(|at| config.peer_port(at).is_some())
        };
        let found = Interfaces::look(&config.base, pool, takeover, takes_all)?;
        let port = |(at, (port, interface)): (usize, (&PortConfig, &Interface))| PortSettings {
            peer_port: config.peer_port(at),
            mac: interface.mac,
            // Behind a TAP device the addresses are the kernel's, not ours.
            addresses: routable(interface).filter(|_| *port.driver.get_ref() != Driver::Tap).collect(),
            mtu: interface.mtu as usize,
        };
        let settings = config.settings(found.ports().enumerate().map(port).collect());
        let rules = RuleSet::new(settings).into_diagnostic()?;
        let ifindexes = found.interfaces.iter().map(|interface| interface.ifindex).collect();
        let mut needs = PortNeeds { config, rules: &rules, ifindexes };
        let opened = OpenPorts::open(found, pool, &mut needs, takes_all)?;
        if *config.base.node.datapath.get_ref() == Datapath::Xdp {
            opened.devices.iter().for_each(Device::warn_of_veth);
        }
        Ok((Self { opened }, rules))
    }

    /// The programs, by port.
    pub(super) fn programs(&self) -> Programs {
        let of_port = self.opened.devices.iter().map(|device| device.program).collect();
        Programs { programs: self.opened.programs().clone(), of_port }
    }
}

/// The programs, to be asked for what they have counted, and given other rules.
#[derive(Clone)]
pub(super) struct Programs {
    programs: Arc<Mutex<Vec<GreProgram>>>,
    of_port: Vec<Option<usize>>,
}

impl Programs {
    /// Writes other rules into each program, beside those that it obeys.
    pub(super) fn prepare(&self, rules: &RuleSet) -> Result<Vec<RuleBank>, kaido_xdp::Error> {
        lock(&self.programs).iter().map(|program| program.prepare(rules)).collect()
    }

    /// Has the programs obey what was written.
    pub(super) fn obey(&self, banks: Vec<RuleBank>) {
        for (program, bank) in lock(&self.programs).iter_mut().zip(banks) {
            if let Err(error) = program.obey(bank) {
                tracing::error!(%error, "a program obeys the rules of before");
            }
        }
    }

    /// What `read` finds in the program of each port; `None` for ports without one.
    pub(super) fn read<T>(
        &self,
        read: impl Fn(&GreProgram) -> Result<T, kaido_xdp::Error>,
    ) -> Vec<Option<T>> {
        let programs = lock(&self.programs);
        let of = |program: &Option<usize>| {
            let read = read(programs.get((*program)?)?);
            read.map_err(|error| tracing::warn!(%error, "the kernel's counters")).ok()
        };
        self.of_port.iter().map(of).collect()
    }
}
