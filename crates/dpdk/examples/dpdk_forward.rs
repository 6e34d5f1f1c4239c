//! Sends every packet back where it came from, and prints how many millions a second that makes.
//!
//! ```text
//! cargo run --release -p kaido-dpdk --features dpdk --example dpdk_forward -- net_null0 5 \
//!     --no-huge -m 512 --no-pci --vdev=net_null0,size=64
//! ```
//!
//! The device, seconds, then DPDK's arguments. `net_null` makes packets of nothing and takes all that is sent: what
//! is measured is the port itself, both ways.

use std::error::Error;
use std::time::{Duration, Instant};

use kaido_dpdk::{DpdkOptions, DpdkPool, DpdkPort, Eal};
use kaido_engine::{Batch, DropReason, DropTable, FramePool, Port};

const USAGE: &str = "usage: dpdk_forward DEVICE SECONDS [EAL ARGUMENT ...]";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, seconds, eal @ ..] = &arguments[..] else { return Err(USAGE.into()) };
    let seconds: u64 = seconds.parse().map_err(|_| USAGE)?;
    let eal = Eal::start(eal).map_err(|error| format!("{error}\n  help: {}", error.help()))?;
    let pool = FramePool::leak(16_384)?;
    let memory = DpdkPool::register(&eal, pool)?;
    let options = DpdkOptions { promiscuous: true, ..DpdkOptions::default() };
    let opened = DpdkPort::open(&memory, device, &options);
    let mut port = opened.map_err(|error| format!("{error}\n  help: {}", error.help()))?.remove(0);
    println!("{device} is a {}; the pool stands on {}", port.info().driver, pool.pages());

    let mut cache = pool.cache();
    let mut batch = Batch::new();
    let (mut packets, mut bytes, mut unsent) = (0u64, 0usize, 0usize);
    let began = Instant::now();
    let end = began + Duration::from_secs(seconds);
    while Instant::now() < end {
        // The clock is read once in a while only.
        for _ in 0..64 {
            port.receive(&mut cache, &mut batch);
            packets += batch.len() as u64;
            bytes += batch.iter().map(kaido_engine::Frame::packet_len).sum::<usize>();
            unsent += port.transmit(&mut cache, &mut batch);
            unsent += batch.len();
            batch.drain(..).for_each(|frame| cache.release(frame));
        }
    }
    let took = began.elapsed().as_secs_f64();
    let rate = packets as f64 / took;
    let mean = bytes as f64 / packets.max(1) as f64;
    println!(
        "{packets} packets of {mean:.0} bytes in {took:.2} s: {:.2} Mpps each way, {unsent} not sent",
        rate / 1e6
    );
    if packets > 0 {
        println!("{:.1} ns a packet, both ways together", 1e9 / rate);
    }
    port.losses(&mut |reason: DropReason, count| {
        println!("lost: {} {count}", DropTable::ENGINE.name(reason));
    });
    Ok(())
}
