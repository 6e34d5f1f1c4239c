//! What a router answers; of names and faces it speaks NDN itself.

use kaido_engine::PortTotals;
use kaido_node::api::{Asked, Reply};
use kaido_node::function::{DatapathChoice, FunctionStatus, FunctionView, Traces};
use kaido_node::port_trace::PortTraces;
use serde_json::Value;

use super::api::GetNdn;
use crate::node::client::entries::Workers;
use crate::router::Observer;

/// What forwards.
pub(super) const DATAPATH: &str = "engine";

/// A router, as it is shown.
pub(super) struct RouterView {
    pub(super) router: Observer,
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

    fn answer(&mut self, asked: &Asked) -> Option<Reply> {
        asked.on(|GetNdn {}| Ok(Workers::from(&self.router.sharing())))
    }

    fn traces(&mut self) -> &mut dyn Traces {
        &mut self.traces
    }

    fn turn(&mut self) {
        self.traces.turn();
    }
}
