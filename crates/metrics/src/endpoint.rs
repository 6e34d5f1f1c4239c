//! A small HTTP/1 endpoint to be scraped at: one thread, one answer a connection, and bounds on everything a client
//! can make it keep: clients, bytes, time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::request::{self, HEAD_MAX, Method, Refusal, Request};

/// Clients at once. One more takes the place of the one that has kept us waiting longest.
const CLIENTS_MAX: usize = 32;
/// How long a client may take to ask and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long is listened to a client that has its answer and does not go.
const FAREWELL: Duration = Duration::from_millis(500);
/// Most bytes thrown away of such a client.
const FAREWELL_BYTES: usize = 1 << 20;
/// How long is waited for clients to be answered, when nobody else is taken in.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Longest wait for anything, so that a word to stop is heard.
const PACE: Duration = Duration::from_millis(100);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code: 200, 404 and their like.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// Its body.
    pub body: String,
}

impl Response {
    /// A line of text.
    pub fn text(status: u16, line: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{line}\n") }
    }
}

/// Whether who connects is taken in, as another thread wants it.
#[derive(Debug, Default)]
pub struct Admission {
    stop: AtomicBool,
    /// Nobody is to be taken in.
    closed: AtomicBool,
    /// Nobody is, and who was has been answered.
    drained: AtomicBool,
}

impl Admission {
    /// Has nobody be taken in any more; waits a while until who was has been answered.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let began = Instant::now();
        while !self.drained.load(Ordering::Acquire) && began.elapsed() < DRAIN_MAX {
            sleep(PACE / 100);
        }
    }

    /// Has the endpoint end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The listening socket and who has connected.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    clients: Vec<Client>,
}

/// What a client is at.
#[derive(Debug)]
enum Stage {
    /// It asks: what it has said so far.
    Asking(Vec<u8>),
    /// It is answered: what it has not taken yet.
    Reading(Vec<u8>),
    /// It has all; what it still says is thrown away, so that the answer is not lost to a reset.
    Leaving(usize),
}

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    stage: Stage,
    deadline: Instant,
}

impl AsFd for Endpoint {
    /// The listening socket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Endpoint {
    /// Listens.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::of(TcpListener::bind(address)?)
    }

    /// Goes on to listen by the socket of another process.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn adopt(listener: OwnedFd) -> io::Result<Self> {
        Self::of(listener.into())
    }

    fn of(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, clients: Vec::new() })
    }

    /// Where it listens: with the port that the kernel chose, if it was asked to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is to stop. `answer` says what to tell a request that is well formed.
    pub fn serve(&mut self, admission: &Admission, mut answer: impl FnMut(&Request<'_>) -> Response) {
        while !admission.stop.load(Ordering::Relaxed) {
            let is_open = !admission.closed.load(Ordering::Acquire);
            self.turn(PACE, is_open, &mut answer);
            let is_drained = self.clients.iter().all(|client| matches!(client.stage, Stage::Leaving(_)));
            if !is_open && is_drained {
                admission.drained.store(true, Ordering::Release);
            }
        }
    }

    /// Waits at most `wait` for something to do, and does what there is. Clients are taken in where it is open.
    pub fn turn(&mut self, wait: Duration, is_open: bool, mut answer: impl FnMut(&Request<'_>) -> Response) {
        self.wait(wait, is_open);
        if is_open {
            self.admit();
        }
        let now = Instant::now();
        self.clients.retain_mut(|client| now <= client.deadline && client.turn(now, &mut answer));
    }

    fn wait(&self, wait: Duration, is_open: bool) {
        let wanted = |client: &Client| match client.stage {
            Stage::Asking(_) | Stage::Leaving(_) => PollFlags::IN,
            Stage::Reading(_) => PollFlags::OUT,
        };
        let listener = is_open.then(|| PollFd::new(&self.listener, PollFlags::IN));
        let clients = self.clients.iter().map(|client| PollFd::new(&client.stream, wanted(client)));
        let mut polled: Vec<_> = listener.into_iter().chain(clients).collect();
        // A wait that is interrupted is a shorter one.
        let _ = poll(&mut polled, wait.try_into().ok().as_ref());
    }

    /// Takes in who has connected, a bounded number at a time.
    fn admit(&mut self) {
        for _ in 0..CLIENTS_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Descriptors have run out, most likely: give one back, and do not turn at full speed meanwhile.
                Err(_) => {
                    self.evict();
                    return sleep(PACE / 10);
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() >= CLIENTS_MAX {
                self.evict();
            }
            let (stage, deadline) = (Stage::Asking(Vec::new()), Instant::now() + PATIENCE);
            self.clients.push(Client { stream, stage, deadline });
        }
    }

    /// Makes room: of those that have not asked yet the oldest goes, else the oldest of all.
    fn evict(&mut self) {
        let idle = |client: &Client| matches!(client.stage, Stage::Asking(_) | Stage::Leaving(_));
        let places = self.clients.iter().enumerate();
        let oldest =
            places.min_by_key(|(_, client)| (!idle(client), client.deadline)).map(|(place, _)| place);
        if let Some(place) = oldest {
            self.clients.swap_remove(place);
        }
    }
}

impl Client {
    /// Does what can be done without waiting; `false` when the client is done with.
    fn turn(&mut self, now: Instant, answer: &mut impl FnMut(&Request<'_>) -> Response) -> bool {
        if let Stage::Asking(said) = &mut self.stage {
            let question = match listen(&mut self.stream, said) {
                Ok(None) => return true,
                Ok(Some(question)) => question,
                Err(_) => return false,
            };
            let bytes = respond(question.map(|len| &said[..len]), answer);
            self.stage = Stage::Reading(bytes);
        }
        if let Stage::Reading(rest) = &mut self.stage {
            match write_some(&mut self.stream, rest) {
                Ok(false) => return true,
                Ok(true) => {}
                Err(_) => return false,
            }
            // Who is gone already needs no goodbye.
            if self.stream.shutdown(Shutdown::Write).is_err() {
                return false;
            }
            (self.stage, self.deadline) = (Stage::Leaving(0), now + FAREWELL);
        }
        let Stage::Leaving(thrown) = &mut self.stage else { return false };
        let mut waste = [0; 4096];
        while *thrown < FAREWELL_BYTES {
            match self.stream.read(&mut waste) {
                Ok(0) => return false,
                Ok(read) => *thrown += read,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        false
    }
}

/// Reads on until the head is complete: its length then, or why it will not be.
fn listen(stream: &mut impl Read, said: &mut Vec<u8>) -> io::Result<Option<Result<usize, Refusal>>> {
    let mut chunk = [0; 2048];
    loop {
        if let Some(len) = request::head_len(said) {
            return Ok(Some(if len <= HEAD_MAX { Ok(len) } else { Err(Refusal::TooLong) }));
        }
        if said.len() > HEAD_MAX {
            return Ok(Some(Err(Refusal::TooLong)));
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => said.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes what can be written; `true` when nothing is left.
fn write_some(stream: &mut impl Write, rest: &mut Vec<u8>) -> io::Result<bool> {
    let mut written = 0;
    while written < rest.len() {
        match stream.write(&rest[written..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    rest.drain(..written);
    Ok(rest.is_empty())
}

fn respond(head: Result<&[u8], Refusal>, answer: &mut impl FnMut(&Request<'_>) -> Response) -> Vec<u8> {
    let (response, with_body) = match head.and_then(request::read) {
        Ok(request) => (answer(&request), request.method == Method::Get),
        Err(Refusal::Malformed) => (Response::text(400, "this is no HTTP request"), true),
        Err(Refusal::Method) => (Response::text(405, "only GET and HEAD are answered"), true),
        Err(Refusal::TooLong) => (Response::text(431, "the head of the request is too long"), true),
        Err(Refusal::Version) => (Response::text(505, "only HTTP/1.0 and 1.1 are spoken"), true),
    };
    let Response { status, content_type, body } = response;
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    let mut bytes = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        reason(status),
        body.len()
    )
    .into_bytes();
    if with_body {
        bytes.extend_from_slice(body.as_bytes());
    }
    bytes
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> (Endpoint, SocketAddr) {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = endpoint.address().unwrap();
        (endpoint, address)
    }

    fn hello(request: &Request<'_>) -> Response {
        match request.path {
            "/metrics" => Response::text(200, request.accept.unwrap_or("hello")),
            _ => Response::text(404, "nothing"),
        }
    }

    /// Turns the endpoint until the client has been told all there is.
    fn told(endpoint: &mut Endpoint, stream: &mut TcpStream) -> String {
        stream.set_nonblocking(true).unwrap();
        let mut answer = Vec::new();
        let mut chunk = [0; 65_536];
        for _ in 0..2000 {
            endpoint.turn(Duration::from_millis(1), true, hello);
            match stream.read(&mut chunk) {
                Ok(0) => return String::from_utf8(answer).unwrap(),
                Ok(read) => answer.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error} after {} bytes", answer.len()),
            }
        }
        panic!("no end after {} bytes", answer.len());
    }

    fn asked(endpoint: &mut Endpoint, address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        told(endpoint, &mut stream)
    }

    #[test]
    fn requests_are_answered() {
        let (mut endpoint, address) = endpoint();
        let answer = asked(&mut endpoint, address, b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("\r\nContent-Length: 2\r\n"),
            "{head}"
        );
        assert_eq!(body, "x\n");
        let head = asked(&mut endpoint, address, b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 6\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(asked(&mut endpoint, address, b"GET /x HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
        for _ in 0..100 {
            endpoint.turn(Duration::from_millis(1), true, hello);
        }
        assert!(endpoint.clients.is_empty());
    }

    #[test]
    fn hostile_requests_are_refused() {
        let (mut endpoint, address) = endpoint();
        let mut status = |request: &[u8]| asked(&mut endpoint, address, request)[9..12].to_owned();
        assert_eq!(status(b"PUT /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789"), "405");
        assert_eq!(status(b"GET /metrics HTTP/3\r\nHost: a\r\n\r\n"), "505");
        assert_eq!(status(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n"), "400");
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(HEAD_MAX));
        assert_eq!(status(long.as_bytes()), "431");
        let endless = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(10_000));
        assert_eq!(status(endless.as_bytes()), "431");
    }

    #[test]
    fn slow_clients_keep_nobody_out() {
        let (mut endpoint, address) = endpoint();
        let mut slow = Vec::new();
        for _ in 0..3 * CLIENTS_MAX {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /me").unwrap();
            slow.push(stream);
            endpoint.turn(Duration::from_millis(1), true, hello);
            assert!(endpoint.clients.len() <= CLIENTS_MAX);
        }
        let answer = asked(&mut endpoint, address, b"GET /metrics HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        for client in &mut endpoint.clients {
            client.deadline = Instant::now().checked_sub(Duration::from_millis(1)).unwrap();
        }
        endpoint.turn(Duration::ZERO, true, hello);
        assert!(endpoint.clients.is_empty(), "who takes longer than its time is shown out");
    }

    #[test]
    fn an_answer_is_taken_in_pieces() {
        let (mut endpoint, address) = endpoint();
        let mut stream = TcpStream::connect(address).unwrap();
        for piece in [&b"GET /metrics HT"[..], b"TP/1.1\r\nHost: a\r", b"\n\r\n"] {
            stream.write_all(piece).unwrap();
            endpoint.turn(Duration::from_millis(5), true, |_| Response::text(200, &"m".repeat(8 << 20)));
        }
        let waits = |endpoint: &Endpoint| matches!(endpoint.clients[0].stage, Stage::Reading(_));
        assert!(waits(&endpoint), "more than the socket takes at once");
        let answer = told(&mut endpoint, &mut stream);
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), (8 << 20) + 1);
    }

    #[test]
    fn a_client_that_hangs_up_is_forgotten() {
        let (mut endpoint, address) = endpoint();
        drop(TcpStream::connect(address).unwrap());
        let mut half = TcpStream::connect(address).unwrap();
        half.write_all(b"GET").unwrap();
        drop(half);
        for _ in 0..100 {
            endpoint.turn(Duration::from_millis(1), true, hello);
        }
        assert!(endpoint.clients.is_empty());
    }

    #[test]
    fn it_serves_until_it_is_told_to_stop() {
        let (mut endpoint, address) = endpoint();
        let admission = Admission::default();
        std::thread::scope(|scope| {
            scope.spawn(|| endpoint.serve(&admission, hello));
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            admission.stop();
            assert!(answer.ends_with("\r\n\r\nhello\n"), "{answer}");
        });
    }

    /// Who connects when it is closed waits for another endpoint of the same socket; who was here is answered.
    #[test]
    fn a_closed_endpoint_answers_who_is_here_and_takes_in_nobody() {
        let (mut endpoint, address) = endpoint();
        let mut next = Endpoint::adopt(endpoint.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let admission = Admission::default();
        std::thread::scope(|scope| {
            scope.spawn(|| endpoint.serve(&admission, hello));
            let mut before = TcpStream::connect(address).unwrap();
            before.write_all(b"GET /metrics HTTP/1.0\r\n").unwrap();
            // It is taken in by now, most likely; where it is not, the other answers it.
            sleep(PACE);
            scope.spawn(|| admission.close());
            sleep(PACE * 2);
            let mut after = TcpStream::connect(address).unwrap();
            after.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            before.write_all(b"\r\n").unwrap();
            let mut answer = String::new();
            before.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("hello\n"), "{answer}");
            assert!(next.clients.is_empty());
            assert!(told(&mut next, &mut after).ends_with("hello\n"));
            admission.stop();
        });
    }
}
