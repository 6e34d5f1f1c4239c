//! The control socket's end in the node. Served by the control loop between datagrams: questions are
//! few and answers are short.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::api::{Answer, Question};

/// Clients at once; a further one waits in the socket's backlog.
const CLIENTS_MAX: usize = 16;
/// Longest question in bytes.
const QUESTION_MAX: usize = 4096;
/// How long a client may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The listening socket and who has connected.
#[derive(Debug)]
pub(super) struct Server {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<Client>,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    question: Vec<u8>,
    answer: Vec<u8>,
    deadline: Instant,
}

impl Server {
    /// Listens at `path`, which only the node's user may connect to. What a killed node left there is
    /// replaced; a node that still answers is not.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file that is no socket"));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(ErrorKind::AddrInUse, "another node answers there"));
            }
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: path.to_owned(), clients: Vec::new() })
    }

    /// Descriptors to wait for.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().map(|client| client.stream.as_fd());
        std::iter::once(self.listener.as_fd()).chain(clients)
    }

    /// Takes in clients and questions, and answers.
    pub(super) fn serve(&mut self, mut answer: impl FnMut(Question) -> Answer) {
        while self.clients.len() < CLIENTS_MAX
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                let deadline = Instant::now() + PATIENCE;
                self.clients.push(Client { stream, question: Vec::new(), answer: Vec::new(), deadline });
            }
        }
        self.clients.retain_mut(|client| client.turn(&mut answer));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = fs::remove_file(&self.path);
    }
}

impl Client {
    /// Reads and writes what can be; `false` when the client is done with.
    fn turn(&mut self, answer: &mut impl FnMut(Question) -> Answer) -> bool {
        if Instant::now() > self.deadline {
            return false;
        }
        if self.answer.is_empty() {
            match self.read_line() {
                Ok(None) => return true,
                Ok(Some(line)) => self.answer = encode(&respond(&line, answer)),
                Err(_) => return false,
            }
        }
        match self.stream.write(&self.answer) {
            Ok(written) => {
                self.answer.drain(..written);
                !self.answer.is_empty()
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = [0; 512];
        loop {
            if let Some(end) = self.question.iter().position(|&byte| byte == b'\n') {
                return Ok(Some(self.question[..end].to_vec()));
            }
            if self.question.len() > QUESTION_MAX {
                return Err(io::Error::other("the question is too long"));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.question.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

fn respond(line: &[u8], answer: &mut impl FnMut(Question) -> Answer) -> Answer {
    match serde_json::from_slice(line) {
        Ok(question) => answer(question),
        Err(error) => Answer::Error { message: error.to_string() },
    }
}

fn encode(answer: &Answer) -> Vec<u8> {
    let mut line = serde_json::to_vec(answer)
        .unwrap_or_else(|error| format!("{{\"answer\":\"error\",\"message\":\"{error}\"}}").into_bytes());
    line.push(b'\n');
    line
}
