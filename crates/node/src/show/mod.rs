//! `kaido status`, `drops`, `routes`, `neighbours`, `trace` and `capture`: questions to a running node, answers as tables. A function asks and answers in the
//! same way what only it has.

mod client;
mod filter;
mod ip;
mod pcapng;
mod reload;
pub mod target;
mod trace;
mod traced;
mod upgrade;
mod workers;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use miette::IntoDiagnostic;
use serde::Serialize;

pub use self::client::ask;
pub use self::ip::{NeighboursArgs, RoutesArgs, neighbours, routes};
pub(crate) use self::pcapng::Pcapng;
pub use self::reload::reload;
pub use self::target::{ControlTarget, Watch};
pub use self::trace::{CaptureArgs, TraceArgs, capture, flow_of, trace, with_selectors};
pub use self::upgrade::upgrade;
use crate::api::{Count, Drops, GetLog, GetNode, LastReload, ListDrops, LogLevel, Port, SetLog, Status};
use crate::function::NetworkFunction;

/// Reads a number as it is written: 0x000003ef or decimal.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Prints an answer as JSON.
///
/// # Errors
/// When it cannot be written so.
pub fn print_json(answer: &impl Serialize) -> miette::Result<()> {
    println!("{}", serde_json::to_string_pretty(answer).into_diagnostic()?);
    Ok(())
}

/// Prints rows under headings, each column as wide as its widest cell.
pub fn table(headings: &[&str], rows: &[Vec<String>]) {
    print!("{}", table_text(headings, rows));
}

/// Rows under headings, each column as wide as its widest cell.
pub fn table_text(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(headings).add_rows(rows);
    table.column_iter_mut().for_each(|column| _ = column.set_padding((0, 2)));
    format!("{}\n", table.trim_fmt())
}

/// `kaido status`.
///
/// # Errors
/// When no node answers.
pub fn status(socket: &Path, json: bool, functions: &[&dyn NetworkFunction]) -> miette::Result<()> {
    let status = ask(socket, &GetNode {})?;
    if json {
        return print_json(&status);
    }
    println!(
        "kaido {}  {} node {}  process {}, up {} s",
        status.version, status.function, status.node_id, status.pid, status.uptime_s
    );
    println!(
        "{} workers, {} of {} frames of {} bytes free, in {}",
        status.workers, status.frames_free, status.frames, status.frame_bytes, status.frame_pages
    );
    println!("{}", datapath(&status));
    if let Some(LastReload { at, refused }) = &status.reload {
        let ago =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().saturating_sub(*at);
        match refused {
            None => println!("configuration: read again and taken {ago} s ago"),
            Some(why) => println!("configuration: read again {ago} s ago and refused: {}", why.trim()),
        }
    }
    let running = status
        .function
        .split(", ")
        .filter_map(|name| functions.iter().find(|function| function.name() == name));
    let running: Vec<_> = running.collect();
    running.iter().for_each(|function| function.print_summary(&status));
    println!();
    ports(&status.ports);
    println!();
    workers::print(&status.per_worker);
    running.iter().for_each(|function| function.print_status(&status));
    Ok(())
}

/// Which datapath there is, why where the node has chosen, and what the kernel has forwarded.
fn datapath(status: &Status) -> String {
    let Status { datapath, datapath_configured, datapath_reason, .. } = status;
    let mut text = format!("datapath {datapath}");
    if datapath != datapath_configured {
        text.push_str(&format!(" ({datapath_configured}: {datapath_reason})"));
    }
    if datapath != "engine" {
        let of = |value: fn(&Port) -> u64| status.ports.iter().map(value).sum::<u64>();
        let (packets, bytes) = (of(|port| port.kernel_packets), of(|port| port.kernel_bytes));
        text.push_str(&format!(": the kernel forwarded {packets} packets, {bytes} B"));
    }
    text
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

/// Prints named counts under headings.
pub fn counts(headings: [&str; 2], counts: &[Count]) {
    let rows: Vec<_> = counts.iter().map(|count| vec![count.name.clone(), count.count.to_string()]).collect();
    table(&headings, &rows);
}

/// `kaido log`.
///
/// # Errors
/// When no node answers, or it is no level.
pub fn log(socket: &Path, level: Option<String>) -> miette::Result<()> {
    let LogLevel { level } = match level {
        Some(level) => ask(socket, &SetLog { level })?,
        None => ask(socket, &GetLog {})?,
    };
    println!("{level}");
    Ok(())
}

/// `kaido drops`.
///
/// # Errors
/// When no node answers.
pub fn drops(socket: &Path, json: bool) -> miette::Result<()> {
    let answer = ask(socket, &ListDrops {})?;
    if json {
        return print_json(&answer);
    }
    let Drops { drops } = answer;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_look() {
        let rows = [["a", "5 µs", "x"], ["longer", "70 ms", ""]].map(|row| row.map(str::to_owned).to_vec());
        let text = table_text(&["name", "after", "more"], &rows);
        assert_eq!(text, "name    after  more\na       5 µs   x\nlonger  70 ms\n");
        assert_eq!(table_text(&["name", "after"], &[]), "name  after\n");
    }
}
