//! Connections: taken in, served, and shown out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::process::geteuid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout, timeout_at};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::access::Peer;
use super::tls::Tls;
use super::tokens::fingerprint;
use super::{Admission, DRAIN_MAX, closing};

/// Connections at once, at each socket. One more takes the place of the one that has been idle longest.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send the head of a request, and to begin another one.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may take nothing of an answer.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// Most octets of a request's head.
const HEAD_MAX: usize = 16 << 10;
/// The same over HTTP/2, where they are counted as RFC 9113 6.5.2 has it.
const HEAD_MAX_HTTP2: u32 = 16 << 10;
/// Most fields in it.
const HEADERS_MAX: usize = 64;
/// Pause where descriptors have run out.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a client over HTTP/2 may say nothing, not even that it is there, which it is asked before.
const SILENCE: Duration = Duration::from_secs(30);
/// After how long it is asked, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Most requests of a client over HTTP/2 at once.
const STREAMS_MAX: u32 = 32;

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    /// With prior knowledge, or by ALPN over TLS.
    Http2,
}

/// A listening socket.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener, Option<Arc<Tls>>),
}

/// A client that has connected.
enum Arrived {
    Unix(UnixStream),
    Tcp(TcpStream, SocketAddr, Option<Arc<Tls>>),
}

impl Listener {
    /// A Unix socket.
    pub(super) fn unix(listener: &std::os::unix::net::UnixListener) -> io::Result<Self> {
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(Self::Unix)
    }

    /// A TCP socket.
    pub(super) fn tcp(listener: std::net::TcpListener, tls: Option<Arc<Tls>>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(|listener| Self::Tcp(listener, tls))
    }

    async fn accept(&self) -> io::Result<Arrived> {
        match self {
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Arrived::Unix(stream)),
            Self::Tcp(listener, tls) => {
                listener.accept().await.map(|(stream, from)| Arrived::Tcp(stream, from, tls.clone()))
            }
        }
    }
}

impl Arrived {
    /// The stream of requests, and what is known of its other end; none where it speaks no TLS, or too slowly.
    async fn open(self) -> Option<(Pin<Box<dyn Stream>>, Peer)> {
        match self {
            Self::Unix(stream) => {
                let credentials = stream.peer_cred().ok();
                let place = credentials.map(|peer| match peer.pid() {
                    Some(pid) => format!("user {}, process {pid}", peer.uid()),
                    None => format!("user {}", peer.uid()),
                });
                let is_owner = credentials.is_some_and(|peer| [0, geteuid().as_raw()].contains(&peer.uid()));
                let peer = Peer { place: place.unwrap_or_default(), is_owner, ..Peer::default() };
                Some((Box::pin(stream), peer))
            }
            Self::Tcp(stream, from, None) => {
                Some((Box::pin(stream), Peer { place: from.to_string(), ..Peer::default() }))
            }
            Self::Tcp(stream, from, Some(tls)) => {
                let handshake = TlsAcceptor::from(tls.config()).accept(stream);
                let stream = timeout(HEAD_PATIENCE, handshake).await.ok()?.ok()?;
                let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let certificate = certificate.map(|certificate| fingerprint(certificate));
                Some((Box::pin(stream), Peer { place: from.to_string(), certificate, is_owner: false }))
            }
        }
    }
}

/// Octets both ways.
trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// Serves a socket until nobody is to be taken in any more, and who was has been answered.
pub(super) async fn serve(
    listener: Listener,
    protocol: Protocol,
    router: Router,
    admission: watch::Receiver<Admission>,
    count: Arc<AtomicUsize>,
) {
    Connections::new(protocol, router, admission, count).serve(&listener).await;
}

/// Who has connected to a socket.
struct Connections {
    protocol: Protocol,
    router: Router,
    admission: watch::Receiver<Admission>,
    /// Of all sockets.
    count: Arc<AtomicUsize>,
    tasks: JoinSet<u64>,
    /// By number: those that came first are first.
    connected: BTreeMap<u64, Connected>,
    next: u64,
}

struct Connected {
    abort: AbortHandle,
    /// Requests that are being answered.
    busy: Arc<AtomicUsize>,
}

impl Connections {
    fn new(
        protocol: Protocol,
        router: Router,
        admission: watch::Receiver<Admission>,
        count: Arc<AtomicUsize>,
    ) -> Self {
        let (tasks, connected) = (JoinSet::new(), BTreeMap::new());
        Self { protocol, router, admission, count, tasks, connected, next: 0 }
    }

    async fn serve(mut self, listener: &Listener) {
        while *self.admission.borrow() == Admission::Open {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(arrived) => self.admit(arrived),
                    // Descriptors have run out, most likely: give one back, and do not turn at full speed meanwhile.
                    Err(_) => {
                        self.evict();
                        sleep(PAUSE).await;
                    }
                },
                Some(ended) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => self.forget(ended.ok()),
                // Without who changes it there is nothing to wait for but the end of the process.
                _ = self.admission.changed() => {}
            }
        }
        self.drain().await;
        // Another socket of this thread may still have clients.
        let _ = self.admission.wait_for(|admission| *admission == Admission::Stopped).await;
    }

    /// Waits until who is here has been answered.
    async fn drain(&mut self) {
        let ends = tokio::time::Instant::now() + DRAIN_MAX;
        while let Ok(Some(ended)) = timeout_at(ends, self.tasks.join_next_with_id()).await {
            self.forget(ended.ok());
        }
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.forget(ended.ok());
        }
        self.count.fetch_sub(self.connected.len(), Ordering::Release);
        self.connected.clear();
    }

    fn forget(&mut self, ended: Option<(tokio::task::Id, u64)>) {
        // One that was shown out is forgotten already.
        if ended.is_some_and(|(_, number)| self.connected.remove(&number).is_some()) {
            self.count.fetch_sub(1, Ordering::Release);
        }
    }

    fn admit(&mut self, arrived: Arrived) {
        if self.connected.len() >= CONNECTIONS_MAX {
            self.evict();
        }
        let number = self.next;
        self.next += 1;
        let busy = Arc::new(AtomicUsize::new(0));
        let (router, admission) = (self.router.clone(), self.admission.clone());
        let serving = connection(arrived, self.protocol, router, admission, busy.clone());
        let abort = self.tasks.spawn(async move {
            giving_way(serving).await;
            number
        });
        self.connected.insert(number, Connected { abort, busy });
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Makes room: the first of those that are not being answered goes, or else the first of all.
    fn evict(&mut self) {
        let is_idle = |connected: &Connected| connected.busy.load(Ordering::Relaxed) == 0;
        let idle = self.connected.iter().find(|(_, connected)| is_idle(connected));
        let goes = idle.or_else(|| self.connected.first_key_value()).map(|(&number, _)| number);
        if let Some(gone) = goes.and_then(|number| self.connected.remove(&number)) {
            gone.abort.abort();
            self.count.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Has threads go first that wait for this CPU, each time a connection has its turn: a scheduler may leave them waiting for some
/// milliseconds, however low the priority of this thread is.
async fn giving_way<T>(serving: impl Future<Output = T>) -> T {
    let mut serving = pin!(serving);
    poll_fn(|context| {
        std::thread::yield_now();
        serving.as_mut().poll(context)
    })
    .await
}

/// Serves one connection to its end.
async fn connection(
    arrived: Arrived,
    protocol: Protocol,
    router: Router,
    mut admission: watch::Receiver<Admission>,
    busy: Arc<AtomicUsize>,
) {
    let Some((stream, peer)) = arrived.open().await else { return };
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_PATIENCE));
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let (router, busy) = (router.clone(), Busy::new(&busy));
        async move { Ok::<_, Infallible>(answer(router, request.map(Body::new), busy).await) }
    });
    // How a client has ended is its own matter.
    match protocol {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
            builder.max_buf_size(HEAD_MAX).max_headers(HEADERS_MAX);
            let serving = builder.serve_connection(TokioIo::new(Box::pin(stream)), service);
            to_end(serving, http1::Connection::graceful_shutdown, &mut admission).await;
        }
        Protocol::Http2 => {
            stream.set_read_timeout(Some(SILENCE));
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_EVERY);
            builder.max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_MAX_HTTP2);
            let serving = builder.serve_connection(TokioIo::new(Box::pin(stream)), service);
            to_end(serving, http2::Connection::graceful_shutdown, &mut admission).await;
        }
    }
}

/// Serves until the client ends it; once nobody is to be served any more, `finish` has it end behind what is under way.
async fn to_end<C: Future>(
    serving: C,
    finish: impl FnOnce(Pin<&mut C>),
    admission: &mut watch::Receiver<Admission>,
) {
    let mut serving = pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => {}
        () = closing(admission) => {
            finish(serving.as_mut());
            let _ = serving.await;
        }
    }
}

async fn answer(router: Router, request: Request, busy: Busy) -> Response {
    let response = match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    response.map(|body| Body::new(Held { body, _busy: busy }))
}

/// A request that is being answered, for as long as it is held.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body that is being sent.
struct Held {
    body: Body,
    _busy: Busy,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
