//! The classical XDP design as a baseline: `bench/xdp-map-chain`, under `BPF_PROG_TEST_RUN`.
//!
//! A program that rewrites its packet must have it restored before every run, and every run must meet another session.
//! The program's wrapper does both. What the wrapper alone costs is measured in the same round and subtracted.

mod abi;
mod rules;

use std::sync::atomic::{AtomicBool, Ordering};

use kaido_xdp::Action;
use libbpf_rs::{MapCore, MapFlags, MapMut, MapType, Object, ObjectBuilder, PrintLevel};

use self::rules::SessionRules;
use crate::BenchError;
use crate::frames::{Direction, Template};
use crate::network::{GNB, GNB_MAC, N3_MAC, N6_MAC, ROUTER_MAC, SERVER};
use crate::shape::Shape;

/// The compiled program, aligned as an ELF header asks; empty where it was not compiled.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/map_chain.bpf.o")));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// Why it is empty.
const NOT_COMPILED: Option<&str> = option_env!("KAIDO_BENCH_NO_MAP_CHAIN");

/// Kernel memory a session, in bytes: two entries of preallocated hashes with their buckets, and its array elements.
const PLAIN_BYTES_PER_SESSION: u64 = 2 * (80 + 32) + 2 * 16 + 8 + 32;

/// Sessions written by one call.
const CHUNK: u32 = 65_536;

/// The baseline cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChainError {
    /// No compiler when this was built.
    #[error("{0}")]
    NotCompiled(&'static str),
    /// Not root.
    #[error("it needs root (CAP_BPF and CAP_NET_ADMIN)")]
    NotRoot,
    /// Sessions of tenants.
    #[error("it has no VLANs")]
    NoVlans,
    /// Asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// libbpf or the kernel refused.
    #[error("{action}: {source}")]
    Libbpf { action: &'static str, source: libbpf_rs::Error },
    /// A test run failed.
    #[error(transparent)]
    Xdp(#[from] kaido_xdp::Error),
    /// A map or program is not in the object.
    #[error("the object has no {0}")]
    Missing(&'static str),
    /// Packets were not forwarded.
    #[error("{failed} of {runs} {direction} runs did not forward their packet")]
    Failed { failed: u64, runs: u64, direction: &'static str },
}

fn libbpf(action: &'static str) -> impl Fn(libbpf_rs::Error) -> ChainError {
    move |source| ChainError::Libbpf { action, source }
}

/// A loaded program with its sessions.
#[derive(Debug)]
pub(crate) struct MapChain {
    object: Object,
    uplink: Template,
    downlink: Template,
}

/// What one round gave, in nanoseconds a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainRound {
    /// The UPF alone.
    pub(crate) net: f64,
    /// The wrapper that was subtracted.
    pub(crate) wrapper: f64,
}

/// Kernel memory that a session of a shape takes, in bytes.
pub(crate) const fn bytes_per_session(shape: Shape) -> u64 {
    PLAIN_BYTES_PER_SESSION + if has_rules(shape) { rules::BYTES_PER_SESSION } else { 0 }
}

/// Whether sessions have more than a PDR a direction, a QER and a URR.
const fn has_rules(shape: Shape) -> bool {
    !matches!(shape, Shape::Plain)
}

impl MapChain {
    /// Loads the program and gives it sessions of a shape, idle ones active; frames have `frame_bytes`.
    pub(crate) fn load(
        (shape, sessions): (Shape, u32),
        frame_bytes: usize,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Self, ChainError> {
        if let Some(reason) = NOT_COMPILED {
            return Err(ChainError::NotCompiled(reason));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(ChainError::NotRoot);
        }
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, _| ())));
        if shape.tenants().is_some() {
            return Err(ChainError::NoVlans);
        }
        let uplink = Template::of_shape(shape, Direction::Uplink, frame_bytes);
        // One length for both: the program knows one.
        let downlink = Template::of_shape(shape, Direction::Downlink, uplink.len);
        let mut open = ObjectBuilder::default()
            .name("map_chain")
            .and_then(|builder| builder.open_memory(&OBJECT.0))
            .map_err(libbpf("opening the object"))?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let entries = match name.as_str() {
                "pdr_uplink" | "pdr_downlink" => sessions,
                "qer" | "urr" if !has_rules(shape) => sessions,
                "far" => 2 * sessions,
                "rules" if has_rules(shape) => 2 * sessions,
                "rated_qer" | "urr" if has_rules(shape) => rules::PLACES * sessions,
                _ if name.ends_with(".rodata") => {
                    let value = map.initial_value_mut().ok_or(ChainError::Missing(".rodata"))?;
                    value[..abi::CONFIG_LEN].copy_from_slice(&abi::config(
                        sessions,
                        has_rules(shape),
                        &uplink,
                        &downlink,
                    ));
                    continue;
                }
                _ => continue,
            };
            map.set_max_entries(entries).map_err(libbpf("sizing a map"))?;
        }
        let mut object = open.load().map_err(libbpf("loading the program"))?;
        fill(&mut object, (shape, sessions), seed, stop)?;
        Ok(Self { object, uplink, downlink })
    }

    /// Octets of its frames.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.uplink.len
    }

    /// Runs UPF and wrapper, and the wrapper alone, `runs` times each.
    pub(crate) fn round(&self, direction: Direction, runs: u32) -> Result<ChainRound, ChainError> {
        let (run, wrap) = match direction {
            Direction::Uplink => ("run_uplink", "wrap_uplink"),
            Direction::Downlink => ("run_downlink", "wrap_downlink"),
        };
        // The wrapper alone leaves the frame as it was after every second run.
        let runs = runs.next_multiple_of(2);
        let before = self.failed()?;
        let (whole, _) = self.test_run(run, direction, runs)?;
        let failed = self.failed()? - before;
        if failed > 0 {
            return Err(ChainError::Failed { failed, runs: runs.into(), direction: direction.name() });
        }
        let (wrapper, _) = self.test_run(wrap, direction, runs)?;
        Ok(ChainRound { net: whole - wrapper, wrapper })
    }

    /// What one packet of a random session becomes.
    pub(crate) fn one(&self, direction: Direction) -> Result<Vec<u8>, ChainError> {
        let run = if direction == Direction::Uplink { "run_uplink" } else { "run_downlink" };
        self.test_run(run, direction, 1).map(|(_, packet)| packet)
    }

    /// Judges what [`Self::one`] gave, by the session that it says it is of.
    pub(crate) fn judge(&self, direction: Direction, out: &[u8]) -> Result<u32, BenchError> {
        let template = self.template(direction);
        let session = template.session_of(out);
        template.judge(session, out).map(|()| session)
    }

    fn template(&self, direction: Direction) -> &Template {
        match direction {
            Direction::Uplink => &self.uplink,
            Direction::Downlink => &self.downlink,
        }
    }

    /// Mean nanoseconds of a run, and the packet after the last.
    fn test_run(
        &self,
        name: &'static str,
        direction: Direction,
        repeat: u32,
    ) -> Result<(f64, Vec<u8>), ChainError> {
        let packet = self.template(direction).packet(0);
        let run = kaido_xdp::test_run(&self.object, name, &packet, repeat)?;
        if run.action != Action::Redirect {
            return Err(ChainError::Failed { failed: 1, runs: repeat.into(), direction: direction.name() });
        }
        Ok((run.duration.as_secs_f64() * 1e9, run.frame))
    }

    /// Runs that did not forward their packet so far.
    fn failed(&self) -> Result<u64, ChainError> {
        let state =
            self.object.maps().find(|map| map.name() == "state").ok_or(ChainError::Missing("state"))?;
        let cpus =
            state.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(libbpf("reading the state"))?;
        Ok(cpus.iter().flatten().map(|state| abi::failed(state)).sum())
    }
}

fn fill(
    object: &mut Object,
    (shape, sessions): (Shape, u32),
    seed: u64,
    stop: &AtomicBool,
) -> Result<(), ChainError> {
    let all = Sessions { count: sessions, stop };
    for map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            "pdr_uplink" => all.write(&map, |n| abi::keys(n)[0], |n| abi::pdr(n, false))?,
            "pdr_downlink" => all.write(&map, |n| abi::keys(n)[1], |n| abi::pdr(n, true))?,
            "far" => all.write(&map, far_keys, abi::fars)?,
            "qer" if !has_rules(shape) => all.write(&map, u32::to_ne_bytes, |_| abi::QER)?,
            "rules" if has_rules(shape) => {
                all.write(&map, far_keys, |n| SessionRules::new(shape, n).rules())?;
            }
            "rated_qer" if has_rules(shape) => {
                all.write(&map, place_keys, |n| SessionRules::new(shape, n).qers())?;
            }
            "route_cache" => {
                for (to, destination, source) in [(SERVER, ROUTER_MAC, N6_MAC), (GNB, GNB_MAC, N3_MAC)] {
                    map.update(&abi::route_key(to), &abi::route(destination, source), MapFlags::ANY)
                        .map_err(libbpf("writing a route"))?;
                }
            }
            "state" => {
                debug_assert_eq!(map.map_type(), MapType::PercpuArray);
                let cpus = libbpf_rs::num_possible_cpus().map_err(libbpf("counting the CPUs"))? as u64;
                let states: Vec<_> = (0..cpus)
                    .map(|cpu| {
                        abi::state(seed.wrapping_add(cpu.wrapping_mul(0x9e37_79b9_7f4a_7c15))).to_vec()
                    })
                    .collect();
                map.update_percpu(&0u32.to_ne_bytes(), &states, MapFlags::ANY)
                    .map_err(libbpf("seeding the state"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Two FARs a session.
fn far_keys(session: u32) -> [u8; 8] {
    let mut out = [0; 8];
    out[..4].copy_from_slice(&(2 * session).to_ne_bytes());
    out[4..].copy_from_slice(&(2 * session + 1).to_ne_bytes());
    out
}

/// The places of a session's QERs.
fn place_keys(session: u32) -> [u8; 4 * rules::PLACES as usize] {
    let mut out = [0; 4 * rules::PLACES as usize];
    for (place, key) in (0..).zip(out.as_chunks_mut::<4>().0) {
        *key = (rules::PLACES * session + place).to_ne_bytes();
    }
    out
}

/// What is written to every map.
struct Sessions<'s> {
    count: u32,
    stop: &'s AtomicBool,
}

impl Sessions<'_> {
    /// Writes what `keys` and `values` give for every session, many at a call.
    fn write<const K: usize, const V: usize>(
        &self,
        map: &MapMut<'_>,
        keys: impl Fn(u32) -> [u8; K],
        values: impl Fn(u32) -> [u8; V],
    ) -> Result<(), ChainError> {
        let (mut all_keys, mut all_values) = (Vec::new(), Vec::new());
        for first in (0..self.count).step_by(CHUNK as usize) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(ChainError::Interrupted);
            }
            all_keys.clear();
            all_values.clear();
            for session in first..self.count.min(first.saturating_add(CHUNK)) {
                all_keys.extend(keys(session));
                all_values.extend(values(session));
            }
            let count = u32::try_from(all_keys.len()).unwrap_or(u32::MAX) / map.key_size();
            map.update_batch(&all_keys, &all_values, count, MapFlags::ANY, MapFlags::ANY)
                .map_err(libbpf("filling a map"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program with so many sessions, or why not here.
    fn load(test: &str, shape: Shape, sessions: u32) -> Option<MapChain> {
        match MapChain::load((shape, sessions), 128, 1, &AtomicBool::new(false)) {
            Ok(chain) => Some(chain),
            Err(reason @ (ChainError::NotRoot | ChainError::NotCompiled(_))) => {
                println!("SKIPPED {test}: {reason}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_packet_of_every_session_is_transformed_right() {
        for shape in Shape::ALL.into_iter().filter(|shape| shape.tenants().is_none()) {
            // Of mixed sessions there are all kinds among these.
            let name = "a_packet_of_every_session_is_transformed_right";
            let Some(chain) = load(name, shape, 20) else { return };
            for direction in Direction::ALL {
                let mut seen = [false; 20];
                for _ in 0..400 {
                    let out = chain.one(direction).unwrap();
                    seen[chain.judge(direction, &out).unwrap() as usize] = true;
                }
                assert_eq!(seen, [true; 20], "{shape:?} {direction:?}");
            }
        }
    }

    #[test]
    fn every_run_meets_a_restored_packet_and_is_counted() {
        let Some(chain) = load("every_run_meets_a_restored_packet_and_is_counted", Shape::Plain, 3) else {
            return;
        };
        for direction in Direction::ALL {
            chain.round(direction, 1000).unwrap();
        }
        let urr = chain.object.maps().find(|map| map.name() == "urr").unwrap();
        let mut sums = [0u64; 4];
        for session in 0..3u32 {
            let value = urr.lookup(&session.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            for (sum, word) in sums.iter_mut().zip(value.as_chunks::<8>().0) {
                *sum += u64::from_ne_bytes(*word);
            }
        }
        // Inner packets: 128 less Ethernet and, uplink, less the tunnel.
        assert_eq!(sums, [1000 * (128 - 14 - 44), 1000, 1000 * (128 - 14), 1000]);
    }

    /// It does the work that it is compared by: all URRs count, and a rate that is reached drops.
    #[test]
    fn sessions_of_smfs_count_in_every_urr_and_pay_every_rate() {
        let name = "sessions_of_smfs_count_in_every_urr_and_pay_every_rate";
        let Some(chain) = load(name, Shape::Free5gc, 1) else { return };
        chain.round(Direction::Uplink, 1000).unwrap();
        let find = |name| chain.object.maps().find(|map| map.name() == name).unwrap();
        let value =
            |name, place: u32| find(name).lookup(&place.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let packets = |place| u64::from_ne_bytes(*value("urr", place)[8..].first_chunk().unwrap());
        assert_eq!([0, 1, 2, 3].map(packets), [1000, 1000, 1000, 0]);
        let mut qer = value("rated_qer", 1);
        assert_eq!(qer[3], 1, "the AMBR");
        assert_ne!(qer[16..24], [0; 8], "paid for");
        // So slow that after one packet none passes.
        qer[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        qer[8..16].fill(0);
        find("rated_qer").update(&1u32.to_ne_bytes(), &qer, MapFlags::ANY).unwrap();
        let failed = chain.round(Direction::Uplink, 1000).unwrap_err();
        assert!(matches!(failed, ChainError::Failed { .. }), "{failed}");
    }
}
