//! Questions to the control loop of a function, which answers them between two turns.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use kaido_engine::Notifier;

use super::view::FunctionView;

/// Questions that may wait.
const WAITING_MAX: usize = 16;
/// Longest wait for an answer: less than a client waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);

/// When a turn takes no further question.
const SERVE_MAX: Duration = Duration::from_micros(500);

type Question = Box<dyn FnOnce(&mut dyn FunctionView) + Send>;

/// The end of whoever asks.
#[derive(Clone)]
pub(crate) struct QuestionSender {
    questions: SyncSender<Question>,
    notifier: Arc<Notifier>,
}

/// The end of the control loop.
pub(crate) struct QuestionQueue {
    questions: Receiver<Question>,
    /// The question that was found while looking whether there is one.
    next: RefCell<Option<Question>>,
    notifier: Arc<Notifier>,
}

/// Both ends.
///
/// # Errors
/// When the kernel has no more descriptors.
pub(crate) fn questions() -> std::io::Result<(QuestionSender, QuestionQueue)> {
    let notifier = Notifier::new()?;
    let (ask, questions) = sync_channel(WAITING_MAX);
    let queue = QuestionQueue { questions, next: RefCell::default(), notifier: notifier.clone() };
    Ok((QuestionSender { questions: ask, notifier }, queue))
}

impl QuestionSender {
    /// Has the control loop answer; `None` when it has ended or takes too long.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn FunctionView) -> T + Send + 'static,
    ) -> Option<T> {
        self.begin(question)?.recv_timeout(PATIENCE).ok()
    }

    /// As [`Self::ask`], without waiting for the answer; `None` when the control loop has ended.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn FunctionView) -> T + Send + 'static,
    ) -> Option<Receiver<T>> {
        let (answer, answered) = sync_channel(1);
        let question: Question = Box::new(move |view| {
            // Who has given up meanwhile needs no answer.
            let _ = answer.try_send(question(view));
        });
        self.questions.try_send(question).ok()?;
        self.notifier.notify();
        Some(answered)
    }

    /// Wakes the control loop.
    pub(crate) fn notify(&self) {
        self.notifier.notify();
    }
}

impl QuestionQueue {
    /// What wakes the control loop.
    pub(crate) const fn notifier(&self) -> &Arc<Notifier> {
        &self.notifier
    }

    /// Whether nothing was asked.
    pub(crate) fn is_empty(&self) -> bool {
        let mut next = self.next.borrow_mut();
        if next.is_none() {
            *next = self.questions.try_recv().ok();
        }
        next.is_none()
    }

    /// Answers what was asked, or some of it where that takes longer than the loop's other work should wait.
    pub(crate) fn serve(&mut self, view: &mut dyn FunctionView) {
        let began = Instant::now();
        let found = self.next.take();
        for question in found.into_iter().chain(self.questions.try_iter()) {
            question(view);
            // Who gets a part of an answer may ask for the next before this ends.
            if began.elapsed() >= SERVE_MAX {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kaido_engine::PortTotals;
    use serde_json::Value;

    use super::*;
    use crate::function::{DatapathChoice, FunctionStatus, Traces};

    struct Named(&'static str);

    impl FunctionView for Named {
        fn status(&mut self, _: Vec<PortTotals>) -> FunctionStatus {
            let datapath = DatapathChoice { chosen: self.0, configured: "auto", reason: String::new() };
            FunctionStatus { datapath, counted: Vec::new(), more: Value::Null }
        }

        fn traces(&mut self) -> &mut dyn Traces {
            unreachable!("nobody traces")
        }
    }

    fn name(view: &mut dyn FunctionView) -> &'static str {
        view.status(Vec::new()).datapath.chosen
    }

    #[test]
    fn a_question_wakes_the_loop_and_is_answered() {
        let (sender, mut queue) = questions().unwrap();
        assert!(queue.is_empty());
        let asking = std::thread::spawn(move || sender.ask(name));
        while queue.is_empty() {
            std::thread::yield_now();
        }
        queue.serve(&mut Named("engine"));
        assert_eq!(asking.join().unwrap(), Some("engine"));
        assert!(queue.is_empty());
    }

    #[test]
    fn who_asks_a_loop_that_has_ended_is_told() {
        let (sender, queue) = questions().unwrap();
        drop(queue);
        assert!(sender.ask(name).is_none());
    }
}
