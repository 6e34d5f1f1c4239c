//! A run on several threads: one for each port, and one that judges what they have received.
//!
//! ```text
//!   port a: make ─▶ push · receive ─┐ batches, with the times at which they came
//!   port b: make ─▶ push · receive ─┴──▶ queue ──▶ judge ──▶ frames back to their pools
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Queue, RecvTimeoutError};
use std::time::Duration;

use kaido_bench::traffic::{Arrivals, Outlet, PassResult, apart};
use kaido_engine::PoolCache;

use super::Shared;
use super::time::Time;
use super::turn::{Line, PortTurn, is_over, judge, rest};

/// Most batches that wait to be judged: a fraction of a port's frames.
const QUEUE_MAX: usize = 128;
/// Longest wait of the judge for a batch.
const WAIT: Duration = Duration::from_millis(1);

/// What the threads tell each other; nothing relies on an order between these but that of the queue.
struct Signs {
    time: Time,
    duration_ns: u64,
    is_sending: AtomicBool,
    is_done: AtomicBool,
    ports: Vec<PortSigns>,
}

/// What a port tells.
#[derive(Default)]
struct PortSigns {
    /// All that is due within the run was sent.
    is_sent: AtomicBool,
    /// It sends as fast as it can.
    is_unpaced: AtomicBool,
    /// When it last sent something.
    sent_ns: AtomicU64,
}

impl PortTurn {
    /// Turns each port on a thread of its own, and judges on this one; nanoseconds of sending.
    pub(super) fn turn_apart(&mut self, shared: &Shared) -> u64 {
        let mut caches: Vec<PoolCache> =
            self.lines.iter_mut().map(|line| line.turn.cache().pool().cache()).collect();
        let signs = Signs {
            time: Time::new(),
            duration_ns: self.duration_ns,
            is_sending: AtomicBool::new(true),
            is_done: AtomicBool::new(false),
            ports: self.lines.iter().map(|_| PortSigns::default()).collect(),
        };
        let lines = std::mem::take(&mut self.lines);
        let turn = |line, port, outlet| turn_line(line, port, outlet, &signs, shared);
        let (lines, sent_for_ns) = apart(lines, QUEUE_MAX, turn, |queue| {
            let sent_for_ns = self.judge_all(queue, &mut caches, &signs, shared);
            signs.is_done.store(true, Ordering::Relaxed);
            sent_for_ns
        });
        self.lines = lines;
        sent_for_ns
    }

    /// Judges until nothing is sent any more and nothing comes.
    fn judge_all(
        &mut self,
        queue: &Queue<Arrivals>,
        caches: &mut [PoolCache],
        signs: &Signs,
        shared: &Shared,
    ) -> u64 {
        let (mut sending, mut sent_for_ns, mut last_ns) = (true, 0, 0);
        loop {
            // What is under way after the end is waited for, paused or not.
            signs.time.pause(sending && shared.pause.load(Ordering::Relaxed));
            let now_ns = signs.time.now_ns();
            let is_unpaced = signs.ports.iter().any(|port| port.is_unpaced.load(Ordering::Relaxed));
            let is_sent = signs.ports.iter().all(|port| port.is_sent.load(Ordering::Relaxed));
            let is_stopped = shared.stop.load(Ordering::Relaxed);
            if sending && (is_stopped || is_over(now_ns, self.duration_ns, is_unpaced, is_sent)) {
                (sending, sent_for_ns, last_ns) = (false, now_ns.min(self.duration_ns), now_ns);
                signs.is_sending.store(false, Ordering::Relaxed);
            }
            let before = self.receiver.received();
            match queue.recv_timeout(WAIT) {
                Ok(mut came) => {
                    for frame in came.batch.drain(..) {
                        judge(&mut self.receiver, came.port, &frame, came.now_ns);
                        caches[came.port].release(frame);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return sent_for_ns,
            }
            let received = self.receiver.received();
            // Others' packets keep no run from ending.
            if received > before {
                last_ns = signs.time.now_ns();
            }
            let sent_ns = signs.ports.iter().map(|port| port.sent_ns.load(Ordering::Relaxed)).max();
            last_ns = last_ns.max(sent_ns.unwrap_or(0));
            let live = &mut shared.state().live;
            (live.time_ns, live.sending, live.received) = (now_ns, sending, received);
            if !sending && now_ns.saturating_sub(last_ns) >= self.drain_ns {
                return sent_for_ns;
            }
        }
    }
}

/// A port's thread.
fn turn_line(mut line: Line, port: usize, mut outlet: Outlet, signs: &Signs, shared: &Shared) -> Line {
    let (own, time) = (&signs.ports[port], &signs.time);
    while !signs.is_done.load(Ordering::Relaxed) {
        let is_sending = signs.is_sending.load(Ordering::Relaxed) && !time.is_paused();
        let sent = line.send(port, is_sending, signs.duration_ns, time, shared);
        if sent > 0 {
            own.sent_ns.store(time.now_ns(), Ordering::Relaxed);
        }
        own.is_sent.store(line.is_sent(signs.duration_ns), Ordering::Relaxed);
        own.is_unpaced.store(line.is_unpaced(), Ordering::Relaxed);
        let passed = outlet.pass(|batch| line.receive(port, batch, time, shared));
        if sent == 0 && passed == PassResult::Nothing {
            let due_ns = line.turn.next_due_ns().filter(|_| is_sending);
            rest(due_ns.map(|due_ns| due_ns.saturating_sub(time.now_ns())));
            continue;
        }
        let live = &mut shared.state().live;
        live.ports[port] = [line.sent, line.received];
        for (stream, volume) in line.turn.sent() {
            live.streams[stream] = volume;
        }
        if passed == PassResult::Ended {
            break;
        }
    }
    line.held_up = outlet.held_up();
    line
}
