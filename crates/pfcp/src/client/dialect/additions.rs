//! What messages have beside rules: elements that are added to an encoded request, at its own level or within its groups, and
//! names that are written otherwise.
//!
//! A user plane steps over most of them. They are sent so that it is seen to.

use kaido_n4::{Establishment, Seid};
use rs_pfcp::ie::IeType;

use super::Dialect;

/// Octets of the header of a session's message, and of an element's.
const MESSAGE_HEADER: usize = 16;
const HEADER: usize = 4;
/// Octets that the Length of a message does not count.
const UNCOUNTED: usize = 4;

const PDN_TYPE: u16 = 113;
const USER_ID: u16 = 141;
const APN_DNN: u16 = 159;
const INTERFACE_TYPE: u16 = 160;
const S_NSSAI: u16 = 257;
const CREATE_PDR: u16 = IeType::CreatePdr as u16;
const PDI: u16 = IeType::Pdi as u16;
const SOURCE: u16 = IeType::SourceInterface as u16;
const CREATE_FAR: u16 = IeType::CreateFar as u16;
const FORWARDING: u16 = IeType::ForwardingParameters as u16;
const UPDATE_FAR: u16 = IeType::UpdateFar as u16;
const UPDATE_FORWARDING: u16 = IeType::UpdateForwardingParameters as u16;
const DESTINATION: u16 = IeType::DestinationInterface as u16;
const NETWORK_INSTANCE: u16 = IeType::NetworkInstance as u16;
/// The groups that name network instances, or hold such groups.
const NAMING: [u16; 6] = [CREATE_PDR, PDI, CREATE_FAR, FORWARDING, UPDATE_FAR, UPDATE_FORWARDING];
const APPLY_ACTION: u16 = IeType::ApplyAction as u16;
const UE_IP_ADDRESS: u16 = IeType::UeIpAddress as u16;
const REQUEST_FLAGS: u16 = IeType::PfcpsmReqFlags as u16;

/// N3 and N6 as 3GPP Interface Type (TS 29.244 8.2.118).
const N3: u8 = 11;
const N6: u8 = 17;
/// What the last octet of a UE's interface identifier has: 2 in the first session.
const IDENTIFIER: u8 = 2;
/// S-NSSAI with SST 1 and no SD.
const SLICE: [u8; 4] = [1, 0xff, 0xff, 0xff];
/// User ID (8.2.101) with an IMSI and an IMEI: flags, then length and TBCD of each, 001 01 0000000001 the first.
const SUBSCRIBER: [u8; 19] =
    [3, 8, 0x00, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0xf1, 8, 0x34, 0x07, 0x18, 0x16, 0x52, 0x18, 0x16, 0x15];

/// An element for each group of a kind that has none of that type yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) struct Addition {
    /// Types of the groups that lead there; none is the message's own level.
    path: &'static [u16],
    /// Only where this element begins with this octet.
    beside: Option<(u16, u8)>,
    kind: u16,
    value: Vec<u8>,
}

impl Dialect {
    /// Whether each modification repeats the CP F-SEID.
    pub(in crate::client) const fn repeats_f_seid(self) -> bool {
        matches!(self, Self::Free5gc | Self::SdCore)
    }

    /// The features of the control plane (8.2.58) that set-ups name: none, or LOAD and OVRL.
    pub(in crate::client) const fn names_features(self) -> Option<u8> {
        match self {
            Self::Plain => None,
            Self::Free5gc | Self::Open5gs | Self::SdCore => Some(0),
            Self::Oai => Some(3),
        }
    }

    /// What the header of an establishment has as SEID: 0 (7.2.2.4.2), or the control plane's own.
    pub(in crate::client) const fn seid_of_header(self, own: Seid) -> Seid {
        match self {
            Self::Oai => own,
            _ => Seid(0),
        }
    }

    /// What is written for a request about a session.
    pub(in crate::client) fn written(self, message: &[u8], additions: &[Addition]) -> Vec<u8> {
        let Some((header, body)) = message.split_at_checked(MESSAGE_HEADER) else { return message.to_vec() };
        let body = match self {
            Self::Open5gs | Self::Oai => self.in_own_words(body),
            Self::Plain | Self::Free5gc | Self::SdCore => body.to_vec(),
        };
        let body = additions.iter().fold(body, |body, addition| with(&body, addition, addition.path));
        let mut whole = [header, &body].concat();
        let length = u16::try_from(whole.len().saturating_sub(UNCOUNTED)).unwrap_or(u16::MAX);
        if let Some(field) = whole.get_mut(2..4) {
            field.copy_from_slice(&length.to_be_bytes());
        }
        whole
    }

    /// The elements of a group, with the names of network instances as DNS labels; in Open5GS's, IPv6 addresses of UEs
    /// where others have prefixes; in OAI's, actions of one octet.
    fn in_own_words(self, group: &[u8]) -> Vec<u8> {
        let mut found = Vec::with_capacity(group.len() + HEADER);
        for (kind, value) in elements(group) {
            let value = match (kind, value) {
                (NETWORK_INSTANCE, _) => str::from_utf8(value).map_or_else(|_| value.to_vec(), labels),
                (UE_IP_ADDRESS, _) if self == Self::Open5gs => with_identifier(value),
                (APPLY_ACTION, [first, _]) if self == Self::Oai => vec![*first],
                _ if NAMING.contains(&kind) => self.in_own_words(value),
                _ => value.to_vec(),
            };
            element(&mut found, kind, &value);
        }
        found
    }

    /// What an establishment has beside rules.
    pub(in crate::client) fn in_establishment(self, request: &Establishment) -> Vec<Addition> {
        let message = |kind, value| Addition { path: &[], beside: None, kind, value };
        let mut all = self.in_groups();
        if !matches!(self, Self::Plain | Self::Oai) {
            all.push(message(PDN_TYPE, vec![pdn_type(request)]));
        }
        if self == Self::Open5gs {
            let instance = request.pdrs.iter().find_map(|pdr| pdr.pdi.network_instance.as_ref());
            all.push(message(USER_ID, SUBSCRIBER.to_vec()));
            all.extend(instance.map(|name| message(APN_DNN, labels(&name.0))));
            all.push(message(S_NSSAI, SLICE.to_vec()));
        }
        all
    }

    /// What groups have beside rules, in any request.
    pub(in crate::client) fn in_groups(self) -> Vec<Addition> {
        let typed = |path, beside, octet| Addition {
            path,
            beside: Some(beside),
            kind: INTERFACE_TYPE,
            value: vec![octet],
        };
        let (access, core) = (0, 1);
        match self {
            Self::Plain | Self::Oai | Self::SdCore => Vec::new(),
            Self::Free5gc => vec![Addition {
                path: &[UPDATE_FAR, UPDATE_FORWARDING],
                beside: None,
                kind: REQUEST_FLAGS,
                value: vec![0],
            }],
            Self::Open5gs => vec![
                typed(&[CREATE_PDR, PDI], (SOURCE, access), N3),
                typed(&[CREATE_PDR, PDI], (SOURCE, core), N6),
                typed(&[CREATE_FAR, FORWARDING], (DESTINATION, access), N3),
                typed(&[CREATE_FAR, FORWARDING], (DESTINATION, core), N6),
                typed(&[UPDATE_FAR, UPDATE_FORWARDING], (DESTINATION, access), N3),
            ],
        }
    }
}

/// PDN Type (8.2.79) by the UE's addresses.
fn pdn_type(request: &Establishment) -> u8 {
    let mut addresses = request.pdrs.iter().flat_map(|pdr| &pdr.pdi.ue_ip);
    addresses.next().map_or(1, |ue| u8::from(ue.ipv4.is_some()) | u8::from(ue.ipv6.is_some()) << 1)
}

/// A name as DNS labels (TS 23.003 9.1).
fn labels(name: &str) -> Vec<u8> {
    let label = |text: &str| {
        let len = u8::try_from(text.len()).unwrap_or(u8::MAX);
        std::iter::once(len).chain(text.bytes()).collect::<Vec<_>>()
    };
    name.split('.').flat_map(label).collect()
}

/// A UE IP Address (8.2.62) whose IPv6 prefix is an address in it.
fn with_identifier(value: &[u8]) -> Vec<u8> {
    const V6: u8 = 1;
    let mut address = value.to_vec();
    if let Some(last) = value.first().filter(|&flags| flags & V6 != 0).and(address.last_mut()) {
        *last |= IDENTIFIER;
    }
    address
}

/// The elements of a group, and the addition in those that the path leads to.
fn with(group: &[u8], addition: &Addition, path: &[u16]) -> Vec<u8> {
    let Some((next, path)) = path.split_first() else { return here(group, addition) };
    let mut found = Vec::with_capacity(group.len() + HEADER);
    for (kind, value) in elements(group) {
        let value = if kind == *next { with(value, addition, path) } else { value.to_vec() };
        element(&mut found, kind, &value);
    }
    found
}

fn here(group: &[u8], addition: &Addition) -> Vec<u8> {
    let mut found = group.to_vec();
    let wanted = addition.beside.is_none_or(|(beside, octet)| {
        elements(group).any(|(kind, value)| kind == beside && value.first() == Some(&octet))
    });
    if wanted && !elements(group).any(|(kind, _)| kind == addition.kind) {
        element(&mut found, addition.kind, &addition.value);
    }
    found
}

fn element(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend(kind.to_be_bytes());
    to.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    to.extend(value);
}

/// Types and values, as the encoder wrote them.
fn elements(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [a, b, c, d, tail @ ..] = rest else { return None };
        let (value, next) = tail.split_at_checked(u16::from_be_bytes([*c, *d]).into())?;
        rest = next;
        Some((u16::from_be_bytes([*a, *b]), value))
    })
}
