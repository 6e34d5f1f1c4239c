//! `kaido init upf`.

use std::net::IpAddr;

use kaido_node::init::{AnswerKind, Answers, FirstConfig, InitQuestion, Machine};
use kaido_upf::node::TUNNEL_OVERHEAD_IPV4;

use crate::config::pfcp::PFCP_PORT;

/// A node between gNBs and a data network.
pub(crate) const FIRST_CONFIG: FirstConfig = FirstConfig { questions: QUESTIONS, write, next };

const QUESTIONS: &[InitQuestion] = &[
    InitQuestion {
        name: "n3",
        value_name: "INTERFACE",
        asks: "Interface towards the gNBs (N3), or towards the SGW-U (S5/S8)",
        kind: AnswerKind::Interface,
        proposes: |_, machine| machine.first_name(),
    },
    InitQuestion {
        name: "n6",
        value_name: "INTERFACE",
        asks: "Interface towards the data network (N6, SGi); the same one carries both",
        kind: AnswerKind::Interface,
        proposes: |answers, machine| {
            let n3 = answers.get("n3");
            let is_up = |name: &str| machine.interface(name).is_some_and(|interface| interface.up);
            let other = machine.names().into_iter().find(|name| *name != n3 && is_up(name));
            Some(other.unwrap_or(n3).to_owned())
        },
    },
    InitQuestion {
        name: "n4",
        value_name: "ADDRESS",
        asks: "Own address for the SMF (N4, Sx), which is the Node ID",
        kind: AnswerKind::Address,
        proposes: |answers, machine| machine.address(answers.get("n3")).map(|address| address.to_string()),
    },
    InitQuestion {
        name: "smf",
        value_name: "PREFIXES",
        asks: "Prefixes of the SMFs that may make sessions",
        kind: AnswerKind::Prefixes,
        proposes: |answers, machine| answers.get("n4").parse().ok().and_then(|own| machine.subnet(own)),
    },
    InitQuestion {
        name: "dnn",
        value_name: "NAME",
        asks: "Network instance of N6, as the SMF names it: mostly the DNN or APN",
        kind: AnswerKind::Text,
        proposes: |_, _| Some("internet".to_owned()),
    },
];

fn write(answers: &Answers, machine: &Machine) -> String {
    let [n3, n6, n4, dnn] = ["n3", "n6", "n4", "dnn"].map(|name| answers.get(name));
    let is_one = n3 == n6;
    let workers = machine.workers(&[n3, n6]);
    let instance = if dnn.is_empty() { String::new() } else { format!("network_instance = \"{dnn}\"\n") };
    let of_pool = if dnn.is_empty() { String::new() } else { format!("# {instance}") };
    let port = |name: &str, interface: &str, roles: &str, more: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"af_xdp\"\ninterface = \"{interface}\"\nroles = [{roles}]\n{more}"
        )
    };
    let ports = if is_one {
        format!("# N3 and N6.\n{}", port("n3", n3, "\"n3\", \"n6\"", &instance))
    } else {
        let (n3, n6) = (port("n3", n3, "\"n3\"", ""), port("n6", n6, "\"n6\"", &instance));
        format!("# Towards the gNBs: GTP-U.\n{n3}\n# Towards the data network.\n{n6}")
    };
    let allow = answers.list("smf");
    let allow = match allow.as_str() {
        "[]" => "# Who may make sessions: name the prefixes of your SMFs. As it is, whoever reaches this address may.\n# allow = [\"10.0.4.0/24\"]".to_owned(),
        allow => format!("# Who may make sessions.\nallow = {allow}"),
    };
    format!(
        "# A user plane: UPF, PGW-U. `kaido check -c FILE` says whether it is good; docs/configuration.md has every field.\n\
         \n\
         [node]\n\
         # Memory is taken for so many.\n\
         sessions_max = 65536\n\
         # Each has a CPU, and a queue of each port.\n\
         workers = {workers}\n\
         \n\
         {ports}\
         \n\
         [pfcp]\n\
         # N4, Sx: where SMFs and PGW-Cs speak to the node.\n\
         listen = [\"{n4}\"]\n\
         {allow}\n\
         \n\
         # For UE addresses that the SMF leaves to the node. Most SMFs give them themselves.\n\
         # [[ue_pool]]\n\
         {of_pool}\
         # ipv4 = \"10.60.0.0/16\"\n\
         # ipv6 = \"2001:db8:60::/48\"\n\
         \n\
         [store]\n\
         # What sessions survive: \"process\", or a power cut too, \"disk\".\n\
         durability = \"process\"\n\
         \n\
         # http://127.0.0.1:9105/metrics for Prometheus.\n\
         [metrics]\n\
         listen = \"127.0.0.1\"\n"
    )
}

fn next(answers: &Answers, machine: &Machine) -> Vec<String> {
    let [n3, n6, n4, dnn] = ["n3", "n6", "n4", "dnn"].map(|name| answers.get(name));
    let mut next = vec![format!("tell the SMF that the UPF is {n4}, port {PFCP_PORT}, and serves \"{dnn}\"")];
    match machine.address(n3) {
        Some(address) => next.push(format!("tell the SMF, where it asks for it, that N3 is {address}")),
        None => next.push(format!("give {n3} an address: gNBs send GTP-U to it")),
    }
    if machine.address(n6).is_none() {
        next.push(format!("give {n6} an address, and a route for what UEs send"));
    }
    let mtu = |name: &str| machine.interface(name).map_or(0, |interface| interface.mtu as usize);
    let in_tunnel = mtu(n6) + TUNNEL_OVERHEAD_IPV4;
    if mtu(n3) < in_tunnel {
        next.push(format!(
            "raise the MTU of {n3} and of the links to the gNBs to {in_tunnel}, or lower that of the UEs: else full packets are cut or refused"
        ));
    }
    next.push(format!("have the data network send the UEs' prefixes to {n6}"));
    let own: Option<IpAddr> = n4.parse().ok();
    if own.is_some_and(|own| machine.subnet(own).is_none() && !own.is_loopback()) {
        next.push(format!("give an interface the address {n4}: no interface has it"));
    }
    if answers.get("smf").is_empty() {
        next.push("name the prefixes of your SMFs in pfcp.allow".to_owned());
    }
    next
}

#[cfg(test)]
mod tests {
    use kaido_engine::netlink::{Interface, InterfaceAddress};

    use super::*;
    use crate::config::testing::whole;

    fn machine() -> Machine {
        let address =
            InterfaceAddress { ifindex: 1, address: [10, 0, 3, 1].into(), prefix_len: 24, link_local: false };
        let interface = |name: &str, addresses| Interface {
            ifindex: 1,
            name: name.to_owned(),
            mac: [2; 6],
            mtu: 1500,
            up: true,
            vrf_table: None,
            addresses,
        };
        let interfaces = vec![interface("ens4", vec![address]), interface("ens5", Vec::new())];
        Machine { interfaces, cpus: 2 }
    }

    #[test]
    fn what_is_proposed_is_a_good_file() {
        let machine = machine();
        let proposed = |answers: &Answers, at: usize| (QUESTIONS[at].proposes)(answers, &machine);
        let answers = Answers::from([("n3", "ens4"), ("n4", "10.0.3.1")]);
        assert_eq!(proposed(&answers, 0).as_deref(), Some("ens4"));
        assert_eq!(proposed(&answers, 1).as_deref(), Some("ens5"));
        assert_eq!(proposed(&answers, 2).as_deref(), Some("10.0.3.1"));
        assert_eq!(proposed(&answers, 3).as_deref(), Some("10.0.3.0/24"));
    }

    #[test]
    fn every_way_to_answer_is_a_good_file() {
        for (n6, n4, smf, dnn, ports) in
            [("ens5", "10.0.3.1", "10.0.3.0/24, ::/0", "internet", 2), ("ens4", "2001:db8::4", "", "", 1)]
        {
            let answers = Answers::from([("n3", "ens4"), ("n6", n6), ("n4", n4), ("smf", smf), ("dnn", dnn)]);
            let config = whole(&write(&answers, &machine())).unwrap();
            assert_eq!(config.ports().count(), ports);
            assert_eq!(config.pfcp.allow.is_empty(), smf.is_empty());
            assert_eq!(config.pfcp.listen.get_ref()[0].0.to_string(), with_port(n4));
        }
    }

    fn with_port(address: &str) -> String {
        std::net::SocketAddr::new(address.parse().unwrap(), PFCP_PORT).to_string()
    }

    #[test]
    fn what_is_left_to_do_is_said() {
        let answers =
            Answers::from([("n3", "ens4"), ("n6", "ens5"), ("n4", "10.0.4.1"), ("smf", ""), ("dnn", "ims")]);
        let said = next(&answers, &machine()).join("\n");
        for wanted in [
            "the UPF is 10.0.4.1, port 8805, and serves \"ims\"",
            "N3 is 10.0.3.1",
            "give ens5 an address",
            "MTU of ens4 and of the links to the gNBs to 1544",
            "no interface has it",
            "pfcp.allow",
        ] {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }
}
