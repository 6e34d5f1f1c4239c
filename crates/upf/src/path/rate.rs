//! Rates on both ways through the path.

use std::sync::Arc;
use std::time::Instant;

use kaido_engine::{DropReason, Frame, PortId};

use super::Worker;
use super::group::Exit;
use super::read::FrameHead;
use crate::UpfDrop;
use crate::action::Action;
use crate::node::{LiveSettings, Node};
use crate::qos::PolicerSlot;
use crate::record::{Meters, Record};
use crate::ue::Direction;

impl Worker {
    /// Begins a round, by the settings of now.
    pub(super) fn begin_round(&mut self, now: Instant) {
        self.now = now;
        self.ticks = self.node.policers.ticks(now);
        let (began, used_at) = self.began;
        self.used_at = used_at.after(now.saturating_duration_since(began));
        if let Some(live) = self.node.live.newer_than(&mut self.live_generation) {
            self.obey(live);
        }
    }

    #[cold]
    fn obey(&mut self, live: LiveSettings) {
        let answers = live.answers_per_second;
        for limit in [&mut self.error_indications, &mut self.extension_notices, &mut self.icmp_errors] {
            limit.set(answers);
        }
        Arc::make_mut(&mut self.settings).live = live;
        self.make_ready();
    }

    /// As [`Worker::fast`], for a record with rates. What one of them refuses, the slow path drops.
    #[inline(never)]
    pub(super) fn fast_within_rate(
        &mut self,
        record: &Record,
        arrived: &FrameHead,
        frame: &mut Frame,
    ) -> Exit {
        let (meters, direction) = (record.folded_meters(), record.direction());
        if !self.is_within_rates(&self.node, &meters, direction) {
            return Exit::NONE;
        }
        let packet = frame.data().get(usize::from(arrived.offset)..);
        let Some(octets) = packet.and_then(kaido_wire::ip::length) else { return Exit::NONE };
        let Some(to) = self.fast_at_any_rate(record, arrived, frame) else { return Exit::NONE };
        self.spend_rates(&self.node, &meters, direction, octets, to)
    }

    /// Whether the rates of a folded record let a packet pass.
    #[inline(always)]
    pub(super) fn is_within_rates(&self, node: &Node, meters: &Meters<'_>, direction: Direction) -> bool {
        meters.policers.iter().all(|&slot| node.policers.admits(PolicerSlot(slot), direction, self.ticks))
    }

    /// Takes from the rates of a folded record what a packet costs that leaves by a port.
    #[inline(always)]
    pub(super) fn spend_rates(
        &self,
        node: &Node,
        meters: &Meters<'_>,
        direction: Direction,
        octets: u16,
        to: PortId,
    ) -> Exit {
        let (shared, now) = (self.shared, self.ticks);
        let take = |slot| node.policers.take(slot, direction, now, octets.into(), shared);
        meters.policers.iter().for_each(|&slot| take(PolicerSlot(slot)));
        let guarantee = meters.guarantee.map(PolicerSlot);
        match guarantee.filter(|&slot| node.policers.admits(slot, direction, now)) {
            None => to.into(),
            Some(slot) => {
                take(slot);
                Exit::from(to).high_priority()
            }
        }
    }

    /// Why a packet may not pass now, if a rate that it is held to does not let it.
    pub(super) fn exceeded_rate(&self, record: &Record, action: &Action) -> Option<DropReason> {
        if action.qos.is_none() {
            return None;
        }
        let (policers, direction) = (&self.node.policers, record.direction());
        if !action.qos.admits(policers, direction, self.ticks) {
            return Some(UpfDrop::MBR_EXCEEDED);
        }
        let counted = action.qos.packets();
        let admits = |slot| policers.admits_packet(slot, direction, policers.milliseconds(self.now));
        counted.is_some_and(|slot| !admits(slot)).then_some(UpfDrop::PACKET_RATE_EXCEEDED)
    }

    /// Whether a packet is within a guaranteed rate.
    pub(super) fn is_guaranteed(&self, record: &Record, action: &Action) -> bool {
        !action.qos.is_none() && action.qos.is_guaranteed(&self.node.policers, record.direction(), self.ticks)
    }

    /// Takes from every rate what a packet of `octets` costs that went on.
    pub(super) fn spend(&self, record: &Record, action: &Action, octets: usize) {
        if !action.qos.is_none() {
            let shared = self.shared;
            let (policers, now) = (&self.node.policers, self.ticks);
            action.qos.take(policers, record.direction(), now, octets as u64, shared);
            if let Some(slot) = action.qos.packets() {
                policers.take_packet(slot, record.direction(), policers.milliseconds(self.now));
            }
        }
    }
}
