//! An offload as tests use it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_upf_xdp::offload::{OffloadNextHop, OffloadRecord, OffloadRoute, OffloadRule};
use kaido_upf_xdp::{Offload, OffloadConfig, OffloadFlags};

use super::run;

/// Next hops by interface; those of routed packets are of IPv4, and before those of IPv6.
pub const N3: u32 = 0;
pub const N6: u32 = 1;
pub const N6_V6: u32 = 2;
/// The VRF of routed packets.
pub const VRF: u32 = 5;

/// Both families to the next hop on N6.
pub fn default_routes() -> [OffloadRoute; 2] {
    let by = |to: IpAddr, hop| OffloadRoute { to: (to, 0), vrf: VRF, next_hop: OffloadNextHop::Hop(hop) };
    [by(Ipv4Addr::UNSPECIFIED.into(), N6), by(Ipv6Addr::UNSPECIFIED.into(), N6_V6)]
}

pub fn config(records_max: u32, fixed_source_port: bool) -> OffloadConfig {
    OffloadConfig {
        records_max,
        groups_max: 64,
        usage_cells_max: 1024,
        policers_max: 16,
        templates_max: 64,
        hops_max: 8,
        flags: OffloadFlags { fixed_source_port, ..OffloadFlags::default() },
        ue_network_words: 0,
        seed: [
            0x1234_5678_9abc_def1,
            0x0fed_cba9_8765_4321,
            0x1357_9bdf_0246_8ace | 1,
            0x2468_ace0_1357_9bdf,
        ],
    }
}

pub fn path(config: &OffloadConfig) -> Offload {
    Offload::load(config).unwrap()
}

/// Two interfaces to send to, `kb-n3` and `kb-n6`, in the thread's namespace; test runs come in by `lo`.
pub fn interfaces() {
    run("ip link add kb-n3 type veth peer name kb-n6");
}

/// A record whose rules are changed.
pub fn changed(mut record: OffloadRecord, change: impl Fn(&mut OffloadRule)) -> OffloadRecord {
    record.lines.iter_mut().filter_map(|line| line.rule.as_mut()).for_each(change);
    record
}
