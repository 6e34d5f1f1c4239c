//! HTTP of a running node, at the control socket and at the metrics endpoint.
//!
//! ```text
//!   connections ──▶ this thread ─┬─ questions ──▶ node thread ──▶ functions, between two turns of their control loops
//!                                ├─ /metrics  ──▶ metrics thread
//!                                └─ /healthz, /readyz, documents: answered here
//! ```
//! Whatever a client does, workers and control loops wait for nobody: clients, their requests and the questions that wait are bounded,
//! and a client that is slow, or says nothing, gives way to others.

mod access;
mod asking;
mod connections;
mod control_socket;
pub mod openapi;
mod parameters;
mod router;
mod stream;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kaido_metrics::Format;
use tokio::runtime;
use tokio::sync::{Semaphore, watch};

use self::access::Access;
pub(crate) use self::asking::{Asking, Pending, asking};
pub(crate) use self::control_socket::ControlSocket;
use crate::api::{Asked, Reply, Route};
use crate::board::Health;
use crate::upgrade::Leaving;

/// How long is waited for clients to be answered, when nobody else is taken in.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Streams at once: of events and captures.
const STREAMS_MAX: usize = 16;

/// What is served from.
pub(crate) struct Sources {
    /// The node thread.
    pub(crate) node: Asking<Asked, Reply>,
    /// The metrics thread.
    pub(crate) metrics: Asking<Format, Option<String>>,
    pub(crate) health: Health,
    pub(crate) leaving: Leaving,
    /// What may be asked.
    pub(crate) routes: Vec<Route>,
    /// Names of the functions.
    pub(crate) functions: Vec<&'static str>,
}

/// A [`Sources`] and what else handlers share.
struct Served {
    sources: Sources,
    /// The OpenAPI document.
    document: String,
    streams: Arc<Semaphore>,
    admission: watch::Receiver<Admission>,
}

/// Whether who connects is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Open,
    /// Nobody is; who was is answered.
    Closed,
    /// The same, and then the thread ends.
    Stopped,
}

/// Waits until nobody is to be taken in any more.
async fn closing(admission: &mut watch::Receiver<Admission>) {
    // Who could say so is gone otherwise, which is as much.
    let _ = admission.wait_for(|admission| *admission != Admission::Open).await;
}

/// Has the server take in nobody any more.
#[derive(Clone)]
pub(crate) struct Door {
    admission: Arc<watch::Sender<Admission>>,
    connections: Arc<AtomicUsize>,
}

impl Door {
    /// Of a server that is [started](Server::start) with it.
    pub(crate) fn new() -> Self {
        Self { admission: Arc::new(watch::channel(Admission::Open).0), connections: Arc::default() }
    }

    /// Has nobody be taken in any more; waits a while until who was has been answered.
    pub(crate) fn close(&self) {
        self.admission.send_replace(Admission::Closed);
        let began = Instant::now();
        while self.connections.load(Ordering::Acquire) > 0 && began.elapsed() < DRAIN_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The thread that serves.
pub(crate) struct Server {
    door: Door,
    thread: JoinHandle<()>,
}

impl Server {
    /// Serves at the control socket, and at the metrics endpoint if there is one.
    ///
    /// # Errors
    /// When thread or runtime cannot be made.
    pub(crate) fn start(
        control: &UnixListener,
        metrics: Option<TcpListener>,
        sources: Sources,
        door: Door,
    ) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let control = control.try_clone()?;
        let document = openapi::document(&sources.routes).to_string();
        let admission = door.admission.subscribe();
        let streams = Arc::new(Semaphore::new(STREAMS_MAX));
        let served = Arc::new(Served { sources, document, streams, admission: admission.clone() });
        let counted = door.connections.clone();
        let serve = async move || {
            let all = router::router(&served, Access::CONTROL_SOCKET);
            let control = connections::serve_unix(control, all, admission.clone(), counted.clone());
            let scrapes = async {
                let Some(metrics) = metrics else { return Ok(()) };
                let router = router::router(&served, Access::of_metrics(&metrics));
                connections::serve_tcp(metrics, router, admission.clone(), counted.clone()).await
            };
            let (control, scrapes) = tokio::join!(control, scrapes);
            if let Err(error) = control.and(scrapes) {
                tracing::error!(%error, "HTTP cannot be served");
            }
        };
        let thread =
            std::thread::Builder::new().name("http".to_owned()).spawn(move || runtime.block_on(serve()))?;
        Ok(Self { door, thread })
    }

    /// Stops it, once clients are answered, or a second has passed.
    pub(crate) fn stop(self) {
        self.door.admission.send_replace(Admission::Stopped);
        if self.thread.join().is_err() {
            tracing::error!("the HTTP thread has panicked");
        }
    }
}

#[cfg(test)]
mod tests;
