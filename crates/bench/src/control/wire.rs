//! Requests that lie ready: made once by the control plane of `kaido-pfcp`, and given their session's numbers by
//! writing them over.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::SystemTime;

use kaido_pfcp::{Moment, Retransmission, SessionTemplate, Smf, SmfConfig};
use kaido_upf::rules::{
    BitRate, FTeid, LocalFTeid, MeasurementInformation, MeasurementMethod, OuterHeaderCreation,
    OuterHeaderRemoval, Qfi, ReportingTriggers, Teid, Urr, UrrId, VolumeThreshold,
};

use crate::BenchError;
use crate::frames::{GNB, N3, QFI, teid, ue};

/// Stand in the template where a session's numbers go; nothing else in it looks like them.
const UE_MARK: Ipv4Addr = Ipv4Addr::new(0xa5, 0x5a, 0xc3, 0x3c);
const LOCAL_MARK: u32 = 0x9669_5aa5;
const REMOTE_MARK: u32 = 0x3cc3_6996;
const CP_SEID_MARK: u64 = 1;

/// What is asked of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Two PDRs, two FARs, one QER, one URR.
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
pub(crate) struct Stencil {
    bytes: Vec<u8>,
    ue: Vec<usize>,
    local: Vec<usize>,
    remote: Vec<usize>,
    cp_seid: Option<usize>,
}

impl Stencil {
    fn new(bytes: &[u8]) -> Self {
        let places = |mark: &[u8]| {
            let windows = bytes.windows(mark.len()).enumerate();
            windows.filter(|(_, window)| *window == mark).map(|(at, _)| at).collect::<Vec<_>>()
        };
        let f_seid = [&[0, 57, 0, 13, 2][..], &CP_SEID_MARK.to_be_bytes()].concat();
        Self {
            ue: places(&UE_MARK.octets()),
            local: places(&LOCAL_MARK.to_be_bytes()),
            remote: places(&REMOTE_MARK.to_be_bytes()),
            cp_seid: places(&f_seid).first().map(|at| at + 5),
            bytes: bytes.to_vec(),
        }
    }

    /// The request for a session. `remote` is the TEID of the far end.
    pub(crate) fn fill(&mut self, session: u32, seid: u64, remote: u32) -> &[u8] {
        let mut put = |at: usize, octets: &[u8]| self.bytes[at..at + octets.len()].copy_from_slice(octets);
        put(4, &seid.to_be_bytes());
        put(12, &(session + 1).to_be_bytes()[1..]);
        self.ue.iter().for_each(|&at| put(at, &ue(session).octets()));
        self.local.iter().for_each(|&at| put(at, &teid(session).to_be_bytes()));
        self.remote.iter().for_each(|&at| put(at, &remote.to_be_bytes()));
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
    pub(crate) establish: Stencil,
    pub(crate) modify: Stencil,
    pub(crate) delete: Stencil,
}

impl Requests {
    /// Requests of a control plane at an address.
    pub(crate) fn new(from: SocketAddr) -> Result<Self, BenchError> {
        let own = if let SocketAddr::V4(own) = from { *own.ip() } else { Ipv4Addr::LOCALHOST };
        let mut smf = Smf::new(SmfConfig {
            node_id: from.ip().into(),
            ipv4: Some(own),
            ipv6: None,
            recovery: SystemTime::now(),
            retransmission: Retransmission::default(),
            outstanding: 16,
            dialect: kaido_pfcp::Dialect::Plain,
        });
        let (now, mut sent) = (Moment::now(), Vec::new());
        let failed = |error: kaido_pfcp::SmfError| BenchError::Control(error.to_string());
        smf.associate(now, from, &mut sent).map_err(failed)?;
        let seid = smf.establish(now, from, session().establishment(), &mut sent).map_err(failed)?;
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
        let [associate, establish, modify, delete] = &sent[..] else {
            return Err(BenchError::Control("the control plane made other requests".to_owned()));
        };
        Ok(Self {
            associate: associate.bytes.to_vec(),
            establish: Stencil::new(&establish.bytes),
            modify: Stencil::new(&modify.bytes),
            delete: Stencil::new(&delete.bytes),
        })
    }

    pub(crate) fn stencil(&mut self, request: Request) -> &mut Stencil {
        match request {
            Request::Establish => &mut self.establish,
            Request::Modify => &mut self.modify,
            Request::Delete => &mut self.delete,
        }
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

/// Two PDRs, two FARs, one QER that marks the QoS flow and limits it, one URR of volume with a threshold.
fn session() -> SessionTemplate {
    SessionTemplate {
        ue_ipv4: Some(UE_MARK),
        ue_ipv6: None,
        n3: LocalFTeid::Given(FTeid { teid: Teid(LOCAL_MARK), ipv4: Some(N3), ipv6: None }),
        outer_header_removal: OuterHeaderRemoval::GtpUUdpIp,
        gnb: Some(tunnel(REMOTE_MARK)),
        access: None,
        core: None,
        qfi: Qfi(QFI),
        session_rate: None,
        flow_rate: Some(BitRate { uplink_kbps: 10_000_000, downlink_kbps: 10_000_000 }),
        urrs: vec![Urr {
            id: UrrId(1),
            method: MeasurementMethod { volume: true, ..MeasurementMethod::default() },
            triggers: ReportingTriggers::VOLTH,
            volume_threshold: Some(VolumeThreshold { total: Some(1 << 40), uplink: None, downlink: None }),
            information: MeasurementInformation { count_packets: true, ..MeasurementInformation::default() },
            ..Urr::default()
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hole_is_found() {
        let mut requests = Requests::new(SocketAddr::from(([127, 0, 0, 1], 9))).unwrap();
        assert_eq!(requests.associate[1], 5);
        let Stencil { ue, local, remote, cp_seid, .. } = &requests.establish;
        assert_eq!((ue.len(), local.len(), remote.len(), cp_seid.is_some()), (2, 1, 1, true));
        assert_eq!(requests.modify.remote.len(), 1);
        for request in [Request::Establish, Request::Modify, Request::Delete] {
            let bytes = requests.stencil(request).fill(0x01_0203, 0xa1a2_a3a4_a5a6_a7a8, 9).to_vec();
            assert_eq!((bytes[1], &bytes[12..15]), (request.kind(), &[1, 2, 4][..]));
            assert_eq!(bytes[4..12], 0xa1a2_a3a4_a5a6_a7a8u64.to_be_bytes());
            assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])) + 4, bytes.len());
        }
    }
}
