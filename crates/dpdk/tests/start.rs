//! How DPDK starts, refuses to, and ends: each time in a process of its own, since it starts once in one.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

use kaido_dpdk::{DpdkError, DpdkPool, Eal};
use kaido_engine::FramePool;

mod support;

use support::{ALONE, Driven, FRAMES, JUMBO, cross, pattern, start};

/// The arguments of `child_that_starts`, one a line.
const ARGUMENTS: &str = "KAIDO_DPDK_ARGUMENTS";

/// Runs one of the tests below in a process of its own; what it printed.
#[track_caller]
fn child(test: &str, arguments: &[&str]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(ARGUMENTS, arguments.join("\n"))
        .output()
        .unwrap();
    let printed =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    printed
}

/// What DPDK said to its arguments, and how to mend it: one line each, and nothing beside them.
#[track_caller]
fn refusal(arguments: &[&str]) -> (String, String) {
    let printed = child("child_that_starts", arguments);
    let line = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let noise = printed.lines().filter(|line| line.contains("EAL:") || line.contains("Usage")).count();
    assert_eq!(noise, 1, "{printed}");
    (line("error: ").unwrap(), line("help: ").unwrap())
}

#[test]
#[ignore = "run by the others, in a process of its own"]
fn child_that_starts() {
    let arguments = std::env::var(ARGUMENTS).unwrap();
    let arguments: Vec<&str> = arguments.lines().collect();
    match Eal::start(&arguments) {
        Ok(_) => println!("\nstarted"),
        Err(error) => println!("\nerror: {error}\nhelp: {}", error.help()),
    }
    assert!(matches!(Eal::start(&arguments), Err(DpdkError::StartedBefore)));
}

#[test]
fn it_starts_without_anything_on_the_terminal() {
    let printed = child("child_that_starts", &ALONE);
    assert!(printed.contains("\nstarted\n"), "{printed}");
    assert!(!printed.contains("EAL"), "{printed}");
}

#[test]
fn an_unknown_argument_gets_one_message() {
    let (error, help) = refusal(&["--no-huge", "--no-such-thing"]);
    assert!(error.starts_with("DPDK does not start: "), "{error}");
    assert!(error.contains("--no-such-thing"), "{error}");
    assert!(help.contains("dpdk-testpmd --help"), "{help}");
}

#[test]
fn a_malformed_device_gets_one_message() {
    let (error, help) = refusal(&[&ALONE[..], &["--vdev=net_nothing0"]].concat());
    assert!(error.contains("net_nothing0"), "{error}");
    assert!(help.contains("--vdev"), "{help}");
}

#[test]
fn missing_huge_pages_get_one_message() {
    let reserved = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap();
    if reserved.trim() != "0" {
        return println!("SKIPPED dpdk_missing_huge_pages: there are {} huge pages", reserved.trim());
    }
    let (error, help) = refusal(&["--in-memory", "--no-pci"]);
    assert!(error.contains("hugepage"), "{error}");
    assert!(help.contains("vm.nr_hugepages"), "{help}");
}

#[test]
#[ignore = "run by the others, in a process of its own"]
fn child_that_ends_with_packets_on_their_way() {
    let cpus = rustix::thread::sched_getaffinity(None).unwrap().count();
    let eal = start(&[]);
    cross(&eal, "");
    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap().count(), cpus, "the thread keeps its CPUs");
    let pool = FramePool::leak(FRAMES).unwrap();
    let memory = DpdkPool::register(&eal, pool).unwrap();
    let mut a = Driven::open(&memory, pool, "net_ring_a", &JUMBO);
    let b = Driven::open(&memory, pool, "net_ring_b", &JUMBO);
    for len in [60, 5000] {
        a.send(&pattern(len));
    }
    assert_eq!(a.port.mbufs_out().tx, 3);
    drop(a);
    let before = pool.free_frames();
    drop(b);
    assert!(pool.free_frames() > before, "the pools of a device come back with it");
    assert!(pool.free_frames() < FRAMES, "but not those whose mbufs a ring still has");
    drop((memory, eal));
    assert_eq!(pool.free_frames(), FRAMES);
    println!("\nended");
}

#[test]
fn packets_on_their_way_do_not_cost_frames() {
    let printed = child("child_that_ends_with_packets_on_their_way", &[]);
    assert!(printed.contains("\nended\n"), "{printed}");
}
