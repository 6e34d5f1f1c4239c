//! The cases of a run, measured in interleaved rounds: what disturbs one round disturbs one sample of each.

use std::sync::atomic::AtomicBool;

use kaido_engine::{FramePool, OwnedPool};

use crate::BenchError;
use crate::chain::{self, ChainError, MapChain};
use crate::floor::{Floor, LINE};
use crate::frames::{Direction, Template};
use crate::kernel::{Kernel, KernelResult};
use crate::memory::available;
use crate::node::{UpfNode, stopped};
use crate::plan::Plan;
use crate::report::{ChainResult, PathResult, SkippedCase};
use crate::rings::{self, RingWorker, RingsResult};
use crate::rounds::{FrameSet, FrameSets, Order, UNTIMED_ROUNDS, held_round, settled_round, size_for};
use crate::shape::Shape;
use crate::stats::Summary;
use crate::workers::{Pair, WorkersResult};

/// Everything at one number of sessions.
struct Case {
    node: UpfNode,
    orders: [Order; 2],
    /// A floor for each direction would be the same: both have as many lines.
    floor: Floor,
    /// By direction and frame length.
    paths: Vec<(Template, usize)>,
    /// Two workers of the same node.
    pair: Option<Pair>,
    /// A worker of the same node with the rings of a port.
    ringed: RingWorker,
    chain: Option<MapChain>,
    /// Our own program for the kernel, as a peer of the chain.
    kernel: Option<Kernel>,
    path_samples: PathSamples,
    chain_samples: Option<ChainSamples>,
}

/// The samples of the path at one number of sessions, of one direction and length of frame.
struct PathCase {
    direction: Direction,
    /// Length asked for, and of what was sent.
    frame_bytes: [usize; 2],
    /// Nanoseconds a packet.
    ns: Vec<f64>,
    /// The same of packets that stay in the cache.
    held_ns: Vec<f64>,
}

/// The samples of the path at one number of sessions.
pub(super) struct PathSamples {
    shape: Shape,
    sessions: u32,
    cases: Vec<PathCase>,
    /// Nanoseconds a line.
    floor: Vec<f64>,
    /// Pages that path and floor had to wait for.
    page_faults: u64,
    pages: String,
    floor_pages: String,
}

/// The samples of the map chain at one number of sessions.
pub(super) struct ChainSamples {
    shape: Shape,
    sessions: u32,
    frame_bytes: usize,
    /// Net and wrapper, by direction.
    cases: [(Vec<f64>, Vec<f64>); 2],
}

/// All cases.
pub(super) struct Cases {
    cases: Vec<Case>,
    /// Behind all whose frames are of it.
    _of_rings: OwnedPool,
}

impl Cases {
    /// Adds floors and map chains to the nodes; a chain that cannot be had here is skipped.
    pub(super) fn new(
        plan: &Plan,
        nodes: Vec<((Shape, u32), UpfNode)>,
        frame_sets: &mut FrameSets,
        cpus: &Result<[usize; 2], String>,
        skipped: &mut Vec<SkippedCase>,
        stop: &AtomicBool,
        progress: &dyn Fn(&str),
    ) -> Result<Self, BenchError> {
        let mut cases = Vec::new();
        let pool: &'static FramePool = frame_sets.pools().next().ok_or(BenchError::FrameLength(0))?;
        let of_rings = rings::pool(nodes.len(), plan.chain_frame())?;
        for ((shape, sessions), node) in nodes {
            let lines = shape.cold_line_names().len();
            let floor =
                Floor::new(sessions.saturating_mul(u32::try_from(lines).unwrap_or(u32::MAX)), plan.seed)?;
            let what = format!("{sessions} sessions, {}", shape.name());
            progress(&format!("{what}: filling the map chain"));
            let chain = match load_chain((shape, sessions), plan, stop) {
                Ok(chain) => Some(chain),
                Err(reason) => {
                    progress(&format!("{what}: the map chain is skipped: {reason}"));
                    skipped.push(SkippedCase { name: format!("XDP map chain, {what}"), reason });
                    None
                }
            };
            progress(&format!("{what}: giving the kernel its sessions"));
            let kernel = Kernel::load((shape, sessions), pool, stop)?.map_err(|reason| {
                progress(&format!("{what}: the offload in the kernel is skipped: {reason}"));
                skipped.push(SkippedCase { name: format!("XDP offload, {what}"), reason });
            });
            let pair = match cpus {
                Ok(cpus) => Some(load_pair((shape, sessions), &node, frame_sets, *cpus, plan)?),
                Err(reason) => {
                    let name = format!("two workers share the sessions, {what}");
                    skipped.push(SkippedCase { name, reason: reason.clone() });
                    None
                }
            };
            stopped(stop)?;
            let of = (shape, sessions);
            let ringed = RingWorker::new(of, node.node(), *of_rings, plan.chain_frame(), plan.seed)?;
            cases.push(Case::new(of, node, floor, (pair, ringed), (chain, kernel.ok()), plan));
        }
        Ok(Self { cases, _of_rings: of_rings })
    }

    /// Measures every case once a round, after a round that is not counted.
    pub(super) fn measure(
        &mut self,
        plan: &Plan,
        frame_sets: &mut FrameSets,
        stop: &AtomicBool,
        progress: &dyn Fn(&str),
    ) -> Result<(), BenchError> {
        for number in 0..=plan.rounds {
            progress(&match number {
                0 => "a round to warm up".to_owned(),
                _ => format!("round {number} of {}", plan.rounds),
            });
            for case in &mut self.cases {
                case.round(plan, frame_sets, stop)?;
            }
            if number == 0 {
                self.cases.iter_mut().for_each(Case::forget);
            }
        }
        Ok(())
    }

    /// Holds what the sessions' URRs have counted against all packets that were sent.
    ///
    /// # Errors
    /// [`BenchError::Usage`].
    pub(super) fn check_usage(&self) -> Result<(), BenchError> {
        self.cases.iter().try_for_each(Case::check_usage)
    }

    /// Two workers beside one.
    pub(super) fn two_workers(&self) -> Vec<WorkersResult> {
        let pairs = |direction| {
            self.cases
                .iter()
                .filter_map(move |case| case.pair.as_ref().and_then(|pair| pair.result(direction)))
        };
        Direction::ALL.into_iter().flat_map(pairs).collect()
    }

    /// The path with the rings of a port.
    pub(super) fn with_rings(&self) -> Vec<RingsResult> {
        let of = |direction| self.cases.iter().filter_map(move |case| case.ringed.result(direction));
        Direction::ALL.into_iter().flat_map(of).collect()
    }

    /// Kaido's datapath in the kernel.
    pub(super) fn kernel(&self) -> Vec<KernelResult> {
        let of = |direction| {
            let kernels = self.cases.iter().filter_map(|case| case.kernel.as_ref());
            kernels.filter_map(move |kernel| kernel.result(direction))
        };
        Direction::ALL.into_iter().flat_map(of).collect()
    }

    /// The samples; nodes, floors and chains give their memory back.
    pub(super) fn into_samples(self) -> (Vec<PathSamples>, Vec<ChainSamples>) {
        let (paths, chains): (Vec<_>, Vec<_>) =
            self.cases.into_iter().map(|case| (case.path_samples, case.chain_samples)).unzip();
        (paths, chains.into_iter().flatten().collect())
    }
}

/// Says so when maps for so many sessions do not fit into what memory is left.
fn fits(sessions: u32, bytes_per_session: u64) -> Result<(), String> {
    let (needed, left) = (u64::from(sessions) * bytes_per_session, available());
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    if needed > left {
        let (needed, left) = (gigabytes(needed), gigabytes(left));
        return Err(format!("its maps need {needed:.1} GB; {left:.1} GB can be had"));
    }
    Ok(())
}

/// Loads a chain and sees that it forwards right, or says why there is none.
fn load_chain(of: (Shape, u32), plan: &Plan, stop: &AtomicBool) -> Result<MapChain, String> {
    fits(of.1, chain::bytes_per_session(of.0))?;
    let chain = MapChain::load(of, plan.chain_frame(), plan.seed, stop).map_err(|error| error.to_string())?;
    for direction in Direction::ALL {
        let out = chain.one(direction).map_err(|error| error.to_string())?;
        chain.judge(direction, &out).map_err(|error| error.to_string())?;
    }
    Ok(chain)
}

/// Two workers of a node, for frames of the length that the map chain has.
fn load_pair(
    of: (Shape, u32),
    node: &UpfNode,
    frame_sets: &mut FrameSets,
    cpus: [usize; 2],
    plan: &Plan,
) -> Result<Pair, BenchError> {
    let frame = plan.chain_frame();
    let pool = frame_sets.for_packets(frame).ok_or(BenchError::FrameLength(frame))?.pool;
    Pair::new(of, node.node(), pool, [plan.packets_per_round, frame], cpus, plan.seed)
}

impl Case {
    fn new(
        (shape, sessions): (Shape, u32),
        node: UpfNode,
        floor: Floor,
        (pair, ringed): (Option<Pair>, RingWorker),
        (chain, kernel): (Option<MapChain>, Option<Kernel>),
        plan: &Plan,
    ) -> Self {
        let paths: Vec<_> = Direction::ALL
            .into_iter()
            .flat_map(|direction| {
                plan.frames.iter().map(move |&asked| (Template::of_shape(shape, direction, asked), asked))
            })
            .collect();
        let path_samples = PathSamples {
            shape,
            sessions,
            cases: paths
                .iter()
                .map(|(template, asked)| PathCase {
                    direction: template.direction,
                    frame_bytes: [*asked, template.len],
                    ns: Vec::new(),
                    held_ns: Vec::new(),
                })
                .collect(),
            floor: Vec::new(),
            page_faults: 0,
            pages: node.pages(),
            floor_pages: floor.pages().to_string(),
        };
        let chain_samples = chain.as_ref().map(|chain| ChainSamples {
            shape,
            sessions,
            frame_bytes: chain.frame_bytes(),
            cases: Default::default(),
        });
        let orders = [plan.seed, !plan.seed].map(|seed| Order::new(sessions, seed).of_shape(shape));
        Self { node, orders, floor, paths, pair, ringed, chain, kernel, path_samples, chain_samples }
    }

    fn round(
        &mut self,
        plan: &Plan,
        frame_sets: &mut FrameSets,
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        for ((template, _), case) in self.paths.iter().zip(&mut self.path_samples.cases) {
            let order = &mut self.orders[usize::from(template.direction == Direction::Downlink)];
            let forwarder = &mut self.node.forwarder;
            let frame_set =
                frame_sets.for_packets(template.len).ok_or(BenchError::FrameLength(template.len))?;
            let FrameSet { round, held, .. } = frame_set;
            let taken = settled_round(forwarder, round, template, order, stop)?;
            case.ns.push(taken.ns / round.count() as f64);
            case.held_ns.push(held_round(forwarder, held, template, order, stop)?);
            self.path_samples.page_faults += taken.page_faults;
        }
        if let Some(pair) = &mut self.pair {
            pair.round(&mut self.node.forwarder, frame_sets, stop)?;
        }
        self.ringed.round(&mut self.node.forwarder, frame_sets, stop)?;
        // As many lines as the packets of a round have touched.
        let lines = plan.packets_per_round * self.path_samples.shape.cold_line_names().len();
        for _ in 0..UNTIMED_ROUNDS {
            self.floor.round(lines);
        }
        let taken = self.floor.round(lines);
        self.path_samples.floor.push(taken.ns / lines as f64);
        self.path_samples.page_faults += taken.page_faults;
        if let (Some(chain), Some(samples)) = (&self.chain, &mut self.chain_samples) {
            for (direction, (net, wrapper)) in Direction::ALL.into_iter().zip(&mut samples.cases) {
                stopped(stop)?;
                let one = chain.round(direction, plan.chain_runs_per_round)?;
                net.push(one.net);
                wrapper.push(one.wrapper);
            }
        }
        if let Some(kernel) = &mut self.kernel {
            stopped(stop)?;
            kernel.round(plan.chain_runs_per_round)?;
        }
        Ok(())
    }

    fn check_usage(&self) -> Result<(), BenchError> {
        let pair = self.pair.as_ref().map(Pair::forwarded).unwrap_or_default();
        let others = pair.plus(&self.ringed.forwarded());
        let (forwarded, counted) = (self.node.forwarder.forwarded().plus(&others), self.node.counted());
        if forwarded == counted {
            return Ok(());
        }
        let PathSamples { sessions, shape, .. } = self.path_samples;
        Err(BenchError::Usage { sessions, shape: shape.name(), forwarded, counted })
    }

    fn forget(&mut self) {
        self.pair.iter_mut().for_each(Pair::forget);
        self.ringed.forget();
        self.path_samples.floor.clear();
        self.path_samples.page_faults = 0;
        for case in &mut self.path_samples.cases {
            case.ns.clear();
            case.held_ns.clear();
        }
        for (net, wrapper) in self.chain_samples.iter_mut().flat_map(|samples| &mut samples.cases) {
            net.clear();
            wrapper.clear();
        }
        self.kernel.iter_mut().for_each(Kernel::forget);
    }
}

/// The path's figures, the goals not yet held against them.
pub(super) fn path_results(plan: &Plan, all: &[PathSamples]) -> Vec<PathResult> {
    let mut results = Vec::new();
    for direction in Direction::ALL {
        for samples in all {
            let Some(floor) = Summary::of(&samples.floor) else { continue };
            let cases = samples.cases.iter().filter(|case| case.direction == direction);
            results.extend(cases.filter_map(|case| {
                let (path, held) = (Summary::of(&case.ns)?, Summary::of(&case.held_ns)?);
                let [frame_bytes, frame_bytes_sent] = case.frame_bytes;
                Some(PathResult {
                    direction,
                    sessions: samples.sessions,
                    shape: samples.shape,
                    frame_bytes,
                    frame_bytes_sent,
                    pool_frame_bytes: size_for(frame_bytes_sent).bytes(),
                    ns_per_packet: path.median,
                    ns_spread: path.spread,
                    ns_range: [path.min, path.max],
                    held_ns_per_packet: held.median,
                    held_ns_spread: held.spread,
                    cold_lines: samples.shape.cold_line_names().len(),
                    cold_line_names: samples.shape.cold_line_names(),
                    packet_lines: crate::rounds::PACKET_LINES,
                    floor_ns_per_line: floor.median,
                    floor_ns_spread: floor.spread,
                    working_set_bytes: u64::from(samples.sessions)
                        * (samples.shape.cold_line_names().len() * LINE) as u64,
                    pages: samples.pages.clone(),
                    floor_pages: samples.floor_pages.clone(),
                    page_faults: samples.page_faults,
                    goal_ns: None,
                    ratio: None,
                    met: None,
                })
            }));
        }
    }
    debug_assert_eq!(results.len(), 2 * all.len() * plan.frames.len());
    results
}

/// The chain's figures beside the path's at the same length of frame, and those of Kaido's program.
pub(super) fn chain_results(
    all: &[ChainSamples],
    paths: &[PathResult],
    kernel: &[KernelResult],
) -> Vec<ChainResult> {
    let mut results = Vec::new();
    for (at, direction) in Direction::ALL.into_iter().enumerate() {
        for samples in all {
            let (net, wrapper) = &samples.cases[at];
            let (Some(net), Some(wrapper)) = (Summary::of(net), Summary::of(wrapper)) else { continue };
            let same = |path: &&PathResult| {
                path.direction == direction
                    && path.shape == samples.shape
                    && path.sessions == samples.sessions
                    && path.frame_bytes_sent == samples.frame_bytes
            };
            let of = (direction, samples.shape, samples.sessions);
            let fast = kernel.iter().find(|fast| (fast.direction, fast.shape, fast.sessions) == of);
            results.push(ChainResult::new(
                direction,
                (samples.shape, samples.sessions),
                samples.frame_bytes,
                [net, wrapper],
                paths.iter().find(same),
                fast.map(|fast| fast.ns_per_packet),
            ));
        }
    }
    results
}

impl From<ChainError> for BenchError {
    fn from(error: ChainError) -> Self {
        Self::MapChain(error.to_string())
    }
}
