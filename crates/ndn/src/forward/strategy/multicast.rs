//! Multicast: all next hops. An Interest that comes again goes to those that were not asked not long ago.

use super::{Decision, NextHopQuery, OutgoingInterest, Strategy};

pub(super) struct Multicast;

impl Strategy for Multicast {
    const MEASURES: bool = false;

    fn decide(&self, meeting: &mut OutgoingInterest<'_>) -> Decision {
        let mut again = false;
        let mut asks = arrayvec::ArrayVec::new();
        for &face in meeting.hops {
            match meeting.asked(face) {
                Some(last) if meeting.now.since(last) < meeting.state.suppression() => continue,
                last => again |= last.is_some(),
            }
            // There are as many next hops as there is room.
            let _ = asks.try_push(NextHopQuery { face, is_probe: false });
        }
        if again {
            meeting.state.suppress_longer();
        }
        match (asks.is_empty(), meeting.is_new()) {
            (false, _) => Decision::Forward(asks),
            (true, true) => Decision::NoRoute,
            (true, false) => Decision::Suppress,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::StrategyChoice;
    use super::super::tests::Rig;

    /// Conformance: NFD multicast | An Interest goes to all next hops, and again to each that was not asked too recently
    #[test]
    fn all_are_asked_and_each_not_too_often() {
        let mut rig = Rig::new(StrategyChoice::Multicast);
        assert_eq!(rig.faces(&[1, 2], 0), [1, 2]);
        assert_eq!(rig.faces(&[1, 2, 3], 5), [3]);
        assert_eq!(rig.faces(&[1, 2, 3], 12), [1, 2]);
        assert_eq!(rig.faces(&[1, 2, 3], 20), [0u32; 0], "20 ms by now");
        assert_eq!(rig.faces(&[1, 2, 3], 32), [1, 2, 3]);
    }
}
