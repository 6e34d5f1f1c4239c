//! Packets that wait for a next hop's Ethernet address.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::frame::Frame;
use crate::port::PortId;
use crate::routes::VrfAddress;

/// Packets of one worker that wait for next hops.
const PENDING_MAX: usize = 1024;
/// Packets that wait for one next hop: as many as a session buffers by default. These are all released at once, to an
/// access node that may not have been spoken to for long. RFC 4861 7.2.2 asks for one at least.
const PENDING_PER_DESTINATION: usize = 64;
/// Longest wait: three probes of a second each (RFC 4861 10).
const PENDING_TIME_MAX: Duration = Duration::from_secs(3);

/// An IP packet, complete but for Ethernet, whose next hop is being asked for.
#[derive(Debug)]
pub struct Pending<T = ()> {
    /// The packet.
    pub frame: Frame,
    /// Where it came in, to count its drop.
    pub from: PortId,
    /// Where it goes.
    pub destination: VrfAddress,
    /// What the function is to do when it leaves.
    pub then: T,
    since: Instant,
}

impl<T> Pending<T> {
    /// Whether nobody has answered for so long that nobody will.
    pub fn is_overdue(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > PENDING_TIME_MAX
    }
}

/// Packets that wait for next hops, oldest first.
#[derive(Debug)]
pub struct PendingQueue<T = ()> {
    packets: VecDeque<Pending<T>>,
}

impl<T> Default for PendingQueue<T> {
    fn default() -> Self {
        Self { packets: VecDeque::new() }
    }
}

impl<T> PendingQueue<T> {
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Keeps a packet.
    ///
    /// # Errors
    /// The packet, when enough wait already.
    pub fn push(
        &mut self,
        frame: Frame,
        from: PortId,
        destination: impl Into<VrfAddress>,
        then: T,
        now: Instant,
    ) -> Result<(), Frame> {
        let destination = destination.into();
        let same = || self.packets.iter().filter(|packet| packet.destination == destination).count();
        if self.packets.len() >= PENDING_MAX || same() >= PENDING_PER_DESTINATION {
            return Err(frame);
        }
        self.packets.push_back(Pending { frame, from, destination, then, since: now });
        Ok(())
    }

    /// Takes all of them, to be sent or kept again.
    pub fn take(&mut self) -> VecDeque<Pending<T>> {
        std::mem::take(&mut self.packets)
    }

    /// Puts a packet back that must wait on.
    pub fn keep(&mut self, packet: Pending<T>) {
        self.packets.push_back(packet);
    }
}
