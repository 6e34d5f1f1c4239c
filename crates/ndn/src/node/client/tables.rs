//! What the tables of a running router hold, asked for at its control socket: `kaido ndn fib`, `pit`, `cs list` and `tables`.

use std::path::PathBuf;

use clap::Args;
use kaido_node::config::DEFAULT_SOCKET;
use kaido_node::show::{Watch, ask, print_json, table};

use super::NameArg;
use crate::node::api::{
    CachedData, FibEntry, GetNdnTables, ListNdnCs, ListNdnFib, ListNdnPit, NdnCs, NdnFib, NdnNextHop, NdnPit,
    NdnTables, PendingInterest, PitUpstream, WorkerTables,
};

/// The node whose tables are listed.
#[derive(Debug, Args)]
pub(super) struct TablesArgs {
    /// The node's control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    #[command(flatten)]
    watch: Watch,
}

/// Which rows of a table are listed.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    at: TablesArgs,
    /// Only names that begin with this one.
    #[arg(long, value_name = "NAME")]
    prefix: Option<NameArg>,
    /// Most rows to list, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Where the list before has ended, as it says itself.
    #[arg(long, value_name = "PLACE")]
    from: Option<String>,
}

impl ListArgs {
    fn prefix(&self) -> Option<String> {
        self.prefix.as_ref().map(|prefix| prefix.name().to_string())
    }
}

/// Says how to see what was left out.
fn print_rest(next: Option<&String>) {
    if let Some(next) = next {
        println!("… there may be more: --from {next}");
    }
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "" }
}

/// `kaido ndn tables`.
pub(super) fn tables(json: bool, at: &TablesArgs) -> miette::Result<()> {
    at.watch.run(|| {
        let tables = ask(&at.socket, &GetNdnTables {})?;
        if json {
            return print_json(&tables);
        }
        print_tables(&tables);
        Ok(())
    })
}

fn print_tables(tables: &NdnTables) {
    let NdnTables { faces, fib_prefixes, strategies, workers, disk } = tables;
    println!(
        "{faces} faces, {fib_prefixes} prefixes with next hops, {strategies} with a strategy of their own"
    );
    if let Some(disk) = disk {
        println!(
            "on disk {} packets, {} of {} octets, {} Interests answered",
            disk.packets, disk.bytes, disk.bytes_max, disk.answered
        );
    }
    println!();
    let row = |of: &WorkerTables| {
        let WorkerTables { worker, pit, cs, dead_nonces } = of;
        vec![
            worker.to_string(),
            format!("{} of {}", pit.entries, pit.entries_max),
            pit.satisfied.to_string(),
            pit.unsatisfied.to_string(),
            format!("{} of {}", cs.entries, cs.entries_max),
            cs.bytes.to_string(),
            cs.hits.to_string(),
            cs.misses.to_string(),
            cs.evicted.to_string(),
            dead_nonces.nonces_max.to_string(),
            dead_nonces.early.to_string(),
        ]
    };
    let headings =
        ["worker", "pending", "satisfied", "unsatisfied", "kept", "bytes", "hits", "misses", "evicted"];
    table(&[&headings[..], &["dead nonces", "early"]].concat(), &workers.iter().map(row).collect::<Vec<_>>());
}

/// `kaido ndn fib`.
pub(super) fn fib(json: bool, of: &ListArgs, face: Option<u64>) -> miette::Result<()> {
    let asked = ListNdnFib { from: of.from.clone(), limit: of.limit, prefix: of.prefix(), face };
    of.at.watch.run(|| {
        let answer = ask(&of.at.socket, &asked)?;
        if json {
            return print_json(&answer);
        }
        let NdnFib { entries, next, .. } = answer;
        let hop = |NdnNextHop { face, cost }: &NdnNextHop| format!("{face} (cost {cost})");
        let row = |entry: &FibEntry| {
            let hops: Vec<_> = entry.next_hops.iter().map(hop).collect();
            vec![entry.prefix.clone(), hops.join(", ")]
        };
        table(&["prefix", "next hops"], &entries.iter().map(row).collect::<Vec<_>>());
        print_rest(next.as_ref());
        Ok(())
    })
}

/// `kaido ndn pit`.
pub(super) fn pit(json: bool, of: &ListArgs) -> miette::Result<()> {
    let asked = ListNdnPit { from: of.from.clone(), limit: of.limit, prefix: of.prefix() };
    of.at.watch.run(|| {
        let answer = ask(&of.at.socket, &asked)?;
        if json {
            return print_json(&answer);
        }
        let NdnPit { entries, next } = answer;
        table(
            &["name", "worker", "selects", "from", "to", "age", "expires", "nonces"],
            &entries.iter().map(pending).collect::<Vec<_>>(),
        );
        print_rest(next.as_ref());
        Ok(())
    })
}

fn pending(entry: &PendingInterest) -> Vec<String> {
    let selects =
        [(entry.can_be_prefix, "prefix"), (entry.must_be_fresh, "fresh"), (entry.parked, "on disk")];
    let selects: Vec<_> = selects.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
    let downstreams: Vec<_> = entry.downstreams.iter().map(|record| record.face.to_string()).collect();
    let upstream = |record: &PitUpstream| match &record.nack {
        Some(nack) => format!("{} ({nack})", record.face),
        None => record.face.to_string(),
    };
    let upstreams: Vec<_> = entry.upstreams.iter().map(upstream).collect();
    vec![
        entry.name.clone(),
        entry.worker.to_string(),
        selects.join(" "),
        downstreams.join(" "),
        upstreams.join(" "),
        entry.age_ms.map(|age| format!("{age} ms")).unwrap_or_default(),
        format!("{} ms", entry.expires_ms),
        entry.nonces.to_string(),
    ]
}

/// `kaido ndn cs list`.
pub(super) fn cs(json: bool, of: &ListArgs) -> miette::Result<()> {
    let asked = ListNdnCs { from: of.from.clone(), limit: of.limit, prefix: of.prefix() };
    of.at.watch.run(|| {
        let answer = ask(&of.at.socket, &asked)?;
        if json {
            return print_json(&answer);
        }
        let NdnCs { entries, next } = answer;
        let row = |data: &CachedData| {
            vec![
                data.name.clone(),
                data.worker.to_string(),
                data.bytes.to_string(),
                format!("{} ms", data.fresh_ms),
                yes(data.from_disk).to_owned(),
            ]
        };
        table(
            &["name", "worker", "bytes", "fresh", "from disk"],
            &entries.iter().map(row).collect::<Vec<_>>(),
        );
        print_rest(next.as_ref());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::api::PitDownstream;

    #[test]
    fn an_interest_that_waits_is_a_row() {
        let upstream = |face, nack: Option<&str>| PitUpstream {
            face,
            nack: nack.map(str::to_owned),
            ..PitUpstream::default()
        };
        let entry = PendingInterest {
            worker: 1,
            name: "/a/b".to_owned(),
            can_be_prefix: true,
            must_be_fresh: true,
            age_ms: Some(20),
            expires_ms: 3980,
            nonces: 2,
            downstreams: vec![PitDownstream { face: 256, nonce: 7, expires_ms: 3980 }],
            upstreams: vec![upstream(257, None), upstream(258, Some("no-route"))],
            ..PendingInterest::default()
        };
        let row = ["/a/b", "1", "prefix fresh", "256", "257 258 (no-route)", "20 ms", "3980 ms", "2"];
        assert_eq!(pending(&entry), row);
        let parked = PendingInterest { parked: true, ..PendingInterest::default() };
        assert_eq!(pending(&parked)[2..6], ["on disk", "", "", ""]);
    }
}
