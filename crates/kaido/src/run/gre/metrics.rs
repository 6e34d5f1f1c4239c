//! What the header remover offers to be scraped, and as JSON.

use kaido_metrics::{Exposition, Family, Format};

use super::rules::Rules;
use crate::api::{Answer, GreInKernel, GreRule};
use crate::run::metrics::{Figures, MetricsSource, families as f};
use crate::run::shown;

/// Where figures are read.
pub(super) struct GreMetrics {
    figures: Figures,
    rules: Rules,
}

impl GreMetrics {
    pub(super) const fn new(figures: Figures, rules: Rules) -> Self {
        Self { figures, rules }
    }
}

impl MetricsSource for GreMetrics {
    fn metrics(&mut self, format: Format) -> Option<String> {
        self.figures.look();
        let in_kernel = self.rules.in_kernel();
        let mut out = Exposition::new(format);
        self.figures.node(&mut out);
        self.figures.ports(|at, totals| self.rules.add_to(at, totals, &in_kernel), &mut out);
        let status = self.rules.status();
        rules(&status.rules, &mut out);
        kernel(&status.kernel, &mut out);
        self.figures.rest(&mut out);
        Some(out.finish())
    }

    fn document(&mut self, path: &str) -> Option<String> {
        let answer = match path {
            "/v1/gre" => Answer::Gre(self.rules.status()),
            "/v1/drops" => {
                let in_kernel = self.rules.in_kernel();
                let totals = |at| {
                    let mut totals = shown::totals(&self.figures.workers, at);
                    self.rules.add_to(at, &mut totals, &in_kernel);
                    totals
                };
                Answer::Drops { drops: shown::drops(&self.figures.ports, totals) }
            }
            _ => return None,
        };
        serde_json::to_string(&answer).ok()
    }

    fn paths(&self) -> &'static [&'static str] {
        &["/v1/gre", "/v1/drops"]
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
