//! The integration tests of this crate in one binary, a module each, so that it is linked once.

#[path = "../../../gre/tests/it/vector/mod.rs"]
mod vector;

mod gre_directed;
mod gre_random;
mod gre_timing;
mod gre_vectors;
mod random;
mod software;

use std::io::Write;

use kaido_twin::{GreCore, Size, TwinError};

/// A core; without verilator `None`, and the test is said to be skipped.
fn core(test: &str, size: Size) -> Option<GreCore> {
    match GreCore::new(size) {
        Ok(core) => Some(core),
        Err(TwinError::NoCore) => {
            // Not println: the test harness would keep it to itself.
            let mut out = std::io::stdout();
            let _ = writeln!(
                out,
                "SKIPPED {test} of {size:?}: the core was not built: without verilator, or by KAIDO_TWIN_MODELS"
            );
            None
        }
        Err(other) => panic!("{other}"),
    }
}
