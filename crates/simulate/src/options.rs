//! What a run is of.

use std::path::PathBuf;

use kaido_store::Durability;

use crate::faults::Sabotage;
use crate::random::Random;

/// What a run is of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything else that is left to chance.
    pub seed: u64,
    /// How many steps it has, without those in which all comes to rest.
    pub steps: u64,
    /// What an acknowledged change survives.
    pub durability: Durability,
    /// The journal itself in this folder, and not a model of it.
    pub folder: Option<PathBuf>,
    /// How many control planes there are.
    pub control_planes: u8,
    /// Most sessions of each.
    pub sessions_max: usize,
    /// What is done wrong on purpose.
    pub sabotage: Option<Sabotage>,
    /// How many of the last events a failure shows.
    pub lines: usize,
}

impl Options {
    /// What a seed chooses.
    pub fn of_seed(seed: u64, steps: u64) -> Self {
        let mut random = Random::new(seed).fork(0);
        let durability = if random.happens(500_000) { Durability::Disk } else { Durability::Process };
        Self {
            seed,
            steps,
            durability,
            folder: None,
            control_planes: u8::try_from(1 + random.below(3)).unwrap_or(1),
            // More than are deleted in one turn, at times.
            sessions_max: if random.happens(150_000) { 250 } else { 8 + random.place(30) },
            sabotage: None,
            lines: 100,
        }
    }
}
