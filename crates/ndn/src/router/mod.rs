//! The router as a function of the engine: link and forwarding joined, and the node as its management sees it.
//!
//! ```text
//!  batch ─▶ Link::receive ─▶ packets ─▶ Forwarder ─▶ Link::send ─▶ ports
//!                                          ▲
//!                                          │  ▲ rings, where there are several workers: Crew
//!  RouterNode ─orders, reports─▶ Desk ─────┘           RouterNode ─▶ Shared: FIB, strategies · Faces · HostControl
//! ```

mod aging;
mod crew;
mod desk;
mod node;
mod sweep;

pub use crew::{Crew, CrewCounters};
pub use desk::{Desk, WorkerReport};
pub use node::{EthernetPort, NodeParts, Observer, RouterNode, UdpPorts};

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, Batch, DropReason, Frame, Function, Output, PortId, PortLink};

use crew::Shift;

use crate::face::{FLAG_LOCAL_FIELDS, FaceState, LinkType, Scope, Transport};
use crate::forward::{FaceView, Forwarder, Sink};
use crate::link::Link;
use crate::packet::{Annotations, FaceId, Packet};

/// The NDN router of one worker.
#[derive(Debug)]
pub struct Ndn {
    link: Link,
    forwarder: Forwarder,
    desk: Arc<Desk>,
    packets: ArrayVec<Packet, BATCH_MAX>,
    /// When the forwarding wants to be called again.
    due: Option<Instant>,
    /// The other workers, where there are any.
    crew: Option<Box<Crew>>,
}

impl Ndn {
    /// A router of its link and its forwarding; what management wants of this worker is put on `desk`.
    pub fn new(link: Link, forwarder: Forwarder, desk: Arc<Desk>) -> Self {
        Self { link, forwarder, desk, packets: ArrayVec::new(), due: None, crew: None }
    }

    /// The router as one worker of several.
    #[must_use]
    pub fn with_crew(mut self, crew: Crew) -> Self {
        crew.join(&mut self.forwarder);
        self.crew = Some(Box::new(crew));
        self
    }

    /// As [`Function::process`], among other workers.
    fn process_in_crew(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        let Self { link, forwarder, packets, crew: Some(crew), .. } = self else { return };
        let from_crew = port == crew.port();
        let mut shift = Shift { crew, link, forwarder, packets, out, port };
        if from_crew {
            batch.drain(..).for_each(|frame| shift.take_over(frame));
        } else {
            shift.out.incoming(port).iter().for_each(Shift::expect);
            for frame in batch.drain(..) {
                if let Some(packet) = shift.link.receive(port, frame, shift.out) {
                    shift.arrive(packet);
                }
            }
        }
        shift.finish();
    }
}

impl Function for Ndn {
    fn name(&self) -> &'static str {
        "ndn"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        self.link.refresh();
        if self.crew.is_some() {
            return self.process_in_crew(port, batch, out);
        }
        for frame in batch.drain(..) {
            if let Some(packet) = self.link.receive(port, frame, out) {
                // As many as the batch had at most.
                self.packets.push(packet);
            }
        }
        let now = out.now();
        self.forwarder.process(&mut self.packets, now, &mut Ways { link: &mut self.link, out, port });
    }

    fn tick(&mut self, out: &mut Output<'_>) {
        self.link.refresh();
        self.link.tick(out);
        let now = out.now();
        self.forwarder.tick(now, &mut Ways { link: &mut self.link, out, port: PortId(0) });
        if let Some(crew) = &mut self.crew {
            crew.tick(&self.forwarder, now);
        }
        self.desk.serve(&mut self.forwarder, self.crew.as_deref());
        let wait = if self.desk.has_orders() { Some(Duration::ZERO) } else { self.forwarder.tick_due(now) };
        self.due = wait.map(|wait| now + wait);
    }

    fn tick_due(&self) -> Option<Instant> {
        self.due.into_iter().chain(self.link.tick_due()).min()
    }

    fn port_changed(&mut self, port: PortId, link: &PortLink) {
        self.link.port_changed(port, link);
    }
}

/// The ways out of the forwarding.
struct Ways<'a, 'w> {
    link: &'a mut Link,
    out: &'a mut Output<'w>,
    /// Where the packets at hand came in.
    port: PortId,
}

impl Sink for Ways<'_, '_> {
    #[inline]
    fn face(&self, id: FaceId) -> Option<FaceView> {
        let face = self.link.faces().get(id).filter(|face| face.state() == FaceState::Up)?;
        Some(FaceView {
            is_local: face.scope() == Scope::Local,
            is_multi_access: face.link_type() == LinkType::MultiAccess,
            local_fields: face.flags() & FLAG_LOCAL_FIELDS != 0,
            account: face.account(),
        })
    }

    #[inline]
    fn send(&mut self, face: FaceId, frame: Frame, annotations: &Annotations) {
        self.link.send(face, frame, annotations, self.out);
    }

    #[inline]
    fn allocate(&mut self) -> Option<Frame> {
        self.out.allocate()
    }

    fn drop(&mut self, face: FaceId, frame: Frame, reason: DropReason) {
        let port = match self.link.faces().get(face).map(|face| *face.transport()) {
            Some(
                Transport::Host { port } | Transport::Ethernet { port, .. } | Transport::Udp { port, .. },
            ) => port,
            Some(Transport::Internal) | None => self.port,
        };
        self.out.drop(port, frame, reason);
    }
}
