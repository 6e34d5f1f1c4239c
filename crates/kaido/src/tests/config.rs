//! The files of the functions, and their reference.

use std::path::Path;

use kaido_node::config::FunctionSchema;
use kaido_node::file::{Config, reference};

use crate::FUNCTIONS;

fn schemas() -> Vec<FunctionSchema> {
    FUNCTIONS.iter().map(|function| function.schema()).collect()
}

fn error(function: &str, text: &str) -> String {
    let text = format!("function = \"{function}\"\n{text}");
    Config::parse(Path::new("kaido.toml"), text, FUNCTIONS).err().unwrap().to_string()
}

#[test]
fn the_book_has_this_reference() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let written = std::fs::read_to_string(&book).unwrap_or_default();
    assert!(written == reference(FUNCTIONS), "run `make reference` to write {}", book.display());
}

#[test]
fn every_field_is_told_and_read() {
    for function in schemas() {
        for section in function.file().iter() {
            let path = &section.path;
            assert!(!section.meaning.is_empty(), "{path}");
            let header = if section.is_list { format!("[[{path}]]") } else { format!("[{path}]") };
            for field in &section.fields {
                let name = &field.name;
                assert!(!field.meaning().is_empty() && !field.allowed().is_empty(), "{path}.{name}");
                // A table is of no field's kind: a field that exists complains of its kind, an unknown one of its name.
                let said = error(function.name, &format!("{header}\n{name} = {{ nothing = 1 }}\n"));
                assert!(!said.contains("unknown field"), "{path}.{name}: {said}");
            }
            let said = error(function.name, &format!("{header}\nno_such_field = 1\n"));
            assert!(said.contains("unknown field `no_such_field`, expected"), "{path}: {said}");
            if let Some(first) = section.fields.first() {
                assert!(said.contains(&format!("`{}`", first.name)), "{path}: {said}");
            }
        }
    }
}

#[test]
fn defaults_are_allowed() {
    for function in schemas() {
        let sections = function.file();
        for (section, field) in
            sections.iter().flat_map(|section| section.fields.iter().map(move |field| (section, field)))
        {
            let (Some((low, high)), Ok(default)) = (field.bounds(), field.default().parse()) else {
                continue;
            };
            let or_zero = field.allowed().starts_with("0,") && default == 0;
            assert!(or_zero || (low..=high).contains(&default), "{}.{}: {default}", section.path, field.name);
        }
    }
}

#[test]
fn what_is_anothers_is_refused_with_its_place() {
    for (function, text, wanted) in [
        ("gre", "[pfcp]\nlisten = []\n", "kaido.toml:2: pfcp: of function = \"upf\""),
        ("gre", "[node]\nworkers = 1\nsessions_max = 1\n", "kaido.toml:4: node.sessions_max: of"),
        ("gre", "[reassembly]\nenabled = true\n", "kaido.toml:3: reassembly.enabled: of function = \"upf\""),
        ("gre", "[[port]]\nroles = [\"n3\"]\n", "kaido.toml:3: port.roles: of function = \"upf\""),
        ("ndn", "[[port]]\nvlan = 7\n", "kaido.toml:3: port.vlan: of function = \"upf\""),
        ("upf", "[[gre.rule]]\n", "kaido.toml:2: gre: of function = \"gre\""),
        ("upf", "[[port]]\npeer_port = \"b\"\n", "kaido.toml:3: port.peer_port: of function = \"gre\""),
        ("upf", "[pfpc]\n", "kaido.toml:2: unknown field `pfpc`, expected one of `node`, `port`"),
        (
            "upf",
            "[reassembly]\npacket = 1\n",
            "kaido.toml:3: unknown field `packet`, expected one of `packets`, ",
        ),
        ("gre", "[[port]]\npeer = \"b\"\n", "kaido.toml:3: unknown field `peer`, expected one of `name`, "),
        ("upf", "[gtpu]\npears = 1\n", "`bind_gnb`, `peer`"),
        ("ufp", "", "kaido.toml:1: unknown value `ufp`, expected one of `upf`, `gre`, `ndn`"),
    ] {
        let said = error(function, text);
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn fields_of_other_functions_are_not_expected() {
    let said = error("gre", "[node]\nworker = 1\n");
    assert!(said.contains("`workers`") && !said.contains("sessions_max"), "{said}");
}

/// A port of a function.
fn port(name: &str, function: &str, more: &str) -> String {
    format!(
        "[[port]]\nname = \"{name}\"\ndriver = \"af_packet\"\ninterface = \"{name}\"\n{function}\n{more}\n"
    )
}

#[test]
fn a_file_has_several_functions() {
    let gre = |name: &str, other: &str| port(name, "function = \"gre\"", &format!("peer_port = \"{other}\""));
    let text = format!("function = [\"gre\", \"ndn\"]\n{}{}", gre("a", "b"), gre("b", "a"))
        + &port("c", "function = \"ndn\"", "");
    let config =
        Config::parse(Path::new("kaido.toml"), text, FUNCTIONS).unwrap_or_else(|fault| panic!("{fault}"));
    let ports = config.functions.iter().map(|function| (function.schema().name, function.base().ports.len()));
    assert_eq!(ports.collect::<Vec<_>>(), [("gre", 2), ("ndn", 1)]);
    assert!(config.summary().contains("GRE header removal") && config.summary().contains("; NDN router"));
}

#[test]
fn what_is_wrong_with_several_functions_is_said() {
    let gre = "function = \"gre\"";
    let two = |first: &str, second: &str| format!("{first}{second}{}", port("z", "function = \"ndn\"", ""));
    for (functions, text, wanted) in [
        ("[\"gre\", \"ndn\"]", two(&port("a", "", ""), ""), "port.function: missing"),
        (
            "[\"gre\", \"ndn\"]",
            port("a", "function = \"upf\"", ""),
            "port.function: \"upf\" is no function of",
        ),
        ("[\"gre\", \"gre\"]", String::new(), "function: \"gre\" is there twice"),
        ("[\"gre\", \"x\"]", String::new(), "unknown value `x`, expected one of `upf`, `gre`"),
        ("[]", String::new(), "function: a node has one function at least"),
        (
            "[\"gre\", \"ndn\"]",
            "[pfcp]\n".to_owned(),
            "pfcp: of function = \"upf\", and this file's function is \"gre\", \"ndn\"",
        ),
        (
            "[\"gre\", \"ndn\"]",
            port("a", "function = \"ndn\"", "peer_port = \"b\""),
            "port.peer_port: of function = \"gre\"",
        ),
        (
            "[\"gre\", \"ndn\"]",
            two(&port("a", gre, "peer_port = \"b\""), &port("b", gre, "peer_port = \"a\""))
                + &port("a", "function = \"ndn\"", ""),
            "port.name: `a` is used twice",
        ),
        (
            "[\"gre\", \"ndn\"]",
            "[dpdk]\neal = [\"-a\"]\n".to_owned() + &two("", ""),
            "dpdk.eal: no port is DPDK's",
        ),
    ] {
        let text = format!("function = {functions}\n{text}");
        let said = Config::parse(Path::new("kaido.toml"), text, FUNCTIONS).err().unwrap().to_string();
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}
