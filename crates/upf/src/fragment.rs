//! Fragments at a user plane: which are put together, which follow their first, and what is cut.
//!
//! ```text
//!   G-PDU in fragments ──▶ all pieces kept ──▶ assemble ──▶ one packet, parsed as any other
//!   user's fragments   ──▶ ports of the first piece ──▶ each piece goes on as it came
//!   packet too large   ──▶ split ──▶ fragments that fit
//! ```
//! One context store serves all workers of a node: pieces of a packet may come to different ones.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use kaido_engine::fragment::Contexts;
pub use kaido_engine::fragment::Limits;
use kaido_engine::{Frame, PortId};
use kaido_table::Seed;

use crate::key::SessionKey;

/// How fragments are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentSettings {
    /// Whether fragments are put together or followed at all. Else fragments to our tunnel endpoints are dropped, and
    /// those of users have no ports.
    pub enabled: bool,
    /// Bounds of what is kept, by the whole node.
    pub limits: Limits,
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

    /// Packets of which some fragments are kept, and wait for the rest.
    pub fn waiting(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64
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
