//! The routes: who registered which prefix, and what follows for the FIB.
//!
//! A prefix with routes of its own has a FIB entry. Its next hops are those routes, and the routes of shorter prefixes
//! that children inherit, as far as no prefix between captures. Of several ways to one face the cheapest of its own
//! counts. An inherited one counts only where there is none of its own, and of several of those the one of the longest
//! prefix. The same order holds among faces that cost the same: who publishes below a prefix of another's is asked
//! first.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use kaido_ndn_tables::{FaceId, Fib, FibError, HOPS_MAX, Hop};
use kaido_wire::ndn::Name;

/// Who asks for a route: numbers of the RIB management protocol.
pub mod origin {
    /// An application.
    pub const APP: u64 = 0;
    /// An operator.
    pub const STATIC: u64 = 255;
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it leads.
    pub face: FaceId,
    /// Who asked for it; a face may have one route of each origin.
    pub origin: u64,
    /// The lower, the sooner it is taken.
    pub cost: u64,
    /// Whether longer prefixes have it too.
    pub child_inherit: bool,
    /// Whether this prefix, and longer ones, have nothing from shorter ones.
    pub capture: bool,
    /// When it ends; `None` for one that is unregistered only.
    pub expires: Option<Instant>,
}

impl Route {
    /// Bit of the Flags of a route: [`Route::child_inherit`].
    pub const CHILD_INHERIT: u64 = 1;
    /// Bit of the Flags of a route: [`Route::capture`].
    pub const CAPTURE: u64 = 2;

    /// The Flags of the management protocol.
    pub fn flags(&self) -> u64 {
        u64::from(self.child_inherit) * Self::CHILD_INHERIT + u64::from(self.capture) * Self::CAPTURE
    }
}

/// What follows the routes.
pub trait HopSink {
    /// The next hops that a prefix has now, the cheapest first; none when its entry goes.
    ///
    /// # Errors
    /// When the entry cannot be made.
    fn set(&mut self, prefix: &[u8], hops: &[Hop]) -> Result<(), FibError>;
}

/// An entry takes [`HOPS_MAX`] next hops; of more the cheapest.
impl HopSink for &Fib {
    fn set(&mut self, prefix: &[u8], hops: &[Hop]) -> Result<(), FibError> {
        Fib::set(self, prefix, &hops[..hops.len().min(HOPS_MAX)])
    }
}

/// Why a route was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// There are as many as may be.
    #[error("there are {0} routes already, as many as there may be")]
    Full(usize),
    /// There can be no entry for its prefix.
    #[error("no entry can be made for the prefix: {0}")]
    Fib(#[from] FibError),
}

/// The components of a prefix, shared by the places that name it.
type Prefix = Arc<[u8]>;

/// All routes.
#[derive(Debug)]
pub struct Rib {
    entries: BTreeMap<Prefix, Vec<Route>>,
    of_face: HashMap<FaceId, BTreeSet<Prefix>>,
    deadlines: BTreeSet<(Instant, Prefix, FaceId, u64)>,
    routes: usize,
    routes_max: usize,
    hops: Vec<Hop>,
}

impl Rib {
    /// No routes, and room for so many.
    pub fn new(routes_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            of_face: HashMap::new(),
            deadlines: BTreeSet::new(),
            routes: 0,
            routes_max,
            hops: Vec::new(),
        }
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.routes
    }

    /// How many more there may be.
    pub fn room(&self) -> usize {
        self.routes_max.saturating_sub(self.routes)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// The prefixes and their routes, a prefix before what is longer.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &[Route])> {
        self.entries.iter().map(|(prefix, routes)| (&**prefix, routes.as_slice()))
    }

    /// Prefixes that have routes.
    pub fn prefixes_len(&self) -> usize {
        self.entries.len()
    }

    /// Those of them that begin with `prefix`, from the one behind `behind` on, a prefix before what is longer.
    pub fn prefixes<'r>(
        &'r self,
        prefix: &'r [u8],
        behind: Option<&'r [u8]>,
    ) -> impl Iterator<Item = &'r [u8]> {
        let first = behind.map_or(Bound::Included(prefix), Bound::Excluded);
        let known = self.entries.range::<[u8], _>((first, Bound::Unbounded)).map(|(known, _)| &**known);
        known.take_while(move |known| known.starts_with(prefix))
    }

    /// The next hops of a prefix that has routes, the cheapest first.
    pub fn hops(&self, prefix: &[u8]) -> Vec<Hop> {
        let mut hops = Vec::new();
        self.collect(prefix, &mut hops);
        hops
    }

    /// Takes a route in, or gives the one of the same face and origin new properties.
    ///
    /// # Errors
    /// [`RibError`]; nothing has changed then.
    pub fn register(
        &mut self,
        prefix: Name<'_>,
        route: Route,
        fib: &mut impl HopSink,
    ) -> Result<(), RibError> {
        let known =
            self.entries.get(prefix.value()).and_then(|routes| position(routes, route.face, route.origin));
        if known.is_none() && self.routes >= self.routes_max {
            return Err(RibError::Full(self.routes_max));
        }
        let key = self.entries.get_key_value(prefix.value());
        let key = key.map_or_else(|| prefix.value().into(), |(key, _)| Prefix::clone(key));
        let before = self.put(&key, route);
        if let Err(error) = self.tell(&key, fib) {
            match before {
                Some(before) => drop(self.put(&key, before)),
                None => drop(self.take(&key, route.face, route.origin)),
            }
            return Err(error.into());
        }
        if concerns_children(&route) || before.is_some_and(|before| concerns_children(&before)) {
            self.tell_children(&key, fib);
        }
        Ok(())
    }

    /// Takes a route out; whether there was one.
    pub fn unregister(
        &mut self,
        prefix: Name<'_>,
        face: FaceId,
        origin: u64,
        fib: &mut impl HopSink,
    ) -> bool {
        let Some((key, _)) = self.entries.get_key_value(prefix.value()) else { return false };
        let key = Prefix::clone(key);
        self.remove(&key, face, origin, fib)
    }

    /// Takes all routes to a face out: it is no more.
    pub fn face_gone(&mut self, face: FaceId, fib: &mut impl HopSink) {
        for prefix in self.of_face.get(&face).cloned().unwrap_or_default() {
            let of_face = |routes: &Vec<Route>| {
                routes.iter().find(|route| route.face == face).map(|route| route.origin)
            };
            while let Some(origin) = self.entries.get(&prefix).and_then(of_face) {
                self.remove(&prefix, face, origin, fib);
            }
        }
    }

    /// Takes the routes out whose time is over.
    pub fn expire(&mut self, now: Instant, fib: &mut impl HopSink) {
        while let Some((deadline, prefix, face, origin)) = self.deadlines.first() {
            if *deadline > now {
                return;
            }
            let (prefix, face, origin) = (Prefix::clone(prefix), *face, *origin);
            self.remove(&prefix, face, origin, fib);
        }
    }

    /// When the next route ends.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, ..)| *deadline)
    }

    fn remove(&mut self, prefix: &Prefix, face: FaceId, origin: u64, fib: &mut impl HopSink) -> bool {
        let Some(route) = self.take(prefix, face, origin) else { return false };
        self.retell(prefix, fib);
        if concerns_children(&route) {
            self.tell_children(prefix, fib);
        }
        true
    }

    /// Puts a route in; the one whose place it takes.
    fn put(&mut self, prefix: &Prefix, route: Route) -> Option<Route> {
        let before = self.take(prefix, route.face, route.origin);
        self.entries.entry(Prefix::clone(prefix)).or_default().push(route);
        self.routes += 1;
        self.of_face.entry(route.face).or_default().insert(Prefix::clone(prefix));
        if let Some(deadline) = route.expires {
            self.deadlines.insert((deadline, Prefix::clone(prefix), route.face, route.origin));
        }
        before
    }

    /// Takes a route out of everything that names it.
    fn take(&mut self, prefix: &Prefix, face: FaceId, origin: u64) -> Option<Route> {
        let routes = self.entries.get_mut(prefix)?;
        let at = position(routes, face, origin)?;
        let route = routes.swap_remove(at);
        self.routes -= 1;
        if let Some(deadline) = route.expires {
            self.deadlines.remove(&(deadline, Prefix::clone(prefix), face, origin));
        }
        if !routes.iter().any(|other| other.face == face)
            && let Entry::Occupied(mut prefixes) = self.of_face.entry(face)
        {
            prefixes.get_mut().remove(prefix);
            if prefixes.get().is_empty() {
                prefixes.remove();
            }
        }
        if routes.is_empty() {
            self.entries.remove(prefix);
        }
        Some(route)
    }

    /// Tells the FIB what a prefix has now.
    fn tell(&mut self, prefix: &[u8], fib: &mut impl HopSink) -> Result<(), FibError> {
        let mut hops = std::mem::take(&mut self.hops);
        self.collect(prefix, &mut hops);
        let told = fib.set(prefix, &hops);
        self.hops = hops;
        told
    }

    /// As [`Rib::tell`], of a prefix that has an entry already.
    fn retell(&mut self, prefix: &[u8], fib: &mut impl HopSink) {
        if let Err(error) = self.tell(prefix, fib) {
            tracing::error!(%error, "the next hops of a prefix are not what its routes say");
        }
    }

    /// Tells the FIB what the prefixes have that are longer than this one.
    fn tell_children(&mut self, prefix: &Prefix, fib: &mut impl HopSink) {
        let behind = (Bound::Excluded(&**prefix), Bound::Unbounded);
        let longer = self.entries.range::<[u8], _>(behind).map(|(key, _)| key);
        let children: Vec<Prefix> = longer.take_while(|key| key.starts_with(prefix)).cloned().collect();
        for child in children {
            self.retell(&child, fib);
        }
    }

    /// The next hops of a prefix.
    fn collect(&self, prefix: &[u8], hops: &mut Vec<Hop>) {
        hops.clear();
        let Some(own) = self.entries.get(prefix) else { return };
        for route in own {
            offer(hops, route);
        }
        hops.sort_unstable_by_key(|hop| hop.face);
        let mut captured = own.iter().any(|route| route.capture);
        // What was registered is a name.
        let name = Name::new(prefix).unwrap_or_default();
        for len in (0..name.len()).rev() {
            if captured {
                break;
            }
            let Some(routes) = self.entries.get(name.prefix(len).value()) else { continue };
            let nearer = hops.len();
            for route in routes.iter().filter(|route| route.child_inherit) {
                if !hops[..nearer].iter().any(|hop| hop.face == route.face) {
                    offer(hops, route);
                }
            }
            hops[nearer..].sort_unstable_by_key(|hop| hop.face);
            captured = routes.iter().any(|route| route.capture);
        }
        // At the same cost the prefix's own stay before what it inherits, and of that the longer prefix's before the
        // shorter's.
        hops.sort_by_key(|hop| hop.cost);
    }
}

/// Adds a route's face, or makes it cheaper.
fn offer(hops: &mut Vec<Hop>, route: &Route) {
    let cost = u32::try_from(route.cost).unwrap_or(u32::MAX);
    match hops.iter_mut().find(|hop| hop.face == route.face) {
        Some(hop) => hop.cost = hop.cost.min(cost),
        None => hops.push(Hop { face: route.face, cost }),
    }
}

fn concerns_children(route: &Route) -> bool {
    route.child_inherit || route.capture
}

fn position(routes: &[Route], face: FaceId, origin: u64) -> Option<usize> {
    routes.iter().position(|route| route.face == face && route.origin == origin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_ndn_tables::{DEPTH_MAX, NameHash, NameTableError};
    use kaido_wire::ndn::name_from_uri;
    use proptest::prelude::*;
    use std::time::Duration;

    /// A FIB that remembers the last that it was told.
    #[derive(Debug, Default)]
    struct ReportedFib(BTreeMap<Vec<u8>, Vec<Hop>>, usize);

    impl HopSink for ReportedFib {
        fn set(&mut self, prefix: &[u8], hops: &[Hop]) -> Result<(), FibError> {
            self.1 += 1;
            if hops.is_empty() {
                self.0.remove(prefix);
            } else {
                self.0.insert(prefix.to_vec(), hops.to_vec());
            }
            Ok(())
        }
    }

    impl ReportedFib {
        fn hops(&self, uri: &str) -> Vec<(u32, u32)> {
            let hops = self.0.get(&name_from_uri(uri).unwrap());
            hops.map(|hops| hops.iter().map(|hop| (hop.face.0, hop.cost)).collect()).unwrap_or_default()
        }
    }

    fn route(face: u32, cost: u64) -> Route {
        Route {
            face: FaceId(face),
            origin: origin::APP,
            cost,
            child_inherit: true,
            capture: false,
            expires: None,
        }
    }

    fn register(rib: &mut Rib, fib: &mut ReportedFib, uri: &str, route: Route) {
        let name = name_from_uri(uri).unwrap();
        rib.register(Name::new(&name).unwrap(), route, fib).unwrap();
    }

    /// Conformance: NDN management RIB | Longer prefixes inherit routes until one captures
    #[test]
    fn children_inherit_until_one_captures() {
        let (mut rib, mut fib) = (Rib::new(100), ReportedFib::default());
        register(&mut rib, &mut fib, "/", route(1, 10));
        register(&mut rib, &mut fib, "/a/b", route(2, 5));
        assert_eq!(fib.hops("/a/b"), [(2, 5), (1, 10)]);
        assert_eq!(fib.hops("/a"), [], "it has no route of its own");
        register(&mut rib, &mut fib, "/a", route(1, 3));
        assert_eq!(fib.hops("/a/b"), [(1, 3), (2, 5)], "the nearer of two inherited");
        register(&mut rib, &mut fib, "/a", Route { capture: true, child_inherit: false, ..route(3, 1) });
        assert_eq!(fib.hops("/a"), [(3, 1), (1, 3)]);
        register(&mut rib, &mut fib, "/a/b", Route { capture: true, ..route(2, 5) });
        assert_eq!(fib.hops("/a/b"), [(2, 5)]);
        register(&mut rib, &mut fib, "/ab", route(9, 0));
        assert_eq!(fib.hops("/ab"), [(9, 0), (1, 10)], "no child of /a");
    }

    #[test]
    fn a_longer_prefix_is_preferred_at_the_same_cost() {
        let (mut rib, mut fib) = (Rib::new(100), ReportedFib::default());
        register(&mut rib, &mut fib, "/", route(1, 0));
        register(&mut rib, &mut fib, "/a/b", route(3, 0));
        register(&mut rib, &mut fib, "/a/b", route(4, 0));
        register(&mut rib, &mut fib, "/a", route(2, 0));
        assert_eq!(fib.hops("/a/b"), [(3, 0), (4, 0), (2, 0), (1, 0)]);
    }

    #[test]
    fn prefixes_are_listed_below_one_and_behind_one() {
        let (mut rib, mut fib) = (Rib::new(100), ReportedFib::default());
        for uri in ["/b", "/a/b", "/a", "/ab", "/a/c"] {
            register(&mut rib, &mut fib, uri, route(1, 0));
        }
        let listed = |prefix: &str, behind: Option<&str>| -> Vec<String> {
            let (prefix, behind) =
                (name_from_uri(prefix).unwrap(), behind.map(|uri| name_from_uri(uri).unwrap()));
            let found = rib.prefixes(&prefix, behind.as_deref());
            found.map(|prefix| Name::new(prefix).unwrap().to_string()).collect()
        };
        assert_eq!(listed("/", None), ["/a", "/a/b", "/a/c", "/b", "/ab"]);
        assert_eq!(listed("/a", None), ["/a", "/a/b", "/a/c"]);
        assert_eq!(listed("/a", Some("/a/b")), ["/a/c"]);
        assert_eq!((listed("/c", None).len(), rib.prefixes_len()), (0, 5));
    }

    #[test]
    fn the_cheapest_of_its_own_counts() {
        let (mut rib, mut fib) = (Rib::new(100), ReportedFib::default());
        register(&mut rib, &mut fib, "/a", route(1, 10));
        register(&mut rib, &mut fib, "/a", Route { origin: origin::STATIC, ..route(1, 4) });
        assert_eq!((fib.hops("/a"), rib.len()), (vec![(1, 4)], 2));
        let name = name_from_uri("/a").unwrap();
        let name = Name::new(&name).unwrap();
        assert!(rib.unregister(name, FaceId(1), origin::STATIC, &mut fib));
        assert!(!rib.unregister(name, FaceId(1), origin::STATIC, &mut fib));
        assert_eq!(fib.hops("/a"), [(1, 10)]);
    }

    #[test]
    fn a_full_table_changes_nothing() {
        let (mut rib, mut fib) = (Rib::new(1), ReportedFib::default());
        register(&mut rib, &mut fib, "/a", route(1, 10));
        let name = name_from_uri("/b").unwrap();
        let told = fib.1;
        assert_eq!(rib.register(Name::new(&name).unwrap(), route(1, 1), &mut fib), Err(RibError::Full(1)));
        assert_eq!((fib.1, rib.entries().count()), (told, 1));
        register(&mut rib, &mut fib, "/a", route(1, 2));
        assert_eq!(fib.hops("/a"), [(1, 2)], "what is there may change");
    }

    /// Ten thousand siblings must cost a registration nothing.
    #[test]
    fn siblings_are_not_touched() {
        let (mut rib, mut fib) = (Rib::new(20_000), ReportedFib::default());
        for n in 0..10_000 {
            register(&mut rib, &mut fib, &format!("/site/{n}"), route(n % 7, 1));
        }
        let told = fib.1;
        register(&mut rib, &mut fib, "/site/new", route(1, 1));
        assert_eq!(fib.1, told + 1);
    }

    #[test]
    fn a_prefix_that_the_fib_refuses_is_not_registered() {
        let domain = kaido_table::Domain::new();
        let fib = Fib::new(&domain, NameHash::fixed(1), 100).unwrap();
        let mut rib = Rib::new(100);
        let deep = name_from_uri(&"/a".repeat(DEPTH_MAX + 1)).unwrap();
        let refused = rib.register(Name::new(&deep).unwrap(), route(1, 1), &mut &fib);
        assert_eq!(refused, Err(RibError::Fib(FibError::Table(NameTableError::Deep))));
        assert!(rib.is_empty() && rib.next_expiry().is_none() && rib.of_face.is_empty());
        let name = name_from_uri("/a").unwrap();
        for face in 0..=20 {
            rib.register(Name::new(&name).unwrap(), route(face, u64::from(face)), &mut &fib).unwrap();
        }
        assert_eq!((rib.len(), fib.table().len()), (21, 1), "the entry has the cheapest of them");
        rib.face_gone(FaceId(0), &mut &fib);
        assert_eq!(rib.len(), 20);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Register(usize, Route, Option<u64>),
        Unregister(usize, u32, u64),
        FaceGone(u32),
        Expire(u64),
    }

    const NAMES: [&str; 7] = ["/", "/a", "/a/b", "/a/b/c", "/a/c", "/ab", "/b"];

    fn step() -> impl Strategy<Value = Step> {
        let flags = (any::<bool>(), any::<bool>());
        prop_oneof![
            4 => (0..NAMES.len(), 1..5u32, 0..3u64, 0..4u64, flags, prop::option::of(1..40u64)).prop_map(
                |(name, face, origin, cost, (child_inherit, capture), expires)| {
                    let route = Route { origin, child_inherit, capture, ..route(face, cost) };
                    Step::Register(name, route, expires)
                }
            ),
            2 => (0..NAMES.len(), 1..5u32, 0..3u64).prop_map(|(name, face, origin)| Step::Unregister(name, face, origin)),
            1 => (1..5u32).prop_map(Step::FaceGone),
            1 => (0..40u64).prop_map(Step::Expire),
        ]
    }

    /// What the FIB must be, worked out from nothing but the routes.
    fn expected(routes: &[(usize, Route)]) -> BTreeMap<Vec<u8>, Vec<Hop>> {
        let names: Vec<Vec<u8>> = NAMES.iter().map(|uri| name_from_uri(uri).unwrap()).collect();
        let mut fib = BTreeMap::new();
        for (at, own) in names.iter().enumerate() {
            let name = Name::new(own).unwrap();
            let mut hops: Vec<Hop> = Vec::new();
            for len in (0..=name.len()).rev() {
                let level: Vec<&Route> = routes
                    .iter()
                    .filter(|(n, _)| names[*n] == name.prefix(len).value())
                    .map(|(_, route)| route)
                    .filter(|route| len == name.len() || route.child_inherit || route.capture)
                    .collect();
                let mut here: BTreeMap<FaceId, u32> = BTreeMap::new();
                for route in level.iter().filter(|route| len == name.len() || route.child_inherit) {
                    let own = u32::try_from(route.cost).unwrap();
                    let cost = here.entry(route.face).or_insert(own);
                    *cost = own.min(*cost);
                }
                here.retain(|face, _| hops.iter().all(|hop| hop.face != *face));
                hops.extend(here.into_iter().map(|(face, cost)| Hop { face, cost }));
                if level.iter().any(|route| route.capture) {
                    break;
                }
            }
            hops.sort_by_key(|hop| hop.cost);
            if routes.iter().any(|(n, _)| *n == at) {
                fib.insert(own.clone(), hops);
            }
        }
        fib
    }

    proptest! {
        #[test]
        fn the_fib_follows_the_routes(steps in prop::collection::vec(step(), 1..60)) {
            let (mut rib, mut fib) = (Rib::new(30), ReportedFib::default());
            let mut model: Vec<(usize, Route)> = Vec::new();
            let begin = Instant::now();
            let at = |seconds| begin + Duration::from_secs(seconds);
            for step in steps {
                match step {
                    Step::Register(name, route, expires) => {
                        let route = Route { expires: expires.map(at), ..route };
                        let octets = name_from_uri(NAMES[name]).unwrap();
                        let same = |(n, r): &(usize, Route)| (*n, r.face, r.origin) == (name, route.face, route.origin);
                        let place = model.iter().position(same);
                        let taken = rib.register(Name::new(&octets).unwrap(), route, &mut fib);
                        prop_assert_eq!(taken.is_ok(), place.is_some() || model.len() < 30);
                        match place {
                            Some(place) => model[place].1 = route,
                            None if taken.is_ok() => model.push((name, route)),
                            None => {}
                        }
                    }
                    Step::Unregister(name, face, origin) => {
                        let octets = name_from_uri(NAMES[name]).unwrap();
                        let was = rib.unregister(Name::new(&octets).unwrap(), FaceId(face), origin, &mut fib);
                        let before = model.len();
                        model.retain(|(n, r)| (*n, r.face.0, r.origin) != (name, face, origin));
                        prop_assert_eq!(was, model.len() < before);
                    }
                    Step::FaceGone(face) => {
                        rib.face_gone(FaceId(face), &mut fib);
                        model.retain(|(_, route)| route.face.0 != face);
                    }
                    Step::Expire(now) => {
                        rib.expire(at(now), &mut fib);
                        model.retain(|(_, route)| route.expires.is_none_or(|expires| expires > at(now)));
                    }
                }
                prop_assert_eq!(&fib.0, &expected(&model));
                prop_assert_eq!(rib.len(), model.len());
                prop_assert_eq!(rib.next_expiry(), model.iter().filter_map(|(_, route)| route.expires).min());
            }
        }
    }
}
