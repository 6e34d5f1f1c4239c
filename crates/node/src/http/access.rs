//! Who may do what, by where it is asked and by what they show.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::uri::Authority;
use tokio::time::sleep;

use super::tokens::{Fingerprint, Known, Tokens};
use crate::api::{Problem, Role};

/// How long who shows a token that nobody has waits for the answer.
const GUESS_DELAY: Duration = Duration::from_millis(500);

/// What may be done where.
#[derive(Clone)]
pub(super) struct Access {
    guard: Guard,
    /// Browsers of this host reach it, in which a page of any site runs: it may have a name of its own lead here (DNS rebinding).
    is_loopback: bool,
}

#[derive(Clone)]
enum Guard {
    /// Only the node's user and root can open it, and the members of a group, who may read.
    ControlSocket,
    /// Anybody connects there who reaches it.
    Metrics,
    /// Who shows a token or a certificate is known.
    Api(Arc<Tokens>),
}

/// What a connection tells of its other end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its address, or its user and process.
    pub(super) place: String,
    /// That of its certificate, which was verified.
    pub(super) certificate: Option<Fingerprint>,
    /// It is the node's own user, or root.
    pub(super) is_owner: bool,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// For the log: a name where it is known, and a place.
    pub(super) name: String,
    /// None where nothing was shown.
    pub(super) role: Option<Role>,
}

impl Access {
    /// At the control socket.
    pub(super) const fn of_control_socket() -> Self {
        Self { guard: Guard::ControlSocket, is_loopback: false }
    }

    /// At the metrics endpoint.
    pub(super) const fn of_metrics(address: IpAddr) -> Self {
        Self { guard: Guard::Metrics, is_loopback: address.is_loopback() }
    }

    /// At the API's own socket.
    pub(super) const fn of_api(address: IpAddr, tokens: Arc<Tokens>) -> Self {
        Self { guard: Guard::Api(tokens), is_loopback: address.is_loopback() }
    }

    /// Who asks.
    ///
    /// # Errors
    /// When a token is shown that nobody has.
    pub(super) async fn caller(&self, headers: &HeaderMap, peer: &Peer) -> Result<Caller, Problem> {
        let at = |role| Caller { name: peer.place.clone(), role };
        let tokens = match &self.guard {
            Guard::ControlSocket if peer.is_owner => return Ok(at(Some(Role::Operate))),
            Guard::ControlSocket => return Ok(at(Some(Role::Read))),
            Guard::Metrics => return Ok(at(Some(Role::Watch))),
            Guard::Api(tokens) => tokens,
        };
        let known = |known: Known| Caller {
            name: format!("{} at {}", known.name, peer.place),
            role: Some(known.role),
        };
        let shown = shown(tokens, headers, peer).await?;
        Ok(shown.map_or_else(|| at(None), known))
    }

    /// Who asks at a socket where tokens or certificates say so; `None` where neither is shown.
    ///
    /// # Errors
    /// When a token is shown that nobody has.
    pub(super) async fn known(&self, headers: &HeaderMap, peer: &Peer) -> Result<Option<Known>, Problem> {
        match &self.guard {
            Guard::Api(tokens) => shown(tokens, headers, peer).await,
            Guard::ControlSocket | Guard::Metrics => Ok(None),
        }
    }

    /// Whether the host that is asked for can be this one.
    ///
    /// # Errors
    /// When a page has its name lead here.
    pub(super) fn check_host(&self, headers: &HeaderMap) -> Result<(), Problem> {
        self.check_named(headers.get(HOST).and_then(|host| host.to_str().ok()))
    }

    /// The same of a host by its name.
    ///
    /// # Errors
    /// As [`Self::check_host`].
    pub(super) fn check_named(&self, host: Option<&str>) -> Result<(), Problem> {
        match host {
            Some(host) if self.is_loopback && !is_local(host) => Err(Problem::misdirected(format!(
                "`{host}` is no name of this endpoint, which listens on a loopback address only; write 127.0.0.1"
            ))),
            _ => Ok(()),
        }
    }
}

impl Caller {
    /// Whether that may be done.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn may(&self, wanted: Role) -> Result<(), Problem> {
        match self.role {
            Some(role) if wanted <= role => Ok(()),
            Some(role) => Err(Problem::forbidden(format!(
                "this needs the role {}, and who asks has {}: ask with another token, or at the control socket as the node's user or root",
                wanted.name(),
                role.name()
            ))),
            None => Err(Problem::unauthorized(format!(
                "this needs the role {}: show a token, with `Authorization: Bearer TOKEN`",
                wanted.name()
            ))),
        }
    }
}

/// Whose token or certificate is shown.
async fn shown(tokens: &Tokens, headers: &HeaderMap, peer: &Peer) -> Result<Option<Known>, Problem> {
    let Some(shown) = headers.get(AUTHORIZATION) else {
        return Ok(peer.certificate.and_then(|certificate| tokens.of_certificate(&certificate)));
    };
    let token = shown.to_str().ok().and_then(|shown| shown.split_once(' '));
    let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match token.and_then(|(_, token)| tokens.of_token(token.trim())) {
        Some(found) => Ok(Some(found)),
        None => {
            sleep(GUESS_DELAY).await;
            Err(Problem::unauthorized("nobody has this token; `kaido token` makes one".to_owned()))
        }
    }
}

/// Whether it is an address, or the name that always is this host.
fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_to_a_loopback_is_refused() {
        let loopback = Access::of_metrics("127.0.0.1".parse().unwrap());
        let other = Access::of_metrics("192.0.2.1".parse().unwrap());
        let headers = |host: &'static str| HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        for host in ["127.0.0.1:9105", "localhost", "LOCALHOST:1", "[::1]:9105", "[::1]", "10.0.0.1"] {
            assert_eq!(loopback.check_host(&headers(host)), Ok(()), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:9105", "localhost.evil", "", "a b"] {
            assert_eq!(loopback.check_host(&headers(host)).unwrap_err().status, 421, "{host}");
            assert_eq!(other.check_host(&headers(host)), Ok(()), "{host}");
        }
        assert_eq!(loopback.check_host(&HeaderMap::new()), Ok(()));
    }

    #[test]
    fn a_role_may_what_those_before_it_may() {
        let caller = |role| Caller { name: String::new(), role };
        assert_eq!(caller(None).may(Role::Watch).unwrap_err().status, 401);
        assert_eq!(caller(Some(Role::Watch)).may(Role::Watch), Ok(()));
        for role in [Role::Read, Role::Operate] {
            assert_eq!(caller(Some(Role::Watch)).may(role).unwrap_err().status, 403);
            assert_eq!(caller(Some(Role::Operate)).may(role), Ok(()));
        }
    }
}
