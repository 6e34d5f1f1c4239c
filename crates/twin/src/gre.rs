//! The GRE header remover as a core: frames in, what became of each out.

mod registers;

use kaido_engine::PortId;
use kaido_gre::{RuleTotals, Settings};

use self::registers::{Image, address};
use crate::bus::Bus;
use crate::simulation::Simulation;
use crate::{BusError, Outcome, Pressure, Timing, TwinError};

pub use self::registers::Unfit;

/// A core that was verilated: its data bus and its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 256 bits; headers of the first 64 octets; 3 clocks.
    Bits256 = 0,
    /// 512 bits; headers of the first 128 octets; 3 clocks.
    Bits512 = 1,
    /// 256 bits; headers of the first 128 octets; pipelined: 8 clocks.
    Bits256Deep = 2,
    /// 256 bits, pipelined; headers of the first 64 octets; 6 clocks.
    Bits256Pipelined = 9,
    /// 512 bits, pipelined; headers of the first 128 octets; 6 clocks.
    Bits512Pipelined = 10,
}

impl Size {
    /// All that there are.
    pub const ALL: [Self; 5] =
        [Self::Bits256, Self::Bits512, Self::Bits256Deep, Self::Bits256Pipelined, Self::Bits512Pipelined];

    /// Octets of a beat.
    pub const fn octets(self) -> usize {
        match self {
            Self::Bits256 | Self::Bits256Deep | Self::Bits256Pipelined => 32,
            Self::Bits512 | Self::Bits512Pipelined => 64,
        }
    }

    /// Octets in which the headers must lie that the core reads.
    pub const fn window(self) -> usize {
        match self {
            Self::Bits256 | Self::Bits256Pipelined => 64,
            Self::Bits512 | Self::Bits256Deep | Self::Bits512Pipelined => 128,
        }
    }

    /// Clocks from a frame's first beat in to its first beat out.
    pub const fn latency_clocks(self) -> u64 {
        match self {
            Self::Bits256 | Self::Bits512 => 3,
            Self::Bits256Pipelined | Self::Bits512Pipelined => 6,
            Self::Bits256Deep => 8,
        }
    }
}

crate::outcome::events! {
    /// What became of a frame, as the core counts it. The names of drops are those of the software.
    Event:
    /// It left as it came.
    Passed = 0, "passed";
    /// It left without its outer headers.
    Stripped = 1, "stripped";
    /// Dropped: the outer IP header is wrong.
    IpMalformed = 2, "ip_malformed";
    /// Dropped: its checksum is.
    IpChecksum = 3, "ip_checksum";
    /// Dropped: a GRE header that is cut off.
    GreMalformed = 4, "gre_malformed";
    /// Dropped: GRE of another version.
    GreVersion = 5, "gre_version";
    /// Dropped: GRE with flags of RFC 1701.
    GreFlags = 6, "gre_flags";
    /// Dropped: a rule says so.
    GreRule = 7, "gre_rule";
    /// Dropped: what is in the tunnel is not what GRE says.
    InnerMalformed = 8, "inner_malformed";
    /// Dropped: it cannot carry the congestion mark.
    CongestionMark = 9, "congestion_mark";
    /// Dropped: longer than may leave.
    TooBig = 10, "too_big";
    /// Dropped: a fragment of a tunnel packet.
    OuterFragment = 11, "outer_fragment";
    /// Dropped: the MAC said that the frame has an error.
    FrameError = 12, "frame_error";
    /// Dropped: the checksum of GRE is wrong.
    GreChecksum = 13, "gre_checksum";
    /// Dropped: by route, and from or to an address that no router forwards.
    NotRouted = 14, "not_routed";
    /// To the host: three or four tags.
    HostTags = 16, "host_tags";
    /// To the host: IPv6 extension headers.
    HostExtension = 17, "host_extension";
    /// To the host: headers that end behind the window.
    HostDeep = 18, "host_deep";
    /// To the host: a fragment of a tunnel packet.
    HostFragment = 19, "host_fragment";
    /// To the host: forwarded by route.
    HostRoute = 21, "host_route";
    /// To the host: the rule or the policy says so.
    HostPunt = 22, "host_punt";
    /// To the host: no tunnel packet, and the host has tunnels.
    HostOther = 23, "host_other";
}

/// The GRE header remover as a core.
#[derive(Debug)]
pub struct GreCore {
    simulation: Simulation,
    /// Which rule each of its slots has.
    slots: Vec<Option<usize>>,
}

impl GreCore {
    /// A core of a size, after reset: without rules everything passes.
    ///
    /// # Errors
    /// The crate was built without verilator.
    pub fn new(size: Size) -> Result<Self, TwinError> {
        Ok(Self { simulation: Simulation::new(size as u32, size.octets())?, slots: Vec::new() })
    }

    /// Reset for some clocks. Frames in the core are lost, rules and counters are cleared.
    pub fn reset(&mut self) {
        self.simulation.reset();
        self.slots.clear();
    }

    /// Has the core do what `settings` say of frames that come in by `port`.
    ///
    /// # Errors
    /// It has no room for them, or refuses a write.
    pub fn configure(&mut self, settings: &Settings, port: PortId) -> Result<(), Unfit> {
        let image = Image::of(settings, port)?;
        for (address, value) in image.writes {
            self.simulation.write(address, value)?;
        }
        self.slots = image.slots;
        Ok(())
    }

    /// Writes a register.
    ///
    /// # Errors
    /// The core refuses, or does not answer.
    pub fn write(&mut self, address: u32, value: u32) -> Result<(), BusError> {
        self.simulation.write(address, value)
    }

    /// Reads a register.
    ///
    /// # Errors
    /// The core refuses, or does not answer.
    pub fn read(&mut self, address: u32) -> Result<u32, BusError> {
        self.simulation.read(address)
    }

    /// How often something became of a frame, since reset.
    ///
    /// # Errors
    /// The bus.
    pub fn counter(&mut self, event: Event) -> Result<u32, BusError> {
        self.simulation.read(address::EVENTS + 4 * event as u32)
    }

    /// What each of so many rules has done since reset.
    ///
    /// # Errors
    /// The bus.
    pub fn rule_totals(&mut self, rules: usize) -> Result<Vec<RuleTotals>, BusError> {
        let mut totals = vec![RuleTotals::default(); rules];
        for (slot, rule) in (0..).zip(self.slots.clone()) {
            let Some(total) = rule.and_then(|rule| totals.get_mut(rule)) else { continue };
            let base = address::RULE_COUNTERS + slot * address::RULE_COUNTERS_LEN;
            total.packets += u64::from(self.simulation.read(base)?);
            total.octets +=
                u64::from(self.simulation.read(base + 4)?) | u64::from(self.simulation.read(base + 8)?) << 32;
        }
        Ok(totals)
    }

    /// Passes frames, back to back as far as `pressure` lets them, and says what became of each, in their order.
    ///
    /// # Errors
    /// The core is stuck, breaks a rule of the bus or contradicts itself.
    pub fn run(
        &mut self,
        frames: &[Vec<u8>],
        pressure: Pressure,
    ) -> Result<(Vec<Outcome<Event>>, Timing), TwinError> {
        self.simulation.run(frames, pressure)
    }
}
