//! Maps whose keys peers choose: their hash has a secret of each map, and is made for short keys.
//!
//! Every message is looked up several times: by its sender, by sender and sequence number, by its session. The hash of the standard
//! library (SipHash) takes about 150 instructions for each; this one, of folded multiplications, a tenth of that.

use std::collections::HashMap;

/// A map for short keys.
pub(crate) type KeyedMap<K, V> = HashMap<K, V, hashbrown::DefaultHashBuilder>;
