//! `kaido init ndn`.

use kaido_node::init::{AnswerKind, Answers, FirstConfig, InitQuestion, Machine};

/// A router for this host's applications, and a way up.
pub(super) const FIRST_CONFIG: FirstConfig = FirstConfig { questions: QUESTIONS, write, next };

const QUESTIONS: &[InitQuestion] = &[
    InitQuestion {
        name: "next-hop",
        value_name: "ADDRESS",
        asks: "Router that Interests for all names go to",
        kind: AnswerKind::Address,
        proposes: |_, _| None,
    },
    InitQuestion {
        name: "socket",
        value_name: "PATH",
        asks: "Unix socket for applications; /run/nfd/nfd.sock is where they look",
        kind: AnswerKind::Text,
        proposes: |_, _| Some("/run/nfd/nfd.sock".to_owned()),
    },
];

fn write(answers: &Answers, _: &Machine) -> String {
    let [next_hop, socket] = ["next-hop", "socket"].map(|name| answers.get(name));
    let remote = match next_hop.contains(':') {
        true => format!("udp6://[{next_hop}]:6363"),
        false => format!("udp4://{next_hop}:6363"),
    };
    let socket = if socket.is_empty() { String::new() } else { format!("unix = \"{socket}\"\n") };
    format!(
        "# An NDN router. `kaido check -c FILE` says whether it is good; docs/ndn.md explains, docs/configuration.md has every field.\n\
         function = \"ndn\"\n\
         \n\
         [ndn.listen]\n\
         # For applications of this host.\n\
         {socket}\
         # For neighbours.\n\
         udp = [\"0.0.0.0:6363\", \"[::]:6363\"]\n\
         tcp = [\"[::]:6363\"]\n\
         \n\
         # The Content Store.\n\
         [ndn.cs]\n\
         packets = 65536\n\
         memory_mib = 256\n\
         \n\
         # The way up.\n\
         [[ndn.face]]\n\
         remote = \"{remote}\"\n\
         \n\
         [[ndn.route]]\n\
         prefix = \"/\"\n\
         to = \"{remote}\"\n\
         \n\
         # http://127.0.0.1:9105/metrics for Prometheus.\n\
         [metrics]\n\
         listen = \"127.0.0.1\"\n"
    )
}

fn next(answers: &Answers, _: &Machine) -> Vec<String> {
    vec![format!("`kaido ndn ping /NAME` asks {} and says how long that took", answers.get("next-hop"))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::config::check::tests::whole;

    #[test]
    fn every_way_to_answer_is_a_good_file() {
        let machine = Machine { interfaces: Vec::new(), cpus: 8 };
        for (next_hop, socket, remote) in [
            ("192.0.2.1", "/run/nfd/nfd.sock", "udp4://192.0.2.1:6363"),
            ("2001:db8::1", "", "udp6://[2001:db8::1]:6363"),
        ] {
            let answers = Answers::from([("next-hop", next_hop), ("socket", socket)]);
            let text = write(&answers, &machine);
            assert!(text.contains(remote));
            whole(&text).unwrap();
        }
    }
}
