//! Networks by address and prefix length.

use std::net::IpAddr;

/// Whether an address lies in a network.
pub(crate) fn is_within(addr: IpAddr, network: IpAddr, len: u8) -> bool {
    match (addr, network) {
        (IpAddr::V4(addr), IpAddr::V4(network)) => {
            (addr.to_bits() ^ network.to_bits()).checked_shr(32 - u32::from(len.min(32))).unwrap_or(0) == 0
        }
        (IpAddr::V6(addr), IpAddr::V6(network)) => {
            (addr.to_bits() ^ network.to_bits()).checked_shr(128 - u32::from(len.min(128))).unwrap_or(0) == 0
        }
        _ => false,
    }
}
