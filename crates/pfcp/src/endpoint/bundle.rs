//! Bundled answers (TS 29.244 6.5): a peer that bundles its requests gets their answers in as few datagrams.

use std::net::SocketAddr;
use std::sync::Arc;

use kaido_n4::SessionService;

use super::Endpoint;
use crate::features::CpFeatures;
use crate::frame::BUNDLED_MAX;
use crate::transaction::Transmit;

/// The longest datagram made of several messages: none is to be fragmented on its way.
const BUNDLE_MAX: usize = 1200;
/// FO of the header (7.2.2.2): another message follows.
const FOLLOW_ON: u8 = 4;

impl<S: SessionService> Endpoint<S> {
    /// Joins the messages to a peer that lie in `out` from `first` on, if the peer says that it can read them so.
    pub(super) fn bundle(&self, to: SocketAddr, first: usize, out: &mut Vec<Transmit>) {
        let mut here = self.associations.at(to.ip()).iter().filter_map(|&id| self.associations.get(id));
        if !here.any(|association| association.features.has(CpFeatures::BUNDL)) {
            return;
        }
        let (same, others): (Vec<_>, Vec<_>) = out.drain(first..).partition(|transmit| transmit.to == to);
        out.extend(join(to, &same));
        out.extend(others);
    }
}

fn join(to: SocketAddr, messages: &[Transmit]) -> Vec<Transmit> {
    let mut joined = Vec::new();
    let mut bundle: Vec<u8> = Vec::new();
    // Where the last message in the bundle begins.
    let (mut last, mut count) = (0, 0);
    for Transmit { bytes, .. } in messages {
        if !bundle.is_empty() && (bundle.len() + bytes.len() > BUNDLE_MAX || count == BUNDLED_MAX) {
            joined.push(Transmit { to, bytes: Arc::from(std::mem::take(&mut bundle)) });
            count = 0;
        }
        if !bundle.is_empty() {
            bundle[last] |= FOLLOW_ON;
        }
        last = bundle.len();
        bundle.extend_from_slice(bytes);
        count += 1;
    }
    if !bundle.is_empty() {
        joined.push(Transmit { to, bytes: bundle.into() });
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameResult, Role, frames};

    #[test]
    fn bundles_hold_all_messages_in_order_and_are_short() {
        let to = SocketAddr::from(([10, 0, 0, 1], 8805));
        let heartbeat = |sequence: u8| Transmit {
            to,
            bytes: Arc::from([0x20, 2, 0, 12, 0, 0, sequence, 0, 0, 96, 0, 4, 1, 2, 3, 4]),
        };
        let messages: Vec<_> = (0..100).map(heartbeat).collect();
        let joined = join(to, &messages);
        assert_eq!(joined.len(), 2);
        assert!(joined.iter().all(|transmit| transmit.bytes.len() <= BUNDLE_MAX));
        let sequences =
            joined.iter().flat_map(|transmit| frames(Role::ControlPlane, &transmit.bytes)).map(|framed| {
                match framed {
                    FrameResult::Message(frame) => frame.sequence,
                    other => panic!("{other:?}"),
                }
            });
        assert_eq!(sequences.collect::<Vec<_>>(), (0..100).collect::<Vec<u32>>());
    }
}
