//! Lists, as tables or as JSON.

use kaido_node::show::table;
use miette::{IntoDiagnostic, miette};
use serde::Serialize;

use super::entries::{self, Disk, HandoffRow, HotName, Traffic, Worker, Workers};
use crate::client::{Consumer, dataset};

/// A dataset of the router.
pub(super) fn fetch(router: &mut Consumer, path: &str) -> miette::Result<Vec<u8>> {
    dataset(router, path).map_err(|error| {
        miette!(
            help = "is it a forwarder that answers /localhost/nfd to this host's applications?",
            "{error}"
        )
    })
}

/// Prints as JSON.
pub(super) fn print(value: &impl Serialize) -> miette::Result<()> {
    println!("{}", serde_json::to_string_pretty(value).into_diagnostic()?);
    Ok(())
}

fn counts(traffic: &Traffic) -> [String; 4] {
    [traffic.interests, traffic.data, traffic.nacks, traffic.bytes].map(|count| count.to_string())
}

/// `kaido ndn status`.
pub(super) fn status(router: &mut Consumer, json: bool) -> miette::Result<()> {
    let mut status = entries::status(&fetch(router, "status/general")?)?;
    // No other router has this dataset.
    if status.version.starts_with("Kaido ") {
        status.workers = Some(entries::workers(&fetch(router, "status/workers")?)?);
    }
    if json {
        return print(&status);
    }
    println!("{}  up {} s", status.version, status.uptime_ms / 1000);
    println!(
        "{} prefixes with next hops, {} Interests pending, {} Data kept",
        status.fib_entries, status.pit_entries, status.cs_entries
    );
    println!("Interests satisfied {}, not {}", status.satisfied, status.unsatisfied);
    println!();
    let row = |direction: &str, traffic: &Traffic| {
        std::iter::once(direction.to_owned()).chain(counts(traffic).into_iter().take(3)).collect::<Vec<_>>()
    };
    table(
        &["packets", "interests", "data", "nacks"],
        &[row("received", &status.received), row("sent", &status.sent)],
    );
    if let Some(shared) = &status.workers {
        workers(shared);
    }
    Ok(())
}

/// The workers, and the names that are hot.
fn workers(shared: &Workers) {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let row = |worker: &Worker| {
        let HandoffRow { interests, data, nacks } = worker.handoffs;
        vec![
            worker.worker.to_string(),
            worker.packets.to_string(),
            percent(worker.share),
            (interests + data + nacks).to_string(),
            format!("{} of {}", worker.pit_entries, worker.pit_max),
            format!("{} of {}", worker.cs_entries, worker.cs_max),
        ]
    };
    println!();
    table(
        &["worker", "packets", "share", "handed over", "pending", "kept"],
        &shared.workers.iter().map(row).collect::<Vec<_>>(),
    );
    if shared.hot_names.is_empty() {
        return;
    }
    let row = |hot: &HotName| {
        vec![hot.name.clone().unwrap_or_else(|| "not seen yet".to_owned()), percent(hot.share)]
    };
    println!();
    table(&["hot name", "share"], &shared.hot_names.iter().map(row).collect::<Vec<_>>());
}

/// `kaido ndn face list`.
pub(super) fn faces(router: &mut Consumer, json: bool) -> miette::Result<()> {
    let faces = entries::faces(&fetch(router, "faces/list")?)?;
    if json {
        return print(&faces);
    }
    let rows: Vec<Vec<String>> = faces
        .iter()
        .map(|face| {
            let said = [face.face.to_string(), face.remote.clone(), face.local.clone()];
            let reliable = if face.reliability { "on" } else { "off" };
            let kind = [face.scope, face.persistency, face.link, reliable].map(str::to_owned);
            let received = counts(&face.received);
            said.into_iter().chain(kind).chain(received).chain(counts(&face.sent)).collect()
        })
        .collect();
    let headings =
        ["face", "remote", "local", "scope", "persistency", "link", "reliability", "in interests", "in data"];
    table(
        &[&headings[..], &["in nacks", "in bytes", "out interests", "out data", "out nacks", "out bytes"]]
            .concat(),
        &rows,
    );
    Ok(())
}

/// `kaido ndn route list`.
pub(super) fn routes(router: &mut Consumer, json: bool) -> miette::Result<()> {
    let routes = entries::routes(&fetch(router, "rib/list")?)?;
    if json {
        return print(&routes);
    }
    let rows: Vec<Vec<String>> = routes
        .iter()
        .map(|route| {
            let flags = [(route.inherit, "inherit"), (route.capture, "capture")];
            let flags: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
            vec![
                route.prefix.clone(),
                route.face.to_string(),
                route.cost.to_string(),
                origin(route.origin),
                flags.join(" "),
                route.expires_ms.map_or_else(|| "never".to_owned(), |ms| format!("{} s", ms.div_ceil(1000))),
            ]
        })
        .collect();
    table(&["prefix", "face", "cost", "origin", "flags", "ends"], &rows);
    Ok(())
}

/// An origin in the words of the RIB protocol.
fn origin(origin: u64) -> String {
    match origin {
        0 => "app".into(),
        64 => "autoreg".into(),
        65 => "client".into(),
        66 => "autoconf".into(),
        128 => "nlsr".into(),
        129 => "prefixann".into(),
        255 => "static".into(),
        other => other.to_string(),
    }
}

/// `kaido ndn cs info`.
pub(super) fn cs(router: &mut Consumer, json: bool) -> miette::Result<()> {
    let cs = entries::content_store(&fetch(router, "cs/info")?)?;
    if json {
        return print(&cs);
    }
    let word = |on| if on { "on" } else { "off" };
    println!("{} of {} packets, {} hits, {} misses", cs.entries, cs.capacity, cs.hits, cs.misses);
    // Other routers do not say these.
    if let (Some(octets), Some(refused)) = (cs.octets, cs.refused) {
        println!("{octets} octets of memory, {refused} not kept");
    }
    if let Some(Disk { packets, octets, octets_max, hits }) = cs.disk {
        println!("on disk {packets} packets, {octets} of {octets_max} octets, {hits} hits of the above");
    }
    println!("admit {}, serve {}", word(cs.admits), word(cs.serves));
    Ok(())
}

/// `kaido ndn strategy list`.
pub(super) fn strategies(router: &mut Consumer, json: bool) -> miette::Result<()> {
    let choices = entries::choices(&fetch(router, "strategy-choice/list")?)?;
    if json {
        return print(&choices);
    }
    let rows: Vec<Vec<String>> =
        choices.into_iter().map(|choice| vec![choice.prefix, choice.strategy]).collect();
    table(&["prefix", "strategy"], &rows);
    Ok(())
}
