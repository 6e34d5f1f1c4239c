//! A session request on its way: written by a control plane, and read by a user plane, without sockets between them.

use std::net::Ipv4Addr;

use kaido_n4::{Establishment, FSeid, Rejection, Seid};

use crate::decode::{self, Features};
use crate::encode;
use crate::frame::SESSION_HEADER;
use crate::node_id::NodeId;
use crate::walk::Group;

/// The address of a control plane that has told none: a CP F-SEID has one (TS 29.244 8.2.37).
const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

/// A Session Establishment Request (TS 29.244 7.5.2) as a user plane with these features reads it: encoded and decoded. Sessions made of
/// it are those that a control plane would get by N4, which benches and tests rely on.
///
/// # Errors
/// [`Rejection`], as an endpoint would answer.
pub fn carried(request: &Establishment, features: Features) -> Result<Establishment, Rejection> {
    let FSeid { seid, ipv4, ipv6 } = request.cp_fseid;
    let ipv4 = if ipv6.is_none() { ipv4.or(Some(NOBODY)) } else { ipv4 };
    let sent = Establishment { cp_fseid: FSeid { seid, ipv4, ipv6 }, ..request.clone() };
    let message = encode::establishment(&NodeId::from(std::net::IpAddr::V4(NOBODY)), Seid(0), &sent, 0);
    let body = message.get(SESSION_HEADER..).unwrap_or_default();
    decode::establishment(&Group::of_message(body)?, features)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kaido_n4::{Cause, FTeid, LocalFTeid, Seid, Teid};

    use super::*;
    use crate::SessionTemplate;

    #[test]
    fn a_session_arrives_as_it_was_sent_and_a_wrong_one_is_refused() {
        let ours = FTeid { teid: Teid(5), ipv4: Some(Ipv4Addr::new(192, 168, 3, 1)), ipv6: None };
        let template = SessionTemplate {
            ue_ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)),
            n3: LocalFTeid::Given(ours),
            ..SessionTemplate::default()
        };
        let mut request = template.establishment();
        request.cp_fseid = FSeid { seid: Seid(7), ipv4: Some(NOBODY), ipv6: None };
        request.inactivity_timer = Some(Duration::from_secs(9));
        assert_eq!(carried(&request, Features::default()).unwrap(), request);
        request.fars.clear();
        let rejection = carried(&request, Features::default()).unwrap_err();
        assert_eq!(rejection.cause, Cause::MandatoryIeMissing);
    }
}
