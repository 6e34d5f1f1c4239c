//! What a run found: the JSON is these types as they are.

use serde::Serialize;

use crate::frames::Direction;
use crate::goal;
use crate::kernel::KernelResult;
use crate::machine::Machine;
use crate::rings::RingsResult;
use crate::shape::Shape;
use crate::shared::SharedResult;
use crate::stats::{Summary, Verdict};
use crate::table::TableResult;
use crate::workers::WorkersResult;

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What it ran on.
    pub machine: Machine,
    /// How it ran.
    pub run: RunInfo,
    /// The user plane's path, by direction, sessions and frame length.
    pub results: Vec<PathResult>,
    /// Two workers that share the sessions.
    pub two_workers: Vec<WorkersResult>,
    /// The path with the rings of an AF_XDP port.
    pub with_rings: Vec<RingsResult>,
    /// The session service.
    pub sessions: Vec<SessionResult>,
    /// The map-chain XDP program.
    pub xdp_map_chain: Vec<ChainResult>,
    /// Kaido's own datapath in the kernel.
    pub kernel: Vec<KernelResult>,
    /// The session table.
    pub tables: Vec<TableResult>,
    /// Several workers on one queue.
    pub shared_queue: Vec<SharedResult>,
    /// What was left out, and why.
    pub skipped: Vec<SkippedCase>,
}

/// How a run was made.
#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    /// Samples of every case; `ns_spread` is the interquartile range over them.
    pub rounds: u32,
    /// What the spreads are.
    pub spread: &'static str,
    /// Packets, and floor lines a cold line, of a sample.
    pub packets_per_round: usize,
    /// Whether frames were taken in random order, and not in that of the pool.
    pub mixed_frames: bool,
    /// Runs of a sample of the map chain.
    pub chain_runs_per_round: u32,
    /// Bytes of the cache lines that the headers of a round's packets span, in MiB: uplink.
    pub packet_pool_mib: f64,
    /// Memory of the frames, in MiB.
    pub frame_pool_mib: f64,
    /// Pages under the frame pool.
    pub frame_pool_pages: String,
    /// CPU that paths, floors and map chain ran on; none when the thread could not be pinned.
    pub cpu: Option<usize>,
    /// Orders of sessions and lines come from it.
    pub seed: u64,
    /// Time of all, in seconds.
    pub seconds: f64,
    /// Revision of the checkout that it was started in.
    pub git_revision: String,
}

/// One case of the path.
#[derive(Clone, Debug, Serialize)]
pub struct PathResult {
    /// Which way.
    pub direction: Direction,
    /// Sessions in the node, all of which the packets meet.
    pub sessions: u32,
    /// The rules of each.
    pub shape: Shape,
    /// Length of frames asked for, without FCS.
    pub frame_bytes: usize,
    /// Length of the frames that were sent: the shortest that hold their headers where those asked for do not.
    pub frame_bytes_sent: usize,
    /// Bytes of the pool's frames that they lie in: 2048 or 4096, as a node has them on links of such packets.
    pub pool_frame_bytes: usize,
    /// Median.
    pub ns_per_packet: f64,
    /// Interquartile range.
    pub ns_spread: f64,
    /// Least and most.
    pub ns_range: [f64; 2],
    /// The same with a few packets that go round and stay in the cache: what is left is what waits for packets' lines. Median.
    pub held_ns_per_packet: f64,
    /// Its interquartile range.
    pub held_ns_spread: f64,
    /// Cache lines of session state that a packet touches. With one session they are warm.
    pub cold_lines: usize,
    /// Which.
    pub cold_line_names: &'static [&'static str],
    /// Cache lines of the packet that its headers span; their cost is in the figure for one session too.
    pub packet_lines: usize,
    /// The memory's floor over a working set of as many lines as this direction's sessions have: median.
    pub floor_ns_per_line: f64,
    /// Its interquartile range.
    pub floor_ns_spread: f64,
    /// Bytes of that working set.
    pub working_set_bytes: u64,
    /// Pages under the session table.
    pub pages: String,
    /// Pages under the floor's working set.
    pub floor_pages: String,
    /// Pages that had to be waited for in all rounds of this number of sessions, path and floor together: memory
    /// that the system had taken back.
    pub page_faults: u64,
    /// The goal, for plain sessions: with one session 25 ns; else 1.5 × cold lines × floor + the figure for one session. None where
    /// that was not measured.
    pub goal_ns: Option<f64>,
    /// Figure over goal: met up to 1.
    pub ratio: Option<f64>,
    /// Whether it is met, as far as figure and floor resolve it.
    pub met: Option<Verdict>,
}

/// The session service at one number of sessions.
#[derive(Clone, Debug, Serialize)]
pub struct SessionResult {
    /// Sessions.
    pub sessions: u32,
    /// The rules of each.
    pub shape: Shape,
    /// Establishments a second.
    pub establish_per_second: f64,
    /// Modifications (handovers) a second, over the first sessions.
    pub modify_per_second: f64,
    /// Deletions a second, over the last sessions.
    pub delete_per_second: f64,
    /// Sessions modified and deleted for these.
    pub sample: u32,
    /// Bytes that the process grew by with them, reserved huge pages included, over their number.
    pub bytes_per_session: f64,
    /// Bytes resident: the process without any session, and these sessions.
    pub resident_bytes: u64,
    /// What bytes a session shall be at most; none below a million sessions, and of shapes without a goal.
    pub bytes_goal: Option<f64>,
    /// Whether 16.64 M sessions fit into 8 GiB; none at other numbers.
    pub met: Option<bool>,
}

/// One case of the map chain.
#[derive(Clone, Debug, Serialize)]
pub struct ChainResult {
    /// Which way.
    pub direction: Direction,
    /// Sessions.
    pub sessions: u32,
    /// Of which kind.
    pub shape: Shape,
    /// Length of its frames, without FCS.
    pub frame_bytes: usize,
    /// Median, the wrapper subtracted.
    pub ns_per_packet: f64,
    /// Interquartile range.
    pub ns_spread: f64,
    /// Least and most.
    pub ns_range: [f64; 2],
    /// The wrapper that was subtracted: median.
    pub wrapper_ns: f64,
    /// How many times the path takes less, at the same number of sessions and length of frame.
    pub times_slower: Option<f64>,
    /// The same where the path's packets stay in the cache, as the chain's one packet does.
    pub held_times_slower: Option<f64>,
    /// Whether that is ten times, of other than plain sessions five, at a million or more; none below.
    pub met: Option<Verdict>,
    /// What Kaido's own offload in the kernel takes, run in the same way, with frames of 192 bytes.
    pub offload_ns: Option<f64>,
    /// That as a share of the chain's figure.
    pub offload_share: Option<f64>,
}

/// What was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedCase {
    /// The case.
    pub name: String,
    /// Why.
    pub reason: String,
}

impl PathResult {
    /// Whether so many pages had to be waited for that neither figure nor floor says anything.
    pub fn is_disturbed(&self) -> bool {
        self.page_faults > goal::PAGE_FAULTS_MAX
    }

    /// Holds the figure of a shape against that of plain sessions.
    fn hold_to_plain(&mut self, (ns, spread): (f64, f64)) {
        let goal = self.shape.goal_factor(self.sessions) * ns;
        (self.goal_ns, self.ratio) = (Some(goal), Some(self.ns_per_packet / goal));
        let noise = self.ns_spread + self.shape.goal_factor(self.sessions) * spread;
        let goal = Some(goal).filter(|_| !self.is_disturbed());
        self.met = goal.map(|goal| Verdict::at_most(self.ns_per_packet, noise, goal));
    }

    /// Holds the figure of plain sessions against its goal.
    pub(crate) fn hold(&mut self, one_session_ns: Option<f64>) {
        self.goal_ns = if self.shape != Shape::Plain {
            None
        } else if self.sessions == 1 {
            Some(goal::ONE_SESSION_NS)
        } else {
            let lines = self.cold_lines as f64;
            one_session_ns.map(|one| goal::FLOOR_FACTOR * lines * self.floor_ns_per_line + one)
        };
        self.ratio = self.goal_ns.map(|goal| self.ns_per_packet / goal);
        let floor_noise = goal::FLOOR_FACTOR * self.cold_lines as f64 * self.floor_ns_spread;
        let noise = self.ns_spread + if self.sessions == 1 { 0.0 } else { floor_noise };
        let goal = self.goal_ns.filter(|_| !self.is_disturbed());
        self.met = goal.map(|goal| Verdict::at_most(self.ns_per_packet, noise, goal));
    }
}

impl ChainResult {
    pub(crate) fn new(
        direction: Direction,
        (shape, sessions): (Shape, u32),
        frame_bytes: usize,
        [net, wrapper]: [Summary; 2],
        path: Option<&PathResult>,
        offload_ns: Option<f64>,
    ) -> Self {
        let times_slower = path.map(|path| net.median / path.ns_per_packet);
        let noise = path.map_or(0.0, |path| path.ns_spread / path.ns_per_packet + net.spread / net.median);
        Self {
            direction,
            sessions,
            shape,
            frame_bytes,
            ns_per_packet: net.median,
            ns_spread: net.spread,
            ns_range: [net.min, net.max],
            wrapper_ns: wrapper.median,
            times_slower,
            held_times_slower: path.map(|path| net.median / path.held_ns_per_packet),
            met: times_slower
                .filter(|_| sessions >= 1_000_000)
                .map(|times| Verdict::at_least(times, times * noise, shape.chain_factor())),
            offload_ns,
            offload_share: offload_ns.map(|fast| fast / net.median),
        }
    }
}

/// Judges every case of plain sessions by the one-session case of the same direction and frame length, and every other by that of
/// as many plain sessions.
pub(crate) fn hold_all(results: &mut [PathResult]) {
    let plain: Vec<_> = results
        .iter()
        .filter(|result| result.shape == Shape::Plain)
        .map(|result| {
            let of = (result.direction, result.frame_bytes);
            (of, result.sessions, (result.ns_per_packet, result.ns_spread))
        })
        .collect();
    for result in results {
        let of = |sessions| {
            let same = ((result.direction, result.frame_bytes), sessions);
            plain.iter().find(|(case, sessions, _)| (*case, *sessions) == same).map(|&(.., taken)| taken)
        };
        match (result.shape, of(result.sessions)) {
            (Shape::Plain, _) => result.hold(of(1).map(|(ns, _)| ns)),
            (_, Some(taken)) => result.hold_to_plain(taken),
            (_, None) => result.hold(None),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
