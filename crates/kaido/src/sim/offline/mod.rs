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
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use kaido_engine::{DropReason, PortTotals, WorkerCounters};

use self::frames::Site;
use self::judge::Volumes;
use self::node::OfflineNode;
use self::table::Table;
use super::args::SimArgs;
use super::fault::SimFault;
use super::plan::OfflinePlan;
use super::smf::{ControlPlane, Pace};
use super::talk::Talk;
use super::ue::Ue;

/// Runs everything, prints the table, and fails when a row of it differs.
pub(super) fn run(args: &SimArgs, dir: &Path) -> Result<(), SimFault> {
    let plan = args.offline_plan(dir.to_owned(), node::UPF_GTPU.into(), node::GNB.into())?;
    std::fs::create_dir_all(dir).map_err(|error| SimFault::File { path: dir.to_owned(), error })?;
    let talk = &mut Talk::new(plan.quiet);
    let node = OfflineNode::start(plan.sessions.ues)?;
    let local = std::net::SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), 0);
    let mut control = ControlPlane::open(local, node.pfcp(), plan.sessions.clone())?;
    let mut table = Table::default();
    exercise(&plan, &node, &mut control, &mut table, talk)?;
    node.stop();
    let shown = table.to_string();
    // Whoever closed stdout has the exit code.
    let _ = std::io::stdout().write_all(shown.as_bytes());
    match table.differing() {
        0 => Ok(()),
        count => Err(SimFault::Differs { count, of: table.len(), dir: dir.display().to_string() }),
    }
}

fn exercise(
    plan: &OfflinePlan,
    node: &OfflineNode,
    control: &mut ControlPlane,
    table: &mut Table,
    talk: &mut Talk,
) -> Result<(), SimFault> {
    let never = AtomicBool::new(false);
    control.associate(&never)?;
    let attach = control.attach(&never, talk)?;
    table.equal("sessions set up by PFCP", plan.sessions.ues, attach.sessions);
    talk.say(&format!("attached {} UEs in {:.2} s", attach.sessions, attach.elapsed.as_secs_f64()));
    let ues = control.take_ues();
    let site = Site::new(&ues, &plan.sessions);
    let mut volumes = Volumes::new(ues.len());

    let replayed = replay::run(&plan.dir, &site, node, &mut volumes, table)?;
    talk.say(&format!("replayed the captures in {}", plan.dir.display()));
    let begun = Instant::now();
    let transferred = transfer::run(plan.transfer, &site, node, &mut volumes, table)?;
    let seconds = begun.elapsed().as_secs_f64();
    talk.say(&format!("transferred {} bytes each way in {seconds:.2} s", plan.transfer));

    let workers: Vec<_> = replayed.iter().chain([&transferred]).map(AsRef::as_ref).collect();
    drops(&workers, &site, table);
    let detach = control.detach(talk)?;
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
    for &reason in DropReason::ALL {
        let expected = site.provoked(reason);
        let found = found.get(&reason).copied().unwrap_or(0);
        if expected != 0 || found != 0 {
            table.equal(&format!("drops: {}", reason.name()), expected, found);
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
