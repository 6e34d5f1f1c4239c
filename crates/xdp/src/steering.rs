//! One steering program, its maps, and its place on an interface.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Once;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel, ProgramInput};

use crate::Error;
use crate::abi::{self, ADDRESSES_MAX, Config, Counters, PREFIXES_MAX, QUEUES_MAX};
use crate::attach::{AttachMode, Link};
use crate::prefix::{address_key, prefix_key};
use crate::table::Table;

/// The compiled programs, aligned as an ELF header asks.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o")));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

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
}

/// What a program said of a packet (`enum xdp_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The program failed.
    Aborted,
    /// Thrown away.
    Drop,
    /// To the kernel.
    Pass,
    /// Back out of the same interface.
    Tx,
    /// To an AF_XDP socket.
    Redirect,
    /// None of the above.
    Unknown(u32),
}

impl From<u32> for Action {
    fn from(action: u32) -> Self {
        match action {
            libbpf_sys::XDP_ABORTED => Self::Aborted,
            libbpf_sys::XDP_DROP => Self::Drop,
            libbpf_sys::XDP_PASS => Self::Pass,
            libbpf_sys::XDP_TX => Self::Tx,
            libbpf_sys::XDP_REDIRECT => Self::Redirect,
            other => Self::Unknown(other),
        }
    }
}

/// What a test run gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// What the program said.
    pub action: Action,
    /// Mean time of one run, in whole nanoseconds.
    pub duration: Duration,
}

/// A loaded program, attached or not.
#[derive(Debug)]
pub struct Steering {
    // Before the object: taken off before its maps go.
    link: Option<Link>,
    config: SteeringConfig,
    config_map: MapHandle,
    counters: MapHandle,
    sockets: MapHandle,
    gtpu: Table<16>,
    local: Table<16>,
    prefixes: Table<20>,
    object: Object,
}

impl Steering {
    /// Loads a program and attaches it at once. Until its sockets are there, packets that are the user plane's are
    /// dropped, and until the local addresses are set, routed interfaces keep none for the kernel: to fill the tables
    /// first, [`load`](Self::load), set, then [`attach_to`](Self::attach_to).
    ///
    /// # Errors
    /// As [`load`](Self::load) and [`attach_to`](Self::attach_to).
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
        route_prints();
        let mut open = ObjectBuilder::default()
            .name("kaido_steer")
            .and_then(|builder| builder.open_memory(&OBJECT.0))
            .map_err(Error::libbpf("opening the XDP object"))?;
        for mut program in open.progs_mut() {
            let wanted = program.name() == program_name(config);
            program.set_autoload(wanted);
        }
        let object = open.load().map_err(Error::libbpf("loading the XDP program"))?;
        let steering = Self {
            link: None,
            config,
            config_map: map(&object, "config")?,
            counters: map(&object, "counters")?,
            sockets: map(&object, "sockets")?,
            gtpu: Table::new(map(&object, "gtpu_addrs")?, "GTP-U addresses", ADDRESSES_MAX),
            local: Table::new(map(&object, "local_addrs")?, "local addresses", ADDRESSES_MAX),
            prefixes: Table::new(map(&object, "ue_prefixes")?, "UE prefixes", PREFIXES_MAX),
            object,
        };
        steering.write_config()?;
        Ok(steering)
    }

    /// Attaches to an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::AlreadyAttached`], [`Error::MtuTooLarge`], [`Error::NativeUnsupported`], [`Error::NoInterface`],
    /// [`Error::Permission`], [`Error::AttachedHere`].
    pub fn attach_to(&mut self, ifindex: u32, mode: AttachMode) -> Result<(), Error> {
        if let Some(link) = &self.link {
            return Err(Error::AttachedHere { ifindex: link.ifindex });
        }
        let name = program_name(self.config);
        let Some(program) = self.object.progs().find(|program| program.name() == name) else {
            return Err(Error::Libbpf { action: "finding the XDP program", source: missing() });
        };
        self.link = Some(Link::attach(program.as_fd(), ifindex, mode, self.config.multi_buffer)?);
        Ok(())
    }

    /// Takes the program off its interface; a no-op when it is on none. Dropping does the same, without telling of
    /// errors.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn detach(&mut self) -> Result<(), Error> {
        self.link.take().map_or(Ok(()), Link::detach)
    }

    /// The mode that attaching gave, [`AttachMode::Native`] or [`AttachMode::Generic`]; none when not attached.
    pub fn mode(&self) -> Option<AttachMode> {
        self.link.as_ref().map(|link| link.mode)
    }

    /// The interface the program is on.
    pub fn ifindex(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.ifindex)
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
        self.local.replace(&addresses.iter().copied().map(address_key).collect())
    }

    /// The prefixes of the UEs, address and length in bits: a routed interface takes nothing else. None at all means
    /// no such limit. Those that stay are never missing.
    ///
    /// # Errors
    /// [`Error::PrefixLength`], [`Error::TooMany`], [`Error::Libbpf`].
    pub fn set_ue_prefixes(&mut self, prefixes: &[(IpAddr, u8)]) -> Result<(), Error> {
        let keys: BTreeSet<_> = prefixes
            .iter()
            .map(|&(address, length)| prefix_key(address, length))
            .collect::<Result<_, _>>()?;
        if keys.is_empty() && !self.prefixes.is_empty() {
            // The limit goes before the prefixes do, or for a moment nothing would be inside.
            self.write_flags(false)?;
        }
        self.prefixes.replace(&keys)?;
        self.write_config()
    }

    /// Lets a queue's packets go to an AF_XDP socket, bound to this interface and queue. The map does not keep the
    /// socket: when it closes, the kernel takes it out.
    ///
    /// # Errors
    /// [`Error::Queue`], [`Error::NotASocket`], [`Error::Permission`].
    pub fn register_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        if queue >= QUEUES_MAX {
            return Err(Error::Queue { queue });
        }
        let value = socket.as_raw_fd().to_ne_bytes();
        self.sockets.update(&queue.to_ne_bytes(), &value, MapFlags::ANY).map_err(|source| {
            match source.kind() {
                libbpf_rs::ErrorKind::PermissionDenied => {
                    Error::Permission { action: "registering a socket" }
                }
                _ => Error::NotASocket { queue, source },
            }
        })
    }

    /// Takes a queue's socket out: from then on its packets are dropped and counted. A no-op when there is none.
    ///
    /// # Errors
    /// [`Error::Queue`], [`Error::Libbpf`].
    pub fn unregister_socket(&mut self, queue: u32) -> Result<(), Error> {
        if queue >= QUEUES_MAX {
            return Err(Error::Queue { queue });
        }
        match self.sockets.delete(&queue.to_ne_bytes()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(Error::libbpf("unregistering a socket")(error))
            }
            _ => Ok(()),
        }
    }

    /// Packets seen since the program was loaded, summed over the CPUs.
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn counters(&self) -> Result<Counters, Error> {
        let per_cpu = self
            .counters
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::libbpf("reading the counters"))?;
        let mut sum = Counters::default();
        for value in per_cpu.iter().flatten() {
            sum.add(value);
        }
        Ok(sum)
    }

    /// Runs the program `repeat` times on a frame as if received on queue 0 of the namespace's `lo`
    /// (`BPF_PROG_TEST_RUN`); nothing is delivered. The frame is from 14 bytes to about a page.
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> Result<TestRun, Error> {
        let name = program_name(self.config);
        let Some(program) = self.object.progs_mut().find(|program| program.name() == name) else {
            return Err(Error::Libbpf { action: "finding the XDP program", source: missing() });
        };
        let input = ProgramInput { data_in: Some(frame), repeat, ..Default::default() };
        let output = program.test_run(input).map_err(Error::libbpf("test-running the XDP program"))?;
        Ok(TestRun { action: output.return_value.into(), duration: output.duration })
    }

    fn write_config(&self) -> Result<(), Error> {
        self.write_flags(!self.prefixes.is_empty())
    }

    fn write_flags(&self, prefixes: bool) -> Result<(), Error> {
        let Roles { gtpu, routed } = self.config.roles;
        let flag = |set, bit| if set { bit } else { 0 };
        let flags =
            flag(gtpu, abi::ROLE_GTPU) | flag(routed, abi::ROLE_ROUTED) | flag(prefixes, abi::PREFIXES);
        let value = Config::new(flags, self.config.mac).to_bytes();
        self.config_map
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(Error::libbpf("configuring the XDP program"))
    }
}

fn program_name(config: SteeringConfig) -> &'static str {
    if config.multi_buffer { "steer_frags" } else { "steer_plain" }
}

fn map(object: &Object, name: &str) -> Result<MapHandle, Error> {
    let Some(map) = object.maps().find(|map| map.name() == name) else {
        return Err(Error::Libbpf { action: "finding a BPF map", source: missing() });
    };
    MapHandle::try_from(&map).map_err(Error::libbpf("opening a BPF map"))
}

#[cold]
fn missing() -> libbpf_rs::Error {
    libbpf_rs::Error::from_raw_os_error(libc::ENOENT)
}

/// libbpf writes to stderr unless told otherwise; what matters comes back as an error anyway.
fn route_prints() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |_, message| {
            tracing::debug!(target: "libbpf", "{}", message.trim_end());
        })));
    });
}
