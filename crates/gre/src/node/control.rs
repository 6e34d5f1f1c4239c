//! What a header remover answers.

use std::any::Any;

use kaido_engine::PortTotals;
use kaido_node::api::{Asked, Reply};
use kaido_node::function::{
    DatapathChoice, FunctionStatus, FunctionView, PreparedReload, ReloadRefusal, Traces,
};
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

    fn prepare_reload(&mut self, config: &dyn Any) -> Result<PreparedReload, Vec<ReloadRefusal>> {
        let refusal = |why: String| vec![ReloadRefusal { path: "gre", why }];
        // It is of the type with which this was started.
        let config = config.downcast_ref().ok_or_else(|| refusal("it is no header remover's".to_owned()))?;
        Ok(Box::new(self.rules.prepare(config).map_err(refusal)?))
    }

    fn commit_reload(&mut self, prepared: PreparedReload) {
        if let Ok(prepared) = prepared.downcast() {
            self.rules.take(*prepared);
        }
    }

    fn turn(&mut self) {
        self.traces.turn();
    }
}
