//! The far ends that tunnels lead to.
//!
//! A node has many tunnels and few peers. What tunnels to one peer share, all but the TEID, is kept once
//! and named by a number that fits into a record. Workers read without a lock; entries are added by the
//! control plane and stay, for a network has no more peers than the numbers reach.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use kaido_wire::PduSession;

use crate::ids::EndpointId;
use crate::marking::DscpMarking;
use kaido_n4::{PagingPolicyIndicator, Qfi, Teid};

pub use crate::marking::OuterClass;

/// Shapes that have numbers; tunnels of further ones carry their shape with them.
const ENCAP_TEMPLATES_MAX: u16 = u16::MAX;

/// Peers that are known as such.
const PEERS_MAX: usize = 65_536;

/// Control planes that are known as such: a node has few.
const CONTROL_PLANES_MAX: usize = 1024;

/// The number of a [`EncapTemplate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncapTemplateId(u16);

impl EncapTemplateId {
    /// As a record has it.
    #[inline]
    pub(crate) const fn number(self) -> u16 {
        self.0
    }

    /// That which a record has.
    #[inline]
    pub(crate) const fn of_number(number: u16) -> Self {
        Self(number)
    }

    /// Its place, counted from zero.
    #[inline]
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// What tunnels to one peer have in common: the far end, and how packets into it look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncapTemplate {
    /// The peer.
    pub peer: IpAddr,
    /// Our end, whose address is the outer source.
    pub local: EndpointId,
    /// QFI to mark; brings a PDU session container.
    pub qfi: Option<Qfi>,
    /// RQI of the container (TS 38.415 5.5.3.4).
    pub reflective: bool,
    /// PPI of the container (TS 38.415 5.5.3.7).
    pub paging_policy: Option<PagingPolicyIndicator>,
    /// The container's PDU type is uplink: the packet goes towards another UPF (N9).
    pub container_uplink: bool,
    /// How the ToS or Traffic Class octet of the outer header is made.
    pub class: OuterClass,
}

impl EncapTemplate {
    /// A tunnel to a peer without container.
    pub const fn plain(peer: IpAddr, local: EndpointId) -> Self {
        Self {
            peer,
            local,
            qfi: None,
            reflective: false,
            paging_policy: None,
            container_uplink: false,
            class: OuterClass::Fixed(0),
        }
    }

    /// The ToS or Traffic Class octet of the outer header, and the bits that each packet's own octet gives, none of them set in it.
    pub fn class(&self, marking: &DscpMarking) -> (u8, u8) {
        self.class.octet(marking, self.qfi)
    }

    /// The PDU session container that packets get.
    pub fn container(&self) -> Option<PduSession> {
        let qfi = self.qfi?.0;
        Some(match self.container_uplink {
            false => {
                PduSession::Downlink { qfi, rqi: self.reflective, ppi: self.paging_policy.map(|ppi| ppi.0) }
            }
            true => PduSession::Uplink { qfi },
        })
    }
}

/// A tunnel that packets are put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Its far end.
    pub encap: EncapTemplate,
    /// The number of that shape, if it has one.
    pub id: Option<EncapTemplateId>,
    /// The peer's TEID.
    pub teid: Teid,
}

/// All shapes of the node.
#[derive(Debug)]
pub struct Tunnels {
    encaps: Box<[OnceLock<EncapTemplate>]>,
    known: Mutex<HashMap<EncapTemplate, EncapTemplateId>>,
    /// Far ends of tunnels, now or before, at most [`PEERS_MAX`]; and our end of the last tunnel that led there.
    peers: RwLock<HashMap<IpAddr, EndpointId>>,
    /// Those of them that are control planes' (TS 29.244 5.3.3), at most [`CONTROL_PLANES_MAX`].
    control_planes: RwLock<HashSet<IpAddr>>,
}

impl Default for Tunnels {
    fn default() -> Self {
        Self {
            encaps: (0..ENCAP_TEMPLATES_MAX).map(|_| OnceLock::new()).collect(),
            known: Mutex::default(),
            peers: RwLock::default(),
            control_planes: RwLock::default(),
        }
    }
}

impl Tunnels {
    /// A tunnel of that shape, numbered while there are numbers.
    pub fn tunnel(&self, encap: EncapTemplate, teid: Teid) -> Tunnel {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let id = known.get(&encap).copied().or_else(|| {
            let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
            if peers.len() < PEERS_MAX || peers.contains_key(&encap.peer) {
                peers.insert(encap.peer, encap.local);
            }
            drop(peers);
            let id = EncapTemplateId(u16::try_from(known.len()).ok().filter(|&id| id < ENCAP_TEMPLATES_MAX)?);
            self.encaps[id.index()].set(encap).ok()?;
            known.insert(encap, id);
            Some(id)
        });
        Tunnel { encap, id, teid }
    }

    /// Whether tunnels lead to a peer, or did. Of more peers than can be kept any may be one.
    pub fn leads_to(&self, peer: IpAddr) -> bool {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.contains_key(&peer) || peers.len() == PEERS_MAX
    }

    /// Notes that tunnels to a peer are a control plane's. One more than can be kept is none.
    pub(crate) fn add_control_plane(&self, peer: IpAddr) {
        let mut known = self.control_planes.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < CONTROL_PLANES_MAX {
            known.insert(peer);
        }
    }

    /// Whether tunnels of a control plane lead to a peer, or did.
    pub fn is_control_plane(&self, peer: IpAddr) -> bool {
        self.control_planes.read().unwrap_or_else(PoisonError::into_inner).contains(&peer)
    }

    /// Our end of the tunnels that lead to a peer.
    pub fn local_end(&self, peer: IpAddr) -> Option<EndpointId> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(&peer).copied()
    }

    /// The shape of a number; `None` for a number that was not given out.
    #[inline]
    pub fn encap(&self, id: EncapTemplateId) -> Option<&EncapTemplate> {
        self.encaps.get(id.index())?.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_to_one_peer_share_a_number() {
        let tunnels = Tunnels::default();
        let encap = |host, qfi| EncapTemplate {
            qfi: Some(Qfi(qfi)),
            ..EncapTemplate::plain(IpAddr::from([10, 0, 0, host]), EndpointId(0))
        };
        let first = tunnels.tunnel(encap(1, 9), Teid(1));
        let second = tunnels.tunnel(encap(1, 9), Teid(2));
        let other = tunnels.tunnel(encap(1, 5), Teid(1));
        assert_eq!(first.id, second.id);
        assert_ne!(first.id, other.id);
        assert_eq!(tunnels.encap(other.id.unwrap()), Some(&encap(1, 5)));
        assert_eq!(tunnels.encap(EncapTemplateId(ENCAP_TEMPLATES_MAX)), None);
        assert!(tunnels.leads_to(IpAddr::from([10, 0, 0, 1])));
        assert!(!tunnels.leads_to(IpAddr::from([10, 0, 0, 2])));
    }
}
