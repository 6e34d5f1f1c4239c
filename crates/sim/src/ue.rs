//! A UE as the data plane sees it: addresses, tunnel, and counters that threads share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use kaido_n4::{Ipv6Prefix, Qfi};

/// The host part of a UE's address in its /64.
const INTERFACE_ID: u128 = 1;

/// Packets and bytes of IP. Each value has one writer; readers add up.
#[derive(Debug, Default)]
pub(super) struct Count {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    /// Counts a packet.
    #[inline]
    pub(super) fn add(&self, bytes: usize) {
        // Relaxed: counts are read after the writers were joined, or for show.
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Packets and bytes so far.
    pub(super) fn read(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// What a UE sent and received.
#[derive(Debug, Default)]
pub(super) struct UeCounters {
    /// From its TUN device into the tunnel.
    pub(super) tun_sent: Count,
    /// From the tunnel to its TUN device.
    pub(super) tun_received: Count,
    /// Generated, into the tunnel.
    pub(super) generated_sent: Count,
    /// Replies to generated datagrams, copies included.
    pub(super) generated_received: Count,
    /// Replies seen before.
    pub(super) duplicates: AtomicU64,
    /// Other packets from the tunnel, for which there is no TUN device.
    pub(super) unclaimed: Count,
}

/// A UE.
#[derive(Debug)]
pub(super) struct Ue {
    /// Its IPv4 address.
    pub(super) ipv4: Option<Ipv4Addr>,
    /// Its IPv6 prefix.
    pub(super) ipv6: Option<Ipv6Prefix>,
    /// The UPF's end of its tunnel: GTP-U address.
    pub(super) upf: Option<SocketAddr>,
    /// The UPF's end of its tunnel: TEID.
    pub(super) uplink_teid: u32,
    /// The QoS flow of its uplink packets, if it is not the gNB's usual one.
    pub(super) qfi: Option<Qfi>,
    /// What it sent and received.
    pub(super) counters: UeCounters,
}

impl Ue {
    /// A UE that is not attached.
    pub(super) fn new(ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Prefix>) -> Self {
        Self { ipv4, ipv6, upf: None, uplink_teid: 0, qfi: None, counters: UeCounters::default() }
    }

    /// Its address within its prefix.
    pub(super) fn ipv6_address(&self) -> Option<Ipv6Addr> {
        self.ipv6.map(|prefix| Ipv6Addr::from_bits(prefix.addr.to_bits() | INTERFACE_ID))
    }

    /// Its address of the family of `like`.
    pub(super) fn address(&self, like: IpAddr) -> Option<IpAddr> {
        match like {
            IpAddr::V4(_) => self.ipv4.map(IpAddr::V4),
            IpAddr::V6(_) => self.ipv6_address().map(IpAddr::V6),
        }
    }

    /// Whether a packet to `address` is its own.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(addr) => self.ipv4 == Some(addr),
            IpAddr::V6(addr) => self.ipv6.is_some_and(|prefix| prefix.contains(addr)),
        }
    }
}
