//! A connection to where a URI leads, with TLS where it says so.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::tls::ClientTls;
use crate::uri::{HttpUri, UriHost};

/// What a request is written to.
trait Duplex: AsyncRead + AsyncWrite {}

impl<T: AsyncRead + AsyncWrite> Duplex for T {}

/// A connection; over TLS with the protocol that ALPN has chosen.
pub struct Stream {
    duplex: Box<dyn Duplex + Send + Unpin>,
    /// What the server has chosen of what was offered, over TLS.
    protocol: Option<Vec<u8>>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum ConnectFault {
    /// No address of the host may be connected to.
    #[error("no address of it is allowed")]
    NotAllowed,
    /// `https` without anybody to trust, or to a host that no certificate can name.
    #[error("its certificate cannot be checked")]
    NoTls,
    /// The network, the host, or its TLS.
    #[error("it is not reached: {0}")]
    Unreachable(#[from] io::Error),
}

/// Connects to the first address of a host that is allowed and reached.
///
/// # Errors
/// [`ConnectFault`]: that of the address tried last.
pub async fn connect(
    to: &HttpUri,
    tls: Option<&ClientTls>,
    allows: impl Fn(IpAddr) -> bool,
) -> Result<Stream, ConnectFault> {
    let stream = connect_tcp(to, allows).await?;
    stream.set_nodelay(true)?;
    if !to.is_tls {
        return Ok(Stream { duplex: Box::new(stream), protocol: None });
    }
    let tls = tls.ok_or(ConnectFault::NoTls)?;
    let name = match &to.host {
        UriHost::Address(address) => ServerName::IpAddress((*address).into()),
        UriHost::Name(name) => ServerName::try_from(name.clone()).map_err(|_| ConnectFault::NoTls)?,
    };
    let stream = TlsConnector::from(tls.0.clone()).connect(name, stream).await?;
    let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    Ok(Stream { duplex: Box::new(stream), protocol })
}

async fn connect_tcp(to: &HttpUri, allows: impl Fn(IpAddr) -> bool) -> Result<TcpStream, ConnectFault> {
    let addresses: Vec<IpAddr> = match &to.host {
        UriHost::Address(address) => vec![*address],
        UriHost::Name(name) => lookup_host((name.as_str(), to.port)).await?.map(|found| found.ip()).collect(),
    };
    let mut fault = ConnectFault::NotAllowed;
    for address in addresses.into_iter().filter(|address| allows(*address)) {
        match TcpStream::connect(SocketAddr::new(address, to.port)).await {
            Ok(stream) => return Ok(stream),
            Err(error) => fault = error.into(),
        }
    }
    Err(fault)
}

impl Stream {
    /// What the server has chosen of what ALPN offered; `None` without TLS, or where it has chosen nothing.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.protocol.as_deref()
    }

    /// What to read from and write to.
    pub fn into_duplex(self) -> impl AsyncRead + AsyncWrite + Send + Unpin + 'static {
        self.duplex
    }
}
