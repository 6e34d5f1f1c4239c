//! A loaded program: attached to an interface or not, and run on frames for a test.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::{ErrorKind, MapHandle, Object, OpenMapMut, ProgramInput};

use crate::Error;
use crate::attach::{AttachMode, Link};
use crate::object::{ObjectBytes, map, open, program};
use crate::port::RETURNED;

/// What a program said of a packet (`enum xdp_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The program failed.
    Aborted,
    /// Thrown away.
    Drop,
    /// To the kernel.
    Pass,
    /// Back out of the same interface.
    Tx,
    /// To an AF_XDP socket.
    Redirect,
    /// None of the above.
    Unknown(u32),
}

impl From<u32> for Action {
    fn from(action: u32) -> Self {
        match action {
            libbpf_sys::XDP_ABORTED => Self::Aborted,
            libbpf_sys::XDP_DROP => Self::Drop,
            libbpf_sys::XDP_PASS => Self::Pass,
            libbpf_sys::XDP_TX => Self::Tx,
            libbpf_sys::XDP_REDIRECT => Self::Redirect,
            other => Self::Unknown(other),
        }
    }
}

/// What a test run gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The frame as the program left it.
    pub frame: Vec<u8>,
    /// What the program said.
    pub action: Action,
    /// Mean time of one run, in whole nanoseconds.
    pub duration: Duration,
}

/// Runs a program of a loaded object, as [`LoadedProgram::test_run`] does. A signal ends a run: the next begins from the start, so
/// that what the program counts may be more than `repeat`.
///
/// # Errors
/// [`Error::Libbpf`].
pub fn test_run(object: &Object, name: &str, frame: &[u8], repeat: u32) -> Result<TestRun, Error> {
    let program = program(object, name)?;
    // Outer headers come on top; multi-buffer frames are longer than the page a plain one has.
    let mut room = vec![0; frame.len() + 256];
    let output = loop {
        let input =
            ProgramInput { data_in: Some(frame), data_out: Some(&mut room), repeat, ..Default::default() };
        match program.test_run(input) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            output => break output.map_err(Error::libbpf("test-running the XDP program"))?,
        }
    };
    let frame = output.data.map(|data| data.to_vec()).unwrap_or_default();
    Ok(TestRun { frame, action: output.return_value.into(), duration: output.duration })
}

/// What every loaded program can do: [`PortSteering`](crate::PortSteering) is one, and functions have others.
#[derive(Debug)]
pub struct LoadedProgram {
    // Before the object: taken off before its maps go.
    link: Option<Link>,
    name: &'static str,
    multi_buffer: bool,
    object: Object,
}

impl LoadedProgram {
    /// Loads one program of an object, attached to nothing. With `multi_buffer` it is one whose packets may span several buffers.
    ///
    /// # Errors
    /// [`Error::Permission`], or [`Error::Libbpf`] when the kernel refuses the program.
    pub fn load(
        bytes: &'static ObjectBytes<[u8]>,
        name: &'static str,
        multi_buffer: bool,
    ) -> Result<Self, Error> {
        Self::load_with(bytes, name, multi_buffer, |_| Ok(()))
    }

    /// As [`load`](Self::load). `prepare` has each map of the object before it is made: to size it, share it, or leave it out.
    ///
    /// # Errors
    /// As [`load`](Self::load), and those of `prepare`.
    pub fn load_with(
        bytes: &'static ObjectBytes<[u8]>,
        name: &'static str,
        multi_buffer: bool,
        prepare: impl FnMut(&mut OpenMapMut<'_>) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let object = open(bytes, name, prepare)?;
        Ok(Self { link: None, name, multi_buffer, object })
    }

    /// One of its maps.
    ///
    /// # Errors
    /// [`Error::Libbpf`] when its object has none of that name.
    pub fn map(&self, name: &str) -> Result<MapHandle, Error> {
        map(&self.object, name)
    }

    /// Attaches to an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::AlreadyAttached`], [`Error::MtuTooLarge`], [`Error::NativeUnsupported`], [`Error::NoInterface`],
    /// [`Error::Permission`], [`Error::AttachedHere`].
    pub fn attach_to(&mut self, ifindex: u32, mode: AttachMode) -> Result<(), Error> {
        if let Some(link) = &self.link {
            return Err(Error::AttachedHere { ifindex: link.ifindex });
        }
        let program = program(&self.object, self.name)?;
        self.link = Some(Link::attach(program.as_fd(), ifindex, mode, self.multi_buffer)?);
        Ok(())
    }

    /// Takes the place of the program that a link has on an interface, as [`link_interface`](crate::link_interface) names it: no
    /// packet comes between them. Whoever keeps the link keeps it on the interface, until
    /// [`detach`](Self::detach).
    ///
    /// # Errors
    /// [`Error::AttachedHere`], [`Error::Sys`].
    pub fn take_over(&mut self, link: OwnedFd) -> Result<(), Error> {
        if let Some(link) = &self.link {
            return Err(Error::AttachedHere { ifindex: link.ifindex });
        }
        let program = program(&self.object, self.name)?;
        self.link = Some(Link::take_over(link, program.as_fd())?);
        Ok(())
    }

    /// What keeps the program on its interface, for who is to keep it further.
    pub fn link(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(Link::as_fd)
    }

    /// Whether the program stays on its interface when this is dropped, where somebody else keeps its [link](Self::link); a no-op
    /// when it is on none.
    pub fn stay(&mut self, stays: bool) {
        if let Some(link) = &mut self.link {
            link.stay(stays);
        }
    }

    /// Takes the program off its interface; a no-op when it is on none. Dropping does the same, without telling of
    /// errors.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn detach(&mut self) -> Result<(), Error> {
        self.link.take().map_or(Ok(()), Link::detach)
    }

    /// The mode that attaching gave, [`AttachMode::Native`] or [`AttachMode::Generic`]; none when not attached.
    pub fn mode(&self) -> Option<AttachMode> {
        self.link.as_ref().map(|link| link.mode)
    }

    /// The interface the program is on.
    pub fn ifindex(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.ifindex)
    }

    /// Gives the kernel a frame that the program had given to a socket, as if the interface received it now.
    ///
    /// # Errors
    /// [`Error::Libbpf`], before Linux 5.18 too. [`Error::Sys`] where it is on no interface.
    pub fn return_to_kernel(&self, frame: &[u8]) -> Result<(), Error> {
        // Octets of the metadata.
        const MARK: u32 = 4;
        let Some(ifindex) = self.ifindex() else { return Err(Error::missing("finding the interface")) };
        let mut marked = RETURNED.to_ne_bytes().to_vec();
        marked.extend_from_slice(frame);
        self.run_live(&marked, MARK, ifindex, 1)?.map_err(Error::libbpf("returning a frame to the kernel"))
    }

    /// Runs the program `repeat` times on copies of a frame that come in by an interface, and does with them what it says. The first
    /// octets are metadata, so many. The inner error is the kernel's.
    ///
    /// # Errors
    /// [`Error::Libbpf`] when the object has no such program.
    pub fn run_live(
        &self,
        frame: &[u8],
        metadata: u32,
        ifindex: u32,
        repeat: u32,
    ) -> Result<libbpf_rs::Result<()>, Error> {
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex. What is before data is
        // metadata.
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let context = [metadata, len, 0, ifindex, 0, 0];
        let mut context: Vec<u8> = context.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let input = ProgramInput {
            data_in: Some(frame),
            context_in: Some(&mut context),
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            repeat,
            ..Default::default()
        };
        Ok(program(&self.object, self.name)?.test_run(input).map(|_| ()))
    }

    /// Runs the program `repeat` times on a frame as if received on queue 0 of the namespace's `lo`
    /// (`BPF_PROG_TEST_RUN`); nothing is delivered. The frame is from 14 bytes to about a page.
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> Result<TestRun, Error> {
        test_run(&self.object, self.name, frame, repeat)
    }
}
