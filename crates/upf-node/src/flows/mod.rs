//! Flow records by IPFIX: what each session has carried, and flows of which packets were sampled.
//!
//! ```text
//!   URR counters of sessions ──some places a turn──▶ SessionFlow ─▶ domain N   ─┐
//!   workers ──one in so many packets──▶ SampledFlows ─────────────▶ domain N+1 ─┴─▶ collectors, over UDP
//! ```
//! All of it is done by the control loop, a bounded part in each turn, and evenly over the interval.

mod packet;
mod sampled;
mod templates;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use kaido_engine::PacketSamples;
use kaido_ipfix::{ExportCounts, Exporter};
use kaido_node::board::PortBoard;
use kaido_upf::control::{SessionFlow, Upf};

use self::sampled::{FlowOwner, SampledFlows};
use crate::config::UpfConfig;

/// Places of sessions that are looked at in a turn.
const PLACES_A_TURN: usize = 4096;
/// Records of either kind that are made in a turn: about a third of a millisecond.
const RECORDS_A_TURN: usize = 64;
/// Samples that are read in a turn.
const SAMPLES_A_TURN: usize = 512;
/// Longest time a record waits for others in its message.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How often it is said that collectors cannot be reached.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// What was exported, and what not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowCounts {
    pub(super) sessions: ExportCounts,
    pub(super) sampled: ExportCounts,
    /// Last records of sessions for which there was no room.
    pub(super) ended_lost: u64,
    /// Samples for which there was no room before they were read.
    pub(super) samples_lost: u64,
    /// Samples of flows for which there was no room.
    pub(super) flows_lost: u64,
}

/// The flows of sampled packets, and where they go.
struct Sampling {
    exporter: Exporter,
    samples: PacketSamples,
    /// Of each port: whether tunnels come in by it.
    has_tunnels: Vec<bool>,
    flows: SampledFlows,
    /// There may be more samples than were read.
    has_more: bool,
}

/// Exports flow records.
pub(super) struct FlowExport {
    sessions: Exporter,
    sampling: Option<Sampling>,
    interval: Duration,
    /// When the last turn was.
    turned: Instant,
    /// Places of sessions that are due to be looked at.
    owed: f64,
    flushed: Instant,
    /// Failures that were told, and when.
    told: (u64, Option<Instant>),
    taken: Vec<SessionFlow>,
}

impl FlowExport {
    /// To the collectors of the configuration, with the samples of the workers if they take any; `None` without collectors.
    ///
    /// # Errors
    /// When there is no socket to send by.
    pub(super) fn open(config: &UpfConfig, samples: Option<PacketSamples>) -> std::io::Result<Option<Self>> {
        let has_tunnels = config.ports().map(|(_, of_port)| of_port.is_gtpu()).collect();
        let config = &config.ipfix;
        let collectors: Vec<SocketAddr> = config.collectors.iter().map(|collector| collector.0).collect();
        if collectors.is_empty() {
            return Ok(None);
        }
        let domain = *config.observation_domain.get_ref();
        let again = config.template_interval();
        let sessions = Exporter::open(&collectors, domain, templates::SESSIONS, again)?;
        let (interval, flows_max) = (config.interval(), *config.flows_max.get_ref() as usize);
        let sampling = samples.zip(config.sample()).map(|(samples, every)| {
            let exporter = Exporter::open(&collectors, domain + 1, templates::FLOWS, again)?;
            let exporter = templates::with_sampling(exporter, domain + 1, every.get());
            let flows = SampledFlows::new(interval, flows_max);
            Ok::<_, std::io::Error>(Sampling { exporter, samples, has_tunnels, flows, has_more: false })
        });
        let now = Instant::now();
        Ok(Some(Self {
            sessions,
            sampling: sampling.transpose()?,
            interval,
            turned: now,
            owed: 0.0,
            flushed: now,
            told: (0, None),
            taken: Vec::new(),
        }))
    }

    /// What was exported.
    pub(super) fn counts(&self, upf: &Upf) -> FlowCounts {
        let sampling = self.sampling.as_ref();
        FlowCounts {
            sessions: self.sessions.counts(),
            sampled: sampling.map(|sampling| sampling.exporter.counts()).unwrap_or_default(),
            ended_lost: upf.flows_lost(),
            samples_lost: sampling.map_or(0, |sampling| sampling.samples.lost()),
            flows_lost: sampling.map_or(0, |sampling| sampling.flows.lost()),
        }
    }

    /// Whether a turn's part was not all that is due.
    pub(super) fn is_behind(&self) -> bool {
        #[allow(clippy::cast_precision_loss)]
        let is_owed = self.owed >= RECORDS_A_TURN as f64;
        is_owed || self.sampling.as_ref().is_some_and(|sampling| sampling.has_more)
    }

    /// Does a turn's part.
    pub(super) fn turn(&mut self, upf: &mut Upf, ports: &PortBoard, now: (Instant, SystemTime)) {
        self.look_at_sessions(upf, now);
        if let Some(sampling) = &mut self.sampling {
            sampling.turn(upf, ports, now);
        }
        if now.0.saturating_duration_since(self.flushed) >= FLUSH_EVERY {
            self.flushed = now.0;
            self.sessions.refresh(now);
            self.flush(now.1);
            self.complain(now.0);
        }
    }

    /// Sends what waits for others.
    fn flush(&mut self, now: SystemTime) {
        self.sessions.flush(now);
        if let Some(sampling) = &mut self.sampling {
            sampling.exporter.flush(now);
        }
    }

    /// Sends what there is of sessions that have ended and of sampled flows, as no more will be.
    pub(super) fn finish(&mut self, upf: &mut Upf, ports: &PortBoard, now: (Instant, SystemTime)) {
        upf.take_flows(0, usize::MAX, now.1, &mut self.taken);
        self.export_taken(now);
        if let Some(sampling) = &mut self.sampling {
            while let Some(flow) = sampling.flows.take(None) {
                sampling.export(upf, ports, &flow, now);
            }
        }
        self.flush(now.1);
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn look_at_sessions(&mut self, upf: &mut Upf, now: (Instant, SystemTime)) {
        let places = upf.places() as f64;
        let since = now.0.saturating_duration_since(std::mem::replace(&mut self.turned, now.0));
        // Never more than all: who was kept from it for long does not look twice.
        self.owed = (self.owed + places * since.div_duration_f64(self.interval)).min(places);
        let due = (self.owed as usize).min(PLACES_A_TURN);
        let looked = upf.take_flows(due, RECORDS_A_TURN, now.1, &mut self.taken);
        self.owed = (self.owed - looked as f64).max(0.0);
        self.export_taken(now);
    }

    fn export_taken(&mut self, now: (Instant, SystemTime)) {
        let Self { sessions, taken, .. } = self;
        for flow in taken.drain(..) {
            templates::session(&flow, |template, values| sessions.export(template, values, now));
        }
    }

    /// Says that collectors are not reached, if so, and not again and again.
    fn complain(&mut self, now: Instant) {
        let sampled = self.sampling.as_ref().map(|sampling| sampling.exporter.counts()).unwrap_or_default();
        let failures = self.sessions.counts().plus(sampled).failures;
        let (told, at) = self.told;
        if failures > told && at.is_none_or(|at| now.saturating_duration_since(at) >= COMPLAIN_EVERY) {
            tracing::warn!(
                messages = failures - told,
                "IPFIX messages could not be sent: is there a route to each of ipfix.collectors?"
            );
            self.told = (failures, Some(now));
        }
    }
}

impl Sampling {
    fn turn(&mut self, upf: &mut Upf, ports: &PortBoard, now: (Instant, SystemTime)) {
        let mut read = 0;
        while read < SAMPLES_A_TURN
            && let Some(sample) = self.samples.next()
        {
            read += 1;
            let has_tunnels = self.has_tunnels.get(sample.port.index()).copied().unwrap_or(false);
            if let Some(packet) = packet::read(&sample, has_tunnels) {
                self.flows.add(&packet, sample.at, now.0);
            }
        }
        let mut made = 0;
        while made < RECORDS_A_TURN
            && let Some(flow) = self.flows.take(Some(now.0))
        {
            made += 1;
            self.export(upf, ports, &flow, now);
        }
        self.has_more = read == SAMPLES_A_TURN || self.flows.is_due(now.0);
        self.exporter.refresh(now);
    }

    fn export(
        &mut self,
        upf: &mut Upf,
        ports: &PortBoard,
        flow: &sampled::SampledFlow,
        now: (Instant, SystemTime),
    ) {
        let owner = FlowOwner::of(upf, &flow.key);
        let port = ports.name(flow.key.port.index());
        templates::sampled(flow, &owner, &port, |template, values| {
            self.exporter.export(template, values, now);
        });
    }
}
