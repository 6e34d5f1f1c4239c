//! Fragments of tunnel packets: any pieces in any order. What comes out is what was cut, never a mixture; what came whole
//! does come out; and no more frames are kept than the bounds allow.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::cell::RefCell;
use std::time::Duration;

use crate::fixture::{GNB_MAC, N3_MAC, SessionPlan, now, packets, settings};
use crate::site::{Lane, Site};
use kaido_fuzz::{Script, fuzz_target};
use kaido_n4::{Seid, SessionService};
use kaido_upf::fragment::{FragmentSettings, Limits};
use kaido_upf::node::NodeSettings;
use kaido_wire::{EthernetView, Ipv4View, checksum};

fuzz_target!(fragments, 20_000, run);

/// What the node keeps at most.
const LIMITS: Limits =
    Limits { packets: 8, packets_per_source: 4, pieces: 16, time: Duration::from_secs(3600) };
/// Octets of IPv4 headers.
const HEADER: usize = 20;
/// The most payload of a user's packet that leaves uncut.
const USER_MAX: usize = 1472;

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::new());
}

fn run(input: &[u8]) {
    STATE.with_borrow_mut(|state| state.run(&mut Script::new(input)));
}

struct State {
    site: Site,
    seid: Seid,
    /// Makes the packets of each input different from those of all that the node may still remember.
    inputs: u32,
}

impl State {
    fn new() -> Self {
        let fragments = FragmentSettings { enabled: true, limits: LIMITS };
        let mut site = Site::new(NodeSettings { fragments, ..settings() });
        let seid =
            site.upf.as_mut().unwrap().establish(&SessionPlan::ipv4(1).establishment(), now()).unwrap().seid;
        Self { site, seid, inputs: 0 }
    }

    fn run(&mut self, script: &mut Script<'_>) {
        self.inputs = self.inputs.wrapping_add(1);
        let mut lane = self.site.lane(self.site.upf.as_ref().unwrap());
        let packet = Datagram::new(self.inputs, usize::from(script.short()) % USER_MAX);
        if script.byte_or_zero() & 1 == 0 {
            whole(&packet, &mut lane, script);
        } else {
            in_disorder(&packet, &mut lane, script);
        }
        drop(lane);
        let kept = self.site.pool.frames() - self.site.pool.free_frames();
        assert!(kept <= LIMITS.pieces, "{kept} frames kept");
        assert_eq!(self.site.upf.as_ref().unwrap().cp_fseid(self.seid).map(|cp| cp.seid), Some(Seid(77)));
    }
}

/// A G-PDU of the session's tunnel without Ethernet, and the user's packet as it leaves on N6.
struct Datagram {
    octets: Vec<u8>,
    expected: Vec<u8>,
}

impl Datagram {
    fn new(number: u32, len: usize) -> Self {
        let [.., a, b, c, d] = number.to_be_bytes();
        let payload: Vec<u8> = (0..len).map(|place| (place ^ place >> 8) as u8 ^ d).collect();
        let inner = packets::udp_with(("10.60.0.1", 40_000), ("192.0.2.9", 53), &payload);
        let mut expected = inner.clone();
        Ipv4View::new_checked(&mut expected[..]).unwrap().decrement_ttl();
        let mut octets = packets::uplink(1001, &inner)[14..].to_vec();
        octets[4..6].copy_from_slice(&[c, d]);
        octets[12..16].copy_from_slice(&[10, 101, a, b]);
        Self { octets, expected }
    }

    fn payload(&self) -> &[u8] {
        &self.octets[HEADER..]
    }

    /// The frame of a piece: eight times `offset` octets into the payload.
    fn piece(&self, offset: usize, data: &[u8], more: bool) -> Vec<u8> {
        let mut packet = self.octets[..HEADER].to_vec();
        packet[2..4].copy_from_slice(&((HEADER + data.len()) as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&(offset as u16 & 0x1fff | u16::from(more) << 13).to_be_bytes());
        packet[10..12].fill(0);
        let sum = checksum::checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend_from_slice(data);
        packets::ethernet(N3_MAC, GNB_MAC, &packet)
    }

    /// Users' packets that came out; all are the one that was cut.
    fn arrived(&self, lane: &mut Lane, frame: &[u8]) -> usize {
        lane.n3.send(frame);
        let out = lane.frames();
        for frame in &out {
            let packet = EthernetView::new_checked(&frame[..]).unwrap().payload().to_vec();
            assert_eq!(packet, self.expected, "another packet than was cut");
        }
        out.len()
    }
}

/// The datagram in pieces that fit together, in the script's order, some of them twice: it comes out once.
fn whole(packet: &Datagram, lane: &mut Lane, script: &mut Script<'_>) {
    let payload = packet.payload();
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < payload.len() {
        let left = payload.len() - at;
        // The last of those that are kept takes what is left.
        let wanted = if pieces.len() + 2 > LIMITS.pieces {
            left
        } else {
            8 * (1 + usize::from(script.byte_or_zero()))
        };
        let len = wanted.min(left);
        let more = len < left;
        pieces.push(packet.piece(at / 8, &payload[at..at + len], more));
        at += len;
    }
    let mut arrived = 0;
    while !pieces.is_empty() {
        let order = script.byte_or_zero();
        let piece = pieces.remove(usize::from(order >> 1) % pieces.len());
        // A copy of the last would begin another packet.
        if order & 1 != 0 && !pieces.is_empty() {
            arrived += packet.arrived(lane, &piece);
        }
        assert_eq!(arrived, 0, "out before it was complete");
        arrived += packet.arrived(lane, &piece);
    }
    assert_eq!(arrived, 1, "all pieces came and the packet did not come out");
}

/// Pieces that need not fit. What is not the packet's own lies where pieces were before, and contradicts them.
fn in_disorder(packet: &Datagram, lane: &mut Lane, script: &mut Script<'_>) {
    let payload = packet.payload();
    let blocks = payload.len().div_ceil(8);
    // What lies there already, as far as that is certain.
    let mut seen = vec![false; payload.len()];
    let mut last = payload.len();
    for _ in 0..LIMITS.pieces {
        let Some(how) = script.byte() else { break };
        let offset = usize::from(script.byte_or_zero()) % (blocks + 1);
        let start = (offset * 8).min(payload.len());
        let len = usize::from(script.short()) % (payload.len() - start + 1);
        let end = if how & 1 == 0 { start + len } else { payload.len().min(start + len / 8 * 8) };
        let mut data = payload[start..end].to_vec();
        // Only its last piece says where the packet ends.
        let more = if end == payload.len() { how & 4 != 0 } else { how & 0x38 != 0x38 };
        if offset == 0 && !more {
            // No piece, but a packet of its own: what waits for the rest waits on.
            packet.arrived(lane, &packet.piece(offset, &data, more));
            continue;
        }
        if how & 2 != 0 && !data.is_empty() && seen[start..end].iter().all(|&seen| seen) {
            let place = usize::from(script.byte_or_zero()) % data.len();
            data[place] ^= 0x55;
        }
        let possible = !more || data.len().is_multiple_of(8);
        seen[start..end].iter_mut().for_each(|seen| *seen |= possible);
        last = if more { last } else { last.min(end) };
        packet.arrived(lane, &packet.piece(offset, &data, more));
        if seen[..last].iter().all(|&seen| seen) {
            // It was complete, if only as a packet that is cut off: the next piece begins another.
            seen.fill(false);
            last = payload.len();
        }
    }
}
