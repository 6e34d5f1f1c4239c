//! DPDK's declarations, as bindgen reads them.
#![allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unused_qualifications,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]

include!(concat!(env!("OUT_DIR"), "/dpdk.rs"));
