//! What the fast path knows of one interface.

use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::abi::VLANS_MAX;
use crate::Error;
use crate::mounted::Mounted;

/// A VLAN of an interface, by the identifiers of its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vlan {
    /// The outer of two tags (802.1ad); none where there is one.
    pub outer: Option<u16>,
    /// The inner, or only, tag (802.1Q).
    pub inner: u16,
}

/// What a program with the fast path has besides.
#[derive(Debug)]
pub(crate) struct FastPort {
    pub(crate) instance: Option<u16>,
    vlans: MapHandle,
    vlans_present: BTreeMap<[u8; 4], u16>,
    pub(crate) counters: MapHandle,
}

impl FastPort {
    pub(crate) fn of(mounted: &Mounted) -> Result<Self, Error> {
        Ok(Self {
            instance: None,
            vlans: mounted.map("fast_vlans")?,
            vlans_present: BTreeMap::new(),
            counters: mounted.map("fast_counters")?,
        })
    }

    pub(crate) fn set_vlans(&mut self, vlans: &BTreeMap<Vlan, u16>) -> Result<(), Error> {
        if vlans.len() > VLANS_MAX {
            return Err(Error::TooMany { what: "VLANs", count: vlans.len(), limit: VLANS_MAX });
        }
        let key = |vlan: &Vlan| {
            let [a, b] = vlan.outer.unwrap_or(0).to_ne_bytes();
            let [c, d] = vlan.inner.to_ne_bytes();
            [a, b, c, d]
        };
        let wanted: BTreeMap<_, _> = vlans.iter().map(|(vlan, &instance)| (key(vlan), instance)).collect();
        for (key, &instance) in &wanted {
            if self.vlans_present.get(key) != Some(&instance) {
                self.vlans
                    .update(key, &u32::from(instance).to_ne_bytes(), MapFlags::ANY)
                    .map_err(Error::libbpf("adding an entry to a BPF map"))?;
                self.vlans_present.insert(*key, instance);
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
