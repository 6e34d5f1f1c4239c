//! The rules of a session: the plain ones that all other measurements are of, and those that SMFs in use ask for.
//!
//! ```text
//!   plain     2 PDRs   2 FARs   1 QER (QFI)             1 URR
//!   free5GC   2 PDRs   2 FARs   2 QERs (QFI, AMBR)      3 URRs (before and behind QoS, and one of the session)
//!   Open5GS   3 PDRs   3 FARs   1 QER (QFI and AMBR)    1 URR     uplink by QFI; Router Solicitations on its tunnel to the SMF
//!   VoLTE     6 PDRs   2 FARs   3 QERs (AMBR, GBR)      1 URR     default flow, signalling and voice, by QFI and SDF filters
//!   slice     8 PDRs   2 FARs   4 QERs (QFIs)           4 URRs    four flows by QFI and SDF filters
//!   tenant    2 PDRs   2 FARs   1 QER (QFI)             1 URR     an N6 LAN for each tenant, and the same UE addresses in all of them
//!   mixed     of ten sessions six of Open5GS, three of free5GC and one of VoLTE; of twenty one is idle and buffers
//! ```
//! Requests are encoded and decoded as PFCP before they reach a node. Rates and thresholds are so high that no packet is policed and no report
//! is due: it is their looking after that is measured. [`flows`] says which packets a session has.

mod flows;

use std::time::Duration;

use kaido_n4::{
    ApplyAction, BitRate, Establishment, FSeid, FarId, Interface, MeasurementInformation, MeasurementMethod,
    NetworkInstance, Pdr, PdrId, Qer, QerId, Qfi, Rejection, ReportingTriggers, SdfFilter, Seid, Urr, UrrId,
    VolumeThreshold,
};
use kaido_pfcp::{Features, carried};
use serde::Serialize;

pub(crate) use self::flows::{Flow, TENANTS, VLAN_FIRST, tenant_name, tenant_of};
use self::flows::{SINGLE, SLICE, SLICE_TURNS, VOLTE, VOLTE_TURNS};
use crate::family::Family;
use crate::goal;
use crate::network::{QFI, teid};
use crate::session_rules::{downlink_pdr, far, tunnel, uplink_pdr};

/// AMBR of a session, in kbit/s: 1 Tbit/s.
const AMBR_KBPS: u64 = 1_000_000_000;
/// Octets before a report is due: as many as a link of 1 Tbit/s has in days.
const THRESHOLD: u64 = 1 << 56;
/// Seconds between periodic reports, as free5GC asks for them.
const PERIOD: Duration = Duration::from_secs(10);
/// Of so many sessions of [`Shape::Mixed`] the last is idle.
const IDLE_OF: u32 = 20;
/// Of so many there are as many of each kind as there should be. They begin one kind further after each idle one, so that these are
/// of all kinds too.
const COMPOSITION: u32 = 10;
/// After so many sessions of [`Shape::Mixed`] the same come again.
pub(crate) const PERIOD_OF_MIXED: u32 = IDLE_OF * COMPOSITION;
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
    /// Tenants with an N6 LAN each, whose UE addresses overlap.
    Tenant,
    /// Of all sorts, as a core with several kinds of UEs has them.
    Mixed,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Plain, Self::Free5gc, Self::Open5gs, Self::Volte, Self::Slice, Self::Tenant, Self::Mixed];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Free5gc => "free5gc",
            Self::Open5gs => "open5gs",
            Self::Volte => "volte",
            Self::Slice => "slice",
            Self::Tenant => "tenant",
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

    /// How many times less than the map chain's a packet of it may take.
    pub(crate) const fn chain_factor(self) -> f64 {
        if matches!(self, Self::Plain) { goal::CHAIN_FACTOR } else { goal::CHAIN_FACTOR_OF_SHAPES }
    }

    /// Bytes that a session may take.
    pub(crate) const fn goal_bytes(self) -> Option<f64> {
        match self {
            Self::Plain => Some(480.0),
            Self::Free5gc | Self::Open5gs => Some(640.0),
            Self::Volte | Self::Slice | Self::Tenant | Self::Mixed => None,
        }
    }

    /// Lines of session state that a packet touches at least. They are its bucket and record, a counter for each URR of its
    /// rule that counts other packets than the rest, a policer for each rate, and what tells its rule where there are
    /// several.
    pub(crate) fn cold_line_names(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Tenant => &["bucket", "record", "counters"],
            Self::Free5gc | Self::Open5gs | Self::Mixed => &["bucket", "record", "counters", "policer"],
            Self::Volte | Self::Slice => &["bucket", "record", "rules", "counters", "policer"],
        }
    }

    /// Whether packets of a session come out at once, both ways.
    pub(crate) const fn is_active(self, session: u32) -> bool {
        !(matches!(self, Self::Mixed) && session % IDLE_OF == IDLE_OF - 1)
    }

    /// Of so many sessions that follow one another the last has no packets; 0 where all have.
    pub(crate) const fn idle_of(self) -> u32 {
        if matches!(self, Self::Mixed) { IDLE_OF } else { 0 }
    }

    /// How many of so many sessions have packets.
    pub(crate) const fn active_count(self, sessions: u32) -> u32 {
        if matches!(self, Self::Mixed) { sessions - sessions / IDLE_OF } else { sessions }
    }

    /// The session that is a number of those that have packets.
    pub(crate) const fn active(self, number: u32) -> u32 {
        if matches!(self, Self::Mixed) { number + number / (IDLE_OF - 1) } else { number }
    }

    /// Tenants; none where all sessions are of one network.
    pub(crate) const fn tenants(self) -> Option<u16> {
        if matches!(self, Self::Tenant) { Some(TENANTS) } else { None }
    }

    /// The number of a session's UE address: sessions of other tenants have the same.
    pub(crate) fn ue_number(self, session: u32) -> u32 {
        self.tenants().map_or(session, |tenants| session / u32::from(tenants))
    }

    /// The shape of one of its sessions.
    const fn of(self, session: u32) -> Self {
        match (self, (session + session / IDLE_OF) % COMPOSITION) {
            (Self::Mixed, 0..=5) => Self::Open5gs,
            (Self::Mixed, 6..=8) => Self::Free5gc,
            (Self::Mixed, _) => Self::Volte,
            _ => self,
        }
    }

    /// The flows that packets of its sessions are of, in the order of precedence. Sessions of [`Shape::Mixed`] that are not VoLTE have the
    /// last one alone.
    pub(crate) const fn flows(self) -> &'static [Flow] {
        match self {
            Self::Volte | Self::Mixed => &VOLTE,
            Self::Slice => &SLICE,
            Self::Plain | Self::Free5gc | Self::Open5gs | Self::Tenant => &SINGLE,
        }
    }

    /// Those of one of its sessions.
    pub(crate) const fn flows_of(self, session: u32) -> &'static [Flow] {
        self.of(session).flows()
    }

    /// The sessions, of so many, that have packets of a flow.
    pub(crate) fn sessions_of(self, flow: usize, sessions: u32) -> impl Iterator<Item = u32> {
        let is_last = flow + 1 == self.flows().len();
        let has = move |session: &u32| is_last || self.flows_of(*session).len() > 1;
        (0..sessions).filter(move |session| self.is_active(*session)).filter(has)
    }

    /// The packets of a flow beside those of the others, by the sessions that have it.
    pub(crate) fn flow_weight(self, flow: usize) -> f64 {
        let of = |session| match self.flows_of(session).len() {
            1 => 16,
            _ => self.flow_share(flow),
        };
        self.sessions_of(flow, PERIOD_OF_MIXED).map(of).sum::<usize>() as f64
    }

    /// Which of [`Shape::flows`] a packet at a place of a run is of.
    pub(crate) const fn flow_at(self, session: u32, place: u64) -> usize {
        // The golden ratio: equal shares, whatever the number of sessions.
        let turn = (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize;
        match self.of(session) {
            Self::Volte => VOLTE_TURNS[turn],
            Self::Slice => SLICE_TURNS[turn],
            _ => self.flows().len() - 1,
        }
    }

    /// Packets of a flow of sixteen of a session with several.
    fn flow_share(self, flow: usize) -> usize {
        let turns = match self {
            Self::Volte | Self::Mixed => VOLTE_TURNS,
            Self::Slice => SLICE_TURNS,
            _ => [0; 16],
        };
        turns.into_iter().filter(|turn| *turn == flow).count()
    }

    /// The request for a session of this shape as a user plane gets it: by way of PFCP.
    pub(crate) fn requested(self, family: Family, session: u32) -> Result<Establishment, Rejection> {
        carried(&self.establishment(family, session), Features::default())
    }

    /// Whether sessions of this shape report their usage every [`PERIOD`].
    pub(crate) fn has_periods(self) -> bool {
        let urrs = |session| self.establishment(Family::V4, session).urrs;
        (0..COMPOSITION).flat_map(urrs).any(|urr| urr.measurement_period.is_some())
    }

    /// The request for a session of this shape, by its number, as a control plane writes it: its rules name the bench's addresses.
    pub fn establishment(self, family: Family, session: u32) -> Establishment {
        let mut request = Establishment {
            cp_fseid: FSeid { seid: Seid(u64::from(session) + 1), ipv4: None, ipv6: None },
            pdrs: vec![uplink_pdr(family, session), downlink_pdr(family, self.ue_number(session))],
            fars: vec![
                far(1, Interface::Core, None),
                far(2, Interface::Access, Some(tunnel(family, teid(session)))),
            ],
            ..Establishment::default()
        };
        match self.of(session) {
            Self::Plain | Self::Tenant | Self::Mixed => {
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
        if self == Self::Tenant {
            let name = Some(NetworkInstance(tenant_name(tenant_of(session)).into()));
            request.pdrs[1].pdi.network_instance.clone_from(&name);
            if let Some(forwarding) = &mut request.fars[0].forwarding {
                forwarding.network_instance = name;
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

/// Makes the two PDRs of a request those of the last flow, and adds those of the others, with a QER each.
fn add_flows(request: &mut Establishment, family: Family, session: u32, flows: &[Flow]) {
    request.pdrs.clear();
    for ((number, id), flow) in (1u16..).zip(1u32..).zip(flows) {
        let qer = Qer { qfi: Some(Qfi(flow.qfi)), ..Qer::open(QerId(id)) };
        let rate = |is_limited: bool| is_limited.then(ambr);
        request.qers.push(Qer { mbr: rate(flow.has_mbr), gbr: rate(flow.has_gbr), ..qer });
        let mut up = Pdr { id: PdrId(2 * number - 1), ..uplink_pdr(family, session) };
        up.pdi.qfis = vec![Qfi(flow.qfi)];
        let down = Pdr { id: PdrId(2 * number), ..downlink_pdr(family, session) };
        for mut rule in [up, down] {
            rule.precedence = 10 * u32::from(number);
            // They are flow descriptions, as the test of flows reads them.
            let description = flow.description(family);
            rule.pdi.sdf_filters = description.iter().flat_map(|text| SdfFilter::parse(text)).collect();
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
    use crate::frames::{Direction, Template, Templates};
    use crate::node::UpfNode;
    use crate::rounds::{Frames, Order, round};

    #[test]
    fn sessions_have_the_rules_that_smfs_send() {
        let counts = |shape: Shape| {
            let request = shape.establishment(Family::V4, 4);
            [request.pdrs.len(), request.fars.len(), request.qers.len(), request.urrs.len()]
        };
        let expected = [
            [2, 2, 1, 1],
            [2, 2, 2, 3],
            [3, 3, 1, 1],
            [6, 2, 3, 1],
            [8, 2, 4, 4],
            [2, 2, 1, 1],
            [3, 3, 1, 1],
        ];
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

    /// What a control plane writes is what the user plane reads.
    #[test]
    fn all_shapes_arrive_by_pfcp_as_they_were_sent() {
        for (shape, session) in Shape::ALL.into_iter().flat_map(|shape| (0..40).map(move |n| (shape, n))) {
            for family in Family::ALL {
                let sent = shape.establishment(family, session);
                let mut arrived = shape.requested(family, session).unwrap();
                // An F-SEID has an address.
                arrived.cp_fseid.ipv4 = None;
                assert_eq!(arrived, sent, "{shape:?} {session}");
            }
        }
    }

    /// The packets that all sessions have, and those of every flow.
    #[test]
    fn all_shapes_forward() {
        let stop = AtomicBool::new(false);
        for shape in Shape::ALL {
            let pool = FramePool::leak(4096).unwrap();
            let mut node = UpfNode::of_shape(shape, 20, pool, 600).unwrap();
            node.establish(20, &stop, &|_| ()).unwrap();
            let mut frames = Frames::new(pool, 512);
            for direction in Direction::ALL {
                let template = Template::of_shape(shape, direction, 128);
                let mut order = Order::new(20, 1).of_shape(shape);
                let told = |error| panic!("{}: {error}", shape.name());
                round(&mut node.forwarder, &mut frames, &template, &mut order, &stop).unwrap_or_else(told);
                let flows = Templates::new(shape, Family::V4, direction, 128);
                round(&mut node.forwarder, &mut frames, &flows, &mut order, &stop).unwrap_or_else(told);
            }
        }
    }

    /// Of one packet of a flow, by a worker that knows tunnels and next hops already.
    #[cfg(debug_assertions)]
    fn waits_of(shape: Shape, flow: usize, direction: Direction) -> kaido_table::waits::WaitCounts {
        let (stop, pool) = (AtomicBool::new(false), FramePool::leak(64).unwrap());
        let mut node = UpfNode::of_shape(shape, 20, pool, 4).unwrap();
        node.establish(20, &stop, &|_| ()).unwrap();
        let mut frames = Frames::new(pool, 1);
        let template = Template::of_flow((shape, &shape.flows()[flow]), Family::V4, direction, 128);
        // Round after round, of whichever sessions.
        let mut order = Order::new(20, 1).of_shape(shape);
        let mut one = |node: &mut UpfNode| {
            round(&mut node.forwarder, &mut frames, &template, &mut order, &stop).unwrap();
        };
        (0..20).for_each(|_| one(&mut node));
        kaido_table::waits::counted(|| one(&mut node))
    }

    /// What a packet of the fast path waits for, by shape and flow: the lookup (bucket and record) and one more, and one more still
    /// where rules lie in lines. Each line is asked for before it is read. Who adds a line, or one that follows from another, changes
    /// these numbers: state the new ones here, in `cold_line_names` and in docs/benchmarks.md, or do without.
    #[cfg(debug_assertions)]
    #[test]
    fn packets_wait_for_memory_as_often_as_is_said() {
        use kaido_table::waits::WaitCounts;

        const LOOKUP: usize = 2;
        // Shape, flow, lines that are read, and waits beside the lookup.
        let expected: [(Shape, usize, usize, usize); 11] = [
            (Shape::Plain, 0, 3, 1),
            (Shape::Free5gc, 0, 4, 1),
            (Shape::Open5gs, 0, 4, 1),
            (Shape::Tenant, 0, 3, 1),
            // Voice has a rate and a guaranteed one, signalling none; the default flow is the third line.
            (Shape::Volte, 0, 2 + 1 + 3, 2),
            (Shape::Volte, 1, 2 + 2 + 1, 2),
            (Shape::Volte, 2, 2 + 3 + 2, 2),
            (Shape::Slice, 0, 2 + 1 + 2, 2),
            (Shape::Slice, 1, 2 + 2 + 2, 2),
            (Shape::Slice, 2, 2 + 3 + 2, 2),
            (Shape::Slice, 3, 2 + 4 + 2, 2),
        ];
        for (shape, flow, lines, more) in expected {
            for direction in Direction::ALL {
                let told = WaitCounts { lines, chain: LOOKUP + more, unasked: 0 };
                assert_eq!(waits_of(shape, flow, direction), told, "{shape:?}, flow {flow}, {direction:?}");
            }
        }
        // What the report names as the least of a shape.
        for shape in [Shape::Plain, Shape::Free5gc, Shape::Open5gs, Shape::Tenant] {
            assert_eq!(waits_of(shape, 0, Direction::Uplink).lines, shape.cold_line_names().len());
        }
    }
}
