//! Faces over UDP: one socket for many senders, or one for a group.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::Frame;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg_addr};

use crate::FaceId;
use crate::face::{Face, Persistency};

/// Segments of a datagram that is sent: of the longest packet, each a frame.
const SLICES_MAX: usize = 8;

/// A sender of datagrams.
#[derive(Debug)]
struct Peer {
    face: Arc<Face>,
    /// Whether it was made because it sent.
    is_on_demand: bool,
    /// When it was heard of last.
    heard: Instant,
}

/// Whose datagrams a socket takes.
#[derive(Debug)]
enum Peers {
    /// Of each who sends.
    Each(HashMap<SocketAddr, Peer>),
    /// Of a group, as one face; what we send ourselves, through another socket, is not for us.
    Group { face: Arc<Face>, sender: UdpSocket, ours: Option<SocketAddr> },
}

/// A UDP socket.
#[derive(Debug)]
pub(super) struct Datagrams {
    pub(super) socket: UdpSocket,
    peers: Peers,
}

impl Datagrams {
    /// A socket for each who sends.
    pub(super) fn unicast(socket: UdpSocket) -> Self {
        Self { socket, peers: Peers::Each(HashMap::new()) }
    }

    /// A socket of a group, and the one that sends to it.
    pub(super) fn group(socket: UdpSocket, sender: UdpSocket, face: Arc<Face>) -> Self {
        let ours = sender.local_addr().ok();
        Self { socket, peers: Peers::Group { face, sender, ours } }
    }

    /// Whether what this address sends is our own.
    pub(super) fn is_ours(&self, remote: SocketAddr) -> bool {
        // Not by what an address of IPv6 has beside: the link that it is of.
        let is_ours = |ours: SocketAddr| (ours.ip(), ours.port()) == (remote.ip(), remote.port());
        matches!(self.peers, Peers::Group { ours: Some(ours), .. } if is_ours(ours))
    }

    /// The face of a sender.
    pub(super) fn face(&mut self, remote: SocketAddr, now: Instant) -> Option<FaceId> {
        match &mut self.peers {
            Peers::Group { face, .. } => Some(face.id()),
            Peers::Each(peers) => peers.get_mut(&remote).map(|peer| {
                peer.heard = now;
                peer.face.id()
            }),
        }
    }

    /// Takes a face for the datagrams of `remote`.
    pub(super) fn add(&mut self, remote: SocketAddr, face: Arc<Face>, now: Instant) {
        if let Peers::Each(peers) = &mut self.peers {
            let is_on_demand = face.persistency() == Persistency::OnDemand;
            peers.insert(remote, Peer { face, is_on_demand, heard: now });
        }
    }

    /// Forgets the face of a sender; whether it was made on demand.
    pub(super) fn remove(&mut self, remote: SocketAddr) -> bool {
        match &mut self.peers {
            Peers::Each(peers) => peers.remove(&remote).is_some_and(|peer| peer.is_on_demand),
            Peers::Group { .. } => false,
        }
    }

    /// The faces that were made on demand and were not heard of for `idle`.
    pub(super) fn idle(&self, now: Instant, idle: Duration) -> Vec<FaceId> {
        let Peers::Each(peers) = &self.peers else { return Vec::new() };
        peers
            .values()
            .filter(|peer| peer.face.persistency() == Persistency::OnDemand)
            .filter(|peer| now.saturating_duration_since(peer.heard) >= idle)
            .map(|peer| peer.face.id())
            .collect()
    }

    /// Sends a datagram.
    pub(super) fn send(&self, remote: SocketAddr, frame: &Frame) -> io::Result<()> {
        let slices: ArrayVec<IoSlice<'_>, SLICES_MAX> =
            frame.segments().map(IoSlice::new).take(SLICES_MAX).collect();
        let mut nothing = SendAncillaryBuffer::default();
        let socket = match &self.peers {
            Peers::Each(_) => &self.socket,
            Peers::Group { sender, .. } => sender,
        };
        sendmsg_addr(socket, &remote, &slices, &mut nothing, SendFlags::DONTWAIT)?;
        Ok(())
    }
}
