//! Which worker gets what of an AF_XDP interface's queues, by `node.queue_mode` and `node.steer_by`.
//!
//! | mode | queues | sockets | worker |
//! |---|---|---|---|
//! | rss, by queue | as many as workers | one a queue | its queue |
//! | rss, by UE or TEID | 1 to as many as workers | one a queue | its queue if there is one, and what the others hand over |
//! | rss, of an NDN router | as many as workers, or 1 | one a queue | its queue; with one queue the first has it, and the others send by it |
//! | shared, shared-ordered | 1 | one | blocks of the one queue |

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use kaido_engine::port::{Port, SharedXdp, XdpOptions, XdpPool, XdpPort};
use kaido_engine::shared::{Order, QueueMode, SharedPort, SharedQueue};
use kaido_engine::steer::{SteerQueue, SteerRules, relay, steer};
use kaido_wire::rss::SpreadBy;
use kaido_xsk::{BindMode, Error};
use thiserror::Error;

use crate::config::NodeConfig;

/// An interface whose queues are opened.
pub struct Device<'d> {
    pub ifindex: u32,
    pub name: &'d str,
    /// How many queues it receives on.
    pub receive_queues: usize,
    /// The addresses to which it receives tunnels.
    pub endpoints: &'d [IpAddr],
}

/// Why an interface does not go with the workers.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{name} has {queues} receive queues and there are {workers} workers")]
pub struct Mismatch {
    name: String,
    queues: usize,
    workers: usize,
    mode: QueueMode,
    hands_over: bool,
}

impl Mismatch {
    /// How many queues would do.
    pub fn queues_wanted(&self) -> usize {
        if self.mode == QueueMode::Rss { self.workers } else { 1 }
    }

    /// The ways out, other than so many queues.
    pub fn otherwise(&self) -> String {
        let Self { queues, workers, mode, hands_over, .. } = self;
        match mode {
            QueueMode::Shared | QueueMode::SharedOrdered => {
                format!("node.queue_mode = \"{mode}\" shares one queue; or node.queue_mode = \"rss\"")
            }
            // The program drops what comes in on a queue without a socket.
            QueueMode::Rss if queues > workers => format!("or node.workers = {queues}"),
            QueueMode::Rss if *hands_over => format!("or node.workers = {queues}, or one queue for all"),
            QueueMode::Rss => format!(
                "or node.workers = {queues}; or node.queue_mode = \"shared\", or node.steer_by = \"ue\" of a UPF, which make do with fewer queues"
            ),
        }
    }

    /// The ways out.
    pub fn help(&self) -> String {
        format!("`ethtool -L {} combined {}`; {}", self.name, self.queues_wanted(), self.otherwise())
    }
}

/// Why no queues were opened.
#[derive(Debug, Error)]
pub enum QueueFault {
    /// Too many queues, or too few.
    #[error(transparent)]
    Mismatch(Mismatch),
    /// A queue could not be opened.
    #[error("queue {queue}: {error}")]
    Open { queue: u32, error: Error },
    /// Its socket was refused by the program.
    #[error(transparent)]
    Register(#[from] kaido_xdp::Error),
    /// There are no descriptors left to wake workers by.
    #[error("waking workers: {0}")]
    Wake(std::io::Error),
}

/// How workers get at packets.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    workers: usize,
    mode: QueueMode,
    by: Option<SpreadBy>,
    /// Workers hand packets over to each other anyway, so that one of them may have the only queue.
    hands_over: bool,
}

impl Plan {
    /// The plan of a configuration.
    pub fn of(node: &NodeConfig) -> Self {
        Self {
            workers: usize::from(*node.workers.get_ref()),
            mode: (*node.queue_mode.get_ref()).into(),
            by: node.spread_by,
            hands_over: node.hands_over,
        }
    }

    /// Whether each worker has a queue of a port for itself, where there are enough.
    pub fn uses_queues(self) -> bool {
        self.mode == QueueMode::Rss
    }

    /// Whether an interface with so many queues will do.
    ///
    /// # Errors
    /// When not; it knows the ways out.
    pub fn check(self, name: &str, queues: usize) -> Result<(), Mismatch> {
        let good = match (self.mode, self.by) {
            (QueueMode::Shared | QueueMode::SharedOrdered, _) => queues == 1,
            (QueueMode::Rss, None) => queues == self.workers || (self.hands_over && queues == 1),
            (QueueMode::Rss, Some(_)) => queues <= self.workers,
        };
        let Self { workers, mode, hands_over, .. } = self;
        if good { Ok(()) } else { Err(Mismatch { name: name.to_owned(), queues, workers, mode, hands_over }) }
    }

    /// How many sockets an interface has, whose queues will do.
    pub fn sockets(self, queues: usize) -> usize {
        match self.mode {
            QueueMode::Shared | QueueMode::SharedOrdered => 1,
            QueueMode::Rss => queues.min(self.workers),
        }
    }

    /// Opens a device's queues, registers each socket with its queue's number, and makes a port for every worker.
    pub fn open(
        self,
        pool: &XdpPool,
        device: &Device<'_>,
        options: &XdpOptions,
        mut register: impl FnMut(u32, BorrowedFd<'_>) -> Result<(), kaido_xdp::Error>,
    ) -> Result<(Vec<Box<dyn Port>>, BindMode), QueueFault> {
        self.check(device.name, device.receive_queues).map_err(QueueFault::Mismatch)?;
        match (self.mode, self.by) {
            (QueueMode::Rss, None) if device.receive_queues < self.workers => {
                let (mut ports, mode) =
                    Self { workers: 1, ..self }.own(pool, device, options, &mut register)?;
                let Some(port) = ports.pop() else { return Ok((Vec::new(), mode)) };
                Ok((relay(Box::new(port), self.workers).map_err(QueueFault::Wake)?, mode))
            }
            (QueueMode::Rss, None) => {
                let (ports, mode) = self.own(pool, device, options, &mut register)?;
                Ok((ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect(), mode))
            }
            (QueueMode::Rss, Some(by)) => {
                let (queues, mode) = self.steered(pool, device, options, &mut register)?;
                let rules = SteerRules { by, endpoints: device.endpoints.to_vec() };
                let ports = steer(queues, &rules).map_err(QueueFault::Wake)?;
                Ok((ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect(), mode))
            }
            (QueueMode::Shared, _) => self.shared(pool, device, options, Order::Free, &mut register),
            (QueueMode::SharedOrdered, _) => self.shared(pool, device, options, Order::KEPT, &mut register),
        }
    }

    /// A queue for every worker.
    fn own(
        self,
        pool: &XdpPool,
        device: &Device<'_>,
        options: &XdpOptions,
        register: &mut impl FnMut(u32, BorrowedFd<'_>) -> Result<(), kaido_xdp::Error>,
    ) -> Result<(Vec<XdpPort>, BindMode), QueueFault> {
        let mut ports = Vec::new();
        let mut mode = BindMode::Auto;
        for (queue, _) in (0u32..).zip(0..self.workers) {
            let port = XdpPort::open(pool, device.ifindex, queue, options)
                .map_err(|error| QueueFault::Open { queue, error })?;
            register(queue, port.as_fd())?;
            mode = port.mode();
            ports.push(port);
        }
        Ok((ports, mode))
    }

    /// A queue for every worker to send by, and for as many to receive from as there are.
    fn steered(
        self,
        pool: &XdpPool,
        device: &Device<'_>,
        options: &XdpOptions,
        register: &mut impl FnMut(u32, BorrowedFd<'_>) -> Result<(), kaido_xdp::Error>,
    ) -> Result<(Vec<SteerQueue>, BindMode), QueueFault> {
        if device.receive_queues == self.workers {
            let (ports, mode) = self.own(pool, device, options, register)?;
            let whole = |port| SteerQueue { port: Box::new(port), receives: true };
            return Ok((ports.into_iter().map(whole).collect(), mode));
        }
        let mut queues = Vec::new();
        for (queue, _) in (0u32..).zip(0..device.receive_queues) {
            queues.push(share(pool, device, queue, options, Order::Free, register)?);
        }
        let part = |worker: usize| {
            let port: SharedPort<SharedXdp> = queues[worker % queues.len()].port();
            SteerQueue { port: Box::new(port), receives: worker < queues.len() }
        };
        let mode = queues[0].device().mode();
        Ok(((0..self.workers).map(part).collect(), mode))
    }

    /// One queue for all.
    fn shared(
        self,
        pool: &XdpPool,
        device: &Device<'_>,
        options: &XdpOptions,
        order: Order,
        register: &mut impl FnMut(u32, BorrowedFd<'_>) -> Result<(), kaido_xdp::Error>,
    ) -> Result<(Vec<Box<dyn Port>>, BindMode), QueueFault> {
        let queue = share(pool, device, 0, options, order, register)?;
        let ports = (0..self.workers).map(|_| Box::new(queue.port()) as Box<dyn Port>).collect();
        Ok((ports, queue.device().mode()))
    }
}

/// A queue that several workers use.
fn share(
    pool: &XdpPool,
    device: &Device<'_>,
    queue: u32,
    options: &XdpOptions,
    order: Order,
    register: &mut impl FnMut(u32, BorrowedFd<'_>) -> Result<(), kaido_xdp::Error>,
) -> Result<Arc<SharedQueue<SharedXdp>>, QueueFault> {
    let socket = SharedXdp::open(pool, device.ifindex, queue, options)
        .map_err(|error| QueueFault::Open { queue, error })?;
    register(queue, socket.as_fd())?;
    Ok(SharedQueue::new(socket, order))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by {
            None => "",
            Some(SpreadBy::Ue) => " by UE",
            Some(SpreadBy::Teid) => " by TEID",
        };
        write!(f, "{}{by}", self.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(mode: QueueMode, by: Option<SpreadBy>, queues: usize) -> Option<String> {
        let plan = Plan { workers: 2, mode, by, hands_over: false };
        plan.check("n3", queues).err().map(|mismatch| mismatch.help())
    }

    #[test]
    fn one_queue_is_enough_for_workers_that_hand_over() {
        let plan = Plan { workers: 3, mode: QueueMode::Rss, by: None, hands_over: true };
        assert_eq!((plan.check("n3", 1), plan.check("n3", 3)), (Ok(()), Ok(())));
        let help = plan.check("n3", 2).unwrap_err().help();
        assert_eq!(help, "`ethtool -L n3 combined 3`; or node.workers = 2, or one queue for all");
        assert_eq!((plan.sockets(1), plan.sockets(3)), (1, 3));
        assert_eq!(Plan { mode: QueueMode::Shared, ..plan }.sockets(1), 1);
    }

    #[test]
    fn queues_must_go_with_the_workers() {
        assert_eq!(refused(QueueMode::Rss, None, 2), None);
        assert_eq!(refused(QueueMode::Rss, Some(SpreadBy::Ue), 1), None);
        assert_eq!(refused(QueueMode::Rss, Some(SpreadBy::Teid), 2), None);
        assert_eq!(refused(QueueMode::Shared, None, 1), None);
        assert_eq!(refused(QueueMode::SharedOrdered, None, 1), None);
        for (mode, by, queues, wanted) in [
            (QueueMode::Rss, None, 1, "node.steer_by = \"ue\""),
            (QueueMode::Rss, None, 3, "`ethtool -L n3 combined 2`; or node.workers = 3"),
            (QueueMode::Rss, Some(SpreadBy::Ue), 3, "node.workers = 3"),
            (QueueMode::Shared, None, 2, "`ethtool -L n3 combined 1`"),
            (QueueMode::SharedOrdered, None, 2, "node.queue_mode = \"shared-ordered\" shares one queue"),
        ] {
            let help = refused(mode, by, queues).unwrap_or_default();
            assert!(help.contains(wanted), "{mode} {queues}: {help}");
        }
    }
}
