//! Questions from the HTTP thread to another one, which answers them in its turn.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use kaido_engine::Notifier;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::api::Problem;
use crate::questions;

/// Questions that may wait.
const WAITING_MAX: usize = 64;
/// Longest wait for an answer: a little longer than that thread waits for a function's.
const PATIENCE: Duration = questions::PATIENCE.saturating_add(Duration::from_millis(500));

/// A question, and where its answer goes.
pub(crate) struct Pending<Q, A> {
    question: Q,
    answer: oneshot::Sender<A>,
}

impl<Q, A> Pending<Q, A> {
    /// Answers it. Who has given up meanwhile needs no answer.
    pub(crate) fn answer(self, answer: impl FnOnce(Q) -> A) {
        let _ = self.answer.send(answer(self.question));
    }
}

/// The end of who asks.
pub(crate) struct Asking<Q, A> {
    pending: SyncSender<Pending<Q, A>>,
    notifier: Option<Arc<Notifier>>,
}

impl<Q, A> Clone for Asking<Q, A> {
    fn clone(&self) -> Self {
        Self { pending: self.pending.clone(), notifier: self.notifier.clone() }
    }
}

/// Both ends; `notifier` is told of each question.
pub(crate) fn asking<Q, A>(notifier: Option<Arc<Notifier>>) -> (Asking<Q, A>, Receiver<Pending<Q, A>>) {
    let (pending, questions) = sync_channel(WAITING_MAX);
    (Asking { pending, notifier }, questions)
}

impl<Q, A> Asking<Q, A> {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`Problem::unavailable`] when too much is asked, or there is no answer in time.
    pub(crate) async fn ask(&self, question: Q) -> Result<A, Problem> {
        let answer = self.begin(question).ok_or_else(busy)?;
        timeout(PATIENCE, answer).await.ok().and_then(Result::ok).ok_or_else(silent)
    }

    /// Asks, and does not wait.
    pub(crate) fn begin(&self, question: Q) -> Option<oneshot::Receiver<A>> {
        let (answer, answered) = oneshot::channel();
        self.pending.try_send(Pending { question, answer }).ok()?;
        if let Some(notifier) = &self.notifier {
            notifier.notify();
        }
        Some(answered)
    }
}

fn busy() -> Problem {
    Problem::unavailable("the node is asked too much: ask again later".to_owned())
}

fn silent() -> Problem {
    Problem::unavailable("the node does not answer in time".to_owned())
}
