//! What a run did, and what it found.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use kaido_pfcp::Counters;
use serde::Serialize;

use super::losses::{Clock, Loss};
use super::session::{Amount, Session};
use crate::fault::SimFault;
use crate::gnb::GnbCounters;
use crate::report::Usage;

/// Sessions that are told of one by one.
const TOLD_MAX: usize = 20;

/// A session of which traffic and usage differ.
#[derive(Clone, Copy, Debug, Serialize)]
struct Difference {
    ue: usize,
    sent: Amount,
    received: Amount,
    usage: Usage,
}

/// Counts of a run, as they are reported.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    pub(super) attaches: u64,
    /// Of these, what the UPF refused as it was overloaded.
    pub(super) put_off: u64,
    pub(super) detaches: u64,
    /// Of these, with what was buffered.
    pub(super) detached_asleep: u64,
    pub(super) handovers: u64,
    pub(super) idles: u64,
    /// Downlink Data Reports.
    pub(super) pages: u64,
    pub(super) wakes: u64,
    pub(super) queries: u64,
    /// QoS flows added.
    pub(super) flows: u64,
    /// Into the tunnels, and out of them.
    uplink: Amount,
    downlink: Amount,
    /// What the UPF reported, of all sessions that ended.
    usage: Usage,
    /// Packets that had no reply when their session ended.
    unanswered: u64,
    /// Sessions that ended, and those whose usage is not their traffic.
    sessions: u64,
    differing: u64,
    differences: Vec<Difference>,
    /// Packets in no tunnel of ours, End Markers in no tunnel that was left, Error Indications.
    pub(super) strays: u64,
    /// Packets that were changed, came again, or are not their tunnel's.
    pub(super) flaws: u64,
    /// Packets with the QFI of another QoS flow.
    pub(super) wrong_qfi: u64,
    /// End Markers of tunnels that had one.
    pub(super) end_markers_again: u64,
    end_markers: u64,
    /// Tunnels that were left and had no End Marker.
    unended: usize,
    send_errors: u64,
    malformed: u64,
    retransmissions_sent: u64,
    requests_exhausted: u64,
    requests_refused: u64,
    /// Where the network loses packets.
    faults: Option<FaultTally>,
}

/// What a network that loses packets did. Times are seconds since 1970.
#[derive(Debug, Default, Serialize)]
struct FaultTally {
    #[serde(skip)]
    clock: Clock,
    /// Sessions that lost packets.
    losses: Vec<Loss>,
    /// When packets were not sent: the gNB's kernel took none.
    unsent_at: Vec<f64>,
    /// When tunnels were left whose End Marker did not come.
    unended_at: Vec<f64>,
    /// Where UR-SEQN was not the next, since the report before and until this one: reports were sent that nobody took.
    gaps: Vec<(f64, f64)>,
}

impl Tally {
    /// Of a run whose network loses packets, or not.
    pub(super) fn new(faults: bool) -> Self {
        Self { faults: faults.then(FaultTally::default), ..Self::default() }
    }

    /// Notes a packet that was not sent.
    pub(super) fn unsent(&mut self) {
        if let Some(faults) = &mut self.faults {
            faults.unsent_at.push(faults.clock.seconds(Instant::now()));
        }
    }

    /// Notes that usage reports are missing between one that came then and one that came now.
    pub(super) fn gap(&mut self, before: Instant) {
        if let Some(FaultTally { clock, gaps, .. }) = &mut self.faults {
            gaps.push((clock.seconds(before), clock.seconds(Instant::now())));
        }
    }

    /// Notes a tunnel that was left then and has no End Marker.
    pub(super) fn unended(&mut self, left: Instant) {
        if let Some(faults) = &mut self.faults {
            faults.unended_at.push(faults.clock.seconds(left));
        }
    }

    /// Whether usage is the traffic. What was lost is noted.
    fn agrees(&mut self, ue: usize, session: &Session) -> bool {
        let Some(faults) = &mut self.faults else { return session.agrees() };
        faults.losses.extend(Loss::of(ue, session, &faults.clock));
        session.agrees_but_for_losses()
    }

    /// Counts a packet into a tunnel.
    pub(super) fn sent(&mut self, len: usize) {
        self.uplink.add(len);
    }

    /// Counts a packet out of a tunnel.
    pub(super) fn received(&mut self, len: usize) {
        self.downlink.add(len);
    }

    /// Judges a session that ended.
    pub(super) fn close(&mut self, ue: usize, session: &Session) {
        self.sessions += 1;
        self.unanswered += session.waiting.len() as u64;
        self.usage.merge(&session.usage);
        if !self.agrees(ue, session) {
            self.differing += 1;
            if self.differences.len() < TOLD_MAX {
                let Session { sent, received, usage, .. } = *session;
                self.differences.push(Difference { ue, sent, received, usage });
            }
        }
    }

    /// Takes in the counters of gNB and SMF.
    pub(super) fn end(&mut self, gnb: &GnbCounters, pfcp: &Counters, tunnels: usize) {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        self.end_markers = read(&gnb.end_markers);
        self.send_errors = read(&gnb.send_errors);
        self.malformed = read(&gnb.malformed);
        self.strays += read(&gnb.error_indications) + read(&gnb.other_messages);
        self.unended = tunnels;
        self.retransmissions_sent = pfcp.retransmissions_sent;
        self.requests_exhausted = pfcp.requests_exhausted;
        self.requests_refused = pfcp.requests_refused;
    }

    /// One line, for a person.
    pub(super) fn summary(&self) -> String {
        format!(
            "{} sessions, {} handovers, {} pages; {} packets up, {} down, {} unanswered; usage differs in {} sessions",
            self.sessions,
            self.handovers,
            self.pages,
            self.uplink.packets,
            self.downlink.packets,
            self.unanswered,
            self.differing
        )
    }

    /// Writes it as JSON.
    pub(super) fn write(&self, path: &Path) -> Result<(), SimFault> {
        let fail = |error| SimFault::File { path: path.to_owned(), error };
        let mut octets = serde_json::to_vec(self).map_err(|error| fail(error.into()))?;
        octets.push(b'\n');
        File::create(path).and_then(|mut file| file.write_all(&octets)).map_err(fail)
    }
}
