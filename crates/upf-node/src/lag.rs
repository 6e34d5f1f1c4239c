//! How far behind the node is with PFCP: how full the kernel's queues of its sockets are, and whether they overflow.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the queues are looked at.
const PACE: Duration = Duration::from_millis(250);
/// Where the kernel shows them.
const SOCKETS: [&str; 2] = ["/proc/net/udp", "/proc/net/udp6"];

/// The queues of the PFCP sockets.
#[derive(Debug)]
pub(super) struct Lag {
    /// Inode and length of the queue in bytes, for each socket.
    sockets: Vec<(u64, usize)>,
    /// Datagrams that found no room so far.
    overflowed: u64,
    /// What the last look said, in percent.
    percent: u8,
    next: Instant,
    /// A datagram came since the last look.
    has_heard: bool,
}

impl Lag {
    /// The queues of these sockets. A socket that cannot be told apart is left out.
    pub(super) fn of(sockets: &[Arc<UdpSocket>]) -> Self {
        let queue = |socket: &Arc<UdpSocket>| {
            let inode = rustix::fs::fstat(socket).ok()?.st_ino;
            Some((inode, rustix::net::sockopt::socket_recv_buffer_size(socket).ok()?))
        };
        Self {
            sockets: sockets.iter().filter_map(queue).collect(),
            overflowed: 0,
            percent: 0,
            next: Instant::now(),
            has_heard: true,
        }
    }

    /// Notes that a datagram came.
    pub(super) const fn heard(&mut self) {
        self.has_heard = true;
    }

    /// The fill of the fullest queue in percent, when it is time to look: 100 if one has overflowed since. There is nothing
    /// to see where nothing was heard since the last look, unless that saw something.
    pub(super) fn look(&mut self, now: Instant) -> Option<u8> {
        if now < self.next || (!self.has_heard && self.percent == 0) {
            return None;
        }
        self.has_heard = false;
        self.next = now + PACE;
        let shown = SOCKETS.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        self.percent = self.judge(&shown.collect::<String>());
        Some(self.percent)
    }

    /// What the last look said, in percent, and how many datagrams have found no room so far.
    pub(super) const fn last(&self) -> (u8, u64) {
        (self.percent, self.overflowed)
    }

    fn judge(&mut self, shown: &str) -> u8 {
        let (mut fullest, mut overflowed) = (0, 0);
        for (inode, waiting, dropped) in shown.lines().filter_map(queue) {
            let Some(&(_, room)) = self.sockets.iter().find(|socket| socket.0 == inode) else { continue };
            fullest = fullest.max(waiting * 100 / room.max(1));
            overflowed += dropped;
        }
        let more = overflowed > std::mem::replace(&mut self.overflowed, overflowed);
        if more { 100 } else { u8::try_from(fullest).unwrap_or(100).min(100) }
    }
}

/// Inode, waiting bytes and dropped datagrams of a line of `/proc/net/udp`.
fn queue(line: &str) -> Option<(u64, usize, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (_, waiting) = fields.nth(4)?.split_once(':')?;
    let inode = fields.nth(4)?;
    let dropped = fields.nth(2)?;
    Some((inode.parse().ok()?, usize::from_str_radix(waiting, 16).ok()?, dropped.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1111: 0100007F:2265 00000000:0000 07 00000000:00000400 00:00000000 00000000     0        0 4711 2 0000000000000000 7
 2222: 0200007F:2265 00000000:0000 07 00000000:00000010 00:00000000 00000000     0        0 4712 2 0000000000000000 9";

    #[test]
    fn the_fullest_own_queue_counts() {
        let mut lag = Lag {
            sockets: vec![(4711, 2048)],
            overflowed: 7,
            percent: 0,
            next: Instant::now(),
            has_heard: false,
        };
        assert_eq!(lag.judge(SHOWN), 50);
        assert_eq!(lag.judge(&SHOWN.replace(" 7\n", " 8\n")), 100, "one had no room");
        assert_eq!(lag.judge(&SHOWN.replace(" 7\n", " 8\n")), 50);
        assert_eq!(lag.judge("nonsense\n"), 0);
    }

    #[test]
    fn the_kernel_shows_what_waits() {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = socket.local_addr().unwrap();
        let mut lag = Lag::of(std::slice::from_ref(&socket));
        let now = Instant::now() + PACE;
        assert_eq!(lag.look(now), Some(0));
        lag.heard();
        assert_eq!(lag.look(now), None, "not again so soon");
        lag.look(now + PACE);
        assert_eq!(lag.look(now + 2 * PACE), None, "nothing was heard");
        for _ in 0..50 {
            socket.send_to(&[0; 1000], to).unwrap();
        }
        lag.heard();
        assert!(lag.look(now + 2 * PACE).unwrap() > 0);
        assert!(lag.look(now + 3 * PACE).unwrap() > 0, "until it is seen to be over");
    }
}
