//! What is wrong with a configuration file, as the user sees it.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use thiserror::Error;

use super::schema::FunctionSchema;
use super::wanted;

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, in bytes of the text.
    pub at: Range<usize>,
    /// The field; empty when the text is no file of its kind.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub help: String,
}

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigFault {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
        /// What says what goes there.
        described: &'static str,
    },
    /// The file says something that cannot be.
    #[error("{message}")]
    Wrong {
        /// The first fault in one line: file, line, field, what.
        message: String,
        /// The file's text, to show the places.
        text: Box<NamedSource<String>>,
        /// The places.
        labels: Vec<LabeledSpan>,
        /// How to mend it.
        help: String,
    },
}

impl Diagnostic for ConfigFault {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        match self {
            Self::Unreadable { described, .. } => {
                Some(Box::new(format!("name a readable file with -c; {described} describes it")))
            }
            Self::Wrong { help, .. } => Some(Box::new(help)),
        }
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        match self {
            Self::Unreadable { .. } => None,
            Self::Wrong { text, .. } => Some(&**text),
        }
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        match self {
            Self::Unreadable { .. } => None,
            Self::Wrong { labels, .. } => Some(Box::new(labels.iter().cloned())),
        }
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}

/// What serde or the TOML grammar refused.
pub(crate) fn syntax(
    path: &Path,
    text: String,
    error: &toml::de::Error,
    functions: &[FunctionSchema],
) -> ConfigFault {
    let at = error.span().unwrap_or(0..0);
    let said = error.message().trim().replace('\n', "; ");
    let field = wanted::at(&text, at.start, &said, functions);
    let said = plain(&said);
    let line = line_of(&text, at.start);
    let labels = vec![LabeledSpan::new(Some("here".to_owned()), at.start, at.len())];
    let (message, help) = match field {
        Some(wanted) => (
            format!("{}:{line}: {}: {said}", path.display(), wanted.field),
            format!("{}: {}", wanted.field, wanted.help),
        ),
        None => (format!("{}:{line}: {said}", path.display()), wanted::REFERENCE.to_owned()),
    };
    ConfigFault::Wrong {
        message,
        text: Box::new(NamedSource::new(path.to_string_lossy(), text)),
        labels,
        help,
    }
}

/// What `check` found.
pub fn faults(path: &Path, text: String, faults: Vec<Fault>) -> ConfigFault {
    let lines: Vec<_> = faults
        .iter()
        .map(|fault| {
            let line = line_of(&text, fault.at.start);
            let field = if fault.field.is_empty() { String::new() } else { format!("{}: ", fault.field) };
            format!("{}:{line}: {field}{}", path.display(), fault.message)
        })
        .collect();
    let help = faults.iter().map(|fault| {
        let field = if fault.field.is_empty() { String::new() } else { format!("{}: ", fault.field) };
        format!("{field}{}", fault.help)
    });
    let help = help.collect::<Vec<_>>();
    let labels = faults
        .into_iter()
        .map(|fault| LabeledSpan::new(Some(fault.message), fault.at.start, fault.at.len()))
        .collect();
    ConfigFault::Wrong {
        message: lines.join("\n"),
        text: Box::new(NamedSource::new(path.to_string_lossy(), text)),
        labels,
        help: help.join("\n"),
    }
}

/// What the reader says, without names of the language that it is written in.
fn plain(said: &str) -> String {
    const NUMBERS: [&str; 10] = ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize"];
    let said = match said.rsplit_once(", expected ") {
        Some((said, kind)) if NUMBERS.contains(&kind) => match said.strip_prefix("invalid value: integer ") {
            Some(value) => format!("{value} is out of range"),
            None => format!("{said}, expected a whole number"),
        },
        Some((said, "f32" | "f64")) => format!("{said}, expected a number"),
        _ => said.to_owned(),
    };
    [
        ("invalid type: ", "wrong kind of value: "),
        ("unknown variant ", "unknown value "),
        ("wanted string or table", "expected a text"),
        ("floating point ", "number "),
        ("a sequence", "a list"),
        ("a map", "a table"),
        ("string ", "text "),
        ("a string", "a text"),
    ]
    .into_iter()
    .fold(said, |said, (from, to)| said.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_is_wrong_is_said_in_words_of_the_file() {
        for (said, words) in [
            ("invalid value: integer `300`, expected u8", "`300` is out of range"),
            (
                "invalid type: string \"two\", expected u8",
                "wrong kind of value: text \"two\", expected a whole number",
            ),
            ("unknown variant `x`, expected one of `a`, `b`", "unknown value `x`, expected one of `a`, `b`"),
            ("wanted string or table", "expected a text"),
            ("missing field `listen`", "missing field `listen`"),
        ] {
            assert_eq!(plain(said), words);
        }
    }
}
