//! Which lengths the framed routes of the node have. So a packet to no UE's own address is looked up once for each of
//! them and not for all there could be.
//!
//! Framed routes lie in the node's one table, under their network and length. Addresses of UEs are found first, with one
//! lookup; only what is nobody's is looked up here, the longest networks first.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use kaido_table::Stages;

use crate::ids::InstanceId;
use crate::key::{KeyParts, SessionKey};
use crate::record::Record;
use kaido_n4::FramedRoute;

/// The lengths of a family, up to 63 bits: longer ones are keys of UEs.
#[derive(Debug)]
struct Lengths {
    /// Bit n: there is a route of n bits.
    present: AtomicU64,
    counts: Mutex<[u32; 64]>,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { present: AtomicU64::new(0), counts: Mutex::new([0; 64]) }
    }
}

impl Lengths {
    fn change(&self, len: u8, by: i32) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = counts.get_mut(usize::from(len)) else { return };
        *count = count.saturating_add_signed(by);
        let bit = 1 << len;
        // Release and Acquire: who sees the length finds the route, which is in the table by then. Under the lock, so
        // that the bit follows the count.
        if *count > 0 {
            self.present.fetch_or(bit, Ordering::Release);
        } else {
            self.present.fetch_and(!bit, Ordering::Release);
        }
    }
}

/// The lengths of all framed routes.
#[derive(Debug, Default)]
pub(crate) struct FramedLengths {
    v4: Lengths,
    v6: Lengths,
}

impl FramedLengths {
    /// A key is in the table now.
    pub(crate) fn added(&self, key: &SessionKey) {
        self.change(key, 1);
    }

    /// A key is not in the table any more.
    pub(crate) fn removed(&self, key: &SessionKey) {
        self.change(key, -1);
    }

    fn change(&self, key: &SessionKey, by: i32) {
        if let Some((is_v4, len)) = key.framed_len() {
            (if is_v4 { &self.v4 } else { &self.v6 }).change(len, by);
        }
    }

    /// Whether there are any.
    #[inline(always)]
    pub(crate) fn are_there(&self) -> bool {
        self.v4.present.load(Ordering::Relaxed) | self.v6.present.load(Ordering::Relaxed) != 0
    }

    /// As [`FramedLengths::find`], of the address that is a UE's key.
    pub(crate) fn behind<'g>(
        &self,
        stages: Stages<'g, SessionKey, Record>,
        key: &SessionKey,
    ) -> Option<(SessionKey, &'g Record)> {
        match key.parts() {
            KeyParts::Ipv4(instance, addr) => self.find(stages, instance, addr.into()),
            KeyParts::Ipv6(instance, addr) => self.find(stages, instance, addr.into()),
            _ => None,
        }
    }

    /// The record of the longest framed route to an address, and its key.
    #[cold]
    pub(crate) fn find<'g>(
        &self,
        stages: Stages<'g, SessionKey, Record>,
        instance: InstanceId,
        addr: IpAddr,
    ) -> Option<(SessionKey, &'g Record)> {
        let lengths = if addr.is_ipv4() { &self.v4 } else { &self.v6 };
        let mut present = lengths.present.load(Ordering::Acquire);
        while present != 0 {
            #[allow(clippy::cast_possible_truncation)] // Below 64.
            let len = 63 - present.leading_zeros() as u8;
            let key = SessionKey::framed(instance, &FramedRoute::of(addr, len));
            if let Some(record) = stages.get(&key) {
                return Some((key, record));
            }
            present &= !(1 << len);
        }
        None
    }
}
