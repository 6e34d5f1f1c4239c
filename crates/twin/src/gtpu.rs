//! The GTP-U cores, `gtpu_decap` and `gtpu_encap`: their settings, their sessions, and what becomes of frames.

pub(crate) mod registers;
pub(crate) mod session;

use std::net::IpAddr;

use self::registers::address;
use self::session::Table;
use crate::bus::Bus;
use crate::simulation::Simulation;
use crate::{BusError, CoreEvent, Outcome, Pressure, Timing, TwinError};

pub use self::session::{Action, Downlink, SessionError, Ue, Uplink};

/// Which of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Out of tunnels.
    Decap,
    /// Into them.
    Encap,
}

/// A width that was verilated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 256 bits; 12 clocks.
    Bits256,
    /// 512 bits; 11 clocks.
    Bits512,
}

impl Width {
    /// All that there are.
    pub const ALL: [Self; 2] = [Self::Bits256, Self::Bits512];

    /// Octets of a beat.
    pub const fn octets(self) -> usize {
        match self {
            Self::Bits256 => 32,
            Self::Bits512 => 64,
        }
    }

    /// Clocks from a frame's first beat in to its first beat out, where nothing waits.
    pub const fn latency_clocks(self) -> u64 {
        match self {
            Self::Bits256 => 12,
            Self::Bits512 => 11,
        }
    }
}

/// Where packets go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its Ethernet address.
    pub dst: [u8; 6],
    /// That of the port which leads to it.
    pub src: [u8; 6],
}

/// What holds for all packets of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The Ethernet address of the port by which frames come in.
    pub mac: [u8; 6],
    /// Own addresses of GTP-U: two of each family at most.
    pub locals: Vec<IpAddr>,
    /// Congestion marks go out of tunnels and into them.
    pub ecn: bool,
    /// The longest packet of a UE that leaves whole.
    pub packet_max: u32,
    /// By number.
    pub next_hops: Vec<NextHop>,
    /// Destinations with a route of their own, which is the host's: prefix and length. Out of tunnels only.
    pub routes: Vec<(IpAddr, u8)>,
}

/// What a core has no room for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// More of something than there are places.
    #[error("{1} {0}: the core has room for {2}")]
    Room(&'static str, usize, usize),
    /// The bus.
    #[error(transparent)]
    Bus(#[from] BusError),
}

crate::outcome::events! {
    /// What became of a frame, as the cores count it. The names of drops are those of the software.
    Event:
    /// It left.
    Forwarded = 1, "forwarded";
    /// Dropped: the outer IP header is wrong.
    IpMalformed = 2, "ip_malformed";
    /// Dropped: its checksum is.
    IpChecksum = 3, "ip_checksum";
    /// Dropped: the UDP length lies.
    UdpMalformed = 4, "udp_malformed";
    /// Dropped: the GTP-U header is wrong.
    GtpuMalformed = 5, "gtpu_malformed";
    /// Dropped: no IP packet is in the tunnel.
    InnerMalformed = 6, "inner_malformed";
    /// Dropped: it cannot carry the congestion mark.
    CongestionMark = 7, "congestion_mark";
    /// Dropped: not of the QoS flow that the session's rule asks for.
    NoPdr = 8, "no_pdr";
    /// Dropped: the source is not the session's.
    UeSpoofed = 9, "ue_spoofed";
    /// Dropped: an address that no router forwards to.
    NotRouted = 10, "not_routed";
    /// Dropped: the gate is closed.
    GateClosed = 11, "gate_closed";
    /// Dropped: the FAR says so.
    FarDrop = 12, "far_drop";
    /// Dropped: the MAC said that the frame has an error.
    FrameError = 13, "frame_error";
    /// To the host: not for this port, tags, no IP, no packet of a tunnel.
    HostOther = 16, "host_other";
    /// To the host: headers that end behind what is read.
    HostDeep = 17, "host_deep";
    /// To the host: IPv6 extension headers, before UDP or more than are walked over.
    HostExtension = 18, "host_extension";
    /// To the host: a fragment of a tunnel packet.
    HostFragment = 19, "host_fragment";
    /// To the host: no G-PDU, or one with an extension that must be understood.
    HostSignalling = 20, "host_signalling";
    /// To the host: more extension headers of GTP-U than are walked over.
    HostChain = 21, "host_chain";
    /// To the host: no session.
    HostMiss = 22, "host_miss";
    /// To the host: a session whose rules are the host's.
    HostSession = 23, "host_session";
    /// To the host: a destination with a route of its own.
    HostRoute = 24, "host_route";
    /// To the host: the last hop.
    HostTtl = 25, "host_ttl";
    /// To the host: longer than may leave.
    HostMtu = 26, "host_mtu";
    /// To the host: the UDP checksum cannot be told from the packet's own.
    HostChecksum = 27, "host_checksum";
}

/// A GTP-U core.
#[derive(Debug)]
pub struct GtpuCore {
    simulation: Simulation,
    table: Table,
    direction: Direction,
}

impl GtpuCore {
    /// A core of a width, after reset: without settings all is the host's.
    ///
    /// # Errors
    /// The crate was built without verilator.
    pub fn new(direction: Direction, width: Width) -> Result<Self, TwinError> {
        let which = registers::model(direction, width);
        let simulation = Simulation::new(which, width.octets())?;
        Ok(Self { simulation, table: Table::of(direction), direction })
    }

    /// Reset for some clocks. Frames in the core are lost; settings, sessions and counters are cleared.
    pub fn reset(&mut self) {
        self.simulation.reset();
        self.table.is_started = false;
    }

    /// Writes the settings.
    ///
    /// # Errors
    /// The core has no room for them, or refuses a write.
    pub fn configure(&mut self, settings: &Settings) -> Result<(), SetupError> {
        registers::configure(&mut self.simulation, settings, self.direction)
    }

    /// Adds a session, or changes what it does.
    ///
    /// # Errors
    /// It is not of this core's direction or names what there is not, the table is full, or the bus refuses.
    pub fn put_uplink(&mut self, settings: &Settings, session: &Uplink) -> Result<(), SessionError> {
        self.is_for(Direction::Decap)?;
        let (key, value) = session.words(settings)?;
        self.table.put(&mut self.simulation, &key, &value)
    }

    /// As [`GtpuCore::put_uplink`].
    ///
    /// # Errors
    /// As there.
    pub fn put_downlink(&mut self, settings: &Settings, session: &Downlink) -> Result<(), SessionError> {
        self.is_for(Direction::Encap)?;
        let value = session.words(settings)?;
        self.table.put(&mut self.simulation, &session.ue.key(), &value)
    }

    fn is_for(&self, direction: Direction) -> Result<(), SessionError> {
        (self.direction == direction).then_some(()).ok_or(SessionError::Direction)
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
        self.simulation.read(address::EVENTS + 4 * u32::from(event.code()))
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
