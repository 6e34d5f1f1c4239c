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

/// A neighbour as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) ifindex: u32,
    pub(super) address: IpAddr,
    /// Its Ethernet address, when the entry may be used.
    pub(super) mac: Option<[u8; 6]>,
    pub(super) is_stale: bool,
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
    let usable = message.kind == libc::RTM_NEWNEIGH && state & USABLE != 0;
    Some(Entry {
        ifindex: u32_at(payload, 4)?,
        address: to?,
        mac: found.filter(|_| usable),
        is_stale: usable && state & libc::NUD_STALE != 0,
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
