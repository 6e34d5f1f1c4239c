//! Finds the first of many rules that a packet matches.
//!
//! ```text
//!   remote address ─▶ interval ─▶ 0 1 1 0 1 …  ┐
//!   local address  ─▶ interval ─▶ 1 1 1 0 0 …  │
//!   remote port    ─▶ interval ─▶ 0 1 1 1 1 …  ├─ and ─▶ 0 1 0 0 0 …  lowest bit: best precedence
//!   local port     ─▶ interval ─▶ 1 1 0 0 1 …  │
//!   protocol, QFI  ─▶ interval ─▶ 1 1 1 1 0 …  ┘
//! ```
//! Every condition of a filter is a set of intervals of one field. The ends of all filters' intervals cut the field into
//! pieces, within each of which the same filters match. A piece has a row of bits, one bit a filter, in the order of
//! precedence. A packet is looked up in each field by bisection, its rows are combined, and the lowest bit set is the rule
//! (the bit-vector scheme of T. V. Lakshman and D. Stiliadis, 1998). A field that no filter asks for, or that has too many
//! pieces, is left out; so what is found are candidates, which the caller asks for every condition.
//!
//! Built by the control plane, once a record; never changed.

mod field;

use std::net::IpAddr;

use arrayvec::ArrayVec;

use self::field::Field;
use crate::rule::FilteredRule;
use kaido_n4::{AddressMatch, SdfFilter};

/// So few filters are faster asked one by one: some 23 instructions each, and an index some 430.
const LINEAR_MAX: usize = 16;

/// What a packet is classified by; ends as the downlink sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The far end.
    pub remote: IpAddr,
    /// The UE's end.
    pub local: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Port of the far end and of the UE's, where the packet has ports.
    pub ports: Option<(u16, u16)>,
    /// QFI that the packet came with.
    pub qfi: Option<u8>,
}

/// A filter of a rule: the places of both; a rule without filters has one candidate without a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The rule's place in the order of precedence.
    pub rule: usize,
    /// The filter's place in the rule.
    pub filter: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    rule: u16,
    filter: u16,
}

/// Stands for a rule without filters.
const NO_FILTER: u16 = u16::MAX;

/// An index over the rules of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classifier {
    terms: Box<[Term]>,
    protocol: Option<Field<u32>>,
    qfi: Option<Field<u32>>,
    remote_port: Option<Field<u32>>,
    local_port: Option<Field<u32>>,
    remote_v4: Option<Field<u32>>,
    local_v4: Option<Field<u32>>,
    remote_v6: Option<Field<u128>>,
    local_v6: Option<Field<u128>>,
}

impl Classifier {
    /// An index over rules in the order of precedence; `None` where asking one by one is as fast, or where there are more
    /// rules than numbers.
    pub fn new(rules: &[FilteredRule]) -> Option<Self> {
        let mut terms = Vec::new();
        for (rule, of) in (0u16..).zip(rules) {
            if of.detection.sdf.is_empty() {
                terms.push(Term { rule, filter: NO_FILTER });
            }
            terms.extend((0..NO_FILTER).zip(&of.detection.sdf).map(|(filter, _)| Term { rule, filter }));
        }
        let numbered = rules.len() <= usize::from(u16::MAX)
            && rules.iter().all(|rule| rule.detection.sdf.len() <= usize::from(NO_FILTER));
        if terms.len() <= LINEAR_MAX || !numbered {
            return None;
        }
        let filters: Vec<_> = terms.iter().map(|term| filter_of(rules, *term)).collect();
        let qfis = terms.iter().map(|term| rules[usize::from(term.rule)].detection.qfis.map(qfi_ranges));
        Some(Self {
            protocol: Field::new(filters.iter().map(|filter| {
                let protocol = u32::from((*filter)?.protocol?);
                Some(vec![(protocol, protocol)])
            })),
            qfi: Field::new(qfis),
            remote_port: Field::new(filters.iter().map(|filter| ports(&filter.as_ref()?.remote.ports))),
            local_port: Field::new(filters.iter().map(|filter| ports(&filter.as_ref()?.local.ports))),
            remote_v4: Field::new(filters.iter().map(|filter| v4(filter.as_ref()?.remote.address))),
            local_v4: Field::new(filters.iter().map(|filter| v4(filter.as_ref()?.local.address))),
            remote_v6: Field::new(filters.iter().map(|filter| v6(filter.as_ref()?.remote.address))),
            local_v6: Field::new(filters.iter().map(|filter| v6(filter.as_ref()?.local.address))),
            terms: terms.into(),
        })
    }

    /// The first candidate, by precedence, that `confirm` says a packet matches in everything.
    #[inline]
    pub fn find(&self, flow: &Flow, mut confirm: impl FnMut(Candidate) -> bool) -> Option<Candidate> {
        let rows = self.rows(flow);
        for word in 0..self.terms.len().div_ceil(64) {
            let mut bits = rows.iter().fold(self.present(word), |bits, row| bits & row[word]);
            while bits != 0 {
                let term = self.terms[word * 64 + bits.trailing_zeros() as usize];
                let filter = (term.filter != NO_FILTER).then_some(usize::from(term.filter));
                let candidate = Candidate { rule: usize::from(term.rule), filter };
                if confirm(candidate) {
                    return Some(candidate);
                }
                bits &= bits - 1;
            }
        }
        None
    }

    /// A bit for each filter of a word.
    #[inline]
    fn present(&self, word: usize) -> u64 {
        match self.terms.len() - word * 64 {
            rest @ 0..64 => (1 << rest) - 1,
            _ => u64::MAX,
        }
    }

    /// The row of every field that a packet has.
    #[inline]
    fn rows(&self, flow: &Flow) -> ArrayVec<&[u64], 6> {
        let mut rows = ArrayVec::new();
        let (remote_port, local_port) = flow.ports.unzip();
        rows.extend(self.protocol.as_ref().map(|field| field.row(Some(flow.protocol.into()))));
        rows.extend(self.qfi.as_ref().map(|field| field.row(flow.qfi.map(Into::into))));
        rows.extend(self.remote_port.as_ref().map(|field| field.row(remote_port.map(Into::into))));
        rows.extend(self.local_port.as_ref().map(|field| field.row(local_port.map(Into::into))));
        for (addr, v4, v6) in
            [(flow.remote, &self.remote_v4, &self.remote_v6), (flow.local, &self.local_v4, &self.local_v6)]
        {
            rows.extend(match addr {
                IpAddr::V4(addr) => v4.as_ref().map(|field| field.row(Some(addr.to_bits()))),
                IpAddr::V6(addr) => v6.as_ref().map(|field| field.row(Some(addr.to_bits()))),
            });
        }
        rows
    }

    /// Octets that the index takes, its rules not counted.
    pub fn size(&self) -> usize {
        let narrow =
            [&self.protocol, &self.qfi, &self.remote_port, &self.local_port, &self.remote_v4, &self.local_v4];
        let narrow: usize = narrow.into_iter().flatten().map(Field::size).sum();
        let wide: usize = [&self.remote_v6, &self.local_v6].into_iter().flatten().map(Field::size).sum();
        size_of::<Self>() + size_of_val(&*self.terms) + narrow + wide
    }
}

fn filter_of(rules: &[FilteredRule], term: Term) -> Option<&SdfFilter> {
    rules[usize::from(term.rule)].detection.sdf.get(usize::from(term.filter))
}

/// QoS flows as intervals of one number each.
fn qfi_ranges(bits: u64) -> Vec<(u32, u32)> {
    (0..64).filter(|&qfi| bits >> qfi & 1 != 0).map(|qfi| (qfi, qfi)).collect()
}

fn ports(ranges: &[(u16, u16)]) -> Option<Vec<(u32, u32)>> {
    (!ranges.is_empty()).then(|| ranges.iter().map(|&(low, high)| (low.into(), high.into())).collect())
}

/// The IPv4 addresses of a condition; none of a condition in IPv6.
fn v4(address: AddressMatch) -> Option<Vec<(u32, u32)>> {
    match address {
        AddressMatch::Any => None,
        AddressMatch::V4(network, len) => {
            let hosts = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            Some(vec![(network.to_bits() & !hosts, network.to_bits() | hosts)])
        }
        AddressMatch::V6(..) => Some(Vec::new()),
    }
}

/// As [`v4`], in IPv6.
fn v6(address: AddressMatch) -> Option<Vec<(u128, u128)>> {
    match address {
        AddressMatch::Any => None,
        AddressMatch::V6(network, len) => {
            let hosts = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            Some(vec![(network.to_bits() & !hosts, network.to_bits() | hosts)])
        }
        AddressMatch::V4(..) => Some(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
