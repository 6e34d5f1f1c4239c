//! The system calls of an AF_PACKET socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::offload::{VNET_HEADER, VnetHeaderInfo, read_auxdata};
use crate::batch::{BATCH_MAX, Batch};
use crate::port::PortError;
use crate::port::scatter::Scatter;

/// Buffers of all messages of a call together: 64 packets of 1500 bytes, or nine of 64 KiB.
const BUFFERS_MAX: usize = 192;

/// Bytes of received packets that may wait for us in the kernel, if it lets us.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;

/// Packets that the kernel may refuse to hand over before a call gives up until the next.
const REFUSED_MAX: usize = 64;

/// `ETH_P_ALL` in network byte order, as the socket address wants it.
#[allow(clippy::cast_possible_truncation)] // 3.
const ALL: u16 = (libc::ETH_P_ALL as u16).to_be();

/// Room for one control message with a `struct tpacket_auxdata`, aligned as a control message is.
type Control = [usize; 8];

/// How far sending came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendProgress {
    /// So many from the front.
    Packets(usize),
    /// The first one cannot be sent, now or later.
    FirstFails,
    /// The device takes no more now.
    Full,
}

#[derive(Debug)]
pub(super) struct PacketSocket(Arc<OwnedFd>);

impl PacketSocket {
    pub(super) fn open(ifindex: u32) -> Result<Self, PortError> {
        let error = |call| PortError::sys(format!("interface {ifindex}"), call);
        // Protocol zero takes nothing yet: bound first, or packets of other interfaces would come in.
        // SAFETY: no pointers.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
        };
        if fd < 0 {
            return Err(error("socket(AF_PACKET)")(io::Error::last_os_error()));
        }
        // SAFETY: a fresh descriptor that no one else owns.
        let socket = Self(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) }));
        for (option, call) in [
            (libc::PACKET_IGNORE_OUTGOING, "setsockopt(PACKET_IGNORE_OUTGOING)"),
            (libc::PACKET_AUXDATA, "setsockopt(PACKET_AUXDATA)"),
            (libc::PACKET_VNET_HDR, "setsockopt(PACKET_VNET_HDR)"),
        ] {
            let one: libc::c_int = 1;
            set(fd, libc::SOL_PACKET, option, &one).map_err(error(call))?;
        }
        // Beyond the system's limit where we may; a smaller buffer only overflows sooner.
        for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
            let _ = set(fd, libc::SOL_SOCKET, option, &RECEIVE_BUFFER);
        }
        socket.bind(ifindex).map_err(error("bind(AF_PACKET)"))?;
        Ok(socket)
    }

    /// Takes over a socket that was opened on the interface.
    #[allow(clippy::cast_possible_truncation)] // The sizes and family of a C struct.
    pub(super) fn adopt(fd: OwnedFd, ifindex: u32) -> Result<Self, PortError> {
        let error = PortError::sys(format!("interface {ifindex}"), "getsockname(AF_PACKET)");
        // SAFETY: a C struct of integers.
        let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and length describe `address`, any content of which is valid.
        let result = unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &mut len) };
        if result < 0 {
            return Err(error(io::Error::last_os_error()));
        }
        if (address.sll_family, address.sll_ifindex) != (libc::AF_PACKET as u16, ifindex.cast_signed()) {
            return Err(error(io::Error::other("the socket is none of this interface")));
        }
        Ok(Self(Arc::new(fd)))
    }

    pub(super) fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.0
    }

    /// Has the interface hand over frames to every address, for as long as the socket is open.
    #[allow(clippy::cast_possible_truncation)] // A small constant.
    pub(super) fn receive_all(&self, ifindex: u32) -> Result<(), PortError> {
        let wish = libc::packet_mreq {
            mr_ifindex: ifindex.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let error = PortError::sys(format!("interface {ifindex}"), "setsockopt(PACKET_ADD_MEMBERSHIP)");
        set(self.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &wish).map_err(error)
    }

    #[allow(clippy::cast_possible_truncation)] // The sizes and family of a C struct.
    fn bind(&self, ifindex: u32) -> io::Result<()> {
        // SAFETY: a C struct of integers.
        let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ALL;
        address.sll_ifindex = ifindex.cast_signed();
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and length describe `address`, which is only read.
        let result = unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), len) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives into `rooms`, one packet each, of which `rests` take what has no room there; what arrived, and how many
    /// there was room for.
    pub(super) fn receive<'r>(
        &self,
        rooms: &mut [Scatter],
        rests: impl Iterator<Item = &'r mut [u8]>,
    ) -> (ArrayVec<VnetHeaderInfo, BATCH_MAX>, usize) {
        let mut headers = [[0u8; VNET_HEADER]; BATCH_MAX];
        let mut controls = [[0usize; 8]; BATCH_MAX];
        let mut buffers = ArrayVec::<libc::iovec, BUFFERS_MAX>::new();
        let mut messages = ArrayVec::<libc::mmsghdr, BATCH_MAX>::new();
        for (((room, rest), header), control) in
            rooms.iter_mut().zip(rests).zip(&mut headers).zip(&mut controls)
        {
            let first = buffers.len();
            if buffers.try_push(buffer(header)).is_err() {
                break;
            }
            let is_room = room.buffers().all(|mut part| buffers.try_push(buffer(&mut part)).is_ok());
            if !is_room || buffers.try_push(buffer(rest)).is_err() {
                buffers.truncate(first);
                break;
            }
            let mut message = message(buffers.len() - first);
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of::<Control>();
            messages.push(message);
        }
        let wanted = messages.len();
        if wanted == 0 {
            return (ArrayVec::new(), 0);
        }
        locate(&mut messages, &mut buffers);
        let received = self.receive_into(&mut messages);
        let arrivals = messages[..received].iter().zip(&headers).zip(&controls);
        (arrivals.map(|((message, header), control)| arrival(message, header, control)).collect(), wanted)
    }

    /// Receives messages that [`locate`] has pointed to borrowed buffers; how many.
    fn receive_into(&self, messages: &mut [libc::mmsghdr]) -> usize {
        for _ in 0..REFUSED_MAX {
            // SAFETY: each message points to its buffers, and these to headers and frames that the caller has
            // borrowed uniquely, and to a control buffer; all live through the call.
            let result = unsafe {
                libc::recvmmsg(
                    self.0.as_raw_fd(),
                    messages.as_mut_ptr(),
                    u32::try_from(messages.len()).unwrap_or(0),
                    libc::MSG_DONTWAIT,
                    core::ptr::null_mut(),
                )
            };
            if let Ok(received) = usize::try_from(result) {
                return received;
            }
            // EINVAL: a coalesced packet of a kind that has no name here; the kernel threw it away.
            if !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EINTR | libc::EINVAL)) {
                return 0;
            }
        }
        0
    }

    /// Sends from the front of `batch`, as many packets as one call takes.
    pub(super) fn send(&self, batch: &Batch) -> SendProgress {
        // No offloads asked of the device.
        let header = [0u8; VNET_HEADER];
        let mut buffers = ArrayVec::<libc::iovec, BUFFERS_MAX>::new();
        let mut messages = ArrayVec::<libc::mmsghdr, BATCH_MAX>::new();
        for frame in batch.iter() {
            let first = buffers.len();
            let mut parts = frame.segments().filter(|part| !part.is_empty()).map(read_only);
            if buffers.try_push(read_only(&header)).is_err()
                || !parts.all(|part| buffers.try_push(part).is_ok())
            {
                buffers.truncate(first);
                break;
            }
            messages.push(message(buffers.len() - first));
        }
        if messages.is_empty() {
            // A packet of more segments than a call takes.
            return SendProgress::FirstFails;
        }
        locate(&mut messages, &mut buffers);
        loop {
            // SAFETY: each message points to its buffers, and these to the header and to the frames of the batch,
            // which are only read and live through the call.
            let result = unsafe {
                libc::sendmmsg(
                    self.0.as_raw_fd(),
                    messages.as_mut_ptr(),
                    u32::try_from(messages.len()).unwrap_or(0),
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(result) {
                Ok(sent) => return SendProgress::Packets(sent),
                Err(_) => match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return SendProgress::Full,
                    _ => return SendProgress::FirstFails,
                },
            }
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn buffer(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// Not to be received into.
fn read_only(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// A message over `count` buffers, to which [`locate`] points it.
fn message(count: usize) -> libc::mmsghdr {
    // SAFETY: a C struct of integers and pointers, for which zero means "not given".
    let mut message: libc::mmsghdr = unsafe { core::mem::zeroed() };
    message.msg_hdr.msg_iovlen = count;
    message
}

/// Points the messages, which lie in the order of their buffers, to them.
fn locate(messages: &mut [libc::mmsghdr], buffers: &mut [libc::iovec]) {
    debug_assert_eq!(messages.iter().map(|m| m.msg_hdr.msg_iovlen).sum::<usize>(), buffers.len());
    let mut next = buffers.as_mut_ptr();
    for message in messages {
        message.msg_hdr.msg_iov = next;
        next = next.wrapping_add(message.msg_hdr.msg_iovlen);
    }
}

fn arrival(message: &libc::mmsghdr, header: &[u8; VNET_HEADER], control: &Control) -> VnetHeaderInfo {
    VnetHeaderInfo {
        len: (message.msg_len as usize).saturating_sub(VNET_HEADER),
        truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        vnet: *header,
        vlan: (message.msg_hdr.msg_controllen > 0).then(|| auxdata(control)).flatten(),
    }
}

/// The tag in the one control message that we asked for: its length, level and type, then the data.
fn auxdata(control: &Control) -> Option<(u16, u16)> {
    let bytes: ArrayVec<u8, { size_of::<Control>() }> =
        control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let int = |at: usize| Some(libc::c_int::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let after_len = size_of::<usize>();
    if int(after_len)? != libc::SOL_PACKET || int(after_len + 4)? != libc::PACKET_AUXDATA {
        return None;
    }
    read_auxdata(bytes.get(after_len + 8..control[0])?)
}

/// `setsockopt` with a plain value.
#[allow(clippy::cast_possible_truncation)] // A few bytes.
pub(super) fn set<T>(fd: RawFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, which lives through the call and is only read.
    let result = unsafe { libc::setsockopt(fd, level, option, core::ptr::from_ref(value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
