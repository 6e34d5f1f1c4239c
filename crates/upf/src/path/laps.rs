//! What the stages of a batch take, in cycles, for the batches that are timed; the others are compiled without a clock.

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
    /// Packets of the usual shape are done with.
    Act,
    /// All others are, and frames are handed to their ports.
    Finish,
}

/// Their names in metrics, in their order.
pub(super) const STAGES: [&str; 5] = ["read", "probe", "resolve", "act", "finish"];

/// A clock that is looked at after each stage.
pub(super) trait Laps {
    /// The time since the last look was this stage's.
    fn lap(&mut self, stage: Stage);

    /// Tells what was counted.
    fn tell(self, out: &mut Output<'_>);
}

/// No clock.
pub(super) struct Untimed;

impl Laps for Untimed {
    #[inline(always)]
    fn lap(&mut self, _: Stage) {}

    #[inline(always)]
    fn tell(self, _: &mut Output<'_>) {}
}

/// The time stamp counter.
pub(super) struct Timed {
    looked: u64,
    took: [u64; STAGES.len()],
}

impl Timed {
    pub(super) fn start() -> Self {
        Self { looked: cycles::now(), took: [0; STAGES.len()] }
    }
}

impl Laps for Timed {
    fn lap(&mut self, stage: Stage) {
        let now = cycles::now();
        self.took[stage as usize] += now.saturating_sub(std::mem::replace(&mut self.looked, now));
    }

    fn tell(mut self, out: &mut Output<'_>) {
        self.lap(Stage::Finish);
        self.took.iter().enumerate().for_each(|(stage, &cycles)| out.took(stage, cycles));
    }
}
