//! Who would forward: the choice of `node.datapath`, and what keeps the kernel from it.

use kaido_engine::FrameSize;
use kaido_node::config::{Base, CopyMode, Datapath, Driver, PortConfig};
use kaido_node::function::ConfiguredFunction;

use super::nic::NicInfo;
use super::{Finding, InspectedInterface};

const CHECK: &str = "datapath";

/// Which datapath a function would have, and whether that is the kernel's; `None` where it has no choice.
pub(super) fn judge(
    function: &dyn ConfiguredFunction,
    looks: &[InspectedInterface<'_>],
    size: FrameSize,
) -> Option<(Finding, bool)> {
    let facts = |port: &PortConfig| {
        let of_port = |look: &&InspectedInterface<'_>| look.port.is_some_and(|own| own.name == port.name);
        looks.iter().find(of_port).and_then(|look| look.facts.as_ref().ok())
    };
    let Base { node, ports, .. } = function.base();
    let copies = ports.iter().map(|port| copies(port.get_ref(), facts(port.get_ref())));
    let frames = u64::from(*node.frames.get_ref()) * size.bytes() as u64;
    let advice = function.advise_datapath(&copies.collect::<Vec<_>>(), frames)?;
    let configured = *node.datapath.get_ref();
    Some(match (configured, &advice.no_room) {
        (Datapath::Auto, Some(short)) if advice.is_kernel => {
            let said = format!("auto: the engine: {short}; set it to as many as there are to be");
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
    })
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
