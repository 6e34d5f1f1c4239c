//! Which networks have UEs of this node: asked of each packet from a UE where a packet to another UE is not simply routed.
//!
//! A bit stands for a network of [`HOST_BITS`] bits, several networks for the same bit. So a packet whose destination has no
//! bit is for no UE, and stays on the fast path; where there is a bit, the session table is asked. The kernel's datapath
//! computes the same bit (`offload_may_be_ue`).

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use kaido_table::{Cells, RegionError};

use crate::key::{KeyParts, SessionKey, upper_half};
use crate::usage::UnfitMemory;

/// Bits of an IPv4 address, or of the upper half of an IPv6 address, that are not the network's: a /24, or a /56.
pub const HOST_BITS: u32 = 8;
/// Multiplier of the hash.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bits at least and at most, as powers of two: 8 kB to 128 kB.
const BITS_MIN: u32 = 16;
const BITS_MAX: u32 = 20;
/// Sessions for a bit. UEs of one /24 share one, so nearly all are clear.
const SESSIONS_A_BIT: u32 = 4;

/// The networks that have UEs. One that had some keeps its bit.
#[derive(Debug)]
pub struct UeNetworks {
    words: Cells<AtomicU64>,
    /// What is left of a hash when this many bits are shifted out is the number of a bit.
    shift: u32,
}

impl UeNetworks {
    /// For so many sessions, none yet.
    ///
    /// # Errors
    /// [`RegionError`] when there is no memory.
    pub(crate) fn new(sessions: u32) -> Result<Self, RegionError> {
        Ok(Self { words: Cells::sparse(Self::words(sessions))?, shift: shift_of(Self::words(sessions)) })
    }

    /// In memory that the kernel's datapath reads too: [`UeNetworks::words`] words.
    ///
    /// # Errors
    /// [`UnfitMemory`] where the number of words is no power of two.
    pub fn over(words: &'static [AtomicU64]) -> Result<Self, UnfitMemory> {
        let words = Cells::over(words).filter(|words| words.len().is_power_of_two()).ok_or(UnfitMemory)?;
        Ok(Self { shift: shift_of(words.len()), words })
    }

    /// Words of 64 bits for so many sessions.
    pub fn words(sessions: u32) -> u32 {
        let bits = (sessions / SESSIONS_A_BIT).checked_next_power_of_two().map_or(BITS_MAX, u32::ilog2);
        1 << (bits.clamp(BITS_MIN, BITS_MAX) - u64::BITS.ilog2())
    }

    /// Notes a key of the session table, if packets to a UE are found by it.
    pub fn add(&self, key: &SessionKey) {
        match key.parts() {
            KeyParts::Ipv4(_, addr) => self.set(addr.to_bits().into()),
            KeyParts::Ipv6(_, addr) => self.set(upper_half(addr)),
            KeyParts::Framed(_, route) => {
                let (first, len) = match route.network() {
                    IpAddr::V4(addr) => (addr.to_bits().into(), 32),
                    IpAddr::V6(addr) => (upper_half(addr), 64),
                };
                self.set_range(first, len - u32::from(route.len()).min(len));
            }
            KeyParts::Tunnel(..) | KeyParts::Member(_) | KeyParts::Ethernet(..) => {}
        }
    }

    /// All networks of a greater one, whose addresses have so many bits of their own.
    fn set_range(&self, first: u64, host_bits: u32) {
        let networks = 1u64.checked_shl(host_bits.saturating_sub(HOST_BITS)).unwrap_or(u64::MAX);
        if networks >= u64::from(self.words.len()) * u64::from(u64::BITS) {
            (0..self.words.len()).for_each(|word| self.words.get(word).store(u64::MAX, Ordering::Relaxed));
        } else {
            (0..networks).for_each(|network| self.set(first + (network << HOST_BITS)));
        }
    }

    fn set(&self, to: u64) {
        let (word, bit) = self.place(to);
        let word = self.words.get(word);
        // Written once for many UEs: workers read the line.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether an IPv4 address may be a UE's, or of a network behind one.
    #[inline(always)]
    pub(crate) fn may_have_v4(&self, addr: u32) -> bool {
        self.may_have(addr.into())
    }

    /// Whether an IPv6 address may be a UE's, or of a network behind one.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // Its upper half.
    pub(crate) fn may_have_v6(&self, addr: u128) -> bool {
        self.may_have((addr >> 64) as u64)
    }

    #[inline(always)]
    fn may_have(&self, to: u64) -> bool {
        let (word, bit) = self.place(to);
        self.words.get(word).load(Ordering::Relaxed) & bit != 0
    }

    /// The word of an address, and its bit there.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // As many bits as there are.
    fn place(&self, to: u64) -> (u32, u64) {
        let number = (to >> HOST_BITS).wrapping_mul(FACTOR) >> self.shift;
        ((number / u64::from(u64::BITS)) as u32, 1 << (number % u64::from(u64::BITS)))
    }
}

/// What is to be shifted out of a hash.
fn shift_of(words: u32) -> u32 {
    u64::BITS - u64::BITS.ilog2() - words.ilog2()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use kaido_n4::{FramedRoute, Teid};
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{EndpointId, InstanceId};

    const INSTANCE: InstanceId = InstanceId(0);

    fn of(keys: &[SessionKey]) -> UeNetworks {
        let networks = UeNetworks::new(1).unwrap();
        keys.iter().for_each(|key| networks.add(key));
        networks
    }

    fn set_bits(networks: &UeNetworks) -> u32 {
        (0..networks.words.len())
            .map(|word| networks.words.get(word).load(Ordering::Relaxed).count_ones())
            .sum()
    }

    #[test]
    fn a_bit_stands_for_the_ues_of_a_network() {
        let ue = |last| SessionKey::ipv4(INSTANCE, Ipv4Addr::new(10, 60, 0, last));
        assert_eq!(set_bits(&of(&[ue(1), ue(7), ue(255)])), 1);
        let ue = |last| SessionKey::ipv6(INSTANCE, Ipv6Addr::new(0x2001, 0xdb8, 0, last, 0, 0, 0, 1));
        assert_eq!(set_bits(&of(&[ue(1), ue(0xff)])), 1);
        assert_eq!(set_bits(&of(&[ue(1), ue(0x100)])), 2);
    }

    #[test]
    fn tunnels_are_no_addresses() {
        assert_eq!(set_bits(&of(&[SessionKey::tunnel(EndpointId(0), Teid(0x0a3c_0001))])), 0);
    }

    #[test]
    fn a_route_that_is_wider_than_all_bits_sets_all() {
        let all = of(&[SessionKey::framed(INSTANCE, &FramedRoute::of(Ipv4Addr::UNSPECIFIED.into(), 0))]);
        assert_eq!(set_bits(&all), all.words.len() * 64);
    }

    #[test]
    fn there_is_room_for_sessions_within_bounds() {
        assert_eq!(
            [0, 1, 65_536, 1_000_000, 16_640_000, u32::MAX].map(UeNetworks::words),
            [1024, 1024, 1024, 4096, 16_384, 16_384]
        );
    }

    #[test]
    fn memory_that_is_no_power_of_two_does_not_fit() {
        let words = |count: usize| -> &'static [AtomicU64] {
            Box::leak((0..count).map(|_| AtomicU64::new(0)).collect())
        };
        assert!(UeNetworks::over(words(48)).is_err());
        let shared = words(1024);
        UeNetworks::over(shared).unwrap().add(&SessionKey::ipv4(INSTANCE, Ipv4Addr::new(10, 60, 0, 1)));
        assert!(shared.iter().any(|word| word.load(Ordering::Relaxed) != 0));
    }

    proptest! {
        #[test]
        fn every_address_of_a_ue_and_behind_one_may_be_one(
            addr: u32, upper: u64, within: u64, len in 16u8..32, len_v6 in 48u8..64,
        ) {
            let v6 = Ipv6Addr::from_bits(u128::from(upper) << 64);
            let networks = of(&[
                SessionKey::ipv4(INSTANCE, Ipv4Addr::from_bits(addr)),
                SessionKey::ipv6(INSTANCE, v6),
            ]);
            prop_assert!(networks.may_have_v4(addr));
            prop_assert!(networks.may_have_v6(u128::from(upper) << 64 | u128::from(within)));
            let route = |addr: IpAddr, len| of(&[SessionKey::framed(INSTANCE, &FramedRoute::of(addr, len))]);
            #[allow(clippy::cast_possible_truncation)] // Its low half.
            let host = within as u32 & (u32::MAX >> len);
            prop_assert!(route(Ipv4Addr::from_bits(addr).into(), len).may_have_v4(addr & !(u32::MAX >> len) | host));
            let host = within & (u64::MAX >> len_v6);
            let to = upper & !(u64::MAX >> len_v6) | host;
            prop_assert!(route(v6.into(), len_v6).may_have_v6(u128::from(to) << 64));
        }
    }
}
