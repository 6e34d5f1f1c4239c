//! What a point over links is held against in the same run: the same frames over the same links, forwarded by a port without a
//! function, and by the kernel's own IP forwarding.

use std::fs;

use kaido_engine::{Batch, Function, Output, PortId};
use serde::Serialize;

use super::round_barrier::Totals;
use crate::BenchError;
use crate::clock::ThreadTime;
use crate::family::Family;
use crate::frames::Direction;
use crate::network::{GNB, GNB_MAC, N3_MAC, N6_MAC, ROUTER, ROUTER_MAC};
use crate::oracle::Rule;
use crate::rig;
use crate::shape::Shape;

/// CPU time of the node's thread for a packet, in nanoseconds. The kernel tells it by its clock tick, so of short runs it is rough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuCost {
    /// In the program; polling without a packet is in it.
    pub user_ns: f64,
    /// In the kernel: system calls, and the soft interrupts that they lead to.
    pub system_ns: f64,
}

impl CpuCost {
    pub(super) fn of(time: ThreadTime, packets: u64) -> Option<Self> {
        let of_packet = |ns: u64| ns as f64 / packets as f64;
        (packets > 0).then(|| Self { user_ns: of_packet(time.user_ns), system_ns: of_packet(time.system_ns) })
    }
}

/// What stands where the user plane did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// A worker on AF_XDP that sends each frame out of the other port, to the far end's Ethernet address.
    Echo,
    /// The kernel's IP forwarding.
    Kernel,
}

impl Baseline {
    pub(super) const ALL: [Self; 2] = [Self::Echo, Self::Kernel];

    const fn name(self) -> &'static str {
        match self {
            Self::Echo => "bare AF_XDP",
            Self::Kernel => "the kernel's IP forwarding",
        }
    }
}

/// What it forwarded of the same frames, over the same links.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BesideResult {
    /// What it is.
    pub what: Baseline,
    /// Why it was not measured, if so.
    pub reason: Option<String>,
    /// Packets forwarded a second.
    pub pps: f64,
    /// Offered and not come out.
    pub lost: u64,
    /// Time of its own thread; the kernel forwards on the sender's.
    pub cpu: Option<CpuCost>,
    /// Packets that the user plane forwarded a second, as a multiple of these.
    pub ratio: f64,
}

impl BesideResult {
    pub(super) fn of(what: Baseline, totals: &Totals, cpu: Option<ThreadTime>, own_pps: f64) -> Self {
        let pps = totals.forwarded as f64 / (totals.elapsed_ns / 1e9);
        let cpu = cpu.and_then(|time| CpuCost::of(time, totals.forwarded));
        Self { what, reason: None, pps, lost: totals.lost, cpu, ratio: own_pps / pps }
    }

    pub(super) fn none(what: Baseline, reason: impl Into<String>) -> Self {
        Self { what, reason: Some(reason.into()), pps: 0.0, lost: 0, cpu: None, ratio: 0.0 }
    }
}

impl std::fmt::Display for BesideResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.what.name();
        if let Some(reason) = &self.reason {
            return write!(f, "beside {name}: not measured, {reason}");
        }
        write!(f, "beside {name}: {:.3} Mpps", self.pps / 1e6)?;
        if let Some(CpuCost { user_ns, system_ns }) = self.cpu {
            write!(f, ", {user_ns:.0} ns user and {system_ns:.0} ns system a packet")?;
        }
        write!(f, ", {} lost; the user plane has {:.2} times its rate", self.lost, self.ratio)
    }
}

/// The Ethernet addresses of the node's ports, and those of the far ends.
const NODE_MACS: [[u8; 6]; 2] = [N3_MAC, N6_MAC];
const FAR_MACS: [[u8; 6]; 2] = [GNB_MAC, ROUTER_MAC];

/// Sends everything out of the other port, to its far end's Ethernet address.
pub(super) struct Echo;

impl Function for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        let to = PortId(1 - port.0);
        let addresses = [FAR_MACS[to.index()], NODE_MACS[to.index()]].concat();
        for frame in batch.iter_mut() {
            if let Some(head) = frame.data_mut().get_mut(..addresses.len()) {
                head.copy_from_slice(&addresses);
            }
        }
        out.transmit_all(to, batch);
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

/// What must come of frames.
pub(super) fn rule(what: Baseline, direction: Direction, bench: [&str; 2]) -> Rule {
    let to = usize::from(direction == Direction::Uplink);
    Rule::Routed {
        from: bench[1 - to].to_owned(),
        to: bench[to].to_owned(),
        source: NODE_MACS[to],
        destination: FAR_MACS[to],
        takes_hop: what == Baseline::Kernel,
    }
}

/// Has the kernel forward what comes in by one of the node's ends, out of the other.
///
/// # Errors
/// Why it cannot: to be said, and no fault of the point.
pub(super) fn forward(
    (family, shape): (Family, Shape),
    direction: Direction,
    node: [&str; 2],
) -> Result<(), String> {
    if family == Family::V6 {
        return Err("links of the bench have IPv4 alone".to_owned());
    }
    if shape.tenants().is_some() && direction == Direction::Downlink {
        return Err("its frames have VLAN tags".to_owned());
    }
    let (out, gateway, mac) = match direction {
        Direction::Uplink => (node[1], ROUTER, ROUTER_MAC),
        Direction::Downlink => (node[0], GNB, GNB_MAC),
    };
    let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
    let set = |field: &str, value: &str| {
        let file = format!("/proc/sys/net/ipv4/{field}");
        fs::write(&file, value).map_err(|error| format!("{file}: {error}"))
    };
    for scope in ["all", node[0], node[1]] {
        set(&format!("conf/{scope}/rp_filter"), "0")?;
        set(&format!("conf/{scope}/send_redirects"), "0")?;
    }
    set("ip_forward", "1")?;
    // Before there is an address of its own, the kernel takes no gateway.
    let done = [
        "link set lo up".to_owned(),
        format!("neighbour replace {gateway} lladdr {mac} dev {out} nud permanent"),
        format!("route replace default via {gateway} dev {out} onlink"),
    ];
    done.iter().try_for_each(|arguments| rig::ip(arguments)).map_err(|error| error.to_string())
}

/// The reason of a failure that ends nothing but this.
pub(super) fn reason(error: &BenchError) -> String {
    error.to_string()
}
