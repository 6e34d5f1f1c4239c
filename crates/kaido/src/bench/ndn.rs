//! `kaido bench ndn`: Interests and Data through routers.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kaido_bench::ndn::{NdnPlan, Popularity, measure_ndn};
use kaido_ndn::client::Router;
use kaido_node::signals::stop_flag;
use miette::{IntoDiagnostic, miette};

use super::Sink;

/// Stations at routers: each publishes names and asks for those of the next. The exit status is 1 when anything was lost,
/// refused or wrong.
#[derive(Args, Clone, Debug)]
pub(crate) struct NdnArgs {
    /// Routers: a station at each, and two at one that is alone
    #[arg(long, value_name = "URI", env = kaido_ndn::client::ROUTER_VARIABLE, default_value = kaido_ndn::client::DEFAULT_ROUTER, value_delimiter = ',')]
    router: Vec<Router>,
    /// Names of each station
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    names: u32,
    /// Ask for popular names more often: the exponent of Zipf's law, 0 for each alike; without it each name is asked for once
    #[arg(long, value_name = "EXPONENT")]
    zipf: Option<f64>,
    /// Octets of content
    #[arg(long, value_name = "BYTES", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(0..=8000))]
    content: u16,
    /// Interests under way at once, of each station
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    window: u32,
    /// Milliseconds that an Interest waits
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..))]
    lifetime: u32,
    /// Seconds to ask for
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    /// Of names, contents and what is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl NdnArgs {
    /// What is run.
    fn plan(&self) -> NdnPlan {
        let mut routers = self.router.clone();
        if let [alone] = &routers[..] {
            routers.push(alone.clone());
        }
        NdnPlan {
            routers,
            names: self.names,
            popularity: match self.zipf {
                None => Popularity::Once,
                Some(0.0) => Popularity::Uniform,
                Some(exponent) => Popularity::Zipf(exponent.clamp(0.0, 10.0)),
            },
            content: self.content.into(),
            window: self.window as usize,
            lifetime: Duration::from_millis(self.lifetime.into()),
            duration: Duration::try_from_secs_f64(self.duration).unwrap_or_default(),
            seed: self.seed,
        }
    }
}

/// Runs it.
///
/// # Errors
/// When there is no result, or it is not clean.
pub(super) fn run(args: &NdnArgs) -> miette::Result<()> {
    let sink = Sink::new(args.json.as_deref())?;
    let report = measure_ndn(&args.plan(), stop_flag()?.as_ref()).into_diagnostic()?;
    let is_clean = report.is_clean();
    sink.put(&report)?;
    if is_clean { Ok(()) } else { Err(miette!("Interests or Data were lost, refused or wrong")) }
}
