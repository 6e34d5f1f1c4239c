//! Event exposure (TS 29.564) of this user plane: joins the subscriptions of `kaido-event-exposure` with the sessions and the store.
//!
//! The control loop does a bounded part of them in each of its turns; requests and notifications are of a thread of their own.

mod kept;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use kaido_engine::{Notifier as Waker, RateLimit};
use kaido_event_exposure as ee;
use kaido_event_exposure::{Limits, Now, SessionId, SessionVolumes, UeAddress, UsageSource};
use kaido_http_client::ClientTls;
use kaido_n4::{SdfFilter, Seid, Volume};
use kaido_node::http::service::{
    Answering, Body, ServiceFiles, ServiceRequest, ServiceSocket, ServiceThread,
};
use kaido_node::takeover::{SocketKind, Takeover};
use kaido_store::Recorder;
use kaido_upf::control::{SessionUsage, Upf, UsageScope};

use self::kept::StoreKeeper;
pub(super) use self::kept::{KeptSubscriptions, restore};
use crate::config::EventExposureConfig;

/// Sessions that have begun and are told of in a turn, or fewer where each is told to many subscriptions.
const BEGUN_A_TURN: usize = 512;
const BEGUN_TOLD_A_TURN: usize = 16_384;
/// The same of sessions that have ended.
const ENDED_A_TURN: usize = 64;
const ENDED_TOLD_A_TURN: usize = 4096;
/// Requests that are done in a turn.
const COMMANDS_A_TURN: usize = 4;
/// Outcomes of notifications that are taken in a turn.
const OUTCOMES_A_TURN: usize = 16;
/// Refusals that are logged in a second.
const REFUSALS_LOGGED: u32 = 5;

/// What was done, and what not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExposureCounts {
    /// Of subscriptions and notifications.
    pub(super) subscriptions: ee::Counts,
    /// Requests that were done, and that were refused.
    pub(super) requests: [u64; 2],
    /// Times that a notification was sent, that no consumer was reached, that one refused, and that there was no room for another.
    pub(super) notifier: [u64; 4],
}

/// Subscriptions, and the thread that serves them.
pub(super) struct Exposure {
    subscriptions: ee::Subscriptions,
    commands: ee::Commands,
    notifications: ee::Notifications,
    api: Arc<ee::Api>,
    out: Vec<ee::Notification>,
    /// Replies that leave behind a batch of the journal, or behind the next.
    replies: VecDeque<(Option<u64>, ee::Reply)>,
    /// Until when what is on its way is waited for, where another process is to go on.
    settles_until: Option<Instant>,
    is_behind: bool,
    _thread: ServiceThread,
    _kept: Arc<TcpListener>,
}

/// Where consumers subscribe.
pub(super) struct ExposureSocket {
    pub(super) listener: TcpListener,
    /// What a process that takes over is given.
    kept: Arc<TcpListener>,
}

/// The socket of the configuration, or that of the process before; `None` without one.
///
/// # Errors
/// The address, and what the kernel said.
pub(super) fn listen(
    config: &EventExposureConfig,
    takeover: &Takeover,
) -> Result<Option<ExposureSocket>, (SocketAddr, io::Error)> {
    let Some(address) = config.listen.as_ref().map(|listen| listen.get_ref().0) else { return Ok(None) };
    let open = || {
        let name = format!("socket of event_exposure.listen at {address}");
        let listener = match takeover.socket(&name, SocketKind::Stream, address).map_err(io::Error::other)? {
            Some(waiting) => TcpListener::from(waiting),
            None => TcpListener::bind(address)?,
        };
        let kept = Arc::new(listener.try_clone()?);
        takeover.keep(&name, &kept);
        Ok(ExposureSocket { listener, kept })
    };
    open().map(Some).map_err(|error| (address, error))
}

impl Exposure {
    /// Serves at a socket; `waker` wakes the control loop.
    ///
    /// # Errors
    /// What is wrong with which file, or that there is no thread.
    pub(super) fn start(
        config: &EventExposureConfig,
        socket: ExposureSocket,
        waker: &Arc<Waker>,
    ) -> Result<Self, String> {
        let tokens = config.tokens.clone().unwrap_or_default();
        let tls = config.tls_certificate.clone().zip(config.tls_key.clone());
        let own = tls.as_ref().map(|(certificate, key)| (&**certificate, &**key));
        let signers = config.consumer_ca.as_deref();
        let consumer_tls = signers.map(|signers| ClientTls::read(signers, own, b"h2")).transpose();
        let consumer_tls = consumer_tls.map_err(|why| format!("event_exposure.consumer_ca: {why}"))?;
        let files = ServiceFiles { tokens, tls, client_ca: config.client_ca.clone() };
        let ExposureSocket { listener, kept } = socket;
        let socket = ServiceSocket::open("event_exposure", listener, files)?;
        let prefixes = config.consumers.clone();
        let allows = move |address: IpAddr| prefixes.iter().any(|prefix| prefix.contains(address));
        let consumers = Arc::new(ee::Consumers::new(allows, consumer_tls.is_some()));
        let wake = || {
            let waker = waker.clone();
            move || waker.notify()
        };
        let (api, commands) = ee::Api::new(consumers.clone(), described, wake());
        let (notifier, notifications) = ee::Notifier::new(consumers, consumer_tls, wake());
        let refusals = Arc::new(Mutex::new(RateLimit::new(REFUSALS_LOGGED)));
        let handler = {
            let api = api.clone();
            move |request| answer(api.clone(), refusals.clone(), request)
        };
        let thread = socket.start("event-exposure", handler, notifier.run());
        let limits = Limits {
            subscriptions_max: *config.subscriptions_max.get_ref() as usize,
            lifetime_max: config.lifetime_max(),
        };
        Ok(Self {
            subscriptions: ee::Subscriptions::new(limits),
            commands,
            notifications,
            api,
            out: Vec::new(),
            replies: VecDeque::new(),
            settles_until: None,
            is_behind: false,
            _thread: thread.map_err(|error| format!("event_exposure.listen: {error}"))?,
            _kept: kept,
        })
    }

    /// What was done.
    pub(super) fn counts(&self, upf: &Upf) -> ExposureCounts {
        let mut subscriptions = self.subscriptions.counts();
        subscriptions.lost += upf.usage_lost();
        ExposureCounts { subscriptions, requests: self.api.counts(), notifier: self.notifications.counts() }
    }

    /// Whether a turn's part was not all that is due.
    pub(super) const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// When there is something to do, unless something happens.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.subscriptions.next_due()
    }

    /// Does a turn's part. What is to be known after a restart is recorded, and replies wait [for that](Self::reply); where the journal
    /// takes no more, `recorder` is none.
    pub(super) fn turn(
        &mut self,
        upf: &mut Upf,
        (monotonic, wall): (Instant, SystemTime),
        recorder: Option<&Recorder>,
    ) {
        let now = Now { monotonic, wall };
        self.settles_until = None;
        self.hear_of_sessions(upf, now);
        self.hear_of_notifications(OUTCOMES_A_TURN);
        self.work(upf, now, recorder.is_some());
        if let Some(recorder) = recorder {
            self.subscriptions.keep(&mut StoreKeeper(recorder), now);
        }
    }

    /// Does what is asked and due.
    fn work(&mut self, upf: &mut Upf, now: Now, takes_commands: bool) {
        // A session that has begun is told of before anybody subscribes, or looks at its place.
        self.is_behind = upf.has_begun();
        if self.is_behind {
            return;
        }
        if takes_commands {
            self.run_commands(upf, now);
        }
        // Costs nothing where nobody has subscribed.
        upf.follow_usage(!self.subscriptions.is_empty());
        self.subscriptions.turn(&mut Sessions(upf), now, &mut self.out);
        self.is_behind |= self.subscriptions.is_behind() || upf.has_ended();
        for notification in self.out.drain(..) {
            if let Err(lost) = self.notifications.send(notification) {
                self.subscriptions.outcome(lost);
            }
        }
    }

    fn run_commands(&mut self, upf: &mut Upf, now: Now) {
        for taken in 1..=COMMANDS_A_TURN {
            let Some(command) = self.commands.take() else { break };
            match command.run(&mut self.subscriptions, &mut Sessions(upf), now) {
                Some(reply) if reply.acknowledges() => self.replies.push_back((None, reply)),
                Some(reply) => reply.send(&mut self.subscriptions),
                None => {}
            }
            self.is_behind |= taken == COMMANDS_A_TURN;
        }
    }

    fn hear_of_notifications(&mut self, most: usize) {
        for _ in 0..most {
            let Some(outcome) = self.notifications.take() else { break };
            self.subscriptions.outcome(outcome);
        }
    }

    fn hear_of_sessions(&mut self, upf: &mut Upf, now: Now) {
        let each = |told: usize, most: usize| (told / self.subscriptions.len().max(1)).clamp(1, most);
        let (begun, ended) = (each(BEGUN_TOLD_A_TURN, BEGUN_A_TURN), each(ENDED_TOLD_A_TURN, ENDED_A_TURN));
        for _ in 0..begun {
            let Some(Seid(seid)) = upf.take_begun() else { break };
            self.subscriptions.session_began(SessionId(seid), &mut Sessions(upf), now);
        }
        for _ in 0..ended {
            let Some(usage) = upf.take_ended() else { break };
            self.subscriptions.session_ended(volumes(usage, None));
        }
    }
}

/// Answers a request, and logs why it is refused.
fn answer(api: Arc<ee::Api>, refusals: Arc<Mutex<RateLimit>>, asked: ServiceRequest) -> Answering {
    Box::pin(async move {
        let ServiceRequest { request, caller, root } = asked;
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = api.answer(ee::Request { request, owner: caller.clone(), root }).await;
        if let Some(problem) = response.extensions().get::<ee::Problem>()
            && refusals.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now())
        {
            let ee::Problem { status, cause, detail, .. } = problem;
            let cause = cause.unwrap_or_default();
            tracing::warn!(who = &*caller, %method, path, status, cause, detail, "event exposure: a request was refused");
        }
        response.map(Body::new)
    })
}

/// A flow description as the node writes it, which has one text for all that mean the same.
fn described(text: &str) -> Option<String> {
    SdfFilter::parse(text).ok().map(|filter| filter.description().to_string())
}

/// The sessions as they are read.
struct Sessions<'u>(&'u mut Upf);

impl UsageSource for Sessions<'_> {
    fn of_address(&mut self, address: IpAddr, limit: usize) -> Vec<SessionId> {
        self.0.sessions_of_address(address, limit).into_iter().map(|Seid(seid)| SessionId(seid)).collect()
    }

    fn read(&mut self, SessionId(seid): SessionId) -> Option<SessionVolumes> {
        // Before the rest is read: what is carried meanwhile is more than it says.
        let counted = self.0.counted_at_place(place(seid)).and_then(|(_, counted)| counted);
        self.0.usage_of(Seid(seid)).map(|usage| volumes(usage, counted))
    }

    fn supi(&mut self, SessionId(seid): SessionId) -> Option<String> {
        self.0.imsi_of(Seid(seid)).map(|imsi| format!("imsi-{imsi}"))
    }

    fn places(&self) -> u32 {
        u32::try_from(self.0.places()).unwrap_or(u32::MAX)
    }

    fn counted(&mut self, place: u32) -> Option<(SessionId, Option<Volume>)> {
        let (Seid(seid), counted) = self.0.counted_at_place(place)?;
        Some((SessionId(seid), counted))
    }
}

/// The low half of a SEID is the session's place.
#[allow(clippy::cast_possible_truncation)]
const fn place(seid: u64) -> u32 {
    seid as u32
}

fn volumes(usage: SessionUsage, counted: Option<Volume>) -> SessionVolumes {
    let whole = usage.volume();
    let SessionUsage { session, volumes, .. } = usage;
    let part = |(scope, of): (UsageScope, Volume)| {
        let scope = match scope {
            UsageScope::Session => return None,
            UsageScope::Flow(filters) => {
                let mut flows: Vec<_> = filters.iter().map(|of| of.description().to_string()).collect();
                flows.sort();
                ee::Scope::Flow(flows)
            }
            UsageScope::Application(id) => ee::Scope::Application(id.to_string()),
        };
        Some((scope, of))
    };
    let mac = session.fdb.as_ref().and_then(|known| known.first()).map(|mac| mac.0);
    SessionVolumes {
        session: SessionId(session.seid.0),
        ue: UeAddress {
            ipv4: session.ue.ipv4,
            ipv6: session.ue.ipv6.map(|prefix| (prefix.addr, prefix.len)),
            mac,
        },
        supi: session.imsi.map(|imsi| format!("imsi-{imsi}")),
        dnns: session.network_instances.iter().map(ToString::to_string).collect(),
        whole,
        parts: volumes.into_iter().filter_map(part).collect(),
        counted,
    }
}
