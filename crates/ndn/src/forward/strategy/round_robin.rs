//! Round robin: each Interest of a route goes to another next hop, all alike, whatever they cost. One that comes again goes
//! where it has not been.

use super::{Decision, OutgoingInterest, Strategy};

pub(super) struct RoundRobin;

impl Strategy for RoundRobin {
    const MEASURES: bool = true;

    fn decide(&self, meeting: &mut OutgoingInterest<'_>) -> Decision {
        if meeting.is_new() {
            let turn = meeting.measurements.turn(meeting.state.measured, meeting.hops.len());
            return Decision::one(meeting.hops.get(turn).copied()).unwrap_or(Decision::NoRoute);
        }
        meeting.again()
    }
}

#[cfg(test)]
mod tests {
    use super::super::StrategyChoice;
    use super::super::tests::Rig;

    #[test]
    fn interests_take_turns() {
        let mut rig = Rig::new(StrategyChoice::RoundRobin);
        let mut went = Vec::new();
        for _ in 0..5 {
            went.extend(rig.faces(&[4, 5, 6], 0));
            rig.renew();
        }
        assert_eq!(went, [4, 5, 6, 4, 5]);
        assert_eq!(rig.faces(&[4, 5, 6], 0), [6]);
        assert_eq!(rig.faces(&[4, 5, 6], 5), [0u32; 0]);
        assert_eq!(rig.faces(&[4, 5, 6], 10), [4], "where it has not been");
    }
}
