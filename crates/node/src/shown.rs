//! What every function shows of its ports at the control socket.

use std::sync::Arc;

use kaido_engine::{PortId, PortTotals, WorkerCounters};

use super::board::PortView;
use crate::api;

/// What workers have counted on the port of that number.
pub(crate) fn totals(workers: &[Arc<WorkerCounters>], at: usize) -> PortTotals {
    PortTotals::of(workers.iter().map(|worker| &**worker), PortId(u8::try_from(at).unwrap_or(u8::MAX)))
}

/// A port, of whose packets the kernel's datapath forwarded so many and so many octets.
pub(crate) fn port(
    port: &PortView,
    totals: &PortTotals,
    (kernel_packets, kernel_bytes): (u64, u64),
) -> api::Port {
    api::Port {
        name: port.name.clone(),
        how: port.how.clone(),
        mtu: port.mtu,
        state: port.state.name().to_owned(),
        trouble: port.state.trouble(),
        rx_packets: totals.rx_packets,
        rx_bytes: totals.rx_bytes,
        tx_packets: totals.tx_packets,
        tx_bytes: totals.tx_bytes,
        to_kernel: totals.to_kernel + port.left_to_kernel,
        dropped: totals.drops.iter().map(|(_, count)| count).sum(),
        kernel_packets,
        kernel_bytes,
    }
}

/// Drops by port and reason, given each port's totals. A port that has come meanwhile has none.
pub(crate) fn drops<'t>(ports: &[PortView], totals: impl Iterator<Item = &'t PortTotals>) -> Vec<api::Drop> {
    let of_port = |(port, totals): (&PortView, &PortTotals)| {
        let name = port.name.clone();
        let (drops, reasons) = (totals.drops.clone(), totals.reasons);
        drops.into_iter().map(move |(reason, packets)| api::Drop {
            port: name.clone(),
            reason: reasons.name(reason).to_owned(),
            meaning: reasons.meaning(reason).to_owned(),
            packets,
        })
    };
    ports.iter().zip(totals).flat_map(of_port).collect()
}
