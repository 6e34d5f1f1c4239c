//! What the router asks of its ports of Ethernet, and is told of them.

use std::net::IpAddr;

use kaido_engine::netlink::Interface;
use kaido_engine::{FramePool, KernelPath, PortId};
use kaido_ndn::link::PortKind;
use kaido_ndn::router::EthernetPort;
use kaido_wire::MacAddr;
use kaido_xdp::{Roles, Steering, SteeringConfig};

use crate::config::{NdnConfig, PortConfig};
use crate::run::StartFault;
use crate::run::ports::{Demands, Found, Opened};

/// The router's demands: NDN is a protocol beside IP, so that of IP nothing is taken.
struct Wants;

impl Demands for Wants {
    type Program = Steering;

    fn program(
        &self,
        _: usize,
        interface: &Interface,
        multi_buffer: bool,
    ) -> Result<Steering, kaido_xdp::Error> {
        let roles = Roles { gtpu: false, routed: false, ndn: true };
        Steering::load(SteeringConfig { roles, mac: interface.mac, multi_buffer })
    }

    fn tunnel_addresses(&self, _port: &PortConfig) -> &[IpAddr] {
        &[]
    }

    fn is_way_out(&self, _tap: &PortConfig) -> bool {
        false
    }

    fn kernel_path(&self) -> KernelPath {
        KernelPath::None
    }
}

/// The ports.
pub(super) struct Ports {
    pub(super) opened: Opened<Steering>,
}

impl Ports {
    /// Opens every port.
    pub(super) fn open(config: &NdnConfig, pool: &'static FramePool) -> Result<Self, StartFault> {
        let takes_all = |_: &PortConfig| false;
        let found = Found::look(&config.base, pool, takes_all)?;
        Ok(Self { opened: Opened::open(found, pool, &Wants, takes_all)? })
    }

    /// What the link is told of them, in the order of their numbers.
    pub(super) fn kinds(&self) -> Vec<PortKind> {
        let kind = |port: EthernetPort| PortKind::Ethernet { mac: port.mac, mtu: port.mtu, on_demand: true };
        self.ethernet().into_iter().map(kind).collect()
    }

    /// What the management is told of them.
    pub(super) fn ethernet(&self) -> Vec<EthernetPort> {
        let port = |(number, device): (u8, &crate::run::ports::Device)| EthernetPort {
            name: device.config.name.get_ref().clone(),
            port: PortId(number),
            mac: MacAddr(device.interface.mac),
            mtu: u16::try_from(device.interface.mtu).unwrap_or(u16::MAX),
        };
        (0u8..).zip(&self.opened.devices).map(port).collect()
    }
}
