//! The faces, for `kaido top`.

use std::path::Path;

use kaido_node::listing::{Listing, ListingPage, ListingRow};
use kaido_node::show::{ask, table_text};
use miette::miette;

use super::api::{FibEntry, ListNdnFaces, ListNdnFib, NdnFace, NdnFaces, NdnFib, NdnTraffic};

/// Faces of a router.
pub(super) const FACES: Listing = Listing {
    title: "faces",
    columns: &["remote", "face"],
    directions: &["received", "sent"],
    filter: Some("number, or text in the remote URI"),
    page,
    detail: Some(detail),
};

/// Prefixes that lead to a face and are shown with it.
const PREFIXES_SHOWN: usize = 200;

fn page(socket: &Path, filter: &str, limit: usize) -> miette::Result<ListingPage> {
    let NdnFaces { total, faces, .. } = ask(socket, &wanted(filter, limit))?;
    // How many meet a filter is known only where all of them are on the page.
    let total = if filter.trim().is_empty() { total } else { faces.len() };
    Ok(ListingPage { total, rows: faces.into_iter().map(row).collect() })
}

/// What a text may name.
fn wanted(filter: &str, limit: usize) -> ListNdnFaces {
    let all = ListNdnFaces { limit, ..ListNdnFaces::default() };
    match filter.trim() {
        "" => all,
        text => match text.parse() {
            Ok(face) => ListNdnFaces { face: Some(face), ..all },
            Err(_) => ListNdnFaces { remote: Some(text.to_owned()), ..all },
        },
    }
}

fn row(face: NdnFace) -> ListingRow {
    let number = match face.state.as_str() {
        "up" => face.face.to_string(),
        state => format!("{} {state}", face.face),
    };
    ListingRow {
        key: face.face.to_string(),
        cells: vec![face.remote, number],
        octets: vec![face.received.bytes, face.sent.bytes],
    }
}

fn detail(socket: &Path, key: &str) -> miette::Result<String> {
    let face = Some(key.parse().map_err(|_| miette!("`{key}` is no face"))?);
    let NdnFaces { faces, .. } = ask(socket, &ListNdnFaces { face, ..ListNdnFaces::default() })?;
    let shown = faces.first().ok_or_else(|| miette!("there is no face {key} any more"))?;
    let fib = ask(socket, &ListNdnFib { face, limit: PREFIXES_SHOWN, ..ListNdnFib::default() })?;
    Ok(described(shown, &fib))
}

/// A face, and the prefixes whose Interests go there.
fn described(face: &NdnFace, fib: &NdnFib) -> String {
    let rows = [
        ("remote", face.remote.clone()),
        ("local", face.local.clone()),
        ("state", face.state.clone()),
        ("scope", face.scope.clone()),
        ("persistency", face.persistency.clone()),
        ("link", face.link.clone()),
        ("mtu", face.mtu.to_string()),
        ("reliability", if face.reliability { "on" } else { "off" }.to_owned()),
        ("waits to be sent", format!("{} B", face.backlog_bytes)),
        ("received", counted(&face.received)),
        ("sent", counted(&face.sent)),
    ];
    let number = face.face.to_string();
    let mut text = table_text(&["face", &number], &rows.map(|(name, value)| vec![name.to_owned(), value]));
    let cost = |entry: &FibEntry| {
        let hop = entry.next_hops.iter().find(|hop| hop.face == face.face);
        hop.map(|hop| hop.cost.to_string()).unwrap_or_default()
    };
    let prefixes: Vec<_> = fib.entries.iter().map(|entry| vec![entry.prefix.clone(), cost(entry)]).collect();
    text.push('\n');
    text.push_str(&table_text(&["prefix", "cost"], &prefixes));
    if fib.next.is_some() {
        text.push_str("… and more: `kaido ndn fib --face` lists them\n");
    }
    text
}

fn counted(NdnTraffic { interests, data, nacks, bytes }: &NdnTraffic) -> String {
    format!("{interests} Interests, {data} Data, {nacks} Nacks, {bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::api::NdnNextHop;

    #[test]
    fn a_filter_is_told_by_its_look() {
        let all = ListNdnFaces { limit: 9, ..ListNdnFaces::default() };
        assert_eq!(wanted(" ", 9), all);
        assert_eq!(wanted("256", 9), ListNdnFaces { face: Some(256), ..all.clone() });
        assert_eq!(wanted("udp4://192.0.2", 9).remote.as_deref(), Some("udp4://192.0.2"));
    }

    #[test]
    fn a_face_is_shown_with_the_prefixes_that_lead_there() {
        let mut face = NdnFace {
            face: 257,
            remote: "udp4://192.0.2.1:6363".to_owned(),
            state: "down".to_owned(),
            received: NdnTraffic { interests: 1, data: 2, nacks: 3, bytes: 400 },
            ..NdnFace::default()
        };
        assert_eq!(row(face.clone()).cells, ["udp4://192.0.2.1:6363", "257 down"]);
        let hop = |face, cost| NdnNextHop { face, cost };
        let entry = FibEntry { prefix: "/a".to_owned(), next_hops: vec![hop(256, 5), hop(257, 10)] };
        let fib = NdnFib { total: 1, entries: vec![entry], next: None };
        let text = described(&face, &fib);
        assert!(text.contains("1 Interests, 2 Data, 3 Nacks, 400 B"), "{text}");
        assert!(text.ends_with("prefix  cost\n/a      10\n"), "{text}");
        face.state = "up".to_owned();
        assert_eq!(row(face).cells[1], "257");
    }
}
