//! The sessions of bearers at a user plane: established by PFCP, held, and released, so that any device of TS 29.244 forwards what a
//! file's streams send.
//!
//! ```text
//!   Bearers or a Shape ─▶ establishment ─▶ Smf ── UDP, a window of requests ──▶ user plane
//!                                         └─ answers its heartbeats until released
//! ```

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use kaido_pfcp::{
    DATAGRAM_MAX, Dialect, Instants, Retransmission, Smf, SmfConfig, SmfError, SmfEvent, Transmit, cause_name,
};

use kaido_n4::{Establishment, LocalFTeid, Seid};

use crate::BenchError;
use crate::family::Family;
use crate::oracle::Bearers;
use crate::session::establishment;
use crate::shape::Shape;

/// A user plane that establishes many sessions may be busy; it has as long as a control plane gives it.
const RETRANSMISSION: Retransmission = Retransmission { t1: Duration::from_secs(2), n1: 5 };
/// How often the stop flag is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Time between two lines of progress.
const PAUSE: Duration = Duration::from_secs(1);

/// Where sessions are established.
#[derive(Clone, Copy, Debug)]
pub struct AttachPlan {
    /// The user plane's PFCP address.
    pub upf: SocketAddr,
    /// The address and port of the control plane here.
    pub local: SocketAddr,
    /// Requests under way at once.
    pub window: usize,
}

/// The sessions to be established.
#[derive(Clone, Debug, PartialEq)]
pub enum Sessions {
    /// One for each bearer.
    OfBearers(Vec<Bearers>),
    /// So many of a shape, over IPv4, from the UE 10.0.0.1 on.
    OfShape {
        /// Their rules.
        shape: Shape,
        /// How many.
        count: u32,
        /// The user plane's GTP-U address, and the gNB's.
        tunnel: [Ipv4Addr; 2],
    },
}

impl Sessions {
    /// How many there are.
    fn count(&self) -> u32 {
        match self {
            Self::OfBearers(bearers) => bearers.iter().map(|bearers| bearers.count).sum(),
            Self::OfShape { count, .. } => *count,
        }
    }

    /// The requests for all.
    fn requests(&self) -> Box<dyn Iterator<Item = Establishment> + '_> {
        match self {
            Self::OfBearers(bearers) => Box::new(
                bearers
                    .iter()
                    .flat_map(|described| (0..described.count).map(|n| establishment(described, n))),
            ),
            Self::OfShape { shape, count, tunnel } => {
                Box::new((0..*count).map(|n| readdressed(shape.establishment(Family::V4, n), *tunnel)))
            }
        }
    }
}

/// A session between other ends of its tunnel.
fn readdressed(mut request: Establishment, [upf, gnb]: [Ipv4Addr; 2]) -> Establishment {
    for rule in &mut request.pdrs {
        if let Some(LocalFTeid::Given(local)) = &mut rule.pdi.local_fteid {
            local.ipv4 = Some(upf);
        }
    }
    for forwarding in request.fars.iter_mut().filter_map(|far| far.forwarding.as_mut()) {
        if let Some(tunnel) = &mut forwarding.outer_header_creation {
            tunnel.ipv4 = Some(gnb);
        }
    }
    request
}

/// A control plane with the sessions of bearers.
#[derive(Debug)]
pub struct AttachedSessions {
    plan: AttachPlan,
    smf: Smf,
    socket: UdpSocket,
    out: Vec<Transmit>,
    datagram: Vec<u8>,
    associated: bool,
    /// Those that stand.
    sessions: Vec<Seid>,
}

fn failed(what: impl std::fmt::Display) -> BenchError {
    BenchError::Control(what.to_string())
}

impl AttachedSessions {
    /// Sets up an association, and the sessions; how long these took.
    ///
    /// # Errors
    /// [`BenchError::Socket`]; [`BenchError::Control`] when the user plane refuses a request or does not answer;
    /// [`BenchError::Interrupted`].
    pub fn establish(
        plan: AttachPlan,
        sessions: &Sessions,
        stop: &AtomicBool,
        progress: &dyn Fn(&str),
    ) -> Result<(Self, Duration), BenchError> {
        let mut attached = Self::associate(plan, stop)?;
        let began = Instant::now();
        match attached.establish_all(sessions, stop, progress) {
            Ok(()) => Ok((attached, began.elapsed())),
            Err(error) => {
                // What was established goes with the association; the first failure is what is told.
                let _ = attached.dissociate();
                Err(error)
            }
        }
    }

    fn associate(plan: AttachPlan, stop: &AtomicBool) -> Result<Self, BenchError> {
        let socket = UdpSocket::bind(plan.local)?;
        socket.set_read_timeout(Some(LOOK))?;
        let (ipv4, ipv6) = match plan.local.ip() {
            IpAddr::V4(address) => (Some(address), None),
            IpAddr::V6(address) => (None, Some(address)),
        };
        let smf = Smf::new(SmfConfig {
            node_id: plan.local.ip().into(),
            ipv4,
            ipv6,
            recovery: SystemTime::now(),
            retransmission: RETRANSMISSION,
            outstanding: plan.window + 8,
            dialect: Dialect::Plain,
        });
        let mut attached = Self {
            plan,
            smf,
            socket,
            out: Vec::new(),
            datagram: vec![0; DATAGRAM_MAX],
            associated: false,
            sessions: Vec::new(),
        };
        let asked = attached.smf.associate(Instants::now(), plan.upf, &mut attached.out);
        asked.map_err(failed)?;
        while !attached.associated {
            attached.turn(stop)?;
        }
        Ok(attached)
    }

    fn establish_all(
        &mut self,
        sessions: &Sessions,
        stop: &AtomicBool,
        progress: &dyn Fn(&str),
    ) -> Result<(), BenchError> {
        let count = sessions.count();
        let mut all = sessions.requests();
        let mut told = Instant::now();
        while self.sessions() < count {
            while self.smf.outstanding() < self.plan.window
                && let Some(request) = all.next()
            {
                self.smf
                    .establish(Instants::now(), self.plan.upf, request, &mut self.out)
                    .map_err(|error: SmfError| failed(error))?;
            }
            self.turn(stop)?;
            if told.elapsed() >= PAUSE {
                told = Instant::now();
                progress(&format!("{} of {count} sessions", self.sessions()));
            }
        }
        Ok(())
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> u32 {
        u32::try_from(self.sessions.len()).unwrap_or(u32::MAX)
    }

    /// Answers the user plane until asked to stop.
    ///
    /// # Errors
    /// As [`AttachedSessions::establish`]; an association that the user plane ends is one of them.
    pub fn hold(&mut self, stop: &AtomicBool) -> Result<(), BenchError> {
        while !stop.load(Ordering::Relaxed) {
            match self.turn(stop) {
                Err(BenchError::Interrupted) => break,
                other => other?,
            }
            if !self.associated {
                return Err(failed("the user plane has ended the association"));
            }
        }
        Ok(())
    }

    /// Deletes all sessions, and releases the association.
    ///
    /// # Errors
    /// As [`AttachedSessions::establish`].
    pub fn release(mut self, progress: &dyn Fn(&str)) -> Result<(), BenchError> {
        let never = AtomicBool::new(false);
        let mut told = Instant::now();
        while !self.sessions.is_empty() || self.smf.outstanding() > 0 {
            while self.smf.outstanding() < self.plan.window
                && let Some(seid) = self.sessions.pop()
            {
                self.smf.delete(Instants::now(), seid, &mut self.out).map_err(failed)?;
            }
            self.turn(&never)?;
            if told.elapsed() >= PAUSE {
                told = Instant::now();
                progress(&format!("{} sessions left", self.sessions()));
            }
        }
        self.dissociate()
    }

    /// Releases the association, and with it what sessions there are (TS 29.244 6.2.8).
    fn dissociate(&mut self) -> Result<(), BenchError> {
        let never = AtomicBool::new(false);
        // A full window of requests leaves room for this one.
        self.smf.release(Instants::now(), self.plan.upf, &mut self.out).map_err(failed)?;
        while self.associated {
            self.turn(&never)?;
        }
        Ok(())
    }

    /// Sends what waits, takes one answer in, sends again what had none.
    fn turn(&mut self, stop: &AtomicBool) -> Result<(), BenchError> {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        self.flush();
        match self.socket.recv_from(&mut self.datagram) {
            Ok((len, from)) => {
                let datagram = self.datagram.get(..len).unwrap_or_default();
                self.smf.handle(Instants::now(), from, datagram, &mut self.out);
            }
            // What ICMP says of an earlier datagram is told by the missing answer.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock
                        | ErrorKind::TimedOut
                        | ErrorKind::Interrupted
                        | ErrorKind::ConnectionRefused
                ) => {}
            Err(error) => return Err(error.into()),
        }
        self.smf.poll(Instants::now(), &mut self.out);
        self.flush();
        while let Some(event) = self.smf.next_event() {
            self.note(&event)?;
        }
        Ok(())
    }

    fn note(&mut self, event: &SmfEvent) -> Result<(), BenchError> {
        match event {
            SmfEvent::Associated { .. } => self.associated = true,
            SmfEvent::Released { .. } | SmfEvent::ReleaseWanted { .. } => self.associated = false,
            SmfEvent::Established { seid, .. } => self.sessions.push(*seid),
            SmfEvent::Refused { request, upf, cause, .. } => {
                let name = cause_name(*cause);
                let message = format!("the user plane at {upf} refuses {request:?}: cause {cause} ({name})");
                return Err(failed(message));
            }
            SmfEvent::NoAnswer { request, upf, .. } => {
                return Err(failed(format!("the user plane at {upf} does not answer {request:?}")));
            }
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self) {
        for transmit in self.out.drain(..) {
            // What is lost here is sent again.
            let _ = self.socket.send_to(&transmit.bytes, transmit.to);
        }
    }
}
