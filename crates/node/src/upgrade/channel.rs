//! What two nodes say to each other while one takes over from the other: messages with descriptors, over a socket pair.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Descriptors that go together; the kernel takes 253.
const GROUP: usize = 64;
/// Longest message in octets: the frames that the kernel holds for all sockets, by their numbers.
const MESSAGE_MAX: usize = 64 << 20;
/// Most descriptors of a message.
const DESCRIPTORS_MAX: usize = 65_536;

/// One end.
#[derive(Debug)]
pub(super) struct Channel(UnixStream);

impl Channel {
    /// Both ends.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (own, others) = UnixStream::pair()?;
        Ok((Self(own), others.into()))
    }

    /// The end that this process was given.
    pub(super) fn of(fd: OwnedFd) -> Self {
        Self(fd.into())
    }

    /// How long [`Channel::receive`] waits; `None` for as long as it takes.
    pub(super) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(patience)
    }

    /// Sends a message with descriptors.
    pub(super) fn send(
        &mut self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let message = serde_json::to_vec(message)?;
        let lengths = [message.len(), descriptors.len()].map(|len| len as u64);
        self.0.write_all(&lengths.map(u64::to_le_bytes).concat())?;
        for group in descriptors.chunks(GROUP) {
            self.send_group(group)?;
        }
        self.0.write_all(&message)
    }

    fn send_group(&self, group: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GROUP))];
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        if !ancillary.push(SendAncillaryMessage::ScmRights(group)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        // Descriptors go with an octet.
        let sent = sendmsg(self.0.as_fd(), &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
        if sent == 1 { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    /// Receives a message and its descriptors.
    pub(super) fn receive<M: DeserializeOwned>(&mut self) -> io::Result<(M, Vec<OwnedFd>)> {
        let mut lengths = [0; 16];
        self.0.read_exact(&mut lengths)?;
        let (words, _) = lengths.as_chunks::<8>();
        let length = |at: usize| usize::try_from(u64::from_le_bytes(words[at])).unwrap_or(usize::MAX);
        let (len, count) = (length(0), length(1));
        if len > MESSAGE_MAX || count > DESCRIPTORS_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "the message is too long"));
        }
        let mut descriptors = Vec::with_capacity(count);
        while descriptors.len() < count {
            let before = descriptors.len();
            self.receive_group(&mut descriptors)?;
            if descriptors.len() == before {
                return Err(io::Error::new(ErrorKind::InvalidData, "descriptors are missing"));
            }
        }
        let mut message = vec![0; len];
        self.0.read_exact(&mut message)?;
        Ok((serde_json::from_slice(&message)?, descriptors))
    }

    fn receive_group(&self, descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GROUP))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut room);
        let mut octet = [0];
        let mut into = [IoSliceMut::new(&mut octet)];
        // A wait with a limit ends when the process is stopped and goes on.
        let got =
            retry_on_intr(|| recvmsg(self.0.as_fd(), &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
        if got.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn messages_come_with_their_descriptors_in_their_order() {
        let (mut one, other) = Channel::pair().unwrap();
        let mut other = Channel::of(other);
        let files: Vec<(UnixStream, UnixStream)> = (0..150).map(|_| UnixStream::pair().unwrap()).collect();
        let sent: Vec<_> = files.iter().map(|(end, _)| end.as_fd()).collect();
        let text = "x".repeat(1_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                one.send(&(1, &text), &sent).unwrap();
                one.send(&"no descriptor", &[]).unwrap();
            });
            let ((number, got), descriptors): ((u32, String), _) = other.receive().unwrap();
            assert_eq!((number, got == text, descriptors.len()), (1, true, 150));
            for (at, ((_, far), near)) in (0u8..).zip(files.iter().zip(descriptors)) {
                UnixStream::from(near).write_all(&[at]).unwrap();
                let mut octet = [0];
                let mut far = far;
                far.read_exact(&mut octet).unwrap();
                assert_eq!(octet, [at]);
            }
            let (text, descriptors): (String, _) = other.receive().unwrap();
            assert_eq!((&*text, descriptors.len()), ("no descriptor", 0));
        });
    }

    #[test]
    fn an_end_that_is_closed_and_one_that_lies_are_errors() {
        let (mut one, other) = Channel::pair().unwrap();
        drop(File::from(other));
        assert!(one.receive::<String>().is_err());
        let (mut one, other) = Channel::pair().unwrap();
        let mut other = UnixStream::from(other);
        other.write_all(&[0xff; 16]).unwrap();
        assert_eq!(one.receive::<String>().unwrap_err().kind(), ErrorKind::InvalidData);
        let (mut one, other) = Channel::pair().unwrap();
        let mut other = UnixStream::from(other);
        other.write_all(&[2u64, 1].map(u64::to_le_bytes).concat()).unwrap();
        other.write_all(b"\0{}").unwrap();
        assert_eq!(one.receive::<String>().unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
