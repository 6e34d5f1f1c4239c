//! Ports on threads of their own, and the queue to who judges what they have received.
//!
//! A port that finds the queue full receives nothing until there is room: what comes meanwhile waits in its device.

use std::sync::mpsc::{Receiver as Queue, SyncSender, TrySendError, sync_channel};

use kaido_engine::Batch;

/// What came at a port.
#[derive(Debug)]
pub struct Arrivals {
    /// The port's number.
    pub port: usize,
    /// When, in nanoseconds of the run.
    pub now_ns: u64,
    /// The frames.
    pub batch: Batch,
}

/// A port's end of the queue.
#[derive(Debug)]
pub struct Outlet {
    port: usize,
    to_judge: SyncSender<Arrivals>,
    /// What found the queue full.
    waiting: Option<Arrivals>,
    held_up: u64,
    /// Empty, for what comes next.
    spare: Batch,
}

/// What [`Outlet::pass`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassResult {
    /// There was nothing.
    Nothing,
    /// There was something; perhaps it waits.
    Something,
    /// Nobody takes anything any more.
    Ended,
}

impl Outlet {
    /// Hands over what `receive` puts into the empty batch that it is given, and when it came; where something waits that
    /// came before, hands that over and receives nothing.
    pub fn pass(&mut self, receive: impl FnOnce(&mut Batch) -> u64) -> PassResult {
        let waited = self.waiting.is_some();
        let arrivals = match self.waiting.take() {
            Some(arrivals) => arrivals,
            None => {
                let now_ns = receive(&mut self.spare);
                if self.spare.is_empty() {
                    return PassResult::Nothing;
                }
                Arrivals { port: self.port, now_ns, batch: std::mem::take(&mut self.spare) }
            }
        };
        match self.to_judge.try_send(arrivals) {
            Ok(()) => {}
            Err(TrySendError::Full(back)) => {
                self.held_up += u64::from(!waited);
                self.waiting = Some(back);
            }
            Err(TrySendError::Disconnected(_)) => return PassResult::Ended,
        }
        PassResult::Something
    }

    /// Whether nothing waits for room in the queue.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_none()
    }

    /// Batches that found the queue full.
    pub fn held_up(&self) -> u64 {
        self.held_up
    }
}

/// Has `turn` turn each port on a thread of its own, and `judge` take from a queue of `room` batches on this one. `judge` ends
/// by telling them that they are done. The ports as they were left, and what it gave.
///
/// # Panics
/// When a thread does.
pub fn apart<P: Send, L: Send, R>(
    ports: Vec<P>,
    room: usize,
    turn: impl Fn(P, usize, Outlet) -> L + Sync,
    judge: impl FnOnce(&Queue<Arrivals>) -> R,
) -> (Vec<L>, R) {
    std::thread::scope(|scope| {
        let (to_judge, queue) = sync_channel(room);
        let turn = &turn;
        let threads: Vec<_> = ports
            .into_iter()
            .enumerate()
            .map(|(port, own)| {
                let to_judge = to_judge.clone();
                let outlet = Outlet { port, to_judge, waiting: None, held_up: 0, spare: Batch::new() };
                scope.spawn(move || turn(own, port, outlet))
            })
            .collect();
        drop(to_judge);
        let given = judge(&queue);
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(left) => left,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        (joined.collect(), given)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use kaido_engine::FramePool;

    use super::*;

    #[test]
    fn what_finds_no_room_waits_and_nothing_is_received_meanwhile() {
        let pool = FramePool::leak(4).unwrap();
        let (to_judge, queue) = sync_channel(1);
        let mut outlet = Outlet { port: 3, to_judge, waiting: None, held_up: 0, spare: Batch::new() };
        let one = |now_ns: u64| {
            move |batch: &mut Batch| {
                batch.push(pool.allocate().unwrap());
                now_ns
            }
        };
        assert_eq!(outlet.pass(|_| 1), PassResult::Nothing);
        assert_eq!(outlet.pass(one(2)), PassResult::Something);
        assert_eq!(
            (outlet.pass(one(3)), outlet.is_empty(), outlet.held_up()),
            (PassResult::Something, false, 1)
        );
        let never = |_: &mut Batch| unreachable!("something waits");
        assert_eq!((outlet.pass(never), outlet.held_up()), (PassResult::Something, 1));
        let came = queue.recv().unwrap();
        assert_eq!((came.port, came.now_ns, came.batch.len()), (3, 2, 1));
        assert_eq!((outlet.pass(never), outlet.is_empty()), (PassResult::Something, true));
        assert_eq!(queue.recv().unwrap().now_ns, 3);
        drop(queue);
        assert_eq!(outlet.pass(one(4)), PassResult::Ended);
    }

    #[test]
    fn ports_are_turned_until_who_judges_is_done() {
        let pool = FramePool::leak(16).unwrap();
        let is_done = AtomicBool::new(false);
        let turn = |name: &'static str, port: usize, mut outlet: Outlet| {
            let mut turns = 0;
            while !is_done.load(Ordering::Relaxed) {
                outlet.pass(|batch| {
                    batch.extend(pool.allocate());
                    turns
                });
                turns += 1;
            }
            (name, port, outlet.held_up())
        };
        let (left, came) = apart(vec!["a", "b"], 2, turn, |queue| {
            let came: Vec<usize> = queue.iter().take(8).map(|arrivals| arrivals.port).collect();
            is_done.store(true, Ordering::Relaxed);
            came
        });
        assert!(matches!(left[..], [("a", 0, _), ("b", 1, _)]));
        assert_eq!(came.len(), 8);
    }
}
