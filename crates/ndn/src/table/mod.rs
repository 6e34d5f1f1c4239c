//! The tables: what is known of names.

mod fib;
mod name_table;
mod names;

pub use fib::{Fib, FibError, HOPS_MAX, Hop, Hops};
pub use name_table::{Lookup, NameTable, NameTableError, Sought};
pub use names::{COMPONENTS_MAX, DEPTH_MAX, NAME_OCTETS_MAX, NameError, NameHash, Prefixes, components};
