//! `[metrics]`: the node's counters, for a Prometheus that scrapes, and what a function says of itself as JSON.
//!
//! ```text
//!   GET /metrics ─▶ this thread ─▶ the function's figures: what workers, tables and the kernel's datapath count
//!   GET /v1/…    ─▶ this thread ─▶ the function's documents
//!   GET /healthz ─▶ this thread ─▶ 200 where all ports are up and the control loop turns, else 503 and what is the matter
//! ```
//! Whatever a client does, workers and control loop wait for nobody.

pub(in crate::run) mod families;
mod figures;
mod process;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kaido_metrics::{Endpoint, Format, Request, Response};

pub(crate) use self::families::table;
#[cfg(test)]
pub(in crate::run) use self::families::tests::names;
pub(in crate::run) use self::figures::{Figures, one};
use super::board::Health;

/// Scrapes that come closer together get the same text.
const FRESH: Duration = Duration::from_millis(100);

/// What a function offers at the endpoint.
pub(super) trait MetricsSource: Send {
    /// Its figures; `None` when they cannot be had in time.
    fn metrics(&mut self, format: Format) -> Option<String>;

    /// The JSON document at a path; `None` where there is none.
    fn document(&mut self, path: &str) -> Option<String>;

    /// Paths of its documents.
    fn paths(&self) -> &'static [&'static str];
}

/// The thread that is scraped.
#[derive(Debug)]
pub(super) struct Exporter {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Opens the listening socket.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn listen(address: SocketAddr) -> std::io::Result<Endpoint> {
        Endpoint::bind(address)
    }

    /// Serves scrapes until it is stopped.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub(super) fn start(
        mut endpoint: Endpoint,
        source: Box<dyn MetricsSource>,
        health: Health,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            let mut scrape = Scrape { source, health, fresh: None };
            endpoint.serve(&stopped, |request| scrape.answer(request));
        })?;
        Ok(Self { stop, thread })
    }

    /// Stops it.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            tracing::error!("the metrics thread has panicked");
        }
    }
}

/// What answers scrapes.
struct Scrape {
    source: Box<dyn MetricsSource>,
    health: Health,
    fresh: Option<(Instant, Format, String)>,
}

impl Scrape {
    fn answer(&mut self, request: &Request<'_>) -> Response {
        if request.path == "/metrics" {
            return self.metrics(Format::for_accept(request.accept));
        }
        if request.path == "/healthz" {
            let troubles = self.health.troubles();
            return match troubles.is_empty() {
                true => Response::text(200, "ok"),
                false => Response::text(503, &troubles.join("\n")),
            };
        }
        if let Some(body) = self.source.document(request.path) {
            return Response { status: 200, content_type: "application/json", body };
        }
        let others: String = self.source.paths().iter().map(|path| format!(", {path}")).collect();
        match request.path {
            "/" => Response::text(200, &format!("Kaido: /metrics, /healthz{others}")),
            _ => Response::text(404, &format!("there is only /metrics, /healthz{others}")),
        }
    }

    fn metrics(&mut self, format: Format) -> Response {
        let is_fresh = |&(at, of, _): &(Instant, Format, String)| at.elapsed() < FRESH && of == format;
        if !self.fresh.as_ref().is_some_and(is_fresh) {
            let Some(text) = self.source.metrics(format) else {
                return Response::text(503, "the control loop does not answer");
            };
            self.fresh = Some((Instant::now(), format, text));
        }
        let body = self.fresh.as_ref().map(|(.., text)| text.clone()).unwrap_or_default();
        Response { status: 200, content_type: format.content_type(), body }
    }
}
