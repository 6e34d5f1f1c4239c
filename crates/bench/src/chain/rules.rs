//! Sessions of SMFs in use as the map chain has them: as many PDRs, filters, QERs and URRs as they are asked for with.

use kaido_n4::{AddressMatch, Establishment, Interface, Pdr, Qer, QerId, UrrId};

use super::abi::far_id;
use crate::family::Family;
use crate::shape::Shape;

/// `CHAIN_RULES_MAX`, `CHAIN_QERS_MAX` and `CHAIN_URRS_MAX`, which are also the most QERs and URRs of a session.
const RULES_MAX: usize = 4;
const QERS_MAX: usize = 2;
const URRS_MAX: usize = 4;
/// Places of a session in the arrays of its QERs, and of its URRs.
pub(super) const PLACES: u32 = 4;
const RULE_LEN: usize = 44;
pub(super) const RULES_LEN: usize = 4 + RULES_MAX * RULE_LEN;
pub(super) const QER_LEN: usize = 32;
/// A burst, in nanoseconds, as a node has it.
const WINDOW_NS: u64 = 300_000_000;

/// Kernel memory a session takes beside that of a plain one, in bytes.
pub(super) const BYTES_PER_SESSION: u64 = 2 * 184 + PLACES as u64 * (QER_LEN as u64 + 32);

/// The rules of a session.
#[derive(Debug)]
pub(super) struct SessionRules {
    session: u32,
    request: Establishment,
}

impl SessionRules {
    pub(super) fn new(shape: Shape, session: u32) -> Self {
        Self { session, request: shape.establishment(Family::V4, session) }
    }

    /// `struct chain_rules` of the uplink, and of the downlink.
    pub(super) fn rules(&self) -> [u8; 2 * RULES_LEN] {
        let mut out = [0; 2 * RULES_LEN];
        for (half, interface) in out.chunks_mut(RULES_LEN).zip([Interface::Access, Interface::Core]) {
            let pdrs = self.request.pdrs.iter();
            let mut pdrs: Vec<&Pdr> = pdrs.filter(|pdr| pdr.pdi.source_interface == interface).collect();
            pdrs.sort_by_key(|pdr| pdr.precedence);
            let (count, rules) = half.split_at_mut(4);
            count[0] = u8::try_from(pdrs.len()).unwrap_or(u8::MAX);
            for (pdr, rule) in pdrs.iter().zip(rules.chunks_mut(RULE_LEN)) {
                rule.copy_from_slice(&self.rule(pdr));
            }
        }
        out
    }

    /// `struct chain_rule`.
    fn rule(&self, pdr: &Pdr) -> [u8; RULE_LEN] {
        let filter = pdr.pdi.sdf_filters.first();
        let network = match filter.map(|filter| filter.remote.address) {
            Some(AddressMatch::V4(network, len)) => {
                [network.octets(), u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0).to_be_bytes()]
            }
            _ => [[0; 4]; 2],
        };
        let ports = filter.and_then(|filter| filter.remote.ports.first()).copied().unwrap_or((0, u16::MAX));
        let is_downlink = pdr.pdi.source_interface == Interface::Core;
        let mut out = [0; RULE_LEN];
        out[..8].copy_from_slice(network.as_flattened());
        out[8..10].copy_from_slice(&ports.0.to_ne_bytes());
        out[10..12].copy_from_slice(&ports.1.to_ne_bytes());
        out[12] = filter.and_then(|filter| filter.protocol).unwrap_or(0);
        out[13] = pdr.pdi.qfis.first().map_or(0, |qfi| qfi.0);
        let (qers, urrs) = (&pdr.qer_ids, &pdr.urr_ids);
        debug_assert!(qers.len() <= QERS_MAX && urrs.len() <= URRS_MAX);
        out[14] = u8::try_from(qers.len()).unwrap_or(u8::MAX);
        out[15] = u8::try_from(urrs.len()).unwrap_or(u8::MAX);
        out[16..20].copy_from_slice(&far_id(self.session, is_downlink).to_ne_bytes());
        let places = qers.iter().map(|&QerId(id)| id).chain(std::iter::repeat(1)).take(QERS_MAX);
        let places = places.chain(urrs.iter().map(|&UrrId(id)| id));
        for (place, word) in places.zip(out[20..].as_chunks_mut::<4>().0) {
            *word = (self.session * PLACES + place - 1).to_ne_bytes();
        }
        out
    }

    /// `struct chain_rated_qer`, as many as a session has places.
    pub(super) fn qers(&self) -> [u8; PLACES as usize * QER_LEN] {
        let mut out = [0; PLACES as usize * QER_LEN];
        for (qer, place) in self.request.qers.iter().zip(out.chunks_mut(QER_LEN)) {
            place.copy_from_slice(&rated(qer));
        }
        out
    }
}

fn rated(qer: &Qer) -> [u8; QER_LEN] {
    let mut out = [0; QER_LEN];
    let kbps = qer.mbr.map_or(0, |rate| rate.uplink_kbps);
    // An octet at 1 kbit/s takes 8 ms.
    let cost_ps = 8_000_000_000u64.checked_div(kbps).unwrap_or(0);
    out[..4].copy_from_slice(&[1, 1, qer.qfi.map_or(0, |qfi| qfi.0), u8::from(kbps > 0)]);
    out[4..8].copy_from_slice(&u32::try_from(cost_ps).unwrap_or(u32::MAX).to_ne_bytes());
    out[8..16].copy_from_slice(&WINDOW_NS.to_ne_bytes());
    out
}
