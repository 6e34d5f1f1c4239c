//! Hands the ports of a node over to another process, which has the same configuration, while packets come.
//!
//! ```text
//!   old node                                                new node
//!   offer: descriptors, how they were made ───────────────▶ of: ports are opened from them, and do nothing yet
//!   leave and stop, for each function: workers end          check: everything was asked for
//!   states: what the kernel holds of each socket ─────────▶ take_in
//!   (or reopen, for each function: goes on itself)          reopen, for each function: workers begin
//! ```
//!
//! Sockets and devices live as long as a descriptor of them. Between `leave` and `reopen` the kernel receives and sends as far as the
//! rings and buffers go.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kaido_engine::port::{PortError, TakeoverError, UdpSink, XdpPool, XdpSocket, XdpState};
use kaido_engine::{FramePool, FrameSize, PoolError};
use miette::Diagnostic;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::given::GivenSockets;
pub use crate::given::SocketKind;

/// What a node offers; its descriptors come beside it, in this order: the frames, the sockets, the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortsOffer {
    /// The frame pool, where the kernel has frames of it.
    frames: Option<FramesOffer>,
    sockets: Vec<XdpSocket>,
    /// Names of what else is kept.
    others: Vec<String>,
}

/// A frame pool, as it is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FramesOffer {
    count: u32,
    bytes: u32,
}

/// What the ports of a node knew that the kernel does not tell, once they are closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortsState(Vec<XdpState>);

impl PortsState {
    /// How many frames the kernel holds.
    pub fn frames(&self) -> usize {
        self.0.iter().map(|state| state.held.len()).sum()
    }
}

/// Why ports were not handed over.
#[derive(Debug, Error, Diagnostic)]
#[diagnostic(help("restart the node instead"))]
pub enum TakeoverFault {
    /// A port has a driver that cannot.
    #[error("port {0}: ports with driver dpdk cannot be handed over")]
    Driver(String),
    /// A function cannot.
    #[error("{0}")]
    Function(String),
    /// A descriptor could not be duplicated.
    #[error("the descriptor of {what}: {source}")]
    Descriptor {
        /// What it is of.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// An offer names more or fewer descriptors than came with it.
    #[error("the running node offers {named} descriptors and sends {sent}")]
    Descriptors {
        /// How many it names.
        named: usize,
        /// How many came.
        sent: usize,
    },
    /// The frame pool is another.
    #[error(
        "node.frames: the running node has {count} frames of {bytes} bytes, and this configuration wants {wanted} of {wanted_bytes}"
    )]
    Frames {
        /// Frames of the running node.
        count: u32,
        /// Bytes of each.
        bytes: u32,
        /// Frames that are asked for.
        wanted: u32,
        /// Bytes of each.
        wanted_bytes: usize,
    },
    /// The frame pool could not be made, or taken over.
    #[error("node.frames: {0}")]
    Pool(#[from] PoolError),
    /// Something is asked for that was not offered.
    #[error("the running node has no {0}, which this configuration wants")]
    NotOffered(String),
    /// Something was offered and not asked for.
    #[error("the running node has {0}, which this configuration does not want")]
    NotWanted(String),
    /// A socket does not do what it is to.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The sockets of ports are not those that were offered.
    #[error(transparent)]
    Sockets(#[from] TakeoverError),
}

/// A descriptor that somebody else uses.
type Kept = Weak<dyn AsFd + Send + Sync>;

/// One that is here for who asks for it.
#[derive(Debug)]
struct Waiting {
    name: String,
    fd: OwnedFd,
    asked_for: bool,
}

#[derive(Default)]
struct Inner {
    /// The node's own.
    pool: Option<&'static FramePool>,
    /// From another process, until they are asked for.
    frames: Option<(FramesOffer, OwnedFd)>,
    sockets: Vec<(XdpSocket, OwnedFd)>,
    waiting: Vec<Waiting>,
    /// Whether that process uses them still.
    is_elsewhere: bool,
    /// What is in use here.
    xdp: Vec<XdpPool>,
    kept: Vec<(String, Kept)>,
    /// Programs on interfaces.
    programs: Vec<ProgramLinks>,
    refused: Option<Refusal>,
    /// From the service manager.
    given: Arc<GivenSockets>,
}

/// What cannot be handed over.
#[derive(Clone)]
enum Refusal {
    Port(String),
    Function(String),
}

/// The links of programs, with the indexes of their interfaces.
type ProgramLinks = Box<dyn Fn() -> io::Result<Vec<(u32, OwnedFd)>> + Send>;

/// What a node has that another can take over, and what it has taken over itself. Its default has neither.
#[derive(Default)]
pub struct Takeover(Mutex<Inner>);

impl Takeover {
    /// Takes over what another process offers, which goes on to use it.
    ///
    /// # Errors
    /// [`TakeoverFault::Descriptors`].
    pub fn of(offer: PortsOffer, descriptors: Vec<OwnedFd>) -> Result<Self, TakeoverFault> {
        let PortsOffer { frames, sockets, others } = offer;
        let named = usize::from(frames.is_some()) + sockets.len() + others.len();
        let sent = descriptors.len();
        if named != sent {
            return Err(TakeoverFault::Descriptors { named, sent });
        }
        let mut rest = descriptors.into_iter();
        let frames = frames.and_then(|frames| Some((frames, rest.next()?)));
        let sockets = sockets.into_iter().zip(rest.by_ref()).collect();
        let wait = |(name, fd)| Waiting { name, fd, asked_for: false };
        let waiting = others.into_iter().zip(rest).map(wait).collect();
        let inner = Inner { frames, sockets, waiting, is_elsewhere: true, ..Inner::default() };
        Ok(Self(Mutex::new(inner)))
    }

    /// With sockets of the service manager.
    pub(crate) fn with_given(given: Arc<GivenSockets>) -> Self {
        Self(Mutex::new(Inner { given, ..Inner::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node's frames: those of the other process, or new ones. They are shared where AF_XDP ports are to have them, which others
    /// can take over then. Of a pool of another process the size stays, unless one is asked for.
    ///
    /// # Errors
    /// [`TakeoverFault::Frames`], [`TakeoverFault::Pool`], [`TakeoverFault::NotOffered`].
    pub fn frames(
        &self,
        (size, is_asked_for): (FrameSize, bool),
        count: u32,
        is_shared: bool,
    ) -> Result<&'static FramePool, TakeoverFault> {
        let mut inner = self.lock();
        let pool = match inner.frames.take() {
            Some((offer, memory)) => {
                let had =
                    FrameSize::of_bytes(offer.bytes as usize).filter(|had| !is_asked_for || *had == size);
                let (FramesOffer { count: had_count, bytes }, wanted_bytes) = (offer, size.bytes());
                let other = TakeoverFault::Frames { count: had_count, bytes, wanted: count, wanted_bytes };
                let had = had.filter(|_| had_count == count).ok_or(other)?;
                FramePool::adopt(File::from(memory), had, count as usize)?
            }
            None if is_shared && inner.is_elsewhere => {
                return Err(TakeoverFault::NotOffered("AF_XDP sockets".to_owned()));
            }
            None if is_shared => FramePool::leak_shared(size, count as usize)?,
            None => FramePool::leak_of(size, count as usize)?,
        };
        inner.pool = Some(pool);
        Ok(pool)
    }

    /// What AF_XDP ports of those interfaces are opened with.
    ///
    /// # Errors
    /// When the kernel does not take the pool.
    pub(crate) fn xdp_pool(
        &self,
        pool: &'static FramePool,
        ifindexes: &[u32],
    ) -> Result<XdpPool, kaido_xsk::Error> {
        let mut inner = self.lock();
        let xdp = if inner.is_elsewhere {
            let is_its = |(socket, _): &mut (XdpSocket, OwnedFd)| ifindexes.contains(&socket.ifindex);
            let sockets = inner.sockets.extract_if(.., is_its).collect();
            XdpPool::adopt(pool, sockets)?
        } else {
            XdpPool::register(pool)?
        };
        inner.xdp.push(xdp.clone());
        Ok(xdp)
    }

    /// Notes that a port cannot be handed over.
    pub fn refuse(&self, port: &str) {
        self.lock().refused = Some(Refusal::Port(port.to_owned()));
    }

    /// Notes why a function cannot be handed over.
    pub fn refuse_function(&self, why: &str) {
        self.lock().refused = Some(Refusal::Function(why.to_owned()));
    }

    /// Offers the programs that are on interfaces by then.
    pub(crate) fn keep_programs(&self, links: impl Fn() -> io::Result<Vec<(u32, OwnedFd)>> + Send + 'static) {
        self.lock().programs.push(Box::new(links));
    }

    /// The program that the other process had on an interface, once its ports are this one's.
    ///
    /// # Errors
    /// [`TakeoverFault::Descriptor`].
    pub(crate) fn program(&self, ifindex: u32) -> Result<Option<OwnedFd>, TakeoverFault> {
        if self.lock().is_elsewhere { Ok(None) } else { self.descriptor(&program_name(ifindex)) }
    }

    /// Offers a descriptor by that name, as long as somebody has it, instead of one that had the name before.
    pub fn keep<T: AsFd + Send + Sync + 'static>(&self, name: &str, descriptor: &Arc<T>) {
        let mut inner = self.lock();
        inner.kept.retain(|(other, kept)| other != name && kept.strong_count() > 0);
        let kept: Kept = Arc::downgrade(descriptor) as Kept;
        inner.kept.push((name.to_owned(), kept));
    }

    /// The descriptor of that name, where one waits to be used; `None` for who is to make one.
    ///
    /// # Errors
    /// [`TakeoverFault::NotOffered`] where the other process has none, or [`TakeoverFault::Descriptor`].
    pub fn descriptor(&self, name: &str) -> Result<Option<OwnedFd>, TakeoverFault> {
        let mut inner = self.lock();
        let is_elsewhere = inner.is_elsewhere;
        let Some(at) = inner.waiting.iter().position(|waiting| waiting.name == name) else {
            let missing = || TakeoverFault::NotOffered(name.to_owned());
            return if is_elsewhere { Err(missing()) } else { Ok(None) };
        };
        if !is_elsewhere {
            return Ok(Some(inner.waiting.swap_remove(at).fd));
        }
        let waiting = &mut inner.waiting[at];
        waiting.asked_for = true;
        duplicate(name, &waiting.fd).map(Some)
    }

    /// The socket of that name and address, as [`Takeover::descriptor`], or the service manager's.
    ///
    /// # Errors
    /// As [`Takeover::descriptor`].
    pub fn socket(
        &self,
        name: &str,
        kind: SocketKind,
        address: SocketAddr,
    ) -> Result<Option<OwnedFd>, TakeoverFault> {
        let waiting = self.descriptor(name)?;
        if waiting.is_some() {
            return Ok(waiting);
        }
        let descriptor = |source| TakeoverFault::Descriptor { what: name.to_owned(), source };
        self.lock().given.at(kind, address).map_err(descriptor)
    }

    /// Holds UDP addresses, as [`UdpSink::bind`]; they are offered in their turn.
    ///
    /// # Errors
    /// As [`Takeover::udp_socket`].
    pub fn udp_sink(
        &self,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<UdpSink, TakeoverFault> {
        let sockets = addresses.into_iter().map(|address| self.udp_socket(address));
        Ok(UdpSink::of(sockets.collect::<Result<_, _>>()?)?)
    }

    /// A UDP socket at an address: one that waits to be used, or a new one, which is offered in its turn.
    ///
    /// # Errors
    /// As [`Takeover::descriptor`], or as the kernel says.
    pub fn udp_socket(&self, address: SocketAddr) -> Result<Arc<UdpSocket>, TakeoverFault> {
        let name = format!("UDP socket at {address}");
        let socket = match self.socket(&name, SocketKind::Datagram, address)? {
            Some(socket) => UdpSocket::from(socket),
            None => UdpSocket::bind(address).map_err(|source| {
                let device = address.to_string();
                PortError::Sys { device, call: "bind(UDP)", source }
            })?,
        };
        let socket = Arc::new(socket);
        self.keep(&name, &socket);
        Ok(socket)
    }

    /// What another process needs to take the ports over, which are used here meanwhile.
    ///
    /// # Errors
    /// [`TakeoverFault::Driver`], [`TakeoverFault::Descriptor`].
    pub fn offer(&self) -> Result<(PortsOffer, Vec<OwnedFd>), TakeoverFault> {
        let inner = self.lock();
        match inner.refused.clone() {
            Some(Refusal::Port(port)) => return Err(TakeoverFault::Driver(port)),
            Some(Refusal::Function(name)) => return Err(TakeoverFault::Function(name)),
            None => {}
        }
        let (mut offer, mut descriptors) =
            (PortsOffer { frames: None, sockets: Vec::new(), others: Vec::new() }, Vec::new());
        if let Some((pool, memory)) = inner.pool.and_then(|pool| Some((pool, pool.descriptor()?))) {
            let number = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
            let (count, bytes) = (number(pool.frames()), number(pool.frame_size().bytes()));
            offer.frames = Some(FramesOffer { count, bytes });
            descriptors.push(duplicate("the frame pool", &memory)?);
        }
        for (socket, fd) in inner.xdp.iter().flat_map(XdpPool::sockets) {
            descriptors.push(duplicate(&name_of(&socket), &fd)?);
            offer.sockets.push(socket);
        }
        for (name, fd) in inner.kept.iter().filter_map(|(name, kept)| Some((name, kept.upgrade()?))) {
            descriptors.push(duplicate(name, &fd)?);
            offer.others.push(name.clone());
        }
        for links in &inner.programs {
            let what = "a program".to_owned();
            for (ifindex, fd) in links().map_err(|source| TakeoverFault::Descriptor { what, source })? {
                descriptors.push(fd);
                offer.others.push(program_name(ifindex));
            }
        }
        Ok((offer, descriptors))
    }

    /// Says, when the ports of all functions are open, whether something was offered that none has asked for.
    ///
    /// # Errors
    /// [`TakeoverFault::NotWanted`].
    pub fn check(&self) -> Result<(), TakeoverFault> {
        let inner = self.lock();
        let socket = inner.sockets.first().map(|(socket, _)| *socket);
        let socket = socket.or_else(|| inner.xdp.iter().find_map(XdpPool::unopened));
        // Programs are asked for when the ports are this node's.
        let is_left = |waiting: &&Waiting| !waiting.asked_for && !waiting.name.starts_with(PROGRAM);
        let other = inner.waiting.iter().find(is_left);
        let left = socket.as_ref().map(name_of).or_else(|| other.map(|other| other.name.clone()));
        left.map_or(Ok(()), |name| Err(TakeoverFault::NotWanted(name)))
    }

    /// Has what is kept by these names wait here for who asks for it next, once who has it does so no more.
    ///
    /// # Errors
    /// [`TakeoverFault::Descriptor`]; then nothing waits.
    pub(crate) fn hold(&self, names: impl Iterator<Item = String>) -> Result<(), TakeoverFault> {
        let mut inner = self.lock();
        let mut held = Vec::new();
        for name in names {
            let kept = inner.kept.iter().find(|(other, _)| *other == name);
            let Some(descriptor) = kept.and_then(|(_, kept)| kept.upgrade()) else { continue };
            held.push(Waiting { fd: duplicate(&name, &descriptor)?, name, asked_for: false });
        }
        inner.waiting.append(&mut held);
        Ok(())
    }

    /// What the ports of all functions knew, once these were [left](crate::ports::OpenPorts::leave) and their workers stopped.
    ///
    /// # Errors
    /// [`TakeoverFault::Sockets`] while one is open.
    pub fn states(&self) -> Result<PortsState, TakeoverFault> {
        let mut states = Vec::new();
        for xdp in &self.lock().xdp {
            states.append(&mut xdp.states()?);
        }
        Ok(PortsState(states))
    }

    /// Frames that neither lie in the pool nor are the kernel's by that state: somebody has them, such as packets that wait for
    /// something. Before another process takes the state in they are to be dropped, as it uses all frames but the kernel's.
    pub fn frames_in_use(&self, state: &PortsState) -> usize {
        let pool = self.lock().pool.filter(|pool| pool.descriptor().is_some());
        pool.map_or(0, |pool| pool.frames().saturating_sub(pool.free_frames() + state.frames()))
    }

    /// Takes over what another process offered, once its ports are closed and these are their states. From here on it is this
    /// node's; its functions [reopen](crate::ports::OpenPorts::reopen) their ports.
    ///
    /// # Errors
    /// [`TakeoverFault::Sockets`] when the states are not those of the sockets, [`TakeoverFault::Pool`]. The other process then goes on,
    /// and this one must end.
    pub fn take_in(&self, state: PortsState) -> Result<(), TakeoverFault> {
        let mut inner = self.lock();
        let PortsState(mut states) = state;
        let held: Vec<u32> = states.iter().flat_map(|state| state.held.iter().copied()).collect();
        for xdp in &inner.xdp {
            let own = states.extract_if(.., |state| xdp.has(state.id)).collect();
            // SAFETY: the other process has closed the ports, of which these are the states. Their frames are out of the pool, as all
            // of the other process are until they are taken in below.
            unsafe { xdp.take_in(own) }?;
        }
        if !states.is_empty() {
            return Err(TakeoverError::UnknownSocket.into());
        }
        if let Some(pool) = inner.pool.filter(|pool| pool.is_elsewhere()) {
            // SAFETY: the other process has let go of all frames but those that the kernel holds for its sockets: it has closed its
            // ports before it could make their states.
            unsafe { pool.take_in(held) }?;
        }
        inner.is_elsewhere = false;
        Ok(())
    }
}

fn duplicate(what: &str, fd: &impl AsFd) -> Result<OwnedFd, TakeoverFault> {
    let duplicated = fd.as_fd().try_clone_to_owned();
    duplicated.map_err(|source| TakeoverFault::Descriptor { what: what.to_owned(), source })
}

/// What the name of a program begins with.
const PROGRAM: &str = "program on interface ";

fn program_name(ifindex: u32) -> String {
    format!("{PROGRAM}{ifindex}")
}

fn name_of(socket: &XdpSocket) -> String {
    format!("AF_XDP socket on queue {} of interface {}", socket.queue, socket.ifindex)
}
