//! `kaido session`: a session with its rules.

use std::path::Path;

use kaido_node::show::{ask, print_json, table_text};
use serde_json::Value;

use super::api::{GetSession, KernelShare, SessionDetail};

/// `kaido session`.
pub(crate) fn session(socket: &Path, json: bool, seid: u64) -> miette::Result<()> {
    let detail = ask(socket, &GetSession { seid })?;
    if json {
        return print_json(&detail);
    }
    print!("{}", whole(&detail));
    Ok(())
}

/// A session with its rules, for `kaido top`.
///
/// # Errors
/// When no user plane answers, or it has no such session.
pub(crate) fn described(socket: &Path, seid: u64) -> miette::Result<String> {
    Ok(whole(&ask(socket, &GetSession { seid })?))
}

/// As it is shown.
fn whole(detail: &SessionDetail) -> String {
    let of = &detail.session;
    let bytes = |bytes: u64, packets: u64| format!("{bytes} B in {packets} packets");
    let imsi = of.imsi.clone().unwrap_or_else(|| "not told".to_owned());
    let rows = [
        ("seid", of.seid.clone()),
        ("imsi", imsi),
        ("network instances", of.network_instances.join(" ")),
        ("control plane's seid", of.cp_seid.clone()),
        ("ue", of.ue.join(" ")),
        ("local tunnel", of.local.join(" ")),
        ("remote tunnel", of.remote.join(" ")),
        ("uplink", bytes(of.uplink_bytes, of.uplink_packets)),
        ("downlink", bytes(of.downlink_bytes, of.downlink_packets)),
    ];
    let mut text = table_text(&["session", ""], &rows.map(|(name, value)| vec![name.to_owned(), value]));
    if !detail.kernel.is_empty() {
        let shares = detail.kernel.iter().map(|share| vec![share.key.clone(), share_of(share)]);
        text.push('\n');
        text.push_str(&table_text(&["in the kernel", ""], &shares.collect::<Vec<_>>()));
    }
    text.push_str("\nrules as installed\n");
    text.push_str(&tree(&detail.rules, 1));
    text
}

/// What the kernel does with packets of a key.
fn share_of(share: &KernelShare) -> String {
    match (share.held, &share.left[..]) {
        (true, []) => "all".to_owned(),
        (true, left) => format!("some; the workers have others: {}", left.join("; ")),
        (false, left) => format!("none: {}", left.join("; ")),
    }
}

/// Lines of a value, a field each. What is not set is left out.
fn tree(value: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let of = |name: &str, value: &Value| match value {
        value if is_unset(value) => String::new(),
        Value::Object(_) | Value::Array(_) => format!("{indent}{name}\n{}", tree(value, depth + 1)),
        plain => format!("{indent}{name} {}\n", text(plain)),
    };
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| of(name, value)).collect(),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let items: Vec<_> = items.iter().map(text).collect();
            format!("{indent}{}\n", items.join(" "))
        }
        Value::Array(items) => items.iter().map(|item| of("-", item)).collect(),
        plain => format!("{indent}{}\n", text(plain)),
    }
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_read_well() {
        let rules = serde_json::json!({
            "fars": {"1": {"forward": true, "drop": false, "destination": null}},
            "pdrs": {"2": {"precedence": 255, "qer_ids": [1, 2], "pdi": {"ue_ip": [{"ipv4": "10.0.0.1"}]}}},
            "qers": {}
        });
        let expected = [
            "fars",
            "  1",
            "    forward true",
            "pdrs",
            "  2",
            "    precedence 255",
            "    qer_ids",
            "      1 2",
            "    pdi",
            "      ue_ip",
            "        -",
            "          ipv4 10.0.0.1",
        ];
        let expected: String = expected.iter().map(|line| format!("  {line}\n")).collect();
        assert_eq!(tree(&rules, 1), expected);
    }
}
