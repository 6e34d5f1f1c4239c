//! The forwarding with a content store that goes on on disk: parked, gathered, read once, answered together; and what becomes
//! of Interests when the disk does not have what it seemed to.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use crate::fixture::{
    A, APP, B, C, CURIOUS, Node, RADIO, Sent, briefs, data_with, interest, interest_with, settings,
};
use kaido_ndn::cs::{Admit, CsSettings};
use kaido_ndn::forward::{FACE_CONTENT_STORE, ForwarderSettings};
use kaido_ndn::tier::{Tier, TierCounters, TierSettings};
use kaido_ndn::{NackReason, NdnDrop};
use kaido_ndn_tables::NameHash;

static FOLDERS: AtomicU32 = AtomicU32::new(0);

struct Rig {
    node: Node,
    tier: Tier,
    folder: PathBuf,
}

/// A node whose memory holds two packets; the rest is on disk.
fn rig() -> Rig {
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("kaido-park-{}-{number}", std::process::id()));
    Rig::open(folder, |_| {})
}

impl Rig {
    fn open(folder: PathBuf, change: impl FnOnce(&mut TierSettings)) -> Self {
        let mut tier = TierSettings { reads_max: 2, ..TierSettings::new(folder.clone(), 1 << 20) };
        change(&mut tier);
        // The fixture's node hashes names so.
        let tier = Tier::open(&tier, NameHash::fixed(3)).unwrap();
        let cs = CsSettings { packets: 2, octets: 1 << 16 };
        let mut node = Node::with(&ForwarderSettings { cs, ..settings() });
        node.forwarder.attach(tier.handle(SystemTime::now(), Arc::new(|| {})));
        node.route("/", &[(B, 1)]);
        Self { node, tier, folder }
    }

    /// Publishes Data, so that memory evicts others.
    fn publish(&mut self, uri: &str, freshness_ms: u64) -> Vec<u8> {
        let packet = data_with(uri, uri.as_bytes(), freshness_ms);
        assert_eq!(briefs(&self.node.send(A, &interest(uri, nonce()))), [('I', 302)]);
        assert_eq!(briefs(&self.node.send(B, &packet)), [('D', 301)]);
        packet
    }

    /// Publishes Data and has them go to the disk.
    fn store(&mut self, uris: &[&str], freshness_ms: u64) -> Vec<Vec<u8>> {
        let packets = uris.iter().map(|uri| self.publish(uri, freshness_ms)).collect();
        self.fill();
        packets
    }

    /// Fills memory with something else.
    fn fill(&mut self) {
        for _ in 0..4 {
            self.publish(&format!("/last/{}", nonce()), 0);
        }
        self.node.pass(200);
        self.tier.turn();
    }

    /// What is sent when the disk has read what it was asked for.
    fn turn(&mut self) -> Vec<Sent> {
        self.tier.turn();
        self.node.wire.drops.clear();
        self.node.pass(0);
        std::mem::take(&mut self.node.wire.sent)
    }

    fn counters(&self) -> TierCounters {
        self.tier.control().report().counters
    }

    fn content(&self) -> PathBuf {
        self.folder.join("content.log")
    }

    /// Nothing waits, and no frame is missing.
    fn is_clear(&self) {
        assert_eq!((self.node.forwarder.pit().len(), self.node.frames_out()), (0, 0));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Another one each time.
fn nonce() -> u32 {
    static NONCES: AtomicU32 = AtomicU32::new(1000);
    NONCES.fetch_add(1, Ordering::Relaxed)
}

/// Overwrites what lies in the file behind its first segment's header.
fn spoil(path: &Path) {
    let mut octets = std::fs::read(path).unwrap();
    octets[4096 + 64..].fill(0);
    std::fs::write(path, octets).unwrap();
}

#[test]
fn those_who_ask_meanwhile_are_answered_by_one_read() {
    let mut rig = rig();
    let stored = rig.store(&["/a/1", "/a/2"], 10_000);
    assert_eq!(rig.node.send(A, &interest("/a/1", 1)), [], "it is parked");
    assert_eq!(rig.node.send(C, &interest("/a/1", 2)), []);
    assert_eq!(rig.node.wire.drops, [NdnDrop::AGGREGATED]);
    // Of other selectors, and with the digest of the Data: other pending Interests of the same content.
    let fresh = interest_with("/a/1", 3, |repr| repr.must_be_fresh = true);
    assert_eq!(rig.node.send(APP, &fresh), []);
    let sent = rig.turn();
    assert_eq!(briefs(&sent), [('D', 301), ('D', 303), ('D', 320)]);
    assert!(sent.iter().all(|sent| sent.octets == stored[0]));
    let counters = rig.counters();
    assert_eq!((counters.reads, counters.parked, counters.gathered, counters.answered), (1, 3, 2, 3));
    assert_eq!(counters.answered_octets, 3 * stored[0].len() as u64);
    // It is in memory now, and what went for it is on the disk.
    assert_eq!(rig.node.send(A, &interest("/a/1", 4))[0].octets, stored[0]);
    assert_eq!(rig.counters().reads, 1);
    rig.is_clear();
}

#[test]
fn prefixes_digests_and_local_fields_are_served_as_from_memory() {
    let mut rig = rig();
    let stored = rig.store(&["/a/1", "/a/2"], 0);
    let longer = interest_with("/a", 1, |repr| repr.can_be_prefix = true);
    assert_eq!(rig.node.send(CURIOUS, &longer), []);
    let sent = rig.turn();
    assert_eq!((briefs(&sent), &sent[0].octets), (vec![('D', 321)], &stored[1]));
    assert_eq!(sent[0].annotations.incoming_face, Some(FACE_CONTENT_STORE));
    let digest = kaido_wire::ndn::implicit_digest([&stored[0][..]]);
    let hex: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
    assert_eq!(rig.node.send(A, &interest(&format!("/a/1/sha256digest={hex}"), 2)), []);
    assert_eq!(rig.turn()[0].octets, stored[0]);
    // Another digest: what is there is not what is asked for.
    let other = format!("/a/2/sha256digest={}", "00".repeat(32));
    rig.fill();
    assert_eq!(rig.node.send(A, &interest(&other, 3)), []);
    assert_eq!(briefs(&rig.turn()), [('I', 302)], "it is asked for elsewhere");
    rig.node.pass(5000);
    rig.is_clear();
}

#[test]
fn what_is_stale_or_damaged_is_asked_for_elsewhere() {
    let mut rig = rig();
    rig.store(&["/a/1", "/a/2"], 1000);
    rig.node.pass(2000);
    let fresh =
        |nonce| interest_with("/a/1", nonce, |repr| (repr.must_be_fresh, repr.hop_limit) = (true, Some(2)));
    assert_eq!(rig.node.send(A, &fresh(1)), []);
    let sent = rig.turn();
    assert_eq!(briefs(&sent), [('I', 302)]);
    assert_eq!(sent[0].interest().hop_limit, Some(1), "it has come one hop, and may go on");
    assert_eq!(briefs(&rig.node.send(C, &fresh(2))), [], "it waits for the upstream as any");
    assert_eq!(briefs(&rig.node.send(B, &data_with("/a/1", b"new", 1000))), [('D', 301), ('D', 303)]);
    // Once it was read and found stale it is not read again for that.
    rig.fill();
    let reads = rig.counters().reads;
    let stale = interest_with("/a/2", 5, |repr| repr.must_be_fresh = true);
    assert_eq!((rig.node.send(A, &stale), briefs(&rig.turn())), (vec![], vec![('I', 302)]));
    rig.node.pass(5000);
    let stale = interest_with("/a/2", 6, |repr| repr.must_be_fresh = true);
    assert_eq!(briefs(&rig.node.send(A, &stale)), [('I', 302)]);
    assert_eq!(rig.counters().reads, reads + 1);
    rig.node.pass(5000);

    spoil(&rig.content());
    assert_eq!(rig.node.send(A, &interest("/a/2", 7)), []);
    assert_eq!(rig.node.send(C, &interest("/a/2", 8)), []);
    assert_eq!(briefs(&rig.turn()), [('I', 302)]);
    assert_eq!((rig.counters().damaged, rig.counters().forwarded), (1, 3));
    assert_eq!(briefs(&rig.node.send(B, &data_with("/a/2", b"new", 0))), [('D', 301), ('D', 303)]);
    rig.is_clear();
}

#[test]
fn without_a_route_all_who_have_gathered_are_told() {
    let mut rig = rig();
    rig.store(&["/a/1"], 0);
    spoil(&rig.content());
    rig.node.route("/", &[(A, 1)]);
    for (face, nonce) in [(A, 1), (C, 2), (RADIO, 3)] {
        assert_eq!(rig.node.send(face, &interest("/a/1", nonce)), []);
    }
    let sent = rig.turn();
    assert_eq!(briefs(&sent), [('N', 301), ('N', 303)], "nobody is told where many would hear it");
    assert!(sent.iter().all(|sent| sent.nack() == Some(NackReason::NoRoute)));
    assert_eq!(sent.iter().map(|sent| sent.interest().nonce).collect::<Vec<_>>(), [Some(1), Some(2)]);
    rig.is_clear();
}

#[test]
fn who_asks_again_while_the_disk_is_slow_is_not_held_up() {
    let mut rig = rig();
    let stored = rig.store(&["/a/1"], 0);
    assert_eq!(rig.node.send(A, &interest("/a/1", 1)), []);
    assert_eq!(briefs(&rig.node.send(A, &interest("/a/1", 2))), [('I', 302)]);
    assert_eq!(briefs(&rig.turn()), [('D', 301)], "the disk was faster after all");
    assert_eq!(briefs(&rig.node.send(B, &stored[0])), [], "and what comes later is for nobody");
    rig.is_clear();
}

#[test]
fn as_many_wait_as_may_and_the_rest_goes_on() {
    let mut rig = rig();
    let stored = rig.store(&["/a/1", "/a/2", "/a/3"], 0);
    assert_eq!(rig.node.send(A, &interest("/a/1", 1)), []);
    assert_eq!(rig.node.send(A, &interest("/a/2", 2)), []);
    assert_eq!(briefs(&rig.node.send(A, &interest("/a/3", 3))), [('I', 302)]);
    assert_eq!(rig.counters().busy, 1);
    assert_eq!(briefs(&rig.turn()), [('D', 301), ('D', 301)]);
    assert_eq!(briefs(&rig.node.send(B, &stored[2])), [('D', 301)]);
    rig.is_clear();
}

#[test]
fn nothing_is_left_of_those_who_wait_no_longer() {
    let mut rig = rig();
    rig.store(&["/a/1", "/a/2"], 0);
    let short = interest_with("/a/1", 1, |repr| repr.lifetime_ms = Some(100));
    assert_eq!(rig.node.send(A, &short), []);
    assert_eq!(rig.node.send(C, &interest("/a/2", 2)), []);
    rig.node.wire.faces.remove(&C);
    rig.node.pass(200);
    assert_eq!((rig.node.forwarder.pit().len(), rig.node.forwarder.counters().unsatisfied), (1, 1));
    assert_eq!(rig.turn(), []);
    rig.is_clear();
    // And of a face that goes while the disk has nothing.
    rig.node.wire.faces.insert(C, Default::default());
    rig.fill();
    spoil(&rig.content());
    assert_eq!(rig.node.send(C, &interest("/a/2", 3)), []);
    rig.node.wire.faces.remove(&C);
    assert_eq!(rig.turn(), []);
    assert_eq!(rig.node.wire.drops, [NdnDrop::FACE_UNKNOWN]);
    rig.node.pass(5000);
    rig.is_clear();
}

#[test]
fn a_read_waits_for_more_if_it_is_told_to() {
    let mut rig = rig();
    rig.store(&["/a/1"], 0);
    let folder = rig.folder.clone();
    let stored = data_with("/a/1", b"/a/1", 0);
    rig.folder = PathBuf::new();
    drop(rig);
    let mut rig = Rig::open(folder, |tier| tier.gather = Duration::from_millis(5));
    assert_eq!(rig.node.send(A, &interest("/a/1", 1)), []);
    let due = rig.node.forwarder.tick_due(rig.node.now).unwrap();
    assert!(due <= Duration::from_millis(5) && due > Duration::from_millis(4), "{due:?}");
    assert_eq!((rig.turn(), rig.counters().reads), (vec![], 0));
    assert_eq!(rig.node.send(C, &interest("/a/1", 2)), []);
    rig.node.pass(5);
    let sent = rig.turn();
    assert_eq!((briefs(&sent), rig.counters().reads), (vec![('D', 301), ('D', 303)], 1));
    assert_eq!(sent[0].octets, stored, "the first node's end has written it");
    rig.is_clear();
}

#[test]
fn what_is_not_wanted_often_touches_neither_memory_nor_disk() {
    let mut rig = rig();
    rig.node.forwarder.cs_mut().admit(Admit::AskedAgain).unwrap();
    for number in 0..10 {
        rig.publish(&format!("/once/{number}"), 0);
    }
    rig.node.pass(200);
    rig.tier.turn();
    assert_eq!((rig.counters().writes, rig.node.forwarder.cs().len()), (0, 0));
}

#[test]
fn what_is_this_hosts_alone_does_not_go_to_the_disk() {
    let mut rig = rig();
    rig.node.route("/localhost", &[(CURIOUS, 1)]);
    assert_eq!(briefs(&rig.node.send(APP, &interest("/localhost/x", 1))), [('I', 321)]);
    assert_eq!(briefs(&rig.node.send(CURIOUS, &data_with("/localhost/x", b"", 0))), [('D', 320)]);
    rig.fill();
    assert!(rig.counters().writes > 0);
    assert_eq!(briefs(&rig.node.send(APP, &interest("/localhost/x", 2))), [('I', 321)]);
}
