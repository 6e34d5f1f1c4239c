//! What goes between the link and the forwarding: a packet of the network layer and what NDNLPv2 says of it.

use kaido_engine::Frame;
use kaido_ndn_tables::{FaceId, NackSeverity, PitToken};

/// Why an Interest came back (NDNLPv2, NackReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NackReason {
    /// 0: not said.
    None,
    /// 50: the link is congested.
    Congestion,
    /// 100: the nonce was seen before.
    Duplicate,
    /// 150: there is no way.
    NoRoute,
    /// Another, which is handled as [`NackReason::None`] and passed on as it is.
    Other(u64),
}

impl NackReason {
    /// The reason's number.
    pub fn code(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Congestion => 50,
            Self::Duplicate => 100,
            Self::NoRoute => 150,
            Self::Other(code) => code,
        }
    }

    /// The reason of a number.
    pub fn from_code(code: u64) -> Self {
        match code {
            0 => Self::None,
            50 => Self::Congestion,
            100 => Self::Duplicate,
            150 => Self::NoRoute,
            code => Self::Other(code),
        }
    }
}

impl From<NackReason> for NackSeverity {
    fn from(reason: NackReason) -> Self {
        match reason {
            NackReason::Congestion => Self::Congestion,
            NackReason::Duplicate => Self::Duplicate,
            NackReason::NoRoute => Self::NoRoute,
            NackReason::None | NackReason::Other(_) => Self::Other,
        }
    }
}

impl From<NackSeverity> for NackReason {
    fn from(severity: NackSeverity) -> Self {
        match severity {
            NackSeverity::Congestion => Self::Congestion,
            NackSeverity::Duplicate => Self::Duplicate,
            NackSeverity::NoRoute => Self::NoRoute,
            NackSeverity::Other => Self::None,
        }
    }
}

/// What NDNLPv2 says of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Of an Interest: what its Data must carry. Of Data: whose PIT entry it is for.
    pub pit_token: PitToken,
    /// That the packet is a Nack, and why.
    pub nack: Option<NackReason>,
    /// Congestion was met on the way; 0 is none.
    pub congestion_mark: u64,
    /// Where a local application received it from, when it asked to be told.
    pub incoming_face: Option<FaceId>,
    /// Where a local application wants it sent.
    pub next_hop_face: Option<FaceId>,
    /// Of self-learning: the Interest goes by known routes alone and is not flooded to find one.
    pub non_discovery: bool,
    /// CachePolicy NoCache: the Data is not to be kept.
    pub no_cache: bool,
}

/// A packet of the network layer: its link headers are gone.
#[derive(Debug)]
pub struct Packet {
    /// Begins with the Interest or Data. Everything before Content or ApplicationParameters lies in the first segment.
    pub frame: Frame,
    /// Where it came from.
    pub face: FaceId,
    /// What was said of it.
    pub annotations: Annotations,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_keep_their_numbers() {
        for code in [0, 50, 100, 150, 200, u64::MAX] {
            assert_eq!(NackReason::from_code(code).code(), code);
        }
    }
}
