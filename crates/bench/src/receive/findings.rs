//! Keeps the first findings of each kind, and counts the others.

use std::collections::BTreeMap;

use crate::generator::CompiledTraffic;
use crate::result::{Finding, FindingKind, Findings, Row};

/// Different sets of wrong fields that are told apart among the findings that are kept.
const SHAPES_MAX: usize = 256;

/// A finding by numbers; names are looked up for those that are kept.
#[derive(Debug)]
pub(super) struct NumberedFinding {
    pub(super) kind: FindingKind,
    pub(super) detail: String,
    /// Numbers of the stream and of the packet.
    pub(super) stream: Option<(usize, u64)>,
    pub(super) port: Option<usize>,
    pub(super) time_ns: u64,
}

/// All findings of a run.
#[derive(Debug)]
pub(super) struct Ledger {
    keep: usize,
    findings: Findings,
    /// How many are kept of a kind; of packets with wrong fields, of each set of fields.
    kept: BTreeMap<(FindingKind, String), usize>,
    frames: Vec<(u64, Vec<u8>)>,
}

impl Ledger {
    pub(super) fn new(keep: usize) -> Self {
        Self { keep, findings: Findings::default(), kept: BTreeMap::new(), frames: Vec::new() }
    }

    /// Counts a finding. It is kept with its rows and frames if there is room for its kind.
    pub(super) fn add(
        &mut self,
        found: NumberedFinding,
        compiled: &CompiledTraffic,
        rows: impl FnOnce() -> Vec<Row>,
        frames: &[&[u8]],
    ) {
        self.findings.total += 1;
        *self.findings.kinds.entry(found.kind).or_default() += 1;
        let is_of_fields = found.kind == FindingKind::WrongFields;
        let shape = (found.kind, if is_of_fields { found.detail.clone() } else { String::new() });
        if is_of_fields {
            for field in found.detail.split(", ") {
                *self.findings.fields.entry(field.to_owned()).or_default() += 1;
            }
        }
        if self.kept.len() >= SHAPES_MAX && !self.kept.contains_key(&shape) {
            return;
        }
        let kept = self.kept.entry(shape).or_default();
        if *kept >= self.keep {
            return;
        }
        *kept += 1;
        self.frames.extend(frames.iter().map(|frame| (found.time_ns, frame.to_vec())));
        self.findings.kept.push(Finding {
            kind: found.kind,
            detail: found.detail,
            stream: found.stream.and_then(|(stream, _)| compiled.streams().nth(stream)).map(str::to_owned),
            sequence: found.stream.map(|(_, sequence)| sequence),
            port: found.port.map(|port| compiled.ports()[port].clone()).unwrap_or_default(),
            time_ns: found.time_ns,
            rows: rows(),
        });
    }

    /// The findings, and the frames of those that are kept.
    pub(super) fn into_parts(self) -> (Findings, Vec<(u64, Vec<u8>)>) {
        (self.findings, self.frames)
    }
}
