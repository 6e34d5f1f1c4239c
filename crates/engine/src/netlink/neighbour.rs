//! Neighbour entries: reading them, and asking the kernel to resolve one.

use std::net::IpAddr;

use super::NetlinkError;
use super::socket::Socket;
use super::wire::{Message, Request, address, attributes, family, mac, octets, u16_at, u32_at};

/// `struct ndmsg`: family, pads, index, state, flags, type.
const HEADER: usize = 12;

/// States in which an entry's address may be used.
const USABLE: u16 = libc::NUD_REACHABLE
    | libc::NUD_STALE
    | libc::NUD_DELAY
    | libc::NUD_PROBE
    | libc::NUD_PERMANENT
    | libc::NUD_NOARP;

/// What the kernel knows of a neighbour: its `NUD_*` states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// It is being asked for.
    Incomplete,
    /// It has answered not long ago.
    Reachable,
    /// It has not been asked for a while.
    Stale,
    /// It was used while stale, and is asked soon.
    Delay,
    /// It is asked whether it is still there.
    Probe,
    /// It did not answer.
    Failed,
    /// Nobody is asked on its link.
    NoArp,
    /// Somebody has said so, and it stays.
    Permanent,
}

impl NeighbourState {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Incomplete,
        Self::Reachable,
        Self::Stale,
        Self::Delay,
        Self::Probe,
        Self::Failed,
        Self::NoArp,
        Self::Permanent,
    ];

    /// As `ip neighbour` names it, in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Reachable => "reachable",
            Self::Stale => "stale",
            Self::Delay => "delay",
            Self::Probe => "probe",
            Self::Failed => "failed",
            Self::NoArp => "noarp",
            Self::Permanent => "permanent",
        }
    }

    /// Of a `NUD_*` value; `None` where the kernel knows nothing of the neighbour (`NUD_NONE`).
    fn of(state: u16) -> Option<Self> {
        let known = [
            (libc::NUD_PERMANENT, Self::Permanent),
            (libc::NUD_NOARP, Self::NoArp),
            (libc::NUD_REACHABLE, Self::Reachable),
            (libc::NUD_STALE, Self::Stale),
            (libc::NUD_DELAY, Self::Delay),
            (libc::NUD_PROBE, Self::Probe),
            (libc::NUD_INCOMPLETE, Self::Incomplete),
            (libc::NUD_FAILED, Self::Failed),
        ];
        known.into_iter().find(|(bit, _)| state & bit != 0).map(|(_, known)| known)
    }
}

/// A neighbour as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) ifindex: u32,
    pub(super) address: IpAddr,
    /// Its Ethernet address, when the entry may be used.
    pub(super) mac: Option<[u8; 6]>,
    /// `None` when the kernel has no such entry any more.
    pub(super) state: Option<NeighbourState>,
}

/// Reads a `RTM_NEWNEIGH` or `RTM_DELNEIGH`; nothing for entries that are not of IP, or that we answer for.
pub(super) fn read(message: &Message<'_>) -> Option<Entry> {
    let payload = message.payload;
    let family = libc::c_int::from(*payload.first()?);
    let (state, flags) = (u16_at(payload, 8)?, *payload.get(10)?);
    if !matches!(family, libc::AF_INET | libc::AF_INET6) || flags & libc::NTF_PROXY != 0 {
        return None;
    }
    let (mut to, mut found) = (None, None);
    for (kind, value) in attributes(payload.get(HEADER..)?) {
        match kind {
            libc::NDA_DST => to = address(value),
            libc::NDA_LLADDR => found = mac(value),
            _ => {}
        }
    }
    let is_there = message.kind == libc::RTM_NEWNEIGH;
    Some(Entry {
        ifindex: u32_at(payload, 4)?,
        address: to?,
        mac: found.filter(|_| is_there && state & USABLE != 0),
        state: NeighbourState::of(state).filter(|_| is_there),
    })
}

pub(super) fn dump(socket: &mut Socket) -> Result<Vec<Entry>, NetlinkError> {
    let request = Request::new(libc::RTM_GETNEIGH, libc::NLM_F_DUMP, &[0; HEADER]);
    socket.dump("reading the neighbours", &request, |message| {
        (message.kind == libc::RTM_NEWNEIGH).then(|| read(message)).flatten()
    })
}

/// Tells the kernel that the neighbour is in use, as if a packet had gone to it: an unknown one is asked for, a
/// stale one is probed after a while. A permanent one is left alone: the kernel would make it an ordinary one.
pub(super) fn use_entry(socket: &mut Socket, ifindex: u32, to: IpAddr) -> Result<(), NetlinkError> {
    if is_permanent(socket, ifindex, to)? {
        return Ok(());
    }
    let request = request(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE, ifindex, libc::NTF_USE, to);
    socket.ask("asking for a neighbour", request)
}

fn is_permanent(socket: &mut Socket, ifindex: u32, to: IpAddr) -> Result<bool, NetlinkError> {
    let mut state = 0;
    let found =
        socket.get("reading a neighbour", request(libc::RTM_GETNEIGH, 0, ifindex, 0, to), |message| {
            state = u16_at(message.payload, 8).unwrap_or(0);
        });
    match found {
        Err(NetlinkError::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        result => result.map(|()| state & libc::NUD_PERMANENT != 0),
    }
}

/// A request about one entry.
fn request(kind: u16, flags: libc::c_int, ifindex: u32, entry_flags: u8, to: IpAddr) -> Request {
    let mut header = vec![family(to), 0, 0, 0];
    header.extend_from_slice(&ifindex.to_ne_bytes());
    header.extend_from_slice(&libc::NUD_NONE.to_ne_bytes());
    header.extend_from_slice(&[entry_flags, 0]);
    Request::new(kind, flags | libc::NLM_F_ACK, &header).with(libc::NDA_DST, &octets(to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire::messages;

    fn parsed(kind: u16, state: u16, flags: u8) -> Option<Entry> {
        let mut header = vec![2, 0, 0, 0, 7, 0, 0, 0];
        header.extend_from_slice(&state.to_ne_bytes());
        header.extend_from_slice(&[flags, 0]);
        let request = Request::new(kind, 0, &header)
            .with(libc::NDA_DST, &[10, 0, 0, 1])
            .with(libc::NDA_LLADDR, &[2; 6]);
        messages(&request.into_bytes(1)).next().and_then(|message| read(&message))
    }

    #[test]
    fn an_address_counts_in_the_states_in_which_it_may_be_used() {
        for (state, expected, is_usable) in [
            (libc::NUD_INCOMPLETE, NeighbourState::Incomplete, false),
            (libc::NUD_REACHABLE, NeighbourState::Reachable, true),
            (libc::NUD_STALE, NeighbourState::Stale, true),
            (libc::NUD_DELAY, NeighbourState::Delay, true),
            (libc::NUD_PROBE, NeighbourState::Probe, true),
            (libc::NUD_FAILED, NeighbourState::Failed, false),
            (libc::NUD_NOARP, NeighbourState::NoArp, true),
            (libc::NUD_PERMANENT, NeighbourState::Permanent, true),
        ] {
            let entry = parsed(libc::RTM_NEWNEIGH, state, 0).unwrap();
            assert_eq!(entry.state, Some(expected));
            assert_eq!(entry.mac, is_usable.then_some([2; 6]), "{}", expected.name());
        }
    }

    #[test]
    fn one_that_is_removed_has_no_state_and_proxies_are_none() {
        let gone = parsed(libc::RTM_DELNEIGH, libc::NUD_REACHABLE, 0).unwrap();
        assert_eq!((gone.mac, gone.state), (None, None));
        assert_eq!(parsed(libc::RTM_NEWNEIGH, libc::NUD_NONE, 0).unwrap().state, None);
        assert!(parsed(libc::RTM_NEWNEIGH, libc::NUD_REACHABLE, libc::NTF_PROXY).is_none());
    }
}
