//! What a header remover answers.

use kaido_engine::PortTotals;
use kaido_node::api::{Asked, Reply};
use kaido_node::function::{DatapathChoice, FunctionStatus, FunctionView, Traces};
use kaido_node::port_trace::PortTraces;
use serde_json::Value;

use super::api::GetGre;
use super::rules::{Rules, forwarded};

/// A header remover, as it is shown.
pub(super) struct GreView {
    pub(super) datapath: DatapathChoice,
    pub(super) rules: Rules,
    pub(super) traces: PortTraces,
}

impl FunctionView for GreView {
    fn status(&mut self, by_workers: Vec<PortTotals>) -> FunctionStatus {
        let in_kernel = self.rules.in_kernel();
        let port = |(at, mut totals): (usize, PortTotals)| {
            self.rules.add_to(at, &mut totals, &in_kernel);
            let own = in_kernel.get(at).and_then(Option::as_ref);
            (totals, own.map(|own| (forwarded(own), own.octets_sent)).unwrap_or_default())
        };
        FunctionStatus {
            datapath: self.datapath.clone(),
            counted: by_workers.into_iter().enumerate().map(port).collect(),
            more: Value::Null,
        }
    }

    fn answer(&mut self, asked: &Asked) -> Option<Reply> {
        asked.on(|GetGre {}| Ok(self.rules.status()))
    }

    fn traces(&mut self) -> &mut dyn Traces {
        &mut self.traces
    }

    fn turn(&mut self) {
        self.traces.turn();
    }
}
