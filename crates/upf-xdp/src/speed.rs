//! Times the offload over random sessions under `BPF_PROG_TEST_RUN`: see `bpf/speed.bpf.c`.
//!
//! The figures are those of one core, the packet in its cache and no driver around: compare them with those of other
//! programs timed the same way, in the same minute.

mod live;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;

use kaido_xdp::object::{ObjectBytes, map, open};
use kaido_xdp::{Action, Error, test_run};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};

pub use self::live::{LiveCount, LiveFrames, LivePackets};

use kaido_wire::layout::{self, ContainerFields, EthernetFields, GtpuFields, Ipv4Fields, UdpFields};
use kaido_wire::{EtherType, IpProtocol, MessageType, ethernet, gtpu, ipv4, udp};

use crate::abi::{self, Config};
use crate::offload::{
    self, Hop, Offload, OffloadConfig, OffloadDestination, OffloadDirection, OffloadError, OffloadFlags,
    OffloadKey, OffloadLine, OffloadMatch, OffloadRecord, OffloadRule, Template, UsageCell, Vlan, VlanRole,
};

static OBJECT: &ObjectBytes<[u8]> = &ObjectBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/speed.bpf.o")));

/// State of the generator at first.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Octets of the packets.
pub const FRAME_LEN: usize = 192;
const FRAME_BYTES: u32 = 192;
const FIRST_UE: u32 = 0x0a00_0000;
const UPLINK: u32 = 1;
const OFFLOAD_PATH: u32 = 2;
const CONTAINER: u32 = 4;
const TAGGED: u32 = 8;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Nanoseconds a packet, restoring it included.
    pub whole_ns: u64,
    /// Nanoseconds to restore a packet.
    pub restore_ns: u64,
}

impl Timing {
    /// Nanoseconds a packet. Both are measured one after the other: where others take the machine meanwhile, it may be less than none.
    pub fn ns_per_packet(&self) -> i64 {
        self.whole_ns.cast_signed().wrapping_sub(self.restore_ns.cast_signed())
    }
}

/// What sessions ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Usage counters of both directions.
    pub counters: u32,
    /// Policers of both directions, which let everything pass.
    pub policers: u32,
    /// Rules with filters that no packet matches, ahead of the one that all do.
    pub before: u32,
}

impl Rules {
    /// One rule and one counter.
    pub const PLAIN: Self = Self { counters: 1, policers: 0, before: 0 };
}

/// Packets of sessions drawn at random. Those of session n have TEID `first` + n and the UE's address 10.0.0.0 + `first` + n, or
/// n ÷ `tenants` in place of n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeedPackets {
    /// As seen by the UE.
    pub direction: OffloadDirection,
    /// One of session 0 but for its address and TEID: UDP over IPv4, with the UE's address 10.0.0.0. Uplink it is behind GTP-U of
    /// TEID 0, with or without a PDU session container. Downlink it has a VLAN tag or none.
    pub frame: [u8; FRAME_LEN],
    /// Uplink packets have a PDU session container.
    pub container: bool,
    /// Downlink packets have the VLAN tag of their tenant: that of the frame, and so many more.
    pub tagged: bool,
    /// The network instance of untagged downlink packets.
    pub instance: u16,
    /// Sessions that have packets.
    pub sessions: u32,
    /// The number added to sessions' TEIDs and addresses.
    pub first: u32,
    /// Of so many sessions that follow one another the last has no packets; 0: all have.
    pub idle_of: u32,
    /// So many sessions that follow one another are of a tenant each; 0: all of one.
    pub tenants: u32,
    /// Sessions are drawn by it; not zero.
    pub seed: u64,
}

impl SpeedPackets {
    fn plain(direction: OffloadDirection, sessions: u32) -> Self {
        let frame = match direction {
            OffloadDirection::Uplink => uplink(&ENDS),
            OffloadDirection::Downlink => downlink(&ENDS),
        };
        Self {
            direction,
            frame,
            container: false,
            tagged: false,
            instance: 0,
            sessions,
            first: 0,
            idle_of: 0,
            tenants: 0,
            seed: SEED,
        }
    }

    fn flags(&self) -> u32 {
        let flag = |is_so, flag| if is_so { flag } else { 0 };
        flag(self.direction == OffloadDirection::Uplink, UPLINK)
            | flag(self.container, CONTAINER)
            | flag(self.tagged, TAGGED)
    }
}

/// An offload with sessions 0 and up, each with a record for its tunnel and one for its UE's address.
///
/// # Errors
/// [`OffloadError`], as of loading and filling any.
pub fn filled(sessions: u32, rules: Rules) -> Result<Offload, OffloadError> {
    let mut path = Offload::load(&OffloadConfig {
        records_max: sessions.saturating_mul(2),
        // Of three for a session, both of its records have one.
        groups_max: if rules.before > 0 { sessions.saturating_mul(3) } else { 0 },
        usage_cells_max: sessions.saturating_mul(rules.counters),
        policers_max: sessions.saturating_mul(rules.policers),
        templates_max: 1,
        hops_max: 2,
        flags: OffloadFlags::default(),
        ue_network_words: 0,
        seed: [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93],
    })?;
    // Test runs come in by the loopback interface: what leaves by it leaves by where it came in.
    let hop = Hop { ifindex: 1, mtu: 1500, source: [2; 6], destination: [4; 6], ..Hop::default() };
    path.set_hop(0, Some(&hop))?;
    path.set_template(
        0,
        Some(&Template {
            local: LOCAL.into(),
            peer: PEER.into(),
            udp_checksum: false,
            tos: 0,
            copied: 3,
            hop: 0,
        }),
    )?;
    let (buckets, _) = path.leak_policers()?.as_chunks::<4>();
    for [until, byte_cost, depth, _] in buckets {
        until.store(0, Ordering::Relaxed);
        byte_cost.store(TBIT_COST, Ordering::Relaxed);
        depth.store(DEPTH, Ordering::Relaxed);
    }
    for session in 0..sessions {
        for (key, record) in records(session, rules) {
            path.insert_or_replace(key, &record)?;
        }
    }
    Ok(path)
}

/// What an octet takes at 1 Tbit/s, and 300 ms, as `kaido_table::TokenBucket` has them.
const TBIT_COST: u64 = (8 << 34) / 1000;
const DEPTH: u64 = 300_000_000 << 10;

/// The records of a session in such an offload, of its tunnel and of its UE's address.
pub fn records(session: u32, rules: Rules) -> [(OffloadKey, OffloadRecord); 2] {
    let address = Speed::ue(session);
    let record = |direction, destination| {
        let mut rule = OffloadRule::to(destination);
        for (cell, place) in (session * rules.counters..(session + 1) * rules.counters).zip(&mut rule.usage) {
            *place = Some(UsageCell::of_passed(cell));
        }
        for (number, place) in
            (session * rules.policers..(session + 1) * rules.policers).zip(&mut rule.policers)
        {
            *place = Some(number);
        }
        // Nobody is there, as the packets' remote end.
        let elsewhere = |third| OffloadMatch {
            protocol: Some(17),
            remote: Some((IpAddr::V4(Ipv4Addr::new(10, 201, third, 0)), 24)),
            ports: Some([[20_000, 50_000], [0, u16::MAX]]),
            ..OffloadMatch::default()
        };
        let asks = (0..rules.before).map(|at| elsewhere(u8::try_from(at).unwrap_or(u8::MAX)));
        let lines = asks
            .chain([OffloadMatch::default()])
            .map(|asks| OffloadLine { asks, rule: Some(rule) })
            .collect();
        OffloadRecord { session, direction, ue_ipv4: Some(address), ue_ipv6: None, lines }
    };
    let tunnel =
        OffloadDestination::Tunnel { template: 0, teid: session, qfi: Some(9), container_uplink: false };
    [
        (
            OffloadKey::Tunnel { local: IpAddr::V4(LOCAL), teid: session },
            record(OffloadDirection::Uplink, OffloadDestination::Hop(0)),
        ),
        (OffloadKey::Ipv4 { instance: 0, address }, record(OffloadDirection::Downlink, tunnel)),
    ]
}

/// The timing program over an offload's tables.
#[derive(Debug)]
pub struct Speed {
    config: MapHandle,
    object: Object,
}

impl Speed {
    /// The local tunnel address of the packets; TEIDs are the session's number, 0 and up.
    pub const LOCAL: Ipv4Addr = LOCAL;

    /// The address of a session's UE, in network instance 0.
    pub fn ue(session: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_UE + session)
    }

    /// Loads the program, for the sessions of [`filled`].
    ///
    /// # Errors
    /// As [`Steering::load_offload`](crate::Steering::load_offload).
    pub fn load(path: &Offload) -> Result<Self, Error> {
        Self::load_for(path, LOCAL, &BTreeMap::new())
    }

    /// Loads the program for sessions with tunnels to an address, and UEs in these VLANs.
    ///
    /// # Errors
    /// As [`Speed::load`].
    pub fn load_for(
        path: &Offload,
        local: Ipv4Addr,
        vlans: &BTreeMap<Vlan, VlanRole>,
    ) -> Result<Self, Error> {
        let object = open(OBJECT, "speed", |map| offload::prepare(map, Some((path, 1))))?;
        let gtpu = map(&object, "gtpu_addrs")?;
        gtpu.update(&local.to_ipv6_mapped().octets(), &[1], MapFlags::ANY)
            .map_err(Error::libbpf("adding an entry to a BPF map"))?;
        let known = map(&object, "offload_vlans")?;
        vlans.iter().try_for_each(|(vlan, role)| vlan.put(role, &known))?;
        Ok(Self { config: map(&object, "speed_config")?, object })
    }

    /// Times `repeat` packets of `sessions` sessions drawn at random; every one must have its record. The frames have 192
    /// octets.
    ///
    /// # Errors
    /// [`OffloadError::Bpf`]; [`OffloadError::NotForwarded`] when a packet was left to the engine.
    pub fn time(
        &self,
        direction: OffloadDirection,
        sessions: u32,
        repeat: u32,
    ) -> Result<Timing, OffloadError> {
        self.time_packets(&SpeedPackets::plain(direction, sessions), repeat)
    }

    /// As [`Speed::time`], of other packets.
    ///
    /// # Errors
    /// As there.
    pub fn time_packets(&self, packets: &SpeedPackets, repeat: u32) -> Result<Timing, OffloadError> {
        let (restore_ns, _) = self.run(packets, 0, repeat)?;
        let (whole_ns, _) = self.run(packets, OFFLOAD_PATH, repeat)?;
        Ok(Timing { whole_ns, restore_ns })
    }

    /// What becomes of one packet.
    ///
    /// # Errors
    /// As [`Speed::time`].
    pub fn one(&self, packets: &SpeedPackets) -> Result<Vec<u8>, OffloadError> {
        self.run(packets, OFFLOAD_PATH, 1).map(|(_, packet)| packet)
    }

    /// Nanoseconds a packet, and the last one.
    fn run(&self, packets: &SpeedPackets, flags: u32, repeat: u32) -> Result<(u64, Vec<u8>), OffloadError> {
        let instance = match packets.direction {
            OffloadDirection::Uplink => offload::NO_INSTANCE,
            OffloadDirection::Downlink => packets.instance.into(),
        };
        let mac = packets.frame.first_chunk().copied().unwrap_or_default();
        let steering = map(&self.object, "config")?;
        write(&steering, &Config::new(abi::ROLE_GTPU, mac, 1, instance).to_bytes())?;
        let SpeedPackets { sessions, first, idle_of, tenants, seed, ref frame, .. } = *packets;
        let draw = Draw { seed, sessions, flags: packets.flags() | flags, first, idle_of, tenants };
        write(&self.config, &draw.config(frame))?;
        let run = test_run(&self.object, "speed", frame, repeat)?;
        let after = self
            .config
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::libbpf("reading a BPF map"))?
            .unwrap_or_default();
        let handed =
            after.get(20..24).and_then(|word| word.first_chunk()).map(|word| u32::from_ne_bytes(*word));
        if handed != Some(0) || run.action != Action::Pass {
            return Err(OffloadError::NotForwarded { packets: handed.unwrap_or(0) });
        }
        Ok((u64::try_from(run.duration.as_nanos()).unwrap_or(u64::MAX), run.frame))
    }
}

/// Which packets the program makes.
#[derive(Clone, Copy, Debug, Default)]
struct Draw {
    seed: u64,
    sessions: u32,
    flags: u32,
    first: u32,
    idle_of: u32,
    tenants: u32,
}

impl Draw {
    /// `struct speed_config`.
    fn config(&self, frame: &[u8; FRAME_LEN]) -> Vec<u8> {
        let Self { seed, sessions, flags, first, idle_of, tenants } = *self;
        let mut config = Vec::with_capacity(40 + FRAME_LEN);
        config.extend(seed.to_ne_bytes());
        for word in [sessions, flags, FRAME_BYTES, 0, first, idle_of, tenants, 0] {
            config.extend(word.to_ne_bytes());
        }
        config.extend(frame);
        config
    }
}

fn write(map: &MapHandle, value: &[u8]) -> Result<(), Error> {
    map.update(&0u32.to_ne_bytes(), value, MapFlags::ANY).map_err(Error::libbpf("writing a BPF map"))
}

/// Whom packets are of: those of the UE of number 0.
#[derive(Clone, Copy, Debug)]
struct Ends {
    /// Of the device.
    mac: [u8; 6],
    /// The device's and the gNB's GTP-U addresses.
    tunnel: [Ipv4Addr; 2],
    /// Uplink packets have a PDU session container of that flow.
    qfi: Option<u8>,
}

const ENDS: Ends = Ends { mac: MAC, tunnel: [LOCAL, PEER], qfi: None };

/// Where the parts of frames begin.
const IP_AT: usize = ethernet::HEADER_LEN;
const UDP_AT: usize = IP_AT + ipv4::HEADER_LEN;
const GTPU_AT: usize = UDP_AT + udp::HEADER_LEN;
const INNER_AT: usize = GTPU_AT + gtpu::HEADER_LEN;
const CONTAINER_LEN: usize = gtpu::OPTIONAL_LEN + 4;

/// IPv4 of the rest of the frame.
fn put_ipv4(offset: usize, frame: &mut [u8; FRAME_LEN], [src, dst]: [Ipv4Addr; 2]) {
    let mut header = Ipv4Fields::new(layout::at_mut(frame, offset));
    header.set_version_ihl(0x45);
    header.set_total_len(u16::try_from(FRAME_LEN - offset).unwrap_or(0));
    header.set_ttl(64);
    header.set_protocol(IpProtocol::UDP.0);
    header.set_src(src.to_bits());
    header.set_dst(dst.to_bits());
    header.fill_checksum();
}

fn put_udp(offset: usize, frame: &mut [u8; FRAME_LEN], port: u16) {
    let mut header = UdpFields::new(layout::at_mut(frame, offset));
    header.set_src_port(40_000);
    header.set_dst_port(port);
    header.set_len(u16::try_from(FRAME_LEN - offset).unwrap_or(0));
}

fn put_ethernet(ends: &Ends) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    let mut header = EthernetFields::new(layout::part_mut::<0, IP_AT, FRAME_LEN>(&mut frame));
    header.set_dst(ends.mac);
    header.set_ethertype(EtherType::IPV4.0);
    frame
}

/// To the UE, from a server.
fn downlink(ends: &Ends) -> [u8; FRAME_LEN] {
    let mut frame = put_ethernet(ends);
    put_ipv4(IP_AT, &mut frame, [SERVER, Speed::ue(0)]);
    put_udp(UDP_AT, &mut frame, 53);
    frame
}

/// From the UE, to it.
fn uplink(ends: &Ends) -> [u8; FRAME_LEN] {
    let [local, peer] = ends.tunnel;
    let mut frame = put_ethernet(ends);
    put_ipv4(IP_AT, &mut frame, [peer, local]);
    put_udp(UDP_AT, &mut frame, gtpu::UDP_PORT);
    let length = u16::try_from(FRAME_LEN - INNER_AT).unwrap_or(0);
    let inner = INNER_AT + if ends.qfi.is_some() { CONTAINER_LEN } else { 0 };
    let mut message = GtpuFields::new(layout::at_mut(&mut frame, GTPU_AT));
    message.set_flags(gtpu::VERSION_PT);
    message.set_message_type(MessageType::G_PDU.0);
    message.set_length(length);
    if let Some(qfi) = ends.qfi {
        message.set_flags(gtpu::VERSION_PT | gtpu::FLAG_EXTENSION);
        let mut container = ContainerFields::new(layout::at_mut(&mut frame, INNER_AT));
        container.set_kind_len(gtpu::PLAIN_CONTAINER);
        container.set_pdu_type(gtpu::PDU_TYPE_UL << 4);
        container.set_qfi(qfi);
        container.set_next(gtpu::extension_type::NONE);
    }
    put_ipv4(inner, &mut frame, [Speed::ue(0), SERVER]);
    put_udp(inner + ipv4::HEADER_LEN, &mut frame, 53);
    frame
}
