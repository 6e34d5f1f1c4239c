//! GRE header removal in the driver: `bpf/gre.bpf.c` and its loader, by the same rules as the workers'.
//!
//! ```text
//!           ┌─ no tunnel packet, or a rule that passes ─▶ the peer interface
//!  driver ─▶├─ a rule that strips ─▶ outer headers off ─▶ the peer interface
//!           ├─ a rule that drops, malformed ─▶ dropped and counted
//!           └─ anything that takes more ─▶ AF_XDP socket of the queue, else the kernel
//! ```

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, BorrowedFd};

use kaido_engine::{DropReason, PortId};
use kaido_xdp::object::ObjectBytes;
use kaido_xdp::{Error, ExitLink, LoadedProgram, Program, QUEUES_MAX};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::rule_set::RuleSet;
use crate::{
    Condition, Encapsulation, ForwardingMode, GreDrop, KeyMatch, Prefix, Propagation, RULES_MAX, RuleTotals,
    Verdict,
};

static OBJECT: &ObjectBytes<[u8]> = &ObjectBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/gre.bpf.o")));

/// `enum gre_verdict`.
const PASS: u8 = 0;
const STRIP: u8 = 1;
const DROP: u8 = 2;
const HAND: u8 = 3;
const PUNT: u8 = 4;
/// `gre_rule.flags`.
const TTL_UNIFORM: u8 = 1;
const DSCP_UNIFORM: u8 = 2;
/// `gre_config.flags`.
const OTHERS_HANDED: u32 = 1;
const ENGINE: u32 = 2;
const ACROSS: u32 = 4;
/// `GRE_PLAIN`.
const PLAIN: u8 = 8;

/// `enum gre_drop`, in its order.
const DROPS: [DropReason; 8] = [
    GreDrop::RULE,
    GreDrop::MALFORMED,
    GreDrop::VERSION,
    GreDrop::FLAGS,
    DropReason::IP_MALFORMED,
    DropReason::IP_CHECKSUM,
    DropReason::INNER_MALFORMED,
    DropReason::CONGESTION_MARK,
];

/// Octets of `struct gre_rule`.
const RULE_LEN: usize = 80;
/// `GRE_RULES_MAX`.
const BANK_LEN: u32 = 512;
const _: () = assert!(BANK_LEN as usize == 2 * RULES_MAX, "rules and encapsulations");
/// Octets of `struct gre_totals`.
const TOTALS_LEN: usize = 16;
/// Where the MTU is in `struct gre_config`, in words.
const MTU: usize = 4;

/// What a program did, summed over the CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GreCounters {
    /// Frames that left by the peer port as they came.
    pub passed: u64,
    /// Frames that left by the peer port without their outer headers.
    pub stripped: u64,
    /// Frames that were left to the engine: to its socket, or to the kernel where there is none.
    pub handed: u64,
    /// Frames that were left to the kernel's own network.
    pub kernel: u64,
    /// Octets, with Ethernet, of the frames that passed, were stripped or dropped, as they came.
    pub octets: u64,
    /// Octets that left.
    pub octets_sent: u64,
    /// Frames that were dropped, by reason.
    pub dropped: Vec<(DropReason, u64)>,
}

/// One program, for one interface.
#[derive(Debug)]
pub struct GreProgram {
    mounted: LoadedProgram,
    port: PortId,
    work: GreWork,
    /// What is obeyed.
    bank: RuleBank,
    peer_port: MapHandle,
    sockets: MapHandle,
    rules: MapHandle,
    totals: MapHandle,
    counters: MapHandle,
    configs: MapHandle,
    banks: MapHandle,
    /// Of the peer port, in octets without Ethernet.
    mtu: u32,
    /// The peer interface, once it is set.
    exit: Option<u32>,
}

/// Rules as a program has them. There is room for those that are obeyed, and for those that are obeyed next.
#[derive(Debug)]
pub struct RuleBank {
    number: u32,
    /// As the program has it: first rule, rules, encapsulations, flags, MTU of the peer port, verdicts.
    config: [u32; 7],
    /// Numbers in the settings of the program's rules, and where they are counted.
    counted: Vec<(usize, u16)>,
    /// Rules of the settings.
    rules: usize,
}

/// Who removes headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GreWork {
    /// The program does what it can.
    Program,
    /// The engine does all: the program leaves it everything but what is the kernel's.
    Engine,
}

impl GreProgram {
    /// Loads the program of the port of that number. Packets longer than a page need `multi_buffer`, and sockets that take such.
    ///
    /// # Errors
    /// [`Error::Permission`], or [`Error::Libbpf`] when the kernel refuses the program.
    pub fn load(rules: &RuleSet, port: PortId, work: GreWork, multi_buffer: bool) -> Result<Self, Error> {
        let name = if multi_buffer { "gre_frags" } else { "gre_plain" };
        let mounted = LoadedProgram::load(OBJECT, name, multi_buffer)?;
        let ports = &rules.settings().ports;
        let to = ports.get(port.index()).and_then(|port| port.peer_port);
        let mtu = to.and_then(|to| ports.get(to.index())).map_or(0, |to| to.mtu);
        let mut program = Self {
            port,
            work,
            bank: RuleBank { number: 1, config: [0; 7], counted: Vec::new(), rules: 0 },
            peer_port: mounted.map("gre_peer_port")?,
            sockets: mounted.map("gre_sockets")?,
            rules: mounted.map("gre_rules")?,
            totals: mounted.map("gre_totals")?,
            counters: mounted.map("gre_counters")?,
            configs: mounted.map("gre_config")?,
            banks: mounted.map("gre_bank")?,
            mtu: u32::try_from(mtu).unwrap_or(u32::MAX),
            exit: None,
            mounted,
        };
        let first = program.prepare(rules)?;
        program.obey(first)?;
        Ok(program)
    }

    /// Writes other rules beside those that are obeyed. Nothing changes until they are [obeyed](Self::obey).
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn prepare(&self, rules: &RuleSet) -> Result<RuleBank, Error> {
        let settings = rules.settings();
        let number = 1 - self.bank.number;
        let first = number * BANK_LEN;
        let of_port = |condition: &Condition| condition.port.is_none_or(|wanted| wanted == self.port);
        let own = settings.rules.iter().enumerate().filter(|(_, rule)| of_port(&rule.condition));
        let (counted, raw): (Vec<_>, Vec<_>) = own
            .map(|(number, rule)| {
                let place = rules.place_of_rule(number);
                ((number, place), raw_rule(&rule.condition, rule.verdict, place))
            })
            .unzip();
        let encapsulations = settings.encapsulations.iter().filter(|tunnel| tunnel.port == self.port);
        let plain: Vec<_> = encapsulations.clone().map(raw_encapsulation).collect();
        for (at, raw) in (first..).zip(raw.iter().chain(&plain)) {
            write(&self.rules, at, raw, "writing the rules")?;
        }
        // Places of the rules that are obeyed now stay as they are.
        let obeyed: HashSet<_> = self.bank.counted.iter().map(|(_, place)| *place).collect();
        let cpus = libbpf_rs::num_possible_cpus().map_err(Error::libbpf("counting the CPUs"))?;
        let zero = vec![vec![0; TOTALS_LEN]; cpus];
        for (_, place) in counted.iter().filter(|(_, place)| !obeyed.contains(place)) {
            self.totals
                .update_percpu(&u32::from(*place).to_ne_bytes(), &zero, MapFlags::ANY)
                .map_err(Error::libbpf("clearing the counters of a rule"))?;
        }
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        let crosses = settings.ports.get(self.port.index()).is_some_and(|port| port.peer_port.is_some());
        let flags = flag(encapsulations.clone().any(|tunnel| tunnel.ethernet), OTHERS_HANDED)
            | flag(self.work == GreWork::Engine, ENGINE)
            | flag(crosses, ACROSS);
        let (unmatched, unmatched_flags) = raw_verdict(settings.unmatched);
        let config = [
            first,
            u32::try_from(raw.len()).unwrap_or(0),
            u32::try_from(plain.len()).unwrap_or(0),
            flags,
            self.mtu,
            u32::from(unmatched) | u32::from(unmatched_flags) << 8,
            u32::from(raw_verdict(settings.unreadable).0),
        ];
        let bank = RuleBank { number, config, counted, rules: settings.rules.len() };
        self.write_config(&bank)?;
        Ok(bank)
    }

    /// Obeys rules that were made ready: a packet meets all of them, or all of those before.
    ///
    /// # Errors
    /// [`Error::Libbpf`]: then those of before are obeyed.
    pub fn obey(&mut self, mut bank: RuleBank) -> Result<(), Error> {
        if bank.config[MTU] != self.mtu {
            bank.config[MTU] = self.mtu;
            self.write_config(&bank)?;
        }
        write(&self.banks, 0, &bank.number.to_ne_bytes(), "changing the rules")?;
        self.bank = bank;
        Ok(())
    }

    fn write_config(&self, bank: &RuleBank) -> Result<(), Error> {
        let raw = bank.config.map(u32::to_ne_bytes).concat();
        write(&self.configs, bank.number, &raw, "configuring the XDP program")
    }

    /// The interface that packets leave by. Without one they are the kernel's. On some drivers (veth) it needs an XDP
    /// program too.
    ///
    /// # Errors
    /// [`Error::Libbpf`] when there is no such interface.
    pub fn set_peer_port(&mut self, ifindex: u32) -> Result<(), Error> {
        self.peer_port
            .update(&0u32.to_ne_bytes(), &ifindex.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::libbpf("setting the peer interface"))?;
        self.exit = Some(ifindex);
        Ok(())
    }

    /// The interface that packets leave by, once it is set.
    pub fn exit(&self) -> Option<u32> {
        self.exit
    }

    /// The longest packet that leaves, in octets without Ethernet.
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn set_mtu_peer_port(&mut self, mtu: u32) -> Result<(), Error> {
        (self.mtu, self.bank.config[MTU]) = (mtu, mtu);
        self.write_config(&self.bank)
    }

    /// Lets what takes more go to an AF_XDP socket, bound to this interface and queue. When the socket closes, the kernel
    /// takes it out.
    ///
    /// # Errors
    /// [`Error::Queue`], [`Error::NotASocket`].
    pub fn register_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        if queue >= QUEUES_MAX {
            return Err(Error::Queue { queue });
        }
        let value = socket.as_raw_fd().to_ne_bytes();
        let updated = self.sockets.update(&queue.to_ne_bytes(), &value, MapFlags::ANY);
        updated.map_err(|source| Error::NotASocket { queue, source })
    }

    /// What was done since the program was loaded.
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn counters(&self) -> Result<GreCounters, Error> {
        let sums = sums(&self.counters, 0, 6 + DROPS.len())?;
        Ok(GreCounters {
            passed: sums[0],
            stripped: sums[1],
            handed: sums[2],
            kernel: sums[3],
            octets: sums[4],
            octets_sent: sums[5],
            dropped: DROPS.into_iter().zip(sums[6..].iter().copied()).collect(),
        })
    }

    /// What each rule of those that are obeyed has done here: what was left to the engine is counted there.
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn totals(&self) -> Result<Vec<RuleTotals>, Error> {
        let mut totals = vec![RuleTotals::default(); self.bank.rules];
        for &(number, place) in &self.bank.counted {
            let sums = sums(&self.totals, place.into(), 2)?;
            totals[number] = RuleTotals { packets: sums[0], octets: sums[1] };
        }
        Ok(totals)
    }
}

impl Deref for GreProgram {
    type Target = LoadedProgram;

    fn deref(&self) -> &LoadedProgram {
        &self.mounted
    }
}

impl DerefMut for GreProgram {
    fn deref_mut(&mut self) -> &mut LoadedProgram {
        &mut self.mounted
    }
}

/// Writes an element of an array.
fn write(map: &MapHandle, at: u32, raw: &[u8], what: &'static str) -> Result<(), Error> {
    map.update(&at.to_ne_bytes(), raw, MapFlags::ANY).map_err(Error::libbpf(what))
}

/// Words of a per-CPU array's element, summed over the CPUs.
fn sums(map: &MapHandle, place: u32, words: usize) -> Result<Vec<u64>, Error> {
    let values = map
        .lookup_percpu(&place.to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::libbpf("reading the counters"))?;
    let mut sums = vec![0; words];
    for value in values.unwrap_or_default() {
        for (sum, word) in sums.iter_mut().zip(value.as_chunks::<8>().0) {
            *sum += u64::from_ne_bytes(*word);
        }
    }
    Ok(sums)
}

/// `enum gre_verdict`, and flags of what goes over.
fn raw_verdict(verdict: Verdict) -> (u8, u8) {
    let flag = |propagation, bit| if propagation == Propagation::Uniform { bit } else { 0 };
    match verdict {
        Verdict::Decapsulate { ttl, dscp, forward: ForwardingMode::PeerPort } => {
            (STRIP, flag(ttl, TTL_UNIFORM) | flag(dscp, DSCP_UNIFORM))
        }
        Verdict::Pass => (PASS, 0),
        Verdict::Drop => (DROP, 0),
        Verdict::Punt => (PUNT, 0),
        Verdict::Decapsulate { forward: ForwardingMode::Route, .. } => (HAND, 0),
    }
}

/// Mask and value as the program has addresses: IPv4 behind `::ffff:0:0/96`.
fn raw_prefix(prefix: Option<Prefix>) -> ([u8; 16], [u8; 16]) {
    let Some(prefix) = prefix else { return ([0; 16], [0; 16]) };
    let (mask, value) = prefix.mask();
    if prefix.is_ipv4() {
        let mapped = 0xffff_u128 << 32;
        ((mask | !u128::from(u32::MAX)).to_be_bytes(), (value | mapped).to_be_bytes())
    } else {
        (mask.to_be_bytes(), value.to_be_bytes())
    }
}

fn raw_rule(condition: &Condition, verdict: Verdict, place: u16) -> [u8; RULE_LEN] {
    let (key_match, key) = match condition.key {
        KeyMatch::Any => (0, 0),
        KeyMatch::Absent => (1, 0),
        KeyMatch::Is(key) => (2, key),
    };
    let inner = condition.inner;
    let inner = u8::from(inner.ipv4) | u8::from(inner.ipv6) << 1 | u8::from(inner.ethernet) << 2;
    let (verdict, flags) = raw_verdict(verdict);
    let mut raw = raw_ends(condition.source, condition.destination);
    raw[64..68].copy_from_slice(&key.to_ne_bytes());
    raw[69..73].copy_from_slice(&[key_match, inner, verdict, flags]);
    raw[74..76].copy_from_slice(&place.to_ne_bytes());
    raw
}

/// What the engine puts into a tunnel.
fn raw_encapsulation(tunnel: &Encapsulation) -> [u8; RULE_LEN] {
    let mut raw = raw_ends(tunnel.source, tunnel.destination);
    raw[70..72].copy_from_slice(&[PLAIN, HAND]);
    raw
}

/// A rule's addresses and family.
fn raw_ends(source: Option<Prefix>, destination: Option<Prefix>) -> [u8; RULE_LEN] {
    let mut raw = [0; RULE_LEN];
    let family = match source.or(destination) {
        None => 0,
        Some(prefix) if prefix.is_ipv4() => 4,
        Some(_) => 6,
    };
    let ((source_mask, source), (destination_mask, destination)) =
        (raw_prefix(source), raw_prefix(destination));
    let addresses = [source_mask, source, destination_mask, destination];
    raw[..64].copy_from_slice(&addresses.concat());
    raw[68] = family;
    raw
}

impl Program for GreProgram {
    fn register_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        Self::register_socket(self, queue, socket)
    }

    fn set_local_addresses(&mut self, _addresses: &[IpAddr]) -> Result<(), Error> {
        // Whose packets are is said by rules alone.
        Ok(())
    }

    fn set_mac(&mut self, _mac: [u8; 6]) -> Result<(), Error> {
        // As above.
        Ok(())
    }

    fn left_to_kernel(&self) -> Result<u64, Error> {
        // With what else it has done: its counters have it.
        Ok(0)
    }

    fn exit_changed(&mut self, before: u32, now: ExitLink) -> Result<(), Error> {
        if self.exit() != Some(before) {
            return Ok(());
        }
        self.set_mtu_peer_port(now.mtu)?;
        if before == now.ifindex { Ok(()) } else { self.set_peer_port(now.ifindex) }
    }
}
