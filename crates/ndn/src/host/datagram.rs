//! Faces over UDP: one socket for many senders, or one for a group.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, Frame};
use kaido_ndn_tables::FaceId;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sendmsg_addr};

use crate::face::{Face, Persistency};

/// Segments of a datagram that is sent: of the longest packet, each a frame.
const SLICES_MAX: usize = 8;

/// A sender of datagrams.
#[derive(Debug)]
struct Peer {
    face: Arc<Face>,
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
            peers.insert(remote, Peer { face, heard: now });
        }
    }

    /// Forgets the face of a sender.
    pub(super) fn remove(&mut self, remote: SocketAddr) {
        if let Peers::Each(peers) = &mut self.peers {
            peers.remove(&remote);
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

    /// Sends datagrams, many by one call, and tells of each what has become of it, in their order.
    pub(super) fn send(&self, mut datagrams: &[(SocketAddr, Frame)], mut told: impl FnMut(io::Result<()>)) {
        while !datagrams.is_empty() {
            match self.send_some(datagrams) {
                Ok(sent) => {
                    (0..sent).for_each(|_| told(Ok(())));
                    datagrams = &datagrams[sent..];
                }
                Err(error) => {
                    // Of the first one; those behind it are tried for themselves, unless there is no room for any.
                    let is_full = error.kind() == io::ErrorKind::WouldBlock;
                    told(Err(error));
                    datagrams = &datagrams[1..];
                    if is_full {
                        datagrams.iter().for_each(|_| told(Err(io::ErrorKind::WouldBlock.into())));
                        return;
                    }
                }
            }
        }
    }

    /// Sends from the front as many datagrams as one call takes: one at least.
    fn send_some(&self, datagrams: &[(SocketAddr, Frame)]) -> io::Result<usize> {
        let socket = match &self.peers {
            Peers::Each(_) => &self.socket,
            Peers::Group { sender, .. } => sender,
        };
        if let [(remote, frame)] = datagrams {
            let slices = slices(frame);
            let mut nothing = SendAncillaryBuffer::default();
            sendmsg_addr(socket, remote, &slices, &mut nothing, SendFlags::DONTWAIT)?;
            return Ok(1);
        }
        let datagrams = &datagrams[..datagrams.len().min(BATCH_MAX)];
        let addresses: ArrayVec<_, BATCH_MAX> = datagrams.iter().map(|(remote, _)| remote.as_any()).collect();
        let slices: ArrayVec<_, BATCH_MAX> = datagrams.iter().map(|(_, frame)| slices(frame)).collect();
        let mut nothings: ArrayVec<_, BATCH_MAX> =
            datagrams.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let parts = addresses.iter().zip(&slices).zip(&mut nothings);
        let mut messages: ArrayVec<_, BATCH_MAX> = parts
            .map(|((address, slices), nothing)| MMsgHdr::new_with_addr(address, slices, nothing))
            .collect();
        match sendmmsg(socket, &mut messages, SendFlags::DONTWAIT)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            sent => Ok(sent),
        }
    }
}

/// The segments of a packet, as a call sends them.
fn slices(frame: &Frame) -> ArrayVec<IoSlice<'_>, SLICES_MAX> {
    frame.segments().map(IoSlice::new).take(SLICES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use kaido_engine::FramePool;

    use super::*;

    #[test]
    fn one_that_cannot_be_sent_keeps_no_other() {
        let pool = FramePool::leak(128).unwrap();
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sender = Datagrams::unicast(UdpSocket::bind("127.0.0.1:0").unwrap());
        let remote = receiver.local_addr().unwrap();
        // To the other family nothing goes from this socket.
        let wrong: SocketAddr = "[::1]:9".parse().unwrap();
        let is_wrong = |number: u8| [0, 5, 6, 39].contains(&number);
        let datagrams: Vec<(SocketAddr, Frame)> = (0..40u8)
            .map(|number| {
                let frame = Frame::from_slice(&vec![number; 500], || pool.allocate()).unwrap();
                (if is_wrong(number) { wrong } else { remote }, frame)
            })
            .collect();
        let mut told = Vec::new();
        sender.send(&datagrams, |sent| told.push(sent.is_ok()));
        assert_eq!(told, (0..40).map(|number| !is_wrong(number)).collect::<Vec<_>>());
        let mut room = [0; 9000];
        for number in (0..40u8).filter(|number| !is_wrong(*number)) {
            assert_eq!((receiver.recv(&mut room).unwrap(), room[0], room[499]), (500, number, number));
        }
        told.clear();
        sender.send(&datagrams[..1], |sent| told.push(sent.is_ok()));
        assert_eq!(told, [false]);
    }
}
