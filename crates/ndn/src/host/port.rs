//! The host port itself: what it watches, what it receives, what it sends.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use kaido_engine::port::DatagramRooms;
use kaido_engine::{BATCH_MAX, Batch, DropReason, Frame, PoolCache, Port};
use kaido_ndn_tables::FaceId;
use kaido_wire::ndn::{tlv, types};

use super::connection::{Connection, Stage};
use super::control::{HostControl, Orders};
use super::datagram::Datagrams;
use super::listen::{self, Listener};
use super::lost::LossCounts;
use super::poller::{Poller, Readiness, Source};
use super::{HostError, HostSettings};
use crate::face::{FaceState, Faces};
use crate::link::{LINK_PACKET_MAX, PSEUDO_HEADER};

/// Octets that one call reads from a connection.
const READ_MAX: usize = 64 << 10;

/// Errors of a socket for datagrams in a row that are passed over in one round: an ICMP error for what was sent is told so.
const FAILURES_MAX: usize = 64;

/// What leads to a face.
#[derive(Debug)]
pub(super) enum FaceTransport {
    Stream(Box<Connection>),
    Datagrams { face: FaceId, socket: usize, remote: SocketAddr },
}

impl FaceTransport {
    pub(super) fn face(&self) -> FaceId {
        match self {
            Self::Stream(connection) => connection.face.id(),
            Self::Datagrams { face, .. } => *face,
        }
    }
}

/// What was read from a connection and is not cut into packets yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamBuffer {
    face: FaceId,
    at: usize,
    end: usize,
}

/// Faces over the host's sockets, as a port.
#[derive(Debug)]
pub struct HostPort {
    pub(super) settings: HostSettings,
    pub(super) faces: Faces,
    pub(super) poller: Poller,
    pub(super) orders: Arc<Orders>,
    pub(super) listeners: Vec<Listener>,
    pub(super) datagrams: Vec<Datagrams>,
    /// By the lower bits of the face's number.
    pub(super) transports: Box<[Option<FaceTransport>]>,
    pub(super) scratch: Box<[u8]>,
    /// Where datagrams are received.
    rooms: DatagramRooms,
    /// Datagrams that go out by one socket.
    gathered: ArrayVec<(SocketAddr, Frame), BATCH_MAX>,
    gathered_for: usize,
    pub(super) cutting: Option<StreamBuffer>,
    /// Faces with something in their send queue that was not flushed.
    pub(super) dirty: Vec<FaceId>,
    /// Packets in all send queues.
    pub(super) queued: usize,
    /// Faces whose connections are lost.
    pub(super) waiting: Vec<FaceId>,
    pub(super) now: Instant,
    pub(super) checked: Instant,
    /// The system had no descriptor left: listeners are not watched until the next check.
    pub(super) is_deaf: bool,
    pub(super) lost: LossCounts,
}

impl HostPort {
    /// Opens the sockets of `settings`; the faces are made in `faces`.
    ///
    /// # Errors
    /// [`HostError`] when a socket cannot be opened.
    pub fn open(settings: HostSettings, faces: &Faces) -> Result<(Self, HostControl), HostError> {
        let poller = Poller::new().map_err(HostError::at("epoll"))?;
        let mut listeners = Vec::new();
        if let Some(path) = &settings.unix {
            listeners.push(Listener::unix(path, settings.unix_access)?);
        }
        for address in &settings.tcp {
            listeners.push(Listener::tcp(*address)?);
        }
        let mut datagrams = Vec::new();
        for address in &settings.udp {
            datagrams.push(Datagrams::unicast(listen::udp(*address)?));
        }
        let control = HostControl {
            port: settings.port,
            faces: faces.clone(),
            orders: Arc::new(Orders::default()),
            waker: poller.waker(),
            udp: datagrams.iter().filter_map(|datagrams| datagrams.socket.local_addr().ok()).collect(),
            udp_mtu: settings.udp_mtu,
            tcp: listeners.iter().filter_map(Listener::address).collect(),
            groups: settings.multicast.clone(),
        };
        let now = Instant::now();
        let mut port = Self {
            faces: faces.clone(),
            poller,
            orders: control.orders.clone(),
            listeners,
            datagrams,
            transports: std::iter::repeat_with(|| None).take(faces.capacity()).collect(),
            scratch: vec![0; READ_MAX + LINK_PACKET_MAX].into(),
            rooms: DatagramRooms::new(LINK_PACKET_MAX + 1),
            gathered: ArrayVec::new(),
            gathered_for: 0,
            cutting: None,
            dirty: Vec::with_capacity(64),
            queued: 0,
            waiting: Vec::new(),
            now,
            checked: now,
            is_deaf: false,
            lost: LossCounts::default(),
            settings,
        };
        for on in port.settings.multicast.clone() {
            port.join(&on)?;
        }
        port.watch_all()?;
        Ok((port, control))
    }

    fn watch_all(&self) -> Result<(), HostError> {
        self.watch_listeners().map_err(HostError::at("epoll"))?;
        for (number, datagrams) in (0..).zip(&self.datagrams) {
            self.poller
                .watch(&datagrams.socket, Source::Datagrams(number), false)
                .map_err(HostError::at("epoll"))?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn slot(&self, id: FaceId) -> usize {
        id.0 as usize & (self.transports.len() - 1)
    }

    pub(super) fn put(&mut self, transport: FaceTransport) {
        let at = self.slot(transport.face());
        self.transports[at] = Some(transport);
    }

    #[inline]
    fn transport(&mut self, id: FaceId) -> Option<&mut FaceTransport> {
        let at = self.slot(id);
        self.transports[at].as_mut().filter(|transport| transport.face() == id)
    }

    #[inline]
    pub(super) fn connection(&mut self, id: FaceId) -> Option<&mut Connection> {
        match self.transport(id)? {
            FaceTransport::Stream(connection) => Some(connection),
            FaceTransport::Datagrams { .. } => None,
        }
    }

    /// Does what has become possible.
    fn serve(&mut self, ready: Readiness, pool: &mut PoolCache, batch: &mut Batch) {
        match ready.source {
            Source::Wake => self.obey(),
            Source::Listener(number) => self.accept(number as usize),
            Source::Datagrams(number) => self.receive_datagrams(number as usize, pool, batch),
            Source::Face(id) => {
                if ready.writes {
                    self.proceed(id, pool);
                }
                if ready.reads {
                    self.read(id);
                }
            }
        }
    }

    /// Goes on with a connection that has room to write, or that was asked for.
    fn proceed(&mut self, id: FaceId, pool: &mut PoolCache) {
        let Some(connection) = self.connection(id) else { return };
        if let (Stage::Connecting, Some(socket)) = (&connection.stage, &connection.socket) {
            if socket.connected().is_err() {
                return self.fail(id);
            }
            connection.opened();
            let face = connection.face.clone();
            self.faces.set_state(&face, FaceState::Up);
        }
        self.flush(id, pool);
    }

    /// Reads what there is; it is cut into packets afterwards.
    fn read(&mut self, id: FaceId) {
        let at = self.slot(id);
        let Some(FaceTransport::Stream(connection)) =
            self.transports[at].as_mut().filter(|transport| transport.face() == id)
        else {
            return;
        };
        let (Some(socket), Stage::Open) = (&mut connection.socket, &connection.stage) else { return };
        let begun = connection.partial.len();
        self.scratch[..begun].copy_from_slice(&connection.partial);
        match socket.read(&mut self.scratch[begun..begun + READ_MAX]) {
            Ok(0) => self.fail(id),
            Ok(len) => {
                connection.partial.clear();
                self.cutting = Some(StreamBuffer { face: id, at: 0, end: begun + len });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.fail(id),
        }
    }

    /// Cuts what was read into packets, as far as there is room for them; `false` when there is none.
    fn cut(&mut self, cutting: StreamBuffer, pool: &mut PoolCache, batch: &mut Batch) -> bool {
        let StreamBuffer { face, mut at, end } = cutting;
        loop {
            let rest = &self.scratch[at..end];
            let len = match packet_len(rest) {
                Ok(Some(len)) if len <= rest.len() => len,
                Ok(_) => break,
                Err(_) => {
                    self.lost.malformed();
                    self.cutting = None;
                    self.fail(face);
                    return true;
                }
            };
            let frame = if batch.is_full() { None } else { frame_of(face, &rest[..len], pool) };
            let Some(frame) = frame else {
                self.cutting = Some(StreamBuffer { face, at, end });
                return false;
            };
            batch.push(frame);
            at += len;
        }
        self.cutting = None;
        let slot = self.slot(face);
        if let Some(FaceTransport::Stream(connection)) =
            self.transports[slot].as_mut().filter(|transport| transport.face() == face)
        {
            connection.partial.extend_from_slice(&self.scratch[at..end]);
        }
        true
    }

    fn receive_datagrams(&mut self, number: usize, pool: &mut PoolCache, batch: &mut Batch) {
        let mut failures = 0;
        while !batch.is_full() && failures < FAILURES_MAX {
            let wanted = batch.capacity() - batch.len();
            match self.rooms.receive(&self.datagrams[number].socket, wanted) {
                Ok(received) => {
                    self.take_datagrams(number, pool, batch);
                    if received < wanted {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => failures += 1,
            }
        }
    }

    /// Takes the datagrams that were received: no more than there is room for.
    fn take_datagrams(&mut self, number: usize, pool: &mut PoolCache, batch: &mut Batch) {
        let rooms = std::mem::take(&mut self.rooms);
        for (remote, octets) in rooms.datagrams() {
            if self.datagrams[number].is_ours(remote) {
                continue;
            }
            let known = self.datagrams[number].face(remote, self.now);
            let Some(face) = known.or_else(|| self.meet(number, remote, octets)) else { continue };
            match frame_of(face, octets, pool) {
                Some(frame) => batch.push(frame),
                None => self.lost.no_frame(),
            }
        }
        self.rooms = rooms;
    }

    /// Sends the datagrams that were gathered for a socket.
    fn send_datagrams(&mut self, pool: &mut PoolCache) {
        let Self { datagrams, gathered, gathered_for, lost, .. } = self;
        datagrams[*gathered_for].send(gathered, |sent| match sent {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => lost.slow(),
            Err(_) => lost.failed(1),
        });
        gathered.drain(..).for_each(|(_, frame)| pool.release(frame));
    }

    pub(super) fn stop_cutting(&mut self, id: FaceId) {
        self.cutting = self.cutting.filter(|cutting| cutting.face != id);
    }

    /// Gives a packet to the face that stands in front of it.
    fn give(&mut self, mut frame: Frame, pool: &mut PoolCache) {
        let number = frame.data().first_chunk::<PSEUDO_HEADER>().copied();
        let id = FaceId(number.map_or(0, u32::from_be_bytes));
        let queue_octets_max = self.settings.queue_octets_max;
        let at = self.slot(id);
        let transport = self.transports[at].as_mut().filter(|transport| transport.face() == id);
        match transport {
            Some(_) if !frame.strip(PSEUDO_HEADER) => self.lost.unknown(),
            Some(FaceTransport::Stream(connection)) => {
                // Slow readers together leave others half of the frames.
                let is_crowded = self.queued >= pool.pool().frames() / 2;
                let octets_max = if is_crowded { 0 } else { queue_octets_max };
                self.queued += 1;
                if let Err(frame) = connection.send_queue.push(frame, octets_max) {
                    self.queued -= 1;
                    self.lost.slow();
                    pool.release(frame);
                    return;
                }
                if !std::mem::replace(&mut connection.is_dirty, true) {
                    self.dirty.push(id);
                }
                return;
            }
            Some(&mut FaceTransport::Datagrams { socket, remote, .. }) => {
                // Those of one socket go together, in their order.
                if self.gathered.is_full() || (socket != self.gathered_for && !self.gathered.is_empty()) {
                    self.send_datagrams(pool);
                }
                self.gathered_for = socket;
                return self.gathered.push((remote, frame));
            }
            None => self.lost.unknown(),
        }
        pool.release(frame);
    }

    /// Writes what waits for a face.
    fn flush(&mut self, id: FaceId, pool: &mut PoolCache) {
        let at = self.slot(id);
        let Some(FaceTransport::Stream(connection)) =
            self.transports[at].as_mut().filter(|transport| transport.face() == id)
        else {
            return;
        };
        connection.is_dirty = false;
        let (Some(socket), Stage::Open) = (&mut connection.socket, &connection.stage) else { return };
        let waited = connection.send_queue.packets();
        let flushed = connection.send_queue.flush(socket, pool);
        self.queued -= waited - connection.send_queue.packets();
        if flushed.is_err() {
            return self.fail(id);
        }
        connection.face.set_backlog(connection.send_queue.octets());
        let awaits_room = !connection.send_queue.is_empty();
        if awaits_room != connection.awaits_room {
            connection.awaits_room = awaits_room;
            if self.poller.change(socket, Source::Face(id), awaits_room).is_err() {
                self.fail(id);
            }
        }
    }
}

impl Port for HostPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        self.now = Instant::now();
        self.check();
        if self.cutting.is_none() {
            self.poller.poll();
        }
        while !batch.is_full() {
            if let Some(cutting) = self.cutting {
                if !self.cut(cutting, pool, batch) {
                    return;
                }
                continue;
            }
            let Some(ready) = self.poller.next() else { return };
            self.serve(ready, pool, batch);
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        for frame in batch.drain(..) {
            self.give(frame, pool);
        }
        if !self.gathered.is_empty() {
            self.send_datagrams(pool);
        }
        while let Some(id) = self.dirty.pop() {
            self.flush(id, pool);
        }
        0
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        self.lost.report(report);
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.descriptor())
    }

    fn may_sleep(&mut self) -> bool {
        self.cutting.is_none() && !self.poller.has_ready()
    }
}

/// The length of the packet that `octets` begin with, once it can be told.
pub(super) fn packet_len(octets: &[u8]) -> Result<Option<usize>, kaido_wire::Error> {
    let is_ours = |kind: u8| {
        let kind = u32::from(kind);
        matches!(kind, types::INTEREST | types::DATA | types::LP_PACKET)
    };
    if !octets.first().is_none_or(|kind| is_ours(*kind)) {
        return Err(kaido_wire::Error::MessageType);
    }
    match tlv::header(octets) {
        Ok(header) if header.element_len() > LINK_PACKET_MAX => Err(kaido_wire::Error::Length),
        Ok(header) => Ok(Some(header.element_len())),
        Err(kaido_wire::Error::Truncated) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A frame with the number of a face and a packet.
fn frame_of(face: FaceId, packet: &[u8], pool: &mut PoolCache) -> Option<Frame> {
    let segment_max = pool.pool().frame_size().room();
    let mut frame = pool.allocate()?;
    let (first, rest) = packet.split_at(packet.len().min(segment_max - PSEUDO_HEADER));
    let room = frame.append(PSEUDO_HEADER + first.len())?;
    room[..PSEUDO_HEADER].copy_from_slice(&face.0.to_be_bytes());
    room[PSEUDO_HEADER..].copy_from_slice(first);
    for chunk in rest.chunks(segment_max) {
        let mut segment = pool.allocate()?;
        segment.append(chunk.len())?.copy_from_slice(chunk);
        frame.push_segment(segment);
    }
    Some(frame)
}
