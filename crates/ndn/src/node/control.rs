//! What a router answers. Who changes something speaks NDN with it.

use std::sync::{Arc, Mutex};

use kaido_engine::PortTotals;
use kaido_node::api::Asked;
use kaido_node::function::{Answer, DatapathChoice, FunctionStatus, FunctionView, Part, Traces};
use kaido_node::port_trace::PortTraces;
use serde_json::Value;

use super::tables::Tables;
use crate::mgmt::Rib;
use crate::router::Observer;

/// What forwards.
pub(super) const DATAPATH: &str = "engine";

/// A router, as it is shown.
pub(super) struct RouterView {
    pub(super) router: Observer,
    pub(super) rib: Arc<Mutex<Rib>>,
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

    fn answer_part(&mut self, asked: &Asked, so_far: Option<Part>) -> Option<Answer> {
        Tables { router: &self.router, rib: &self.rib }.answer(asked, so_far)
    }

    fn traces(&mut self) -> &mut dyn Traces {
        &mut self.traces
    }

    fn turn(&mut self) {
        self.traces.turn();
    }
}
