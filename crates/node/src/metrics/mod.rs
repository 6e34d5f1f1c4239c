//! `[metrics]`: the node's counters, for a Prometheus that scrapes.
//!
//! ```text
//!   GET /metrics ─▶ HTTP thread ─▶ this thread ─▶ figures of node and functions: what workers, tables and the kernel's datapath count
//! ```
//! A scrape may take a while, as a user plane adds up its sessions: in a thread of its own it keeps no other question waiting.

mod families;
mod figures;
mod process;
pub mod source;

use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kaido_metrics::Format;
pub use kaido_metrics::{Exposition, Family, Kind};

pub use self::families::{FAMILIES as NODE_FAMILIES, table};
pub use self::figures::{Figures, FunctionFigures, one};
pub use self::source::MetricsSource;
use crate::http::Pending;

/// Scrapes that come closer together get the same text.
const FRESH: Duration = Duration::from_millis(100);

/// The thread that renders.
#[derive(Debug)]
pub(crate) struct Exporter(JoinHandle<()>);

impl Exporter {
    /// Answers scrapes until nobody can ask any more.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub(crate) fn start(
        figures: Figures,
        scrapes: Receiver<Pending<Format, Option<String>>>,
    ) -> std::io::Result<Self> {
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            let mut scraped = Scraped { figures, fresh: None };
            for scrape in scrapes {
                scrape.answer(|format| scraped.render(format));
            }
        })?;
        Ok(Self(thread))
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the metrics thread has panicked");
        }
    }
}

/// What answers scrapes.
struct Scraped {
    figures: Figures,
    fresh: Option<(Instant, Format, String)>,
}

impl Scraped {
    /// The text; none where a function does not tell its figures.
    fn render(&mut self, format: Format) -> Option<String> {
        let is_fresh = |&(at, of, _): &(Instant, Format, String)| at.elapsed() < FRESH && of == format;
        if !self.fresh.as_ref().is_some_and(is_fresh) {
            self.fresh = Some((Instant::now(), format, self.figures.render(format)?));
        }
        self.fresh.as_ref().map(|(.., text)| text.clone())
    }
}
