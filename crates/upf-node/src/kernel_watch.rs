//! Looks after the datapath in the kernel: the ports that it may send out of, and whether it forwards anything at all.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kaido_upf::control::Upf;
use kaido_upf_xdp::offload::PassReason;

use super::exits::ExitWatch;
use super::offload::{KernelCounts, forwarded};

/// How often is looked whether it forwards.
const PACE: Duration = Duration::from_secs(10);
/// Packets in that time of which one at least should be the kernel's.
const PACKETS_MIN: u64 = 100;
/// How often the log is told that nothing has changed.
const REMINDER: Duration = Duration::from_secs(600);
/// Sessions that are asked why they are the workers'.
const SESSIONS_ASKED: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct KernelWatch {
    pub(super) exits: ExitWatch,
    idle: KernelIdle,
    next: Instant,
}

impl KernelWatch {
    pub(super) fn new(exits: ExitWatch) -> Self {
        Self { exits, idle: KernelIdle::default(), next: Instant::now() + PACE }
    }

    /// Looks after it, as often as is due.
    pub(super) fn turn(&mut self, now: Instant, upf: &mut Upf, counts: impl FnOnce() -> Vec<KernelCounts>) {
        self.exits.turn(now);
        if now < self.next {
            return;
        }
        self.next = now + PACE;
        let counts = counts();
        let (packets, handed) = (counts.iter().map(|port| forwarded(port).0).sum(), handed(&counts));
        self.idle.look(now, packets, &handed, || unfit(upf));
    }

    /// Why the kernel forwards nothing, if packets come and it does not.
    pub(super) fn idle(&self) -> Option<&str> {
        self.idle.why.as_deref()
    }
}

/// Packets that were left to the workers, by reason.
fn handed(counts: &[KernelCounts]) -> Vec<(PassReason, u64)> {
    let of = |hand| counts.iter().map(|port| port.offload.handed(hand)).sum();
    PassReason::ALL.into_iter().map(|hand| (hand, of(hand))).collect()
}

/// Why the kernel has no record: the commonest reason of some sessions; `None` where it has records, or there are no sessions.
fn unfit(upf: &mut Upf) -> Option<String> {
    if upf.kernel_records().is_none_or(|records| records > 0) {
        return None;
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for session in upf.sessions(0, SESSIONS_ASKED) {
        for share in upf.kernel_shares(session.seid).unwrap_or_default() {
            share.left.iter().for_each(|unfit| *reasons.entry(unfit.to_string()).or_default() += 1);
        }
    }
    reasons.into_iter().max_by_key(|(_, count)| *count).map(|(reason, _)| reason)
}

/// Whether the kernel forwards nothing while packets come.
#[derive(Debug, Default)]
struct KernelIdle {
    why: Option<String>,
    /// Packets forwarded and left when it was looked last.
    seen: (u64, Vec<(PassReason, u64)>),
    said: Option<Instant>,
}

impl KernelIdle {
    /// Looks at what was forwarded and left since the last time.
    fn look(
        &mut self,
        now: Instant,
        packets: u64,
        handed: &[(PassReason, u64)],
        unfit: impl FnOnce() -> Option<String>,
    ) {
        let before = std::mem::replace(&mut self.seen, (packets, handed.to_vec()));
        let since = |hand| before.1.iter().find(|(known, _)| *known == hand).map_or(0, |(_, count)| *count);
        let left = handed.iter().map(|&(hand, count)| (hand, count.saturating_sub(since(hand))));
        let left: Vec<_> = left.filter(|(_, count)| *count > 0).collect();
        let all: u64 = left.iter().map(|(_, count)| count).sum();
        if packets > before.0 || all < PACKETS_MIN {
            // Where nothing comes nothing is known.
            if packets > before.0 && self.why.take().is_some() {
                self.said = None;
                tracing::info!("the kernel's datapath forwards packets");
            }
            return;
        }
        let most = left.iter().max_by_key(|(_, count)| *count);
        let hand = most.map_or_else(String::new, |(hand, _)| format!("most were left for `{}`", hand.name()));
        let why = unfit().map_or(hand, |unfit| format!("it has no session: {unfit}"));
        let is_news = self.why.as_ref() != Some(&why);
        if is_news || self.said.is_none_or(|said| now.duration_since(said) >= REMINDER) {
            tracing::warn!(
                why,
                packets = all,
                "the kernel's datapath forwards nothing: all packets are the workers'"
            );
            self.said = Some(now);
        }
        self.why = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_why_nothing_is_forwarded_until_something_is() {
        let mut idle = KernelIdle::default();
        let now = Instant::now();
        let hand = PassReason::ALL[0];
        idle.look(now, 0, &[(hand, PACKETS_MIN - 1)], || None);
        assert_eq!(idle.why, None, "too few to tell");
        idle.look(now, 0, &[(hand, 2 * PACKETS_MIN)], || None);
        assert_eq!(idle.why.as_deref(), Some(&*format!("most were left for `{}`", hand.name())));
        idle.look(now, 0, &[(hand, 2 * PACKETS_MIN)], || None);
        assert!(idle.why.is_some(), "no packet came that would tell otherwise");
        idle.look(now, 0, &[(hand, 4 * PACKETS_MIN)], || Some("the session is traced".to_owned()));
        assert_eq!(idle.why.as_deref(), Some("it has no session: the session is traced"));
        idle.look(now, 1, &[(hand, 9 * PACKETS_MIN)], || None);
        assert_eq!(idle.why, None);
    }
}
