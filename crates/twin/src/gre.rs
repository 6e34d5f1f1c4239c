//! The GRE header remover as a core: frames in, what became of each out.

#[cfg(not(cores))]
mod absent;
#[cfg(cores)]
mod simulation;

#[cfg(not(cores))]
pub use absent::GreCore;
#[cfg(cores)]
pub use simulation::GreCore;

/// A core that was verilated: its data bus and its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 256 bits; headers of the first 64 octets; 3 clocks.
    Bits256 = 0,
    /// 512 bits; headers of the first 128 octets; 3 clocks.
    Bits512 = 1,
    /// 256 bits; headers of the first 128 octets, read and judged in two clocks; 6 clocks.
    Bits256Deep = 2,
}

impl Size {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Bits256, Self::Bits512, Self::Bits256Deep];

    /// Octets of a beat.
    pub const fn octets(self) -> usize {
        match self {
            Self::Bits256 | Self::Bits256Deep => 32,
            Self::Bits512 => 64,
        }
    }

    /// Octets in which the headers must lie that the core reads.
    pub const fn window(self) -> usize {
        match self {
            Self::Bits256 => 64,
            Self::Bits512 | Self::Bits256Deep => 128,
        }
    }

    /// Clocks from a frame's first beat in to its first beat out.
    pub const fn latency_clocks(self) -> u64 {
        match self {
            Self::Bits256 | Self::Bits512 => 3,
            Self::Bits256Deep => 6,
        }
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// What became of a frame, as the core counts it. The names of drops are those of the software.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Event {
            $($(#[$doc])* $variant = $code,)*
        }

        impl Event {
            /// All that there are.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name; of a drop that of the software's reason.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

events! {
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
    /// To the host: more tags than two.
    HostTags = 16, "host_tags";
    /// To the host: IPv6 extension headers.
    HostExtension = 17, "host_extension";
    /// To the host: headers that end behind the window.
    HostDeep = 18, "host_deep";
    /// To the host: a fragment of a tunnel packet.
    HostFragment = 19, "host_fragment";
    /// To the host: GRE with a checksum.
    HostChecksum = 20, "host_checksum";
    /// To the host: forwarded by route.
    HostRoute = 21, "host_route";
    /// To the host: the rule or the policy says so.
    HostPunt = 22, "host_punt";
    /// To the host: no tunnel packet, and the host has tunnels.
    HostOther = 23, "host_other";
}

impl Event {
    /// Of its number.
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|event| *event as u8 == code)
    }

    /// Whether the frame left for the host.
    pub const fn is_host(self) -> bool {
        self as u8 >= Self::HostTags as u8
    }

    /// Whether the frame is gone.
    pub const fn is_drop(self) -> bool {
        !self.is_host() && self as u8 > Self::Stripped as u8
    }
}

/// Where a frame went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Out.
    Out(Vec<u8>),
    /// To the host.
    Host(Vec<u8>),
    /// Nowhere.
    Dropped,
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// As counted.
    pub event: Event,
    /// What left.
    pub disposition: Disposition,
}

/// Clocks of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From the first beat in to the last beat out.
    pub clocks: u64,
    /// Beats that came in.
    pub beats_in: u64,
    /// Clocks in which a beat was offered and not taken.
    pub waited: u64,
    /// Of each frame that left by either stream, in their order there: clocks from its first beat in to its first beat out.
    pub latencies: Vec<u64>,
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TwinError {
    /// Built without verilator.
    #[error("the cores were not built: verilator was not there")]
    NoCore,
    /// Nothing moves.
    #[error("the core is stuck: {0} of {1} frames have ended")]
    Stuck(usize, usize),
    /// A stream broke a rule of AXI4-Stream.
    #[error("{0}: {1}")]
    Protocol(&'static str, &'static str),
    /// Streams and events contradict each other.
    #[error("{0}")]
    Contradiction(String),
    /// An empty frame, which no stream can carry.
    #[error("an empty frame")]
    Empty,
}
