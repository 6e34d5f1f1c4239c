//! The management thread: an application of the router, over a connection of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use kaido_node::function::ReloadRefusal;
use kaido_wire::ndn::{Name, name_from_uri};
use miette::{IntoDiagnostic, WrapErr, miette};

use super::reload::{FileEntries, InForce, NewFaces, destroy};
use crate::client::Connection;
use crate::host::HostControl;
use crate::mgmt::{Authority, Manager, Node, Rib, Route, Trust, origin};
use crate::node::config::NdnConfig;
use crate::router::RouterNode;

/// What management answers to.
const PREFIXES: [&str; 2] = ["/localhost/nfd", "/localhop/nfd"];

/// What the thread does between two commands.
type Task = Box<dyn FnOnce(&mut Manager<RouterNode>, &mut InForce) + Send>;

/// How long is waited for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The way to the thread.
#[derive(Clone)]
struct Tasks(SyncSender<Task>);

impl Tasks {
    /// Has the thread answer a question.
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Manager<RouterNode>, &mut InForce) -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = sync_channel(1);
        let task: Task = Box::new(move |manager, in_force| {
            // Who asked may have given up.
            let _ = tell.try_send(question(manager, in_force));
        });
        self.0.try_send(task).ok()?;
        told.recv_timeout(PATIENCE).ok()
    }
}

/// The running thread.
pub(super) struct Management {
    stop: Arc<AtomicBool>,
    rib: Arc<Mutex<Rib>>,
    tasks: Tasks,
    thread: JoinHandle<()>,
}

impl Management {
    /// Makes what the file asks for, and starts the thread.
    ///
    /// # Errors
    /// When a face, a route or a strategy of the file cannot be made.
    pub(super) fn start(
        config: &NdnConfig,
        node: RouterNode,
        authority: Authority,
        host: &HostControl,
    ) -> miette::Result<Self> {
        let (own, stream) =
            host.application().into_diagnostic().wrap_err("no connection for the management")?;
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
        let mut in_force = InForce::default();
        let file = FileEntries::of(config);
        let faces = in_force
            .make_faces(&file, manager.node_mut())
            .map_err(|ReloadRefusal { path, why }| miette!("{path}: {why}"))?;
        in_force.take(file, faces, &mut manager).map_err(|faults| miette!("{}", faults.join("\n")))?;
        let rib = manager.shared_rib().clone();
        let (tasks, asked) = sync_channel::<Task>(1);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let turn = move || {
            let mut connection = Connection::over_stream(stream);
            let between = |manager: &mut Manager<RouterNode>| {
                while let Ok(task) = asked.try_recv() {
                    task(manager, &mut in_force);
                }
            };
            if let Err(error) = manager.serve(&mut connection, &stopped, between) {
                tracing::error!(%error, "the management has lost its connection");
            }
        };
        let thread = std::thread::Builder::new().name("management".into()).spawn(turn);
        Ok(Self {
            stop,
            rib,
            tasks: Tasks(tasks),
            thread: thread.into_diagnostic().wrap_err("cannot start the management thread")?,
        })
    }

    /// The routes, for who lists them.
    pub(super) fn rib(&self) -> &Arc<Mutex<Rib>> {
        &self.rib
    }

    /// Why another file cannot take the place of the one that is in force; nothing where it can.
    pub(super) fn refusals(&self, next: FileEntries) -> Vec<ReloadRefusal> {
        let asked = self.tasks.ask(move |manager, in_force| in_force.refusals(&next, manager));
        asked.unwrap_or_else(|| vec![silent()])
    }

    /// A file that may take the place of the one that is in force.
    pub(super) fn ready(&self, next: FileEntries, trust: Trust) -> ReadyFile {
        ReadyFile { next, trust, made: NewFaces::new(), tasks: self.tasks.clone() }
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

/// A file that is to take the place of the one in force. Dropped, it takes back what it has made.
pub(super) struct ReadyFile {
    next: FileEntries,
    trust: Trust,
    made: NewFaces,
    tasks: Tasks,
}

impl ReadyFile {
    /// Makes the faces that the file in force has not.
    ///
    /// # Errors
    /// Why one of them cannot be made.
    pub(super) fn make_faces(&mut self) -> Result<(), Vec<ReloadRefusal>> {
        let next = self.next.clone();
        let made = self.tasks.ask(move |manager, in_force| in_force.make_faces(&next, manager.node_mut()));
        self.made = made.unwrap_or_else(|| Err(silent())).map_err(|refusal| vec![refusal])?;
        Ok(())
    }

    /// Has it take the place of the file in force.
    pub(super) fn take(mut self) {
        let (next, made) = (std::mem::take(&mut self.next), std::mem::take(&mut self.made));
        let trust = std::mem::take(&mut self.trust);
        let take = move |manager: &mut Manager<RouterNode>, in_force: &mut InForce| {
            manager.authority_mut().trust(trust, SystemTime::now());
            in_force.take(next, made, manager)
        };
        match self.tasks.ask(take) {
            Some(Ok(())) => {}
            Some(Err(faults)) => {
                faults.iter().for_each(|fault| tracing::error!(fault, "not all of the file is in force"));
            }
            None => tracing::error!("the management has not taken the file in time"),
        }
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        let made = std::mem::take(&mut self.made);
        if !made.is_empty() && self.tasks.ask(move |manager, _| destroy(&made, manager.node_mut())).is_none()
        {
            tracing::error!("faces of a file that was refused stay");
        }
    }
}

fn silent() -> ReloadRefusal {
    ReloadRefusal { path: "ndn", why: "the management does not answer".to_owned() }
}

/// Registers a route of our own.
fn route(manager: &Manager<RouterNode>, prefix: &[u8], route: Route) -> miette::Result<()> {
    let prefix = Name::new(prefix).into_diagnostic()?;
    let (mut rib, node) = manager.rib();
    rib.register(prefix, route, &mut node.fib()).map_err(|error| miette!("{prefix}: {error}"))
}
