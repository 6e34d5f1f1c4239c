//! Takes in what comes back: knows each packet by its trailer, counts it, and has it judged.
//!
//! ```text
//!   frame ─▶ ARP, ND, echo …? ─▶ where does it end? ─▶ trailer ─▶ tracker: twice? late? out of order?
//!                                                        │
//!                                                        └─▶ the packet as it was sent, made again ─▶ oracle ─▶ equal?
//! ```
//! Packets of captures have no trailer; where a rule is about their port they are known by their content. Memory is bounded by
//! the number of streams and workers, the window, the captures, and how many findings are kept.

mod findings;
mod kinds;
mod replay;
mod tracker;

use std::sync::Arc;

use crate::generator::{CompiledTraffic, Problem};
use crate::oracle::{Oracle, Rule, Verdict, compare, ip_end};
use crate::result::{ClockCosts, FindingKind, Latency, PortResult, RunResult, StreamResult, Volume};
use crate::trailer::{MODULUS, TRAILER_LEN, Trailer};
use findings::{Ledger, NumberedFinding};
use kinds::{is_control, is_equal, is_error};
use replay::{Match, Replays};
use tracker::{ArrivalKind, Tracker};

/// Lost packets that are made again to see whether they should have come at all.
const ASKED_MAX: u64 = 1 << 20;

/// How packets are judged.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeSettings {
    /// Sequence numbers of a stream, and worker, within which packets may come in any order.
    pub window: usize,
    /// A packet that takes longer is late, in nanoseconds.
    pub late_after_ns: u64,
    /// Whether packets of a stream must come in the order in which they were sent.
    pub ordered: bool,
    /// Findings that are kept, of each kind.
    pub keep: usize,
    /// Workers that send: each has its part of a stream's sequence.
    pub workers: u32,
}

impl Default for JudgeSettings {
    fn default() -> Self {
        Self { window: 1 << 16, late_after_ns: 1_000_000_000, ordered: true, keep: 8, workers: 1 }
    }
}

/// What came of one stream.
#[derive(Debug)]
struct StreamArrivals {
    /// One for each worker that sends.
    trackers: Vec<Tracker>,
    received: Volume,
    duplicated: u64,
    corrupted: u64,
    late: u64,
    wrong: u64,
    latency: Latency,
}

/// The receiver of a run.
#[derive(Debug)]
pub struct Receiver {
    compiled: Arc<CompiledTraffic>,
    settings: JudgeSettings,
    oracle: Oracle,
    replays: Replays,
    streams: Vec<StreamArrivals>,
    ports: Vec<PortResult>,
    ledger: Ledger,
    /// The packet as it was sent.
    sent: Vec<u8>,
}

/// How much of a stream one worker has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentShare {
    /// Number of the stream.
    pub stream: usize,
    /// Number of the worker.
    pub worker: u32,
    /// What it sent.
    pub volume: Volume,
}

impl Receiver {
    /// A receiver for all ports of some traffic, with the rules that packets are judged by.
    ///
    /// # Errors
    /// What is wrong with the rules.
    pub fn new(
        compiled: &Arc<CompiledTraffic>,
        rules: &[Rule],
        settings: JudgeSettings,
    ) -> Result<Self, Vec<Problem>> {
        let mut oracle = Oracle::new(rules, compiled.ports())?;
        let replays = Replays::new(compiled, &mut oracle);
        let stream = |is_replayed: bool| StreamArrivals {
            // Of a capture's packets nothing tells which worker sent them.
            trackers: (0..if is_replayed { 1 } else { settings.workers.max(1) })
                .map(|_| Tracker::new(settings.window))
                .collect(),
            received: Volume::default(),
            duplicated: 0,
            corrupted: 0,
            late: 0,
            wrong: 0,
            latency: Latency::default(),
        };
        let streams = (0..compiled.streams.len()).map(|number| stream(replays.judges(number))).collect();
        Ok(Self {
            compiled: compiled.clone(),
            oracle,
            replays,
            streams,
            ports: compiled
                .ports()
                .iter()
                .map(|name| PortResult { name: name.clone(), ..PortResult::default() })
                .collect(),
            ledger: Ledger::new(settings.keep),
            settings,
            sent: Vec::new(),
        })
    }

    /// Packets with trailers of this run that came so far.
    pub fn received(&self) -> u64 {
        self.streams.iter().map(|stream| stream.received.packets).sum()
    }

    /// Takes in a frame that came at a port, `now_ns` nanoseconds after the run began.
    pub fn arrive(&mut self, port: usize, frame: &[u8], now_ns: u64) {
        self.ports[port].received.add(frame.len());
        let end = ip_end(frame);
        // An error quotes the packet it is about, trailer and all.
        let trailer = if is_error(frame) { None } else { self.read(frame, end) };
        let Some(trailer) = trailer else {
            return self.without_trailer(port, frame, end, now_ns);
        };
        let number = usize::from(trailer.stream);
        let workers = self.settings.workers.max(1).into();
        let stream = &mut self.streams[number];
        stream.received.add(frame.len());
        // Workers deal the whole numbers out; each lane is a sequence of its own.
        let lane = trailer.sequence % workers;
        #[allow(clippy::cast_possible_truncation)] // Below the number of workers.
        let tracker = &mut stream.trackers[lane as usize];
        let near = tracker.near().saturating_mul(workers);
        let sequence = Trailer::extend(trailer.sequence, near);
        let latency_ns = now_ns.wrapping_sub(trailer.time_ns) % MODULUS;
        let arrival = tracker.arrive(sequence / workers);
        if !self.take_note(port, frame, (number, sequence), arrival, now_ns) {
            return;
        }
        let stream = &mut self.streams[number];
        if latency_ns > self.settings.late_after_ns {
            stream.late += 1;
            let detail = format!("after {:.3} ms", latency_ns as f64 / 1e6);
            let stream = Some((number, sequence));
            let found = NumberedFinding {
                kind: FindingKind::Late,
                detail,
                stream,
                port: Some(port),
                time_ns: now_ns,
            };
            self.ledger.add(found, &self.compiled, Vec::new, &[frame]);
        } else {
            stream.latency.record(latency_ns);
        }
        self.judge(port, frame, end, number, sequence, trailer.time_ns, now_ns);
    }

    /// Takes note of where in its stream a packet came; whether it is to be looked at further.
    fn take_note(
        &mut self,
        port: usize,
        frame: &[u8],
        (number, sequence): (usize, u64),
        arrival: ArrivalKind,
        now_ns: u64,
    ) -> bool {
        let stream = &mut self.streams[number];
        let (kind, detail, goes_on) = match arrival {
            ArrivalKind::InOrder => return true,
            ArrivalKind::Reordered(_) if !self.settings.ordered => return true,
            ArrivalKind::Reordered(extent) => {
                let detail = format!("{extent} packets came since one that was sent later");
                (FindingKind::Reordered, detail, true)
            }
            ArrivalKind::Duplicate => {
                stream.duplicated += 1;
                (FindingKind::Duplicated, String::new(), false)
            }
            ArrivalKind::BehindWindow => {
                stream.late += 1;
                let detail = format!("more than {} packets behind the latest", self.settings.window);
                (FindingKind::Late, detail, false)
            }
        };
        let stream = Some((number, sequence));
        let found = NumberedFinding { kind, detail, stream, port: Some(port), time_ns: now_ns };
        self.ledger.add(found, &self.compiled, Vec::new, &[frame]);
        goes_on
    }

    /// A frame without a trailer of this run: of a capture, or nobody's.
    fn without_trailer(&mut self, port: usize, frame: &[u8], end: Option<usize>, now_ns: u64) {
        let Self { compiled, replays, streams, .. } = &*self;
        let mut found = None;
        if !replays.is_empty() {
            found = replays.find(compiled, port, frame, |stream| &streams[stream].trackers[0]);
            if found.is_none() && !is_control(frame) {
                found = replays.find_like(compiled, port, frame, |stream| &streams[stream].trackers[0]);
            }
        }
        match found {
            Some(Match { stream, sequence, again }) => {
                let received = &mut self.streams[stream];
                received.received.add(frame.len());
                let arrival =
                    if again { ArrivalKind::Duplicate } else { received.trackers[0].arrive(sequence) };
                if self.take_note(port, frame, (stream, sequence), arrival, now_ns) {
                    self.judge(port, frame, end, stream, sequence, 0, now_ns);
                }
            }
            None if is_control(frame) => self.ports[port].control += 1,
            None if self.is_earlier(frame, end) => self.ports[port].earlier += 1,
            None => self.unknown(port, frame, end, now_ns),
        }
    }

    /// The trailer where the packet ends, or where the frame does.
    fn read(&self, frame: &[u8], end: Option<usize>) -> Option<Trailer> {
        let key = self.compiled.key;
        let by_header = end.and_then(|end| key.read(frame.get(..end)?));
        let trailer = by_header.or_else(|| key.read(frame))?;
        // A capture may be one of such packets; they are known otherwise.
        let stream = self.compiled.streams.get(usize::from(trailer.stream));
        stream.is_some_and(|stream| stream.trailer).then_some(trailer)
    }

    /// Whether the trailer is one of an earlier run.
    fn is_earlier(&self, frame: &[u8], end: Option<usize>) -> bool {
        let packet = end.and_then(|end| frame.get(..end)).unwrap_or(frame);
        self.compiled.earlier.iter().any(|key| key.read(packet).or_else(|| key.read(frame)).is_some())
    }

    /// A frame whose trailer is not there, or not right.
    fn unknown(&mut self, port: usize, frame: &[u8], end: Option<usize>, now_ns: u64) {
        let whole = end.filter(|end| *end <= frame.len()).unwrap_or(frame.len());
        let trailer = frame[..whole].last_chunk::<TRAILER_LEN>().map(Trailer::unchecked);
        // A trailer that is damaged in one place still tells what it was of.
        let of = trailer.filter(|trailer| {
            let made = self.compiled.streams.get(usize::from(trailer.stream)).filter(|stream| stream.trailer);
            made.and_then(|_| self.streams.get(usize::from(trailer.stream))).is_some_and(|stream| {
                let workers = stream.trackers.len() as u64;
                let near = stream.trackers.iter().map(Tracker::near).max().unwrap_or(0) * workers;
                trailer.sequence.abs_diff(near) <= self.settings.window as u64 * workers
            })
        });
        let (kind, detail) = match end {
            Some(end) if end > frame.len() => {
                (FindingKind::Truncated, format!("{} bytes of {end}", frame.len()))
            }
            _ if of.is_some() => (FindingKind::Corrupted, "its trailer's check does not hold".to_owned()),
            _ => (FindingKind::Unrecognised, "it has no trailer of this run".to_owned()),
        };
        let stream: Option<(usize, u64)> = of
            .filter(|_| kind == FindingKind::Corrupted)
            .map(|trailer| (trailer.stream.into(), trailer.sequence));
        match stream {
            Some((number, _)) => self.streams[number].corrupted += 1,
            None => self.ports[port].unrecognised += 1,
        }
        let found = NumberedFinding { kind, detail, stream, port: Some(port), time_ns: now_ns };
        self.ledger.add(found, &self.compiled, || compare(None, frame), &[frame]);
    }

    /// Compares a packet with what had to come.
    #[allow(clippy::too_many_arguments)] // The packet, its place in the sequence, and when it came.
    fn judge(
        &mut self,
        port: usize,
        frame: &[u8],
        end: Option<usize>,
        stream: usize,
        sequence: u64,
        stamp_ns: u64,
        now_ns: u64,
    ) {
        if !self.compiled.packet_into(stream, sequence, stamp_ns, &mut self.sent) {
            return;
        }
        let from = self.compiled.streams[stream].port;
        let verdict = self.oracle.verdict(from, &self.sent, frame);
        let found = |kind, detail| NumberedFinding {
            kind,
            detail,
            stream: Some((stream, sequence)),
            port: Some(port),
            time_ns: now_ns,
        };
        let (to, expected) = match verdict {
            Verdict::Out(to, expected) => (to, expected),
            Verdict::Nothing(why) => {
                self.streams[stream].wrong += 1;
                let finding = found(FindingKind::Unexpected, why.to_owned());
                self.ledger.add(finding, &self.compiled, || compare(None, frame), &[frame]);
                return;
            }
            Verdict::Unknown => return self.judge_payload(port, frame, end, stream, sequence, now_ns),
        };
        if to == port && is_equal(&expected, frame) {
            return;
        }
        let rows = compare(Some(&expected), frame);
        let wrong: Vec<&str> = rows.iter().filter(|row| row.wrong).map(|row| row.field.as_str()).collect();
        // A checksum that does not fit a payload which is not what it was is right to say so.
        let follows = |field: &&str| {
            *field == "payload" || field.ends_with("udp.checksum") || field.ends_with("tcp.checksum")
        };
        let (kind, detail) = if to != port {
            (FindingKind::WrongPort, format!("expected at port {}", self.compiled.ports[to]))
        } else if let Some(end) = end.filter(|end| *end > frame.len()) {
            (FindingKind::Truncated, format!("{} bytes of {end}", frame.len()))
        } else if wrong == ["padding"] {
            (FindingKind::Padded, format!("{} bytes for {}", frame.len(), expected.len()))
        } else if wrong.contains(&"payload") && wrong.iter().all(follows) {
            (FindingKind::Corrupted, "its payload is not what was sent".to_owned())
        } else {
            (FindingKind::WrongFields, wrong.join(", "))
        };
        match kind {
            FindingKind::Corrupted => self.streams[stream].corrupted += 1,
            _ => self.streams[stream].wrong += 1,
        }
        self.ledger.add(found(kind, detail), &self.compiled, || rows, &[&expected, frame]);
    }

    /// Without a rule, all that can be judged is whether the payload is what was sent.
    fn judge_payload(
        &mut self,
        port: usize,
        frame: &[u8],
        end: Option<usize>,
        stream: usize,
        sequence: u64,
        now_ns: u64,
    ) {
        let len = self.compiled.payload_len(stream, sequence) + TRAILER_LEN;
        let whole = end.filter(|end| *end <= frame.len()).unwrap_or(frame.len());
        let sent = &self.sent[self.sent.len() - len..];
        if whole >= len && frame[whole - len..whole] == *sent {
            return;
        }
        self.streams[stream].corrupted += 1;
        let detail = "its payload is not what was sent".to_owned();
        let found = NumberedFinding {
            kind: FindingKind::Corrupted,
            detail,
            stream: Some((stream, sequence)),
            port: Some(port),
            time_ns: now_ns,
        };
        self.ledger.add(found, &self.compiled, || compare(None, frame), &[frame]);
    }

    /// Ends the run: what was sent and has not come is lost, unless the rules say that it must not come. With the result come
    /// the frames of the findings that are kept, with the times at which they came, in nanoseconds of the run: where it is
    /// known, what should have come, and then what came.
    pub fn finish(
        mut self,
        sent: &[SentShare],
        duration_ns: u64,
        clock: ClockCosts,
    ) -> (RunResult, Vec<(u64, Vec<u8>)>) {
        let mut asked = 0;
        let mut streams = Vec::new();
        for (number, received) in std::mem::take(&mut self.streams).into_iter().enumerate() {
            let compiled = self.compiled.clone();
            let stream = &compiled.streams[number];
            let mut result = StreamResult {
                name: stream.name.clone(),
                port: compiled.ports[stream.port].clone(),
                counted: stream.trailer || self.replays.judges(number),
                received: received.received,
                duplicated: received.duplicated,
                corrupted: received.corrupted,
                late: received.late,
                wrong: received.wrong,
                latency: received.latency,
                ..StreamResult::default()
            };
            let lanes = received.trackers.len();
            for (lane, tracker) in received.trackers.into_iter().enumerate() {
                let by_lane =
                    sent.iter().filter(|by| by.stream == number && by.worker as usize % lanes == lane);
                let volume = by_lane.fold(Volume::default(), |mut sum, by| {
                    sum.merge(by.volume);
                    sum
                });
                result.sent.merge(volume);
                let reordering = tracker.reordering();
                let sum = &mut result.reordering;
                sum.packets += reordering.packets;
                sum.extent_max = sum.extent_max.max(reordering.extent_max);
                sum.extent_sum += reordering.extent_sum;
                sum.blocks += reordering.blocks;
                sum.block_packets_max = sum.block_packets_max.max(reordering.block_packets_max);
                if !result.counted {
                    continue;
                }
                if !stream.trailer {
                    self.surplus(&mut result, number, tracker.beyond(volume.packets), duration_ns);
                }
                let (ranges, beyond) = tracker.finish(volume.packets);
                result.lost += beyond;
                for (first, last) in ranges {
                    for place in first..=last {
                        let sequence = place * lanes as u64 + lane as u64;
                        asked += u64::from(!self.oracle.is_empty());
                        if asked <= ASKED_MAX && self.is_withheld(number, sequence) {
                            result.withheld += 1;
                        } else {
                            result.lost += 1;
                            let detail = format!("of {} that were sent", volume.packets * lanes as u64);
                            let of = Some((number, sequence));
                            let found = NumberedFinding {
                                kind: FindingKind::Lost,
                                detail,
                                stream: of,
                                port: None,
                                time_ns: duration_ns,
                            };
                            self.ledger.add(found, &compiled, Vec::new, &[]);
                        }
                    }
                }
            }
            self.ports[stream.port].sent.merge(result.sent);
            streams.push(result);
        }
        let (findings, frames) = self.ledger.into_parts();
        (
            RunResult { duration_ns, clock, streams, ports: self.ports, findings, ..RunResult::default() },
            frames,
        )
    }

    /// Counts packets of a capture that came beyond all that were sent: equal ones, of which one came again.
    fn surplus(&mut self, result: &mut StreamResult, stream: usize, count: u64, now_ns: u64) {
        result.duplicated += count;
        for beyond in 0..count {
            let detail = "more came than were sent".to_owned();
            let stream = Some((stream, result.sent.packets + beyond));
            let found = NumberedFinding {
                kind: FindingKind::Duplicated,
                detail,
                stream,
                port: None,
                time_ns: now_ns,
            };
            self.ledger.add(found, &self.compiled, Vec::new, &[]);
        }
    }

    /// Whether the rules say that a packet must not come out.
    fn is_withheld(&mut self, stream: usize, sequence: u64) -> bool {
        let port = self.compiled.streams[stream].port;
        !self.oracle.is_empty()
            && self.compiled.packet_into(stream, sequence, 0, &mut self.sent)
            && matches!(self.oracle.verdict(port, &self.sent, &[]), Verdict::Nothing(_))
    }
}

#[cfg(test)]
mod tests;
