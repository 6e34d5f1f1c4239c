//! Goals of the project, which reports hold figures against.

/// Nanoseconds a packet at one session.
pub const ONE_SESSION_NS: f64 = 25.0;
/// Multiple of the memory's floor for the cold lines of a packet.
pub const FLOOR_FACTOR: f64 = 1.5;
/// Page faults in all rounds beyond which nothing is said to be met: a few come from the clock and the kernel, each
/// costs as much as a hundred lines.
pub const PAGE_FAULTS_MAX: u64 = 100;
/// Cold lines a packet.
pub const COLD_LINES: usize = 4;
/// Times that a map chain is slower at a million sessions.
pub const CHAIN_FACTOR: f64 = 10.0;
/// The same of sessions with more rules, which the chain follows too.
pub const CHAIN_FACTOR_OF_SHAPES: f64 = 5.0;
/// Bytes resident with [`RESIDENT_SESSIONS`].
pub const RESIDENT_BYTES: u64 = 8 << 30;
/// Sessions for that.
pub const RESIDENT_SESSIONS: u32 = 16_640_000;
/// Sessions from which on bytes a session are held against their goal.
pub const MANY_SESSIONS: u32 = 1 << 20;
/// Replacements a second by one writer while a reader runs.
pub const REPLACES_PER_SECOND: f64 = 1e6;
