//! A run on several threads: one for each port, and one, the caller's, that judges what they have received.
//!
//! ```text
//!   port a: make ─▶ push · receive ─┐ batches, with the times at which they came
//!   port b: make ─▶ push · receive ─┴──▶ queue ──▶ judge ──▶ frames back to their pools
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Queue, RecvTimeoutError};
use std::time::{Duration, Instant};

use kaido_engine::{BATCH_MAX, PoolCache};

use super::threads::{Arrivals, Outlet, PassResult, apart};
use super::turn::PortTurn;
use super::{Run, RunEnd, judge, nanoseconds, rest};

/// Most batches that wait to be judged.
const QUEUE_MAX: usize = 256;
/// The share of a pool's frames that may wait so.
const POOL_SHARE: usize = 4;
/// Longest wait of the judge for a batch: so late it sees that the time is over.
const WAIT: Duration = Duration::from_millis(1);

/// What the threads tell each other. Figures and flags that stand by themselves: no order between them is relied upon but
/// that of the queue.
struct Signs {
    /// When sending ends, in nanoseconds of the run: ports look themselves, as the judge may be late.
    end_ns: u64,
    /// Ports make packets.
    is_sending: AtomicBool,
    /// Ports are no longer needed.
    is_done: AtomicBool,
    ports: Vec<PortSigns>,
}

/// What a port tells.
struct PortSigns {
    /// Whether it has packets left to make.
    has_more: AtomicBool,
    is_exhausted: AtomicBool,
    /// When it last sent something.
    sent_ns: AtomicU64,
}

impl Run<'_> {
    pub(super) fn apart(mut self, mut turns: Vec<PortTurn>) -> RunEnd {
        let mut caches: Vec<PoolCache> = turns.iter_mut().map(|turn| turn.cache().pool().cache()).collect();
        let port = || PortSigns {
            has_more: AtomicBool::new(true),
            is_exhausted: AtomicBool::new(false),
            sent_ns: AtomicU64::new(0),
        };
        let signs = Signs {
            end_ns: u64::try_from(self.settings.duration.as_nanos()).unwrap_or(u64::MAX),
            is_sending: AtomicBool::new(true),
            is_done: AtomicBool::new(false),
            ports: turns.iter().map(|_| port()).collect(),
        };
        let frames = caches.iter().map(|cache| cache.pool().frames()).min().unwrap_or(0);
        let room = (frames / POOL_SHARE / BATCH_MAX).clamp(1, QUEUE_MAX);
        let began = Instant::now();
        let turn = |turn, port, outlet| turn_port(turn, port, outlet, began, &signs);
        let (turned, duration_ns) = apart(turns, room, turn, |queue| {
            let duration_ns = self.judge_all(queue, &mut caches, &signs, began);
            signs.is_done.store(true, Ordering::Relaxed);
            duration_ns
        });
        let threads = u32::try_from(turned.len() + 1).unwrap_or(u32::MAX);
        let (turns, held_up) = turned.into_iter().unzip();
        RunEnd { turns, receiver: self.receiver, duration_ns, threads, held_up }
    }

    /// Judges until nothing is sent any more and nothing comes; nanoseconds until the last packet was sent.
    fn judge_all(
        &mut self,
        queue: &Queue<Arrivals>,
        caches: &mut [PoolCache],
        signs: &Signs,
        began: Instant,
    ) -> u64 {
        let drain_ns = u64::try_from(self.settings.drain.as_nanos()).unwrap_or(u64::MAX);
        let (mut told, mut duration_ns, mut came_ns) = (Duration::ZERO, 0, 0);
        loop {
            let now = began.elapsed();
            let is_over = now >= self.settings.duration || self.stop.load(Ordering::Relaxed);
            let has_more = signs.ports.iter().any(|port| port.has_more.load(Ordering::Relaxed));
            let is_sending = !is_over && has_more;
            if is_sending {
                duration_ns = nanoseconds(began);
            } else {
                signs.is_sending.store(false, Ordering::Relaxed);
            }
            self.tell(now, &mut told);
            // Looked at before the queue: what a file ended with is in it by then.
            let is_exhausted = signs.ports.iter().all(|port| port.is_exhausted.load(Ordering::Acquire));
            match queue.recv_timeout(WAIT) {
                Ok(mut came) => {
                    came_ns = nanoseconds(began);
                    judge(
                        &mut self.receiver,
                        came.port,
                        &mut came.batch,
                        came.now_ns,
                        &mut caches[came.port],
                    );
                    continue;
                }
                Err(RecvTimeoutError::Timeout) if is_sending => continue,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let sent_ns =
                signs.ports.iter().map(|port| port.sent_ns.load(Ordering::Relaxed)).max().unwrap_or(0);
            duration_ns = duration_ns.max(sent_ns);
            let quiet_ns = nanoseconds(began).saturating_sub(came_ns.max(sent_ns).max(duration_ns));
            if quiet_ns >= drain_ns || is_exhausted {
                break;
            }
        }
        duration_ns
    }
}

/// A port's thread: the port as it is left, and how many batches were held up.
fn turn_port(
    mut turn: PortTurn,
    port: usize,
    mut outlet: Outlet,
    began: Instant,
    signs: &Signs,
) -> (PortTurn, u64) {
    let own = &signs.ports[port];
    while !signs.is_done.load(Ordering::Relaxed) {
        let now_ns = nanoseconds(began);
        let is_sending = now_ns < signs.end_ns && signs.is_sending.load(Ordering::Relaxed);
        if is_sending {
            turn.make(now_ns);
        }
        let sent = turn.push();
        if sent > 0 {
            own.sent_ns.store(nanoseconds(began), Ordering::Relaxed);
        }
        let has_more = !turn.waiting().is_empty() || turn.next_due_ns().is_some();
        own.has_more.store(is_sending && has_more, Ordering::Relaxed);
        let passed = outlet.pass(|batch| {
            turn.receive(batch);
            nanoseconds(began)
        });
        // Released after the queue has all that came before.
        own.is_exhausted.store(outlet.is_empty() && turn.is_exhausted(), Ordering::Release);
        match passed {
            PassResult::Nothing if sent == 0 => rest(is_sending, turn.next_due_ns(), nanoseconds(began)),
            PassResult::Nothing | PassResult::Something => {}
            PassResult::Ended => break,
        }
    }
    (turn, outlet.held_up())
}
