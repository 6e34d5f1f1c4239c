//! The parsers of packets: no panic, lengths within the octets given, and what is read is written and read again as
//! the same.
#![allow(clippy::unwrap_used)]

use kaido_fuzz::fuzz_target;
use kaido_wire::gtpu::{Elements, Message};
use kaido_wire::icmpv6::Icmpv6Reason;
use kaido_wire::rss::{SpreadBy, spread};
use kaido_wire::{
    ArpRepr, ArpView, EthernetView, GtpuRepr, GtpuView, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View,
    TcpView, UdpView, gtpu, icmpv4, icmpv6, ipv4, ipv6, vlan,
};

fuzz_target!(wire, 100_000, run);

fn run(input: &[u8]) {
    link(input);
    internet(input);
    transport(input);
    tunnel(input);
}

fn link(octets: &[u8]) {
    let _ = vlan::link(octets);
    for by in [SpreadBy::Ue, SpreadBy::Teid] {
        let _ = spread(octets, by, |address| address.is_ipv4());
    }
    if let Ok(view) = EthernetView::new_checked(octets) {
        assert!(view.payload().len() < octets.len());
    }
    if let Some(arp) = ArpView::new_checked(octets).ok().and_then(|view| ArpRepr::parse(&view).ok()) {
        let mut written = [0; 28];
        arp.emit(&mut written).unwrap();
        assert_eq!(ArpRepr::parse(&ArpView::new_checked(written).unwrap()), Ok(arp));
    }
}

fn internet(octets: &[u8]) {
    if let Ok(header) = ipv4::header(octets) {
        assert!(usize::from(header.header_len) <= usize::from(header.total_len));
        assert!(usize::from(header.total_len) <= octets.len());
    }
    if let Ok(header) = ipv6::header(octets) {
        let total = usize::try_from(header.total_len).unwrap();
        assert!(usize::from(header.header_len) <= total && total <= octets.len());
    }
    for next in [0, 43, 44, 51, 60] {
        if let Ok(upper) = ipv6::walk(IpProtocol(next), octets) {
            assert!(usize::from(upper.offset) <= octets.len());
        }
    }
    let mut copy = octets.to_vec();
    if let Ok(mut view) = Ipv4View::new_checked(&mut copy) {
        view.fill_checksum();
        let repr = Ipv4Repr::parse(&view).unwrap();
        let mut written = vec![0; usize::from(view.header_len()) + usize::from(repr.payload_len)];
        repr.emit(&mut written).unwrap();
        let again = Ipv4View::new_checked(&written[..]).unwrap();
        assert_eq!(Ipv4Repr::parse(&again), Ok(repr));
    }
    if let Some(repr) = Ipv6View::new_checked(octets).ok().and_then(|view| Ipv6Repr::parse(&view).ok()) {
        let mut written = vec![0; 40 + usize::from(repr.payload_len)];
        repr.emit(&mut written).unwrap();
        assert_eq!(Ipv6Repr::parse(&Ipv6View::new_checked(&written[..]).unwrap()), Ok(repr));
    }
    let _ = (icmpv4::may_answer(octets), icmpv6::may_answer(octets, Icmpv6Reason::TimeExceeded { code: 0 }));
}

fn transport(octets: &[u8]) {
    if let Ok(view) = UdpView::new_checked(octets) {
        assert!(view.payload().len() + 8 <= octets.len());
    }
    let mut copy = octets.to_vec();
    if let Ok(mut view) = TcpView::new_checked(&mut copy) {
        view.clamp_mss(1340);
        assert!(view.mss().is_none_or(|mss| mss <= 1340), "an MSS was not clamped");
    }
}

fn tunnel(octets: &[u8]) {
    if let Ok(header) = gtpu::header(octets) {
        let payload = usize::from(header.payload_offset);
        assert!(payload <= gtpu::HEADER_LEN_MAX && payload + usize::from(header.payload_len) <= octets.len());
        assert!(header.extension_count <= gtpu::EXTENSIONS_MAX && header.qfi.is_none_or(|qfi| qfi < 64));
    }
    assert!(Elements::new(octets).count() <= octets.len());
    if let Ok(message) = Message::parse(octets) {
        let mut written = vec![0; message.len()];
        message.emit(&mut written).unwrap();
        assert_eq!(Message::parse(&written), Ok(message));
    }
    if let Some(repr) = GtpuView::new_checked(octets).ok().and_then(|view| GtpuRepr::parse(&view).ok()) {
        let mut written = vec![0; repr.len() + usize::from(repr.payload_len)];
        repr.emit(&mut written).unwrap();
        let again = GtpuView::new_checked(&written[..]).unwrap();
        assert_eq!(GtpuRepr::parse(&again), Ok(repr));
    }
}
