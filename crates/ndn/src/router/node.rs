//! The node as its management sees it.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

use kaido_engine::PortId;
use kaido_ndn_tables::{FaceId, Fib};
use kaido_wire::MacAddr;

use super::aging::FaceAging;
use super::control_mailbox::{ControlMailbox, Order, WorkerReport};
use super::strategies::{StrategyChoices, strategy_name, strategy_of};
use super::sweep::ErasureSweep;
use super::table_page::{TableReading, WorkerTable};
use crate::balance::{Balance, HotName};
use crate::cs::CsSettings;
use crate::face::{Face, FaceSettings, FaceUri, Faces, LinkType, Persistency, Scope, Transport};
use crate::forward::SharedTables;
use crate::host::{ConnectError, HostControl};
use crate::link::{UdpListen, udp_face};
use crate::mgmt::{
    CreateError, CsInfo, CsUpdate, DiskInfo, ErasureResult, FaceRequest, HeavyHitterInfo, Node, Sharing,
    Totals, WorkerInfo,
};
use crate::tier::{TierControl, TierReport};

/// A port of the engine over which Ethernet faces can be made.
#[derive(Clone, Debug)]
pub struct EthernetPort {
    /// Its name, as in `dev://NAME`.
    pub name: String,
    /// Its number.
    pub port: PortId,
    /// Its address.
    pub mac: MacAddr,
    /// Octets of an Ethernet payload.
    pub mtu: u16,
}

/// UDP on the engine's ports, as faces are made over it.
#[derive(Clone, Debug, Default)]
pub struct UdpPorts {
    /// Where it is taken.
    pub listens: Vec<UdpListen>,
    /// Octets of a UDP payload.
    pub mtu: u16,
    /// After how long without a packet a face goes that was made for a sender.
    pub idle: Duration,
}

/// What a node is made of.
#[derive(Debug)]
pub struct NodeParts {
    /// Its faces.
    pub faces: Faces,
    /// Its routes and strategy choices.
    pub shared: Arc<SharedTables>,
    /// The host port.
    pub host: HostControl,
    /// Its ports for Ethernet.
    pub ethernet: Vec<EthernetPort>,
    /// UDP on these ports.
    pub udp: UdpPorts,
    /// Where orders for its workers are put.
    pub mailboxes: Vec<Arc<ControlMailbox>>,
    /// The Content Store of each worker.
    pub cs: CsSettings,
    /// Interests that can wait with each worker.
    pub pit_max: u32,
    /// The Content Store's tier on disk, if there is one.
    pub tier: Option<TierControl>,
    /// How the workers share the names.
    pub balance: Arc<Balance>,
    /// Where it listens.
    pub channels: Vec<FaceUri>,
}

/// A node, for [`Manager`](crate::mgmt::Manager).
#[derive(Debug)]
pub struct RouterNode {
    parts: NodeParts,
    strategies: StrategyChoices,
    cs: CsSettings,
    admits: bool,
    serves: bool,
    sweeping: ErasureSweep,
    aging: FaceAging,
    began: SystemTime,
}

impl RouterNode {
    /// The node of these parts, which begins at `now`.
    pub fn new(parts: NodeParts, now: SystemTime) -> Self {
        Self {
            cs: parts.cs,
            parts,
            strategies: StrategyChoices::default(),
            admits: true,
            serves: true,
            sweeping: ErasureSweep::default(),
            aging: FaceAging::default(),
            began: now,
        }
    }

    /// A view of the node for other threads.
    pub fn observer(&self) -> Observer {
        let NodeParts { faces, shared, host, mailboxes, pit_max, tier, balance, .. } = &self.parts;
        Observer {
            pit_max: *pit_max,
            balance: balance.clone(),
            faces: faces.clone(),
            shared: shared.clone(),
            strategies: self.strategies.clone(),
            host: host.clone(),
            mailboxes: mailboxes.clone(),
            tier: tier.clone(),
        }
    }

    /// Has a worker obey.
    fn ask(&self, mailbox: &ControlMailbox, order: Order) -> Option<WorkerReport> {
        mailbox.ask(order, || self.parts.host.wake())
    }

    /// How the workers are.
    fn reports(&self) -> impl Iterator<Item = WorkerReport> + '_ {
        self.parts.mailboxes.iter().filter_map(|mailbox| self.ask(mailbox, Order::Report))
    }

    fn create_ethernet(&self, wish: &FaceRequest, remote: MacAddr) -> Result<Arc<Face>, CreateError> {
        let wanted = match &wish.local {
            Some(FaceUri::Dev(name)) => self.parts.ethernet.iter().find(|port| port.name == *name),
            _ => None,
        };
        let Some(port) = wanted else {
            return Err(CreateError::Unsupported(
                "an Ethernet face is of a port: its local URI is dev://PORT",
            ));
        };
        let faces = self.parts.faces.all();
        let transport = Transport::Ethernet { port: port.port, local: port.mac, remote, vlan: None };
        if let Some(face) = faces.into_iter().find(|face| *face.transport() == transport) {
            return Err(CreateError::Exists(face));
        }
        let settings = FaceSettings {
            remote: wish.remote.clone(),
            local: FaceUri::Dev(port.name.clone()),
            scope: Scope::NonLocal,
            persistency: wish.persistency,
            link_type: if remote.is_multicast() { LinkType::MultiAccess } else { LinkType::PointToPoint },
            mtu: port.mtu,
            flags: 0,
            transport,
        };
        let face = self.parts.faces.create(settings).map_err(|_| CreateError::Full)?;
        if let Some(mtu) = wish.mtu {
            face.set_mtu(mtu);
        }
        Ok(face)
    }

    /// The address on a port of the engine from which a face by UDP goes to `remote`. It is the one that is wished for, or one
    /// of its family where the host has no socket of it.
    fn udp_listen(&self, wish: &FaceRequest, remote: SocketAddr) -> Option<UdpListen> {
        let NodeParts { udp, host, ethernet, .. } = &self.parts;
        let mut alike =
            udp.listens.iter().filter(|listen| listen.address.is_ipv4() == remote.is_ipv4()).copied();
        match &wish.local {
            Some(FaceUri::Udp(local)) => alike.find(|listen| listen.address == *local),
            Some(FaceUri::Dev(name)) => {
                let port = ethernet.iter().find(|port| port.name == *name)?.port;
                alike.find(|listen| listen.port == port)
            }
            Some(_) => None,
            None => {
                let has_socket = host.udp_addresses().iter().any(|own| own.is_ipv4() == remote.is_ipv4());
                alike.next().filter(|_| !has_socket)
            }
        }
    }

    fn create_udp(
        &self,
        wish: &FaceRequest,
        listen: UdpListen,
        remote: SocketAddr,
    ) -> Result<Arc<Face>, CreateError> {
        let settings = udp_face(listen, remote, wish.persistency, self.parts.udp.mtu);
        let faces = self.parts.faces.all();
        if let Some(face) = faces.into_iter().find(|face| *face.transport() == settings.transport) {
            return Err(CreateError::Exists(face));
        }
        let face = self.parts.faces.create(settings).map_err(|_| CreateError::Full)?;
        if let Some(mtu) = wish.mtu {
            face.set_mtu(mtu);
        }
        Ok(face)
    }

    /// The share of one worker of packets that all may hold.
    fn share(&self, packets: u64) -> u32 {
        let workers = self.parts.mailboxes.len().max(1) as u64;
        u32::try_from(packets.div_ceil(workers)).unwrap_or(u32::MAX)
    }
}

impl Node for RouterNode {
    fn faces(&self) -> &Faces {
        &self.parts.faces
    }

    fn fib(&self) -> &Fib {
        self.parts.shared.fib()
    }

    fn create_face(&mut self, wish: &FaceRequest) -> Result<Arc<Face>, CreateError> {
        if wish.persistency == Persistency::OnDemand {
            return Err(CreateError::Unsupported("faces on demand are made by those who come"));
        }
        let on_port = match &wish.remote {
            FaceUri::Udp(remote) => self.udp_listen(wish, *remote).map(|listen| (listen, *remote)),
            _ => None,
        };
        let made = match (&wish.remote, on_port) {
            (FaceUri::Ether(remote), _) => self.create_ethernet(wish, *remote)?,
            (_, Some((listen, remote))) => self.create_udp(wish, listen, remote)?,
            (remote, None) => {
                self.parts.host.connect(remote.clone(), wish.persistency, wish.mtu).map_err(|error| {
                    match error {
                        ConnectError::Exists(id) => match self.parts.faces.get(id) {
                            Some(face) => CreateError::Exists(face),
                            None => CreateError::Failed(error.to_string()),
                        },
                        ConnectError::Kind(_) => {
                            CreateError::Unsupported("faces are made to tcp4, tcp6, udp4, udp6 and ether")
                        }
                        ConnectError::Face(_) => CreateError::Full,
                        ConnectError::NoSocket(_) | ConnectError::Busy => {
                            CreateError::Failed(error.to_string())
                        }
                    }
                })?
            }
        };
        made.set_flags(wish.flags, wish.flags);
        Ok(made)
    }

    fn channels(&self) -> Vec<FaceUri> {
        self.parts.channels.clone()
    }

    fn destroy_face(&mut self, id: FaceId) {
        if let Err(error) = self.parts.host.destroy(id) {
            tracing::warn!(face = id.0, %error, "the face stays");
        }
    }

    fn strategies(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.strategies.page(&[], None, usize::MAX)
    }

    fn set_strategy(&mut self, prefix: &[u8], strategy: &[u8]) -> Result<Vec<u8>, String> {
        let choice = strategy_of(strategy).ok_or("there is no such strategy, or not in this version")?;
        self.parts.shared.strategies().update(prefix, |_| Some(choice)).map_err(|error| error.to_string())?;
        self.strategies.insert(prefix, choice);
        Ok(strategy_name(choice))
    }

    fn unset_strategy(&mut self, prefix: &[u8]) {
        if prefix.is_empty() || !self.strategies.remove(prefix) {
            return;
        }
        if let Err(error) = self.parts.shared.strategies().update(prefix, |_| None) {
            tracing::warn!(%error, "a strategy choice stays");
        }
    }

    fn cs(&self) -> CsInfo {
        let workers = self.parts.mailboxes.len() as u64;
        let none = CsInfo {
            capacity: u64::from(self.cs.packets) * workers,
            admits: self.admits,
            serves: self.serves,
            ..CsInfo::default()
        };
        let memory = self.reports().fold(none, |sum, report| CsInfo {
            entries: sum.entries + u64::from(report.cs_entries),
            hits: sum.hits + report.cs.hits,
            misses: sum.misses + report.cs.misses,
            refused: sum.refused + report.cs.refused,
            octets: sum.octets + report.cs_octets,
            ..sum
        });
        let Some(tier) = self.parts.tier.as_ref().map(TierControl::report) else { return memory };
        // What memory had not and the disk had was a miss first.
        let answered = tier.counters.answered;
        CsInfo {
            hits: memory.hits + answered,
            misses: memory.misses.saturating_sub(answered),
            disk: Some(DiskInfo {
                packets: tier.packets,
                octets: tier.octets,
                octets_max: tier.octets_max,
                answered,
            }),
            ..memory
        }
    }

    fn configure_cs(&mut self, wish: &CsUpdate) {
        if let Some(capacity) = wish.capacity {
            // The memory is that of the file: what is answered is what there is.
            self.cs.packets = self.share(capacity).min(self.parts.cs.packets);
        }
        self.admits = wish.admits.unwrap_or(self.admits);
        self.serves = wish.serves.unwrap_or(self.serves);
        for mailbox in &self.parts.mailboxes {
            let _ = self.ask(mailbox, Order::Bounds(self.cs));
            let _ = self.ask(mailbox, Order::Policy { admits: self.admits, serves: self.serves });
        }
    }

    fn erase_cs(&mut self, prefix: &[u8], count: Option<u64>, limit: u64) -> ErasureResult {
        let NodeParts { mailboxes, tier, host, .. } = &self.parts;
        self.sweeping.erase(mailboxes, tier.as_ref(), &|| host.wake(), prefix, count, limit)
    }

    fn tick(&mut self, now: Instant) {
        self.aging.look(&self.parts.faces, self.parts.udp.idle, now);
    }

    fn totals(&self) -> Totals {
        self.reports().fold(Totals::default(), |sum, report| Totals {
            pit_entries: sum.pit_entries + u64::from(report.pit_entries),
            satisfied: sum.satisfied + report.forwarder.satisfied,
            unsatisfied: sum.unsatisfied + report.forwarder.unsatisfied,
            ..sum
        })
    }

    fn sharing(&self) -> Sharing {
        self.observer().sharing()
    }

    fn began(&self) -> SystemTime {
        self.began
    }
}

/// What a node is and has done, for any thread to look at.
#[derive(Clone, Debug)]
pub struct Observer {
    faces: Faces,
    shared: Arc<SharedTables>,
    strategies: StrategyChoices,
    host: HostControl,
    mailboxes: Vec<Arc<ControlMailbox>>,
    pit_max: u32,
    tier: Option<TierControl>,
    balance: Arc<Balance>,
}

impl Observer {
    /// How the Content Store's tier on disk is, if there is one.
    pub fn tier(&self) -> Option<TierReport> {
        self.tier.as_ref().map(TierControl::report)
    }

    /// Faces there are.
    pub fn faces(&self) -> usize {
        self.faces.len()
    }

    /// Prefixes that have next hops.
    pub fn prefixes(&self) -> usize {
        self.shared.fib().table().len()
    }

    /// Some faces, by the slots of their table, and the slot behind those that were looked at: see [`Faces::page`].
    pub fn faces_from(&self, slot: usize, most: usize) -> (Vec<(usize, Arc<Face>)>, Option<usize>) {
        self.faces.page(slot, most)
    }

    /// Prefixes that have a strategy of their own.
    pub fn strategies_len(&self) -> usize {
        self.strategies.len()
    }

    /// Prefixes that begin with `prefix` and have a strategy, with its name: up to `most`, from the one behind `behind` on.
    pub fn strategies_from(
        &self,
        prefix: &[u8],
        behind: Option<&[u8]>,
        most: usize,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.strategies.page(prefix, behind, most)
    }

    /// Workers there are.
    pub fn workers_len(&self) -> usize {
        self.mailboxes.len()
    }

    /// Interests that can wait with each of them.
    pub fn pit_max(&self) -> u32 {
        self.pit_max
    }

    /// Asks all workers how they are, without waiting; `None` for one that has too much to do.
    pub fn begin_reports(&self) -> Vec<Option<Receiver<WorkerReport>>> {
        let ask = |mailbox: &Arc<ControlMailbox>| mailbox.begin_report(|| self.host.wake());
        self.mailboxes.iter().map(ask).collect()
    }

    /// Has a worker read entries of a table of its own whose names begin with `prefix`: up to `rows_max`, from a number on. `None`
    /// when it has too much to do, or there is no such worker.
    pub fn read_table(
        &self,
        worker: usize,
        of: (WorkerTable, u32),
        prefix: &[u8],
        rows_max: usize,
    ) -> Option<Receiver<Box<TableReading>>> {
        self.mailboxes.get(worker)?.read(of, prefix, rows_max, || self.host.wake())
    }

    /// How each worker is; `None` for one that has no time to say.
    pub fn workers(&self) -> Vec<Option<WorkerReport>> {
        let ask = |mailbox: &Arc<ControlMailbox>| mailbox.ask(Order::Report, || self.host.wake());
        self.mailboxes.iter().map(ask).collect()
    }

    /// How they share the names.
    pub fn sharing(&self) -> Sharing {
        self.sharing_of(self.workers())
    }

    /// As [`Observer::sharing`], given how each worker is.
    pub(crate) fn sharing_of(&self, workers: Vec<Option<WorkerReport>>) -> Sharing {
        let workers = (0..).zip(workers);
        let info = |(number, report): (u64, Option<WorkerReport>)| {
            let WorkerReport { forwarder, worker_set, pit_entries, cs_entries, cs_max, .. } = report?;
            Some(WorkerInfo {
                number,
                packets: forwarder.interests_in + forwarder.data_in + forwarder.nacks_in,
                handed_interests: worker_set.interests,
                handed_data: worker_set.data,
                handed_nacks: worker_set.nacks,
                pit_entries: pit_entries.into(),
                pit_max: self.pit_max.into(),
                cs_entries: cs_entries.into(),
                cs_max: cs_max.into(),
            })
        };
        let mut hot = self.balance.hot_names();
        hot.sort_unstable_by_key(|hot| Reverse(hot.share_ppm));
        let shown = |hot: HotName| HeavyHitterInfo { name: hot.name, share_ppm: hot.share_ppm.into() };
        Sharing { workers: workers.filter_map(info).collect(), hot: hot.into_iter().map(shown).collect() }
    }
}
