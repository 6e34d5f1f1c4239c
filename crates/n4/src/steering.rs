//! What few FARs ask for beside a destination and a tunnel (TS 29.244 tables 7.5.2.3-2 and 7.5.2.3-3).

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{OuterHeaderCreation, Proxying, TagCreation};

/// Outer Header Creation (TS 29.244 8.2.56) of the kinds without GTP-U: an IP header, with UDP behind it where there is
/// a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlainHeaderCreation {
    /// Destination of the IP header.
    pub peer: IpAddr,
    /// UDP port of the peer.
    pub port: Option<u16>,
}

/// Duplicating Parameters (TS 29.244 table 7.5.2.3-3): where a copy of each packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicate {
    /// The tunnel of the copies.
    pub tunnel: OuterHeaderCreation,
    /// Transport Level Marking of the copies.
    pub transport_level_marking: Option<u8>,
}

/// The rarer part of a FAR's parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// Header to put before the packet, without GTP-U.
    pub header: Option<PlainHeaderCreation>,
    /// Redirect Information (8.2.20): the URL to which plain HTTP is sent.
    pub redirect: Option<Arc<str>>,
    /// Forwarding Policy (8.2.23): the name of what the configuration says.
    pub policy: Option<Arc<str>>,
    /// Duplicating Parameters: copies are made while Apply Action says so.
    pub duplicates: Vec<Duplicate>,
    /// VLAN tags to put on a frame (Outer Header Creation).
    pub tags: Option<TagCreation>,
    /// Proxying (8.2.96).
    pub proxying: Option<Proxying>,
}

impl Steering {
    /// Takes over what an update gives.
    pub fn update(&mut self, change: &Self) {
        let Self { header, redirect, policy, duplicates, tags, proxying } = change;
        self.header = header.or(self.header);
        self.redirect = redirect.clone().or_else(|| self.redirect.take());
        self.policy = policy.clone().or_else(|| self.policy.take());
        self.tags = tags.or(self.tags);
        self.proxying = proxying.or(self.proxying);
        if !duplicates.is_empty() {
            self.duplicates.clone_from(duplicates);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_takes_the_place_of_what_it_names() {
        let tunnel = OuterHeaderCreation { teid: crate::Teid(1), ipv4: None, ipv6: None };
        let duplicate = Duplicate { tunnel, transport_level_marking: None };
        let mut steering = Steering {
            redirect: Some("http://here".into()),
            policy: Some("gold".into()),
            duplicates: vec![duplicate],
            ..Steering::default()
        };
        let before = steering.clone();
        steering.update(&Steering::default());
        assert_eq!(steering, before, "nothing was named");
        let other = Duplicate { transport_level_marking: Some(46), ..duplicate };
        steering.update(&Steering {
            policy: Some("silver".into()),
            duplicates: vec![other],
            ..Steering::default()
        });
        assert_eq!(steering, Steering { policy: Some("silver".into()), duplicates: vec![other], ..before });
    }
}
