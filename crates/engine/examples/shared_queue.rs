//! One queue, 1..N workers: throughput, contention, and what order costs. See `docs/shared-queue.md`.
//!
//! `cargo run --release -p kaido-engine --example shared_queue -- [--work-ns 100] [--packets 2000000] [--rounds 5]
//! [--workers N] [--simulate 16] [--window 1024] [--device memory|rings]`
//!
//! `memory` is a ring that holds all packets from the start: what sharing costs. `rings` are those of an AF_XDP socket, with a thread in
//! place of the NIC: what a shared socket costs.

use std::error::Error;

use kaido_engine::FramePool;
use kaido_engine::shared::measure::{
    Burn, FRAMES_IN_RINGS, FRAMES_PER_WORKER, Load, SharedReport, measure, measure_rings, round_trip_ns,
    simulate,
};
use kaido_engine::shared::{Order, QueueMode};

struct Options {
    work_ns: u32,
    packets: u32,
    rounds: usize,
    workers: usize,
    simulate: usize,
    window: u32,
    over_rings: bool,
}

impl Options {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let cpus = std::thread::available_parallelism()?.get();
        let mut options = Self {
            work_ns: 100,
            packets: 2_000_000,
            rounds: 5,
            workers: cpus,
            simulate: 16,
            window: 1024,
            over_rings: false,
        };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a number"))?;
            match name.as_str() {
                "--work-ns" => options.work_ns = value.parse()?,
                "--packets" => options.packets = value.parse()?,
                "--rounds" => options.rounds = value.parse::<usize>()?.max(1),
                "--workers" => options.workers = value.parse::<usize>()?.max(1),
                "--simulate" => options.simulate = value.parse()?,
                "--window" => options.window = value.parse()?,
                "--device" => {
                    options.over_rings = match value.as_str() {
                        "memory" => false,
                        "rings" => true,
                        _ => return Err(format!("no such device: {value}; memory and rings are").into()),
                    };
                }
                _ => return Err(format!("no such option: {name}").into()),
            }
        }
        Ok(options)
    }

    fn orders(&self) -> [(QueueMode, Order); 2] {
        let kept = Order::Kept { window: self.window };
        [(QueueMode::Shared, Order::Free), (QueueMode::SharedOrdered, kept)]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
    let pool =
        FramePool::leak(FRAMES_PER_WORKER * options.workers + options.window as usize + FRAMES_IN_RINGS)?;
    let measure = if options.over_rings { measure_rings } else { measure };
    let burn = Burn::of_ns(options.work_ns);
    println!(
        "{} packets a run, {}, {} ns of work each, window {}, {} rounds interleaved; frames in {}",
        options.packets,
        if options.over_rings {
            "over rings of a socket in memory"
        } else {
            "all in the ring from the start"
        },
        options.work_ns,
        options.window,
        options.rounds,
        pool.pages()
    );
    // All cases in turn, round after round: what disturbs the machine disturbs all of them.
    let mut cases: Vec<(QueueMode, Load, Vec<SharedReport>)> = Vec::new();
    for (mode, order) in options.orders() {
        for workers in 1..=options.workers {
            let load = Load { order, workers, packets: options.packets, burn };
            cases.push((mode, load, Vec::new()));
        }
    }
    println!("\nround   core to core and back   Mpps of each case below, in its order");
    for round in 1..=options.rounds {
        let distance = round_trip_ns().map_or("-".to_owned(), |ns| format!("{ns:.0} ns"));
        print!("{round:5} {distance:>23} ");
        for (_, load, reports) in &mut cases {
            let report = measure(pool, *load)?;
            print!(" {:6.2}", report.packets_per_second() / 1e6);
            reports.push(report);
        }
        println!();
    }
    for (_, _, reports) in &mut cases {
        reports.sort_by(|a, b| a.packets_per_second().total_cmp(&b.packets_per_second()));
    }
    print_throughput(&cases);
    print_stages(&cases);
    print_simulation(&cases, options.simulate);
    Ok(())
}

fn median(reports: &[SharedReport]) -> &SharedReport {
    &reports[reports.len() / 2]
}

fn print_throughput(cases: &[(QueueMode, Load, Vec<SharedReport>)]) {
    println!(
        "\nmeasured             workers   Mpps  (min..max)     x one   reordered  runs  extent max/mean  lost"
    );
    let mut one = 0.0;
    for (mode, load, reports) in cases {
        let report = median(reports);
        let mpps = |report: &SharedReport| report.packets_per_second() / 1e6;
        if load.workers == 1 {
            one = mpps(report);
        }
        let order = report.reordering;
        println!(
            "{mode:20} {:7} {:6.2}  ({:5.2}..{:5.2})  {:7.2}   {:8.3}% {:5}  {:8} {:7.1} {:5}",
            load.workers,
            mpps(report),
            mpps(&reports[0]),
            mpps(&reports[reports.len() - 1]),
            mpps(report) / one,
            100.0 * order.ratio(),
            order.runs,
            order.extent_max,
            order.extent_mean(),
            report.lost + report.repeated,
        );
    }
}

#[allow(clippy::cast_precision_loss)] // For people.
fn print_stages(cases: &[(QueueMode, Load, Vec<SharedReport>)]) {
    println!(
        "\ncycles (TSC)         workers  /packet  a block: claim  process  commit  CAS retries  window stalls  \
         stall cycles  for others"
    );
    for (mode, load, reports) in cases {
        let report = median(reports);
        let totals = report.totals();
        let block = |cycles: u64| cycles as f64 / totals.blocks.max(1) as f64;
        println!(
            "{mode:20} {:7} {:8.1}  {:14.1} {:8.0} {:7.1} {:11.2}%  {:13}  {:12}  {:9.2}%",
            load.workers,
            report.cycles_per_packet(),
            block(totals.claim_cycles),
            block(totals.process_cycles),
            block(totals.commit_cycles),
            100.0 * totals.cas_retries as f64 / totals.cas_attempts.max(1) as f64,
            totals.window_stalls,
            totals.stall_cycles,
            100.0 * totals.drained_for_others as f64 / totals.drained.max(1) as f64,
        );
    }
}

fn print_simulation(cases: &[(QueueMode, Load, Vec<SharedReport>)], most: usize) {
    println!(
        "\nsimulated, from the costs above      workers   Mpps   x one measured   reordered  window stalls"
    );
    let last = cases.iter().map(|(_, load, _)| load.workers).max().unwrap_or(1);
    for (mode, _, reports) in cases.iter().filter(|(_, load, _)| load.workers == last) {
        let measured = median(reports);
        let alone = cases.iter().find(|(other, load, _)| other == mode && load.workers == 1);
        let one = alone.map_or(1.0, |(_, _, reports)| median(reports).packets_per_second());
        let mut workers = last;
        while workers <= most {
            let simulated = simulate(measured, workers);
            println!(
                "{mode:36} {workers:7} {:6.2} {:16.2}   {:8.3}%  {:13}",
                simulated.packets_per_second / 1e6,
                simulated.packets_per_second / one,
                100.0 * simulated.reordering.ratio(),
                simulated.window_stalls,
            );
            workers *= 2;
        }
    }
}
