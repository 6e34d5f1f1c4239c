//! The hardware cores of `hdl/` under Verilator in the place of a platform: they get the frames of the comparison, the oracle judges
//! each that comes out, and clocks are counted.
//!
//! ```text
//!   generator ── frames ──▶ gre_decap, or gtpu_decap and gtpu_encap ──▶ oracle
//!                                └ clocks a packet × a clock rate that is assumed = the model's rate
//! ```

use kaido_engine::PortId;
use kaido_twin::gtpu::{Action, Direction, Downlink, GtpuCore, NextHop, Settings, Ue, Uplink, Width};
use kaido_twin::{CoreEvent, Disposition, GreCore, Outcome, Pressure, Size, Timing, TwinError};

use super::frames::{frames, traffic};
use super::memory::settings;
use super::report::{FpgaCore, FpgaModel, NetworkFunction};
use super::upf::{self, Target};
use super::{MTU, PlatformsPlan};
use crate::BenchError;
use crate::generator::CompiledTraffic;
use crate::network::{GNB, GNB_MAC, N3, N3_MAC, N6_MAC, QFI, ROUTER_MAC, teid, ue};
use crate::oracle::{Oracle, Rule, Verdict};
use crate::shape::Shape;
use crate::stream::{Driver, Traffic};

/// Frames of a run: what fills and drains the core is little of it.
const FRAMES: usize = 2048;
/// Sessions that the tables have room for, at a load at which each key finds a place.
const SESSIONS_MAX: u32 = 200;

/// Runs the frames of the comparison through the cores.
///
/// # Errors
/// A packet comes out wrong, or a core breaks a rule of its bus.
pub(super) fn measure(plan: &PlatformsPlan) -> Result<FpgaModel, BenchError> {
    let cores = match plan.function {
        NetworkFunction::Gre => gre(plan),
        NetworkFunction::Upf => user_plane(plan),
    };
    let (cores, skipped) = match cores {
        Ok(cores) => (cores, None),
        Err(Fault::Twin(error @ TwinError::NoCore)) => (Vec::new(), Some(error.to_string())),
        Err(Fault::Twin(error)) => return Err(BenchError::Traffic(error.to_string())),
        Err(Fault::Bench(error)) => return Err(error),
    };
    Ok(FpgaModel { clock_mhz: plan.fpga_mhz, cores, skipped })
}

/// Why there are no clocks.
enum Fault {
    Twin(TwinError),
    Bench(BenchError),
}

impl From<TwinError> for Fault {
    fn from(error: TwinError) -> Self {
        Self::Twin(error)
    }
}

impl From<BenchError> for Fault {
    fn from(error: BenchError) -> Self {
        Self::Bench(error)
    }
}

/// A core does not take what it is set up with.
fn unfit(error: impl std::fmt::Display) -> Fault {
    Fault::Bench(BenchError::Traffic(format!("a core does not take its settings: {error}")))
}

fn gre(plan: &PlatformsPlan) -> Result<Vec<FpgaCore>, Fault> {
    let macs = [N3_MAC, N6_MAC];
    let driver = &Driver::Memory;
    let made = frames(macs[1], macs[0], plan.frame_bytes);
    let sent = traffic([driver, driver], made, Some(1.0), (false, 1));
    let (from, to) = (sent.ports[0].name.clone(), sent.ports[1].name.clone());
    let packets = Packets::of(&sent, vec![Rule::Decapsulated { from, to }], 0..2)?;
    let core = |size: Size| {
        let mut core = GreCore::new(size)?;
        core.configure(&settings(macs, MTU.into()), PortId(0)).map_err(unfit)?;
        packets.judged("gre_decap", size.octets(), |frames| core.run(frames, Pressure::NONE))
    };
    [Size::Bits256, Size::Bits512].into_iter().map(core).collect()
}

fn user_plane(plan: &PlatformsPlan) -> Result<Vec<FpgaCore>, Fault> {
    let sessions = plan.sessions.min(SESSIONS_MAX);
    let driver = &Driver::Memory;
    let mut cores = Vec::new();
    for bytes in plan.payload_bytes {
        let of = (Target::Device, Shape::Plain, sessions);
        let (sent, rules) = upf::traffic([driver, driver], of, bytes, Some(1.0), (false, 1))?;
        for (port, direction) in [Direction::Decap, Direction::Encap].into_iter().enumerate() {
            let packets = Packets::of(&sent, rules.clone(), port..port + 1)?;
            for width in Width::ALL {
                let mut core = set_up(direction, width, sessions)?;
                let name = match direction {
                    Direction::Decap => "gtpu_decap",
                    Direction::Encap => "gtpu_encap",
                };
                let found =
                    packets.judged(name, width.octets(), |frames| core.run(frames, Pressure::NONE))?;
                cores.push(found);
            }
        }
    }
    Ok(cores)
}

/// A core with the plain sessions of the comparison.
fn set_up(direction: Direction, width: Width, sessions: u32) -> Result<GtpuCore, Fault> {
    let mut core = GtpuCore::new(direction, width)?;
    let (mac, next_hop) = match direction {
        Direction::Decap => (N3_MAC, NextHop { dst: ROUTER_MAC, src: N6_MAC }),
        Direction::Encap => (N6_MAC, NextHop { dst: GNB_MAC, src: N3_MAC }),
    };
    let settings = Settings {
        mac,
        locals: vec![N3.into()],
        ecn: true,
        packet_max: MTU.into(),
        next_hops: vec![next_hop],
        routes: Vec::new(),
    };
    core.configure(&settings).map_err(unfit)?;
    for session in 0..sessions {
        let put = match direction {
            Direction::Decap => core.put_uplink(
                &settings,
                &Uplink {
                    local: N3.into(),
                    teid: teid(session),
                    action: Action::Forward,
                    qfi: None,
                    ue_ipv4: Some(ue(session)),
                    ue_ipv6: None,
                    next_hops: [0; 2],
                },
            ),
            Direction::Encap => core.put_downlink(
                &settings,
                &Downlink {
                    ue: Ue::Ipv4(ue(session)),
                    action: Action::Forward,
                    local: N3.into(),
                    peer: GNB.into(),
                    teid: teid(session),
                    qfi: Some(QFI),
                    dscp: 0,
                    has_entropy: true,
                    has_checksum: false,
                    next_hop: 0,
                },
            ),
        };
        put.map_err(unfit)?;
    }
    Ok(core)
}

/// Frames that a core gets one behind the other, and what must come of them.
struct Packets {
    frames: Vec<Vec<u8>>,
    rules: Vec<Rule>,
    ports: Vec<String>,
    /// Of the streams, in which the frames take turns.
    from: usize,
}

impl Packets {
    /// Those of some streams, in turn.
    fn of(sent: &Traffic, rules: Vec<Rule>, streams: std::ops::Range<usize>) -> Result<Self, BenchError> {
        let compiled = CompiledTraffic::new(sent)?;
        let from = sent.streams.get(streams.start).map(|stream| &stream.port);
        let from = sent.ports.iter().position(|port| Some(&port.name) == from).unwrap_or(0);
        let frames = (0..FRAMES as u64 / streams.len() as u64)
            .flat_map(|number| streams.clone().map(move |stream| (stream, number)))
            .filter_map(|(stream, number)| compiled.packet(stream, number, 0))
            .collect();
        let ports = sent.ports.iter().map(|port| port.name.clone()).collect();
        Ok(Self { frames, rules, ports, from })
    }

    /// What a core makes of them.
    fn judged<E: CoreEvent>(
        &self,
        core: &'static str,
        octets: usize,
        mut run: impl FnMut(&[Vec<u8>]) -> Result<(Vec<Outcome<E>>, Timing), TwinError>,
    ) -> Result<FpgaCore, Fault> {
        let mut oracle = Oracle::new(&self.rules, &self.ports).map_err(BenchError::from)?;
        // By itself, as into a tunnel a frame waits for the longer one before it.
        let (_, alone) = run(&self.frames[..1])?;
        let (outcomes, timing) = run(&self.frames)?;
        for (number, (sent, outcome)) in self.frames.iter().zip(&outcomes).enumerate() {
            let is_right = match &outcome.disposition {
                Disposition::Out(came) => {
                    matches!(oracle.verdict(self.from, sent, came), Verdict::Out(_, frame) if frame == *came)
                }
                Disposition::Host(_) | Disposition::Dropped => false,
            };
            if !is_right {
                let became = outcome.event.name();
                let message =
                    format!("{core}, {} bits: packet {number} came out wrong ({became})", 8 * octets);
                return Err(Fault::Bench(BenchError::Traffic(message)));
            }
        }
        let octets_in: usize = self.frames.iter().map(Vec::len).sum();
        Ok(FpgaCore {
            core,
            bits: 8 * octets,
            packets: outcomes.len(),
            frame_bytes: octets_in as f64 / self.frames.len() as f64,
            clocks: timing.clocks as f64 / outcomes.len() as f64,
            latency_clocks: alone.latencies.first().copied().unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cores_take_the_frames_of_the_comparison() {
        for (function, cores) in [(NetworkFunction::Gre, 2), (NetworkFunction::Upf, 8)] {
            let plan = PlatformsPlan { function, ..PlatformsPlan::default() };
            let model = measure(&plan).unwrap();
            if let Some(reason) = model.skipped {
                eprintln!("SKIPPED the_cores_take_the_frames_of_the_comparison: {reason}");
                return;
            }
            assert_eq!(model.cores.len(), cores);
            for found in &model.cores {
                assert_eq!(found.packets, FRAMES);
                // A beat a clock, of what comes in or of what leaves, which has a tunnel of 44 octets more.
                let beats = |bytes: f64| (bytes * 8.0 / found.bits as f64).ceil();
                let most = beats(found.frame_bytes + 44.0).max(beats(found.frame_bytes));
                assert!(found.clocks <= most + 0.1, "{found:?}");
                assert!(found.clocks >= 1.0, "{found:?}");
                assert!((3..=12).contains(&found.latency_clocks), "{found:?}");
            }
        }
    }

    #[test]
    fn a_packet_that_the_oracle_would_have_otherwise_is_an_error() {
        let driver = &Driver::Memory;
        let sent = traffic([driver, driver], frames(N6_MAC, N3_MAC, 92), Some(1.0), (false, 1));
        let (from, to) = (sent.ports[0].name.clone(), sent.ports[1].name.clone());
        let packets = Packets::of(&sent, vec![Rule::Decapsulated { from, to }], 0..2).unwrap();
        let unchanged = |frames: &[Vec<u8>]| {
            let out = |frame: &Vec<u8>| Outcome {
                event: kaido_twin::Event::Passed,
                disposition: Disposition::Out(frame.clone()),
            };
            Ok((frames.iter().map(out).collect(), Timing::default()))
        };
        let Err(Fault::Bench(error)) = packets.judged("gre_decap", 32, unchanged) else {
            panic!("tunnels are still there")
        };
        assert!(
            error.to_string().contains("gre_decap, 256 bits: packet 0 came out wrong (passed)"),
            "{error}"
        );
    }
}
