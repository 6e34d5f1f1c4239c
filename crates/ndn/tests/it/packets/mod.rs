//! Packets for tests.
#![allow(clippy::unwrap_used, clippy::missing_docs_in_private_items, dead_code)]

use kaido_wire::ndn::{DataRepr, InterestRepr, Name, name_from_uri};

pub(crate) fn name(uri: &str) -> Vec<u8> {
    name_from_uri(uri).unwrap()
}

/// An Interest with a nonce.
pub(crate) fn interest(uri: &str, nonce: u32) -> Vec<u8> {
    interest_with(uri, nonce, |_| {})
}

pub(crate) fn interest_with(uri: &str, nonce: u32, change: impl FnOnce(&mut InterestRepr<'_>)) -> Vec<u8> {
    let octets = name(uri);
    let mut repr =
        InterestRepr { name: Name::new(&octets).unwrap(), nonce: Some(nonce), ..InterestRepr::default() };
    change(&mut repr);
    let mut packet = vec![0; repr.len()];
    repr.emit(&mut packet).unwrap();
    packet
}

pub(crate) fn data_with(uri: &str, content: &[u8], freshness_ms: u64) -> Vec<u8> {
    let octets = name(uri);
    let repr = DataRepr { name: Name::new(&octets).unwrap(), content, freshness_ms, ..DataRepr::default() };
    let mut packet = vec![0; repr.len()];
    repr.emit(&mut packet).unwrap();
    packet
}
