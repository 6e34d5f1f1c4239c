//! Live frames: packets of random sessions that the kernel makes and sends out of an interface (`BPF_F_TEST_XDP_LIVE_FRAMES`), some
//! millions a second from one core, and counts when they are back. Nobody judges what is in them.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kaido_wire::layout::{self, EthernetFields};
use kaido_xdp::{AttachMode, Error, LoadedProgram, interface_mac};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::{CONTAINER, Draw, Ends, FRAME_LEN, OBJECT, SEED, UPLINK, downlink, uplink, write};
use crate::offload::{self, OffloadDirection};

/// Packets of a call, after which somebody is asked whether to stop.
const BATCH: u32 = 1 << 18;

/// What comes in by the last interface after the last packet was sent is waited for so long.
const GRACE: Duration = Duration::from_millis(100);

/// The packets: UDP of 192 octets with Ethernet, of sessions whose TEIDs begin at 1 and whose UEs at 10.0.0.1, drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivePackets {
    /// As seen by the UE.
    pub direction: OffloadDirection,
    /// How many sessions there are.
    pub sessions: u32,
    /// The device's Ethernet address on that side.
    pub device_mac: [u8; 6],
    /// The device's and the gNB's GTP-U addresses.
    pub tunnel: [Ipv4Addr; 2],
    /// Uplink packets have a PDU session container of that QoS flow.
    pub qfi: Option<u8>,
}

/// What was sent and came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveCount {
    /// Packets sent.
    pub sent: u64,
    /// UDP packets over IPv4 that came in by the other interface.
    pub received: u64,
    /// How long it sent.
    pub elapsed: Duration,
}

/// Two interfaces, the one for sending and the one where packets come back.
#[derive(Debug)]
pub struct LiveFrames {
    live: LoadedProgram,
    /// Of both interfaces: veth sends such frames only where a program is.
    sinks: [LoadedProgram; 2],
    from: u32,
}

impl LiveFrames {
    /// Takes two interfaces of this network namespace, by their indexes: UDP over IPv4 that comes in there is counted and thrown away.
    ///
    /// # Errors
    /// [`Error::Permission`], [`Error::AlreadyAttached`] and others of loading and attaching a program.
    pub fn open(from: u32, to: u32) -> Result<Self, Error> {
        let sink = |ifindex| {
            let mut sink =
                LoadedProgram::load_with(OBJECT, "sink", false, |map| offload::prepare(map, None))?;
            sink.attach_to(ifindex, AttachMode::Auto)?;
            Ok(sink)
        };
        Ok(Self {
            live: LoadedProgram::load_with(OBJECT, "live", false, |map| offload::prepare(map, None))?,
            sinks: [sink(from)?, sink(to)?],
            from,
        })
    }

    /// Sends for a while, or until told to stop, as fast as the kernel takes it. What a signal interrupts counts as sent whole.
    ///
    /// # Errors
    /// [`Error::Libbpf`], where the kernel is older than 5.18 for one.
    pub fn run(
        &self,
        packets: &LivePackets,
        duration: Duration,
        stop: &AtomicBool,
    ) -> Result<LiveCount, Error> {
        let ends = Ends { mac: packets.device_mac, tunnel: packets.tunnel, qfi: packets.qfi };
        let source = interface_mac(self.from)?;
        let (mut frame, flags) = match packets.direction {
            OffloadDirection::Uplink => {
                (uplink(&ends), UPLINK | if packets.qfi.is_some() { CONTAINER } else { 0 })
            }
            OffloadDirection::Downlink => (downlink(&ends), 0),
        };
        EthernetFields::new(layout::at_mut(&mut frame, 0)).set_src(source);
        let draw = Draw { seed: SEED, sessions: packets.sessions, flags, first: 1, ..Draw::default() };
        write(&self.live.map("speed_config")?, &draw.config(&frame))?;
        let back = self.sinks[1].map("speed_back")?;
        let before = counted(&back)?;
        let (began, mut sent) = (Instant::now(), 0);
        while began.elapsed() < duration && !stop.load(Ordering::Relaxed) {
            self.send(&frame)?;
            sent += u64::from(BATCH);
        }
        let elapsed = began.elapsed();
        std::thread::sleep(GRACE);
        Ok(LiveCount { sent, received: counted(&back)? - before, elapsed })
    }

    fn send(&self, frame: &[u8; FRAME_LEN]) -> Result<(), Error> {
        match self.live.run_live(frame, 0, self.from, BATCH)? {
            // By a signal: who asked for the run is told to stop.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => Ok(()),
            result => result.map_err(Error::libbpf("sending live frames")),
        }
    }
}

/// What all CPUs have counted.
fn counted(back: &MapHandle) -> Result<u64, Error> {
    let counted = back.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
    let counted = counted.map_err(Error::libbpf("reading a BPF map"))?.unwrap_or_default();
    let words = counted.iter().filter_map(|cpu| cpu.first_chunk().copied());
    Ok(words.map(u64::from_ne_bytes).sum())
}
