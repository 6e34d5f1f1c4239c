//! The comparison as a table.

use std::fmt;

use super::report::{LatencyFigures, PlatformResult, PlatformsReport, goal};
use crate::stats::{Summary, Verdict};

fn microseconds(latency: Option<&LatencyFigures>, of: fn(&LatencyFigures) -> u64) -> String {
    latency.map_or_else(|| "-".to_owned(), |latency| format!("{:.1}", of(latency) as f64 / 1e3))
}

fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// A row: what it is of, and the cell of a platform.
type Row = (&'static str, fn(&PlatformResult) -> String);

const ROWS: [Row; 14] = [
    ("rate without loss, Mpps", |platform| figure(platform.throughput.pps.map(|pps| pps / 1e6), 3)),
    ("flooded, Mpps", |platform| {
        let flood = platform.throughput.flood_pps;
        figure((flood > 0.0).then_some(flood / 1e6), 3)
    }),
    ("lost at that rate", |platform| match platform.throughput.pps {
        Some(_) => platform.throughput.lost.to_string(),
        None => "-".to_owned(),
    }),
    ("bytes out/in", |platform| match platform.throughput.pps {
        Some(_) => format!("{:.10}", platform.throughput.byte_ratio),
        None => "-".to_owned(),
    }),
    ("CPU, ns a packet", |platform| figure(platform.throughput.cpu_ns, 0)),
    ("energy, µJ a packet", |platform| figure(platform.throughput.microjoules, 1)),
    ("GRE latency p50, µs", |platform| microseconds(platform.latency[0].as_ref(), |latency| latency.p50_ns)),
    ("  p90", |platform| microseconds(platform.latency[0].as_ref(), |latency| latency.p90_ns)),
    ("  p99", |platform| microseconds(platform.latency[0].as_ref(), |latency| latency.p99_ns)),
    ("  p99.9", |platform| microseconds(platform.latency[0].as_ref(), |latency| latency.p999_ns)),
    ("TCP latency p50, µs", |platform| microseconds(platform.latency[1].as_ref(), |latency| latency.p50_ns)),
    ("  p90", |platform| microseconds(platform.latency[1].as_ref(), |latency| latency.p90_ns)),
    ("  p99", |platform| microseconds(platform.latency[1].as_ref(), |latency| latency.p99_ns)),
    ("  p99.9", |platform| microseconds(platform.latency[1].as_ref(), |latency| latency.p999_ns)),
];

impl fmt::Display for PlatformsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [throughput, latency] = self.frame_bytes;
        writeln!(
            f,
            "GRE header removal: {throughput}-byte frames, GRE and TCP 1:1, bytes out/in {:.10}; latency of {latency}-byte frames at {} packets/s",
            self.byte_ratio, self.latency_pps
        )?;
        self.in_memory(f)?;
        if let Some(reason) = &self.skipped {
            return writeln!(f, "end to end: skipped: {reason}");
        }
        writeln!(f)?;
        self.table(f)?;
        writeln!(f)?;
        for added in &self.added {
            let [gre, tcp] = &added.median_us;
            writeln!(
                f,
                "{}: adds {:.2} µs (IQR {:.2}; GRE) and {:.2} µs (IQR {:.2}; TCP) to a bare port at the median; goal {} µs: {}",
                added.name,
                gre.median,
                gre.spread,
                tcp.median,
                tcp.spread,
                goal::ADDED_US,
                added.verdict.words()
            )?;
        }
        for platform in &self.platforms {
            judged(f, platform)?;
        }
        Ok(())
    }
}

impl PlatformsReport {
    fn in_memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = &self.memory;
        let cell = |summary: &Summary| format!("{:.2} ns (IQR {:.2})", summary.median, summary.spread);
        for (packets, ns, bare) in [
            (memory.warm_packets, &memory.warm_ns, &memory.bare_warm_ns),
            (memory.cold_packets, &memory.cold_ns, &memory.bare_cold_ns),
        ] {
            writeln!(
                f,
                "engine in memory, one core, {packets} packets going round: {} a packet, {:.1} Mpps; worker and ports alone {}; goal {} ns: {}",
                cell(ns),
                1e3 / ns.median,
                cell(bare),
                goal::MEMORY_NS,
                Verdict::at_most(ns.median, ns.spread, goal::MEMORY_NS).words()
            )?;
        }
        Ok(())
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<Vec<String>> = vec![
            std::iter::once(String::new()).chain(self.platforms.iter().map(|p| p.name.to_owned())).collect(),
        ];
        for (name, cell) in ROWS {
            rows.push(std::iter::once(name.to_owned()).chain(self.platforms.iter().map(cell)).collect());
        }
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..=self.platforms.len()).map(width).collect();
        for row in &rows {
            let mut line = format!("{:1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                line.push_str(&format!("  {cell:>width$}"));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn judged(f: &mut fmt::Formatter<'_>, platform: &PlatformResult) -> fmt::Result {
    if let Some(reason) = &platform.skipped {
        return writeln!(f, "{}: skipped: {reason}", platform.name);
    }
    if !platform.judgement.good.is_empty() {
        writeln!(f, "{}: good: {}", platform.name, platform.judgement.good.join("; "))?;
    }
    if !platform.judgement.bad.is_empty() {
        writeln!(f, "{}: bad: {}", platform.name, platform.judgement.bad.join("; "))?;
    }
    Ok(())
}
