//! TUN and TAP devices: a network interface whose far end is this process.
//!
//! Source: kernel `Documentation/networking/tuntap.rst`.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use super::PortError;
use crate::netlink::{self, NetlinkError};

/// What the device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// IP packets (TUN).
    Ip,
    /// Ethernet frames (TAP).
    Ethernet,
}

/// A device of ours; the kernel removes it when this value is dropped, and no other descriptor of it is left. Reads and writes never
/// wait.
#[derive(Debug)]
pub struct Tun {
    file: Arc<File>,
    name: String,
    ifindex: u32,
}

impl Tun {
    /// Makes a device in the network namespace of the calling thread; `%d` in the name stands for the first free
    /// number. It is down and has no address. A device of that name that exists already is not taken over.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn create(name: &str, layer: Layer) -> Result<Self, PortError> {
        let refused = || PortError::Name { name: name.into() };
        if name.len() >= libc::IFNAMSIZ || name.bytes().any(|b| b == b'/' || b <= b' ') || name.is_empty() {
            return Err(refused());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(PortError::sys(name, "open(/dev/net/tun)"))?;
        let name = attach(&file, name, layer).map_err(PortError::sys(name, "ioctl(TUNSETIFF)"))?;
        Self::of(file, name)
    }

    /// Takes over the device of another's [`descriptor`](Tun::descriptor), as it is.
    ///
    /// # Errors
    /// [`PortError`] when it is none, or its device is gone.
    pub fn adopt(file: File) -> Result<Self, PortError> {
        let name = name_of(&file).map_err(PortError::sys("a TAP device", "ioctl(TUNGETIFF)"))?;
        Self::of(file, name)
    }

    fn of(file: File, name: String) -> Result<Self, PortError> {
        let ifindex = netlink::interface(&name)
            .map_err(|source| PortError::Setup { device: name.clone(), source })?
            .ifindex;
        Ok(Self { file: Arc::new(file), name, ifindex })
    }

    /// By what the device lives on.
    pub fn descriptor(&self) -> &Arc<File> {
        &self.file
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its interface index.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Sets its MTU, in bytes. As the other setters, from a thread in the namespace of the device.
    ///
    /// # Errors
    /// [`PortError::Setup`].
    pub fn set_mtu(&self, mtu: u32) -> Result<(), PortError> {
        self.setup(netlink::set_mtu(self.ifindex, mtu))
    }

    /// Sets its Ethernet address.
    ///
    /// # Errors
    /// [`PortError::Setup`]; a TUN device has none.
    pub fn set_mac(&self, mac: [u8; 6]) -> Result<(), PortError> {
        self.setup(netlink::set_mac(self.ifindex, mac))
    }

    /// Gives it an address.
    ///
    /// # Errors
    /// [`PortError::Setup`].
    pub fn add_address(&self, address: IpAddr, prefix_len: u8) -> Result<(), PortError> {
        self.setup(netlink::add_address(self.ifindex, address, prefix_len))
    }

    /// Has the kernel ask nobody on it for Ethernet addresses: everything behind it has the device's own.
    ///
    /// # Errors
    /// [`PortError::Setup`].
    pub fn set_no_arp(&self) -> Result<(), PortError> {
        self.setup(netlink::set_no_arp(self.ifindex))
    }

    /// Brings it up.
    ///
    /// # Errors
    /// [`PortError::Setup`].
    pub fn set_up(&self) -> Result<(), PortError> {
        self.setup(netlink::set_up(self.ifindex, true))
    }

    fn setup(&self, result: Result<(), NetlinkError>) -> Result<(), PortError> {
        result.map_err(|source| PortError::Setup { device: self.name.clone(), source })
    }

    /// Takes one packet that the kernel sent; [`io::ErrorKind::WouldBlock`] when there is none. What does not
    /// fit is cut off.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        (&*self.file).read(packet)
    }

    /// Hands the kernel one packet to receive.
    ///
    /// # Errors
    /// As the kernel says: [`io::ErrorKind::InvalidInput`] for what is no packet, `EIO` while it is down.
    pub fn write(&self, packet: &[u8]) -> io::Result<usize> {
        (&*self.file).write(packet)
    }

    /// As [`Tun::read`], into several buffers.
    ///
    /// # Errors
    /// As [`Tun::read`].
    pub fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self.file).read_vectored(buffers)
    }

    /// As [`Tun::write`], from several buffers.
    ///
    /// # Errors
    /// As [`Tun::write`].
    pub fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self.file).write_vectored(buffers)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Makes the open file a device; its name.
#[allow(clippy::cast_possible_truncation)] // Flags of sixteen bits, as C ints.
fn attach(file: &File, name: &str, layer: Layer) -> io::Result<String> {
    let kind = match layer {
        Layer::Ip => libc::IFF_TUN,
        Layer::Ethernet => libc::IFF_TAP,
    };
    // SAFETY: a C struct of integers.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives through the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    name_in(&request)
}

/// The name of an open file's device.
fn name_of(file: &File) -> io::Result<String> {
    // SAFETY: a C struct of integers.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    // SAFETY: TUNGETIFF writes one `ifreq`, which lives through the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNGETIFF, &mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    name_in(&request)
}

fn name_in(request: &libc::ifreq) -> io::Result<String> {
    let name = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8(name).map_err(io::Error::other)
}
