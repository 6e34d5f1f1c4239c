//! `kaido top`: a running node, live in a terminal.
//!
//! ```text
//!   thread: asks the node ─▶ samples ─▶ figures (rates between two) ─▶ drawn
//!                 ▲                                                      │
//!                 └───────────── what is to be looked at ◀── keys ───────┘
//! ```
//!
//! It asks as every other command does, so that it sees what they see, over ssh too.

mod draw;
mod figures;
mod keys;
mod sampler;
#[cfg(test)]
mod tests;
mod units;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use kaido_node::config::DEFAULT_SOCKET;
use kaido_node::function::NetworkFunction;
use miette::IntoDiagnostic;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::figures::Figures;
use crate::keys::View;
use crate::sampler::{Sampler, look};

/// Options of `kaido top`.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// The node's control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Seconds between two looks at the node.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Print the figures of each interval as a line of JSON, and draw nothing.
    #[arg(long)]
    json: bool,
    /// End after so many intervals.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| format!("`{text}` is no time; write seconds from 0.1 to 3600"))
}

/// How long keys are waited for before what has come meanwhile is drawn.
const PACE: Duration = Duration::from_millis(50);

/// Shows a node until it is told to end.
///
/// # Errors
/// When no node answers at first, or the terminal is none.
pub fn run(args: &TopArgs, functions: &[&dyn NetworkFunction]) -> miette::Result<()> {
    let first = look(&args.socket)?;
    let interval = Duration::from_secs_f64(args.interval);
    let mut running = functions.iter().filter(|function| first.has_function(function.name()));
    let listing = running.find_map(|function| function.listing());
    let sampler = Sampler::start(args.socket.clone(), interval, listing);
    let mut figures = Figures::new(first);
    if args.json {
        let mut out = std::io::stdout().lock();
        for _ in 0..args.count.unwrap_or(u64::MAX) {
            figures.take(Ok(sampler.wait()?));
            let line = serde_json::to_string(&figures.as_json()).into_diagnostic()?;
            writeln!(out, "{line}").into_diagnostic()?;
        }
        return Ok(());
    }
    let mut terminal = ratatui::try_init().into_diagnostic()?;
    let shown = show(&mut terminal, &sampler, figures, View::new(listing), args.count);
    ratatui::restore();
    shown
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    sampler: &Sampler,
    mut figures: Figures,
    mut view: View,
    count: Option<u64>,
) -> miette::Result<()> {
    let mut looks = 0;
    while !view.ends && count.is_none_or(|count| looks < count) {
        terminal.draw(|frame| draw::draw(frame, &figures, &view)).into_diagnostic()?;
        if event::poll(PACE).into_diagnostic()?
            && let Event::Key(key) = event::read().into_diagnostic()?
            && key.kind == KeyEventKind::Press
        {
            view.key(key, &figures);
            sampler.want(view.wanted());
        }
        while let Some(sample) = sampler.next() {
            looks += 1;
            if !view.is_paused {
                figures.take(sample);
            }
        }
    }
    Ok(())
}
