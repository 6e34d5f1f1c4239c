//! What the memory costs that a packet touches, if nothing is done with it: the floor under any forwarding with such tables.

use std::time::Duration;

use kaido_table::{Seed, Slots, prefetch};

use crate::{Failure, thread_time};

/// Packets whose lines are asked for while those of the group before are read, as the forwarding does.
const GROUP: usize = 8;
/// Groups that are measured.
const GROUPS: usize = 1 << 14;

/// Memory of which a packet touches random lines.
#[derive(Clone, Copy)]
pub(crate) struct Touch {
    /// Octets of it that are in use.
    pub(crate) octets: usize,
    /// Places that a packet touches, in hundredths.
    pub(crate) percent: usize,
    /// Lines of a place, one behind the other.
    pub(crate) lines: usize,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Nanoseconds a packet that touches all these.
pub(crate) fn floor(touches: &[Touch]) -> Result<f64, Failure> {
    let count = touches.iter().map(Touch::len).sum::<usize>();
    let mut lines = Slots::new(u32::try_from(count)?)?;
    while lines.push(Line([1; 8])).is_some() {}
    // Which lines are touched is known before, so that nothing is measured but the lines.
    let seed = Seed::random();
    let (mut touched, mut ends) = (Vec::new(), vec![0]);
    for packet in 0..GROUPS * GROUP {
        let mut first = 0;
        for (table, touch) in touches.iter().enumerate() {
            // Of a place and a half, the half is touched by every other packet.
            for place in 0..(touch.percent + packet * 37 % 100) / 100 {
                let random = seed.hash(&((packet << 16 | table << 8 | place) as u64));
                let line = usize::try_from((u128::from(random) * (touch.len() - touch.lines) as u128) >> 64)?;
                touched.extend((first + line..).take(touch.lines));
            }
            first += touch.len();
        }
        if packet % GROUP == GROUP - 1 {
            ends.push(touched.len());
        }
    }
    let mut rounds: Vec<Duration> = Vec::new();
    let mut sum = 0;
    for _ in 0..9 {
        let began = thread_time();
        for (at, end) in ends.iter().enumerate() {
            let next = ends.get(at + 1).copied().unwrap_or(*end);
            touched[*end..next].iter().for_each(|&line| prefetch(&lines[line]));
            let before = ends[at.saturating_sub(1)];
            sum += touched[before..*end].iter().map(|&line| lines[line].0[0]).sum::<u64>();
        }
        rounds.push(thread_time() - began);
    }
    std::hint::black_box(sum);
    rounds.sort();
    Ok(rounds[rounds.len() / 2].as_nanos() as f64 / (GROUPS * GROUP) as f64)
}

impl Touch {
    /// Lines that are in use.
    fn len(&self) -> usize {
        (self.octets / 64).max(2 * self.lines)
    }
}
