//! What is to be measured.

use crate::shape::Shape;

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Numbers of sessions, ascending.
    pub sessions: Vec<u32>,
    /// Their rules, beside plain ones, to which they are held.
    pub shape: Option<Shape>,
    /// Without it: rules that are measured at one number of sessions beside plain ones at every number.
    pub beside: &'static [Shape],
    /// Frame lengths, in bytes without FCS, ascending.
    pub frames: Vec<usize>,
    /// Rounds of every case; each gives one sample.
    pub rounds: u32,
    /// Packets of a round: frames of the pool.
    pub packets_per_round: usize,
    /// Take the frames in random order, as if they had long been in use; else in that of the pool.
    pub mixed_frames: bool,
    /// Runs of the map chain in a round; an odd number is made even.
    pub chain_runs_per_round: u32,
    /// Most keys of the table's measurement.
    pub table_keys_max: u32,
    /// Values to replace in it, for each number of writers.
    pub soak: u64,
    /// Packets of a round through the shared queue.
    pub shared_packets: u32,
    /// Reserve huge pages for the run, and give them back.
    pub reserve_hugepages: bool,
    /// Orders of sessions, keys and lines come from it.
    pub seed: u64,
}

/// Sessions up to which a session is deleted and modified to be timed, and tables are filled.
const MILLION: u32 = 1 << 20;

impl Plan {
    /// Everything.
    pub fn full() -> Self {
        Self {
            sessions: vec![1, 65_536, MILLION, 16_640_000],
            shape: None,
            beside: &[
                Shape::Free5gc,
                Shape::Open5gs,
                Shape::Volte,
                Shape::Slice,
                Shape::Tenant,
                Shape::Mixed,
            ],
            frames: vec![64, 128, 256, 512, 1024, 1424, 3024],
            rounds: 15,
            packets_per_round: 32_768,
            mixed_frames: false,
            chain_runs_per_round: 200_000,
            table_keys_max: 2 * MILLION,
            soak: 10_000_000,
            shared_packets: 2_000_000,
            reserve_hugepages: false,
            seed: 1,
        }
    }

    /// What takes below two minutes: 1 and 1 M sessions, frames of 128 bytes, fewer rounds.
    pub fn quick() -> Self {
        Self {
            sessions: vec![1, MILLION],
            beside: &[Shape::Mixed],
            frames: vec![128],
            rounds: 7,
            chain_runs_per_round: 100_000,
            table_keys_max: MILLION / 2,
            soak: 2_000_000,
            shared_packets: 500_000,
            ..Self::full()
        }
    }

    /// The nodes that are measured: the rules of their sessions, and how many.
    pub(crate) fn nodes(&self) -> Vec<(Shape, u32)> {
        let all = |shape| self.sessions.iter().map(move |&sessions| (shape, sessions));
        // The largest number up to a million: where a session's lines come from memory.
        let many = self.sessions.iter().rfind(|&&sessions| sessions <= MILLION).or(self.sessions.first());
        match self.shape {
            Some(Shape::Plain) => all(Shape::Plain).collect(),
            Some(shape) => all(Shape::Plain).chain(all(shape)).collect(),
            None => {
                let beside = self.beside.iter().flat_map(|&shape| many.map(|&many| (shape, many)));
                all(Shape::Plain).chain(beside).collect()
            }
        }
    }

    /// The length of frame at which the map chain is run: 128 bytes where the plan has them.
    pub(crate) fn chain_frame(&self) -> usize {
        let wanted = self.frames.iter().copied().find(|&bytes| bytes >= 128);
        wanted.or_else(|| self.frames.last().copied()).unwrap_or(128)
    }

    /// Keys of the table's measurement: two for each session of the largest case.
    pub(crate) fn table_keys(&self) -> u32 {
        let sessions = self.sessions.last().copied().unwrap_or(1);
        sessions.saturating_mul(2).clamp(1024, self.table_keys_max.max(1024))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_plan_has_every_case_and_the_quick_one_two() {
        let full = Plan::full();
        assert_eq!(full.sessions, [1, 65_536, 1_048_576, 16_640_000]);
        assert_eq!(full.frames, [64, 128, 256, 512, 1024, 1424, 3024]);
        let quick = Plan::quick();
        assert_eq!((quick.sessions, quick.frames), (vec![1, 1_048_576], vec![128]));
    }

    #[test]
    fn sessions_of_smfs_stand_beside_the_plain_ones() {
        use Shape::{Free5gc, Mixed, Open5gs, Plain, Slice, Tenant, Volte};
        assert_eq!(Plan::quick().nodes(), [(Plain, 1), (Plain, MILLION), (Mixed, MILLION)]);
        let beside = [Free5gc, Open5gs, Volte, Slice, Tenant, Mixed].map(|shape| (shape, MILLION));
        assert_eq!(Plan::full().nodes()[4..], beside);
        let one = Plan { sessions: vec![1, 7], shape: Some(Open5gs), ..Plan::quick() };
        assert_eq!(one.nodes(), [(Plain, 1), (Plain, 7), (Open5gs, 1), (Open5gs, 7)]);
        let plain = Plan { sessions: vec![1, 7], shape: Some(Plain), ..Plan::quick() };
        assert_eq!(plain.nodes(), [(Plain, 1), (Plain, 7)]);
    }

    #[test]
    fn sizes_follow_the_cases() {
        let plan = |sessions: &[u32], frames: &[usize]| Plan {
            sessions: sessions.to_vec(),
            frames: frames.to_vec(),
            ..Plan::full()
        };
        assert_eq!(plan(&[1], &[64]).table_keys(), 1024);
        assert_eq!(plan(&[1, 100_000], &[64]).table_keys(), 200_000);
        assert_eq!(Plan::full().table_keys(), 2_097_152);
        assert_eq!(plan(&[1], &[64]).chain_frame(), 64);
        assert_eq!(Plan::full().chain_frame(), 128);
    }
}
