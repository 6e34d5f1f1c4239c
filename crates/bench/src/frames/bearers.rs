//! The same sessions as the generator and the oracle describe them.

use crate::family::Family;
use crate::network::{GNB_MAC, N3_MAC, N6_MAC, QFI, ROUTER_MAC, teid};
use crate::oracle::{Bearers, OuterFields, Side, Tag};
use crate::shape::{Shape, VLAN_FIRST};
use crate::stream::Mac;

/// The bearers of so many sessions of a shape, between ports of these names.
pub(crate) fn bearers((family, shape): (Family, Shape), sessions: u32, [access, core]: [&str; 2]) -> Bearers {
    let side = |port: &str, device, bench| Side {
        port: port.to_owned(),
        device_mac: Mac::from(device),
        bench_mac: Mac::from(bench),
        tags: Vec::new(),
        network_instance: None,
    };
    let of_tenants = shape.tenants().map(|tenants| {
        let count = u16::try_from(sessions).unwrap_or(u16::MAX).min(tenants);
        Tag { tpid: 0x8100, first: VLAN_FIRST, count, priority: 0 }
    });
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
        core: Side { tags: of_tenants.into_iter().collect(), ..side(core, N6_MAC, ROUTER_MAC) },
        outer: OuterFields::default(),
        shape,
    }
}
