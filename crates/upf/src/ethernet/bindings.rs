//! Which IP addresses a station has, as it says itself by ARP and neighbour discovery: what requests are answered from
//! (TS 23.501 5.6.10.2).
//!
//! The addresses of IP packets are not listened to: those that a router forwards are not its own. A station that is not
//! known any more has no IP addresses either; of two that claim one it is the later's, as in the caches of hosts.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use super::Station;
use kaido_n4::Mac;

/// IP addresses of one station.
const PER_STATION: usize = 16;
/// IP addresses of all stations.
const BINDINGS_MAX: usize = 262_144;

/// A place for IP addresses: a VLAN of a network instance. The address of the station in it means nothing.
type BindingScope = (Station, IpAddr);

#[derive(Debug, Default)]
struct State {
    fdb: HashMap<BindingScope, Mac>,
    addresses: HashMap<Station, Vec<IpAddr>>,
}

/// The IP addresses of a node's stations.
#[derive(Debug, Default)]
pub struct Bindings(Mutex<State>);

fn place(station: &Station, address: IpAddr) -> BindingScope {
    (Station { mac: Mac::default(), ..*station }, address)
}

impl Bindings {
    /// A station says that an address is its own. Beyond the bounds nobody listens.
    pub fn learn(&self, station: Station, address: IpAddr) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { fdb, addresses } = &mut *state;
        let key = place(&station, address);
        match fdb.get(&key).copied() {
            Some(mac) if mac == station.mac => return,
            Some(before) => remove(addresses, &Station { mac: before, ..station }, address),
            None if fdb.len() >= BINDINGS_MAX => return,
            None => {}
        }
        let own = addresses.entry(station).or_default();
        if own.len() == PER_STATION {
            // The oldest of its own gives way.
            fdb.remove(&place(&station, own.remove(0)));
        }
        own.push(address);
        fdb.insert(key, station.mac);
    }

    /// The station that has an address, in the VLAN and network instance of `asker`.
    pub fn find(&self, asker: &Station, address: IpAddr) -> Option<Station> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mac = *state.fdb.get(&place(asker, address))?;
        Some(Station { mac, ..*asker })
    }

    /// Forgets the addresses of a station.
    pub fn forget(&self, station: &Station) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for address in state.addresses.remove(station).unwrap_or_default() {
            state.fdb.remove(&place(station, address));
        }
    }

    /// Forgets the addresses of stations that are not there any more.
    pub fn retain(&self, is_there: impl Fn(&Station) -> bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { fdb, addresses } = &mut *state;
        addresses.retain(|station, own| {
            let stays = is_there(station);
            if !stays {
                for address in own {
                    fdb.remove(&place(station, *address));
                }
            }
            stays
        });
    }
}

/// Takes an address from a station.
fn remove(addresses: &mut HashMap<Station, Vec<IpAddr>>, station: &Station, address: IpAddr) {
    if let Some(own) = addresses.get_mut(station) {
        own.retain(|other| *other != address);
        if own.is_empty() {
            addresses.remove(station);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::frame::Vlan;
    use crate::ids::InstanceId;

    fn station(instance: u16, last: u8) -> Station {
        Station { instance: InstanceId(instance), vlan: Vlan::default(), mac: Mac([2, 0, 0, 0, 0, last]) }
    }

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn an_address_is_whose_who_said_so_last() {
        let bindings = Bindings::default();
        bindings.learn(station(1, 1), ip(1));
        bindings.learn(station(1, 1), ip(2));
        bindings.learn(station(2, 3), ip(1));
        assert_eq!(bindings.find(&station(1, 9), ip(1)), Some(station(1, 1)));
        assert_eq!(bindings.find(&station(2, 9), ip(1)), Some(station(2, 3)), "of another instance");
        bindings.learn(station(1, 2), ip(1));
        assert_eq!(bindings.find(&station(1, 9), ip(1)), Some(station(1, 2)));
        bindings.forget(&station(1, 1));
        assert_eq!(bindings.find(&station(1, 9), ip(2)), None);
        assert_eq!(bindings.find(&station(1, 9), ip(1)), Some(station(1, 2)), "not its any more");
        bindings.retain(|station| station.instance == InstanceId(2));
        assert_eq!(bindings.find(&station(1, 9), ip(1)), None);
        assert_eq!(bindings.find(&station(2, 9), ip(1)), Some(station(2, 3)));
    }

    #[test]
    fn a_station_that_claims_ever_more_keeps_its_last() {
        let bindings = Bindings::default();
        bindings.learn(station(1, 7), ip(200));
        (0..100).for_each(|last| bindings.learn(station(1, 1), ip(last)));
        let kept = (0..100).filter(|&last| bindings.find(&station(1, 9), ip(last)).is_some()).count();
        assert_eq!(kept, PER_STATION);
        assert!(bindings.find(&station(1, 9), ip(99)).is_some());
        assert_eq!(bindings.find(&station(1, 9), ip(200)), Some(station(1, 7)), "nobody else's");
    }
}
