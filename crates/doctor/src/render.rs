//! Findings for people, and for machines.

use super::{Finding, Verdict};

/// The findings as text, by subject.
pub(super) fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    let mut subject = "";
    for finding in findings {
        if finding.subject != subject {
            if !subject.is_empty() {
                text.push('\n');
            }
            subject = &finding.subject;
            text.push_str(&format!("{subject}\n"));
        }
        let verdict = finding.verdict.name();
        text.push_str(&format!("  {verdict:6}  {:13}  {}\n", finding.check, finding.said));
        for command in &finding.commands {
            text.push_str(&format!("{:25}$ {command}\n", ""));
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (advice, faults) = (count(Verdict::Advice), count(Verdict::Fault));
    let closing = match faults {
        0 => "the node can run here".to_owned(),
        _ => format!("the node cannot run here; faults: {faults}"),
    };
    text.push_str(&format!("\n{closing}; advice: {advice}\n"));
    text
}

/// The findings as JSON.
pub(super) fn json(findings: &[Finding]) -> serde_json::Value {
    serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "can_run": super::can_run(findings),
        "findings": findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        vec![
            Finding::ok("machine", "kernel", "Linux 6.12"),
            Finding::advice("n3", "queues", "1 receive queue of 4").run("ethtool -L n3 combined 2"),
            Finding::fault("n3", "interface", "it is not there"),
        ]
    }

    #[test]
    fn findings_stand_under_their_subject_with_their_commands() {
        let expected = "machine\n\
            \x20 ok      kernel         Linux 6.12\n\
            \n\
            n3\n\
            \x20 advice  queues         1 receive queue of 4\n\
            \x20                        $ ethtool -L n3 combined 2\n\
            \x20 FAULT   interface      it is not there\n\
            \n\
            the node cannot run here; faults: 1; advice: 1\n";
        assert_eq!(text(&findings()), expected);
    }

    #[test]
    fn machines_get_every_field() {
        let json = json(&findings());
        assert_eq!(json["can_run"], false);
        assert_eq!(json["findings"][1]["verdict"], "advice");
        assert_eq!(json["findings"][1]["commands"][0], "ethtool -L n3 combined 2");
        assert_eq!(json["findings"][0]["commands"], serde_json::json!([]));
    }
}
