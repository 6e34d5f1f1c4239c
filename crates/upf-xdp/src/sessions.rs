//! Sessions of the user plane in the terms of the XDP offload: what [`OffloadTarget`](kaido_upf::offload::OffloadTarget) is given,
//! translated into what the kernel's tables take. Where packets go is for the caller to say: it numbers templates and next hops.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use kaido_n4::{AddressMatch, Teid};
use kaido_upf::action::CountScope;
use kaido_upf::extended::UeToUe;
use kaido_upf::ids::SessionIndex;
use kaido_upf::node::{NodeMemory, WorkerEvent};
use kaido_upf::offload::{
    KERNEL_CELLS_MAX, KERNEL_POLICERS_MAX, KernelDestination, KernelKey, KernelLine, KernelRecord, KernelRule,
};
use kaido_upf::qos::Policers;
use kaido_upf::record::{FlowMatch, LINES_MAX};
use kaido_upf::tunnels::EncapTemplate;
use kaido_upf::ue::Direction;
use kaido_upf::ue_networks::UeNetworks;
use kaido_upf::usage::{OffloadedCounters, UnfitMemory, UsageCounters, UsageSlot};

use crate::offload::{
    self, Counts, OffloadDestination, OffloadDirection, OffloadKey, OffloadLine, OffloadMatch, OffloadRecord,
    OffloadRule, ThresholdEvent, UsageCell,
};
use crate::{Offload, OffloadError};

// What the user plane takes for fitting does fit.
const _: () = assert!(LINES_MAX == offload::LINES_MAX && KERNEL_CELLS_MAX == offload::CELLS_MAX);
const _: () = assert!(KERNEL_POLICERS_MAX == offload::POLICERS_MAX);

/// Why the tables' memory cannot be a node's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The kernel refused.
    #[error(transparent)]
    Bpf(#[from] kaido_xdp::Error),
    /// It was made for another node.
    #[error(transparent)]
    Unfit(#[from] UnfitMemory),
}

/// Words of the map of UEs' networks that a node with such settings needs: none where packets from UE to UE are simply routed.
pub fn ue_network_words(ue_to_ue: UeToUe, sessions_max: u32) -> u32 {
    if ue_to_ue == UeToUe::Route { 0 } else { UeNetworks::words(sessions_max) }
}

/// The offload's tables, of a node and of its usage counters.
#[derive(Clone, Debug)]
pub struct SharedOffload(Arc<Mutex<Offload>>);

impl SharedOffload {
    /// Shares tables.
    pub fn new(offload: Offload) -> Self {
        Self(Arc::new(Mutex::new(offload)))
    }

    /// Does something with them. Within a closure, so that nothing is held when they are asked for again.
    pub fn with<T>(&self, act: impl FnOnce(&mut Offload) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Their memory as that of a node, which both use from here on.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn memory(&self) -> Result<NodeMemory, MemoryError> {
        let usage = self.with(|offload| offload.leak_usage_cells())?;
        let policers = self.with(|offload| offload.leak_policers())?;
        let ue_networks = self.with(|offload| offload.leak_ue_networks())?;
        Ok(NodeMemory {
            usage: UsageCounters::over(usage)?.with_offloaded(Box::new(self.clone())),
            policers: Policers::over(policers)?,
            ue_networks: Some(UeNetworks::over(ue_networks)?),
        })
    }

    /// Puts a record under a key, in the place of one that is there.
    ///
    /// # Errors
    /// Those of [`Offload::insert_or_replace`].
    pub fn put(&self, key: &KernelKey, record: &OffloadRecord) -> Result<(), OffloadError> {
        self.with(|offload| offload.insert_or_replace(offload_key(key), record))
    }

    /// Takes a record away; whether it was there.
    pub fn remove(&self, key: &KernelKey) -> bool {
        self.with(|offload| offload.remove(&offload_key(key)))
    }

    /// Whether there is a record under a key.
    pub fn holds(&self, key: &KernelKey) -> bool {
        self.with(|offload| offload.contains(&offload_key(key)))
    }

    /// Returns when no packet is counted any more by records that were removed or replaced before.
    pub fn settle(&self) {
        self.with(Offload::wait_for_readers);
    }

    /// A threshold that was crossed, each told once.
    pub fn event(&self) -> Option<WorkerEvent> {
        let ThresholdEvent { session, cell } = self.with(|offload| offload.events().next())?;
        Some(WorkerEvent::Threshold { session: SessionIndex(session), slot: UsageSlot(cell) })
    }

    /// How many records there are.
    #[allow(clippy::len_without_is_empty)] // Nobody asks.
    pub fn len(&self) -> usize {
        self.with(|offload| offload.len()) as usize
    }
}

impl OffloadedCounters for SharedOffload {
    fn sync(&self, slot: UsageSlot) {
        self.with(|offload| offload.sync(slot.0));
    }

    fn flush(&self, slot: UsageSlot) {
        self.with(|offload| offload.flush(slot.0));
    }

    fn bytes_max(&self) -> u64 {
        Offload::KEPT_MAX
    }
}

/// A record in the tables' terms. `destination` says where packets of a rule go; `None` where the tables cannot take one of them.
pub fn record(
    record: &KernelRecord,
    mut destination: impl FnMut(&KernelDestination) -> Option<OffloadDestination>,
) -> Option<OffloadRecord> {
    let mut lines = Vec::with_capacity(record.lines.len());
    for KernelLine { ask, rule } in &record.lines {
        let rule = match rule {
            Ok(rule) => Some(offload_rule(rule, destination(&rule.destination)?)),
            Err(_) => None,
        };
        lines.push(OffloadLine { asks: offload_asks(ask), rule });
    }
    Some(OffloadRecord {
        session: record.session.0,
        direction: match record.direction {
            Direction::Uplink => OffloadDirection::Uplink,
            Direction::Downlink => OffloadDirection::Downlink,
        },
        ue_ipv4: record.ue.ipv4,
        ue_ipv6: record.ue.ipv6.map(|prefix| prefix.addr),
        lines,
    })
}

/// Into a tunnel of a shape, with the headers of that template.
pub fn tunnel(template: u32, encap: &EncapTemplate, teid: Teid) -> OffloadDestination {
    OffloadDestination::Tunnel {
        template,
        teid: teid.0,
        qfi: encap.qfi.map(|qfi| qfi.0),
        container_uplink: encap.container_uplink,
    }
}

fn offload_rule(rule: &KernelRule, destination: OffloadDestination) -> OffloadRule {
    let mut policers = rule.policers.policers();
    let usage = rule.usage.iter().map(|(slot, what)| UsageCell {
        cell: slot.0,
        counts: match what {
            CountScope::Passed => Counts::Passed,
            CountScope::All => Counts::All,
            CountScope::Dropped => Counts::Dropped,
        },
    });
    OffloadRule {
        gate_open: rule.destination != KernelDestination::GateClosed,
        far_drop: rule.destination == KernelDestination::FarDrop,
        quota: rule.usage.has_quotas(),
        policers: std::array::from_fn(|_| policers.next().map(|slot| slot.0)),
        ..OffloadRule::to(destination).counting(usage)
    }
}

fn offload_asks(ask: &FlowMatch) -> OffloadMatch {
    let FlowMatch { qfi, protocol, remote, ports } = *ask;
    let remote = match remote {
        AddressMatch::Any => None,
        AddressMatch::V4(network, len) => Some((network.into(), len)),
        AddressMatch::V6(network, len) => Some((network.into(), len)),
    };
    OffloadMatch { qfi, protocol, remote, ports }
}

fn offload_key(key: &KernelKey) -> OffloadKey {
    match *key {
        KernelKey::Tunnel { local, teid } => OffloadKey::Tunnel { local, teid: teid.0 },
        KernelKey::Ipv4 { instance, address } => OffloadKey::Ipv4 { instance: instance.0, address },
        KernelKey::Ipv6 { instance, address } => OffloadKey::Ipv6 { instance: instance.0, address },
    }
}
