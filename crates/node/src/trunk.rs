//! Which ports share an interface, each with a VLAN of its own.

use kaido_engine::port::{Port, UnclaimedFrames, vlan_ports};

use crate::config::{Driver, PortConfig};
use crate::start_fault::{StartFault, fault};

/// The queues of ports: by port, then one for each worker.
pub(crate) type Queues = Vec<Vec<Box<dyn Port>>>;

/// The ports of each interface, by their numbers. The one with untagged frames comes first, where there is one.
pub(crate) fn trunks<'c>(ports: impl Iterator<Item = &'c PortConfig>) -> Vec<Vec<usize>> {
    let mut trunks: Vec<(&str, Vec<usize>)> = Vec::new();
    for (at, port) in ports.enumerate() {
        let name = port.interface_name();
        let own = || match *port.driver.get_ref() {
            Driver::AfXdp | Driver::AfPacket => true,
            Driver::Tap | Driver::Dpdk => false,
        };
        match trunks.iter_mut().find(|(other, _)| own() && *other == name) {
            Some((_, members)) if port.vlan.is_none() => members.insert(0, at),
            Some((_, members)) => members.push(at),
            None => trunks.push((name, vec![at])),
        }
    }
    trunks.into_iter().map(|(_, members)| members).collect()
}

/// The queues of an interface, one for each worker, as those of its ports: of the first of them `config`, of all the VLANs, `vids`.
pub(crate) fn share(
    config: &PortConfig,
    vids: &[Option<u16>],
    queues: Vec<Box<dyn Port>>,
) -> Result<Queues, StartFault> {
    if vids.is_empty() {
        return Ok(vec![queues]);
    }
    let unclaimed = match *config.driver.get_ref() {
        Driver::AfPacket => UnclaimedFrames::Kernels,
        Driver::AfXdp | Driver::Tap | Driver::Dpdk => UnclaimedFrames::Dropped,
    };
    let mut by_port: Queues = vids.iter().map(|_| Vec::new()).collect();
    for queue in queues {
        let shared = vlan_ports(queue, vids, unclaimed)
            .map_err(|error| fault(config, error, "raise the limit of open files"))?;
        for (ports, port) in by_port.iter_mut().zip(shared) {
            ports.push(Box::new(port));
        }
    }
    Ok(by_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Base, Spanned};

    #[test]
    fn ports_of_one_interface_go_together() {
        let port = |interface: &str, more: &str| {
            format!("[[port]]\nname = \"p\"\ninterface = \"{interface}\"\n{more}\n")
        };
        let (xdp, tap) = ("driver = \"af_xdp\"", "driver = \"tap\"");
        let text = [
            port("eth0", &format!("{xdp}\nvlan = 100")),
            port("eth1", xdp),
            port("eth0", xdp),
            port("tap0", tap),
            port("eth0", &format!("{xdp}\nvlan = 200")),
        ];
        let base: Base = toml::from_str(&text.concat()).unwrap();
        let found = trunks(base.ports.iter().map(Spanned::get_ref));
        assert_eq!(found, [vec![2, 0, 4], vec![1], vec![3]]);
    }
}
