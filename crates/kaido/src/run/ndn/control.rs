//! What a router shows at the control socket; of names and faces it speaks NDN itself.

use kaido_engine::PortTotals;

use crate::api::{Answer, Question};
use crate::run::control::{CountedTraffic, FunctionView};

/// A router, as it is shown.
pub(super) struct RouterView;

impl FunctionView for RouterView {
    const FUNCTION: &'static str = "ndn";

    fn datapath(&self) -> [&'static str; 3] {
        ["engine", "engine", "an NDN router forwards in the engine"]
    }

    fn counted(&self, by_workers: Vec<PortTotals>) -> Vec<CountedTraffic> {
        by_workers.into_iter().map(|totals| (totals, (0, 0))).collect()
    }

    fn answer(&self, _: Question) -> Answer {
        Answer::Error { message: "this node routes NDN: ask it with `kaido ndn`".to_owned() }
    }
}
