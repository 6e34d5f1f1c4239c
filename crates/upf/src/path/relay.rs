//! From tunnel to tunnel: what an intermediate UPF (N9) or an SGW-U hands on (TS 29.244 8.2.64 note 1).
//!
//! The packet inside belongs to the ends: no hop is taken off it. Extension headers of GTP-U that an
//! intermediate node forwards go on in the order in which they came. A QER with a QFI writes a PDU session
//! container of its own in place of the one that came.

use arrayvec::ArrayVec;
use kaido_engine::Frame;
use kaido_wire::gtpu::{
    self, CHAIN_LEN_MAX, Comprehension, DownlinkInformation, Extensions, MessageType, PduSession,
    comprehension, extension_type,
};
use kaido_wire::layout::{self, GtpuFields};
use kaido_wire::{Error, ipv4, ipv6, udp};

use super::emit::{self, Ends, FlowFields};
use crate::node::{NodeSettings, OuterSourcePort};
use crate::tunnels::{EncapTemplate, Tunnel};
use crate::ue::Direction;
use kaido_n4::Teid;

/// Flags of a header with extensions: version 1, GTP, E.
const FLAGS: u8 = gtpu::VERSION_PT | gtpu::FLAG_EXTENSION;

/// Extension headers, ready to stand behind a GTP-U header.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredExtensions {
    /// Type of the first.
    first: u8,
    /// The chain; its last octet is the type of none.
    chain: ArrayVec<u8, CHAIN_LEN_MAX>,
}

impl StoredExtensions {
    /// What goes on of the extensions of a whole GTP-U header.
    pub(super) fn of(header: &[u8]) -> Self {
        let mut stored = Self::default();
        if let [flags, rest @ ..] = header
            && flags & 0x04 != 0
            && let Some((fixed, chain)) = rest.split_at_checked(gtpu::HEADER_LEN - 1 + gtpu::OPTIONAL_LEN)
        {
            let next = fixed.last().copied().unwrap_or(extension_type::NONE);
            for extension in Extensions::new(next, chain).map_while(Result::ok) {
                if matches!(comprehension(extension.kind), Comprehension::Optional | Comprehension::Endpoint)
                {
                    stored.push(extension.kind, extension.content);
                }
            }
        }
        stored
    }

    /// A PDU session container of a flow: what is known of a packet that was buffered meanwhile.
    pub(super) fn of_flow(qfi: Option<u8>, direction: Direction) -> Self {
        let mut stored = Self::default();
        if let Some(qfi) = qfi {
            stored.push_container(match direction {
                Direction::Uplink => PduSession::Uplink { qfi },
                Direction::Downlink => PduSession::Downlink { qfi, rqi: false, ppi: None },
            });
        }
        stored
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    fn push(&mut self, kind: u8, content: &[u8]) {
        let Ok(units) = u8::try_from((content.len() + 2) / 4) else { return };
        let end = self.chain.len();
        if self.chain.remaining_capacity() < content.len() + 2 {
            return;
        }
        match end.checked_sub(1) {
            Some(last) => self.chain[last] = kind,
            None => self.first = kind,
        }
        self.chain.push(units);
        self.chain.extend(content.iter().copied());
        self.chain.push(extension_type::NONE);
    }

    /// The chain of a container alone.
    pub(super) fn of_container(container: &DownlinkInformation) -> Self {
        let mut octets = [0; CHAIN_LEN_MAX];
        let mut stored = Self::default();
        if let Ok(len) = container.emit(extension_type::NONE, &mut octets) {
            stored.push_whole(&octets[..len]);
        }
        stored
    }

    fn push_container(&mut self, container: PduSession) {
        let mut octets = [0; 8];
        if let Ok(len) = container.emit(extension_type::NONE, &mut octets) {
            self.push_whole(&octets[..len]);
        }
    }

    /// Adds a container as an extension header: its length in front, and the type of the next one behind.
    fn push_whole(&mut self, container: &[u8]) {
        if let [_, content @ .., _] = container {
            self.push(extension_type::PDU_SESSION_CONTAINER, content);
        }
    }

    /// The chain that goes into a tunnel: with the template's own container in place of the one that came, or
    /// without any if it is to be deleted.
    pub(super) fn for_tunnel(&self, encap: &EncapTemplate, deletes_container: bool) -> Self {
        if encap.qfi.is_none() && !deletes_container {
            return self.clone();
        }
        let mut chain = Self::default();
        if let Some(container) = encap.container() {
            chain.push_container(container);
        }
        for extension in Extensions::new(self.first, &self.chain).map_while(Result::ok) {
            if extension.kind != extension_type::PDU_SESSION_CONTAINER {
                chain.push(extension.kind, extension.content);
            }
        }
        chain
    }

    /// Octets of all headers that [`StoredExtensions::put_before`] writes.
    pub(super) fn overhead(&self, tunnel: &Tunnel) -> usize {
        let ip = if tunnel.encap.peer.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let optional = if self.chain.is_empty() { 0 } else { gtpu::OPTIONAL_LEN + self.chain.len() };
        ip + udp::HEADER_LEN + gtpu::HEADER_LEN + optional
    }

    /// Puts GTP-U with the chain, UDP and IP before a packet.
    ///
    /// # Errors
    /// [`Error::Range`] when the packet is too long, [`Error::Truncated`] when the frame has no headroom.
    pub(super) fn put_before(
        &self,
        settings: &NodeSettings,
        tunnel: &Tunnel,
        of_flow: FlowFields,
        frame: &mut Frame,
    ) -> Result<(), Error> {
        let src_port = match settings.live.tunnels.source_port {
            OuterSourcePort::Entropy => of_flow.src_port,
            OuterSourcePort::Fixed => gtpu::UDP_PORT,
        };
        self.put_message(tunnel.teid, frame)?;
        let encap = &tunnel.encap;
        let ends = Ends { src: settings.endpoints[usize::from(encap.local.0)], dst: encap.peer };
        let (tos, copied) = encap.class(&settings.live.tunnels.marking);
        let tos = tos | of_flow.class & copied;
        emit::datagram(settings, ends, (src_port, gtpu::UDP_PORT), tos, frame)
    }

    /// Puts GTP-U with the chain before a packet.
    ///
    /// # Errors
    /// As [`StoredExtensions::put_before`].
    pub(super) fn put_message(&self, teid: Teid, frame: &mut Frame) -> Result<(), Error> {
        let mut flags = gtpu::VERSION_PT;
        if !self.chain.is_empty() {
            let room = gtpu::OPTIONAL_LEN + self.chain.len();
            let head = frame.prepend(room).ok_or(Error::Truncated)?;
            head[..gtpu::OPTIONAL_LEN].copy_from_slice(&[0, 0, 0, self.first]);
            head[gtpu::OPTIONAL_LEN..room].copy_from_slice(&self.chain);
            flags = FLAGS;
        }
        let length = u16::try_from(frame.packet_len()).map_err(|_| Error::Range)?;
        let head = frame.prepend(gtpu::HEADER_LEN).ok_or(Error::Truncated)?;
        let mut head = GtpuFields::new(layout::at_mut(head, 0));
        head.set_flags(flags);
        head.set_message_type(MessageType::G_PDU.0);
        head.set_length(length);
        head.set_teid(teid.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::ids::EndpointId;
    use kaido_n4::Qfi;

    fn encap(qfi: Option<u8>) -> EncapTemplate {
        let peer = IpAddr::from([10, 0, 0, 1]);
        EncapTemplate {
            qfi: qfi.map(Qfi),
            container_uplink: true,
            ..EncapTemplate::plain(peer, EndpointId(0))
        }
    }

    /// Service class indicator (00), UDP port (01), container (10), PDCP PDU number (11).
    const HEADER: &[u8] = &[
        0x34, 0xff, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0x20, 1, 7, 7, 0x40, 1, 9, 9, 0x85, 1, 0x10, 5, 0xc0, 1, 1,
        1, 0,
    ];

    #[test]
    fn extensions_go_on_as_their_comprehension_bits_ask() {
        let stored = StoredExtensions::of(HEADER);
        assert_eq!((stored.first, &stored.chain[..]), (0x20, &[1, 7, 7, 0x85, 1, 0x10, 5, 0][..]));
        assert_eq!(stored.for_tunnel(&encap(None), false).chain, stored.chain);
        let marked = stored.for_tunnel(&encap(Some(9)), false);
        assert_eq!((marked.first, &marked.chain[..]), (0x85, &[1, 0x10, 9, 0x20, 1, 7, 7, 0][..]));
        let deleted = stored.for_tunnel(&encap(None), true);
        assert_eq!((deleted.first, &deleted.chain[..]), (0x20, &[1, 7, 7, 0][..]));
    }

    #[test]
    fn a_header_without_or_with_half_a_chain_stores_what_is_whole() {
        assert!(StoredExtensions::of(&HEADER[..8]).chain.is_empty());
        assert!(StoredExtensions::of(&[]).chain.is_empty());
        for end in 8..HEADER.len() {
            assert!(StoredExtensions::of(&HEADER[..end]).chain.len() <= 8, "{end}");
        }
        assert!(StoredExtensions::of(&[0x30; 12]).chain.is_empty());
    }
}
