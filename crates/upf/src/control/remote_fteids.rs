//! Which sessions send to a remote F-TEID. It is asked only when a peer says that it does not know a
//! TEID (TS 29.281 7.3.1), so it may cost a look at the session, but little memory.

use std::net::IpAddr;

use hashbrown::HashTable;
use kaido_table::Seed;

use super::paths::Paths;
use crate::echo::EchoSettings;
use crate::ids::SessionIndex;
use kaido_n4::Teid;

/// TEID and address of the peer.
pub(super) type RemoteFTeid = (Teid, IpAddr);

/// Sessions by a hash of their remote F-TEIDs. Two may have one hash: the caller looks at the sessions.
#[derive(Debug)]
pub(super) struct RemoteFTeids {
    seed: Seed,
    users: HashTable<User>,
    /// The paths that the tunnels share.
    pub(super) paths: Paths,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    remote_fteid: u32,
    session: SessionIndex,
}

impl User {
    /// Spreads 32 bits over the 64 that a table wants.
    fn spread(self) -> u64 {
        u64::from(self.remote_fteid).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl RemoteFTeids {
    pub(super) fn new(echo: EchoSettings) -> Self {
        Self { seed: Seed::random(), users: HashTable::new(), paths: Paths::new(echo) }
    }

    /// Makes room for so many sessions with one each.
    pub(super) fn reserve(&mut self, sessions: usize) {
        self.users.reserve(sessions, |user| user.spread());
    }

    #[allow(clippy::cast_possible_truncation)] // Half of the hash is enough, and splitting an address.
    fn user(&self, (teid, peer): RemoteFTeid, session: SessionIndex) -> User {
        let peer = match peer {
            IpAddr::V4(peer) => peer.to_ipv6_mapped().to_bits(),
            IpAddr::V6(peer) => peer.to_bits(),
        };
        let of_peer = self.seed.hash(&peer);
        User {
            remote_fteid: self.seed.hash(&(u128::from(of_peer) << 32 | u128::from(teid.0))) as u32,
            session,
        }
    }

    /// Replaces the remote F-TEIDs of a session, each once and in order.
    pub(super) fn change(&mut self, session: SessionIndex, from: &[RemoteFTeid], to: &[RemoteFTeid]) {
        for gone in from.iter().filter(|end| to.binary_search(end).is_err()) {
            let user = self.user(*gone, session);
            self.paths.leave(gone.1);
            if let Ok(entry) = self.users.find_entry(user.spread(), |other| *other == user) {
                entry.remove();
            }
        }
        for new in to.iter().filter(|end| from.binary_search(end).is_err()) {
            let user = self.user(*new, session);
            self.paths.join(new.1);
            self.users.insert_unique(user.spread(), user, |user| user.spread());
        }
    }

    /// Sessions that may use a remote F-TEID.
    pub(super) fn candidates(&self, remote_fteid: RemoteFTeid) -> Vec<SessionIndex> {
        let wanted = self.user(remote_fteid, SessionIndex(0));
        let same =
            self.users.iter_hash(wanted.spread()).filter(|user| user.remote_fteid == wanted.remote_fteid);
        same.map(|user| user.session).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_ends_find_their_sessions_until_they_change() {
        let remote_fteid = |teid, host| (Teid(teid), IpAddr::from([10, 0, 0, host]));
        let mut ends = RemoteFTeids::new(EchoSettings::default());
        ends.change(SessionIndex(1), &[], &[remote_fteid(1, 1), remote_fteid(2, 1)]);
        ends.change(SessionIndex(2), &[], &[remote_fteid(1, 1), remote_fteid(1, 2)]);
        let mut users = ends.candidates(remote_fteid(1, 1));
        users.sort();
        assert_eq!(users, [SessionIndex(1), SessionIndex(2)]);
        assert_eq!(ends.candidates(remote_fteid(1, 2)), [SessionIndex(2)]);
        ends.change(SessionIndex(1), &[remote_fteid(1, 1), remote_fteid(2, 1)], &[remote_fteid(2, 1)]);
        assert_eq!(ends.candidates(remote_fteid(1, 1)), [SessionIndex(2)]);
        ends.change(SessionIndex(2), &[remote_fteid(1, 1), remote_fteid(1, 2)], &[]);
        ends.change(SessionIndex(1), &[remote_fteid(2, 1)], &[]);
        assert!(ends.users.is_empty());
        assert!(ends.paths.summaries(9).iter().all(|path| path.tunnels == 0));
    }
}
