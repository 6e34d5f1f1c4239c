//! The user plane in one core, `upf_top`: frames of N3 and N6 at once, with the settings and sessions of both GTP-U cores.

use crate::bus::{Bus, Window};
use crate::gtpu::registers::{self, address};
use crate::gtpu::session::Table;
use crate::gtpu::{Direction, Downlink, Event, SessionError, Settings, SetupError, Uplink, Width};
use crate::outcome::Marked;
use crate::simulation::Simulation;
use crate::{BusError, CoreEvent, Pressure, TwinError};

/// Addresses of the parts, by direction, and of the counters of the host's buffers (`hdl/regs.toml`).
const DECAP: u32 = 0x0000;
const ENCAP: u32 = 0x1000;
const HOST_DROPPED: u32 = 0x4018;
/// tuser of the host's stream: the event, and whose frame it is.
const EVENT: u8 = 0x1f;
const IS_ENCAP: u8 = 1 << 6;

/// A frame that the host got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// As it came.
    pub frame: Vec<u8>,
    /// Which core left it to the host: with two ports, the one that it came in by.
    pub direction: Direction,
    /// Why.
    pub event: Event,
}

/// What left of the frames of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// By N3: into tunnels.
    pub n3: Vec<Vec<u8>>,
    /// By N6: out of tunnels.
    pub n6: Vec<Vec<u8>>,
    /// To the host.
    pub host: Vec<Handed>,
}

/// The core, with two ports.
#[derive(Debug)]
pub struct UpfCore {
    simulation: Simulation,
    /// Out of tunnels, into tunnels.
    tables: [Table; 2],
}

impl UpfCore {
    /// A core of a width, after reset: without settings all is the host's.
    ///
    /// # Errors
    /// The crate was built without verilator.
    pub fn new(width: Width) -> Result<Self, TwinError> {
        let which = match width {
            Width::Bits256 => 7,
            Width::Bits512 => 8,
        };
        let simulation = Simulation::new(which, width.octets())?;
        Ok(Self { simulation, tables: [Direction::Decap, Direction::Encap].map(Table::of) })
    }

    /// Reset for some clocks. Frames in the core are lost; settings, sessions and counters are cleared.
    pub fn reset(&mut self) {
        self.simulation.reset();
        for table in &mut self.tables {
            table.is_started = false;
        }
    }

    /// Writes the settings of a direction.
    ///
    /// # Errors
    /// The core has no room for them, or refuses a write.
    pub fn configure(&mut self, direction: Direction, settings: &Settings) -> Result<(), SetupError> {
        registers::configure(&mut self.window(direction).0, settings, direction)
    }

    /// Adds a session, or changes what it does.
    ///
    /// # Errors
    /// It names what there is not, the table is full, or the bus refuses.
    pub fn put_uplink(&mut self, settings: &Settings, session: &Uplink) -> Result<(), SessionError> {
        let (key, value) = session.words(settings)?;
        let (mut window, table) = self.window(Direction::Decap);
        table.put(&mut window, &key, &value)
    }

    /// As [`UpfCore::put_uplink`].
    ///
    /// # Errors
    /// As there.
    pub fn put_downlink(&mut self, settings: &Settings, session: &Downlink) -> Result<(), SessionError> {
        let value = session.words(settings)?;
        let (mut window, table) = self.window(Direction::Encap);
        table.put(&mut window, &session.ue.key(), &value)
    }

    /// How often something became of a frame of a direction, since reset.
    ///
    /// # Errors
    /// The bus.
    pub fn counter(&mut self, direction: Direction, event: Event) -> Result<u32, BusError> {
        self.window(direction).0.read(address::EVENTS + 4 * u32::from(event.code()))
    }

    /// Frames for the host of both directions that its buffers had no room for, since reset.
    ///
    /// # Errors
    /// The bus.
    pub fn host_dropped(&mut self) -> Result<u32, BusError> {
        Ok(self.simulation.read(HOST_DROPPED)? + self.simulation.read(HOST_DROPPED + 4)?)
    }

    /// Passes frames of N3 and of N6 at once, back to back as far as `pressure` lets them.
    ///
    /// # Errors
    /// The core is stuck, breaks a rule of the bus or contradicts itself.
    pub fn run(&mut self, n3: &[Vec<u8>], n6: &[Vec<u8>], pressure: Pressure) -> Result<Passed, TwinError> {
        let [n3, n6, host] = self.simulation.run_ports([n3, n6], pressure)?;
        // Whose last beat is marked is dropped by who takes it.
        let [n3, n6] = [n3, n6]
            .map(|left| left.into_iter().filter_map(|(frame, user)| (user == 0).then_some(frame)).collect());
        let handed = |(frame, user): Marked| {
            let event = Event::of(user & EVENT)
                .ok_or_else(|| TwinError::Contradiction(format!("the host was told {user}")))?;
            let direction = if user & IS_ENCAP == 0 { Direction::Decap } else { Direction::Encap };
            Ok(Handed { frame, direction, event })
        };
        let host = host.into_iter().map(handed).collect::<Result<_, TwinError>>()?;
        Ok(Passed { n3, n6, host })
    }

    /// The registers of a direction's core, and its table.
    fn window(&mut self, direction: Direction) -> (Window<'_>, &mut Table) {
        let [decap, encap] = &mut self.tables;
        let (base, table) = match direction {
            Direction::Decap => (DECAP, decap),
            Direction::Encap => (ENCAP, encap),
        };
        (Window { simulation: &mut self.simulation, base }, table)
    }
}

#[cfg(test)]
mod tests {
    use super::{DECAP, ENCAP, HOST_DROPPED};
    use crate::map::Map;

    /// The map that the core's page is made from says the same.
    #[test]
    fn addresses_are_those_of_the_map() {
        let map = Map::of("upf_top");
        assert_eq!(map.at("decap"), (DECAP, 0));
        assert_eq!(map.at("encap"), (ENCAP, 0));
        assert_eq!(map.at("host_dropped"), (HOST_DROPPED, 4));
    }
}
