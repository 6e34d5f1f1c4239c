//! Packets of sessions, and where they go.

use std::net::Ipv4Addr;

use kaido_engine::PortId;
use kaido_pfcp::Instants;
use kaido_wire::{GtpuView, Ipv4View};

use crate::clock::time_of;
use crate::fixture::{N3, N6, packets};
use crate::node::Datapath;
use crate::quota::Disposition;
use crate::random::Random;
use crate::session::{Downlink, Session, State};
use crate::smf::ControlPlane;

/// Octets of an Ethernet header.
const ETHERNET: usize = 14;
/// Ethernet, IPv4, and UDP.
const GTPU_AT: usize = ETHERNET + 20 + 8;
/// IPv4 and UDP of the packets of UEs.
const INNER_HEADERS: usize = 28;

/// Sends a packet of a session each way, or one way, and counts what comes out.
///
/// # Errors
/// When it neither passes nor waits for a UE that is idle, or goes elsewhere.
pub(crate) fn pass(
    datapath: &mut Datapath,
    now: Instants,
    session: &mut Session,
    random: &mut Random,
) -> Result<(), String> {
    let (ways, size) = any(random);
    if ways.up {
        pass_up(datapath, now, session, size)?;
    }
    if ways.down {
        pass_down(datapath, now, session, size)?;
    }
    Ok(())
}

/// Sends a packet of a session that is not in the table yet each way, or one way.
///
/// # Errors
/// When anything comes out: also nobody is to be told that there is no such session.
pub(crate) fn lose(
    datapath: &mut Datapath,
    now: Instants,
    session: &Session,
    random: &mut Random,
) -> Result<(), String> {
    let (ways, size) = any(random);
    let Some(ends) = session.ends else { return Ok(()) };
    let up = ways.up.then(|| (N3, uplink(ends, size)));
    let down = ways.down.then(|| (N6, downlink(ends, size)));
    let out: Vec<_> =
        up.into_iter().chain(down).flat_map(|(port, frame)| datapath.pass(now, port, &frame)).collect();
    match &out[..] {
        [] => Ok(()),
        _ => Err(format!("a packet of a session that is not there yet makes {}: {session:?}", shown(&out))),
    }
}

struct Ways {
    up: bool,
    down: bool,
}

/// Which ways, and octets.
fn any(random: &mut Random) -> (Ways, usize) {
    let which = random.below(3);
    (Ways { up: which != 0, down: which != 1 }, random.place(1100))
}

fn uplink((teid, ue): (u32, Ipv4Addr), size: usize) -> Vec<u8> {
    packets::uplink(teid, &packets::udp(&ue.to_string(), "8.8.8.8", size))
}

fn downlink((_, ue): (u32, Ipv4Addr), size: usize) -> Vec<u8> {
    packets::downlink(&packets::udp("8.8.8.8", &ue.to_string(), size))
}

fn pass_up(datapath: &mut Datapath, now: Instants, session: &mut Session, size: usize) -> Result<(), String> {
    let Some(ends) = session.ends else { return Ok(()) };
    let disposition = session.disposition();
    let out = datapath.pass(now, N3, &uplink(ends, size));
    match &out[..] {
        [] if disposition != Disposition::Passes => Ok(()),
        _ if disposition == Disposition::Stops => Err(beyond_quota(session, &out)),
        [(port, frame)] if *port == N6 && source_of(frame) == Some(ends.1) => {
            session.pass(0, (size + INNER_HEADERS) as u64, time_of(now));
            Ok(())
        }
        _ => Err(format!("an uplink packet came out as {}: {session:?}", shown(&out))),
    }
}

/// Sends a packet to the UE of a session.
///
/// # Errors
/// As [`pass`].
pub(crate) fn pass_down(
    datapath: &mut Datapath,
    now: Instants,
    session: &mut Session,
    size: usize,
) -> Result<(), String> {
    let Some(ends) = session.ends else { return Ok(()) };
    let disposition = session.disposition();
    let out = datapath.pass(now, N6, &downlink(ends, size));
    let is_right = |teid: u32| session.may_go(Downlink::Tunnel(teid));
    match &out[..] {
        [] if disposition != Disposition::Passes => Ok(()),
        _ if disposition == Disposition::Stops => Err(beyond_quota(session, &out)),
        [(port, frame)] if *port == N3 && teid_of(frame).is_some_and(is_right) => {
            session.pass(1, (size + INNER_HEADERS) as u64, time_of(now));
            Ok(())
        }
        [] if session.may_go(Downlink::Buffer) => Ok(()),
        _ => Err(format!("a downlink packet came out as {}: {session:?}", shown(&out))),
    }
}

fn beyond_quota(session: &Session, out: &[(PortId, Vec<u8>)]) -> String {
    format!("a packet beyond the quota came out as {}: {session:?}", shown(out))
}

/// Counts packets that have waited for a UE, which is not idle any more.
///
/// # Errors
/// When one goes into no tunnel that was asked for.
pub(crate) fn count_released(
    control_planes: &mut [ControlPlane],
    now: Instants,
    out: &[(PortId, Vec<u8>)],
) -> Result<(), String> {
    for released in out {
        let (port, frame) = released;
        let mut sessions = control_planes.iter_mut().flat_map(|smf| smf.sessions.values_mut());
        let has = |session: &&mut Session, teid| session.was_idle && session.may_go(Downlink::Tunnel(teid));
        let session = teid_of(frame).and_then(|teid| sessions.find(|session| has(session, teid)));
        match session.zip(size_of(frame)).filter(|_| *port == N3) {
            Some((session, octets)) => session.pass(1, octets, time_of(now)),
            None => return Err(format!("a packet that waited came out as {}", shown(&out[..1]))),
        }
    }
    Ok(())
}

/// The TEID of the G-PDU in a frame.
fn teid_of(frame: &[u8]) -> Option<u32> {
    g_pdu(frame).map(|g_pdu| g_pdu.teid())
}

/// Octets of the packet in it.
fn size_of(frame: &[u8]) -> Option<u64> {
    let g_pdu = g_pdu(frame)?;
    Ipv4View::new_checked(g_pdu.payload()).ok().map(|packet| packet.total_len().into())
}

fn g_pdu(frame: &[u8]) -> Option<GtpuView<&[u8]>> {
    GtpuView::new_checked(frame.get(GTPU_AT..)?).ok()
}

/// The source of the IPv4 packet in a frame.
fn source_of(frame: &[u8]) -> Option<Ipv4Addr> {
    Ipv4View::new_checked(frame.get(ETHERNET..)?).ok().map(|packet| packet.src())
}

/// The beginnings of frames.
fn shown(out: &[(PortId, Vec<u8>)]) -> String {
    out.iter().map(|(port, frame)| format!("{port:?} {:02x?} ", &frame[..frame.len().min(70)])).collect()
}

/// Whether packets of a session are of interest.
pub(crate) fn has_traffic(session: &Session) -> bool {
    session.is_up() || matches!(session.state, State::Deleting | State::Unanswered)
}
