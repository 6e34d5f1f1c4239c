//! A port over `net_pcap`, whose driver receives jumbo frames into chains of its own making.
#![allow(clippy::unwrap_used, reason = "a test")]

use kaido_dpdk::DpdkPool;
use kaido_engine::FramePool;
use kaido_engine::port::{PcapReader, PcapWriter};

mod support;

use support::{Driven, FRAMES, JUMBO, pattern, start};

#[test]
fn a_capture_comes_in_as_it_is_and_what_the_driver_sends_goes_out() {
    let folder = std::env::temp_dir().join(format!("kaido-dpdk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (input, output) = (folder.join("in.pcap"), folder.join("out.pcap"));
    let packets: Vec<Vec<u8>> = [60, 1514, 3840, 3841, 7681, 9014].map(pattern).to_vec();
    let mut writer = PcapWriter::create(&input).unwrap();
    for packet in &packets {
        writer.write(0, packet.len(), std::iter::once(&packet[..])).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);

    let device = format!("net_pcap0,rx_pcap={},tx_pcap={}", input.display(), output.display());
    let eal = start(&[&device]);
    let pool = FramePool::leak(FRAMES).unwrap();
    let memory = DpdkPool::register(&eal, pool).unwrap();
    let mut port = Driven::open(&memory, pool, "net_pcap0", &JUMBO);
    let frames = port.poll();
    assert_eq!(frames.len(), packets.len());
    for (frame, packet) in frames.iter().zip(&packets) {
        assert_eq!(&frame.to_vec(), packet);
        assert_eq!(frame.is_chained(), packet.len() > 3840);
    }
    // The driver does not offer to send chains, so none is given to it.
    assert_eq!(port.transmit(frames), 3);
    assert!(port.poll().is_empty());
    drop((port, memory, eal));
    assert_eq!(pool.free_frames(), FRAMES);

    let mut reader = PcapReader::open(&output).unwrap();
    for packet in packets.iter().filter(|packet| packet.len() <= 3840) {
        assert_eq!(&reader.read().unwrap().unwrap().bytes, packet);
    }
    assert!(reader.read().unwrap().is_none());
    std::fs::remove_dir_all(&folder).unwrap();
}
