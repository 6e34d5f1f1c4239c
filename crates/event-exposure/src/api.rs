//! The resources of `Nupf_EventExposure` (TS 29.564 6.1.3): requests are read and checked here, and done by the thread that knows the
//! sessions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Method, Response, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::item::Item;
use crate::patch;
use crate::problem::{Cause, Problem};
use crate::request::{self, Subscription};
use crate::subscriptions::{KeptSubscription, NotRestored, Now, SubscriptionRecord, Subscriptions};
use crate::target::Consumers;
use crate::usage::UsageSource;

/// Where subscriptions are.
pub const ROOT: &str = "/nupf-ee/v1/ee-subscriptions";
/// Octets of a body.
pub const BODY_MAX: usize = 64 << 10;
/// Octets of a longer body that are taken and dropped.
const REST_MAX: usize = 1 << 20;
/// What paths of this version of the API begin with.
const VERSION: &str = "/nupf-ee/v1/";
/// How long a consumer may take to send a body.
const BODY_PATIENCE: Duration = Duration::from_secs(5);
/// How long the thread that knows the sessions may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Requests that wait for it.
const WAITING_MAX: usize = 64;
/// How often a patch is made again, whose subscription was modified meanwhile.
const PATCHES_MAX: usize = 3;

/// An answer. That of a refused request has its [`Problem`] among its extensions.
pub type Answer = Response<Full<Bytes>>;

/// A request of a consumer.
#[derive(Debug)]
pub struct Request<B> {
    /// What is asked.
    pub request: hyper::Request<B>,
    /// Who asks: subscriptions are theirs.
    pub owner: Arc<str>,
    /// `http` or `https`, and the host and port that are asked.
    pub root: String,
}

/// What is to be done with the subscriptions.
#[derive(Debug)]
enum Order {
    Create(Box<Subscription>),
    Read(String),
    Modify(String, u64, Box<Subscription>),
    Delete(String),
}

#[derive(Debug)]
enum Done {
    Created { id: String, document: Value, reports: Vec<Item> },
    Document(Value, u64),
    Modified(bool),
    Deleted,
}

/// A request that was checked.
#[derive(Debug)]
pub struct Command {
    order: Order,
    owner: Arc<str>,
    answer: oneshot::Sender<Result<Done, Problem>>,
}

/// What a request has come to, which its consumer is yet to be told.
#[derive(Debug)]
pub struct Reply {
    done: Result<Done, Problem>,
    owner: Arc<str>,
    answer: oneshot::Sender<Result<Done, Problem>>,
}

impl Reply {
    /// Whether it says that something has changed: then it leaves when that is durable.
    pub const fn acknowledges(&self) -> bool {
        matches!(self.done, Ok(Done::Created { .. } | Done::Modified(true) | Done::Deleted))
    }

    /// Answers.
    pub fn send(self, subscriptions: &mut Subscriptions) {
        // Who has given up just now knows no identifier: nobody could end the subscription.
        if let Err(Ok(Done::Created { id, .. })) = self.answer.send(self.done) {
            let _ = subscriptions.delete(&id, &self.owner);
        }
    }
}

impl Command {
    /// Does it, and gives the reply. Of a request that nobody waits for any more nothing is done.
    #[must_use]
    pub fn run(
        self,
        subscriptions: &mut Subscriptions,
        source: &mut impl UsageSource,
        now: Now,
    ) -> Option<Reply> {
        let Self { order, owner, answer } = self;
        if answer.is_closed() {
            return None;
        }
        let done = match order {
            Order::Create(wanted) => {
                subscriptions.create(*wanted, owner.clone(), source, now).map(|created| Done::Created {
                    id: created.id,
                    document: created.document,
                    reports: created.reports,
                })
            }
            Order::Read(id) => subscriptions
                .document(&id, &owner)
                .map(|(document, version)| Done::Document(document, version)),
            Order::Modify(id, version, wanted) => {
                subscriptions.modify(&id, &owner, version, *wanted, now).map(Done::Modified)
            }
            Order::Delete(id) => subscriptions.delete(&id, &owner).map(|()| Done::Deleted),
        };
        Some(Reply { done, owner, answer })
    }
}

/// Requests that wait.
#[derive(Debug)]
pub struct Commands(mpsc::Receiver<Command>);

impl Commands {
    /// The next one.
    pub fn take(&mut self) -> Option<Command> {
        self.0.try_recv().ok()
    }
}

/// Reads a flow description, and writes it as the node writes those of its rules.
type FlowReader = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What answers requests.
pub struct Api {
    commands: mpsc::Sender<Command>,
    consumers: Arc<Consumers>,
    flows: Box<FlowReader>,
    /// Wakes the thread that does what is asked.
    wake: Box<dyn Fn() + Send + Sync>,
    answered: AtomicU64,
    refused: AtomicU64,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("consumers", &self.consumers).finish_non_exhaustive()
    }
}

impl Api {
    /// For consumers that are allowed. `flows` reads a flow description and writes it as the node does; `wake` is called with each
    /// request.
    pub fn new(
        consumers: Arc<Consumers>,
        flows: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (Arc<Self>, Commands) {
        let (commands, waiting) = mpsc::channel(WAITING_MAX);
        let (flows, wake) = (Box::new(flows), Box::new(wake));
        let (answered, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        (Arc::new(Self { commands, consumers, flows, wake, answered, refused }), Commands(waiting))
    }

    /// Requests that were done, and that were refused.
    pub fn counts(&self) -> [u64; 2] {
        [&self.answered, &self.refused].map(|count| count.load(Ordering::Relaxed))
    }

    /// Restores a subscription of before a restart, if its consumer may still be notified.
    ///
    /// # Errors
    /// Why it does not go on.
    pub fn restore(
        &self,
        kept: &KeptSubscription,
        subscriptions: &mut Subscriptions,
        source: &mut impl UsageSource,
        now: Now,
    ) -> Result<(), NotRestored> {
        let read = SubscriptionRecord::read(&kept.subscription).and_then(|record| {
            let wanted = request::subscription(record.document()?, "", &self.consumers, &self.flows)
                .map_err(|problem| NotRestored::Refused(problem.detail))?;
            Ok((record, wanted))
        });
        subscriptions.restore(kept, read, source, now)
    }

    /// Answers a request.
    pub async fn answer<B>(&self, request: Request<B>) -> Answer
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin,
    {
        match self.done(request).await {
            Ok(answer) => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                answer
            }
            Err(problem) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                refusal(problem)
            }
        }
    }

    async fn done<B>(&self, request: Request<B>) -> Result<Answer, Problem>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin,
    {
        let Request { request, owner, root } = request;
        let (parts, body) = request.into_parts();
        // Before anything is refused: some clients see an error in the place of an answer that comes before they have sent all.
        let body = read(body).await;
        let resource = resource(&parts.uri)?;
        let kind = parts.headers.get(CONTENT_TYPE);
        match (resource, &parts.method) {
            (Resource::Collection, &Method::POST) => {
                check_kind(kind, "application/json")?;
                let wanted = request::create(&body?, &self.consumers, &self.flows)?;
                match self.order(Order::Create(Box::new(wanted)), &owner).await? {
                    Done::Created { id, document, reports } => created(&root, &id, &document, &reports),
                    _ => Err(silent()),
                }
            }
            (Resource::Subscription(id), &Method::PATCH) => {
                check_kind(kind, "application/json-patch+json")?;
                let patch = request::json(&body?)?;
                self.modify(id, &owner, &patch).await
            }
            (Resource::Subscription(id), &Method::DELETE) => {
                self.order(Order::Delete(id), &owner).await.map(|_| empty())
            }
            (Resource::Collection, _) => Err(not_allowed("POST")),
            (Resource::Subscription(_), _) => Err(not_allowed("PATCH, DELETE")),
        }
    }

    async fn modify(&self, id: String, owner: &Arc<str>, patch: &Value) -> Result<Answer, Problem> {
        for _ in 0..PATCHES_MAX {
            let Done::Document(document, version) = self.order(Order::Read(id.clone()), owner).await? else {
                return Err(silent());
            };
            let patched = patch::apply(&document, patch)?;
            let wanted = request::subscription(patched, "", &self.consumers, &self.flows)?;
            let order = Order::Modify(id.clone(), version, Box::new(wanted));
            if let Done::Modified(true) = self.order(order, owner).await? {
                return Ok(empty());
            }
        }
        Err(Problem::new(Cause::NfCongestion, "the subscription is modified again and again meanwhile"))
    }

    async fn order(&self, order: Order, owner: &Arc<str>) -> Result<Done, Problem> {
        let (answer, answered) = oneshot::channel();
        let command = Command { order, owner: owner.clone(), answer };
        let full = |_| Problem::new(Cause::NfCongestion, "the node is asked too much: ask again later");
        self.commands.try_send(command).map_err(full)?;
        (self.wake)();
        timeout(PATIENCE, answered).await.ok().and_then(Result::ok).ok_or_else(silent)?
    }
}

/// What a path names.
enum Resource {
    Collection,
    Subscription(String),
}

fn resource(uri: &Uri) -> Result<Resource, Problem> {
    let path = uri.path();
    if !path.starts_with(VERSION) {
        return Err(Problem::new(Cause::InvalidApi, format!("paths of this API begin with {VERSION}")));
    }
    match path.strip_prefix(ROOT) {
        Some("") => Ok(Resource::Collection),
        Some(rest) => match rest.strip_prefix('/') {
            Some(id) if !id.is_empty() && !id.contains('/') => Ok(Resource::Subscription(id.to_owned())),
            _ => Err(no_resource()),
        },
        None => Err(no_resource()),
    }
}

fn no_resource() -> Problem {
    Problem::new(Cause::ResourceUriStructureNotFound, format!("there is only {ROOT}, and what is in it"))
}

fn silent() -> Problem {
    Problem::new(Cause::NfCongestion, "the node does not answer in time: ask again later")
}

fn not_allowed(allowed: &str) -> Problem {
    Problem::plain(405, format!("allowed are: {allowed}"))
}

fn check_kind(kind: Option<&HeaderValue>, wanted: &str) -> Result<(), Problem> {
    let kind = kind.map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.split(|octet| *octet == b';').next().unwrap_or_default();
    match kind.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()) {
        true => Ok(()),
        false => Err(Problem::plain(415, format!("the body is of Content-Type {wanted}"))),
    }
}

async fn read<B>(mut body: B) -> Result<Bytes, Problem>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin,
{
    match timeout(BODY_PATIENCE, Limited::new(&mut body, BODY_MAX).collect()).await {
        Err(_) => Err(Problem::plain(408, "the body did not come in time")),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let _ = timeout(BODY_PATIENCE, Limited::new(&mut body, REST_MAX).collect()).await;
            Err(Problem::plain(413, format!("a body has at most {BODY_MAX} octets")))
        }
        Ok(Err(error)) => Err(Problem::new(Cause::InvalidMsgFormat, format!("the body broke off: {error}"))),
    }
}

fn created(root: &str, id: &str, document: &Value, reports: &[Item]) -> Result<Answer, Problem> {
    let uri = format!("{root}{ROOT}/{id}");
    let mut body = json!({"subscription": document, "subscriptionId": uri});
    if !reports.is_empty() {
        body["reportList"] = json!(reports);
    }
    let mut answer = Response::new(Full::new(body.to_string().into()));
    *answer.status_mut() = StatusCode::CREATED;
    let location = HeaderValue::try_from(uri);
    let location =
        location.map_err(|_| Problem::plain(400, "the host that is asked cannot be named in a URI"))?;
    answer.headers_mut().insert(LOCATION, location);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(answer)
}

fn empty() -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

fn refusal(problem: Problem) -> Answer {
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if problem.status == 405
        && let Some((_, allowed)) = problem.detail.split_once(": ")
        && let Ok(allowed) = HeaderValue::from_str(allowed)
    {
        headers.insert(ALLOW, allowed);
    }
    answer.extensions_mut().insert(problem);
    answer
}

#[cfg(test)]
mod tests;
