//! The interfaces of the multicast groups, looked up.

use std::net::{IpAddr, Ipv4Addr};

use kaido_engine::netlink::{self, Interface};
use miette::miette;

use crate::host::MulticastOn;

/// What is joined: on an interface that is named by an address the group of IPv4, on others those of the families that they
/// have addresses of.
///
/// # Errors
/// When there is no such interface, or it has no address.
pub(super) fn groups(interfaces: &[String]) -> miette::Result<Vec<MulticastOn>> {
    let mut all = Vec::new();
    for given in interfaces {
        if let Ok(address) = given.parse::<Ipv4Addr>() {
            all.push(MulticastOn::V4(address));
            continue;
        }
        let found = netlink::interface(given).map_err(|error| miette!("ndn.listen.multicast: {error}"))?;
        let before = all.len();
        all.extend(of(&found));
        if all.len() == before {
            return Err(miette!(
                help = "`ip address` shows those of all interfaces",
                "ndn.listen.multicast: {given} has no address"
            ));
        }
    }
    Ok(all)
}

/// The groups on an interface.
fn of(interface: &Interface) -> impl Iterator<Item = MulticastOn> + use<> {
    let v4 = interface.addresses.iter().find_map(|own| match own.address {
        IpAddr::V4(address) => Some(MulticastOn::V4(address)),
        IpAddr::V6(_) => None,
    });
    // Others on the link know us by the address that is of the link.
    let mut v6: Vec<_> = interface.addresses.iter().filter(|own| own.address.is_ipv6()).collect();
    v6.sort_by_key(|own| !own.link_local);
    let v6 = v6.first().and_then(|own| match own.address {
        IpAddr::V6(own) => {
            Some(MulticastOn::V6 { index: interface.ifindex, name: interface.name.clone(), own })
        }
        IpAddr::V4(_) => None,
    });
    v4.into_iter().chain(v6)
}

#[cfg(test)]
mod tests {
    use kaido_engine::netlink::InterfaceAddress;

    use super::*;

    #[test]
    fn an_interface_has_the_groups_of_its_addresses() {
        let address = |text: &str, link_local| InterfaceAddress {
            ifindex: 7,
            address: text.parse().unwrap(),
            prefix_len: 64,
            link_local,
        };
        let mut interface = Interface {
            ifindex: 7,
            name: "eth0".into(),
            mac: [2; 6],
            mtu: 1500,
            up: true,
            vrf_table: None,
            addresses: vec![
                address("2001:db8::1", false),
                address("192.0.2.1", false),
                address("fe80::1", true),
                address("192.0.2.2", false),
            ],
        };
        let v4 = MulticastOn::V4(Ipv4Addr::new(192, 0, 2, 1));
        let v6 = MulticastOn::V6 { index: 7, name: "eth0".into(), own: "fe80::1".parse().unwrap() };
        assert_eq!(of(&interface).collect::<Vec<_>>(), [v4, v6]);
        interface.addresses.truncate(1);
        let own = "2001:db8::1".parse().unwrap();
        assert_eq!(
            of(&interface).collect::<Vec<_>>(),
            [MulticastOn::V6 { index: 7, name: "eth0".into(), own }]
        );
        assert_eq!(groups(&["192.0.2.9".into()]).unwrap(), [MulticastOn::V4(Ipv4Addr::new(192, 0, 2, 9))]);
        let refused = groups(&["no such interface".into()]).unwrap_err().to_string();
        assert!(refused.starts_with("ndn.listen.multicast: "), "{refused}");
    }
}
