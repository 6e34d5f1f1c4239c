//! Asking for one Data.

use std::io;
use std::time::{Duration, Instant};

use kaido_wire::ndn::{
    DIGEST_LEN, Data, Interest, InterestRepr, Name, SignatureType, implicit_digest, sha256,
};

use super::connection::{Connection, Router};
use crate::NackReason;

/// Why there is no Data.
#[derive(Debug, thiserror::Error)]
pub enum NoData {
    /// Nobody has answered.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The router has sent the Interest back.
    #[error("refused by the router: {}", reason(*.0))]
    Nack(NackReason),
    /// Data came whose signature is wrong.
    #[error("the Data that came is not whole: its digest is wrong")]
    Corrupt,
    /// The Interest cannot be written: its name is too long.
    #[error("the Interest cannot be written: {0}")]
    Unwritable(#[from] kaido_wire::Error),
    /// The connection is gone.
    #[error("the connection to the router is gone: {0}")]
    Gone(#[from] io::Error),
}

/// A Nack's reason in words.
fn reason(reason: NackReason) -> String {
    match reason {
        NackReason::None => "it does not say why".into(),
        NackReason::Congestion => "congestion".into(),
        NackReason::Duplicate => "it has seen this Interest before".into(),
        NackReason::NoRoute => "no route leads to the name".into(),
        NackReason::Other(code) => format!("reason {code}"),
    }
}

/// A Data that came.
#[derive(Clone, Debug)]
pub struct Answer {
    octets: Vec<u8>,
    /// How long it took.
    pub took: Duration,
}

impl Answer {
    /// The whole packet.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// The Data, which was read when it came.
    ///
    /// # Errors
    /// Never for an answer of a [`Consumer`].
    pub fn data(&self) -> Result<Data<'_>, kaido_wire::Error> {
        Data::parse(&self.octets, self.octets.len())
    }
}

/// One that asks.
#[derive(Debug)]
pub struct Consumer {
    pub(super) connection: Connection,
}

impl Consumer {
    /// Connects to a router.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(router: &Router) -> io::Result<Self> {
        Ok(Self { connection: Connection::open(router)? })
    }

    /// One that asks over a connection that is open already.
    pub fn over(connection: Connection) -> Self {
        Self { connection }
    }

    /// Its connection.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Asks for Data and waits for it as long as the Interest says, or its default. Gives the Interest a nonce.
    ///
    /// # Errors
    /// [`NoData`].
    pub fn ask(&mut self, interest: &InterestRepr<'_>) -> Result<Answer, NoData> {
        self.ask_written(&write(interest)?)
    }

    /// As [`Consumer::ask`], by an Interest that is written already.
    ///
    /// # Errors
    /// [`NoData`].
    pub fn ask_written(&mut self, interest: &[u8]) -> Result<Answer, NoData> {
        let sought = Interest::parse(interest, interest.len())?;
        let within = Duration::from_millis(sought.lifetime_or_default_ms());
        let began = Instant::now();
        self.connection.send(interest)?;
        while let Some(received) = self.connection.receive(began + within)? {
            let Some((header, packet)) = received.packet() else { continue };
            if let Some(code) = header.nack {
                let refused = Interest::parse(packet, packet.len());
                if refused.is_ok_and(|refused| (refused.name, refused.nonce) == (sought.name, sought.nonce)) {
                    return Err(NoData::Nack(NackReason::from_code(code)));
                }
                continue;
            }
            let Ok(data) = Data::parse(packet, packet.len()) else { continue };
            if answers(&sought, &data, packet) {
                return match is_whole(&data) {
                    true => Ok(Answer { octets: packet.to_vec(), took: began.elapsed() }),
                    false => Err(NoData::Corrupt),
                };
            }
        }
        Err(NoData::Timeout(within))
    }
}

/// The octets of an Interest, with a nonce.
pub(super) fn write(interest: &InterestRepr<'_>) -> Result<Vec<u8>, kaido_wire::Error> {
    let interest = InterestRepr { nonce: interest.nonce.or_else(|| Some(nonce())), ..*interest };
    let mut octets = vec![0; interest.len()];
    interest.emit(&mut octets)?;
    Ok(octets)
}

/// A number that no one has used.
pub(super) fn nonce() -> u32 {
    // Without the kernel's randomness another number is as good: it must differ, not be secret.
    getrandom::u32().unwrap_or_else(|_| std::process::id())
}

/// Whether Data is what an Interest asks for.
fn answers(interest: &Interest<'_>, data: &Data<'_>, packet: &[u8]) -> bool {
    if let Some(digest) = interest.name.implicit_digest() {
        return interest.name.parent() == data.name && digest.value() == implicit_digest([packet]);
    }
    if interest.can_be_prefix { interest.name.is_prefix_of(&data.name) } else { interest.name == data.name }
}

/// Whether Data that is signed by its digest alone is whole; of other signatures it is not this one's to judge.
pub(super) fn is_whole(data: &Data<'_>) -> bool {
    data.signature.is_none_or(|signature| {
        let is_digest = signature.info.kind == SignatureType::DIGEST_SHA256;
        !is_digest || (signature.value.len() == DIGEST_LEN && signature.value == sha256([signature.signed]))
    })
}

/// The components of a name and one more behind them.
pub(crate) fn with_number(name: Name<'_>, kind: u32, number: u64) -> Vec<u8> {
    use kaido_wire::ndn::tlv::{Writer, element_len, integer_len};
    let at = name.value().len();
    let mut octets = name.value().to_vec();
    octets.resize(at + element_len(kind, integer_len(number)), 0);
    // The room is as large as what goes in.
    let written = Writer::new(&mut octets[at..]).integer(kind, number);
    debug_assert!(written.is_ok());
    octets
}
