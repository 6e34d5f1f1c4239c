use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn key(identification: u32) -> FragmentKey {
    let [src, dst] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
    FragmentKey { scope: 0, src, dst, protocol: 17, identification }
}

const fn place(offset: u32, len: u32, more: bool) -> FragmentRange {
    FragmentRange { offset, len, more }
}

fn limits() -> Limits {
    Limits { packets: 8, packets_per_source: 4, pieces: 16, time: 15 * SECOND }
}

/// A piece is what its octets say, by its number.
type Pieces = Contexts<u32>;

fn collect(
    contexts: &mut Pieces,
    id: u32,
    place: FragmentRange,
    piece: u32,
    now: Instant,
) -> Outcome<u32, Vec<u32>> {
    contexts.collect(key(id), place, piece, now, |kept, new| kept == new)
}

/// Conformance: RFC 791 3.2 | Fragments in any order make their datagram
/// Conformance: RFC 8200 4.5 | Fragments in any order make their packet
#[test]
fn pieces_in_any_order_make_their_packet() {
    let now = Instant::now();
    let parts = [place(0, 8, true), place(8, 16, true), place(24, 5, false)];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let mut contexts = Pieces::new(limits());
        for (nth, part) in order.into_iter().enumerate() {
            let number = u32::try_from(part).unwrap();
            let outcome = collect(&mut contexts, 7, parts[part], number, now);
            let expected = if nth == 2 { Outcome::Ready(vec![0, 1, 2]) } else { Outcome::Kept };
            assert_eq!(outcome, expected);
        }
        assert_eq!((contexts.len(), contexts.pieces, contexts.sources.len()), (0, 0, 0));
    }
}

/// Conformance: RFC 5722 4 | A packet with overlapping fragments is dropped, with those that come later
#[test]
fn an_overlap_ends_the_whole_packet() {
    let now = Instant::now();
    for bad in
        [place(0, 16, true), place(8, 8, false), place(4, 8, true), place(24, 8, true), place(32, 1, false)]
    {
        let mut contexts = Pieces::new(limits());
        collect(&mut contexts, 7, place(8, 16, true), 1, now);
        collect(&mut contexts, 7, place(24, 5, false), 2, now);
        let overlap = DropReason::FRAGMENT_OVERLAP;
        assert_eq!(collect(&mut contexts, 7, bad, 3, now), Outcome::Refused(3, overlap), "{bad:?}");
        assert_eq!(contexts.take_dropped(), [(1, overlap), (2, overlap)]);
        assert_eq!(collect(&mut contexts, 7, place(0, 8, true), 4, now), Outcome::Refused(4, overlap));
        assert_eq!((contexts.len(), contexts.pieces), (1, 0));
        contexts.expire(now + 15 * SECOND);
        assert_eq!(contexts.len(), 0);
        assert_eq!(collect(&mut contexts, 7, place(0, 8, true), 5, now + 16 * SECOND), Outcome::Kept);
    }
}

/// Conformance: RFC 8200 4.5 | An exact duplicate of a fragment is dropped and does no harm
#[test]
fn an_exact_duplicate_does_no_harm_and_another_text_does() {
    let now = Instant::now();
    let mut contexts = Pieces::new(limits());
    collect(&mut contexts, 7, place(0, 8, true), 1, now);
    let repeated = collect(&mut contexts, 7, place(0, 8, true), 1, now);
    assert_eq!(repeated, Outcome::Refused(1, DropReason::FRAGMENT_DUPLICATE));
    assert_eq!(collect(&mut contexts, 7, place(8, 1, false), 2, now), Outcome::Ready(vec![1, 2]));
    collect(&mut contexts, 8, place(0, 8, true), 1, now);
    let other = collect(&mut contexts, 8, place(0, 8, true), 9, now);
    assert_eq!(other, Outcome::Refused(9, DropReason::FRAGMENT_OVERLAP));
    assert_eq!(contexts.take_dropped(), [(1, DropReason::FRAGMENT_OVERLAP)]);
}

#[test]
fn what_no_packet_can_have_is_refused() {
    let now = Instant::now();
    let mut contexts = Pieces::new(limits());
    for bad in [place(0, 0, true), place(8, 0, false), place(0, 12, true), place(65_528, 8, true)] {
        assert_eq!(collect(&mut contexts, 7, bad, 1, now), Outcome::Refused(1, DropReason::FRAGMENT_INVALID));
    }
    assert_eq!(contexts.len(), 0);
    assert_eq!(collect(&mut contexts, 7, place(65_528, 7, false), 1, now), Outcome::Kept);
    // More pieces than any packet needs.
    let unbounded = Limits { pieces: 1000, ..limits() };
    let mut contexts = Pieces::new(unbounded);
    for n in 0..128 {
        assert_eq!(collect(&mut contexts, 7, place(n * 16, 8, true), n, now), Outcome::Kept);
    }
    let refused = collect(&mut contexts, 7, place(8, 8, true), 200, now);
    assert_eq!(refused, Outcome::Refused(200, DropReason::FRAGMENT_INVALID));
}

/// Conformance: RFC 1122 3.3.2 | What waits too long for its rest is dropped
#[test]
fn time_and_room_are_bounded() {
    let now = Instant::now();
    let mut contexts = Pieces::new(limits());
    collect(&mut contexts, 1, place(0, 8, true), 1, now);
    contexts.expire(now + 14 * SECOND);
    assert!(contexts.take_dropped().is_empty());
    contexts.expire(now + 15 * SECOND);
    assert_eq!(contexts.take_dropped(), [(1, DropReason::REASSEMBLY_TIMEOUT)]);
    // Of one source four at a time: the oldest gives way.
    for id in 0..6 {
        collect(&mut contexts, id, place(0, 8, true), id, now);
    }
    assert_eq!(contexts.len(), 4);
    let full = DropReason::REASSEMBLY_FULL;
    assert_eq!(contexts.take_dropped(), [(0, full), (1, full)]);
}

/// Pieces are bounded in all, of packets that are collected and of those that are followed: the oldest packet gives way.
#[test]
fn pieces_of_all_packets_together_are_bounded() {
    let now = Instant::now();
    for follows in [false, true] {
        let mut contexts = Pieces::new(limits());
        let mut number = 0;
        let mut keep = |contexts: &mut Pieces, id: u32, nth: u32| {
            let place = place(8 + nth * 16, 8, true);
            let is_kept = match follows {
                true => contexts.follow(key(id), place, None, number, now) == Outcome::Kept,
                false => collect(contexts, id, place, number, now) == Outcome::Kept,
            };
            assert!(is_kept, "piece {nth} of packet {id}");
            number += 1;
        };
        (0..4).for_each(|id| (0..4).for_each(|nth| keep(&mut contexts, id, nth)));
        assert_eq!((contexts.take_dropped(), contexts.pieces), (vec![], 16));
        keep(&mut contexts, 3, 4);
        assert_eq!(contexts.take_dropped(), [0, 1, 2, 3].map(|piece| (piece, DropReason::REASSEMBLY_FULL)));
        assert_eq!((contexts.len(), contexts.pieces), (3, 13));
    }
}

/// Conformance: TS 29.244 5.2.1 | Fragments of a packet follow the ports of its first
#[test]
fn pieces_follow_the_ports_of_the_first() {
    let now = Instant::now();
    let mut contexts = Pieces::new(limits());
    let ports = (4000, 5000);
    let passing =
        |piece, behind: &[u32]| Outcome::Ready(ForwardedFragments { ports, piece, behind: behind.to_vec() });
    assert_eq!(contexts.follow(key(7), place(8, 8, true), None, 1, now), Outcome::Kept);
    assert_eq!(contexts.follow(key(7), place(16, 4, false), None, 2, now), Outcome::Kept);
    let first = contexts.follow(key(7), place(0, 8, true), Some(ports), 0, now);
    assert_eq!(first, passing(0, &[1, 2]));
    assert_eq!((contexts.len(), contexts.pieces), (0, 0));
    // In order nothing waits.
    let first = contexts.follow(key(8), place(0, 8, true), Some(ports), 0, now);
    assert_eq!(first, passing(0, &[]));
    assert_eq!(contexts.follow(key(8), place(8, 8, true), None, 1, now), passing(1, &[]));
    let overlap = contexts.follow(key(8), place(0, 16, true), Some((1, 1)), 2, now);
    assert_eq!(overlap, Outcome::Refused(2, DropReason::FRAGMENT_OVERLAP));
    let late = contexts.follow(key(8), place(16, 4, false), None, 3, now);
    assert_eq!(late, Outcome::Refused(3, DropReason::FRAGMENT_OVERLAP));
}

fn any_place() -> impl Strategy<Value = FragmentRange> {
    (0_u32..12, 0_u32..40, any::<bool>()).prop_map(|(units, len, more)| place(units * 8, len, more))
}

proptest! {
    /// Whatever comes: bounds hold, nothing is lost, and no packet is made of pieces that overlap.
    #[test]
    fn bounds_hold_and_nothing_is_lost(
        steps in prop::collection::vec((0_u32..6, 0_u8..12, any_place(), any::<bool>(), 0_u64..4), 1..400)
    ) {
        let mut contexts = Pieces::new(limits());
        let mut now = Instant::now();
        let mut places = Vec::new();
        let mut inside = std::collections::BTreeSet::new();
        for (number, (id, source, place, follows, passed)) in (0_u32..).zip(steps) {
            now += Duration::from_secs(passed);
            places.push(place);
            inside.insert(number);
            let key = FragmentKey { src: IpAddr::from([10, 0, 0, source]), scope: u64::from(follows), ..key(id) };
            let refused = if follows {
                match contexts.follow(key, place, (place.offset == 0).then_some((1, 2)), number, now) {
                    Outcome::Ready(ForwardedFragments { piece, behind, .. }) => {
                        prop_assert!(inside.remove(&piece));
                        for piece in behind {
                            prop_assert!(inside.remove(&piece));
                        }
                        None
                    }
                    Outcome::Kept => None,
                    Outcome::Refused(piece, _) => Some(piece),
                }
            } else {
                match contexts.collect(key, place, number, now, |_, _| false) {
                    Outcome::Ready(pieces) => {
                        let mut end = 0;
                        for piece in &pieces {
                            prop_assert!(inside.remove(piece));
                            let place = places[*piece as usize];
                            prop_assert_eq!(place.offset, end);
                            end += place.len;
                        }
                        prop_assert!(!places[*pieces.last().unwrap() as usize].more);
                        None
                    }
                    Outcome::Kept => None,
                    Outcome::Refused(piece, _) => Some(piece),
                }
            };
            if let Some(piece) = refused {
                prop_assert!(inside.remove(&piece));
            }
            for (piece, _) in contexts.take_dropped() {
                prop_assert!(inside.remove(&piece));
            }
            prop_assert_eq!(inside.len(), contexts.pieces);
            prop_assert!(contexts.pieces <= 16 && contexts.len() <= 8);
            prop_assert!(contexts.sources.values().all(|&packets| packets <= 4));
            prop_assert_eq!(contexts.sources.values().sum::<usize>(), contexts.len());
            prop_assert!(contexts.ages.len() <= 129);
        }
        contexts.expire(now + 20 * SECOND);
        prop_assert_eq!(contexts.take_dropped().len(), inside.len());
        prop_assert_eq!((contexts.len(), contexts.pieces), (0, 0));
    }
}
