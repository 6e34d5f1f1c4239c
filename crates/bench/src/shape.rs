//! The rules of a session: the plain ones that all other measurements are of, and those that SMFs in use ask for.
//!
//! ```text
//!   plain     2 PDRs   2 FARs   1 QER (QFI)             1 URR
//!   free5GC   2 PDRs   2 FARs   2 QERs (QFI, AMBR)      3 URRs (before and behind QoS, and one of the session)
//!   Open5GS   3 PDRs   3 FARs   1 QER (QFI and AMBR)    1 URR     uplink by QFI; Router Solicitations on its tunnel to the SMF
//! ```
//! They are what PFCP requests decode into. Rates and thresholds are so high that no packet is policed and no report is due: it
//! is their looking after that is measured.

use std::time::Duration;

use kaido_upf::rules::{
    BitRate, Establishment, FSeid, FarId, Interface, MeasurementInformation, MeasurementMethod, Pdr, PdrId,
    Qer, QerId, Qfi, ReportingTriggers, SdfFilter, Seid, Urr, UrrId, VolumeThreshold,
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
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Free5gc, Self::Open5gs];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Free5gc => "free5gc",
            Self::Open5gs => "open5gs",
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
        match self {
            Self::Plain => {
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
        }
        for rule in &mut request.pdrs {
            rule.qer_ids = request.qers.iter().map(|qer| qer.id).collect();
            rule.urr_ids = request.urrs.iter().map(|urr| urr.id).collect();
        }
        request
    }
}

impl std::str::FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|shape| shape.name() == text);
        named.ok_or_else(|| format!("`{text}` is no shape: give plain, free5gc or open5gs"))
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
        assert_eq!(Shape::ALL.map(counts), [[2, 2, 1, 1], [2, 2, 2, 3], [3, 3, 1, 1]]);
        let open5gs = Shape::Open5gs.establishment(Family::V4, 4);
        let tunnel = &open5gs.pdrs[0].pdi.local_fteid;
        assert!(tunnel.is_some() && *tunnel == open5gs.pdrs[2].pdi.local_fteid);
        assert_eq!(open5gs.pdrs[2].pdi.sdf_filters.len(), 1);
        assert!(open5gs.pdrs[2].precedence < open5gs.pdrs[0].precedence);
        assert_eq!("open5gs".parse(), Ok(Shape::Open5gs));
        assert!("oai".parse::<Shape>().unwrap_err().contains("plain, free5gc or open5gs"));
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
                let mut order = Order::new(20, 1);
                round(&mut node.forwarder, &mut frames, &template, &mut order, &stop)
                    .unwrap_or_else(|error| panic!("{}: {error}", shape.name()));
            }
        }
    }
}
