//! Settings that change while the node runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::mss::MssLimit;
use super::named::{NamedSettings, Names};
use super::settings::{OuterSourcePort, UdpChecksums};
use crate::echo::EchoSettings;
use crate::extended::UeToUe;
use crate::fragment::Oversize;
use crate::marking::DscpMarking;
use crate::qos::WINDOW_DEFAULT;

/// How much waits for idle UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimits {
    /// Most packets of one session, unless its BAR suggests fewer.
    pub packets_per_session: usize,
    /// Most packets of one worker.
    pub packets_max: usize,
    /// Most bytes of packets of one session.
    pub bytes_per_session: usize,
    /// Most bytes of packets of all workers.
    pub bytes_max: u64,
    /// Longest time of a packet, unless its BAR says otherwise.
    pub time_max: Duration,
}

impl Default for BufferLimits {
    fn default() -> Self {
        Self {
            packets_per_session: 64,
            packets_max: 4096,
            bytes_per_session: 1 << 20,
            bytes_max: 64 << 20,
            time_max: Duration::from_secs(10),
        }
    }
}

/// How packets into tunnels are made. Workers and the kernel's datapath make templates of it, which are few and made anew when it
/// changes: records of sessions say nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelSettings {
    /// Choice of the outer source port.
    pub source_port: OuterSourcePort,
    /// How the ToS or Traffic Class octet of outer headers is made, and what becomes of it.
    pub marking: DscpMarking,
    /// Whether outer UDP checksums are computed or zero.
    pub udp_checksums: UdpChecksums,
}

/// What may change while the node runs. What packets of the fast path need of it, workers have made ready beforehand; where records
/// of sessions are made of it, they are compiled anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSettings {
    /// How much waits for idle UEs.
    pub buffer: BufferLimits,
    /// User plane inactivity timer of sessions whose control plane gives none.
    pub inactivity_timer: Option<Duration>,
    /// Depth of the token buckets of QERs without averaging window, as a time at their rate.
    pub policer_window: Duration,
    /// Error indications, ICMP errors and other answers to senders, per second and worker, of each kind.
    pub answers_per_second: u32,
    /// What becomes of packets that are too large for their way.
    pub oversize: Oversize,
    /// GTP-U path management. Whether there is any does not change.
    pub echo: EchoSettings,
    /// Packets into tunnels, and out of them.
    pub tunnels: Arc<TunnelSettings>,
    /// Largest TCP segments that may be announced, both ways.
    pub mss_clamp: Option<MssLimit>,
    /// Uplink G-PDUs of a session are taken only from the gNBs into whose tunnels its downlink goes. Records say which these are.
    pub bind_gnb: bool,
    /// What becomes of packets from UE to UE. Whether they go by the routes does not change.
    pub ue_to_ue: UeToUe,
    /// What control planes may name.
    pub named: Arc<NamedSettings>,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            buffer: BufferLimits::default(),
            inactivity_timer: None,
            policer_window: WINDOW_DEFAULT,
            answers_per_second: 100,
            oversize: Oversize::default(),
            echo: EchoSettings::default(),
            tunnels: Arc::default(),
            mss_clamp: None,
            bind_gnb: false,
            ue_to_ue: UeToUe::default(),
            named: Arc::default(),
        }
    }
}

/// The settings of now, which workers keep a copy of in their [`NodeSettings`](super::NodeSettings).
#[derive(Debug)]
pub(crate) struct Live {
    current: Mutex<Current>,
    /// Moves when they change.
    generation: AtomicU64,
}

#[derive(Debug)]
struct Current {
    settings: LiveSettings,
    /// What they name, and what they have named.
    names: Arc<Names>,
}

impl Live {
    pub(crate) fn new(settings: LiveSettings) -> Self {
        let names = Arc::new(Names::new(Arc::clone(&settings.named)));
        Self { current: Mutex::new(Current { settings, names }), generation: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> LiveSettings {
        self.lock().settings.clone()
    }

    /// What control planes may name, and may have named.
    pub(crate) fn names(&self) -> Arc<Names> {
        Arc::clone(&self.lock().names)
    }

    pub(crate) fn set(&self, settings: LiveSettings) {
        let mut current = self.lock();
        if settings.named != current.settings.named {
            current.names = Arc::new(current.names.followed_by(Arc::clone(&settings.named)));
        }
        current.settings = settings;
        // Relaxed: who sees it reads the settings under the lock.
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// The settings of now, where they have changed since that generation, which becomes theirs.
    #[inline]
    pub(crate) fn newer_than(&self, generation: &mut u64) -> Option<LiveSettings> {
        if self.generation.load(Ordering::Relaxed) == *generation {
            return None;
        }
        Some(self.get_with(generation))
    }

    #[cold]
    fn get_with(&self, generation: &mut u64) -> LiveSettings {
        let current = self.lock();
        *generation = self.generation.load(Ordering::Relaxed);
        current.settings.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_once() {
        let live = Live::new(LiveSettings::default());
        let mut generation = 0;
        assert_eq!(live.newer_than(&mut generation), None);
        let other = LiveSettings { answers_per_second: 7, ..live.get() };
        live.set(other.clone());
        assert_eq!(live.newer_than(&mut generation), Some(other.clone()));
        assert_eq!((live.newer_than(&mut generation), live.get()), (None, other));
    }
}
