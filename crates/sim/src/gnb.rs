//! The gNB: one kernel UDP socket for all tunnels (TS 29.281).
//!
//! ```text
//!  TUN ─┐                                                    ┌─▶ TUN
//!       ├─▶ Uplink: GTP-U header before the packet, 32 a call │
//!  generator ┘                 UDP 2152        Downlink ──────┼─▶ replies, counted
//!                                                             └─▶ echo response, End Marker, errors
//! ```

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kaido_n4::Qfi;
use kaido_wire::gtpu::{self, GtpuRepr, Message, MessageType, PduSession};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{
    MMsgHdr, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, recvfrom, sendmmsg, sockopt,
};

use super::fault::SimFault;
use super::plan::gtpu_endpoint;
use super::ue::Ue;

/// Packets handed to the kernel at once.
const BATCH: usize = 32;
/// The longest IP packet from a TUN device or the generator.
const PACKET_ROOM: usize = 9216;
/// Receive and send buffer of the socket: a few milliseconds at full rate.
const SOCKET_BUFFER: usize = 16 << 20;
/// How often a receiver without packets looks whether it shall end.
const LOOK: Duration = Duration::from_millis(50);

/// What the gNB saw beside user data.
#[derive(Debug, Default)]
pub(super) struct GnbCounters {
    /// Echo requests, each answered.
    pub(super) echo_requests: AtomicU64,
    /// End Markers.
    pub(super) end_markers: AtomicU64,
    /// Error Indications of the UPF's: it did not know a TEID.
    pub(super) error_indications: AtomicU64,
    /// G-PDUs for a TEID of no UE, each answered with an Error Indication.
    pub(super) unknown_teid: AtomicU64,
    /// Other GTP-U messages.
    pub(super) other_messages: AtomicU64,
    /// Datagrams that are not GTP-U.
    pub(super) malformed: AtomicU64,
    /// Packets in a UE's tunnel that are not addressed to it.
    pub(super) misdelivered: AtomicU64,
    /// Replies to generated datagrams that came back changed.
    pub(super) corrupt: AtomicU64,
    /// Datagrams that the kernel would not send.
    pub(super) send_errors: AtomicU64,
    /// Packets that a TUN device would not take.
    pub(super) tun_errors: AtomicU64,
    /// Packets from a TUN device that no UE may send: link-local and unspecified sources.
    pub(super) tun_ignored: AtomicU64,
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    // Relaxed: read for the report alone, after the threads were joined.
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The gNB's socket and what it saw.
#[derive(Debug)]
pub(super) struct Gnb {
    socket: UdpSocket,
    local: IpAddr,
    qfi: Option<Qfi>,
    first_teid: u32,
    /// What it saw.
    pub(super) counters: GnbCounters,
}

impl Gnb {
    /// Binds the socket.
    pub(super) fn open(local: IpAddr, qfi: Option<Qfi>, first_teid: u32) -> Result<Self, SimFault> {
        let endpoint = gtpu_endpoint(local);
        let bind = |error| SimFault::bind("GTP-U socket of the gNB", endpoint, error);
        let socket = UdpSocket::bind(endpoint).map_err(bind)?;
        socket.set_read_timeout(Some(LOOK)).map_err(bind)?;
        // With CAP_NET_ADMIN past the system's limit, else up to it.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
        }
        if sockopt::set_socket_send_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER);
        }
        Ok(Self { socket, local, qfi, first_teid, counters: GnbCounters::default() })
    }

    /// Waits for a datagram.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        self.socket.recv_from(buffer).ok()
    }

    /// Takes a datagram that is there already.
    pub(super) fn take(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let (len, _, from) = recvfrom(&self.socket, buffer, RecvFlags::DONTWAIT).ok()?;
        Some((len, SocketAddr::try_from(from?).ok()?))
    }

    /// The place of the UE that has a downlink TEID.
    pub(super) fn ue_of(&self, teid: u32) -> usize {
        teid.checked_sub(self.first_teid).map_or(usize::MAX, |n| n as usize)
    }

    /// Acts on a message other than user data (TS 29.281 clause 7).
    pub(super) fn signalling(&self, message_type: MessageType, datagram: &[u8], from: SocketAddr) {
        match message_type {
            MessageType::ECHO_REQUEST => {
                count(&self.counters.echo_requests);
                if let Ok(Message::EchoRequest { sequence, .. }) = Message::parse(datagram) {
                    self.send(&Message::EchoResponse { sequence, recovery: 0, restarted: None }, from);
                }
            }
            MessageType::END_MARKER => count(&self.counters.end_markers),
            MessageType::ERROR_INDICATION => count(&self.counters.error_indications),
            _ => count(&self.counters.other_messages),
        }
    }

    /// A G-PDU for a TEID that no UE has: the sender is told (TS 29.281 7.3.1).
    pub(super) fn unknown_teid(&self, teid: u32, from: SocketAddr) {
        count(&self.counters.unknown_teid);
        let told = Message::ErrorIndication { sequence: 0, teid, peer: self.local, udp_port: None };
        self.send(&told, gtpu_endpoint(from.ip()));
    }

    fn send(&self, message: &Message<'_>, to: SocketAddr) {
        let mut datagram = vec![0; message.len()];
        let sent = message.emit(&mut datagram).is_ok() && self.socket.send_to(&datagram, to).is_ok();
        if !sent {
            count(&self.counters.send_errors);
        }
    }

    /// A way into the tunnels.
    pub(super) fn uplink(&self) -> Uplink<'_> {
        let header_len = header(self.qfi, 0, 0).len();
        Uplink {
            gnb: self,
            header_len,
            slots: vec![vec![0; header_len + PACKET_ROOM]; BATCH],
            filled: Vec::new(),
        }
    }
}

/// The header of an uplink G-PDU.
pub(super) fn header(qfi: Option<Qfi>, teid: u32, payload_len: u16) -> GtpuRepr {
    let pdu_session = qfi.map(|qfi| PduSession::Uplink { qfi: qfi.0 });
    GtpuRepr { pdu_session, ..GtpuRepr::g_pdu(teid, payload_len) }
}

/// Packets on their way into tunnels, handed to the kernel together.
#[derive(Debug)]
pub(super) struct Uplink<'g> {
    gnb: &'g Gnb,
    header_len: usize,
    slots: Vec<Vec<u8>>,
    /// Length and destination of the slots in use.
    filled: Vec<(usize, SocketAddrAny)>,
}

impl Uplink<'_> {
    /// Where the next packet is to be written.
    pub(super) fn space(&mut self) -> &mut [u8] {
        // One slot at least is free: a full batch is sent at once.
        &mut self.slots[self.filled.len()][self.header_len..]
    }

    /// Sends the `len` octets written into the space through the tunnel of `ue`.
    pub(super) fn push(&mut self, ue: &Ue, len: usize) {
        let (Some(upf), Ok(payload_len)) = (ue.upf, u16::try_from(len)) else { return };
        let repr = header(ue.qfi.or(self.gnb.qfi), ue.uplink_teid, payload_len);
        if repr.emit(&mut self.slots[self.filled.len()]).is_err() {
            return;
        }
        self.filled.push((self.header_len + len, upf.as_any()));
        if self.filled.len() == BATCH {
            self.flush();
        }
    }

    /// Sends what waits; how many packets the kernel would not send.
    pub(super) fn flush(&mut self) -> usize {
        let (mut from, mut failed) = (0, 0);
        while from < self.filled.len() {
            match self.send_from(from) {
                Ok(sent) => from += sent,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    count(&self.gnb.counters.send_errors);
                    from += 1;
                    failed += 1;
                }
            }
        }
        self.filled.clear();
        failed
    }

    fn send_from(&self, from: usize) -> rustix::io::Result<usize> {
        let waiting = self.filled.iter().zip(&self.slots).skip(from);
        let slices: Vec<_> = waiting
            .map(|((len, to), slot)| (to, [IoSlice::new(slot.get(..*len).unwrap_or_default())]))
            .collect();
        let mut controls: Vec<_> = slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<_> = slices
            .iter()
            .zip(&mut controls)
            .map(|((to, slice), control)| MMsgHdr::new_with_addr(to, slice, control))
            .collect();
        sendmmsg(&self.gnb.socket, &mut messages, SendFlags::empty())
    }
}

/// Reads the header of a datagram; `None`, counted, when it is not GTP-U.
pub(super) fn read<'d>(gnb: &Gnb, datagram: &'d [u8]) -> Option<(gtpu::GtpuHeader, &'d [u8])> {
    let found = gtpu::header(datagram).ok().and_then(|header| {
        let payload = datagram.get(header.payload_offset.into()..)?.get(..header.payload_len.into())?;
        Some((header, payload))
    });
    if found.is_none() {
        count(&gnb.counters.malformed);
    }
    found
}
