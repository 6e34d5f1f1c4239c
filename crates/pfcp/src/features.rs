//! What each side can do: UP Function Features (TS 29.244 8.2.25) and CP Function Features (8.2.58).

use rs_pfcp::ie::{Ie, IeType};
use serde::{Deserialize, Serialize};

use crate::decode::Features;

/// A bit of the UP Function Features.
struct UpFeature {
    /// Octet as the standard counts: the first is 5.
    octet: u8,
    /// Bit as the standard counts: 1 to 8.
    bit: u8,
    /// Whether it is done here.
    done: fn(Features) -> bool,
}

/// Octets that are always sent; release 15 has them.
const UP_OCTETS_MIN: usize = 4;

/// What is done, and nothing else. A feature that is not listed is not done, and what asks for it is refused or,
/// where the standard says so, stepped over.
const UP_FEATURES: &[UpFeature] = &[
    // DDND: the report of downlink data waits for the delay of the BAR.
    UpFeature { octet: 5, bit: 2, done: |_| true },
    // DLBD: downlink data is buffered as long as a report's response says.
    UpFeature { octet: 5, bit: 3, done: |_| true },
    // FTUP: F-TEIDs are chosen when asked for.
    UpFeature { octet: 5, bit: 5, done: |features| features.allocates_f_teids },
    // PFDM: PFDs are provisioned.
    UpFeature { octet: 5, bit: 6, done: |_| true },
    // TREU: plain HTTP is redirected to a URL (5.4.7).
    UpFeature { octet: 5, bit: 8, done: |_| true },
    // EMPU: End Markers are made on handover.
    UpFeature { octet: 6, bit: 1, done: |features| features.sends_end_markers },
    // PDIU: traffic endpoints.
    UpFeature { octet: 6, bit: 2, done: |_| true },
    // UDBC: as many downlink packets are buffered as the BAR suggests.
    UpFeature { octet: 6, bit: 3, done: |_| true },
    // QUOAC: a FAR for the time when a quota is used up.
    UpFeature { octet: 6, bit: 4, done: |_| true },
    // FRRT: framed routes.
    UpFeature { octet: 6, bit: 6, done: |_| true },
    // PFDE: several values of a kind in a PFD.
    UpFeature { octet: 6, bit: 7, done: |_| true },
    // EPFAR: all usage is reported before an association is released (5.18).
    UpFeature { octet: 6, bit: 8, done: |_| true },
    // DPDRA: PDRs begin and cease to match at a given time (5.4.14).
    UpFeature { octet: 7, bit: 1, done: |_| true },
    // ADPDP: predefined rules are switched on and off by name (5.19).
    UpFeature { octet: 7, bit: 2, done: |_| true },
    // UEIP: UE addresses are chosen when asked for.
    UpFeature { octet: 7, bit: 3, done: |features| features.allocates_ue_addresses },
    // SSET: one association for a set of SMFs, any of which may speak of the sessions (5.22.2).
    UpFeature { octet: 7, bit: 4, done: |_| true },
    // MNOP: packets are counted.
    UpFeature { octet: 7, bit: 5, done: |_| true },
    // MTE: several traffic endpoints in a PDI.
    UpFeature { octet: 7, bit: 6, done: |_| true },
    // BUNDL: several messages in one datagram.
    UpFeature { octet: 7, bit: 7, done: |_| true },
    // MPAS: an association for each SMF of a set, and sessions taken over among them (5.22.3).
    UpFeature { octet: 8, bit: 1, done: |_| true },
    // VTIME: quotas are valid for a time.
    UpFeature { octet: 8, bit: 3, done: |_| true },
    // NORP: a number of reports.
    UpFeature { octet: 8, bit: 4, done: |_| true },
    // QFQM: delays are measured per QoS flow (5.24.4).
    UpFeature { octet: 9, bit: 2, done: |_| true },
    // ETHAR: addresses of a session that was at another user plane are taken over and announced (5.13.6).
    UpFeature { octet: 9, bit: 6, done: |_| true },
    // DDDS: what becomes of downlink packets is reported.
    UpFeature { octet: 9, bit: 7, done: |_| true },
    // RESPS: reports of sets of sessions go to another SMF on demand (7.4.7).
    UpFeature { octet: 10, bit: 6, done: |_| true },
];

/// UP Function Features (8.2.25), without octets behind the last that says something.
pub(crate) fn up_features(features: Features) -> Ie {
    let mut octets = Vec::with_capacity(8);
    octets.resize(UP_OCTETS_MIN, 0);
    for feature in UP_FEATURES.iter().filter(|feature| (feature.done)(features)) {
        let place = usize::from(feature.octet - 5);
        if octets.len() <= place {
            octets.resize(place + 1, 0u8);
        }
        octets[place] |= 1 << (feature.bit - 1);
    }
    Ie::new(IeType::UpFunctionFeatures, octets)
}

/// CP Function Features (8.2.58), as a control plane said them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CpFeatures(u16);

impl CpFeatures {
    /// Load Control Information is understood (6.2.3).
    pub(crate) const LOAD: Self = Self(1);
    /// Overload Control Information is understood (6.2.4).
    pub(crate) const OVRL: Self = Self(1 << 1);
    /// One association for a set of SMFs (5.22.2).
    #[cfg(test)]
    pub(crate) const SSET: Self = Self(1 << 3);
    /// Several messages in one datagram (6.5).
    pub(crate) const BUNDL: Self = Self(1 << 4);
    /// Restarts of GTP-U peers may be reported (5.10.2).
    pub(crate) const RPGUR: Self = Self(1 << 9);

    /// Reads the element; octets of later releases say nothing here.
    pub(crate) fn decode(value: &[u8]) -> Self {
        let octet = |at: usize| u16::from(value.get(at).copied().unwrap_or(0));
        Self(octet(0) | octet(1) << 8)
    }

    /// Whether all of `wanted` are said.
    pub(crate) fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_listed_twice() {
        let mut places: Vec<_> = UP_FEATURES.iter().map(|feature| (feature.octet, feature.bit)).collect();
        assert!(places.is_sorted(), "in the order of the standard");
        places.dedup();
        assert_eq!(places.len(), UP_FEATURES.len());
        assert!(places.iter().all(|&(octet, bit)| octet >= 5 && (1..=8).contains(&bit)));
    }

    #[test]
    fn control_plane_features_are_read_from_any_number_of_octets() {
        assert_eq!(CpFeatures::decode(&[]), CpFeatures::default());
        assert!(CpFeatures::decode(&[0, 2, 0xff]).has(CpFeatures::RPGUR));
        assert!(CpFeatures::decode(&[8]).has(CpFeatures::SSET));
        assert!(!CpFeatures::decode(&[2]).has(CpFeatures::SSET));
    }
}
