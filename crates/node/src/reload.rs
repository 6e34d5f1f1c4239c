//! `kaido reload` and SIGHUP: a running node reads its configuration again, and takes what can change; all of it, or nothing.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use miette::Report;

use crate::api::{Reloaded, ReloadedField};
use crate::config::difference::{Difference, differences};
use crate::control::FunctionPeer;
use crate::file::Config;
use crate::function::{ConfiguredFunction, NetworkFunction};
use crate::log;

/// Fields that every node can change.
const OF_EVERY_NODE: &[&str] = &["log.level"];
/// Why others cannot.
const REFUSED: &str =
    "sockets, tables or workers are made of it: `kaido upgrade` takes the file over without a gap";

/// How often the configuration was read again, for who scrapes the node.
#[derive(Debug, Default)]
pub(crate) struct ReloadCounts {
    taken: AtomicU64,
    refused: AtomicU64,
    /// Seconds since 1970 of the last one; zero for never.
    at: AtomicU64,
    last_failed: AtomicU64,
    why: Mutex<String>,
}

impl ReloadCounts {
    fn count(&self, why: Option<&str>) {
        let counted = if why.is_none() { &self.taken } else { &self.refused };
        counted.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.at.store(now.as_secs(), Ordering::Relaxed);
        self.last_failed.store(why.is_some().into(), Ordering::Relaxed);
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why.unwrap_or_default().to_owned();
    }

    /// Those that were taken, and those that were refused.
    pub(crate) fn results(&self) -> [(&'static str, u64); 2] {
        [("taken", self.taken.load(Ordering::Relaxed)), ("refused", self.refused.load(Ordering::Relaxed))]
    }

    /// Whether the last one was taken; a node that has read its file once has taken it.
    pub(crate) fn is_last_taken(&self) -> bool {
        self.last_failed.load(Ordering::Relaxed) == 0
    }

    /// When the last one was, in seconds since 1970, and why it was refused; `None` before the first.
    pub(crate) fn last(&self) -> Option<(u64, Option<String>)> {
        let at = self.at.load(Ordering::Relaxed);
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (at != 0).then(|| (at, (!why.is_empty()).then_some(why)))
    }
}

/// The configuration of a running node.
pub(crate) struct Reloader<'f> {
    path: PathBuf,
    /// What is in force.
    text: String,
    /// Functions that a file may name.
    functions: &'f [&'f dyn NetworkFunction],
    counts: Arc<ReloadCounts>,
}

impl<'f> Reloader<'f> {
    /// Of a node that has read its file.
    ///
    /// # Errors
    /// When the path cannot be made independent of the folder in which the node was started.
    pub(crate) fn new(
        path: &Path,
        text: String,
        functions: &'f [&'f dyn NetworkFunction],
    ) -> std::io::Result<Self> {
        Ok(Self { path: std::path::absolute(path)?, text, functions, counts: Arc::default() })
    }

    pub(crate) fn counts(&self) -> Arc<ReloadCounts> {
        self.counts.clone()
    }

    /// Reads the file, and has the functions take what differs, unless it is only asked what would become of it.
    ///
    /// # Errors
    /// What is wrong with the file, or that a function does not answer.
    pub(crate) fn reload(&mut self, is_question: bool, peers: &[FunctionPeer]) -> Result<Reloaded, String> {
        let reloaded = self.try_reload(is_question, peers);
        if !is_question {
            let refused = match &reloaded {
                Ok(Reloaded { fields, .. }) => {
                    let refused = fields.iter().filter(|field| field.refused.is_some());
                    let names: Vec<_> = refused.map(|field| field.field.as_str()).collect();
                    (!names.is_empty()).then(|| format!("{} cannot change", names.join(", ")))
                }
                Err(why) => Some(why.clone()),
            };
            self.counts.count(refused.as_deref());
        }
        reloaded
    }

    fn try_reload(&mut self, is_question: bool, peers: &[FunctionPeer]) -> Result<Reloaded, String> {
        let described = |report: Report| format!("{report:?}");
        let read = Config::read_with_text(&self.path, self.functions);
        let (config, text) = read.map_err(|fault| described(fault.into()))?;
        let differing = differences(&self.text, &text).map_err(|error| error.to_string())?;
        let changeable: Vec<&str> = config
            .functions
            .iter()
            .flat_map(|function| function.changeable())
            .chain(OF_EVERY_NODE)
            .copied()
            .collect();
        let shown = |difference: Difference| {
            let may = changeable.contains(&difference.pattern().as_str());
            let Difference { field, before, now } = difference;
            ReloadedField { field, before, now, refused: (!may).then(|| REFUSED.to_owned()) }
        };
        let fields: Vec<ReloadedField> = differing.into_iter().map(shown).collect();
        let taken = !is_question && fields.iter().all(|field| field.refused.is_none());
        if taken && !fields.is_empty() {
            self.take(config, text, peers)?;
        }
        Ok(Reloaded { fields, taken })
    }

    /// Has the functions take a configuration of which each differing field can change.
    fn take(&mut self, config: Config, text: String, peers: &[FunctionPeer]) -> Result<(), String> {
        let config = Arc::new(config);
        // Nothing is done before all have said that they hear: what they do then cannot fail.
        peers.iter().try_for_each(|peer| peer.ask(|_| ()))?;
        for (at, peer) in peers.iter().enumerate() {
            let config = config.clone();
            peer.ask(move |view| {
                if let Some(function) = config.functions.get(at) {
                    let function: &dyn ConfiguredFunction = &**function;
                    view.reload(function);
                }
            })?;
        }
        log::set_level(&config.base);
        self.text = text;
        Ok(())
    }
}
