//! How large the frames of a node are (`docs/decisions/0002-frames.md`).

use kaido_engine::{FramePool, FrameSize, netlink};

use crate::config::{Base, Driver, PortConfig, Spanned};
use crate::ethtool::Ethtool;
use crate::file::Config;
use crate::takeover::{Takeover, TakeoverFault};

/// Kernel drivers that give their NICs buffers of whole KiB: of the room in a frame of 2048 bytes that is one, and
/// whatever is longer is lost.
const WITH_KIB_BUFFERS: [&str; 3] = ["igb", "igc", "ixgbe"];

/// The frames of a node, or those of the node that it takes over.
///
/// # Errors
/// When there is no memory for them, or those of the other node are not what the configuration asks for.
pub(crate) fn open(config: &Config, takeover: &Takeover) -> Result<&'static FramePool, TakeoverFault> {
    let base = &config.base;
    let mut ports = base.ports.iter().map(Spanned::get_ref);
    let is_shared = ports.any(|port| *port.driver.get_ref() == Driver::AfXdp);
    let size = (size(config), base.node.frame_bytes.is_some());
    takeover.frames(size, *base.node.frames.get_ref(), is_shared)
}

/// What the configuration says; else small ones where they hold every packet of every port.
pub fn size(config: &Config) -> FrameSize {
    of(&config.base, config.functions.iter().any(|function| function.has_long_packets()))
}

fn of(base: &Base, has_long_packets: bool) -> FrameSize {
    let asked = base.node.frame_bytes.as_ref();
    if let Some(size) = asked.and_then(|bytes| FrameSize::of_bytes((*bytes.get_ref()).into())) {
        return size;
    }
    let mut ports = base.ports.iter().map(Spanned::get_ref);
    if !has_long_packets && ports.all(does_with_small) { FrameSize::TwoKib } else { FrameSize::FourKib }
}

/// Whether small frames hold every packet of a port. An interface that is not there is none of such: it is told elsewhere.
fn does_with_small(port: &PortConfig) -> bool {
    let driver = *port.driver.get_ref();
    match driver {
        Driver::Tap => FrameSize::TwoKib.holds_mtu(port.mtu() as usize),
        // Many of DPDK's drivers have buffers of whole KiB.
        Driver::Dpdk => false,
        Driver::AfPacket | Driver::AfXdp => port.interface.as_ref().is_some_and(|name| {
            let name = name.get_ref();
            let holds = |interface: netlink::Interface| FrameSize::TwoKib.holds_mtu(interface.mtu as usize);
            netlink::interface(name).is_ok_and(holds) && !(driver == Driver::AfXdp && has_kib_buffers(name))
        }),
    }
}

fn has_kib_buffers(interface: &str) -> bool {
    let driver = Ethtool::open(interface).and_then(|device| device.driver());
    driver.is_ok_and(|driver| WITH_KIB_BUFFERS.contains(&driver.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(node: &str, ports: &[&str]) -> usize {
        let port = |more: &&str| format!("[[port]]\nname = \"n6\"\nroles = [\"n6\"]\n{more}\n");
        let ports: String = ports.iter().map(port).collect();
        of(&toml::from_str(&format!("[node]\n{node}\n{ports}")).unwrap(), false).bytes()
    }

    const TAP: &str = "driver = \"tap\"\ninterface = \"tap0\"";

    #[test]
    fn frames_are_as_small_as_the_ports_allow() {
        assert_eq!(bytes("", &[TAP]), 2048);
        for mtu in [1770, 1771, 9000] {
            let long = format!("{TAP}\nmtu = {mtu}");
            assert_eq!(bytes("", &[TAP, &long]), if mtu == 1770 { 2048 } else { 4096 }, "{mtu}");
        }
        // The loopback's MTU is 65536.
        assert_eq!(bytes("", &["driver = \"af_packet\"\ninterface = \"lo\""]), 4096);
        assert_eq!(bytes("", &["driver = \"af_packet\"\ninterface = \"not-there\""]), 4096);
        assert_eq!(bytes("", &["driver = \"dpdk\"\ndevice = \"net_ring0\""]), 4096);
        assert_eq!(of(&Base::default(), true).bytes(), 4096);
    }

    #[test]
    fn what_is_configured_goes_before_all() {
        assert_eq!(bytes("frame_bytes = 4096", &[TAP]), 4096);
        assert_eq!(bytes("frame_bytes = 2048", &["driver = \"af_packet\"\ninterface = \"lo\""]), 2048);
    }
}
