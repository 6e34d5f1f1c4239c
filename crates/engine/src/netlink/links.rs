//! Changes of the interfaces themselves: made, removed, up, down, renamed, with other addresses.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::NetlinkError;
use super::address::read_link;
use super::socket::{Read, Socket};

/// `RTMGRP_*` of `linux/rtnetlink.h`: link, IPv4 and IPv6 address.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// Bytes of messages that may wait; of those that are lost nothing is missed, as the interfaces are read again anyway.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Hears that something about the interfaces of a network namespace has changed; what, [`super::interfaces`] tells.
#[derive(Debug)]
pub struct LinkEvents(Socket);

impl LinkEvents {
    /// Listens from now on in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Sys`].
    pub fn subscribe() -> Result<Self, NetlinkError> {
        Ok(Self(Socket::subscribe(GROUPS, RECEIVE_BUFFER)?))
    }

    /// Waits until something has changed, at most so long. What was heard: the indexes of interfaces that were removed, which
    /// may be in use again; `None` when nothing has changed.
    ///
    /// # Errors
    /// [`NetlinkError::Sys`].
    pub fn wait(&mut self, longest: Duration) -> Result<Option<Vec<u32>>, NetlinkError> {
        let timeout = Timespec::try_from(longest).ok();
        // An interrupted wait is only a shorter one.
        let _ = poll(&mut [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)], timeout.as_ref());
        let (mut changed, mut removed) = (false, Vec::new());
        loop {
            let read = self.0.read(|message| {
                if message.kind == libc::RTM_DELLINK {
                    removed.extend(read_link(message).map(|link| link.ifindex));
                }
            });
            match read? {
                Read::None => return Ok(changed.then_some(removed)),
                Read::Some | Read::Overrun => changed = true,
            }
        }
    }
}
