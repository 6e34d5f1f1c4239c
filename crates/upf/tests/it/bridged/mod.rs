//! Ethernet sessions of the fixture's user plane, and frames to and from them.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::cast_possible_truncation)] // Each test crate uses its part.

use kaido_engine::PortId;
use kaido_n4::{Establishment, Interface, Mac, NetworkInstance, Seid, SessionService};
use kaido_upf::ethernet::EthernetSettings;
use kaido_upf::ethernet::lan::{EthernetLan, EthernetLans};
use kaido_upf::ids::InstanceId;
use kaido_upf::lan::VlanTags;
use kaido_upf::node::{Instance, NodeSettings};

use crate::fixture::{N3, N6, Rig, SessionPlan, now, settings};
use crate::frames::{g_pdu, read_tunnel};

/// A host on the N6 side.
pub const HOST: [u8; 6] = [2, 0, 0, 0, 0x99, 1];
pub const BROADCAST: [u8; 6] = [0xff; 6];
/// An Ethertype that means nothing to the node (IEEE 802 local experimental).
pub const LOCAL: [u8; 2] = [0x88, 0xb5];
/// The tags of the LANs named here.
pub const TAG: [u8; 4] = [0x81, 0, 0, 100];
pub const TWO_TAGS: [u8; 8] = [0x88, 0xa8, 0, 7, 0x81, 0, 0, 9];

/// The station number `of` of session `n`.
pub fn station(n: u8, of: u8) -> [u8; 6] {
    [2, 0, 0, 0, n, of]
}

/// `lan` behind one tag, `two` behind two, `bare` without.
pub fn bridged() -> NodeSettings {
    with(EthernetSettings::default())
}

pub fn with(ethernet: EthernetSettings) -> NodeSettings {
    let mut settings = settings();
    let lans = [
        ("lan", Some(VlanTags { outer: 100, inner: None })),
        ("two", Some(VlanTags { outer: 7, inner: Some(9) })),
        ("bare", None),
    ];
    let lans = lans.map(|(name, tags)| {
        settings.instances.push(Instance { name: Some(name.to_owned()) });
        EthernetLan { instance: InstanceId(settings.instances.len() as u16 - 1), port: N6, tags }
    });
    settings.instances.push(Instance { name: Some("internet".to_owned()) });
    settings.ethernet = ethernet;
    settings.ethernet.lans = EthernetLans::new(lans.to_vec());
    settings
}

/// Ethernet session `n` in a network instance: TEID 1000 + n up, 2000 + n down.
pub fn session(n: u8, instance: &str) -> Establishment {
    let mut request = SessionPlan::ipv4(n).establishment();
    request.ethernet = true;
    let down = &mut request.pdrs[1].pdi;
    down.ue_ip.clear();
    down.ethernet = true;
    down.network_instance = Some(NetworkInstance(instance.into()));
    request
}

/// Session `n` within a 5G virtual network.
pub fn member(n: u8, instance: &str) -> Establishment {
    let mut request = session(n, instance);
    request.pdrs[1].pdi.source_interface = Interface::VnInternal;
    request.fars[0].forwarding.as_mut().unwrap().destination_interface = Interface::VnInternal;
    request
}

pub fn rig(requests: &[Establishment]) -> (Rig, Vec<Seid>) {
    rig_with(bridged(), requests)
}

pub fn rig_with(settings: NodeSettings, requests: &[Establishment]) -> (Rig, Vec<Seid>) {
    let mut rig = Rig::with(settings);
    let seids = requests.iter().map(|request| rig.upf.establish(request, now()).unwrap().seid).collect();
    (rig, seids)
}

pub fn frame(dst: [u8; 6], src: [u8; 6], behind: &[u8]) -> Vec<u8> {
    [&dst[..], &src, behind].concat()
}

/// A frame of no protocol that the node knows.
pub fn plain(dst: [u8; 6], src: [u8; 6]) -> Vec<u8> {
    frame(dst, src, &[&LOCAL[..], b"any payload at all"].concat())
}

/// The frame with tags behind its addresses.
pub fn tagged(frame: &[u8], tags: &[u8]) -> Vec<u8> {
    [&frame[..12], tags, &frame[12..]].concat()
}

/// What came out: into the LAN as it is, into tunnels as `(session, frame)`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    Lan(Vec<u8>),
    Session(u8, Vec<u8>),
}

pub fn seen(out: Vec<(PortId, Vec<u8>)>) -> Vec<Seen> {
    let mut seen: Vec<_> = out
        .into_iter()
        .map(|(port, octets)| {
            if port == N6 {
                return Seen::Lan(octets);
            }
            let tunnel = read_tunnel(&octets);
            Seen::Session((tunnel.teid - 2000) as u8, tunnel.inner)
        })
        .collect();
    seen.sort();
    seen
}

/// Session `n` sends a frame.
pub fn up(rig: &mut Rig, n: u8, frame: &[u8]) -> Vec<Seen> {
    seen(rig.pass(N3, &g_pdu(1000 + u32::from(n), None, frame)))
}

/// A frame comes from the LAN, tags and all.
pub fn down(rig: &mut Rig, frame: &[u8]) -> Vec<Seen> {
    seen(rig.pass(N6, frame))
}

pub fn macs(of: &[[u8; 6]]) -> Vec<Mac> {
    of.iter().map(|&mac| Mac(mac)).collect()
}
