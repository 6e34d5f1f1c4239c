//! Why a packet takes the slow path: asked after the fast path has left it, in the order in which that one asks.

use kaido_engine::Frame;
use kaido_wire::layout::{Ipv4Fields, Ipv6Fields};

use super::Worker;
use super::mss::may_be_syn;
use super::read::{FrameHead, Kind, outer_source};
use super::select::{fast_flow, qfi_of};
use crate::node::Node;
use crate::qos::PolicerSlot;
use crate::record::{FastPath, Record};
use crate::slow_path::SlowPathReason;
use crate::usage::UsageSlot;

impl Worker {
    /// Counts a packet of a key that the fast path has left.
    #[cold]
    #[inline(never)]
    pub(super) fn count_slow(
        &self,
        node: &Node,
        record: Option<&Record>,
        arrived: &FrameHead,
        frame: &Frame,
    ) {
        self.slow.count(self.slow_reason(node, record, arrived, frame));
    }

    fn slow_reason(
        &self,
        node: &Node,
        record: Option<&Record>,
        arrived: &FrameHead,
        frame: &Frame,
    ) -> SlowPathReason {
        let Some(record) = record else { return SlowPathReason::NoSession };
        if arrived.kind != Kind::Eligible {
            return SlowPathReason::Headers;
        }
        if self.tracing.has(record.session()) {
            return SlowPathReason::Traced;
        }
        if self.may_overtake(record) {
            return SlowPathReason::Waiting;
        }
        let is_up = arrived.fast_path == FastPath::UP;
        if is_up && self.bind_gnb && !outer_source(frame).is_some_and(|source| record.admits_gnb(source)) {
            return SlowPathReason::Other;
        }
        let rule = if record.has_lines() {
            let flow = fast_flow(record.direction(), arrived, frame);
            flow.and_then(|flow| record.of_flow(&node.lines, &flow))
        } else {
            Some(record)
        };
        let Some(rule) = rule else {
            return SlowPathReason::of_form(record.form()).unwrap_or(SlowPathReason::OtherRule);
        };
        if !rule.is_fast(arrived.fast_path) {
            return SlowPathReason::of_form(rule.form()).unwrap_or(SlowPathReason::OtherRule);
        }
        self.slow_reason_of(node, rule, arrived, frame)
    }

    /// As [`Worker::slow_reason`], of a packet whose rule is on the fast path.
    fn slow_reason_of(
        &self,
        node: &Node,
        rule: &Record,
        arrived: &FrameHead,
        frame: &Frame,
    ) -> SlowPathReason {
        let is_used_up = |&slot: &u32| node.usage.is_exhausted(UsageSlot(slot));
        if rule.has_folded_quotas() && rule.folded_usage().iter().any(is_used_up) {
            return SlowPathReason::Quota;
        }
        if rule.folded_qfi().is_some_and(|qfi| qfi_of(arrived, frame) != Some(qfi)) {
            return SlowPathReason::OtherRule;
        }
        let policers = rule.folded_meters().policers;
        let admits = |&slot: &u32| node.policers.admits(PolicerSlot(slot), rule.direction(), self.ticks);
        if !policers.iter().all(admits) {
            return SlowPathReason::Rate;
        }
        let packet = frame.data().get(usize::from(arrived.offset)..).unwrap_or_default();
        if self.mss_clamp.is_some() && may_be_syn(packet) {
            return SlowPathReason::MssClamp;
        }
        if arrived.fast_path == FastPath::UP && self.may_be_for_ue(packet) {
            return SlowPathReason::OtherUe;
        }
        if self.is_next_hop_known(rule, packet) { SlowPathReason::Other } else { SlowPathReason::NextHop }
    }

    fn may_be_for_ue(&self, packet: &[u8]) -> bool {
        let Some(ues) = &self.node.ue_networks else { return false };
        match packet.first().map(|first| first >> 4) {
            Some(4) => {
                packet.first_chunk().is_some_and(|header| ues.may_have_v4(Ipv4Fields::new(header).dst()))
            }
            _ => packet.first_chunk().is_some_and(|header| ues.may_have_v6(Ipv6Fields::new(header).dst())),
        }
    }

    fn is_next_hop_known(&self, rule: &Record, packet: &[u8]) -> bool {
        if let Some((id, _)) = rule.folded_tunnel() {
            return self.prepared.get(id).is_some();
        }
        if rule.folded_lan().is_some() {
            return false;
        }
        let vrf = self.vrfs.of_number(rule.exit_number());
        match packet.first().map(|first| first >> 4) {
            Some(4) => packet
                .first_chunk()
                .is_some_and(|header| self.next_hops.known_v4(vrf, Ipv4Fields::new(header).dst()).is_some()),
            _ => packet
                .first_chunk()
                .is_some_and(|header| self.next_hops.known_v6(vrf, Ipv6Fields::new(header).dst()).is_some()),
        }
    }
}
