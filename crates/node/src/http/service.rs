//! A service of a function at a socket of its own, over HTTP/2: with prior knowledge, or by ALPN over TLS.
//!
//! ```text
//!   connections ──▶ who asks? ──▶ the function's handler ──▶ answer        one thread, beside what else the service does
//! ```
//! Who may ask is what `[api]` has for its own socket: tokens, or certificates of clients.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
pub use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::HOST;
pub use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use kaido_engine::RateLimit;
use tokio::runtime;
use tokio::time::timeout;

use super::access::{Access, Peer};
use super::answer::refused;
use super::connections::{self, Listener, Protocol};
use super::tls::{Tls, TlsFiles};
use super::tokens::Tokens;
use super::{Admission, Door, REFUSALS_LOGGED, stand_back};
use crate::api::{Problem, Role};

/// Octets of the body of a refused request that are taken and dropped, and how long that may take.
const REST_MAX: usize = 1 << 20;
const REST_PATIENCE: Duration = Duration::from_secs(1);

/// Names that are looked up at once.
const BLOCKING_MAX: usize = 4;

/// Files of a service's section.
#[derive(Clone, Debug)]
pub struct ServiceFiles {
    /// Who may ask: those with the role `read`, or more.
    pub tokens: PathBuf,
    /// Certificate and key of the node; without them TLS is not spoken.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Who signs certificates of clients.
    pub client_ca: Option<PathBuf>,
}

/// A request of somebody who is known.
#[derive(Debug)]
pub struct ServiceRequest {
    /// What is asked.
    pub request: Request,
    /// The name of who asks, as the file of tokens has it.
    pub caller: Arc<str>,
    /// Scheme, host and port that were asked.
    pub root: String,
}

/// What becomes of a request, later.
pub type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Where a service listens.
pub struct ServiceSocket {
    listener: TcpListener,
    address: SocketAddr,
    tokens: Arc<Tokens>,
    tls: Option<Arc<Tls>>,
}

impl ServiceSocket {
    /// Reads the files that a section of the configuration names.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn open(section: &'static str, listener: TcpListener, files: ServiceFiles) -> Result<Self, String> {
        let named = |why: String| format!("{section}.tokens: {why}");
        let tokens = Arc::new(Tokens::open(files.tokens).map_err(named)?);
        let address = listener.local_addr().map_err(|error| format!("{section}.listen: {error}"))?;
        let tls = files.tls.map(|(certificate, key)| TlsFiles {
            section,
            protocol: b"h2",
            certificate,
            key,
            client_ca: files.client_ca,
        });
        let tls = tls.map(|files| Tls::open(files).map(Arc::new)).transpose()?;
        if tls.is_none() {
            tracing::warn!(
                "{section}.listen: without TLS, on a loopback: who can watch this host's own traffic reads tokens"
            );
        }
        Ok(Self { listener, address, tokens, tls })
    }

    /// The listening socket.
    pub const fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// Where it listens.
    pub const fn address(&self) -> IpAddr {
        self.address.ip()
    }

    /// Serves in a thread of that name, and does `beside` there too.
    ///
    /// # Errors
    /// When thread or runtime cannot be made.
    pub fn start(
        self,
        name: &str,
        handler: impl Fn(ServiceRequest) -> Answering + Send + Sync + 'static,
        beside: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<ServiceThread> {
        let mut builder = runtime::Builder::new_current_thread();
        let runtime = builder.enable_io().enable_time().max_blocking_threads(BLOCKING_MAX).build()?;
        let door = Door::new();
        let (admission, count) = (door.admission.subscribe(), door.connections.clone());
        let Self { listener, address, tokens, tls } = self;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let gate = Arc::new(Gate {
            access: Access::of_api(address.ip(), tokens),
            refusals: Mutex::new(RateLimit::new(REFUSALS_LOGGED)),
            handler: Box::new(handler),
            scheme,
            address,
        });
        let serve = async move || {
            let listener = match Listener::tcp(listener, tls) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, "a service cannot be served"),
            };
            tokio::spawn(beside);
            let router = Router::new().fallback(async move |request: Request| gate.admit(request).await);
            connections::serve(listener, Protocol::Http2, router, admission, count).await;
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            stand_back();
            runtime.block_on(serve());
            // A name that is being looked up keeps nobody.
            runtime.shutdown_background();
        })?;
        Ok(ServiceThread { door, thread: Some(thread) })
    }
}

/// The thread of a service, for as long as this is held.
pub struct ServiceThread {
    door: Door,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ServiceThread {
    /// Stops it, once clients are answered, or a second has passed.
    fn drop(&mut self) {
        self.door.admission.send_replace(Admission::Stopped);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of a service has panicked");
        }
    }
}

/// Who comes in.
struct Gate {
    access: Access,
    /// Refusals that are logged.
    refusals: Mutex<RateLimit>,
    handler: Box<dyn Fn(ServiceRequest) -> Answering + Send + Sync>,
    scheme: &'static str,
    address: SocketAddr,
}

impl Gate {
    async fn admit(&self, request: Request) -> Response {
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        // HTTP/2 names the host in the URI (RFC 9113 8.3.1).
        let named = request.uri().authority().map(ToString::to_string);
        let named = named.or_else(|| request.headers().get(HOST)?.to_str().ok().map(str::to_owned));
        let response = match self.known(request.headers(), &peer, named.as_deref()).await {
            Ok(caller) => {
                let host = named.unwrap_or_else(|| self.address.to_string());
                let root = format!("{}://{host}", self.scheme);
                return (self.handler)(ServiceRequest { request, caller, root }).await;
            }
            Err(problem) => {
                // Some clients see an error in the place of an answer that comes before they have sent all.
                let rest = Limited::new(request.into_body(), REST_MAX).collect();
                let _ = timeout(REST_PATIENCE, rest).await;
                refused(&problem)
            }
        };
        if self.refusals.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now()) {
            let (who, status) = (peer.place, response.status().as_u16());
            tracing::warn!(who, %method, path, status, "a request was refused");
        }
        response
    }

    async fn known(&self, headers: &HeaderMap, peer: &Peer, host: Option<&str>) -> Result<Arc<str>, Problem> {
        self.access.check_named(host)?;
        match self.access.known(headers, peer).await? {
            Some(known) if known.role >= Role::Read => Ok(known.name),
            Some(_) => Err(Problem::forbidden("this needs the role read".to_owned())),
            None => Err(Problem::unauthorized(
                "show a token, with `Authorization: Bearer TOKEN`, or a certificate".to_owned(),
            )),
        }
    }
}
