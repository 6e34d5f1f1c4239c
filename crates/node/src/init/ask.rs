//! Questions, and their answers by options or line by line.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::net::IpAddr;

use miette::{IntoDiagnostic, miette};

use super::{FirstConfig, Machine};
use crate::config::Prefix;

/// A question of `kaido init`, which is an option too.
#[derive(Clone, Copy, Debug)]
pub struct InitQuestion {
    /// The option: `n3`.
    pub name: &'static str,
    /// What an answer is, in a word.
    pub value_name: &'static str,
    /// What is asked.
    pub asks: &'static str,
    /// What an answer must be.
    pub kind: AnswerKind,
    /// What is proposed; none where an answer is needed.
    pub proposes: fn(&Answers, &Machine) -> Option<String>,
}

/// What an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// An interface of this machine.
    Interface,
    /// An address.
    Address,
    /// Prefixes, with commas between them, or nothing.
    Prefixes,
    /// Text without quotes or control characters, or nothing.
    Text,
}

impl AnswerKind {
    /// What is wrong with an answer, and what may be given.
    fn fault(self, answer: &str, machine: &Machine) -> Option<String> {
        match self {
            Self::Interface if machine.interface(answer).is_none() => {
                let names: Vec<_> = machine.interfaces.iter().map(|found| found.name.as_str()).collect();
                Some(format!("there is no interface \"{answer}\"; there are {}", names.join(", ")))
            }
            Self::Address if answer.parse::<IpAddr>().is_err() => {
                Some(format!("\"{answer}\" is no address, such as 192.0.2.1 or 2001:db8::1"))
            }
            Self::Prefixes => {
                let wrong =
                    list(answer).into_iter().find(|part| Prefix::try_from((*part).to_owned()).is_err())?;
                Some(format!("\"{wrong}\" is no prefix, such as 192.0.2.0/24"))
            }
            Self::Text => {
                let is_wrong = |letter: char| letter.is_control() || matches!(letter, '"' | '\\');
                answer.chars().any(is_wrong).then(|| format!("{answer:?} has a character that cannot be"))
            }
            _ => None,
        }
    }
}

/// The parts of an answer with commas.
fn list(answer: &str) -> Vec<&str> {
    answer.split(',').map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// What was answered, by the names of the questions.
#[derive(Clone, Debug, Default)]
pub struct Answers(BTreeMap<&'static str, String>);

impl Answers {
    /// An answer; nothing where it is empty.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// An answer as a TOML list of texts.
    pub fn list(&self, name: &str) -> String {
        let quoted: Vec<_> = list(self.get(name)).into_iter().map(|part| format!("\"{part}\"")).collect();
        format!("[{}]", quoted.join(", "))
    }
}

impl<const N: usize> From<[(&'static str, &str); N]> for Answers {
    fn from(answers: [(&'static str, &str); N]) -> Self {
        Self(answers.into_iter().map(|(name, answer)| (name, answer.to_owned())).collect())
    }
}

/// Who is asked.
pub(crate) struct Asker<I, O> {
    pub(crate) input: I,
    pub(crate) output: O,
    /// Else what is proposed is taken.
    pub(crate) is_asked: bool,
}

impl<I: BufRead, O: Write> Asker<I, O> {
    /// A line without blanks around it; none at the end of the input.
    fn line(&mut self, prompt: &str) -> miette::Result<Option<String>> {
        write!(self.output, "{prompt} ").and_then(|()| self.output.flush()).into_diagnostic()?;
        let mut line = String::new();
        let read = self.input.read_line(&mut line).into_diagnostic()?;
        Ok((read > 0).then(|| line.trim().to_owned()))
    }

    /// Whether the answer is yes.
    pub(crate) fn confirms(&mut self, question: &str) -> miette::Result<bool> {
        let answer = self.line(&format!("{question} [y/N]"))?.unwrap_or_default();
        Ok(matches!(answer.to_lowercase().as_str(), "y" | "yes"))
    }
}

/// Has every question answered: by its option, else by who is asked.
///
/// # Errors
/// An option's answer that cannot be, or none.
pub(crate) fn ask<I: BufRead, O: Write>(
    first: &FirstConfig,
    given: impl Fn(&str) -> Option<String>,
    machine: &Machine,
    asker: &mut Asker<I, O>,
) -> miette::Result<Answers> {
    let mut answers = Answers::default();
    for question in first.questions {
        let InitQuestion { name, kind, .. } = *question;
        let proposed = (question.proposes)(&answers, machine);
        let answer = match given(name) {
            Some(answer) => match kind.fault(&answer, machine) {
                Some(fault) => return Err(miette!("--{name}: {fault}")),
                None => answer,
            },
            None if !asker.is_asked => {
                proposed.ok_or_else(|| miette!("--{name} is needed: {}", question.asks))?
            }
            None => ask_one(question, proposed.as_deref(), machine, asker)?,
        };
        answers.0.insert(name, answer);
    }
    Ok(answers)
}

/// Asks until the answer can be.
fn ask_one<I: BufRead, O: Write>(
    question: &InitQuestion,
    proposed: Option<&str>,
    machine: &Machine,
    asker: &mut Asker<I, O>,
) -> miette::Result<String> {
    let InitQuestion { name, kind, asks, .. } = *question;
    if kind == AnswerKind::Interface {
        writeln!(asker.output, "{}", machine.described()).into_diagnostic()?;
    }
    let prompt = match proposed {
        Some(proposed) if !proposed.is_empty() => format!("{asks} [{proposed}]:"),
        _ => format!("{asks}:"),
    };
    loop {
        let line = asker.line(&prompt)?;
        let line = line.ok_or_else(|| miette!("there is no answer: --{name} gives it too"))?;
        let answer = match proposed {
            Some(proposed) if line.is_empty() => proposed.to_owned(),
            // Takes back what is proposed.
            _ if line == "-" => String::new(),
            _ => line,
        };
        match kind.fault(&answer, machine) {
            Some(fault) => writeln!(asker.output, "{fault}").into_diagnostic()?,
            None => return Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    const QUESTIONS: &[InitQuestion] = &[
        InitQuestion {
            name: "port",
            value_name: "NAME",
            asks: "Where",
            kind: AnswerKind::Interface,
            proposes: |_, machine| machine.first_name(),
        },
        InitQuestion {
            name: "peer",
            value_name: "ADDRESS",
            asks: "Who",
            kind: AnswerKind::Address,
            proposes: |_, _| None,
        },
        InitQuestion {
            name: "allow",
            value_name: "PREFIXES",
            asks: "From where",
            kind: AnswerKind::Prefixes,
            proposes: |answers, _| Some(format!("{}/32", answers.get("peer"))),
        },
    ];

    fn asked(options: &[(&str, &str)], lines: &str, is_asked: bool) -> (miette::Result<Answers>, String) {
        let first =
            FirstConfig { questions: QUESTIONS, write: |_, _| String::new(), next: |_, _| Vec::new() };
        let mut asker = Asker { input: lines.as_bytes(), output: Vec::new(), is_asked };
        let given = |name: &str| options.iter().find(|(own, _)| *own == name).map(|(_, it)| (*it).to_owned());
        let answers = ask(&first, given, &machine(), &mut asker);
        (answers, String::from_utf8(asker.output).unwrap())
    }

    #[test]
    fn what_is_proposed_is_taken_by_an_empty_line() {
        let (answers, shown) = asked(&[], "\n192.0.2.1\n\n", true);
        let answers = answers.unwrap();
        assert_eq!((answers.get("port"), answers.get("allow")), ("ens4", "192.0.2.1/32"));
        assert!(shown.contains("Where [ens4]:") && shown.contains("From where [192.0.2.1/32]:"), "{shown}");
        let (answers, _) = asked(&[], "ens5\n192.0.2.1\n-\n", true);
        assert_eq!(answers.unwrap().list("allow"), "[]");
    }

    #[test]
    fn a_wrong_answer_is_asked_again() {
        let (answers, shown) =
            asked(&[], "eth9\nens5\nhere\n2001:db8::1\n10.0.0.0/8, x\n10.0.0.0/8, ::/0\n", true);
        let answers = answers.unwrap();
        assert_eq!((answers.get("port"), answers.get("peer")), ("ens5", "2001:db8::1"));
        assert_eq!(answers.list("allow"), "[\"10.0.0.0/8\", \"::/0\"]");
        for fault in
            ["no interface \"eth9\"; there are ens4, ens5", "\"here\" is no address", "\"x\" is no prefix"]
        {
            assert!(shown.contains(fault), "{shown}");
        }
    }

    #[test]
    fn options_answer_without_a_question() {
        let options = [("port", "ens5"), ("peer", "192.0.2.9")];
        let (answers, shown) = asked(&options, "", false);
        assert_eq!((answers.unwrap().get("allow"), shown.as_str()), ("192.0.2.9/32", ""));
        let why = asked(&options[..1], "", false).0.unwrap_err().to_string();
        assert_eq!(why, "--peer is needed: Who");
        let why = asked(&[("port", "eth9")], "", true).0.unwrap_err().to_string();
        assert!(why.starts_with("--port: there is no interface"), "{why}");
        let why = asked(&options[..1], "", true).0.unwrap_err().to_string();
        assert_eq!(why, "there is no answer: --peer gives it too");
    }

    #[test]
    fn text_cannot_leave_its_quotes() {
        let fault = |text| AnswerKind::Text.fault(text, &machine());
        assert_eq!(fault("internet.mnc001"), None);
        assert!(fault("a\"\nb").is_some() && fault("\\").is_some());
    }
}
