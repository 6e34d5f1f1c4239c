//! `[[port]]`: how packets come and go. Functions have further fields in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Prefix, Spanned, unplaced};

/// Longest name of a port: counters have it.
pub(super) const PORT_NAME_MAX: usize = 63;
/// The largest VLAN identifier of a port (IEEE 802.1Q).
const VID_MAX: u16 = 4094;
/// Least MTU (RFC 791).
const MTU_MIN: u32 = 68;
const MTU_MAX: u32 = 65_535;
/// MTU of a device that is made, in bytes.
const MTU_DEFAULT: u32 = 1500;

/// A port.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct PortConfig {
    /// Name in counters and logs.
    #[schemars(length(min = 1, max = PORT_NAME_MAX))]
    pub name: Spanned<String>,
    /// The function whose port it is, where the file has several.
    #[schemars(extend("x-allowed" = "a name in `function`", "x-default" = "the only one"))]
    pub function: Option<String>,
    /// `af_xdp` is the fast one. `af_packet` works wherever a packet socket does. `tap` makes a device whose other side is this
    /// host's kernel. `dpdk`, where it is built in, takes a NIC from the kernel (see dpdk.md).
    pub driver: Spanned<Driver>,
    /// The network interface, or the name of the TAP device to make: for `dpdk`, the kernel's side of the port.
    #[schemars(extend("x-default" = "required"))]
    pub interface: Option<Spanned<String>>,
    /// `dpdk`: the device, by PCI address or as a `--vdev` argument names it.
    #[schemars(extend("x-default" = "required by `dpdk`"))]
    pub device: Option<Spanned<String>>,
    /// `af_xdp`, `af_packet`: the port is this VLAN of the interface (IEEE 802.1Q). Ports of one interface differ by `vlan`; the one
    /// without it has untagged frames and those of all other VLANs. The kernel's side of a VLAN is a TAP device, as `dpdk` has it;
    /// `addresses` and `mtu` are its.
    #[schemars(range(min = 1, max = VID_MAX), extend("x-vlans" = true))]
    pub vlan: Option<Spanned<u16>>,
    /// `vlan`: name of the TAP device to make, of at most 15 characters.
    #[schemars(extend("x-vlans" = true, "x-default" = "by the names of port and VLAN, as in `n3.100`"))]
    pub tap: Option<Spanned<String>>,
    /// `af_xdp`: whether the driver copies frames.
    #[serde(default = "default_copy")]
    pub copy: Spanned<CopyMode>,
    /// `af_xdp`: where the steering program runs.
    #[serde(default = "default_attach")]
    pub attach: Spanned<Attach>,
    /// `tap`: addresses of the device. `dpdk`, and a UPF's `vlan`: those of the port.
    #[serde(default)]
    pub addresses: Vec<Prefix>,
    /// `tap`, `dpdk`, and a UPF's `vlan`: largest IP packet in bytes. Other ports take the interface's, and so does a VLAN without
    /// it.
    #[schemars(range(min = MTU_MIN, max = MTU_MAX), extend("default" = MTU_DEFAULT))]
    pub mtu: Option<Spanned<u32>>,
}

impl PortConfig {
    /// Largest IP packet of a device that the port makes, in bytes; of a VLAN without one it is the interface's.
    pub fn mtu(&self) -> u32 {
        self.mtu.as_ref().map_or(MTU_DEFAULT, |mtu| *mtu.get_ref())
    }

    /// Its VLAN.
    pub fn vid(&self) -> Option<u16> {
        self.vlan.as_ref().map(|vlan| *vlan.get_ref())
    }

    /// The name of its interface; empty without one.
    pub fn interface_name(&self) -> &str {
        self.interface.as_ref().map_or("", |name| name.get_ref())
    }

    /// The TAP device that the kernel has instead of the interface: `tap`, or by the names of port and VLAN. `None` where the
    /// kernel has the interface.
    pub fn tap_name(&self) -> Option<String> {
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
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
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
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CopyMode {
    /// Zero-copy where the driver can.
    Auto,
    /// Always copy.
    Copy,
    /// Zero-copy or not at all.
    ZeroCopy,
}

/// `attach` of a port.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Attach {
    /// In the driver where it can, else generic.
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's generic hook.
    Generic,
}
