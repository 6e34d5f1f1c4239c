//! What a function offers to be scraped.

use kaido_engine::PortTotals;
use kaido_metrics::Exposition;

/// What a function offers at the endpoint beside the figures that every node has.
pub trait MetricsSource: Send {
    /// Is called before each scrape; `false` where its figures cannot be had in time.
    fn look(&mut self) -> bool {
        true
    }

    /// Adds what a datapath in the kernel has counted on the port of that number.
    fn add_kernel(&self, _at: usize, _totals: &mut PortTotals) {}

    /// Writes its families.
    fn metrics(&self, out: &mut Exposition);
}
