//! A netlink socket: requests with their answers, dumps, and subscriptions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::NLM_F_DUMP_INTR;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::NetlinkError;
use super::wire::{Message, Request, messages, u32_at};

/// The kernel fills datagrams of a dump up to what the reader offers, 32 KiB at most.
const BUFFER: usize = 65536;

/// Dumps of one table before we give up on a steady one.
const DUMP_TRIES: usize = 10;

/// The kernel answers at once; this is for the case that it does not.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a read of a subscription gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Messages were handed over.
    Some,
    /// Nothing is there.
    None,
    /// The kernel had to throw messages away.
    Overrun,
}

#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Box<[u8]>,
}

impl Socket {
    /// A socket for requests.
    pub(super) fn open() -> Result<Self, NetlinkError> {
        let socket = Self::bound(0, SocketFlags::CLOEXEC)?;
        sockopt::set_socket_timeout(&socket.fd, sockopt::Timeout::Recv, Some(PATIENCE))
            .map_err(sys("setsockopt(SO_RCVTIMEO)"))?;
        Ok(socket)
    }

    /// A socket that hears of changes in `groups` (`RTMGRP_*`), and never waits.
    pub(super) fn subscribe(groups: u32, receive_buffer: usize) -> Result<Self, NetlinkError> {
        let socket = Self::bound(groups, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        // Beyond the system's limit where we may; a smaller buffer only means more overruns.
        if sockopt::set_socket_recv_buffer_size_force(&socket.fd, receive_buffer).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket.fd, receive_buffer);
        }
        Ok(socket)
    }

    fn bound(groups: u32, flags: SocketFlags) -> Result<Self, NetlinkError> {
        // No protocol means number zero: NETLINK_ROUTE.
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)
            .map_err(sys("socket(AF_NETLINK)"))?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, groups)).map_err(sys("bind(AF_NETLINK)"))?;
        Ok(Self { fd, sequence: 0, buffer: vec![0; BUFFER].into_boxed_slice() })
    }

    /// Reads one datagram of a subscription.
    pub(super) fn read(&mut self, mut each: impl FnMut(&Message<'_>)) -> Result<Read, NetlinkError> {
        match rustix::net::recv(&self.fd, &mut *self.buffer, RecvFlags::empty()) {
            Ok((_, len)) => {
                messages(&self.buffer[..len.min(BUFFER)]).for_each(|message| each(&message));
                Ok(Read::Some)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Read::None),
            Err(rustix::io::Errno::NOBUFS) => Ok(Read::Overrun),
            Err(error) => Err(sys("recv(AF_NETLINK)")(error)),
        }
    }

    /// Sends a request and waits until the kernel has done it or refused.
    pub(super) fn ask(&mut self, what: &'static str, request: Request) -> Result<(), NetlinkError> {
        self.get(what, request, |_| {})
    }

    /// Sends a request for one object, which `each` is shown.
    pub(super) fn get(
        &mut self,
        what: &'static str,
        request: Request,
        each: impl FnMut(&Message<'_>),
    ) -> Result<(), NetlinkError> {
        self.exchange(what, request, each).map(|_| ())
    }

    /// Collects what `read` makes of every message of a dump, all of one moment.
    pub(super) fn dump<T>(
        &mut self,
        what: &'static str,
        request: &Request,
        read: impl Fn(&Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        for _ in 0..DUMP_TRIES {
            let mut rows = Vec::new();
            if self.exchange(what, request.clone(), |message| rows.extend(read(message)))? {
                return Ok(rows);
            }
        }
        Err(NetlinkError::Unsteady { request: what })
    }

    /// One request and its answers; false when a dump was interrupted by a change.
    fn exchange(
        &mut self,
        what: &'static str,
        request: Request,
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<bool, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.into_bytes(self.sequence);
        rustix::net::send(&self.fd, &bytes, SendFlags::empty()).map_err(sys("send(AF_NETLINK)"))?;
        let mut steady = true;
        loop {
            let len = match rustix::net::recv(&self.fd, &mut *self.buffer, RecvFlags::empty()) {
                Ok((_, len)) => len.min(BUFFER),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(sys("recv(AF_NETLINK)")(error)),
            };
            for message in messages(&self.buffer[..len]).filter(|m| m.sequence == self.sequence) {
                // Unset where all of a dump is of one moment; see `Documentation/userspace-api/netlink/intro.rst`.
                steady &= message.flags & NLM_F_DUMP_INTR == 0;
                match libc::c_int::from(message.kind) {
                    libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                        return verdict(what, message.payload).map(|()| steady);
                    }
                    _ => each(&message),
                }
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The error number in front of `NLMSG_ERROR` and `NLMSG_DONE`, negative or zero.
fn verdict(request: &'static str, payload: &[u8]) -> Result<(), NetlinkError> {
    match u32_at(payload, 0).map_or(0, u32::cast_signed) {
        0 => Ok(()),
        errno => {
            Err(NetlinkError::Refused { request, source: io::Error::from_raw_os_error(errno.wrapping_neg()) })
        }
    }
}

fn sys(call: &'static str) -> impl Fn(rustix::io::Errno) -> NetlinkError {
    move |errno| NetlinkError::Sys { call, source: errno.into() }
}
