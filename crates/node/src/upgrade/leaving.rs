//! The old node's side: it starts the process that is to take over, and leaves what that one asks for.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::{FAILED_UPGRADE, FromNew, FromOld, HandOver, Stage, TAKES_OVER};
use crate::api::UpgradeState;
use crate::http::Door;
use crate::sandbox;
use crate::takeover::Takeover;

/// How long a function may take to bring what it knows to the store.
const FREEZE_MAX: Duration = Duration::from_secs(60);
/// How long its workers may take to stop.
const LEAVE_MAX: Duration = Duration::from_secs(10);
/// How long the new node may say nothing: it reads the store meanwhile.
const PATIENCE: Duration = Duration::from_secs(600);

/// How an upgrade is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// There is none.
    #[default]
    None,
    /// Another process is about to take over.
    Runs,
    /// It did not, and why.
    Failed(String),
    /// It did not when ports were left already: this process is to begin anew.
    Restart(String),
    /// It has: this one is to end.
    Done {
        /// The other process.
        pid: u32,
    },
}

/// What is needed to leave a node.
#[derive(Clone)]
pub(crate) struct Leaving {
    state: Arc<Mutex<Upgrade>>,
    takeover: Arc<Takeover>,
    /// By function.
    functions: Vec<HandOver>,
    /// Where questions come in.
    door: Door,
    stop: Arc<AtomicBool>,
}

impl Leaving {
    pub(crate) fn new(
        takeover: Arc<Takeover>,
        functions: Vec<HandOver>,
        door: Door,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let failed = std::env::var(FAILED_UPGRADE).ok();
        let state = failed.map_or(Upgrade::None, Upgrade::Failed);
        Self { state: Arc::new(Mutex::new(state)), takeover, functions, door, stop }
    }

    /// How it is.
    pub(crate) fn state(&self) -> Upgrade {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether another process is about to take over.
    pub(crate) fn is_busy(&self) -> bool {
        !matches!(self.state(), Upgrade::None | Upgrade::Failed(_))
    }

    /// The same as it is shown.
    pub(crate) fn shown(&self) -> UpgradeState {
        let (runs, failed) = match self.state() {
            Upgrade::None => (false, None),
            Upgrade::Runs | Upgrade::Done { .. } => (true, None),
            Upgrade::Failed(why) => (false, Some(why)),
            Upgrade::Restart(why) => (true, Some(why)),
        };
        UpgradeState { pid: std::process::id(), version: env!("CARGO_PKG_VERSION").to_owned(), runs, failed }
    }

    fn set(&self, state: Upgrade) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Begins: another program takes over, with the arguments that this one was started with.
    ///
    /// # Errors
    /// While one is about to, or where no thread can be had.
    pub(crate) fn begin(&self, program: PathBuf) -> Result<(), String> {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if matches!(*state, Upgrade::Runs | Upgrade::Done { .. }) {
                return Err("another process is about to take over already".to_owned());
            }
            *state = Upgrade::Runs;
        }
        let leaving = self.clone();
        let thread = std::thread::Builder::new().name("upgrade".to_owned());
        let started = thread.spawn(move || {
            tracing::info!(program = %program.display(), "another process takes over");
            match leaving.hand_over(&program) {
                Ok(pid) => {
                    tracing::info!(pid, "another process has taken over: this one ends");
                    leaving.stop.store(true, Ordering::Relaxed);
                }
                Err(why) if leaving.has_left() => {
                    tracing::error!(%why, "no other process takes over: this one starts anew");
                    leaving.set(Upgrade::Restart(why));
                    leaving.functions.iter().for_each(|function| function.set(Stage::Restart));
                    leaving.stop.store(true, Ordering::Relaxed);
                }
                Err(why) => {
                    tracing::error!(%why, "no other process takes over: this one goes on");
                    leaving.thaw();
                    leaving.set(Upgrade::Failed(why));
                }
            }
        });
        started.map(|_| ()).map_err(|error| {
            self.set(Upgrade::None);
            error.to_string()
        })
    }

    fn hand_over(&self, program: &PathBuf) -> Result<u32, String> {
        let (ports, descriptors) = self.takeover.offer().map_err(|error| error.to_string())?;
        let (mut channel, other) = Channel::pair().map_err(|error| error.to_string())?;
        let fault = |error: std::io::Error| format!("{}: {error}", program.display());
        let mut child = Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(TAKES_OVER, "1")
            .envs(sandbox::for_next())
            .env_remove(FAILED_UPGRADE)
            .stdin(Stdio::from(other))
            .spawn()
            .map_err(fault)?;
        let offer =
            FromOld::Offer { version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id(), ports };
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let handed = channel
            .set_patience(Some(PATIENCE))
            .and_then(|()| channel.send(&offer, &descriptors))
            .map_err(|_| None)
            .and_then(|()| self.serve(&mut channel));
        let handed = handed.map_err(|why| why.unwrap_or_else(|| ended(&mut child)));
        match handed {
            Ok(()) => {
                // Before functions end: how they end is by then what this one ends for.
                self.set(Upgrade::Done { pid: child.id() });
                self.functions.iter().for_each(|function| function.set(Stage::Gone));
                Ok(child.id())
            }
            Err(why) => {
                end(&mut child);
                Err(why)
            }
        }
    }

    /// Does what the new node asks for, until it runs; why it does not, unless it does not say anything any more.
    fn serve(&self, channel: &mut Channel) -> Result<(), Option<String>> {
        loop {
            let (said, _) = channel.receive().map_err(|_| None)?;
            let answer = match said {
                FromNew::Freeze => {
                    self.bring(Stage::Freeze, Stage::Frozen, FREEZE_MAX).map(|()| FromOld::Frozen)
                }
                FromNew::Leave => self.leave(),
                FromNew::Runs => return Ok(()),
                FromNew::Failed(why) => return Err(Some(why)),
            };
            let answer = answer.unwrap_or_else(FromOld::Refused);
            channel.send(&answer, &[]).map_err(|_| None)?;
            if let FromOld::Refused(why) = answer {
                return Err(Some(why));
            }
        }
    }

    /// Has all functions come from one stage to another.
    fn bring(&self, wanted: Stage, reached: Stage, patience: Duration) -> Result<(), String> {
        self.functions.iter().for_each(|function| function.set(wanted));
        let lives = || !self.stop.load(Ordering::Relaxed);
        let all = self.functions.iter().all(|function| function.wait(reached, patience, lives));
        if all { Ok(()) } else { Err(format!("a function does not come from {wanted:?} to {reached:?}")) }
    }

    fn leave(&self) -> Result<FromOld, String> {
        // Who connects from here on is the next process's. Who is being answered still asks the functions, which do not answer any
        // more once they leave.
        self.door.close();
        self.bring(Stage::Leave, Stage::Left, LEAVE_MAX)?;
        let state = self.takeover.states().map_err(|error| error.to_string())?;
        // Nobody looks at them any more here.
        tracing::debug!(frames = self.takeover.frames_in_use(&state), "packets that waited are given up");
        Ok(FromOld::Left(state))
    }

    /// Whether a function has left its ports, or is about to.
    fn has_left(&self) -> bool {
        self.functions.iter().any(|function| matches!(function.stage(), Stage::Leave | Stage::Left))
    }

    /// Has functions that are frozen go on.
    fn thaw(&self) {
        let frozen = self.functions.iter().filter(|function| function.stage() != Stage::Runs);
        frozen.for_each(|function| function.set(Stage::Thaw));
    }
}

/// Why a process says nothing any more.
fn ended(child: &mut Child) -> String {
    const SOON: Duration = Duration::from_secs(1);
    let began = Instant::now();
    while began.elapsed() < SOON {
        if let Ok(Some(status)) = child.try_wait() {
            return format!("the new process has ended ({status}); what it wrote to the log says why");
        }
        std::thread::sleep(SOON / 100);
    }
    "the new process does not go on".to_owned()
}

/// Ends a process that did not take over.
fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}
