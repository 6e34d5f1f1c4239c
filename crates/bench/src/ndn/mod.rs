//! Interests and Data in both directions through a network of NDN routers, every answer judged.
//!
//! ```text
//!  station 0 ─ Interests for the names of station 1 ─▶ router ... router ─▶ station 1
//!            ◀───────────── Data, judged octet for octet ─────────────────
//!  station 1 ─ Interests for the names of station 0 ─▶ ...
//! ```
//! Up to four billion names, without a table. A name has in it its rank in a keyed permutation, and what its Data must hold
//! follows from the rank. So what comes is judged without remembering what was asked.

mod names;
mod popularity;
mod report;
mod station;

use std::io;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use kaido_ndn::client::{CommandError, Consumer, Router, command};
use kaido_ndn::mgmt::{ControlParameters, Module};
use kaido_wire::ndn::{Name, name_from_uri, sha256};

pub use popularity::Popularity;
pub use report::{NdnReport, StationResult};

use names::Names;
use station::Station;

/// What is run.
#[derive(Clone, Debug)]
pub struct NdnPlan {
    /// The routers that the stations are at, one each; each asks for the names of the next.
    pub routers: Vec<Router>,
    /// Names of each station.
    pub names: u32,
    /// How often they are asked for.
    pub popularity: Popularity,
    /// Octets of content.
    pub content: usize,
    /// Interests under way at once, of each station.
    pub window: usize,
    /// How long an Interest waits.
    pub lifetime: Duration,
    /// How long is asked.
    pub duration: Duration,
    /// Of names, contents and what is drawn.
    pub seed: u64,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum NdnError {
    /// Nobody listens.
    #[error("cannot reach a router at {router}: {error}")]
    Unreachable {
        /// Where.
        router: Router,
        /// What the system said.
        error: io::Error,
    },
    /// The router does not take the station's prefix.
    #[error("the router refuses the prefix of a station: {0}")]
    Refused(#[from] CommandError),
    /// The router has closed the connection.
    #[error("the connection to the router is gone: {0}")]
    Gone(io::Error),
    /// A packet does not fit.
    #[error("a packet cannot be written: {0}; with less content it may")]
    Packet(#[from] kaido_wire::Error),
    /// The machine has no more threads.
    #[error("a station has died")]
    Died,
}

/// Runs a plan.
///
/// # Errors
/// [`NdnError`].
pub fn measure_ndn(plan: &NdnPlan, stop: &AtomicBool) -> Result<NdnReport, NdnError> {
    let count = plan.routers.len();
    let names: Vec<Names> = (0..count).map(|number| own_names(plan, number)).collect::<Result<_, _>>()?;
    let ready = Barrier::new(count);
    let stations = std::thread::scope(|scope| {
        let start = |(number, router): (usize, &Router)| {
            let (own, others) = (names[number].clone(), names[(number + 1) % count].clone());
            let (ready, router) = (&ready, router.clone());
            scope.spawn(move || {
                let registered = register(&router, &own);
                // The others would wait for ever for one that has failed.
                ready.wait();
                let seed = plan.seed.wrapping_add(1 + number as u64);
                let station = Station::new(plan, registered?, own, others, seed);
                station.run(Instant::now() + plan.duration, stop)
            })
        };
        let threads: Vec<_> = plan.routers.iter().enumerate().map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(NdnError::Died)))
            .collect::<Result<_, _>>()
    })?;
    Ok(NdnReport::new(plan.duration.as_secs_f64(), plan.names, stations))
}

/// The names of a station: below `/kaido/bench/DIGEST/NUMBER`. The digest is of all that contents follow from, so that what a
/// router has still cached of another run is either of other names or just what is asked for.
fn own_names(plan: &NdnPlan, number: usize) -> Result<Names, NdnError> {
    let told = format!("{} {} {}", plan.seed, plan.names, plan.content);
    let digest = sha256([told.as_bytes()]);
    let digest = u64::from_be_bytes(*digest.first_chunk().unwrap_or(&[0; 8]));
    let prefix = name_from_uri(&format!("/kaido/bench/{digest:016x}/{number}"))?;
    Ok(Names::new(Name::new(&prefix)?, plan.names, plan.seed.wrapping_add(number as u64)))
}

fn register(router: &Router, own: &Names) -> Result<Consumer, NdnError> {
    let unreachable = |error| NdnError::Unreachable { router: router.clone(), error };
    let mut consumer = Consumer::connect(router).map_err(unreachable)?;
    let asked = ControlParameters { name: Some(own.prefix().to_vec()), ..ControlParameters::default() };
    command(&mut consumer, Module::Rib, "register", &asked)?;
    Ok(consumer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64, names: u32, content: usize) -> NdnPlan {
        NdnPlan {
            routers: Vec::new(),
            names,
            popularity: Popularity::Once,
            content,
            window: 1,
            lifetime: Duration::from_secs(1),
            duration: Duration::ZERO,
            seed,
        }
    }

    /// A router that has Data of one run does not answer wrongly in another.
    #[test]
    fn a_name_of_two_runs_has_the_same_content_in_both() {
        let first = own_names(&plan(1, 1000, 1000), 0).unwrap();
        assert_eq!(own_names(&plan(1, 1000, 1000), 0).unwrap().prefix(), first.prefix());
        for (seed, names, content) in [(1, 1000, 999), (1, 999, 1000), (2, 1000, 1000)] {
            let other = own_names(&plan(seed, names, content), 0).unwrap();
            assert_ne!(other.prefix(), first.prefix(), "{seed} {names} {content}");
        }
        assert_ne!(own_names(&plan(1, 1000, 1000), 1).unwrap().prefix(), first.prefix());
    }
}
