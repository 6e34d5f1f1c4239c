//! Devices in memory, to try things with: what a run sends goes through one and comes back in the same thread.

mod upf;

use kaido_bench::oracle::Bearers;
use kaido_engine::port::MemoryWire;
use serde::Deserialize;

use upf::UserPlane;

/// What the ports in memory are joined to.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum DeviceSpec {
    /// Cables between pairs of ports.
    Cables(Vec<(String, String)>),
    /// A user plane function with the sessions of some bearers.
    Upf(Box<Bearers>),
}

/// A device.
pub(crate) enum Device {
    /// Cables between wires, by their numbers.
    Cables(Vec<(usize, usize)>),
    /// A user plane, and the numbers of the wires on its two sides.
    Upf(Box<UserPlane>, [usize; 2]),
}

impl Device {
    /// A device for ports with these names.
    pub(crate) fn new(spec: &DeviceSpec, ports: &[String]) -> Result<Self, String> {
        let place = |name: &String| {
            ports
                .iter()
                .position(|port| port == name)
                .ok_or_else(|| format!("device: there is no port `{name}`"))
        };
        match spec {
            DeviceSpec::Cables(cables) => {
                let ends = cables.iter().map(|(one, other)| Ok((place(one)?, place(other)?)));
                Ok(Self::Cables(ends.collect::<Result<_, String>>()?))
            }
            DeviceSpec::Upf(bearers) => {
                let sides = [place(&bearers.access.port)?, place(&bearers.core.port)?];
                Ok(Self::Upf(Box::new(UserPlane::new(bearers)?), sides))
            }
        }
    }

    /// Carries what was sent into the wires to where it comes out.
    pub(crate) fn carry(&mut self, wires: &[MemoryWire]) {
        match self {
            Self::Cables(cables) => {
                for &(one, other) in &*cables {
                    for (from, to) in [(one, other), (other, one)] {
                        // A cable has no queue: what its far end has no room for is lost.
                        while let Some(frame) = wires[from].receive() {
                            let _ = wires[to].send(frame);
                        }
                    }
                }
            }
            Self::Upf(user_plane, sides) => user_plane.carry([&wires[sides[0]], &wires[sides[1]]]),
        }
    }
}
