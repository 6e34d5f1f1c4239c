//! Random sessions and packets. The fast path, the slow path and the kernel's datapath do with them what the standard says (TS
//! 29.244 5.2 to 5.4), packet for packet and octet for octet, and charge what it says.
//!
//! ```text
//!   rules, packets, changes ─┬─▶ fast path                        ┐
//!                            ├─▶ slow path                        ├─▶ equal frames, equal usage ◀── model
//!                            └─▶ the kernel's datapath ─▶ worker  ┘
//! ```
//! The model ([`model`]) and the packets ([`packets`]) are written from the texts of the standards, and share nothing with the user plane.

mod model;
mod packets;
mod rates;
mod rules;
mod systems;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use kaido_n4::{
    Change, Modification, Seid, UpdateFar, UpdateForwardingParameters, UpdateQer, UpdateUrr, UsageReport,
};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

use self::model::{Model, Usage};
use self::packets::{LeavingFrame, Packet, packet};
use self::rules::{FARS, FarPlan, QERS, Rules, URRS, far_down, far_id, pdr_id, qer_id, rules, total, urr_id};
use self::systems::{SentFrame, System, both_families};
use crate::network::teid;

const CASES: u32 = 3000;
const SESSIONS: u32 = 1000;
/// A rate of the least kind admits a second packet a second after the first. A case that took longer, since others had the
/// processor, says nothing of the kernel, whose clock goes on.
const CASE_MAX: Duration = Duration::from_millis(400);

#[derive(Clone, Debug)]
enum Step {
    Packets(Packet, usize),
    /// What a FAR towards the UE does from now on.
    Far(usize, FarPlan),
    Gate(usize, [bool; 2]),
    /// Takes a PDR away, or puts it back.
    Pdr(usize),
    Query(usize),
    Grant(usize, u64),
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (packet(), 1usize..4).prop_map(|(packet, count)| Step::Packets(packet, count)),
        3 => (2..FARS, far_down()).prop_map(|(far, plan)| Step::Far(far, plan)),
        1 => (0..QERS, any::<[bool; 2]>()).prop_map(|(qer, gates)| Step::Gate(qer, gates)),
        1 => (0usize..10).prop_map(Step::Pdr),
        1 => (0..URRS).prop_map(Step::Query),
        1 => (0..URRS, 1u64..4000).prop_map(|(urr, quota)| Step::Grant(urr, quota)),
        1 => Just(Step::Poll),
    ]
}

/// A system with a session, and what it has reported.
struct Subject<'s> {
    system: &'s mut System,
    seid: Seid,
    reported: [Usage; URRS],
}

impl Subject<'_> {
    fn take(&mut self, reports: Vec<UsageReport>) {
        for report in reports {
            let place = (0..URRS).find(|&place| urr_id(place) == report.urr_id).unwrap();
            let volume = report.volume.unwrap();
            let more = [
                [volume.uplink_packets, volume.uplink_bytes],
                [volume.downlink_packets, volume.downlink_bytes],
            ];
            for (sum, more) in self.reported[place].as_flattened_mut().iter_mut().zip(more.as_flattened()) {
                *sum += more;
            }
        }
    }

    /// Changes the session; what leaves because of it.
    fn modify(&mut self, change: &Modification) -> Vec<SentFrame> {
        let reports = self.system.modify(self.seid, change);
        self.take(reports);
        self.system.turn()
    }

    /// What is reported unasked.
    fn poll(&mut self) {
        let reports = self.system.poll();
        self.take(reports);
    }

    fn name(&self) -> &'static str {
        self.system.name
    }
}

impl Drop for Subject<'_> {
    /// A case that fails leaves nothing to the next.
    fn drop(&mut self) {
        self.system.delete(self.seid);
        self.system.turn();
    }
}

/// The requests of a step; none where the standard does not say what becomes of packets that wait.
fn requests(model: &mut Model, session: u32, step: &Step) -> Vec<Modification> {
    let query = |urr| Modification { query_urrs: vec![urr_id(urr)], ..Modification::default() };
    match *step {
        // A quota counts from the report that it was granted for.
        Step::Grant(urr, _) if !model.is_buffering() => {
            [query(urr)].into_iter().chain(change(model, session, step)).collect()
        }
        Step::Query(urr) => vec![query(urr)],
        _ => change(model, session, step).into_iter().collect(),
    }
}

fn change(model: &mut Model, session: u32, step: &Step) -> Option<Modification> {
    let nothing = Modification::default;
    match *step {
        Step::Far(far, plan) => {
            model.rules.fars[far] = plan;
            let outer_header_creation = plan.header(session);
            let mut forwarding = UpdateForwardingParameters { outer_header_creation, ..Default::default() };
            forwarding.removed.outer_header_creation = plan == FarPlan::NoTunnel;
            let update = UpdateFar {
                id: far_id(far),
                apply_action: Some(plan.action()),
                forwarding: Some(forwarding),
                ..UpdateFar::default()
            };
            Some(Modification { update_fars: vec![update], ..nothing() })
        }
        _ if model.is_buffering() => None,
        Step::Gate(qer, gates) => {
            model.rules.qers[qer].gates = gates;
            let gate = Some(model.rules.qers[qer].gate());
            let update_qers = vec![UpdateQer { id: qer_id(qer), gate, ..UpdateQer::default() }];
            Some(Modification { update_qers, ..nothing() })
        }
        Step::Pdr(place) => {
            if model.is_last(place) {
                // A tunnel without PDRs is answered with Error Indications.
                return None;
            }
            let present = model.present.get_mut(place)?;
            *present = !*present;
            Some(if *present {
                let pdr = model.rules.pdrs[place].pdr(place, session);
                Modification { create_pdrs: vec![pdr], ..nothing() }
            } else {
                Modification { remove_pdrs: vec![pdr_id(place)], ..nothing() }
            })
        }
        Step::Grant(urr, quota) => {
            model.grant(urr, quota);
            let volume_quota = Change::To(total(quota));
            let update = UpdateUrr { id: urr_id(urr), volume_quota, ..UpdateUrr::default() };
            Some(Modification { update_urrs: vec![update], ..nothing() })
        }
        Step::Packets(..) | Step::Query(_) | Step::Poll => None,
    }
}

/// Holds what has left the systems against each other and against the model.
fn compare(
    step: &Step,
    expected: &[LeavingFrame],
    sent: &[(&'static str, Vec<SentFrame>)],
) -> Result<(), TestCaseError> {
    for (name, sent) in sent {
        let left: Vec<LeavingFrame> =
            sent.iter().map(|(by_n6, frame)| LeavingFrame::read(*by_n6, frame)).collect();
        prop_assert_eq!(&left, expected, "{} after {:?}", name, step);
    }
    for (name, others) in sent.iter().skip(1) {
        prop_assert_eq!(others, &sent[0].1, "{} and {} after {:?}", name, sent[0].0, step);
    }
    Ok(())
}

fn run_case(
    systems: &mut [System],
    session: u32,
    rules: &Rules,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let began = Instant::now();
    let mut model = Model::new(session, rules.clone());
    let request = rules.establishment(session);
    let mut subjects: Vec<Subject<'_>> = systems
        .iter_mut()
        .map(|system| {
            let seid = system.establish(&request);
            Subject { system, seid, reported: [Usage::default(); URRS] }
        })
        .collect();
    for step in steps {
        if let Step::Packets(packet, count) = step {
            let frame = packet.frame(session, teid(session));
            for _ in 0..*count {
                let expected = model.packet(packet);
                let sent: Vec<_> = subjects
                    .iter_mut()
                    .map(|subject| (subject.name(), subject.system.pass(packet.direction, &frame)))
                    .collect();
                if began.elapsed() > CASE_MAX {
                    return Err(TestCaseError::reject("others had the processor"));
                }
                compare(step, &expected, &sent)?;
            }
        } else if let Step::Poll = step {
            subjects.iter_mut().for_each(Subject::poll);
        } else {
            for request in requests(&mut model, session, step) {
                let sent: Vec<_> =
                    subjects.iter_mut().map(|subject| (subject.name(), subject.modify(&request))).collect();
                compare(step, &model.release(), &sent)?;
                if let [urr] = *request.query_urrs {
                    let place = (0..URRS).find(|&place| urr_id(place) == urr).unwrap();
                    for subject in &subjects {
                        let told = subject.reported[place];
                        prop_assert_eq!(told, model.measured[place], "{} after {:?}", subject.name(), step);
                    }
                }
            }
        }
    }
    for mut subject in subjects {
        subject.poll();
        let last = subject.system.delete(subject.seid);
        subject.take(last);
        prop_assert_eq!(subject.reported, model.measured, "usage by {}", subject.name());
        prop_assert!(subject.system.turn().is_empty(), "{} after the end", subject.name());
    }
    Ok(())
}

/// Conformance: TS 29.244 5.2.1 | Fast path, slow path and kernel find the PDR that the standard says, in random sessions
/// Conformance: TS 29.244 5.2.2.2 | They charge what the standard says, to the octet
#[test]
fn all_datapaths_do_what_the_standard_says() {
    let mut systems = vec![System::fast(both_families()), System::slow(both_families())];
    match System::kernel(both_families()) {
        Ok(kernel) => systems.push(kernel),
        Err(reason) => println!("SKIPPED all_datapaths_do_what_the_standard_says, in the kernel: {reason}"),
    }
    let systems = RefCell::new(systems);
    // Addresses and TEIDs of sessions that are gone are not used again at once.
    let session = RefCell::new((0..SESSIONS).cycle());
    let config = ProptestConfig {
        cases: CASES,
        max_shrink_iters: 50_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let ran =
        TestRunner::new(config).run(&(rules(), prop::collection::vec(step(), 1..40)), |(rules, steps)| {
            let session = session.borrow_mut().next().unwrap();
            run_case(&mut systems.borrow_mut(), session, &rules, &steps)
        });
    match ran {
        Err(TestError::Fail(reason, (rules, steps))) => panic!("{reason}\n{rules:?}\n{steps:?}"),
        ran => ran.unwrap(),
    }
    for system in systems.borrow().iter() {
        assert!(!system.has_kernel_records(), "records of sessions that are gone");
        // They are what they are called.
        let reasons = system.slow_packets();
        let slow: u64 = reasons.iter().map(|(_, count)| count).sum();
        let [kernel, slow] = [system.by_kernel, slow].map(|count| count as f64 / system.packets as f64);
        let is_so = match system.name {
            "the fast path" => slow < 0.7,
            "the slow path" => slow >= 1.0,
            _ => kernel > 0.2,
        };
        assert!(
            is_so,
            "{}: {kernel:.2} of the packets by the kernel, {slow:.2} slow: {reasons:?}",
            system.name
        );
    }
}
