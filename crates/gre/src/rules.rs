//! What is to be done, as an operator writes it.

use std::fmt;
use std::net::IpAddr;

use kaido_engine::PortId;
use kaido_wire::{EtherType, gre};

/// Most rules of a node, and most encapsulations: they are tried one after the other.
pub const RULES_MAX: usize = 256;

/// Addresses that agree in their first bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// The addresses that have the first `len` bits of `address`; `None` when the family has fewer.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (len <= bits).then_some(Self { address, len })
    }

    /// One address.
    pub const fn of(address: IpAddr) -> Self {
        Self { address, len: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether they are of IPv4.
    pub const fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Whether an address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let number = match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let (mask, value) = self.mask();
        address.is_ipv4() == self.is_ipv4() && number & mask == value
    }

    /// Mask and value of the address as a number of its family's width.
    pub fn mask(&self) -> (u128, u128) {
        let (bits, value) = match self.address {
            IpAddr::V4(v4) => (32, u128::from(v4.to_bits())),
            IpAddr::V6(v6) => (128, v6.to_bits()),
        };
        let all = u128::MAX >> (128 - bits);
        let mask = all & !all.checked_shr(u32::from(self.len)).unwrap_or(0);
        (mask, value & mask)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which keys a tunnel packet may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyMatch {
    /// Any, or none.
    #[default]
    Any,
    /// None at all.
    Absent,
    /// This one.
    Is(u32),
}

/// What may be in a tunnel packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
    /// Ethernet frames (Transparent Ethernet Bridging).
    pub ethernet: bool,
}

impl Default for Inner {
    fn default() -> Self {
        Self { ipv4: true, ipv6: true, ethernet: true }
    }
}

impl Inner {
    pub(crate) const fn has(self, protocol: EtherType) -> bool {
        match protocol {
            EtherType::IPV4 => self.ipv4,
            EtherType::IPV6 => self.ipv6,
            gre::TRANSPARENT_ETHERNET => self.ethernet,
            _ => false,
        }
    }
}

/// What a tunnel packet must be for a rule to be its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Where it came in; anywhere when not given.
    pub port: Option<PortId>,
    /// Outer source.
    pub source: Option<Prefix>,
    /// Outer destination.
    pub destination: Option<Prefix>,
    /// Key.
    pub key: KeyMatch,
    /// What is in it.
    pub inner: Inner,
}

/// How the outer header's hop count and class of service go over to what was in it, and back (RFC 2983, RFC 3443).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// Not at all: the tunnel is one hop, or none.
    #[default]
    Pipe,
    /// As if there were no tunnel.
    Uniform,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardingMode {
    /// Out of the port that the one it came in by is connected with; Ethernet addresses and VLAN tags stay.
    #[default]
    PeerPort,
    /// By the node's routes, to the next hop of its destination, one hop less.
    Route,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its outer headers go.
    Decapsulate {
        /// Time to live: with [`Propagation::Uniform`] the lower of outer and inner, which never raises it.
        ttl: Propagation,
        /// DSCP: with [`Propagation::Uniform`] the outer. Congestion marks go over in any case (RFC 6040 4.2).
        dscp: Propagation,
        /// Where to. An Ethernet frame leaves by the peer port.
        forward: ForwardingMode,
    },
    /// It leaves by the peer port as it is.
    Pass,
    /// It is dropped.
    Drop,
    /// It is left to the kernel.
    Punt,
}

impl Verdict {
    /// Decapsulation that changes no octet of what was in the tunnel.
    pub const DECAPSULATE: Self = Self::Decapsulate {
        ttl: Propagation::Pipe,
        dscp: Propagation::Pipe,
        forward: ForwardingMode::PeerPort,
    };

    /// What it is called where it is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decapsulate { .. } => "decapsulate",
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Punt => "punt",
        }
    }
}

/// One rule for tunnel packets; the first whose condition a packet meets counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name in counters.
    pub name: String,
    /// What it is for.
    pub condition: Condition,
    /// What it does.
    pub verdict: Verdict,
}

/// Whether the outer header allows routers to cut the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DontFragment {
    /// It does not: what is too large is dropped here, and its sender told.
    #[default]
    Set,
    /// It does, and here it is cut too where it must be (RFC 2784 3.1 leaves that open).
    Clear,
    /// As the packet's own; of IPv6, which routers never cut, as [`DontFragment::Set`].
    Copy,
}

/// The reverse: packets that are given outer headers. No state is kept, so they have no sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encapsulation {
    /// Its name in counters.
    pub name: String,
    /// Where packets come in.
    pub port: PortId,
    /// Their source.
    pub source: Option<Prefix>,
    /// Their destination.
    pub destination: Option<Prefix>,
    /// Whole Ethernet frames go in, whatever is in them.
    pub ethernet: bool,
    /// Near end of the tunnel.
    pub local: IpAddr,
    /// Far end, of the same family.
    pub remote: IpAddr,
    /// Key.
    pub key: Option<u32>,
    /// Whether GRE has a checksum.
    pub checksum: bool,
    /// Time to live of the outer header: this with [`Propagation::Pipe`], else the packet's own, which ICMP relies on.
    pub hops: u8,
    /// How hops go over.
    pub ttl: Propagation,
    /// DSCP: zero, or the packet's own. Its ECN field goes over in any case (RFC 6040 4.1, normal mode).
    pub dscp: Propagation,
    /// Whether it may be cut on its way, of IPv4.
    pub dont_fragment: DontFragment,
    /// Where it goes.
    pub forward: ForwardingMode,
}

/// What becomes of tunnel packets that came in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pieces {
    /// They are put together, within bounds, and judged whole.
    #[default]
    Assemble,
    /// They pass.
    Pass,
    /// They are dropped.
    Drop,
}

/// A port, in the order of the worker's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// The port that packets go out of which came in here and are not routed. Without one, what would go there is left
    /// to the kernel.
    pub peer_port: Option<PortId>,
    /// Its Ethernet address, of routed packets.
    pub mac: [u8; 6],
    /// The node's own addresses on it, from which senders are told what went wrong. Without one of a family they are not.
    pub addresses: Vec<IpAddr>,
    /// The largest packet that its link takes, in octets without Ethernet.
    pub mtu: usize,
}

/// All that the function is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Ports, by their numbers.
    pub ports: Vec<PortSettings>,
    /// Rules for tunnel packets, in their order.
    pub rules: Vec<Rule>,
    /// Packets to be put into tunnels.
    pub encapsulations: Vec<Encapsulation>,
    /// Tunnel packets that no rule is for; [`Verdict::Decapsulate`] is possible.
    pub unmatched: Verdict,
    /// Tunnel packets whose GRE header cannot be read: another version, flags of RFC 1701, cut off.
    pub unreadable: Verdict,
    /// Tunnel packets in pieces.
    pub pieces: Pieces,
}

/// Why settings cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Too many of them.
    #[error("{0} {1}: {RULES_MAX} are possible")]
    TooMany(usize, &'static str),
    /// Source and destination of two families.
    #[error("{0}: one address is of IPv4 and the other of IPv6")]
    Families(String),
    /// A port that is not there.
    #[error("{0}: there is no port {1}")]
    NoPort(String, u8),
    /// Two of one name.
    #[error("two are called {0}: counters could not tell them apart")]
    Name(String),
    /// What cannot be read cannot be decapsulated.
    #[error("unreadable packets cannot be decapsulated")]
    Unreadable,
    /// An outer header that ends on the spot.
    #[error("{0}: 0 hops: no router would forward it")]
    NoHops(String),
}

impl Settings {
    /// Settings for ports that are connected in pairs: what comes in one goes out of the other, tunnel packets without
    /// their outer headers.
    pub fn bump(ports: Vec<PortSettings>) -> Self {
        let all =
            Rule { name: "all".to_owned(), condition: Condition::default(), verdict: Verdict::DECAPSULATE };
        Self {
            ports,
            rules: vec![all],
            encapsulations: Vec::new(),
            unmatched: Verdict::Pass,
            unreadable: Verdict::Drop,
            pieces: Pieces::default(),
        }
    }

    /// Whether they can be.
    ///
    /// # Errors
    /// What is wrong, and with which rule.
    pub fn check(&self) -> Result<(), SettingsError> {
        let lists = [(self.rules.len(), "rules"), (self.encapsulations.len(), "encapsulations")];
        if let Some(&(count, what)) = lists.iter().find(|(count, _)| *count > RULES_MAX) {
            return Err(SettingsError::TooMany(count, what));
        }
        for (at, settings) in self.ports.iter().enumerate() {
            self.check_port(&format!("port {at}"), settings.peer_port)?;
        }
        for Rule { name, condition, .. } in &self.rules {
            one_family(name, [condition.source, condition.destination])?;
            self.check_port(name, condition.port)?;
        }
        for tunnel in &self.encapsulations {
            one_family(&tunnel.name, [tunnel.source, tunnel.destination])?;
            one_family(&tunnel.name, [Some(Prefix::of(tunnel.local)), Some(Prefix::of(tunnel.remote))])?;
            self.check_port(&tunnel.name, Some(tunnel.port))?;
            if tunnel.hops == 0 {
                return Err(SettingsError::NoHops(tunnel.name.clone()));
            }
        }
        if matches!(self.unreadable, Verdict::Decapsulate { .. }) {
            return Err(SettingsError::Unreadable);
        }
        let mut names = self.names();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(SettingsError::Name(pair[0].to_owned())),
            None => Ok(()),
        }
    }

    /// Names of rules and then of encapsulations.
    pub fn names(&self) -> Vec<&str> {
        self.counted().map(|(name, _)| name).collect()
    }

    /// What is counted, rules and then encapsulations: the name of each, and what it does.
    pub fn counted(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let rules = self.rules.iter().map(|rule| (rule.name.as_str(), rule.verdict.name()));
        rules.chain(self.encapsulations.iter().map(|tunnel| (tunnel.name.as_str(), "encapsulate")))
    }

    fn check_port(&self, name: &str, port: Option<PortId>) -> Result<(), SettingsError> {
        match port.filter(|port| port.index() >= self.ports.len()) {
            Some(port) => Err(SettingsError::NoPort(name.to_owned(), port.0)),
            None => Ok(()),
        }
    }
}

fn one_family(name: &str, prefixes: [Option<Prefix>; 2]) -> Result<(), SettingsError> {
    match prefixes {
        [Some(one), Some(other)] if one.is_ipv4() != other.is_ipv4() => {
            Err(SettingsError::Families(name.to_owned()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> PortSettings {
        PortSettings { peer_port: Some(PortId(1)), mac: [2, 0, 0, 0, 0, 1], addresses: Vec::new(), mtu: 1500 }
    }

    fn sound() -> Settings {
        Settings::bump(vec![port(), PortSettings { peer_port: Some(PortId(0)), ..port() }])
    }

    fn prefix(text: &str, len: u8) -> Option<Prefix> {
        Some(Prefix::new(text.parse().unwrap(), len).unwrap())
    }

    #[test]
    fn prefixes_are_masks() {
        let of = |text: &str, len| prefix(text, len).unwrap().mask();
        assert_eq!(of("10.1.2.3", 0), (0, 0));
        assert_eq!(of("10.1.2.3", 16), (0xffff_0000, 0x0a01_0000));
        assert_eq!(of("10.1.2.3", 32), (0xffff_ffff, 0x0a01_0203));
        assert_eq!(of("2001:db8::1", 32).0, 0xffff_ffff << 96);
        assert_eq!(of("::1", 128), (u128::MAX, 1));
        assert_eq!(of("::1", 0), (0, 0));
        assert_eq!(Prefix::new("10.0.0.0".parse().unwrap(), 33), None);
        assert_eq!(Prefix::of("10.0.0.1".parse().unwrap()).to_string(), "10.0.0.1/32");
    }

    #[test]
    fn contradictions_are_named() {
        assert_eq!(sound().check(), Ok(()));
        let with = |change: &dyn Fn(&mut Settings)| {
            let mut settings = sound();
            change(&mut settings);
            settings.check().unwrap_err()
        };
        let families = with(&|settings| {
            settings.rules[0].condition.source = prefix("10.0.0.0", 8);
            settings.rules[0].condition.destination = prefix("2001:db8::", 32);
        });
        assert_eq!(families, SettingsError::Families("all".to_owned()));
        let nowhere = with(&|settings| settings.ports[1].peer_port = Some(PortId(2)));
        assert_eq!(nowhere, SettingsError::NoPort("port 1".to_owned(), 2));
        let twice = with(&|settings| settings.rules.push(settings.rules[0].clone()));
        assert_eq!(twice, SettingsError::Name("all".to_owned()));
        let many = with(&|settings| settings.rules = vec![settings.rules[0].clone(); RULES_MAX + 1]);
        assert_eq!(many, SettingsError::TooMany(257, "rules"));
        assert_eq!(with(&|settings| settings.unreadable = Verdict::DECAPSULATE), SettingsError::Unreadable);
    }
}
