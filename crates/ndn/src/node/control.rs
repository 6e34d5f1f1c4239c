//! What a router shows at the control socket; of names and faces it speaks NDN itself.

use kaido_engine::PortTotals;
use kaido_node::api::{Answer, TraceQuestion};
use kaido_node::function::{DatapathChoice, FunctionStatus, FunctionView};
use kaido_node::port_trace::PortTraces;
use serde_json::Value;

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
