//! The control socket's end in the node. Served by the control loop between datagrams: questions are
//! few and answers are short.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::view::reply;
use crate::api::Answer;

/// Clients at once. Whoever has waited longest without a question gives way to a further one.
const CLIENTS_MAX: usize = 16;
/// Clients taken in at a time.
const ACCEPTED_A_TURN: usize = 64;
/// Longest question in bytes.
const QUESTION_MAX: usize = 4096;
/// How long a client may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The listening socket and who has connected.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    /// What is to be removed in the end.
    path: Option<PathBuf>,
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
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
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
        Ok(Self { listener, path: Some(path.to_owned()), clients: Vec::new() })
    }

    /// Listens by the socket of another process, whose it stays until it is [taken](Server::take).
    pub(crate) fn adopt(listener: OwnedFd) -> io::Result<Self> {
        let listener = UnixListener::from(listener);
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: None, clients: Vec::new() })
    }

    /// The socket, at this path, is this process's now.
    pub(crate) fn take(&mut self, path: &Path) {
        self.path = Some(path.to_owned());
    }

    /// The listening socket.
    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Leaves the socket to another process, which has it too.
    pub(crate) fn leave(&mut self) {
        self.path = None;
    }

    /// Descriptors to wait for; where no client is taken in, but for those that are here.
    pub(crate) fn descriptors(&self, takes_in: bool) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().map(|client| client.stream.as_fd());
        takes_in.then(|| self.listener.as_fd()).into_iter().chain(clients)
    }

    /// Takes in clients, unless another process does, and questions, and answers.
    pub(crate) fn serve(&mut self, takes_in: bool, mut answer: impl FnMut(Value) -> Value) {
        for _ in 0..if takes_in { ACCEPTED_A_TURN } else { 0 } {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                let deadline = Instant::now() + PATIENCE;
                self.clients.push(Client { stream, question: Vec::new(), answer: Vec::new(), deadline });
            }
        }
        // Everybody has a turn first: who has asked is answered.
        self.clients.retain_mut(|client| client.turn(&mut answer));
        let mut too_many = self.clients.len().saturating_sub(CLIENTS_MAX);
        for idle_only in [true, false] {
            self.clients.retain(|client| {
                let goes = too_many > 0 && (!idle_only || client.answer.is_empty());
                too_many -= usize::from(goes);
                !goes
            });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Already gone is as good.
            let _ = fs::remove_file(path);
        }
    }
}

impl Client {
    /// Reads and writes what can be; `false` when the client is done with.
    fn turn(&mut self, answer: &mut impl FnMut(Value) -> Value) -> bool {
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

fn respond(line: &[u8], answer: &mut impl FnMut(Value) -> Value) -> Value {
    match serde_json::from_slice(line) {
        Ok(question) => answer(question),
        Err(error) => reply(&Answer::Error { message: error.to_string() }),
    }
}

fn encode(answer: &Value) -> Vec<u8> {
    format!("{answer}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    fn serve(server: &mut Server) {
        server.serve(true, |_| Value::from("answered"));
    }

    /// Two hundred clients that connect and say nothing.
    #[test]
    fn idle_clients_keep_nobody_out() {
        let folder = std::env::temp_dir().join(format!("kaido-server-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("control.sock");
        let mut server = Server::open(&path).unwrap();
        let mut idle = Vec::new();
        for _ in 0..200 {
            idle.push(UnixStream::connect(&path).unwrap());
            if idle.len().is_multiple_of(50) {
                serve(&mut server);
            }
        }
        assert_eq!(server.clients.len(), CLIENTS_MAX);
        let mut asking = UnixStream::connect(&path).unwrap();
        asking.write_all(b"{\"ask\":\"status\"}\n").unwrap();
        // Four times as many as are taken in at once may be before it.
        (0..4).for_each(|_| serve(&mut server));
        let mut line = String::new();
        asking.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        BufReader::new(asking).read_line(&mut line).unwrap();
        assert!(line.contains("answered"), "{line}");
        assert!(server.clients.len() <= CLIENTS_MAX);
        drop(server);
        fs::remove_dir_all(folder).unwrap();
    }
}
