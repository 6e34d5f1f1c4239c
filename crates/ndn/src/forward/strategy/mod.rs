//! Strategies: which of the next hops of a route an Interest goes to.
//!
//! One trait; which strategy serves a name is chosen by the longest prefix ([`StrategyChoice`]). A strategy decides and
//! the forwarding acts. A strategy is shown the next hops that an Interest may go to, in the order of their cost, and
//! answers with those that it shall go to.

mod asf;
mod best_route;
mod multicast;
mod round_robin;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use arrayvec::ArrayVec;
use kaido_ndn_tables::{FaceId, HOPS_MAX, NodeInstant, OutRecord, Pit, Slot};

use super::measurements::{MeasurementRef, Measurements};

/// The first time in which an Interest that comes again is not sent again; it doubles each time one is (NFD).
const SUPPRESSION_INITIAL_MS: u16 = 10;
/// The longest such time.
const SUPPRESSION_MAX_MS: u16 = 250;

/// The strategy of a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StrategyChoice {
    /// The cheapest next hop; an Interest that comes again goes to the next one.
    #[default]
    BestRoute,
    /// All next hops.
    Multicast,
    /// The next hop that answers fastest, others being tried from time to time.
    Asf,
    /// One next hop after the other.
    RoundRobin,
}

impl StrategyChoice {
    /// All strategies.
    pub const ALL: [Self; 4] = [Self::BestRoute, Self::Multicast, Self::Asf, Self::RoundRobin];

    /// Its name, as the last but one component of its full name in the management protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BestRoute => "best-route",
            Self::Multicast => "multicast",
            Self::Asf => "asf",
            Self::RoundRobin => "round-robin",
        }
    }
}

impl fmt::Display for StrategyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no strategy of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no strategy of this name: best-route, multicast, asf and round-robin are there")]
pub struct NoStrategy;

impl FromStr for StrategyChoice {
    type Err = NoStrategy;

    fn from_str(name: &str) -> Result<Self, NoStrategy> {
        Self::ALL.into_iter().find(|choice| choice.name() == name).ok_or(NoStrategy)
    }
}

/// What a strategy remembers of a pending Interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The time in which it is not sent again.
    suppression_ms: u16,
    /// What is known of the next hops of its route.
    pub(super) measured: Option<MeasurementRef>,
}

impl State {
    pub(super) fn from_bits(bits: u64) -> Self {
        let suppression_ms = u16::try_from(bits & 0xffff).unwrap_or(0);
        Self {
            suppression_ms: suppression_ms.max(SUPPRESSION_INITIAL_MS),
            measured: MeasurementRef::from_bits(bits >> 16),
        }
    }

    pub(super) fn to_bits(self) -> u64 {
        // Zero of an Interest that came once: nothing needs to be kept of it then.
        let longer_ms = if self.suppression_ms > SUPPRESSION_INITIAL_MS { self.suppression_ms } else { 0 };
        self.measured.map_or(0, MeasurementRef::to_bits) << 16 | u64::from(longer_ms)
    }

    fn suppression(self) -> Duration {
        Duration::from_millis(self.suppression_ms.into())
    }

    fn suppress_longer(&mut self) {
        self.suppression_ms = (self.suppression_ms * 2).min(SUPPRESSION_MAX_MS);
    }
}

/// Where an Interest goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextHopQuery {
    pub(super) face: FaceId,
    /// With a nonce of its own: beside the Interest itself, to learn of the next hop.
    pub(super) is_probe: bool,
}

/// What becomes of an Interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It goes to these, at least one.
    Forward(ArrayVec<NextHopQuery, HOPS_MAX>),
    /// It was sent not long ago, and waits.
    Suppress,
    /// There is no way for it.
    NoRoute,
}

impl Decision {
    fn one(face: Option<FaceId>) -> Option<Self> {
        let asks = [NextHopQuery { face: face?, is_probe: false }];
        Some(Self::Forward(asks.into_iter().collect()))
    }
}

/// An Interest that is to be sent, as a strategy sees it.
pub(super) struct OutgoingInterest<'m> {
    /// The faces that it may go to, the cheapest first.
    pub(super) hops: &'m [FaceId],
    pub(super) pit: &'m Pit,
    pub(super) slot: Slot,
    pub(super) state: &'m mut State,
    pub(super) measurements: &'m mut Measurements,
    pub(super) now: NodeInstant,
}

impl OutgoingInterest<'_> {
    /// The upstreams that were asked before.
    fn upstreams(&self) -> impl Iterator<Item = OutRecord> {
        self.pit.upstreams(self.slot)
    }

    /// When the face was asked last.
    fn asked(&self, face: FaceId) -> Option<NodeInstant> {
        self.upstreams().find(|record| record.face == face).map(|record| record.sent)
    }

    /// Whether nobody was asked before.
    fn is_new(&self) -> bool {
        self.upstreams().next().is_none()
    }

    /// Whether an Interest that comes again comes too soon; if not, the next one has to wait longer.
    fn is_too_soon(&mut self) -> bool {
        let last = self.upstreams().map(|record| record.sent).max();
        let is_too_soon = last.is_some_and(|last| self.now.since(last) < self.state.suppression());
        if !is_too_soon {
            self.state.suppress_longer();
        }
        is_too_soon
    }

    /// For an Interest that comes again: the cheapest face that was not asked yet, or the one that was asked longest ago.
    fn next_or_oldest(&self) -> Option<FaceId> {
        let unused = self.hops.iter().find(|&&face| self.asked(face).is_none());
        unused.or_else(|| self.hops.iter().min_by_key(|&&face| self.asked(face))).copied()
    }

    /// An Interest that comes again goes where it has not been, unless it comes too soon.
    fn again(&mut self) -> Decision {
        if self.is_too_soon() {
            return Decision::Suppress;
        }
        Decision::one(self.next_or_oldest()).unwrap_or(Decision::Suppress)
    }
}

/// A strategy.
pub(super) trait Strategy {
    /// Whether it wants to know how next hops answer; then the route's measurements are in [`State::measured`].
    const MEASURES: bool;

    /// Whether an Interest that comes for the first time goes to the cheapest next hop, whatever else.
    const BEGINS_WITH_CHEAPEST: bool = false;

    /// Decides where an Interest goes that came, for the first time or again.
    fn decide(&self, meeting: &mut OutgoingInterest<'_>) -> Decision;
}

impl StrategyChoice {
    #[inline]
    pub(super) fn measures(self) -> bool {
        match self {
            Self::BestRoute => best_route::BestRoute::MEASURES,
            Self::Multicast => multicast::Multicast::MEASURES,
            Self::Asf => asf::Asf::MEASURES,
            Self::RoundRobin => round_robin::RoundRobin::MEASURES,
        }
    }

    /// Whether an Interest that comes for the first time goes to the cheapest next hop, whatever else: the others need not
    /// be looked at.
    #[inline]
    pub(super) fn begins_with_cheapest(self) -> bool {
        match self {
            Self::BestRoute => best_route::BestRoute::BEGINS_WITH_CHEAPEST,
            Self::Multicast => multicast::Multicast::BEGINS_WITH_CHEAPEST,
            Self::Asf => asf::Asf::BEGINS_WITH_CHEAPEST,
            Self::RoundRobin => round_robin::RoundRobin::BEGINS_WITH_CHEAPEST,
        }
    }

    #[inline]
    pub(super) fn decide(self, meeting: &mut OutgoingInterest<'_>) -> Decision {
        match self {
            Self::BestRoute => best_route::BestRoute.decide(meeting),
            Self::Multicast => multicast::Multicast.decide(meeting),
            Self::Asf => asf::Asf.decide(meeting),
            Self::RoundRobin => round_robin::RoundRobin.decide(meeting),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use kaido_ndn_tables::{NameHash, PitEntry, PitSettings, Prefixes, Selectors};

    use super::*;

    /// A pending Interest and its route.
    pub(super) struct Rig {
        choice: StrategyChoice,
        pub(super) pit: Pit,
        slot: Slot,
        state: State,
        pub(super) measurements: Measurements,
        pub(super) measured: Option<MeasurementRef>,
    }

    pub(super) fn at(millis: u64) -> NodeInstant {
        NodeInstant::default() + Duration::from_millis(millis)
    }

    impl Rig {
        pub(super) fn new(choice: StrategyChoice) -> Self {
            let mut pit = Pit::new(&PitSettings::for_entries(4, 0), NodeInstant::default()).unwrap();
            let mut measurements = Measurements::new(4).unwrap();
            let measured = measurements.of(b"\x08\x01r", 7, NodeInstant::default());
            let slot = Self::interest(&mut pit, 0);
            let state = State { measured: measured.filter(|_| choice.measures()), ..State::from_bits(0) };
            Self { choice, pit, slot, state, measurements, measured }
        }

        fn interest(pit: &mut Pit, number: u8) -> Slot {
            let (name, mut prefixes) = ([8, 1, number], Prefixes::default());
            prefixes.fill(&NameHash::fixed(1), &name).unwrap();
            match pit.entry(&name, &prefixes, Selectors::default()) {
                PitEntry::Vacant(vacant) => vacant.insert().unwrap(),
                PitEntry::Occupied(slot) => panic!("{slot:?} has the name"),
            }
        }

        /// Another Interest of the route.
        pub(super) fn renew(&mut self) {
            self.pit.erase(self.slot);
            self.slot = Self::interest(&mut self.pit, 0);
            self.state = State { measured: self.state.measured, ..State::from_bits(0) };
        }

        /// What is decided for an Interest at this time, which is then done.
        pub(super) fn decide(&mut self, hops: &[u32], millis: u64) -> Decision {
            let hops: Vec<_> = hops.iter().map(|&face| FaceId(face)).collect();
            let decision = self.choice.decide(&mut OutgoingInterest {
                hops: &hops,
                pit: &self.pit,
                slot: self.slot,
                state: &mut self.state,
                measurements: &mut self.measurements,
                now: at(millis),
            });
            if let Decision::Forward(asks) = &decision {
                for ask in asks {
                    let record = OutRecord { sent: at(millis), face: ask.face, nonce: 1, nack: None };
                    self.pit.insert_out_record(self.slot, &record).unwrap();
                }
            }
            decision
        }

        /// The faces that an Interest at this time goes to.
        pub(super) fn faces(&mut self, hops: &[u32], millis: u64) -> Vec<u32> {
            match self.decide(hops, millis) {
                Decision::Forward(asks) => asks.iter().map(|ask| ask.face.0).collect(),
                _ => Vec::new(),
            }
        }
    }

    #[test]
    fn strategies_have_names_and_state_fits_its_word() {
        for choice in StrategyChoice::ALL {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert_eq!("ncc".parse::<StrategyChoice>(), Err(NoStrategy));
        let state = State { suppression_ms: 250, ..Rig::new(StrategyChoice::Asf).state };
        assert!(state.measured.is_some());
        assert_eq!(State::from_bits(state.to_bits()), state);
        assert_eq!(State::from_bits(0), State { suppression_ms: 10, measured: None });
        assert_eq!(State::from_bits(0).to_bits(), 0);
    }

    #[test]
    fn who_begins_with_the_cheapest_does() {
        for choice in StrategyChoice::ALL.into_iter().filter(|choice| choice.begins_with_cheapest()) {
            let mut rig = Rig::new(choice);
            for hops in [&[4, 5, 6][..], &[7], &[5, 4]] {
                assert_eq!(rig.faces(hops, 0), hops[..1]);
                rig.renew();
            }
        }
    }

    #[test]
    fn without_a_next_hop_there_is_no_way() {
        for choice in StrategyChoice::ALL {
            assert_eq!(Rig::new(choice).decide(&[], 0), Decision::NoRoute);
        }
    }
}
