//! The text formats: Prometheus 0.0.4, and OpenMetrics 1.0 for those who ask for it.

use std::fmt::{self, Write};

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the process restarts. Its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by bucket, with a sum.
    Histogram,
}

impl Kind {
    /// The name in the formats.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric: samples of one name, told apart by labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, base unit last (`_seconds`, `_bytes`, `_total`).
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The labels of its samples, in their order.
    pub labels: &'static [&'static str],
    /// One sentence, with the unit.
    pub help: &'static str,
}

/// How the text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// What a client that sent this `Accept` header likes best; text where it says nothing.
    pub fn for_accept(accept: Option<&str>) -> Self {
        let (mut open, mut text) = (0, 0);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let (mut thousandths, mut version) = (1000, None);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.trim() {
                    "q" => thousandths = quality(value.trim()),
                    "version" => version = Some(value.trim()),
                    _ => {}
                }
            }
            match media {
                "application/openmetrics-text" if version.is_none_or(|version| version == "1.0.0") => {
                    open = open.max(thousandths);
                }
                "text/plain" | "text/*" | "*/*" => text = text.max(thousandths),
                _ => {}
            }
        }
        if open > 0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// The `Content-Type` of the text.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A quality value (RFC 9110 12.4.2) in thousandths; 0 for what is none.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Between 0 and 1000.
fn quality(text: &str) -> u32 {
    text.parse::<f64>().map_or(0, |value| (value.clamp(0.0, 1.0) * 1000.0) as u32)
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Whole(u64),
    /// A measurement.
    Real(f64),
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Whole(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Self::Whole(count.into())
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Whole(count as u64)
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Self::Whole(yes.into())
    }
}

impl From<f64> for Value {
    fn from(measured: f64) -> Self {
        Self::Real(measured)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Whole(count) => write!(f, "{count}"),
            Self::Real(value) if value.is_nan() => f.write_str("NaN"),
            Self::Real(f64::INFINITY) => f.write_str("+Inf"),
            Self::Real(f64::NEG_INFINITY) => f.write_str("-Inf"),
            Self::Real(value) => write!(f, "{value:?}"),
        }
    }
}

/// What a histogram has counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Upper bounds, ascending, each included in its bucket.
    pub bounds: Vec<f64>,
    /// Counts of each bucket by itself, and last of what is above all bounds.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
}

/// The text, family by family.
#[derive(Debug)]
pub struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    /// Empty.
    pub fn new(format: Format) -> Self {
        Self { format, text: String::new() }
    }

    /// Begins a family; its samples follow. A family is begun once.
    pub fn family(&mut self, family: &'static Family) -> Samples<'_> {
        // In OpenMetrics a counter's family has no suffix, its sample does.
        let name = match (self.format, family.kind) {
            (Format::OpenMetrics, Kind::Counter) => family.name.strip_suffix("_total").unwrap_or(family.name),
            _ => family.name,
        };
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        escape(&mut self.text, family.help, self.format == Format::OpenMetrics);
        self.text.push_str("\n# TYPE ");
        self.text.push_str(name);
        self.text.push(' ');
        self.text.push_str(family.kind.name());
        self.text.push('\n');
        Samples { family, text: &mut self.text }
    }

    /// The text, ready to be sent.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// Takes the samples of one family.
#[derive(Debug)]
pub struct Samples<'e> {
    family: &'static Family,
    text: &'e mut String,
}

impl Samples<'_> {
    /// A sample, with a value for each of the family's labels.
    pub fn add(&mut self, labels: &[&str], value: impl Into<Value>) -> &mut Self {
        debug_assert_eq!(labels.len(), self.family.labels.len(), "{}", self.family.name);
        self.add_labelled(self.family.labels.iter().copied().zip(labels.iter().copied()), value)
    }

    /// A sample of some of the family's labels: for those that not every sample has.
    pub fn add_labelled<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        value: impl Into<Value>,
    ) -> &mut Self {
        self.line("", labels, value.into());
        self
    }

    /// A histogram, with a value for each of the family's labels.
    pub fn histogram(&mut self, labels: &[&str], buckets: &Buckets) -> &mut Self {
        debug_assert_eq!(labels.len(), self.family.labels.len(), "{}", self.family.name);
        let family = self.family;
        let own: Vec<_> = family.labels.iter().copied().zip(labels.iter().copied()).collect();
        let bounds = buckets.bounds.iter().copied().chain([f64::INFINITY]);
        let mut total = 0;
        for (bound, count) in bounds.zip(&buckets.counts) {
            total += count;
            let bound = Value::Real(bound).to_string();
            self.line("_bucket", own.iter().copied().chain([("le", bound.as_str())]), total.into());
        }
        self.line("_sum", own.iter().copied(), buckets.sum.into());
        self.line("_count", own, total.into());
        self
    }

    fn line<'l>(&mut self, suffix: &str, labels: impl IntoIterator<Item = (&'l str, &'l str)>, value: Value) {
        self.text.push_str(self.family.name);
        self.text.push_str(suffix);
        let mut opened = false;
        for (name, value) in labels {
            self.text.push(if opened { ',' } else { '{' });
            opened = true;
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(self.text, value, true);
            self.text.push('"');
        }
        if opened {
            self.text.push('}');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, " {value}");
    }
}

/// Appends text with backslashes and line feeds escaped, and quotes where they end it.
fn escape(to: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '"' if quotes => to.push_str("\\\""),
            c => to.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DROPS: Family = Family {
        name: "drops_total",
        kind: Kind::Counter,
        labels: &["port", "reason"],
        help: "Packets \"lost\".",
    };
    const TIMES: Family = Family {
        name: "times_seconds",
        kind: Kind::Histogram,
        labels: &["stage"],
        help: "Time, in seconds.",
    };
    const LOAD: Family = Family { name: "load", kind: Kind::Gauge, labels: &[], help: "A\nB\\C" };

    fn written(format: Format) -> String {
        let mut text = Exposition::new(format);
        text.family(&DROPS).add(&["n3", "no_pdr"], 3_u64).add(&["n6", "a\"b"], 0_u32);
        let buckets = Buckets { bounds: vec![0.001, 1.0], counts: vec![2, 0, 1], sum: 7.5 };
        text.family(&TIMES).histogram(&["act"], &buckets);
        text.family(&LOAD).add(&[], f64::INFINITY);
        text.finish()
    }

    #[test]
    fn the_text_format_is_as_it_is_documented() {
        assert_eq!(
            written(Format::Text),
            "# HELP drops_total Packets \"lost\".\n\
             # TYPE drops_total counter\n\
             drops_total{port=\"n3\",reason=\"no_pdr\"} 3\n\
             drops_total{port=\"n6\",reason=\"a\\\"b\"} 0\n\
             # HELP times_seconds Time, in seconds.\n\
             # TYPE times_seconds histogram\n\
             times_seconds_bucket{stage=\"act\",le=\"0.001\"} 2\n\
             times_seconds_bucket{stage=\"act\",le=\"1.0\"} 2\n\
             times_seconds_bucket{stage=\"act\",le=\"+Inf\"} 3\n\
             times_seconds_sum{stage=\"act\"} 7.5\n\
             times_seconds_count{stage=\"act\"} 3\n\
             # HELP load A\\nB\\\\C\n\
             # TYPE load gauge\n\
             load +Inf\n"
        );
    }

    #[test]
    fn openmetrics_names_counters_without_suffix_and_ends() {
        let text = written(Format::OpenMetrics);
        assert!(text.contains("# TYPE drops counter\ndrops_total{"), "{text}");
        assert!(
            text.contains("# HELP drops Packets \\\"lost\\\".\n") && text.ends_with("\n# EOF\n"),
            "{text}"
        );
    }

    #[test]
    fn the_best_format_that_is_accepted_is_chosen() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, open) in [
            (None, false),
            (Some(""), false),
            (Some("*/*"), false),
            (Some(prometheus), true),
            (Some("application/openmetrics-text"), true),
            (Some("application/openmetrics-text;version=0.0.1"), false),
            (Some("application/openmetrics-text; version=1.0.0; q=0.1, text/plain"), false),
            (Some("application/openmetrics-text;q=0"), false),
            (Some("application/openmetrics-text;q=nonsense,,;;=,"), false),
        ] {
            assert_eq!(Format::for_accept(accept) == Format::OpenMetrics, open, "{accept:?}");
        }
    }

    #[test]
    fn values_are_those_that_prometheus_reads() {
        let shown = |value: Value| value.to_string();
        assert_eq!(shown(u64::MAX.into()), "18446744073709551615");
        assert_eq!(
            [f64::NAN, f64::NEG_INFINITY, 0.0, 1e-9].map(|v| shown(v.into())),
            ["NaN", "-Inf", "0.0", "1e-9"]
        );
        assert_eq!([shown(true.into()), shown(7_usize.into())], ["1", "7"]);
    }

    /// The label values of a line, read as Prometheus' lexer reads them.
    fn read_back(line: &str) -> Vec<String> {
        let (mut values, mut value, mut inside) = (Vec::new(), String::new(), false);
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match (inside, c) {
                (false, '"') => inside = true,
                (true, '"') => {
                    values.push(std::mem::take(&mut value));
                    inside = false;
                }
                (true, '\\') => match chars.next() {
                    Some('n') => value.push('\n'),
                    Some(escaped) => value.push(escaped),
                    None => panic!("ends in a backslash: {line}"),
                },
                (true, c) => value.push(c),
                (false, _) => {}
            }
        }
        assert!(!inside, "{line}");
        values
    }

    proptest! {
        #[test]
        fn label_values_come_back_whatever_is_in_them(port in any::<String>(), reason in "[\\\\\"\n{},=]{0,12}") {
            let mut text = Exposition::new(Format::Text);
            text.family(&DROPS).add(&[&port, &reason], 1_u64);
            let text = text.finish();
            let line = text.strip_suffix('\n').and_then(|text| text.splitn(3, '\n').nth(2)).unwrap();
            prop_assert!(!line.contains('\n'), "one line a sample: {line:?}");
            prop_assert_eq!(read_back(line), [port, reason]);
        }

        #[test]
        fn accept_headers_of_any_kind_are_read(accept in any::<String>()) {
            Format::for_accept(Some(&accept));
        }
    }
}
