//! The ports that the kernel's datapath may send out of: those whose device takes redirected frames now.
//!
//! A device that takes none frees them. A veth device takes them only while its far end polls (GRO on, or an XDP program), which
//! the far end's owner may change at any time. The kernel says so of our end (`NETDEV_XDP_ACT_NDO_XMIT`). So it is asked again and
//! again, what is lost meanwhile is counted, and packets to a port that takes none are the workers'.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kaido_engine::{PortId, Routes};
use kaido_node::ports::lock;
use kaido_upf_xdp::offload::{FrameLosses, LostFrames};

use super::offload::Exit;

/// How often devices are asked: how long frames may be lost.
const PACE: Duration = Duration::from_millis(50);

/// Whether a device takes redirected frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum RedirectSupport {
    /// It was not asked.
    #[default]
    Unasked,
    Frames,
    /// None, and why.
    Nothing(String),
}

/// A port of the kernel's datapath.
#[derive(Clone, Debug, Default)]
struct RedirectPort {
    /// Its interface, where it has a program.
    exit: Option<Exit>,
    takes: RedirectSupport,
    lost: LostFrames,
}

/// By port; they change with their interfaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Exits(Arc<Mutex<Vec<RedirectPort>>>);

impl Exits {
    /// Of ports with these interfaces. Nothing is sent before [`ExitWatch::attached`].
    pub(super) fn new(exits: impl IntoIterator<Item = Option<Exit>>) -> Self {
        let place = |exit| RedirectPort { exit, ..RedirectPort::default() };
        Self(Arc::new(Mutex::new(exits.into_iter().map(place).collect())))
    }

    /// Whose devices take frames.
    #[cfg(test)]
    pub(super) fn taking(exits: impl IntoIterator<Item = Option<Exit>>) -> Self {
        let exits = Self::new(exits);
        lock(&exits.0).iter_mut().for_each(|place| place.takes = RedirectSupport::Frames);
        exits
    }

    /// The port has this interface now. Whether its device takes frames is asked anew.
    pub(super) fn set(&self, at: usize, exit: Option<Exit>) {
        if let Some(place) = lock(&self.0).get_mut(at) {
            if place.exit.map(|exit| exit.ifindex) != exit.map(|exit| exit.ifindex) {
                place.takes = RedirectSupport::Unasked;
            }
            place.exit = exit;
        }
    }

    /// The interface that the kernel sends packets of that port out of; `None` where they are the workers'.
    pub(super) fn get(&self, port: PortId) -> Option<Exit> {
        let places = lock(&self.0);
        let place = places.get(port.index())?;
        place.exit.filter(|_| place.takes == RedirectSupport::Frames)
    }

    /// Frames that the ports' devices did not take, by port.
    pub(super) fn lost(&self) -> Vec<LostFrames> {
        lock(&self.0).iter().map(|place| place.lost).collect()
    }

    /// The ports with a program that the kernel does not send out of, and why.
    pub(super) fn refusals(&self) -> Vec<(usize, String)> {
        let places = lock(&self.0);
        let refusal = |(at, place): (usize, &RedirectPort)| match (&place.exit, &place.takes) {
            (Some(_), RedirectSupport::Nothing(why)) => Some((at, why.clone())),
            _ => None,
        };
        places.iter().enumerate().filter_map(refusal).collect()
    }
}

/// What a device says of redirected frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedirectReport {
    Takes,
    TakesNone,
    /// A kernel before Linux 6.3, which does not ask drivers.
    Nothing,
}

/// Keeps the exits in step with their devices.
#[derive(Debug)]
pub(super) struct ExitWatch {
    exits: Exits,
    routes: Arc<Routes>,
    /// Names of the ports.
    names: Vec<String>,
    losses: Option<FrameLosses>,
    /// By port: what was said last, and what was lost of its interface until then.
    seen: Vec<(u32, Option<RedirectReport>, LostFrames)>,
    /// Whether all programs run behind the driver: what they redirect is sent as the kernel's own packets are.
    is_generic: bool,
    /// Whether a veth device that says nothing is trusted, as somebody asked for the kernel's datapath.
    trusts: bool,
    next: Instant,
}

impl ExitWatch {
    pub(super) fn new(
        exits: Exits,
        routes: Arc<Routes>,
        names: Vec<String>,
        losses: Option<FrameLosses>,
        trusts: bool,
    ) -> Self {
        let seen = names.iter().map(|_| (0, None, LostFrames::default())).collect();
        Self { exits, routes, names, losses, seen, is_generic: false, trusts, next: Instant::now() }
    }

    pub(super) const fn exits(&self) -> &Exits {
        &self.exits
    }

    /// The programs are on their interfaces now, all of them behind the driver or not: asks the devices.
    pub(super) fn attached(&mut self, is_generic: bool) {
        self.is_generic = is_generic;
        self.look();
    }

    /// Asks the devices, now and then.
    pub(super) fn turn(&mut self, now: Instant) {
        if now >= self.next {
            self.next = now + PACE;
            self.look();
        }
    }

    /// Asks the devices.
    fn look(&mut self) {
        let mut has_changed = false;
        let asked: Vec<Option<Exit>> = lock(&self.exits.0).iter().map(|place| place.exit).collect();
        for (at, exit) in asked.iter().enumerate() {
            let Some(exit) = exit else { continue };
            // Frames of an interface with several ports are counted by the first.
            let is_first = asked[..at].iter().flatten().all(|other| other.ifindex != exit.ifindex);
            let lost = if is_first { self.lost(at, exit.ifindex) } else { LostFrames::default() };
            let said = said(exit.ifindex);
            let is_news = self.seen[at].1.replace(said) != Some(said);
            let mut places = lock(&self.exits.0);
            let place = &mut places[at];
            if place.exit.is_none_or(|now| now.ifindex != exit.ifindex) {
                continue;
            }
            place.lost =
                LostFrames { refused: place.lost.refused + lost.refused, full: place.lost.full + lost.full };
            let takes = match self.refusal(exit, said) {
                Some(why) => RedirectSupport::Nothing(why),
                // It says that it does, and does not: it is believed again when it has said something else.
                None if lost.refused > 0 => RedirectSupport::Nothing(format!(
                    "its device has refused {} frames, though it says that it takes them; set the far end of a veth device down and \
                     up, or start the node again",
                    lost.refused
                )),
                None if !is_news && place.takes != RedirectSupport::Unasked => place.takes.clone(),
                None => RedirectSupport::Frames,
            };
            if place.takes != takes {
                has_changed = true;
                tell(&self.names[at], &takes, &place.takes);
                place.takes = takes;
            }
        }
        if has_changed {
            self.routes.links_changed();
        }
    }

    /// What was lost at an interface since it was asked last.
    fn lost(&mut self, at: usize, ifindex: u32) -> LostFrames {
        let Some(losses) = &mut self.losses else { return LostFrames::default() };
        let counted = match losses.of(ifindex) {
            Ok(counted) => counted,
            Err(error) => {
                tracing::warn!(%error, port = self.names[at], "frames lost in the kernel");
                return LostFrames::default();
            }
        };
        let (of, _, before) = &mut self.seen[at];
        let before = if std::mem::replace(of, ifindex) == ifindex {
            std::mem::replace(before, counted)
        } else {
            *before = counted;
            LostFrames::default()
        };
        LostFrames {
            refused: counted.refused.saturating_sub(before.refused),
            full: counted.full.saturating_sub(before.full),
        }
    }

    /// Why a device takes no frames, by what it says.
    fn refusal(&self, exit: &Exit, said: RedirectReport) -> Option<String> {
        if self.is_generic {
            return None;
        }
        match said {
            RedirectReport::TakesNone if exit.redirect => Some(
                "its veth device takes no redirected frames: at its other end, `ethtool -K PEER gro on`, or an XDP program".to_owned(),
            ),
            RedirectReport::TakesNone => Some("its driver takes no redirected frames".to_owned()),
            RedirectReport::Nothing if exit.redirect && !self.trusts => Some(
                "before Linux 6.3 a veth device does not tell whether it takes redirected frames: node.datapath = \"xdp\" takes it to".to_owned(),
            ),
            RedirectReport::Takes | RedirectReport::Nothing => None,
        }
    }
}

fn said(ifindex: u32) -> RedirectReport {
    match kaido_xdp::features(ifindex) {
        // Every driver with XDP can do the basic verdicts: one that can do nothing was not asked.
        Ok(features) if features == kaido_xdp::Features::default() => RedirectReport::Nothing,
        Ok(features) if features.transmit => RedirectReport::Takes,
        // Or it is gone.
        Ok(_) | Err(_) => RedirectReport::TakesNone,
    }
}

fn tell(port: &str, now: &RedirectSupport, before: &RedirectSupport) {
    match (now, before) {
        (RedirectSupport::Nothing(why), _) => {
            tracing::warn!(port, why, "the kernel's datapath does not send out of the port: the workers do");
        }
        (_, RedirectSupport::Unasked) => {}
        _ => tracing::info!(port, "the kernel's datapath sends out of the port again"),
    }
}
