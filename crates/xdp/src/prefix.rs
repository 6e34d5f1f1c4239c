//! Map keys of addresses and prefixes: everything as IPv6, IPv4 in its v4-mapped form (RFC 4291, 2.5.5.2).

use std::net::IpAddr;

use crate::Error;
use crate::port::Address;

/// `struct steer_address` as bytes.
pub fn address_key(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// `struct steer_prefix` as bytes: length in bits (host order), then the address with its host bits cleared, so that
/// one prefix has one key.
///
/// # Errors
/// [`Error::PrefixLength`].
pub fn prefix_key(address: IpAddr, length: u8) -> Result<[u8; 20], Error> {
    let (offset, limit) = if address.is_ipv4() { (96, 32) } else { (0, 128) };
    if length > limit {
        return Err(Error::PrefixLength { address, length });
    }
    let bits = offset + u32::from(length);
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    let network = u128::from_be_bytes(address_key(address)) & mask;
    let mut key = [0; 20];
    key[..4].copy_from_slice(&bits.to_ne_bytes());
    key[4..].copy_from_slice(&network.to_be_bytes());
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_lies_under_its_mapped_prefix() {
        let key = prefix_key("10.45.7.9".parse().unwrap(), 16).unwrap();
        assert_eq!(key[..4], 112u32.to_ne_bytes());
        assert_eq!(key[4..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 45, 0, 0]);
        let all = prefix_key("1.2.3.4".parse().unwrap(), 0).unwrap();
        assert_eq!(all[..4], 96u32.to_ne_bytes());
        assert_eq!(all[14..], [0xff, 0xff, 0, 0, 0, 0]);
    }

    #[test]
    fn v6_keeps_its_bits() {
        let key = prefix_key("2001:db8:ffff::1".parse().unwrap(), 36).unwrap();
        assert_eq!(key[..4], 36u32.to_ne_bytes());
        assert_eq!(key[4..12], [0x20, 1, 0x0d, 0xb8, 0xf0, 0, 0, 0]);
        assert_eq!(prefix_key("::1".parse().unwrap(), 0).unwrap(), [0; 20]);
        assert_eq!(prefix_key("::1".parse().unwrap(), 128).unwrap()[19], 1);
    }

    #[test]
    fn too_long_is_refused() {
        assert!(matches!(
            prefix_key("1.2.3.4".parse().unwrap(), 33),
            Err(Error::PrefixLength { length: 33, .. })
        ));
        assert!(prefix_key("::".parse().unwrap(), 129).is_err());
    }
}
