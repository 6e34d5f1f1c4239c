//! Flow descriptions (TS 29.212 5.4.2): whatever text comes, and what is read is written and read again as the same.
#![allow(clippy::unwrap_used)]

use kaido_fuzz::fuzz_target;
use kaido_n4::SdfFilter;

fuzz_target!(sdf, 100_000, run);

fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match SdfFilter::parse(&text) {
        Ok(filter) => {
            let written = filter.description().to_string();
            let again = SdfFilter::parse(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
            assert_eq!(filter, again, "{text} is written as {written}");
            assert_eq!(again.description().to_string(), written);
        }
        Err(error) => assert!(!error.reason.is_empty()),
    }
}
