//! What the header remover offers to be scraped.

use kaido_engine::PortTotals;
use kaido_metrics::{Exposition, Family};
use kaido_node::metrics::MetricsSource;

use super::api::{GreInKernel, GreRule};
use super::families as f;
use super::rules::Rules;
use crate::xdp::GreCounters;

/// Where figures are read.
pub(super) struct GreMetrics {
    rules: Rules,
    /// By port, as the programs had it when last looked at.
    in_kernel: Vec<Option<GreCounters>>,
}

impl GreMetrics {
    pub(super) const fn new(rules: Rules) -> Self {
        Self { rules, in_kernel: Vec::new() }
    }
}

impl MetricsSource for GreMetrics {
    fn look(&mut self) -> bool {
        self.in_kernel = self.rules.in_kernel();
        true
    }

    fn add_kernel(&self, at: usize, totals: &mut PortTotals) {
        self.rules.add_to(at, totals, &self.in_kernel);
    }

    fn metrics(&self, out: &mut Exposition) {
        let status = self.rules.status();
        rules(&status.rules, out);
        kernel(&status.kernel, out);
    }
}

fn rules(rules: &[GreRule], out: &mut Exposition) {
    for (family, value) in
        [(&f::GRE_PACKETS, (|rule| rule.packets) as fn(&GreRule) -> u64), (&f::GRE_BYTES, |rule| rule.bytes)]
    {
        let mut samples = out.family(family);
        rules.iter().for_each(|rule| {
            samples.add(&[&rule.name, &rule.verdict], value(rule));
        });
    }
}

fn kernel(kernel: &[GreInKernel], out: &mut Exposition) {
    let family: &'static Family = &f::GRE_KERNEL_PACKETS;
    let mut samples = out.family(family);
    for port in kernel {
        for (disposition, packets) in [
            ("passed", port.passed),
            ("stripped", port.stripped),
            ("handed", port.handed),
            ("kernel", port.kernel),
            ("dropped", port.dropped),
        ] {
            samples.add(&[&port.port, disposition], packets);
        }
    }
}
