//! Names below random routes, and packets of them.

use kaido_engine::{Frame, PoolCache};
use kaido_table::Seed;
use kaido_wire::ndn::{DataRepr, InterestRepr, Name};

use crate::Failure;

/// A name with a route, from its number.
pub(crate) struct Names {
    seed: Seed,
    prefixes: u32,
}

impl Names {
    /// Below so many routes.
    pub(crate) fn new(prefixes: u32) -> Self {
        Self { seed: Seed::random(), prefixes }
    }

    /// Writes the name of a route.
    pub(crate) fn prefix(&self, number: u32, name: &mut Vec<u8>) {
        name.clear();
        // Half of the routes have three components, and so on: as names of organisations, places and services are nested.
        let more = match number % 20 {
            0..2 => 0,
            2..10 => 1,
            10..17 => 2,
            _ => 3,
        };
        component(name, &["com", "net", "org", "jp"][number as usize % 4].bytes().collect::<Vec<_>>());
        let group = self.seed.hash(&(number / 16)).to_le_bytes();
        component(name, &hex(&group[..3]));
        for level in 0..more {
            let own = self.seed.hash(&(u64::from(number) << 8 | level)).to_le_bytes();
            component(name, &hex(&own[..4]));
        }
        if more == 0 {
            component(name, &number.to_be_bytes());
        }
    }

    /// The Interest of this number.
    pub(crate) fn interest(
        &self,
        number: u64,
        name: &mut Vec<u8>,
        cache: &mut PoolCache,
    ) -> Result<Frame, Failure> {
        self.packet(number, name);
        let nonce = Some(u32::try_from(number & 0xffff_ffff)?);
        let name = Name::new(name)?;
        let repr = InterestRepr { name, nonce, hop_limit: Some(32), ..InterestRepr::default() };
        let mut frame = cache.allocate().ok_or("no frame")?;
        repr.emit(frame.append(repr.len()).ok_or("too long")?)?;
        Ok(frame)
    }

    /// Its Data, with a digest in the place of a signature, which would cost more to make than to forward.
    pub(crate) fn data(
        &self,
        number: u64,
        content: &[u8],
        name: &mut Vec<u8>,
        cache: &mut PoolCache,
    ) -> Result<Frame, Failure> {
        self.packet(number, name);
        let name = Name::new(name)?;
        let repr = DataRepr { name, content, freshness_ms: 1000, ..DataRepr::default() };
        let mut frame = cache.allocate().ok_or("no frame")?;
        repr.emit(frame.append(repr.len()).ok_or("too long")?)?;
        Ok(frame)
    }

    /// Writes the name of the packet of this number.
    fn packet(&self, number: u64, name: &mut Vec<u8>) {
        let route = (u128::from(self.seed.hash(&number)) * u128::from(self.prefixes)) >> 64;
        self.prefix(u32::try_from(route).unwrap_or(0), name);
        component(name, &hex(&number.to_be_bytes()[3..]));
        component(name, &[0]);
    }
}

fn component(name: &mut Vec<u8>, value: &[u8]) {
    name.extend([8, u8::try_from(value.len()).unwrap_or(0)]);
    name.extend(value);
}

fn hex(octets: &[u8]) -> Vec<u8> {
    octets
        .iter()
        .flat_map(|octet| [octet >> 4, octet & 15])
        .map(|digit| b"0123456789abcdef"[usize::from(digit)])
        .collect()
}
