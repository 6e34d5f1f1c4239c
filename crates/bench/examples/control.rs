//! Session requests a second, over UDP loopback: `control [SESSIONS [WINDOW [SHAPE]]]`.

use std::sync::atomic::AtomicBool;

use kaido_bench::{BenchError, ControlPlan, Shape, measure_control};

fn main() -> Result<(), BenchError> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let named = |shape: &Shape| std::env::args().skip(1).any(|text| text == shape.name());
    let usual = ControlPlan::default();
    let sessions = numbers.next().unwrap_or(usual.sessions);
    let shape = Shape::ALL.into_iter().find(named).unwrap_or(usual.shape);
    let plan = ControlPlan { sessions, window: numbers.next().unwrap_or(usual.window), shape, ..usual };
    print!("{}", measure_control(&plan, &AtomicBool::new(false), &|line| eprintln!("{line}"))?);
    Ok(())
}
