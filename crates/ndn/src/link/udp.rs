//! Faces by UDP over the engine's own ports, with no socket of the kernel between.
//!
//! ```text
//!  frame ─▶ Ethernet · IP · UDP to an address of ours ─▶ fragments of IP ─▶ face by both ends ─▶ NDNLPv2
//!  frame ◀─ Ethernet by next hop ◀─ fragments of IP ◀──────────────── UDP · IP ◀─────────────── NDNLPv2
//! ```
//! Routes and neighbours are the kernel's, which also answers ARP and neighbour discovery.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use kaido_engine::fragment::{Contexts, Limits, SplitFault, split};
use kaido_engine::{DropReason, Frame, NextHop, NextHops, Output, PendingQueue, PortId, Resolution};
use kaido_ndn_tables::FaceId;
use kaido_wire::ndn::{tlv, types};

use super::PortKind;
use super::udp_headers::{put_headers, put_link};
use super::udp_packet::{Ends, Piece};
use crate::NdnDrop;
use crate::face::{FaceError, FaceReader, FaceSettings, FaceUri, LinkType, Persistency, Scope, Transport};

/// How often it is looked whether a next hop is known by now, and whether pieces are too old.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// An address of ours at which datagrams are NDN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpListen {
    /// The port of the engine whose address it is.
    pub port: PortId,
    /// The address.
    pub address: SocketAddr,
}

/// How UDP on the engine's ports behaves.
#[derive(Clone, Debug)]
pub struct UdpSettings {
    /// Where it is taken.
    pub listens: Vec<UdpListen>,
    /// Octets of a UDP payload that is sent, at most, unless a face says otherwise. What does not fit into one packet of IP is
    /// cut into fragments of it.
    pub mtu: u16,
    /// What is kept of datagrams whose rest is missing.
    pub fragments: Limits,
}

/// UDP on the ports of one worker.
#[derive(Debug)]
pub(super) struct Udp {
    pub(super) settings: UdpSettings,
    next_hops: NextHops,
    faces: HashMap<Ends, FaceId>,
    seen: u64,
    /// The one that was looked for last: most datagrams come as the one before.
    last: Option<(Ends, FaceId)>,
    /// The state of the table of faces in which there was no room for another.
    full_at: Option<u64>,
    pub(super) pieces: Contexts<Piece>,
    pending: PendingQueue,
    /// The generation of the routes at which what waits was tried last.
    tried: u64,
    /// Of the next packet, for its fragments.
    identification: u32,
    looked: Option<Instant>,
}

impl Udp {
    pub(super) fn new(settings: UdpSettings, next_hops: NextHops) -> Self {
        let mut seed = [0; 4];
        // Without a seed identifications begin at 0, which is as right and easier to guess.
        let _ = getrandom::fill(&mut seed);
        Self {
            pieces: Contexts::new(settings.fragments),
            settings,
            next_hops,
            faces: HashMap::new(),
            seen: 0,
            last: None,
            full_at: None,
            pending: PendingQueue::default(),
            tried: 0,
            identification: u32::from_ne_bytes(seed),
            looked: None,
        }
    }

    /// Reads the table of faces anew when it has changed.
    #[inline]
    pub(super) fn refresh(&mut self, faces: &FaceReader) {
        if self.seen != faces.changes() {
            self.read(faces);
        }
    }

    #[cold]
    fn read(&mut self, faces: &FaceReader) {
        self.seen = faces.changes();
        self.faces.clear();
        self.last = None;
        for face in faces.iter() {
            if let Transport::Udp { local, remote, .. } = *face.transport() {
                self.faces.insert((local, remote), face.id());
            }
        }
    }

    /// Whether an address is one of ours at which datagrams are NDN.
    #[inline]
    pub(super) fn is_ours(&self, address: IpAddr) -> bool {
        self.settings.listens.iter().any(|listen| listen.address.ip() == address)
    }

    /// The face of a datagram, which is made for a packet of the link that nobody knows the sender of.
    pub(super) fn face(
        &mut self,
        faces: &mut FaceReader,
        ends: Ends,
        payload: &[u8],
        len: usize,
    ) -> Result<FaceId, DropReason> {
        if let Some((last, id)) = self.last
            && last == ends
        {
            return Ok(id);
        }
        let id = match self.faces.get(&ends) {
            Some(id) => *id,
            None => self.meet(faces, ends, payload, len)?,
        };
        self.last = Some((ends, id));
        Ok(id)
    }

    #[cold]
    fn meet(
        &mut self,
        faces: &mut FaceReader,
        ends: Ends,
        payload: &[u8],
        len: usize,
    ) -> Result<FaceId, DropReason> {
        let begins = tlv::header(payload).ok().filter(|header| header.element_len() == len);
        if !begins
            .is_some_and(|header| matches!(header.kind, types::INTEREST | types::DATA | types::LP_PACKET))
        {
            return Err(NdnDrop::LINK_MALFORMED);
        }
        if self.full_at == Some(self.seen) {
            return Err(NdnDrop::FACES_FULL);
        }
        let (local, remote) = ends;
        let Some(listen) = self.settings.listens.iter().find(|listen| listen.address == local) else {
            return Err(NdnDrop::FACE_UNKNOWN);
        };
        let settings = face_settings(*listen, remote, Persistency::OnDemand, self.settings.mtu);
        let face = match faces.table().find_or_create(settings) {
            Ok(face) => face,
            Err(FaceError::Host) => return Err(NdnDrop::HOST_FACES_FULL),
            Err(_) => {
                self.full_at = Some(self.seen);
                return Err(NdnDrop::FACES_FULL);
            }
        };
        faces.refresh();
        self.refresh(faces);
        Ok(face.id())
    }

    /// Sends the packet of the link in `frame` to the other end; the frame comes back when it cannot be.
    pub(super) fn send(
        &mut self,
        ports: &[PortKind],
        (from, (local, remote)): (PortId, Ends),
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Result<(), (Frame, DropReason)> {
        self.identification = self.identification.wrapping_add(1);
        if !put_headers(&mut frame, (local, remote), self.identification) {
            return Err((frame, DropReason::NO_HEADROOM));
        }
        match self.next_hops.resolve(remote.ip()) {
            Resolution::Ready(hop) => self.leave(ports, hop, frame, out),
            Resolution::Pending => self
                .pending
                .push(frame, from, remote.ip(), (), out.now())
                .map_err(|frame| (frame, DropReason::NEXT_HOP_UNRESOLVED)),
            Resolution::NoRoute => Err((frame, DropReason::NO_ROUTE)),
        }
    }

    /// Sends an IP packet to the next hop, in fragments where it is longer than the link takes.
    fn leave(
        &self,
        ports: &[PortKind],
        hop: NextHop,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Result<(), (Frame, DropReason)> {
        let Some(&PortKind::Ethernet { mac, mtu, .. }) = ports.get(hop.port.index()) else {
            return Err((frame, DropReason::NO_ROUTE));
        };
        if frame.packet_len() <= usize::from(mtu) {
            if !put_link(&mut frame, mac, hop) {
                return Err((frame, DropReason::NO_HEADROOM));
            }
            out.transmit(hop.port, frame);
            return Ok(());
        }
        let parts = match split(&frame, mtu.into(), self.identification, || out.allocate()) {
            Ok(parts) => parts,
            Err(SplitFault::Impossible) => return Err((frame, DropReason::TOO_BIG)),
            Err(SplitFault::NoFrame) => return Err((frame, DropReason::NO_FRAME)),
        };
        out.release(frame);
        for mut part in parts {
            if put_link(&mut part, mac, hop) {
                out.transmit(hop.port, part);
            } else {
                out.drop(hop.port, part, DropReason::NO_HEADROOM);
            }
        }
        Ok(())
    }

    /// Does what is due: packets go on whose next hops are known by now, pieces whose rest has not come are dropped.
    pub(super) fn tick(&mut self, ports: &[PortKind], out: &mut Output<'_>) {
        self.looked = Some(out.now());
        if !self.pieces.is_empty() {
            self.pieces.expire(out.now());
            self.drop_pieces(out);
        }
        if self.pending.is_empty() {
            return;
        }
        let generation = self.next_hops.generation();
        let is_new = generation != self.tried;
        self.tried = generation;
        for packet in self.pending.take() {
            let resolution =
                if is_new { self.next_hops.resolve(packet.destination) } else { Resolution::Pending };
            let (sent, from) = match resolution {
                Resolution::Ready(hop) => (self.leave(ports, hop, packet.frame, out), packet.from),
                Resolution::NoRoute => (Err((packet.frame, DropReason::NO_ROUTE)), packet.from),
                Resolution::Pending if packet.is_overdue(out.now()) => {
                    (Err((packet.frame, DropReason::NEXT_HOP_UNRESOLVED)), packet.from)
                }
                Resolution::Pending => {
                    self.pending.keep(packet);
                    continue;
                }
            };
            if let Err((frame, reason)) = sent {
                out.drop(from, frame, reason);
            }
        }
    }

    /// Drops the pieces that gave way or were too late.
    pub(super) fn drop_pieces(&mut self, out: &mut Output<'_>) {
        for (piece, reason) in self.pieces.take_dropped() {
            out.drop(piece.port, piece.frame, reason);
        }
    }

    /// When it has something to do at the earliest.
    pub(super) fn tick_due(&self) -> Option<Instant> {
        let waits = !self.pending.is_empty() || !self.pieces.is_empty();
        self.looked.filter(|_| waits).map(|looked| looked + LOOK_EVERY)
    }
}

/// A face to `remote` from an address of ours.
pub(crate) fn face_settings(
    listen: UdpListen,
    remote: SocketAddr,
    persistency: Persistency,
    mtu: u16,
) -> FaceSettings {
    FaceSettings {
        remote: FaceUri::Udp(remote),
        local: FaceUri::Udp(listen.address),
        scope: Scope::NonLocal,
        persistency,
        link_type: LinkType::PointToPoint,
        mtu,
        flags: 0,
        transport: Transport::Udp { port: listen.port, local: listen.address, remote },
    }
}
