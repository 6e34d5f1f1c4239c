//! When each side of a stream is ready, by a seed.

/// Back-pressure and gaps: how often, of 256 clocks, a side waits.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    state: u64,
    /// No beat is offered.
    pub gaps: u8,
    /// The taker of what passes is not ready.
    pub out_waits: u8,
    /// The host is not ready.
    pub host_waits: u8,
}

impl Pressure {
    /// None: a beat is offered and taken each clock.
    pub const NONE: Self = Self { state: 1, gaps: 0, out_waits: 0, host_waits: 0 };

    /// Some of each, by a seed.
    pub fn seeded(seed: u64) -> Self {
        let mut pressure = Self { state: seed | 1, ..Self::NONE };
        for _ in 0..4 {
            pressure.next();
        }
        // A third of all runs has none of a kind, so that all mixes come.
        let mut rate = || match pressure.next() {
            value if value < 85 => 0,
            value => value,
        };
        let (gaps, out_waits, host_waits) = (rate().min(240), rate().min(240), rate().min(240));
        Self { gaps, out_waits, host_waits, ..pressure }
    }

    /// Xorshift (Marsaglia 2003), its upper octet.
    fn next(&mut self) -> u8 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.to_be_bytes()[0]
    }

    /// Whether a beat is offered, and whether what passes and what the host gets are taken, in the next clock.
    #[cfg_attr(not(cores), allow(dead_code))]
    pub(crate) fn clock(&mut self) -> (bool, bool, bool) {
        let Self { gaps, out_waits, host_waits, .. } = *self;
        let mut goes = |rate: u8| rate == 0 || self.next() >= rate;
        (goes(gaps), goes(out_waits), goes(host_waits))
    }
}
