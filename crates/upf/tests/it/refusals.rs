//! A request that is refused changes nothing, whatever came before it (TS 29.244 7.5, cause values of 8.2.1).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::SystemTime;

use crate::fixture::{Rig, SessionPlan, settings};
use kaido_n4::{
    ApplyAction, BarId, BitRate, Cause, ChooseOr, Establishment, FSeid, FTeid, Far, FarId, Interface,
    LocalFTeid, Modification, OuterHeaderRemoval, Pdi, Pdr, PdrId, Qer, QerId, Qfi, QosMonitoring,
    RemovedForwarding, Seid, SessionService, Srr, SrrId, Teid, UeIpAddress, UeIpRole, UpdateFar,
    UpdateForwardingParameters, UpdatePdr, Urr, UrrId,
};
use kaido_upf::control::{SessionSummary, Upf};
use kaido_upf::node::NodeSettings;
use proptest::prelude::*;

/// Few values, so that requests meet each other.
const TEIDS: u32 = 6;
const SESSIONS_MAX: u32 = 5;

/// A session as a request describes it.
#[derive(Clone, Copy, Debug)]
struct Shape {
    teid: u32,
    ue: u8,
    /// The FAR that the rules name; there are FAR 1 and 2.
    far: u32,
    /// The URR that they name; there is URR 1.
    urr: u32,
    /// Leaves UE address or F-TEID to the node.
    choose: (bool, bool),
    more_fars: u16,
}

#[derive(Clone, Debug)]
enum Step {
    Establish(Shape),
    /// Changes the session at a place, or one that is not.
    Modify(usize, Change),
    Delete(usize),
}

#[derive(Clone, Debug)]
enum Change {
    AddPdr(Shape, u16),
    MovePdr(Shape),
    RemovePdr(u16),
    RemoveFar(u32),
    RemoveUrr(u32),
    UpdateFar(u32),
    AddUrr(u32),
    Query(u32),
    CpMoves,
    BarOf(u32),
}

fn shape() -> impl Strategy<Value = Shape> {
    let fars = prop_oneof![9 => Just(0u16), 1 => Just(300u16)];
    (1..=TEIDS, 0..6u8, 1..4u32, 1..3u32, any::<(bool, bool)>(), fars)
        .prop_map(|(teid, ue, far, urr, choose, more_fars)| Shape { teid, ue, far, urr, choose, more_fars })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (shape(), 1..5u16).prop_map(|(shape, id)| Change::AddPdr(shape, id)),
        shape().prop_map(Change::MovePdr),
        (1..5u16).prop_map(Change::RemovePdr),
        (1..5u32).prop_map(Change::RemoveFar),
        (1..4u32).prop_map(Change::RemoveUrr),
        (1..5u32).prop_map(Change::UpdateFar),
        (1..4u32).prop_map(Change::AddUrr),
        (1..4u32).prop_map(Change::Query),
        Just(Change::CpMoves),
        (1..5u32).prop_map(Change::BarOf),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => shape().prop_map(Step::Establish),
        5 => (0..7usize, change()).prop_map(|(place, change)| Step::Modify(place, change)),
        1 => (0..7usize).prop_map(Step::Delete),
    ]
}

fn pdr(shape: Shape, id: u16, uplink: bool) -> Pdr {
    let (choose_teid, choose_ue) = shape.choose;
    let local_fteid = if choose_teid {
        LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: None }
    } else {
        let ipv4 = Some(Ipv4Addr::new(10, 100, 3, 1));
        LocalFTeid::Given(FTeid { teid: Teid(shape.teid), ipv4, ipv6: None })
    };
    let ipv4 = if choose_ue { ChooseOr::Choose } else { ChooseOr::Given(Ipv4Addr::new(10, 60, 0, shape.ue)) };
    let ue = |role| vec![UeIpAddress { ipv4: Some(ipv4), ipv6: None, role }];
    let pdi = if uplink {
        Pdi { source_interface: Interface::Access, local_fteid: Some(local_fteid), ..Pdi::default() }
    } else {
        Pdi { source_interface: Interface::Core, ue_ip: ue(UeIpRole::Destination), ..Pdi::default() }
    };
    Pdr {
        id: PdrId(id),
        precedence: 100,
        pdi,
        outer_header_removal: uplink.then_some(OuterHeaderRemoval::GtpUUdpIp),
        far_id: Some(FarId(shape.far)),
        urr_ids: vec![UrrId(shape.urr)],
        qer_ids: Vec::<QerId>::new(),
        ..Pdr::default()
    }
}

fn far(id: u32) -> Far {
    Far { id: FarId(id), ..SessionPlan::ipv4(1).uplink_far() }
}

fn urr(id: u32) -> Urr {
    Urr { id: UrrId(id), ..SessionPlan::ipv4(1).urr() }
}

fn establishment(shape: Shape) -> Establishment {
    let fars = (1..=2).chain(10..10 + u32::from(shape.more_fars));
    Establishment {
        cp_fseid: FSeid { seid: Seid(7), ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)), ipv6: None },
        pdrs: vec![pdr(shape, 1, true), pdr(shape, 2, false)],
        fars: fars.map(far).collect(),
        urrs: vec![urr(1)],
        ..Establishment::default()
    }
}

fn modification(change: &Change) -> Modification {
    let none = Modification::default();
    match *change {
        Change::AddPdr(shape, id) => Modification { create_pdrs: vec![pdr(shape, id, id % 2 == 1)], ..none },
        Change::MovePdr(shape) => {
            let shape = Shape { choose: (false, false), ..shape };
            let pdi = Some(pdr(shape, 1, true).pdi);
            let far_id = Some(FarId(shape.far));
            Modification {
                update_pdrs: vec![UpdatePdr { id: PdrId(1), pdi, far_id, ..UpdatePdr::default() }],
                ..none
            }
        }
        Change::RemovePdr(id) => Modification { remove_pdrs: vec![PdrId(id)], ..none },
        Change::RemoveFar(id) => Modification { remove_fars: vec![FarId(id)], ..none },
        Change::RemoveUrr(id) => Modification { remove_urrs: vec![UrrId(id)], ..none },
        Change::UpdateFar(id) => {
            let apply_action = Some(ApplyAction { drop: true, ..ApplyAction::default() });
            let update = UpdateFar { id: FarId(id), apply_action, ..UpdateFar::default() };
            Modification { update_fars: vec![update], ..none }
        }
        Change::AddUrr(id) => Modification { create_urrs: vec![urr(id)], ..none },
        Change::Query(id) => Modification { query_urrs: vec![UrrId(id)], ..none },
        Change::CpMoves => {
            let ipv4 = Some(Ipv4Addr::new(10, 0, 0, 2));
            Modification { cp_fseid: Some(FSeid { seid: Seid(8), ipv4, ipv6: None }), ..none }
        }
        Change::BarOf(id) => {
            let update = UpdateFar { id: FarId(id), bar_id: Some(BarId(9)), ..UpdateFar::default() };
            Modification { update_fars: vec![update], ..none }
        }
    }
}

/// All that can be seen of the user plane from outside.
fn seen(upf: &Upf) -> (Vec<SessionSummary>, usize, u8) {
    (upf.sessions(0, 100), upf.node().table.len(), upf.load())
}

fn run(steps: &[Step]) -> Result<(), TestCaseError> {
    let rig = Rig::with(NodeSettings { sessions_max: SESSIONS_MAX, ..settings() });
    let mut upf = rig.upf;
    let now = SystemTime::now();
    let empty = seen(&upf);
    let mut model: BTreeMap<usize, Seid> = BTreeMap::new();
    for step in steps {
        let before = seen(&upf);
        let seid = |place: &usize| model.get(place).copied().unwrap_or(Seid(0x8000_0000_0000_0000));
        let refused = match step {
            Step::Establish(shape) => match upf.establish(&establishment(*shape), now) {
                Ok(established) => {
                    let place = (0..).find(|place| !model.contains_key(place)).unwrap();
                    model.insert(place, established.seid);
                    None
                }
                Err(why) => Some(why),
            },
            Step::Modify(place, change) => upf.modify(seid(place), &modification(change), now).err(),
            Step::Delete(place) => {
                let deleted = upf.delete(seid(place), now);
                if deleted.is_ok() {
                    model.remove(place);
                }
                deleted.err()
            }
        };
        prop_assert_eq!(upf.len(), model.len());
        if let Some(why) = refused {
            prop_assert_eq!(&before, &seen(&upf), "{:?} was refused with {:?}", step, why);
        }
    }
    for seid in model.into_values() {
        prop_assert!(upf.delete(seid, now).is_ok());
    }
    prop_assert_eq!(seen(&upf), empty, "nothing is left");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Conformance: TS 29.244 6.3.1 | A refused session request leaves everything as it was
    #[test]
    fn what_is_refused_changes_nothing(steps in prop::collection::vec(step(), 1..40)) {
        run(&steps)?;
    }
}

/// Conformance: TS 29.244 8.2.1 | One session too many, and one rule too many: cause 75
#[test]
fn limits_answer_cause_75() {
    let rig = Rig::with(NodeSettings { sessions_max: SESSIONS_MAX, ..settings() });
    let mut upf = rig.upf;
    let now = SystemTime::now();
    let shape = |at: u8| Shape {
        teid: u32::from(at) + 1,
        ue: at + 1,
        far: 1,
        urr: 1,
        choose: (false, false),
        more_fars: 0,
    };
    let flood = Shape { more_fars: 300, ..shape(0) };
    assert_eq!(upf.establish(&establishment(flood), now).unwrap_err().cause, Cause::NoResourcesAvailable);
    for at in 0..5 {
        upf.establish(&establishment(shape(at)), now).unwrap();
    }
    let before = seen(&upf);
    for at in 5..200 {
        let why = upf.establish(&establishment(shape(at)), now).unwrap_err();
        assert_eq!(why.cause, Cause::NoResourcesAvailable);
    }
    assert_eq!(seen(&upf), before);
}

/// Conformance: TS 29.244 5.6.3 | What an update gives with null length is taken away from a PDR or FAR
#[test]
fn an_update_takes_parameters_away() {
    let mut upf = Rig::new().upf;
    let now = SystemTime::now();
    let seid = upf.establish(&SessionPlan::ipv4(1).establishment(), now).unwrap().seid;
    let before = seen(&upf);
    let kept = UpdatePdr { id: PdrId(1), keeps_outer_header: true, ..UpdatePdr::default() };
    let request = Modification { update_pdrs: vec![kept], ..Modification::default() };
    upf.modify(seid, &request, now).expect("GTP-U ends here, whatever a PDR says of the header");
    let no_tunnel = |apply_action| {
        let removed = RemovedForwarding { outer_header_creation: true, ..RemovedForwarding::default() };
        let forwarding = UpdateForwardingParameters { removed, ..UpdateForwardingParameters::default() };
        let far =
            UpdateFar { id: FarId(2), apply_action, forwarding: Some(forwarding), ..UpdateFar::default() };
        Modification { update_fars: vec![far], ..Modification::default() }
    };
    assert_eq!(seen(&upf), before);
    assert_eq!(upf.sessions(0, 1)[0].remote.len(), 1);
    let drop = ApplyAction { drop: true, ..ApplyAction::default() };
    upf.modify(seid, &no_tunnel(Some(drop)), now).unwrap();
    assert!(upf.sessions(0, 1)[0].remote.is_empty());
}

/// As many uplink rules as the table of few sessions has no room for.
fn many_keys() -> Vec<Pdr> {
    let rule = |number: u16| {
        let shape = Shape {
            teid: 2000 + u32::from(number),
            ue: 0,
            far: 1,
            urr: 1,
            choose: (false, false),
            more_fars: 0,
        };
        pdr(shape, number, true)
    };
    (100..300).map(rule).collect()
}

/// Conformance: TS 29.244 8.2.1 | A table that fills half way through a request is as it was before, and its keys are free
#[test]
fn what_was_put_into_the_table_before_it_was_full_is_taken_out_again() {
    let mut upf = Rig::with(NodeSettings { sessions_max: 3, ..settings() }).upf;
    let now = SystemTime::now();
    let seid = upf.establish(&SessionPlan::ipv4(7).establishment(), now).unwrap().seid;
    let before = seen(&upf);
    let refused = |why: kaido_n4::Rejection| assert_eq!(why.cause, Cause::NoResourcesAvailable, "{why:?}");
    let mut wide = SessionPlan::ipv4(8).establishment();
    wide.pdrs.extend(many_keys());
    refused(upf.establish(&wide, now).unwrap_err());
    assert_eq!(seen(&upf), before);
    let wider = Modification { create_pdrs: many_keys(), ..Modification::default() };
    refused(upf.modify(seid, &wider, now).unwrap_err());
    assert_eq!(seen(&upf), before);
    // Whoever asks for one of the keys has it.
    let mut next = SessionPlan::ipv4(8).establishment();
    next.pdrs.push(many_keys().remove(0));
    upf.establish(&next, now).unwrap();
    assert_eq!(upf.node().table.len(), 5);
}

/// The number of a session is the low half of its SEID.
#[test]
fn the_number_of_a_session_comes_back() {
    let mut upf = Rig::with(NodeSettings { sessions_max: 3, ..settings() }).upf;
    let now = SystemTime::now();
    let number = |seid: Seid| seid.0 & 0xffff_ffff;
    let first = upf.establish(&SessionPlan::ipv4(7).establishment(), now).unwrap().seid;
    let plan = SessionPlan::ipv4(8);
    let next = |change: &dyn Fn(&mut Establishment)| {
        let mut request = plan.establishment();
        change(&mut request);
        request
    };
    let monitoring = QosMonitoring { qfis: vec![Qfi(9); 300], ..QosMonitoring::default() };
    let refused = [
        // A key of another session, too many keys, counters, flows that are watched, and rates.
        next(&|request| request.pdrs[0] = SessionPlan::ipv4(7).uplink_pdr()),
        next(&|request| request.pdrs.extend(many_keys())),
        next(&|request| {
            request.urrs = (1..=200).map(urr).collect();
            let counted = |(pdr, id)| Pdr { urr_ids: vec![UrrId(id)], ..pdr };
            request.pdrs.extend(many_keys().into_iter().zip(1..).map(counted));
        }),
        next(&|request| {
            request.srrs = vec![Srr { id: SrrId(1), monitoring: vec![monitoring.clone()] }];
        }),
        next(&|request| {
            let mbr = Some(BitRate { uplink_kbps: 1, downlink_kbps: 1 });
            request.qers.extend((2..200).map(|id| Qer { mbr, ..Qer::open(QerId(id)) }));
        }),
    ];
    for (at, request) in refused.iter().enumerate() {
        assert!(upf.establish(request, now).is_err(), "{at}");
        let made = upf.establish(&plan.establishment(), now).unwrap().seid;
        assert_eq!((number(first), number(made)), (0, 1), "after {at}");
        upf.delete(made, now).unwrap();
    }
}
