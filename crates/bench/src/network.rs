//! The network of a run: addresses of both ends of each link, UEs and their tunnels.

use std::net::Ipv4Addr;

/// Our GTP-U address, and the gNB's.
pub(crate) const N3: Ipv4Addr = Ipv4Addr::new(192, 168, 3, 1);
pub(crate) const GNB: Ipv4Addr = Ipv4Addr::new(192, 168, 3, 2);
/// Our address towards the data network, and the next router's.
pub(crate) const N6: Ipv4Addr = Ipv4Addr::new(192, 168, 6, 1);
pub(crate) const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 6, 2);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
pub(crate) const N3_MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];
pub(crate) const GNB_MAC: [u8; 6] = [2, 0, 0, 0, 3, 2];
pub(crate) const N6_MAC: [u8; 6] = [2, 0, 0, 0, 6, 1];
pub(crate) const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 6, 2];
/// The UE of session 0; the others follow.
pub(crate) const FIRST_UE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The QoS flow that every session marks.
pub(crate) const QFI: u8 = 9;
/// Largest IP packet that either port takes, in bytes.
pub(crate) const MTU: u16 = 9000;

/// Octets of a header.
pub(crate) const ETHERNET: usize = 14;
pub(crate) const UDP: usize = 8;
/// A GTP-U header with a PDU session container.
pub(crate) const GTPU: usize = 16;
pub(crate) const TTL: u8 = 64;

pub(crate) fn ue(session: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_UE.to_bits().wrapping_add(session))
}

/// TEID of a session, at both ends of its tunnel. Zero is reserved.
pub(crate) fn teid(session: u32) -> u32 {
    session.wrapping_add(1)
}

/// A length field. Frames are shorter than [`FRAME_BYTES_MAX`].
#[allow(clippy::cast_possible_truncation)] // As above.
pub(crate) fn field(len: usize) -> [u8; 2] {
    (len as u16).to_be_bytes()
}
