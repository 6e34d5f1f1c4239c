//! The control plane: a window of requests under way, each answered by the next.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::wire::{Request, Requests};
use crate::BenchError;
use crate::network::teid;
use crate::node::stopped;
use crate::result::Histogram;
use crate::shape::Shape;

/// How long an answer is waited for before the request is sent again.
const PATIENCE: Duration = Duration::from_millis(500);
/// The bit that tells a moved tunnel from the first.
const MOVED: u32 = 1 << 31;
/// Types of messages (TS 29.244 table 7.3-1).
const HEARTBEAT_REQUEST: u8 = 1;
const HEARTBEAT_RESPONSE: u8 = 2;
const REPORT_REQUEST: u8 = 56;
const REPORT_RESPONSE: u8 = 57;
const ACCEPTED: u8 = 1;
/// Octets of a header with a SEID.
const HEADER: usize = 16;
const F_SEID: u16 = 57;
const CAUSE: u16 = 19;
/// In the place of a moment: the request is answered.
const ANSWERED: u64 = u64::MAX;

/// What a phase took on this side.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) wall: Duration,
    /// Nanoseconds from when a request was to be sent until its answer came.
    pub(crate) answers: Histogram,
    pub(crate) repeated: u64,
    /// Session Report Requests that the node sent meanwhile, each answered.
    pub(crate) reports: u64,
}

/// A control plane that measures.
pub(crate) struct Client {
    socket: UdpSocket,
    requests: Requests,
    window: u32,
    /// Time between two requests; none where each is sent as soon as there is room in the window.
    pace: Option<Duration>,
    /// UP SEIDs by session; zero for none.
    seids: Vec<u64>,
    /// When the request of each was to be sent, in nanoseconds since its phase began.
    due: Vec<u64>,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn new(
        server: SocketAddr,
        shape: Shape,
        sessions: u32,
        (window, rate): (u32, Option<u32>),
    ) -> Result<Self, BenchError> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let requests = Requests::new(socket.local_addr()?, shape)?;
        // Written to, so that it is in memory before what the node takes for sessions is measured.
        let written = || (0..sessions).map(|_| std::hint::black_box(0)).collect();
        let (seids, due) = (written(), written());
        let pace = rate.map(|rate| Duration::from_secs(1) / rate.max(1));
        Ok(Self { socket, requests, window, pace, seids, due, buffer: vec![0; 65_535] })
    }

    /// Sets up the association.
    pub(crate) fn associate(&mut self) -> Result<(), BenchError> {
        self.socket.send(&self.requests.associate)?;
        let length = loop {
            match self.socket.recv(&mut self.buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                length => break length?,
            }
        };
        match self.buffer[..length] {
            [_, 6, ..] => Ok(()),
            _ => Err(BenchError::Control("the association was not answered".to_owned())),
        }
    }

    /// Makes one request for each of the sessions `from..to`, a window of them at a time, and none before its time.
    pub(crate) fn run(
        &mut self,
        request: Request,
        range: [u32; 2],
        stop: &AtomicBool,
    ) -> Result<Run, BenchError> {
        let [from, to] = range;
        let (mut next, mut answered, mut repeated, mut reports) = (from, 0, 0, 0);
        let mut answers = Histogram::default();
        let mut oldest = from;
        let began = Instant::now();
        while answered < to - from {
            let mut early = None;
            while next < to && next - from - answered < self.window {
                let due = self.pace.map_or_else(|| began.elapsed(), |pace| pace * (next - from));
                early = due.checked_sub(began.elapsed()).filter(|early| !early.is_zero());
                if early.is_some() {
                    break;
                }
                self.due[next as usize] = nanoseconds(due);
                self.send(request, next)?;
                next += 1;
            }
            if let Some(early) = early
                && !self.is_readable_within(early)?
            {
                continue;
            }
            match self.socket.recv(&mut self.buffer) {
                Ok(length) if self.serve(length, &mut reports)? => {}
                Ok(length) => {
                    let session = self.answer(request, length)?;
                    // A second answer to what was sent twice is none.
                    let due = self.due.get_mut(session as usize).filter(|_| (from..next).contains(&session));
                    if let Some(due) = due.filter(|due| **due != ANSWERED) {
                        let due = std::mem::replace(due, ANSWERED);
                        answers.record(nanoseconds(began.elapsed()).saturating_sub(due));
                        answered += 1;
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    stopped(stop)?;
                    while oldest < next && self.due[oldest as usize] == ANSWERED {
                        oldest += 1;
                    }
                    for session in oldest..next {
                        if self.due[session as usize] != ANSWERED {
                            self.send(request, session)?;
                            repeated += 1;
                        }
                    }
                }
                // The process was stopped and goes on: a wait with a limit ends then.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        stopped(stop)?;
        Ok(Run { wall: began.elapsed(), answers, repeated, reports })
    }

    /// Answers what the node asks for so long, and asks nothing.
    pub(crate) fn take_reports(&mut self, time: Duration, stop: &AtomicBool) -> Result<Run, BenchError> {
        let began = Instant::now();
        let mut reports = 0;
        while let Some(left) = time.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            if self.is_readable_within(left.min(PATIENCE))? {
                let length = self.socket.recv(&mut self.buffer)?;
                // What is none of it is the second answer to what was sent twice.
                self.serve(length, &mut reports)?;
            }
            stopped(stop)?;
        }
        Ok(Run { wall: began.elapsed(), answers: Histogram::default(), repeated: 0, reports })
    }

    /// Answers a message, if it is a request of the node's, and counts the reports.
    fn serve(&mut self, length: usize, reports: &mut u64) -> Result<bool, BenchError> {
        match self.buffer[..length].get(1) {
            Some(&REPORT_REQUEST) => {
                self.acknowledge(length)?;
                *reports += 1;
                Ok(true)
            }
            Some(&HEARTBEAT_REQUEST) => self.beat(length).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Waits for an answer, by a timer that is exact to microseconds.
    fn is_readable_within(&self, time: Duration) -> Result<bool, BenchError> {
        let limit = time.try_into().map_err(|_| BenchError::Control("a pace of years".to_owned()))?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&limit)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    fn send(&mut self, request: Request, session: u32) -> Result<(), BenchError> {
        let (seid, teid) = match request {
            Request::Establish => (0, teid(session)),
            Request::Modify => (self.seids[session as usize], teid(session) | MOVED),
            Request::Delete => (self.seids[session as usize], 0),
        };
        let bytes = self.requests.of(request, session, seid, teid);
        self.socket.send(bytes)?;
        Ok(())
    }

    /// Answers a Session Report Request (TS 29.244 7.5.8) as every control plane does: else the node would send it again, and
    /// then hold back what it has to report.
    fn acknowledge(&mut self, length: usize) -> Result<(), BenchError> {
        let Some((header, _)) = self.buffer[..length].split_first_chunk::<HEADER>() else {
            return Err(BenchError::Control("a short report".to_owned()));
        };
        // Ours is the number of the session plus one.
        let cp_seid = header[4..12].iter().fold(0u64, |seid, &octet| seid << 8 | u64::from(octet));
        let session = cp_seid.checked_sub(1).and_then(|session| usize::try_from(session).ok());
        let Some(seid) = session.and_then(|session| self.seids.get(session)).filter(|&&seid| seid != 0)
        else {
            return Err(BenchError::Control(format!("a report of session {cp_seid:#x}, which there is not")));
        };
        let mut response = [0; HEADER + 5];
        response[..4].copy_from_slice(&[0x21, REPORT_RESPONSE, 0, 17]);
        response[4..12].copy_from_slice(&seid.to_be_bytes());
        response[12..15].copy_from_slice(&header[12..15]);
        response[HEADER + 1..].copy_from_slice(&[19, 0, 1, ACCEPTED]);
        self.socket.send(&response)?;
        Ok(())
    }

    /// Answers a Heartbeat Request (7.4.2): else the node would take this control plane for one that is gone.
    fn beat(&mut self, length: usize) -> Result<(), BenchError> {
        let [_, _, _, _, sequence @ .., _] = match self.buffer[..length].first_chunk::<8>() {
            Some(header) => *header,
            None => return Err(BenchError::Control("a short heartbeat".to_owned())),
        };
        // The recovery time stamp of the association's set-up: this control plane has not started again.
        let response =
            [&[0x20, HEARTBEAT_RESPONSE, 0, 12][..], &sequence, &[0], &self.requests.recovery].concat();
        self.socket.send(&response)?;
        Ok(())
    }

    /// The session that an answer is about.
    fn answer(&mut self, request: Request, length: usize) -> Result<u32, BenchError> {
        let wrong = |what: &str| BenchError::Control(format!("{request:?}: {what}"));
        let message = &self.buffer[..length];
        let Some((header, mut rest)) = message.split_at_checked(HEADER) else {
            return Err(wrong("a short answer"));
        };
        if header[1] != request.kind() + 1 {
            return Err(wrong(&format!("an answer of type {}", header[1])));
        }
        let session = u32::from_be_bytes([0, header[12], header[13], header[14]]).wrapping_sub(1);
        let mut accepted = false;
        while let Some((&[k0, k1, l0, l1], tail)) = rest.split_first_chunk::<4>() {
            let length = usize::from(u16::from_be_bytes([l0, l1]));
            let Some((value, behind)) = tail.split_at_checked(length) else { break };
            match u16::from_be_bytes([k0, k1]) {
                CAUSE if value != [ACCEPTED] => {
                    return Err(wrong(&format!("session {session} was refused with cause {value:?}")));
                }
                CAUSE => accepted = true,
                F_SEID => {
                    let seid = value.get(1..).and_then(|value| value.first_chunk::<8>());
                    let place = self.seids.get_mut(session as usize);
                    if let (Some(seid), Some(place)) = (seid, place) {
                        *place = u64::from_be_bytes(*seid);
                    }
                }
                _ => {}
            }
            rest = behind;
        }
        if accepted { Ok(session) } else { Err(wrong("an answer without a cause")) }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that reports of a session before it answers.
    #[test]
    fn reports_are_answered_and_are_no_answers() {
        let node = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        node.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Client::new(node.local_addr().unwrap(), Shape::Free5gc, 2, (1, None)).unwrap();
        client.seids = vec![0xa0, 0xa1];
        let associate = client.requests.associate.clone();
        let at = associate.windows(4).position(|octets| *octets == [0, 96, 0, 4]).unwrap() + 4;
        let recovery = associate[at..at + 4].to_vec();
        let served = std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            let mut receive = || {
                let (length, from) = node.recv_from(&mut buffer).unwrap();
                (buffer[..length].to_vec(), from)
            };
            let (request, client) = receive();
            assert_eq!((request[1], &request[4..15]), (52, &[0, 0, 0, 0, 0, 0, 0, 0xa1, 0, 0, 2][..]));
            let report = [0x21, 56, 0, 17, 0, 0, 0, 0, 0, 0, 0, 1, 7, 8, 9, 0, 0, 39, 0, 1, 2];
            node.send_to(&report, client).unwrap();
            let (response, _) = receive();
            let expected = [0x21, 57, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0xa0, 7, 8, 9, 0, 0, 19, 0, 1, 1];
            assert_eq!(response, expected);
            node.send_to(&[0x20, 1, 0, 12, 0, 1, 2, 0, 0, 96, 0, 4, 1, 2, 3, 4], client).unwrap();
            let (response, _) = receive();
            assert_eq!(response[..12], [0x20, 2, 0, 12, 0, 1, 2, 0, 0, 96, 0, 4]);
            assert_eq!(response[12..], recovery);
            let answer = [0x21, 53, 0, 17, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0, 0, 19, 0, 1, 1];
            node.send_to(&answer, client).unwrap();
        });
        let run = client.run(Request::Modify, [1, 2], &AtomicBool::new(false)).unwrap();
        served.join().unwrap();
        assert_eq!((run.reports, run.repeated, run.answers.count()), (1, 0, 1));
    }

    #[test]
    fn a_report_of_no_session_ends_the_run() {
        let node = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = Client::new(node.local_addr().unwrap(), Shape::Plain, 2, (1, None)).unwrap();
        let report = |cp_seid: u8| [0x21, 56, 0, 12, 0, 0, 0, 0, 0, 0, 0, cp_seid, 0, 0, 1, 0];
        for cp_seid in [0, 1, 3] {
            client.buffer[..16].copy_from_slice(&report(cp_seid));
            assert!(client.acknowledge(16).is_err(), "{cp_seid}");
        }
        assert!(client.acknowledge(15).is_err());
    }
}
