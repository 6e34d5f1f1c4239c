//! A thread that asks the node, so that keys are heard while it does not answer.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kaido_node::api::{Drop, Drops, GetNode, ListDrops, Status};
use kaido_node::listing::{Listing, ListingPage};
use kaido_node::show::ask;
use miette::miette;

/// Rows of a list that are asked for.
const ROWS_MAX: usize = 1000;
/// Looks that may wait to be drawn.
const WAITING: usize = 4;

/// What the node said, and when.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) at: Instant,
    pub(crate) status: Status,
    pub(crate) drops: Vec<Drop>,
    pub(crate) list: Option<Result<ListingPage, String>>,
    pub(crate) detail: Option<Result<String, String>>,
}

impl Look {
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.status.function.split(", ").any(|own| own == name)
    }
}

/// Asks for what every node has.
///
/// # Errors
/// When no node answers.
pub(crate) fn look(socket: &Path) -> miette::Result<Look> {
    let status = ask(socket, &GetNode {})?;
    let Drops { drops } = ask(socket, &ListDrops {})?;
    Ok(Look { at: Instant::now(), status, drops, list: None, detail: None })
}

/// What else is to be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The rows that meet this.
    pub(crate) filter: String,
    /// All of the one with this key.
    pub(crate) detail: Option<String>,
    /// Whether rows are looked at.
    pub(crate) list: bool,
}

/// A look, or why there is none.
pub(crate) type Sample = Result<Look, String>;

pub(crate) struct Sampler {
    samples: Receiver<Sample>,
    wanted: Arc<Mutex<Wanted>>,
    /// Ends a pause.
    hurry: SyncSender<()>,
}

impl Sampler {
    pub(crate) fn start(socket: PathBuf, interval: Duration, listing: Option<Listing>) -> Self {
        let (sender, samples) = sync_channel(WAITING);
        let (hurry, hurried) = sync_channel(1);
        let wanted = Arc::<Mutex<Wanted>>::default();
        let asked = wanted.clone();
        thread::spawn(move || {
            // Ends with who draws.
            loop {
                let _ = hurried.recv_timeout(interval);
                let asked = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if sender.send(sample(&socket, listing, &asked)).is_err() {
                    break;
                }
            }
        });
        Self { samples, wanted, hurry }
    }

    /// Asks for this from now on, at once where it is another.
    pub(crate) fn want(&self, wanted: Wanted) {
        let mut own = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if *own != wanted {
            *own = wanted;
            // One is enough.
            let _ = self.hurry.try_send(());
        }
    }

    /// What has come.
    pub(crate) fn next(&self) -> Option<Sample> {
        self.samples.try_recv().ok()
    }

    /// What comes next.
    ///
    /// # Errors
    /// When no node answers.
    pub(crate) fn wait(&self) -> miette::Result<Look> {
        let sample = self.samples.recv().map_err(|_| miette!("the node is not asked any more"))?;
        sample.map_err(|why| miette!("{why}"))
    }
}

fn sample(socket: &Path, listing: Option<Listing>, wanted: &Wanted) -> Sample {
    let said = |why: miette::Report| why.to_string();
    let mut look = look(socket).map_err(said)?;
    if let Some(listing) = listing.filter(|_| wanted.list) {
        look.list = Some((listing.page)(socket, &wanted.filter, ROWS_MAX).map_err(said));
        let detail = listing.detail.zip(wanted.detail.as_deref());
        look.detail = detail.map(|(detail, key)| detail(socket, key).map_err(said));
    }
    Ok(look)
}
