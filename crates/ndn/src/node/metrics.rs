//! What the router offers to be scraped.

use std::sync::Arc;

use kaido_metrics::Exposition;
use kaido_node::metrics::MetricsSource;

use super::families as f;
use crate::balance::Balance;
use crate::router::{Observer, WorkerReport};
use crate::tier::TierReport;

/// Where figures are read.
pub(super) struct NdnMetrics {
    router: Observer,
    balance: Arc<Balance>,
    first_worker: u32,
}

impl NdnMetrics {
    /// Of a router, whose first worker has that number in the node.
    pub(super) fn new(router: Observer, balance: Arc<Balance>, first_worker: u8) -> Self {
        Self { router, balance, first_worker: first_worker.into() }
    }
}

impl MetricsSource for NdnMetrics {
    fn metrics(&self, out: &mut Exposition) {
        out.family(&f::NDN_FACES).add(&[], self.router.faces() as u64);
        out.family(&f::NDN_PREFIXES).add(&[], self.router.prefixes() as u64);
        let workers: Vec<(String, WorkerReport)> = (self.first_worker..)
            .zip(self.router.workers())
            .filter_map(|(number, report): (u32, _)| Some((number.to_string(), report?)))
            .collect();
        forwarding(&workers, out);
        out.family(&f::NDN_HOT).add(&[], self.balance.hot_names().len() as u64);
        handoffs(&workers, out);
        if let Some(tier) = self.router.tier() {
            disk(&tier, out);
        }
    }
}

fn handoffs(workers: &[(String, WorkerReport)], out: &mut Exposition) {
    let mut samples = out.family(&f::NDN_HANDED);
    for (worker, WorkerReport { worker_set, .. }) in workers {
        let kinds =
            [("interest", worker_set.interests), ("data", worker_set.data), ("nack", worker_set.nacks)];
        for (kind, packets) in kinds {
            samples.add(&[worker, kind], packets);
        }
    }
}

fn disk(tier: &TierReport, out: &mut Exposition) {
    let TierReport { packets, octets, octets_max, index_octets, counters } = tier;
    out.family(&f::NDN_DISK_PACKETS).add(&[], *packets);
    let mut samples = out.family(&f::NDN_DISK_OCTETS);
    for (of, octets) in [("used", octets), ("capacity", octets_max), ("index", index_octets)] {
        samples.add(&[of], *octets);
    }
    let mut samples = out.family(&f::NDN_DISK_INTERESTS);
    for (event, count) in [
        ("parked", counters.parked),
        ("gathered", counters.gathered),
        ("answered", counters.answered),
        ("forwarded", counters.forwarded),
        ("busy", counters.busy),
    ] {
        samples.add(&[event], count);
    }
    let mut samples = out.family(&f::NDN_DISK_DATA);
    for (event, count) in [
        ("read", counters.reads),
        ("written", counters.writes),
        ("overrun", counters.overrun),
        ("displaced", counters.displaced),
        ("gone", counters.gone),
        ("damaged", counters.damaged),
    ] {
        samples.add(&[event], count);
    }
    let mut samples = out.family(&f::NDN_DISK_MOVED);
    samples.add(&["read"], counters.read_octets);
    samples.add(&["written"], counters.written_octets);
    out.family(&f::NDN_DISK_ERRORS).add(&[], counters.errors);
}

fn forwarding(workers: &[(String, WorkerReport)], out: &mut Exposition) {
    for (family, value) in [
        (&f::NDN_PENDING, (|report| report.pit_entries.into()) as fn(&WorkerReport) -> u64),
        (&f::NDN_CACHED, |report| report.cs_entries.into()),
        (&f::NDN_CACHE_OCTETS, |report| report.cs_octets),
    ] {
        let mut samples = out.family(family);
        for (worker, report) in workers {
            samples.add(&[worker], value(report));
        }
    }
    let mut samples = out.family(&f::NDN_PACKETS);
    for (worker, WorkerReport { forwarder, .. }) in workers {
        for (direction, kind, packets) in [
            ("received", "interest", forwarder.interests_in),
            ("received", "data", forwarder.data_in),
            ("received", "nack", forwarder.nacks_in),
            ("sent", "interest", forwarder.interests_out),
            ("sent", "data", forwarder.data_out),
            ("sent", "nack", forwarder.nacks_out),
        ] {
            samples.add(&[worker, direction, kind], packets);
        }
    }
    let mut samples = out.family(&f::NDN_ENDED);
    for (worker, report) in workers {
        samples.add(&[worker, "satisfied"], report.forwarder.satisfied);
        samples.add(&[worker, "unsatisfied"], report.forwarder.unsatisfied);
    }
    let mut samples = out.family(&f::NDN_CACHE);
    for (worker, WorkerReport { cs, .. }) in workers {
        let events = [
            ("hit", cs.hits),
            ("miss", cs.misses),
            ("inserted", cs.inserted),
            ("evicted", cs.evicted),
            ("refused", cs.refused),
        ];
        for (event, count) in events {
            samples.add(&[worker, event], count);
        }
    }
}
