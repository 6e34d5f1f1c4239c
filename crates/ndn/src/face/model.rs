//! A face, as all parts of the node see it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use std::net::SocketAddr;

use kaido_engine::PortId;
use kaido_ndn_tables::{Account, FaceId};
use kaido_wire::MacAddr;

use super::{FaceCounters, FaceTotals, FaceUri};
use crate::reliability::Reliability;

/// Who is at the other end: what begins with `/localhost` stays within the local scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Another host.
    NonLocal,
    /// An application of this host, or the node itself.
    Local,
}

impl Scope {
    /// Its number in the management protocol.
    pub const fn code(self) -> u64 {
        match self {
            Self::NonLocal => 0,
            Self::Local => 1,
        }
    }
}

/// When a face goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistency {
    /// When its connection does, or it was idle for long: made by what came in.
    OnDemand,
    /// When its connection fails.
    Persistent,
    /// When it is told to; failures are overcome.
    Permanent,
}

impl Persistency {
    /// Its number in the management protocol.
    pub const fn code(self) -> u64 {
        match self {
            Self::Persistent => 0,
            Self::OnDemand => 1,
            Self::Permanent => 2,
        }
    }

    /// What a number of the management protocol stands for.
    pub const fn from_code(code: u64) -> Option<Self> {
        match code {
            0 => Some(Self::Persistent),
            1 => Some(Self::OnDemand),
            2 => Some(Self::Permanent),
            _ => None,
        }
    }
}

/// How many are at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// One.
    PointToPoint,
    /// Many, who hear one another.
    MultiAccess,
}

impl LinkType {
    /// Its number in the management protocol.
    pub const fn code(self) -> u64 {
        match self {
            Self::PointToPoint => 0,
            Self::MultiAccess => 1,
        }
    }
}

/// Whether a face can send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaceState {
    /// It can.
    Up,
    /// Its connection is lost, or not there yet.
    Down,
}

/// Through what a face sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Nothing: packets for the node itself.
    Internal,
    /// A socket of the host port.
    Host {
        /// The host port.
        port: PortId,
    },
    /// Ethernet frames of type 0x8624.
    Ethernet {
        /// Through which port of the engine.
        port: PortId,
        /// Our address.
        local: MacAddr,
        /// Theirs, or a group's.
        remote: MacAddr,
        /// In which VLAN.
        vlan: Option<u16>,
    },
    /// Datagrams of UDP in frames of a port of the engine.
    Udp {
        /// The port whose address ours is.
        port: PortId,
        /// Our address.
        local: SocketAddr,
        /// Theirs.
        remote: SocketAddr,
    },
}

/// Applications may say where an Interest is to go and hear where Data came from.
pub const FLAG_LOCAL_FIELDS: u8 = 1;
/// Packets of the link are acknowledged and sent again (NDNLPv2 reliability): both ends must have it.
pub const FLAG_RELIABILITY: u8 = 2;
/// A long queue is told by a congestion mark.
pub const FLAG_CONGESTION_MARKING: u8 = 4;

/// What a face is made of.
#[derive(Clone, Debug)]
pub struct FaceSettings {
    /// The other end.
    pub remote: FaceUri,
    /// This end.
    pub local: FaceUri,
    /// Who is there.
    pub scope: Scope,
    /// When it goes.
    pub persistency: Persistency,
    /// How many are there.
    pub link_type: LinkType,
    /// Octets of a packet of the link, at most.
    pub mtu: u16,
    /// `FLAG_...`.
    pub flags: u8,
    /// Through what it sends.
    pub transport: Transport,
}

/// A face of the node.
#[derive(Debug)]
pub struct Face {
    id: FaceId,
    settings: FaceSettings,
    account: Account,
    mtu: AtomicU32,
    flags: AtomicU8,
    persistency: AtomicU8,
    is_down: AtomicBool,
    /// Octets that wait to be sent.
    backlog: AtomicU32,
    /// The sequence number of the next packet of the link.
    sequence: AtomicU64,
    /// By worker.
    counters: Box<[FaceCounters]>,
    /// What reliability keeps, from when it is first asked for. It is of all workers: what one sends another may hear
    /// acknowledged.
    reliability: OnceLock<Box<Mutex<Reliability>>>,
}

// What is kept in atomics is one value each, that no other memory depends on: relaxed is enough everywhere.
impl Face {
    /// A face that so many workers count at.
    pub(super) fn new(
        id: FaceId,
        settings: FaceSettings,
        account: Account,
        sequence: u64,
        workers: usize,
    ) -> Self {
        Self {
            id,
            mtu: AtomicU32::new(settings.mtu.into()),
            flags: AtomicU8::new(settings.flags),
            persistency: AtomicU8::new(settings.persistency as u8),
            is_down: AtomicBool::new(false),
            backlog: AtomicU32::new(0),
            sequence: AtomicU64::new(sequence),
            counters: (0..workers.max(1)).map(|_| FaceCounters::default()).collect(),
            reliability: OnceLock::new(),
            account,
            settings,
        }
    }

    /// Its number.
    pub fn id(&self) -> FaceId {
        self.id
    }

    /// The account that its waiting Interests are counted in.
    #[inline]
    pub fn account(&self) -> Account {
        self.account
    }

    /// What it was made of.
    pub(super) fn settings(&self) -> &FaceSettings {
        &self.settings
    }

    /// The other end.
    pub fn remote(&self) -> &FaceUri {
        &self.settings.remote
    }

    /// This end.
    pub fn local(&self) -> &FaceUri {
        &self.settings.local
    }

    /// Who is there.
    #[inline]
    pub fn scope(&self) -> Scope {
        self.settings.scope
    }

    /// How many are there.
    #[inline]
    pub fn link_type(&self) -> LinkType {
        self.settings.link_type
    }

    /// Through what it sends.
    #[inline]
    pub fn transport(&self) -> &Transport {
        &self.settings.transport
    }

    /// When it goes.
    pub fn persistency(&self) -> Persistency {
        match self.persistency.load(Ordering::Relaxed) {
            0 => Persistency::OnDemand,
            1 => Persistency::Persistent,
            _ => Persistency::Permanent,
        }
    }

    /// Changes when it goes.
    pub fn set_persistency(&self, persistency: Persistency) {
        self.persistency.store(persistency as u8, Ordering::Relaxed);
    }

    /// Octets of a packet of the link, at most.
    #[inline]
    pub fn mtu(&self) -> usize {
        self.mtu.load(Ordering::Relaxed) as usize
    }

    /// Sets the octets of a packet of the link, up to what the face was made with.
    pub fn set_mtu(&self, mtu: u16) {
        self.mtu.store(mtu.clamp(MTU_MIN, self.settings.mtu.max(MTU_MIN)).into(), Ordering::Relaxed);
    }

    /// `FLAG_...`.
    #[inline]
    pub fn flags(&self) -> u8 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets the flags of `mask` to those of `flags`.
    pub fn set_flags(&self, flags: u8, mask: u8) {
        let set = |old: u8| Some(old & !mask | flags & mask);
        let _ = self.flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
        if self.flags() & FLAG_RELIABILITY == 0
            && let Some(state) = self.reliability.get()
        {
            state.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// What reliability keeps, where it is asked for.
    pub(crate) fn reliability(&self) -> Option<MutexGuard<'_, Reliability>> {
        if self.flags() & FLAG_RELIABILITY == 0 {
            return None;
        }
        let first = self.sequence.load(Ordering::Relaxed);
        let state = self.reliability.get_or_init(|| Box::new(Mutex::new(Reliability::new(first))));
        Some(state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it can send.
    #[inline]
    pub fn state(&self) -> FaceState {
        if self.is_down.load(Ordering::Relaxed) { FaceState::Down } else { FaceState::Up }
    }

    /// Sets whether it can send; whether that is new.
    pub(super) fn set_state(&self, state: FaceState) -> bool {
        let is_down = state == FaceState::Down;
        self.is_down.swap(is_down, Ordering::Relaxed) != is_down
    }

    /// Octets that wait to be sent.
    #[inline]
    pub fn backlog(&self) -> u32 {
        self.backlog.load(Ordering::Relaxed)
    }

    /// Says how many octets wait to be sent.
    #[inline]
    pub fn set_backlog(&self, octets: usize) {
        self.backlog.store(u32::try_from(octets).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Takes as many sequence numbers of the link as a packet has fragments; the first of them.
    pub(crate) fn take_sequences(&self, fragments: u64) -> u64 {
        self.sequence.fetch_add(fragments, Ordering::Relaxed)
    }

    /// Where a worker counts what goes through it.
    #[inline]
    pub(crate) fn counters(&self, worker: usize) -> &FaceCounters {
        // More workers than the table was made for share counters, which are right all the same.
        &self.counters[worker % self.counters.len()]
    }

    /// What has gone through it.
    pub fn totals(&self) -> FaceTotals {
        let mut totals = FaceTotals::default();
        for counters in &self.counters {
            totals.received += counters.received.totals();
            totals.sent += counters.sent.totals();
        }
        totals
    }
}

/// The smallest MTU a face may have: below it, headers leave no room for content.
pub const MTU_MIN: u16 = 64;
