//! The far ends that tunnels lead to.
//!
//! A node has many tunnels and few peers: what tunnels to one peer share, all but the TEID, is kept once
//! and named by a number that fits into a record. Workers read without a lock; entries are added by the
//! control plane and stay, for a network has no more peers than the numbers reach.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use kaido_wire::PduSession;

use crate::record::EndpointId;
use crate::rules::{PagingPolicyIndicator, Qfi, Teid};

/// Shapes that have numbers; tunnels of further ones carry their shape with them.
const SHAPES_MAX: u16 = u16::MAX;

/// Peers that are known as such.
const PEERS_MAX: usize = 65_536;

/// Control planes that are known as such: a node has few.
const CONTROL_PLANES_MAX: usize = 1024;

/// The number of a [`TunnelShape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShapeId(u16);

impl ShapeId {
    /// Stands where there is no tunnel.
    pub(crate) const NONE: Self = Self(SHAPES_MAX);

    /// Its place, counted from zero.
    #[inline]
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// What tunnels to one peer have in common: the far end, and how packets into it look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TunnelShape {
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
    /// ToS or Traffic Class octet of the outer header.
    pub tos: u8,
    /// The bits of that octet, none of them set in it, that each packet's own octet gives.
    pub copied: u8,
}

impl TunnelShape {
    /// A tunnel to a peer without container.
    pub const fn plain(peer: IpAddr, local: EndpointId) -> Self {
        Self {
            peer,
            local,
            qfi: None,
            reflective: false,
            paging_policy: None,
            container_uplink: false,
            tos: 0,
            copied: 0,
        }
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
    pub shape: TunnelShape,
    /// The number of that shape, if it has one.
    pub id: Option<ShapeId>,
    /// The peer's TEID.
    pub teid: Teid,
}

/// All shapes of the node.
#[derive(Debug)]
pub struct Tunnels {
    shapes: Box<[OnceLock<TunnelShape>]>,
    known: Mutex<HashMap<TunnelShape, ShapeId>>,
    /// Far ends of tunnels, now or before, at most [`PEERS_MAX`]; and our end of the last tunnel that led there.
    peers: RwLock<HashMap<IpAddr, EndpointId>>,
    /// Those of them that are control planes' (TS 29.244 5.3.3), at most [`CONTROL_PLANES_MAX`].
    control_planes: RwLock<HashSet<IpAddr>>,
}

impl Default for Tunnels {
    fn default() -> Self {
        Self {
            shapes: (0..SHAPES_MAX).map(|_| OnceLock::new()).collect(),
            known: Mutex::default(),
            peers: RwLock::default(),
            control_planes: RwLock::default(),
        }
    }
}

impl Tunnels {
    /// A tunnel of that shape, numbered while there are numbers.
    pub fn tunnel(&self, shape: TunnelShape, teid: Teid) -> Tunnel {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let id = known.get(&shape).copied().or_else(|| {
            let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
            if peers.len() < PEERS_MAX || peers.contains_key(&shape.peer) {
                peers.insert(shape.peer, shape.local);
            }
            drop(peers);
            let id = ShapeId(u16::try_from(known.len()).ok().filter(|&id| id < SHAPES_MAX)?);
            self.shapes[id.index()].set(shape).ok()?;
            known.insert(shape, id);
            Some(id)
        });
        Tunnel { shape, id, teid }
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
    pub fn shape(&self, id: ShapeId) -> Option<&TunnelShape> {
        self.shapes.get(id.index())?.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_to_one_peer_share_a_number() {
        let tunnels = Tunnels::default();
        let shape = |host, qfi| TunnelShape {
            qfi: Some(Qfi(qfi)),
            ..TunnelShape::plain(IpAddr::from([10, 0, 0, host]), EndpointId(0))
        };
        let first = tunnels.tunnel(shape(1, 9), Teid(1));
        let second = tunnels.tunnel(shape(1, 9), Teid(2));
        let other = tunnels.tunnel(shape(1, 5), Teid(1));
        assert_eq!(first.id, second.id);
        assert_ne!(first.id, other.id);
        assert_eq!(tunnels.shape(other.id.unwrap()), Some(&shape(1, 5)));
        assert_eq!(tunnels.shape(ShapeId::NONE), None);
        assert!(tunnels.leads_to(IpAddr::from([10, 0, 0, 1])));
        assert!(!tunnels.leads_to(IpAddr::from([10, 0, 0, 2])));
    }
}
