//! Requests that lie ready: made once by the control plane of `kaido-pfcp`, and given their session's numbers by
//! writing them over.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::SystemTime;

use kaido_n4::{OuterHeaderCreation, Teid};
use kaido_pfcp::{Instants, Retransmission, SessionTemplate, Smf, SmfConfig};

use crate::BenchError;
use crate::family::Family;
use crate::network::{GNB, teid, ue};
use crate::shape::Shape;

/// The sessions that requests are made of, one for each kind: their numbers look like nothing else in a request. It is a multiple of how
/// often the kinds of every shape come again.
const MARKED: u32 = 0x005a_c260;
/// Of so many sessions each may ask for something else; with this distance they ask for the same.
const KINDS: u32 = 400;
const REMOTE_MARK: u32 = 0x3cc3_6996;
/// Requests under way while they are made.
const OUTSTANDING: usize = KINDS as usize + 8;

/// What is asked of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A session of a shape.
    Establish,
    /// The downlink goes into another tunnel.
    Modify,
    /// The end.
    Delete,
}

impl Request {
    /// Type of the message (TS 29.244 table 7.3-1).
    pub(crate) fn kind(self) -> u8 {
        match self {
            Self::Establish => 50,
            Self::Modify => 52,
            Self::Delete => 54,
        }
    }
}

/// A request with holes.
#[derive(Clone, Debug)]
pub(crate) struct RequestTemplate {
    bytes: Vec<u8>,
    ue: Vec<usize>,
    /// The TEID at both ends of the tunnel.
    teid: Vec<usize>,
    cp_seid: Option<usize>,
}

impl RequestTemplate {
    /// Of a request that has the numbers of a session, as far as it has any: its UE's address, its TEID, and the control plane's SEID.
    fn new(bytes: &[u8], ue: Ipv4Addr, teid: u32, cp_seid: u64) -> Self {
        let places = |mark: &[u8]| {
            let windows = bytes.windows(mark.len()).enumerate();
            windows.filter(|(_, window)| *window == mark).map(|(at, _)| at).collect::<Vec<_>>()
        };
        let f_seid = [&[0, 57, 0, 13, 2][..], &cp_seid.to_be_bytes()].concat();
        Self {
            ue: places(&ue.octets()),
            teid: places(&teid.to_be_bytes()),
            cp_seid: places(&f_seid).first().map(|at| at + 5),
            bytes: bytes.to_vec(),
        }
    }

    /// The request for a session whose UE's address has a number. `teid` is that of its tunnel.
    pub(crate) fn fill(&mut self, [session, ue_number]: [u32; 2], seid: u64, teid: u32) -> &[u8] {
        let mut put = |at: usize, octets: &[u8]| self.bytes[at..at + octets.len()].copy_from_slice(octets);
        put(4, &seid.to_be_bytes());
        put(12, &(session + 1).to_be_bytes()[1..]);
        self.ue.iter().for_each(|&at| put(at, &ue(ue_number).octets()));
        self.teid.iter().for_each(|&at| put(at, &teid.to_be_bytes()));
        if let Some(at) = self.cp_seid {
            put(at, &(u64::from(session) + 1).to_be_bytes());
        }
        &self.bytes
    }
}

/// All requests, and how to set up the association.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) associate: Vec<u8>,
    /// The Recovery Time Stamp in it (8.2.65), an element whole.
    pub(crate) recovery: Vec<u8>,
    shape: Shape,
    /// By session, as far as they ask for different things.
    establish: Vec<RequestTemplate>,
    modify: RequestTemplate,
    delete: RequestTemplate,
}

impl Requests {
    /// Requests of a control plane at an address, for sessions of a shape.
    pub(crate) fn new(from: SocketAddr, shape: Shape) -> Result<Self, BenchError> {
        let own = if let SocketAddr::V4(own) = from { *own.ip() } else { Ipv4Addr::LOCALHOST };
        let mut smf = Smf::new(SmfConfig {
            node_id: from.ip().into(),
            ipv4: Some(own),
            ipv6: None,
            recovery: SystemTime::now(),
            retransmission: Retransmission::default(),
            outstanding: OUTSTANDING,
            dialect: kaido_pfcp::Dialect::Plain,
        });
        let (now, mut sent) = (Instants::now(), Vec::new());
        let failed = |error: kaido_pfcp::SmfError| BenchError::Control(error.to_string());
        smf.associate(now, from, &mut sent).map_err(failed)?;
        let kinds = if matches!(shape, Shape::Mixed | Shape::Tenant) { KINDS } else { 1 };
        let mut seids = Vec::new();
        for session in (MARKED..).take(kinds as usize) {
            let request = shape.establishment(Family::V4, session);
            seids.push(smf.establish(now, from, request, &mut sent).map_err(failed)?);
        }
        let seid = seids[0];
        // The answer that makes it a session: F-SEID 1 at the same address.
        let accepted = [
            &[0x21, 51, 0, 38][..],
            &seid.0.to_be_bytes(),
            &sent[1].bytes[12..15],
            &[0, 0, 19, 0, 1, 1, 0, 57, 0, 13, 2, 0, 0, 0, 0, 0, 0, 0, 1],
            &own.octets(),
        ]
        .concat();
        let accepted = with_length(accepted);
        smf.handle(now, from, &accepted, &mut sent);
        let handover = SessionTemplate::forward(tunnel(REMOTE_MARK), false);
        smf.modify(now, seid, &handover, &mut sent).map_err(failed)?;
        smf.delete(now, seid, &mut sent).map_err(failed)?;
        let [associate, establish @ .., modify, delete] = &sent[..] else {
            return Err(BenchError::Control("the control plane made other requests".to_owned()));
        };
        let establish = (MARKED..).zip(establish).zip(seids).map(|((session, message), seid)| {
            RequestTemplate::new(&message.bytes, ue(shape.ue_number(session)), teid(session), seid.0)
        });
        let plain = |message: &kaido_pfcp::Transmit| {
            RequestTemplate::new(&message.bytes, Ipv4Addr::BROADCAST, REMOTE_MARK, u64::MAX)
        };
        let recovery = associate.bytes.windows(8).find(|octets| octets.starts_with(&[0, 96, 0, 4]));
        let recovery = recovery.ok_or_else(|| BenchError::Control("no recovery time stamp".to_owned()))?;
        Ok(Self {
            associate: associate.bytes.to_vec(),
            recovery: recovery.to_vec(),
            shape,
            establish: establish.collect(),
            modify: plain(modify),
            delete: plain(delete),
        })
    }

    /// The request for a session that has a SEID at the user plane, and a tunnel.
    pub(crate) fn of(&mut self, request: Request, session: u32, seid: u64, teid: u32) -> &[u8] {
        let kind = session as usize % self.establish.len();
        let template = match request {
            Request::Establish => &mut self.establish[kind],
            Request::Modify => &mut self.modify,
            Request::Delete => &mut self.delete,
        };
        template.fill([session, self.shape.ue_number(session)], seid, teid)
    }
}

/// Fills in the header's length.
fn with_length(mut message: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(message.len() - 4).unwrap_or(u16::MAX);
    message[2..4].copy_from_slice(&length.to_be_bytes());
    message
}

fn tunnel(teid: u32) -> OuterHeaderCreation {
    OuterHeaderCreation { teid: Teid(teid), ipv4: Some(GNB), ipv6: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{PERIOD_OF_MIXED, TENANTS};

    #[test]
    fn every_hole_is_found() {
        let local = SocketAddr::from(([127, 0, 0, 1], 9));
        for shape in Shape::ALL {
            let periods = [PERIOD_OF_MIXED, TENANTS.into()];
            assert!(
                MARKED.is_multiple_of(KINDS) && periods.iter().all(|period| KINDS.is_multiple_of(*period))
            );
            let mut requests = Requests::new(local, shape).unwrap();
            assert_eq!(requests.associate[1], 5);
            for (session, template) in (MARKED..).zip(&requests.establish) {
                // Each PDR has a tunnel or an address, and some FARs have the far end's.
                let rules = shape.establishment(Family::V4, session);
                let local = rules.pdrs.iter().filter(|pdr| pdr.pdi.local_fteid.is_some()).count();
                let created = |far: &&kaido_n4::Far| {
                    far.forwarding.as_ref().is_some_and(|to| to.outer_header_creation.is_some())
                };
                let tunnels = local + rules.fars.iter().filter(created).count();
                let holes = (template.ue.len(), template.teid.len(), template.cp_seid.is_some());
                assert_eq!(holes, (rules.pdrs.len() - local, tunnels, true), "{shape:?}");
            }
            assert_eq!(requests.modify.teid.len(), 1);
            for request in [Request::Establish, Request::Modify, Request::Delete] {
                let bytes = requests.of(request, 0x01_0203, 0xa1a2_a3a4_a5a6_a7a8, 9).to_vec();
                assert_eq!((bytes[1], &bytes[12..15]), (request.kind(), &[1, 2, 4][..]));
                assert_eq!(bytes[4..12], 0xa1a2_a3a4_a5a6_a7a8u64.to_be_bytes());
                assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])) + 4, bytes.len());
            }
        }
    }
}
