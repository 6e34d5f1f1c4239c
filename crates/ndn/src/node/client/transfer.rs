//! `kaido ndn peek`, `cat`, `put`: content out of the network and into it.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use kaido_node::signals::stop_flag;
use kaido_wire::ndn::{Interest, InterestRepr, types};
use miette::{IntoDiagnostic, miette};

use super::{NameArg, seconds, write_out};
use crate::client::{Consumer, FetchOptions, Publication, append_answer, command, fetch, fetch_versioned};
use crate::mgmt::{ControlParameters, Module};

/// Longest pause between two looks at whether to stop.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(crate) struct PeekArgs {
    /// The name.
    name: NameArg,
    /// Data of longer names will do.
    #[arg(long)]
    prefix: bool,
    /// Stale Data will not do.
    #[arg(long)]
    fresh: bool,
    /// Seconds to wait.
    #[arg(long, default_value = "4", value_parser = seconds)]
    lifetime: Duration,
    /// Write the whole packet, not the content alone.
    #[arg(long)]
    packet: bool,
    /// Write there instead of to standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// The name, with its version or without.
    name: NameArg,
    /// Interests under way at once, at most.
    #[arg(long, default_value_t = 64)]
    window: usize,
    /// Seconds that an Interest waits before it is sent again.
    #[arg(long, default_value = "1", value_parser = seconds)]
    lifetime: Duration,
    /// Times that an Interest is sent again.
    #[arg(long, default_value_t = 8)]
    retries: u32,
    /// Write there instead of to standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The name; its version is the time.
    name: NameArg,
    /// What to publish; standard input without one.
    file: Option<PathBuf>,
    /// Octets of a segment.
    #[arg(long, default_value_t = 7000, value_parser = clap::value_parser!(u16).range(1..=8000))]
    segment: u16,
    /// Seconds that the Data are fresh.
    #[arg(long, default_value = "10", value_parser = seconds)]
    fresh: Duration,
}

/// `kaido ndn peek`.
pub(super) fn peek(router: &mut Consumer, args: &PeekArgs) -> miette::Result<()> {
    let interest = InterestRepr {
        name: args.name.name(),
        can_be_prefix: args.prefix,
        must_be_fresh: args.fresh,
        lifetime_ms: Some(milliseconds(args.lifetime)),
        ..InterestRepr::default()
    };
    let answer = router.ask(&interest).map_err(|error| {
        let name = args.name.name();
        miette!(
            help = format!(
                "what `kaido ndn put` publishes has a version and segments: `kaido ndn cat {name}` fetches it whole, \
                 `kaido ndn peek --prefix {name}` one packet of it"
            ),
            "{name}: {error}"
        )
    })?;
    let content = if args.packet { answer.octets() } else { answer.data().into_diagnostic()?.content };
    write_out(args.output.as_ref(), content)
}

/// `kaido ndn cat`.
pub(super) fn cat(router: &mut Consumer, args: &CatArgs) -> miette::Result<()> {
    let options = FetchOptions {
        window_max: args.window.max(1),
        lifetime: args.lifetime,
        retries: args.retries,
        ..FetchOptions::default()
    };
    let name = args.name.name();
    let is_versioned = name.last().is_some_and(|last| last.number(types::VERSION_COMPONENT).is_some());
    let fetched =
        if is_versioned { fetch(router, name, &options) } else { fetch_versioned(router, name, &options) };
    write_out(args.output.as_ref(), &fetched.map_err(|error| miette!("{error}"))?)
}

/// `kaido ndn put`.
pub(super) fn put(router: &mut Consumer, args: &PutArgs) -> miette::Result<()> {
    let content = match &args.file {
        Some(path) => {
            std::fs::read(path).map_err(|error| miette!("cannot read {}: {error}", path.display()))?
        }
        None => {
            let mut content = vec![];
            std::io::stdin().read_to_end(&mut content).into_diagnostic()?;
            content
        }
    };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let version = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    let name = args.name.name();
    let publication = Publication::new(name, version, content, args.segment.into(), milliseconds(args.fresh))
        .map_err(|error| miette!("{error}: give --segment less"))?;
    let stop = Stop::on_signals()?;
    register(router, name.value())?;
    println!(
        "{} in {} segments",
        kaido_wire::ndn::Name::new(publication.name()).unwrap_or_default(),
        publication.segments()
    );
    eprintln!("until interrupted; `kaido ndn cat {name}` fetches it");
    serve(router, &stop, |interest| publication.answer(interest))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Has Interests of a prefix come here.
pub(super) fn register(router: &mut Consumer, prefix: &[u8]) -> miette::Result<()> {
    let asked = ControlParameters { name: Some(prefix.to_vec()), ..ControlParameters::default() };
    command(router, Module::Rib, "register", &asked)
        .map_err(|error| miette!("cannot register the prefix: {error}"))?;
    Ok(())
}

/// Answers Interests until told to stop.
pub(super) fn serve(
    router: &mut Consumer,
    stop: &Stop,
    answer: impl Fn(&Interest<'_>) -> Option<Vec<u8>>,
) -> miette::Result<()> {
    let connection = router.connection();
    let gone = |error| miette!("the connection to the router is gone: {error}");
    while !stop.is_set() {
        let Some(received) = connection.receive(Instant::now() + PATIENCE).map_err(gone)? else { continue };
        let Some((header, packet)) = received.packet() else { continue };
        let Ok(interest) = Interest::parse(packet, packet.len()) else { continue };
        if header.nack.is_some() {
            continue;
        }
        let Some(data) = answer(&interest) else { continue };
        let mut link = vec![];
        append_answer(&mut link, header.pit_token, &data).into_diagnostic()?;
        connection.send(&link).map_err(gone)?;
    }
    Ok(())
}

/// Whether the user has said to stop.
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// SIGINT and SIGTERM say so.
    pub(super) fn on_signals() -> miette::Result<Self> {
        stop_flag().map(Self)
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps until then, or until it is said.
    pub(super) fn sleep_until(&self, then: Instant) {
        while !self.is_set() {
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(PATIENCE));
        }
    }
}
