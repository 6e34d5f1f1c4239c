//! The packet vectors under `vectors/gre` against the program under `BPF_PROG_TEST_RUN`: the bytes of the vector, the same
//! drop, or the packet as it came, left to the engine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::io::Write;

use crate::vector;
use crate::vector::{Vector, octets};
use kaido_engine::DropReason;
use kaido_gre::xdp::{GreProgram, GreWork};
use kaido_gre::{Condition, GreDrop, KeyMatch, Rule, RuleSet, Settings, Verdict};
use kaido_xdp::Action;

/// What became of the steps of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    here: usize,
    handed: Vec<String>,
}

fn drops(program: &GreProgram) -> Vec<(DropReason, u64)> {
    program.counters().unwrap().dropped
}

fn run(vector: &Vector) -> Done {
    let mut program = GreProgram::load(
        &RuleSet::new(vector.settings()).unwrap(),
        vector.port("left"),
        GreWork::Program,
        false,
    )
    .unwrap();
    // Test runs come in by the loopback interface.
    program.set_peer_port(1).unwrap();
    let mut done = Done::default();
    for step in &vector.steps {
        let at = format!("{}: {}", vector.name, step.name);
        let frame = octets(&step.frame);
        let before = drops(&program);
        let result = program.test_run(&frame, 1).unwrap();
        let new: Vec<_> = drops(&program).into_iter().filter(|count| !before.contains(count)).collect();
        match result.action {
            Action::Pass => {
                assert_eq!(result.frame, frame, "{at}: changed and handed");
                done.handed.push(step.name.clone());
            }
            Action::Redirect => {
                let wanted: Vec<_> = step.out.iter().map(|sent| octets(&sent.hex)).collect();
                assert_eq!(vec![result.frame], wanted, "{at}");
                assert_eq!(step.drop, None, "{at}");
                done.here += 1;
            }
            Action::Drop => {
                let names: Vec<_> = new.iter().map(|(reason, _)| GreDrop::TABLE.name(*reason)).collect();
                assert_eq!(names, [step.drop.as_deref().unwrap()], "{at}");
                assert!(step.out.is_empty(), "{at}");
                done.here += 1;
            }
            other => panic!("{at}: {other:?}"),
        }
    }
    done
}

/// A program whose rules change obeys all of the new ones or all of the old, and counts what stays on.
#[test]
fn rules_of_a_program_change() {
    if !is_root("rules_of_a_program_change") {
        return;
    }
    let vector = vector::all().into_iter().find(|vector| vector.name == "strip").unwrap();
    let step = vector.steps.iter().find(|step| step.drop.is_none() && step.out.len() == 1).unwrap();
    let frame = octets(&step.frame);
    let stripped = octets(&step.out[0].hex);
    let any = |name: &str, key, verdict| Rule {
        name: name.to_owned(),
        condition: Condition { key, ..Condition::default() },
        verdict,
    };
    let strips = || any("strips", KeyMatch::Any, Verdict::DECAPSULATE);
    let settings = |rules| Settings { rules, unmatched: Verdict::Pass, ..vector.settings() };
    let mut rules = RuleSet::new(settings(vec![strips()])).unwrap();
    let mut program = GreProgram::load(&rules, vector.port("left"), GreWork::Program, false).unwrap();
    program.set_peer_port(1).unwrap();
    let packets = |program: &GreProgram| -> Vec<_> {
        program.totals().unwrap().iter().map(|rule| rule.packets).collect()
    };
    for turn in 0..3 {
        let result = program.test_run(&frame, 1).unwrap();
        assert_eq!((result.action, result.frame), (Action::Redirect, stripped.clone()));
        let drops = any("drops", KeyMatch::Any, Verdict::Drop);
        let never = any("never", KeyMatch::Is(0x1234_5678), Verdict::Punt);
        rules = rules.next(settings(vec![never, drops, strips()])).unwrap();
        let bank = program.prepare(&rules).unwrap();
        // Nothing has changed yet.
        assert_eq!(program.test_run(&frame, 1).unwrap().action, Action::Redirect);
        program.obey(bank).unwrap();
        assert_eq!(packets(&program), [0, 0, 2 * (turn + 1)]);
        assert_eq!(program.test_run(&frame, 1).unwrap().action, Action::Drop);
        assert_eq!(packets(&program), [0, 1, 2 * (turn + 1)]);
        rules = rules.next(settings(vec![strips()])).unwrap();
        program.obey(program.prepare(&rules).unwrap()).unwrap();
    }
}

/// Whether this is root; else says by name that the test is skipped.
fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        // Not println: the test harness would keep it to itself.
        let mut out = std::io::stdout();
        writeln!(out, "SKIPPED {test}: needs root").unwrap();
    }
    root
}

#[test]
fn every_vector_gives_the_bytes_that_scapy_made_or_is_the_engines() {
    if !is_root("every_vector_gives_the_bytes_that_scapy_made_or_is_the_engines") {
        return;
    }
    for vector in vector::all() {
        let Done { here, handed } = run(&vector);
        // What is too much for the driver: put together, routed, summed over, put into tunnels, headers without end.
        let beyond = |name: &String| {
            let words = ["chksum", "checksum", "options", "five tags", "piece", "no tunnel"];
            words.iter().any(|word| name.contains(word))
        };
        match vector.name.as_str() {
            "routed" | "pieces" | "encapsulate" => {}
            _ => {
                let unexpected: Vec<_> = handed.iter().filter(|name| !beyond(name)).collect();
                assert!(unexpected.is_empty(), "{}: {unexpected:?}", vector.name);
                assert!(here > 8, "{}: {here}", vector.name);
            }
        }
    }
}
