//! The control side of traces: from what a reader asks for to sessions, and from records to rules.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use super::keys::all_keys;
use super::{SessionSummary, Upf};
use crate::ids::{EndpointId, InstanceId, SessionIndex};
use crate::key::SessionKey;
use crate::trace::{TraceRecord, WatchId};
use kaido_n4::{FarId, PdrId, QerId, Seid, Teid, UrrId};

/// A reader that does not come back for so long has gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whose packets are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFilter {
    /// Those of the session that has a UE address, whichever that is at the time.
    Ue(IpAddr),
    /// Those of a session.
    Session(Seid),
}

/// The rules that a packet met, as its session has them now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedRules {
    /// The PDR.
    pub pdr: PdrId,
    /// Its precedence.
    pub precedence: u32,
    /// Its FAR.
    pub far: Option<FarId>,
    /// Its QERs.
    pub qers: Vec<QerId>,
    /// Its URRs.
    pub urrs: Vec<UrrId>,
}

/// A record with what the control side knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedPacket {
    /// What became of it.
    pub record: TraceRecord,
    /// Its session, if that is still there.
    pub seid: Option<Seid>,
    /// The rules that it met, if they are still there.
    pub rules: Option<MatchedRules>,
}

/// What a watch has brought since it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceBatch {
    /// The packets, oldest first.
    pub packets: Vec<TracedPacket>,
    /// Packets that there was no room for.
    pub lost: u64,
    /// Sessions that are watched.
    pub sessions: Vec<Seid>,
}

/// A watch and who it is for.
#[derive(Debug)]
pub(super) struct Reader {
    id: WatchId,
    filter: TraceFilter,
    sessions: Vec<SessionIndex>,
    read: Instant,
}

impl Upf {
    /// Begins to trace, keeping `snap` octets of each frame; `None` when there are too many traces. It ends with
    /// [`Upf::end_trace`], or when nobody reads it for five seconds.
    pub fn begin_trace(&mut self, filter: TraceFilter, snap: usize, now: SystemTime) -> Option<WatchId> {
        let id = self.node.tracer.open(snap)?;
        self.traces.push(Reader { id, filter, sessions: Vec::new(), read: Instant::now() });
        self.aim(id, now);
        Some(id)
    }

    /// What a trace has brought, at most `max` packets and about `octets_max` octets of them; `None` when there is no such
    /// trace. Sessions that have come to match by now are traced from here on.
    pub fn read_trace(
        &mut self,
        id: WatchId,
        (max, octets_max): (usize, usize),
        now: SystemTime,
    ) -> Option<TraceBatch> {
        let reader = self.traces.iter_mut().find(|reader| reader.id == id)?;
        reader.read = Instant::now();
        let (records, lost) = self.node.tracer.read(id, max, octets_max);
        let packets = records.iter().map(|record| self.explain(TraceRecord::clone(record))).collect();
        self.aim(id, now);
        let reader = self.traces.iter().find(|reader| reader.id == id)?;
        let seids = reader.sessions.iter().filter_map(|&index| self.sessions.get(index));
        Some(TraceBatch { packets, lost, sessions: seids.map(|session| session.seid).collect() })
    }

    /// Ends a trace.
    pub fn end_trace(&mut self, id: WatchId, now: SystemTime) {
        let Some(at) = self.traces.iter().position(|reader| reader.id == id) else { return };
        let reader = self.traces.swap_remove(at);
        self.node.tracer.close(id);
        self.give_back_to_kernel(&reader.sessions, now);
    }

    /// Ends the traces that nobody reads any more.
    pub(super) fn turn_traces(&mut self, now: SystemTime) {
        let gone = self.traces.iter().find(|reader| reader.read.elapsed() > PATIENCE).map(|reader| reader.id);
        if let Some(id) = gone {
            self.end_trace(id, now);
        }
    }

    /// Has a watch follow the sessions that its filter means now. What is traced is the workers' alone: the kernel writes
    /// nothing down.
    fn aim(&mut self, id: WatchId, now: SystemTime) {
        let Some(at) = self.traces.iter().position(|reader| reader.id == id) else { return };
        let wanted = self.meant(self.traces[at].filter);
        if self.traces[at].sessions == wanted {
            return;
        }
        let before = std::mem::replace(&mut self.traces[at].sessions, wanted.clone());
        self.node.tracer.watch(id, &wanted);
        let keys = self.keys_of(&wanted);
        if let Some(kernel) = &mut self.kernel {
            kernel.remove(&keys, &self.node);
            kernel.settle();
        }
        self.give_back_to_kernel(&before, now);
    }

    /// The sessions of a UE address, or of a SEID of ours.
    pub fn sessions_of(&mut self, filter: TraceFilter) -> Vec<SessionSummary> {
        let found = self.meant(filter);
        found
            .into_iter()
            .filter_map(|index| self.sessions.get(index))
            .map(|found| self.summary(&found))
            .collect()
    }

    /// The session with that TEID at our end of a tunnel; several where we have several addresses.
    pub fn sessions_of_teid(&mut self, teid: Teid) -> Vec<SessionSummary> {
        let endpoints = 0..u8::try_from(self.node.settings.endpoints.len()).unwrap_or(u8::MAX);
        let keys = endpoints.map(|endpoint| SessionKey::tunnel(EndpointId(endpoint), teid));
        let mut found: Vec<_> = keys.filter_map(|key| self.owner(&key)).collect();
        found.sort_unstable();
        found.dedup();
        found
            .into_iter()
            .filter_map(|index| self.sessions.get(index))
            .map(|found| self.summary(&found))
            .collect()
    }

    /// The rules of a session as they are installed, field by field.
    pub fn rules_of(&self, seid: Seid) -> Option<impl serde::Serialize> {
        self.sessions.get(self.sessions.find(seid)?).map(|session| session.state.rules)
    }

    fn meant(&mut self, filter: TraceFilter) -> Vec<SessionIndex> {
        match filter {
            TraceFilter::Session(seid) => self.sessions.find(seid).into_iter().collect(),
            TraceFilter::Ue(address) => {
                let instances = 0..u16::try_from(self.node.settings.instances.len()).unwrap_or(u16::MAX);
                let mut found: Vec<_> = instances
                    .map(InstanceId)
                    .filter_map(|instance| {
                        self.owner(&match address {
                            IpAddr::V4(address) => SessionKey::ipv4(instance, address),
                            IpAddr::V6(address) => SessionKey::ipv6(instance, address),
                        })
                    })
                    .collect();
                found.sort_unstable();
                found.dedup();
                found
            }
        }
    }

    pub(super) fn keys_of(&self, sessions: &[SessionIndex]) -> BTreeSet<SessionKey> {
        let sessions = sessions.iter().filter_map(|&index| self.sessions.get(index));
        sessions
            .flat_map(|session| all_keys(&session.state.rules, &self.node.settings, session.index))
            .collect()
    }

    fn give_back_to_kernel(&mut self, sessions: &[SessionIndex], now: SystemTime) {
        let keys = self.keys_of(sessions);
        if let Some(kernel) = &mut self.kernel {
            kernel.restore(&keys, now);
        }
    }

    fn explain(&self, record: TraceRecord) -> TracedPacket {
        let session = self.sessions.get(record.session);
        let rules = session.as_ref().zip(record.matched).and_then(|(session, (id, _))| {
            let pdr = session.state.rules.pdrs.get(&id)?;
            Some(MatchedRules {
                pdr: id,
                precedence: pdr.precedence,
                far: pdr.far_id,
                qers: pdr.qer_ids.clone(),
                urrs: pdr.urr_ids.clone(),
            })
        });
        TracedPacket { seid: session.map(|session| session.seid), record, rules }
    }
}
