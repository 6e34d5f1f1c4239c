//! Records of what is to be known after a restart, as octets.

use serde::Serialize;

/// Appends a value to a record.
pub(crate) fn append(record: &mut Vec<u8>, value: &impl Serialize) {
    match postcard::to_allocvec(value) {
        Ok(octets) => record.extend_from_slice(&octets),
        // What is in memory can be written there.
        Err(error) => tracing::error!(%error, "a record could not be made"),
    }
}
