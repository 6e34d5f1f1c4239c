//! Which applications the flows of a worker's sessions belong to.
//!
//! A flow's verdict comes from what its first packets say of the server, or from what DNS said of the server's address to
//! the same session before. It is kept by a hash of the flow that nobody outside can foresee, in sets of four. The one
//! not seen for longest gives way. So memory is bounded, and a flow that was pushed out is undetermined again.

use std::sync::Arc;
use std::time::Instant;

use kaido_table::Seed;
use kaido_wire::{IpProtocol, TcpView, udp};

use super::parse::Packet;
use crate::apps::quic::{Hello, is_initial};
use crate::apps::sni::{DnsAnswer, ServerName, hear};
use crate::apps::{Applications, Apps, Catalogue, RETELL};
use crate::classify::Flow;
use crate::ids::{AppNumber, SessionIndex};
use crate::ue::Direction;
use kaido_n4::DomainSource;

/// Sets of flows, and of servers, of a worker: four in each.
const SETS: usize = 4096;
const WAYS: usize = 4;
/// Packets with data of a flow that are listened to.
const HEARD_MAX: u8 = 4;
const DNS_PORT: u16 = 53;
/// QUIC handshakes of a worker that are put together at a time: they take two packets, soon after each other.
const HELLOS_MAX: usize = 64;

/// What is known of a flow or of a server's address.
#[derive(Clone, Debug, Default)]
struct Entry {
    /// Zero where there is none.
    key: u64,
    seen: u64,
    apps: Apps,
    /// Packets listened to.
    heard: u8,
    /// When control was last told of it.
    told: Option<Instant>,
}

/// Sets of entries, made when the first is needed.
#[derive(Debug, Default)]
struct Sets {
    entries: Box<[[Entry; WAYS]]>,
    clock: u64,
}

impl Sets {
    /// The entry of a key, a new one in the place of the oldest of its set if need be.
    #[allow(clippy::cast_possible_truncation)] // Any bits of the hash will do.
    fn entry(&mut self, key: u64) -> &mut Entry {
        if self.entries.is_empty() {
            self.entries = vec![<[Entry; WAYS]>::default(); SETS].into();
        }
        self.clock += 1;
        let set = &mut self.entries[key as usize % SETS];
        let known = set.iter().position(|entry| entry.key == key);
        let at = known.unwrap_or_else(|| {
            let oldest = (0..WAYS).min_by_key(|&way| set[way].seen).unwrap_or(0);
            set[oldest] = Entry { key, ..Entry::default() };
            oldest
        });
        set[at].seen = self.clock;
        &mut set[at]
    }

    /// The applications of a key that is known.
    #[allow(clippy::cast_possible_truncation)] // As above.
    fn known(&self, key: u64) -> Option<&Apps> {
        let set = self.entries.get(key as usize % SETS)?;
        set.iter().find(|entry| entry.key == key).map(|entry| &entry.apps)
    }

    fn clear(&mut self) {
        self.entries.fill_with(Default::default);
    }
}

/// ClientHellos of QUIC that are put together: the one that began first gives way.
#[derive(Debug, Default)]
struct HelloReassembly {
    hellos: Vec<(u64, Hello)>,
    /// The next to give way.
    next: usize,
}

impl HelloReassembly {
    /// The ClientHello of a flow.
    fn of(&mut self, key: u64) -> &mut Hello {
        let known = self.hellos.iter().position(|(own, _)| *own == key);
        let at = known.unwrap_or_else(|| {
            if self.hellos.len() < HELLOS_MAX {
                self.hellos.push((key, Hello::default()));
                return self.hellos.len() - 1;
            }
            let at = self.next;
            self.next = (at + 1) % HELLOS_MAX;
            self.hellos[at].0 = key;
            self.hellos[at].1.clear();
            at
        });
        &mut self.hellos[at].1
    }
}

/// A worker's knowledge of flows.
#[derive(Debug)]
pub(super) struct Flows {
    seed: Seed,
    catalogue: Arc<Catalogue>,
    generation: u64,
    flows: Sets,
    servers: Sets,
    hellos: HelloReassembly,
}

/// What is known of a packet's flow.
pub(super) struct Verdict<'c> {
    pub(super) apps: Apps,
    pub(super) catalogue: &'c Catalogue,
}

impl Verdict<'_> {
    /// Whether the flow belongs to an application, by name or by its description.
    pub(super) fn is(&self, app: AppNumber, flow: &Flow) -> bool {
        self.apps.contains(&app) || self.catalogue.has_flow(app, flow)
    }
}

impl Flows {
    pub(super) fn new(applications: &Applications) -> Self {
        Self {
            seed: Seed::random(),
            generation: applications.generation(),
            catalogue: applications.catalogue(),
            flows: Sets::default(),
            servers: Sets::default(),
            hellos: HelloReassembly::default(),
        }
    }

    /// A verdict of applications that a flow was found to belong to.
    pub(super) fn verdict(&self, apps: Apps) -> Verdict<'_> {
        Verdict { apps, catalogue: &self.catalogue }
    }

    /// Listens to a packet, and says to which applications its flow belongs by name.
    pub(super) fn listen(
        &mut self,
        applications: &Applications,
        (session, direction): (SessionIndex, Direction),
        flow: &Flow,
        packet: &Packet,
        data: &[u8],
    ) -> Apps {
        if applications.generation() != self.generation {
            // Verdicts of other PFDs are none.
            self.generation = applications.generation();
            self.catalogue = applications.catalogue();
            self.flows.clear();
            self.servers.clear();
        }
        let upper = data.get(packet.upper_offset..).unwrap_or_default();
        let Some((remote_port, _)) = flow.ports else { return self.of_server(session, flow) };
        match IpProtocol(flow.protocol) {
            IpProtocol::TCP => {
                let key = self.flow_key(session, flow);
                let entry = self.flows.entry(key);
                if direction == Direction::Uplink && entry.apps.is_empty() && entry.heard < HEARD_MAX {
                    let payload = tcp_payload(upper);
                    entry.heard += u8::from(!payload.is_empty());
                    entry.apps = match hear(payload) {
                        Some(ServerName::Tls(host)) => {
                            self.catalogue.of_host(host, None, DomainSource::TlsSni)
                        }
                        Some(ServerName::Http(host, path)) => {
                            self.catalogue.of_host(host, Some(path), DomainSource::Any)
                        }
                        None => Apps::new(),
                    };
                }
                if !entry.apps.is_empty() {
                    return entry.apps.clone();
                }
            }
            IpProtocol::UDP if remote_port == DNS_PORT && direction == Direction::Downlink => {
                self.learn(session, upper.get(udp::HEADER_LEN..).unwrap_or_default());
            }
            IpProtocol::UDP => {
                let key = self.flow_key(session, flow);
                let datagram = upper.get(udp::HEADER_LEN..).unwrap_or_default();
                if direction == Direction::Uplink && is_initial(datagram) {
                    self.listen_to_quic(key, datagram);
                }
                if let Some(apps) = self.flows.known(key).filter(|apps| !apps.is_empty()) {
                    return apps.clone();
                }
            }
            _ => {}
        }
        self.of_server(session, flow)
    }

    /// Whether control is to be told of a flow now.
    pub(super) fn is_news(&mut self, session: SessionIndex, flow: &Flow, now: Instant) -> bool {
        let key = self.flow_key(session, flow);
        let entry = self.flows.entry(key);
        let news = entry.told.is_none_or(|told| now.saturating_duration_since(told) >= RETELL);
        if news {
            entry.told = Some(now);
        }
        news
    }

    /// Listens to one of a client's first QUIC packets.
    #[cold]
    fn listen_to_quic(&mut self, key: u64, datagram: &[u8]) {
        let entry = self.flows.entry(key);
        if !entry.apps.is_empty() || entry.heard >= HEARD_MAX {
            return;
        }
        entry.heard += 1;
        let Some(name) = self.hellos.of(key).hear(datagram) else { return };
        entry.apps = self.catalogue.of_host(name, None, DomainSource::TlsSni);
    }

    /// Remembers the addresses in a DNS answer to a session.
    fn learn(&mut self, session: SessionIndex, message: &[u8]) {
        let Some(answer) = DnsAnswer::read(message) else { return };
        let apps = self.catalogue.of_host(answer.name(), None, DomainSource::Dns);
        if apps.is_empty() {
            return;
        }
        for &address in &answer.addresses {
            let key = self.server_key(session, bits(address));
            self.servers.entry(key).apps = apps.clone();
        }
    }

    fn of_server(&self, session: SessionIndex, flow: &Flow) -> Apps {
        self.servers.known(self.server_key(session, bits(flow.remote))).cloned().unwrap_or_default()
    }

    fn server_key(&self, session: SessionIndex, address: u128) -> u64 {
        let address = self.seed.hash(&address);
        self.seed.hash(&(u128::from(address) << 64 | u128::from(session.0))) | 1
    }

    /// Never zero, as a server's.
    fn flow_key(&self, session: SessionIndex, flow: &Flow) -> u64 {
        let (remote_port, local_port) = flow.ports.unwrap_or_default();
        let ports = u64::from(remote_port) << 16 | u64::from(local_port);
        let ends = self.seed.hash(&bits(flow.remote)) ^ self.seed.hash(&bits(flow.local)).rotate_left(32);
        let rest = self.seed.hash(&(u64::from(session.0) << 32 | ports)) ^ u64::from(flow.protocol);
        self.seed.hash(&(u128::from(ends) << 64 | u128::from(rest))) | 1
    }
}

fn bits(address: std::net::IpAddr) -> u128 {
    match address {
        std::net::IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        std::net::IpAddr::V6(address) => address.to_bits(),
    }
}

/// The data of a TCP segment (RFC 9293 3.1).
fn tcp_payload(segment: &[u8]) -> &[u8] {
    let Ok(view) = TcpView::new_checked(segment) else { return &[] };
    segment.get(view.header_len().into()..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_bounded_and_the_oldest_gives_way() {
        let mut sets = Sets::default();
        assert!(sets.known(1).is_none());
        let same_set = |n: usize| (n * SETS) as u64 + 1;
        for (app, n) in (0..).map(AppNumber).zip(0..WAYS) {
            sets.entry(same_set(n)).apps.push(app);
        }
        // The first is seen again, so the second is the oldest.
        assert_eq!(sets.entry(same_set(0)).apps[..], [AppNumber(0)]);
        assert!(sets.entry(same_set(WAYS)).apps.is_empty());
        assert!(sets.known(same_set(1)).is_none());
        assert_eq!(sets.known(same_set(2)).map(Apps::len), Some(1));
        sets.clear();
        assert!(sets.known(same_set(2)).is_none());
    }

    #[test]
    fn data_of_segments_that_are_too_short() {
        assert_eq!(tcp_payload(&[0; 12]), &[] as &[u8]);
        let mut segment = [7; 24];
        segment[12] = 0x50;
        assert_eq!(tcp_payload(&segment).len(), 4);
        segment[12] = 0xf0;
        assert!(tcp_payload(&segment).is_empty());
        segment[12] = 0x40;
        assert!(tcp_payload(&segment).is_empty(), "no header has 16 octets");
    }
}
