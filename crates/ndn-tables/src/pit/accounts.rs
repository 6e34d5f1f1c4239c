//! What each host and each application has of the PIT, in units of an entry. A record beyond the first, and a piece of
//! a long name, cost as many units as there are entries for one of them. So none of the stores can be used up alone.

use super::settings::PitSettings;
use crate::Account;

/// What is used of a PIT, by account.
#[derive(Debug)]
pub(super) struct Accounts {
    used: Box<[u32]>,
    /// By other hosts together.
    by_hosts: u32,
    of_account: u32,
    of_hosts: u32,
    /// What a record beyond the first costs.
    pub(super) record: u32,
    /// What a piece of a long name costs.
    pub(super) chunk: u32,
}

impl Accounts {
    pub(super) fn new(settings: &PitSettings) -> Self {
        Self {
            used: vec![0; Account::COUNT].into(),
            by_hosts: 0,
            of_account: settings.of_account,
            of_hosts: settings.of_hosts,
            record: settings.entries.div_ceil(settings.records.max(1)),
            chunk: settings.entries.div_ceil(settings.name_chunks.max(1)),
        }
    }

    /// Whether an account may have so much more.
    #[inline(always)]
    pub(super) fn has_room(&self, account: Account, cost: u32) -> bool {
        self.used[account.index()].saturating_add(cost) <= self.of_account
            && (account.is_local() || self.by_hosts.saturating_add(cost) <= self.of_hosts)
    }

    #[inline(always)]
    pub(super) fn charge(&mut self, account: Account, cost: u32) {
        self.used[account.index()] += cost;
        self.by_hosts += if account.is_local() { 0 } else { cost };
    }

    #[inline(always)]
    pub(super) fn refund(&mut self, account: Account, cost: u32) {
        self.used[account.index()] -= cost;
        self.by_hosts -= if account.is_local() { 0 } else { cost };
    }

    /// Whether nothing is used.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_hosts == 0 && self.used.iter().all(|used| *used == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{PLAIN, downstream, hashed, insert};
    use super::super::records::{InRecord, OutRecord};
    use super::super::{Pit, PitFull};
    use super::*;
    use crate::FaceId;
    use crate::NodeInstant;
    use crate::text::name;

    const HOST: Account = Account::of_host(1);
    const OTHER: Account = Account::of_host(2);
    const APP: Account = Account::of_application(FaceId(300));

    fn pit() -> Pit {
        let settings =
            PitSettings { entries: 32, records: 16, name_chunks: 8, worker: 0, of_account: 16, of_hosts: 24 };
        Pit::new(&settings, NodeInstant::default()).unwrap()
    }

    fn waits(account: Account, face: u32) -> InRecord {
        InRecord { account, ..downstream(face, 1, 1000) }
    }

    /// As many Interests of one account as it may have waiting.
    fn fill(pit: &mut Pit, account: Account, tag: &str) -> usize {
        (0..)
            .take_while(|number| {
                let octets = name(&format!("{tag}/{number}"));
                if !pit.has_room(account, octets.len()) {
                    return false;
                }
                insert(pit, &octets, PLAIN)
                    .is_ok_and(|slot| pit.insert_in_record(slot, &waits(account, 7)).is_ok())
            })
            .count()
    }

    #[test]
    fn a_host_has_its_share_and_applications_what_is_left() {
        let mut pit = pit();
        assert_eq!(fill(&mut pit, HOST, "h"), 16);
        assert_eq!(fill(&mut pit, OTHER, "o"), 8, "all hosts together");
        assert_eq!(fill(&mut pit, APP, "a"), 8, "what hosts may not have");
        while let Some(slot) = pit.expired(NodeInstant::from_nanoseconds(3_000_000_000)) {
            pit.erase(slot);
        }
        assert!(pit.is_empty() && pit.accounts.is_empty());
        assert_eq!(fill(&mut pit, OTHER, "o"), 16);
    }

    #[test]
    fn long_names_and_records_cost_as_they_are_scarce() {
        let mut pit = pit();
        let long = name(&"x".repeat(NAME_OCTETS));
        assert!(pit.has_room(HOST, long.len()) && !pit.has_room(HOST, long.len() + 800));
        let slot = insert(&mut pit, &long, PLAIN).unwrap();
        pit.insert_in_record(slot, &waits(HOST, 1)).unwrap();
        // 1 for the entry and 4 for each of two pieces are used; a record is 2.
        for face in 2..5 {
            assert_eq!(pit.insert_in_record(slot, &waits(HOST, face)), Ok(()));
        }
        assert_eq!(pit.insert_in_record(slot, &waits(HOST, 5)), Err(PitFull::Account));
        assert_eq!(pit.insert_in_record(slot, &waits(OTHER, 6)), Ok(()), "another host joins");
        assert_eq!(pit.insert_in_record(slot, &waits(HOST, 1)), Ok(()), "who waits already may ask again");
        let asks =
            |face| OutRecord { sent: NodeInstant::default(), face: FaceId(face), nonce: 1, nack: None };
        assert_eq!(pit.insert_out_record(slot, &asks(8)), Ok(()));
        assert_eq!(pit.insert_out_record(slot, &asks(9)), Err(PitFull::Account));
        pit.erase(slot);
        assert!(pit.accounts.is_empty());
        let slot = insert(&mut pit, &name("a"), PLAIN).unwrap();
        pit.insert_in_record(slot, &waits(APP, 1)).unwrap();
        (8..12).for_each(|face| pit.insert_out_record(slot, &asks(face)).unwrap());
        pit.erase(slot);
        assert!(pit.accounts.is_empty());
    }

    /// Two pieces beyond what an entry holds.
    const NAME_OCTETS: usize = 128 + 252 + 100;

    #[test]
    fn the_fast_path_counts_as_the_slow_one() {
        let mut pit = pit();
        // Entries that were used before are there for the taking.
        let slots: Vec<_> =
            (0..32).map(|number| insert(&mut pit, &name(&number.to_string()), PLAIN).unwrap()).collect();
        slots.into_iter().for_each(|slot| pit.erase(slot));
        let asked = OutRecord { sent: NodeInstant::default(), face: FaceId(9), nonce: 1, nack: None };
        let open = |pit: &mut Pit, number: u32| {
            let octets = name(&format!("s/{number}"));
            let prefixes = hashed(&octets);
            let vacancy = pit.vacancy(prefixes.whole()).unwrap();
            pit.insert_fast(&octets, &prefixes, vacancy, false, &waits(HOST, 1), &asked)
                .map(|token| (token, octets))
        };
        let opened: Vec<_> = (0..20).map_while(|number| open(&mut pit, number)).collect();
        assert_eq!(opened.len(), 16);
        for (token, octets) in &opened {
            let sole = pit.single_downstream(token, octets).unwrap();
            pit.erase_fast(&sole);
        }
        assert!(pit.accounts.is_empty());
    }
}
