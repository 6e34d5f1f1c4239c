//! `[metrics]`: the node's counters, for a Prometheus that scrapes, and what a function says of itself as JSON.
//!
//! ```text
//!   GET /metrics ─▶ this thread ─▶ figures of node and functions: what workers, tables and the kernel's datapath count
//!   GET /v1/…    ─▶ this thread ─▶ documents of node and functions
//!   GET /healthz ─▶ this thread ─▶ 200 where all ports are up and the control loop turns, else 503 and what is the matter
//! ```
//! Whatever a client does, workers and control loop wait for nobody.

mod families;
mod figures;
mod process;
pub mod source;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kaido_metrics::{Admission, Endpoint, Format, Request, Response};
pub use kaido_metrics::{Exposition, Family, Kind};

pub use self::families::{FAMILIES as NODE_FAMILIES, table};
pub use self::figures::{Figures, FunctionFigures, one};
pub use self::source::MetricsSource;
use super::board::Health;
use crate::api::Answer;

/// Scrapes that come closer together get the same text.
const FRESH: Duration = Duration::from_millis(100);
/// Path of the drops of all ports.
const DROPS: &str = "/v1/drops";

/// The thread that is scraped.
#[derive(Debug)]
pub struct Exporter {
    admission: Arc<Admission>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Opens the listening socket.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn listen(address: SocketAddr) -> std::io::Result<Endpoint> {
        Endpoint::bind(address)
    }

    /// Serves scrapes until it is stopped.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub fn start(mut endpoint: Endpoint, figures: Figures, health: Health) -> std::io::Result<Self> {
        let admission = Arc::new(Admission::default());
        let wanted = admission.clone();
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            let mut scrape = Scrape { figures, health, fresh: None };
            endpoint.serve(&wanted, |request| scrape.answer(request));
        })?;
        Ok(Self { admission, thread })
    }

    /// Whether it takes in who connects.
    pub(crate) const fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// Stops it.
    pub fn stop(self) {
        self.admission.stop();
        if self.thread.join().is_err() {
            tracing::error!("the metrics thread has panicked");
        }
    }
}

/// What answers scrapes.
struct Scrape {
    figures: Figures,
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
        let json = |body| Response { status: 200, content_type: "application/json", body };
        if request.path == DROPS {
            let drops = self.figures.drops().map(|drops| Answer::Drops { drops });
            let body = drops.and_then(|answer| serde_json::to_string(&answer).ok());
            return body.map_or_else(unanswered, json);
        }
        let mut functions = self.figures.functions.iter_mut();
        if let Some(body) = functions.find_map(|function| function.source.document(request.path)) {
            return json(body);
        }
        let of_functions = self.figures.functions.iter().flat_map(|function| function.source.paths());
        let others: String = [DROPS].iter().chain(of_functions).map(|path| format!(", {path}")).collect();
        match request.path {
            "/" => Response::text(200, &format!("Kaido: /metrics, /healthz{others}")),
            _ => Response::text(404, &format!("there is only /metrics, /healthz{others}")),
        }
    }

    fn metrics(&mut self, format: Format) -> Response {
        let is_fresh = |&(at, of, _): &(Instant, Format, String)| at.elapsed() < FRESH && of == format;
        if !self.fresh.as_ref().is_some_and(is_fresh) {
            let Some(text) = self.figures.render(format) else {
                return unanswered();
            };
            self.fresh = Some((Instant::now(), format, text));
        }
        let body = self.fresh.as_ref().map(|(.., text)| text.clone()).unwrap_or_default();
        Response { status: 200, content_type: format.content_type(), body }
    }
}

fn unanswered() -> Response {
    Response::text(503, "the control loop does not answer")
}
