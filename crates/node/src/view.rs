//! The control side of a running function: what it answers, between two turns of its control loop.

use std::any::Any;

use kaido_engine::PortTotals;
use serde::Serialize;
use serde_json::Value;

use crate::api::{Asked, Problem, Reply, TraceBegun, TraceOf, TraceRead};

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

/// What a function has made ready of another configuration; of a type of its own.
pub type PreparedReload = Box<dyn Any>;

/// Why what a field says cannot be now, though it could change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadRefusal {
    /// The field or section, without what stands for the tables of a list: `ue_pool`.
    pub path: &'static str,
    /// Why.
    pub why: String,
}

/// How far a function is with an answer; of a type of its own.
pub type Part = Box<dyn Any + Send>;

/// What a function has to say in one turn.
pub enum Answer {
    /// All of it.
    Whole(Reply),
    /// It is to be asked again, with this.
    Part(Part),
}

/// The control side of a running function.
pub trait FunctionView {
    /// Its status, given what its workers have counted on each port.
    fn status(&mut self, by_workers: Vec<PortTotals>) -> FunctionStatus;

    /// The answer to a question of its [routes](crate::function::NetworkFunction::routes); `None` where it is none of its own.
    fn answer(&mut self, _asked: &Asked) -> Option<Reply> {
        None
    }

    /// As [`FunctionView::answer`], where it may take longer than a turn of the control loop should: given what it had [so
    /// far](Answer::Part), it goes on.
    fn answer_part(&mut self, asked: &Asked, _so_far: Option<Part>) -> Option<Answer> {
        self.answer(asked).map(Answer::Whole)
    }

    /// Its traces.
    fn traces(&mut self) -> &mut dyn Traces;

    /// Makes ready what of another configuration [can change](crate::config::ReloadRule), and does everything that may fail; nothing
    /// changes yet. The configuration is of the same type as that with which the function was started, and has been checked. The
    /// control loop takes no turn until this is [taken](Self::commit_reload), or dropped where another function refuses.
    ///
    /// # Errors
    /// Fields that cannot be as they are now, and why.
    fn prepare_reload(&mut self, _config: &dyn Any) -> Result<PreparedReload, Vec<ReloadRefusal>> {
        Ok(Box::new(()))
    }

    /// Of what was made ready, does what the system may refuse, such as to open sockets; not where it is only asked what would become
    /// of a file. What is dropped instead of [taken](Self::commit_reload) takes it back.
    ///
    /// # Errors
    /// Fields that cannot be as they are now, and why.
    fn begin_reload(&mut self, _prepared: &mut PreparedReload) -> Result<(), Vec<ReloadRefusal>> {
        Ok(())
    }

    /// Takes what was made ready. It cannot fail.
    fn commit_reload(&mut self, _prepared: PreparedReload) {}

    /// Is called in each turn of [`ControlLoop::run`](crate::function::ControlLoop::run).
    fn turn(&mut self) {}
}

/// Traces of a function's packets.
pub trait Traces {
    /// Begins one, which keeps so many octets of each frame.
    ///
    /// # Errors
    /// There are no such packets, or too many traces.
    fn begin(&mut self, of: &TraceOf, snap: usize) -> Result<TraceBegun, Problem>;

    /// Takes what one has brought since it was last read.
    ///
    /// # Errors
    /// There is none of that number.
    fn read(&mut self, id: u32) -> Result<TraceRead, Problem>;

    /// Ends one. That there is none of that number is as good.
    fn end(&mut self, id: u32);
}

/// The fields of an answer; none where it is no object.
pub fn fields(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap_or_default()
}
