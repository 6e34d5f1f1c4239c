//! The control side of a running function: what it answers, between two turns of its control loop.

use std::any::Any;

use kaido_engine::PortTotals;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::{Answer, TraceQuestion};

/// What a port has counted, and how many packets and octets of that the kernel's datapath has forwarded.
pub type CountedTraffic = (PortTotals, (u64, u64));

/// What forwards, what `node.datapath` says, and why it is that.
#[derive(Clone, Debug)]
pub struct DatapathChoice {
    /// `engine`, `xdp` or `hybrid`.
    pub chosen: &'static str,
    /// What the configuration says.
    pub configured: &'static str,
    /// Why it is that.
    pub reason: String,
}

/// What a function says of itself for `kaido status` and `kaido drops`.
#[derive(Debug)]
pub struct FunctionStatus {
    /// Its datapath.
    pub datapath: DatapathChoice,
    /// By port, in the order of the board.
    pub counted: Vec<CountedTraffic>,
    /// Further fields of the answer, which only this function has: an object, or null.
    pub more: Value,
}

/// The control side of a running function.
pub trait FunctionView {
    /// Its status, given what its workers have counted on each port.
    fn status(&mut self, by_workers: Vec<PortTotals>) -> FunctionStatus;

    /// The answer to a question that not every function has; `None` where it is none of its own.
    fn answer(&mut self, question: &Value) -> Option<Value>;

    /// The answer to a question about traces.
    fn trace(&mut self, question: TraceQuestion) -> Answer;

    /// Takes what [can change](crate::function::ConfiguredFunction::changeable) of another configuration, which is of the same type
    /// as that with which the function was started. It cannot fail.
    fn reload(&mut self, _config: &dyn Any) {}

    /// Is called in each turn of [`ControlLoop::run`](crate::function::ControlLoop::run).
    fn turn(&mut self) {}
}

/// Reads a question that only this function has; `None` where `ask` is none of `names`, and the answer where it cannot be read.
pub fn own_question<Q: DeserializeOwned>(question: &Value, names: &[&str]) -> Option<Result<Q, Value>> {
    let ask = question.get("ask").and_then(Value::as_str)?;
    names.contains(&ask).then(|| {
        serde_json::from_value(question.clone())
            .map_err(|error| reply(&Answer::Error { message: error.to_string() }))
    })
}

/// An answer as it goes over the control socket.
pub fn reply(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer)
        .unwrap_or_else(|error| json!({ "answer": "error", "message": error.to_string() }))
}
