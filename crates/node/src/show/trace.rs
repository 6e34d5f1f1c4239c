//! `kaido trace` and `kaido capture`: what becomes of the packets of a session, as text and as a file.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command};
use miette::{IntoDiagnostic, WrapErr, miette};

use super::ask;
use super::filter::{self, Filter};
use super::pcapng::Pcapng;
use super::traced::rule_of;
use crate::api::{
    self, BeginTrace, EndTrace, Flow, PacketDisposition, ReadTrace, TraceBegun, TraceOf, TraceRead,
    TracedPacket,
};
use crate::function::{FlowSelector, NetworkFunction};

/// How often the node is asked.
const PACE: Duration = Duration::from_millis(100);

/// Whose packets, and how long.
#[derive(Debug, clap::Args)]
pub struct TraceArgs {
    #[command(flatten)]
    of: FrameOf,
    /// Packets after which it ends; without it and without --seconds it goes on until interrupted.
    #[arg(long, value_name = "N", value_parser = packets)]
    count: Option<usize>,
    /// Seconds after which it ends.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Only packets that meet it: host, net, port, proto, teid and ue, joined by `and`, such as "host 10.6.0.2 and port 53".
    #[arg(long, value_name = "FILTER")]
    filter: Option<Filter>,
}

#[derive(Debug, clap::Args)]
#[group(required = false, multiple = false)]
struct FrameOf {
    /// A port of a function without sessions; may be given again. All ports when nothing is given.
    #[arg(long, value_name = "NAME")]
    port: Vec<String>,
}

/// Where to, and how much.
#[derive(Debug, clap::Args)]
pub struct CaptureArgs {
    #[command(flatten)]
    trace: TraceArgs,
    /// The pcapng file to write; `-` is standard output, for `| tshark -r -`.
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// Octets of each frame that are kept.
    #[arg(long, value_name = "OCTETS", default_value_t = 65_535)]
    snap: usize,
}

fn packets(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => {
            Err("no packet would be shown; write 1 or more, or leave --count out to go on until interrupted"
                .to_owned())
        }
        parsed => parsed.map_err(|_| format!("`{text}` is no number of packets")),
    }
}

/// Adds the options of the functions that name flows to `trace` and `capture`.
pub fn with_selectors(command: Command, functions: &[&dyn NetworkFunction]) -> Command {
    let selectors = || functions.iter().flat_map(|function| function.selectors());
    let option = |selector: &FlowSelector| {
        let check = selector.check;
        let parser = move |text: &str| check(text).map(|()| text.to_owned());
        let option = Arg::new(selector.name).long(selector.name).value_name(selector.value_name);
        option.help(selector.help).value_parser(parser).group("FrameOf")
    };
    ["trace", "capture"]
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |sub| sub.args(selectors().map(option))))
}

/// The flow that the options of the functions name, if they do.
pub fn flow_of(matches: &ArgMatches, functions: &[&dyn NetworkFunction]) -> Option<TraceOf> {
    let mut selectors = functions.iter().flat_map(|function| function.selectors());
    selectors.find_map(|selector| {
        let value: &String = matches.get_one(selector.name)?;
        Some(TraceOf::Flow(Flow { by: selector.name.to_owned(), value: value.clone() }))
    })
}

/// A trace on a node, ended when dropped.
struct Trace<'s> {
    socket: &'s Path,
    id: u32,
    ports: Vec<String>,
}

impl<'s> Trace<'s> {
    fn begin(socket: &'s Path, args: &TraceArgs, flow: Option<TraceOf>, snap: usize) -> miette::Result<Self> {
        let of = flow.unwrap_or_else(|| TraceOf::Ports(args.of.port.clone()));
        let TraceBegun { id, ports } = ask(socket, &BeginTrace { of, snap })?;
        Ok(Self { socket, id, ports })
    }

    fn read(&self) -> miette::Result<TraceRead> {
        ask(self.socket, &ReadTrace { id: self.id })
    }
}

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        // If it cannot be told, the node ends it by itself.
        let _ = ask(self.socket, &EndTrace { id: self.id });
    }
}

/// Hands the packets of a trace on, until there are enough of them or the time is over; returns how many there were and how
/// many were lost.
fn follow(
    trace: &Trace<'_>,
    args: &TraceArgs,
    mut each: impl FnMut(&TracedPacket) -> miette::Result<()>,
    mut after_each_read: impl FnMut() -> miette::Result<()>,
) -> miette::Result<(usize, u64)> {
    let ends = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut seen, mut lost, mut told) = (0, 0, None);
    loop {
        let read = trace.read()?;
        if told != Some(read.of.len()) {
            told = Some(read.of.len());
            match &read.of[..] {
                [] => eprintln!("no session matches now; waiting for one"),
                traced => eprintln!("tracing {}", traced.join(" ")),
            }
        }
        lost += read.lost;
        let admitted =
            |packet: &&TracedPacket| args.filter.as_ref().is_none_or(|filter| filter.admits(packet));
        for packet in read.packets.iter().filter(admitted) {
            each(packet)?;
            seen += 1;
            if args.count.is_some_and(|count| seen >= count) {
                after_each_read()?;
                return Ok((seen, lost));
            }
        }
        after_each_read()?;
        if ends.is_some_and(|ends| Instant::now() >= ends) {
            return Ok((seen, lost));
        }
        std::thread::sleep(PACE);
    }
}

fn tell_lost(lost: u64) {
    if lost > 0 {
        eprintln!("{lost} packets came faster than they were read, and are not shown");
    }
}

/// `kaido trace`, of a flow or else of ports.
///
/// # Errors
/// When no node answers, or it does not take the trace.
pub fn trace(socket: &Path, json: bool, args: &TraceArgs, flow: Option<TraceOf>) -> miette::Result<()> {
    let snap = match (json, &args.filter) {
        (true, _) => 65_535,
        (false, Some(_)) => filter::SNAP,
        (false, None) => 0,
    };
    let trace = Trace::begin(socket, args, flow, snap)?;
    let print = |packet: &TracedPacket| {
        if json {
            println!("{}", serde_json::to_string(packet).into_diagnostic()?);
        } else {
            print!("{}", described(packet));
        }
        Ok(())
    };
    let (_, lost) = follow(&trace, args, print, || std::io::stdout().flush().into_diagnostic())?;
    tell_lost(lost);
    Ok(())
}

/// `kaido capture`, of a flow or else of ports.
///
/// # Errors
/// When no node answers, it does not take the trace, or the file cannot be written.
pub fn capture(socket: &Path, args: &CaptureArgs, flow: Option<TraceOf>) -> miette::Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    if args.write.as_os_str() == "-" && is_terminal {
        return Err(miette!(
            help = "pipe it: `kaido capture ... -w - | tshark -r -`",
            "a capture is no text for a terminal"
        ));
    }
    // What is kept must do for the filter.
    let least = args.trace.filter.as_ref().map_or(0, |_| filter::SNAP);
    let trace = Trace::begin(socket, &args.trace, flow, args.snap.max(least))?;
    let failed = || format!("cannot write {}", args.write.display());
    let to: Box<dyn Write> = match args.write.as_os_str() == "-" {
        true => Box::new(std::io::stdout().lock()),
        false => Box::new(File::create(&args.write).into_diagnostic().wrap_err_with(failed)?),
    };
    let writer = Pcapng::new(BufWriter::new(to), &trace.ports).into_diagnostic().wrap_err_with(failed)?;
    let writer = std::cell::RefCell::new(writer);
    let write =
        |packet: &TracedPacket| writer.borrow_mut().packet(packet).into_diagnostic().wrap_err_with(failed);
    let flush = || writer.borrow_mut().flush().into_diagnostic().wrap_err_with(failed);
    let (seen, lost) = follow(&trace, &args.trace, write, flush)?;
    tell_lost(lost);
    eprintln!("{seen} packets in {}", args.write.display());
    Ok(())
}

/// A packet's way in lines.
fn described(packet: &TracedPacket) -> String {
    let (seconds, ns) = (packet.time_ns / 1_000_000_000, packet.time_ns % 1_000_000_000);
    let qfi = packet.qfi.map(|qfi| format!(" qfi {qfi}")).unwrap_or_default();
    let mut text = match &packet.direction[..] {
        api::OUT => format!("{seconds}.{ns:09} out\n"),
        api::IN => format!("{seconds}.{ns:09} {} in {} B\n", packet.port, packet.frame.len),
        direction => format!(
            "{seconds}.{ns:09} {direction} {} in {} B by {}{qfi}, session {}\n",
            packet.port, packet.frame.len, packet.key, packet.seid
        ),
    };
    match (&packet.rule, packet.matched_ns) {
        _ if packet.is_of_port() => {}
        (Some(_), Some(ns)) => {
            text.push_str(&format!("  {:>9}  match  {}\n", after(ns), rule_of(packet)));
        }
        _ => text.push_str("             match  no rule\n"),
    }
    for disposition in &packet.dispositions {
        let what = match disposition {
            PacketDisposition::Sent { port, frame } => format!("send   {port} {} B", frame.len),
            PacketDisposition::Dropped { reason } => format!("drop   {reason}"),
            PacketDisposition::Kernel => "leave  to the kernel".to_owned(),
        };
        text.push_str(&format!("  {:>9}  {what}\n", after(packet.took_ns)));
    }
    let waits = match &packet.verdict[..] {
        "buffered" => Some("keep   in the session's buffer"),
        "waits" if packet.is_of_port() => Some("keep   for now"),
        "waits" => Some("wait   for the next hop, or for the rest of its packet"),
        _ => None,
    };
    if let Some(what) = waits {
        text.push_str(&format!("  {:>9}  {what}\n", after(packet.took_ns)));
    }
    text
}

fn after(ns: u64) -> String {
    format!("+{}.{:03} us", ns / 1000, ns % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{TracedFrame, TracedRule};

    #[test]
    fn a_packets_way_reads_well() {
        let frame = |len| TracedFrame { len, octets: String::new() };
        let mut packet = TracedPacket {
            time_ns: 1_000_000_000_000_000_005,
            seid: "0x8000000000000001".to_owned(),
            direction: "uplink".to_owned(),
            port: "n3".to_owned(),
            key: "0x000003ef@10.100.3.1".to_owned(),
            qfi: Some(9),
            rule: Some(TracedRule {
                pdr: 1,
                precedence: Some(255),
                far: Some(1),
                qers: vec![1, 2],
                urrs: vec![],
            }),
            matched_ns: Some(1234),
            took_ns: 5006,
            verdict: "sent".to_owned(),
            frame: frame(178),
            dispositions: vec![PacketDisposition::Sent { port: "n6".to_owned(), frame: frame(142) }],
        };
        assert_eq!(
            described(&packet),
            "1000000000.000000005 uplink n3 in 178 B by 0x000003ef@10.100.3.1 qfi 9, session 0x8000000000000001\n  \
             +1.234 us  match  PDR 1, precedence 255, FAR 1, QER 1 2\n  +5.006 us  send   n6 142 B\n"
        );
        packet.rule = None;
        packet.dispositions = vec![PacketDisposition::Dropped { reason: "no_pdr".to_owned() }];
        assert!(described(&packet).ends_with("match  no rule\n  +5.006 us  drop   no_pdr\n"));
    }

    #[test]
    fn a_count_is_of_packets() {
        assert_eq!(packets("17"), Ok(17));
        assert!(packets("0").unwrap_err().contains("write 1 or more") && packets("x").is_err());
    }
}
