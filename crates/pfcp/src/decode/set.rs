//! Sets of sessions: FQ-CSIDs (TS 29.244 8.2.43, TS 23.007 23), groups, and whom their reports go to (7.4.7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_n4::Rejection;
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::cp_ip_address::CpIpAddress;
use serde::{Deserialize, Serialize};

use super::leaf::u32_of;
use super::node::alternative_addresses;
use crate::walk::{Group, incorrect, octets, too_short, typed};

/// The most sets or groups that one message may name.
const SETS_MAX: usize = 256;

/// The node that gave a set its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum CsidNode {
    /// By address.
    Ip(IpAddr),
    /// By country, network and a number in it.
    Operator(u32),
}

/// A set of sessions that share the fate of a part of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Csid {
    pub(crate) node: CsidNode,
    pub(crate) number: u16,
}

/// Reads all FQ-CSIDs of a message, whosever they are: the node's address tells them apart.
pub(crate) fn csids(group: &Group<'_>) -> Result<Vec<Csid>, Rejection> {
    let mut found = Vec::new();
    for value in group.all(IeType::FqCsid) {
        read_fq_csid(value, &mut found)?;
    }
    bounded(found, IeType::FqCsid)
}

/// One FQ-CSID: the kind of the node's name and the count in the first octet, the name, the numbers. An octet
/// with the node's type may follow.
fn read_fq_csid(value: &[u8], found: &mut Vec<Csid>) -> Result<(), Rejection> {
    const KIND: IeType = IeType::FqCsid;
    let (&head, rest) = value.split_first().ok_or_else(|| too_short(KIND, 7, 0))?;
    let (node, rest) = match head >> 4 {
        0 => (CsidNode::Ip(Ipv4Addr::from(octets::<4>(KIND, rest)?).into()), &rest[4..]),
        1 => (CsidNode::Ip(Ipv6Addr::from(octets::<16>(KIND, rest)?).into()), &rest[16..]),
        2 => (CsidNode::Operator(u32_of(KIND, rest)?), &rest[4..]),
        other => return Err(incorrect(KIND, format!("FQ-CSID Node-ID type {other} is unknown"))),
    };
    let count = usize::from(head & 0x0f);
    if count == 0 {
        return Err(incorrect(KIND, "an FQ-CSID without a number"));
    }
    let numbers = rest.get(..2 * count).ok_or_else(|| too_short(KIND, 2 * count, rest.len()))?;
    let numbers = numbers.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    found.extend(numbers.map(|number| Csid { node, number }));
    Ok(())
}

/// Reads the Group IDs of a message (8.2.204): octets that mean something to the control plane alone.
pub(crate) fn groups(group: &Group<'_>) -> Result<Vec<Box<[u8]>>, Rejection> {
    let read = |value: &[u8]| {
        if value.is_empty() { Err(too_short(IeType::GroupId, 1, 0)) } else { Ok(value.into()) }
    };
    let found = group.all(IeType::GroupId).map(read).collect::<Result<_, _>>()?;
    bounded(found, IeType::GroupId)
}

fn bounded<T>(found: Vec<T>, kind: IeType) -> Result<Vec<T>, Rejection> {
    if found.len() > SETS_MAX {
        return Err(incorrect(kind, format!("more than {SETS_MAX} of them in a message")));
    }
    Ok(found)
}

/// PFCP Session Change Info (table 7.4.7.1-2): which sessions, and where their reports go from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetChange {
    pub(crate) csids: Vec<Csid>,
    pub(crate) groups: Vec<Box<[u8]>>,
    /// Addresses of the CP F-SEIDs.
    pub(crate) cp_addresses: Vec<IpAddr>,
    /// The new address, and further ones.
    pub(crate) alternatives: Vec<IpAddr>,
}

/// Reads the changes of a Session Set Modification Request.
pub(crate) fn set_changes(group: &Group<'_>) -> Result<Vec<SetChange>, Rejection> {
    const KIND: IeType = IeType::PfcpSessionChangeInfo;
    group.mandatory(KIND)?;
    group.all(KIND).map(|value| set_change(&Group::of(KIND, value)?)).collect()
}

fn set_change(group: &Group<'_>) -> Result<SetChange, Rejection> {
    group.mandatory(IeType::AlternativeSmfIpAddress)?;
    let change = SetChange {
        csids: csids(group)?,
        groups: groups(group)?,
        cp_addresses: cp_addresses(group)?,
        alternatives: alternative_addresses(group)?,
    };
    if change.csids.is_empty() && change.groups.is_empty() && change.cp_addresses.is_empty() {
        group.conditional(IeType::FqCsid)?;
    }
    if change.alternatives.is_empty() {
        return Err(incorrect(IeType::AlternativeSmfIpAddress, "it has no address"));
    }
    Ok(change)
}

/// CP IP Address (8.2.205).
fn cp_addresses(group: &Group<'_>) -> Result<Vec<IpAddr>, Rejection> {
    const KIND: IeType = IeType::CpIpAddress;
    let mut found = Vec::new();
    for value in group.all(KIND) {
        let read = typed(KIND, CpIpAddress::unmarshal(value))?;
        found.extend(read.ipv4_address.map(IpAddr::V4));
        found.extend(read.ipv6_address.map(IpAddr::V6));
    }
    bounded(found, KIND)
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;
    use crate::decode::testing::element;

    fn read(value: &[u8]) -> Result<Vec<Csid>, Rejection> {
        let mut found = Vec::new();
        read_fq_csid(value, &mut found).map(|()| found)
    }

    #[test]
    fn fq_csids_of_every_kind() {
        let v4 = CsidNode::Ip([10, 0, 0, 1].into());
        let two = [Csid { node: v4, number: 5 }, Csid { node: v4, number: 0x102 }];
        assert_eq!(read(&[0x02, 10, 0, 0, 1, 0, 5, 1, 2]).unwrap(), two);
        assert_eq!(read(&[0x02, 10, 0, 0, 1, 0, 5, 1, 2, 0x03]).unwrap(), two, "with the node's type");
        let mut v6 = vec![0x11];
        v6.extend_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        v6.extend_from_slice(&[0, 9]);
        assert_eq!(read(&v6).unwrap()[0].node, CsidNode::Ip("2001:db8::1".parse().unwrap()));
        assert_eq!(read(&[0x21, 1, 2, 3, 4, 0, 9]).unwrap()[0].node, CsidNode::Operator(0x0102_0304));
    }

    #[test]
    fn broken_fq_csids() {
        let whole = [0x02, 10, 0, 0, 1, 0, 5, 1, 2];
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]).unwrap_err().cause, Cause::InvalidLength, "{end}");
        }
        assert_eq!(read(&[0x00, 10, 0, 0, 1]).unwrap_err().cause, Cause::MandatoryIeIncorrect);
        assert_eq!(read(&[0x31, 10, 0, 0, 1, 0, 1]).unwrap_err().cause, Cause::MandatoryIeIncorrect);
    }

    #[test]
    fn a_message_names_so_many_groups_and_no_more() {
        let named =
            |count| groups(&Group::of_message(&element(IeType::GroupId, &[7]).repeat(count)).unwrap());
        assert_eq!([0, 1, SETS_MAX].map(|count| named(count).unwrap().len()), [0, 1, SETS_MAX]);
        for count in [SETS_MAX + 1, 2 * SETS_MAX] {
            assert_eq!(named(count).unwrap_err().cause, Cause::MandatoryIeIncorrect, "{count}");
        }
    }
}
