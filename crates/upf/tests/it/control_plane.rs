//! Tunnels of the control plane whose far end no port leads to: the kernel has them.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixture::{N3, N6, Rig, SessionPlan, ip, now, v4, with_live};
use crate::frames::{g_pdu, read_tunnel, udp4, udp6};
use crate::smf_shapes::{SMF_TEID, open5gs};
use kaido_engine::{DropReason, Route};
use kaido_n4::{
    Establishment, FTeid, Interface, LocalFTeid, OuterHeaderCreation, OuterHeaderRemoval, PdrId,
    SessionService, Teid,
};
use kaido_upf::UpfDrop;
use kaido_upf::echo::EchoSettings;
use kaido_upf::ids::EndpointId;
use kaido_upf::node::{ControlPlaneMessage, LiveSettings};
use kaido_upf::path::ControlPlaneLink;
use kaido_wire::PduSession;

const SMF: &str = "10.100.4.2";
const TO_SMF: u16 = 2152;

/// What the kernel was given, and whether it takes it.
#[derive(Debug, Default)]
struct Kernel {
    sent: Mutex<Vec<(IpAddr, SocketAddr, Vec<u8>)>>,
    refuses: Mutex<Option<DropReason>>,
}

impl Kernel {
    fn take(&self) -> Vec<(IpAddr, SocketAddr, Vec<u8>)> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

impl ControlPlaneLink for Kernel {
    fn send(&self, from: IpAddr, to: SocketAddr, message: &[u8]) -> Result<(), DropReason> {
        if let Some(reason) = *self.refuses.lock().unwrap() {
            return Err(reason);
        }
        self.sent.lock().unwrap().push((from, to, message.to_vec()));
        Ok(())
    }
}

/// Open5GS's session of UE 7, with the SMF's end of the tunnel at an address, counted; from the SMF it is 1207.
fn session(smf: &str) -> Establishment {
    let mut request = open5gs(7);
    let to_smf = request.fars[2].forwarding.as_mut().unwrap();
    to_smf.outer_header_creation =
        Some(OuterHeaderCreation { teid: Teid(SMF_TEID), ipv4: Some(v4(smf)), ipv6: None });
    request.pdrs[2].urr_ids = request.pdrs[0].urr_ids.clone();
    let mut from_smf = request.pdrs[1].clone();
    from_smf.id = PdrId(4);
    from_smf.pdi.source_interface = Interface::CpFunction;
    from_smf.pdi.local_fteid =
        Some(LocalFTeid::Given(FTeid { teid: Teid(1207), ipv4: Some(v4("10.100.3.1")), ipv6: None }));
    from_smf.outer_header_removal = Some(OuterHeaderRemoval::GtpUUdpIp);
    from_smf.qer_ids.clear();
    request.pdrs.push(from_smf);
    request
}

fn rig() -> (Rig, Arc<Kernel>) {
    let kernel = Arc::<Kernel>::default();
    let echo = EchoSettings { interval: Some(Duration::from_secs(60)), ..EchoSettings::default() };
    let settings = with_live(|live| LiveSettings { echo, ..live });
    let rig = Rig::with_control_plane(settings, kernel.clone());
    // The network of N4 is behind an interface that is no port.
    rig.routes.set_routes([
        (ip("10.100.3.0"), 24, Route { port: Some(N3), gateway: None, metric: 0 }),
        (ip("10.100.4.0"), 24, Route { port: None, gateway: None, metric: 0 }),
        (ip("0.0.0.0"), 0, Route { port: Some(N6), gateway: Some(ip("10.100.6.2")), metric: 0 }),
    ]);
    (rig, kernel)
}

fn solicitation() -> Vec<u8> {
    let mut packet = udp6("fe80::7", "ff02::2", 255, 8);
    packet[6] = 58;
    packet
}

fn message(from: &str, octets: &[u8]) -> ControlPlaneMessage {
    let from = SocketAddr::new(ip(from), 2152);
    ControlPlaneMessage { from, endpoint: EndpointId(0), octets: octets.into() }
}

/// What a frame holds behind Ethernet, IPv4 and UDP.
fn of_frame(frame: &[u8]) -> &[u8] {
    &frame[42..]
}

/// Conformance: TS 29.244 5.3.3 | Packets to a control plane that only N4 leads to are sent there by the kernel, and counted when they are
#[test]
fn what_no_port_leads_to_is_sent_by_the_kernel() {
    let (mut rig, kernel) = rig();
    let session = rig.upf.establish(&session(SMF), now()).unwrap();
    let inner = solicitation();
    assert!(rig.pass(N3, &g_pdu(1007, None, &inner)).is_empty());
    let sent = kernel.take();
    let [(from, to, octets)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((*from, *to), (ip("10.100.3.1"), SocketAddr::new(ip(SMF), TO_SMF)));
    assert_eq!(octets[..2], [0x30, 255]);
    assert_eq!(octets[4..8], SMF_TEID.to_be_bytes());
    assert_eq!(octets[8..], inner, "as it is");
    // The container of the UE's packet goes no further: it is for N3 and N9, and the SMF of Open5GS drops such packets.
    assert!(rig.pass(N3, &g_pdu(1007, Some(PduSession::Uplink { qfi: 9 }), &inner)).is_empty());
    assert_eq!(kernel.take()[0].2, octets[..]);
    assert_eq!(rig.totals(N3).to_kernel, 2);
    // What the kernel does not send is a drop, and nothing that is charged.
    *kernel.refuses.lock().unwrap() = Some(DropReason::NO_ROUTE);
    rig.pass(N3, &g_pdu(1007, None, &inner));
    assert_eq!(rig.drops(N3, DropReason::NO_ROUTE), 1);
    let usage = rig.upf.delete(session.seid, now()).unwrap().usage_reports[0].volume.unwrap();
    assert_eq!((usage.uplink_packets, usage.uplink_bytes), (2, 2 * inner.len() as u64));
    drop(rig.worker);
    assert_eq!(rig.pool.free_frames(), 512);
}

#[test]
fn a_port_that_leads_there_is_taken_and_the_node_itself_never() {
    let (mut rig, kernel) = rig();
    // Behind N3, as before; and to an address of the node's own, where a packet would go round.
    for (smf, dropped) in [("10.100.3.2", 0), ("10.100.4.1", 1)] {
        let session = rig.upf.establish(&session(smf), now()).unwrap();
        rig.pass(N3, &g_pdu(1007, None, &solicitation()));
        assert!(kernel.take().is_empty());
        assert_eq!(rig.drops(N3, DropReason::NO_ROUTE), dropped, "{smf}");
        rig.upf.delete(session.seid, now()).unwrap();
    }
}

#[test]
fn a_flood_of_a_ues_takes_no_more_than_its_second() {
    let (mut rig, kernel) = rig();
    rig.upf.establish(&session(SMF), now()).unwrap();
    let frame = g_pdu(1007, None, &solicitation());
    for _ in 0..1500 {
        rig.n3.send(frame.as_slice());
        rig.drain();
    }
    let sent = kernel.take().len() as u64;
    assert!((1000..1500).contains(&sent), "{sent}");
    assert_eq!(sent + rig.drops(N3, UpfDrop::CONTROL_PLANE_RATE), 1500);
}

/// Conformance: TS 29.244 5.3.3 | What a control plane sends over N4 into a downlink tunnel reaches the UE; strangers are not heard
#[test]
fn what_the_control_plane_sends_reaches_the_ue_and_nobody_elses_does() {
    let (mut rig, kernel) = rig();
    let node = rig.upf.node().clone();
    let inner = udp4("10.100.4.2", "10.60.0.7", 64, 30);
    let frame = g_pdu(1207, None, &inner);
    // Nobody is a control plane before a FAR says so.
    node.hear_control_plane(message(SMF, of_frame(&frame)));
    assert!(rig.drain().is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::NOT_CONTROL_PLANE), 1);
    rig.upf.establish(&session(SMF), now()).unwrap();
    node.hear_control_plane(message(SMF, of_frame(&frame)));
    let out = rig.drain();
    assert_eq!(out.len(), 1);
    let tunnelled = read_tunnel(&out[0].1);
    assert_eq!((out[0].0, tunnelled.teid, tunnelled.inner), (N3, 2007, inner));
    // The rule has no QER: the packet is of the default flow, whose FAR it shares. No gNB takes one without a flow.
    assert_eq!(tunnelled.container, Some(PduSession::Downlink { qfi: 9, rqi: false, ppi: None }));
    // As if from a UE; from a stranger; a broken message; an unknown tunnel, of which the control plane is told.
    let up = g_pdu(1007, None, &udp4("10.60.0.7", "8.8.8.8", 64, 30));
    node.hear_control_plane(message(SMF, of_frame(&up)));
    node.hear_control_plane(message("10.100.4.9", of_frame(&frame)));
    node.hear_control_plane(message(SMF, &[0x30, 255]));
    assert!(rig.drain().is_empty() && kernel.take().is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::NOT_CONTROL_PLANE), 3);
    assert_eq!(rig.drops(N3, UpfDrop::GTPU_MALFORMED), 1);
    node.hear_control_plane(message(SMF, of_frame(&g_pdu(99, None, &udp4("1.2.3.4", "10.60.0.7", 64, 30)))));
    assert!(rig.drain().is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::TEID_UNKNOWN), 1);
    assert_eq!(kernel.take()[0].2[1], 26, "an Error Indication");
    // Where a port leads to the control plane, it comes by that.
    rig.routes.set_routes([(ip("10.100.0.0"), 16, Route { port: Some(N3), gateway: None, metric: 0 })]);
    node.hear_control_plane(message(SMF, of_frame(&frame)));
    assert!(rig.drain().is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::NOT_CONTROL_PLANE), 4);
    drop(rig.worker);
    assert_eq!(rig.pool.free_frames(), 512);
}

#[test]
fn the_path_to_a_control_plane_behind_n4_is_managed_too() {
    let (mut rig, kernel) = rig();
    rig.upf.establish(&session(SMF), now()).unwrap();
    rig.upf.poll_events(now(), 100);
    rig.drain();
    let asked = kernel.take();
    assert!(asked.iter().any(|(_, to, octets)| to.ip() == ip(SMF) && octets[1] == 1), "{asked:?}");
    // An echo request of the control plane's.
    let node = rig.upf.node().clone();
    node.hear_control_plane(message(SMF, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0xab, 0xcd, 0, 0]));
    rig.drain();
    let answered = kernel.take();
    assert!(answered.iter().any(|(.., octets)| octets[1] == 2 && octets[8..10] == [0xab, 0xcd]));
    // The usual session knows nothing of it.
    rig.upf.establish(&SessionPlan::ipv4(8).establishment(), now()).unwrap();
    assert_eq!(rig.pass(N3, &g_pdu(1008, None, &udp4("10.60.0.8", "8.8.8.8", 64, 30))).len(), 1);
}
