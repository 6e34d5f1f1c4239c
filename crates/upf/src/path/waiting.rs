//! What is done beside packets: what waits too long is dropped, what was held back is sent on, what could not be told is told.

use std::time::{Duration, Instant};

use kaido_engine::{DropReason, Output};
use kaido_table::Guard;

use super::context::{ArrivalInfo, PacketContext};
use super::parse::Packet;
use super::relay::StoredExtensions;
use super::{Worker, buffering};
use crate::UpfDrop;
use crate::ids::SessionIndex;
use crate::node::{BufferChange, WorkerEvent};

/// How often what waits too long is looked for.
pub(super) const SWEEP: Duration = Duration::from_millis(100);
/// Events kept for a control plane that has no room for them now.
const UNSENT_EVENTS_MAX: usize = 65_536;

impl Worker {
    /// When there is something to do beside packets: now, or at the next sweep if anything waits for that.
    pub(super) fn tick_due(&self) -> Option<Instant> {
        let may_release = !self.buffers.is_empty() && self.node.buffer_changes() != self.buffer_changes;
        let may_retry = !self.pending.is_empty() && self.next_hops.generation() != self.pending_tried;
        if self.node.has_orders() || self.node.from_control_planes.has_news() || may_release || may_retry {
            return Some(self.now);
        }
        let waits = !self.pending.is_empty()
            || !self.buffers.is_empty()
            || !self.unsent_events.is_empty()
            || !self.node.fragments.is_empty()
            || self.lan_hops.is_waiting();
        waits.then(|| self.swept + SWEEP)
    }

    /// Tells the control plane, now or when it has room again.
    pub(super) fn send_event(&mut self, event: WorkerEvent) {
        if !self.node.send_event(event) && self.unsent_events.len() < UNSENT_EVENTS_MAX {
            self.unsent_events.push(event);
        }
    }

    /// Drops what has waited too long and tells what could not be told.
    pub(super) fn sweep(&mut self, out: &mut Output<'_>) {
        self.swept = out.now();
        while let Some(event) = self.unsent_events.pop() {
            if !self.node.send_event(event) {
                self.unsent_events.push(event);
                break;
            }
        }
        for (session, packet) in self.buffers.take_due(out.now()) {
            if let Some(pdr) = packet.tell_discard
                && self.buffers.first_discard(session)
            {
                self.send_event(WorkerEvent::Discarded { session, pdr });
            }
            self.count_waiting_dropped(session, &packet);
            out.drop(packet.from, packet.frame, UpfDrop::BUFFER_EXPIRED);
        }
        self.sweep_fragments(out);
        if !self.pending.is_empty() {
            // Asks again for what nobody answered, and gives up on what is overdue.
            self.retry_pending(out);
        }
        if self.lan_hops.is_waiting() {
            self.retry_lans(out);
        }
    }

    /// Sends on the buffered packets of sessions that changed, drops those that are to be dropped.
    pub(super) fn look_at_buffers(&mut self, guard: &Guard<'_>, since: u64, out: &mut Output<'_>) {
        let node = self.node.clone();
        let changes = node.changes(since).unwrap_or_else(|| {
            let all = self.buffers.sessions().into_iter();
            all.map(|session| BufferChange { session, discard: false }).collect()
        });
        for BufferChange { session, discard } in changes {
            if discard {
                for packet in self.buffers.take(session) {
                    out.drop(packet.from, packet.frame, UpfDrop::BUFFER_DISCARDED);
                }
            } else if self.buffers.holds(session) {
                self.release(guard, session, out);
                // What still waits may be so by rules that know nothing of it.
                if let Some(news) = self.buffers.news(session) {
                    self.send_event(news);
                }
            }
        }
    }

    /// Puts the buffered packets of a session through its rules again: what still buffers stays.
    pub(super) fn release(&mut self, guard: &Guard<'_>, session: SessionIndex, out: &mut Output<'_>) {
        let node = self.node.clone();
        let of_packet_at_hand = std::mem::take(&mut self.stored);
        for waiting in self.buffers.take(session) {
            let buffering::BufferedPacket { frame, from, key, qfi, since, .. } = waiting;
            let record = node.table.get(guard, &key).filter(|record| record.session() == session);
            let arrival = ArrivalInfo { buffered_since: Some(since), ..ArrivalInfo::new(from, key, qfi) };
            if let Some(record) = record.filter(|record| record.is_ethernet()) {
                self.stored = StoredExtensions::of_flow(qfi, record.direction());
                self.release_frame(guard, record, arrival, frame, out);
                continue;
            }
            let (Some(record), Ok(packet)) = (record, Packet::read(frame.data(), frame.packet_len())) else {
                out.drop(from, frame, UpfDrop::BUFFER_DISCARDED);
                continue;
            };
            self.stored = StoredExtensions::of_flow(qfi, record.direction());
            let context = PacketContext { guard, record, arrival, packet: &packet };
            if let Some((_, frame)) = self.apply(&context, frame, out) {
                // The way became narrower while it waited; its sender will learn from the next.
                out.drop(from, frame, DropReason::TOO_BIG);
            }
        }
        self.stored = of_packet_at_hand;
    }
}
