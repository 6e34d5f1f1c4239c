//! Typed identifiers: a TEID is never handed over where a SEID is meant.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        identifier!($(#[$doc])* $name($inner) as "{}");
    };
    ($(#[$doc:meta])* $name:ident($inner:ty) as $shown:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $shown, self.0)
            }
        }
    };
}

identifier!(
    /// Packet Detection Rule ID (TS 29.244 8.2.36).
    PdrId(u16)
);
identifier!(
    /// Forwarding Action Rule ID (TS 29.244 8.2.74). The top bit set means a predefined rule.
    FarId(u32)
);
identifier!(
    /// QoS Enforcement Rule ID (TS 29.244 8.2.75).
    QerId(u32)
);
identifier!(
    /// Usage Reporting Rule ID (TS 29.244 8.2.54).
    UrrId(u32)
);
identifier!(
    /// Buffering Action Rule ID (TS 29.244 8.2.88).
    BarId(u8)
);
identifier!(
    /// Session Reporting Rule ID (TS 29.244 8.2.151).
    SrrId(u8)
);
identifier!(
    /// QoS Flow Identifier, 0..=63 (TS 29.244 8.2.89).
    Qfi(u8)
);
identifier!(
    /// Session Endpoint Identifier (TS 29.244 5.6.2), shown as everywhere else: 0x8000000000000001.
    Seid(u64) as "{:#018x}"
);

/// Tunnel Endpoint Identifier of GTP-U (TS 29.281 5.1). Zero is reserved for signalling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Teid(pub u32);

impl fmt::Display for Teid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Network Instance (TS 29.244 8.2.4): the name of an IP domain, compared as it was sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NetworkInstance(pub Arc<str>);

impl fmt::Display for NetworkInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Any rule of a session, to say which one a request stumbled over (Failed Rule ID, TS 29.244 8.2.80).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleId {
    /// A PDR.
    Pdr(PdrId),
    /// A FAR.
    Far(FarId),
    /// A QER.
    Qer(QerId),
    /// A URR.
    Urr(UrrId),
    /// A BAR.
    Bar(BarId),
    /// An SRR.
    Srr(SrrId),
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pdr(id) => write!(f, "PDR {id}"),
            Self::Far(id) => write!(f, "FAR {id}"),
            Self::Qer(id) => write!(f, "QER {id}"),
            Self::Urr(id) => write!(f, "URR {id}"),
            Self::Bar(id) => write!(f, "BAR {id}"),
            Self::Srr(id) => write!(f, "SRR {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_read_as_an_operator_writes_it() {
        assert_eq!(Teid(0x3ef).to_string(), "0x000003ef");
        assert_eq!(NetworkInstance("internet".into()).to_string(), "internet");
        assert_eq!(RuleId::Pdr(PdrId(7)).to_string(), "PDR 7");
        assert_eq!(RuleId::Srr(SrrId(1)).to_string(), "SRR 1");
    }
}
