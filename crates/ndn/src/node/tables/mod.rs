//! What a router's tables hold, listed turn by turn of its control loop.
//!
//! ```text
//!   faces, RIB, strategies ── some rows, at most 0.4 ms ──▶ page
//!   PIT, CS of a worker    ── a reading under way ────────▶ page
//! ```
//! No turn takes long, and no worker does more for it in a round than to look at some entries: see `TablePage`.

mod faces;
mod prefixes;
mod summary;
mod workers;

use std::any::Any;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kaido_node::api::{Asked, Problem, Question};
use kaido_node::function::{Answer, Part};
use kaido_wire::ndn::{Name, name_from_uri};

use self::faces::FaceListing;
use self::prefixes::{FibListing, StrategyListing};
use self::summary::{SharingListing, TableReports};
use self::workers::WorkerListing;
use super::api::{ListNdnCs, ListNdnPit};
use crate::mgmt::Rib;
use crate::router::Observer;

/// How long a turn of the control loop lists, or waits for a worker.
const TURN_MAX: Duration = Duration::from_micros(400);
/// Rows between two looks at the clock.
const ROWS_BETWEEN_LOOKS: usize = 8;
/// Rows of a page, at most.
const LIMIT_MAX: usize = 1000;

/// Where the tables are.
pub(super) struct Tables<'r> {
    pub(super) router: &'r Observer,
    pub(super) rib: &'r Mutex<Rib>,
}

/// An answer that is made turn by turn.
trait Listing: Send + 'static {
    /// What is asked.
    type Asked: Question<Answer: Default>;

    /// Begins.
    ///
    /// # Errors
    /// What is wrong with the question.
    fn begin(asked: Self::Asked) -> Result<Self, Problem>
    where
        Self: Sized;

    /// Goes on; the answer, once it is whole.
    ///
    /// # Errors
    /// Why there is none.
    fn turn(&mut self, tables: &Tables<'_>) -> Result<Option<<Self::Asked as Question>::Answer>, Problem>;
}

impl Tables<'_> {
    /// The answer to a question for tables, or how far it is; `None` where it is another question.
    pub(super) fn answer(&self, asked: &Asked, mut so_far: Option<Part>) -> Option<Answer> {
        let so_far = &mut so_far;
        self.list::<SharingListing>(asked, so_far)
            .or_else(|| self.list::<TableReports>(asked, so_far))
            .or_else(|| self.list::<FaceListing>(asked, so_far))
            .or_else(|| self.list::<FibListing>(asked, so_far))
            .or_else(|| self.list::<StrategyListing>(asked, so_far))
            .or_else(|| self.list::<WorkerListing<ListNdnPit>>(asked, so_far))
            .or_else(|| self.list::<WorkerListing<ListNdnCs>>(asked, so_far))
    }

    fn list<L: Listing>(&self, asked: &Asked, so_far: &mut Option<Part>) -> Option<Answer> {
        let mut unfinished: Option<Box<dyn Any + Send>> = None;
        let whole = asked.on(|question: L::Asked| {
            let known = so_far.take().and_then(|part| part.downcast::<L>().ok());
            let mut listing = known.map_or_else(|| L::begin(question).map(Box::new), Ok)?;
            Ok(listing.turn(self)?.unwrap_or_else(|| {
                unfinished = Some(listing);
                <L::Asked as Question>::Answer::default()
            }))
        })?;
        Some(unfinished.map_or(Answer::Whole(whole), Answer::Part))
    }
}

/// Rows that are asked for.
///
/// # Errors
/// When it is none, or too many.
fn limit(limit: usize) -> Result<usize, Problem> {
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::bad_request(format!("limit: {limit} is not from 1 to {LIMIT_MAX}")))
}

/// The components of a name that is asked for.
///
/// # Errors
/// When it is no name.
fn components(field: &str, uri: &str) -> Result<Vec<u8>, Problem> {
    name_from_uri(uri).map_err(|_| {
        Problem::bad_request(format!("{field}: `{uri}` is no name; write one such as /ndn/example"))
    })
}

fn prefix_of(uri: Option<&str>) -> Result<Vec<u8>, Problem> {
    uri.map_or(Ok(Vec::new()), |uri| components("prefix", uri))
}

/// That a page does not begin there.
fn no_page(from: &str) -> Problem {
    Problem::bad_request(format!("from: `{from}` is not `next` of a page of this list"))
}

fn uri(octets: &[u8]) -> String {
    Name::new(octets).map(|name| name.to_string()).unwrap_or_default()
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a list that has taken so many rows in a turn goes on in the next.
fn is_over(rows: usize, until: Instant) -> bool {
    rows % ROWS_BETWEEN_LOOKS == ROWS_BETWEEN_LOOKS - 1 && Instant::now() >= until
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_bounded_and_named() {
        assert_eq!(limit(1000), Ok(1000));
        for wrong in [0, 1001] {
            assert_eq!(limit(wrong).unwrap_err().status, 400);
        }
        assert_eq!(prefix_of(None), Ok(Vec::new()));
        assert_eq!(prefix_of(Some("/")), Ok(Vec::new()));
        assert_eq!(prefix_of(Some("/a/b")).map(|octets| uri(&octets)), Ok("/a/b".to_owned()));
        let why = prefix_of(Some("far")).unwrap_err();
        assert!(why.detail.starts_with("prefix: `far` is no name"), "{}", why.detail);
    }
}
