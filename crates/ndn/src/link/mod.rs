//! The link service: between ports and forwarding.
//!
//! ```text
//!  frame ─▶ face by pseudo header or Ethernet address ─▶ NDNLPv2 ─▶ reassembly ─▶ Packet
//!  frame ◀─ pseudo header or Ethernet header ◀─ NDNLPv2, fragments ◀─ network packet, Annotations
//! ```
//!
//! Headers are taken off and put on in place; a packet is copied only where fragments are joined or cut.

mod assemble;
mod datagram;
mod ethernet;
mod marking;
mod reassembly;
mod receive;
mod reliable;
mod send;
mod udp;
mod udp_headers;
mod udp_packet;

pub use reassembly::{FRAGMENTS_MAX, ReassemblyLimits};
pub(crate) use udp::face_settings as udp_face;
pub use udp::{UdpListen, UdpSettings};

use std::time::Instant;

use kaido_engine::{DropReason, Frame, NextHops, Output, PortId, PortLink};
use kaido_wire::MacAddr;
use kaido_wire::ndn::PACKET_MAX;

use crate::face::{FaceReader, Faces, Transport};
use ethernet::Addresses;
use marking::CongestionMarking;
use reassembly::Reassembly;
use reliable::PendingFaces;
use udp::Udp;

/// Octets of the longest packet of the link: the longest of the network, and room for what is said of it.
pub const LINK_PACKET_MAX: usize = PACKET_MAX + 512;

/// Octets in front of each packet of the host port: the number of the face, big-endian.
pub const PSEUDO_HEADER: usize = 4;

/// What a port of the node carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Packets of the link behind the number of their face.
    Host,
    /// Ethernet frames.
    Ethernet {
        /// Our address.
        mac: MacAddr,
        /// Octets of an Ethernet payload.
        mtu: u16,
        /// Whether whoever sends gets a face.
        on_demand: bool,
    },
}

/// How the link service behaves.
#[derive(Clone, Debug, Default)]
pub struct LinkSettings {
    /// The ports of the node, in the order of their numbers.
    pub ports: Vec<PortKind>,
    /// What may wait for the rest of its packet.
    pub reassembly: ReassemblyLimits,
}

/// Takes what is lost on the way.
pub(crate) trait Loss {
    /// A frame that came in on `port`, or should have gone out there.
    fn frame(&mut self, port: PortId, frame: Frame, reason: DropReason);
}

impl Loss for Output<'_> {
    fn frame(&mut self, port: PortId, frame: Frame, reason: DropReason) {
        self.drop(port, frame, reason);
    }
}

/// The link service of one worker.
#[derive(Debug)]
pub struct Link {
    settings: LinkSettings,
    faces: FaceReader,
    addresses: Addresses,
    reassembly: Reassembly,
    marking: CongestionMarking,
    looks: PendingFaces,
    /// UDP over the engine's ports, where there is any.
    udp: Option<Box<Udp>>,
}

impl Link {
    /// A service over the ports of `settings`, whose faces are in `faces`.
    pub fn new(settings: LinkSettings, faces: &Faces) -> Self {
        Self {
            faces: faces.reader(),
            addresses: Addresses::default(),
            reassembly: Reassembly::new(settings.reassembly),
            marking: CongestionMarking::default(),
            looks: PendingFaces::default(),
            udp: None,
            settings,
        }
    }

    /// The service with UDP on ports of the engine, which finds next hops by `next_hops`.
    #[must_use]
    pub fn with_udp(mut self, settings: UdpSettings, next_hops: NextHops) -> Self {
        self.udp = Some(Box::new(Udp::new(settings, next_hops)));
        self
    }

    /// Takes notice of faces that were made or removed: to be called once a batch.
    #[inline]
    pub fn refresh(&mut self) {
        self.faces.refresh();
        if self.addresses.refresh(&self.faces) {
            let faces = &self.faces;
            self.marking.forget(|face| faces.get(face).is_some());
        }
        if let Some(udp) = &mut self.udp {
            udp.refresh(&self.faces);
        }
    }

    /// The faces, as this worker sees them.
    #[inline]
    pub fn faces(&self) -> &FaceReader {
        &self.faces
    }

    /// Gives up packets of which fragments are missing for too long, and sends again what was not acknowledged.
    pub fn tick(&mut self, out: &mut Output<'_>) {
        self.look(out);
        self.reassembly.expire(out.now(), out);
        if let Some(udp) = &mut self.udp {
            udp.tick(&self.settings.ports, out);
        }
    }

    /// Follows the interface of a port: frames have its address, and none is longer than it takes.
    pub fn port_changed(&mut self, port: PortId, link: &PortLink) {
        let Some(PortKind::Ethernet { mac, mtu, .. }) = self.settings.ports.get_mut(port.index()) else {
            return;
        };
        let now = u16::try_from(link.mtu).unwrap_or(u16::MAX);
        *mac = MacAddr(link.mac);
        let before = std::mem::replace(mtu, now);
        self.faces.refresh();
        for face in self.faces.iter() {
            let is_on_port = matches!(*face.transport(), Transport::Ethernet { port: of, .. } if of == port);
            if is_on_port && (face.mtu() > usize::from(now) || face.mtu() == usize::from(before)) {
                face.set_mtu(now);
            }
        }
    }

    /// When [`Self::tick`] has something to do at the earliest.
    pub fn tick_due(&self) -> Option<Instant> {
        let udp = self.udp.as_ref().and_then(|udp| udp.tick_due());
        self.reassembly.due().into_iter().chain(udp).chain(self.looks.due()).min()
    }
}
