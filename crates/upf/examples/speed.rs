//! What a packet costs in the user plane's path, in memory, on one core:
//! `cargo run --release -p kaido-upf --example speed -- [SESSIONS]` (default 1000).
//!
//! The packets' UEs are random; copying a fresh packet into a frame is part of the figure. Compare figures
//! of one run only: machines differ, and so do moments.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use kaido_engine::port::Port;
use kaido_engine::{
    Batch, FramePool, KernelPath, PoolCache, PortId, Route, Routes, Wanted, Worker, WorkerSettings,
};
use kaido_upf::control::Upf;
use kaido_upf::node::{Node, NodeSettings, PortRole};
use kaido_upf::path::Path;
use kaido_upf::record::InstanceId;
use kaido_upf::rules::{
    ApplyAction, ChooseOr, Establishment, FSeid, FTeid, Far, FarId, ForwardingParameters, Gate, Interface,
    LocalFTeid, MeasurementMethod, OuterHeaderCreation, OuterHeaderRemoval, Pdi, Pdr, PdrId, Qer, QerId,
    ReportingTriggers, Seid, SessionService, Teid, UeIpAddress, UeIpRole, Urr, UrrId,
};
use kaido_wire::checksum;

const N3: Ipv4Addr = Ipv4Addr::new(10, 100, 3, 1);
const GNB: Ipv4Addr = Ipv4Addr::new(10, 100, 3, 2);
const N6: Ipv4Addr = Ipv4Addr::new(10, 100, 6, 1);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 100, 6, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PACKETS: u64 = 4_000_000;
const PAYLOAD: usize = 64;

fn ue(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 128, 0, 0]) + n)
}

/// Makes packets of random UEs, or swallows what is sent.
struct Source {
    make: Option<fn(u32, &mut Vec<u8>)>,
    sessions: u32,
    chance: u64,
    packet: Vec<u8>,
    sent: Arc<AtomicU64>,
}

impl Port for Source {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        let Some(make) = self.make else { return };
        while !batch.is_full() {
            self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            #[allow(clippy::cast_possible_truncation)] // A remainder of 32 bits.
            let n = ((self.chance >> 33) % u64::from(self.sessions)) as u32;
            make(n, &mut self.packet);
            let Some(mut frame) = pool.allocate() else { return };
            if frame.set(&self.packet) {
                batch.push(frame);
            }
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
        batch.drain(..).for_each(|frame| pool.release(frame));
        0
    }
}

#[allow(clippy::cast_possible_truncation)] // Packets are short.
fn ipv4(packet: &mut Vec<u8>, src: Ipv4Addr, dst: Ipv4Addr, payload: usize) {
    let at = packet.len();
    packet.extend_from_slice(&[0x45, 0]);
    packet.extend_from_slice(&((28 + payload) as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend_from_slice(&src.octets());
    packet.extend_from_slice(&dst.octets());
    let sum = checksum::checksum(&packet[at..]).to_be_bytes();
    packet[at + 10..at + 12].copy_from_slice(&sum);
    packet.extend_from_slice(&2152u16.to_be_bytes());
    packet.extend_from_slice(&2152u16.to_be_bytes());
    packet.extend_from_slice(&((8 + payload) as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
}

fn begin(packet: &mut Vec<u8>) {
    packet.clear();
    packet.extend_from_slice(&MAC);
    packet.extend_from_slice(&[2, 0, 0, 0, 0, 2, 8, 0]);
}

#[allow(clippy::cast_possible_truncation)] // Packets are short.
fn uplink(n: u32, packet: &mut Vec<u8>) {
    begin(packet);
    ipv4(packet, GNB, N3, 8 + 28 + PAYLOAD);
    packet.extend_from_slice(&[0x30, 0xff]);
    packet.extend_from_slice(&((28 + PAYLOAD) as u16).to_be_bytes());
    packet.extend_from_slice(&(n + 1).to_be_bytes());
    ipv4(packet, ue(n), SERVER, PAYLOAD);
    packet.resize(packet.len() + PAYLOAD, 0);
}

fn downlink(n: u32, packet: &mut Vec<u8>) {
    begin(packet);
    ipv4(packet, SERVER, ue(n), PAYLOAD);
    packet.resize(packet.len() + PAYLOAD, 0);
}

fn session(n: u32) -> Establishment {
    let pdr = |id, interface, fteid, ue_ip| Pdr {
        id: PdrId(id),
        precedence: 100,
        pdi: Pdi {
            source_interface: interface,
            local_fteid: fteid,
            network_instance: None,
            ue_ip,
            qfis: Vec::new(),
            sdf_filters: Vec::new(),
        },
        outer_header_removal: (id == 1).then_some(OuterHeaderRemoval::GtpUUdpIp),
        far_id: Some(FarId(id.into())),
        urr_ids: vec![UrrId(1)],
        qer_ids: vec![QerId(1)],
    };
    let far = |id, interface, tunnel| Far {
        id: FarId(id),
        apply_action: ApplyAction { forward: true, ..ApplyAction::default() },
        forwarding: Some(ForwardingParameters {
            destination_interface: interface,
            network_instance: None,
            outer_header_creation: tunnel,
            transport_level_marking: None,
        }),
        bar_id: None,
    };
    let teid = Teid(n + 1);
    let given = LocalFTeid::Given(FTeid { teid, ipv4: Some(N3), ipv6: None });
    let address = UeIpAddress { ipv4: Some(ChooseOr::Given(ue(n))), ipv6: None, role: UeIpRole::Destination };
    Establishment {
        cp_fseid: FSeid { seid: Seid(n.into()), ipv4: None, ipv6: None },
        pdrs: vec![
            pdr(1, Interface::Access, Some(given), Vec::new()),
            pdr(2, Interface::Core, None, vec![address]),
        ],
        fars: vec![
            far(1, Interface::Core, None),
            far(2, Interface::Access, Some(OuterHeaderCreation { teid, ipv4: Some(GNB), ipv6: None })),
        ],
        qers: vec![Qer {
            id: QerId(1),
            gate: Gate { uplink: true, downlink: true },
            mbr: None,
            gbr: None,
            qfi: None,
        }],
        urrs: vec![Urr {
            id: UrrId(1),
            method: MeasurementMethod { volume: true, ..MeasurementMethod::default() },
            triggers: ReportingTriggers::default(),
            measurement_period: None,
            volume_threshold: None,
            volume_quota: None,
            inactive: false,
            count_packets: true,
            before_qos: false,
        }],
        bars: Vec::new(),
    }
}

fn role(address: Ipv4Addr, instance: Option<InstanceId>) -> PortRole {
    let gtpu = instance.is_none();
    PortRole { mac: MAC, mtu: 9000, addresses: vec![address.into()], gtpu, instance }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sessions: u32 = std::env::args().nth(1).map_or(Ok(1000), |text| text.parse())?;
    let (routes, _wanted) = Routes::new();
    let via = |port, gateway: Ipv4Addr| Route {
        port: Some(PortId(port)),
        gateway: Some(gateway.into()),
        metric: 0,
    };
    routes.set_routes([(GNB.into(), 32, via(0, GNB)), (IpAddr::from([0; 4]), 0, via(1, ROUTER))]);
    for (port, address) in [(0, GNB), (1, ROUTER)] {
        routes.set_neighbour(Wanted { port: PortId(port), address: address.into() }, Some(MAC));
    }
    let settings = NodeSettings {
        endpoints: vec![N3.into()],
        ports: vec![role(N3, None), role(N6, Some(InstanceId(0)))],
        sessions_max: sessions,
        ..NodeSettings::default()
    };
    let (node, events) = Node::new(settings)?;
    let mut upf = Upf::new(node.clone(), events, Vec::new())?;
    let began = Instant::now();
    for n in 0..sessions {
        upf.establish(&session(n), SystemTime::now())?;
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(sessions);
    let (bytes, pages) = node.table.memory();
    println!("{sessions} sessions, {each:.1} us each to establish; table of {} MiB in {pages}", bytes >> 20);
    let pool = FramePool::leak(8192)?;
    for (direction, from) in [("uplink", 0), ("downlink", 1)] {
        let sent = Arc::new(AtomicU64::new(0));
        let make: fn(u32, &mut Vec<u8>) = if from == 0 { uplink } else { downlink };
        let ports = [0, 1].map(|port| {
            let make = (port == from).then_some(make);
            let source = Source { make, sessions, chance: 1, packet: Vec::new(), sent: sent.clone() };
            (Box::new(source) as Box<dyn Port>, KernelPath::None)
        });
        let path = Box::new(Path::new(&node, routes.next_hops())?);
        let mut worker = Worker::new(pool, ports.into(), path, WorkerSettings::default());
        let began = Instant::now();
        while sent.load(Ordering::Relaxed) < PACKETS {
            worker.step();
        }
        let each = began.elapsed().as_secs_f64() * 1e9 / sent.load(Ordering::Relaxed) as f64;
        println!("{direction:8} {each:6.1} ns a packet, making and copying it included");
    }
    Ok(())
}
