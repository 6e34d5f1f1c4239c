//! Traffic, checked and compiled: what generators send from, and receivers know packets again by.

use std::path::Path;

use kaido_engine::port::PcapReader;

use super::counter::mix;
use super::pace::Pace;
use super::program::Program;
use crate::stream::{Mode, Rate, STREAMS_MAX, Source, Stream, Timing, Traffic};
use crate::trailer::{TRAILER_LEN, TrailerKey, TrailerStart};

/// Most bytes of one capture that are held.
const CAPTURE_BYTES_MAX: usize = 1 << 30;

/// Something that is wrong with traffic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{field}: {message}", stream.map(|stream| format!("stream[{stream}].")).unwrap_or_default())]
pub struct Problem {
    /// Place of the stream, if it is about one.
    pub stream: Option<usize>,
    /// The field, such as `template.writes[0].offset`.
    pub field: String,
    /// What is wrong with it, and what is possible.
    pub message: String,
}

/// Runs before this one whose packets are known: what a busy machine holds back is no older.
const EARLIER_RUNS: usize = 4;

/// Compiled traffic. Workers and receivers share one.
#[derive(Debug)]
pub struct CompiledTraffic {
    pub(crate) streams: Vec<CompiledStream>,
    pub(crate) ports: Vec<String>,
    pub(crate) key: TrailerKey,
    /// Keys of the runs before, where a bench runs again with the next key.
    pub(crate) earlier: [TrailerKey; EARLIER_RUNS],
}

#[derive(Debug)]
pub(crate) struct CompiledStream {
    pub(crate) name: String,
    /// Place of its port.
    pub(crate) port: usize,
    pub(crate) packets: Packets,
    pub(crate) pace: Pace,
    /// Whether packets go when they are due, or as fast as they can in the order in which they would be due.
    pub(crate) paced: bool,
    pub(crate) trailer: bool,
}

#[derive(Debug)]
pub(crate) enum Packets {
    Made(Box<Program>),
    Captured(Box<[Box<[u8]>]>),
}

impl Packets {
    fn mean_len(&self) -> f64 {
        match self {
            Self::Made(program) => program.mean_len(),
            Self::Captured(packets) => {
                packets.iter().map(|packet| packet.len() as f64).sum::<f64>() / packets.len() as f64
            }
        }
    }
}

/// A stream whose packets are ready, and what is left to find out: how fast it is.
struct ReadyStream {
    port: usize,
    packets: Packets,
    times_ns: Vec<u64>,
}

impl CompiledTraffic {
    /// Compiles traffic. Captures are read here.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn new(traffic: &Traffic) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        whole(traffic, &mut problems);
        let mut ready = Vec::new();
        for (place, stream) in traffic.streams.iter().enumerate() {
            let mut wrong = |field: &str, message: String| {
                problems.push(Problem { stream: Some(place), field: field.to_owned(), message });
            };
            if traffic.streams[..place].iter().any(|before| before.name == stream.name) {
                wrong("name", format!("`{}` is there already", stream.name));
            }
            let port = traffic.ports.iter().position(|port| port.name == stream.port);
            if port.is_none() {
                wrong("port", format!("there is no port `{}`", stream.port));
            }
            times(stream, &mut wrong);
            let packets = match &stream.source {
                Source::Template(template) => {
                    let seed = mix(traffic.seed ^ mix(place as u64));
                    match Program::new(template, stream.trailer, seed) {
                        Ok(program) => Some((Packets::Made(Box::new(program)), Vec::new())),
                        Err(refusals) => {
                            for (field, message) in refusals {
                                wrong(&format!("source.template.{field}"), message);
                            }
                            None
                        }
                    }
                }
                Source::Capture(capture) => match read(&capture.file) {
                    Ok((packets, times_ns)) => Some((Packets::Captured(packets), times_ns)),
                    Err(message) => {
                        wrong("source.capture.file", message);
                        None
                    }
                },
            };
            ready.push(packets.map(|(packets, times_ns)| ReadyStream {
                port: port.unwrap_or(0),
                packets,
                times_ns,
            }));
        }
        let ready: Option<Vec<ReadyStream>> = ready.into_iter().collect();
        let Some(ready) = ready.filter(|_| problems.is_empty()) else { return Err(problems) };
        let streams = rates(traffic, ready, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let ports = traffic.ports.iter().map(|port| port.name.clone()).collect();
        let earlier = std::array::from_fn(|n| TrailerKey::new(traffic.key.wrapping_sub(n as u64 + 1)));
        Ok(Self { streams, ports, key: TrailerKey::new(traffic.key), earlier })
    }

    /// Names of the ports, in the order in which everything numbers them.
    pub fn ports(&self) -> &[String] {
        &self.ports
    }

    /// Names of the streams, in the order of their numbers.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|stream| stream.name.as_str())
    }

    /// The packet of a stream with a number, as it is sent at a time; `None` when there is no such packet.
    pub fn packet(&self, stream: usize, sequence: u64, time_ns: u64) -> Option<Vec<u8>> {
        let mut packet = Vec::new();
        self.packet_into(stream, sequence, time_ns, &mut packet).then_some(packet)
    }

    /// As [`CompiledTraffic::packet`], into memory that is there; `false` when there is no such packet.
    pub(crate) fn packet_into(&self, stream: usize, sequence: u64, time_ns: u64, into: &mut Vec<u8>) -> bool {
        let Some(found) = self.streams.get(stream) else { return false };
        match &found.packets {
            Packets::Made(program) => {
                program.packet(sequence, &self.start(stream, time_ns), into);
                true
            }
            #[allow(clippy::cast_possible_truncation)] // Below the number of packets.
            Packets::Captured(packets) => {
                into.clear();
                into.extend_from_slice(&packets[(sequence % packets.len() as u64) as usize]);
                true
            }
        }
    }

    /// What the trailers of a stream have in common that have one stamp.
    pub(crate) fn start(&self, stream: usize, time_ns: u64) -> TrailerStart {
        self.key.start(u16::try_from(stream).unwrap_or(u16::MAX), time_ns)
    }

    /// Bytes before the trailer of a packet that are its payload: the same in every packet of its length.
    pub(crate) fn payload_len(&self, stream: usize, sequence: u64) -> usize {
        match &self.streams[stream].packets {
            Packets::Made(program) => {
                let shape = usize::from(program.shape(sequence));
                program.shapes[shape].len - program.head_len - TRAILER_LEN
            }
            Packets::Captured(_) => 0,
        }
    }
}

/// What can be wrong with all of it.
fn whole(traffic: &Traffic, problems: &mut Vec<Problem>) {
    let mut wrong = |field: &str, message: String| {
        problems.push(Problem { stream: None, field: field.to_owned(), message });
    };
    if traffic.streams.is_empty() || traffic.streams.len() > STREAMS_MAX {
        wrong("streams", format!("{} streams: 1 to {STREAMS_MAX} are possible", traffic.streams.len()));
    }
    for (place, port) in traffic.ports.iter().enumerate() {
        if traffic.ports[..place].iter().any(|before| before.name == port.name) {
            wrong(&format!("ports[{place}].name"), format!("`{}` is there already", port.name));
        }
        if port.line_bps.is_some_and(|line| !(line > 0.0 && line.is_finite())) {
            wrong(&format!("ports[{place}].line_bps"), "a line has more than 0 bits a second".to_owned());
        }
    }
    if let Some(total) = traffic.total {
        if matches!(total, Rate::Weight(_)) {
            wrong("total", "the total is no share of anything".to_owned());
        }
        if let Some(message) = no_rate(total) {
            wrong("total", message);
        }
        let lines: Vec<_> = traffic.ports.iter().map(|port| port.line_bps).collect();
        if matches!(total, Rate::Percent(_)) && (lines.contains(&None) || lines.is_empty()) {
            wrong("total", "percents of a total need the line_bps of every port".to_owned());
        }
    }
}

/// Why a rate is none.
fn no_rate(rate: Rate) -> Option<String> {
    match rate {
        Rate::Pps(value)
        | Rate::L1Bps(value)
        | Rate::L2Bps(value)
        | Rate::Percent(value)
        | Rate::Weight(value) => (!(value > 0.0 && value.is_finite()))
            .then(|| format!("{value} is no rate: it must be more than 0")),
        Rate::Max => None,
    }
}

/// What can be wrong with when packets go.
fn times(stream: &Stream, wrong: &mut impl FnMut(&str, String)) {
    if let Some(message) = no_rate(stream.rate) {
        wrong("rate", message);
    }
    match stream.mode {
        Mode::Ramp { from, to, .. }
            if !(from >= 0.0 && to >= 0.0 && from + to > 0.0 && (from + to).is_finite()) =>
        {
            wrong("mode.ramp", format!("from {from} to {to}: shares of the rate are 0 or more, not both 0"));
        }
        Mode::Burst { packets: 0 } | Mode::MultiBurst { packets: 0, .. } => {
            wrong("mode", "a burst has 1 packet or more".to_owned());
        }
        _ => {}
    }
    if let Source::Capture(capture) = &stream.source
        && let Timing::Captured(speed) = capture.timing
        && !(speed > 0.0 && speed.is_finite())
    {
        wrong("source.capture.timing", format!("{speed} is no speed: it must be more than 0"));
    }
}

/// Packets, and their times in nanoseconds.
type RecordedPackets = (Box<[Box<[u8]>]>, Vec<u64>);

/// The packets of a file, and their times.
fn read(file: &Path) -> Result<RecordedPackets, String> {
    let mut reader = PcapReader::open(file).map_err(|error| error.to_string())?;
    let (mut packets, mut times, mut bytes) = (Vec::new(), Vec::new(), 0);
    while let Some(packet) = reader.read().map_err(|error| error.to_string())? {
        bytes += packet.bytes.len();
        if bytes > CAPTURE_BYTES_MAX {
            return Err(format!("{}: more than {CAPTURE_BYTES_MAX} bytes of packets", file.display()));
        }
        times.push(packet.time_ns);
        packets.push(packet.bytes.into_boxed_slice());
    }
    if packets.is_empty() {
        return Err(format!("{}: no packets", file.display()));
    }
    Ok((packets.into(), times))
}

/// Gives every stream its rate.
fn rates(traffic: &Traffic, ready: Vec<ReadyStream>, problems: &mut Vec<Problem>) -> Vec<CompiledStream> {
    let line = |port: usize| traffic.ports.get(port).and_then(|port| port.line_bps);
    // What the streams would send by themselves, a weight as so many packets a second.
    let mut own = Vec::new();
    for (place, (stream, ready)) in traffic.streams.iter().zip(&ready).enumerate() {
        let pps = match stream.rate {
            Rate::Weight(weight) => Some(weight),
            Rate::Max => Some(1.0),
            rate => rate.pps(ready.packets.mean_len(), line(ready.port)),
        };
        if pps.is_none() {
            let message = format!("percents need the line_bps of port `{}`", stream.port);
            problems.push(Problem { stream: Some(place), field: "rate".to_owned(), message });
        }
        own.push(pps.unwrap_or(1.0));
    }
    let is_share = |stream: &Stream| matches!(stream.rate, Rate::Weight(_) | Rate::Max);
    let shares = traffic.streams.iter().filter(|stream| is_share(stream)).count();
    if shares != 0 && shares != traffic.streams.len() {
        let message =
            "some streams have rates and some only shares: give all the one or the other".to_owned();
        problems.push(Problem { stream: None, field: "streams".to_owned(), message });
    }
    let sum: f64 = own.iter().sum();
    let paced = match traffic.total {
        None => shares == 0,
        Some(total) => total != Rate::Max,
    };
    let factor = traffic.total.map_or(Some(1.0), |total| {
        let mean =
            own.iter().zip(&ready).map(|(pps, ready)| pps * ready.packets.mean_len()).sum::<f64>() / sum;
        let lines: Option<f64> = traffic.ports.iter().map(|port| port.line_bps).sum();
        total.pps(mean, lines).map(|pps| pps / sum)
    });
    let streams = traffic.streams.iter().zip(ready).zip(own);
    streams
        .map(|((stream, ready), own)| {
            let pps = own * factor.unwrap_or(1.0);
            let pace = Pace::new(&stream.mode, pps, stream.delay_ns);
            let (pace, paced) = match &stream.source {
                Source::Template(_) => (pace, paced),
                Source::Capture(capture) => match capture.timing {
                    Timing::Captured(speed) => {
                        (Pace::captured(&ready.times_ns, speed, capture.passes, stream.delay_ns), true)
                    }
                    Timing::Rate if capture.passes == 0 => (pace, paced),
                    Timing::Rate => {
                        let packets = ready.times_ns.len() as u64;
                        (pace.limited(packets.saturating_mul(capture.passes.into())), paced)
                    }
                },
            };
            let trailer = stream.trailer && matches!(stream.source, Source::Template(_));
            CompiledStream {
                name: stream.name.clone(),
                port: ready.port,
                packets: ready.packets,
                pace,
                paced,
                trailer,
            }
        })
        .collect()
}
