//! The in-kernel offload as the user plane's kernel datapath: its addresses, hops and counters in the offload's terms.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use kaido_engine::{
    DropReason, NeighbourRequest, NextHop, NextHops, PortId, PortTotals, PrefixRoute, Resolution, VrfId,
};
use kaido_node::config::{Datapath, Prefix};
use kaido_node::ports::Device;
use kaido_upf::lan::{Lan, LanId, Lans};
use kaido_upf::node::{
    LiveSettings, OuterSourcePort, TunnelSettings, WorkerEvent, keys_max, policer_cells, usage_cells,
};
use kaido_upf::offload::{KernelDestination, KernelKey, KernelRecord, OffloadTarget};
use kaido_upf::tunnels::EncapTemplate;
use kaido_upf::{ExitVrfs, UpfDrop};
use kaido_upf_xdp::offload::{
    Hop, LostFrames, NEIGHBOURS_MAX, OffloadCounters, OffloadDestination, OffloadDirection, OffloadDrop,
    OffloadNextHop, OffloadRoute, ROUTES_MAX, Template,
};
use kaido_upf_xdp::{OffloadConfig, OffloadFlags, SharedOffload, ue_network_words};

use super::exits::Exits;
use crate::config::UpfConfig;

/// One template for each number of a tunnel shape; the hop towards its peer has the same number.
const TEMPLATES_MAX: u32 = 1 << 16;
/// Hops of what is routed, to gateways and neighbours.
const ROUTED: u32 = TEMPLATES_MAX;
const ROUTED_MAX: u32 = 1 << 15;
/// Hops to the gateways of LANs, one for each family, by their numbers.
const LANS: u32 = ROUTED + ROUTED_MAX;
/// Octets that a frame may have beyond the MTU for tags where the kernel redirects it: those of one.
const TAG_ROOM: u32 = 4;

/// Of so many records one may have several rules: the tunnels of all sessions, as Open5GS makes them.
const RECORDS_FOR_GROUP: u32 = 2;

/// What a configuration asks of the offload.
pub(super) fn config(config: &UpfConfig) -> OffloadConfig {
    let sessions_max = *config.node.sessions_max.get_ref();
    let records_max = match config.base.node.datapath.get_ref() {
        Datapath::Hybrid => config.node.xdp_records_max(),
        Datapath::Auto | Datapath::Engine | Datapath::Xdp => keys_max(sessions_max),
    };
    OffloadConfig {
        records_max,
        groups_max: records_max / RECORDS_FOR_GROUP,
        usage_cells_max: usage_cells(sessions_max),
        policers_max: policer_cells(sessions_max),
        templates_max: TEMPLATES_MAX,
        hops_max: LANS + 2 * u32::try_from(config.network_instances.len()).unwrap_or(0),
        flags: flags(&config.live()),
        ue_network_words: ue_network_words(config.node.ue_to_ue.into(), sessions_max),
        // The hash must be odd in every word, and known to nobody: the standard library's keys are random.
        seed: std::array::from_fn(|_| RandomState::new().build_hasher().finish() | 1),
    }
}

/// What concerns every packet of the offload.
fn flags(settings: &LiveSettings) -> OffloadFlags {
    OffloadFlags {
        fixed_source_port: settings.tunnels.source_port == OuterSourcePort::Fixed,
        ecn: settings.tunnels.marking.ecn,
        no_syn: settings.mss_clamp.is_some(),
    }
}

/// A port that the kernel can send from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) ifindex: u32,
    pub(super) mtu: u32,
    pub(super) mac: [u8; 6],
    /// The VLAN that it is.
    pub(super) vid: Option<u16>,
    /// Whether its driver sends back badly what came in there.
    pub(super) redirect: bool,
}

impl Exit {
    /// By the interface of a port.
    pub(super) fn of(device: &Device) -> Self {
        let wire = device.wire();
        let mtu = device.interface.mtu.min(wire.mtu);
        Self {
            ifindex: wire.ifindex,
            mtu,
            mac: wire.mac,
            vid: device.config.vid(),
            redirect: device.is_veth(),
        }
    }
}

/// What the offload is told of the node.
#[derive(Debug)]
pub(super) struct OffloadContext {
    /// Ports that it can send from.
    pub(super) exits: Exits,
    /// By whose routes packets leave.
    pub(super) vrfs: ExitVrfs,
    /// By port: whether the kernel may route out of tunnels by it. Not by ports of N3 and N9, into which only tunnels lead; where a
    /// port has both sides, the workers look closer.
    pub(super) n6_only: Vec<bool>,
    /// By network instance: lists of prefixes, in one of each of which a UE's address must lie.
    pub(super) ue_prefixes: Vec<Vec<Vec<Prefix>>>,
    /// The node's GTP-U addresses, by number.
    pub(super) endpoints: Vec<IpAddr>,
    /// Network instances behind VLANs.
    pub(super) lans: Lans,
    /// How packets into tunnels are made.
    pub(super) tunnels: Arc<TunnelSettings>,
}

impl OffloadContext {
    fn is_taken(&self, key: &KernelKey) -> bool {
        let (instance, address) = match *key {
            KernelKey::Tunnel { .. } => return true,
            KernelKey::Ipv4 { instance, address } => (instance, IpAddr::V4(address)),
            KernelKey::Ipv6 { instance, address } => (instance, IpAddr::V6(address)),
        };
        // What is addressed to the node there is none of a UE's.
        let lan = self.lans.of_instance(instance).and_then(|id| self.lans.get(id));
        if lan.is_some_and(|lan| lan.is_own(address)) {
            return false;
        }
        let lists = self.ue_prefixes.get(usize::from(instance.0));
        lists.is_none_or(|lists| lists.iter().all(|list| list.iter().any(|prefix| prefix.contains(address))))
    }

    fn hop(&self, resolution: Resolution) -> Option<Hop> {
        let Resolution::Ready(NextHop { port, mac }) = resolution else { return None };
        let Exit { ifindex, mtu, mac: source, vid, redirect } = self.exit(port)?;
        Some(Hop {
            ifindex,
            mtu,
            source,
            destination: mac,
            port: port.0,
            tag: vid,
            redirect,
            ..Hop::default()
        })
    }

    /// The template of a tunnel shape; `None` of an endpoint that there is not.
    fn template(&self, id: u32, encap: &EncapTemplate) -> Option<Template> {
        let local = *self.endpoints.get(usize::from(encap.local.0))?;
        let (tos, copied) = encap.class(&self.tunnels.marking);
        let udp_checksum = self.tunnels.udp_checksums.computed(encap.peer);
        Some(Template { local, peer: encap.peer, udp_checksum, tos, copied, hop: id })
    }

    fn exit(&self, port: PortId) -> Option<Exit> {
        self.exits.get(port)
    }

    /// The gateway of a LAN for a family, where its Ethernet address is configured and what it is not for is one prefix at most.
    /// Neighbours that are asked for are the workers'.
    fn gateway(&self, lan: &Lan, is_ipv4: bool) -> Option<Hop> {
        let gateway = lan.gateways.iter().find(|gateway| gateway.is_ipv4() == is_ipv4)?;
        let (_, mac) = lan.neighbours.iter().find(|(address, _)| address == gateway)?;
        let mut on_link = lan.addresses.iter().filter(|(own, _)| own.is_ipv4() == is_ipv4);
        let (near, further) = (on_link.next(), on_link.next());
        let Exit { ifindex, mtu, mac: source, redirect, .. } = self.exit(lan.port)?;
        further.is_none().then_some(Hop {
            ifindex,
            mtu: if lan.tags.inner.is_some() { mtu.saturating_sub(TAG_ROOM) } else { mtu },
            source,
            destination: *mac,
            port: lan.port.0,
            tag: Some(lan.tags.outer),
            inner_tag: lan.tags.inner,
            near: near.copied(),
            redirect,
        })
    }
}

/// The first of a LAN's hops.
fn lan_hop(id: LanId) -> u32 {
    LANS + 2 * u32::from(id.0)
}

/// The offload, in step with the node's routes.
#[derive(Debug)]
pub(super) struct XdpOffload {
    offload: SharedOffload,
    around: OffloadContext,
    next_hops: NextHops,
    /// Generation of the next hops that the hops stand for.
    followed: u64,
    /// Tunnel shapes and templates by their number, which is that of the hop, too.
    tunnels: BTreeMap<u32, (EncapTemplate, Template)>,
    /// The hops that are set.
    hops: BTreeMap<u32, Hop>,
    /// Numbers of the hops of what is routed.
    routed: BTreeMap<(PortId, [u8; 6]), u32>,
    /// Where one is looked for next.
    number_next: u32,
    routes: Vec<OffloadRoute>,
    neighbours: BTreeMap<IpAddr, u32>,
    /// Whether it was said that there are too many routes.
    is_full: bool,
}

impl XdpOffload {
    pub(super) fn new(offload: SharedOffload, around: OffloadContext, next_hops: NextHops) -> Self {
        let mut kernel = Self {
            offload,
            around,
            next_hops,
            followed: 0,
            tunnels: BTreeMap::new(),
            hops: BTreeMap::new(),
            routed: BTreeMap::new(),
            number_next: 0,
            routes: Vec::new(),
            neighbours: BTreeMap::new(),
            is_full: false,
        };
        kernel.follow_lans();
        kernel
    }

    /// Sets a hop, or takes it away.
    fn set_hop(&mut self, id: u32, hop: Option<Hop>) {
        if self.hops.get(&id) == hop.as_ref() {
            return;
        }
        if let Err(error) = self.offload.with(|offload| offload.set_hop(id, hop.as_ref())) {
            tracing::warn!(%error, ?hop, "a next hop is unknown to the kernel; its packets are the workers'");
            self.hops.remove(&id);
            // Taking away cannot fail for a number in range.
            let _ = self.offload.with(|offload| offload.set_hop(id, None));
            return;
        }
        match hop {
            Some(hop) => self.hops.insert(id, hop),
            None => self.hops.remove(&id),
        };
    }

    /// The template of a tunnel shape, made when first needed; `None` when it cannot be.
    fn template(&mut self, id: u32, encap: &EncapTemplate) -> Option<u32> {
        if self.tunnels.contains_key(&id) {
            return Some(id);
        }
        let template = self.around.template(id, encap)?;
        self.offload.with(|offload| offload.set_template(id, Some(&template))).ok()?;
        self.tunnels.insert(id, (*encap, template));
        let hop = self.around.hop(self.next_hops.resolve(encap.peer));
        self.set_hop(id, hop);
        Some(id)
    }

    fn destination(&mut self, destination: &KernelDestination) -> Option<OffloadDestination> {
        Some(match *destination {
            KernelDestination::Tunnel { id, encap, teid } => {
                let template = self.template(u32::try_from(id.index()).ok()?, &encap)?;
                kaido_upf_xdp::tunnel(template, &encap, teid)
            }
            KernelDestination::Lan(id) => OffloadDestination::Hop(lan_hop(id)),
            KernelDestination::Routed(exit) => OffloadDestination::Routed(self.around.vrfs.of(exit).number()),
            // Nothing goes anywhere.
            KernelDestination::GateClosed | KernelDestination::FarDrop => {
                OffloadDestination::Routed(VrfId::MAIN.number())
            }
        })
    }

    /// The number of a hop of what is routed, where the kernel may send there: not by ports of N3 and N9.
    fn routed(&mut self, hop: NextHop, taken: &mut BTreeMap<(PortId, [u8; 6]), u32>) -> Option<u32> {
        let key = (hop.port, hop.mac);
        if let Some(&id) = taken.get(&key) {
            return Some(id);
        }
        let may_leave = self.around.n6_only.get(hop.port.index()).is_some_and(|&only| only);
        let as_hop = self.around.hop(Resolution::Ready(hop)).filter(|_| may_leave)?;
        let id = self.routed.get(&key).copied().or_else(|| self.free_number())?;
        self.set_hop(id, Some(as_hop));
        taken.insert(key, id);
        Some(id)
    }

    /// A number of which no hop of what is routed is set.
    fn free_number(&mut self) -> Option<u32> {
        let numbers = (0..ROUTED_MAX).map(|ahead| ROUTED + (self.number_next + ahead) % ROUTED_MAX);
        let free = numbers.into_iter().find(|id| !self.hops.contains_key(id))?;
        self.number_next = free - ROUTED + 1;
        Some(free)
    }

    /// The node's routes and neighbours, as far as the kernel can take them.
    fn follow_ways(&mut self) {
        let mut taken = BTreeMap::new();
        let (mut routes, mut links, mut is_full) = (Vec::new(), BTreeSet::new(), false);
        let vrfs = self.around.vrfs.all();
        // Neighbours on a link are looked for by their address alone.
        let is_sole = vrfs.len() == 1;
        for is_ipv4 in [true, false] {
            let mut prefix_routes = Vec::new();
            for &vrf in &vrfs {
                let of_vrf = self.next_hops.prefix_routes(vrf, is_ipv4);
                prefix_routes.extend(of_vrf.into_iter().map(|route| (vrf.number(), route)));
            }
            if prefix_routes.len() > ROUTES_MAX {
                is_full = true;
                if !self.is_full {
                    tracing::info!(
                        routes = prefix_routes.len(),
                        max = ROUTES_MAX,
                        is_ipv4,
                        "more routes than the kernel's datapath takes; packets out of tunnels are the workers'"
                    );
                }
                continue;
            }
            for (vrf, PrefixRoute { to, port, gateway }) in prefix_routes {
                let may_leave =
                    |port: PortId| self.around.n6_only.get(port.index()).is_some_and(|&only| only);
                let next_hop = match (port, gateway) {
                    (Some(port), None) if is_sole && may_leave(port) => {
                        links.insert(port);
                        OffloadNextHop::Link
                    }
                    (_, Some(Resolution::Ready(hop))) => {
                        self.routed(hop, &mut taken).map_or(OffloadNextHop::Engine, OffloadNextHop::Hop)
                    }
                    _ => OffloadNextHop::Engine,
                };
                routes.push(OffloadRoute { to, vrf, next_hop });
            }
        }
        self.is_full = is_full;
        let mut neighbours = BTreeMap::new();
        for (NeighbourRequest { port, address }, mac) in self.next_hops.neighbours() {
            if links.contains(&port) && neighbours.len() < NEIGHBOURS_MAX {
                let id = self.routed(NextHop { port, mac }, &mut taken);
                neighbours.extend(id.map(|id| (address, id)));
            }
        }
        if let Err(error) = self.tell_ways(&routes, &neighbours) {
            return tracing::error!(%error, "the kernel's datapath has not all routes; packets are the workers'");
        }
        // Nothing leads to those any more that are not taken again.
        let before = std::mem::replace(&mut self.routed, taken);
        let kept: BTreeSet<u32> = self.routed.values().copied().collect();
        before.into_values().filter(|id| !kept.contains(id)).for_each(|id| self.set_hop(id, None));
    }

    fn tell_ways(
        &mut self,
        routes: &[OffloadRoute],
        neighbours: &BTreeMap<IpAddr, u32>,
    ) -> Result<(), kaido_upf_xdp::OffloadError> {
        if self.neighbours != *neighbours {
            self.offload.with(|offload| offload.set_neighbours(neighbours))?;
            self.neighbours.clone_from(neighbours);
        }
        if self.routes != routes {
            self.offload.with(|offload| offload.set_routes(routes))?;
            self.routes = routes.to_vec();
        }
        Ok(())
    }

    fn follow_lans(&mut self) {
        let lans = self.around.lans.clone();
        for (id, lan) in lans.iter() {
            for (family, is_ipv4) in (0..).zip([true, false]) {
                self.set_hop(lan_hop(id) + family, self.around.gateway(lan, is_ipv4));
            }
        }
    }
}

impl OffloadTarget for XdpOffload {
    fn put(&mut self, key: &KernelKey, record: &KernelRecord) -> bool {
        if !self.around.is_taken(key) {
            return false;
        }
        let record = kaido_upf_xdp::record(record, |destination| self.destination(destination));
        let Some(record) = record else { return false };
        match self.offload.put(key, &record) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(?key, %error, "the session stays with the workers");
                false
            }
        }
    }

    fn remove(&mut self, key: &KernelKey) -> bool {
        self.offload.remove(key)
    }

    fn holds(&self, key: &KernelKey) -> bool {
        self.offload.holds(key)
    }

    fn settle(&mut self) {
        self.offload.settle();
    }

    fn event(&mut self) -> Option<WorkerEvent> {
        self.offload.event()
    }

    fn set_live(&mut self, settings: &LiveSettings) {
        let Self { offload, around, tunnels, .. } = self;
        around.tunnels = settings.tunnels.clone();
        offload.with(|offload| {
            offload.set_flags(flags(settings));
            for (&id, (encap, known)) in tunnels {
                let Some(template) = around.template(id, encap).filter(|template| template != known) else {
                    continue;
                };
                // Its number and its ends are those that were taken before.
                if let Err(error) = offload.set_template(id, Some(&template)) {
                    tracing::error!(%error, "a tunnel of the kernel's datapath goes on as before");
                    continue;
                }
                *known = template;
            }
        });
    }

    fn follow_routes(&mut self) {
        let generation = self.next_hops.generation();
        if generation == self.followed {
            return;
        }
        // Before anything is resolved: what changes meanwhile is seen as a change.
        self.followed = generation;
        let peers: Vec<_> = self.tunnels.iter().map(|(&id, (encap, _))| (id, encap.peer)).collect();
        for (id, peer) in peers {
            let hop = self.around.hop(self.next_hops.resolve(peer));
            self.set_hop(id, hop);
        }
        self.follow_ways();
        self.follow_lans();
    }

    fn len(&self) -> usize {
        self.offload.len()
    }
}

/// What the kernel's datapath has counted of a port.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelCounts {
    /// Of packets received there.
    pub(super) offload: OffloadCounters,
    /// Frames that its device did not take.
    pub(super) lost: LostFrames,
}

/// Adds to a port's totals what the kernel did, given what it counted by port.
pub(super) fn add_to(totals: &mut PortTotals, port: usize, kernel: &[KernelCounts]) {
    for KernelCounts { offload, .. } in kernel {
        let (packets, bytes) = offload.sent(port);
        totals.tx_packets += packets;
        totals.tx_bytes += bytes;
    }
    let Some(KernelCounts { offload: own, lost }) = kernel.get(port) else { return };
    totals.rx_packets += own.received_packets();
    totals.rx_bytes += own.received_bytes();
    // They were counted as sent when they were redirected.
    totals.tx_packets = totals.tx_packets.saturating_sub(lost.full + lost.refused);
    for (reason, count) in [
        (UpfDrop::GATE_CLOSED, own.dropped(OffloadDrop::GateClosed)),
        (UpfDrop::FAR_DROP, own.dropped(OffloadDrop::FarDrop)),
        (UpfDrop::MBR_EXCEEDED, own.dropped(OffloadDrop::MbrExceeded)),
        (DropReason::TX_FULL, lost.full),
        (DropReason::TX_ERROR, lost.refused),
    ] {
        match totals.drops.iter_mut().find(|(found, _)| *found == reason) {
            Some((_, sum)) => *sum += count,
            None if count > 0 => totals.drops.push((reason, count)),
            None => {}
        }
    }
}

/// Packets of a port's that the kernel forwarded, and their bytes of IP, both ways.
pub(super) fn forwarded(KernelCounts { offload: counters, .. }: &KernelCounts) -> (u64, u64) {
    let directions = [OffloadDirection::Uplink, OffloadDirection::Downlink];
    directions.into_iter().fold((0, 0), |(packets, bytes), direction| {
        (packets + counters.packets(direction), bytes + counters.bytes(direction))
    })
}

#[cfg(test)]
mod tests {
    use kaido_upf::ids::InstanceId;
    use kaido_upf::lan::VlanTags;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const EXIT: Exit = Exit { ifindex: 7, mtu: 1500, mac: [2; 6], vid: None, redirect: true };

    fn around(lans: Vec<Lan>) -> OffloadContext {
        OffloadContext {
            vrfs: ExitVrfs::default(),
            exits: Exits::taking([None, Some(EXIT), Some(Exit { vid: Some(100), ..EXIT })]),
            n6_only: vec![false, true, true],
            ue_prefixes: Vec::new(),
            endpoints: Vec::new(),
            lans: Lans::new(lans),
            tunnels: Arc::default(),
        }
    }

    fn lan() -> Lan {
        Lan {
            instance: InstanceId(3),
            port: PortId(1),
            tags: VlanTags { outer: 300, inner: None },
            addresses: vec![(ip("192.0.2.1"), 24), (ip("2001:db8::1"), 64)],
            gateways: vec![ip("192.0.2.254"), ip("2001:db8::fe")],
            neighbours: vec![(ip("192.0.2.254"), [9; 6])],
        }
    }

    #[test]
    fn a_lan_has_a_hop_where_its_gateway_is_known_and_its_link_is_one_prefix() {
        let around = around(vec![lan()]);
        let hop = Hop {
            ifindex: 7,
            mtu: 1500,
            source: [2; 6],
            destination: [9; 6],
            port: 1,
            tag: Some(300),
            inner_tag: None,
            near: Some((ip("192.0.2.1"), 24)),
            redirect: true,
        };
        assert_eq!(around.gateway(&lan(), true), Some(hop));
        assert_eq!(around.gateway(&lan(), false), None, "to be asked for");
        let none = Lan { addresses: Vec::new(), ..lan() };
        assert_eq!(around.gateway(&none, true), Some(Hop { near: None, ..hop }));
        let mut two = lan();
        two.addresses.push((ip("198.51.100.1"), 24));
        assert_eq!(around.gateway(&two, true), None);
        assert_eq!(around.gateway(&Lan { port: PortId(0), ..lan() }, true), None, "no port of the kernel's");
        // The kernel redirects no frame with more than one tag beyond the MTU.
        let double = Lan { tags: VlanTags { outer: 5, inner: Some(7) }, ..lan() };
        let tags = Hop { tag: Some(5), inner_tag: Some(7), mtu: 1496, ..hop };
        assert_eq!(around.gateway(&double, true), Some(tags));
    }

    #[test]
    fn the_next_hop_of_a_vlan_has_its_tag() {
        let around = around(Vec::new());
        let hop = |port| around.hop(Resolution::Ready(NextHop { port: PortId(port), mac: [9; 6] }));
        assert_eq!(hop(1).map(|hop| (hop.tag, hop.near)), Some((None, None)));
        assert_eq!(hop(2).map(|hop| (hop.tag, hop.inner_tag)), Some((Some(100), None)));
        assert_eq!(hop(0), None);
    }

    #[test]
    fn the_nodes_own_address_in_a_lan_is_no_ues() {
        let around = around(vec![lan()]);
        let key = |instance, address: [u8; 4]| KernelKey::Ipv4 {
            instance: InstanceId(instance),
            address: address.into(),
        };
        assert!(around.is_taken(&key(3, [10, 0, 0, 1])) && around.is_taken(&key(4, [192, 0, 2, 1])));
        assert!(!around.is_taken(&key(3, [192, 0, 2, 1])));
    }
}
