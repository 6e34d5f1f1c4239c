//! Applications by their packet flow descriptions (TS 29.244 5.11): what control and workers know of them.
//!
//! Rules name applications by number. PFDs come and go without touching any session: the control plane puts a new
//! catalogue in the place of the old one, and workers take it at their next batch.

pub mod quic;
pub(crate) mod sni;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};

use crate::classify::Flow;
use crate::ids::AppNumber;
use kaido_n4::{
    AddressMatch, ApplicationId, Cause, DomainSource, FlowEnd, Pfd, PfdManagement, Rejection, SdfFilter,
};

/// Most applications whose names are known.
const APPLICATIONS_MAX: usize = 1024;
/// Most flow descriptions, URLs and domain names of all applications.
const CONDITIONS_MAX: usize = 16_384;
/// Applications that one name can stand for.
pub(crate) const SAME_NAME_MAX: usize = 4;

/// How often control is told of a flow that goes on.
pub(crate) const RETELL: Duration = Duration::from_secs(1);

/// What tells flows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEnds {
    /// The far end.
    pub remote: IpAddr,
    /// The UE's end.
    pub local: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Port of the far end and of the UE's, where the protocol has ports.
    pub ports: Option<(u16, u16)>,
}

impl FlowEnds {
    /// The ends of a packet's flow.
    pub(crate) fn of(flow: &Flow) -> Self {
        Self { remote: flow.remote, local: flow.local, protocol: flow.protocol, ports: flow.ports }
    }

    /// The filter that the flow alone satisfies.
    pub(crate) fn filter(&self) -> SdfFilter {
        let end = |address: IpAddr, port: Option<u16>| FlowEnd {
            address: match address {
                IpAddr::V4(address) => AddressMatch::v4(address, 32),
                IpAddr::V6(address) => AddressMatch::v6(address, 128),
            },
            ports: port.map(|port| (port, port)).into_iter().collect(),
        };
        let (remote, local) = self.ports.unzip();
        SdfFilter {
            protocol: Some(self.protocol),
            remote: end(self.remote, remote),
            local: end(self.local, local),
            ..SdfFilter::default()
        }
    }
}

/// Applications that a flow belongs to.
pub(crate) type Apps = ArrayVec<AppNumber, SAME_NAME_MAX>;

/// The PFDs of all applications at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalogue {
    /// By number; empty where an application has no PFDs now.
    apps: Vec<Pfd>,
}

impl Catalogue {
    /// Whether a flow satisfies one of an application's flow descriptions.
    pub(crate) fn has_flow(&self, app: AppNumber, flow: &Flow) -> bool {
        let pfd = self.apps.get(usize::from(app.0));
        pfd.is_some_and(|pfd| pfd.flows.iter().any(|description| is_flow(description, flow)))
    }

    /// The applications of a host name that was seen where `source` says, and of what is asked of it.
    pub(crate) fn of_host(&self, host: &[u8], path: Option<&[u8]>, source: DomainSource) -> Apps {
        let of_name = |pfd: &Pfd| {
            pfd.domains.iter().any(|domain| domain.matches(host, source))
                || (source != DomainSource::Dns && pfd.urls.iter().any(|url| url.matches(host, path)))
        };
        let numbered = (0u16..).map(AppNumber).zip(&self.apps);
        numbered.filter(|(_, pfd)| of_name(pfd)).map(|(app, _)| app).take(SAME_NAME_MAX).collect()
    }
}

fn is_flow(description: &SdfFilter, flow: &Flow) -> bool {
    let (remote_port, local_port) = flow.ports.unzip();
    description.protocol.is_none_or(|protocol| protocol == flow.protocol)
        && description.remote.matches(flow.remote, remote_port)
        && description.local.matches(flow.local, local_port)
}

/// The catalogue of the node, and the numbers of applications.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    known: Mutex<KnownServer>,
    /// Moves whenever the catalogue does.
    generation: AtomicU64,
}

#[derive(Debug, Default)]
struct KnownServer {
    numbers: HashMap<ApplicationId, AppNumber>,
    catalogue: Arc<Catalogue>,
}

impl Applications {
    /// The number of an application that has PFDs, or had.
    pub(crate) fn number(&self, id: &ApplicationId) -> Option<AppNumber> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).numbers.get(id).copied()
    }

    /// The name of an application.
    pub(crate) fn name(&self, app: AppNumber) -> Option<ApplicationId> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.numbers.iter().find(|(_, number)| **number == app).map(|(id, _)| id.clone())
    }

    /// Which catalogue is the last.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        // Relaxed: what it stands for is taken under the lock.
        self.generation.load(Ordering::Relaxed)
    }

    /// The last catalogue.
    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).catalogue.clone()
    }

    /// All that a request was about, by number, as they are now.
    pub(crate) fn provisioned(&self, request: &PfdManagement) -> Vec<(AppNumber, ApplicationId, Pfd)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |id: &ApplicationId| {
            request.applications.is_empty() || request.applications.iter().any(|(named, _)| named == id)
        };
        let named = known.numbers.iter().filter(|(id, _)| is_meant(id));
        named
            .filter_map(|(id, &number)| {
                Some((number, id.clone(), known.catalogue.apps.get(usize::from(number.0))?.clone()))
            })
            .collect()
    }

    /// Takes in an application of before a restart, by the number that it had.
    pub(crate) fn take_in(&self, number: AppNumber, id: ApplicationId, pfd: Pfd) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::from(number.0);
        if at >= APPLICATIONS_MAX || known.numbers.values().any(|other| *other == number) {
            return false;
        }
        let mut catalogue = Catalogue::clone(&known.catalogue);
        if catalogue.apps.len() <= at {
            catalogue.apps.resize(at + 1, Pfd::default());
        }
        catalogue.apps[at] = pfd;
        known.catalogue = Arc::new(catalogue);
        known.numbers.insert(id, number);
        self.generation.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Provisions PFDs (TS 29.244 6.2.5): all of an application's take the place of all it had; without any application,
    /// those of all are removed.
    pub(crate) fn provision(&self, request: &PfdManagement) -> Result<(), Rejection> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut catalogue = Catalogue::clone(&known.catalogue);
        let mut numbers = known.numbers.clone();
        if request.applications.is_empty() {
            catalogue.apps.fill(Pfd::default());
        }
        for (id, pfds) in &request.applications {
            let fresh = u16::try_from(numbers.len()).unwrap_or(u16::MAX);
            let number = *numbers.entry(id.clone()).or_insert(AppNumber(fresh));
            let at = usize::from(number.0);
            if at >= APPLICATIONS_MAX {
                return Err(full(format!("more than {APPLICATIONS_MAX} applications")));
            }
            if catalogue.apps.len() <= at {
                catalogue.apps.resize(at + 1, Pfd::default());
            }
            let whole = &mut catalogue.apps[at];
            *whole = Pfd::default();
            for pfd in pfds {
                whole.flows.extend_from_slice(&pfd.flows);
                whole.urls.extend_from_slice(&pfd.urls);
                whole.domains.extend_from_slice(&pfd.domains);
            }
        }
        let conditions = |pfd: &Pfd| pfd.flows.len() + pfd.urls.len() + pfd.domains.len();
        if catalogue.apps.iter().map(conditions).sum::<usize>() > CONDITIONS_MAX {
            return Err(full(format!("more than {CONDITIONS_MAX} flow descriptions and names")));
        }
        (known.numbers, known.catalogue) = (numbers, Arc::new(catalogue));
        self.generation.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn full(detail: String) -> Rejection {
    Rejection::new(Cause::NoResourcesAvailable, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_n4::DomainPattern;

    fn named(name: &str) -> Pfd {
        Pfd { domains: vec![DomainPattern::parse(name, DomainSource::Any).unwrap()], ..Pfd::default() }
    }

    fn id(text: &str) -> ApplicationId {
        ApplicationId(text.into())
    }

    /// Conformance: TS 29.244 6.2.5.2 | PFDs replace all that an application had; a request without any removes all
    #[test]
    fn pfds_replace_what_was_there() {
        let apps = Applications::default();
        let of = |host: &[u8]| apps.catalogue().of_host(host, None, DomainSource::TlsSni);
        let provision = |list: Vec<(ApplicationId, Vec<Pfd>)>| {
            let before = apps.generation();
            apps.provision(&PfdManagement { applications: list }).unwrap();
            assert_ne!(apps.generation(), before);
        };
        provision(vec![(id("a"), vec![named("a.org"), named("b.org")]), (id("c"), vec![named("b.org")])]);
        let (a, c) = (apps.number(&id("a")).unwrap(), apps.number(&id("c")).unwrap());
        assert_eq!((of(b"a.org")[..].to_vec(), of(b"b.org")[..].to_vec()), (vec![a], vec![a, c]));
        provision(vec![(id("a"), vec![named("x.org")])]);
        assert!(of(b"a.org").is_empty() && of(b"x.org")[..] == [a] && of(b"b.org")[..] == [c]);
        provision(vec![(id("a"), vec![])]);
        assert!(of(b"x.org").is_empty() && of(b"b.org")[..] == [c]);
        provision(vec![]);
        assert!(of(b"b.org").is_empty());
        assert_eq!(apps.number(&id("a")), Some(a), "rules keep their numbers");
        assert_eq!((apps.name(a), apps.name(AppNumber(99))), (Some(id("a")), None));
    }

    #[test]
    fn what_is_too_much_changes_nothing() {
        let apps = Applications::default();
        let one = (id("a"), vec![named("a.org")]);
        apps.provision(&PfdManagement { applications: vec![one] }).unwrap();
        let many = (0..=APPLICATIONS_MAX).map(|n| (id(&format!("app{n}")), vec![named("b.org")]));
        let why = apps.provision(&PfdManagement { applications: many.collect() }).unwrap_err();
        assert_eq!(why.cause, Cause::NoResourcesAvailable);
        assert_eq!(apps.number(&id("app0")), None);
        let names = vec![named("b.org"); CONDITIONS_MAX + 1];
        let why = apps.provision(&PfdManagement { applications: vec![(id("a"), names)] }).unwrap_err();
        assert_eq!(why.cause, Cause::NoResourcesAvailable);
        assert_eq!(apps.catalogue().of_host(b"a.org", None, DomainSource::Any).len(), 1);
    }
}
