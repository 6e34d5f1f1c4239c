//! How the control thread has the host port open and close connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_engine::PortId;
use kaido_ndn_tables::FaceId;

use super::listen::scope_of;
use super::poller::Waker;
use super::{HOST_MTU, MulticastOn};
use crate::face::{
    FLAG_CONGESTION_MARKING, FLAG_LOCAL_FIELDS, Face, FaceError, FaceSettings, FaceState, FaceUri, Faces,
    LinkType, Persistency, Scope, Transport,
};

/// Orders that wait for the port, at most.
const ORDERS_MAX: usize = 4096;

/// What the port is to do.
#[derive(Debug)]
pub(super) enum Order {
    /// Lead a face to its other end.
    Open(Arc<Face>),
    /// Take a connection within this process.
    Adopt(Arc<Face>, UnixStream),
    /// Close what leads to a face that is no more.
    Close(FaceId),
}

/// What waits for the port.
#[derive(Debug, Default)]
pub(super) struct Orders(Mutex<Vec<Order>>);

impl Orders {
    fn lock(&self) -> MutexGuard<'_, Vec<Order>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut *self.lock())
    }
}

/// Why no connection is made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The URI is of another kind.
    #[error("{0}: the host port leads to tcp4, tcp6, udp4 and udp6")]
    Kind(FaceUri),
    /// No socket for datagrams of this family is open.
    #[error("{0}: no UDP socket of this family is open; ndn.listen.udp opens some")]
    NoSocket(FaceUri),
    /// There is a face to that end, this one.
    #[error("face {} leads there", .0.0)]
    Exists(FaceId),
    /// There are too many faces.
    #[error(transparent)]
    Face(#[from] FaceError),
    /// The port does not keep up.
    #[error("the host port has too much to do")]
    Busy,
}

/// Commands the host port; clones command the same.
#[derive(Clone, Debug)]
pub struct HostControl {
    pub(super) port: PortId,
    pub(super) faces: Faces,
    pub(super) orders: Arc<Orders>,
    pub(super) waker: Waker,
    /// Addresses of the sockets for datagrams.
    pub(super) udp: Vec<SocketAddr>,
    pub(super) udp_mtu: u16,
    /// Addresses of the listeners.
    pub(super) tcp: Vec<SocketAddr>,
    /// Multicast groups.
    pub(super) groups: Vec<MulticastOn>,
}

impl HostControl {
    /// Makes a face to `remote`. It is down until its connection stands, if it needs one.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing has changed.
    pub fn connect(
        &self,
        remote: FaceUri,
        persistency: Persistency,
        mtu: Option<u16>,
    ) -> Result<Arc<Face>, ConnectError> {
        let (local, scope, is_stream) = match &remote {
            FaceUri::Tcp(address) => {
                let scope = scope_of(address.ip(), address.ip());
                (FaceUri::Tcp(any(address)), scope, true)
            }
            FaceUri::Udp(address) => {
                let of_family = self.udp.iter().find(|local| local.is_ipv4() == address.is_ipv4());
                let Some(local) = of_family else { return Err(ConnectError::NoSocket(remote)) };
                (FaceUri::Udp(*local), Scope::NonLocal, false)
            }
            _ => return Err(ConnectError::Kind(remote)),
        };
        if let Some(face) = self.faces.all().iter().find(|face| *face.remote() == remote) {
            return Err(ConnectError::Exists(face.id()));
        }
        let largest = if is_stream { HOST_MTU } else { self.udp_mtu };
        let settings = FaceSettings {
            remote,
            local,
            scope,
            persistency,
            link_type: LinkType::PointToPoint,
            mtu: largest,
            flags: FLAG_CONGESTION_MARKING,
            transport: Transport::Host { port: self.port },
        };
        let face = self.faces.create(settings)?;
        if let Some(mtu) = mtu {
            face.set_mtu(mtu);
        }
        if is_stream {
            self.faces.set_state(&face, FaceState::Down);
        }
        if let Err(error) = self.order(Order::Open(face.clone())) {
            self.faces.destroy(face.id());
            return Err(error);
        }
        Ok(face)
    }

    /// Removes a face and closes its connection; whether there was one.
    ///
    /// # Errors
    /// [`ConnectError::Busy`]; nothing has changed.
    pub fn destroy(&self, id: FaceId) -> Result<bool, ConnectError> {
        let is_ours = |face: Arc<Face>| matches!(face.transport(), Transport::Host { .. });
        if self.faces.get(id).is_some_and(is_ours) {
            self.order(Order::Close(id))?;
        }
        Ok(self.faces.destroy(id).is_some())
    }

    fn order(&self, order: Order) -> Result<(), ConnectError> {
        let mut orders = self.orders.lock();
        if orders.len() >= ORDERS_MAX {
            return Err(ConnectError::Busy);
        }
        orders.push(order);
        drop(orders);
        self.waker.wake();
        Ok(())
    }

    /// Makes a connection for an application within this process: its face, which may tell and be told where packets go and
    /// come from, and its end of the connection. The face goes with it.
    ///
    /// # Errors
    /// When there are too many faces or descriptors; nothing has changed.
    pub fn application(&self) -> io::Result<(Arc<Face>, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let settings = FaceSettings {
            remote: FaceUri::Internal,
            local: FaceUri::Internal,
            scope: Scope::Local,
            persistency: Persistency::Persistent,
            link_type: LinkType::PointToPoint,
            mtu: HOST_MTU,
            flags: FLAG_LOCAL_FIELDS,
            transport: Transport::Host { port: self.port },
        };
        let face = self.faces.create(settings).map_err(io::Error::other)?;
        if let Err(error) = self.order(Order::Adopt(face.clone(), ours)) {
            self.faces.destroy(face.id());
            return Err(io::Error::other(error));
        }
        Ok((face, theirs))
    }

    /// Has the worker of the port begin a round, if it sleeps.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Addresses on which TCP connections are taken.
    pub fn tcp_addresses(&self) -> &[SocketAddr] {
        &self.tcp
    }

    /// Where multicast groups are joined.
    pub fn groups(&self) -> &[MulticastOn] {
        &self.groups
    }

    /// Addresses on which datagrams are taken.
    pub fn udp_addresses(&self) -> &[SocketAddr] {
        &self.udp
    }
}

/// The address before one is chosen.
fn any(remote: &SocketAddr) -> SocketAddr {
    let address: IpAddr =
        if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(address, 0)
}
