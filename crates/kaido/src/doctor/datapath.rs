//! Who would forward: the choice of `node.datapath`, and what keeps the kernel from it.

use kaido_engine::FrameSize;

use super::nic::NicInfo;
use super::{Finding, InspectedInterface};
use crate::config::{CopyMode, Datapath, Driver, PortConfig, UpfConfig};
use crate::datapath::{PortFacts, by_ports};
use crate::run::no_room_for_tables;

const CHECK: &str = "datapath";

/// Which datapath a user plane would have, and whether that is the kernel's.
pub(super) fn judge(
    config: &UpfConfig,
    looks: &[InspectedInterface<'_>],
    size: FrameSize,
) -> (Finding, bool) {
    let facts = |port: &PortConfig| {
        let of_port = |look: &&InspectedInterface<'_>| look.port.is_some_and(|own| std::ptr::eq(own, port));
        looks.iter().find(of_port).and_then(|look| look.facts.as_ref().ok())
    };
    let ports = config.ports().map(|(config, of_port)| PortFacts {
        config,
        of_port,
        copies: copies(config, facts(config)),
    });
    let ports: Vec<_> = ports.collect();
    let advice = by_ports(&ports);
    let node = &config.base.node;
    let frames = u64::from(*node.frames.get_ref()) * size.bytes() as u64;
    let short = no_room_for_tables(config, frames);
    let configured = *node.datapath.get_ref();
    match (configured, &short) {
        (Datapath::Auto, Some(short)) if advice.is_kernel => {
            let said = format!(
                "auto: the engine: {short}; set node.sessions_max to as many sessions as there are to be"
            );
            (Finding::advice("machine", CHECK, said), false)
        }
        (Datapath::Auto, _) => {
            let who = if advice.is_kernel { "the kernel" } else { "the engine" };
            (Finding::ok("machine", CHECK, format!("auto: {who}: {}", advice.reason)), advice.is_kernel)
        }
        (Datapath::Engine, None) if advice.is_kernel => {
            let said = format!("engine, and {}; \"auto\" forwards in the kernel then", advice.reason);
            (Finding::advice("machine", CHECK, said), false)
        }
        (Datapath::Engine, _) => (Finding::ok("machine", CHECK, "engine"), false),
        (Datapath::Xdp | Datapath::Hybrid, _) => (Finding::ok("machine", CHECK, configured.name()), true),
    }
}

/// Whether AF_XDP would copy the packets of a port; none where that is not known before the node tries.
fn copies(port: &PortConfig, facts: Option<&NicInfo>) -> Option<bool> {
    match port.copy.get_ref() {
        _ if *port.driver.get_ref() != Driver::AfXdp => None,
        CopyMode::Copy => Some(true),
        CopyMode::ZeroCopy => Some(false),
        CopyMode::Auto => facts?.features().map(|features| !features.zero_copy),
    }
}

/// Whether the kernel can send out of a port: of a veth device, which tells before a program is attached.
pub(super) fn redirects(facts: &NicInfo, port: Option<&PortConfig>) -> Option<Finding> {
    let is_xdp = port.is_some_and(|port| *port.driver.get_ref() == Driver::AfXdp);
    let features = facts.features().filter(|_| is_xdp && facts.is_veth())?;
    let (name, check) = (facts.name(), "redirect");
    Some(if features.transmit {
        Finding::ok(name, check, "the far end takes redirected frames")
    } else {
        let said = "the workers send out of it: its far end takes no redirected frames; there, `ethtool -K PEER gro on`";
        Finding::advice(name, check, said)
    })
}
