//! `kaido init gre`.

use kaido_node::init::{AnswerKind, Answers, FirstConfig, InitQuestion, Machine};

/// A bump in the wire.
pub(super) const FIRST_CONFIG: FirstConfig = FirstConfig { questions: QUESTIONS, write, next };

const QUESTIONS: &[InitQuestion] = &[
    InitQuestion {
        name: "tunnels",
        value_name: "INTERFACE",
        asks: "Interface where packets with GRE headers come in",
        kind: AnswerKind::Interface,
        proposes: |_, machine| machine.first_name(),
    },
    InitQuestion {
        name: "hosts",
        value_name: "INTERFACE",
        asks: "Interface where they leave without",
        kind: AnswerKind::Interface,
        proposes: |answers, machine| {
            let names = machine.names();
            names.iter().find(|name| **name != answers.get("tunnels")).map(|name| (*name).to_owned())
        },
    },
    InitQuestion {
        name: "sources",
        value_name: "PREFIXES",
        asks: "Far ends of the tunnels: only their packets lose the headers; `-` for all",
        kind: AnswerKind::Prefixes,
        proposes: |_, _| Some(String::new()),
    },
];

fn write(answers: &Answers, machine: &Machine) -> String {
    let [tunnels, hosts] = ["tunnels", "hosts"].map(|name| answers.get(name));
    let workers = machine.workers(&[tunnels, hosts]);
    let sources = answers.get("sources").split(',').map(str::trim).filter(|source| !source.is_empty());
    let mut rules: String = sources
        .enumerate()
        .map(|(at, source)| {
            format!("[[gre.rule]]\nname = \"source-{at}\"\nport = \"tunnels\"\nsource = \"{source}\"\n\n")
        })
        .collect();
    if rules.is_empty() {
        rules.push_str("# Without any [[gre.rule]], every tunnel packet loses its headers.\n\n");
    }
    format!(
        "# A GRE header remover in the wire. `kaido check -c FILE` says whether it is good; docs/gre.md says what rules can do,\n\
         # docs/configuration.md has every field.\n\
         function = \"gre\"\n\
         \n\
         [node]\n\
         # Each has a CPU, and a queue of each port.\n\
         workers = {workers}\n\
         \n\
         [[port]]\n\
         name = \"tunnels\"\n\
         driver = \"af_xdp\"\n\
         interface = \"{tunnels}\"\n\
         # What comes in here leaves there, and the other way round.\n\
         peer_port = \"hosts\"\n\
         \n\
         [[port]]\n\
         name = \"hosts\"\n\
         driver = \"af_xdp\"\n\
         interface = \"{hosts}\"\n\
         \n\
         {rules}\
         # http://127.0.0.1:9105/metrics for Prometheus.\n\
         [metrics]\n\
         listen = \"127.0.0.1\"\n"
    )
}

fn next(answers: &Answers, _: &Machine) -> Vec<String> {
    let [tunnels, hosts] = ["tunnels", "hosts"].map(|name| answers.get(name));
    vec![
        format!(
            "take addresses off {tunnels} and {hosts}: the node is in the wire between them, and frames keep their addresses"
        ),
        "`kaido show gre` counts what each rule has done".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::config::check::tests::whole;

    #[test]
    fn every_way_to_answer_is_a_good_file() {
        let machine = Machine { interfaces: Vec::new(), cpus: 8 };
        for (sources, rules) in [("", 1), ("192.0.2.0/24, 2001:db8::/32", 2)] {
            let answers = Answers::from([("tunnels", "ens4"), ("hosts", "ens5"), ("sources", sources)]);
            let config = whole(&write(&answers, &machine)).unwrap();
            assert_eq!(config.rules(), rules);
        }
    }
}
