//! What a router answers. Who changes something speaks NDN with it.

use std::any::Any;

use kaido_engine::PortTotals;
use kaido_node::api::Asked;
use kaido_node::function::{
    Answer, DatapathChoice, FunctionStatus, FunctionView, Part, PreparedReload, ReloadRefusal, Traces,
};
use kaido_node::port_trace::PortTraces;
use serde_json::Value;

use super::config::NdnConfig;
use super::keys;
use super::management::{Management, ReadyFile};
use super::reload::FileEntries;
use super::tables::Tables;
use crate::router::Observer;

/// What forwards.
pub(super) const DATAPATH: &str = "engine";

/// A router, as it is shown.
pub(super) struct RouterView<'m> {
    pub(super) router: Observer,
    pub(super) management: &'m Management,
    pub(super) traces: PortTraces,
}

impl FunctionView for RouterView<'_> {
    fn status(&mut self, by_workers: Vec<PortTotals>) -> FunctionStatus {
        let reason = "an NDN router forwards in the engine".to_owned();
        FunctionStatus {
            datapath: DatapathChoice { chosen: DATAPATH, configured: DATAPATH, reason },
            counted: by_workers.into_iter().map(|totals| (totals, (0, 0))).collect(),
            more: Value::Null,
        }
    }

    fn answer_part(&mut self, asked: &Asked, so_far: Option<Part>) -> Option<Answer> {
        Tables { router: &self.router, rib: self.management.rib() }.answer(asked, so_far)
    }

    fn prepare_reload(&mut self, config: &dyn Any) -> Result<PreparedReload, Vec<ReloadRefusal>> {
        // It is of the type with which this was started.
        let Some(config) = config.downcast_ref::<NdnConfig>() else {
            return Err(vec![ReloadRefusal { path: "ndn", why: "it is no router's".to_owned() }]);
        };
        let trust = keys::trust(config)
            .map_err(|error| vec![ReloadRefusal { path: "ndn.management.key", why: error.to_string() }])?;
        let next = FileEntries::of(config);
        let refusals = self.management.refusals(next.clone());
        if refusals.is_empty() { Ok(Box::new(self.management.ready(next, trust))) } else { Err(refusals) }
    }

    fn begin_reload(&mut self, prepared: &mut PreparedReload) -> Result<(), Vec<ReloadRefusal>> {
        prepared.downcast_mut().map_or(Ok(()), ReadyFile::make_faces)
    }

    fn commit_reload(&mut self, prepared: PreparedReload) {
        if let Ok(ready) = prepared.downcast::<ReadyFile>() {
            ready.take();
        }
    }

    fn traces(&mut self) -> &mut dyn Traces {
        &mut self.traces
    }

    fn turn(&mut self) {
        self.traces.turn();
    }
}
