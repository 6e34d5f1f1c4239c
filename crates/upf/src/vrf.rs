//! By which routes packets out of tunnels leave: those of their network instance.

use std::collections::{BTreeMap, BTreeSet};

use kaido_engine::{NextHops, PortId, Vrf, VrfId, VrfTable};

use crate::action::N6Exit;
use crate::ids::InstanceId;
use crate::node::{Instance, NodeSettings};
use crate::record::exit_number;

/// What an instance without a name is called where routes are listed.
const NAMELESS: &str = "n6";

/// The network instances of a node, its ports' among them, and the tables that are said for some.
#[derive(Clone, Copy, Debug)]
pub struct ExitInstances<'s> {
    /// By their numbers.
    pub instances: &'s [Instance],
    /// Those of the ports, in the order of their numbers.
    pub of_ports: &'s [Option<InstanceId>],
    /// See [`NodeSettings::route_tables`].
    pub route_tables: &'s BTreeMap<InstanceId, u32>,
}

impl ExitInstances<'_> {
    /// The VRFs by which packets leave: first that of packets to no instance in particular, then that of each instance, in the
    /// order of their numbers.
    ///
    /// Where there is one instance with ports, all packets leave by its routes. Of several, each has those routes that lead by its
    /// own ports, and packets to none of them in particular leave by the main table.
    pub fn vrfs(&self) -> Vec<Vrf> {
        let with_ports: BTreeSet<InstanceId> = self.of_ports.iter().copied().flatten().collect();
        let sole = with_ports.first().copied().filter(|_| with_ports.len() == 1);
        let of_instance = |instance| match with_ports.contains(&instance) {
            true => self.vrf(instance, sole.is_some()),
            false => Vrf::main(),
        };
        let numbers = (0..self.instances.len()).filter_map(|number| u16::try_from(number).ok());
        let of_all = sole.map_or_else(Vrf::main, of_instance);
        [of_all].into_iter().chain(numbers.map(|number| of_instance(InstanceId(number)))).collect()
    }

    /// The ports of an instance.
    pub fn ports_of(&self, instance: InstanceId) -> Vec<PortId> {
        let numbered = (0u8..).map(PortId).zip(self.of_ports);
        numbered.filter(|(_, of_port)| **of_port == Some(instance)).map(|(port, _)| port).collect()
    }

    fn vrf(&self, instance: InstanceId, is_sole: bool) -> Vrf {
        let ports = self.ports_of(instance);
        let table = match (self.route_tables.get(&instance), ports.first()) {
            (Some(&number), _) => VrfTable::Number(number),
            (None, Some(&port)) => VrfTable::OfPort(port),
            (None, None) => VrfTable::Main,
        };
        let named = self.instances.get(usize::from(instance.0)).and_then(|instance| instance.name.clone());
        let name = named.unwrap_or_else(|| NAMELESS.to_owned());
        Vrf { name, table, ports: (!is_sole).then_some(ports) }
    }
}

/// The [VRFs](ExitInstances::vrfs) of a node.
#[derive(Debug, Default)]
pub struct ExitVrfs(Box<[VrfId]>);

impl ExitVrfs {
    /// Those of a node with these settings.
    pub fn of_settings(settings: &NodeSettings, next_hops: &NextHops) -> Self {
        let of_ports: Vec<_> = settings.ports.iter().map(|port| port.instance).collect();
        let NodeSettings { instances, route_tables, .. } = settings;
        let exits = ExitInstances { instances, of_ports: &of_ports, route_tables };
        Self(exits.vrfs().into_iter().map(|vrf| next_hops.vrf(vrf)).collect())
    }

    /// All of them, each once.
    pub fn all(&self) -> BTreeSet<VrfId> {
        self.0.iter().copied().collect()
    }

    /// That of what packets leave by; a LAN has neighbours and gateways of its own.
    pub fn of(&self, exit: N6Exit) -> VrfId {
        self.of_number(exit_number(exit))
    }

    /// That of packets which came in by a port of a network instance.
    pub(crate) fn of_instance(&self, instance: Option<InstanceId>) -> VrfId {
        instance.map_or(VrfId::MAIN, |instance| self.of(N6Exit::Instance(instance)))
    }

    /// As [`ExitVrfs::of`], by the number that a record has.
    #[inline(always)]
    pub(crate) fn of_number(&self, exit: u32) -> VrfId {
        self.0.get(exit as usize).copied().unwrap_or(VrfId::MAIN)
    }
}
