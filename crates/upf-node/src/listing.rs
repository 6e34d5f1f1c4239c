//! The sessions, for `kaido top`.

use std::path::Path;

use kaido_node::listing::{Listing, ListingPage, ListingRow};
use kaido_node::show::{ask, number};
use miette::miette;

use super::api::{ListSessions, Session, Sessions};
use super::session::described;
use super::show::shown;

/// Sessions of a user plane.
pub(crate) const SESSIONS: Listing = Listing {
    title: "sessions",
    columns: &["ue", "seid", "local tunnel", "remote tunnel"],
    directions: &["uplink", "downlink"],
    filter: Some("UE address, SEID such as 0x800…, TEID, IMSI or DNN"),
    page,
    detail: Some(detail),
};

/// Digits of the shortest IMSI that is taken for one.
const IMSI_DIGITS: usize = 14;

fn page(socket: &Path, filter: &str, limit: usize) -> miette::Result<ListingPage> {
    let Sessions { total, sessions } = ask(socket, &ListSessions { limit, ..wanted(filter)? })?;
    Ok(ListingPage { total, rows: sessions.iter().map(row).collect() })
}

fn row(session: &Session) -> ListingRow {
    let Session { seid, ue, local, remote, .. } = session;
    ListingRow {
        key: seid.clone(),
        cells: vec![shown(ue), seid.clone(), local.join(" "), remote.join(" ")],
        octets: vec![session.uplink_bytes, session.downlink_bytes],
    }
}

/// What a text may name.
fn wanted(filter: &str) -> miette::Result<ListSessions> {
    let filter = filter.trim();
    let all = ListSessions::default();
    if filter.is_empty() {
        return Ok(all);
    }
    if let Ok(ue) = filter.parse() {
        return Ok(ListSessions { ue: Some(ue), ..all });
    }
    if filter.len() >= IMSI_DIGITS && filter.bytes().all(|digit| digit.is_ascii_digit()) {
        let imsi = filter.parse().map_err(|_| miette!("`{filter}` is no IMSI"))?;
        return Ok(ListSessions { imsi: Some(imsi), ..all });
    }
    let Some(number) = number(filter) else {
        return Ok(ListSessions { dnn: Some(filter.to_owned()), ..all });
    };
    Ok(match u32::try_from(number) {
        Ok(teid) => ListSessions { teid: Some(teid), ..all },
        // The upper half of a SEID of ours is never zero.
        Err(_) => ListSessions { seid: Some(number), ..all },
    })
}

fn detail(socket: &Path, key: &str) -> miette::Result<String> {
    let seid = number(key).ok_or_else(|| miette!("`{key}` is no SEID"))?;
    described(socket, seid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_told_by_its_look() {
        let all = ListSessions::default;
        let of = |text: &str| wanted(text).unwrap();
        assert_eq!(of(" "), all());
        assert_eq!(of("10.60.0.1").ue, "10.60.0.1".parse().ok());
        assert_eq!(of("2001:db8::1").ue, "2001:db8::1".parse().ok());
        assert_eq!((of("1000").teid, of("0x3e8").teid), (Some(1000), Some(1000)));
        assert_eq!(of("0x8000000100000002").seid, Some(0x8000_0001_0000_0002));
        assert_eq!(of("262010000000001").imsi, "262010000000001".parse().ok());
        assert_eq!(of("ims").dnn.as_deref(), Some("ims"));
    }
}
