//! `kaido reload` and SIGHUP: a running node reads its configuration again, and takes what can change; all of it, or nothing.
//!
//! ```text
//!  node ──read, compare──▶ prepare ──▶ control loop A: ready, and waits ┐
//!                        └▶ prepare ──▶ control loop B: ready, and waits ┴▶ all are: commit ─▶ both take it
//!                                                                        └▶ one refuses: both drop it
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use miette::Report;

use crate::api::{Reloaded, ReloadedField};
use crate::config::difference::{Difference, differences};
use crate::config::reload::is_within;
use crate::config::{FunctionSchema, Reload, reload_of};
use crate::control::FunctionPeer;
use crate::file::Config;
use crate::function::{ConfiguredFunction, NetworkFunction};
use crate::log;
use crate::questions::PATIENCE;
use crate::view::ReloadRefusal;

/// Why a field cannot change that no rule is for.
const UNKNOWN: &str = "it is read when the process starts";

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
    /// Functions that a file may name.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &'f dyn NetworkFunction> + use<'f> {
        self.functions.iter().copied()
    }

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
        let schemas: Vec<_> = config.functions.iter().map(|function| function.schema()).collect();
        let differing = differences(&self.text, &text).map_err(|error| error.to_string())?;
        let patterns: Vec<_> = differing.iter().map(|difference| difference.pattern.clone()).collect();
        let mut fields: Vec<_> = differing.into_iter().map(|differs| shown(differs, &schemas)).collect();
        if fields.iter().any(|field| field.refused.is_some()) {
            return Ok(Reloaded { taken: false, fields });
        }
        // Also where nothing differs: files that it names may.
        let config = Arc::new(config);
        let ready = prepare(&config, peers, is_question)?;
        for refusal in &ready.refusals {
            let mut refused =
                fields.iter_mut().zip(&patterns).filter(|(_, own)| is_within(own, refusal.path));
            // All fields of the section: none of them can be told to be at fault.
            let mut is_shown = false;
            for (field, _) in &mut refused {
                (field.refused, is_shown) = (Some(refusal.why.clone()), true);
            }
            if !is_shown {
                return Err(format!("{}: {}", refusal.path, refusal.why));
            }
        }
        let taken = !is_question && ready.refusals.is_empty();
        if taken {
            ready.commit();
            log::set_level(config.base.log.level.get_ref());
            self.text = text;
        }
        Ok(Reloaded { fields, taken })
    }
}

/// A field that differs, and whether it can change.
fn shown(difference: Difference, schemas: &[FunctionSchema]) -> ReloadedField {
    let Difference { field, pattern, before, now, line } = difference;
    let refused = match reload_of(schemas, &pattern) {
        Some(Reload::Changes(_)) => None,
        Some(Reload::Restart(why)) => Some(why.to_owned()),
        None => Some(UNKNOWN.to_owned()),
    };
    ReloadedField { field, before, now, line, refused }
}

/// Functions whose control loops wait until they are told to take what they have made ready; dropped, they go on as before.
struct Ready {
    refusals: Vec<ReloadRefusal>,
    loops: Vec<(SyncSender<()>, Receiver<()>)>,
}

impl Ready {
    /// Has all take it, and waits until they have.
    fn commit(self) {
        for (commit, _) in &self.loops {
            // There is room for one. Its control loop waits, whatever time has passed.
            let _ = commit.try_send(());
        }
        for (_, done) in self.loops {
            let _ = done.recv_timeout(PATIENCE);
        }
    }
}

/// Has the control loops make a configuration ready, whose functions are theirs, and begin it unless it is only a question.
///
/// # Errors
/// When one does not answer; then none takes it, not even later.
fn prepare(config: &Arc<Config>, peers: &[FunctionPeer], is_question: bool) -> Result<Ready, String> {
    let deadline = Instant::now() + PATIENCE;
    let mut ready = Ready { refusals: Vec::new(), loops: Vec::new() };
    let mut preparing = Vec::new();
    for (at, peer) in peers.iter().enumerate() {
        let config = config.clone();
        let (tell, told) = sync_channel(1);
        let (commit, committed) = sync_channel(1);
        let done = peer.questions.begin(move |view| {
            let Some(function) = config.functions.get(at) else { return };
            let function: &dyn ConfiguredFunction = &**function;
            let made_ready = view.prepare_reload(function).and_then(|mut prepared| {
                if !is_question {
                    view.begin_reload(&mut prepared)?;
                }
                Ok(prepared)
            });
            let (prepared, refusals) = match made_ready {
                Ok(prepared) => (Some(prepared), Vec::new()),
                Err(refusals) => (None, refusals),
            };
            // Ends when the other end is dropped too: who asks waits for a bounded time.
            if tell.try_send(refusals).is_ok()
                && let Some(prepared) = prepared
                && committed.recv().is_ok()
            {
                view.commit_reload(prepared);
            }
        });
        ready.loops.push((commit, done.ok_or_else(|| peer.silent())?));
        preparing.push((peer, told));
    }
    for (peer, told) in preparing {
        let patience = deadline.saturating_duration_since(Instant::now());
        ready.refusals.extend(told.recv_timeout(patience).map_err(|_| peer.silent())?);
    }
    Ok(ready)
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::atomic::AtomicBool;
    use std::thread::Scope;

    use kaido_engine::netlink::NeighbourTable;
    use kaido_engine::{PortTotals, Routes};

    use super::*;
    use crate::board::PortBoard;
    use crate::config::{Base, FilePart, Findings, ReloadRule, schema_of};
    use crate::function::FunctionContext;
    use crate::questions::{QuestionQueue, questions};
    use crate::route_mirror::RouteMirror;
    use crate::view::{FunctionStatus, FunctionView, PreparedReload, Traces};

    /// A function with a field that can change and one that cannot.
    struct Lamp(&'static str);

    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    struct LampConfig {
        #[serde(skip)]
        base: Base,
        #[serde(skip)]
        name: &'static str,
        /// What is lit.
        lamp: LampTable,
    }

    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    struct LampTable {
        /// Hours a day.
        hours: u8,
        /// In it.
        #[expect(dead_code, reason = "for the schema only")]
        oil: Option<u8>,
    }

    impl Lamp {
        const RELOAD: &'static [ReloadRule] = &[
            ReloadRule::changes("lamp.hours", "from now on"),
            ReloadRule::restart("lamp.oil", "the lamp is closed"),
        ];

        fn schema_of(name: &'static str) -> FunctionSchema {
            let schema = schema_of::<LampConfig>;
            FunctionSchema { name, title: "Lamp", vlans: false, schema, reload: Self::RELOAD }
        }
    }

    impl NetworkFunction for Lamp {
        fn schema(&self) -> FunctionSchema {
            Self::schema_of(self.0)
        }

        fn read(&self, part: FilePart<'_>) -> Result<Box<dyn ConfiguredFunction>, toml::de::Error> {
            let config: LampConfig = part.read()?;
            Ok(Box::new(LampConfig { base: part.base, name: self.0, ..config }))
        }

        fn families(&self) -> &'static [kaido_metrics::Family] {
            &[]
        }
    }

    impl ConfiguredFunction for LampConfig {
        fn schema(&self) -> FunctionSchema {
            Lamp::schema_of(self.name)
        }

        fn base(&self) -> &Base {
            &self.base
        }

        fn check(&self, findings: &mut Findings) {
            if self.lamp.hours > 24 {
                findings.add(0..0, "lamp.hours", "no such day", "up to 24");
            }
        }

        fn summary(&self) -> String {
            String::new()
        }

        fn run(&self, _: FunctionContext) -> miette::Result<()> {
            Ok(())
        }
    }

    /// What a function's control loop has taken.
    #[derive(Default)]
    struct LampView {
        hours: u8,
        refuses: bool,
        prepared: usize,
        /// It burns as soon as it is lit.
        breaks: bool,
        begun: usize,
    }

    impl FunctionView for LampView {
        fn status(&mut self, _: Vec<PortTotals>) -> FunctionStatus {
            unreachable!("nobody asks")
        }

        fn traces(&mut self) -> &mut dyn Traces {
            unreachable!("nobody traces")
        }

        fn prepare_reload(&mut self, config: &dyn Any) -> Result<PreparedReload, Vec<ReloadRefusal>> {
            let config = config.downcast_ref::<LampConfig>().unwrap();
            self.prepared += 1;
            if self.refuses {
                return Err(vec![ReloadRefusal { path: "lamp", why: "it burns".to_owned() }]);
            }
            Ok(Box::new(config.lamp.hours))
        }

        fn begin_reload(&mut self, _: &mut PreparedReload) -> Result<(), Vec<ReloadRefusal>> {
            self.begun += 1;
            let why = "its glass breaks".to_owned();
            if self.breaks { Err(vec![ReloadRefusal { path: "lamp", why }]) } else { Ok(()) }
        }

        fn commit_reload(&mut self, prepared: PreparedReload) {
            self.hours = *prepared.downcast::<u8>().unwrap();
        }
    }

    const LAMPS: &[&dyn NetworkFunction] = &[&Lamp("lamp"), &Lamp("lantern")];
    const FILE: &str = "function = [\"lamp\", \"lantern\"]\n[lamp]\nhours = 3\n";

    /// A file of two functions, and what is in force of it.
    struct Node {
        folder: PathBuf,
        file: PathBuf,
        reloader: Reloader<'static>,
        peers: Vec<FunctionPeer>,
        loops: Vec<(QuestionQueue, LampView)>,
    }

    impl Node {
        fn start(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("kaido-reload-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let file = folder.join("kaido.toml");
            std::fs::write(&file, FILE).unwrap();
            let (_, text) = Config::read_with_text(&file, LAMPS).unwrap();
            let reloader = Reloader::new(&file, text, LAMPS).unwrap();
            let (mut peers, mut loops) = (Vec::new(), Vec::new());
            for lamp in LAMPS {
                let (questions, queue) = questions().unwrap();
                let board = PortBoard::default();
                let mirror = RouteMirror::new(Routes::new().0, NeighbourTable::default());
                peers.push(FunctionPeer { name: lamp.name(), board, mirror, workers: Vec::new(), questions });
                loops.push((queue, LampView::default()));
            }
            Self { folder, file, reloader, peers, loops }
        }

        /// Reads the file again while the control loops turn.
        fn reload(&mut self, text: &str, is_question: bool) -> Result<Reloaded, String> {
            std::fs::write(&self.file, text).unwrap();
            let stop = AtomicBool::new(false);
            let Self { reloader, peers, loops, .. } = self;
            std::thread::scope(|scope| {
                loops.iter_mut().for_each(|own| turn(scope, own, &stop));
                let reloaded = reloader.reload(is_question, peers);
                stop.store(true, Ordering::Relaxed);
                reloaded
            })
        }

        fn hours(&self) -> Vec<u8> {
            self.loops.iter().map(|(_, view)| view.hours).collect()
        }
    }

    impl Drop for Node {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.folder).unwrap();
        }
    }

    fn turn<'s>(scope: &'s Scope<'s, '_>, own: &'s mut (QuestionQueue, LampView), stop: &'s AtomicBool) {
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                own.0.serve(&mut own.1);
                std::thread::yield_now();
            }
            own.0.serve(&mut own.1);
        });
    }

    fn with_hours(hours: u8) -> String {
        FILE.replace("hours = 3", &format!("hours = {hours}"))
    }

    fn refused(reloaded: &Reloaded) -> Vec<(&str, Option<&str>)> {
        reloaded.fields.iter().map(|field| (field.field.as_str(), field.refused.as_deref())).collect()
    }

    #[test]
    fn all_functions_take_what_can_change() {
        let mut node = Node::start("taken");
        let reloaded = node.reload(&with_hours(5), true).unwrap();
        assert_eq!((reloaded.taken, node.hours()), (false, vec![0, 0]));
        assert_eq!(node.loops[0].1.begun, 0, "it is a question");
        let reloaded = node.reload(&with_hours(5), false).unwrap();
        assert_eq!((refused(&reloaded), reloaded.fields[0].line), (vec![("lamp.hours", None)], Some(3)));
        assert_eq!((reloaded.taken, node.hours()), (true, vec![5, 5]));
        // It is in force: nothing differs any more.
        let reloaded = node.reload(&with_hours(5), false).unwrap();
        assert_eq!((reloaded.taken, reloaded.fields.len()), (true, 0));
        assert_eq!(node.reloader.counts().results(), [("taken", 2), ("refused", 0)]);
    }

    #[test]
    fn nothing_changes_where_a_field_cannot() {
        let mut node = Node::start("field");
        let text = format!("{}oil = 1\n[node]\nworkers = 2\n", with_hours(5));
        let reloaded = node.reload(&text, false).unwrap();
        let workers = "frames, tables and workers are made of it";
        let oil = "the lamp is closed";
        let wanted = [("lamp.hours", None), ("lamp.oil", Some(oil)), ("node.workers", Some(workers))];
        assert_eq!(refused(&reloaded), wanted);
        assert_eq!((reloaded.taken, node.hours()), (false, vec![0, 0]));
        assert_eq!(node.loops[0].1.prepared, 0, "the functions are not asked");
        let (_, why) = node.reloader.counts().last().unwrap();
        assert_eq!(why.unwrap(), "lamp.oil, node.workers cannot change");
    }

    #[test]
    fn nothing_changes_where_one_function_refuses() {
        let mut node = Node::start("refused");
        node.loops[1].1.refuses = true;
        let reloaded = node.reload(&with_hours(5), false).unwrap();
        assert_eq!(refused(&reloaded), [("lamp.hours", Some("it burns"))]);
        assert_eq!((reloaded.taken, node.hours()), (false, vec![0, 0]));
        assert_eq!(node.loops[0].1.prepared, 1);
        node.loops[1].1.refuses = false;
        assert!(node.reload(&with_hours(5), false).unwrap().taken);
        assert_eq!(node.hours(), [5, 5]);
    }

    #[test]
    fn nothing_changes_where_one_function_cannot_begin() {
        let mut node = Node::start("begun");
        node.loops[1].1.breaks = true;
        assert!(refused(&node.reload(&with_hours(5), true).unwrap()).contains(&("lamp.hours", None)));
        let reloaded = node.reload(&with_hours(5), false).unwrap();
        assert_eq!(refused(&reloaded), [("lamp.hours", Some("its glass breaks"))]);
        assert_eq!((reloaded.taken, node.hours(), node.loops[0].1.begun), (false, vec![0, 0], 1));
    }

    #[test]
    fn nothing_changes_where_a_function_does_not_answer() {
        let mut node = Node::start("silent");
        // Its control loop has ended.
        let (ended, _) = questions().unwrap();
        node.peers[1].questions = ended;
        let why = node.reload(&with_hours(5), false).unwrap_err();
        assert_eq!(why, "the control loop of function \"lantern\" does not answer");
        assert_eq!(node.hours(), [0, 0]);
        assert!(!node.reloader.counts().is_last_taken());
    }

    #[test]
    fn a_file_that_is_wrong_changes_nothing() {
        let mut node = Node::start("wrong");
        for (text, why) in [
            (with_hours(25), "no such day"),
            (with_hours(5).replace("hours", "ours"), "ours"),
            (with_hours(5).replace("= 5", "="), "kaido.toml"),
        ] {
            let said = node.reload(&text, false).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        assert_eq!((node.hours(), node.loops[0].1.prepared), (vec![0, 0], 0));
        assert_eq!(node.reloader.counts().results(), [("taken", 0), ("refused", 3)]);
    }
}
