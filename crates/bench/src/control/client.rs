//! The control plane: a window of requests under way, each answered by the next.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::wire::{Request, Requests};
use crate::BenchError;
use crate::frames::teid;
use crate::node::stopped;
use crate::shape::Shape;

/// How long an answer is waited for before the request is sent again.
const PATIENCE: Duration = Duration::from_millis(500);
/// The bit that tells a moved tunnel from the first.
const MOVED: u32 = 1 << 31;
const ACCEPTED: u8 = 1;
const F_SEID: u16 = 57;
const CAUSE: u16 = 19;

/// What a phase took on this side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) wall: Duration,
    pub(crate) repeated: u64,
}

/// A control plane that measures.
pub(crate) struct Client {
    socket: UdpSocket,
    requests: Requests,
    window: u32,
    /// UP SEIDs by session; zero for none.
    seids: Vec<u64>,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn new(
        server: SocketAddr,
        shape: Shape,
        sessions: u32,
        window: u32,
    ) -> Result<Self, BenchError> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let requests = Requests::new(socket.local_addr()?, shape)?;
        let seids = vec![0; sessions as usize];
        Ok(Self { socket, requests, window, seids, buffer: vec![0; 65_535] })
    }

    /// Sets up the association.
    pub(crate) fn associate(&mut self) -> Result<(), BenchError> {
        self.socket.send(&self.requests.associate)?;
        let length = self.socket.recv(&mut self.buffer)?;
        match self.buffer[..length] {
            [_, 6, ..] => Ok(()),
            _ => Err(BenchError::Control("the association was not answered".to_owned())),
        }
    }

    /// Makes one request for each of the sessions `from..to`, a window of them at a time.
    pub(crate) fn run(
        &mut self,
        request: Request,
        range: [u32; 2],
        stop: &AtomicBool,
    ) -> Result<Run, BenchError> {
        let [from, to] = range;
        let (mut next, mut answered, mut repeated) = (from, 0, 0);
        // Sessions whose answer has come, to know those that are missing.
        let mut done = vec![false; (to - from) as usize];
        let mut oldest = from;
        let began = Instant::now();
        while answered < to - from {
            while next < to && next - from - answered < self.window {
                self.send(request, next)?;
                next += 1;
            }
            match self.socket.recv(&mut self.buffer) {
                Ok(length) => {
                    let session = self.answer(request, length)?;
                    let place = session.checked_sub(from).map(|place| place as usize);
                    let place = place.and_then(|place| done.get_mut(place));
                    // A second answer to what was sent twice is none.
                    answered += u32::from(place.is_some_and(|done| !std::mem::replace(done, true)));
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    stopped(stop)?;
                    while done.get((oldest - from) as usize) == Some(&true) {
                        oldest += 1;
                    }
                    for session in oldest..next {
                        if !done[(session - from) as usize] {
                            self.send(request, session)?;
                            repeated += 1;
                        }
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        stopped(stop)?;
        Ok(Run { wall: began.elapsed(), repeated })
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

    /// The session that an answer is about.
    fn answer(&mut self, request: Request, length: usize) -> Result<u32, BenchError> {
        let wrong = |what: &str| BenchError::Control(format!("{request:?}: {what}"));
        let message = &self.buffer[..length];
        let Some((header, mut rest)) = message.split_at_checked(16) else {
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
