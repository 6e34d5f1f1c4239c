//! The program on the interface: which mode, what refuses it, and that nothing is left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use kaido_xdp::{AttachMode, Error, IpMatch, PortMatch, PortSteering, PortSteeringConfig};

use crate::rig;
use crate::rig::{Pair, index, is_root, run};

const CONFIG: PortSteeringConfig = PortSteeringConfig {
    matches: PortMatch { ethertype: None, ip: Some(IpMatch::Udp { port: 2152 }), routed: false, all: false },
    mac: [2; 6],
    multi_buffer: false,
};
const JUMBO: PortSteeringConfig = PortSteeringConfig { multi_buffer: true, ..CONFIG };

/// Whether any XDP program is on an interface, as `ip` sees it.
fn has_program(interface: &str) -> bool {
    run(&format!("ip -d link show dev {interface}")).contains("xdp")
}

#[test]
fn attached_says_so_and_detached_is_gone() {
    if !is_root("attached_says_so_and_detached_is_gone") {
        return;
    }
    Pair::run(1, 1, 1500, |_| {
        let veth = index("kb-a0");
        for (asked, got) in [
            (AttachMode::Auto, AttachMode::Native),
            (AttachMode::Native, AttachMode::Native),
            (AttachMode::Generic, AttachMode::Generic),
        ] {
            let mut steering = PortSteering::attach(veth, asked, CONFIG).unwrap();
            assert_eq!((steering.mode(), steering.ifindex()), (Some(got), Some(veth)));
            assert!(has_program("kb-a0"));
            assert!(matches!(steering.attach_to(veth, asked), Err(Error::AttachedHere { .. })));
            steering.detach().unwrap();
            steering.detach().unwrap();
            assert_eq!(steering.mode(), None);
            assert!(!has_program("kb-a0"));
            steering.attach_to(veth, asked).unwrap();
            assert!(has_program("kb-a0"));
            drop(steering);
            assert!(!has_program("kb-a0"));
        }
    });
}

#[test]
fn a_drop_in_another_namespace_detaches_too() {
    if !is_root("a_drop_in_another_namespace_detaches_too") {
        return;
    }
    Pair::run(1, 1, 1500, |pair| {
        let steering = PortSteering::attach(index("kb-a0"), AttachMode::Auto, CONFIG).unwrap();
        pair.far(|| drop(steering));
        assert!(!has_program("kb-a0"));
    });
}

#[test]
fn a_second_program_is_refused() {
    if !is_root("a_second_program_is_refused") {
        return;
    }
    Pair::run(1, 1, 1500, |_| {
        let veth = index("kb-a0");
        let first = PortSteering::attach(veth, AttachMode::Auto, CONFIG).unwrap();
        let refused = PortSteering::attach(veth, AttachMode::Auto, CONFIG).unwrap_err();
        assert!(matches!(refused, Error::AlreadyAttached { program: 1.., .. }), "{refused}");
        assert!(refused.to_string().contains("ip link set dev kb-a0 xdp off"));
        drop(first);
        PortSteering::attach(veth, AttachMode::Auto, CONFIG).unwrap();
    });
}

#[test]
fn a_large_mtu_needs_multi_buffer() {
    if !is_root("a_large_mtu_needs_multi_buffer") {
        return;
    }
    Pair::run(1, 1, 9000, |_| {
        let veth = index("kb-a0");
        for mode in [AttachMode::Auto, AttachMode::Native] {
            let refused = PortSteering::attach(veth, mode, CONFIG).unwrap_err();
            assert!(matches!(refused, Error::MtuTooLarge { mtu: 9000, .. }), "{refused}");
            assert!(refused.to_string().contains("3506"));
            assert_eq!(PortSteering::attach(veth, mode, JUMBO).unwrap().mode(), Some(AttachMode::Native));
        }
    });
    Pair::run(1, 1, kaido_xdp::PLAIN_MTU_MAX, |_| {
        PortSteering::attach(index("kb-a0"), AttachMode::Native, CONFIG).unwrap();
    });
    Pair::run(1, 1, kaido_xdp::PLAIN_MTU_MAX + 1, |_| {
        let refused = PortSteering::attach(index("kb-a0"), AttachMode::Native, CONFIG).unwrap_err();
        assert!(matches!(refused, Error::MtuTooLarge { mtu: 3507, .. }), "{refused}");
    });
}

#[test]
fn an_interface_without_native_xdp_gets_generic() {
    if !is_root("an_interface_without_native_xdp_gets_generic") {
        return;
    }
    rig::in_namespace(|lo| {
        run("ip link set lo mtu 1500");
        let refused = PortSteering::attach(lo, AttachMode::Native, CONFIG).unwrap_err();
        assert!(matches!(refused, Error::NativeUnsupported { .. }), "{refused}");
        assert_eq!(
            PortSteering::attach(lo, AttachMode::Auto, CONFIG).unwrap().mode(),
            Some(AttachMode::Generic)
        );
        let refused = PortSteering::attach(9999, AttachMode::Auto, CONFIG).unwrap_err();
        assert!(matches!(refused, Error::NoInterface { ifindex: 9999 }), "{refused}");
    });
}

#[test]
fn a_killed_process_leaves_nothing() {
    if !is_root("a_killed_process_leaves_nothing") {
        return;
    }
    Pair::run(1, 1, 1500, |_| {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "attach::child_that_waits_to_be_killed", "--ignored", "--nocapture"])
            .env("KB_INTERFACE", "kb-a0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("attached")), "the child failed");
        assert!(has_program("kb-a0"));
        child.kill().unwrap();
        child.wait().unwrap();
        // The link goes with the last reference, which the kernel may put off to a worker.
        let gone = (0..3000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !has_program("kb-a0")
        });
        assert!(gone, "the program outlived its process");
    });
}

#[test]
#[ignore = "run by a_killed_process_leaves_nothing"]
fn child_that_waits_to_be_killed() {
    let Ok(interface) = std::env::var("KB_INTERFACE") else { return };
    let _steering = PortSteering::attach(index(&interface), AttachMode::Auto, CONFIG).unwrap();
    println!("attached");
    // Ends with the parent, should that fail to kill.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn without_capabilities_it_says_which() {
    if !is_root("without_capabilities_it_says_which") {
        return;
    }
    let refused = std::thread::spawn(|| {
        // struct __user_cap_header_struct (version 3, this thread), then two empty __user_cap_data_struct.
        let header = [0x2008_0522u32, 0];
        let none = [0u32; 6];
        // SAFETY: capset reads the two structs; it changes this thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }, 0);
        PortSteering::load(CONFIG).map(|_| ()).unwrap_err()
    })
    .join()
    .unwrap();
    assert!(matches!(refused, Error::Permission { .. }), "{refused}");
    assert!(refused.to_string().contains("CAP_BPF and CAP_NET_ADMIN"));
}

#[test]
fn the_mac_is_that_of_the_interface() {
    if !is_root("the_mac_is_that_of_the_interface") {
        return;
    }
    Pair::run(1, 1, 1500, |_| {
        run("ip link set kb-a0 address 02:00:5e:10:00:ff");
        assert_eq!(kaido_xdp::interface_mac(index("kb-a0")).unwrap(), [2, 0, 0x5e, 0x10, 0, 0xff]);
        assert!(matches!(kaido_xdp::interface_mac(9999), Err(Error::NoInterface { ifindex: 9999 })));
    });
}
