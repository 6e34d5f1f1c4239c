//! `kaido ndn ping`: asks `PREFIX/ping/NUMBER`, as ndnping does, or answers it.

use std::time::{Duration, Instant};

use clap::Args;
use kaido_wire::ndn::{DataRepr, Interest, InterestRepr, Name};
use miette::miette;
use serde::Serialize;

use super::transfer::{Stop, register, serve};
use super::{NameArg, list, seconds};
use crate::client::{Consumer, NoData};

/// `/ping`.
const PING: &[u8] = b"\x08\x04ping";

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// The prefix of who answers.
    prefix: NameArg,
    /// Interests to send; 0 for no end.
    #[arg(short, long, default_value_t = 4)]
    count: u64,
    /// Seconds from one to the next.
    #[arg(short, long, default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Seconds that each waits.
    #[arg(long, default_value = "4", value_parser = seconds)]
    lifetime: Duration,
    /// Answer instead, until interrupted.
    #[arg(long)]
    serve: bool,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Summary {
    sent: u64,
    received: u64,
    min_us: u64,
    mean_us: u64,
    max_us: u64,
}

/// `kaido ndn ping`.
pub(super) fn run(router: &mut Consumer, json: bool, args: &PingArgs) -> miette::Result<()> {
    let prefix = [args.prefix.name().value(), PING].concat();
    let stop = Stop::on_signals()?;
    if args.serve {
        register(router, &prefix)?;
        println!("answering {}", Name::new(&prefix).unwrap_or_default());
        return serve(router, &stop, answer);
    }
    let mut took = vec![];
    let (mut sent, first) = (0, u64::from(std::process::id()) << 20);
    let mut next = Instant::now();
    while (args.count == 0 || sent < args.count) && !stop.is_set() {
        let number = (first + sent).to_string();
        sent += 1;
        match one(router, &prefix, &number, args.lifetime) {
            Ok(round) => {
                if !json {
                    println!("{}/{number}: {} us", Name::new(&prefix).unwrap_or_default(), round.as_micros());
                }
                took.push(u64::try_from(round.as_micros()).unwrap_or(u64::MAX));
            }
            Err(error @ NoData::Gone(_)) => return Err(miette!("{error}")),
            Err(error) if json => tracing::debug!(%error, "no answer"),
            Err(error) => println!("{}/{number}: {error}", Name::new(&prefix).unwrap_or_default()),
        }
        next += args.interval;
        if sent != args.count {
            stop.sleep_until(next);
        }
    }
    let summary = Summary {
        sent,
        received: took.len() as u64,
        min_us: took.iter().copied().min().unwrap_or(0),
        mean_us: took.iter().sum::<u64>() / (took.len() as u64).max(1),
        max_us: took.iter().copied().max().unwrap_or(0),
    };
    if json {
        list::print(&summary)?;
    } else {
        let Summary { sent, received, min_us, mean_us, max_us } = &summary;
        let took = match received {
            0 => String::new(),
            _ => format!("; {min_us} / {mean_us} / {max_us} us at least, in the mean, at most"),
        };
        println!("{sent} sent, {received} answered{took}");
    }
    if summary.received == 0 { Err(miette!("nobody has answered")) } else { Ok(()) }
}

fn one(router: &mut Consumer, prefix: &[u8], number: &str, lifetime: Duration) -> Result<Duration, NoData> {
    let mut name = prefix.to_vec();
    // At most twenty digits.
    name.extend([8, u8::try_from(number.len()).unwrap_or(0)]);
    name.extend(number.bytes());
    let interest = InterestRepr {
        name: Name::new(&name)?,
        must_be_fresh: true,
        lifetime_ms: Some(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX)),
        ..InterestRepr::default()
    };
    router.ask(&interest).map(|answer| answer.took)
}

fn answer(interest: &Interest<'_>) -> Option<Vec<u8>> {
    let repr = DataRepr { name: interest.name, freshness_ms: 1, content: b"ping", ..DataRepr::default() };
    let mut octets = vec![0; repr.len()];
    repr.emit(&mut octets).ok()?;
    Some(octets)
}
