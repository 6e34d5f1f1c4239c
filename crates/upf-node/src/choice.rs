//! What `node.datapath = "auto"` of a user plane chooses by its ports: the node asks when its sockets are open, the doctor before.

use kaido_node::config::{Driver, PortConfig};

use crate::config::UpfPort;

/// A port, as far as the choice goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortFacts<'p> {
    pub(crate) config: &'p PortConfig,
    pub(crate) of_port: &'p UpfPort,
    /// Of AF_XDP: whether the kernel copies each packet; none where that is not known.
    pub(crate) copies: Option<bool>,
}

/// Whether the kernel is to forward, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) is_kernel: bool,
    pub(crate) reason: String,
}

impl Advice {
    fn engine(reason: impl Into<String>) -> Self {
        Self { is_kernel: false, reason: reason.into() }
    }
}

/// The choice by the ports of a user plane. In copy mode the kernel makes a buffer of each packet that a worker sends, which takes
/// most of the packet's time (docs/upf.md); zero-copy has no such cost. The kernel forwards between AF_XDP ports alone, from N3 or N9 to
/// N6 and back.
pub(crate) fn by_ports(ports: &[PortFacts<'_>]) -> Advice {
    let xdp = || ports.iter().filter(|port| *port.config.driver.get_ref() == Driver::AfXdp);
    let name = |port: &PortFacts<'_>| port.config.name.get_ref().clone();
    let names = |wanted: Option<bool>| {
        xdp().filter(|port| port.copies == wanted).map(name).collect::<Vec<_>>().join(", ")
    };
    if xdp().next().is_none() {
        return Advice::engine("no port has driver = \"af_xdp\"");
    }
    let no_port = |role: &str| {
        Advice::engine(format!(
            "no af_xdp port has the role {role}, and the kernel forwards between af_xdp ports alone"
        ))
    };
    if !xdp().any(|port| port.of_port.is_gtpu()) {
        return no_port("n3 or n9");
    }
    if !xdp().any(|port| port.of_port.is_n6()) {
        return no_port("n6");
    }
    match (names(Some(true)), names(Some(false)), names(None)) {
        (copying, _, _) if !copying.is_empty() => {
            Advice { is_kernel: true, reason: format!("af_xdp is in copy mode: {copying}") }
        }
        (_, zero_copy, unknown) if unknown.is_empty() => {
            Advice::engine(format!("af_xdp is zero-copy: {zero_copy}"))
        }
        (_, _, unknown) => {
            Advice::engine(format!("it is not known whether af_xdp is in copy mode: {unknown}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::upf_of_ports;

    /// The choice for ports of that driver, role and mode.
    fn chosen(ports: &[(&str, &str, Option<bool>)]) -> Advice {
        let text = ports.iter().enumerate().map(|(at, (driver, role, _))| {
            format!("[[port]]\nname = \"p{at}\"\ninterface = \"i{at}\"\ndriver = \"{driver}\"\nroles = [\"{role}\"]\n")
        });
        let upf = upf_of_ports(&text.collect::<String>());
        let facts = upf.ports().zip(ports);
        let facts: Vec<_> =
            facts.map(|((config, of_port), &(_, _, copies))| PortFacts { config, of_port, copies }).collect();
        by_ports(&facts)
    }

    #[test]
    fn copy_mode_is_the_kernels_and_zero_copy_the_engines() {
        let kernel = chosen(&[("af_xdp", "n3", Some(true)), ("af_xdp", "n6", Some(true))]);
        assert_eq!(kernel, Advice { is_kernel: true, reason: "af_xdp is in copy mode: p0, p1".to_owned() });
        let mixed = chosen(&[("af_xdp", "n3", Some(false)), ("af_xdp", "n6", Some(true))]);
        assert_eq!((mixed.is_kernel, &*mixed.reason), (true, "af_xdp is in copy mode: p1"));
        let zero_copy = chosen(&[("af_xdp", "n9", Some(false)), ("af_xdp", "n6", Some(false))]);
        assert_eq!(zero_copy, Advice::engine("af_xdp is zero-copy: p0, p1"));
        let unknown = chosen(&[("af_xdp", "n3", None), ("af_xdp", "n6", Some(false))]);
        assert_eq!((unknown.is_kernel, unknown.reason.contains("not known")), (false, true));
    }

    #[test]
    fn both_sides_must_be_the_kernels() {
        let none = chosen(&[("af_packet", "n3", None), ("tap", "n6", None)]);
        assert_eq!(none, Advice::engine("no port has driver = \"af_xdp\""));
        let half = chosen(&[("af_xdp", "n3", Some(true)), ("tap", "n6", None)]);
        assert_eq!((half.is_kernel, half.reason.contains("role n6")), (false, true));
        let other = chosen(&[("af_packet", "n3", None), ("af_xdp", "n6", Some(true))]);
        assert_eq!((other.is_kernel, other.reason.contains("role n3 or n9")), (false, true));
        let relay = chosen(&[("af_xdp", "n9", Some(true)), ("af_xdp", "n9", Some(true))]);
        assert!(!relay.is_kernel, "it leads no tunnel into another");
    }
}
