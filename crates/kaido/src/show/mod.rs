//! `kaido status`, `sessions`, `drops`, `show`, `trace` and `capture`: questions to a running node, answers as tables.

mod filter;
mod gre;
mod pcapng;
mod session;
mod trace;
mod workers;

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use kaido_n4::Imsi;
use miette::{IntoDiagnostic, WrapErr, miette};

pub(crate) use self::gre::gre;
pub(crate) use self::session::session;
pub(crate) use self::trace::seid;
pub(crate) use self::trace::{CaptureArgs, TraceArgs, capture, trace};
use crate::api::{Answer, Count, Form, GtpuPath, Port, Question, SessionsOf, SlowPath, Status, UpfStatus};

/// Which sessions are listed; with several, those that meet all.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArgs {
    /// Only the sessions of a UE's address.
    #[arg(long, value_name = "ADDRESS")]
    ue: Option<IpAddr>,
    /// Only the sessions with that TEID at this node's end of a tunnel.
    #[arg(long, value_parser = teid)]
    teid: Option<u32>,
    /// Only the session with that SEID of this node.
    #[arg(long, value_parser = trace::seid)]
    seid: Option<u64>,
    /// Only the sessions of a subscriber, where the control plane tells (User ID).
    #[arg(long)]
    imsi: Option<Imsi>,
}

impl SessionsArgs {
    /// As the node is asked.
    pub(crate) fn wanted(&self) -> SessionsOf {
        SessionsOf { ue: self.ue, teid: self.teid, seid: self.seid, imsi: self.imsi }
    }
}

fn teid(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is no TEID; write 0x000003ef or a decimal number"))
}

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

fn ask(socket: &Path, question: &Question) -> miette::Result<Answer> {
    let mut stream = UnixStream::connect(socket).map_err(|error| {
        miette!(
            help = "is `kaido run` running, and is its control.socket this path? Name another with --socket",
            "cannot reach a node at {}: {error}",
            socket.display()
        )
    })?;
    stream.set_read_timeout(Some(PATIENCE)).into_diagnostic()?;
    let mut line = serde_json::to_string(question).into_diagnostic()?;
    line.push('\n');
    stream.write_all(line.as_bytes()).into_diagnostic().wrap_err("the node does not listen")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).into_diagnostic().wrap_err("the node does not answer")?;
    match serde_json::from_str(&answer).into_diagnostic().wrap_err("the node is of another version")? {
        Answer::Error { message } => Err(miette!("the node refused the question: {message}")),
        answer => Ok(answer),
    }
}

fn unexpected(answer: &Answer) -> miette::Report {
    let kind = serde_json::to_value(answer).ok();
    let kind = kind.as_ref().and_then(|answer| answer.get("answer")?.as_str()).unwrap_or("nothing known");
    miette!(
        help = "`kaido --version` and the first line of `kaido status` must be the same",
        "the node answered with `{kind}`, which is no answer to the question: it is of another version"
    )
}

fn print_json(answer: &Answer) -> miette::Result<()> {
    println!("{}", serde_json::to_string_pretty(answer).into_diagnostic()?);
    Ok(())
}

/// Prints rows under headings, each column as wide as its widest cell.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) {
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(String::len);
        cells.chain([headings[at].len()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..headings.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<_> = cells.zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        println!("{}", padded.join("  ").trim_end());
    };
    line(&mut headings.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
}

/// `kaido status`.
pub(crate) fn status(socket: &Path, json: bool) -> miette::Result<()> {
    let answer = ask(socket, &Question::Status)?;
    let Answer::Status(status) = &answer else { return Err(unexpected(&answer)) };
    if json {
        return print_json(&answer);
    }
    println!(
        "kaido {}  {} node {}  up {} s",
        status.version, status.function, status.node_id, status.uptime_s
    );
    if let Some(upf) = &status.upf {
        println!(
            "{} of {} sessions, {} workers, uplink {} B, downlink {} B",
            upf.sessions, upf.sessions_max, status.workers, upf.uplink_bytes, upf.downlink_bytes
        );
    }
    let table = status.upf.as_ref().map(|upf| format!("; session records in {}", upf.table_pages));
    println!(
        "{} of {} frames of {} bytes free, in {}{}",
        status.frames_free,
        status.frames,
        status.frame_bytes,
        status.frame_pages,
        table.unwrap_or_default()
    );
    let (packets, bytes) = status
        .ports
        .iter()
        .fold((0, 0), |(packets, bytes), port| (packets + port.kernel_packets, bytes + port.kernel_bytes));
    match status.upf.as_ref().and_then(|upf| upf.kernel.as_ref()) {
        Some(kernel) => {
            let records = kernel.records;
            println!(
                "{}: {records} records in the kernel, which forwarded {packets} packets, {bytes} B",
                datapath(status)
            );
            for refusal in &kernel.refusals {
                println!("datapath: the workers send out of port {}: {}", refusal.port, refusal.why);
            }
            if let Some(why) = &kernel.idle {
                println!("datapath: the kernel forwards nothing: {why}");
            }
        }
        None if status.datapath != "engine" => {
            println!("{}: the kernel forwarded {packets} packets, {bytes} B", datapath(status));
        }
        None => println!("{}", datapath(status)),
    }
    println!();
    ports(&status.ports);
    println!();
    workers::print(&status.per_worker);
    if let Some(upf) = &status.upf {
        println!();
        upf_status(upf);
    }
    Ok(())
}

/// Which datapath there is, and why where the node has chosen.
fn datapath(status: &Status) -> String {
    let Status { datapath, datapath_configured, datapath_reason, .. } = status;
    if datapath == datapath_configured {
        return format!("datapath {datapath}");
    }
    format!("datapath {datapath} ({datapath_configured}: {datapath_reason})")
}

/// The ports of `kaido status`.
fn ports(ports: &[Port]) {
    let rows: Vec<_> = ports
        .iter()
        .map(|port| {
            vec![
                port.name.clone(),
                port.how.clone(),
                port.state.clone(),
                port.mtu.to_string(),
                port.rx_packets.to_string(),
                port.rx_bytes.to_string(),
                port.tx_packets.to_string(),
                port.tx_bytes.to_string(),
                port.to_kernel.to_string(),
                port.dropped.to_string(),
                port.kernel_packets.to_string(),
            ]
        })
        .collect();
    let headings =
        ["port", "driver", "state", "mtu", "rx packets", "rx bytes", "tx packets", "tx bytes", "to kernel"];
    table(&[&headings[..], &["dropped", "in kernel"]].concat(), &rows);
    for port in ports {
        if let Some(trouble) = &port.trouble {
            println!("port {}: {trouble}", port.name);
        }
    }
}

/// What only a user plane has.
fn upf_status(upf: &UpfStatus) {
    let peers: Vec<_> = upf
        .peers
        .iter()
        .map(|peer| {
            let state = if peer.up { "up" } else { "down" };
            vec![peer.node_id.clone(), peer.address.clone(), state.to_owned(), peer.sessions.to_string()]
        })
        .collect();
    table(&["control plane", "address", "state", "sessions"], &peers);
    if !upf.paths.is_empty() {
        println!();
        paths(&upf.paths);
    }
    if !upf.forms.is_empty() {
        println!();
        forms(&upf.forms);
    }
    if !upf.slow_path.is_empty() {
        println!();
        slow_path(&upf.slow_path);
    }
    println!();
    counts(["pfcp", "count"], &upf.pfcp);
    if let Some(kernel) = &upf.kernel {
        println!();
        counts(["left by the kernel", "packets"], &kernel.handed);
    }
}

/// Which sessions take the fast path, and why others may not.
fn forms(forms: &[Form]) {
    let row = |form: &Form| {
        let what = match (&*form.path, &form.reason) {
            (_, Some([_, why])) => why.clone(),
            ("fast", _) => "one rule a key, in its record".to_owned(),
            ("lines", _) => "several rules a key, in cache lines".to_owned(),
            _ => "the FAR buffers, drops or has no tunnel yet, or the gate is closed".to_owned(),
        };
        vec![form.path.clone(), form.sessions.to_string(), what]
    };
    table(&["path", "sessions", "rules"], &forms.iter().map(row).collect::<Vec<_>>());
}

/// What took the slow path, the most first.
fn slow_path(counts: &[SlowPath]) {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.packets));
    let row =
        |count: &&SlowPath| vec![count.reason.clone(), count.packets.to_string(), count.sentence.clone()];
    table(&["slow path", "packets", "why"], &counts.iter().map(row).collect::<Vec<_>>());
}

fn counts(headings: [&str; 2], counts: &[Count]) {
    let rows: Vec<_> = counts.iter().map(|count| vec![count.name.clone(), count.count.to_string()]).collect();
    table(&headings, &rows);
}

/// The GTP-U part of `kaido status`.
fn paths(paths: &[GtpuPath]) {
    let row = |path: &GtpuPath| {
        let state = match path.up {
            Some(true) => "up",
            Some(false) => "down",
            None => "asked",
        };
        vec![
            path.peer.clone(),
            state.to_owned(),
            path.tunnels.to_string(),
            path.echo_requests.to_string(),
            path.echo_responses.to_string(),
            path.failures.to_string(),
            path.restarts.to_string(),
        ]
    };
    let rows: Vec<_> = paths.iter().map(row).collect();
    table(&["gtp-u peer", "state", "tunnels", "echo requests", "responses", "failures", "restarts"], &rows);
}

/// The first addresses of a session: an Ethernet session may have many.
fn shown(addresses: &[String]) -> String {
    const SHOWN: usize = 4;
    let mut text = addresses.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(" ");
    if let Some(more) = addresses.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        text.push_str(&format!(" +{more}"));
    }
    text
}

/// `kaido sessions`.
pub(crate) fn sessions(
    socket: &Path,
    json: bool,
    (skip, limit): (usize, usize),
    of: SessionsOf,
) -> miette::Result<()> {
    let answer = ask(socket, &Question::Sessions { skip, limit, of })?;
    let Answer::Sessions { total, sessions } = &answer else { return Err(unexpected(&answer)) };
    if json {
        return print_json(&answer);
    }
    let rows: Vec<_> = sessions
        .iter()
        .map(|session| {
            vec![
                session.seid.clone(),
                shown(&session.ue),
                session.local.join(" "),
                session.remote.join(" "),
                format!("{}/{}/{}/{}", session.pdrs, session.fars, session.qers, session.urrs),
                session.uplink_bytes.to_string(),
                session.downlink_bytes.to_string(),
            ]
        })
        .collect();
    table(
        &["seid", "ue", "local tunnel", "remote tunnel", "pdr/far/qer/urr", "uplink B", "downlink B"],
        &rows,
    );
    let shown = skip + rows.len();
    if shown < *total {
        println!("… {} more: --skip {shown}", total - shown);
    }
    Ok(())
}

/// `kaido drops`.
pub(crate) fn drops(socket: &Path, json: bool) -> miette::Result<()> {
    let answer = ask(socket, &Question::Drops)?;
    let Answer::Drops { drops } = &answer else { return Err(unexpected(&answer)) };
    if json {
        return print_json(&answer);
    }
    if drops.is_empty() {
        println!("nothing was dropped");
        return Ok(());
    }
    let rows: Vec<_> = drops
        .iter()
        .map(|drop| {
            vec![drop.port.clone(), drop.reason.clone(), drop.packets.to_string(), drop.meaning.clone()]
        })
        .collect();
    table(&["port", "reason", "packets", "meaning"], &rows);
    Ok(())
}
