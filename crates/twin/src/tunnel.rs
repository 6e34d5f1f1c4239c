//! The core that puts packets into GRE tunnels: frames in, what became of each out.

mod registers;

use std::net::IpAddr;

use kaido_engine::PortId;
use kaido_gre::{RuleTotals, Settings};

use self::registers::{Image, TUNNELS, address};
use crate::bus::Bus;
use crate::gtpu::Width;
use crate::simulation::Simulation;
use crate::{BusError, Outcome, Pressure, Timing, TwinError, Unfit};

/// Number of the first model among those of `build.rs`; the wider one is behind it.
const MODEL: u32 = 11;

crate::outcome::events! {
    /// What became of a frame, as the core counts it. The names of drops are those of the software.
    Event:
    /// It left as it came: no tunnel is for it.
    Passed = 0, "passed";
    /// It left with outer headers.
    Encapsulated = 1, "encapsulated";
    /// Dropped: longer than may leave, or than the memory of the core.
    TooBig = 10, "too_big";
    /// Dropped: the MAC said that the frame has an error.
    FrameError = 12, "frame_error";
    /// To the host: more tags than two.
    HostTags = 16, "host_tags";
    /// To the host: IPv6 extension headers.
    HostExtension = 17, "host_extension";
    /// To the host: IPv4 with more than five words of options.
    HostDeep = 18, "host_deep";
    /// To the host: may be a tunnel packet.
    HostTunnel = 19, "host_tunnel";
    /// To the host: an Ethernet frame for a tunnel with a checksum.
    HostChecksum = 20, "host_checksum";
    /// To the host: the tunnel has no next hop by the port of the core.
    HostRoute = 21, "host_route";
    /// To the host: the last hop.
    HostTtl = 22, "host_ttl";
    /// To the host: too long with its outer headers.
    HostMtu = 23, "host_mtu";
    /// To the host: the outer packet may be cut on its way, so that it has a number.
    HostNumber = 24, "host_number";
    /// To the host: a frame that ends in its Ethernet header.
    HostShort = 25, "host_short";
}

/// The far end of a tunnel, resolved: the port that leads to it, and the Ethernet address of the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The far end.
    pub remote: IpAddr,
    /// The port.
    pub port: PortId,
    /// The next hop.
    pub mac: [u8; 6],
}

/// The core that puts packets into GRE tunnels.
#[derive(Debug)]
pub struct TunnelCore {
    simulation: Simulation,
    /// Which encapsulation each of its places has.
    places: Vec<usize>,
}

impl TunnelCore {
    /// A core of a width, after reset: without tunnels everything passes.
    ///
    /// # Errors
    /// The crate was built without verilator.
    pub fn new(width: Width) -> Result<Self, TwinError> {
        let simulation = Simulation::new(MODEL + u32::from(width == Width::Bits512), width.octets())?;
        Ok(Self { simulation, places: Vec::new() })
    }

    /// Reset for some clocks. Frames in the core are lost, tunnels and counters are cleared.
    pub fn reset(&mut self) {
        self.simulation.reset();
        self.places.clear();
    }

    /// Has the core do what `settings` say of frames that come in by `port` and are no tunnel packets.
    ///
    /// # Errors
    /// It has no room for them, or refuses a write.
    pub fn configure(
        &mut self,
        settings: &Settings,
        port: PortId,
        resolved: &[Resolved],
    ) -> Result<(), Unfit> {
        let image = Image::of(settings, port, resolved)?;
        for (address, value) in image.writes {
            self.simulation.write(address, value)?;
        }
        self.places = image.places;
        Ok(())
    }

    /// How often something became of a frame, since reset.
    ///
    /// # Errors
    /// The bus.
    pub fn counter(&mut self, event: Event) -> Result<u32, BusError> {
        self.simulation.read(address::EVENTS + 4 * event as u32)
    }

    /// What went into each of so many encapsulations since reset.
    ///
    /// # Errors
    /// The bus.
    pub fn totals(&mut self, encapsulations: usize) -> Result<Vec<RuleTotals>, BusError> {
        let mut totals = vec![RuleTotals::default(); encapsulations];
        for (place, of) in (0..).zip(self.places.clone()) {
            let Some(total) = totals.get_mut(of) else { continue };
            let base = address::TUNNEL_COUNTERS + place * address::TUNNEL_COUNTERS_LEN;
            total.packets = u64::from(self.simulation.read(base)?);
            total.octets =
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

    /// Encapsulations of a port that it has room for.
    pub const fn tunnels_max() -> usize {
        TUNNELS
    }
}
