//! Many datagrams of a UDP socket by one call.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

use arrayvec::ArrayVec;

use crate::batch::BATCH_MAX;

/// Octets of the longest address of a sender: of IPv6.
const ADDRESS_MAX: usize = 28;

/// An address as the kernel writes it, aligned for its words.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
struct Address([u8; ADDRESS_MAX]);

/// A datagram that came.
#[derive(Clone, Copy, Debug)]
struct ReceivedDatagram {
    from: Option<SocketAddr>,
    len: usize,
}

/// Room for as many datagrams as a batch has packets, each for itself.
#[derive(Debug, Default)]
pub struct DatagramRooms {
    /// Octets of a room.
    room: usize,
    rooms: Box<[u8]>,
    came: ArrayVec<ReceivedDatagram, BATCH_MAX>,
}

impl DatagramRooms {
    /// Rooms of so many octets each; of longer datagrams the rest is lost.
    pub fn new(room: usize) -> Self {
        let room = room.max(1);
        Self { room, rooms: vec![0; room * BATCH_MAX].into(), came: ArrayVec::new() }
    }

    /// Takes up to `most` datagrams that have come to a socket, in place of those of the last time, and says
    /// how many.
    ///
    /// # Errors
    /// What the kernel says when it gives none: that none has come, or that one which was sent has come to grief.
    pub fn receive(&mut self, socket: &UdpSocket, most: usize) -> io::Result<usize> {
        self.came.clear();
        let mut addresses = [Address([0; ADDRESS_MAX]); BATCH_MAX];
        let mut buffers = ArrayVec::<libc::iovec, BATCH_MAX>::new();
        let mut messages = ArrayVec::<libc::mmsghdr, BATCH_MAX>::new();
        if self.room == 0 {
            return Ok(0);
        }
        for room in self.rooms.chunks_exact_mut(self.room).take(most) {
            buffers.push(libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() });
        }
        for (buffer, address) in buffers.iter_mut().zip(&mut addresses) {
            // SAFETY: a C struct of integers and pointers, for which zero means "not given".
            let mut message: libc::mmsghdr = unsafe { core::mem::zeroed() };
            message.msg_hdr.msg_name = address.0.as_mut_ptr().cast();
            message.msg_hdr.msg_namelen = libc::socklen_t::try_from(ADDRESS_MAX).unwrap_or(0);
            message.msg_hdr.msg_iov = buffer;
            message.msg_hdr.msg_iovlen = 1;
            messages.push(message);
        }
        // SAFETY: each message points to its buffer, and that to a room of its own, and to an address of its own; all are
        // borrowed uniquely here and live through the call, and their lengths are said.
        let result = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                u32::try_from(messages.len()).unwrap_or(0),
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
            )
        };
        let received = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
        for (message, address) in messages.iter().zip(&addresses).take(received) {
            self.came.push(ReceivedDatagram {
                from: read(&address.0),
                len: (message.msg_len as usize).min(self.room),
            });
        }
        Ok(received)
    }

    /// The datagrams that came the last time, with their senders.
    pub fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        let rooms = self.rooms.chunks_exact(self.room.max(1));
        self.came.iter().zip(rooms).filter_map(|(came, room)| Some((came.from?, &room[..came.len])))
    }
}

/// An address of IPv4 or IPv6; the kernel writes no other for UDP.
fn read(octets: &[u8; ADDRESS_MAX]) -> Option<SocketAddr> {
    let word = |at: usize| Some(u32::from_ne_bytes(octets.get(at..at + 4)?.try_into().ok()?));
    let port = u16::from_be_bytes([octets[2], octets[3]]);
    match libc::c_int::from(u16::from_ne_bytes([octets[0], octets[1]])) {
        libc::AF_INET => {
            let address: [u8; 4] = octets[4..8].try_into().ok()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(address), port).into())
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = octets[8..24].try_into().ok()?;
            Some(SocketAddrV6::new(Ipv6Addr::from(address), port, word(4)?, word(24)?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_come_with_their_senders_and_their_lengths() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let receiver = UdpSocket::bind(loopback).unwrap();
            let senders: Vec<UdpSocket> = (0..2).map(|_| UdpSocket::bind(loopback).unwrap()).collect();
            let mut rooms = DatagramRooms::new(100);
            let none = rooms.receive(&receiver, 8).unwrap_err();
            assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
            let all = u8::try_from(BATCH_MAX + 8).unwrap();
            for number in 0..all {
                let octets = vec![number; usize::from(number) * 4];
                senders[usize::from(number % 2)].send_to(&octets, receiver.local_addr().unwrap()).unwrap();
            }
            let mut next = 0u8;
            for (most, wanted) in [(3, 3), (99, BATCH_MAX), (8, 5)] {
                assert_eq!(rooms.receive(&receiver, most).unwrap(), wanted);
                for (from, octets) in rooms.datagrams() {
                    assert_eq!(from, senders[usize::from(next % 2)].local_addr().unwrap());
                    assert_eq!(octets, vec![next; (usize::from(next) * 4).min(100)]);
                    next += 1;
                }
            }
            assert_eq!(next, all);
        }
        assert_eq!(DatagramRooms::default().receive(&UdpSocket::bind("127.0.0.1:0").unwrap(), 4).unwrap(), 0);
    }
}
