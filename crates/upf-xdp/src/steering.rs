//! One steering program, its maps, and its place on an interface.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use kaido_xdp::maps::{self, Table, address_key, prefix_key};
use kaido_xdp::object::ObjectBytes;
use kaido_xdp::{ADDRESSES_MAX, AttachMode, Error, LoadedProgram, Program, QUEUES_MAX};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::abi::{self, Config, Counters, PREFIXES_MAX, Pass, TARGETS_MAX, VLAN_IDS};
use crate::offload::{
    self, NO_INSTANCE, Offload, OffloadCounters, OffloadError, OffloadPort, Vlan, VlanRole,
};

static OBJECT: &ObjectBytes<[u8]> = &ObjectBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/upf.bpf.o")));

/// What an interface is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// N3, N9, S1-U, S5-U: take GTP-U to our addresses.
    pub gtpu: bool,
    /// N6, SGi: take what is routed through us.
    pub routed: bool,
}

/// What a program is loaded with, and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteeringConfig {
    /// What the interface is for.
    pub roles: Roles,
    /// The interface's own MAC address.
    pub mac: [u8; 6],
    /// Whether packets may span several buffers; then the sockets must be multi-buffer ones too, or the kernel
    /// drops the long packets.
    pub multi_buffer: bool,
    /// Whether packets of the same host may come without the checksums of TCP and UDP, which their sender left to a device.
    /// An offload leaves those to the engine.
    pub no_wire: bool,
}

/// How the packets of a receive queue are spread over the AF_XDP sockets bound to it.
///
/// The kernel hands a packet only to a socket of the queue it came in on, so a program cannot move packets between
/// queues. A program on a CPU map's entry can redirect to a socket on queue 0 only, and there nothing guards the queue's
/// fill ring against several CPUs (`docs/decisions/0010-xdp-offload.md`). A NIC whose RSS separates the directions of a
/// session therefore needs one queue with several sockets, or the engine's own stage with [`ue_hash`](crate::ue_hash).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SteerBy {
    /// All to the queue's first socket.
    #[default]
    Queue,
    /// By the UE's address, so that both directions of a session meet: [`ue_hash`](crate::ue_hash).
    Ue {
        /// How many sockets a queue has, 1 to [`TARGETS_MAX`](crate::TARGETS_MAX).
        targets: u32,
    },
    /// By the TEID uplink and the UE's address downlink: [`teid_hash`](crate::teid_hash).
    Teid {
        /// How many sockets a queue has, likewise.
        targets: u32,
    },
}

/// A loaded program, attached or not.
#[derive(Debug)]
pub struct Steering {
    mounted: LoadedProgram,
    config: SteeringConfig,
    config_map: MapHandle,
    counters: MapHandle,
    sockets: MapHandle,
    gtpu: Table<16>,
    local: Table<16>,
    /// Addresses of the host that a routed interface does not leave to the kernel.
    guarded: Vec<IpAddr>,
    prefixes: Table<20>,
    by: SteerBy,
    vlans: MapHandle,
    /// VLANs whose frames are all the user plane's.
    own_vlans: BTreeSet<u16>,
    fast: Option<OffloadPort>,
}

impl Steering {
    /// Loads a program and attaches it at once. Until its sockets are there, packets of the user plane are dropped.
    /// Until the local addresses are set, routed interfaces keep none for the kernel. To fill the tables first,
    /// [`load`](Self::load), set, then [`attach_to`](LoadedProgram::attach_to).
    ///
    /// # Errors
    /// As [`load`](Self::load) and [`attach_to`](LoadedProgram::attach_to).
    pub fn attach(ifindex: u32, mode: AttachMode, config: SteeringConfig) -> Result<Self, Error> {
        let mut steering = Self::load(config)?;
        steering.attach_to(ifindex, mode)?;
        Ok(steering)
    }

    /// Loads a program with empty tables, attached to nothing.
    ///
    /// # Errors
    /// [`Error::Permission`], or [`Error::Libbpf`] when the kernel refuses the program.
    pub fn load(config: SteeringConfig) -> Result<Self, Error> {
        Self::load_object(config, None)
    }

    /// As [`load`](Self::load), with the offload in front. What it forwards leaves by the interfaces of its next hops,
    /// which on some drivers (veth) need an XDP program too.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_offload(config: SteeringConfig, fast: &Offload) -> Result<Self, Error> {
        Self::load_offload_slots(config, fast, 1)
    }

    /// As [`load_offload`](Self::load_offload), with so many slots of counters: for an interface with several ports
    /// ([`VlanRole::slot`]).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_offload_slots(config: SteeringConfig, fast: &Offload, slots: u32) -> Result<Self, Error> {
        Self::load_object(config, Some((fast, slots)))
    }

    fn load_object(config: SteeringConfig, fast: Option<(&Offload, u32)>) -> Result<Self, Error> {
        let name = program_name(config, fast.is_some());
        let mounted =
            LoadedProgram::load_with(OBJECT, name, config.multi_buffer, |map| offload::prepare(map, fast))?;
        let fast = fast.map(|_| OffloadPort::of(&mounted)).transpose()?;
        let steering = Self {
            config,
            config_map: mounted.map("config")?,
            counters: mounted.map("counters")?,
            sockets: mounted.map("sockets")?,
            gtpu: Table::new(mounted.map("gtpu_addrs")?, "GTP-U addresses", ADDRESSES_MAX),
            local: Table::new(mounted.map("local_addrs")?, "local addresses", ADDRESSES_MAX),
            guarded: Vec::new(),
            prefixes: Table::new(mounted.map("ue_prefixes")?, "UE prefixes", PREFIXES_MAX),
            by: SteerBy::Queue,
            vlans: mounted.map("vlans")?,
            own_vlans: BTreeSet::new(),
            fast,
            mounted,
        };
        steering.write_config()?;
        Ok(steering)
    }

    /// Our own GTP-U addresses. Those that stay are never missing.
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::Libbpf`].
    pub fn set_gtpu_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        self.gtpu.replace(&addresses.iter().copied().map(address_key).collect())
    }

    /// Addresses the kernel answers for on a routed interface. Those that stay are never missing.
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::Libbpf`].
    pub fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        let kernels = addresses.iter().copied().filter(|address| !self.guarded.contains(address));
        self.local.replace(&kernels.map(address_key).collect())
    }

    /// Addresses that are never left to the kernel on a routed interface, whichever of the host's they are: the user plane has
    /// their packets, and drops them. To be said before the local addresses and the prefixes of UEs are.
    pub fn guard(&mut self, addresses: Vec<IpAddr>) {
        self.guarded = addresses;
    }

    /// The prefixes of the UEs, address and length in bits: a routed interface takes nothing else. None at all means
    /// no such limit. Those that stay are never missing.
    ///
    /// # Errors
    /// [`Error::PrefixLength`], [`Error::TooMany`], [`Error::Libbpf`].
    pub fn set_ue_prefixes(&mut self, prefixes: &[(IpAddr, u8)]) -> Result<(), Error> {
        // A guarded address is taken as if it were a UE's, or the limit would leave it to the kernel.
        let whole = |&address: &IpAddr| (address, if address.is_ipv4() { 32 } else { 128 });
        let guarded: Vec<_> = self.guarded.iter().filter(|_| !prefixes.is_empty()).map(whole).collect();
        let keys: BTreeSet<_> = prefixes
            .iter()
            .chain(&guarded)
            .map(|&(address, length)| prefix_key(address, length))
            .collect::<Result<_, _>>()?;
        if keys.is_empty() && !self.prefixes.is_empty() {
            // The limit goes before the prefixes do, or for a moment nothing would be inside.
            self.write_flags(false)?;
        }
        self.prefixes.replace(&keys)?;
        self.write_config()
    }

    /// The interface's own MAC address, which may change while the program runs.
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), Error> {
        self.config.mac = mac;
        self.write_config()
    }

    /// Spreads each queue's packets over so many of its sockets.
    ///
    /// # Errors
    /// [`Error::Targets`], [`Error::Libbpf`].
    pub fn set_steer_by(&mut self, by: SteerBy) -> Result<(), Error> {
        if let SteerBy::Ue { targets } | SteerBy::Teid { targets } = by
            && !(1..=TARGETS_MAX).contains(&targets)
        {
            return Err(Error::Targets { targets, limit: TARGETS_MAX });
        }
        self.by = by;
        self.write_config()
    }

    /// Lets a queue's packets go to an AF_XDP socket, bound to this interface and queue: its first, and only one unless
    /// they are [spread](Self::set_steer_by). The map does not keep the socket: when it closes, the kernel takes it out.
    ///
    /// # Errors
    /// [`Error::Queue`], [`Error::NotASocket`], [`Error::Permission`].
    pub fn register_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.register_target(queue, 0, socket)
    }

    /// As [`register_socket`](Self::register_socket), for one of the sockets a queue's packets are spread over, 0 and up.
    ///
    /// # Errors
    /// [`Error::Queue`], [`Error::Targets`], [`Error::NotASocket`], [`Error::Permission`].
    pub fn register_target(&mut self, queue: u32, target: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        maps::register_socket(&self.sockets, socket_place(queue, target)?, queue, socket)
    }

    /// Takes a queue's first socket out: from then on its packets are dropped and counted. A no-op when there is none.
    ///
    /// # Errors
    /// [`Error::Queue`], [`Error::Libbpf`].
    pub fn unregister_socket(&mut self, queue: u32) -> Result<(), Error> {
        self.unregister_target(queue, 0)
    }

    /// As [`unregister_socket`](Self::unregister_socket), for one of several.
    ///
    /// # Errors
    /// [`Error::Queue`], [`Error::Targets`], [`Error::Libbpf`].
    pub fn unregister_target(&mut self, queue: u32, target: u32) -> Result<(), Error> {
        maps::unregister_socket(&self.sockets, socket_place(queue, target)?)
    }

    /// The network instance of untagged packets to UEs on this interface, for the offload; none leaves them to the
    /// engine.
    ///
    /// # Errors
    /// [`OffloadError::NoOffload`], [`OffloadError::Bpf`].
    pub fn set_instance(&mut self, instance: Option<u16>) -> Result<(), OffloadError> {
        self.fast.as_mut().ok_or(OffloadError::NoOffload)?.instance = instance;
        Ok(self.write_config()?)
    }

    /// Has the user plane take all frames in these VLANs but those to other hosts. Each is a port of its own, with its own
    /// way to the kernel. Those that stay are never missing.
    ///
    /// # Errors
    /// [`Error::Vlan`], [`Error::Libbpf`].
    pub fn set_own_vlans(&mut self, vids: &BTreeSet<u16>) -> Result<(), Error> {
        if let Some(&vid) = vids.iter().find(|vid| !(1..VLAN_IDS - 1).contains(vid)) {
            return Err(Error::Vlan { vid });
        }
        let put = |vid: u16, own: bool| {
            self.vlans
                .update(&u32::from(vid).to_ne_bytes(), &[u8::from(own)], MapFlags::ANY)
                .map_err(Error::libbpf("setting an entry of a BPF map"))
        };
        vids.iter().try_for_each(|&vid| put(vid, true))?;
        self.own_vlans.difference(vids).try_for_each(|&vid| put(vid, false))?;
        self.own_vlans.clone_from(vids);
        self.write_config()
    }

    /// What comes in by VLANs, for the offload; packets of any other VLAN are left to the engine. Those that stay are never
    /// missing.
    ///
    /// # Errors
    /// [`OffloadError::NoOffload`], [`OffloadError::Bpf`].
    pub fn set_vlans(&mut self, vlans: &BTreeMap<Vlan, VlanRole>) -> Result<(), OffloadError> {
        Ok(self.fast.as_mut().ok_or(OffloadError::NoOffload)?.set_vlans(vlans)?)
    }

    /// What the offload did, summed over the CPUs; of an interface with several ports, with packets of the first slot.
    ///
    /// # Errors
    /// [`OffloadError::NoOffload`], [`OffloadError::Bpf`].
    pub fn offload_counters(&self) -> Result<OffloadCounters, OffloadError> {
        self.offload_counters_of(0)
    }

    /// As [`offload_counters`](Self::offload_counters), with packets of that slot; all zero for a slot that is not there.
    ///
    /// # Errors
    /// [`OffloadError::NoOffload`], [`OffloadError::Bpf`].
    pub fn offload_counters_of(&self, slot: u32) -> Result<OffloadCounters, OffloadError> {
        let fast = self.fast.as_ref().ok_or(OffloadError::NoOffload)?;
        let mut sum = OffloadCounters::default();
        for value in maps::per_cpu(&fast.counters, slot)? {
            sum.add(&value);
        }
        Ok(sum)
    }

    /// Packets seen since the program was loaded, summed over the CPUs.
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn counters(&self) -> Result<Counters, Error> {
        let mut sum = Counters::default();
        for value in maps::per_cpu(&self.counters, 0)? {
            sum.add(&value);
        }
        Ok(sum)
    }

    fn write_config(&self) -> Result<(), Error> {
        self.write_flags(!self.prefixes.is_empty())
    }

    fn write_flags(&self, prefixes: bool) -> Result<(), Error> {
        let Roles { gtpu, routed } = self.config.roles;
        let flag = |set, bit| if set { bit } else { 0 };
        let (by, targets) = match self.by {
            SteerBy::Queue => (0, 1),
            SteerBy::Ue { targets } => (abi::BY_UE, targets),
            SteerBy::Teid { targets } => (abi::BY_TEID, targets),
        };
        let roles = flag(gtpu, abi::ROLE_GTPU) | flag(routed, abi::ROLE_ROUTED);
        let vlans = flag(!self.own_vlans.is_empty(), abi::VLANS);
        let no_wire = flag(self.config.no_wire, abi::NO_WIRE);
        let flags = roles | flag(prefixes, abi::PREFIXES) | by | vlans | no_wire;
        let instance = self.fast.as_ref().and_then(|fast| fast.instance).map_or(NO_INSTANCE, u32::from);
        let value = Config::new(flags, self.config.mac, targets, instance).to_bytes();
        self.config_map
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(Error::libbpf("configuring the XDP program"))
    }
}

impl Deref for Steering {
    type Target = LoadedProgram;

    fn deref(&self) -> &LoadedProgram {
        &self.mounted
    }
}

impl DerefMut for Steering {
    fn deref_mut(&mut self) -> &mut LoadedProgram {
        &mut self.mounted
    }
}

fn socket_place(queue: u32, target: u32) -> Result<u32, Error> {
    if queue >= QUEUES_MAX {
        return Err(Error::Queue { queue });
    }
    if target >= TARGETS_MAX {
        return Err(Error::Targets { targets: target, limit: TARGETS_MAX });
    }
    Ok(queue * TARGETS_MAX + target)
}

fn program_name(config: SteeringConfig, fast: bool) -> &'static str {
    match (fast, config.multi_buffer) {
        (false, false) => "steer_plain",
        (false, true) => "steer_frags",
        (true, false) => "offload_plain",
        (true, true) => "offload_frags",
    }
}

impl Program for Steering {
    fn register_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        Self::register_socket(self, queue, socket)
    }

    fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        Self::set_local_addresses(self, addresses)
    }

    fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), Error> {
        Self::set_mac(self, mac)
    }

    fn left_to_kernel(&self) -> Result<u64, Error> {
        let counters = self.counters()?;
        Ok(Pass::ALL.into_iter().map(|reason| counters.passed(reason)).sum())
    }
}
