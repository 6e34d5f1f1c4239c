//! Stamps of QoS monitoring: written into packets to the UE, read from packets of the access.

use kaido_engine::{DropReason, Frame, Output, Resolution};
use kaido_wire::gtpu::{self, DownlinkInformation, Extensions, UplinkInformation, extension_type};
use kaido_wire::ip;
use kaido_wire::layout::{self, GtpuFields};

use super::Worker;
use super::charge::MatchedRule;
use super::context::PacketContext;
use super::emit::FlowFields;
use super::parse::OuterTunnel;
use super::relay::StoredExtensions;
use crate::node::WorkerEvent;
use crate::record::Record;
use crate::tunnels::Tunnel;
use kaido_n4::Qfi;

impl Worker {
    /// Reads what a packet of the access measured, and tells control if it is time. `true` when it brings anything.
    #[cold]
    pub(super) fn measure(&mut self, record: &Record, outer: &OuterTunnel, frame: &Frame) -> bool {
        let header_len = usize::from(outer.header.payload_offset);
        let header = frame.data().get(outer.gtpu_offset..outer.gtpu_offset + header_len);
        let Some(information) = header.and_then(uplink_information) else { return false };
        if information.stamps.is_none() {
            return false;
        }
        let qfi = Qfi(information.qfi);
        if let Some((_, monitor)) = record.monitors().iter().find(|(own, _)| *own == qfi)
            && let Some(delays) = monitor.sample(&self.node.clock, self.now, &information)
        {
            self.send_event(WorkerEvent::Delay { session: record.session(), qfi, delays });
        }
        true
    }

    /// The extension header of a packet into a tunnel that is to be measured with it. A packet that would be too long
    /// with a stamp goes without.
    #[inline]
    pub(super) fn stamped(
        &mut self,
        record: &Record,
        tunnel: &Tunnel,
        resolution: Resolution,
        packet_len: usize,
    ) -> Option<StoredExtensions> {
        if record.monitors().is_empty() {
            return None;
        }
        self.stamp(record, tunnel, resolution, packet_len)
    }

    #[cold]
    fn stamp(
        &self,
        record: &Record,
        tunnel: &Tunnel,
        resolution: Resolution,
        packet_len: usize,
    ) -> Option<StoredExtensions> {
        let encap = &tunnel.encap;
        let qfi = encap.qfi.filter(|_| !encap.container_uplink)?;
        let (_, monitor) = record.monitors().iter().find(|(own, _)| *own == qfi)?;
        let sending = Some(monitor.mark(&self.node.clock, self.now)?);
        let stamped = StoredExtensions::of_container(&DownlinkInformation {
            qfi: qfi.0,
            rqi: encap.reflective,
            ppi: encap.paging_policy.map(|ppi| ppi.0),
            sending,
            ..DownlinkInformation::default()
        });
        let fits = self.exceeded(resolution, packet_len + stamped.overhead(tunnel)).is_none();
        fits.then_some(stamped)
    }

    /// Sends a packet with its stamp.
    #[cold]
    pub(super) fn tunnel_stamped(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        tunnel: &Tunnel,
        stamped: &StoredExtensions,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let (from, packet) = (context.arrival.port, context.packet);
        ip::decrement_ttl(frame.data_mut());
        let of_flow = FlowFields::of(frame.data());
        if stamped.put_before(&self.settings, tunnel, of_flow, &mut frame).is_err() {
            return out.drop(from, frame, DropReason::NO_HEADROOM);
        }
        let resolution = self.next_hops.resolve(tunnel.encap.peer);
        if self.send_charged(rule, packet.total_len, (resolution, tunnel.encap.peer), from, frame, out) {
            stamp_sent(rule.record, tunnel);
        }
    }
}

/// Notes that a packet has left with its stamp.
pub(super) fn stamp_sent(record: &Record, tunnel: &Tunnel) {
    let monitor = record.monitors().iter().find(|(qfi, _)| Some(*qfi) == tunnel.encap.qfi);
    if let Some((_, monitor)) = monitor {
        monitor.sent();
    }
}

/// The UL PDU SESSION INFORMATION of a whole GTP-U header.
fn uplink_information(header: &[u8]) -> Option<UplinkInformation> {
    let (fixed, chain) = header.split_at_checked(gtpu::HEADER_LEN + gtpu::OPTIONAL_LEN)?;
    if GtpuFields::new(layout::at(fixed, 0)).flags() & gtpu::FLAG_EXTENSION == 0 {
        return None;
    }
    let first = fixed.last().copied().unwrap_or(extension_type::NONE);
    let container = Extensions::new(first, chain)
        .map_while(Result::ok)
        .find(|extension| extension.kind == extension_type::PDU_SESSION_CONTAINER)?;
    UplinkInformation::parse(container.content).ok()
}
