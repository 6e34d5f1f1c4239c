//! What a function has many of, such as sessions or rules, for who looks at them live: [`kaido top`](../kaido_top/index.html).

use std::path::Path;

/// A list of a function's.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// What it lists: `sessions`.
    pub title: &'static str,
    /// Headings of the cells of a row.
    pub columns: &'static [&'static str],
    /// What the octets of a row count: `uplink` and `downlink`.
    pub directions: &'static [&'static str],
    /// What it may be filtered by, in a few words; none where it cannot.
    pub filter: Option<&'static str>,
    /// Asks the node at a control socket for the rows that meet a filter, at most so many.
    pub page: fn(&Path, &str, usize) -> miette::Result<ListingPage>,
    /// Asks for all that is known of one, by its key, as lines.
    pub detail: Option<fn(&Path, &str) -> miette::Result<String>>,
}

/// Rows of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingPage {
    /// How many meet the filter, or are there.
    pub total: usize,
    /// The first of them.
    pub rows: Vec<ListingRow>,
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingRow {
    /// What it is known by from one look to the next.
    pub key: String,
    /// What is shown, a cell for each column.
    pub cells: Vec<String>,
    /// Octets since it began, for each direction.
    pub octets: Vec<u64>,
}
