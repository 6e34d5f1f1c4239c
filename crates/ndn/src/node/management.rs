//! The management thread: an application of the router, over a connection of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use kaido_ndn_tables::FaceId;
use kaido_node::config::Spanned;
use kaido_wire::ndn::{Name, name_from_uri};
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::client::Connection;
use crate::face::{FLAG_RELIABILITY, FaceUri, Persistency};
use crate::host::HostControl;
use crate::mgmt::{Authority, FaceRequest, Manager, Node, Rib, Route, origin};
use crate::node::config::{FaceConfig, NdnConfig};
use crate::router::RouterNode;

/// What management answers to.
const PREFIXES: [&str; 2] = ["/localhost/nfd", "/localhop/nfd"];

/// The running thread.
pub(super) struct Management {
    stop: Arc<AtomicBool>,
    rib: Arc<Mutex<Rib>>,
    thread: JoinHandle<()>,
}

impl Management {
    /// Makes what the file asks for, and starts the thread.
    ///
    /// # Errors
    /// When a face, a route or a strategy of the file cannot be made.
    pub(super) fn start(
        config: &NdnConfig,
        mut node: RouterNode,
        authority: Authority,
        host: &HostControl,
    ) -> miette::Result<Self> {
        let (own, stream) =
            host.application().into_diagnostic().wrap_err("no connection for the management")?;
        let faces = faces(config, &mut node)?;
        strategies(config, &mut node)?;
        let mut manager = Manager::new(node, authority, *config.ndn.routes_max.get_ref() as usize);
        for prefix in PREFIXES {
            let name = name_from_uri(prefix).into_diagnostic()?;
            route(
                &manager,
                &name,
                Route {
                    face: own.id(),
                    origin: origin::APP,
                    cost: 0,
                    child_inherit: true,
                    capture: false,
                    expires: None,
                },
            )?;
        }
        for configured in &config.ndn.routes {
            let wanted = configured.get_ref();
            let to = &wanted.to.get_ref().0;
            let Some((_, face)) = faces.iter().find(|(remote, _)| remote == to) else { continue };
            let wanted_route = Route {
                face: *face,
                origin: origin::STATIC,
                cost: wanted.cost.into(),
                child_inherit: wanted.inherit,
                capture: wanted.capture,
                expires: None,
            };
            route(&manager, &wanted.prefix.0, wanted_route)?;
        }
        let rib = manager.shared_rib().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let turn = move || {
            let mut connection = Connection::over_stream(stream);
            if let Err(error) = manager.serve(&mut connection, &stopped) {
                tracing::error!(%error, "the management has lost its connection");
            }
        };
        let thread = std::thread::Builder::new().name("management".into()).spawn(turn);
        Ok(Self {
            stop,
            rib,
            thread: thread.into_diagnostic().wrap_err("cannot start the management thread")?,
        })
    }

    /// The routes, for who lists them.
    pub(super) fn rib(&self) -> &Arc<Mutex<Rib>> {
        &self.rib
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            tracing::error!("the management thread has panicked");
        }
    }
}

/// Makes the faces of the file; their other ends and numbers.
fn faces(config: &NdnConfig, node: &mut RouterNode) -> miette::Result<Vec<(FaceUri, FaceId)>> {
    let make = |face: &Spanned<FaceConfig>| {
        let face = face.get_ref();
        let remote = face.remote.get_ref().0.clone();
        let wish = FaceRequest {
            remote: remote.clone(),
            local: face.local.as_ref().map(|local| local.get_ref().0.clone()),
            persistency: Persistency::Permanent,
            mtu: face.mtu.as_ref().map(|mtu| *mtu.get_ref()),
            flags: if face.reliability { FLAG_RELIABILITY } else { 0 },
        };
        let made = node.create_face(&wish).map_err(|error| miette!("ndn.face: {remote}: {error}"))?;
        Ok((remote, made.id()))
    };
    config.ndn.faces.iter().map(make).collect()
}

/// Chooses the strategies of the file.
fn strategies(config: &NdnConfig, node: &mut RouterNode) -> miette::Result<()> {
    for wanted in &config.ndn.strategies {
        let wanted = wanted.get_ref();
        let Some(choice) = wanted.choice() else { continue };
        let strategy = name_from_uri(&format!("/localhost/nfd/strategy/{choice}")).into_diagnostic()?;
        node.set_strategy(&wanted.prefix.0, &strategy).map_err(|why| {
            miette!("ndn.strategy: {}: {why}", Name::new(&wanted.prefix.0).unwrap_or_default())
        })?;
    }
    Ok(())
}

/// Registers a route of the file, or our own.
fn route(manager: &Manager<RouterNode>, prefix: &[u8], route: Route) -> miette::Result<()> {
    let prefix = Name::new(prefix).into_diagnostic()?;
    let (mut rib, node) = manager.rib();
    rib.register(prefix, route, &mut node.fib()).map_err(|error| miette!("ndn.route: {prefix}: {error}"))
}
