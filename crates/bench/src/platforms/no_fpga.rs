//! Stands in for the hardware cores where they are not built in.

use super::PlatformsPlan;
use super::report::FpgaModel;
use crate::BenchError;

/// Says that there are none.
#[expect(clippy::unnecessary_wraps, reason = "as where they are built in")]
pub(super) fn measure(plan: &PlatformsPlan) -> Result<FpgaModel, BenchError> {
    let reason = "this kaido was built without the hardware cores; `--features fpga-model` builds them in";
    Ok(FpgaModel { clock_mhz: plan.fpga_mhz, cores: Vec::new(), skipped: Some(reason.to_owned()) })
}
