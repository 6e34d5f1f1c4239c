//! Forwarding allocates nothing: a counting allocator says so.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, DropReason, Frame, FramePool, PoolCache};
use kaido_ndn::cs::CsSettings;
use kaido_ndn::forward::{
    FaceView, Forwarder, ForwarderSettings, SharedTables, Sink, StrategyChoice, Unsolicited,
};
use kaido_ndn::{Annotations, Packet};
use kaido_ndn_tables::{FaceId, Hop, NameHash, PitSettings, PitToken};
use kaido_wire::ndn::{DataRepr, InterestRepr, Name, name_from_uri};

struct Counting;

thread_local! {
    /// Of this thread alone: what runs the tests allocates when it pleases.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is handed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Swallows what is sent, and keeps the token of the last Interest.
struct Swallow {
    cache: PoolCache,
    token: PitToken,
    sent: u64,
}

impl Sink for Swallow {
    fn face(&self, _face: FaceId) -> Option<FaceView> {
        Some(FaceView::default())
    }

    fn send(&mut self, face: FaceId, frame: Frame, annotations: &Annotations) {
        if face == FaceId(2) {
            self.token = annotations.pit_token;
        }
        self.sent += 1;
        self.cache.release(frame);
    }

    fn allocate(&mut self) -> Option<Frame> {
        self.cache.allocate()
    }

    fn drop(&mut self, _face: FaceId, frame: Frame, _reason: DropReason) {
        self.cache.release(frame);
    }
}

struct Traffic {
    forwarder: Forwarder,
    sink: Swallow,
    now: Instant,
    nonce: u32,
}

impl Traffic {
    fn send(&mut self, face: u32, octets: &[u8], pit_token: PitToken) {
        let mut frame = self.sink.cache.allocate().unwrap();
        assert!(frame.set(octets));
        let annotations = Annotations { pit_token, ..Annotations::default() };
        let mut packets: ArrayVec<_, BATCH_MAX> = ArrayVec::new();
        packets.push(Packet { frame, face: FaceId(face), annotations });
        self.forwarder.process(&mut packets, self.now, &mut self.sink);
    }

    /// Interests that are answered by Data, by the cache, by a Nack and not at all, of one and of two downstreams.
    fn round(&mut self, names: &[Vec<u8>]) {
        let mut buffer = [0; 1024];
        for (number, octets) in names.iter().enumerate() {
            let name = Name::new(octets).unwrap();
            for face in [1, 3] {
                self.nonce += 1;
                let repr = InterestRepr { name, nonce: Some(self.nonce), ..InterestRepr::default() };
                let len = repr.emit(&mut buffer).unwrap();
                self.send(face, &buffer[..len], PitToken::NONE);
            }
            if number % 3 > 0 {
                let len =
                    DataRepr { name, content: &[7; 400], ..DataRepr::default() }.emit(&mut buffer).unwrap();
                self.send(2, &buffer[..len], self.sink.token);
            }
            self.now += Duration::from_millis(100);
            self.forwarder.tick(self.now, &mut self.sink);
        }
    }
}

#[test]
fn packets_cost_no_allocation() {
    for strategy in StrategyChoice::ALL {
        let shared = SharedTables::new(NameHash::random(), 1000).unwrap();
        let hop = |face| Hop { face: FaceId(face), cost: face };
        shared.fib().set(&name_from_uri("/a").unwrap(), &[hop(2), hop(4)]).unwrap();
        shared.strategies().update(&[], |_| Some(strategy)).unwrap();
        let settings = ForwarderSettings {
            pit: PitSettings::for_entries(64, 0),
            cs: CsSettings { packets: 20, octets: 16 << 10 },
            dead_nonces: 1000,
            measured_prefixes: 16,
            unsolicited: Unsolicited::Drop,
        };
        let now = Instant::now();
        let forwarder = Forwarder::new(&shared, &settings, now).unwrap();
        let pool = FramePool::leak(256).unwrap();
        let sink = Swallow { cache: pool.cache(), token: PitToken::NONE, sent: 0 };
        let mut traffic = Traffic { forwarder, sink, now, nonce: 0 };
        let names: Vec<_> = (0..100)
            .map(|number| {
                name_from_uri(&format!(
                    "/{}/{}/{number}",
                    if number % 10 > 0 { "a" } else { "b" },
                    "x".repeat(number + 1)
                ))
            })
            .map(Result::unwrap)
            .collect();
        traffic.round(&names);
        let before = (ALLOCATIONS.get(), traffic.sink.sent);
        (0..3).for_each(|_| traffic.round(&names));
        assert_eq!(ALLOCATIONS.get() - before.0, 0, "{strategy}");
        assert!(traffic.sink.sent > before.1 + 400);
        let counters = traffic.forwarder.counters();
        assert!(counters.satisfied > 0 && counters.unsatisfied > 0 && counters.nacks_out > 0);
    }
}
