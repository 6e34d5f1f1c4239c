//! Tests of [`super`].

use kaido_table::Reader;

use super::*;
use crate::ethernet::frame::Vlan;

const A: SessionIndex = SessionIndex(1);
const B: SessionIndex = SessionIndex(2);
const INSTANCE: InstanceId = InstanceId(3);

fn station(n: u16) -> Station {
    let [high, low] = n.to_be_bytes();
    Station { instance: INSTANCE, vlan: Vlan::default(), mac: Mac([2, 0, 0, 0, high, low]) }
}

struct Bench {
    fdb: FdbStations,
    reader: Reader,
    start: Instant,
}

impl Bench {
    fn new(addresses_max: u32, addresses_per_session: usize) -> Self {
        let settings =
            EthernetSettings { addresses_max, addresses_per_session, ..EthernetSettings::default() };
        let domain = Domain::new();
        let fdb = FdbStations::new(&settings);
        fdb.prepare(&domain).unwrap();
        let memberships = BTreeSet::from([(INSTANCE, false)]);
        [A, B].into_iter().for_each(|session| fdb.join(session, &memberships));
        Self { reader: domain.reader().unwrap(), start: fdb.began, fdb }
    }

    fn at(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    fn learn(&mut self, n: u16, session: SessionIndex, second: u64) -> Result<LearnedAddress, Refusal> {
        let now = self.at(second);
        self.fdb.learn(&self.reader.pin(), station(n), session, (PdrId(7), (None, None)), now)
    }

    fn hear(&mut self, n: u16, second: u64) -> Result<LearnedAddress, Refusal> {
        let now = self.at(second);
        self.fdb.hear(&self.reader.pin(), station(n), now)
    }

    fn owner(&mut self, n: u16) -> Option<Owner> {
        self.fdb.owner(&self.reader.pin(), &station(n))
    }

    fn look(&mut self, session: SessionIndex, ageing: u64, now: u64) -> Option<u64> {
        self.fdb.look(&self.reader.pin(), session, ageing, now)
    }

    fn changes(&self, session: SessionIndex) -> (usize, usize) {
        let changes = self.fdb.take_changes(session);
        (changes.detected.len(), changes.removed.len())
    }
}

#[test]
fn an_address_follows_the_session_that_sent_last() {
    let mut bench = Bench::new(100, 10);
    assert_eq!(bench.learn(1, A, 0), Ok(LearnedAddress { gained: Some(A), lost: None }));
    assert_eq!(bench.learn(1, A, 0), Ok(LearnedAddress::default()));
    assert_eq!(bench.learn(2, A, 0), Ok(LearnedAddress::default()), "control was asked already");
    assert_eq!(bench.changes(A), (2, 0));
    assert_eq!(bench.learn(1, B, 1), Ok(LearnedAddress { gained: Some(B), lost: Some(A) }));
    assert_eq!(bench.owner(1), Some(Owner::Session(B)));
    assert_eq!((bench.changes(A), bench.changes(B), bench.changes(B)), ((0, 1), (1, 0), (0, 0)));
    assert_eq!(bench.fdb.of_session(A), [station(2).mac]);
}

#[test]
fn what_is_in_use_on_the_n6_side_no_session_gets() {
    let mut bench = Bench::new(100, 10);
    assert_eq!(bench.hear(1, 0), Ok(LearnedAddress::default()));
    assert_eq!(bench.learn(1, A, 200), Err(Refusal::Taken));
    assert_eq!(bench.hear(1, 250), Ok(LearnedAddress::default()));
    assert_eq!(bench.learn(1, A, 549), Err(Refusal::Taken));
    assert_eq!(bench.learn(1, A, 550), Ok(LearnedAddress { gained: Some(A), lost: None }));
    // And back, but not by a frame of its own that comes back at once.
    assert_eq!(bench.hear(1, 551), Err(Refusal::Taken));
    assert_eq!(bench.owner(1), Some(Owner::Session(A)));
    assert_eq!(bench.changes(A), (1, 0));
    assert_eq!(bench.hear(1, 552), Ok(LearnedAddress { gained: None, lost: Some(A) }));
    assert_eq!((bench.owner(1), bench.changes(A)), (Some(Owner::Network), (0, 1)));
}

#[test]
fn a_flood_of_addresses_of_one_session_harms_no_other() {
    let mut bench = Bench::new(12, 8);
    (0..8).for_each(|n| assert!(bench.learn(n, A, 0).is_ok()));
    (8..1000).for_each(|n| assert_eq!(bench.learn(n, A, 0), Err(Refusal::Full)));
    (100..104).for_each(|n| assert!(bench.learn(n, B, 0).is_ok()));
    assert_eq!(bench.learn(104, B, 0), Err(Refusal::Full), "the node has no more");
    assert!((0..8).all(|n| bench.owner(n) == Some(Owner::Session(A))));
    // The N6 side has as many of its own, and no more.
    (2000..2100).for_each(|n| assert!(bench.hear(n, 0).is_ok()));
    let heard = (2000..2100).filter(|&n| bench.owner(n).is_some()).count();
    assert_eq!(heard, 12);
    bench.fdb.forget(&bench.reader.pin(), A);
    assert_eq!((bench.owner(0), bench.learn(104, B, 0).is_ok()), (None, true));
    assert_eq!(bench.learn(0, A, 0), Err(Refusal::Full), "a session that is gone learns nothing");
}

#[test]
fn silent_addresses_go_and_used_ones_stay() {
    let mut bench = Bench::new(100, 10);
    bench.learn(1, A, 0).unwrap();
    bench.learn(2, A, 0).unwrap();
    assert_eq!(bench.changes(A), (2, 0));
    assert_eq!(bench.look(A, 4000, 10_000), Some(11_000));
    bench.learn(1, A, 1).unwrap();
    assert_eq!(bench.look(A, 4000, 11_000), Some(12_000));
    assert_eq!((bench.look(A, 4000, 13_999), bench.owner(2).is_some()), (Some(14_999), true));
    assert_eq!(bench.look(A, 4000, 14_000), Some(15_000));
    assert_eq!((bench.owner(1).is_some(), bench.owner(2), bench.changes(A)), (true, None, (0, 1)));
    assert_eq!((bench.look(A, 4000, 20_000), bench.owner(1), bench.changes(A)), (None, None, (0, 1)));
    bench.hear(5, 0).unwrap();
    let (before, then) = (bench.at(299), bench.at(300));
    bench.fdb.sweep_network(&bench.reader.pin(), before);
    assert_eq!(bench.owner(5), Some(Owner::Network));
    bench.fdb.sweep_network(&bench.reader.pin(), then);
    assert_eq!(bench.owner(5), None);
}

#[test]
fn what_rules_name_no_other_takes_and_no_time_ends() {
    let mut bench = Bench::new(100, 3);
    bench.learn(1, B, 0).unwrap();
    let now = bench.at(0);
    let configure = |bench: &mut Bench, session, named: &[u16]| {
        let named: Vec<_> = named.iter().map(|&n| (station(n), PdrId(2), (None, None))).collect();
        bench.fdb.configure(&bench.reader.pin(), session, &named, now)
    };
    assert_eq!(configure(&mut bench, A, &[1, 2]), Ok(vec![]), "B was asked about it already");
    assert_eq!((bench.owner(1), bench.owner(2)), (Some(Owner::Session(A)), Some(Owner::Session(A))));
    assert_eq!(bench.learn(1, B, 9), Err(Refusal::Taken));
    assert_eq!(bench.hear(1, 9), Err(Refusal::Taken));
    assert_eq!(bench.look(A, 1000, 50_000), Some(50_250));
    assert_eq!(bench.look(A, 1000, 90_000), Some(90_250));
    assert!(bench.owner(1).is_some());
    assert_eq!(configure(&mut bench, A, &[2, 3, 4, 5]), Err(TableError::Full));
    assert_eq!(configure(&mut bench, A, &[2]), Ok(vec![]));
    assert!(bench.learn(1, B, 9).is_ok(), "the rules name it no more");
    let adopted = (station(6), PdrId(1), (None, Some(5)));
    assert_eq!(bench.fdb.adopt(&bench.reader.pin(), B, adopted, now), Ok(None));
    assert_eq!(bench.changes(B), (1, 0), "what the control plane said it is not told");
}

#[test]
fn members_are_those_of_the_instance_and_a_few_at_most() {
    let bench = Bench::new(100, 10);
    let before = bench.fdb.members_changed();
    bench.fdb.join(B, &BTreeSet::from([(INSTANCE, false)]));
    assert_eq!(bench.fdb.members_changed(), before);
    bench.fdb.join(B, &BTreeSet::from([(INSTANCE, true)]));
    assert_ne!(bench.fdb.members_changed(), before);
    assert_eq!(bench.fdb.members(INSTANCE, false, 9), (Box::from([A]), 1));
    assert_eq!(bench.fdb.members(INSTANCE, true, 9), (Box::from([B]), 1));
    bench.fdb.join(B, &BTreeSet::from([(INSTANCE, false)]));
    assert_eq!(bench.fdb.members(INSTANCE, false, 1), (Box::from([A]), 2));
    assert_eq!(bench.fdb.members(InstanceId(4), false, 9), (Box::from([]), 0));
}

#[test]
fn lists_are_by_tags_and_of_wanted_rules() {
    let tagged = (None, Some(100));
    let of: Vec<_> = (0u16..300)
        .map(|n| (PdrId(n % 2), station(n).mac, if n < 10 { tagged } else { (None, None) }))
        .collect();
    let lists = Changes::lists(&of, |_| true);
    let found: Vec<_> = lists.iter().map(|list| (list.addresses.len(), list.c_tag.is_some())).collect();
    assert_eq!(found, [(10, true), (255, false), (35, false)]);
    assert_eq!(Changes::lists(&of, |pdr| pdr == PdrId(1)).len(), 2);
}
