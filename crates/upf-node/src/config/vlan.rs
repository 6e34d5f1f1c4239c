//! Ports that are VLANs of an interface: what goes together.

use std::collections::{HashMap, HashSet};

use kaido_node::config::QueueMode;
use kaido_node::config::{Driver, PortConfig, Spanned};
use kaido_node::config::{Findings, is_interface_name};

use super::{UpfConfig, UpfPort};

/// Everything that is wrong with them.
pub(super) fn check(config: &UpfConfig, findings: &mut Findings) {
    let ports: Vec<&PortConfig> = config.base.ports.iter().map(Spanned::get_ref).collect();
    let shares_queues = *config.base.node.queue_mode.get_ref() != QueueMode::Rss;
    let mut vlans = HashSet::new();
    // The first of each interface: what it says of it, others say too.
    let mut first: HashMap<&str, &PortConfig> = HashMap::new();
    for (port, of_port) in config.ports() {
        vlan(port, of_port, shares_queues, findings);
        let interface = port.interface_name();
        if let Some(vlan) = &port.vlan
            && !vlans.insert((interface, *vlan.get_ref()))
        {
            let message = format!("`{interface}` has a port with VLAN {} already", vlan.get_ref());
            findings.add(
                vlan.span(),
                "port.vlan",
                message,
                "give each port of an interface a VLAN of its own",
            );
        }
        match first.get(interface) {
            Some(other) if port.vlan.is_some() || other.vlan.is_some() => together(port, other, findings),
            Some(_) => {}
            None => {
                first.insert(interface, port);
            }
        }
    }
    taps(&ports, findings);
}

/// What one port can tell.
fn vlan(port: &PortConfig, of_port: &UpfPort, shares_queues: bool, findings: &mut Findings) {
    let Some(vlan) = &port.vlan else {
        if let Some(tap) = &port.tap {
            let help = "remove it, or give the port a vlan";
            findings.add(tap.span(), "port.tap", "only a vlan has a TAP device of that name", help);
        }
        return;
    };
    findings.range(vlan, "port.vlan");
    if matches!(*port.driver.get_ref(), Driver::Tap | Driver::Dpdk) {
        let help = "use driver = \"af_xdp\" or \"af_packet\", or remove the vlan";
        findings.add(
            vlan.span(),
            "port.vlan",
            "only af_xdp and af_packet ports are VLANs of an interface",
            help,
        );
    }
    if shares_queues {
        let help = "set node.queue_mode = \"rss\", or remove the vlan";
        findings.add(vlan.span(), "port.vlan", "a queue that workers share is one port's", help);
    }
    if !of_port.ue_prefixes.is_empty() {
        let help = "remove ue_prefixes: what is not to a UE is the TAP device's, or dropped";
        findings.add(vlan.span(), "port.ue_prefixes", "all packets in a vlan are the port's", help);
    }
}

/// Whether two ports say the same of their interface.
fn together(port: &PortConfig, other: &PortConfig, findings: &mut Findings) {
    let (interface, other_name) = (port.interface_name(), other.name.get_ref());
    let help = format!("say what port `{other_name}` says: they have the queues of one interface");
    let message = |field: &str| format!("`{interface}` has another {field} by port `{other_name}`");
    if port.driver.get_ref() != other.driver.get_ref() {
        findings.add(port.driver.span(), "port.driver", message("driver"), &*help);
    }
    if port.copy.get_ref() != other.copy.get_ref() {
        let at = if port.copy.span().is_empty() { port.name.span() } else { port.copy.span() };
        findings.add(at, "port.copy", message("copy"), &*help);
    }
    if port.attach.get_ref() != other.attach.get_ref() {
        let at = if port.attach.span().is_empty() { port.name.span() } else { port.attach.span() };
        findings.add(at, "port.attach", message("attach"), &*help);
    }
}

/// Whether the TAP devices of VLANs can have their names.
fn taps(ports: &[&PortConfig], findings: &mut Findings) {
    let mut names: HashSet<String> = ports.iter().map(|port| port.interface_name().to_owned()).collect();
    for port in ports.iter().filter(|port| port.vlan.is_some()) {
        let (Some(name), Some(vlan)) = (port.tap_name(), &port.vlan) else { continue };
        let at = port.tap.as_ref().map_or_else(|| vlan.span(), Spanned::span);
        if !is_interface_name(&name) {
            let message = format!("`{name}` is no name for a TAP device");
            let help =
                "set tap to 1 to 15 characters without `/` and spaces; without it, it is by port and vlan";
            findings.add(at, "port.tap", message, help);
        } else if !names.insert(name.clone()) {
            let message = format!("`{name}` is another interface already");
            findings.add(at, "port.tap", message, "give each TAP device a name of its own");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::fields;
    use crate::config::testing::unchecked;

    /// The fields at fault, of a node with two ports of `eth0`.
    fn of(node: &str, n3: &str, n6: &str, more: &str) -> Vec<String> {
        let port = |role: &str, more: &str| {
            let driver = if more.contains("driver") { "" } else { "driver = \"af_xdp\"\n" };
            format!(
                "[[port]]\nname = \"{role}\"\n{driver}interface = \"eth0\"\nroles = [\"{role}\"]\n{more}\n"
            )
        };
        let text = format!(
            "[node]\n{node}\n{}{}{more}\n[pfcp]\nlisten = [\"10.0.0.1\"]\n",
            port("n3", n3),
            port("n6", n6)
        );
        fields(&unchecked(&text).unwrap())
    }

    #[test]
    fn vlans_share_an_interface() {
        for (n3, n6) in [
            ("vlan = 100", "vlan = 200"),
            ("vlan = 1", "vlan = 4094"),
            ("vlan = 100", ""),
            ("", "vlan = 200\naddresses = [\"10.0.6.1/24\"]\nmtu = 1400\ntap = \"sgi\""),
            ("driver = \"af_packet\"\nvlan = 100", "driver = \"af_packet\""),
            ("vlan = 100\ncopy = \"copy\"", "vlan = 200\ncopy = \"copy\""),
        ] {
            assert_eq!(of("", n3, n6, ""), Vec::<String>::new(), "{n3}, {n6}");
        }
    }

    #[test]
    fn what_cannot_be_is_said_with_its_field() {
        for (n3, n6, field) in [
            ("vlan = 100", "vlan = 100", "port.vlan"),
            ("vlan = 0", "vlan = 200", "port.vlan"),
            ("vlan = 4095", "", "port.vlan"),
            ("", "", "port.interface"),
            ("vlan = 100", "driver = \"af_packet\"", "port.driver"),
            ("vlan = 100\ncopy = \"copy\"", "vlan = 200", "port.copy"),
            ("vlan = 100", "vlan = 200\nattach = \"generic\"", "port.attach"),
            ("vlan = 100", "vlan = 200\nue_prefixes = [\"10.0.0.0/8\"]", "port.ue_prefixes"),
            ("tap = \"n3.1\"", "vlan = 200", "port.tap"),
            ("vlan = 100\ntap = \"a/b\"", "vlan = 200", "port.tap"),
            ("vlan = 100\ntap = \"sixteen-letters-\"", "vlan = 200", "port.tap"),
            ("vlan = 100\ntap = \"x\"", "vlan = 200\ntap = \"x\"", "port.tap"),
            ("vlan = 100\ntap = \"eth0\"", "vlan = 200", "port.tap"),
            ("vlan = 100\nmtu = 5", "vlan = 200", "port.mtu"),
            ("addresses = [\"10.0.0.1/24\"]", "vlan = 200", "port.addresses"),
        ] {
            assert_eq!(of("", n3, n6, ""), [field], "{n3}, {n6}");
        }
        let shared = of("queue_mode = \"shared\"", "vlan = 100", "", "");
        assert_eq!(shared, ["port.vlan"]);
        let tap = of("", "driver = \"tap\"\nvlan = 100", "driver = \"tap\"", "");
        assert_eq!(tap, ["port.vlan"]);
    }

    #[test]
    fn a_tenants_vlan_is_none_of_a_ports() {
        let lan = |port: &str, vlan: &str| {
            let text = "[[network_instance]]\nname = \"a\"\ngateways = [\"10.1.0.254\"]\ngateway_mac = \"02:00:00:00:00:01\"";
            format!("{text}\nport = \"{port}\"\nvlan = {vlan}\n")
        };
        assert_eq!(of("", "vlan = 100", "", &lan("n6", "200")), Vec::<String>::new());
        assert_eq!(of("", "vlan = 100", "", &lan("n6", "[200, 100]")), Vec::<String>::new());
        assert_eq!(of("", "vlan = 100", "", &lan("n6", "100")), ["network_instance.vlan"]);
        assert_eq!(of("", "vlan = 100", "", &lan("n6", "[100, 7]")), ["network_instance.vlan"]);
        assert_eq!(of("", "", "vlan = 200", &lan("n6", "300")), ["network_instance.port"]);
    }
}
