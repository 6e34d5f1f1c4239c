//! What a platform is good and bad for: said of it by its figures beside those of the others.

use serde::Serialize;

use super::report::{NetworkFunction, PlatformResult};

/// A figure so much worse than the best counts against a platform, and one within that of the best for it.
const FAR: f64 = 2.0;
const NEAR: f64 = 1.1;

/// Sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Where it is as good as any.
    pub good: Vec<String>,
    /// Where others are far better.
    pub bad: Vec<String>,
}

/// A figure that platforms are compared by.
struct Criterion {
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    value: fn(&PlatformResult) -> Option<f64>,
}

const CRITERIA: [Criterion; 4] = [
    Criterion {
        name: "rate without loss",
        unit: "Mpps",
        more_is_better: true,
        value: |platform| platform.throughput.pps.map(|pps| pps / 1e6),
    },
    Criterion {
        name: "median latency",
        unit: "µs",
        more_is_better: false,
        value: |platform| Some(platform.latency[0].as_ref()?.p50_ns as f64 / 1e3),
    },
    Criterion {
        name: "latency of 99.9 %",
        unit: "µs",
        more_is_better: false,
        value: |platform| Some(platform.latency[0].as_ref()?.p999_ns as f64 / 1e3),
    },
    Criterion {
        name: "CPU time a packet",
        unit: "ns",
        more_is_better: false,
        value: |platform| platform.throughput.cpu_ns,
    },
];

/// Judges those that do the work, and what does other work in their place.
pub(super) fn judge(function: NetworkFunction, platforms: &mut [PlatformResult]) {
    let compared: Vec<usize> = (0..platforms.len())
        .filter(|&at| platforms[at].kind.works() && platforms[at].skipped.is_none())
        .collect();
    for criterion in &CRITERIA {
        let values: Vec<(usize, f64)> =
            compared.iter().filter_map(|&at| Some((at, (criterion.value)(&platforms[at])?))).collect();
        let better =
            |one: f64, other: f64| if criterion.more_is_better { one.max(other) } else { one.min(other) };
        let Some(best) = values.iter().map(|(_, value)| *value).reduce(better) else { continue };
        if values.len() < 2 {
            continue;
        }
        for (at, value) in values {
            let times = if criterion.more_is_better { best / value } else { value / best };
            let Criterion { name, unit, .. } = criterion;
            let judgement = &mut platforms[at].judgement;
            if times <= NEAR {
                judgement.good.push(format!("{name}: {value:.2} {unit}, among the best"));
            } else if times >= FAR {
                judgement.bad.push(format!("{name}: {value:.2} {unit}, {times:.1} times the best's"));
            }
        }
    }
    for platform in platforms.iter_mut().filter(|found| found.skipped.is_none() && !found.kind.is_rig()) {
        if !platform.kind.works() {
            platform.judgement.bad.push("does not do the work: forwards only, as the plain line".to_owned());
        } else if platform.throughput.pps.is_none() {
            platform.judgement.bad.push("loses packets at every rate tried".to_owned());
        }
        if let Some(max) = platform.kind.frame_max()
            && function == NetworkFunction::Upf
            && platform.throughput_long.is_none()
        {
            platform
                .judgement
                .bad
                .push(format!("long payloads: net_af_packet takes frames of {max} bytes at most"));
        }
        if platform.ratio_is_right == Some(false) {
            let ratio = platform.throughput.byte_ratio;
            platform.judgement.bad.push(format!("byte ratio {ratio:.10}: packets came out otherwise"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Kind, Throughput};
    use super::*;

    fn platform(kind: Kind, pps: f64) -> PlatformResult {
        PlatformResult {
            kind,
            name: kind.name(),
            skipped: None,
            throughput: Throughput { pps: Some(pps), ..Throughput::default() },
            throughput_long: None,
            ratio_is_right: None,
            kernel: None,
            latency: [None, None],
            judgement: Judgement::default(),
        }
    }

    #[test]
    fn figures_speak_for_and_against_by_how_far_they_are_apart() {
        let mut platforms = [
            platform(Kind::XdpNative, 3e6),
            platform(Kind::AfXdp, 2.9e6),
            platform(Kind::AfPacket, 1e6),
            platform(Kind::XdpGeneric, 2e6),
            platform(Kind::Bridge, 9e6),
        ];
        judge(NetworkFunction::Gre, &mut platforms);
        assert_eq!(platforms[0].judgement.good.len(), 1);
        assert_eq!(platforms[1].judgement.good.len(), 1);
        assert_eq!(platforms[2].judgement.bad, ["rate without loss: 1.00 Mpps, 3.0 times the best's"]);
        assert_eq!(platforms[3].judgement, Judgement::default());
        assert!(platforms[4].judgement.bad[0].contains("forwards only"));
        let mut platforms = [platform(Kind::Dpdk, 1e6)];
        judge(NetworkFunction::Upf, &mut platforms);
        assert_eq!(
            platforms[0].judgement.bad,
            ["long payloads: net_af_packet takes frames of 1518 bytes at most"]
        );
    }
}
