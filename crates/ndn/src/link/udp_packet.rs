//! A datagram of UDP on its way from a frame to a face, whole or in pieces.

use std::net::SocketAddr;

use kaido_engine::{Frame, PortId};

/// Both ends of a face and its datagrams: ours and theirs.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// A datagram within a frame that is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) ends: Ends,
    /// Octets from the beginning of the IP packet to the payload.
    pub(super) headers: usize,
    /// Octets of the payload.
    pub(super) len: usize,
    /// The checksum in its header; zero is none.
    pub(super) checksum: u16,
}

/// A piece of a datagram that waits for the others: its IP header is at the front.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) frame: Frame,
    pub(super) port: PortId,
    /// Octets before the piece's data.
    pub(super) header_len: usize,
}
