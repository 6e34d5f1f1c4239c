//! Tables that a process has left: found by their pins, and what was counted in them is all there.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::ffi::CString;
use std::path::{Path, PathBuf};

use kaido_upf_xdp::Offload;
use kaido_upf_xdp::offload::{LeftTables, OffloadDirection, wait_for_programs};
use kaido_upf_xdp::speed::{Rules, Speed, filled};
use kaido_xdp::PinFolder;

use crate::rig;

/// Bytes of the packets that the timing program sends, without the tunnel.
const UPLINK_BYTES: u64 = 192 - 14 - 20 - 8 - 8;

/// Runs in a thread that sees a BPF file system nobody else does.
fn with_pins(test: &str, body: impl FnOnce(&Path) + Send) {
    if !rig::is_root(test) {
        return;
    }
    let folder: PathBuf = std::env::temp_dir().join(format!("kaido-pins-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = CString::new(folder.to_str().unwrap()).unwrap();
            // SAFETY: plain calls with strings that live through them; the namespace is this thread's own from here on.
            unsafe {
                assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
                let private = libc::MS_REC | libc::MS_PRIVATE;
                assert_eq!(
                    libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()),
                    0
                );
                assert_eq!(
                    libc::mount(c"bpf".as_ptr(), at.as_ptr(), c"bpf".as_ptr(), 0, std::ptr::null()),
                    0
                );
            }
            body(&folder);
        });
    });
    std::fs::remove_dir(&folder).unwrap();
}

fn send(tables: &Offload, sessions: u32, packets: u32) {
    Speed::load(tables).unwrap().time(OffloadDirection::Uplink, sessions, packets).unwrap();
}

fn add(one: [u64; 4], other: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|at| one[at] + other[at])
}

#[test]
fn what_was_counted_is_found_and_all_of_it() {
    with_pins("what_was_counted_is_found_and_all_of_it", |pins| {
        let folder = PinFolder::make(&pins.join("node")).unwrap();
        assert!(LeftTables::find(&folder).unwrap().is_empty());
        let before = filled(4, Rules::PLAIN).unwrap();
        send(&before, 4, 4000);
        before.pin(&folder).unwrap();
        Offload::keep(&folder).unwrap();
        drop(before);
        let left = LeftTables::find(&folder).unwrap();
        assert_eq!(left.len(), 1);
        // Sessions are drawn at random.
        let sum = || (0..4).map(|cell| left[0].counted(cell).counts).fold([0; 4], add);
        let counted = sum();
        assert!(
            counted[1] < 4000 && counted[0] == counted[1] * UPLINK_BYTES,
            "some is kept back: {counted:?}"
        );
        wait_for_programs();
        // Of what was settled nothing is there again.
        for _ in 0..2 {
            left[0].settle();
            assert_eq!(sum(), [4000 * UPLINK_BYTES, 4000, 0, 0]);
        }
        assert_eq!(left[0].counted(u32::MAX).counts, [0; 4], "there is no such counter");
    });
}

#[test]
fn both_are_found_while_one_takes_the_place_of_the_other() {
    with_pins("both_are_found_while_one_takes_the_place_of_the_other", |pins| {
        let folder = PinFolder::make(&pins.join("node")).unwrap();
        let [before, next] = [1, 1].map(|sessions| filled(sessions, Rules::PLAIN).unwrap());
        before.pin(&folder).unwrap();
        Offload::keep(&folder).unwrap();
        next.pin(&folder).unwrap();
        send(&before, 1, 3000);
        send(&next, 1, 2000);
        let left = LeftTables::find(&folder).unwrap();
        left.iter().for_each(LeftTables::settle);
        let packets: Vec<u64> = left.iter().map(|tables| tables.counted(0).counts[1]).collect();
        assert_eq!(packets, [3000, 2000]);
        Offload::keep(&folder).unwrap();
        let left = LeftTables::find(&folder).unwrap();
        assert_eq!((left.len(), left[0].counted(0).counts[1]), (1, 2000));
        folder.remove_all().unwrap();
        assert!(PinFolder::find(&pins.join("node")).unwrap().is_none());
    });
}

#[test]
fn what_is_no_table_of_ours_is_refused() {
    with_pins("what_is_no_table_of_ours_is_refused", |pins| {
        let elsewhere = std::env::temp_dir();
        assert!(PinFolder::find(&elsewhere).unwrap_err().to_string().contains("not on a BPF file system"));
        let folder = PinFolder::make(&pins.join("node")).unwrap();
        let tables = filled(1, Rules::PLAIN).unwrap();
        tables.pin(&folder).unwrap();
        Offload::keep(&folder).unwrap();
        let groups = folder.get("groups").unwrap().unwrap();
        folder.pin("cells", std::os::fd::AsFd::as_fd(&groups)).unwrap();
        let refused = LeftTables::find(&folder).unwrap_err().to_string();
        assert!(refused.contains("cells") && refused.contains("another version"), "{refused}");
    });
}
