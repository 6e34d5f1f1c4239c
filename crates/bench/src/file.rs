//! The file of `kaido bench run`: streams, ports, bearers and expectations in TOML, checked whole.
//!
//! ```text
//!   text ──▶ BenchFile (serde) ──▶ BenchPlan: Traffic · rules · RunSettings
//!                         └──▶ or every FileFault, with its place in the text
//! ```

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use crate::Direction;
use crate::generator::{CompiledTraffic, Problem};
use crate::oracle::{Bearers, Oracle, Rule};
use crate::preset::{BearerOrder, Preset, Transport};
use crate::receive::JudgeSettings;
use crate::stream::{
    Capture, Driver, Lengths, LinkMode, Mac, Mode, PortSpec, Rate, Source, Stream, Template, Traffic,
};
use crate::traffic::{RunSettings, Threads};

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// Where, in bytes of the text.
    pub at: Range<usize>,
    /// The field, such as `stream.up.template.writes[0].offset`; empty when the text is no TOML of this form.
    pub field: String,
    /// What is wrong, and what is possible.
    pub message: String,
}

/// What a file asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchPlan {
    /// What is sent.
    pub traffic: Traffic,
    /// What must come of it.
    pub rules: Vec<Rule>,
    /// All bearers, judged by or not.
    pub bearers: Vec<Bearers>,
    /// How the run goes.
    pub settings: RunSettings,
    /// Where wrong packets are saved: pcapng, or pcap by the name's end.
    pub save: Option<PathBuf>,
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BenchFile {
    duration_s: Option<Spanned<f64>>,
    drain_ms: Option<u32>,
    resolve_ms: Option<u32>,
    #[serde(default)]
    threads: Threads,
    seed: Option<u64>,
    key: Option<u64>,
    total: Option<Spanned<Rate>>,
    save: Option<PathBuf>,
    #[serde(default)]
    judge: JudgeFile,
    #[serde(rename = "port")]
    ports: Vec<Spanned<PortSpec>>,
    #[serde(default)]
    bearers: Vec<Spanned<BearersFile>>,
    #[serde(default, rename = "expect")]
    expects: Vec<Spanned<Rule>>,
    #[serde(rename = "stream")]
    streams: Vec<Spanned<StreamFile>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JudgeFile {
    window: Option<Spanned<usize>>,
    late_after_ms: Option<f64>,
    ordered: Option<bool>,
    keep: Option<Spanned<usize>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BearersFile {
    name: String,
    /// Whether what comes is judged by them.
    #[serde(default = "yes")]
    judge: bool,
    of: Bearers,
}

const fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamFile {
    name: String,
    port: Option<String>,
    bearers: Option<String>,
    direction: Option<Direction>,
    #[serde(default)]
    transport: Transport,
    #[serde(default)]
    order: BearerOrder,
    lengths: Option<Lengths>,
    template: Option<Template>,
    capture: Option<Capture>,
    #[serde(default)]
    rate: Rate,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    delay_ns: u64,
    #[serde(default = "yes")]
    trailer: bool,
}

/// Largest window: 2 MiB of bits for each stream.
const WINDOW_MAX: usize = 1 << 24;
/// Access nodes that a port answers for at most.
const PEERS_MAX: u32 = 4096;
/// Most findings that are kept of a kind.
const KEEP_MAX: usize = 10_000;

struct Faults(Vec<FileFault>);

impl Faults {
    fn add(&mut self, at: Range<usize>, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(FileFault { at, field: field.into(), message: message.into() });
    }
}

impl BenchPlan {
    /// Reads a file's text. Captures that it names are read too.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Vec<FileFault>> {
        Self::parse_of(text, None)
    }

    /// As [`BenchPlan::parse`], with so many bearers of each description in place of the file's, for devices and machines of
    /// another size.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse_of(text: &str, bearers: Option<u32>) -> Result<Self, Vec<FileFault>> {
        let mut file: BenchFile = toml::from_str(text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            vec![FileFault { at, field: String::new(), message: error.message().trim().replace('\n', "; ") }]
        })?;
        if let Some(count) = bearers {
            file.bearers.iter_mut().for_each(|bearers| bearers.get_mut().of.count = count);
        }
        let mut faults = Faults(Vec::new());
        let settings = file.settings(&mut faults);
        let rules = file.rules(&mut faults);
        let streams: Option<Vec<Stream>> =
            file.streams.iter().map(|stream| file.stream(stream, &mut faults)).collect();
        let traffic = Traffic {
            seed: file.seed.unwrap_or(1),
            key: file.key.unwrap_or(1),
            total: file.total.as_ref().map(|total| *total.get_ref()),
            ports: file.ports.iter().map(|port| file.port(port.get_ref())).collect(),
            streams: streams.unwrap_or_default(),
        };
        file.ports(&mut faults);
        if faults.0.is_empty() {
            for problem in CompiledTraffic::new(&traffic).err().unwrap_or_default() {
                file.place(&problem, &mut faults);
            }
        }
        if !faults.0.is_empty() {
            return Err(faults.0);
        }
        let bearers = file.bearers.into_iter().map(|bearers| bearers.into_inner().of).collect();
        Ok(Self { traffic, rules, bearers, settings, save: file.save })
    }
}

impl BenchFile {
    fn settings(&self, faults: &mut Faults) -> RunSettings {
        let usual = RunSettings::default();
        let judge = JudgeSettings::default();
        let duration = self.duration_s.as_ref().map(|seconds| {
            let found = *seconds.get_ref();
            if !(found > 0.0 && found <= 1e6) {
                faults.add(
                    seconds.span(),
                    "duration_s",
                    format!("{found}: more than 0, and at most a million seconds"),
                );
            }
            Duration::try_from_secs_f64(found).unwrap_or_default()
        });
        let mut range = |value: &Option<Spanned<usize>>, field: &str, most: usize| {
            if let Some(value) = value.as_ref().filter(|value| !(1..=most).contains(value.get_ref())) {
                faults.add(
                    value.span(),
                    format!("judge.{field}"),
                    format!("{}: 1 to {most} are possible", value.get_ref()),
                );
            }
        };
        range(&self.judge.window, "window", WINDOW_MAX);
        range(&self.judge.keep, "keep", KEEP_MAX);
        let milliseconds =
            |given: Option<u32>, usual| given.map_or(usual, |ms| Duration::from_millis(ms.into()));
        let late = self.judge.late_after_ms.map(|ms| ms.max(0.0) * 1e6);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // A time; what is beyond saturates.
        let late_after_ns = late.map_or(judge.late_after_ns, |ns| ns as u64);
        RunSettings {
            duration: duration.unwrap_or(usual.duration),
            drain: milliseconds(self.drain_ms, usual.drain),
            resolve: milliseconds(self.resolve_ms, usual.resolve),
            threads: self.threads,
            judge: JudgeSettings {
                window: self.judge.window.as_ref().map_or(judge.window, |window| *window.get_ref()),
                late_after_ns,
                ordered: self.judge.ordered.unwrap_or(judge.ordered),
                keep: self.judge.keep.as_ref().map_or(judge.keep, |keep| *keep.get_ref()),
                workers: judge.workers,
            },
        }
    }

    fn rules(&self, faults: &mut Faults) -> Vec<Rule> {
        let names: Vec<String> = self.ports.iter().map(|port| port.get_ref().name.clone()).collect();
        let mut rules = Vec::new();
        for (place, bearers) in self.bearers.iter().enumerate() {
            let (span, found) = (bearers.span(), bearers.get_ref());
            let field = format!("bearers.{}", found.name);
            if self.bearers[..place].iter().any(|before| before.get_ref().name == found.name) {
                faults.add(span.clone(), format!("{field}.name"), "there already");
            }
            let rule = Rule::Bearers(found.of.clone());
            for problem in Oracle::new(std::slice::from_ref(&rule), &names).err().unwrap_or_default() {
                let rest = problem.field.trim_start_matches("expect[0].bearers");
                faults.add(span.clone(), format!("{field}.of{rest}"), problem.message);
            }
            for (side, name) in [(&found.of.access, "access"), (&found.of.core, "core")] {
                let port = self.ports.iter().find(|port| port.get_ref().name == side.port);
                let is_l2 = port.is_some_and(|port| port.get_ref().link == LinkMode::L2);
                if is_l2 && side.device_mac == Mac::default() {
                    let message = "the device's address must be given, or link = { l3 = … } of the port";
                    faults.add(span.clone(), format!("{field}.of.{name}.device_mac"), message);
                }
            }
            if found.judge {
                rules.push(rule);
            }
        }
        for (place, expect) in self.expects.iter().enumerate() {
            let rule = expect.get_ref().clone();
            for problem in Oracle::new(std::slice::from_ref(&rule), &names).err().unwrap_or_default() {
                let rest = problem.field.trim_start_matches("expect[0]");
                faults.add(expect.span(), format!("expect[{place}]{rest}"), problem.message);
            }
            rules.push(rule);
        }
        rules
    }

    /// A port, which in L3 mode answers for the access nodes of its bearers too.
    fn port(&self, port: &PortSpec) -> PortSpec {
        let mut port = port.clone();
        if let LinkMode::L3 { addresses, .. } = &mut port.link {
            for bearers in self.bearers.iter().map(|bearers| &bearers.get_ref().of) {
                if bearers.access.port == port.name {
                    let nodes = (0..bearers.peers.min(PEERS_MAX)).map(|n| bearers.peer(n));
                    addresses.extend(nodes.filter(|node| !addresses.contains(node)).collect::<Vec<_>>());
                }
            }
        }
        port
    }

    fn ports(&self, faults: &mut Faults) {
        for port in &self.ports {
            let found = port.get_ref();
            let mut wrong = |field: &str, message: &str| {
                faults.add(port.span(), format!("port.{}.{field}", found.name), message);
            };
            if found.driver == Driver::Memory {
                wrong("driver", "a port in memory is for programs that hold its other end");
            }
            if let LinkMode::L3 { addresses, gateways, vlan, .. } = &found.link {
                let has_own = |gateway: &std::net::IpAddr| {
                    addresses.iter().any(|own| own.is_ipv4() == gateway.is_ipv4())
                };
                if gateways.is_empty() || !gateways.iter().all(has_own) {
                    wrong("link.l3.gateways", "one at least, each with an own address of its family");
                }
                if vlan.is_some_and(|vlan| vlan > 4094) {
                    wrong("link.l3.vlan", "0 to 4094 are possible");
                }
            }
        }
    }

    /// A stream; `None` when something is wrong with it.
    fn stream(&self, stream: &Spanned<StreamFile>, faults: &mut Faults) -> Option<Stream> {
        let (span, found) = (stream.span(), stream.get_ref());
        let mut wrong = |field: &str, message: String| {
            faults.add(span.clone(), format!("stream.{}.{field}", found.name), message);
        };
        let mut port = found.port.clone();
        let source = match (&found.bearers, &found.template, &found.capture) {
            (Some(name), None, None) => {
                let bearers = self.bearers.iter().map(Spanned::get_ref).find(|bearers| bearers.name == *name);
                if bearers.is_none() {
                    wrong("bearers", format!("there are no bearers `{name}`"));
                }
                if found.direction.is_none() {
                    wrong("direction", "a stream over bearers is \"uplink\" or \"downlink\"".to_owned());
                }
                let (bearers, direction) = (bearers?, found.direction?);
                let lengths = found.lengths.clone().unwrap_or_default();
                let preset = Preset { direction, transport: found.transport, order: found.order, lengths };
                port.get_or_insert_with(|| preset.side(&bearers.of).port.clone());
                match preset.template(&bearers.of) {
                    Ok(template) => Source::Template(template),
                    Err(problems) => {
                        // Those of the bearers are told where they are.
                        let own =
                            problems.into_iter().filter(|problem| !problem.field.starts_with("bearers."));
                        own.for_each(|problem| wrong(&problem.field, problem.message));
                        return None;
                    }
                }
            }
            (None, Some(template), None) => {
                let mut template = template.clone();
                if let Some(lengths) = &found.lengths {
                    template.lengths = lengths.clone();
                }
                Source::Template(template)
            }
            (None, None, Some(capture)) => Source::Capture(capture.clone()),
            _ => {
                wrong("source", "one of bearers, template and capture says what is sent".to_owned());
                return None;
            }
        };
        if port.is_none() {
            wrong("port", "the port it goes out of must be named".to_owned());
        }
        Some(Stream {
            name: found.name.clone(),
            port: port?,
            source,
            rate: found.rate,
            mode: found.mode.clone(),
            delay_ns: found.delay_ns,
            trailer: found.trailer,
        })
    }

    /// Says of a problem where it is.
    fn place(&self, problem: &Problem, faults: &mut Faults) {
        let stream = problem.stream.and_then(|stream| self.streams.get(stream));
        let (at, field) = match (stream, &self.total) {
            (Some(stream), _) => {
                let field = problem.field.trim_start_matches("source.");
                (stream.span(), format!("stream.{}.{field}", stream.get_ref().name))
            }
            (None, Some(total)) if problem.field == "total" => (total.span(), problem.field.clone()),
            (None, _) => {
                let number = problem
                    .field
                    .strip_prefix("ports[")
                    .and_then(|rest| rest.split(']').next()?.parse().ok());
                let port = number.and_then(|number: usize| self.ports.get(number));
                (port.map_or(0..0, Spanned::span), problem.field.clone())
            }
        };
        faults.add(at, field, problem.message.clone());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PORTS: &str = r#"
        [[port]]
        name = "n3"
        driver = { af_packet = { interface = "veth0" } }
        [[port]]
        name = "n6"
        driver = { af_xdp = { interface = "veth1" } }
        link = { l3 = { addresses = ["10.0.0.2"], gateways = ["10.0.0.1"] } }
        line_bps = 10e9
    "#;
    const BEARERS: &str = r#"
        [[bearers]]
        name = "subscribers"
        [bearers.of]
        count = 1000000
        teid_first = 1
        access_teid_first = 1
        ue_first = "10.60.0.1"
        local = "10.100.3.1"
        peer_first = "10.100.3.2"
        peers = 100
        qfi = 9
        server = "8.8.8.8"
        access = { port = "n3", device_mac = "02:00:00:00:03:01", bench_mac = "02:00:00:00:03:02", tags = [{ first = 1, count = 1000 }] }
        core = { port = "n6" }
    "#;
    const STREAM: &str = r#"
        [[stream]]
        name = "up"
        bearers = "subscribers"
        direction = "uplink"
        lengths = { mix = [{ bytes = 128, weight = 7 }, { bytes = 1424, weight = 1 }] }
        rate = { pps = 1000.0 }
    "#;

    fn faults(text: &str) -> Vec<(String, String)> {
        let faults = BenchPlan::parse(text).unwrap_err();
        faults.into_iter().map(|fault| (fault.field, fault.message)).collect()
    }

    #[test]
    fn a_file_is_a_plan() {
        let text = format!(
            "duration_s = 2.5\nthreads = \"apart\"\nsave = \"wrong.pcapng\"\n[judge]\nlate_after_ms = 5.0\n{PORTS}{BEARERS}{STREAM}"
        );
        let plan = BenchPlan::parse(&text).unwrap();
        assert_eq!(plan.settings.duration, Duration::from_millis(2500));
        assert_eq!(plan.settings.threads, Threads::Apart);
        assert_eq!(plan.settings.judge.late_after_ns, 5_000_000);
        assert_eq!((plan.rules.len(), plan.traffic.streams.len()), (1, 1));
        assert_eq!(plan.traffic.streams[0].port, "n3");
        let packet = CompiledTraffic::new(&plan.traffic).unwrap().packet(0, 1234, 0).unwrap();
        // The tag of bearer 1234, and behind it access node 34.
        assert_eq!(packet[14..16], 235u16.to_be_bytes());
        assert_eq!(packet[30..34], [10, 100, 3, 36]);
        let text = text
            .replace("{ port = \"core\" }", "")
            .replace("access = { port = \"n3\"", "access = { port = \"n6\"");
        let LinkMode::L3 { addresses, .. } = &BenchPlan::parse(&text).unwrap().traffic.ports[1].link else {
            panic!("n6 is in L3 mode")
        };
        let own = |last| std::net::IpAddr::from([10, 100, 3, last]);
        assert_eq!(addresses.len(), 101, "its own, and those of the access nodes behind it");
        assert!(addresses.contains(&own(2)) && addresses.contains(&own(101)));
    }

    /// `bench/pgw-u.toml`: all tenants and all SGWs, whatever the number of bearers.
    #[test]
    fn the_scenario_of_the_pgw_u_comes_in_sizes() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/pgw-u.toml");
        let text = std::fs::read_to_string(path).unwrap();
        for (bearers, count) in [(None, 1_000_000), (Some(10_000), 10_000), (Some(1000), 1000)] {
            let plan = BenchPlan::parse_of(&text, bearers).unwrap();
            let [Rule::Bearers(of)] = &plan.rules[..] else { panic!("{:?}", plan.rules) };
            assert_eq!((of.count, of.peers, of.core.tags[0].count, of.qfi), (count, 100, 1000, None));
            let compiled = CompiledTraffic::new(&plan.traffic).unwrap();
            let last = u64::from(count) - 1;
            // Uplink: behind the last SGW, with the last TEID. Downlink: in the last tenant's VLAN.
            let uplink = compiled.packet(0, last, 0).unwrap();
            assert_eq!(uplink[26..30], [10, 100, 3, 101]);
            assert_eq!(uplink[46..50], count.to_be_bytes());
            assert_eq!(compiled.packet(1, last, 0).unwrap()[12..16], [0x81, 0, 3, 0xe8]);
        }
        let refused = BenchPlan::parse_of(&text, Some(1001)).unwrap_err();
        assert!(
            refused.iter().all(|fault| fault.field.starts_with("bearers.subscribers.of.")),
            "{refused:?}"
        );
    }

    #[test]
    fn everything_wrong_has_its_place() {
        let text = format!("{PORTS}{BEARERS}{STREAM}")
            .replace("\"subscribers\"\n        direction", "\"nobody\"\n        direction");
        assert_eq!(
            faults(&text),
            [("stream.up.bearers".to_owned(), "there are no bearers `nobody`".to_owned())]
        );
        let text = format!("duration_s = -1\n{PORTS}{BEARERS}{STREAM}[[expect]]\nunchanged = {{ from = \"n3\", to = \"n9\" }}\n")
            .replace("peers = 100", "peers = 101")
            .replace("device_mac = \"02:00:00:00:03:01\", ", "");
        let found = faults(&text);
        let fields: Vec<_> = found.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "duration_s",
                "bearers.subscribers.of.peers",
                "bearers.subscribers.of.access.device_mac",
                "expect[0].unchanged.to"
            ]
        );
        let text = format!("{PORTS}{BEARERS}{STREAM}").replace("pps = 1000.0", "percent = 10.0");
        assert_eq!(faults(&text)[0].0, "stream.up.rate");
        let fault = &BenchPlan::parse(&text).unwrap_err()[0];
        assert!(text[fault.at.clone()].starts_with("[[stream]]"), "{}", &text[fault.at.clone()]);
    }

    #[test]
    fn misspelt_fields_are_refused() {
        let text = format!("{PORTS}{BEARERS}{STREAM}").replace("lengths", "lenghts");
        let fault = &BenchPlan::parse(&text).unwrap_err()[0];
        assert!(fault.message.contains("unknown field `lenghts`"), "{}", fault.message);
        assert!(text[fault.at.clone()].contains("lenghts"));
        let streamless = faults(PORTS);
        assert!(streamless[0].1.contains("missing field `stream`"), "{streamless:?}");
        let memory = format!("{PORTS}{BEARERS}{STREAM}")
            .replace("{ af_packet = { interface = \"veth0\" } }", "\"memory\"");
        assert_eq!(faults(&memory)[0].0, "port.n3.driver");
    }

    proptest! {
        #[test]
        fn any_text_is_a_plan_or_refused(text: String, at in 0usize..1500, put: char) {
            let _ = BenchPlan::parse(&text);
            let mut whole: Vec<char> = format!("{PORTS}{BEARERS}{STREAM}").chars().collect();
            let at = at % whole.len();
            whole[at] = put;
            let changed: String = whole.into_iter().collect();
            for fault in BenchPlan::parse(&changed).err().unwrap_or_default() {
                prop_assert!(fault.at.end <= changed.len());
            }
        }
    }
}
