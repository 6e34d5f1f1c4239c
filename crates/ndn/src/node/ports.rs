//! What the router asks of its ports of Ethernet, and is told of them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kaido_engine::netlink::Interface;
use kaido_engine::port::UdpSink;
use kaido_engine::{FramePool, KernelPath, PortId};
use kaido_node::config::{Driver, PortConfig};
use kaido_node::ports::{Interfaces, OpenPorts, PortRequirements};
use kaido_node::takeover::Takeover;
use kaido_wire::MacAddr;
use kaido_xdp::{IpMatch, PortMatch, PortSteering, PortSteeringConfig};
use miette::miette;

use crate::link::{PortKind, UdpListen, UdpSettings};
use crate::node::config::NdnConfig;
use crate::router::{EthernetPort, UdpPorts};

/// The router's demands: its own protocol, and of IP nothing but UDP to it.
struct PortNeeds {
    /// Where UDP is taken.
    udp: Vec<SocketAddr>,
}

impl PortRequirements for PortNeeds {
    type Program = PortSteering;

    fn program(
        &self,
        _: usize,
        interface: &Interface,
        multi_buffer: bool,
    ) -> Result<PortSteering, kaido_xdp::Error> {
        let ip = self.udp.first().map(|first| IpMatch::Udp { port: first.port() });
        let matches =
            PortMatch { ethertype: Some(kaido_wire::ndn::ETHERTYPE), ip, routed: false, all: false };
        let mut steering =
            PortSteering::load(PortSteeringConfig { matches, mac: interface.mac, multi_buffer })?;
        steering.set_addresses(&self.udp.iter().map(SocketAddr::ip).collect::<Vec<IpAddr>>())?;
        Ok(steering)
    }

    fn kernel_path(&self) -> KernelPath {
        KernelPath::None
    }
}

/// The ports.
pub(super) struct Ports {
    pub(super) opened: OpenPorts<PortSteering>,
    /// Where UDP is taken.
    udp: Vec<UdpListen>,
    /// Holds these addresses, for as long as there are ports.
    _sink: Option<UdpSink>,
}

impl Ports {
    /// Opens every port.
    ///
    /// # Errors
    /// What kept one from being opened, or that none has an address that UDP is to be taken at.
    pub(super) fn open(
        config: &NdnConfig,
        pool: &'static FramePool,
        takeover: &Arc<Takeover>,
    ) -> miette::Result<Self> {
        let takes_all = |_: &PortConfig| false;
        let found = Interfaces::look(&config.base, pool, takeover, takes_all)?;
        let mut needs =
            PortNeeds { udp: config.ndn.listen.udp_on_ports.iter().map(|own| *own.get_ref()).collect() };
        let opened = OpenPorts::open(found, pool, &mut needs, takes_all)?;
        let listen = |address: &SocketAddr| listen(&opened, *address);
        let udp: Vec<UdpListen> = needs.udp.iter().map(listen).collect::<miette::Result<_>>()?;
        let sink = takeover.udp_sink(needs.udp).map_err(|error| {
            miette!(
                help = "another program may take UDP there: stop it, or give another port number",
                "ndn.listen.udp_on_ports: {error}"
            )
        })?;
        Ok(Self { opened, _sink: Some(sink).filter(|_| !udp.is_empty()), udp })
    }

    /// What the link is told of them, in the order of their numbers.
    pub(super) fn kinds(&self) -> Vec<PortKind> {
        let kind = |port: EthernetPort| PortKind::Ethernet { mac: port.mac, mtu: port.mtu, on_demand: true };
        self.ethernet().into_iter().map(kind).collect()
    }

    /// How the link takes UDP from them; `None` where it does not.
    pub(super) fn udp(&self, config: &NdnConfig) -> Option<UdpSettings> {
        let (listen, reassembly) = (&config.ndn.listen, &config.base.reassembly);
        (!self.udp.is_empty()).then(|| UdpSettings {
            listens: self.udp.clone(),
            mtu: *listen.udp_mtu.get_ref(),
            fragments: reassembly.limits(),
        })
    }

    /// What the management is told of UDP on them.
    pub(super) fn udp_ports(&self, config: &NdnConfig) -> UdpPorts {
        let listen = &config.ndn.listen;
        UdpPorts {
            listens: self.udp.clone(),
            mtu: *listen.udp_mtu.get_ref(),
            idle: Duration::from_secs((*listen.idle_s.get_ref()).into()),
        }
    }

    /// What the management is told of them.
    pub(super) fn ethernet(&self) -> Vec<EthernetPort> {
        let port = |(number, device): (u8, &kaido_node::ports::Device)| EthernetPort {
            name: device.config.name.get_ref().clone(),
            port: PortId(number),
            mac: MacAddr(device.interface.mac),
            mtu: u16::try_from(device.interface.mtu).unwrap_or(u16::MAX),
        };
        (0u8..).zip(&self.opened.devices).map(port).collect()
    }
}

/// The port that has an address at which UDP is to be taken.
fn listen(opened: &OpenPorts<PortSteering>, address: SocketAddr) -> miette::Result<UdpListen> {
    let numbered = (0u8..).zip(&opened.devices);
    let mut takes = numbered
        .filter(|(_, device)| matches!(device.config.driver.get_ref(), Driver::AfXdp | Driver::AfPacket));
    let found = takes.find(|(_, device)| device.addresses().any(|own| own == address.ip()));
    let (number, _) = found.ok_or_else(|| {
        miette!(
            help = "`ip address` shows those of the interfaces; the port's driver is af_xdp or af_packet",
            "ndn.listen.udp_on_ports: no port has the address {}",
            address.ip()
        )
    })?;
    Ok(UdpListen { port: PortId(number), address })
}
