//! Random sessions: rules as an SMF could ask for them.

use kaido_n4::{
    ApplyAction, BitRate, ChooseOr, Establishment, FSeid, FTeid, Far, FarId, Gate, Interface, Ipv6Prefix,
    LocalFTeid, MeasurementInformation, MeasurementMethod, OuterHeaderCreation, OuterHeaderRemoval, Pdi, Pdr,
    PdrId, Qer, QerId, Qfi, ReportingTriggers, SdfFilter, Seid, Teid, UeIpAddress, UeIpRole, Urr, UrrId,
    VolumeThreshold,
};
use proptest::prelude::*;

use super::packets::Tunnel;
use crate::family::Family;
use crate::frames::Direction;
use crate::network::teid;
use crate::session_rules::far;

/// Rates in kbit/s: one that no test reaches, and one that admits a packet and no second for a second.
const WIDE_KBPS: u64 = 1_000_000_000;
const NARROW_KBPS: u64 = 1;

/// The rules of a session; all name each other by their places.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// In the order of precedence.
    pub(super) pdrs: Vec<PdrPlan>,
    /// The first lead to the data network, the others to the UE.
    pub(super) fars: [FarPlan; FARS],
    pub(super) qers: [QerPlan; QERS],
    pub(super) urrs: [UrrPlan; URRS],
}

pub(super) const FARS: usize = 4;
const FARS_UP: usize = 2;
/// The first mark a QoS flow; the others limit a rate.
pub(super) const QERS: usize = 4;
const QERS_MARKING: usize = 2;
pub(super) const URRS: usize = 5;

#[derive(Clone, Debug)]
pub(super) struct PdrPlan {
    pub(super) direction: Direction,
    pub(super) qfis: Vec<u8>,
    pub(super) filters: Vec<FilterPlan>,
    pub(super) far: usize,
    pub(super) qers: Vec<usize>,
    pub(super) urrs: Vec<usize>,
}

/// What a packet must be, as the downlink sees it; what is `None` may be anything.
#[derive(Clone, Debug)]
pub(super) struct FilterPlan {
    pub(super) protocol: Option<u8>,
    pub(super) remote: Option<RemotePlan>,
    pub(super) remote_ports: Vec<(u16, u16)>,
    pub(super) local_ports: Vec<(u16, u16)>,
    pub(super) tos: Option<u8>,
}

/// A network beyond the UE: of all hosts of a family, or of the lower half of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemotePlan {
    pub(super) family: Family,
    pub(super) lower_half: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FarPlan {
    Drop,
    /// Towards the data network.
    Core,
    Tunnel(Family, u8),
    /// Towards the access, and no tunnel is known.
    NoTunnel,
    /// Keeps packets for the tunnel of a number.
    Buffer,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct QerPlan {
    /// Uplink and downlink.
    pub(super) gates: [bool; 2],
    pub(super) narrow: bool,
    pub(super) wide: bool,
    pub(super) guaranteed: bool,
    pub(super) qfi: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct UrrPlan {
    pub(super) before_qos: bool,
    pub(super) quota: Option<u64>,
    pub(super) threshold: Option<u64>,
}

/// Rules of any kind, and rules as networks have them, whose packets mostly pass by the fast path.
pub(super) fn rules() -> impl Strategy<Value = Rules> {
    (any_rules(), prop::bool::weighted(0.7))
        .prop_map(|(rules, is_eligible)| if is_eligible { rules.usual() } else { rules })
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let up = prop_oneof![4 => Just(FarPlan::Core), 1 => Just(FarPlan::Drop)];
    let fars = ([up.clone(), up], [far_down(), far_down()]).prop_map(|([a, b], [c, d])| [a, b, c, d]);
    let qers = ([marking(), marking()], [limiting(), limiting()]).prop_map(|([a, b], [c, d])| [a, b, c, d]);
    let urrs = std::array::from_fn::<_, URRS, _>(|_| urr());
    let pdrs = (pdrs(Direction::Uplink), pdrs(Direction::Downlink));
    (pdrs, fars, qers, urrs).prop_map(
        |((mut pdrs, down), fars, mut qers, urrs): ((Vec<PdrPlan>, _), _, [QerPlan; QERS], _)| {
            pdrs.extend(down);
            // A session without any QFI in a QER is marked by its uplink's, which OAI's SMF relies on and no clause says.
            qers[0].qfi = qers[0].qfi.or(Some(9));
            Rules { pdrs, fars, qers, urrs }
        },
    )
}

/// What becomes of packets to the UE.
pub(super) fn far_down() -> impl Strategy<Value = FarPlan> {
    prop_oneof![
        6 => (0u8..2).prop_map(|number| FarPlan::Tunnel(Family::V4, number)),
        2 => (0u8..2).prop_map(|number| FarPlan::Tunnel(Family::V6, number)),
        1 => Just(FarPlan::Drop),
        1 => Just(FarPlan::NoTunnel),
        2 => Just(FarPlan::Buffer),
    ]
}

fn marking() -> impl Strategy<Value = QerPlan> {
    let qfi = prop_oneof![1 => Just(None), 3 => (1u8..64).prop_map(Some)];
    (gates(), qfi).prop_map(|(gates, qfi)| QerPlan {
        gates,
        qfi,
        narrow: false,
        wide: false,
        guaranteed: false,
    })
}

fn limiting() -> impl Strategy<Value = QerPlan> {
    (gates(), 0u8..4, prop::bool::weighted(0.1)).prop_map(|(gates, rate, guaranteed)| QerPlan {
        gates,
        qfi: None,
        narrow: rate == 1,
        wide: rate > 1,
        guaranteed,
    })
}

fn gates() -> impl Strategy<Value = [bool; 2]> {
    [prop::bool::weighted(0.9), prop::bool::weighted(0.9)]
}

fn urr() -> impl Strategy<Value = UrrPlan> {
    let quota = prop_oneof![3 => Just(None), 1 => (1u64..4000).prop_map(Some)];
    let threshold = prop_oneof![1 => Just(None), 1 => (1u64..4000).prop_map(Some)];
    (prop::bool::weighted(0.25), quota, threshold).prop_map(|(before_qos, quota, threshold)| UrrPlan {
        before_qos,
        quota,
        threshold,
    })
}

/// One to six PDRs, of which the last mostly lets all packets match that no other does.
fn pdrs(direction: Direction) -> impl Strategy<Value = Vec<PdrPlan>> {
    let few = prop_oneof![2 => 1usize..3, 1 => 3usize..7];
    let pdrs = few.prop_flat_map(move |count| prop::collection::vec(pdr(direction), count));
    (pdrs, prop::bool::weighted(0.7)).prop_map(|(mut pdrs, has_default)| {
        if let Some(last) = pdrs.last_mut().filter(|_| has_default) {
            (last.qfis, last.filters) = (Vec::new(), Vec::new());
        }
        pdrs
    })
}

fn pdr(direction: Direction) -> impl Strategy<Value = PdrPlan> {
    let fars = if direction == Direction::Uplink { 0..FARS_UP } else { FARS_UP..FARS };
    let qfis = prop_oneof![
        4 => Just(Vec::new()),
        4 => (1u8..4).prop_map(|qfi| vec![qfi]),
        1 => Just(vec![1, 3]),
    ];
    let filters = prop_oneof![
        4 => Just(Vec::new()),
        4 => prop::collection::vec(filter(), 1),
        1 => prop::collection::vec(filter(), 2..4),
    ];
    let marking = prop_oneof![1 => Just(None), 2 => (0..QERS_MARKING).prop_map(Some)];
    let limiting = prop::sample::subsequence((QERS_MARKING..QERS).collect::<Vec<_>>(), 0..=2);
    let urrs = prop::sample::subsequence((0..URRS).collect::<Vec<_>>(), 0..=URRS);
    (qfis, filters, fars, marking, limiting, urrs).prop_map(
        move |(qfis, filters, far, marking, limiting, urrs)| PdrPlan {
            direction,
            qfis: if direction == Direction::Uplink { qfis } else { Vec::new() },
            filters,
            far,
            qers: marking.into_iter().chain(limiting).collect(),
            urrs,
        },
    )
}

fn filter() -> impl Strategy<Value = FilterPlan> {
    let protocol =
        prop_oneof![1 => Just(None), 1 => Just(Some(17u8)), 1 => Just(Some(6)), 1 => Just(Some(1))];
    let family = prop_oneof![6 => Just(Family::V4), 1 => Just(Family::V6)];
    let remote = (family, any::<bool>()).prop_map(|(family, lower_half)| RemotePlan { family, lower_half });
    let remote_ports = prop_oneof![
        3 => Just(vec![]),
        2 => Just(vec![(5060, 5060)]),
        2 => Just(vec![(53, 6000)]),
        1 => Just(vec![(53, 53), (20_000, 30_000)]),
    ];
    let local_ports = prop_oneof![3 => Just(vec![]), 1 => Just(vec![(1024, 5000)])];
    let tos = prop_oneof![20 => Just(None), 1 => Just(Some(0x28u8))];
    (protocol, prop::option::of(remote), remote_ports, local_ports, tos).prop_map(
        |(protocol, remote, remote_ports, local_ports, tos)| FilterPlan {
            protocol,
            remote,
            remote_ports,
            local_ports,
            tos,
        },
    )
}

impl FilterPlan {
    fn description(&self) -> String {
        let protocol = self.protocol.map_or("ip".to_owned(), |protocol| protocol.to_string());
        let remote = match self.remote {
            None => "any",
            Some(RemotePlan { family: Family::V4, lower_half: false }) => "198.51.100.0/24",
            Some(RemotePlan { family: Family::V4, lower_half: true }) => "198.51.100.0/25",
            Some(RemotePlan { family: Family::V6, lower_half: false }) => "2001:db8:fff0::/64",
            Some(RemotePlan { family: Family::V6, lower_half: true }) => "2001:db8:fff0::/121",
        };
        let ports = |ranges: &[(u16, u16)]| {
            let text = |&(low, high): &(u16, u16)| format!("{low}-{high}");
            ranges.iter().map(text).collect::<Vec<_>>().join(",")
        };
        let (remote_ports, local_ports) = (ports(&self.remote_ports), ports(&self.local_ports));
        format!("permit out {protocol} from {remote} {remote_ports} to assigned {local_ports}")
    }

    fn filter(&self) -> SdfFilter {
        let filter = SdfFilter::parse(&self.description()).unwrap();
        SdfFilter { tos: self.tos.map(|tos| (tos, 0xff)), ..filter }
    }
}

impl FarPlan {
    /// The tunnel that it leads into.
    pub(super) fn tunnel(self, session: u32) -> Option<Tunnel> {
        let Self::Tunnel(family, number) = self else { return None };
        Some(Tunnel { family, teid: teid(session) << 1 | u32::from(number), qfi: None })
    }

    pub(super) fn action(self) -> ApplyAction {
        match self {
            Self::Drop => ApplyAction::DROP,
            Self::Buffer => ApplyAction::BUFFER,
            Self::Core | Self::Tunnel(..) | Self::NoTunnel => ApplyAction::FORWARD,
        }
    }

    pub(super) fn header(self, session: u32) -> Option<OuterHeaderCreation> {
        let tunnel = self.tunnel(session)?;
        Some(crate::session_rules::tunnel(tunnel.family, tunnel.teid))
    }

    fn far(self, place: usize, session: u32) -> Far {
        let interface = if place < FARS_UP { Interface::Core } else { Interface::Access };
        Far { apply_action: self.action(), ..far(far_id(place).0, interface, self.header(session)) }
    }
}

impl QerPlan {
    fn qer(&self, place: usize) -> Qer {
        let rate = |kbps| BitRate { uplink_kbps: kbps, downlink_kbps: kbps };
        let mbr = [(self.narrow, NARROW_KBPS), (self.wide, WIDE_KBPS)];
        Qer {
            gate: self.gate(),
            mbr: mbr.into_iter().find(|(given, _)| *given).map(|(_, kbps)| rate(kbps)),
            gbr: self.guaranteed.then(|| rate(WIDE_KBPS)),
            qfi: self.qfi.map(Qfi),
            ..Qer::open(qer_id(place))
        }
    }

    pub(super) fn gate(&self) -> Gate {
        Gate { uplink: self.gates[0], downlink: self.gates[1] }
    }
}

impl UrrPlan {
    fn urr(&self, place: usize) -> Urr {
        let given = [(self.quota, ReportingTriggers::VOLQU), (self.threshold, ReportingTriggers::VOLTH)];
        let given = given.into_iter().filter(|(value, _)| value.is_some());
        Urr {
            id: urr_id(place),
            method: MeasurementMethod { volume: true, ..MeasurementMethod::default() },
            triggers: given.fold(ReportingTriggers::default(), |all, (_, trigger)| all.union(trigger)),
            volume_threshold: self.threshold.map(total),
            volume_quota: self.quota.map(total),
            information: MeasurementInformation {
                before_qos: self.before_qos,
                count_packets: true,
                ..MeasurementInformation::default()
            },
            ..Urr::default()
        }
    }
}

pub(super) fn total(octets: u64) -> VolumeThreshold {
    VolumeThreshold { total: Some(octets), ..VolumeThreshold::default() }
}

fn number(place: usize) -> u32 {
    u32::try_from(place + 1).unwrap()
}

pub(super) fn pdr_id(place: usize) -> PdrId {
    PdrId(u16::try_from(place + 1).unwrap())
}

pub(super) fn far_id(place: usize) -> FarId {
    FarId(number(place))
}

pub(super) fn qer_id(place: usize) -> QerId {
    QerId(number(place))
}

pub(super) fn urr_id(place: usize) -> UrrId {
    UrrId(number(place))
}

impl PdrPlan {
    /// The PDR that is first, second, ... in the order of precedence.
    pub(super) fn pdr(&self, place: usize, session: u32) -> Pdr {
        let mut pdr =
            Pdr { id: pdr_id(place), precedence: 10 * number(place), ..pdr_of_all(self.direction, session) };
        pdr.pdi.qfis = self.qfis.iter().copied().map(Qfi).collect();
        pdr.pdi.sdf_filters = self.filters.iter().map(FilterPlan::filter).collect();
        pdr.far_id = Some(far_id(self.far));
        pdr.qer_ids = self.qers.iter().copied().map(qer_id).collect();
        pdr.urr_ids = self.urrs.iter().copied().map(urr_id).collect();
        pdr
    }
}

/// A PDR that all packets of a direction match.
fn pdr_of_all(direction: Direction, session: u32) -> Pdr {
    let up = direction == Direction::Uplink;
    let v4 = |family: Family, session| match family.ue(session) {
        std::net::IpAddr::V4(address) => Some(ChooseOr::Given(address)),
        std::net::IpAddr::V6(_) => None,
    };
    let v6 = |session| match Family::V6.ue(session) {
        std::net::IpAddr::V6(address) => Some(ChooseOr::Given(Ipv6Prefix::of(address, 64))),
        std::net::IpAddr::V4(_) => None,
    };
    let ue = UeIpAddress { ipv4: v4(Family::V4, session), ipv6: v6(session), role: UeIpRole::Destination };
    let (std::net::IpAddr::V4(n3), std::net::IpAddr::V6(n3_v6)) = (Family::V4.n3(), Family::V6.n3()) else {
        unreachable!("one of each family")
    };
    let fteid = FTeid { teid: Teid(teid(session)), ipv4: Some(n3), ipv6: Some(n3_v6) };
    Pdr {
        pdi: Pdi {
            source_interface: if up { Interface::Access } else { Interface::Core },
            local_fteid: up.then_some(LocalFTeid::Given(fteid)),
            ue_ip: if up { Vec::new() } else { vec![ue] },
            ..Pdi::default()
        },
        outer_header_removal: up.then_some(OuterHeaderRemoval::GtpUUdpIp),
        ..Pdr::default()
    }
}

impl Rules {
    /// What is left of them where all forward, and PDRs have no more than the fast path looks at.
    fn usual(mut self) -> Self {
        for pdr in &mut self.pdrs {
            pdr.urrs.truncate(2);
            pdr.filters.truncate(1);
            pdr.qfis.truncate(1);
            for filter in &mut pdr.filters {
                filter.tos = None;
                filter.remote_ports.truncate(1);
                filter.remote = filter.remote.map(|remote| RemotePlan { family: Family::V4, ..remote });
            }
        }
        for far in &mut self.fars[..FARS_UP] {
            *far = FarPlan::Core;
        }
        for far in self.fars[FARS_UP..].iter_mut().filter(|far| !matches!(far, FarPlan::Tunnel(..))) {
            *far = FarPlan::Tunnel(Family::V4, 0);
        }
        for qer in &mut self.qers {
            (qer.gates, qer.narrow) = ([true; 2], false);
        }
        for urr in &mut self.urrs {
            urr.quota = urr.quota.map(|quota| 4 * quota);
        }
        self
    }

    /// The request for a session of a number.
    pub(super) fn establishment(&self, session: u32) -> Establishment {
        let numbered = self.pdrs.iter().enumerate();
        Establishment {
            cp_fseid: FSeid { seid: Seid(u64::from(session) + 1), ipv4: None, ipv6: None },
            pdrs: numbered.map(|(place, pdr)| pdr.pdr(place, session)).collect(),
            fars: (0..).zip(self.fars).map(|(place, far)| far.far(place, session)).collect(),
            qers: (0..).zip(&self.qers).map(|(place, qer)| qer.qer(place)).collect(),
            urrs: (0..).zip(&self.urrs).map(|(place, urr)| urr.urr(place)).collect(),
            ..Establishment::default()
        }
    }
}
