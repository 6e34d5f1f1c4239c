//! What is to be sent: the public model of the generator, as configuration files, scripts and searches write it.
//!
//! ```text
//!   Traffic ─┬─ Stream ─┬─ Source::Template   bytes · variables ─▶ writes · lengths
//!            │          │  or Source::Capture  a file, with its own timing
//!            │          ├─ Rate and Mode       how fast, and in what pattern over time
//!            │          └─ port                where it goes out
//!            └─ PortSpec …                     what the names of ports stand for
//! ```
//! Everything is plain data with serde. A packet is a pure function of its stream, the seed and its sequence number. The
//! receiver makes it again to judge what came back, and workers share a stream by dealing out sequence numbers.

mod field;
mod mac;
mod port;
mod time;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use field::{Operation, Tuple, Variable, Width, Write};
pub use mac::Mac;
pub use port::{Driver, LinkMode, PortSpec};
pub use time::Mode;

/// Most streams of one run: the trailer names them in 16 bits.
pub const STREAMS_MAX: usize = 65_535;
/// Longest frame of a stream, in bytes without FCS: an IP packet of 9000 bytes behind Ethernet and two tags.
pub const STREAM_FRAME_MAX: u16 = 9_022;
/// Bytes that a frame takes on a link beside its own: FCS 4, preamble and delimiter 8, gap between frames 12
/// (IEEE 802.3 clause 4.4.2).
pub const LINK_OVERHEAD_BYTES: u32 = 24;

/// All that one run sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Every random value comes from it: equal seeds give equal packets, whatever the number of workers.
    #[serde(default = "one")]
    pub seed: u64,
    /// Key of the trailers: packets of another run are not taken for this one's.
    #[serde(default = "one")]
    pub key: u64,
    /// What all streams together send. The rates of the streams then only say how it is shared; without it each stream
    /// has its own rate.
    #[serde(default)]
    pub total: Option<Rate>,
    /// Ports that streams name.
    #[serde(default)]
    pub ports: Vec<PortSpec>,
    /// The streams; their order is their number in trailers.
    pub streams: Vec<Stream>,
}

const fn one() -> u64 {
    1
}

/// A sequence of packets of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Its name in results; unique.
    pub name: String,
    /// Name of the port it goes out of.
    pub port: String,
    /// What its packets are.
    pub source: Source,
    /// How fast they go.
    #[serde(default)]
    pub rate: Rate,
    /// In what pattern over time.
    #[serde(default)]
    pub mode: Mode,
    /// Nanoseconds from the run's start to its first packet.
    #[serde(default)]
    pub delay_ns: u64,
    /// Whether packets end with a trailer. Without one, nothing but the port's counters tells of them.
    #[serde(default = "yes")]
    pub trailer: bool,
}

const fn yes() -> bool {
    true
}

/// Where a stream's packets come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// A packet with variable fields.
    Template(Template),
    /// The packets of a capture file.
    Capture(Capture),
}

/// A packet, and what changes from one to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The frame from its Ethernet header on, without FCS. Written as hexadecimal digits; blanks are left out.
    #[serde(with = "hex")]
    pub bytes: Vec<u8>,
    /// Values that change with the sequence number.
    #[serde(default)]
    pub variables: Vec<Variable>,
    /// Pairs of an address and a port that change together; they count as two variables, `NAME.address` and `NAME.port`.
    #[serde(default)]
    pub tuples: Vec<Tuple>,
    /// Where values are written. Places must not overlap.
    #[serde(default)]
    pub writes: Vec<Write>,
    /// Lengths of the frames. The payload is cut or, by repetition of its bytes, made longer; all length fields follow.
    #[serde(default)]
    pub lengths: Lengths,
    /// Which checksums are kept right.
    #[serde(default)]
    pub checksums: Checksums,
}

/// Which checksums the generator sets, each by adding what changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checksums {
    /// All of all layers. A UDP checksum that is zero over IPv4 in the template is none, and stays so (RFC 768); so does
    /// one over IPv6 in front of a tunnel (RFC 6935).
    #[default]
    All,
    /// IPv4 headers only.
    Headers,
    /// None: the template's bytes go out, right or wrong.
    None,
}

/// Lengths of a stream's frames, in bytes without FCS. A length below what the headers and the trailer take is raised to
/// that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Lengths {
    /// The template's own.
    #[default]
    Template,
    /// One length.
    Fixed(u16),
    /// One after the other, and again from the first.
    Sweep {
        /// The first.
        first: u16,
        /// The last that may come.
        last: u16,
        /// Bytes from one to the next.
        step: u16,
    },
    /// Any between two, equally likely.
    Random {
        /// The least.
        min: u16,
        /// The most.
        max: u16,
    },
    /// Some, each as often as its weight says, well mixed (IMIX).
    Mix(Vec<LengthShare>),
}

/// A length of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LengthShare {
    /// The length, in bytes without FCS.
    pub bytes: u16,
    /// Frames of this length in a round of the mix.
    pub weight: u16,
}

impl Lengths {
    /// The simple IMIX: 7 frames of 60 bytes, 4 of 590 and 1 of 1514 (64, 594 and 1518 with FCS).
    pub fn imix() -> Self {
        let share = |bytes, weight| LengthShare { bytes, weight };
        Self::Mix(vec![share(60, 7), share(590, 4), share(1514, 1)])
    }
}

/// How fast a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Packets a second.
    Pps(f64),
    /// Bits a second on the link, with preamble, FCS and gap (layer 1).
    L1Bps(f64),
    /// Bits a second of frames with their FCS (layer 2).
    L2Bps(f64),
    /// Percent of the port's line rate, by layer 1. The port must say its line rate.
    Percent(f64),
    /// A share of [`Traffic::total`], as its weight beside those of the other streams.
    Weight(f64),
    /// As fast as the port takes packets.
    Max,
}

impl Default for Rate {
    fn default() -> Self {
        Self::Weight(1.0)
    }
}

impl Rate {
    /// Packets a second for frames of `frame_bytes` (without FCS) on average over a line of `line_bps` bits a second.
    /// `None` for a share, for the maximum, and for percents of an unknown line.
    pub fn pps(self, frame_bytes: f64, line_bps: Option<f64>) -> Option<f64> {
        let l1_bits = (frame_bytes + f64::from(LINK_OVERHEAD_BYTES)) * 8.0;
        match self {
            Self::Pps(pps) => Some(pps),
            Self::L1Bps(bps) => Some(bps / l1_bits),
            Self::L2Bps(bps) => Some(bps / ((frame_bytes + 4.0) * 8.0)),
            Self::Percent(percent) => line_bps.map(|line| line * percent / 100.0 / l1_bits),
            Self::Weight(_) | Self::Max => None,
        }
    }
}

/// The packets of a file, pcap or pcapng.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// The file.
    pub file: PathBuf,
    /// How often it is played; 0 is without end.
    #[serde(default = "one_pass")]
    pub passes: u32,
    /// When its packets go.
    #[serde(default)]
    pub timing: Timing,
}

const fn one_pass() -> u32 {
    1
}

/// When the packets of a capture go.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// With the distances of the capture, divided by this.
    Captured(f64),
    /// By the stream's rate and mode.
    Rate,
}

impl Default for Timing {
    fn default() -> Self {
        Self::Captured(1.0)
    }
}

/// Bytes as hexadecimal digits.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&super::Hex(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        super::parse_hex(&text).ok_or_else(|| de::Error::custom("not an even number of hexadecimal digits"))
    }
}

/// Shows bytes as hexadecimal digits.
struct Hex<'b>(&'b [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The bytes of hexadecimal digits between which blanks may stand; `None` when something else does, or a digit is missing.
pub fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream() -> Stream {
        Stream {
            name: "up".to_owned(),
            port: "n3".to_owned(),
            source: Source::Template(Template {
                bytes: vec![0, 1, 0xfe, 0xff],
                variables: vec![Variable {
                    name: "session".to_owned(),
                    width: Width::Four,
                    operation: Operation::Increment { first: 1, last: 1_000_000, step: 1 },
                    after: None,
                }],
                writes: vec![Write::new("session", 46)],
                lengths: Lengths::imix(),
                ..Template::default()
            }),
            rate: Rate::Pps(1e6),
            mode: Mode::Continuous,
            delay_ns: 0,
            trailer: true,
        }
    }

    #[test]
    fn traffic_survives_json() {
        let traffic = Traffic {
            seed: 7,
            key: 9,
            total: Some(Rate::Percent(50.0)),
            ports: Vec::new(),
            streams: vec![stream()],
        };
        let text = serde_json::to_string(&traffic).unwrap();
        assert!(text.contains("\"0001feff\""), "{text}");
        assert_eq!(serde_json::from_str::<Traffic>(&text).unwrap(), traffic);
    }

    #[test]
    fn little_needs_to_be_said() {
        let text = r#"{"streams": [{"name": "a", "port": "p", "source": {"template": {"bytes": "00 01"}}}]}"#;
        let traffic: Traffic = serde_json::from_str(text).unwrap();
        let stream = &traffic.streams[0];
        assert_eq!((traffic.seed, stream.rate, &stream.mode), (1, Rate::Weight(1.0), &Mode::Continuous));
        assert!(stream.trailer);
        assert!(serde_json::from_str::<Traffic>(&text.replace("\"port\"", "\"prot\"")).is_err());
        assert!(serde_json::from_str::<Traffic>(&text.replace("00 01", "00 0")).is_err());
    }

    #[test]
    fn rates_are_of_the_layer_they_name() {
        let line = Some(10e9);
        // The well-known figure of 10 Gbit/s with frames of 64 bytes (FCS included).
        let most = Rate::Percent(100.0).pps(60.0, line).unwrap();
        assert!((most - 14_880_952.38).abs() < 0.01, "{most}");
        assert_eq!(Rate::L1Bps(10e9).pps(60.0, None), Some(most));
        assert_eq!(Rate::L2Bps(512.0).pps(60.0, None), Some(1.0));
        assert_eq!(Rate::Pps(5.0).pps(60.0, None), Some(5.0));
        assert_eq!(Rate::Percent(1.0).pps(60.0, None), None);
        assert_eq!(Rate::Max.pps(60.0, line), None);
    }

    proptest! {
        #[test]
        fn bytes_survive_hexadecimal(bytes: Vec<u8>) {
            prop_assert_eq!(parse_hex(&Hex(&bytes).to_string()), Some(bytes));
        }

        #[test]
        fn any_text_is_bytes_or_refused(text: String) {
            let _ = parse_hex(&text);
        }
    }
}
