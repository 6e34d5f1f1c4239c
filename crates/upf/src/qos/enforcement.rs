//! What the QERs of a rule ask of one direction of its packets.

use kaido_table::Ticks;

use super::{PolicerSlot, Policers};
use crate::ue::Direction;

/// Rates that a packet is held to at most: the session's, its QoS flow's, its service data flow's, and one to spare.
pub const POLICERS_MAX: usize = 4;

/// The QoS enforcement of a rule in its direction, but for the gate. Small enough to lie in an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enforcement {
    policers: [u32; POLICERS_MAX],
    len: u8,
    /// What measures the guaranteed rate.
    guarantee: Option<PolicerSlot>,
    /// What counts the packets.
    packets: Option<PolicerSlot>,
}

impl Enforcement {
    /// One policer.
    pub fn of(slot: PolicerSlot) -> Self {
        Self { policers: [slot.0, 0, 0, 0], len: 1, guarantee: None, packets: None }
    }

    /// Whether every packet passes as it is.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.len == 0 && self.guarantee.is_none() && self.packets.is_none()
    }

    /// Sets the guaranteed rate, if none is set.
    pub fn guarantee(&mut self, slot: PolicerSlot) {
        self.guarantee = self.guarantee.or(Some(slot));
    }

    /// Adds a policer, once; `false` when there is no room.
    #[must_use]
    pub fn push(&mut self, slot: PolicerSlot) -> bool {
        if self.policers().any(|known| known == slot) {
            return true;
        }
        let Some(place) = self.policers.get_mut(usize::from(self.len)) else { return false };
        *place = slot.0;
        self.len += 1;
        true
    }

    /// Has packets counted; `false` when they are counted elsewhere already.
    #[must_use]
    pub fn count_packets(&mut self, slot: PolicerSlot) -> bool {
        *self.packets.get_or_insert(slot) == slot
    }

    /// What counts the packets.
    #[inline]
    pub fn packets(&self) -> Option<PolicerSlot> {
        self.packets
    }

    /// The policers, each once.
    #[inline]
    pub fn policers(&self) -> impl Iterator<Item = PolicerSlot> + '_ {
        self.policers[..usize::from(self.len)].iter().map(|&slot| PolicerSlot(slot))
    }

    /// What measures the guaranteed rate.
    pub fn guaranteed(&self) -> Option<PolicerSlot> {
        self.guarantee
    }

    /// The policers of an enforcement that asks for nothing else.
    pub fn only_policers(&self) -> Option<impl Iterator<Item = PolicerSlot> + '_> {
        (self.guarantee.is_none() && self.packets.is_none()).then(|| self.policers())
    }

    /// Whether every policer lets a packet pass; takes nothing.
    #[inline]
    pub fn admits(&self, policers: &Policers, direction: Direction, now: Ticks) -> bool {
        self.policers().all(|slot| policers.admits(slot, direction, now))
    }

    /// Whether a packet is within the guaranteed rate, and so to be preferred; takes nothing.
    #[inline]
    pub fn is_guaranteed(&self, policers: &Policers, direction: Direction, now: Ticks) -> bool {
        self.guarantee.is_some_and(|slot| policers.admits(slot, direction, now))
    }

    /// Takes from every policer what a packet of `bytes` costs that passes, and from the guarantee if it is within.
    #[inline]
    pub fn take(&self, policers: &Policers, direction: Direction, now: Ticks, bytes: u64, shared: bool) {
        if let Some(slot) = self.guarantee.filter(|&slot| policers.admits(slot, direction, now)) {
            policers.take(slot, direction, now, bytes, shared);
        }
        self.policers().for_each(|slot| policers.take(slot, direction, now, bytes, shared));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use kaido_n4::BitRate;

    #[test]
    fn a_policer_is_named_once_and_there_are_four() {
        let mut asked = Enforcement::default();
        assert!(asked.is_none());
        assert!(asked.push(PolicerSlot(7)) && asked.push(PolicerSlot(7)));
        assert_eq!(asked.only_policers().map(Iterator::count), Some(1));
        assert!((1..4).all(|n| asked.push(PolicerSlot(n))));
        assert!(!asked.push(PolicerSlot(9)));
        assert!(asked.push(PolicerSlot(3)), "it is there already");
        assert_eq!(asked.policers().map(|slot| slot.0).collect::<Vec<_>>(), [7, 1, 2, 3]);
    }

    #[test]
    fn what_one_policer_refuses_is_taken_from_none() {
        let policers = Policers::new(2).unwrap();
        let window = Duration::from_millis(10);
        let (wide, narrow) = (PolicerSlot(0), PolicerSlot(1));
        policers.set(wide, BitRate { uplink_kbps: 1600, downlink_kbps: 0 }, window);
        policers.set(narrow, BitRate { uplink_kbps: 800, downlink_kbps: 0 }, window);
        let now = policers.ticks(Instant::now());
        let mut asked = Enforcement::default();
        assert!(asked.push(wide) && asked.push(narrow));
        for passes in [true, true, false, false, false] {
            // Ten milliseconds of the narrow one are two packets.
            assert_eq!(asked.admits(&policers, Direction::Uplink, now), passes);
            if passes {
                asked.take(&policers, Direction::Uplink, now, 500, true);
            }
        }
        policers.take(wide, Direction::Uplink, now, 999, true);
        assert!(policers.admits(wide, Direction::Uplink, now), "2000 octets less two packets and 999");
    }
}
