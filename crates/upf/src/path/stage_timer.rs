//! Cycles per stage, for the batches that are timed. The path is compiled twice: with a timer and without.

use kaido_engine::Output;
use kaido_engine::shared::cycles;

/// A stage of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Headers are read and keys hashed.
    Read,
    /// Tags are compared.
    Probe,
    /// Keys are compared.
    Resolve,
    /// Packets eligible for the fast path are done with.
    Act,
    /// All others are, and frames are handed to their ports.
    Finish,
}

/// Their names in metrics, in their order.
pub(super) const STAGES: [&str; 5] = ["read", "probe", "resolve", "act", "finish"];

/// Reads a clock at the end of each stage.
pub(super) trait StageTimer {
    /// Adds the time since the last call to a stage.
    fn end(&mut self, stage: Stage);

    /// Reports the sums.
    fn report(self, out: &mut Output<'_>);
}

/// Reads no clock.
pub(super) struct NoTimer;

impl StageTimer for NoTimer {
    #[inline(always)]
    fn end(&mut self, _: Stage) {}

    #[inline(always)]
    fn report(self, _: &mut Output<'_>) {}
}

/// Reads the time stamp counter.
pub(super) struct CycleTimer {
    last: u64,
    sums: [u64; STAGES.len()],
}

impl CycleTimer {
    pub(super) fn start() -> Self {
        Self { last: cycles::now(), sums: [0; STAGES.len()] }
    }
}

impl StageTimer for CycleTimer {
    fn end(&mut self, stage: Stage) {
        let now = cycles::now();
        self.sums[stage as usize] += now.saturating_sub(std::mem::replace(&mut self.last, now));
    }

    fn report(mut self, out: &mut Output<'_>) {
        self.end(Stage::Finish);
        self.sums.iter().enumerate().for_each(|(stage, &cycles)| out.took(stage, cycles));
    }
}
