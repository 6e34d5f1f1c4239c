//! Which datapath the user plane takes: what `node.datapath` says, and for `auto` what ports, kernel and memory allow.

use kaido_engine::FramePool;
use kaido_node::config::Datapath;
use kaido_node::ports::Device;
use kaido_upf_xdp::Offload;
use kaido_upf_xdp::offload::FrameLosses;
use kaido_xsk::BindMode;

use super::UpfStartFault;
use super::choice::{PortFacts, by_ports};
use super::memory::{self, Memory};
use super::offload;
use crate::config::UpfConfig;

/// The datapath, and why it is that.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// What the configuration says.
    pub(super) configured: Datapath,
    /// What is done: not `auto`.
    pub(super) chosen: Datapath,
    pub(super) reason: String,
}

impl Choice {
    /// The workers forward, as the node has chosen.
    pub(super) fn engine(reason: &str) -> Self {
        Self { configured: Datapath::Auto, chosen: Datapath::Engine, reason: reason.to_owned() }
    }

    /// Whether the kernel forwards.
    pub(super) fn is_kernel(&self) -> bool {
        self.chosen != Datapath::Engine
    }

    /// Says it, once.
    pub(super) fn log(&self) {
        let (configured, chosen, reason) = (self.configured.name(), self.chosen.name(), &self.reason);
        tracing::info!(configured, chosen, reason, "the datapath");
    }
}

/// The tables of the datapath in the kernel, and what counts the frames that devices do not take from it.
pub(super) struct Tables {
    pub(super) offload: Offload,
    /// None where the kernel does not let us count.
    pub(super) losses: Option<FrameLosses>,
}

/// The datapath that a configuration asks for, with its tables where it is the kernel's; `None` where the node is to choose.
///
/// # Errors
/// When the kernel refuses the tables.
pub(super) fn asked_for(config: &UpfConfig) -> Result<Option<(Choice, Option<Tables>)>, UpfStartFault> {
    let configured = *config.base.node.datapath.get_ref();
    let tables = match configured {
        Datapath::Auto => return Ok(None),
        Datapath::Engine => None,
        Datapath::Xdp | Datapath::Hybrid => {
            let fault = |error: kaido_xdp::Error| UpfStartFault::Datapath { fault: error.to_string() };
            let offload = Offload::load(&offload::config(config)).map_err(fault)?;
            let losses = offload.count_losses();
            let losses =
                losses.map_err(|error| tracing::warn!(%error, "frames lost in the kernel are not counted"));
            Some(Tables { offload, losses: losses.ok() })
        }
    };
    let reason = "node.datapath says so".to_owned();
    Ok(Some((Choice { configured, chosen: configured, reason }, tables)))
}

/// The datapath that `auto` chooses by the ports, whose sockets are open.
pub(super) fn choose(config: &UpfConfig, devices: &[Device], pool: &FramePool) -> (Choice, Option<Tables>) {
    match automatic(config, devices, pool) {
        Ok((reason, tables)) => {
            (Choice { configured: Datapath::Auto, chosen: Datapath::Xdp, reason }, Some(tables))
        }
        Err(reason) => (Choice::engine(&reason), None),
    }
}

/// The tables and why the kernel is to forward; or why not.
fn automatic(config: &UpfConfig, devices: &[Device], pool: &FramePool) -> Result<(String, Tables), String> {
    let facts = devices.iter().zip(&config.ports).map(|(Device { config, mode, .. }, of_port)| PortFacts {
        config,
        of_port,
        copies: mode.map(|mode| mode != BindMode::ZeroCopy),
    });
    let advice = by_ports(&facts.collect::<Vec<_>>());
    if !advice.is_kernel {
        return Err(advice.reason);
    }
    if let Some(short) = no_room_for_tables(config, (pool.frames() * pool.frame_size().bytes()) as u64) {
        return Err(short);
    }
    let refused = |error: kaido_xdp::Error| format!("the kernel does not take the datapath: {error}");
    let offload = Offload::load(&offload::config(config)).map_err(refused)?;
    // What the kernel loses must be counted, or nobody would know.
    let losses = offload.count_losses().map_err(refused)?;
    Ok((advice.reason, Tables { offload, losses: Some(losses) }))
}

/// Why there is no room for the kernel's tables beside `frames` octets of the frame pool; `None` where there is, or nobody tells.
pub(crate) fn no_room_for_tables(config: &UpfConfig, frames: u64) -> Option<String> {
    let sessions = *config.node.sessions_max.get_ref();
    let short = memory::no_room(sessions, frames, offload::config(config).bytes(), Memory::read()?);
    short.map(|short| format!("node.sessions_max: {short}"))
}
