//! Fragments of IP packets (RFC 791, RFC 8200 4.5): put together, followed, and made.
//!
//! ```text
//!   G-PDU in fragments ──▶ Contexts: all pieces kept ──▶ assemble ──▶ one packet, parsed as any other
//!   user's fragments   ──▶ Contexts: ports of the first piece ──▶ each piece goes on as it came
//!   packet too large   ──▶ split ──▶ fragments that fit
//! ```
//! `Contexts` knows offsets, bounds and times and nothing of packets, so that it can be tested against a model. One
//! serves all workers of a node: pieces of a packet may come to different ones.

mod assemble;
mod contexts;
mod split;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use kaido_engine::{Frame, PortId};
use kaido_table::Seed;
use kaido_wire::{IpProtocol, ipv4, ipv6};

pub(crate) use self::assemble::assemble;
pub use self::contexts::Limits;
pub(crate) use self::contexts::{Contexts, FragmentKey, Outcome, Passing, Place};
pub(crate) use self::split::{SplitFault, split, split_v4_allowed};
use crate::record::SessionKey;

/// How fragments are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentSettings {
    /// Whether fragments are put together or followed at all. Else fragments to our tunnel endpoints are dropped, and
    /// those of users have no ports.
    pub enabled: bool,
    /// Bounds of what is kept, by the whole node.
    pub limits: Limits,
    /// What becomes of a packet that is larger than its way allows.
    pub oversize: Oversize,
}

/// What becomes of a packet that, with its tunnel's headers, is larger than the link takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oversize {
    /// It is dropped. Its sender is told, unless it is of IPv4 and may be fragmented.
    #[default]
    Icmp,
    /// The packet in the tunnel is fragmented where that is allowed (IPv4 without DF), else as [`Oversize::Icmp`].
    FragmentInner,
    /// The tunnel's own packet is fragmented, whatever is in it. Without a tunnel as [`Oversize::FragmentInner`].
    FragmentOuter,
}

/// A fragment that is kept: its IP header is at the front.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) frame: Frame,
    /// Where it came in.
    pub(crate) from: PortId,
    /// By what its session is found again, of a user's packet.
    pub(crate) key: SessionKey,
    /// QFI it came with.
    pub(crate) qfi: Option<u8>,
    /// Octets before the fragment's data.
    pub(crate) header_len: usize,
}

/// What the headers of a fragment say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// Zero for IPv6, where the pieces need not agree in it.
    pub(crate) protocol: u8,
    pub(crate) identification: u32,
    /// Octets before its data.
    pub(crate) header_len: usize,
}

impl Found {
    /// Reads the fragment that `first` begins with; `None` for what is none.
    pub(crate) fn read(first: &[u8]) -> Option<Self> {
        match first.first()? >> 4 {
            4 => {
                let header = ipv4::header_within(first, usize::MAX).ok()?;
                let fragment = header.fragment?;
                let header_len = usize::from(header.header_len);
                let len = u32::from(header.total_len) - u32::from(header.header_len);
                Some(Self {
                    place: Place { offset: fragment.offset.into(), len, more: fragment.more },
                    src: header.src.into(),
                    dst: header.dst.into(),
                    protocol: header.protocol.0,
                    identification: fragment.identification,
                    header_len,
                })
            }
            6 => {
                let header = ipv6::header_within(first, usize::MAX).ok()?;
                let fragment = header.fragment.filter(|fragment| !fragment.is_whole())?;
                let header_len = fragment_header_at(first)? + FRAGMENT_HEADER_LEN;
                let len = header.total_len.checked_sub(u32::try_from(header_len).ok()?)?;
                Some(Self {
                    place: Place { offset: fragment.offset.into(), len, more: fragment.more },
                    src: header.src.into(),
                    dst: header.dst.into(),
                    protocol: 0,
                    identification: fragment.identification,
                    header_len,
                })
            }
            _ => None,
        }
    }

    /// The key of its packet, within `scope`.
    pub(crate) const fn key(&self, scope: u64) -> FragmentKey {
        let Self { src, dst, protocol, identification, .. } = *self;
        FragmentKey { scope, src, dst, protocol, identification }
    }
}

/// Octets of an IPv6 fragment header (RFC 8200 4.5).
const FRAGMENT_HEADER_LEN: usize = 8;

/// Where the fragment header of an IPv6 packet is, whose headers were found to be in good order.
fn fragment_header_at(packet: &[u8]) -> Option<usize> {
    let (mut kind, mut at) = (*packet.get(6)?, ipv6::HEADER_LEN);
    while IpProtocol(kind) != IpProtocol::FRAGMENT {
        let [next, len] = *packet.get(at..)?.first_chunk::<2>()?;
        at += match IpProtocol(kind) {
            IpProtocol::AH => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * 8,
        };
        kind = next;
    }
    Some(at)
}

/// What the workers of a node share of fragments.
#[derive(Debug)]
pub struct Fragments {
    /// Those that are kept, if any are.
    kept: Option<Mutex<Contexts<Piece>>>,
    /// How many packets they are of, to look at without the lock.
    count: AtomicUsize,
    /// Identification of the last packet that was cut here. It begins anywhere, and no two are alike for long (RFC 6864).
    identification: AtomicU32,
}

impl Fragments {
    pub(crate) fn new(settings: &FragmentSettings) -> Self {
        #[allow(clippy::cast_possible_truncation)] // As many bits as are needed.
        let first = Seed::random().hash(&0u64) as u32;
        Self {
            kept: settings.enabled.then(|| Mutex::new(Contexts::new(settings.limits))),
            count: AtomicUsize::new(0),
            identification: AtomicU32::new(first),
        }
    }

    /// Does something with those that are kept; `None` if none are to be.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Contexts<Piece>) -> T) -> Option<T> {
        let mut contexts = self.kept.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut contexts);
        // Relaxed: only whether there is something to look for, found out under the lock.
        self.count.store(contexts.len(), Ordering::Relaxed);
        Some(result)
    }

    /// Whether fragments are kept.
    pub(crate) const fn is_enabled(&self) -> bool {
        self.kept.is_some()
    }

    /// Whether nothing is kept now.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The identification of another packet.
    pub(crate) fn identification(&self) -> u32 {
        self.identification.fetch_add(1, Ordering::Relaxed)
    }
}
