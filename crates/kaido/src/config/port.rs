//! `[[port]]`: how packets come and go. Functions have further fields in it.

use serde::Deserialize;
use toml::Spanned;

use super::{Prefix, unplaced};

/// A port.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PortConfig {
    /// Its name in counters and logs.
    pub(crate) name: Spanned<String>,
    /// How packets come and go.
    pub(crate) driver: Spanned<Driver>,
    /// The network interface of `af_xdp` and `af_packet`, or the TAP device to make: for `dpdk`, the kernel's side.
    pub(crate) interface: Option<Spanned<String>>,
    /// `dpdk`: the device, by PCI address or as its `--vdev` argument names it.
    pub(crate) device: Option<Spanned<String>>,
    /// Of functions with VLANs: the VLAN of the interface that it has; without it, all frames that no other port has.
    pub(crate) vlan: Option<Spanned<u16>>,
    /// `vlan`: the TAP device to make, the kernel's side of the port.
    pub(crate) tap: Option<Spanned<String>>,
    /// `af_xdp`: whether the driver copies frames.
    #[serde(default = "default_copy")]
    pub(crate) copy: Spanned<CopyMode>,
    /// `af_xdp`: where the program attaches.
    #[serde(default = "default_attach")]
    pub(crate) attach: Spanned<Attach>,
    /// `tap`: addresses with prefix length, given to the device; the kernel behind it is the neighbour.
    /// `dpdk` and `vlan`: the port's own, given to the TAP device.
    #[serde(default)]
    pub(crate) addresses: Vec<Prefix>,
    /// `tap`, `dpdk` and `vlan`: largest IP packet, in bytes.
    pub(crate) mtu: Option<Spanned<u32>>,
}

impl PortConfig {
    /// Largest IP packet of a device that the port makes, in bytes; of a VLAN without one it is the interface's.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.as_ref().map_or(1500, |mtu| *mtu.get_ref())
    }

    /// Its VLAN.
    pub(crate) fn vid(&self) -> Option<u16> {
        self.vlan.as_ref().map(|vlan| *vlan.get_ref())
    }

    /// The name of its interface; empty without one.
    pub(crate) fn interface_name(&self) -> &str {
        self.interface.as_ref().map_or("", |name| name.get_ref())
    }

    /// The TAP device that the kernel has instead of the interface: `tap`, or by the names of port and VLAN. `None` where the
    /// kernel has the interface.
    pub(crate) fn tap_name(&self) -> Option<String> {
        match (self.vid(), *self.driver.get_ref()) {
            (Some(vid), _) => {
                let named = self.tap.as_ref().map(|tap| tap.get_ref().clone());
                Some(named.unwrap_or_else(|| format!("{}.{vid}", self.name.get_ref())))
            }
            (None, Driver::Tap | Driver::Dpdk) => Some(self.interface_name().to_owned()),
            (None, Driver::AfXdp | Driver::AfPacket) => None,
        }
    }
}

fn default_copy() -> Spanned<CopyMode> {
    unplaced(CopyMode::Auto)
}

fn default_attach() -> Spanned<Attach> {
    unplaced(Attach::Auto)
}

/// How packets come and go.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Driver {
    /// AF_XDP sockets behind the steering program.
    AfXdp,
    /// Packet sockets, where AF_XDP is not to be had.
    AfPacket,
    /// A TAP device made for it; the kernel is the neighbour behind it.
    Tap,
    /// A device of DPDK's, with a TAP device for what is the kernel's.
    Dpdk,
}

/// `copy` of a port.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CopyMode {
    /// Zero-copy where the driver can.
    Auto,
    /// Always copy.
    Copy,
    /// Zero-copy or not at all.
    ZeroCopy,
}

/// `attach` of a port.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Attach {
    /// In the driver where it can, else generic.
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's generic hook.
    Generic,
}
