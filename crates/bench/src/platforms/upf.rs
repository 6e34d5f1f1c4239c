//! The user plane between two links: its packets, and the node that the engine forwards by.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kaido_engine::{FramePool, Function};

use super::frames::{INTO, OUT_OF};
use super::offload::OffloadNode;
use crate::BenchError;
use crate::family::Family;
use crate::frames::{Direction, bearers};
use crate::network::ETHERNET;
use crate::node::{UpfNode, path, settings};
use crate::oracle::Rule;
use crate::preset::{Preset, flow_templates};
use crate::shape::Shape;
use crate::stream::{Driver, Lengths, LinkMode, Mac, Mode, PortSpec, Rate, Source, Stream, Traffic};

/// Octets of IPv4 and UDP before a payload.
const HEADERS: usize = 20 + 8;
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
/// them. Every packet of a QoS flow is of the next session; uplink streams come first.
pub(super) fn traffic(
    drivers: [&Driver; 2],
    (target, shape, sessions): (Target, Shape, u32),
    payload_bytes: usize,
    pps: Option<f64>,
    (apart, key): (bool, u64),
) -> Result<(Traffic, Vec<Rule>), BenchError> {
    let mut described = bearers((Family::V4, shape), sessions, [INTO, OUT_OF]);
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
    let mut streams = Vec::new();
    for (direction, (from, bytes)) in
        Direction::ALL.into_iter().zip([INTO, OUT_OF].into_iter().zip(frame_bytes(payload_bytes)))
    {
        let preset = Preset::new(direction, Lengths::Fixed(u16::try_from(bytes).unwrap_or(u16::MAX)));
        let mut flows = flow_templates(&preset, &described, |_| ())?;
        if apart {
            // The flow that all sessions have: packets of several would not be as far apart.
            flows = flows.pop().into_iter().collect();
        }
        let all: f64 = flows.iter().map(|(_, _, weight)| weight).sum();
        streams.extend(flows.into_iter().map(|(name, template, weight)| Stream {
            name,
            port: from.to_owned(),
            source: Source::Template(template),
            rate: Rate::Weight(weight / all),
            mode: Mode::Continuous,
            // Each direction has half of the rate: apart, the second begins when the first has sent one.
            delay_ns: if direction == Direction::Downlink { delay_ns } else { 0 },
            trailer: true,
        }));
    }
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

/// A node with sessions of a shape, which the engine's platforms forward by.
pub(super) struct Sessions {
    node: UpfNode,
    /// The same sessions in the kernel, or why they are not.
    pub(super) offload: Result<OffloadNode, String>,
}

impl Sessions {
    pub(super) fn establish(
        (shape, count): (Shape, u32),
        pool: &'static FramePool,
        stop: &AtomicBool,
    ) -> Result<Self, BenchError> {
        let settings = settings(Family::V4, shape, count);
        let mut node = UpfNode::with((Family::V4, shape), settings, pool, 0)?;
        node.establish(count, stop, &|_| ())?;
        Ok(Self { node, offload: OffloadNode::establish((shape, count), pool, stop)? })
    }

    /// A worker's function.
    pub(super) fn function(&self) -> Result<Box<dyn Function>, BenchError> {
        path(self.node.node())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::CompiledTraffic;

    #[test]
    fn payloads_are_those_of_the_source() {
        assert_eq!(frame_bytes(22), [108, 64]);
        assert_eq!(frame_bytes(1450), [1536, 1492]);
        let driver = &Driver::Memory;
        for target in [Target::Device, Target::Bench([[2; 6], [4; 6]])] {
            for payload in [22, 1450] {
                let of = (target, Shape::Plain, 8);
                let (traffic, rules) = traffic([driver, driver], of, payload, Some(1.0), (true, 1)).unwrap();
                let compiled = CompiledTraffic::new(&traffic).unwrap();
                let lengths = [0, 1].map(|stream| compiled.packet(stream, 3, 0).unwrap().len());
                assert_eq!(lengths, frame_bytes(payload), "the trailer fits");
                assert_eq!(rules.len(), if matches!(target, Target::Device) { 1 } else { 2 });
                assert_eq!(traffic.streams[1].delay_ns, 1_000_000_000);
            }
        }
    }

    #[test]
    fn shapes_have_a_stream_for_each_flow_and_direction() {
        let driver = &Driver::Memory;
        for (shape, flows) in [(Shape::Plain, 1), (Shape::Mixed, 3), (Shape::Slice, 4), (Shape::Tenant, 1)] {
            let of = (Target::Device, shape, 64);
            let (all, _) = traffic([driver, driver], of, 22, None, (false, 1)).unwrap();
            assert_eq!(all.streams.len(), 2 * flows);
            assert!(all.streams[..flows].iter().all(|stream| stream.name.starts_with("uplink")));
            let (one, _) = traffic([driver, driver], of, 22, Some(9.0), (true, 1)).unwrap();
            assert_eq!(one.streams.len(), 2);
            CompiledTraffic::new(&all).unwrap();
        }
    }
}
