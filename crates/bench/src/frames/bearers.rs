//! The same sessions as the generator and the oracle describe them.

use super::{Family, GNB_MAC, N3_MAC, N6_MAC, QFI, ROUTER_MAC, teid};
use crate::oracle::{Bearers, Outer, Side};
use crate::stream::Mac;

/// The bearers of so many sessions, between ports of these names.
pub(crate) fn bearers(family: Family, sessions: u32, [access, core]: [&str; 2]) -> Bearers {
    let side = |port: &str, device, bench| Side {
        port: port.to_owned(),
        device_mac: Mac::from(device),
        bench_mac: Mac::from(bench),
        tags: Vec::new(),
        network_instance: None,
    };
    Bearers {
        count: sessions,
        teid_first: teid(0),
        access_teid_first: teid(0),
        ue_first: family.ue(0),
        local: family.n3(),
        peer_first: family.gnb(),
        peers: 1,
        qfi: Some(QFI),
        server: family.server(),
        access: side(access, N3_MAC, GNB_MAC),
        core: side(core, N6_MAC, ROUTER_MAC),
        outer: Outer::default(),
    }
}
