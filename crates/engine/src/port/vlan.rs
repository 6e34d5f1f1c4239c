//! Ports behind VLANs (IEEE 802.1Q): a worker's queue of one interface as several ports of that worker.
//!
//! ```text
//!             ┌─ VLAN 100, tag off ─▶ waiting ─▶ port
//!   device ──▶┼─ VLAN 200, tag off ─▶ waiting ─▶ port
//!             └─ all else, as it is ▶ waiting ─▶ the untagged port, where there is one
//! ```
//!
//! The first port receives from the device and sorts; the others take what was sorted for them. All send by the device. Frames
//! stay in the device while one of the queues has no room for a batch, so none is lost here. All ports belong to one worker:
//! the lock is taken once a batch, and nobody else wants it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_wire::EtherType;
use kaido_wire::vlan::TAG_LEN;
use rustix::event::{EventfdFlags, eventfd};

use super::Port;
use crate::batch::{BATCH_MAX, Batch};
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::pool::PoolCache;

/// Frames that wait for a port, at most: as many as it takes at a time, and as many as may come meanwhile.
const WAITING_MAX: usize = 2 * BATCH_MAX;
/// Octets before the first tag: both Ethernet addresses.
const ADDRESSES: usize = TAG_AT as usize;
/// Where the first tag is.
const TAG_AT: u16 = 12;
/// VLAN identifiers, the reserved ones too.
const VIDS: usize = 1 << 12;
/// The place of a VLAN that no port has.
const NOBODY: u8 = u8::MAX;

/// What becomes of frames that no port has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnclaimedFrames {
    /// They are dropped and counted.
    Dropped,
    /// The kernel has its own copy of them: they are counted as left to it.
    Kernels,
}

/// A port of a VLAN, or that of an interface's untagged frames.
pub struct VlanPort {
    // Before the device: a second descriptor of a socket must not outlive the frames that the kernel receives into.
    watch: Option<OwnedFd>,
    trunk: Arc<Mutex<Trunk>>,
    place: usize,
    vid: Option<u16>,
}

struct Trunk {
    device: Box<dyn Port>,
    /// Places of ports, by VLAN identifier.
    places: Box<[u8; VIDS]>,
    /// The place of the port that has untagged frames, and those of other VLANs.
    untagged: Option<usize>,
    /// By place; `None` for a port that is closed.
    waiting: Vec<Option<VecDeque<Frame>>>,
    /// What the device has received last; empty but while it is sorted.
    arrivals: Batch,
    unclaimed: UnclaimedFrames,
    /// Frames that no port has and that were not told of.
    unknown: u64,
}

/// Ports of one device, of which each has the VLAN of that identifier, and the one without an identifier all frames that no
/// other has. They are all for the worker whose device it is. Identifiers above 4095 are never met.
///
/// # Errors
/// When the kernel has no more descriptors.
pub fn vlan_ports(
    device: Box<dyn Port>,
    vids: &[Option<u16>],
    unclaimed: UnclaimedFrames,
) -> io::Result<Vec<VlanPort>> {
    debug_assert!(device.shared().is_none(), "a block of a shared queue is one port's");
    let mut places = Box::new([NOBODY; VIDS]);
    for (place, vid) in (0..NOBODY).zip(vids) {
        if let Some(entry) = vid.and_then(|vid| places.get_mut(usize::from(vid))) {
            *entry = place;
        }
    }
    let is_watched = device.readiness().is_some();
    let mut watches = Vec::new();
    for place in 0..vids.len() {
        watches.push(match device.readiness() {
            Some(device) if place == 0 => Some(device.try_clone_to_owned()?),
            // Never readable: the first port wakes the worker for all.
            _ if is_watched => Some(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?),
            _ => None,
        });
    }
    let trunk = Arc::new(Mutex::new(Trunk {
        device,
        places,
        untagged: vids.iter().position(Option::is_none),
        waiting: vids.iter().map(|_| Some(VecDeque::with_capacity(WAITING_MAX))).collect(),
        arrivals: Batch::new(),
        unclaimed,
        unknown: 0,
    }));
    let ports = watches.into_iter().zip(vids).enumerate();
    Ok(ports.map(|(place, (watch, &vid))| VlanPort { watch, trunk: trunk.clone(), place, vid }).collect())
}

impl Trunk {
    /// Whether each port has room for all that the device may give at a time.
    fn has_room(&self) -> bool {
        self.waiting.iter().flatten().all(|waiting| waiting.len() + BATCH_MAX <= WAITING_MAX)
    }

    /// Receives from the device and sorts; frames of the first port go to `batch` as far as it has room.
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        while !batch.is_full() && self.has_room() {
            self.device.receive(pool, &mut self.arrivals);
            let count = self.arrivals.len();
            self.arrivals.iter().for_each(|frame| frame.prefetch(0));
            for mut frame in self.arrivals.drain(..) {
                let place = match vid(&frame).map(|vid| self.places[usize::from(vid)]) {
                    Some(place) if place != NOBODY && untag(&mut frame) => Some(usize::from(place)),
                    _ => self.untagged,
                };
                let waiting = place.and_then(|place| self.waiting[place].as_mut());
                match (place, waiting) {
                    (Some(0), Some(_)) if !batch.is_full() => batch.push(frame),
                    (_, Some(waiting)) => waiting.push_back(frame),
                    (_, None) => {
                        self.unknown += 1;
                        pool.release(frame);
                    }
                }
            }
            if count < BATCH_MAX {
                return;
            }
        }
    }
}

impl VlanPort {
    fn trunk(&self) -> MutexGuard<'_, Trunk> {
        self.trunk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is the one that receives from the device, and tells of it.
    const fn is_first(&self) -> bool {
        self.place == 0
    }
}

impl Port for VlanPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        let mut trunk = self.trunk();
        if let Some(waiting) = &mut trunk.waiting[self.place] {
            let some = waiting.len().min(batch.remaining_capacity());
            batch.extend(waiting.drain(..some));
        }
        if self.is_first() {
            trunk.receive(pool, batch);
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let Some(vid) = self.vid else { return self.trunk().device.transmit(pool, batch) };
        let before = batch.len();
        batch.retain(|frame| tag(frame, vid));
        let untaggable = before - batch.len();
        let failed = self.trunk().device.transmit(pool, batch);
        // What was not taken is the worker's again, as it was.
        for frame in batch.iter_mut() {
            let whole = untag(frame);
            debug_assert!(whole, "tagged above");
        }
        untaggable + failed
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        if !self.is_first() {
            return;
        }
        let mut trunk = self.trunk();
        trunk.device.losses(report);
        if trunk.unknown > 0 && trunk.unclaimed == UnclaimedFrames::Dropped {
            report(DropReason::VLAN_UNKNOWN, std::mem::take(&mut trunk.unknown));
        }
    }

    fn left_to_kernel(&mut self) -> u64 {
        let mut trunk = self.trunk();
        if self.is_first() && trunk.unclaimed == UnclaimedFrames::Kernels {
            return std::mem::take(&mut trunk.unknown);
        }
        0
    }

    fn backlog(&mut self) -> Option<u32> {
        let mut trunk = self.trunk();
        let waiting = trunk.waiting[self.place].as_ref().map_or(0, VecDeque::len);
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        if self.is_first() { Some(trunk.device.backlog()?.saturating_add(waiting)) } else { Some(waiting) }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    fn handoffs(&mut self) -> usize {
        if self.is_first() { self.trunk().device.handoffs() } else { 0 }
    }

    fn may_sleep(&mut self) -> bool {
        let mut trunk = self.trunk();
        // Asked in any case: it may have to prepare.
        let may = !self.is_first() || trunk.device.may_sleep();
        may && trunk.waiting[self.place].as_ref().is_none_or(VecDeque::is_empty)
    }

    fn needs_poll(&self) -> bool {
        self.is_first() && self.trunk().device.needs_poll()
    }

    fn is_exhausted(&self) -> bool {
        let trunk = self.trunk();
        trunk.device.is_exhausted() && trunk.waiting[self.place].as_ref().is_none_or(VecDeque::is_empty)
    }
}

impl Drop for VlanPort {
    /// From here on its frames are nobody's. The last one closes the device.
    fn drop(&mut self) {
        // Closed first: see the field.
        self.watch = None;
        let place = self.place;
        self.trunk().waiting[place] = None;
    }
}

/// The VLAN identifier of the outermost tag; `None` without a tag, and for priority tags (IEEE 802.1Q 9.6).
#[inline]
fn vid(frame: &Frame) -> Option<u16> {
    let &[kind_high, kind_low, tci_high, tci_low] = frame.window::<TAG_LEN>(TAG_AT)?;
    let vid = u16::from_be_bytes([tci_high, tci_low]) & 0x0fff;
    (EtherType(u16::from_be_bytes([kind_high, kind_low])).is_vlan() && vid != 0).then_some(vid)
}

/// Takes the outermost tag off; `false`, and nothing has changed, where the first segment is too short.
#[inline]
fn untag(frame: &mut Frame) -> bool {
    let Some(front) = frame.data_mut().get_mut(..ADDRESSES + TAG_LEN) else { return false };
    front.copy_within(..ADDRESSES, TAG_LEN);
    frame.strip(TAG_LEN)
}

/// Puts a tag between the addresses and what follows, with priority 0; `false` where it cannot be.
#[inline]
fn tag(frame: &mut Frame, vid: u16) -> bool {
    if frame.data().len() < ADDRESSES {
        return false;
    }
    let Some(front) = frame.prepend(TAG_LEN) else { return false };
    front.copy_within(TAG_LEN..TAG_LEN + ADDRESSES, 0);
    let [kind_high, kind_low] = EtherType::VLAN.0.to_be_bytes();
    let [vid_high, vid_low] = vid.to_be_bytes();
    front[ADDRESSES..ADDRESSES + TAG_LEN].copy_from_slice(&[kind_high, kind_low, vid_high, vid_low]);
    true
}

#[cfg(test)]
mod tests;
