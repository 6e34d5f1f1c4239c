//! The gNB's receiver: sorts what comes out of tunnels to devices, the tally of replies, and signalling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kaido_engine::port::Tun;
use kaido_wire::MessageType;

use super::gnb::{Gnb, count, read};
use super::numbered;
use super::traffic::Replies;
use super::ue::Ue;

/// The longest UDP payload.
const DATAGRAM_MAX: usize = 65_536;

/// Everything the receiver needs.
#[derive(Debug)]
pub(super) struct Downlink {
    /// The socket.
    pub(super) gnb: Arc<Gnb>,
    /// The UEs, in the order of their TEIDs.
    pub(super) ues: Arc<[Ue]>,
    /// Devices of the first UEs.
    pub(super) tuns: Arc<[Tun]>,
    /// Which generated datagrams were answered, if any are generated.
    pub(super) replies: Option<Replies>,
}

impl Downlink {
    /// Receives until `stop`.
    pub(super) fn run(mut self, stop: &AtomicBool) {
        let mut buffer = vec![0; DATAGRAM_MAX];
        while !stop.load(Ordering::Relaxed) {
            let Some((len, from)) = self.gnb.receive(&mut buffer) else { continue };
            let datagram = buffer.get(..len).unwrap_or_default();
            let Some((header, payload)) = read(&self.gnb, datagram) else { continue };
            if header.message_type != MessageType::G_PDU {
                self.gnb.signalling(header.message_type, datagram, from);
                continue;
            }
            let place = self.gnb.ue_of(header.teid);
            if place < self.ues.len() {
                self.deliver(place, payload);
            } else {
                self.gnb.unknown_teid(header.teid, from);
            }
        }
    }

    fn deliver(&mut self, place: usize, packet: &[u8]) {
        let Some(ue) = self.ues.get(place) else { return };
        if !numbered::addresses(packet).is_some_and(|(_, dst)| ue.has(dst)) {
            return count(&self.gnb.counters.misdelivered);
        }
        if let Some(replies) = &mut self.replies
            && let Some(reply) = replies.read(packet)
        {
            return replies.tally(reply, place, packet.len(), ue, &self.gnb.counters);
        }
        match self.tuns.get(place) {
            None => ue.counters.unclaimed.add(packet.len()),
            Some(tun) if tun.write(packet).is_ok() => ue.counters.tun_received.add(packet.len()),
            Some(_) => count(&self.gnb.counters.tun_errors),
        }
    }
}
