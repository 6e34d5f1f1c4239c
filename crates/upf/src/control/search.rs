//! Sessions that are found by looking at all of them, a part at a time, so that nothing else waits for the whole.
//!
//! A session is told from others by the first of what is packed of it. Only those of the page that is wanted are unpacked, and
//! those that may name a network instance.

use std::net::IpAddr;
use std::time::Instant;

use super::Upf;
use super::packed::ImsiPrefix;
use super::session::SessionSummary;
use crate::ids::SessionIndex;
use kaido_n4::{Imsi, NetworkInstance};

/// Places that are looked at between two looks at the clock: some microseconds.
const PLACES_A_LOOK: usize = 256;

/// Which sessions are wanted: those that meet all that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Of that subscriber.
    pub imsi: Option<Imsi>,
    /// Of a control plane whose F-SEID has that address.
    pub control_plane: Option<IpAddr>,
    /// A rule of which names it: what many SMFs call by the DNN.
    pub network_instance: Option<NetworkInstance>,
}

/// A page of such sessions, and how many there are. Sessions that come and go while they are looked for may or may not be in it.
#[derive(Debug)]
pub struct SessionSearch {
    filter: SessionFilter,
    prefix: Option<ImsiPrefix>,
    skip: usize,
    limit: usize,
    /// The place to go on from.
    next: usize,
    /// Sessions that meet it, as far as was looked.
    pub total: usize,
    /// Those of the page.
    pub found: Vec<SessionSummary>,
}

impl SessionSearch {
    /// Passes over `skip` of them, and takes `limit`.
    pub fn new(filter: SessionFilter, skip: usize, limit: usize) -> Self {
        let prefix = filter.imsi.map(ImsiPrefix::of);
        Self { filter, prefix, skip, limit, next: 0, total: 0, found: Vec::new() }
    }
}

impl Upf {
    /// Goes on with a search until then; whether it is at its end. Without a filter that is the end of the page, as it is known how many
    /// sessions there are.
    pub fn search(&self, search: &mut SessionSearch, until: Instant) -> bool {
        let is_of_all = search.filter == SessionFilter::default();
        while search.next < self.sessions.places() {
            let end = search.next.saturating_add(PLACES_A_LOOK).min(self.sessions.places());
            while search.next < end {
                let index = SessionIndex(u32::try_from(search.next).unwrap_or(u32::MAX));
                search.next += 1;
                if !self.meets(index, search) {
                    continue;
                }
                let mut session = None;
                if let Some(wanted) = &search.filter.network_instance {
                    session = self.sessions.get(index);
                    let mut named =
                        session.iter().flat_map(|session| session.state.rules.network_instances());
                    if !named.any(|name| name == wanted) {
                        // To unpack one takes as long as to look at hundreds.
                        break;
                    }
                }
                search.total += 1;
                if search.total <= search.skip || search.found.len() >= search.limit {
                    continue;
                }
                let session = session.or_else(|| self.sessions.get(index));
                search.found.extend(session.map(|session| self.summary(&session)));
                break;
            }
            if is_of_all && search.total >= search.skip.saturating_add(search.limit) {
                break;
            }
            if Instant::now() >= until {
                return search.next >= self.sessions.places();
            }
        }
        if is_of_all {
            search.total = self.len();
        }
        true
    }

    /// Whether it meets what can be told without its rules.
    fn meets(&self, index: SessionIndex, search: &SessionSearch) -> bool {
        let SessionFilter { imsi, control_plane, .. } = search.filter;
        if imsi.is_none() && control_plane.is_none() {
            return self.sessions.seid(index).is_some();
        }
        if search.prefix.as_ref().is_some_and(|prefix| !self.sessions.may_be_of(index, prefix)) {
            return false;
        }
        let Some((its_imsi, cp_fseid)) = self.sessions.head(index) else { return false };
        let has = |address: IpAddr| match address {
            IpAddr::V4(v4) => cp_fseid.ipv4 == Some(v4),
            IpAddr::V6(v6) => cp_fseid.ipv6 == Some(v6),
        };
        imsi.is_none_or(|imsi| its_imsi == Some(imsi)) && control_plane.is_none_or(has)
    }
}
