//! What a router shows at the control socket; of names and faces it speaks NDN itself.

use kaido_engine::PortTotals;

use crate::api::{Answer, Question};
use crate::run::control::{Counted, Shows};

/// A router, as it is shown.
pub(super) struct ShownRouter;

impl Shows for ShownRouter {
    const FUNCTION: &'static str = "ndn";

    fn datapath(&self) -> &'static str {
        "engine"
    }

    fn counted(&self, by_workers: Vec<PortTotals>) -> Vec<Counted> {
        by_workers.into_iter().map(|totals| (totals, (0, 0))).collect()
    }

    fn answer(&self, question: Question) -> Answer {
        let message = match question {
            Question::Trace(_) => {
                "this node routes NDN, and has no sessions whose packets could be traced; `kaido drops` counts packets by reason, \
                 `kaido ndn face list` by face"
            }
            _ => "this node routes NDN: ask it with `kaido ndn`",
        };
        Answer::Error { message: message.to_owned() }
    }
}
