//! What was found wrong with packets, and how it is shown.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What is wrong with a packet. In serde and in text: its name in snake case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// Never came, or came when the window had gone on.
    Lost,
    /// Came again.
    Duplicated,
    /// Came after a packet that was sent later.
    Reordered,
    /// Came later than the limit of the run.
    Late,
    /// Its bytes do not give its trailer's check sum.
    Corrupted,
    /// Shorter than its own headers say.
    Truncated,
    /// Longer than its own headers say, and than the shortest frame of Ethernet.
    Padded,
    /// No trailer of this run.
    Unrecognised,
    /// Came out of another port than it should.
    WrongPort,
    /// Whole, but fields differ from what the rules say.
    WrongFields,
    /// Came though the rules say that it must not.
    Unexpected,
}

impl FindingKind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Duplicated => "duplicated",
            Self::Reordered => "reordered",
            Self::Late => "late",
            Self::Corrupted => "corrupted",
            Self::Truncated => "truncated",
            Self::Padded => "padded",
            Self::Unrecognised => "unrecognised",
            Self::WrongPort => "wrong_port",
            Self::WrongFields => "wrong_fields",
            Self::Unexpected => "unexpected",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// How many there were.
    pub total: u64,
    /// By kind.
    pub kinds: BTreeMap<FindingKind, u64>,
    /// Of those with wrong fields: how often which field was.
    pub fields: BTreeMap<String, u64>,
    /// The first of them, as many as the run keeps.
    pub kept: Vec<Finding>,
}

/// One packet that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// More of it, in a few words; may be empty.
    pub detail: String,
    /// The stream, where the trailer tells.
    pub stream: Option<String>,
    /// The sequence number, where the trailer tells.
    pub sequence: Option<u64>,
    /// Where it came out; empty when it never did.
    pub port: String,
    /// When it came, in nanoseconds since the run began.
    pub time_ns: u64,
    /// Fields of what should have come and of what came, in the order of the packet.
    pub rows: Vec<Row>,
}

impl Finding {
    /// Names of the fields that differ.
    pub fn wrong_fields(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter(|row| row.differs()).map(|row| row.field.as_str())
    }
}

/// A field of two packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name, such as `gtpu.teid`.
    pub field: String,
    /// What it should be; `None` when it should not be there, or nothing is known.
    pub expected: Option<String>,
    /// What it is; `None` when it is not there.
    pub found: Option<String>,
    /// Whether the two do not agree. A field for which several values are right may agree and not be equal.
    pub wrong: bool,
}

impl Row {
    /// Whether the field is wrong.
    pub fn differs(&self) -> bool {
        self.wrong
    }
}

/// Side by side: a line for each field, wrong ones marked.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let (Some(stream), Some(sequence)) = (&self.stream, self.sequence) {
            write!(f, ": stream {stream}, packet {sequence}")?;
        }
        if !self.port.is_empty() {
            write!(f, ", at port {}", self.port)?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        writeln!(f)?;
        let width = |cells: &dyn Fn(&Row) -> usize| self.rows.iter().map(cells).max().unwrap_or(0);
        let text = |cell: &Option<String>| cell.as_deref().unwrap_or("-").to_owned();
        let names = width(&|row| row.field.chars().count()).max("field".len());
        let left = width(&|row| text(&row.expected).chars().count()).max("expected".len());
        if !self.rows.is_empty() {
            writeln!(f, "    {:names$}  {:left$}  found", "field", "expected")?;
        }
        for row in &self.rows {
            let mark = if row.differs() { '!' } else { ' ' };
            writeln!(
                f,
                "  {mark} {:names$}  {:left$}  {}",
                row.field,
                text(&row.expected),
                text(&row.found)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_shown_side_by_side() {
        let row = |field: &str, expected: &str, found: Option<&str>, wrong| Row {
            field: field.to_owned(),
            expected: Some(expected.to_owned()),
            found: found.map(str::to_owned),
            wrong,
        };
        let finding = Finding {
            kind: FindingKind::WrongFields,
            detail: String::new(),
            stream: Some("down".to_owned()),
            sequence: Some(7),
            port: "n3".to_owned(),
            time_ns: 0,
            rows: vec![
                row("gtpu.teid", "0x00000001", Some("0x00000002"), true),
                row("ipv4.ttl", "63", Some("63"), false),
                row("udp.length", "8", None, true),
            ],
        };
        let text = finding.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "wrong_fields: stream down, packet 7, at port n3",
                "    field       expected    found",
                "  ! gtpu.teid   0x00000001  0x00000002",
                "    ipv4.ttl    63          63",
                "  ! udp.length  8           -",
            ]
        );
        assert_eq!(finding.wrong_fields().collect::<Vec<_>>(), ["gtpu.teid", "udp.length"]);
    }

    #[test]
    fn names_are_those_of_serde() {
        for kind in [FindingKind::Lost, FindingKind::WrongFields, FindingKind::WrongPort, FindingKind::Late] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }
}
