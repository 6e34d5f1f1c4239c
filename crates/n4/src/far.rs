//! Forwarding and Buffering Action Rules (TS 29.244 7.5.2.3, 7.5.4.3, 7.5.2.6).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BarId, Change, FarId, NetworkInstance, Steering, Teid};

/// Source and Destination Interface values (TS 29.244 8.2.2, 8.2.24).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Interface {
    /// 0: Access, towards the UE (N3, S1-U/S5-U).
    #[default]
    Access,
    /// 1: Core (N9, S5/S8, and N6 for most control planes).
    Core,
    /// 2: SGi-LAN / N6-LAN.
    N6Lan,
    /// 3: CP-function.
    CpFunction,
    /// 5G VN internal: another session of a 5G virtual network, on this node. 4 as a source, 5 as a destination.
    VnInternal,
}

/// Apply Action flags (TS 29.244 8.2.26). Exactly one of drop, forward and buffer is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyAction {
    /// DROP.
    pub drop: bool,
    /// FORW.
    pub forward: bool,
    /// BUFF.
    pub buffer: bool,
    /// NOCP: report the first buffered downlink packet to the control plane.
    pub notify_cp: bool,
    /// DUPL: copies go where the duplicating parameters say.
    pub duplicate: bool,
    /// BDPN: report that downlink packets are buffered (Downlink Data Delivery Status).
    pub report_buffered: bool,
    /// DDPN: report that packets which should be buffered are dropped.
    pub report_discarded: bool,
}

impl ApplyAction {
    const NOTHING: Self = Self {
        drop: false,
        forward: false,
        buffer: false,
        notify_cp: false,
        duplicate: false,
        report_buffered: false,
        report_discarded: false,
    };
    /// Drop, and nothing more.
    pub const DROP: Self = Self { drop: true, ..Self::NOTHING };
    /// Forward, and nothing more.
    pub const FORWARD: Self = Self { forward: true, ..Self::NOTHING };
    /// Buffer, and nothing more.
    pub const BUFFER: Self = Self { buffer: true, ..Self::NOTHING };
    /// Buffer, and tell the control plane of the first packet.
    pub const BUFFER_AND_NOTIFY: Self = Self { buffer: true, notify_cp: true, ..Self::NOTHING };
}

/// Outer Header Creation (TS 29.244 8.2.56) of the GTP-U kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OuterHeaderCreation {
    /// The peer's TEID.
    pub teid: Teid,
    /// The peer's IPv4 address (GTP-U/UDP/IPv4).
    pub ipv4: Option<Ipv4Addr>,
    /// The peer's IPv6 address (GTP-U/UDP/IPv6). With both given IPv4 is used where we have it.
    pub ipv6: Option<Ipv6Addr>,
}

/// Forwarding Parameters (TS 29.244 table 7.5.2.3-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardingParameters {
    /// Towards where.
    pub destination_interface: Interface,
    /// In which IP domain.
    pub network_instance: Option<NetworkInstance>,
    /// Tunnel to put the packet into.
    pub outer_header_creation: Option<OuterHeaderCreation>,
    /// Transport Level Marking (8.2.12): the ToS / Traffic Class octet of the outer header.
    pub transport_level_marking: Option<u8>,
    /// What few ask for.
    pub steering: Option<Box<Steering>>,
}

/// A Forwarding Action Rule, whole (Create FAR, TS 29.244 7.5.2.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Far {
    /// Its name within the session.
    pub id: FarId,
    /// What to do.
    pub apply_action: ApplyAction,
    /// How to forward; present when `apply_action.forward` is set.
    pub forwarding: Option<ForwardingParameters>,
    /// How to buffer.
    pub bar_id: Option<BarId>,
}

/// Forwarding parameters that an update takes away (TS 29.244 5.6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedForwarding {
    /// The IP domain: the default one from now on.
    pub network_instance: bool,
    /// The tunnel.
    pub outer_header_creation: bool,
    /// The marking.
    pub transport_level_marking: bool,
}

/// Update Forwarding Parameters (TS 29.244 table 7.5.4.3-2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateForwardingParameters {
    /// New destination.
    pub destination_interface: Option<Interface>,
    /// New IP domain.
    pub network_instance: Option<NetworkInstance>,
    /// New tunnel.
    pub outer_header_creation: Option<OuterHeaderCreation>,
    /// New marking.
    pub transport_level_marking: Option<u8>,
    /// New values of what few ask for.
    pub steering: Option<Box<Steering>>,
    /// What was given with null length, and goes (TS 29.244 5.6.3).
    pub removed: RemovedForwarding,
    /// PFCPSMReq-Flags SNDEM: send an End Marker down the old tunnel before the change.
    pub send_end_marker: bool,
}

/// Update FAR (TS 29.244 7.5.4.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateFar {
    /// The FAR to change.
    pub id: FarId,
    /// New action.
    pub apply_action: Option<ApplyAction>,
    /// New parameters; each present field replaces the old one.
    pub forwarding: Option<UpdateForwardingParameters>,
    /// New BAR.
    pub bar_id: Option<BarId>,
    /// The BAR goes: it was given with null length (TS 29.244 5.6.3).
    pub removes_bar: bool,
}

/// A Buffering Action Rule, whole (Create BAR, TS 29.244 7.5.2.6), with what a Session Report Response adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferingRule {
    /// Its name within the session.
    pub id: BarId,
    /// Suggested Buffering Packets Count (8.2.104): how many downlink packets are worth keeping.
    pub suggested_packets: Option<u8>,
    /// Downlink Data Notification Delay (8.2.28): how long to wait with the report.
    pub notification_delay: Option<Duration>,
    /// DL Buffering Duration (8.2.29): how long to keep packets of a UE that sleeps longer.
    pub duration: Option<Duration>,
    /// DL Buffering Suggested Packet Count (8.2.30): how many meanwhile.
    pub extended_packets: Option<u16>,
}

/// Update BAR (TS 29.244 7.5.4.11, 7.5.9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateBar {
    /// The BAR to change.
    pub id: BarId,
    /// Suggested Buffering Packets Count.
    pub suggested_packets: Change<u8>,
    /// Downlink Data Notification Delay.
    pub notification_delay: Change<Duration>,
    /// DL Buffering Duration.
    pub duration: Change<Duration>,
    /// DL Buffering Suggested Packet Count.
    pub extended_packets: Change<u16>,
}

impl UpdateBar {
    /// Changes a rule.
    pub fn apply(&self, bar: &mut BufferingRule) {
        self.suggested_packets.apply(&mut bar.suggested_packets);
        self.notification_delay.apply(&mut bar.notification_delay);
        self.duration.apply(&mut bar.duration);
        self.extended_packets.apply(&mut bar.extended_packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_what_they_are_called() {
        let flags = |action: ApplyAction| (action.drop, action.forward, action.buffer, action.notify_cp);
        assert_eq!(flags(ApplyAction::DROP), (true, false, false, false));
        assert_eq!(flags(ApplyAction::FORWARD), (false, true, false, false));
        assert_eq!(flags(ApplyAction::BUFFER), (false, false, true, false));
        assert_eq!(flags(ApplyAction::BUFFER_AND_NOTIFY), (false, false, true, true));
    }

    #[test]
    fn an_update_of_a_bar_changes_what_it_names() {
        let second = Duration::from_secs(1);
        let mut bar = BufferingRule { duration: Some(second), ..BufferingRule::default() };
        let mut update = UpdateBar { suggested_packets: Some(3).into(), ..UpdateBar::default() };
        update.apply(&mut bar);
        assert_eq!((bar.suggested_packets, bar.duration), (Some(3), Some(second)));
        update =
            UpdateBar { duration: Change::Remove, extended_packets: Some(9).into(), ..UpdateBar::default() };
        update.notification_delay = Some(second).into();
        update.apply(&mut bar);
        assert_eq!((bar.suggested_packets, bar.duration), (Some(3), None));
        assert_eq!((bar.extended_packets, bar.notification_delay), (Some(9), Some(second)));
    }
}
