//! What a user plane answers: its status, its sessions, and what of it can change while it runs.

use std::any::Any;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use kaido_engine::PortTotals;
use kaido_n4::{NetworkInstance, Seid, Teid};
use kaido_node::api::{Asked, Count, Problem, Reply, TraceBegun, TraceOf, TraceRead};
use kaido_node::board::PortBoard;
use kaido_node::config::Prefix;
use kaido_node::function::{
    Answer, DatapathChoice, FunctionStatus, FunctionView, Part, PreparedReload, ReloadRefusal, Traces, fields,
};
use kaido_otlp::{ExportCounts, Monitor};
use kaido_pfcp::{Endpoint, Instants, NotReleased, Transmit};
use kaido_upf::control::{
    KernelShare, PathSummary, SessionFilter, SessionSearch, SessionSummary, TraceFilter, Upf,
};
use kaido_upf::key::KeyParts;
use kaido_upf::record::RecordForm;
use kaido_upf::slow_path::SlowPathReason;
use kaido_upf_xdp::offload::PassReason;

use super::api::{
    self, BeginDrain, EndDrain, GetSession, GetStore, GetUserPlane, ListAssociations, ListSessions,
    ReleaseAssociation, ReleaseSession,
};
use super::datapath::Choice;
use super::kernel_watch::KernelWatch;
use super::offload::{self, KernelCounts};
use super::ports::KernelCounters;
use super::reload::{self, Changeable};
use super::store::StoreStatus;
use super::trace;

/// Most sessions in one answer.
const SESSIONS_LISTED_MAX: usize = 10_000;
/// How long sessions are searched in one turn of the control loop.
const SEARCH_MAX: Duration = Duration::from_micros(400);
/// Most GTP-U paths in one answer.
const PATHS_SHOWN_MAX: usize = 1000;

/// What questions are answered from.
pub(super) struct UpfView<'c> {
    pub(super) endpoint: &'c mut Endpoint<Upf>,
    pub(super) ports: &'c PortBoard,
    pub(super) choice: &'c Choice,
    pub(super) kernel_watch: Option<&'c KernelWatch>,
    pub(super) store: Option<StoreStatus>,
    /// Of the datapath in the kernel, where there is one: read when it is asked for.
    pub(super) kernel: Option<&'c KernelCounters>,
    /// What became of procedures for a collector, where there is one.
    pub(super) monitor: Option<&'c Monitor>,
    /// Datagrams of strangers: not in `pfcp.allow`, and those for which there was no time.
    pub(super) unknown_peers: [u64; 2],
    pub(super) allow: &'c mut Vec<Prefix>,
    /// Another, where the configuration was read again.
    pub(super) usage_interval: &'c mut Option<Duration>,
    /// Requests of ours that answers bring about.
    pub(super) out: &'c mut Vec<Transmit>,
    /// Nothing may change, as another process takes over.
    pub(super) is_frozen: bool,
}

impl FunctionView for UpfView<'_> {
    fn status(&mut self, by_workers: Vec<PortTotals>) -> FunctionStatus {
        let in_kernel = self.kernel.map(KernelCounters::read).unwrap_or_default();
        let port = |(at, mut totals): (usize, PortTotals)| {
            offload::add_to(&mut totals, at, &in_kernel);
            (totals, in_kernel.get(at).map(offload::forwarded).unwrap_or_default())
        };
        FunctionStatus {
            datapath: DatapathChoice {
                chosen: self.choice.chosen.name(),
                configured: self.choice.configured.name(),
                reason: self.choice.reason.clone(),
            },
            counted: by_workers.into_iter().enumerate().map(port).collect(),
            more: fields(&self.upf_status(&in_kernel)),
        }
    }

    fn prepare_reload(&mut self, config: &dyn Any) -> Result<PreparedReload, Vec<ReloadRefusal>> {
        reload::prepare(self.endpoint.service(), config)
    }

    fn commit_reload(&mut self, prepared: PreparedReload) {
        let Self { endpoint, allow, usage_interval, .. } = self;
        reload::commit(prepared, Changeable { endpoint, allow, usage_interval });
    }

    fn answer(&mut self, asked: &Asked) -> Option<Reply> {
        asked
            .on(|GetUserPlane {}| {
                let in_kernel = self.kernel.map(KernelCounters::read).unwrap_or_default();
                Ok(self.upf_status(&in_kernel))
            })
            .or_else(|| asked.on(|ListAssociations {}| Ok(api::Associations { associations: self.peers() })))
            .or_else(|| asked.on(|GetStore {}| self.store_status().ok_or_else(no_store)))
            .or_else(|| asked.on(|GetSession { seid }| detail(self.endpoint.service_mut(), Seid(seid))))
            .or_else(|| asked.on(|ReleaseSession { seid }| self.release_session(Seid(seid))))
            .or_else(|| asked.on(|question: ReleaseAssociation| self.release_association(&question)))
            .or_else(|| asked.on(|BeginDrain { grace_s }| self.begin_drain(grace_s)))
            .or_else(|| asked.on(|EndDrain {}| self.end_drain()))
    }

    fn answer_part(&mut self, asked: &Asked, so_far: Option<Part>) -> Option<Answer> {
        let mut unfinished = None;
        let listed = asked.on(|question: ListSessions| {
            if question.has_key() {
                return Ok(page(&found(self.endpoint.service_mut(), &question), &question));
            }
            let so_far = so_far.and_then(|part| part.downcast().ok());
            let mut search =
                so_far.map_or_else(|| search_for(&question), |search: Box<SessionSearch>| *search);
            if !self.endpoint.service().search(&mut search, Instant::now() + SEARCH_MAX) {
                unfinished = Some(Box::new(search));
                return Ok(api::Sessions { total: 0, sessions: Vec::new() });
            }
            Ok(api::Sessions { total: search.total, sessions: search.found.iter().map(session).collect() })
        });
        match unfinished {
            Some(search) => Some(Answer::Part(search)),
            None => listed.or_else(|| self.answer(asked)).map(Answer::Whole),
        }
    }

    fn traces(&mut self) -> &mut dyn Traces {
        self
    }
}

impl Traces for UpfView<'_> {
    fn begin(&mut self, of: &TraceOf, snap: usize) -> Result<TraceBegun, Problem> {
        let now = self.endpoint.node_time(Instants::now());
        trace::begin(self.endpoint.service_mut(), &self.ports.list(), of, snap, now)
    }

    fn read(&mut self, id: u32) -> Result<TraceRead, Problem> {
        let now = self.endpoint.node_time(Instants::now());
        trace::read(self.endpoint.service_mut(), &self.ports.list(), id, now)
    }

    fn end(&mut self, id: u32) {
        let now = self.endpoint.node_time(Instants::now());
        trace::end(self.endpoint.service_mut(), id, now);
    }
}

impl UpfView<'_> {
    /// Whether something may change.
    fn changeable(&self) -> Result<(), Problem> {
        if self.is_frozen {
            return Err(Problem::conflict("another process takes over: ask that one".to_owned()));
        }
        Ok(())
    }

    fn release_session(&mut self, seid: Seid) -> Result<(), Problem> {
        self.changeable()?;
        self.endpoint.release_session(Instants::now(), seid, self.out).map_err(|why| match why {
            NotReleased::NoSession => no_session(seid),
            NotReleased::Busy => {
                Problem::unavailable("too many reports wait for their answers: ask again later".to_owned())
            }
        })
    }

    fn release_association(&mut self, question: &ReleaseAssociation) -> Result<(), Problem> {
        self.changeable()?;
        let node = self.endpoint.peers().map(|peer| peer.node_id);
        let node = node.into_iter().find(|node| node.to_string() == question.node_id);
        let node = node.ok_or_else(|| {
            Problem::not_found(format!("there is no association with {}", question.node_id))
        })?;
        let grace = Duration::from_secs(question.grace_s);
        self.endpoint.request_release_of(Instants::now(), &node, grace, self.out);
        Ok(())
    }

    fn begin_drain(&mut self, grace_s: u64) -> Result<(), Problem> {
        self.changeable()?;
        self.endpoint.request_release(Instants::now(), Duration::from_secs(grace_s), self.out);
        Ok(())
    }

    fn end_drain(&mut self) -> Result<(), Problem> {
        self.changeable()?;
        self.endpoint.stop_draining(Instants::now());
        Ok(())
    }

    fn peers(&self) -> Vec<api::Peer> {
        let shown = |peer: kaido_pfcp::Peer| api::Peer {
            node_id: peer.node_id.to_string(),
            address: peer.address.to_string(),
            up: !peer.down,
            sessions: peer.sessions,
        };
        self.endpoint.peers().map(shown).collect()
    }

    fn store_status(&self) -> Option<api::StoreStatus> {
        self.store.map(|store| api::StoreStatus {
            durability: store.durability().to_owned(),
            batches: store.journal.batches,
            bytes: store.journal.octets,
            segments: store.journal.segments,
            failures: store.journal.failures,
            failing: store.journal.is_failing,
        })
    }

    fn upf_status(&self, in_kernel: &[KernelCounts]) -> api::UpfStatus {
        let upf = self.endpoint.service();
        let node = upf.node();
        let volume = upf.volume();
        let pfcp = self.endpoint.counters().samples().filter(|sample| sample.value > 0).map(|sample| {
            let name = match sample.label {
                Some((_, value)) => format!("{} {value}", sample.name),
                None => sample.name.to_owned(),
            };
            Count { name, count: sample.value }
        });
        let names = ["datagrams not in pfcp.allow", "datagrams of strangers beyond what is served"];
        let unknown_peers = names.into_iter().zip(self.unknown_peers).filter(|(_, count)| *count > 0);
        let unknown_peers = unknown_peers.map(|(name, count)| Count { name: name.to_owned(), count });
        api::UpfStatus {
            sessions: upf.len(),
            sessions_max: node.settings.sessions_max,
            draining: self.endpoint.is_draining(),
            table_pages: node.table.memory().pages.to_string(),
            uplink_bytes: volume.uplink_bytes,
            downlink_bytes: volume.downlink_bytes,
            forms: upf.forms().map(form).collect(),
            slow_path: node.slow_path.totals().into_iter().filter_map(slow_path).collect(),
            kernel: upf.kernel_records().map(|records| self.offload_status(records, in_kernel)),
            store: self.store_status(),
            otlp: self.monitor.map(|monitor| otlp_status(&monitor.counts())),
            peers: self.peers(),
            paths: upf.paths(PATHS_SHOWN_MAX).iter().map(path).collect(),
            pfcp: pfcp.chain(unknown_peers).collect(),
        }
    }

    /// The kernel's datapath, which has so many records.
    fn offload_status(&self, records: usize, in_kernel: &[KernelCounts]) -> api::OffloadStatus {
        let ports = self.ports.list();
        let refusals = self.kernel_watch.map(|watch| watch.exits.exits().refusals()).unwrap_or_default();
        let refusal = |(at, why): (usize, String)| {
            let port = ports.get(at).map_or_else(String::new, |port| port.name.clone());
            api::KernelRefusal { port, why }
        };
        api::OffloadStatus {
            records,
            handed: handed(in_kernel),
            refusals: refusals.into_iter().map(refusal).collect(),
            idle: self.kernel_watch.and_then(KernelWatch::idle).map(str::to_owned),
        }
    }
}

fn otlp_status(counts: &ExportCounts) -> api::OtlpStatus {
    api::OtlpStatus {
        exported: counts.exported,
        queue_full: counts.queue_full,
        given_up: counts.given_up,
        refused: counts.refused,
        fault: counts.fault.clone(),
    }
}

/// What the kernel's datapath left, by reason, of all ports.
fn handed(in_kernel: &[KernelCounts]) -> Vec<Count> {
    let count = |hand| in_kernel.iter().map(|counters| counters.offload.handed(hand)).sum();
    let counts = PassReason::ALL.into_iter().map(|hand| (hand.name().to_owned(), count(hand)));
    counts.filter(|(_, count)| *count > 0).map(|(name, count)| Count { name, count }).collect()
}

fn slow_path((reason, packets): (SlowPathReason, u64)) -> Option<api::SlowPath> {
    let (name, sentence) = (reason.name().to_owned(), reason.sentence());
    (packets > 0).then_some(api::SlowPath { reason: name, sentence, packets })
}

fn form((form, sessions): (RecordForm, u32)) -> api::Form {
    let reason = match form {
        RecordForm::Wide(reason) => Some([reason.name().to_owned(), reason.to_string()]),
        _ => None,
    };
    api::Form { path: form.name().to_owned(), reason, sessions }
}

fn path(path: &PathSummary) -> api::GtpuPath {
    api::GtpuPath {
        peer: path.peer.to_string(),
        up: path.up,
        tunnels: path.tunnels,
        echo_requests: path.requests,
        echo_responses: path.responses,
        failures: path.failures,
        restarts: path.restarts,
    }
}

fn session(summary: &SessionSummary) -> api::Session {
    let v4 = summary.ue.ipv4.map(|addr| addr.to_string());
    let v6 = summary.ue.ipv6.map(|prefix| format!("{}/{}", prefix.addr, prefix.len));
    let fdb = summary.fdb.iter().flatten().map(ToString::to_string);
    let tunnels =
        |ends: &[(Teid, IpAddr)]| ends.iter().map(|(teid, addr)| format!("{teid}@{addr}")).collect();
    let [pdrs, fars, qers, urrs] = summary.rules;
    api::Session {
        seid: format!("{:#018x}", summary.seid.0),
        cp_seid: format!("{:#018x}", summary.cp_fseid.seid.0),
        imsi: summary.imsi.map(|imsi| imsi.to_string()),
        network_instances: summary.network_instances.iter().map(NetworkInstance::to_string).collect(),
        ue: v4.into_iter().chain(v6).chain(fdb).collect(),
        local: tunnels(&summary.local),
        remote: tunnels(&summary.remote),
        pdrs,
        fars,
        qers,
        urrs,
        uplink_bytes: summary.volume.uplink_bytes,
        downlink_bytes: summary.volume.downlink_bytes,
        uplink_packets: summary.volume.uplink_packets,
        downlink_packets: summary.volume.downlink_packets,
    }
}

/// A search for sessions by what there is no key for.
fn search_for(of: &ListSessions) -> SessionSearch {
    let network_instance = of.dnn.as_deref().map(|name| NetworkInstance(name.into()));
    let filter = SessionFilter { imsi: of.imsi, control_plane: of.smf, network_instance };
    SessionSearch::new(filter, of.skip, of.limit.min(SESSIONS_LISTED_MAX))
}

/// The sessions that meet all that is asked for: looked up by one key of it, whatever number of sessions there are.
fn found(upf: &mut Upf, of: &ListSessions) -> Vec<SessionSummary> {
    let mut found = match *of {
        ListSessions { seid: Some(seid), .. } => upf.sessions_of(TraceFilter::Session(Seid(seid))),
        ListSessions { ue: Some(address), .. } => upf.sessions_of(TraceFilter::Ue(address)),
        ListSessions { teid: Some(teid), .. } => upf.sessions_of_teid(Teid(teid)),
        ListSessions { .. } => Vec::new(),
    };
    let has_ue = |summary: &SessionSummary, wanted: IpAddr| {
        let v4 = summary.ue.ipv4.map(|own| Prefix { addr: own.into(), len: 32 });
        let v6 = summary.ue.ipv6.map(|own| Prefix { addr: own.addr.into(), len: own.len });
        v4.into_iter().chain(v6).any(|own| own.contains(wanted))
    };
    let has_end = |summary: &SessionSummary, wanted: IpAddr| {
        let ends = [summary.cp_fseid.ipv4.map(IpAddr::from), summary.cp_fseid.ipv6.map(IpAddr::from)];
        ends.contains(&Some(wanted))
    };
    found.retain(|summary| {
        of.ue.is_none_or(|ue| has_ue(summary, ue))
            && of.imsi.is_none_or(|imsi| summary.imsi == Some(imsi))
            && of.smf.is_none_or(|smf| has_end(summary, smf))
            && of.dnn.as_ref().is_none_or(|dnn| summary.network_instances.iter().any(|name| *name.0 == **dnn))
            && of.teid.is_none_or(|teid| summary.local.iter().any(|(own, _)| own.0 == teid))
    });
    found
}

/// The page that is asked for.
fn page(found: &[SessionSummary], of: &ListSessions) -> api::Sessions {
    let listed = found.iter().skip(of.skip).take(of.limit.min(SESSIONS_LISTED_MAX));
    api::Sessions { total: found.len(), sessions: listed.map(session).collect() }
}

fn kernel_share(share: &KernelShare, endpoints: &[IpAddr]) -> api::KernelShare {
    let key = match share.key.parts() {
        KeyParts::Tunnel(endpoint, teid) => {
            let local = endpoints.get(usize::from(endpoint.0)).map_or_else(String::new, IpAddr::to_string);
            format!("{:#x}@{local}", teid.0)
        }
        KeyParts::Ipv4(_, address) => address.to_string(),
        KeyParts::Ipv6(_, address) => format!("{address}/64"),
        KeyParts::Member(_) => "member of a 5G virtual network".to_owned(),
        KeyParts::Framed(_, route) => format!("{route} behind the UE"),
        KeyParts::Ethernet(..) => "Ethernet".to_owned(),
    };
    let mut left: Vec<_> = share.left.iter().map(ToString::to_string).collect();
    if left.is_empty() && !share.held {
        left.push(
            "there is no room in the kernel, or the address is of no pool of its network instance".to_owned(),
        );
    }
    api::KernelShare { key, held: share.held, left }
}

fn no_session(seid: Seid) -> Problem {
    Problem::not_found(format!("there is no session {seid}; `kaido sessions` lists them"))
}

fn no_store() -> Problem {
    Problem::not_found("nothing keeps the sessions over a restart: store.durability is \"off\"".to_owned())
}

/// A session and its rules.
fn detail(upf: &mut Upf, seid: Seid) -> Result<api::SessionDetail, Problem> {
    let rules = upf.rules_of(seid).map(serde_json::to_value).transpose();
    let rules = rules.map_err(|error| Problem::internal(format!("the rules cannot be shown: {error}")))?;
    let summary = upf.sessions_of(TraceFilter::Session(seid)).pop();
    let found = summary.zip(rules);
    let (summary, rules) = found.ok_or_else(|| no_session(seid))?;
    let shares = upf.kernel_shares(seid).unwrap_or_default();
    let endpoints = &upf.node().settings.endpoints;
    let kernel = shares.iter().map(|share| kernel_share(share, endpoints)).collect();
    Ok(api::SessionDetail { session: session(&summary), kernel, rules })
}

#[cfg(test)]
mod tests;
