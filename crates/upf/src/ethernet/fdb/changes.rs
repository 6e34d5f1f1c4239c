//! What the control plane is told of a session's addresses (TS 29.244 5.13.5).

use kaido_n4::{Mac, MacList, PdrId, VlanTag};

/// The tags of a frame as its session sends them: tag control information of service and customer tag.
pub(crate) type SentTags = (Option<u16>, Option<u16>);

/// What has changed of a session's addresses since the control plane was last told, by the rules that saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) detected: Vec<(PdrId, Mac, SentTags)>,
    pub(crate) removed: Vec<(PdrId, Mac, SentTags)>,
}

impl Changes {
    /// The addresses of some rules, in a list for each pair of tags.
    pub(crate) fn lists(of: &[(PdrId, Mac, SentTags)], wanted: impl Fn(PdrId) -> bool) -> Vec<MacList> {
        /// Octet 5 counts them (TS 29.244 8.2.103).
        const LIST_MAX: usize = 255;
        let mut lists: Vec<MacList> = Vec::new();
        for &(_, mac, (service, customer)) in of.iter().filter(|(pdr, ..)| wanted(*pdr)) {
            let (s_tag, c_tag) = (service.map(VlanTag::of), customer.map(VlanTag::of));
            let alike = |list: &&mut MacList| {
                (list.s_tag, list.c_tag) == (s_tag, c_tag) && list.addresses.len() < LIST_MAX
            };
            match lists.iter_mut().find(alike) {
                Some(list) => list.addresses.push(mac),
                None => lists.push(MacList { addresses: vec![mac], c_tag, s_tag }),
            }
        }
        lists
    }
}
