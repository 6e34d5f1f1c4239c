//! How the ports are now: what `kaido status`, metrics and `/healthz` show of them. Written by the link
//! monitor, read by whoever is asked.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the control loop may be silent and be taken for alive.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Whether packets can come and go by a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortState {
    /// They can.
    Up,
    /// The interface is down, or has no carrier.
    Down,
    /// The interface is not there. The port is bound again when it is.
    Gone,
    /// The interface is there and something is the matter.
    Fault(String),
}

impl PortState {
    /// Its name in `kaido status`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Gone => "gone",
            Self::Fault(_) => "fault",
        }
    }

    /// What is the matter, if anything is.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::Up => None,
            Self::Down => Some("the interface is down or has no carrier".to_owned()),
            Self::Gone => Some("the interface is gone".to_owned()),
            Self::Fault(what) => Some(what.clone()),
        }
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A port as it is shown.
#[derive(Clone, Debug)]
pub struct PortView {
    /// Its name.
    pub name: String,
    /// How it was opened.
    pub how: String,
    /// Longest IP packet, in octets.
    pub mtu: usize,
    /// Whether packets can come and go by it.
    pub state: PortState,
    /// How often its interface came back.
    pub rebinds: u64,
    /// Packets that its program has left to the kernel.
    pub left_to_kernel: u64,
}

impl PortView {
    /// One that nothing happens to.
    pub fn steady(name: &str, how: &str, mtu: usize) -> Self {
        Self {
            name: name.to_owned(),
            how: how.to_owned(),
            mtu,
            state: PortState::Up,
            rebinds: 0,
            left_to_kernel: 0,
        }
    }
}

/// Reads what the programs of the ports have left to the kernel, by port; `None` while they are busy.
type KernelCountReader = dyn Fn() -> Option<Vec<u64>> + Send + Sync;

/// All ports, by their numbers.
#[derive(Clone, Default)]
pub struct PortBoard {
    ports: Arc<Mutex<Vec<PortView>>>,
    left_to_kernel: Option<Arc<KernelCountReader>>,
}

impl PortBoard {
    /// A board of these ports.
    pub fn new(ports: Vec<PortView>) -> Self {
        Self { ports: Arc::new(Mutex::new(ports)), left_to_kernel: None }
    }

    /// The board, with what the programs have left to the kernel.
    #[must_use]
    pub fn with_left_to_kernel(
        mut self,
        read: impl Fn() -> Option<Vec<u64>> + Send + Sync + 'static,
    ) -> Self {
        self.left_to_kernel = Some(Arc::new(read));
        self
    }

    /// As they are now.
    pub fn list(&self) -> Vec<PortView> {
        let left = self.left_to_kernel.as_ref().and_then(|read| read());
        let mut ports = self.lock();
        for (port, left) in ports.iter_mut().zip(left.into_iter().flatten()) {
            port.left_to_kernel = left;
        }
        ports.clone()
    }

    /// How many ports there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// The name of a port; empty where there is none.
    pub fn name(&self, at: usize) -> String {
        self.lock().get(at).map(|port| port.name.clone()).unwrap_or_default()
    }

    /// Adds what the link monitor knows nothing of.
    pub fn push(&self, port: PortView) {
        self.lock().push(port);
    }

    /// Writes down what became of a port.
    pub fn update(&self, at: usize, change: impl FnOnce(&mut PortView)) {
        if let Some(port) = self.lock().get_mut(at) {
            change(port);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PortView>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the control loop last turned.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    started: Instant,
    /// Milliseconds after that.
    last: Arc<AtomicU64>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self::new()
    }
}

impl Heartbeat {
    /// One that beats now.
    pub fn new() -> Self {
        Self { started: Instant::now(), last: Arc::default() }
    }

    /// Called in every turn.
    pub fn beat(&self) {
        self.last.store(self.elapsed_ms(), Ordering::Relaxed);
    }

    fn silent_for(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms().saturating_sub(self.last.load(Ordering::Relaxed)))
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whether the node can do its work: ports and control loop of each function.
#[derive(Clone, Default)]
pub struct Health(pub Vec<(PortBoard, Heartbeat)>);

impl Health {
    /// What is the matter, a line each; nothing when all is well.
    pub fn troubles(&self) -> Vec<String> {
        let of_port =
            |port: PortView| port.state.trouble().map(|trouble| format!("port {}: {trouble}", port.name));
        let mut troubles = Vec::new();
        for (board, heartbeat) in &self.0 {
            troubles.extend(board.list().into_iter().filter_map(of_port));
            let silence = heartbeat.silent_for();
            if silence > SILENCE_MAX {
                let seconds = silence.as_secs();
                troubles.push(format!("control: the control loop has not turned for {seconds} s"));
            }
        }
        troubles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_names_every_port_that_is_not_up_and_a_control_loop_that_stands() {
        let board = PortBoard::new(vec![PortView::steady("n3", "af_xdp", 1500)]);
        board.push(PortView::steady("n6", "af_xdp", 1500));
        let health = Health(vec![(board.clone(), Heartbeat::new())]);
        assert_eq!(health.troubles(), Vec::<String>::new());
        board.update(0, |port| port.state = PortState::Gone);
        board.update(1, |port| port.state = PortState::Fault("queue 0: no".to_owned()));
        board.update(7, |port| port.mtu = 1);
        let counted = board.clone().with_left_to_kernel(|| Some(vec![5, 6]));
        assert_eq!(counted.list().iter().map(|port| port.left_to_kernel).sum::<u64>(), 11);
        assert_eq!(health.troubles(), ["port n3: the interface is gone", "port n6: queue 0: no"]);
        let before = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        let heartbeat = Heartbeat { started: before, last: Arc::default() };
        let stands = Health(vec![(PortBoard::default(), heartbeat.clone())]);
        assert_eq!(stands.troubles(), ["control: the control loop has not turned for 60 s"]);
        heartbeat.beat();
        assert_eq!(stands.troubles(), Vec::<String>::new());
    }
}
