//! `kaido sim --offline DIR`: the same user plane without root, devices or namespaces.
//!
//! ```text
//!  Smf ◀─ PFCP over 127.0.0.1 ─▶ Endpoint ─ Upf ─┐
//!                                                 ├─ Node
//!  n3-in.pcapng ─▶ PcapPort ─▶ Worker + Path ─────┘ ─▶ PcapPort ─▶ n6-out.pcapng ─▶ judged
//!  n3-out.pcapng ◀────────────── the same, the other way ◀──────── n6-in.pcapng (replies)
//!  digests up and down ◀─ transfer over memory ports ─▶ digests
//! ```
//!
//! What is expected is computed here from what went in, never read from the node.

mod frames;
mod judge;
mod node;
mod replay;
mod table;
mod transfer;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use kaido_engine::{PortTotals, WorkerCounters};
use kaido_upf::UpfDrop;

use self::frames::Site;
use self::judge::Volumes;
use self::node::OfflineNode;
use self::table::Table;
use super::args::SimArgs;
use super::fault::SimFault;
use super::plan::OfflinePlan;
use super::progress::Progress;
use super::smf::{ControlPlane, Pace};
use super::ue::Ue;

/// Runs everything, prints the table, and fails when a row of it differs.
pub(super) fn run(args: &SimArgs, dir: &Path) -> Result<(), SimFault> {
    let plan = args.offline_plan(dir.to_owned(), node::UPF_GTPU.into(), node::GNB.into())?;
    let table = examine(&plan)?;
    // Whoever closed stdout has the exit code.
    let _ = std::io::stdout().write_all(table.to_string().as_bytes());
    match table.differing() {
        0 => Ok(()),
        count => Err(SimFault::Differs { count, of: table.len(), dir: dir.display().to_string() }),
    }
}

fn examine(plan: &OfflinePlan) -> Result<Table, SimFault> {
    let dir = &plan.dir;
    std::fs::create_dir_all(dir).map_err(|error| SimFault::File { path: dir.clone(), error })?;
    let node = OfflineNode::start(plan.sessions.ues)?;
    let local = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let mut control = ControlPlane::open(local, node.pfcp(), plan.sessions.clone())?;
    let mut table = Table::default();
    exercise(plan, &node, &mut control, &mut table, &mut Progress::new(plan.quiet))?;
    node.stop();
    Ok(table)
}

fn exercise(
    plan: &OfflinePlan,
    node: &OfflineNode,
    control: &mut ControlPlane,
    table: &mut Table,
    progress: &mut Progress,
) -> Result<(), SimFault> {
    let never = AtomicBool::new(false);
    control.associate(&never)?;
    let attach = control.attach(&never, progress)?;
    table.equal("sessions set up by PFCP", plan.sessions.ues, attach.sessions);
    progress.say(&format!("attached {} UEs in {:.2} s", attach.sessions, attach.elapsed.as_secs_f64()));
    let ues = control.take_ues();
    let site = Site::new(&ues, &plan.sessions);
    let mut volumes = Volumes::new(ues.len());

    let replayed = replay::run(&plan.dir, &site, node, &mut volumes, table)?;
    progress.say(&format!("replayed the captures in {}", plan.dir.display()));
    let begun = Instant::now();
    let transferred = transfer::run(plan.transfer, &site, node, &mut volumes, table)?;
    let seconds = begun.elapsed().as_secs_f64();
    progress.say(&format!("transferred {} bytes each way in {seconds:.2} s", plan.transfer));

    let workers: Vec<_> = replayed.iter().chain([&transferred]).map(AsRef::as_ref).collect();
    drops(&workers, &site, table);
    let detach = control.detach(progress)?;
    control.release()?;
    usage(control, &ues, &volumes, detach, table);
    Ok(())
}

/// Every drop has the reason that was provoked, and there are no others.
fn drops(workers: &[&WorkerCounters], site: &Site<'_>, table: &mut Table) {
    let mut found = std::collections::BTreeMap::new();
    for port in [node::N3, node::N6] {
        for (reason, count) in PortTotals::of(workers.iter().copied(), port).drops {
            *found.entry(reason).or_insert(0u64) += count;
        }
    }
    for reason in UpfDrop::TABLE.reasons() {
        let expected = site.provoked(reason);
        let found = found.get(&reason).copied().unwrap_or(0);
        if expected != 0 || found != 0 {
            table.equal(&format!("drops: {}", UpfDrop::TABLE.name(reason)), expected, found);
        }
    }
}

/// The UPF's final word on every UE is what came out, byte for byte.
fn usage(control: &ControlPlane, ues: &[Ue], volumes: &Volumes, detach: Pace, table: &mut Table) {
    table.equal("sessions deleted", ues.len(), detach.sessions as usize);
    let finals = control.usage().iter().filter(|usage| usage.final_reports == 1).count();
    table.equal("final usage reports", ues.len(), finals);
    let gaps: u64 = control.usage().iter().map(|usage| usage.out_of_sequence).sum();
    table.equal("usage reports out of sequence", 0, gaps);
    let (up, down) = volumes.totals();
    let sum = |of: fn(&super::report::Usage) -> u64| control.usage().iter().map(of).sum::<u64>();
    table.equal("URR uplink bytes = bytes out of n6", up.bytes, sum(|usage| usage.uplink_bytes));
    table.equal("URR uplink packets = packets out of n6", up.packets, sum(|usage| usage.uplink_packets));
    table.equal("URR downlink bytes = bytes out of n3", down.bytes, sum(|usage| usage.downlink_bytes));
    table.equal(
        "URR downlink packets = packets out of n3",
        down.packets,
        sum(|usage| usage.downlink_packets),
    );
    let agreeing = volumes.agreeing(control.usage());
    table.equal("UEs whose URR volumes agree in all four", ues.len(), agreeing);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        sim: SimArgs,
    }

    #[test]
    fn everything_that_goes_in_comes_out_and_is_charged() {
        let dir = std::env::temp_dir().join(format!("kaido-offline-{}", std::process::id()));
        for options in ["--ues 3", "--ues 2 --no-qfi --choose --ue-from-upf=v4v6 --threshold 10000"] {
            let words = format!("sim --quiet --transfer 300000 {options} --offline");
            let words = words.split_ascii_whitespace().map(std::ffi::OsStr::new).chain([dir.as_os_str()]);
            let args = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).sim;
            let plan = args.offline_plan(dir.clone(), node::UPF_GTPU.into(), node::GNB.into());
            let table = examine(&plan.unwrap()).unwrap_or_else(|fault| panic!("{options}: {fault}"));
            assert_eq!((table.len(), table.differing()), (21, 0), "{options}\n{table}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
