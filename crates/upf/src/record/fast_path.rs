//! What bits tell of a record: whether its packets go without any condition, and on which fast path.

/// What a record says in single bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flags(pub(super) u16);

impl Flags {
    pub(super) const UPLINK: u16 = 1 << 0;
    pub(super) const DROP: u16 = 1 << 1;
    pub(super) const FORWARD: u16 = 1 << 2;
    pub(super) const BUFFER: u16 = 1 << 3;
    pub(super) const NOTIFY_CP: u16 = 1 << 4;
    pub(super) const GATE_OPEN: u16 = 1 << 5;
    pub(super) const TUNNEL: u16 = 1 << 6;
    pub(super) const UE_IPV4: u16 = 1 << 7;
    pub(super) const UE_IPV6: u16 = 1 << 8;
    pub(super) const BUFFER_SUGGESTED: u16 = 1 << 9;
    /// Every packet is forwarded: no filter, no closed gate, nothing else to look at.
    pub(super) const FAST: u16 = 1 << 10;
    /// The record names a policer behind its counters.
    pub(super) const POLICED: u16 = 1 << 11;
    /// As [`Flags::FAST`], with one counter that has no quota, and no rate.
    pub(super) const PLAIN: u16 = 1 << 12;
    /// Forwards into a tunnel that is not known yet.
    pub(super) const NO_TUNNEL: u16 = 1 << 13;
    /// With [`Flags::FAST`], packets of one QoS flow match, and no others; without, the record has lines.
    pub(super) const QFI_MATCH: u16 = 1 << 14;
    /// One of the counters has a quota.
    pub(super) const QUOTAS: u16 = 1 << 15;

    pub(super) const fn with(self, bits: u16, set: bool) -> Self {
        Self(if set { self.0 | bits } else { self.0 })
    }

    pub(super) const fn without(self, bits: u16) -> Self {
        Self(self.0 & !bits)
    }

    #[inline]
    pub(super) const fn has(self, bits: u16) -> bool {
        self.0 & bits == bits
    }
}

/// A direction in which packets of a record go without any condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastPath(pub(super) u16);

impl FastPath {
    /// Not that way: no record's flags are all of these.
    pub(crate) const NONE: Self = Self(u16::MAX);
    /// From the UE.
    pub(crate) const UP: Self = Self(Flags::FAST | Flags::UPLINK);
    /// To the UE.
    pub(crate) const DOWN: Self = Self(Flags::FAST);
}

/// The fast path that some packets have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonPath {
    any: u16,
    all: u16,
}

impl CommonPath {
    /// Of no packets.
    pub(crate) const fn new() -> Self {
        Self { any: 0, all: u16::MAX }
    }

    /// Of one packet more.
    #[inline(always)]
    pub(crate) fn add(&mut self, FastPath(path): FastPath) {
        self.any |= path;
        self.all &= path;
    }

    /// [`FastPath::NONE`] when they have several.
    #[inline(always)]
    pub(crate) fn get(self) -> FastPath {
        if self.any == self.all { FastPath(self.any) } else { FastPath::NONE }
    }
}

/// What nearly all sessions are: IPv4 packets are simply forwarded, and counted once, or several times and held to rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommonForward {
    /// The flags that tell.
    told_by: u16,
    /// Those of them that are set.
    set: u16,
}

impl CommonForward {
    /// From a UE with an IPv4 address to where the routes lead, counted once.
    pub(crate) const SIMPLE_UP: Self = Self::of(Flags::PLAIN | Flags::UPLINK | Flags::UE_IPV4, Flags::TUNNEL);
    /// Into a tunnel to a UE, counted once.
    pub(crate) const SIMPLE_DOWN: Self = Self::of(Flags::PLAIN | Flags::TUNNEL, Flags::UPLINK);
    /// From a UE with an IPv4 address to where the routes lead, or into a LAN.
    pub(crate) const METERED_UP: Self =
        Self::of(Flags::FAST | Flags::UPLINK | Flags::UE_IPV4, Flags::TUNNEL | Flags::QFI_MATCH);
    /// Into a tunnel to a UE.
    pub(crate) const METERED_DOWN: Self =
        Self::of(Flags::FAST | Flags::TUNNEL, Flags::UPLINK | Flags::QFI_MATCH);

    const fn of(set: u16, unset: u16) -> Self {
        Self { told_by: set | unset, set }
    }

    /// Whether a record with these flags is.
    #[inline(always)]
    pub(super) const fn is(self, flags: Flags) -> bool {
        flags.0 & self.told_by == self.set
    }
}

impl Default for FastPath {
    fn default() -> Self {
        Self::NONE
    }
}
