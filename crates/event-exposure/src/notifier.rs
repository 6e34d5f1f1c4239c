//! Notifies consumers over HTTP/2: with prior knowledge for `http`, by ALPN for `https` (TS 29.500 5.2.1, RFC 9113 3).
//!
//! A consumer has one connection, which is made when it is needed. A notification that is not taken is tried again a few times, each
//! after twice the time; then it is given up, and what it carried is in a later one.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{CONTENT_TYPE, LOCATION, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kaido_http_client::{ClientTls, ConnectFault, HttpUri, UriHost, connect};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::subscriptions::{Notification, Outcome};
use crate::target::Consumers;

/// Notifications that wait to be looked at.
const WAITING_MAX: usize = 1024;
/// Notifications to a consumer on their way.
const QUEUED_MAX: usize = 64;
/// How often a notification is sent.
const ATTEMPTS: u32 = 4;
/// After how long the second time; each further time after twice as long.
const BACK_OFF: Duration = Duration::from_millis(250);
/// How long a consumer may take, from the connection to the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Octets of an answer, which nobody reads.
const ANSWER_MAX: usize = 64 << 10;
/// Times that a consumer may lead to another place.
const REDIRECTS_MAX: usize = 2;
/// Consumers that are remembered before those without a notification are forgotten.
const CONSUMERS_MAX: usize = 256;
/// How often it is said that a consumer takes nothing.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// Between looks at whether a consumer is there that nothing is sent to.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// What was done.
#[derive(Debug, Default)]
pub struct NotifierCounts {
    attempts: AtomicU64,
    unreachable: AtomicU64,
    refused: AtomicU64,
    no_room: AtomicU64,
}

impl NotifierCounts {
    /// Times that a notification was sent, that no consumer was reached, that one refused, and that there was no room for another.
    pub fn all(&self) -> [u64; 4] {
        [&self.attempts, &self.unreachable, &self.refused, &self.no_room]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// The end of the thread that makes notifications.
#[derive(Debug)]
pub struct Notifications {
    waiting: mpsc::Sender<Notification>,
    outcomes: Receiver<Outcome>,
    counts: Arc<NotifierCounts>,
}

impl Notifications {
    /// Has a notification sent.
    ///
    /// # Errors
    /// What becomes of it, where there is no room.
    pub fn send(&self, notification: Notification) -> Result<(), Outcome> {
        self.waiting.try_send(notification).map_err(|error| {
            self.counts.no_room.fetch_add(1, Ordering::Relaxed);
            error.into_inner().outcome(false)
        })
    }

    /// What became of one.
    pub fn take(&self) -> Option<Outcome> {
        self.outcomes.try_recv().ok()
    }

    /// What was done.
    pub fn counts(&self) -> [u64; 4] {
        self.counts.all()
    }
}

/// The end that sends them.
pub struct Notifier {
    waiting: mpsc::Receiver<Notification>,
    sending: Arc<Sending>,
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}

/// What all that is sent shares.
struct Sending {
    outcomes: Mutex<Sender<Outcome>>,
    consumers: Arc<Consumers>,
    tls: Option<ClientTls>,
    counts: Arc<NotifierCounts>,
    /// Tells that there is an outcome.
    wake: Box<dyn Fn() + Send + Sync>,
}

/// Who is notified: one for each scheme, host and port.
#[derive(Debug, Default)]
struct Consumer {
    connection: tokio::sync::Mutex<Option<SendRequest<Full<Bytes>>>>,
    queued: AtomicUsize,
    told: Mutex<Option<Instant>>,
}

type Place = (bool, UriHost, u16);

fn place(uri: &HttpUri) -> Place {
    (uri.is_tls, uri.host.clone(), uri.port)
}

/// Why a consumer has not taken a notification.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("no address of it is in a prefix of event_exposure.consumers")]
    NotAllowed,
    #[error(transparent)]
    Unreachable(ConnectFault),
    #[error("it does not speak HTTP/2")]
    NoHttp2,
    #[error("HTTP/2: {0}")]
    Http(#[from] hyper::Error),
    #[error("it has not answered in {} s", PATIENCE.as_secs())]
    Silent,
    #[error("it answers {0}")]
    Refused(StatusCode),
    #[error("it leads to a place where no notification goes")]
    Redirect,
}

impl From<ConnectFault> for Fault {
    fn from(fault: ConnectFault) -> Self {
        match fault {
            ConnectFault::NotAllowed | ConnectFault::NoTls => Self::NotAllowed,
            fault @ ConnectFault::Unreachable(_) => Self::Unreachable(fault),
        }
    }
}

impl Notifier {
    /// Both ends. `wake` is called with each outcome.
    pub fn new(
        consumers: Arc<Consumers>,
        tls: Option<ClientTls>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (Self, Notifications) {
        let (send, waiting) = mpsc::channel(WAITING_MAX);
        let (tell, outcomes) = channel();
        let counts = Arc::<NotifierCounts>::default();
        let (outcomes_of, wake) = (Mutex::new(tell), Box::new(wake));
        let sending = Sending { outcomes: outcomes_of, consumers, tls, counts: counts.clone(), wake };
        let notifications = Notifications { waiting: send, outcomes, counts };
        (Self { waiting, sending: Arc::new(sending) }, notifications)
    }

    /// Sends notifications until nobody makes any more.
    pub async fn run(mut self) {
        let mut known: HashMap<Place, Arc<Consumer>> = HashMap::new();
        while let Some(notification) = self.waiting.recv().await {
            if known.len() >= CONSUMERS_MAX {
                known.retain(|_, consumer| consumer.queued.load(Ordering::Relaxed) > 0);
            }
            let consumer = known.entry(place(&notification.consumer)).or_default().clone();
            if consumer.queued.load(Ordering::Relaxed) >= QUEUED_MAX {
                self.sending.counts.no_room.fetch_add(1, Ordering::Relaxed);
                self.sending.tell(notification.outcome(false));
                continue;
            }
            consumer.queued.fetch_add(1, Ordering::Relaxed);
            let sending = self.sending.clone();
            tokio::spawn(async move {
                let is_taken = sending.deliver(&notification, &consumer).await;
                consumer.queued.fetch_sub(1, Ordering::Relaxed);
                sending.tell(notification.outcome(is_taken));
            });
        }
    }
}

impl Sending {
    fn tell(&self, outcome: Outcome) {
        // Without who takes it, the node ends.
        let _ = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).send(outcome);
        (self.wake)();
    }

    async fn deliver(&self, notification: &Notification, consumer: &Consumer) -> bool {
        let mut pause = BACK_OFF;
        for attempt in 1..=ATTEMPTS {
            self.counts.attempts.fetch_add(1, Ordering::Relaxed);
            let body = Bytes::from(notification.body.clone());
            let fault = match self.attempt(&notification.consumer, consumer, body).await {
                Ok(()) => return true,
                Err(fault) => fault,
            };
            let is_refused = matches!(fault, Fault::Refused(_) | Fault::Redirect | Fault::NotAllowed);
            let count = if is_refused { &self.counts.refused } else { &self.counts.unreachable };
            count.fetch_add(1, Ordering::Relaxed);
            // Who is busy may take it later; who does not want it does not want it again.
            let is_final = match fault {
                Fault::Refused(status) => {
                    !status.is_server_error()
                        && ![StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status)
                }
                Fault::Redirect | Fault::NotAllowed => true,
                _ => false,
            };
            if is_final || attempt == ATTEMPTS {
                consumer.complain(&notification.consumer, &fault);
                return false;
            }
            if !is_refused {
                // Whatever is the matter with the connection: the next time there is another.
                consumer.connection.lock().await.take();
            }
            sleep(pause).await;
            pause *= 2;
        }
        false
    }

    /// Sends a notification once, also to where its consumer leads.
    async fn attempt(&self, to: &HttpUri, consumer: &Consumer, body: Bytes) -> Result<(), Fault> {
        let mut next = self.post(to, consumer, body.clone()).await?;
        for _ in 0..REDIRECTS_MAX {
            let Some(location) = next else { return Ok(()) };
            let to = self.consumers.read(&location).map_err(|_| Fault::Redirect)?;
            next = self.post(&to, &Consumer::default(), body.clone()).await?;
        }
        next.map_or(Ok(()), |_| Err(Fault::Redirect))
    }

    /// Sends it to one place; gives the place that this leads to, if it does.
    async fn post(&self, to: &HttpUri, consumer: &Consumer, body: Bytes) -> Result<Option<String>, Fault> {
        let exchange = async {
            let mut sender = self.connection(to, consumer).await?;
            let mut request = Request::new(Full::new(body));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = to.uri.clone();
            request
                .headers_mut()
                .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
            request.headers_mut().insert(USER_AGENT, hyper::header::HeaderValue::from_static("UPF"));
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            // It is read so that its stream ends; what it says is of no use.
            let _ = Limited::new(body, ANSWER_MAX).collect().await;
            match head.status {
                status if status.is_success() => Ok(None),
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                    let location = head.headers.get(LOCATION).and_then(|location| location.to_str().ok());
                    location.map(|location| Some(location.to_owned())).ok_or(Fault::Redirect)
                }
                status => Err(Fault::Refused(status)),
            }
        };
        timeout(PATIENCE, exchange).await.unwrap_or(Err(Fault::Silent))
    }

    /// The consumer's connection, or a new one.
    async fn connection(&self, to: &HttpUri, consumer: &Consumer) -> Result<SendRequest<Full<Bytes>>, Fault> {
        let mut known = consumer.connection.lock().await;
        if let Some(sender) = &mut *known
            && sender.ready().await.is_ok()
        {
            return Ok(sender.clone());
        }
        *known = None;
        let sender = self.connect(to).await?;
        Ok(known.insert(sender).clone())
    }

    async fn connect(&self, to: &HttpUri) -> Result<SendRequest<Full<Bytes>>, Fault> {
        let stream = connect(to, self.tls.as_ref(), |address| self.consumers.allows(address)).await?;
        match (to.is_tls, stream.protocol()) {
            (false, _) | (true, Some(b"h2")) => begin(stream.into_duplex()).await,
            (true, _) => Err(Fault::NoHttp2),
        }
    }
}

/// Begins HTTP/2 on a connection.
async fn begin(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<SendRequest<Full<Bytes>>, Fault> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE).max_header_list_size(16 << 10);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to a consumer has ended");
        }
    });
    Ok(sender)
}

impl Consumer {
    /// Says what is the matter, and not again and again.
    fn complain(&self, to: &HttpUri, fault: &Fault) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
            *told = Some(Instant::now());
            let authority = to.uri.authority().map(ToString::to_string);
            tracing::warn!(
                consumer = authority.unwrap_or_default(),
                %fault,
                "an event exposure consumer has not taken a notification; what it says is in a later one"
            );
        }
    }
}
