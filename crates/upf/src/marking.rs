//! The ToS or Traffic Class octet of outer headers: what rules and settings say of it (RFC 2983, RFC 6040).

use kaido_n4::Qfi;
use kaido_wire::ecn;

/// How the ToS or Traffic Class octet of packets into tunnels is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DscpMarking {
    /// Congestion marks go over, into tunnels and out of them (RFC 6040 normal mode). Without it outer headers are Not-ECT, and
    /// marks on them count for nothing.
    pub ecn: bool,
    /// Outer headers take the packet's own DSCP, where neither a FAR nor the QFI says another (RFC 2983).
    pub copies_dscp: bool,
    /// DSCP by QFI, 0 to 63 each.
    pub dscp_of_qfi: [Option<u8>; 64],
}

impl Default for DscpMarking {
    fn default() -> Self {
        Self { ecn: true, copies_dscp: false, dscp_of_qfi: [None; 64] }
    }
}

impl DscpMarking {
    /// The outer octet, and the bits of the packet's own that go over into it, of a FAR's Transport Level Marking and a QFI.
    pub(crate) fn outer(&self, marking: Option<u8>, qfi: Option<Qfi>) -> (u8, u8) {
        let of_qfi = |qfi: Qfi| self.dscp_of_qfi.get(usize::from(qfi.0)).copied().flatten();
        let dscp = marking.or_else(|| qfi.and_then(of_qfi).map(|dscp| dscp << 2));
        let copied_dscp = if self.copies_dscp && dscp.is_none() { !ecn::MASK } else { 0 };
        let copied = copied_dscp | if self.ecn { ecn::MASK } else { 0 };
        (dscp.unwrap_or(0) & !ecn::MASK, copied)
    }
}

/// What a rule says of the ToS or Traffic Class octet of outer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OuterClass {
    /// This, whatever is in them.
    Fixed(u8),
    /// A FAR's Transport Level Marking, or else what the node is set up for.
    Marked(Option<u8>),
}

impl OuterClass {
    /// The octet, and the bits of the packet's own that go over into it, none of them set in it.
    pub(crate) fn octet(self, marking: &DscpMarking, qfi: Option<Qfi>) -> (u8, u8) {
        match self {
            Self::Fixed(octet) => (octet, 0),
            Self::Marked(of_far) => marking.outer(of_far, qfi),
        }
    }
}
