//! The user plane between two links: its packets, the node that the engine forwards by, and the same sessions in the kernel.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kaido_engine::netlink::Interface;
use kaido_engine::{FramePool, Function};
use kaido_upf::node::Node;
use kaido_xdp::fastpath::{
    FastDestination, FastDirection, FastKey, FastPathError, FastRecord, FastRule, Hop, Template, UsageCell,
};
use kaido_xdp::{AttachMode, FastPath, FastPathConfig, Roles, Steering, SteeringConfig};

use super::frames::{INTO, OUT_OF};
use crate::BenchError;
use crate::frames::{
    Direction, ETHERNET, Family, GNB, GNB_MAC, N3, N3_MAC, N6_MAC, QFI, ROUTER_MAC, bearers, teid, ue,
};
use crate::generator::Problem;
use crate::node::{UpfNode, path, settings};
use crate::oracle::Rule;
use crate::preset::Preset;
use crate::stream::{Driver, Lengths, LinkMode, Mac, Mode, PortSpec, Rate, Source, Stream, Traffic};

/// What ends of links have: no longer packet than a plain XDP program takes on veth.
pub(super) const MTU: u16 = 3498;
/// Octets of IPv4 and UDP before a payload.
const HEADERS: usize = 20 + 8;
/// Hops and the template of the fast path. IPv6 would have the number behind that of N6.
const N6_HOP: u32 = 0;
const N3_HOP: u32 = 2;
const TEMPLATE: u32 = 0;
/// The bits of congestion, which outer headers have from the packet inside.
const ECN: u8 = 3;

/// Bytes of the frames with such a UDP payload, uplink and downlink, as they are sent and without FCS.
pub(super) const fn frame_bytes(payload_bytes: usize) -> [usize; 2] {
    let downlink = ETHERNET + HEADERS + payload_bytes;
    [downlink + Family::V4.tunnel_len(), downlink]
}

/// Who the frames of a trial are addressed to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The user plane's ports.
    Device,
    /// The bench's own ports of these addresses: what stands between them forwards only.
    Bench([[u8; 6]; 2]),
}

/// Both directions, one to one, and what must come of them: at so many packets a second together or as fast as the ports take
/// them. Every packet is of the next session.
pub(super) fn traffic(
    drivers: [&Driver; 2],
    (target, sessions): (Target, u32),
    payload_bytes: usize,
    pps: Option<f64>,
    (apart, key): (bool, u64),
) -> Result<(Traffic, Vec<Rule>), BenchError> {
    let mut described = bearers(Family::V4, sessions, [INTO, OUT_OF]);
    if let Target::Bench([into, out_of]) = target {
        (described.access.device_mac, described.access.bench_mac) = (Mac::from(out_of), Mac::from(into));
        (described.core.device_mac, described.core.bench_mac) = (Mac::from(into), Mac::from(out_of));
    }
    let port = |(name, driver): (&str, &Driver)| PortSpec {
        name: name.to_owned(),
        driver: driver.clone(),
        line_bps: None,
        link: LinkMode::L2,
    };
    let delay_ns = pps.filter(|_| apart).map_or(0, |pps| Duration::from_secs_f64(1.0 / pps).as_nanos());
    let delay_ns = u64::try_from(delay_ns).unwrap_or(u64::MAX);
    let stream = |(direction, (from, bytes)): (Direction, (&str, usize))| {
        let lengths = Lengths::Fixed(u16::try_from(bytes).unwrap_or(u16::MAX));
        let template =
            Preset::new(direction, lengths).template(&described).map_err(|problems| wrong(&problems))?;
        Ok(Stream {
            name: direction.name().to_owned(),
            port: from.to_owned(),
            source: Source::Template(template),
            rate: Rate::Weight(1.0),
            mode: Mode::Continuous,
            // Each stream has half of the rate: apart, the second begins when the first has sent one.
            delay_ns: if direction == Direction::Downlink { delay_ns } else { 0 },
            trailer: true,
        })
    };
    let sides = [INTO, OUT_OF].into_iter().zip(frame_bytes(payload_bytes));
    let streams = Direction::ALL.into_iter().zip(sides).map(stream).collect::<Result<_, BenchError>>()?;
    let traffic = Traffic {
        seed: 1,
        key,
        total: Some(pps.map_or(Rate::Max, Rate::Pps)),
        ports: [INTO, OUT_OF].into_iter().zip(drivers).map(port).collect(),
        streams,
    };
    let unchanged = |from: &str, to: &str| Rule::Unchanged { from: from.to_owned(), to: to.to_owned() };
    let rules = match target {
        Target::Device => vec![Rule::Bearers(described)],
        Target::Bench(_) => vec![unchanged(INTO, OUT_OF), unchanged(OUT_OF, INTO)],
    };
    Ok((traffic, rules))
}

fn wrong(problems: &[Problem]) -> BenchError {
    BenchError::Traffic(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

/// The ends of the links by their names' order: the user plane's addresses, and the bench's.
pub(super) const MACS: [[[u8; 6]; 2]; 2] = [[N3_MAC, N6_MAC], [GNB_MAC, ROUTER_MAC]];

/// The node that the engine forwards by, with its sessions.
pub(super) struct Sessions {
    node: UpfNode,
    count: u32,
}

impl Sessions {
    pub(super) fn establish(
        count: u32,
        pool: &'static FramePool,
        stop: &AtomicBool,
    ) -> Result<Self, BenchError> {
        let mut node = UpfNode::with(Family::V4, settings(Family::V4, count), pool, 0)?;
        node.establish(count, stop, &|_| ())?;
        Ok(Self { node, count })
    }

    fn node(&self) -> &Arc<Node> {
        self.node.node()
    }

    /// A worker's function.
    pub(super) fn function(&self) -> Result<Box<dyn Function>, BenchError> {
        path(self.node())
    }

    /// The same sessions in the kernel, forwarded between two interfaces until dropped.
    pub(super) fn offload(
        &self,
        interfaces: &[Interface; 2],
        mode: AttachMode,
    ) -> Result<Offload, FastPathError> {
        Offload::start(self.count, interfaces, mode)
    }
}

/// The kernel's datapath at work.
pub(super) struct Offload {
    // The programs go before the tables that they read.
    _programs: Vec<Steering>,
    _path: FastPath,
}

impl Offload {
    fn start(sessions: u32, interfaces: &[Interface; 2], mode: AttachMode) -> Result<Self, FastPathError> {
        let mut path = FastPath::load(&FastPathConfig {
            records_max: sessions.saturating_mul(2),
            groups_max: 0,
            usage_cells_max: sessions,
            policers_max: 0,
            templates_max: 1,
            hops_max: N3_HOP + 1,
            fixed_source_port: false,
            ecn: true,
            no_syn: false,
            seed: [
                0x9e37_79b9_7f4a_7c15,
                0xbf58_476d_1ce4_e5b9,
                0x94d0_49bb_1331_11eb,
                0xd6e8_feb8_6659_fd93,
            ],
        })?;
        let hop = |at: usize, source, destination| Hop {
            ifindex: interfaces[at].ifindex,
            mtu: u32::from(MTU),
            source,
            destination,
            port: u8::from(at == 1),
            redirect: true,
            ..Hop::default()
        };
        path.set_hop(N3_HOP, Some(&hop(0, N3_MAC, GNB_MAC)))?;
        path.set_hop(N6_HOP, Some(&hop(1, N6_MAC, ROUTER_MAC)))?;
        let template = Template { local: N3, peer: GNB, tos: 0, copied: ECN, hop: N3_HOP };
        path.set_template(TEMPLATE, Some(&template))?;
        for session in 0..sessions {
            for (key, record) in records(session) {
                path.insert_or_replace(key, &record)?;
            }
        }
        let mut programs = Vec::new();
        for (at, interface) in interfaces.iter().enumerate() {
            let roles = Roles { gtpu: at == 0, routed: at == 1, ndn: false };
            let config = SteeringConfig { roles, mac: MACS[0][at], multi_buffer: false };
            let mut program = Steering::load_fast(config, &path)?;
            if at == 0 {
                program.set_gtpu_addresses(&[N3.into()])?;
            } else {
                program.set_instance(Some(0))?;
            }
            program.attach_to(interface.ifindex, mode)?;
            programs.push(program);
        }
        Ok(Self { _programs: programs, _path: path })
    }
}

/// The records of a session, of its tunnel and of its UE's address, as those of [`UpfNode`]: a counter for both, and a QoS flow.
fn records(session: u32) -> [(FastKey, FastRecord); 2] {
    let record = |direction, destination| {
        let rule = FastRule::to(destination).counting([UsageCell::of_passed(session)]);
        FastRecord { ue_ipv4: Some(ue(session)), ..FastRecord::of_rule(session, direction, rule) }
    };
    let uplink = record(FastDirection::Uplink, FastDestination::Hop(N6_HOP));
    let tunnel = FastDestination::Tunnel {
        template: TEMPLATE,
        teid: teid(session),
        qfi: Some(QFI),
        container_uplink: false,
    };
    let downlink = record(FastDirection::Downlink, tunnel);
    [
        (FastKey::Tunnel { local: N3, teid: teid(session) }, uplink),
        (FastKey::Ipv4 { instance: 0, address: ue(session) }, downlink),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Compiled;

    #[test]
    fn payloads_are_those_of_the_source() {
        assert_eq!(frame_bytes(22), [108, 64]);
        assert_eq!(frame_bytes(1450), [1536, 1492]);
        let driver = &Driver::Memory;
        for target in [Target::Device, Target::Bench([[2; 6], [4; 6]])] {
            for payload in [22, 1450] {
                let (traffic, rules) =
                    traffic([driver, driver], (target, 8), payload, Some(1.0), (true, 1)).unwrap();
                let compiled = Compiled::new(&traffic).unwrap();
                let lengths = [0, 1].map(|stream| compiled.packet(stream, 3, 0).unwrap().len());
                assert_eq!(lengths, frame_bytes(payload), "the trailer fits");
                assert_eq!(rules.len(), if matches!(target, Target::Device) { 1 } else { 2 });
                assert_eq!(traffic.streams[1].delay_ns, 1_000_000_000);
            }
        }
    }
}
