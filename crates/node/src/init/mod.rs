//! What a first configuration is made of: questions, their answers, and what the machine has.

mod ask;
mod machine;

pub use self::ask::{AnswerKind, Answers, InitQuestion};
pub(crate) use self::ask::{Asker, ask};
pub use self::machine::Machine;

/// A first configuration of a function.
#[derive(Clone, Copy, Debug)]
pub struct FirstConfig {
    /// What is asked for it, in this order.
    pub questions: &'static [InitQuestion],
    /// Its text.
    pub write: fn(&Answers, &Machine) -> String,
    /// What is left to be done elsewhere: what a peer must be told, say. A line each.
    pub next: fn(&Answers, &Machine) -> Vec<String>,
}
