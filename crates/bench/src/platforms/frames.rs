//! The two packets of the comparison, one in a tunnel and one in none, as templates of the generator.

use std::net::Ipv4Addr;
use std::time::Duration;

use kaido_wire::{EtherType, GreRepr, IpProtocol, Ipv4Repr, TcpFlags, TcpRepr, UdpRepr};

use crate::BenchError;
use crate::generator::CompiledTraffic;
use crate::stream::{Driver, Lengths, LinkMode, Mode, PortSpec, Rate, Source, Stream, Template, Traffic};

/// Names of the bench's ports, and of the two streams.
pub(super) const INTO: &str = "in";
pub(super) const OUT_OF: &str = "out";
const GRE: &str = "gre";
const TCP: &str = "tcp";
/// Octets that leave with the headers: IPv4 and GRE.
pub(super) const REMOVED: usize = 24;

const HOPS: u8 = 64;
/// Both ends of the tunnel, and of what is in it.
const TUNNEL: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 8, 0, 2)];

/// Ethernet, and what comes behind it. The generator sets lengths and checksums.
struct Packet(Vec<u8>);

impl Packet {
    fn new(to: [u8; 6], from: [u8; 6]) -> Self {
        Self([&to[..], &from[..], &EtherType::IPV4.0.to_be_bytes()].concat())
    }

    fn ipv4(mut self, [src, dst]: [Ipv4Addr; 2], protocol: IpProtocol) -> Self {
        let repr = Ipv4Repr::whole([src, dst], protocol, HOPS);
        self.put(|room| repr.emit(room));
        self
    }

    /// Appends what `emit` writes; the headers here are shorter than the room.
    fn put(&mut self, emit: impl FnOnce(&mut [u8]) -> Result<usize, kaido_wire::Error>) {
        let mut room = [0; 64];
        let len = emit(&mut room).unwrap_or(0);
        self.0.extend_from_slice(&room[..len]);
    }

    fn payload(mut self, frame_bytes: usize) -> Vec<u8> {
        let missing = frame_bytes.saturating_sub(self.0.len());
        self.0.extend((0..missing).map(|at| u8::try_from(at % 251).unwrap_or(0)));
        self.0
    }
}

/// UDP in GRE, and TCP by itself: frames of so many octets, without FCS.
pub(super) fn frames(to: [u8; 6], from: [u8; 6], frame_bytes: usize) -> [Vec<u8>; 2] {
    let mut tunnelled = Packet::new(to, from).ipv4(TUNNEL, IpProtocol::GRE);
    let gre = GreRepr { protocol: EtherType::IPV4, checksum: false, key: None, sequence: None };
    tunnelled.put(|room| gre.emit(room));
    let mut tunnelled = tunnelled.ipv4(HOSTS, IpProtocol::UDP);
    let udp = UdpRepr { src_port: 40_000, dst_port: 443, payload_len: 0 };
    tunnelled.put(|room| udp.emit(room));
    let mut plain = Packet::new(to, from).ipv4(HOSTS, IpProtocol::TCP);
    let tcp = TcpRepr {
        src_port: 40_000,
        dst_port: 443,
        sequence: 1,
        acknowledgment: 1,
        flags: TcpFlags::ACK,
        window: 65_535,
        urgent: 0,
        options: &[],
    };
    plain.put(|room| tcp.emit(room));
    [tunnelled.payload(frame_bytes), plain.payload(frame_bytes)]
}

/// Both streams, one to one, from one port to the other, at so many packets a second or as fast as the port takes them. They go two
/// at a time, as many of one kind as of the other, or each by itself where they are `apart`. `key` tells packets of this trial from
/// those of the last.
pub(super) fn traffic(
    [into, out_of]: [&Driver; 2],
    frames: [Vec<u8>; 2],
    pps: Option<f64>,
    (apart, key): (bool, u64),
) -> Traffic {
    let port = |name: &str, driver: &Driver| PortSpec {
        name: name.to_owned(),
        driver: driver.clone(),
        line_bps: None,
        link: LinkMode::L2,
    };
    // A length that is said has the generator set those of the headers.
    let lengths = |bytes: &[u8]| Lengths::Fixed(u16::try_from(bytes.len()).unwrap_or(u16::MAX));
    // Each stream has half of the rate: apart, the second begins when the first has sent one.
    let between = pps.filter(|_| apart).map_or(0, |pps| Duration::from_secs_f64(1.0 / pps).as_nanos());
    let between = u64::try_from(between).unwrap_or(u64::MAX);
    let stream = |((name, delay_ns), bytes): ((&str, u64), Vec<u8>)| Stream {
        name: name.to_owned(),
        port: INTO.to_owned(),
        source: Source::Template(Template { lengths: lengths(&bytes), bytes, ..Template::default() }),
        rate: Rate::Weight(1.0),
        mode: Mode::Continuous,
        delay_ns,
        trailer: true,
    };
    Traffic {
        seed: 1,
        key,
        total: Some(pps.map_or(Rate::Max, Rate::Pps)),
        ports: vec![port(INTO, into), port(OUT_OF, out_of)],
        streams: [(GRE, 0), (TCP, between)].into_iter().zip(frames).map(stream).collect(),
    }
}

/// Both as they are sent: with lengths and checksums.
pub(super) fn complete(to: [u8; 6], from: [u8; 6], frame_bytes: usize) -> Result<[Vec<u8>; 2], BenchError> {
    let driver = &Driver::Memory;
    let traffic = traffic([driver, driver], frames(to, from, frame_bytes), Some(1.0), (false, 1));
    let compiled = CompiledTraffic::new(&traffic)?;
    let packet = |stream| compiled.packet(stream, 0, 0).ok_or(BenchError::FrameLength(frame_bytes));
    Ok([packet(0)?, packet(1)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn the_generator_completes_both_packets() {
        let [tunnelled, plain] = complete([2; 6], [4; 6], 92).unwrap();
        for packet in [&tunnelled, &plain] {
            assert_eq!(packet.len(), 92);
            assert_eq!(u16::from_be_bytes([packet[16], packet[17]]), 78);
            assert!(kaido_wire::ipv4::checksum_ok(&packet[14..], 20));
        }
        assert_eq!(u16::from_be_bytes([tunnelled[40], tunnelled[41]]), 54);
        assert!(kaido_wire::ipv4::checksum_ok(&tunnelled[38..], 20));
    }
}
