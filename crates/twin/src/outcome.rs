//! What becomes of frames in a core, and what can go wrong.

/// What became of a frame, as a core counts it: what left, what was dropped and what is the host's have places of their own.
pub trait CoreEvent: Copy + std::fmt::Debug + PartialEq {
    /// Of its number.
    fn of(code: u8) -> Option<Self>;

    /// Its number.
    fn code(self) -> u8;

    /// Its name; of a drop that of the software's reason.
    fn name(self) -> &'static str;

    /// Whether the frame left for the host.
    fn is_host(self) -> bool {
        self.code() >= HOST_FROM
    }

    /// Whether the frame is gone.
    fn is_drop(self) -> bool {
        !self.is_host() && self.code() > OUT_TO
    }
}

/// The first event of a frame that is the host's.
const HOST_FROM: u8 = 16;
/// The last one of a frame that left.
const OUT_TO: u8 = 1;

macro_rules! events {
    ($(#[$of:meta])* $name:ident: $($(#[$doc:meta])* $variant:ident = $code:literal, $text:literal;)*) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant = $code,)*
        }

        impl $name {
            /// All that there are.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }

        impl $crate::CoreEvent for $name {
            fn of(code: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|event| *event as u8 == code)
            }

            fn code(self) -> u8 {
                self as u8
            }

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}
pub(crate) use events;

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

/// A frame that left, and tuser of its last beat.
pub(crate) type Marked = (Vec<u8>, u8);

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<E> {
    /// As counted.
    pub event: E,
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
    /// Beats that left by the stream of what passes.
    pub beats_out: u64,
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

/// An access that a core refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// SLVERR: not aligned, nothing there, or a value that means nothing.
    #[error("the core refused the access to {0:#05x}")]
    Refused(u32),
    /// No answer.
    #[error("the core did not answer an access to {0:#05x}")]
    NoAnswer(u32),
}
