//! User planes that are held to the model: the fast path, the slow path, and the kernel's datapath with a worker behind it.

use std::time::{Duration, Instant, SystemTime};

use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{FramePool, Worker};
use kaido_n4::{
    Establishment, Interface, Modification, Pdi, Pdr, PdrId, SdfFilter, Seid, SessionEvent, SessionService,
    UsageReport,
};
use kaido_upf::control::Upf;
use kaido_upf::node::{Instance, Node, NodeSettings};
use kaido_upf::slow_path::SlowPathReason;
use kaido_upf_xdp::{SharedOffload, Steering};
use kaido_xdp::Action;

use crate::family::Family;
use crate::frames::Direction;
use crate::node::{settings, worker};
use crate::platforms::offload::{OffloadNode, program, set_hops};
use crate::shape::Shape;

/// The loopback interface, which test runs come in by.
const LOOPBACK: u32 = 1;
/// A ToS that no packet of the tests has.
const NO_PACKETS_TOS: u8 = 0xe4;

/// A frame that left, and whether by the N6 port.
pub(super) type SentFrame = (bool, Vec<u8>);

/// A node with a worker that is turned by hand.
pub(super) struct System {
    pub(super) name: &'static str,
    upf: Upf,
    worker: Worker,
    /// N3 and N6.
    wires: [MemoryWire; 2],
    /// What is before the worker.
    kernel: Option<Kernel>,
    is_slow: bool,
    /// A clock that stands, where there is no other in the system.
    pub(super) clock: Option<Instant>,
    wall_clock: SystemTime,
    /// Packets that the kernel forwarded or dropped.
    pub(super) by_kernel: u64,
    pub(super) packets: u64,
}

struct Kernel {
    tables: SharedOffload,
    programs: [Steering; 2],
}

/// A node with tunnels and UEs of both families.
pub(super) fn both_families() -> NodeSettings {
    let mut settings = settings(Family::V4, Shape::Plain, 64);
    settings.instances = vec![Instance { name: None }];
    settings.endpoints = Family::ALL.map(Family::n3).to_vec();
    settings.ports[0].addresses = settings.endpoints.clone();
    settings.ports[1].addresses = Family::ALL.map(Family::n6).to_vec();
    settings
}

impl System {
    fn new(name: &'static str, (node, upf): (std::sync::Arc<Node>, Upf)) -> Self {
        let pool = FramePool::leak(512).unwrap();
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let ports = wires.each_ref().map(|wire| Box::new(wire.port()) as Box<dyn Port>);
        let worker = worker(&node, pool, ports).unwrap();
        Self {
            name,
            upf,
            worker,
            wires,
            kernel: None,
            is_slow: false,
            clock: Some(Instant::now()),
            wall_clock: SystemTime::now(),
            by_kernel: 0,
            packets: 0,
        }
    }

    fn in_memory(name: &'static str, settings: NodeSettings) -> Self {
        let (node, events) = Node::new(settings).unwrap();
        let upf = Upf::new(node.clone(), events, Vec::new()).unwrap();
        Self::new(name, (node, upf))
    }

    pub(super) fn fast(settings: NodeSettings) -> Self {
        Self::in_memory("the fast path", settings)
    }

    /// Every session has rules ahead that ask for a ToS: that is not known to the fast path.
    pub(super) fn slow(settings: NodeSettings) -> Self {
        Self { is_slow: true, ..Self::in_memory("the slow path", settings) }
    }

    /// The reason where this kernel has no such datapath for us.
    pub(super) fn kernel(settings: NodeSettings) -> Result<Self, String> {
        let settings = NodeSettings { workers_share_sessions: true, ..settings };
        let (tables, (node, upf)) = OffloadNode::tables(settings)?;
        set_hops(&tables, [LOOPBACK; 2], &node.settings)?;
        let programs = [program(&tables, 0, &node.settings)?, program(&tables, 1, &node.settings)?];
        let kernel = Some(Kernel { tables, programs });
        Ok(Self { kernel, clock: None, ..Self::new("the kernel's datapath", (node, upf)) })
    }

    pub(super) fn establish(&mut self, request: &Establishment) -> Seid {
        let mut request = request.clone();
        if self.is_slow {
            let of = |interface| request.pdrs.iter().find(|pdr| pdr.pdi.source_interface == interface);
            let ahead: Vec<Pdr> =
                [Interface::Access, Interface::Core].into_iter().filter_map(of).map(ahead).collect();
            request.pdrs.extend(ahead);
        }
        let request = kaido_pfcp::carried(&request, kaido_pfcp::Features::default()).unwrap();
        let established = self.upf.establish(&request, self.wall_clock);
        // Token buckets begin now.
        self.clock = self.clock.map(|_| Instant::now());
        established.unwrap_or_else(|rejection| panic!("{}: {rejection}", self.name)).seid
    }

    pub(super) fn modify(&mut self, seid: Seid, change: &Modification) -> Vec<UsageReport> {
        let modified = self.upf.modify(seid, change, self.wall_clock);
        modified.unwrap_or_else(|rejection| panic!("{}: {rejection}", self.name)).usage_reports
    }

    /// The last reports of a session, which is gone then; none of one that is gone.
    pub(super) fn delete(&mut self, seid: Seid) -> Vec<UsageReport> {
        self.upf.delete(seid, self.wall_clock).map(|deleted| deleted.usage_reports).unwrap_or_default()
    }

    /// What is reported unasked, a second later.
    pub(super) fn poll(&mut self) -> Vec<UsageReport> {
        self.wall_clock += Duration::from_secs(1);
        let usage = |event| match event {
            SessionEvent::Usage { reports, .. } => reports,
            other => panic!("{}: {other:?}", self.name),
        };
        self.upf.poll_events(self.wall_clock, 100).into_iter().flat_map(usage).collect()
    }

    /// What leaves because of a frame.
    pub(super) fn pass(&mut self, direction: Direction, frame: &[u8]) -> Vec<SentFrame> {
        self.packets += 1;
        let at = usize::from(direction == Direction::Downlink);
        if let Some(kernel) = &self.kernel {
            let program = &kernel.programs[at];
            let taken = || program.offload_counters().unwrap().received_packets();
            let before = taken();
            let run = program.test_run(frame, 1).unwrap();
            if taken() > before {
                self.by_kernel += 1;
                let sent = (run.action == Action::Redirect).then_some((at == 0, run.frame));
                return self.turn().into_iter().chain(sent).collect();
            }
            assert_eq!(run.frame, frame, "what is left to a worker is as it came");
        }
        assert!(self.wires[at].send(frame));
        self.turn()
    }

    /// Turns the worker until nothing is left to do; what leaves.
    pub(super) fn turn(&mut self) -> Vec<SentFrame> {
        let clock = self.clock;
        while self.worker.step_at(clock.unwrap_or_else(Instant::now)) > 0 {}
        let mut sent = Vec::new();
        for (wire, is_n6) in self.wires.iter().zip([false, true]) {
            sent.extend(std::iter::from_fn(|| wire.receive()).map(|frame| (is_n6, frame)));
        }
        sent
    }

    /// Packets of the worker's that took the slow path, by reason.
    pub(super) fn slow_packets(&self) -> Vec<(SlowPathReason, u64)> {
        self.upf.node().slow_path.totals().into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Whether the kernel has records.
    pub(super) fn has_kernel_records(&self) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.tables.with(|fast| !fast.is_empty()))
    }
}

/// A PDR that comes before all others, for packets of the same tunnel or UE, which no packet matches.
fn ahead(pdr: &Pdr) -> Pdr {
    let mut ahead = Pdr { id: PdrId(pdr.id.0 + 1000), precedence: 0, far_id: pdr.far_id, ..Pdr::default() };
    let filter = SdfFilter { tos: Some((NO_PACKETS_TOS, 0xff)), ..SdfFilter::default() };
    ahead.pdi = Pdi { sdf_filters: vec![filter], qfis: Vec::new(), ..pdr.pdi.clone() };
    ahead
}
