//! Captures: round trips of both formats, the other byte order, and files that are broken.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::{Path, PathBuf};

use kaido_engine::port::{PcapError, PcapFormat, PcapPacket, PcapPort, PcapReader, PcapWriter};
use kaido_engine::{Batch, Frame, FramePool, Port};
use proptest::prelude::*;

/// A file that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("ke-{}-{name}", std::process::id())))
    }

    fn with(name: &str, bytes: &[u8]) -> Self {
        let scratch = Self::new(name);
        std::fs::write(&scratch.0, bytes).unwrap();
        scratch
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn packets() -> Vec<PcapPacket> {
    [0, 1, 60, 1514, 3841, 9014]
        .iter()
        .zip(1_700_000_000_123_456_789..)
        .map(|(&len, time_ns)| PcapPacket { time_ns, bytes: (0..len).map(|at| (at % 251) as u8).collect() })
        .collect()
}

fn write(path: &Path, format: PcapFormat, packets: &[PcapPacket]) {
    let mut writer = PcapWriter::create_as(path, format).unwrap();
    for packet in packets {
        writer.write(packet.time_ns, packet.bytes.len(), packet.bytes.chunks(1000)).unwrap();
    }
    writer.flush().unwrap();
}

fn read(path: &Path) -> (Vec<PcapPacket>, Option<PcapError>) {
    let mut reader = match PcapReader::open(path) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut packets = Vec::new();
    loop {
        match reader.read() {
            Ok(Some(packet)) => packets.push(packet),
            Ok(None) => return (packets, None),
            Err(error) => return (packets, Some(error)),
        }
        assert_eq!(reader.packets(), packets.len() as u64);
    }
}

fn image(format: PcapFormat) -> Vec<u8> {
    let file = Scratch::new(&format!("image-{format:?}-{:?}", std::thread::current().id()));
    write(file.path(), format, &packets());
    std::fs::read(file.path()).unwrap()
}

#[test]
fn what_is_written_reads_back() {
    for format in [PcapFormat::Pcap, PcapFormat::Pcapng] {
        let file = Scratch::with(&format!("back-{format:?}"), &image(format));
        let (read, error) = read(file.path());
        assert!(error.is_none(), "{error:?}");
        assert_eq!(read, packets(), "{format:?}");
    }
}

#[test]
fn a_port_replays_one_file_into_another() {
    let pool = FramePool::leak(64).unwrap();
    for (name, format) in [("out.pcap", PcapFormat::Pcap), ("out.pcapng", PcapFormat::Pcapng)] {
        let input = Scratch::with(&format!("in-{name}"), &image(PcapFormat::Pcapng));
        let output = Scratch::new(name);
        let mut port = PcapPort::open(Some(input.path()), Some(output.path())).unwrap();
        let failure = port.failure();
        let (mut cache, mut batch) = (pool.cache(), Batch::new());
        assert!(!port.is_exhausted());
        while !port.is_exhausted() {
            port.receive(&mut cache, &mut batch);
            assert_eq!(port.transmit(&mut cache, &mut batch), 0);
        }
        drop((port, cache));
        let (sent, error) = read(output.path());
        assert!(error.is_none() && failure.get().is_none());
        assert!(sent.iter().map(|packet| &packet.bytes).eq(packets().iter().map(|packet| &packet.bytes)));
        assert!(sent.iter().all(|packet| packet.time_ns > 1_700_000_000_000_000_000));
        let magic = std::fs::read(output.path()).unwrap()[..4].to_vec();
        let is_pcapng = magic == [0x0a, 0x0d, 0x0d, 0x0a];
        assert_eq!(is_pcapng, format == PcapFormat::Pcapng);
        assert_eq!(pool.free_frames(), 64);
    }
}

#[test]
fn a_port_waits_for_frames_and_ends_at_a_broken_packet() {
    let pool = FramePool::leak(3).unwrap();
    let image = image(PcapFormat::Pcap);
    let input = Scratch::with("waits.pcap", &image[..image.len() - 1]);
    let mut port = PcapPort::open(Some(input.path()), None).unwrap();
    let failure = port.failure();
    let (mut cache, mut batch) = (pool.cache(), Batch::new());
    let mut seen = Vec::new();
    while !port.is_exhausted() {
        port.receive(&mut cache, &mut batch);
        seen.extend(batch.iter().map(Frame::packet_len));
        assert_eq!(port.transmit(&mut cache, &mut batch), 0);
    }
    assert_eq!(seen, [0, 1, 60, 1514, 3841]);
    let error = failure.get().unwrap();
    assert!(matches!(error, PcapError::Truncated { packet: 6, .. }), "{error}");
    assert!(error.to_string().contains("waits.pcap: packet 6"), "{error}");
    drop((port, cache, batch));
    assert_eq!(pool.free_frames(), 3);
}

#[test]
fn microseconds_and_the_other_byte_order_are_understood() {
    let be = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    let le = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let packet = vec![PcapPacket { time_ns: 5_000_007_000, bytes: vec![1, 2, 3] }];
    let pcap = [be(&[0xa1b2_c3d4, 0x0002_0004, 0, 0, 65535, 1, 5, 7, 3, 3]), vec![1, 2, 3]].concat();
    assert_eq!(read(Scratch::with("be.pcap", &pcap).path()).0, packet);
    let pcap = [le(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1, 5, 7, 3, 9]), vec![1, 2, 3]].concat();
    assert_eq!(read(Scratch::with("le.pcap", &pcap).path()).0, packet);
    // Big-endian pcapng: an unknown block, resolutions of 2^-20 s and of microseconds, a simple packet.
    let section = be(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX, 28]);
    let binary = be(&[1, 32, 0x0001_0000, 2, 0x0009_0001, 0x9400_0000, 0, 32]);
    let micro = be(&[1, 20, 0x0001_0000, 0, 20]);
    let unknown = be(&[0x0000_0bad, 16, 77, 16]);
    let first = be(&[6, 36, 0, 0, 3 << 19, 3, 3, 0x0102_0300, 36]);
    let second = be(&[6, 36, 1, 0, 5_000_007, 3, 3, 0x0102_0300, 36]);
    let simple = be(&[3, 20, 3, 0x0102_0300, 20]);
    let file = [section, binary, unknown, micro, first, second, simple].concat();
    let (read, error) = read(Scratch::with("be.pcapng", &file).path());
    assert!(error.is_none(), "{error:?}");
    let times: Vec<_> = read.iter().map(|packet| (packet.time_ns, packet.bytes.len())).collect();
    assert_eq!(times, [(1_500_000_000, 3), (5_000_007_000, 3), (0, 2)]);
}

#[test]
fn every_cut_is_reported_and_nothing_panics() {
    for format in [PcapFormat::Pcap, PcapFormat::Pcapng] {
        let image = image(format);
        let mut whole = 0;
        for cut in (0..image.len()).filter(|cut| *cut < 2000 || cut % 97 == 0) {
            let file = Scratch::with(&format!("cut-{format:?}"), &image[..cut]);
            let (read, error) = read(file.path());
            assert!(read.len() <= 6 && read[..] == packets()[..read.len()]);
            match error {
                None => whole += 1,
                Some(PcapError::Truncated { packet, .. }) => {
                    assert!(packet <= read.len() as u64 + 1, "cut at {cut}");
                }
                Some(other) => panic!("cut at {cut}: {other}"),
            }
        }
        assert!(whole <= 8, "{whole} cuts look like whole files");
    }
}

#[test]
fn what_contradicts_itself_is_refused_with_its_place() {
    let refused = |name: &str, bytes: &[u8], words: &[&str]| {
        let file = Scratch::with(name, bytes);
        let text = read(file.path()).1.expect(name).to_string();
        assert!(words.iter().chain(&[name]).all(|word| text.contains(word)), "{text}");
    };
    let le = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let header = |link| le(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link]);
    refused("magic", b"not a capture at all", &["packet 0", "neither pcap nor pcapng"]);
    refused("link", &header(101), &["packet 0", "link type 101"]);
    refused("version", &le(&[0xa1b2_c3d4, 1, 0, 0, 0, 1]), &["version"]);
    let long = [header(1), le(&[0, 0, u32::MAX, 3])].concat();
    refused("long", &long, &["packet 1", "4294967295"]);
    let section = le(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    let with = |blocks: &[u32]| [section.clone(), le(&[1, 20, 1, 0, 20]), le(blocks)].concat();
    refused("nobody", &with(&[6, 36, 7, 0, 0, 3, 3, 0, 36]), &["packet 1", "interface 7"]);
    refused("beyond", &with(&[6, 36, 0, 0, 0, 30, 3, 0, 36]), &["packet 1", "30 bytes"]);
    refused("differ", &with(&[6, 36, 0, 0, 0, 3, 3, 0, 32]), &["two lengths"]);
    refused("tiny", &with(&[6, 8]), &["block of 8 bytes"]);
    refused("huge", &with(&[6, u32::MAX - 3]), &["block of 4294967292 bytes"]);
    refused("odd", &with(&[6, 37, 0, 0]), &["block of 37 bytes"]);
    refused("short", &with(&[6, 16, 0, 16]), &["cut short"]);
    refused("order", &le(&[0x0a0d_0d0a, 28, 0, 1]), &["byte order"]);
    refused("ip", &[section.clone(), le(&[1, 20, 101, 0, 20, 3, 20, 4, 0, 20])].concat(), &["link type 101"]);
    let missing = PcapPort::open(Some(Path::new("/nonexistent/file.pcap")), None).unwrap_err();
    assert!(matches!(missing, PcapError::Open { .. }), "{missing}");
    assert!(PcapPort::open(None, Some(Path::new("/nonexistent/file.pcap"))).is_err());
}

#[test]
fn a_full_disk_is_told() {
    let pool = FramePool::leak(64).unwrap();
    let mut port = PcapPort::open(None, Some(Path::new("/dev/full"))).unwrap();
    let failure = port.failure();
    let (mut cache, mut failed) = (pool.cache(), 0);
    for _ in 0..100 {
        let bytes = [0; 20_000];
        let mut batch: Batch =
            (0..5).map(|_| Frame::from_slice(&bytes, || cache.allocate()).unwrap()).collect();
        failed += port.transmit(&mut cache, &mut batch);
    }
    assert!(failed > 0 && failed < 500, "{failed}");
    assert!(port.is_exhausted());
    assert!(failure.get().unwrap().to_string().starts_with("/dev/full: packet "));
}

proptest! {
    #[test]
    fn random_damage_never_panics(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        is_pcapng: bool,
    ) {
        let mut bytes = image(if is_pcapng { PcapFormat::Pcapng } else { PcapFormat::Pcap });
        for (at, value) in flips {
            // Headers are where it hurts.
            let at = at.index(400.min(bytes.len()));
            bytes[at] = value;
        }
        let file = Scratch::with("damage", &bytes);
        let _ = read(file.path());
    }
}
