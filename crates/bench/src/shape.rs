//! The rules of a session: the plain ones that all other measurements are of, and those that SMFs in use ask for.
//!
//! ```text
//!   plain     2 PDRs   2 FARs   1 QER (QFI)             1 URR
//!   free5GC   2 PDRs   2 FARs   2 QERs (QFI, AMBR)      3 URRs (before and behind QoS, and one of the session)
//!   Open5GS   3 PDRs   3 FARs   1 QER (QFI and AMBR)    1 URR     uplink by QFI; Router Solicitations on its tunnel to the SMF
//!   VoLTE     6 PDRs   2 FARs   3 QERs (AMBR, GBR)      1 URR     default flow, signalling and voice, by QFI and SDF filters
//!   slice     8 PDRs   2 FARs   4 QERs (QFIs)           4 URRs    four flows by QFI and SDF filters
//!   mixed     of ten sessions six of Open5GS, three of free5GC and one of VoLTE; of twenty one is idle and buffers
//! ```
//! Packets of VoLTE are of the default flow, behind the rules of the two others; those of the slice match the third of its four flows.
//! They are what PFCP requests decode into. Rates and thresholds are so high that no packet is policed and no report is due: it
//! is their looking after that is measured.

use std::time::Duration;

use kaido_upf::rules::{
    ApplyAction, BitRate, Establishment, FSeid, FarId, Interface, MeasurementInformation, MeasurementMethod,
    Pdr, PdrId, Qer, QerId, Qfi, ReportingTriggers, SdfFilter, Seid, Urr, UrrId, VolumeThreshold,
};
use serde::Serialize;

use crate::frames::{Family, QFI, teid};
use crate::node::{downlink_pdr, far, tunnel, uplink_pdr};

/// AMBR of a session, in kbit/s: 1 Tbit/s.
const AMBR_KBPS: u64 = 1_000_000_000;
/// Octets before a report is due: as many as a link of 1 Tbit/s has in days.
const THRESHOLD: u64 = 1 << 56;
/// Seconds between periodic reports, as free5GC asks for them.
const PERIOD: Duration = Duration::from_secs(10);
/// Of so many sessions of [`Shape::Mixed`] the last is idle.
const IDLE_OF: u32 = 20;
/// The filter by which Open5GS gets Router Solicitations.
const ROUTER_SOLICITATION: &str = "permit out 58 from ff02::2/128 to assigned";

/// Of which kind sessions are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Two PDRs, two FARs, one QER that marks a QoS flow, one URR that counts.
    #[default]
    Plain,
    /// As free5GC's SMF asks for it.
    Free5gc,
    /// As Open5GS' SMF asks for it.
    Open5gs,
    /// A UE with signalling and voice beside its default flow.
    Volte,
    /// Four flows with a QER and a URR each.
    Slice,
    /// Of all sorts, as a core with several kinds of UEs has them.
    Mixed,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Plain, Self::Free5gc, Self::Open5gs, Self::Volte, Self::Slice, Self::Mixed];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Free5gc => "free5gc",
            Self::Open5gs => "open5gs",
            Self::Volte => "volte",
            Self::Slice => "slice",
            Self::Mixed => "mixed",
        }
    }

    /// What a packet of it may take, in times what one of a plain session takes; of many sessions, and of one.
    pub(crate) const fn goal_factor(self, sessions: u32) -> f64 {
        match (self, sessions) {
            (_, 1) => 1.6,
            (Self::Volte | Self::Slice, _) => 2.5,
            _ => 1.5,
        }
    }

    /// Bytes that a session may take.
    pub(crate) const fn goal_bytes(self) -> Option<f64> {
        match self {
            Self::Plain => Some(480.0),
            Self::Free5gc | Self::Open5gs => Some(640.0),
            Self::Volte | Self::Slice | Self::Mixed => None,
        }
    }

    /// Lines of session state that a packet touches at least: its bucket and record, a counter for each URR of its rule that
    /// counts other packets than the rest, a policer for each rate, and what tells its rule where there are several.
    pub(crate) fn cold_line_names(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["bucket", "record", "counters"],
            Self::Free5gc | Self::Open5gs | Self::Mixed => &["bucket", "record", "counters", "policer"],
            Self::Volte | Self::Slice => &["bucket", "record", "rules", "counters", "policer"],
        }
    }

    /// Whether packets of a session come out at once, both ways.
    pub(crate) const fn is_active(self, session: u32) -> bool {
        !(matches!(self, Self::Mixed) && session % IDLE_OF == IDLE_OF - 1)
    }

    /// The shape of one of its sessions.
    const fn of(self, session: u32) -> Self {
        match (self, session % 10) {
            (Self::Mixed, 0..=5) => Self::Open5gs,
            (Self::Mixed, 6..=8) => Self::Free5gc,
            (Self::Mixed, _) => Self::Volte,
            _ => self,
        }
    }

    /// A session of this shape.
    pub(crate) fn establishment(self, family: Family, session: u32) -> Establishment {
        let mut request = Establishment {
            cp_fseid: FSeid { seid: Seid(u64::from(session) + 1), ipv4: None, ipv6: None },
            pdrs: vec![uplink_pdr(family, session), downlink_pdr(family, session)],
            fars: vec![
                far(1, Interface::Core, None),
                far(2, Interface::Access, Some(tunnel(family, teid(session)))),
            ],
            ..Establishment::default()
        };
        match self.of(session) {
            Self::Plain | Self::Mixed => {
                request.qers = vec![flow(1)];
                request.urrs = vec![Urr { information: counted(false), ..volume(1) }];
            }
            Self::Free5gc => {
                request.qers = vec![flow(2), Qer { mbr: Some(ambr()), ..flow(1) }];
                request.urrs = vec![metered(1, true), metered(2, false), metered(3, false)];
            }
            Self::Open5gs => {
                request.qers = vec![Qer { mbr: Some(ambr()), ..flow(1) }];
                request.urrs = vec![metered(1, false)];
                request.pdrs[0].pdi.qfis = vec![Qfi(QFI)];
                request.pdrs.push(router_solicitations(family, session));
                request.fars.push(far(3, Interface::CpFunction, Some(tunnel(family, teid(session)))));
            }
            Self::Volte => {
                add_flows(&mut request, family, session, &VOLTE);
                request.urrs = vec![metered(1, false)];
            }
            Self::Slice => {
                add_flows(&mut request, family, session, &SLICE);
                request.urrs = (1..=4).map(|id| metered(id, false)).collect();
                for rule in &mut request.pdrs {
                    rule.urr_ids = rule.qer_ids.iter().map(|id| UrrId(id.0)).collect();
                }
            }
        }
        for rule in &mut request.pdrs {
            if rule.qer_ids.is_empty() {
                rule.qer_ids = request.qers.iter().map(|qer| qer.id).collect();
            }
            if rule.urr_ids.is_empty() {
                rule.urr_ids = request.urrs.iter().map(|urr| urr.id).collect();
            }
        }
        if !self.is_active(session) {
            request.fars[1].apply_action =
                ApplyAction { buffer: true, notify_cp: true, ..ApplyAction::default() };
        }
        request
    }
}

impl std::str::FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|shape| shape.name() == text);
        named.ok_or_else(|| format!("`{text}` is no shape: give {}", Self::ALL.map(Self::name).join(", ")))
    }
}

fn flow(id: u32) -> Qer {
    Qer { qfi: Some(Qfi(QFI)), ..Qer::open(QerId(id)) }
}

const fn ambr() -> BitRate {
    BitRate { uplink_kbps: AMBR_KBPS, downlink_kbps: AMBR_KBPS }
}

fn volume(id: u32) -> Urr {
    let method = MeasurementMethod { volume: true, ..MeasurementMethod::default() };
    Urr { id: UrrId(id), method, ..Urr::default() }
}

fn counted(before_qos: bool) -> MeasurementInformation {
    MeasurementInformation { before_qos, count_packets: true, ..MeasurementInformation::default() }
}

/// Volume with a threshold in each direction, and reports in between.
fn metered(id: u32, before_qos: bool) -> Urr {
    Urr {
        triggers: ReportingTriggers::PERIO.union(ReportingTriggers::VOLTH),
        measurement_period: Some(PERIOD),
        volume_threshold: Some(VolumeThreshold {
            total: None,
            uplink: Some(THRESHOLD),
            downlink: Some(THRESHOLD),
        }),
        information: counted(before_qos),
        ..volume(id)
    }
}

/// A QoS flow of a session: its QFI, its SDF filter, if any, and the rates of its QER, in kbit/s: MBR and GBR.
struct Flow {
    qfi: u8,
    filter: Option<&'static str>,
    mbr: Option<u64>,
    gbr: Option<u64>,
}

/// In the order of precedence.
const VOLTE: [Flow; 3] = [
    Flow {
        qfi: 1,
        filter: Some("permit out 17 from 10.201.0.0/16 20000-40000 to assigned"),
        mbr: Some(128),
        gbr: Some(128),
    },
    Flow { qfi: 5, filter: Some("permit out ip from 10.200.0.0/16 to assigned"), mbr: None, gbr: None },
    Flow { qfi: QFI, filter: None, mbr: Some(AMBR_KBPS), gbr: None },
];
const SLICE: [Flow; 4] = [
    Flow {
        qfi: 1,
        filter: Some("permit out 6 from 172.16.0.0/12 to assigned"),
        mbr: Some(AMBR_KBPS),
        gbr: None,
    },
    Flow {
        qfi: 2,
        filter: Some("permit out 17 from 192.0.2.0/24 5000-6000 to assigned"),
        mbr: Some(AMBR_KBPS),
        gbr: None,
    },
    // That of the packets.
    Flow {
        qfi: QFI,
        filter: Some("permit out 17 from 8.8.8.0/24 443 to assigned"),
        mbr: Some(AMBR_KBPS),
        gbr: None,
    },
    Flow { qfi: 4, filter: Some("permit out ip from any to assigned"), mbr: Some(AMBR_KBPS), gbr: None },
];

/// Makes the two PDRs of a request those of the last flow, and adds those of the others, with a QER each.
fn add_flows(request: &mut Establishment, family: Family, session: u32, flows: &[Flow]) {
    request.pdrs.clear();
    for ((number, id), flow) in (1u16..).zip(1u32..).zip(flows) {
        let rate = |kbps| BitRate { uplink_kbps: kbps, downlink_kbps: kbps };
        let qer = Qer { qfi: Some(Qfi(flow.qfi)), ..Qer::open(QerId(id)) };
        request.qers.push(Qer { mbr: flow.mbr.map(rate), gbr: flow.gbr.map(rate), ..qer });
        let mut up = Pdr { id: PdrId(2 * number - 1), ..uplink_pdr(family, session) };
        up.pdi.qfis = vec![Qfi(flow.qfi)];
        let down = Pdr { id: PdrId(2 * number), ..downlink_pdr(family, session) };
        for mut rule in [up, down] {
            rule.precedence = 10 * u32::from(number);
            // They are flow descriptions, as the test reads them.
            rule.pdi.sdf_filters = flow.filter.into_iter().flat_map(SdfFilter::parse).collect();
            rule.qer_ids = vec![QerId(id)];
            request.pdrs.push(rule);
        }
    }
}

/// The PDR that shares the uplink's tunnel and comes before it.
fn router_solicitations(family: Family, session: u32) -> Pdr {
    let mut rule = Pdr { id: PdrId(3), precedence: 10, ..uplink_pdr(family, session) };
    rule.far_id = Some(FarId(3));
    // It is a flow description, as the test reads it.
    rule.pdi.sdf_filters = SdfFilter::parse(ROUTER_SOLICITATION).into_iter().collect();
    rule
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use kaido_engine::FramePool;

    use super::*;
    use crate::frames::{Direction, Template};
    use crate::node::UpfNode;
    use crate::rounds::{Frames, Order, round};

    #[test]
    fn sessions_have_the_rules_that_smfs_send() {
        let counts = |shape: Shape| {
            let request = shape.establishment(Family::V4, 4);
            [request.pdrs.len(), request.fars.len(), request.qers.len(), request.urrs.len()]
        };
        let expected = [[2, 2, 1, 1], [2, 2, 2, 3], [3, 3, 1, 1], [6, 2, 3, 1], [8, 2, 4, 4], [3, 3, 1, 1]];
        assert_eq!(Shape::ALL.map(counts), expected);
        for (shape, filters) in [(Shape::Volte, 4), (Shape::Slice, 8)] {
            let request = shape.establishment(Family::V4, 4);
            assert_eq!(request.pdrs.iter().map(|pdr| pdr.pdi.sdf_filters.len()).sum::<usize>(), filters);
        }
        let of_mixed = |session| Shape::Mixed.establishment(Family::V4, session).pdrs.len();
        assert_eq!([0, 6, 9].map(of_mixed), [3, 2, 6]);
        let idle = Shape::Mixed.establishment(Family::V4, 19);
        assert!(idle.fars[1].apply_action.buffer && !Shape::Mixed.is_active(19));
        let open5gs = Shape::Open5gs.establishment(Family::V4, 4);
        let tunnel = &open5gs.pdrs[0].pdi.local_fteid;
        assert!(tunnel.is_some() && *tunnel == open5gs.pdrs[2].pdi.local_fteid);
        assert_eq!(open5gs.pdrs[2].pdi.sdf_filters.len(), 1);
        assert!(open5gs.pdrs[2].precedence < open5gs.pdrs[0].precedence);
        assert_eq!("open5gs".parse(), Ok(Shape::Open5gs));
        assert!("oai".parse::<Shape>().unwrap_err().contains("plain, free5gc, open5gs, volte"));
    }

    /// Packets come out octet for octet as those of plain sessions do.
    #[test]
    fn all_shapes_forward() {
        let stop = AtomicBool::new(false);
        for shape in Shape::ALL {
            let pool = FramePool::leak(4096).unwrap();
            let mut node = UpfNode::new(20, pool, 600).unwrap().of_shape(shape);
            node.establish(20, &stop, &|_| ()).unwrap();
            let mut frames = Frames::new(pool, 512);
            for direction in Direction::ALL {
                let template = Template::new(direction, 128);
                let mut order = Order::new(20, 1).of_shape(shape);
                round(&mut node.forwarder, &mut frames, &template, &mut order, &stop)
                    .unwrap_or_else(|error| panic!("{}: {error}", shape.name()));
            }
        }
    }
}
