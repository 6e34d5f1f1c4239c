//! ARP and neighbour discovery in the frames of Ethernet sessions. What they say is kept. Where a FAR says so,
//! questions are answered in place of who is asked (TS 23.501 5.6.10.2, TS 29.244 8.2.96).

use std::net::IpAddr;

use kaido_engine::{Frame, Output};
use kaido_table::Guard;
use kaido_wire::ndisc::{self, NdiscRepr};
use kaido_wire::{ArpOperation, ArpRepr, EtherType, MacAddr};

use super::Worker;
use super::bridge::prepend_header;
use super::lan::{NeighbourMessage, hear, write_arp, write_ndisc};
use crate::ethernet::Station;
use crate::ethernet::fdb::Owner;
use crate::ethernet::frame::{ADDRESSES, EthernetFrame};
use crate::ids::SessionIndex;
use kaido_n4::{Mac, Proxying};

/// A question to many, for an address that is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProxyQuery {
    /// Whom it is for, who has that, and where that is.
    target: IpAddr,
    station: Station,
    owner: Owner,
    /// Whom to answer.
    from: IpAddr,
    /// It has its answer.
    answered: bool,
}

impl ProxyQuery {
    /// Whether a FAR has it answered here.
    pub(super) fn is_wanted(&self, proxying: Proxying) -> bool {
        if self.target.is_ipv4() { proxying.arp } else { proxying.neighbours }
    }

    /// Whether who is asked for is elsewhere than behind that session.
    pub(super) fn is_elsewhere(&self, session: SessionIndex) -> bool {
        self.owner != Owner::Session(session)
    }

    /// Whether it is for someone behind that session, and has no answer yet.
    pub(super) fn is_of(&self, session: SessionIndex) -> bool {
        self.owner == Owner::Session(session) && !self.answered
    }

    pub(super) fn answered(self) -> Self {
        Self { answered: true, ..self }
    }
}

impl Worker {
    /// Keeps what a frame of a station says of its IP addresses. The question that it asks of many, if the answer is known.
    pub(super) fn listen(
        &mut self,
        guard: &Guard<'_>,
        station: Station,
        seen: &EthernetFrame,
        frame: &Frame,
    ) -> Option<ProxyQuery> {
        let payload = frame.data().get(seen.payload_at..)?;
        if !is_about_neighbours(seen.ethertype, payload) {
            return None;
        }
        let NeighbourMessage { sender, target, answer } = hear(payload, seen.payload_len())?;
        let node = self.node.clone();
        if let Some((address, mac)) = sender
            && Mac(mac) == seen.source
        {
            node.ethernet.bindings.learn(station, address);
        }
        let from = answer.filter(|from| *from != target && seen.destination.is_group())?;
        let known = node.ethernet.bindings.find(&station, target)?;
        let owner = node.ethernet.fdb.owner(guard, &known).filter(|_| known != station)?;
        Some(ProxyQuery { target, station: known, owner, from, answered: false })
    }

    /// The answer to a question that a frame asks, in a frame of its own; `None` beyond the rate of answers.
    pub(super) fn answer_to(
        &mut self,
        asked: &ProxyQuery,
        seen: &EthernetFrame,
        frame: &Frame,
        out: &mut Output<'_>,
    ) -> Option<Frame> {
        if !self.proxied.admit(out.now()) {
            return None;
        }
        let tags = frame.data().get(ADDRESSES..seen.payload_at)?;
        let header = [&seen.source.0[..], &asked.station.mac.0, tags].concat();
        let mut answer = out.allocate()?;
        let mac = MacAddr(asked.station.mac.0);
        let written = match (asked.target, asked.from) {
            (IpAddr::V4(target), IpAddr::V4(from)) => {
                let reply = ArpRepr {
                    operation: ArpOperation::Reply,
                    sender_mac: mac,
                    sender_ip: target,
                    target_mac: MacAddr(seen.source.0),
                    target_ip: from,
                };
                write_arp(&reply, &mut answer)
            }
            (IpAddr::V6(target), IpAddr::V6(from)) => {
                // Without the override flag, as RFC 4861 7.2.8 asks of a proxy.
                let message = NdiscRepr::NeighborAdvertisement {
                    router: false,
                    solicited: true,
                    override_cache: false,
                    target,
                    target_link: Some(mac),
                };
                write_ndisc(&message, target, from, &mut answer)
            }
            _ => None,
        };
        if written.is_some() && prepend_header(&mut answer, &header) {
            Some(answer)
        } else {
            out.release(answer);
            None
        }
    }
}

/// Whether a payload is ARP, a neighbour solicitation or a neighbour advertisement.
fn is_about_neighbours(ethertype: EtherType, payload: &[u8]) -> bool {
    match ethertype {
        EtherType::ARP => true,
        EtherType::IPV6 => ndisc::is_about_neighbours(payload),
        _ => false,
    }
}
