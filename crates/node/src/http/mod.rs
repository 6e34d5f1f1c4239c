//! HTTP of a running node: at the control socket, at the metrics endpoint, and at a socket of its own over TCP.
//!
//! ```text
//!   connections ──▶ this thread ─┬─ questions ──▶ node thread ──▶ functions, between two turns of their control loops
//!                                ├─ /metrics  ──▶ metrics thread
//!                                └─ /healthz, /readyz, documents: answered here
//! ```
//! Whatever a client does, workers and control loops wait for nobody. Clients, their requests and the questions that wait are
//! bounded. A client that is slow, or says nothing, gives way to others.

mod access;
mod answer;
mod asking;
mod connections;
mod control_socket;
pub mod openapi;
mod page;
mod parameters;
mod router;
pub mod service;
mod stream;
mod tls;
mod tokens;
mod watched;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kaido_engine::RateLimit;
use kaido_metrics::Format;
use rustix::process::nice;
use tokio::runtime;
use tokio::sync::{Semaphore, watch};

use self::access::Access;
pub(crate) use self::asking::{Asking, Pending, asking};
use self::connections::{Listener, Protocol};
pub(crate) use self::control_socket::ControlSocket;
use self::tls::{Tls, TlsFiles};
use self::tokens::Tokens;
pub(crate) use self::tokens::{new_token, role_of};
use crate::api::{Asked, Reply, Route};
use crate::board::Health;
use crate::config::ApiConfig;
use crate::sandbox::{self, ThreadKind};
use crate::upgrade::Leaving;

/// How long is waited for clients to be answered, when nobody else is taken in.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Refusals that are logged in a second.
const REFUSALS_LOGGED: u32 = 5;
/// The nice value of threads that serve clients: workers and control loops that need a CPU take it from them.
const NICENESS: i32 = 10;
/// Streams at once: of events and captures.
const STREAMS_MAX: usize = 16;

/// Lowers the priority of the calling thread, which serves clients.
fn stand_back() {
    // Linux has it for each thread.
    if let Err(error) = nice(NICENESS) {
        tracing::warn!(%error, "clients are served at the priority of packets and of the control plane");
    }
}

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
    /// Refusals that are logged.
    refusals: Mutex<RateLimit>,
}

/// The API's own socket: who may ask there, and by which certificates.
pub(crate) struct ApiSocket {
    listener: TcpListener,
    tokens: Arc<Tokens>,
    tls: Option<Arc<Tls>>,
}

impl ApiSocket {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn open(listener: TcpListener, config: &ApiConfig) -> Result<Self, String> {
        let tokens = config.tokens.clone().unwrap_or_default();
        let tokens = Tokens::open(tokens).map_err(|why| format!("api.tokens: {why}"))?;
        let files = config.tls_certificate.clone().zip(config.tls_key.clone());
        let files = files.map(|(certificate, key): (PathBuf, PathBuf)| TlsFiles {
            section: "api",
            protocol: b"http/1.1",
            certificate,
            key,
            client_ca: config.client_ca.clone(),
        });
        let tls = files.map(|files| Tls::open(files).map(Arc::new)).transpose()?;
        if tls.is_none() {
            tracing::warn!(
                "api.listen: without TLS, on a loopback: who can watch this host's own traffic reads tokens"
            );
        }
        Ok(Self { listener, tokens: Arc::new(tokens), tls })
    }

    /// The listening socket.
    pub(crate) const fn listener(&self) -> &TcpListener {
        &self.listener
    }
}

/// Where is listened over TCP.
#[derive(Default)]
pub(crate) struct TcpSockets {
    /// Where the node is scraped.
    pub(crate) metrics: Option<TcpListener>,
    pub(crate) api: Option<ApiSocket>,
}

impl TcpSockets {
    /// All of them.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &TcpListener> {
        self.metrics.iter().chain(self.api.iter().map(ApiSocket::listener))
    }
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
    /// Serves at the control socket, and over TCP where there are sockets for it. `is_restricted` says whether its thread gives up what it
    /// has no use for.
    ///
    /// # Errors
    /// When thread or runtime cannot be made.
    pub(crate) fn start(
        control: &UnixListener,
        sockets: TcpSockets,
        sources: Sources,
        door: Door,
        is_restricted: bool,
    ) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let control = control.try_clone()?;
        let document = openapi::document(&sources.routes).to_string();
        let admission = door.admission.subscribe();
        let streams = Arc::new(Semaphore::new(STREAMS_MAX));
        let refusals = Mutex::new(RateLimit::new(REFUSALS_LOGGED));
        let served = Served { sources, document, streams, admission: admission.clone(), refusals };
        let counted = door.connections.clone();
        let serve = async move || {
            let served = Arc::new(served);
            let all = match listeners(&control, sockets) {
                Ok(all) => all,
                Err(error) => return tracing::error!(%error, "HTTP cannot be served"),
            };
            let each = all.into_iter().map(|(listener, access)| {
                let router = router::router(&served, access);
                connections::serve(listener, Protocol::Http1, router, admission.clone(), counted.clone())
            });
            join_all(each).await;
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
            stand_back();
            if is_restricted {
                sandbox::restrict(ThreadKind::Http);
            }
            runtime.block_on(serve());
        })?;
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

/// All sockets, with what may be done there.
fn listeners(control: &UnixListener, sockets: TcpSockets) -> io::Result<Vec<(Listener, Access)>> {
    let TcpSockets { metrics, api } = sockets;
    let mut all = vec![(Listener::unix(control)?, Access::of_control_socket())];
    if let Some(metrics) = metrics {
        let access = Access::of_metrics(metrics.local_addr()?.ip());
        all.push((Listener::tcp(metrics, None)?, access));
    }
    if let Some(ApiSocket { listener, tokens, tls }) = api {
        let access = Access::of_api(listener.local_addr()?.ip(), tokens);
        all.push((Listener::tcp(listener, tls)?, access));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
