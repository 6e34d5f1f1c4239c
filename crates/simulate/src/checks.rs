//! What must be true when all has come to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use kaido_store::Kind;

use crate::disk::Kept;
use crate::node::{Process, SESSIONS_MAX};
use crate::session::State;
use crate::smf::ControlPlane;

/// No two sessions have a TEID or a UE address.
///
/// # Errors
/// When two have.
pub(crate) fn unique(control_planes: &[ControlPlane]) -> Result<(), String> {
    let (mut teids, mut ues) = (BTreeMap::new(), BTreeMap::new());
    for smf in control_planes {
        for (seid, session) in smf.sessions.iter().filter(|(_, session)| session.is_up()) {
            let Some((teid, ue)) = session.ends else { continue };
            let who = (smf.number, *seid);
            if let Some(other) = teids.insert(teid, who).or(ues.insert(ue, who)) {
                return Err(format!("{who:?} and {other:?} have TEID {teid:#x} or UE {ue}"));
            }
        }
    }
    Ok(())
}

/// The node has the sessions that control planes have, with what they were told of them, and none that has ended.
///
/// # Errors
/// When it has not.
pub(crate) fn sessions(process: &Process, control_planes: &[ControlPlane]) -> Result<(), String> {
    let found = process.endpoint.service().sessions(0, SESSIONS_MAX as usize);
    let (sessions, bound) = (found.len(), process.endpoint.session_count());
    if bound != sessions {
        return Err(format!("the user plane has {sessions} sessions, the endpoint {bound}"));
    }
    let mut missing: BTreeSet<(IpAddr, u64)> = BTreeSet::new();
    for smf in control_planes {
        let up = smf.sessions.iter().filter(|(_, session)| session.is_up());
        missing.extend(up.map(|(&seid, _)| (smf.address.ip(), seid)));
    }
    for summary in found {
        let address = IpAddr::V4(summary.cp_fseid.ipv4.unwrap_or(Ipv4Addr::UNSPECIFIED));
        let seid = summary.cp_fseid.seid.0;
        let Some(smf) = control_planes.iter().find(|smf| smf.address.ip() == address) else {
            return Err(format!("{summary:?} is nobody's"));
        };
        missing.remove(&(address, seid));
        match smf.sessions.get(&seid) {
            Some(session) if session.state == State::Ended => {
                return Err(format!("session {seid} of smf {} was deleted, and is there", smf.number));
            }
            Some(session) if session.up_seid != summary.seid.0 => {
                return Err(format!("session {seid} of smf {} is there as {}", smf.number, summary.seid));
            }
            Some(_) => {}
            None if smf.unknown.contains(&seid) => {}
            None => {
                return Err(format!(
                    "session {seid} of smf {} was never asked for, or is of an earlier life",
                    smf.number
                ));
            }
        }
    }
    match missing.first() {
        None => Ok(()),
        Some((address, seid)) => {
            Err(format!("session {seid} of {address} was acknowledged, and is not there"))
        }
    }
}

/// Nothing is left of anything.
///
/// # Errors
/// When something is.
pub(crate) fn nothing(process: &Process, kept: Option<&Kept>) -> Result<(), String> {
    let (endpoint, upf) = (&process.endpoint, process.endpoint.service());
    let left = [endpoint.session_count(), endpoint.peers().count(), upf.len(), upf.node().table.len()];
    if left != [0; 4] {
        return Err(format!(
            "sessions, associations, sessions of the user plane and keys are left: {left:?}"
        ));
    }
    // Answers are written over by and by.
    let stays = |kind: Kind| matches!(kind, Kind::Node | Kind::Answer);
    match kept.and_then(|kept| kept.keys().find(|(kind, _)| !stays(*kind))) {
        None => Ok(()),
        Some((kind, key)) => Err(format!("{} {key} is left in the store", kind.name())),
    }
}
