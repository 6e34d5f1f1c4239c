//! Adaptive smoothed round-trip-time forwarding (ASF): the next hop that answers fastest; of those that nothing is known
//! of, the cheapest; those that do not answer last. From time to time another one is tried beside it, so that what became
//! better is noticed (Lehman et al., *An Experimental Investigation of Hyperbolic Routing with a Smart Forwarding Plane in
//! NDN*; the times are NFD's).

use std::cmp::Reverse;
use std::time::Duration;

use kaido_ndn_tables::FaceId;

use super::{Decision, NextHopQuery, OutgoingInterest, Strategy};

/// When another next hop is tried for the first time.
const PROBE_FIRST: Duration = Duration::from_secs(5);
/// How often from then on.
const PROBE_EVERY: Duration = Duration::from_secs(60);

pub(super) struct Asf;

impl Strategy for Asf {
    const MEASURES: bool = true;

    fn decide(&self, meeting: &mut OutgoingInterest<'_>) -> Decision {
        let is_new = meeting.is_new();
        if !is_new && meeting.is_too_soon() {
            return Decision::Suppress;
        }
        let best = best(meeting, |meeting, face| meeting.asked(face).is_none());
        let Some(face) = best.or_else(|| meeting.next_or_oldest()) else {
            return if is_new { Decision::NoRoute } else { Decision::Suppress };
        };
        let mut asks = arrayvec::ArrayVec::new();
        asks.push(NextHopQuery { face, is_probe: false });
        if is_new && let Some(other) = other_to_try(meeting, face) {
            asks.push(NextHopQuery { face: other, is_probe: true });
        }
        if let Some(measured) = meeting.state.measured {
            asks.iter()
                .for_each(|ask: &NextHopQuery| meeting.measurements.asked(measured, ask.face, meeting.now));
        }
        Decision::Forward(asks)
    }
}

/// The best face of those that fit; of equal ones the cheapest.
fn best(
    meeting: &mut OutgoingInterest<'_>,
    fits: impl Fn(&OutgoingInterest<'_>, FaceId) -> bool,
) -> Option<FaceId> {
    let Some(measured) = meeting.state.measured else {
        return meeting.hops.iter().copied().find(|&face| fits(meeting, face));
    };
    let mut best = None;
    for &face in meeting.hops {
        if fits(meeting, face) {
            let rank = meeting.measurements.rank(measured, face, meeting.now);
            if best.is_none_or(|(than, _)| rank < than) {
                best = Some((rank, face));
            }
        }
    }
    best.map(|(_, face)| face)
}

/// Another face, if it is time to try one.
fn other_to_try(meeting: &mut OutgoingInterest<'_>, but: FaceId) -> Option<FaceId> {
    let measured = meeting.state.measured?;
    if meeting.hops.len() < 2
        || !meeting.measurements.is_probe_due(measured, meeting.now, PROBE_FIRST, PROBE_EVERY)
    {
        return None;
    }
    // Turn by turn, so that each is tried, and first those that failed or of which nothing is known.
    let others = meeting.hops.len() - 1;
    let turn = meeting.measurements.turn(Some(measured), others);
    let mut rest: arrayvec::ArrayVec<FaceId, { kaido_ndn_tables::HOPS_MAX }> =
        meeting.hops.iter().copied().filter(|&face| face != but).collect();
    rest.sort_by_key(|&face| Reverse(meeting.measurements.rank(measured, face, meeting.now)));
    rest.get(turn).copied()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Rig, at};
    use super::super::{Decision, NextHopQuery, StrategyChoice};
    use super::*;

    fn answered(rig: &mut Rig, face: u32, millis: u64) {
        rig.measurements.answered(rig.measured.unwrap(), FaceId(face), Duration::from_millis(millis));
    }

    /// Conformance: NFD ASF | The next hop of the shortest round-trip time is used, one that fails is not, others are probed
    #[test]
    fn the_fastest_is_used_and_others_are_tried() {
        let mut rig = Rig::new(StrategyChoice::Asf);
        assert_eq!(rig.faces(&[1, 2, 3], 0), [1], "nothing is known: by cost");
        answered(&mut rig, 1, 50);
        rig.renew();
        answered(&mut rig, 2, 20);
        assert_eq!(rig.faces(&[1, 2, 3], 1), [2]);
        answered(&mut rig, 2, 20);
        rig.renew();
        let probe = |face, other| {
            let asks = [NextHopQuery { face, is_probe: false }, NextHopQuery { face: other, is_probe: true }];
            Decision::Forward(asks.into_iter().collect())
        };
        assert_eq!(rig.decide(&[1, 2, 3], 5000), probe(FaceId(2), FaceId(3)), "the unknown one is tried");
        answered(&mut rig, 2, 20);
        answered(&mut rig, 3, 10);
        rig.renew();
        assert_eq!(rig.faces(&[1, 2, 3], 5001), [3]);
        // Nothing comes back from it: 200 ms later the next best is used, and it is tried again with the next probe.
        rig.renew();
        assert_eq!(rig.faces(&[1, 2, 3], 5300), [2]);
        answered(&mut rig, 2, 20);
        rig.renew();
        assert_eq!(rig.decide(&[1, 2, 3], 65_000), probe(FaceId(2), FaceId(1)), "by turns");
    }

    #[test]
    fn what_comes_again_goes_to_the_next_best() {
        let mut rig = Rig::new(StrategyChoice::Asf);
        answered(&mut rig, 2, 20);
        answered(&mut rig, 3, 30);
        assert_eq!(rig.faces(&[1, 2, 3], 0), [2]);
        assert_eq!(rig.faces(&[1, 2, 3], 5), [0u32; 0]);
        assert_eq!(rig.faces(&[1, 2, 3], 10), [3]);
        assert_eq!(rig.faces(&[1, 2, 3], 100), [1]);
        assert_eq!(rig.faces(&[1, 2, 3], 500), [2], "asked longest ago");
        assert_eq!(
            rig.measurements.rank(rig.measured.unwrap(), FaceId(3), at(500)),
            super::super::super::measurements::Rank::Failed
        );
    }
}
