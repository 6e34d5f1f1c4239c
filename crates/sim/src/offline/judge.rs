//! Judges what came out: every packet against what went in.

use kaido_wire::{EthernetView, MacAddr, MessageType, gtpu};

use super::frames::{NumberedPacket, Site};
use super::node::{DN_MAC, GNB, GNB_MAC, N3_MAC, N6_MAC, UPF_GTPU};
use super::table::Table;
use crate::numbered::{self, Payload};
use crate::report::Usage;

/// What can be wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The Ethernet addresses.
    Link,
    /// The tunnel: its addresses, port, TEID or QFI.
    Tunnel,
    /// The addresses or ports of the user's packet.
    Address,
    /// TTL or hop limit is not one less than it was.
    Hops,
    /// The payload, or its length.
    Payload,
    /// A checksum.
    Checksum,
    /// It came before.
    Again,
    /// It is none of those that went in.
    Stray,
}

/// Every flaw, with its name in the table.
const FLAWS: [(Flaw, &str); 8] = [
    (Flaw::Link, "wrong Ethernet addresses"),
    (Flaw::Tunnel, "wrong tunnel (peer, port, TEID, QFI)"),
    (Flaw::Address, "wrong address or port"),
    (Flaw::Hops, "wrong TTL"),
    (Flaw::Payload, "wrong payload"),
    (Flaw::Checksum, "wrong checksum"),
    (Flaw::Again, "packet seen before"),
    (Flaw::Stray, "packet that nobody sent"),
];

/// Packets and bytes of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// What came out for each UE: up at n6, down at n3.
#[derive(Debug)]
pub(super) struct Volumes(Vec<(Amount, Amount)>);

impl Volumes {
    /// Nothing yet for any of so many UEs.
    pub(super) fn new(ues: usize) -> Self {
        Self(vec![(Amount::default(), Amount::default()); ues])
    }

    /// Counts a packet that came out of n6.
    pub(super) fn up(&mut self, packet: &NumberedPacket) {
        if let Some((up, _)) = self.0.get_mut(packet.ue) {
            up.add(packet.len);
        }
    }

    /// Counts a packet that came out of n3.
    pub(super) fn down(&mut self, packet: &NumberedPacket) {
        if let Some((_, down)) = self.0.get_mut(packet.ue) {
            down.add(packet.len);
        }
    }

    /// Of all UEs.
    pub(super) fn totals(&self) -> (Amount, Amount) {
        let sum = |a: Amount, b: &Amount| Amount { packets: a.packets + b.packets, bytes: a.bytes + b.bytes };
        let none = (Amount::default(), Amount::default());
        self.0.iter().fold(none, |all, each| (sum(all.0, &each.0), sum(all.1, &each.1)))
    }

    /// UEs of which the UPF reported just this.
    pub(super) fn agreeing(&self, usage: &[Usage]) -> usize {
        let reported = usage.iter().map(|usage| {
            let up = Amount { packets: usage.uplink_packets, bytes: usage.uplink_bytes };
            let down = Amount { packets: usage.downlink_packets, bytes: usage.downlink_bytes };
            (up, down)
        });
        self.0.iter().zip(reported).filter(|(came_out, reported)| *came_out == reported).count()
    }
}

/// Judges a frame that came out of n6.
pub(super) fn uplink(site: &Site<'_>, frame: &[u8]) -> Result<NumberedPacket, Flaw> {
    let packet = unlink(frame, DN_MAC, N6_MAC)?;
    let (number, found) = user(packet)?;
    let sent = site.numbered(number).ok_or(Flaw::Stray)?;
    check(&sent, found, (sent.host, sent.server), packet)
}

/// Judges a frame that came out of n3.
pub(super) fn downlink(site: &Site<'_>, frame: &[u8]) -> Result<NumberedPacket, Flaw> {
    let outer = unlink(frame, GNB_MAC, N3_MAC)?;
    let tunnel = numbered::datagram(outer).ok_or(Flaw::Tunnel)?;
    let header = gtpu::header(tunnel.payload).map_err(|_| Flaw::Tunnel)?;
    let packet = tunnel.payload.get(header.payload_offset.into()..).unwrap_or_default();
    let packet = packet.get(..header.payload_len.into()).unwrap_or_default();
    let (number, found) = user(packet)?;
    let sent = site.numbered(number).ok_or(Flaw::Stray)?;
    let right_way =
        tunnel.from.ip() == UPF_GTPU && tunnel.to.ip() == GNB && tunnel.to.port() == gtpu::UDP_PORT;
    let right_tunnel = header.message_type == MessageType::G_PDU
        && Some(header.teid) == site.downlink_teid(sent.ue)
        && header.qfi == site.qfi()
        && header.pdu_type == site.qfi().map(|_| gtpu::PDU_TYPE_DL);
    if !right_way || !right_tunnel || !numbered::checksums_ok(outer) {
        return Err(Flaw::Tunnel);
    }
    check(&sent, found, (sent.server, sent.host), packet)
}

fn unlink(frame: &[u8], dst: [u8; 6], src: [u8; 6]) -> Result<&[u8], Flaw> {
    let view = EthernetView::new_checked(frame).map_err(|_| Flaw::Link)?;
    if (view.dst(), view.src()) != (MacAddr(dst), MacAddr(src)) {
        return Err(Flaw::Link);
    }
    frame.get(kaido_wire::ethernet::HEADER_LEN..).ok_or(Flaw::Link)
}

fn user(packet: &[u8]) -> Result<(u64, numbered::Datagram<'_>), Flaw> {
    let found = numbered::datagram(packet).ok_or(Flaw::Stray)?;
    match numbered::read(found.payload) {
        Payload::Number(number) => Ok((number, found)),
        Payload::Corrupt => Err(Flaw::Payload),
        Payload::Foreign => Err(Flaw::Stray),
    }
}

fn check(
    sent: &NumberedPacket,
    found: numbered::Datagram<'_>,
    ends: (std::net::SocketAddr, std::net::SocketAddr),
    packet: &[u8],
) -> Result<NumberedPacket, Flaw> {
    if (found.from, found.to) != ends {
        return Err(Flaw::Address);
    }
    if found.hops != numbered::HOPS - 1 {
        return Err(Flaw::Hops);
    }
    if found.packet_len != sent.len || packet.len() != sent.len {
        return Err(Flaw::Payload);
    }
    if !numbered::checksums_ok(packet) {
        return Err(Flaw::Checksum);
    }
    Ok(*sent)
}

/// The verdicts on one stream of packets.
#[derive(Debug)]
pub(super) struct Verdicts {
    seen: Vec<bool>,
    first: u64,
    good: usize,
    flaws: [u64; FLAWS.len()],
}

impl Verdicts {
    /// Of the packets numbered from `first`, `count` of them.
    pub(super) fn new(first: u64, count: usize) -> Self {
        Self { seen: vec![false; count], first, good: 0, flaws: [0; FLAWS.len()] }
    }

    /// Takes a verdict; gives the packet back when it is right and new.
    pub(super) fn take(&mut self, verdict: Result<NumberedPacket, Flaw>) -> Option<NumberedPacket> {
        let place = |packet: &NumberedPacket| packet.number.checked_sub(self.first);
        let verdict = verdict.and_then(|packet| {
            let place = place(&packet).and_then(|place| usize::try_from(place).ok());
            let seen = place.and_then(|place| self.seen.get_mut(place)).ok_or(Flaw::Stray)?;
            if std::mem::replace(seen, true) { Err(Flaw::Again) } else { Ok(packet) }
        });
        match verdict {
            Ok(packet) => {
                self.good += 1;
                Some(packet)
            }
            Err(flaw) => {
                self.flaws[flaw as usize] += 1;
                None
            }
        }
    }

    /// Puts down how many came out right, and what was wrong with others.
    pub(super) fn rows(&self, what: &str, table: &mut Table) {
        table.equal(&format!("{what}: packets right in all parts"), self.seen.len(), self.good);
        for ((_, name), &count) in FLAWS.iter().zip(&self.flaws) {
            if count > 0 {
                table.equal(&format!("{what}: {name}"), 0, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Addressing, SessionPlan};
    use crate::ue::Ue;
    use kaido_n4::Qfi;

    fn ues() -> Vec<Ue> {
        let prefix = "2001:db8:60::".parse().unwrap();
        let addressing = Addressing::Given {
            ipv4: Some("10.60.0.1".parse().unwrap()),
            ipv6: Some(kaido_n4::Ipv6Prefix::of(prefix, 48)),
        };
        (0..2).map(|n| addressing.of(n)).map(|(v4, v6)| Ue::new(v4, v6)).collect()
    }

    fn plan() -> SessionPlan {
        SessionPlan {
            ues: 2,
            addressing: Addressing::Given { ipv4: None, ipv6: None },
            upf_gtpu: None,
            gnb: GNB.into(),
            qfi: Some(Qfi(9)),
            network_instance: None,
            threshold: None,
            first_teid: 1,
            window: 1,
            tries: 4,
            dialect: kaido_pfcp::Dialect::Plain,
        }
    }

    /// What the node should make of the uplink packet `number`.
    fn came_out(site: &Site<'_>, number: u64) -> Vec<u8> {
        let sent = site.numbered(number).unwrap();
        let mut packet = vec![0; sent.len];
        numbered::write(&mut packet, number, sent.host, sent.server).unwrap();
        if sent.host.is_ipv4() {
            kaido_wire::Ipv4View::new_checked(&mut packet).unwrap().decrement_ttl();
        } else {
            kaido_wire::Ipv6View::new_checked(&mut packet).unwrap().decrement_hop_limit();
        }
        let ethertype: &[u8] = if sent.host.is_ipv4() { &[8, 0] } else { &[0x86, 0xdd] };
        [&DN_MAC[..], &N6_MAC, ethertype, &packet].concat()
    }

    #[test]
    fn a_right_packet_passes_once_and_each_change_is_named() {
        let ues = ues();
        let site = Site::new(&ues, &plan());
        let mut verdicts = Verdicts::new(0, 6);
        for number in 0..4 {
            let packet = verdicts.take(uplink(&site, &came_out(&site, number))).unwrap();
            assert_eq!((packet.number, packet.ue), (number, usize::try_from(number % 2).unwrap()));
        }
        assert_eq!(verdicts.take(uplink(&site, &came_out(&site, 1))), None);
        assert_eq!(verdicts.flaws[Flaw::Again as usize], 1);
        let changed = |at: usize| {
            let mut frame = came_out(&site, 4);
            frame[at] ^= 1;
            uplink(&site, &frame)
        };
        // Destination address, TTL, source port, payload, and UDP checksum.
        assert_eq!(changed(0), Err(Flaw::Link));
        assert_eq!(changed(14 + 8), Err(Flaw::Hops));
        assert_eq!(changed(14 + 21), Err(Flaw::Address));
        assert_eq!(changed(14 + 59), Err(Flaw::Payload));
        assert_eq!(changed(14 + 26), Err(Flaw::Checksum));
        assert_eq!(uplink(&site, &[]), Err(Flaw::Link));
        let mut table = Table::default();
        verdicts.rows("n6-out", &mut table);
        assert_eq!((table.len(), table.differing()), (2, 2));
    }

    #[test]
    fn flaws_are_listed_in_order() {
        for (place, (flaw, _)) in FLAWS.iter().enumerate() {
            assert_eq!(*flaw as usize, place);
        }
    }

    #[test]
    fn volumes_agree_when_all_four_do() {
        let ues = ues();
        let site = Site::new(&ues, &plan());
        let mut volumes = Volumes::new(2);
        let packet = site.numbered(0).unwrap();
        volumes.up(&packet);
        volumes.up(&packet);
        volumes.down(&packet);
        let mut usage = [Usage::default(); 2];
        assert_eq!(volumes.agreeing(&usage), 1);
        (usage[0].uplink_bytes, usage[0].uplink_packets) = (120, 2);
        assert_eq!(volumes.agreeing(&usage), 1);
        (usage[0].downlink_bytes, usage[0].downlink_packets) = (60, 1);
        assert_eq!(volumes.agreeing(&usage), 2);
        assert_eq!(volumes.totals().0, Amount { packets: 2, bytes: 120 });
    }
}
