//! What the loader shares with `bench/xdp-map-chain/map_chain.h`. A change there is a change here.

use std::net::Ipv4Addr;

use crate::frames::Template;
use crate::network::{FIRST_UE, GNB, MTU, N3, QFI, teid, ue};

/// Octets of the values.
pub(super) const CONFIG_LEN: usize = 168;
pub(super) const STATE_LEN: usize = 24;
const UPLINK_ROOM: usize = 88;
const DOWNLINK_ROOM: usize = 48;

/// `struct chain_config`.
pub(super) fn config(
    sessions: u32,
    has_rules: bool,
    uplink: &Template,
    downlink: &Template,
) -> [u8; CONFIG_LEN] {
    let len = u32::try_from(uplink.len).unwrap_or(u32::MAX);
    // The program adds the address as it lies in memory, so the sum lies as it would there.
    let sum = |template: &Template| u32::from(u16::from_ne_bytes(template.sum.to_be_bytes()));
    let sums = [sum(uplink), sum(downlink)];
    let words =
        [sessions, u32::from(MTU), len, FIRST_UE.to_bits(), sums[0], sums[1], u32::from(has_rules), 0];
    let mut out = [0; CONFIG_LEN];
    let (numbers, templates) = out.split_at_mut(size_of_val(&words));
    numbers.copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
    let (up, down) = templates.split_at_mut(UPLINK_ROOM);
    up[..uplink.headers.len()].copy_from_slice(&uplink.headers);
    down[..downlink.headers.len()].copy_from_slice(&downlink.headers);
    out
}

const _: () = assert!(CONFIG_LEN == 8 * 4 + UPLINK_ROOM + DOWNLINK_ROOM);

/// `struct chain_state` of a CPU.
pub(super) fn state(seed: u64) -> [u8; STATE_LEN] {
    let mut out = [0; STATE_LEN];
    out[..8].copy_from_slice(&(seed | 1).to_ne_bytes());
    out
}

/// Runs that failed, of a `struct chain_state`.
pub(super) fn failed(state: &[u8]) -> u64 {
    state.get(8..16).and_then(|word| word.first_chunk()).map_or(0, |&word| u64::from_ne_bytes(word))
}

/// FAR of a session's uplink, or downlink. Network functions number them from one pool.
pub(super) fn far_id(session: u32, downlink: bool) -> u32 {
    session * 2 + u32::from(downlink)
}

/// Keys of `pdr_uplink` and `pdr_downlink`, in network order.
pub(super) fn keys(session: u32) -> [[u8; 4]; 2] {
    [teid(session).to_be_bytes(), ue(session).octets()]
}

/// `struct chain_pdr`.
pub(super) fn pdr(session: u32, downlink: bool) -> [u8; 20] {
    let mut out = [0; 20];
    out[..4].copy_from_slice(&far_id(session, downlink).to_ne_bytes());
    out[4..8].copy_from_slice(&session.to_ne_bytes());
    out[8..12].copy_from_slice(&session.to_ne_bytes());
    out[12..16].copy_from_slice(&ue(session).octets());
    out[16] = u8::from(!downlink);
    out
}

/// `struct chain_far`, uplink and downlink: neighbours in the array.
pub(super) fn fars(session: u32) -> [u8; 32] {
    let mut out = [0; 32];
    out[0] = 1;
    out[16] = 1;
    out[17] = 1;
    out[20..24].copy_from_slice(&teid(session).to_be_bytes());
    out[24..28].copy_from_slice(&GNB.octets());
    out[28..32].copy_from_slice(&N3.octets());
    out
}

/// `struct chain_qer`.
pub(super) const QER: [u8; 4] = [1, 1, QFI, 0];

/// `struct chain_route`, by loopback: test runs go nowhere.
pub(super) fn route(destination: [u8; 6], source: [u8; 6]) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&1u32.to_ne_bytes());
    out[4..10].copy_from_slice(&destination);
    out[10..].copy_from_slice(&source);
    out
}

/// Key of `route_cache`.
pub(super) fn route_key(destination: Ipv4Addr) -> [u8; 4] {
    destination.octets()
}
