//! Commands to a router's management, and the datasets that it answers with.

use std::time::SystemTime;

use kaido_wire::ndn::{InterestRepr, Name, Signing, name_from_uri, tlv};

use super::consumer::{Consumer, NoData};
use super::fetch::{FetchError, FetchOptions, fetch_versioned};
use crate::mgmt::{ControlParameters, ControlResponse, Module, ParameterError};

/// Why a command was not obeyed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There was no answer.
    #[error(transparent)]
    NoAnswer(#[from] NoData),
    /// The answer cannot be read.
    #[error("the router's answer cannot be read")]
    Malformed(#[from] ParameterError),
    /// It was refused.
    #[error("the router refuses: {} ({})", .0.text, .0.code)]
    Refused(Box<ControlResponse>),
}

impl From<kaido_wire::Error> for CommandError {
    fn from(error: kaido_wire::Error) -> Self {
        Self::NoAnswer(error.into())
    }
}

/// The Interest of a command of `/localhost/nfd`, signed by its digest.
///
/// # Errors
/// When the parameters are too long for an Interest.
pub fn command_interest(
    module: Module,
    verb: &str,
    parameters: &ControlParameters,
) -> Result<Vec<u8>, kaido_wire::Error> {
    let mut name = name_from_uri(&format!("/localhost/nfd/{}/{verb}", module.name()))?;
    let parameters = parameters.encode();
    let at = name.len();
    name.resize(at + tlv::element_len(kaido_wire::ndn::types::GENERIC_COMPONENT, parameters.len()), 0);
    tlv::Writer::new(&mut name[at..]).element(kaido_wire::ndn::types::GENERIC_COMPONENT, &parameters)?;
    let nonce = super::consumer::nonce().to_be_bytes();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let signing = Signing { nonce: Some(&nonce), time_ms: Some(time_ms), sequence: None };
    super::consumer::write(&InterestRepr {
        name: Name::new(&name)?,
        parameters: Some(&[]),
        signing: Some(signing),
        ..InterestRepr::default()
    })
}

/// Commands the router of this host; the parameters as they are then.
///
/// # Errors
/// [`CommandError`].
pub fn command(
    consumer: &mut Consumer,
    module: Module,
    verb: &str,
    parameters: &ControlParameters,
) -> Result<ControlParameters, CommandError> {
    let interest = command_interest(module, verb, parameters)?;
    let answer = consumer.ask_written(&interest)?;
    let response = ControlResponse::parse(answer.data()?.content)?;
    if response.code == 200 {
        Ok(response.body.unwrap_or_default())
    } else {
        Err(CommandError::Refused(Box::new(response)))
    }
}

/// Fetches a dataset of `/localhost/nfd`, such as `faces/list`.
///
/// # Errors
/// [`FetchError`].
pub fn dataset(consumer: &mut Consumer, path: &str) -> Result<Vec<u8>, FetchError> {
    let failed = |why: kaido_wire::Error| FetchError::First { name: path.to_owned(), why: why.into() };
    let name = name_from_uri(&format!("/localhost/nfd/{path}")).map_err(failed)?;
    fetch_versioned(consumer, Name::new(&name).map_err(failed)?, &FetchOptions::default())
}
