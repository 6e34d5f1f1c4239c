//! Erasing from the content store: each worker's memory, then the disk, as far as one command comes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ControlMailbox;
use crate::cs::CsErasure;
use crate::mgmt::ErasureResult;
use crate::tier::{TierControl, TierSearch};

/// How long one command erases: less than Interests wait that say nothing of it, workers that do not answer included.
const WITHIN: Duration = Duration::from_secs(2);
/// How long it is remembered where a command has ended, for the next to go on there.
const REMEMBERED: Duration = Duration::from_secs(10);

/// What is erased over several commands.
#[derive(Debug, Default)]
pub(super) struct ErasureSweep(Option<Sweep>);

/// How far the erasure of a prefix has come.
#[derive(Debug)]
struct Sweep {
    prefix: Vec<u8>,
    /// When the last command of it has ended.
    at: Instant,
    /// Where the memory of each worker is looked through next; `None` when it was to its end.
    memory: Vec<Option<u32>>,
    disk: TierSearch,
}

/// An order for what may wait for it.
type Wake<'w> = &'w dyn Fn();

impl ErasureSweep {
    /// Erases what it can, as [`Node::erase_cs`](crate::mgmt::Node::erase_cs) says.
    pub(super) fn erase(
        &mut self,
        mailboxes: &[Arc<ControlMailbox>],
        tier: Option<&TierControl>,
        wake: Wake<'_>,
        prefix: &[u8],
        count: Option<u64>,
        limit: u64,
    ) -> ErasureResult {
        let until = Instant::now() + WITHIN;
        let known = self.0.take().filter(|sweep| sweep.prefix == prefix && sweep.at.elapsed() < REMEMBERED);
        let mut sweep = known.unwrap_or_else(|| Sweep::new(prefix, mailboxes.len()));
        let most = count.unwrap_or(u64::MAX).min(limit);
        let mut erased = sweep.memory(mailboxes, wake, most, until);
        if let Some(tier) = tier
            && !erased.has_more
        {
            let more = match count {
                None => sweep.whole_tier(tier, mailboxes, wake),
                Some(_) => sweep.tier(tier, most - erased.count, until),
            };
            erased = ErasureResult { count: erased.count + more.count, has_more: more.has_more };
        }
        erased.has_more &= count.is_none_or(|count| erased.count < count);
        if erased.has_more {
            sweep.at = Instant::now();
            self.0 = Some(sweep);
        }
        erased
    }
}

impl Sweep {
    fn new(prefix: &[u8], workers: usize) -> Self {
        Self {
            prefix: prefix.to_vec(),
            at: Instant::now(),
            memory: vec![Some(0); workers],
            disk: TierSearch::default(),
        }
    }

    /// Erases from the memory of those workers that were not looked through to their end.
    fn memory(
        &mut self,
        mailboxes: &[Arc<ControlMailbox>],
        wake: Wake<'_>,
        most: u64,
        until: Instant,
    ) -> ErasureResult {
        let mut left = u32::try_from(most).unwrap_or(u32::MAX);
        let (mut count, mut is_first) = (0, true);
        for (mailbox, place) in mailboxes.iter().zip(&mut self.memory) {
            let Some(next) = *place else { continue };
            // One worker has its turn whatever the time is, so that commands come to an end.
            if left == 0 || (!is_first && Instant::now() >= until) {
                return ErasureResult { count, has_more: true };
            }
            is_first = false;
            let erasing = CsErasure::new(self.prefix.clone(), left, next);
            let told = erasing.told().clone();
            let is_whole = mailbox.erase(erasing, until, wake);
            left -= told.erased().min(left);
            count += u64::from(told.erased());
            *place = (!is_whole || left == 0).then(|| told.next());
            if !is_whole {
                return ErasureResult { count, has_more: true };
            }
        }
        ErasureResult { count, has_more: left == 0 }
    }

    /// Erases all that is on disk, where it is not counted, and what has come to memory from there meanwhile.
    fn whole_tier(
        &mut self,
        tier: &TierControl,
        mailboxes: &[Arc<ControlMailbox>],
        wake: Wake<'_>,
    ) -> ErasureResult {
        tier.erase(&self.prefix);
        let until = Instant::now() + WITHIN / 2;
        let mut again = Self::new(&self.prefix, mailboxes.len());
        let erased = again.memory(mailboxes, wake, u64::MAX, until);
        self.memory = again.memory;
        erased
    }

    /// Erases some of what is on disk.
    fn tier(&mut self, tier: &TierControl, most: u64, until: Instant) -> ErasureResult {
        let (count, is_end) = tier.erase_some(&self.prefix, &mut self.disk, most, until);
        ErasureResult { count, has_more: !is_end }
    }
}
