//! Whose a face is: what one host may have of the faces, and of the places in which Interests wait.
//!
//! A host may send from as many UDP ports, and connect as often, as it likes; so what is shared is bounded for the host, not
//! for the face. Faces of this host's applications have bounds of their own, which others cannot use up.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use kaido_ndn_tables::{Account, FaceId};
use kaido_table::{Key, Seed};

use super::{FaceError, FaceSettings, FaceUri, Persistency, Scope};

/// How many faces may be made by who comes. Those that the file or a command asks for count only against the table's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaceBounds {
    /// By other hosts together.
    pub on_demand: usize,
    /// By one of them, over TCP and UDP: one address of IPv4, or a /64 of IPv6.
    pub per_host: usize,
    /// By applications of this host.
    pub applications: usize,
}

impl FaceBounds {
    /// No bounds but the table's size.
    pub const NONE: Self = Self { on_demand: usize::MAX, per_host: usize::MAX, applications: usize::MAX };
}

/// The faces that were made by who came.
#[derive(Debug)]
pub(super) struct OnDemandFaces {
    bounds: FaceBounds,
    seed: Seed,
    on_demand: usize,
    applications: usize,
    hosts: HashMap<IpAddr, usize>,
}

impl OnDemandFaces {
    pub(super) fn new(bounds: FaceBounds) -> Self {
        Self { bounds, seed: Seed::random(), on_demand: 0, applications: 0, hosts: HashMap::new() }
    }

    /// The account of a face.
    pub(super) fn account(&self, id: FaceId, settings: &FaceSettings) -> Account {
        if settings.scope == Scope::Local {
            return Account::of_application(id);
        }
        let key = match (host(&settings.remote), &settings.remote) {
            (Some(IpAddr::V4(address)), _) => address.to_ipv6_mapped().to_bits(),
            (Some(IpAddr::V6(address)), _) => address.to_bits(),
            // No address of IPv6 in use begins so.
            (None, FaceUri::Ether(address)) => {
                address.0.iter().fold(0x4000, |key, octet| key << 8 | u128::from(*octet)) << 64
            }
            (None, _) => 0x8000_u128 << 112 | u128::from(id.0),
        };
        Account::of_host(key.hash(&self.seed))
    }

    /// Whether there is room for another of these.
    pub(super) fn admit(&self, settings: &FaceSettings) -> Result<(), FaceError> {
        if settings.persistency != Persistency::OnDemand {
            return Ok(());
        }
        if settings.scope == Scope::Local {
            let has_room = self.applications < self.bounds.applications;
            return has_room.then_some(()).ok_or(FaceError::Applications);
        }
        let of_host = host(&settings.remote).and_then(|host| self.hosts.get(&host)).copied();
        if of_host.unwrap_or(0) >= self.bounds.per_host {
            return Err(FaceError::Host);
        }
        let has_room = self.on_demand < self.bounds.on_demand;
        has_room.then_some(()).ok_or(FaceError::OnDemand)
    }

    /// Counts one that was made.
    pub(super) fn came(&mut self, settings: &FaceSettings) {
        match (settings.persistency, settings.scope) {
            (Persistency::OnDemand, Scope::Local) => self.applications += 1,
            (Persistency::OnDemand, Scope::NonLocal) => {
                self.on_demand += 1;
                if let Some(host) = host(&settings.remote) {
                    *self.hosts.entry(host).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    /// Forgets one that is gone.
    pub(super) fn went(&mut self, settings: &FaceSettings) {
        match (settings.persistency, settings.scope) {
            (Persistency::OnDemand, Scope::Local) => self.applications -= 1,
            (Persistency::OnDemand, Scope::NonLocal) => {
                self.on_demand -= 1;
                if let Some(host) = host(&settings.remote)
                    && let Some(count) = self.hosts.get_mut(&host)
                {
                    *count -= 1;
                    if *count == 0 {
                        self.hosts.remove(&host);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The host at the other end, where it has an address of IP. Of IPv6 it is a /64, of which one host has as many addresses
/// as it likes. On a link, where all have the same, it is the address.
fn host(remote: &FaceUri) -> Option<IpAddr> {
    let (FaceUri::Tcp(address) | FaceUri::Udp(address)) = remote else { return None };
    Some(match address.ip().to_canonical() {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip => ip,
    })
}
