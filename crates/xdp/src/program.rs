//! What a node asks of the programs of its AF_XDP ports.

use std::net::IpAddr;
use std::ops::DerefMut;
use std::os::fd::BorrowedFd;

use crate::{Error, LoadedProgram};

/// An interface that a program sends out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitLink {
    /// Its index.
    pub ifindex: u32,
    /// Its longest IP packet, in octets.
    pub mtu: u32,
}

/// A program of AF_XDP ports: it brings packets to their sockets, and may do more.
pub trait Program: Send + DerefMut<Target = LoadedProgram> {
    /// Lets packets of a receive queue go to a socket.
    ///
    /// # Errors
    /// When the kernel refuses it.
    fn register_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error>;

    /// The node has these addresses now.
    ///
    /// # Errors
    /// When the kernel refuses them.
    fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), Error>;

    /// Its interface has this Ethernet address now.
    ///
    /// # Errors
    /// When the kernel refuses it.
    fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), Error>;

    /// Packets that it has left to the kernel, unless they are counted elsewhere.
    ///
    /// # Errors
    /// When the kernel does not tell.
    fn left_to_kernel(&self) -> Result<u64, Error>;

    /// The interface that had the index `before` is this one now: for programs that send out of another than their own.
    ///
    /// # Errors
    /// When the kernel refuses it.
    fn exit_changed(&mut self, _before: u32, _now: ExitLink) -> Result<(), Error> {
        Ok(())
    }
}
