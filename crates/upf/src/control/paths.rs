//! GTP-U paths in use, and whether their far ends are there (TS 29.281 7.2, TS 23.527 5.2).
//!
//! ```text
//!             first tunnel                    response
//!   (no path) ────────────▶ asked ───────────────────────────▶ quiet until the interval is over
//!        ▲                   │ ▲  T3, fewer than N3 requests      │
//!        │ no tunnels        │ └───────┘                          └──▶ asked again, or forgotten
//!        └───────────────────┴──▶ N3 requests unanswered: failed, asked again after the interval
//! ```
//! Time here only goes forward, whatever the wall clock does.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use kaido_table::Seed;

use crate::echo::EchoSettings;
use kaido_n4::{PathChange, PathEvent};

/// Peers that are looked after; what further ones do is not noticed.
const PATHS_MAX: usize = 65_536;
/// Requests sent in one turn.
const REQUESTS_A_TURN: usize = 256;
/// Events kept for a control plane that does not ask for them.
const EVENTS_MAX: usize = 65_536;

/// A path as `kaido status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSummary {
    /// The far end.
    pub peer: IpAddr,
    /// Whether it answers; `None` before the first answer or failure.
    pub up: Option<bool>,
    /// Tunnels that lead there.
    pub tunnels: u32,
    /// Echo Requests sent, repetitions included.
    pub requests: u64,
    /// Echo Responses to them.
    pub responses: u64,
    /// Failures noticed.
    pub failures: u32,
    /// Restarts that the peer has told of.
    pub restarts: u32,
}

#[derive(Debug)]
struct Path {
    shown: PathSummary,
    sequence: u16,
    /// Requests of the current sequence number that were sent without an answer.
    tries: u8,
    /// When the first of them was sent.
    asked: Duration,
    due: Duration,
    recovery: Option<u32>,
}

/// An Echo Request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EchoRequest {
    pub(super) peer: IpAddr,
    pub(super) sequence: u16,
}

/// All paths in use.
#[derive(Debug)]
pub(super) struct Paths {
    settings: EchoSettings,
    paths: HashMap<IpAddr, Path>,
    calendar: BTreeSet<(Duration, IpAddr)>,
    /// Time passed since the first turn, and the wall clock at the last.
    clock: (Duration, Option<SystemTime>),
    /// Makes first sequence numbers that strangers do not know.
    secret: Seed,
    events: VecDeque<PathEvent>,
}

impl Paths {
    pub(super) fn new(settings: EchoSettings) -> Self {
        Self {
            settings,
            paths: HashMap::new(),
            calendar: BTreeSet::new(),
            clock: (Duration::ZERO, None),
            secret: Seed::random(),
            events: VecDeque::new(),
        }
    }

    /// Asks by other times, each path from its next request on. Whether peers are asked at all stays as it is.
    pub(super) fn set(&mut self, settings: EchoSettings) {
        let interval = self.settings.interval.and(settings.interval).or(self.settings.interval);
        self.settings = EchoSettings { interval, ..settings };
    }

    /// A tunnel to a peer came into use.
    pub(super) fn join(&mut self, peer: IpAddr) {
        if self.settings.interval.is_none() {
            return;
        }
        if let Some(path) = self.paths.get_mut(&peer) {
            path.shown.tunnels += 1;
        } else if self.paths.len() < PATHS_MAX {
            let due = self.clock.0;
            let key = u128::from(due.as_secs()) << 64 | self.paths.len() as u128;
            #[allow(clippy::cast_possible_truncation)] // As many bits as are needed.
            let sequence = self.secret.hash(&key) as u16;
            let shown = PathSummary {
                peer,
                up: None,
                tunnels: 1,
                requests: 0,
                responses: 0,
                failures: 0,
                restarts: 0,
            };
            self.paths.insert(peer, Path { shown, sequence, tries: 0, asked: due, due, recovery: None });
            self.calendar.insert((due, peer));
        }
    }

    /// A tunnel to a peer is not used any more. The path is forgotten when its next request would be due, so that it is
    /// not asked too often if it comes into use again.
    pub(super) fn leave(&mut self, peer: IpAddr) {
        if let Some(path) = self.paths.get_mut(&peer) {
            path.shown.tunnels = path.shown.tunnels.saturating_sub(1);
        }
    }

    /// Looks at the paths whose time has come: what is to be sent, and peers that are not waited for any more.
    pub(super) fn turn(&mut self, now: SystemTime) -> (Vec<EchoRequest>, Vec<IpAddr>) {
        let (mut requests, mut given_up) = (Vec::new(), Vec::new());
        self.tick(now);
        let clock = self.clock.0;
        while let Some(&(due, peer)) = self.calendar.first()
            && due <= clock
            && requests.len() < REQUESTS_A_TURN
        {
            self.calendar.remove(&(due, peer));
            let (Some(path), Some(interval)) = (self.paths.get_mut(&peer), self.settings.interval) else {
                continue;
            };
            if path.tries >= self.settings.n3.max(1) {
                path.tries = 0;
                given_up.push(peer);
                path.due = path.asked + interval.max(self.settings.t3);
                if path.shown.up != Some(false) {
                    path.shown.up = Some(false);
                    path.shown.failures += 1;
                    self.tell(peer, PathChange::Failed);
                }
                self.schedule(peer);
                continue;
            }
            if path.tries == 0 {
                if path.shown.tunnels == 0 {
                    self.paths.remove(&peer);
                    continue;
                }
                path.sequence = path.sequence.wrapping_add(1);
                path.asked = clock;
            }
            path.tries += 1;
            path.shown.requests += 1;
            path.due = clock + self.settings.t3;
            requests.push(EchoRequest { peer, sequence: path.sequence });
            self.schedule(peer);
        }
        (requests, given_up)
    }

    /// A response that was waited for.
    pub(super) fn answered(&mut self, peer: IpAddr, sequence: u16, restarted: Option<u32>) {
        let Some(path) = self.paths.get_mut(&peer) else { return };
        if path.tries == 0 || path.sequence != sequence {
            return;
        }
        let was_up = path.shown.up.replace(true);
        path.shown.responses += 1;
        path.tries = 0;
        let had = path.recovery;
        path.recovery = restarted.or(had);
        // Later by serial numbers (RFC 1982), for the stamp wraps in 2036; an earlier one is an old response.
        let is_later =
            had.zip(restarted).is_some_and(|(had, now)| now != had && now.wrapping_sub(had) < 1 << 31);
        path.shown.restarts += u32::from(is_later);
        let old = std::mem::replace(&mut path.due, path.asked + self.settings.interval.unwrap_or_default());
        self.calendar.remove(&(old, peer));
        self.schedule(peer);
        if was_up == Some(false) {
            self.tell(peer, PathChange::Recovered);
        }
        if is_later {
            self.tell(peer, PathChange::Restarted);
        }
    }

    /// What has happened since the last call, at most `limit` events.
    pub(super) fn take_events(&mut self, limit: usize) -> Vec<PathEvent> {
        self.events.drain(..limit.min(self.events.len())).collect()
    }

    /// The paths, failed ones first, at most `limit`.
    pub(super) fn summaries(&self, limit: usize) -> Vec<PathSummary> {
        let mut all: Vec<_> = self.paths.values().map(|path| path.shown).collect();
        let order = |path: &PathSummary| (path.up.unwrap_or(true), path.peer);
        // Only those that are shown are sorted: there may be many, and others wait for this thread.
        if limit < all.len() {
            all.select_nth_unstable_by_key(limit, order);
            all.truncate(limit);
        }
        all.sort_by_key(order);
        all
    }

    /// How many paths are up, down, and not known to be either.
    pub(super) fn states(&self) -> [usize; 3] {
        let mut states = [0; 3];
        for path in self.paths.values() {
            states[match path.shown.up {
                Some(true) => 0,
                Some(false) => 1,
                None => 2,
            }] += 1;
        }
        states
    }

    fn schedule(&mut self, peer: IpAddr) {
        if let Some(path) = self.paths.get(&peer) {
            self.calendar.insert((path.due, peer));
        }
    }

    fn tell(&mut self, peer: IpAddr, change: PathChange) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(PathEvent { peer, change });
        }
    }

    fn tick(&mut self, now: SystemTime) {
        let (clock, last) = &mut self.clock;
        *clock += last.and_then(|last| now.duration_since(last).ok()).unwrap_or_default();
        *last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Clock(SystemTime);

    impl Clock {
        fn after(&mut self, passed: Duration) -> SystemTime {
            self.0 += passed;
            self.0
        }
    }

    fn peer(host: u8) -> IpAddr {
        IpAddr::from([10, 100, 3, host])
    }

    fn start() -> (Paths, Clock) {
        let mut clock = Clock(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
        let mut paths = Paths::new(EchoSettings { interval: Some(60 * SECOND), ..EchoSettings::default() });
        assert!(paths.turn(clock.after(SECOND)).0.is_empty());
        (paths, clock)
    }

    /// The one request of a turn.
    fn asked(paths: &mut Paths, now: SystemTime) -> EchoRequest {
        let (requests, _) = paths.turn(now);
        let [request] = requests[..] else { panic!("{requests:?}") };
        request
    }

    /// Conformance: TS 29.281 7.2.1 | An Echo Request is sent on a path at most every 60 s
    #[test]
    fn a_path_in_use_is_asked_once_a_minute() {
        let (mut paths, mut clock) = start();
        paths.join(peer(2));
        paths.join(peer(2));
        let first = asked(&mut paths, clock.after(SECOND));
        assert_eq!(first.peer, peer(2));
        assert!(paths.turn(clock.after(SECOND)).0.is_empty());
        paths.answered(peer(2), first.sequence, None);
        // Used no more, and again: it is not asked more often for that.
        paths.leave(peer(2));
        paths.leave(peer(2));
        paths.join(peer(2));
        assert!(paths.turn(clock.after(58 * SECOND)).0.is_empty());
        let second = asked(&mut paths, clock.after(SECOND));
        assert_eq!(second.sequence, first.sequence.wrapping_add(1));
        paths.answered(peer(2), second.sequence, None);
        paths.leave(peer(2));
        assert!(paths.turn(clock.after(60 * SECOND)).0.is_empty(), "no tunnel leads there any more");
        assert!(paths.summaries(9).is_empty() && paths.calendar.is_empty());
        assert!(paths.take_events(9).is_empty());
    }

    /// Conformance: TS 29.281 7.2.1 | After N3-REQUESTS without response the path is down, until a response comes
    #[test]
    fn a_peer_that_is_silent_fails_and_recovers() {
        let (mut paths, mut clock) = start();
        paths.join(peer(2));
        let first = asked(&mut paths, clock.after(SECOND));
        for _ in 0..2 {
            assert_eq!(asked(&mut paths, clock.after(3 * SECOND)), first, "the same request again");
        }
        assert_eq!(paths.turn(clock.after(3 * SECOND)), (vec![], vec![peer(2)]));
        assert_eq!(paths.take_events(9), [PathEvent { peer: peer(2), change: PathChange::Failed }]);
        // What comes too late says nothing.
        paths.answered(peer(2), first.sequence, None);
        assert_eq!(paths.summaries(1)[0].up, Some(false));
        assert!(paths.turn(clock.after(50 * SECOND)).0.is_empty());
        for round in 0..2 {
            let again = asked(&mut paths, clock.after(SECOND));
            assert_ne!(again.sequence, first.sequence);
            if round == 0 {
                (0..2).for_each(|_| assert_eq!(asked(&mut paths, clock.after(3 * SECOND)), again));
                paths.turn(clock.after(3 * SECOND));
                assert!(paths.take_events(9).is_empty(), "told once");
                clock.after(50 * SECOND);
            } else {
                paths.answered(peer(2), again.sequence, None);
            }
        }
        assert_eq!(paths.take_events(9), [PathEvent { peer: peer(2), change: PathChange::Recovered }]);
        let shown = paths.summaries(1)[0];
        assert_eq!((shown.up, shown.failures, shown.requests, shown.responses), (Some(true), 1, 7, 1));
    }

    /// Conformance: TS 29.281 8.8 | A later Recovery Time Stamp says that the peer has restarted
    #[test]
    fn a_later_stamp_is_a_restart_and_an_earlier_one_is_not() {
        let (mut paths, mut clock) = start();
        paths.join(peer(2));
        for (stamp, restarts) in
            [(Some(u32::MAX), 0), (Some(u32::MAX), 0), (None, 0), (Some(5), 1), (Some(4), 1), (Some(6), 2)]
        {
            let request = asked(&mut paths, clock.after(60 * SECOND));
            paths.answered(peer(2), request.sequence, stamp);
            assert_eq!(paths.summaries(1)[0].restarts, restarts, "{stamp:?}");
        }
        let restarted = PathEvent { peer: peer(2), change: PathChange::Restarted };
        assert_eq!(paths.take_events(9), [restarted, restarted]);
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nothing() {
        let (mut paths, mut clock) = start();
        paths.join(peer(2));
        let first = asked(&mut paths, clock.after(SECOND));
        clock.0 -= 3600 * SECOND;
        assert!(paths.turn(clock.after(SECOND)).0.is_empty());
        assert_eq!(asked(&mut paths, clock.after(3 * SECOND)), first);
    }

    #[test]
    fn many_paths_are_asked_in_several_turns() {
        let (mut paths, mut clock) = start();
        for host in 0..600u32 {
            paths.join(IpAddr::from(host.to_be_bytes()));
        }
        let now = clock.after(SECOND);
        let turns: Vec<_> = (0..4).map(|_| paths.turn(now).0.len()).collect();
        assert_eq!(turns, [256, 256, 88, 0]);
        let mut off = Paths::new(EchoSettings::default());
        off.join(peer(2));
        assert!(off.turn(now).0.is_empty() && off.summaries(1).is_empty());
    }
}
