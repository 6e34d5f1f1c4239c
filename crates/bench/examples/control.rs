//! Session requests a second, over UDP loopback: `control [SESSIONS [WINDOW]]`.

use std::sync::atomic::AtomicBool;

use kaido_bench::{BenchError, ControlPlan, measure_control};

fn main() -> Result<(), BenchError> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let usual = ControlPlan::default();
    let sessions = numbers.next().unwrap_or(usual.sessions);
    let plan = ControlPlan { sessions, window: numbers.next().unwrap_or(usual.window), ..usual };
    print!("{}", measure_control(&plan, &AtomicBool::new(false), &|line| eprintln!("{line}"))?);
    Ok(())
}
