//! The integration tests of this crate in one binary, a module each, so that it is linked once.

#[path = "../../../upf/tests/it/fixture/mod.rs"]
mod upf;
#[path = "../../../gre/tests/it/vector/mod.rs"]
mod vector;

mod gre_directed;
mod gre_random;
mod gre_timing;
mod gre_vectors;
mod gtpu_directed;
mod gtpu_node;
mod gtpu_random;
mod gtpu_timing;
mod gtpu_vectors;
mod random;
mod software;
mod tunnel_random;
mod tunnel_vectors;
mod upf_vectors;

use std::io::Write;

use kaido_twin::gtpu::{Direction, GtpuCore, Width};
use kaido_twin::tunnel::TunnelCore;
use kaido_twin::{CoreEvent, Disposition, GreCore, Outcome, Size, TwinError};

/// A core; without verilator `None`, and the test is said to be skipped.
fn core(test: &str, size: Size) -> Option<GreCore> {
    built(GreCore::new(size), test, &model("Gre", size))
}

/// As [`core`].
fn gtpu_core(test: &str, direction: Direction, width: Width) -> Option<GtpuCore> {
    built(GtpuCore::new(direction, width), test, &model(&format!("{direction:?}"), width))
}

/// As [`core`].
fn tunnel_core(test: &str, width: Width) -> Option<TunnelCore> {
    built(TunnelCore::new(width), test, &model("Tunnel", width))
}

/// As build.rs names the model of a core in a size.
fn model(core: &str, size: impl std::fmt::Debug) -> String {
    format!("{size:?}").replace("Bits", core)
}

fn built<Core>(core: Result<Core, TwinError>, test: &str, of: &str) -> Option<Core> {
    let is_left = option_env!("KAIDO_TWIN_LEFT").is_some_and(|left| left.split(',').any(|one| one == of));
    match core {
        Ok(core) => Some(core),
        Err(TwinError::NoCore) if is_left => {
            // The same for all tests, so that it is listed once.
            let _ = writeln!(std::io::stdout(), "SKIPPED {of} of kaido-twin: `make hdl-soak` runs it");
            None
        }
        Err(TwinError::NoCore) => {
            // Not println: the test harness would keep it to itself.
            let mut out = std::io::stdout();
            let _ = writeln!(
                out,
                "SKIPPED {test} of {of}: the core was not built: without verilator, or by KAIDO_TWIN_MODELS"
            );
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// Whether the core gave the bytes of a vector's step, or its drop; the event where it left the frame to the host.
fn judged<E: CoreEvent>(
    at: &str,
    outcome: Outcome<E>,
    frame: &[u8],
    (out, drop): (Vec<Vec<u8>>, Option<&str>),
) -> Option<E> {
    match outcome.disposition {
        Disposition::Out(left) => {
            assert_eq!(vec![left], out, "{at}");
            assert_eq!(drop, None, "{at}");
        }
        Disposition::Dropped => {
            assert_eq!(Some(outcome.event.name()), drop, "{at}");
            assert!(out.is_empty(), "{at}");
        }
        Disposition::Host(host) => {
            assert_eq!(host, frame, "{at}");
            return Some(outcome.event);
        }
    }
    None
}
