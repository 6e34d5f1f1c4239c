//! How the faces of the host port come and go.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kaido_ndn_tables::FaceId;
use kaido_wire::ndn::MULTICAST_PORT;

use super::connection::{Connection, Socket, Stage, descriptor};
use super::control::Order;
use super::datagram::Datagrams;
use super::listen::{self, NewConnection};
use super::poller::Source;
use super::port::{FaceTransport, HostPort, packet_len};
use super::{HOST_MTU, HostError, MulticastOn};
use crate::face::{
    FLAG_CONGESTION_MARKING, Face, FaceError, FaceSettings, FaceState, FaceUri, LinkType, Persistency, Scope,
    Transport,
};

/// Connections that are taken at a time.
const ACCEPT_MAX: usize = 16;

/// How often it is looked whether something is due.
const CHECK_EVERY: Duration = Duration::from_millis(250);

impl HostPort {
    /// Opens the socket of the multicast group and makes its face.
    pub(super) fn join(&mut self, on: &MulticastOn) -> Result<(), HostError> {
        let (socket, sender) = listen::multicast(on)?;
        let remote = on.group();
        let local = match on {
            MulticastOn::V4(interface) => FaceUri::Udp(SocketAddr::from((*interface, MULTICAST_PORT))),
            MulticastOn::V6 { name, .. } => FaceUri::Dev(name.clone()),
        };
        let settings = FaceSettings {
            link_type: LinkType::MultiAccess,
            persistency: Persistency::Permanent,
            mtu: self.settings.udp_mtu,
            ..self.face_settings(FaceUri::Udp(remote), local, Scope::NonLocal)
        };
        let full =
            |full: FaceError| HostError::at(format!("UDP {remote}"))(io::Error::other(full.to_string()));
        let face = self.faces.create(settings).map_err(full)?;
        let socket_at = self.datagrams.len();
        self.put(FaceTransport::Datagrams { face: face.id(), socket: socket_at, remote });
        self.datagrams.push(Datagrams::group(socket, sender, face));
        Ok(())
    }

    pub(super) fn watch_listeners(&self) -> io::Result<()> {
        (0..)
            .zip(&self.listeners)
            .try_for_each(|(number, listener)| self.poller.watch(listener, Source::Listener(number), false))
    }

    pub(super) fn face_settings(&self, remote: FaceUri, local: FaceUri, scope: Scope) -> FaceSettings {
        FaceSettings {
            remote,
            local,
            scope,
            persistency: Persistency::OnDemand,
            link_type: LinkType::PointToPoint,
            mtu: HOST_MTU,
            flags: FLAG_CONGESTION_MARKING,
            transport: Transport::Host { port: self.settings.port },
        }
    }

    /// Follows the control's orders.
    pub(super) fn obey(&mut self) {
        for order in self.orders.take() {
            match order {
                Order::Open(face) => self.lead(face),
                Order::Adopt(face, stream) => self.adopt(face, Socket::Unix(stream)),
                Order::Close(id) => self.forget(id),
            }
        }
    }

    /// Leads a face that was made by the control to its other end.
    fn lead(&mut self, face: Arc<Face>) {
        match *face.remote() {
            FaceUri::Udp(remote) => {
                let of_family = |datagrams: &Datagrams| {
                    datagrams.socket.local_addr().is_ok_and(|local| local.is_ipv4() == remote.is_ipv4())
                };
                let Some(socket) = self.datagrams.iter().position(of_family) else { return };
                self.put(FaceTransport::Datagrams { face: face.id(), socket, remote });
                self.datagrams[socket].add(remote, face, self.now);
            }
            FaceUri::Tcp(_) => {
                let id = face.id();
                let stage = Stage::Lost { retry_at: self.now };
                self.put(FaceTransport::Stream(Box::new(Connection::new(face, None, stage))));
                self.connect(id);
            }
            _ => {}
        }
    }

    /// Takes a connection whose face is there already.
    fn adopt(&mut self, face: Arc<Face>, socket: Socket) {
        let id = face.id();
        if self.poller.watch(&socket, Source::Face(id), false).is_err() {
            self.faces.destroy(id);
            return;
        }
        self.put(FaceTransport::Stream(Box::new(Connection::new(face, Some(socket), Stage::Open))));
    }

    /// Begins to connect a face that has no connection.
    fn connect(&mut self, id: FaceId) {
        let Some(connection) = self.connection(id) else { return };
        let FaceUri::Tcp(remote) = *connection.face.remote() else { return };
        let began = Socket::connect(remote);
        let watched = began.and_then(|socket| {
            self.poller.watch(&socket, Source::Face(id), true)?;
            Ok(socket)
        });
        let now = self.now;
        let Some(connection) = self.connection(id) else { return };
        match watched {
            Ok(socket) => {
                connection.socket = Some(socket);
                connection.stage = Stage::Connecting;
                connection.awaits_room = true;
            }
            Err(_) => {
                let lost = connection.lose(now);
                self.lost.failed(lost);
                self.queued -= lost;
                self.waiting.push(id);
            }
        }
    }

    /// Makes faces for those who connect.
    pub(super) fn accept(&mut self, number: usize) {
        for _ in 0..ACCEPT_MAX {
            match self.listeners[number].accept() {
                Ok(newcomer) => self.welcome(newcomer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return self.grow_deaf(&error),
            }
        }
    }

    /// Stops listening for a moment: without a descriptor to spare nobody can be let in, and asking again at once would
    /// only keep the worker busy.
    #[cold]
    fn grow_deaf(&mut self, error: &io::Error) {
        if !self.is_deaf {
            tracing::warn!(%error, "cannot take connections for now");
        }
        self.is_deaf = true;
        for listener in &self.listeners {
            let _ = self.poller.forget(listener);
        }
    }

    fn welcome(&mut self, newcomer: NewConnection) {
        let NewConnection { socket, remote, local, scope } = newcomer;
        // A client's end of a Unix socket has no name; it gets the number of our descriptor.
        let remote = remote.unwrap_or_else(|| FaceUri::Descriptor(descriptor(&socket)));
        let face = match self.faces.create(self.face_settings(remote, local, scope)) {
            Ok(face) => face,
            Err(error) => return self.refused(error),
        };
        let id = face.id();
        if self.poller.watch(&socket, Source::Face(id), false).is_err() {
            self.faces.destroy(id);
            return;
        }
        let mut connection = Connection::new(face, Some(socket), Stage::Open);
        connection.is_accepted = true;
        self.put(FaceTransport::Stream(Box::new(connection)));
    }

    /// Makes a face for a sender of datagrams, if this one begins as a packet does.
    pub(super) fn meet(&mut self, number: usize, remote: SocketAddr, octets: &[u8]) -> Option<FaceId> {
        if !packet_len(octets).is_ok_and(|whole| whole == Some(octets.len())) {
            self.lost.malformed();
            return None;
        }
        let local = self.datagrams[number].socket.local_addr().ok()?;
        let settings = FaceSettings {
            mtu: self.settings.udp_mtu,
            ..self.face_settings(FaceUri::Udp(remote), FaceUri::Udp(local), Scope::NonLocal)
        };
        let face = match self.faces.create(settings) {
            Ok(face) => face,
            Err(error) => {
                self.refused(error);
                return None;
            }
        };
        let id = face.id();
        self.put(FaceTransport::Datagrams { face: id, socket: number, remote });
        self.datagrams[number].add(remote, face, self.now);
        Some(id)
    }

    /// Counts one who got no face.
    fn refused(&mut self, error: FaceError) {
        match error {
            FaceError::Host => self.lost.host_full(),
            FaceError::Full | FaceError::OnDemand | FaceError::Applications => self.lost.full(),
        }
    }

    /// Lets go of a connection that has failed: it is tried again if the face is permanent and was connected by us.
    pub(super) fn fail(&mut self, id: FaceId) {
        let now = self.now;
        let Some(connection) = self.connection(id) else { return };
        if connection.is_accepted || connection.face.persistency() != Persistency::Permanent {
            self.forget(id);
            self.faces.destroy(id);
            return;
        }
        let lost = connection.lose(now);
        let face = connection.face.clone();
        self.waiting.push(id);
        self.lost.failed(lost);
        self.queued -= lost;
        self.stop_cutting(id);
        self.faces.set_state(&face, FaceState::Down);
    }

    /// Forgets what leads to a face.
    pub(super) fn forget(&mut self, id: FaceId) {
        let at = self.slot(id);
        let Some(transport) = self.transports[at].take_if(|transport| transport.face() == id) else { return };
        self.stop_cutting(id);
        match transport {
            FaceTransport::Stream(connection) => {
                self.lost.failed(connection.send_queue.packets());
                self.queued -= connection.send_queue.packets();
            }
            FaceTransport::Datagrams { socket, remote, .. } => {
                self.datagrams[socket].remove(remote);
            }
        }
    }

    /// Does what is due: connections are tried again, idle faces go, listeners are listened to again.
    pub(super) fn check(&mut self) {
        if self.now.saturating_duration_since(self.checked) < CHECK_EVERY {
            return;
        }
        self.checked = self.now;
        if std::mem::take(&mut self.is_deaf) && self.watch_listeners().is_err() {
            self.is_deaf = true;
        }
        let now = self.now;
        for id in std::mem::take(&mut self.waiting) {
            match self.connection(id).map(|connection| connection.is_due(now)) {
                Some(true) => self.connect(id),
                Some(false) => self.waiting.push(id),
                None => {}
            }
        }
        let idle: Vec<FaceId> =
            self.datagrams.iter().flat_map(|datagrams| datagrams.idle(now, self.settings.idle)).collect();
        for id in idle {
            self.forget(id);
            self.faces.destroy(id);
        }
    }
}
