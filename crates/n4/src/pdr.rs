//! Packet Detection Rules (TS 29.244 7.5.2.2, 7.5.4.2).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{
    ApplicationId, EthernetFilter, FarId, FramedRoute, Interface, NetworkInstance, PdrId, PredefinedName,
    QerId, Qfi, SdfFilter, Teid, TrafficEndpointId, UrrId,
};

/// A value that the control plane gives, or asks us to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChooseOr<T> {
    /// The control plane's own choice.
    Given(T),
    /// The user plane shall choose (CH, CHV4, CHV6).
    Choose,
}

impl<T> ChooseOr<T> {
    /// The value, once it is known.
    pub fn given(self) -> Option<T> {
        match self {
            Self::Given(value) => Some(value),
            Self::Choose => None,
        }
    }
}

/// A fully qualified TEID: the TEID and at least one address (TS 29.244 8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FTeid {
    /// The tunnel endpoint, never zero in a session's rule.
    pub teid: Teid,
    /// IPv4 address of the endpoint.
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 address of the endpoint.
    pub ipv6: Option<Ipv6Addr>,
}

/// The Local F-TEID of a PDI (TS 29.244 8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LocalFTeid {
    /// Chosen by the control plane.
    Given(FTeid),
    /// To be chosen by us.
    Choose {
        /// An IPv4 endpoint is wanted.
        ipv4: bool,
        /// An IPv6 endpoint is wanted.
        ipv6: bool,
        /// PDRs of a session with the same CHOOSE ID share one F-TEID.
        choose_id: Option<u8>,
    },
    /// Chosen by us for a CHOOSE ID. Control planes name the ID again in later requests and mean the same F-TEID (Open5GS),
    /// so it is kept as long as a PDR has it.
    Chosen {
        /// What was chosen.
        fteid: FTeid,
        /// For which CHOOSE ID.
        choose_id: u8,
    },
}

impl LocalFTeid {
    /// The F-TEID, once it is known.
    pub fn given(&self) -> Option<FTeid> {
        match *self {
            Self::Given(fteid) | Self::Chosen { fteid, .. } => Some(fteid),
            Self::Choose { .. } => None,
        }
    }
}

/// An IPv6 prefix; the bits behind `len` are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ipv6Prefix {
    /// The prefix, host bits cleared.
    pub addr: Ipv6Addr,
    /// Length in bits, 0..=128.
    pub len: u8,
}

impl fmt::Display for Ipv6Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl Ipv6Prefix {
    /// The prefix of `len` bits that `addr` lies in. `len` above 128 counts as 128.
    pub fn of(addr: Ipv6Addr, len: u8) -> Self {
        let len = len.min(128);
        let mask = if len == 0 { 0 } else { u128::MAX << (128 - u32::from(len)) };
        Self { addr: Ipv6Addr::from_bits(addr.to_bits() & mask), len }
    }

    /// Whether `addr` lies in the prefix.
    pub fn contains(&self, addr: Ipv6Addr) -> bool {
        Self::of(addr, self.len) == *self
    }
}

/// Whether a UE IP address names the source or the destination of the packets sought (S/D flag).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UeIpRole {
    /// The UE sends: the address is matched against the inner source.
    Source,
    /// The UE receives: the address is matched against the destination.
    Destination,
}

/// UE IP Address (TS 29.244 8.2.62).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeIpAddress {
    /// IPv4 address of the UE.
    pub ipv4: Option<ChooseOr<Ipv4Addr>>,
    /// IPv6 prefix of the UE, /64 unless IP6PL says otherwise.
    pub ipv6: Option<ChooseOr<Ipv6Prefix>>,
    /// Which end of the packet it is. The flag is absent on interfaces where it means nothing.
    pub role: UeIpRole,
}

/// Outer Header Removal (TS 29.244 8.2.64), by description value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OuterHeaderRemoval {
    /// 0: GTP-U/UDP/IPv4.
    GtpUUdpIpv4,
    /// 1: GTP-U/UDP/IPv6.
    GtpUUdpIpv6,
    /// 6: GTP-U/UDP/IP, of whichever family the packet has.
    GtpUUdpIp,
    /// 7: the S-TAG of a frame.
    ServiceTag,
    /// 8: the S-TAG and the C-TAG of a frame.
    BothTags,
}

impl OuterHeaderRemoval {
    /// Of a tunnel to that address, as SMFs send it that name the family: free5GC does, and eUPF takes no other.
    pub fn of_tunnel(local: IpAddr) -> Self {
        match local {
            IpAddr::V4(_) => Self::GtpUUdpIpv4,
            IpAddr::V6(_) => Self::GtpUUdpIpv6,
        }
    }

    /// VLAN tags that are taken off.
    pub fn tags(self) -> usize {
        match self {
            Self::GtpUUdpIpv4 | Self::GtpUUdpIpv6 | Self::GtpUUdpIp => 0,
            Self::ServiceTag => 1,
            Self::BothTags => 2,
        }
    }
}

/// Packet Detection Information (TS 29.244 table 7.5.2.2-2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pdi {
    /// Where the packet comes from.
    pub source_interface: Interface,
    /// Tunnel endpoint on which it arrives.
    pub local_fteid: Option<LocalFTeid>,
    /// IP domain on which it arrives.
    pub network_instance: Option<NetworkInstance>,
    /// UE addresses, any of which matches.
    pub ue_ip: Vec<UeIpAddress>,
    /// QoS flows, any of which matches; empty matches all.
    pub qfis: Vec<Qfi>,
    /// Flow filters, any of which matches; with none here and none named below, all match.
    pub sdf_filters: Vec<SdfFilter>,
    /// Bidirectional filters named by the SDF Filter ID of one that the session has (TS 29.244 8.2.5).
    pub sdf_filter_ids: Vec<u32>,
    /// The application that packets belong to (TS 29.244 5.4.11), by its PFDs.
    pub application_id: Option<ApplicationId>,
    /// Networks behind the UE (TS 29.244 5.16): packets of theirs match as the UE's do.
    pub framed_routes: Vec<FramedRoute>,
    /// Traffic endpoints, any of which matches. They say what this PDI leaves unsaid: tunnel, UE address, network instance,
    /// framed routes.
    pub traffic_endpoints: Vec<TrafficEndpointId>,
    /// ETHI of the Ethernet PDU Session Information (8.2.102): frames to the addresses that the session was found to have.
    pub ethernet: bool,
    /// Ethernet packet filters, any of which matches; with none here and none named below, all match.
    pub ethernet_filters: Vec<EthernetFilter>,
    /// Filters named by the Ethernet Filter ID of one that the session has (TS 29.244 5.13.4).
    pub ethernet_filter_ids: Vec<u32>,
}

/// A Packet Detection Rule, whole (Create PDR, TS 29.244 7.5.2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pdr {
    /// Its name within the session.
    pub id: PdrId,
    /// Lower values are matched first (TS 29.244 5.2.1).
    pub precedence: u32,
    /// What it matches.
    pub pdi: Pdi,
    /// Headers to take off before the FAR is applied.
    pub outer_header_removal: Option<OuterHeaderRemoval>,
    /// GTP-U Extension Header Deletion: a PDU session container goes no further than here.
    pub deletes_container: bool,
    /// What to do with the packet. Absent only where a predefined rule gives it.
    pub far_id: Option<FarId>,
    /// Usage to count.
    pub urr_ids: Vec<UrrId>,
    /// QoS to enforce.
    pub qer_ids: Vec<QerId>,
    /// Predefined rules that are active, in the place of what the PDI would match alone.
    pub predefined: Vec<PredefinedName>,
    /// Activation Time (8.2.121): it matches nothing before.
    pub activation: Option<SystemTime>,
    /// Deactivation Time (8.2.122): it matches nothing from then on.
    pub deactivation: Option<SystemTime>,
}

/// Update PDR (TS 29.244 7.5.4.2): a field that is present replaces the old value whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdatePdr {
    /// The PDR to change.
    pub id: PdrId,
    /// New precedence.
    pub precedence: Option<u32>,
    /// New detection information.
    pub pdi: Option<Pdi>,
    /// New header removal.
    pub outer_header_removal: Option<OuterHeaderRemoval>,
    /// The header removal goes: it was given with null length (TS 29.244 5.6.3).
    pub keeps_outer_header: bool,
    /// New deletion of the PDU session container; given with the header removal.
    pub deletes_container: Option<bool>,
    /// New FAR.
    pub far_id: Option<FarId>,
    /// New complete list of URRs; `None` leaves it.
    pub urr_ids: Option<Vec<UrrId>>,
    /// New complete list of QERs; `None` leaves it.
    pub qer_ids: Option<Vec<QerId>>,
    /// Predefined rules to switch on.
    pub activate_predefined: Vec<PredefinedName>,
    /// Predefined rules to switch off.
    pub deactivate_predefined: Vec<PredefinedName>,
    /// New Activation Time.
    pub activation: Option<SystemTime>,
    /// New Deactivation Time.
    pub deactivation: Option<SystemTime>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_here_is_not_given() {
        assert_eq!((ChooseOr::Given(7).given(), ChooseOr::<u8>::Choose.given()), (Some(7), None));
        let fteid = FTeid { teid: Teid(7), ipv4: None, ipv6: None };
        assert_eq!(LocalFTeid::Given(fteid).given(), Some(fteid));
    }

    #[test]
    fn a_prefix_has_the_addresses_with_its_first_bits() {
        let prefix = Ipv6Prefix::of("2001:db8::77".parse().unwrap(), 64);
        assert_eq!(prefix.addr, "2001:db8::".parse::<Ipv6Addr>().unwrap());
        assert_eq!(prefix.to_string(), "2001:db8::/64");
        assert!(prefix.contains("2001:db8::1:2:3:4".parse().unwrap()));
        assert!(!prefix.contains("2001:db8:0:1::1".parse().unwrap()));
        assert!(Ipv6Prefix::of(prefix.addr, 0).contains("ff02::2".parse().unwrap()));
        assert!(!Ipv6Prefix::of(prefix.addr, 200).contains("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn tags_are_taken_off_frames_alone() {
        use OuterHeaderRemoval::{BothTags, GtpUUdpIp, GtpUUdpIpv4, GtpUUdpIpv6, ServiceTag};
        let all = [GtpUUdpIpv4, GtpUUdpIpv6, GtpUUdpIp, ServiceTag, BothTags];
        assert_eq!(all.map(OuterHeaderRemoval::tags), [0, 0, 0, 1, 2]);
    }
}
