//! The report as tables for a terminal.

use std::fmt::{self, Display, Formatter, Write};

use crate::goal;
use crate::kernel;
use crate::machine::Machine;
use crate::report::{ChainResult, PathResult, Report, RunInfo, SessionResult};
use crate::rings;
use crate::shape::Shape;
use crate::shared::SharedResult;
use crate::stats::Verdict;
use crate::table::TableResult;
use crate::workers;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        machine(f, &self.machine)?;
        run(f, &self.run)?;
        paths(f, &self.results)?;
        workers::render(f, &self.two_workers)?;
        rings::render(f, &self.with_rings)?;
        sessions(f, &self.sessions)?;
        chains(f, &self.xdp_map_chain)?;
        kernel::render(f, &self.kernel)?;
        tables(f, &self.tables)?;
        shared_queue(f, &self.shared_queue)?;
        if !self.skipped.is_empty() {
            writeln!(f, "\nSkipped")?;
            for skipped in &self.skipped {
                writeln!(f, "  {}: {}", skipped.name, skipped.reason)?;
            }
        }
        Ok(())
    }
}

fn machine(f: &mut Formatter<'_>, machine: &Machine) -> fmt::Result {
    let cache =
        machine.last_level_cache_bytes.map(|bytes| format!(", {} MiB of last-level cache", bytes >> 20));
    writeln!(
        f,
        "{}{}, {} cores{}, {:.1} GiB, Linux {}",
        machine.cpu,
        if machine.virtual_machine { " (virtual machine)" } else { "" },
        machine.cores,
        cache.unwrap_or_default(),
        machine.ram_bytes as f64 / f64::from(1 << 30),
        machine.kernel,
    )?;
    let mut reserved = String::new();
    for kind in machine.hugepages.iter().filter(|kind| kind.total > 0) {
        write!(reserved, ", {} × {} MiB reserved", kind.total, kind.page_bytes >> 20)?;
    }
    writeln!(f, "Transparent huge pages: {}{reserved}", machine.transparent_hugepages)?;
    match &machine.pmu.reason {
        None => writeln!(f, "Performance counters: there, not used")?,
        Some(reason) => {
            writeln!(
                f,
                "Performance counters: none here ({reason}): no cycles, no cache misses are claimed"
            )?;
        }
    }
    let [before, after] = machine.load_average;
    let steal = machine.steal_percent.map_or_else(|| "unknown".to_owned(), |steal| format!("{steal:.1} %"));
    writeln!(
        f,
        "Neighbours: load average {before:.2} before and {after:.2} after, {steal} of CPU time stolen"
    )
}

fn run(f: &mut Formatter<'_>, run: &RunInfo) -> fmt::Result {
    writeln!(
        f,
        "{} rounds of {} packets, interleaved; medians, ± is the {}. Packets' headers span {:.1} MiB of cache lines in a \
         frame pool of {:.0} MiB on {}, {}. {:.1} s in all.",
        run.rounds,
        run.packets_per_round,
        run.spread,
        run.packet_pool_mib,
        run.frame_pool_mib,
        run.frame_pool_pages,
        if run.mixed_frames { "in random order" } else { "in its order" },
        run.seconds,
    )
}

fn paths(f: &mut Formatter<'_>, results: &[PathResult]) -> fmt::Result {
    let Some(first) = results.first() else { return Ok(()) };
    writeln!(
        f,
        "\nUPF path, one core, ns a packet. Cold lines of plain sessions: {} ({}); goal: {} ns at 1 session, else {} × lines × \
         floor + the figure at 1 session; of other rules {} to {} times that of plain sessions, {} at 1 session",
        first.cold_lines,
        first.cold_line_names.join(", "),
        goal::ONE_SESSION_NS,
        goal::FLOOR_FACTOR,
        Shape::Mixed.goal_factor(goal::MANY_SESSIONS),
        Shape::Slice.goal_factor(goal::MANY_SESSIONS),
        Shape::Mixed.goal_factor(1),
    )?;
    if first.cold_lines > goal::COLD_LINES {
        writeln!(f, "  more cold lines than the {} of the goal", goal::COLD_LINES)?;
    }
    writeln!(
        f,
        "  direction   sessions  rules    frame  pool's         ns      ±   in cache   floor/line      ±   goal  ratio  met  pages"
    )?;
    for result in results {
        let frame = if result.frame_bytes == result.frame_bytes_sent {
            result.frame_bytes.to_string()
        } else {
            format!("{}→{}", result.frame_bytes, result.frame_bytes_sent)
        };
        writeln!(
            f,
            "  {:9} {:>10}  {:7} {frame:>6} {:>6} {:>10.1} {:>6.1} {:>10.1} {:>12.2} {:>6.2} {:>6} {:>6}  {:3}  {}",
            result.direction.name(),
            result.sessions,
            result.shape.name(),
            result.pool_frame_bytes,
            result.ns_per_packet,
            result.ns_spread,
            result.held_ns_per_packet,
            result.floor_ns_per_line,
            result.floor_ns_spread,
            result.goal_ns.map_or_else(|| "-".to_owned(), |goal| format!("{goal:.1}")),
            result.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            resolved(result.met),
            pages(result),
        )?;
    }
    if let Some(disturbed) = results.iter().find(|result| result.is_disturbed()) {
        writeln!(
            f,
            "  at {} sessions memory was taken back while it was measured ({} page faults): those figures say nothing",
            disturbed.sessions, disturbed.page_faults,
        )?;
    }
    if results.iter().any(|result| result.met == Some(Verdict::NotResolved)) {
        writeln!(f, "  ±: not resolved: the goal lies within the noise of figure and floor")?;
    }
    if results.iter().any(|result| result.frame_bytes != result.frame_bytes_sent) {
        writeln!(
            f,
            "  a→b: the headers do not fit into a bytes; what was sent is the shortest frame that holds them"
        )?;
    }
    Ok(())
}

fn pages(result: &PathResult) -> String {
    if result.pages == result.floor_pages {
        result.pages.clone()
    } else {
        format!("{} (floor: {})", result.pages, result.floor_pages)
    }
}

fn sessions(f: &mut Formatter<'_>, results: &[SessionResult]) -> fmt::Result {
    if results.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nSession service, one thread")?;
    writeln!(
        f,
        "    sessions  rules   establish/s   modify/s   delete/s  bytes/session  goal  resident MiB  8 GiB met"
    )?;
    for result in results {
        writeln!(
            f,
            "  {:>10}  {:7} {:>11.0} {:>10.0} {:>10.0} {:>14.0} {:>5} {:>13}  {}",
            result.sessions,
            result.shape.name(),
            result.establish_per_second,
            result.modify_per_second,
            result.delete_per_second,
            result.bytes_per_session,
            result.bytes_goal.map_or_else(|| "-".to_owned(), |goal| format!("{goal:.0}")),
            result.resident_bytes >> 20,
            yes(result.met),
        )?;
    }
    Ok(())
}

fn chains(f: &mut Formatter<'_>, results: &[ChainResult]) -> fmt::Result {
    let Some(first) = results.first() else { return Ok(()) };
    writeln!(
        f,
        "\nXDP map chain (BPF_PROG_TEST_RUN, packet restored before each run), frames of {} bytes; ns a packet without \
         its wrapper; the UPF path takes so many times less, with packets that come cold and with such as stay in the \
         cache, as the chain's does; beside it Kaido's offload in the kernel, run likewise",
        first.frame_bytes,
    )?;
    writeln!(
        f,
        "  direction   sessions  rules            ns      ±  wrapper   times  {}×, {}× met  in cache    offload   share",
        goal::CHAIN_FACTOR,
        goal::CHAIN_FACTOR_OF_SHAPES
    )?;
    let times = |times: Option<f64>| times.map_or_else(|| "-".to_owned(), |times| format!("{times:.1}"));
    for result in results {
        writeln!(
            f,
            "  {:9} {:>10}  {:7} {:>10.1} {:>6.1} {:>8.1} {:>7}  {:<11} {:>8}  {:>9} {:>7}",
            result.direction.name(),
            result.sessions,
            result.shape.name(),
            result.ns_per_packet,
            result.ns_spread,
            result.wrapper_ns,
            times(result.times_slower),
            resolved(result.met),
            times(result.held_times_slower),
            result.offload_ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}")),
            result.offload_share.map_or_else(|| "-".to_owned(), |share| format!("{share:.2}")),
        )?;
    }
    Ok(())
}

fn tables(f: &mut Formatter<'_>, results: &[TableResult]) -> fmt::Result {
    let Some(first) = results.first() else { return Ok(()) };
    writeln!(
        f,
        "\nSession table: {} keys (two a session) of {} bytes with their values; millions a second, all threads together",
        first.keys, first.record_bytes,
    )?;
    writeln!(f, "  writers  readers    add  replace  delete  lookup  replaced       misses  bytes/key")?;
    for result in results {
        let million = |rate: f64| rate / 1e6;
        writeln!(
            f,
            "  {:>7} {:>8} {:>6.2} {:>8.2} {:>7.2} {:>7.2}  {:>8} {:>12} {:>10.1}{}",
            result.writers,
            result.readers,
            million(result.adds_per_second),
            million(result.replaces_per_second),
            million(result.deletes_per_second),
            million(result.lookups_per_second),
            result.replacements,
            result.lookup_misses,
            result.bytes_per_key,
            if result.oversubscribed { "  more threads than cores" } else { "" },
        )?;
    }
    if let Some(one) = results.iter().find(|result| result.writers == 1) {
        let met = one.replaces_per_second >= goal::REPLACES_PER_SECOND && one.lookup_misses == 0;
        writeln!(f, "  a million replacements a second by one writer, none missed: {}", yes(Some(met)))?;
    }
    Ok(())
}

fn shared_queue(f: &mut Formatter<'_>, results: &[SharedResult]) -> fmt::Result {
    let Some(first) = results.first() else { return Ok(()) };
    let distance = first.round_trip_ns.map_or("unknown".to_owned(), |ns| format!("{ns:.0} ns"));
    writeln!(
        f,
        "\nShared queue: one ring in memory, {} ns of work a packet; core to core and back {distance}; cycles of the TSC",
        first.work_ns,
    )?;
    writeln!(
        f,
        "  mode            workers    Mpps  × one  reordered  extent  cycles/packet  claim/block  commit/block  retries  \
         stalls  stall cycles"
    )?;
    for result in results {
        write!(
            f,
            "  {:<15} {:>7} {:>7.2} {:>6.2} {:>10} {:>7}",
            result.mode, result.workers, result.mpps, result.times_one, result.reordered, result.extent_max,
        )?;
        match &result.counters {
            Some(costs) => writeln!(
                f,
                "  {:>13.1} {:>12.1} {:>13.1} {:>8} {:>7} {:>13}",
                costs.cycles_per_packet,
                costs.claim_cycles_per_block,
                costs.commit_cycles_per_block,
                costs.cas_retries,
                costs.window_stalls,
                costs.stall_cycles,
            )?,
            None => writeln!(f, "  simulated from the measured costs")?,
        }
    }
    Ok(())
}

/// In a column; what lies within its own noise is no answer.
fn resolved(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::NotResolved) => "±",
        other => yes(other.map(|verdict| verdict == Verdict::Met)),
    }
}

fn yes(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    }
}

#[cfg(test)]
mod tests {
    use crate::report::tests::report;

    #[test]
    fn every_section_is_shown() {
        let text = report().to_string();
        for part in [
            "no cycles, no cache misses are claimed",
            "bucket, record, counters",
            "1048576",
            "XDP map chain",
            "11.7",
            "a case: a reason",
            "interquartile range",
            "Two workers share the sessions, on CPUs 1 and 0",
            "1.05 to 1.15",
            "With rings: RX, fill, TX and completion rings of 2048 entries",
            "14.2 to 15.5",
            "298 to 303",
            "a QER guarantees a rate (1048576 sessions)",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert!(!text.contains("Session table"), "nothing was measured there:\n{text}");
    }
}
