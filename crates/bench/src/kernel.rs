//! Kaido's own datapath in the kernel (`datapath = "xdp"`) with the sessions of a shape, under `BPF_PROG_TEST_RUN`.
//!
//! ```text
//!   PFCP ─▶ Upf ─▶ KernelRecord ─▶ tables      before: the node goes when all its sessions are there
//!                                    │
//!   a round: packets of random sessions ─▶ program, the packet restored before each
//! ```
//! Sessions come as a node gets them, and the kernel takes of them what it takes there; what it leaves to workers is named with the
//! node's reason. A packet that is not forwarded ends the run.

use std::fmt::{self, Formatter};
use std::sync::atomic::AtomicBool;

use kaido_engine::FramePool;
use kaido_upf::node::NodeSettings;
use kaido_upf_xdp::offload::OffloadDirection;
use kaido_upf_xdp::speed::{FRAME_LEN, Speed, SpeedPackets};
use kaido_upf_xdp::{OffloadConfig, OffloadError, SharedOffload};
use kaido_wire::checksum;
use serde::Serialize;

use crate::BenchError;
use crate::family::Family;
use crate::frames::{Direction, Template};
use crate::memory::available;
use crate::network::{ETHERNET, N3};
use crate::node::{UpfNode, settings};
use crate::platforms::KernelSessions;
use crate::platforms::offload::{OffloadNode, offload_config, set_hops, vlans};
use crate::shape::{PERIOD_OF_MIXED, Shape, VLAN_FIRST};
use crate::stats::Summary;

/// Test runs come in by the loopback interface, and all hops lead there.
const LOOPBACK: u32 = 1;
/// Packets of a direction that are judged before the first round.
const JUDGED: u64 = 65;
/// TEID in an outer header.
const TEID_AT: usize = ETHERNET + 20 + 8 + 4;

/// The kernel's datapath of one direction and number of sessions.
#[derive(Clone, Debug, Serialize)]
pub struct KernelResult {
    /// Which way.
    pub direction: Direction,
    /// Sessions.
    pub sessions: u32,
    /// The rules of each.
    pub shape: Shape,
    /// Length of its frames, without FCS.
    pub frame_bytes: usize,
    /// Median, what restores the packet subtracted. Both are timed one after the other: beside others of the machine it may be below 0,
    /// which its range tells as noise.
    pub ns_per_packet: f64,
    /// Interquartile range.
    pub ns_spread: f64,
    /// Least and most.
    pub ns_range: [f64; 2],
    /// What restores the packet: median.
    pub restore_ns: f64,
    /// Sessions of which the kernel leaves packets to workers, or all, by the node's reason; the packets measured are not among them.
    pub left: Vec<(String, u32)>,
}

/// Tables with the sessions of a shape, and the program that times them.
pub(crate) struct Kernel {
    of: (Shape, u32),
    // It goes before the tables, which it has.
    speed: Speed,
    _tables: SharedOffload,
    /// By direction.
    packets: [SpeedPackets; 2],
    /// Net and restoring.
    samples: [[Vec<f64>; 2]; 2],
    left: Vec<(String, u32)>,
}

/// Why there is none.
type Reason = String;

impl Kernel {
    /// Gives the kernel the sessions of a shape and sees that their packets come out right, or says why it does not forward them.
    ///
    /// # Errors
    /// [`BenchError`] when the node refuses a session, or a packet comes out wrong.
    pub(crate) fn load(
        (shape, sessions): (Shape, u32),
        pool: &'static FramePool,
        stop: &AtomicBool,
    ) -> Result<Result<Self, Reason>, BenchError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Err("it needs root (CAP_BPF and CAP_NET_ADMIN)".to_owned()));
        }
        let own = settings(Family::V4, shape, sessions);
        let settings = NodeSettings { workers_share_sessions: true, ..own };
        let config = room(shape, sessions, offload_config(&settings));
        if let Err(reason) = fits(&config) {
            return Ok(Err(reason));
        }
        let made = OffloadNode::tables_of(settings.clone(), &config);
        let made = made.and_then(|(tables, parts)| {
            set_hops(&tables, [LOOPBACK; 2], &settings)?;
            let load = tables.with(|offload| Speed::load_for(offload, N3, &vlans(&settings)));
            Ok((load.map_err(|error| error.to_string())?, tables, parts))
        });
        let (speed, tables, parts) = match made {
            Ok(made) => made,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut node = UpfNode::of((Family::V4, shape), parts, pool, 0)?;
        node.establish(sessions, stop, &|_| ())?;
        let left = KernelSessions::of(&mut node).left;
        let packets = Direction::ALL.map(|direction| speed_packets((shape, sessions), direction));
        let kernel = Self {
            of: (shape, sessions),
            speed,
            _tables: tables,
            packets,
            samples: Default::default(),
            left,
        };
        Ok(kernel.judge()?.map(|()| kernel))
    }

    /// Judges some packets of each direction, or says why they are not forwarded.
    fn judge(&self) -> Result<Result<(), Reason>, BenchError> {
        for (direction, packets) in Direction::ALL.into_iter().zip(&self.packets) {
            let template = template(self.of.0, direction);
            for number in 1..=JUDGED {
                let out = match self.speed.one(&drawn(packets, number)) {
                    Ok(out) => out,
                    Err(error) => return Ok(Err(self.reason(&error))),
                };
                template.judge(self.session_of(direction, &template, &out), &out)?;
            }
        }
        Ok(Ok(()))
    }

    /// Why packets are left to workers: by the node's own reasons, where it has any.
    fn reason(&self, error: &OffloadError) -> Reason {
        let why: Vec<_> = self.left.iter().map(|(reason, _)| reason.as_str()).collect();
        if why.is_empty() { error.to_string() } else { format!("the kernel leaves it: {}", why.join("; ")) }
    }

    /// The session that a packet says it is of: downlink by its tunnel, uplink by the UE's address and the tenant's VLAN.
    fn session_of(&self, direction: Direction, template: &Template, out: &[u8]) -> u32 {
        if direction == Direction::Downlink {
            let teid = out.get(TEID_AT..).and_then(|rest| rest.first_chunk());
            return u32::from_be_bytes(teid.copied().unwrap_or_default()).wrapping_sub(1);
        }
        let ue = template.session_of(out);
        let tag = out.get(ETHERNET..).and_then(|rest| rest.first_chunk());
        let vlan = u16::from_be_bytes(tag.copied().unwrap_or_default());
        self.of.0.tenants().map_or(ue, |tenants| {
            let tenant = u32::from(vlan.wrapping_sub(VLAN_FIRST));
            ue.wrapping_mul(tenants.into()).wrapping_add(tenant)
        })
    }

    /// A sample of each direction.
    pub(crate) fn round(&mut self, runs: u32) -> Result<(), BenchError> {
        for (packets, [net, restore]) in self.packets.iter().zip(&mut self.samples) {
            let timing = self.speed.time_packets(packets, runs);
            let timing = timing.map_err(|error| BenchError::Offload(error.to_string()))?;
            // Nanoseconds are counted in whole ones, and far from 2⁵³.
            net.push(timing.ns_per_packet() as f64);
            restore.push(timing.restore_ns as f64);
        }
        Ok(())
    }

    /// Throws the samples away.
    pub(crate) fn forget(&mut self) {
        self.samples.iter_mut().flatten().for_each(Vec::clear);
    }

    /// The figures of a direction.
    pub(crate) fn result(&self, direction: Direction) -> Option<KernelResult> {
        let [net, restore] = &self.samples[usize::from(direction == Direction::Downlink)];
        let (net, restore) = (Summary::of(net)?, Summary::of(restore)?);
        Some(KernelResult {
            direction,
            sessions: self.of.1,
            shape: self.of.0,
            frame_bytes: FRAME_LEN,
            ns_per_packet: net.median,
            ns_spread: net.spread,
            ns_range: [net.min, net.max],
            restore_ns: restore.median,
            left: self.left.clone(),
        })
    }
}

/// Packets of other sessions than those of another number.
fn drawn(packets: &SpeedPackets, number: u64) -> SpeedPackets {
    SpeedPackets { seed: number.wrapping_mul(0x9e37_79b9_7f4a_7c15), ..packets.clone() }
}

/// The packets of the path's row, as long as the program's are.
fn template(shape: Shape, direction: Direction) -> Template {
    Template::of_shape(shape, direction, FRAME_LEN)
}

/// The frame from which the program makes others: that of session 0, with TEID 0 and the address before the first UE's.
fn begin(template: &Template) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    let packet = template.packet(0);
    let len = packet.len().min(FRAME_LEN);
    frame[..len].copy_from_slice(&packet[..len]);
    let ip = FRAME_LEN - usize::try_from(template.user_octets()).unwrap_or(0).min(FRAME_LEN);
    let address = match template.direction {
        Direction::Uplink => {
            frame[TEID_AT..TEID_AT + 4].fill(0);
            ip + 12
        }
        Direction::Downlink => ip + 16,
    };
    // The lower half of 10.0.0.1.
    frame[address + 3] = 0;
    let sum = u16::from_be_bytes([frame[ip + 10], frame[ip + 11]]);
    frame[ip + 10..ip + 12].copy_from_slice(&checksum::update_u16(sum, 1, 0).to_be_bytes());
    frame
}

fn speed_packets((shape, sessions): (Shape, u32), direction: Direction) -> SpeedPackets {
    let frame = begin(&template(shape, direction));
    SpeedPackets {
        direction: match direction {
            Direction::Uplink => OffloadDirection::Uplink,
            Direction::Downlink => OffloadDirection::Downlink,
        },
        frame,
        container: direction == Direction::Uplink,
        tagged: direction == Direction::Downlink && shape.tenants().is_some(),
        instance: 0,
        seed: 0x9e37_79b9_7f4a_7c15,
        sessions: shape.active_count(sessions),
        first: 1,
        idle_of: shape.idle_of(),
        tenants: shape.tenants().map_or(0, u32::from),
    }
}

/// Room for sessions of a shape: two records each, and for counters and policers as its rules ask for them.
fn room(shape: Shape, sessions: u32, base: OffloadConfig) -> OffloadConfig {
    let (mut urrs, mut policers, mut pdrs) = (0, 0, 0);
    for session in 0..PERIOD_OF_MIXED.min(sessions) {
        let request = shape.establishment(Family::V4, session);
        let rates =
            request.qers.iter().map(|qer| usize::from(qer.mbr.is_some()) + usize::from(qer.gbr.is_some()));
        // One of those that count before QoS enforcement beside others has a counter of its own for what is dropped.
        urrs = urrs.max(request.urrs.len() + 1);
        policers = policers.max(rates.sum());
        pdrs = pdrs.max(request.pdrs.len());
    }
    let each = |count: usize| sessions.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    let records = each(2);
    OffloadConfig {
        records_max: records,
        groups_max: if pdrs > 2 { records } else { 0 },
        usage_cells_max: each(urrs),
        policers_max: each(policers),
        ..base
    }
}

/// Says so when tables of such a size do not fit into what memory is left.
fn fits(config: &OffloadConfig) -> Result<(), Reason> {
    let (needed, left) = (config.bytes(), available());
    if needed <= left {
        return Ok(());
    }
    let [needed, left] = [needed, left].map(|bytes| bytes as f64 / 1e9);
    Err(format!("its maps need {needed:.1} GB; {left:.1} GB can be had"))
}

/// As a table.
pub(crate) fn render(f: &mut Formatter<'_>, results: &[KernelResult]) -> fmt::Result {
    let Some(first) = results.first() else { return Ok(()) };
    writeln!(
        f,
        "\nOffload (XDP, BPF_PROG_TEST_RUN, packet restored before each run), frames of {} bytes; ns a packet without \
         what restores it",
        first.frame_bytes,
    )?;
    writeln!(
        f,
        "  direction   sessions  rules            ns      ±  range          restoring  left to the workers"
    )?;
    for result in results {
        let left: Vec<_> =
            result.left.iter().map(|(reason, sessions)| format!("{reason} ({sessions} sessions)")).collect();
        writeln!(
            f,
            "  {:9} {:>10}  {:7} {:>10.1} {:>6.1}  {:<14} {:>9.1}  {}",
            result.direction.name(),
            result.sessions,
            result.shape.name(),
            result.ns_per_packet,
            result.ns_spread,
            format!("{:.0} to {:.0}", result.ns_range[0], result.ns_range[1]),
            result.restore_ns,
            if left.is_empty() { "-".to_owned() } else { left.join("; ") },
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_forwards_packets_of_every_shape_as_the_path_does() {
        let stop = AtomicBool::new(false);
        let pool = FramePool::leak(64).unwrap();
        for shape in Shape::ALL {
            let mut kernel = match Kernel::load((shape, 320), pool, &stop).unwrap() {
                Ok(kernel) => kernel,
                Err(reason) if reason.contains("root") => {
                    return println!(
                        "SKIPPED the_kernel_forwards_packets_of_every_shape_as_the_path_does: {reason}"
                    );
                }
                Err(reason) => panic!("{shape:?}: {reason}"),
            };
            kernel.round(2000).unwrap();
            for direction in Direction::ALL {
                let result = kernel.result(direction).unwrap();
                assert_eq!((result.shape, result.sessions, result.frame_bytes), (shape, 320, 192));
                let left: Vec<_> = result.left.iter().map(|(reason, _)| reason.as_str()).collect();
                let expected: &[&str] = match shape {
                    Shape::Volte => &["a QER guarantees a rate"],
                    Shape::Mixed => &["a QER guarantees a rate", "the FAR buffers"],
                    _ => &[],
                };
                assert_eq!(left, expected, "{shape:?}");
            }
            kernel.forget();
            assert!(kernel.result(Direction::Uplink).is_none());
        }
    }

    /// All sessions are drawn, and no idle one.
    #[test]
    fn packets_are_of_every_session_that_has_some() {
        let stop = AtomicBool::new(false);
        let pool = FramePool::leak(64).unwrap();
        for shape in [Shape::Plain, Shape::Tenant, Shape::Mixed] {
            let kernel = match Kernel::load((shape, 40), pool, &stop).unwrap() {
                Ok(kernel) => kernel,
                Err(reason) if reason.contains("root") => {
                    return println!("SKIPPED packets_are_of_every_session_that_has_some: {reason}");
                }
                Err(reason) => panic!("{shape:?}: {reason}"),
            };
            for (direction, packets) in Direction::ALL.into_iter().zip(&kernel.packets) {
                let mut seen = [false; 40];
                let template = template(shape, direction);
                for number in 1..=1000 {
                    let out = kernel.speed.one(&drawn(packets, number)).unwrap();
                    let session = kernel.session_of(direction, &template, &out);
                    template.judge(session, &out).unwrap();
                    seen[session as usize] = true;
                }
                let active = std::array::from_fn(|session| shape.is_active(u32::try_from(session).unwrap()));
                assert_eq!(seen, active, "{shape:?} {direction:?}");
            }
        }
    }
}
