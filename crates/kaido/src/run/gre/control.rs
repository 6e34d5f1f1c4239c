//! What a header remover shows at the control socket.

use kaido_engine::PortTotals;

use super::rules::{Rules, forwarded};
use crate::api::{Answer, Question};
use crate::run::control::{CountedTraffic, FunctionView};

/// A header remover, as it is shown.
pub(super) struct GreView {
    /// What forwards, what `node.datapath` says, and why it is that.
    pub(super) datapath: [&'static str; 3],
    pub(super) rules: Rules,
}

impl FunctionView for GreView {
    const FUNCTION: &'static str = "gre";

    fn datapath(&self) -> [&'static str; 3] {
        self.datapath
    }

    fn counted(&self, by_workers: Vec<PortTotals>) -> Vec<CountedTraffic> {
        let in_kernel = self.rules.in_kernel();
        let port = |(at, mut totals): (usize, PortTotals)| {
            self.rules.add_to(at, &mut totals, &in_kernel);
            let own = in_kernel.get(at).and_then(Option::as_ref);
            (totals, own.map(|own| (forwarded(own), own.octets_sent)).unwrap_or_default())
        };
        by_workers.into_iter().enumerate().map(port).collect()
    }

    fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Gre => Answer::Gre(self.rules.status()),
            _ => Answer::Error { message: "this node removes GRE headers, and has no sessions".to_owned() },
        }
    }
}
