//! What the offload knows of one interface.

use std::collections::BTreeMap;

use kaido_xdp::{Error, LoadedProgram};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::abi::{NO_INSTANCE, VLAN_GTPU, VLAN_LAN, VLANS_MAX};

/// A VLAN of an interface, by the identifiers of its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vlan {
    /// The outer of two tags (802.1ad); none where there is one.
    pub outer: Option<u16>,
    /// The inner, or only, tag (802.1Q).
    pub inner: u16,
}

/// What comes in by a VLAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlanRole {
    /// The network instance of packets to UEs; none leaves them to the engine.
    pub instance: Option<u16>,
    /// Tunnels to the GTP-U addresses.
    pub gtpu: bool,
    /// It is a tenant's LAN, in which the engine has addresses and answers neighbour discovery.
    pub lan: bool,
    /// Where its packets are counted, below the number of slots that the program was loaded with. Slot 0 has untagged packets,
    /// and those that no VLAN has.
    pub slot: u16,
}

impl VlanRole {
    /// `struct offload_vlan_role`.
    fn to_bytes(self) -> [u8; 8] {
        let flags = if self.gtpu { VLAN_GTPU } else { 0 } | if self.lan { VLAN_LAN } else { 0 };
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.instance.map_or(NO_INSTANCE, u32::from).to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[6..].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }
}

impl Vlan {
    /// `struct offload_vlan`.
    fn to_bytes(self) -> [u8; 4] {
        let [a, b] = self.outer.unwrap_or(0).to_ne_bytes();
        let [c, d] = self.inner.to_ne_bytes();
        [a, b, c, d]
    }

    /// Puts it into a program's table, or its role into that of the same VLAN.
    pub(crate) fn put(self, role: &VlanRole, table: &MapHandle) -> Result<(), Error> {
        put(table, &self.to_bytes(), *role)
    }
}

fn put(table: &MapHandle, key: &[u8; 4], role: VlanRole) -> Result<(), Error> {
    table.update(key, &role.to_bytes(), MapFlags::ANY).map_err(Error::libbpf("adding an entry to a BPF map"))
}

/// What a program with the offload has besides.
#[derive(Debug)]
pub(crate) struct OffloadPort {
    pub(crate) instance: Option<u16>,
    vlans: MapHandle,
    vlans_present: BTreeMap<[u8; 4], VlanRole>,
    pub(crate) counters: MapHandle,
}

impl OffloadPort {
    pub(crate) fn of(mounted: &LoadedProgram) -> Result<Self, Error> {
        Ok(Self {
            instance: None,
            vlans: mounted.map("offload_vlans")?,
            vlans_present: BTreeMap::new(),
            counters: mounted.map("offload_counters")?,
        })
    }

    pub(crate) fn set_vlans(&mut self, vlans: &BTreeMap<Vlan, VlanRole>) -> Result<(), Error> {
        if vlans.len() > VLANS_MAX {
            return Err(Error::TooMany { what: "VLANs", count: vlans.len(), limit: VLANS_MAX });
        }
        let wanted: BTreeMap<_, _> = vlans.iter().map(|(vlan, &role)| (vlan.to_bytes(), role)).collect();
        for (key, &role) in &wanted {
            if self.vlans_present.get(key) != Some(&role) {
                put(&self.vlans, key, role)?;
                self.vlans_present.insert(*key, role);
            }
        }
        let gone: Vec<_> =
            self.vlans_present.keys().filter(|&key| !wanted.contains_key(key)).copied().collect();
        for key in gone {
            self.vlans.delete(&key).map_err(Error::libbpf("deleting an entry of a BPF map"))?;
            self.vlans_present.remove(&key);
        }
        Ok(())
    }
}
