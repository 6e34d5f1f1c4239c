//! What a router shows at the control socket; of names and faces it speaks NDN itself.

use kaido_engine::PortTotals;
use serde_json::Value;

use crate::api::{Answer, TraceQuestion};
use crate::run::function::{DatapathChoice, FunctionStatus, FunctionView};
use crate::run::port_trace::PortTraces;

/// What forwards.
pub(super) const DATAPATH: &str = "engine";

/// A router, as it is shown.
pub(super) struct RouterView {
    pub(super) traces: PortTraces,
}

impl FunctionView for RouterView {
    fn status(&mut self, by_workers: Vec<PortTotals>) -> FunctionStatus {
        let reason = "an NDN router forwards in the engine".to_owned();
        FunctionStatus {
            datapath: DatapathChoice { chosen: DATAPATH, configured: DATAPATH, reason },
            counted: by_workers.into_iter().map(|totals| (totals, (0, 0))).collect(),
            more: Value::Null,
        }
    }

    fn answer(&mut self, _: &Value) -> Option<Value> {
        None
    }

    fn trace(&mut self, question: TraceQuestion) -> Answer {
        self.traces.answer(question)
    }

    fn turn(&mut self) {
        self.traces.turn();
    }
}
