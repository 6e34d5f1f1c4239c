//! Who may do what, by where it is asked.

use std::net::{IpAddr, TcpListener};

use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::http::uri::Authority;

use crate::api::{Problem, Role, Route};

/// What may be done where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// What who connects may do.
    role: Role,
    /// Browsers of this host reach it, in which a page of any site runs: it may have a name of its own lead here (DNS rebinding).
    is_loopback: bool,
}

impl Access {
    /// At the control socket, which only the node's user can open.
    pub(super) const CONTROL_SOCKET: Self = Self { role: Role::Operate, is_loopback: false };

    /// At the metrics endpoint, where anybody connects who reaches it.
    pub(super) fn of_metrics(listener: &TcpListener) -> Self {
        let is_loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        Self { role: Role::Watch, is_loopback }
    }

    /// Whether a route may be asked.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(self, route: &Route) -> Result<(), Problem> {
        self.check_role(route.role)
    }

    /// Whether that may be done.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_role(self, wanted: Role) -> Result<(), Problem> {
        if wanted <= self.role {
            return Ok(());
        }
        let (own, wanted) = (self.role.name(), wanted.name());
        Err(Problem::forbidden(format!(
            "this needs the role {wanted}, and who asks here has {own}: ask at the node's control socket"
        )))
    }

    /// Whether the host that is asked for can be this one.
    ///
    /// # Errors
    /// When a page has its name lead here.
    pub(super) fn check_host(self, headers: &HeaderMap) -> Result<(), Problem> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        match host {
            Some(host) if self.is_loopback && !is_local(host) => Err(Problem::misdirected(format!(
                "`{host}` is no name of this endpoint, which listens on a loopback address only; write 127.0.0.1"
            ))),
            _ => Ok(()),
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
        let loopback = Access { role: Role::Watch, is_loopback: true };
        let other = Access { is_loopback: false, ..loopback };
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
        let watch = Access { role: Role::Watch, is_loopback: false };
        assert_eq!(watch.check_role(Role::Watch), Ok(()));
        for role in [Role::Read, Role::Operate] {
            assert_eq!(watch.check_role(role).unwrap_err().status, 403);
            assert_eq!(Access::CONTROL_SOCKET.check_role(role), Ok(()));
        }
    }
}
