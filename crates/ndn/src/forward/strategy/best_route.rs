//! Best route: the cheapest next hop. An Interest that comes again, and not too soon, goes to a next hop that was not
//! asked yet, the cheapest first, and then to the one that was asked longest ago (NFD developer's guide, best-route).

use super::{Decision, OutgoingInterest, Strategy};

pub(super) struct BestRoute;

impl Strategy for BestRoute {
    const MEASURES: bool = false;
    const BEGINS_WITH_CHEAPEST: bool = true;

    #[inline]
    fn decide(&self, meeting: &mut OutgoingInterest<'_>) -> Decision {
        if meeting.is_new() {
            return Decision::one(meeting.hops.first().copied()).unwrap_or(Decision::NoRoute);
        }
        meeting.again()
    }
}

#[cfg(test)]
mod tests {
    use super::super::StrategyChoice;
    use super::super::tests::Rig;

    /// Conformance: NFD best-route | A retransmission goes to another next hop, and too soon a one nowhere; the time doubles
    #[test]
    fn what_comes_again_goes_elsewhere_unless_too_soon() {
        let mut rig = Rig::new(StrategyChoice::BestRoute);
        let hops = [7, 8, 9];
        assert_eq!(rig.faces(&hops, 0), [7]);
        // 10 ms, then 20, 40, 80, 160 and 250 for good.
        for (millis, faces) in [
            (9, &[][..]),
            (10, &[8]),
            (29, &[]),
            (30, &[9]),
            (69, &[]),
            (70, &[7]),
            (150, &[8]),
            (309, &[]),
            (310, &[9]),
            (559, &[]),
            (560, &[7]),
            (809, &[]),
            (810, &[8]),
        ] {
            assert_eq!(rig.faces(&hops, millis), faces, "{millis}");
        }
        assert_eq!(rig.faces(&[], 2000), [0u32; 0], "all next hops are gone");
    }
}
