//! The comparison as a table.

use std::fmt;

use super::report::{
    FpgaModel, LatencyFigures, MemoryResult, NetworkFunction, PlatformResult, PlatformsReport, Throughput,
    goal,
};
use crate::shape::Shape;
use crate::stats::{Summary, Verdict};

fn microseconds(latency: Option<&LatencyFigures>, of: fn(&LatencyFigures) -> u64) -> String {
    latency.map_or_else(|| "-".to_owned(), |latency| format!("{:.1}", of(latency) as f64 / 1e3))
}

fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// A row: what it is of, and the cell of a platform.
type Row = (String, Box<dyn Fn(&PlatformResult) -> String>);

/// What is taken of a latency, in nanoseconds.
type Quantile = fn(&LatencyFigures) -> u64;

fn row(name: impl Into<String>, cell: impl Fn(&PlatformResult) -> String + 'static) -> Row {
    (name.into(), Box::new(cell))
}

/// The rows of one search.
fn searched(of: fn(&PlatformResult) -> Option<&Throughput>, what: &str) -> Vec<Row> {
    vec![
        row(format!("rate without loss{what}, Mpps"), move |platform| {
            figure(of(platform).and_then(|found| found.pps).map(|pps| pps / 1e6), 3)
        }),
        row("  Gbit/s, both streams", move |platform| {
            figure(of(platform).and_then(|found| found.l2_gbps), 2)
        }),
        row("  flooded, Mpps", move |platform| {
            let flood = of(platform).map(|found| found.flood_pps).filter(|&pps| pps > 0.0);
            figure(flood.map(|pps| pps / 1e6), 3)
        }),
        row("  lost at that rate", move |platform| {
            let found = of(platform).filter(|found| found.pps.is_some());
            found.map_or_else(|| "-".to_owned(), |found| found.lost.to_string())
        }),
        row("  CPU, ns a packet", move |platform| figure(of(platform).and_then(|found| found.cpu_ns), 0)),
        row("  energy, µJ a packet", move |platform| {
            figure(of(platform).and_then(|found| found.microjoules), 1)
        }),
    ]
}

/// The rows of the latency of a stream.
fn latency(at: usize, stream: &str) -> [Row; 4] {
    let quantiles: [(String, Quantile); 4] = [
        (format!("{stream} latency p50, µs"), |latency| latency.p50_ns),
        ("  p90".to_owned(), |latency| latency.p90_ns),
        ("  p99".to_owned(), |latency| latency.p99_ns),
        ("  p99.9".to_owned(), |latency| latency.p999_ns),
    ];
    quantiles.map(|(name, of)| row(name, move |platform| microseconds(platform.latency[at].as_ref(), of)))
}

/// All rows of a function's table.
fn table_rows(report: &PlatformsReport) -> Vec<Row> {
    let payload = |at: usize| {
        report.payload_bytes.map_or_else(String::new, |bytes| format!(", {}-byte payload", bytes[at]))
    };
    let mut rows = searched(|platform| Some(&platform.throughput), &payload(0));
    match report.function {
        NetworkFunction::Gre => rows.push(row("  bytes out/in", |platform| match platform.throughput.pps {
            Some(_) => format!("{:.10}", platform.throughput.byte_ratio),
            None => "-".to_owned(),
        })),
        NetworkFunction::Upf => {
            rows.extend(searched(|platform| platform.throughput_long.as_ref(), &payload(1)));
            rows.push(row("sessions in the kernel: whole, in part, none", |platform| {
                platform.kernel.as_ref().map_or_else(
                    || "-".to_owned(),
                    |kernel| format!("{}, {}, {}", kernel.all, kernel.some, kernel.none),
                )
            }));
        }
    }
    for (at, stream) in report.function.streams().into_iter().enumerate() {
        rows.extend(latency(at, stream));
    }
    rows
}

impl fmt::Display for PlatformsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.title(f)?;
        if let Some(memory) = &self.memory {
            in_memory(f, memory)?;
        }
        fpga_model(f, &self.fpga)?;
        if let Some(reason) = &self.skipped {
            return writeln!(f, "end to end: skipped: {reason}");
        }
        writeln!(f)?;
        self.table(f)?;
        writeln!(f)?;
        for added in &self.added {
            let [one, other] = &added.median_us;
            let [of_one, of_other] = self.function.streams();
            writeln!(
                f,
                "{}: adds {:.2} µs (IQR {:.2}; {of_one}) and {:.2} µs (IQR {:.2}; {of_other}) to a bare port at the median; goal {} µs: {}",
                added.name,
                one.median,
                one.spread,
                other.median,
                other.spread,
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

fn in_memory(f: &mut fmt::Formatter<'_>, memory: &MemoryResult) -> fmt::Result {
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

/// Megahertz, and clocks a packet, are megapackets a second; clocks are nanoseconds.
fn fpga_model(f: &mut fmt::Formatter<'_>, model: &FpgaModel) -> fmt::Result {
    let FpgaModel { clock_mhz, cores, skipped } = model;
    if let Some(reason) = skipped {
        return writeln!(f, "fpga-model: skipped: {reason}");
    }
    for found in cores {
        writeln!(
            f,
            "fpga-model, {}, {} bits, frames of {:.0} bytes: {:.2} clocks a packet, first beat out after {} clocks; at {clock_mhz} MHz, which is assumed, {:.1} Mpps, {:.0} ns; {} packets judged",
            found.core,
            found.bits,
            found.frame_bytes,
            found.clocks,
            found.latency_clocks,
            clock_mhz / found.clocks,
            found.latency_clocks as f64 * 1e3 / clock_mhz,
            found.packets
        )?;
    }
    Ok(())
}

impl PlatformsReport {
    fn title(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [throughput, latency] = self.frame_bytes;
        match (self.function, self.payload_bytes, self.sessions) {
            (NetworkFunction::Upf, Some([short, long]), Some(sessions)) => writeln!(
                f,
                "UPF: {sessions} {} sessions, uplink and downlink 1:1, payloads of {short} and {long} bytes; latency of {short}-byte payloads at {} packets/s",
                self.shape.map_or("plain", Shape::name),
                self.latency_pps
            ),
            _ => writeln!(
                f,
                "GRE header removal: {throughput}-byte frames, GRE and TCP 1:1, bytes out/in {:.10}; latency of {latency}-byte frames at {} packets/s",
                self.byte_ratio, self.latency_pps
            ),
        }
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<Vec<String>> = vec![
            std::iter::once(String::new()).chain(self.platforms.iter().map(|p| p.name.to_owned())).collect(),
        ];
        for (name, cell) in table_rows(self) {
            rows.push(std::iter::once(name).chain(self.platforms.iter().map(cell)).collect());
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
    for (reason, sessions) in platform.kernel.iter().flat_map(|kernel| &kernel.left) {
        writeln!(f, "{}: leaves packets of {sessions} sessions to a worker: {reason}", platform.name)?;
    }
    if !platform.judgement.good.is_empty() {
        writeln!(f, "{}: good: {}", platform.name, platform.judgement.good.join("; "))?;
    }
    if !platform.judgement.bad.is_empty() {
        writeln!(f, "{}: bad: {}", platform.name, platform.judgement.bad.join("; "))?;
    }
    Ok(())
}
