//! Packets of sessions, and where they go.

use std::net::Ipv4Addr;

use kaido_engine::PortId;
use kaido_n4::{Seid, SessionService};
use kaido_pfcp::Instants;
use kaido_wire::Ipv4View;

use crate::fixture::{N3, N6, packets};
use crate::node::Process;
use crate::random::Random;
use crate::session::{Session, State};

/// Octets of an Ethernet header.
const ETHERNET: usize = 14;
/// Ethernet, IPv4, UDP, and four octets of GTP-U before the TEID.
const TEID_AT: usize = ETHERNET + 20 + 8 + 4;
/// IPv4 and UDP of the packets of UEs.
const INNER_HEADERS: usize = 28;

/// Sends a packet of a session each way, or one way, and counts what comes out.
///
/// # Errors
/// When it does not pass, or goes elsewhere.
pub(crate) fn pass(
    process: &mut Process,
    now: Instants,
    session: &mut Session,
    random: &mut Random,
) -> Result<(), String> {
    let (which, size) = (random.below(3), random.place(1100));
    let Some((teid, ue)) = session.ends else { return Ok(()) };
    // One whose end is asked for may have ended, and others have its address.
    if !session.is_up() && !process.endpoint.service().has_session(Seid(session.up_seid)) {
        return Ok(());
    }
    let (ue_text, octets) = (ue.to_string(), (size + INNER_HEADERS) as u64);
    if which != 0 {
        let frame = packets::uplink(teid, &packets::udp(&ue_text, "8.8.8.8", size));
        let out = process.pass(now, N3, &frame);
        match &out[..] {
            [(port, frame)] if *port == N6 && source_of(frame) == Some(ue) => {
                session.passed[0] += octets;
            }
            _ => return Err(format!("an uplink packet came out as {}: {session:?}", shown(&out))),
        }
    }
    if which != 1 {
        let out = process.pass(now, N6, &packets::downlink(&packets::udp("8.8.8.8", &ue_text, size)));
        let into = |frame: &[u8]| frame.get(TEID_AT..TEID_AT + 4)?.try_into().ok().map(u32::from_be_bytes);
        let is_right = |teid: u32| session.tunnels.contains(&teid) || session.asked == Some(teid);
        match &out[..] {
            [(port, frame)] if *port == N3 && into(frame).is_some_and(is_right) => {
                session.passed[1] += octets;
            }
            _ => return Err(format!("a downlink packet came out as {}: {session:?}", shown(&out))),
        }
    }
    Ok(())
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
