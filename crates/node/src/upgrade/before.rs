//! The new node's side: the node that it takes over from.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use miette::{IntoDiagnostic, WrapErr, miette};

use super::channel::Channel;
use super::{FromNew, FromOld, TAKES_OVER};
use crate::takeover::Takeover;

/// How often those who wait for the other functions look whether the node stops.
const PACE: Duration = Duration::from_millis(50);

/// What the functions of the new node have said so far.
struct Progress {
    channel: Channel,
    /// Functions that are yet to have opened what they are to take over, and to be ready for it.
    awaited: [usize; 2],
    /// Whether nothing changes any more in the old node, and whether its ports are this one's.
    reached: [bool; 2],
}

/// Nothing changes any more in the old node.
const FROZEN: usize = 0;
/// Its ports are this one's.
const TAKEN: usize = 1;

/// The node that this one takes over from.
pub(crate) struct Before {
    progress: Mutex<Progress>,
    changed: Condvar,
    takeover: Arc<Takeover>,
    /// Set when the node is to stop.
    stop: Arc<AtomicBool>,
}

impl Before {
    /// The node that has started this process to be taken over by it, and what it offers; `None` where this process was started in
    /// the usual way.
    pub(crate) fn find(functions: usize, stop: &Arc<AtomicBool>) -> miette::Result<Option<Self>> {
        let told = || "the node that is to be taken over does not say what it has";
        let Some(channel) = channel().into_diagnostic().wrap_err_with(told)? else { return Ok(None) };
        Self::of(channel, functions, stop).wrap_err_with(told).map(Some)
    }

    fn of(mut channel: Channel, functions: usize, stop: &Arc<AtomicBool>) -> miette::Result<Self> {
        let (said, descriptors) = channel.receive().into_diagnostic()?;
        let FromOld::Offer { version, pid, ports } = said else { return Err(unexpected(&said)) };
        tracing::info!(
            version,
            pid,
            descriptors = descriptors.len(),
            "the node takes over from another process"
        );
        let takeover = Arc::new(Takeover::of(ports, descriptors)?);
        let progress = Progress { channel, awaited: [functions; 2], reached: [false; 2] };
        let progress = Mutex::new(progress);
        Ok(Self { progress, changed: Condvar::new(), takeover, stop: stop.clone() })
    }

    pub(crate) const fn takeover(&self) -> &Arc<Takeover> {
        &self.takeover
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has nothing change any more in the old node that is to be known here, when every function has opened what it is to take over.
    pub(crate) fn freeze(&self) -> miette::Result<()> {
        self.together(FROZEN, |progress| {
            self.takeover.check()?;
            match progress.channel.ask(&FromNew::Freeze)? {
                FromOld::Frozen => Ok(()),
                said => Err(unexpected(&said)),
            }
        })
    }

    /// Takes the ports over, when every function is ready for its own.
    pub(crate) fn take_ports(&self) -> miette::Result<()> {
        self.together(TAKEN, |progress| match progress.channel.ask(&FromNew::Leave)? {
            FromOld::Left(state) => Ok(self.takeover.take_in(state)?),
            said => Err(unexpected(&said)),
        })
    }

    /// Does something when every function wants it, which all wait for.
    fn together(
        &self,
        step: usize,
        act: impl FnOnce(&mut Progress) -> miette::Result<()>,
    ) -> miette::Result<()> {
        let mut progress = self.lock();
        progress.awaited[step] = progress.awaited[step].saturating_sub(1);
        if progress.awaited[step] == 0 {
            act(&mut progress)?;
            progress.reached[step] = true;
            self.changed.notify_all();
        }
        while !progress.reached[step] {
            if self.stop.load(Ordering::Relaxed) {
                return Err(miette!("another function of the node did not start"));
            }
            let waited = self.changed.wait_timeout(progress, PACE);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// All functions run: the old node may end, unless it has already.
    pub(crate) fn run(&self) {
        if let Err(error) = self.lock().channel.send(&FromNew::Runs, &[]) {
            tracing::warn!(%error, "the node that was taken over has ended before it was told to");
        }
    }

    /// Says why this node does not take over.
    pub(crate) fn fail(&self, why: &miette::Report) {
        tell(&mut self.lock().channel, why);
    }
}

/// The channel that this process was started with, if it was started to take over.
fn channel() -> io::Result<Option<Channel>> {
    if std::env::var_os(TAKES_OVER).is_none() {
        return Ok(None);
    }
    io::stdin().as_fd().try_clone_to_owned().map(|fd| Some(Channel::of(fd)))
}

/// Says to the node that is to be taken over, if there is one, that this process does not even know what it is to be.
pub(crate) fn fail(why: &miette::Report) {
    if let Ok(Some(mut channel)) = channel() {
        tell(&mut channel, why);
    }
}

fn tell(channel: &mut Channel, why: &miette::Report) {
    // Where it cannot be said, the end of this process says it.
    let _ = channel.send(&FromNew::Failed(format!("{why:?}")), &[]);
}

impl Channel {
    fn ask(&mut self, question: &FromNew) -> miette::Result<FromOld> {
        let asked = self.send(question, &[]).and_then(|()| self.receive());
        let (said, _) =
            asked.into_diagnostic().wrap_err("the node that is to be taken over does not answer")?;
        Ok(said)
    }
}

fn unexpected(said: &FromOld) -> miette::Report {
    match said {
        FromOld::Refused(why) => miette!("the node that is to be taken over goes on: {why}"),
        _ => miette!(
            help = "restart the node instead",
            "the node that is to be taken over is of a version that speaks otherwise"
        ),
    }
}
