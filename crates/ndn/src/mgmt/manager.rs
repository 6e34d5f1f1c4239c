//! The management of a node, as an application of its own: obeys commands, and answers with what the node says of itself.
//!
//! ```text
//!  /localhost/nfd/MODULE/VERB/PARAMETERS  signed ─▶ Authority ─▶ handler ─▶ ControlResponse
//!  /localhost/nfd/MODULE/DATASET                 ─────────────▶ dataset, in segments
//!  /localhost/nfd/faces/events/seq=N             ─────────────▶ what was done to faces
//! ```
//! From other hosts the module `rib` is commanded as `/localhop/nfd/rib`, by keys that were configured.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use kaido_ndn_tables::FaceId;
use kaido_wire::ndn::{DataRepr, Interest, Name, types};

use super::authority::{Authority, Module, Origin, Refusal, is_signed, unsigned_name};
use super::datasets::{self, FaceFilter};
use super::node::{CsUpdate, Node};
use super::parameters::{ControlParameters, ControlResponse};
use super::rib::Rib;
use super::sparing::LogLimit;
use super::{faces, routes};
use crate::client::{Connection, Publication, append_answer, with_number};
use crate::face::{Face, FaceEventKind, FaceUri, Scope};

/// `/localhost/nfd`.
const LOCAL: &[u8] = b"\x08\x09localhost\x08\x03nfd";
/// `/localhop/nfd`.
const HOP: &[u8] = b"\x08\x08localhop\x08\x03nfd";

/// Octets of a segment of a dataset.
const SEGMENT: usize = 7000;
/// How long responses and notifications are fresh.
const FRESH: Duration = Duration::from_secs(1);
/// How long datasets are fresh, in milliseconds: a cache is not to answer with what was before a command.
const DATASET_FRESH_MS: u64 = 1;
/// How long a dataset is answered from as it was, if no command came since.
const REUSED: Duration = Duration::from_millis(200);
/// How long the segments of a version are kept.
const KEPT: Duration = Duration::from_secs(10);
/// Versions of datasets that are kept, at most.
const VERSIONS_MAX: usize = 32;
/// Notifications that are kept for who asks late.
const NOTIFICATIONS_MAX: usize = 64;
/// Data that one `cs/erase` erases, at most.
const ERASE_MAX: u64 = 256;

/// The management of a node.
#[derive(Debug)]
pub struct Manager<N> {
    node: N,
    authority: Authority,
    /// Shared with who lists the routes.
    rib: Arc<Mutex<Rib>>,
    datasets: VecDeque<DatasetVersion>,
    version: u64,
    /// Commands obeyed: what was made before the last is not new any more.
    commands: u64,
    notifications: VecDeque<Vec<u8>>,
    /// The number of the next notification.
    sequence: u64,
    /// Of lines about commands that are refused.
    sparing: LogLimit,
}

/// A version of a dataset.
#[derive(Debug)]
struct DatasetVersion {
    at: Instant,
    /// Commands that had been obeyed.
    commands: u64,
    publication: Publication,
}

impl<N: Node> Manager<N> {
    /// A management that obeys `authority`, with room for so many routes.
    pub fn new(node: N, authority: Authority, routes_max: usize) -> Self {
        Self {
            node,
            authority,
            rib: Arc::new(Mutex::new(Rib::new(routes_max))),
            datasets: VecDeque::new(),
            version: 0,
            commands: 0,
            notifications: VecDeque::new(),
            sequence: 0,
            sparing: LogLimit::default(),
        }
    }

    /// The node.
    pub fn node(&self) -> &N {
        &self.node
    }

    /// Whose commands are obeyed.
    pub fn authority_mut(&mut self) -> &mut Authority {
        &mut self.authority
    }

    /// The node, to be changed as commands change it. What was listed before is listed anew.
    pub fn node_mut(&mut self) -> &mut N {
        self.commands += 1;
        &mut self.node
    }

    /// The routes, and the node whose FIB follows them: for those of the configuration.
    pub fn rib(&self) -> (MutexGuard<'_, Rib>, &N) {
        (lock(&self.rib), &self.node)
    }

    /// The routes, for who lists them. While they change they are locked for longer than a control loop should wait.
    pub fn shared_rib(&self) -> &Arc<Mutex<Rib>> {
        &self.rib
    }

    /// The Data for the Interest that `packet` is, which came in by face `from`; `None` when there is none.
    pub fn answer(&mut self, packet: &[u8], from: FaceId, now: Instant, wall: SystemTime) -> Option<Vec<u8>> {
        let interest = Interest::parse(packet, packet.len()).ok()?;
        let is_local = interest.name.value().starts_with(LOCAL);
        if !is_local && !interest.name.value().starts_with(HOP) {
            return None;
        }
        if is_signed(&interest) {
            let response = self.command(packet, &interest, from, now, wall)?;
            return data(interest.name, &response.encode(), FRESH);
        }
        if !is_local {
            return None;
        }
        self.dataset(&interest, now, wall).or_else(|| {
            // A module's name, a verb and parameters: a command, but for its signature.
            let module = interest.name.component(2).and_then(|module| Module::from_name(module.value()));
            let is_command = interest.name.len() == 5
                && module.is_some()
                && !interest.can_be_prefix
                && !events_prefix().is_prefix_of(&interest.name);
            is_command
                .then(|| ControlResponse::refusal(403, Refusal::Unsigned.to_string()))
                .and_then(|response| data(interest.name, &response.encode(), FRESH))
        })
    }

    /// Does what is due: routes end, those to faces that are gone go with them. Gives the notifications of what was done to
    /// faces, which the Interests that wait for them are answered with.
    pub fn tick(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.node.tick(now);
        lock(&self.rib).expire(now, &mut self.node.fib());
        self.datasets.retain(|made| now.saturating_duration_since(made.at) < KEPT);
        let (events, _) = self.node.faces().take_events();
        let mut new = Vec::new();
        for event in events {
            if event.kind == FaceEventKind::Destroyed {
                lock(&self.rib).face_gone(event.face.id(), &mut self.node.fib());
            }
            let name = with_number(events_prefix(), types::SEQUENCE_COMPONENT, self.sequence);
            let notification =
                Name::new(&name).ok().and_then(|name| data(name, &datasets::event(&event), FRESH));
            let Some(notification) = notification else { continue };
            self.sequence += 1;
            if self.notifications.len() == NOTIFICATIONS_MAX {
                self.notifications.pop_front();
            }
            self.notifications.push_back(notification.clone());
            new.push(notification);
        }
        new
    }

    /// Obeys a command; `None` when it is none.
    fn command(
        &mut self,
        packet: &[u8],
        interest: &Interest<'_>,
        from: FaceId,
        now: Instant,
        wall: SystemTime,
    ) -> Option<ControlResponse> {
        let name = unsigned_name(interest);
        let [module, verb, parameters] =
            [2, 3, 4].map(|at| name.component(at).map(|component| component.value()));
        let module = Module::from_name(module?)?;
        let is_hop = name.value().starts_with(HOP);
        if name.len() != 5 || (is_hop && module != Module::Rib) {
            return None;
        }
        // By either name: an application that has come over TCP does not know that its router is on its host.
        let face = self.node.faces().get(from);
        let origin = face.as_ref().map_or(Origin::Elsewhere, |face| origin_of(face));
        if let Err(refusal) = self.authority.judge(packet, interest, module, origin, wall) {
            if let Some(left_out) = self.sparing.may_tell(now) {
                let who = face.map(|face| face.remote().to_string()).unwrap_or_default();
                tracing::warn!(%name, face = from.0, who, %refusal, left_out, "a command is refused");
            }
            return Some(ControlResponse::refusal(403, refusal.to_string()));
        }
        self.commands += 1;
        let response = match ControlParameters::parse(parameters?) {
            Ok(asked) => self.obey(module, verb?, &asked, from, now),
            Err(malformed) => ControlResponse::refusal(400, malformed.to_string()),
        };
        tracing::info!(module = module.name(), verb = %String::from_utf8_lossy(verb?), face = from.0, code = response.code, "command");
        Some(response)
    }

    fn obey(
        &mut self,
        module: Module,
        verb: &[u8],
        asked: &ControlParameters,
        from: FaceId,
        now: Instant,
    ) -> ControlResponse {
        let Self { node, rib, .. } = self;
        match (module, verb) {
            (Module::Rib, b"register") => routes::register(&mut lock(rib), node, asked, from, now),
            (Module::Rib, b"unregister") => routes::unregister(&mut lock(rib), node, asked, from),
            (Module::Fib, b"add-nexthop") => routes::add_next_hop(&mut lock(rib), node, asked, from),
            (Module::Fib, b"remove-nexthop") => routes::remove_next_hop(&mut lock(rib), node, asked, from),
            (Module::Faces, b"create") => faces::create(node, asked),
            (Module::Faces, b"update") => faces::update(node, asked, from),
            (Module::Faces, b"destroy") => faces::destroy(node, asked),
            (Module::Cs, b"config") => configure_cs(node, asked),
            (Module::Cs, b"erase") => erase_cs(node, asked),
            (Module::StrategyChoice, b"set") => set_strategy(node, asked),
            (Module::StrategyChoice, b"unset") => unset_strategy(node, asked),
            _ => ControlResponse::refusal(501, "there is no such command"),
        }
    }

    /// Answers from a dataset: one that is fresh, or a new one.
    fn dataset(&mut self, interest: &Interest<'_>, now: Instant, wall: SystemTime) -> Option<Vec<u8>> {
        if events_prefix().is_prefix_of(&interest.name) {
            return self.notification(interest);
        }
        let is_new = |made: &DatasetVersion| {
            made.commands == self.commands && now.saturating_duration_since(made.at) < REUSED
        };
        let names_version =
            interest.name.components().any(|component| component.number(types::VERSION_COMPONENT).is_some());
        let known = self.datasets.iter().rev().filter(|made| names_version || is_new(made));
        if let Some(answer) = known.filter_map(|made| made.publication.answer(interest)).next() {
            return Some(answer);
        }
        if names_version || !interest.can_be_prefix {
            return None;
        }
        let content = self.content(interest.name, now, wall)?;
        self.version = datasets::milliseconds(wall).max(self.version + 1);
        let publication =
            Publication::new(interest.name, self.version, content, SEGMENT, DATASET_FRESH_MS).ok()?;
        let answer = publication.answer(interest);
        if self.datasets.len() == VERSIONS_MAX {
            self.datasets.pop_front();
        }
        self.datasets.push_back(DatasetVersion { at: now, commands: self.commands, publication });
        answer
    }

    /// What a dataset says.
    fn content(&self, name: Name<'_>, now: Instant, wall: SystemTime) -> Option<Vec<u8>> {
        let component = |at: usize| name.component(at).map(|component| component.value());
        Some(match (component(2)?, component(3)?, name.len()) {
            (b"faces", b"list", 4) => datasets::faces(&self.node, &FaceFilter::default()),
            (b"faces", b"query", 5) => datasets::faces(&self.node, &FaceFilter::parse(component(4)?).ok()?),
            (b"faces", b"channels", 4) => datasets::channels(&self.node),
            (b"fib", b"list", 4) => datasets::fib(&lock(&self.rib)),
            (b"rib", b"list", 4) => datasets::rib(&lock(&self.rib), now),
            (b"cs", b"info", 4) => datasets::cs(&self.node.cs()),
            (b"strategy-choice", b"list", 4) => datasets::strategies(&self.node),
            (b"status", b"general", 4) => datasets::general(&self.node, &lock(&self.rib), wall),
            (b"status", b"workers", 4) => datasets::workers(&self.node.sharing()),
            _ => return None,
        })
    }

    /// A notification that is kept: the newest, or one by its number.
    fn notification(&self, interest: &Interest<'_>) -> Option<Vec<u8>> {
        let behind = interest.name.len() - events_prefix().len();
        if behind == 0 {
            return self.notifications.back().cloned().filter(|_| interest.can_be_prefix);
        }
        let number = interest.name.last().filter(|_| behind == 1)?.number(types::SEQUENCE_COMPONENT)?;
        let age = self.sequence.checked_sub(number)?;
        let place = self.notifications.len().checked_sub(usize::try_from(age).ok()?)?;
        self.notifications.get(place).cloned()
    }

    /// Answers what comes over a connection until `stop` is set, and does between two commands what `between` says: every 50 ms at
    /// least.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn serve(
        &mut self,
        connection: &mut Connection,
        stop: &AtomicBool,
        mut between: impl FnMut(&mut Self),
    ) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            between(self);
            let wait = Instant::now() + Duration::from_millis(50);
            if let Some(received) = connection.receive(wait)?
                && let Some((header, packet)) = received.packet()
                && header.nack.is_none()
            {
                let from =
                    header.incoming_face.and_then(|face| u32::try_from(face).ok()).map_or(FaceId(0), FaceId);
                if let Some(answer) = self.answer(packet, from, Instant::now(), SystemTime::now()) {
                    let mut packet = Vec::new();
                    append_answer(&mut packet, header.pit_token, &answer).map_err(io::Error::other)?;
                    connection.send(&packet)?;
                }
            }
            for notification in self.tick(Instant::now()) {
                connection.send(&notification)?;
            }
        }
        Ok(())
    }
}

fn lock(rib: &Mutex<Rib>) -> MutexGuard<'_, Rib> {
    rib.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From where the commands of a face come.
fn origin_of(face: &Face) -> Origin {
    match (face.scope(), face.remote()) {
        (Scope::NonLocal, _) => Origin::Elsewhere,
        (Scope::Local, FaceUri::Tcp(_)) => Origin::Loopback,
        (Scope::Local, _) => Origin::Socket,
    }
}

/// `/localhost/nfd/faces/events`.
fn events_prefix() -> Name<'static> {
    Name::new(b"\x08\x09localhost\x08\x03nfd\x08\x05faces\x08\x06events").unwrap_or_default()
}

/// A Data of one segment.
fn data(name: Name<'_>, content: &[u8], fresh: Duration) -> Option<Vec<u8>> {
    let freshness_ms = u64::try_from(fresh.as_millis()).ok()?;
    let repr = DataRepr { name, content, freshness_ms, ..DataRepr::default() };
    let mut octets = vec![0; repr.len()];
    repr.emit(&mut octets).ok()?;
    Some(octets)
}

fn configure_cs(node: &mut impl Node, asked: &ControlParameters) -> ControlResponse {
    let flag =
        |bit: u64| asked.mask.filter(|mask| mask & bit != 0).map(|_| asked.flags.unwrap_or(0) & bit != 0);
    if asked.flags.is_some() != asked.mask.is_some() {
        return ControlResponse::refusal(400, "flags and mask are said together");
    }
    node.configure_cs(&CsUpdate {
        capacity: asked.capacity,
        admits: flag(datasets::CS_ADMITS),
        serves: flag(datasets::CS_SERVES),
    });
    let info = node.cs();
    ControlResponse::ok(ControlParameters {
        capacity: Some(info.capacity),
        flags: Some(datasets::cs_flags(&info)),
        ..ControlParameters::default()
    })
}

fn erase_cs(node: &mut impl Node, asked: &ControlParameters) -> ControlResponse {
    let Some(prefix) = &asked.name else { return ControlResponse::refusal(400, "the prefix is missing") };
    let erased = node.erase_cs(prefix, asked.count, ERASE_MAX);
    let body = ControlParameters {
        name: asked.name.clone(),
        count: Some(erased.count),
        // It says that there may be more: the command's bound was met, or its time.
        capacity: erased.has_more.then_some(ERASE_MAX),
        ..ControlParameters::default()
    };
    ControlResponse::ok(body)
}

fn set_strategy(node: &mut impl Node, asked: &ControlParameters) -> ControlResponse {
    let (Some(prefix), Some(strategy)) = (&asked.name, &asked.strategy) else {
        return ControlResponse::refusal(400, "the prefix or the strategy is missing");
    };
    match node.set_strategy(prefix, strategy) {
        Ok(chosen) => ControlResponse::ok(ControlParameters {
            name: asked.name.clone(),
            strategy: Some(chosen),
            ..ControlParameters::default()
        }),
        Err(why) => ControlResponse::refusal(404, why),
    }
}

fn unset_strategy(node: &mut impl Node, asked: &ControlParameters) -> ControlResponse {
    match &asked.name {
        None => ControlResponse::refusal(400, "the prefix is missing"),
        Some(prefix) if prefix.is_empty() => ControlResponse::refusal(400, "the root always has a strategy"),
        Some(prefix) => {
            node.unset_strategy(prefix);
            ControlResponse::ok(ControlParameters {
                name: asked.name.clone(),
                ..ControlParameters::default()
            })
        }
    }
}
