//! The link service between ports in memory: frames in, frames out.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use kaido_engine::port::MemoryWire;
use kaido_engine::{
    Batch, DropReason, DropTable, FramePool, Function, KernelPath, Output, PortId, PortTotals, Worker,
    WorkerSettings,
};
use kaido_ndn::face::{
    FLAG_LOCAL_FIELDS, FaceSettings, FaceState, FaceUri, Faces, LinkType, Persistency, Scope, Transport,
};
use kaido_ndn::link::{Link, LinkSettings, PortKind};
use kaido_ndn::{Annotations, NackReason, NdnDrop};
use kaido_ndn_tables::FaceId;
use kaido_wire::MacAddr;
use kaido_wire::ndn::{DataRepr, InterestRepr, LpHeader, LpPacket, Name, name_from_uri};

const HOST: PortId = PortId(0);
const CABLE: PortId = PortId(1);
const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const GROUP_MAC: MacAddr = MacAddr([1, 0, 0x5e, 0, 0x17, 0xaa]);

/// Sends what comes in on a face out of another, and tells what was said of it.
struct Relay {
    link: Link,
    ways: HashMap<FaceId, FaceId>,
    told: Sender<(FaceId, Annotations)>,
}

impl Function for Relay {
    fn name(&self) -> &'static str {
        "relay"
    }

    fn drop_reasons(&self) -> &'static DropTable {
        NdnDrop::TABLE
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        self.link.refresh();
        for frame in batch.drain(..) {
            let Some(packet) = self.link.receive(port, frame, out) else { continue };
            self.told.send((packet.face, packet.annotations)).unwrap();
            let to = self.ways.get(&packet.face).copied().unwrap_or(packet.face);
            let mut said = packet.annotations;
            said.incoming_face = Some(packet.face);
            self.link.send(to, packet.frame, &said, out);
        }
    }

    fn tick(&mut self, out: &mut Output<'_>) {
        self.link.tick(out);
    }
}

struct Rig {
    worker: Worker,
    pool: &'static FramePool,
    faces: Faces,
    host: MemoryWire,
    cable: MemoryWire,
    told: Receiver<(FaceId, Annotations)>,
    now: Instant,
}

/// Two faces on the host port, of which the first sends to the second.
const LEFT: FaceId = FaceId(256);
const RIGHT: FaceId = FaceId(257);

fn host_face(mtu: u16) -> FaceSettings {
    FaceSettings {
        remote: FaceUri::Descriptor(1),
        local: FaceUri::Unix("/run/kaido.sock".into()),
        scope: Scope::Local,
        persistency: Persistency::OnDemand,
        link_type: LinkType::PointToPoint,
        mtu,
        flags: 0,
        transport: Transport::Host { port: HOST },
    }
}

impl Rig {
    fn new(mtu: u16) -> Self {
        let pool = FramePool::leak(512).unwrap();
        let faces = Faces::new(8);
        faces.create(host_face(8800)).unwrap();
        faces.create(host_face(16_000)).unwrap().set_mtu(mtu);
        let settings = LinkSettings {
            ports: vec![PortKind::Host, PortKind::Ethernet { mac: OUR_MAC, mtu: 1500, on_demand: true }],
            ..LinkSettings::default()
        };
        let (tell, told) = channel();
        let relay =
            Relay { link: Link::new(settings, &faces), ways: HashMap::from([(LEFT, RIGHT)]), told: tell };
        let (host, cable) = (MemoryWire::new(), MemoryWire::new());
        let ports: Vec<(Box<dyn kaido_engine::Port>, KernelPath)> =
            vec![(Box::new(host.port()), KernelPath::None), (Box::new(cable.port()), KernelPath::None)];
        let worker = Worker::new(pool, ports, Box::new(relay), WorkerSettings::default());
        Self { worker, pool, faces, host, cable, told, now: Instant::now() }
    }

    fn turn(&mut self) {
        while self.worker.step_at(self.now) > 0 {}
    }

    /// Sends packets of the link in on a face of the host port; what comes out, by face.
    fn through(&mut self, face: FaceId, packets: &[Vec<u8>]) -> Vec<(FaceId, Vec<u8>)> {
        for packet in packets {
            assert!(self.host.send([&face.0.to_be_bytes()[..], packet].concat()));
            self.turn();
        }
        std::iter::from_fn(|| self.host.receive())
            .map(|out| (FaceId(u32::from_be_bytes(out[..4].try_into().unwrap())), out[4..].to_vec()))
            .collect()
    }

    fn dropped(&self, port: PortId, reason: DropReason) -> u64 {
        let totals = PortTotals::of([&*self.worker.counters()], port);
        totals.drops.iter().find(|(dropped, _)| *dropped == reason).map_or(0, |(_, count)| *count)
    }

    /// Sends a packet in that must not come out, and checks why.
    fn refused(&mut self, packet: &[u8], reason: DropReason) {
        let before = self.dropped(HOST, reason);
        assert!(self.through(LEFT, &[packet.to_vec()]).is_empty());
        let shown = &packet[..packet.len().min(40)];
        assert_eq!(self.dropped(HOST, reason), before + 1, "{} of {shown:02x?}", NdnDrop::TABLE.name(reason));
    }
}

fn interest(uri: &str) -> Vec<u8> {
    let name = name_from_uri(uri).unwrap();
    let repr = InterestRepr { name: Name::new(&name).unwrap(), nonce: Some(1), ..InterestRepr::default() };
    let mut packet = vec![0; repr.len()];
    repr.emit(&mut packet).unwrap();
    packet
}

fn data(uri: &str, content: usize) -> Vec<u8> {
    let name = name_from_uri(uri).unwrap();
    let content: Vec<u8> = (0..content).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let name = Name::new(&name).unwrap();
    let repr = DataRepr { name, content: &content, freshness_ms: 5, ..DataRepr::default() };
    let mut packet = vec![0; repr.len()];
    repr.emit(&mut packet).unwrap();
    packet
}

fn wrapped(header: &LpHeader<'_>, fragment: &[u8]) -> Vec<u8> {
    let mut head = vec![0; header.len(fragment.len())];
    header.emit(fragment.len(), &mut head).unwrap();
    [&head, fragment].concat()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

/// Conformance: NDNLPv2 packet | A packet of which nothing is to be said goes without a header
#[test]
fn bare_packets_pass_as_they_are() {
    let mut rig = Rig::new(8800);
    for packet in [interest("/a"), data("/a", 10), data("/a", 8000)] {
        assert_eq!(rig.through(LEFT, std::slice::from_ref(&packet)), [(RIGHT, packet.clone())]);
        let empty = wrapped(&LpHeader::default(), &packet);
        assert_eq!(rig.through(LEFT, &[empty]), [(RIGHT, packet)]);
    }
    let (left, right) = (rig.faces.get(LEFT).unwrap(), rig.faces.get(RIGHT).unwrap());
    let (received, sent) = (left.totals().received, right.totals().sent);
    assert_eq!((received.interests, received.data, sent.interests, sent.data), (2, 4, 2, 4));
    assert!(received.octets > sent.octets && sent.octets > 16_000);
}

/// Conformance: NDNLPv2 network fields | PIT token, congestion mark and non-discovery pass; a Nack stays a Nack
#[test]
fn what_is_said_of_a_packet_is_said_again() {
    let mut rig = Rig::new(8800);
    let packet = interest("/a");
    let header = LpHeader {
        pit_token: &[9; 32],
        nack: Some(150),
        congestion_mark: 2,
        non_discovery: true,
        ..LpHeader::default()
    };
    let out = rig.through(LEFT, &[wrapped(&header, &packet)]);
    assert_eq!(out, [(RIGHT, wrapped(&header, &packet))]);
    let (face, said) = rig.told.recv().unwrap();
    assert_eq!((face, said.nack, said.congestion_mark), (LEFT, Some(NackReason::NoRoute), 2));
    assert_eq!(said.pit_token.octets(), [9; 32]);
    assert_eq!(rig.faces.get(LEFT).unwrap().totals().received.nacks, 1);
    let no_cache = LpHeader { no_cache: true, incoming_face: Some(7), ..LpHeader::default() };
    rig.through(LEFT, &[wrapped(&no_cache, &data("/a", 1))]);
    let (_, said) = rig.told.recv().unwrap();
    assert_eq!(
        (said.no_cache, said.incoming_face),
        (true, None),
        "no one tells a node where a packet came from"
    );
}

/// Conformance: NDNLPv2 local fields | NextHopFaceId and IncomingFaceId are between a node and who has asked for them
#[test]
fn local_fields_are_for_who_may() {
    let mut rig = Rig::new(8800);
    let header = LpHeader { next_hop_face: Some(300), ..LpHeader::default() };
    let packet = wrapped(&header, &interest("/a"));
    rig.refused(&packet, NdnDrop::LOCAL_FIELD);
    for face in [LEFT, RIGHT] {
        rig.faces.get(face).unwrap().set_flags(FLAG_LOCAL_FIELDS, FLAG_LOCAL_FIELDS);
    }
    let out = rig.through(LEFT, &[packet]);
    assert_eq!(rig.told.recv().unwrap().1.next_hop_face, Some(FaceId(300)));
    let read = LpPacket::parse(&out[0].1, out[0].1.len()).unwrap();
    assert_eq!((read.header.incoming_face, read.header.next_hop_face), (Some(u64::from(LEFT.0)), None));
}

/// Conformance: NDNLPv2 fragmentation | A packet longer than the face's MTU is cut, and made whole by who receives it
#[test]
fn packets_are_cut_and_made_whole() {
    for mtu in [300, 576, 1400, 4000, 8000] {
        let mut rig = Rig::new(mtu);
        let right = rig.faces.get(RIGHT).unwrap();
        for (packet, token) in
            [(data("/a/b", 8400), &b"token"[..]), (data("/a", 4000), &[]), (data("/a", 8700), &[1; 32])]
        {
            let header = LpHeader { pit_token: token, ..LpHeader::default() };
            let pieces = rig.through(LEFT, &[wrapped(&header, &packet)]);
            rig.told.recv().unwrap();
            assert!(pieces.iter().all(|(face, piece)| *face == RIGHT && piece.len() <= usize::from(mtu)));
            assert_eq!(pieces.len() > 1, wrapped(&header, &packet).len() > usize::from(mtu), "{mtu}");
            // What comes in on the right goes back there, and now in one piece.
            let mut pieces: Vec<Vec<u8>> = pieces.into_iter().map(|(_, piece)| piece).collect();
            pieces.reverse();
            right.set_mtu(16_000);
            let back = rig.through(RIGHT, &pieces);
            right.set_mtu(mtu);
            assert_eq!(rig.told.recv().unwrap().1.pit_token.octets(), token);
            assert_eq!(back.len(), 1);
            let read = LpPacket::parse(&back[0].1, back[0].1.len()).unwrap();
            assert!(back[0].1[read.fragment_at..] == packet, "{mtu}");
        }
        drop(rig.worker);
        assert_eq!(rig.pool.free_frames(), 512);
    }
    let mut rig = Rig::new(100);
    rig.refused(&data("/a", 8000), DropReason::TOO_BIG);
}

/// Fragments so small that names are torn, and pieces that stand alone.
#[test]
fn fronts_that_are_torn_are_copied_together() {
    let mut rig = Rig::new(8800);
    let packet = data("/a-name/of-some/components/that-are/torn/apart", 4200);
    let (mut parts, mut rest) = (Vec::new(), &packet[..]);
    for size in [3, 1, 40, 3800, 100, usize::MAX] {
        let (part, behind) = rest.split_at(size.min(rest.len()));
        parts.push(part);
        rest = behind;
    }
    let frag_count = parts.len() as u64;
    let pieces: Vec<Vec<u8>> = (0u64..)
        .zip(&parts)
        .map(|(frag_index, part)| {
            let sequence = Some(50 + frag_index);
            wrapped(&LpHeader { sequence, frag_index, frag_count, ..LpHeader::default() }, part)
        })
        .collect();
    let out = rig.through(LEFT, &pieces);
    assert!(out == [(RIGHT, packet)]);
}

/// Conformance: NDNLPv2 reassembly | What stays incomplete is given up in time
#[test]
fn what_is_not_whole_in_time_is_given_up() {
    let mut rig = Rig::new(8800);
    let header = LpHeader { sequence: Some(1), frag_index: 0, frag_count: 2, ..LpHeader::default() };
    assert!(rig.through(LEFT, &[wrapped(&header, &data("/a", 100))]).is_empty());
    rig.now += Duration::from_millis(501);
    rig.turn();
    assert_eq!(rig.dropped(HOST, DropReason::REASSEMBLY_TIMEOUT), 1);
}

/// Conformance: NDNLPv2 packet | Malformed packets are dropped, each with its reason
#[test]
fn malformed_packets_have_reasons() {
    const BROKEN: DropReason = NdnDrop::LINK_MALFORMED;
    let mut rig = Rig::new(8800);
    let good = interest("/a");
    for (packet, reason) in [
        (hex(""), BROKEN),
        (hex("05"), BROKEN),
        (hex("0705 0703080161"), BROKEN),
        (good[..good.len() - 1].to_vec(), BROKEN),
        ([&good[..], &[0]].concat(), BROKEN),
        (hex("6400"), NdnDrop::LINK_IDLE),
        (hex("640c fd0344 080000000000000001"), NdnDrop::LINK_IDLE),
        (hex("6404 50020700"), NdnDrop::MALFORMED),
        (hex("6404 50020507"), NdnDrop::MALFORMED),
        (hex("6404 50026400"), NdnDrop::MALFORMED),
        (hex("6406 6200 50020500"), BROKEN),
        (hex("6407 530102 50020500"), BROKEN),
        (hex("6408 fd0320 00 50020600"), NdnDrop::MALFORMED),
        (hex("6406 5500 50020500"), BROKEN),
        (hex("6413 51080000000000000001 5303fe0001 50020500"), BROKEN),
        (hex("6412 51080000000000000001 53020101 50020500"), NdnDrop::FRAGMENT_INVALID),
        (vec![5; 10_000], BROKEN),
    ] {
        rig.refused(&packet, reason);
    }
    rig.refused(&data("/a", 8800), NdnDrop::MALFORMED);
    let mut long = data("/a", 6000);
    let signature = long.len() - 34;
    long[signature] = 0x19;
    rig.refused(&long, NdnDrop::MALFORMED);
    drop(rig.worker);
    assert_eq!(rig.pool.free_frames(), 512);
}

#[test]
fn faces_that_are_gone_or_down() {
    let mut rig = Rig::new(8800);
    let packet = interest("/a");
    let right = rig.faces.get(RIGHT).unwrap();
    rig.faces.set_state(&right, FaceState::Down);
    rig.refused(&packet, NdnDrop::FACE_DOWN);
    rig.faces.destroy(RIGHT);
    rig.refused(&packet, NdnDrop::FACE_UNKNOWN);
    assert!(rig.through(FaceId(999), &[packet]).is_empty());
    assert_eq!(rig.dropped(HOST, NdnDrop::FACE_UNKNOWN), 2);
    assert!(rig.host.send(vec![0, 0, 1]));
    rig.turn();
    assert_eq!(rig.dropped(HOST, NdnDrop::LINK_MALFORMED), 1);
}

fn ethernet(dst: MacAddr, src: MacAddr, vlan: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let mut frame = [dst.0, src.0].concat();
    if let Some(vid) = vlan {
        frame.extend([0x81, 0x00]);
        frame.extend(vid.to_be_bytes());
    }
    frame.extend([0x86, 0x24]);
    frame.extend(payload);
    frame
}

/// Whoever sends over Ethernet gets a face, one in each VLAN, and answers go there; padding is not of the packet.
#[test]
fn ethernet_faces_are_made_on_demand() {
    let mut rig = Rig::new(8800);
    let packet = interest("/a");
    for vlan in [None, Some(100), None] {
        let mut frame = ethernet(OUR_MAC, PEER_MAC, vlan, &packet);
        frame.resize(64, 0);
        assert!(rig.cable.send(frame));
        rig.turn();
        assert_eq!(rig.cable.receive(), Some(ethernet(PEER_MAC, OUR_MAC, vlan, &packet)));
    }
    let made: Vec<String> = rig.faces.all().iter().skip(2).map(|face| face.remote().to_string()).collect();
    assert_eq!(made, ["ether://[02:00:00:00:00:02]"; 2]);
    assert!(rig.cable.send(ethernet(OUR_MAC, PEER_MAC, None, &data("/a", 3000))));
    rig.turn();
    let out: Vec<Vec<u8>> = std::iter::from_fn(|| rig.cable.receive()).collect();
    assert!(out.len() == 3 && out.iter().all(|frame| frame.len() <= 1514));
    for (frame, reason, count) in [
        (ethernet(PEER_MAC, PEER_MAC, None, &packet), DropReason::NOT_OURS, 1),
        (ethernet(GROUP_MAC, PEER_MAC, None, &packet), NdnDrop::FACE_UNKNOWN, 1),
        (ethernet(OUR_MAC, GROUP_MAC, None, &packet), NdnDrop::FACE_UNKNOWN, 2),
        (vec![0; 13], DropReason::ETHERNET_MALFORMED, 1),
    ] {
        assert!(rig.cable.send(frame));
        rig.turn();
        assert_eq!(rig.dropped(CABLE, reason), count);
    }
    for station in 10..20 {
        let frame = ethernet(OUR_MAC, MacAddr([2, 0, 0, 0, 0, station]), None, &packet);
        assert!(rig.cable.send(frame));
        rig.turn();
    }
    assert_eq!((rig.faces.all().len(), rig.dropped(CABLE, NdnDrop::FACES_FULL)), (8, 6));
}

/// A face to a group: what is sent to the group comes in there, whoever sent it.
#[test]
fn ethernet_groups() {
    let mut rig = Rig::new(8800);
    let settings = FaceSettings {
        remote: FaceUri::Ether(GROUP_MAC),
        local: FaceUri::Dev("cable".into()),
        scope: Scope::NonLocal,
        link_type: LinkType::MultiAccess,
        transport: Transport::Ethernet { port: CABLE, local: OUR_MAC, remote: GROUP_MAC, vlan: None },
        ..host_face(1500)
    };
    let group = rig.faces.create(settings).unwrap().id();
    assert!(rig.cable.send(ethernet(GROUP_MAC, PEER_MAC, None, &interest("/a"))));
    rig.turn();
    assert_eq!(rig.cable.receive(), Some(ethernet(GROUP_MAC, OUR_MAC, None, &interest("/a"))));
    assert_eq!(rig.told.recv().unwrap().0, group);
}
