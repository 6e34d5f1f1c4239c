//! The router as a function of the engine: link and forwarding joined, and the node as its management sees it.
//!
//! ```text
//!  batch ─▶ Link::receive ─▶ packets ─▶ Forwarder ─▶ Link::send ─▶ ports
//!                                          ▲
//!                                          │  ▲ rings, where there are several workers: WorkerSet
//!  RouterNode ─orders, reports─▶ ControlMailbox ┘           RouterNode ─▶ Shared: FIB, strategies · Faces · HostControl
//! ```

mod aging;
mod control_mailbox;
mod node;
mod strategies;
mod sweep;
mod table_page;
mod worker_set;

pub use control_mailbox::{ControlMailbox, WorkerReport};
pub use node::{EthernetPort, NodeParts, Observer, RouterNode, UdpPorts};
pub use table_page::{CsRow, PitRow, TablePage, TableReading, WorkerTable};
pub use worker_set::{HandoffCounters, WorkerSet};

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, Batch, DropReason, DropTable, Frame, Function, Output, PortId, PortLink};
use kaido_ndn_tables::FaceId;

use worker_set::Shift;

use crate::NdnDrop;
use crate::face::{FLAG_LOCAL_FIELDS, FaceState, LinkType, Scope, Transport};
use crate::forward::{FaceView, Forwarder, Sink};
use crate::link::Link;
use crate::packet::{Annotations, Packet};

/// The NDN router of one worker.
#[derive(Debug)]
pub struct Ndn {
    link: Link,
    forwarder: Forwarder,
    mailbox: Arc<ControlMailbox>,
    packets: ArrayVec<Packet, BATCH_MAX>,
    /// When the forwarding wants to be called again.
    due: Option<Instant>,
    /// The other workers, where there are any.
    worker_set: Option<Box<WorkerSet>>,
}

impl Ndn {
    /// A router of its link and its forwarding; what management wants of this worker is put on `mailbox`.
    pub fn new(link: Link, forwarder: Forwarder, mailbox: Arc<ControlMailbox>) -> Self {
        Self { link, forwarder, mailbox, packets: ArrayVec::new(), due: None, worker_set: None }
    }

    /// The router as one worker of several.
    #[must_use]
    pub fn with_worker_set(mut self, worker_set: WorkerSet) -> Self {
        worker_set.join(&mut self.forwarder);
        self.worker_set = Some(Box::new(worker_set));
        self
    }

    /// As [`Function::process`], among other workers.
    fn process_in_crew(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        let Self { link, forwarder, packets, worker_set: Some(worker_set), .. } = self else { return };
        let from_worker_set = port == worker_set.port();
        let mut shift = Shift { worker_set, link, forwarder, packets, out, port };
        if from_worker_set {
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

    fn drop_reasons(&self) -> &'static DropTable {
        NdnDrop::TABLE
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        self.link.refresh();
        if self.worker_set.is_some() {
            return self.process_in_crew(port, batch, out);
        }
        for frame in batch.drain(..) {
            if let Some(packet) = self.link.receive(port, frame, out) {
                // As many as the batch had at most.
                self.packets.push(packet);
            }
        }
        let now = out.now();
        self.forwarder.process(&mut self.packets, now, &mut RouterOutput { link: &mut self.link, out, port });
    }

    fn tick(&mut self, out: &mut Output<'_>) {
        self.link.refresh();
        self.link.tick(out);
        let now = out.now();
        self.forwarder.tick(now, &mut RouterOutput { link: &mut self.link, out, port: PortId(0) });
        if let Some(worker_set) = &mut self.worker_set {
            worker_set.tick(&self.forwarder, now);
        }
        self.mailbox.serve(&mut self.forwarder, self.worker_set.as_deref());
        let wait =
            if self.mailbox.has_orders() { Some(Duration::ZERO) } else { self.forwarder.tick_due(now) };
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
struct RouterOutput<'a, 'w> {
    link: &'a mut Link,
    out: &'a mut Output<'w>,
    /// Where the packets at hand came in.
    port: PortId,
}

impl Sink for RouterOutput<'_, '_> {
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
