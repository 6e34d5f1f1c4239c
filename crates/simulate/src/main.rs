//! Runs seeds of the simulation until one fails, or as many as were asked for.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use kaido_simulate::{Options, Sabotage, run};
use kaido_store::Durability;

/// How often progress is printed.
const PACE: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds; without end by default.
    #[arg(long)]
    count: Option<u64>,
    /// Steps of each.
    #[arg(long, default_value_t = 20_000)]
    steps: u64,
    /// What an acknowledged change survives: `process` or `disk`; as the seed chooses by default.
    #[arg(long, value_parser = durability)]
    durability: Option<Durability>,
    /// The journal itself, in `simulated-store` in that folder, which is made anew for each seed, and not a model of it.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// What is done wrong on purpose.
    #[arg(long)]
    sabotage: Option<Sabotage>,
    /// How many of the last events a failure shows.
    #[arg(long, default_value_t = 100)]
    lines: usize,
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "process" => Ok(Durability::Process),
        "disk" => Ok(Durability::Disk),
        _ => Err("process or disk".to_owned()),
    }
}

#[allow(clippy::print_stdout)] // Whoever runs it reads it.
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (began, mut told, mut steps) = (Instant::now(), Instant::now(), 0);
    let last = arguments.count.map_or(u64::MAX, |count| arguments.seed.saturating_add(count));
    for seed in arguments.seed..last {
        let Arguments { sabotage, lines, durability, .. } = arguments;
        let folder = arguments.folder.as_ref().map(|folder| folder.join("simulated-store"));
        if let Some(before) = &folder {
            let _ = std::fs::remove_dir_all(before);
        }
        let chosen = Options::of_seed(seed, arguments.steps);
        let durability = durability.unwrap_or(chosen.durability);
        let options = Options { sabotage, lines, durability, folder, ..chosen };
        match run(&options) {
            Ok(summary) => {
                steps += summary.steps;
                if told.elapsed() >= PACE || arguments.count.is_some() {
                    told = Instant::now();
                    let rate = steps as f64 / began.elapsed().as_secs_f64();
                    println!("seed {seed}: {summary:?}; {steps} steps, {rate:.0} a second");
                }
            }
            Err(failure) => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
