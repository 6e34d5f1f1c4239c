//! What is read of a frame: addresses, VLAN tags, and where the payload begins (IEEE 802.3, 802.1Q).

use kaido_engine::Frame;
use kaido_wire::vlan::TAG_LEN;
use kaido_wire::{Error, EtherType, ethernet, vlan};

use kaido_n4::Mac;

/// Octets of both addresses.
pub(crate) const ADDRESSES: usize = ethernet::HEADER_LEN - 2;

/// Group addresses of the first sixteen that IEEE 802.1Q 8.6.3 reserves: spanning tree, pause, LACP, 802.1X, LLDP.
const RESERVED: [u8; 5] = [0x01, 0x80, 0xc2, 0x00, 0x00];

/// The VLAN that a frame is of: identifiers of its outer two tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vlan {
    /// Of the service tag.
    pub service: Option<u16>,
    /// Of the customer tag.
    pub customer: Option<u16>,
}

impl Vlan {
    /// A number of its own for each.
    pub(crate) fn number(self) -> u32 {
        let number = |vid: Option<u16>| vid.map_or(0, |vid| u32::from(vid & 0x0fff) | 0x1000);
        number(self.service) << 16 | number(self.customer)
    }
}

/// The front of a frame without the tags of its LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetFrame {
    /// Destination.
    pub destination: Mac,
    /// Source.
    pub source: Mac,
    /// Tag control information of the service tag: that of IEEE 802.1ad, or the outer one of several.
    pub service_tag: Option<u16>,
    /// Tag control information of the customer tag: that behind the service tag, or the only one.
    pub customer_tag: Option<u16>,
    /// What the payload is.
    pub ethertype: EtherType,
    /// Octets before the payload.
    pub payload_at: usize,
    /// Octets of the frame.
    pub len: usize,
}

impl EthernetFrame {
    /// Reads the front of a frame of `len` octets, `data` of which lie in its first segment.
    ///
    /// # Errors
    /// [`Error::Truncated`] when it ends before its EtherType, [`Error::TooManyHeaders`] when its tags go on and on.
    pub fn read(data: &[u8], len: usize) -> Result<Self, Error> {
        let link = vlan::link(data)?;
        let tag = |at: usize| link.tci.get(at).copied().filter(|_| at < usize::from(link.tag_count));
        let outer = data.get(ADDRESSES..ethernet::HEADER_LEN);
        let is_service = outer.is_some_and(|kind| kind != EtherType::VLAN.0.to_be_bytes());
        let (service_tag, customer_tag) = match link.tag_count {
            1 if !is_service => (None, tag(0)),
            _ => (tag(0), tag(1)),
        };
        Ok(Self {
            destination: Mac(link.dst.0),
            source: Mac(link.src.0),
            service_tag,
            customer_tag,
            ethertype: link.ethertype,
            payload_at: link.payload_offset.into(),
            len,
        })
    }

    /// The VLAN that it is of.
    pub fn vlan(&self) -> Vlan {
        let vid = |tag: Option<u16>| tag.map(|tci| tci & 0x0fff);
        Vlan { service: vid(self.service_tag), customer: vid(self.customer_tag) }
    }

    /// Whether no bridge forwards it (IEEE 802.1Q 8.6.3).
    pub fn is_reserved(&self) -> bool {
        self.destination.0[..5] == RESERVED && self.destination.0[5] < 0x10
    }

    /// Octets behind the header and the tags.
    pub fn payload_len(&self) -> usize {
        self.len.saturating_sub(self.payload_at)
    }
}

/// Takes the outer `tags` tags off a frame; `false`, and nothing is changed, when it has not so many octets.
#[must_use]
pub(crate) fn take_tags(frame: &mut Frame, tags: usize) -> bool {
    let octets = tags * TAG_LEN;
    if frame.data().len() < ethernet::HEADER_LEN + octets {
        return false;
    }
    frame.data_mut().copy_within(..ADDRESSES, octets);
    frame.strip(octets)
}

/// Puts octets behind the addresses of a frame: tags, each an EtherType and tag control information. `false`, and nothing
/// is changed, when there is no room.
#[must_use]
pub(crate) fn put_tags(frame: &mut Frame, tags: &[u8]) -> bool {
    let Some(head) = frame.prepend(tags.len()) else { return false };
    let Some(header) = head.get_mut(..tags.len() + ADDRESSES) else { return false };
    header.copy_within(tags.len().., 0);
    header[ADDRESSES..].copy_from_slice(tags);
    true
}

#[cfg(test)]
mod tests {
    use kaido_engine::FramePool;

    use super::*;

    const ADDRESSES_OF: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    fn read(behind: &[u8]) -> Result<EthernetFrame, Error> {
        let frame = [&ADDRESSES_OF[..], behind].concat();
        EthernetFrame::read(&frame, frame.len())
    }

    #[test]
    fn tags_are_told_apart_by_their_ethertypes() {
        let tags = |behind: &[u8]| {
            let frame = read(behind).unwrap();
            (frame.service_tag, frame.customer_tag, frame.ethertype.0, frame.payload_at)
        };
        assert_eq!(tags(&[8, 6]), (None, None, 0x806, 14));
        assert_eq!(tags(&[0x81, 0, 0, 7, 8, 0]), (None, Some(7), 0x800, 18));
        assert_eq!(tags(&[0x88, 0xa8, 0, 7, 8, 0]), (Some(7), None, 0x800, 18));
        assert_eq!(tags(&[0x88, 0xa8, 0x20, 7, 0x81, 0, 0, 9, 8, 0]), (Some(0x2007), Some(9), 0x800, 22));
        assert_eq!(tags(&[0x81, 0, 0, 7, 0x81, 0, 0, 9, 8, 0]), (Some(7), Some(9), 0x800, 22), "older");
        let frame = read(&[0x88, 0xa8, 0x20, 7, 0x81, 0, 0, 9, 8, 0]).unwrap();
        assert_eq!(frame.vlan(), Vlan { service: Some(7), customer: Some(9) });
    }

    #[test]
    fn frames_that_end_early_or_never_are_none() {
        let whole = [&ADDRESSES_OF[..], &[0x81, 0, 0, 7, 8, 0]].concat();
        for end in 0..whole.len() {
            assert_eq!(EthernetFrame::read(&whole[..end], end), Err(Error::Truncated), "{end}");
        }
        let endless: Vec<u8> = [0x81, 0, 0, 7].repeat(300);
        assert_eq!(read(&endless), Err(Error::TooManyHeaders));
    }

    #[test]
    fn vlans_have_numbers_of_their_own() {
        let vlan = |service, customer| Vlan { service, customer }.number();
        let numbers = [
            vlan(None, None),
            vlan(Some(0), None),
            vlan(None, Some(0)),
            vlan(Some(1), None),
            vlan(None, Some(1)),
        ];
        for (at, one) in numbers.iter().enumerate() {
            assert!(numbers[..at].iter().all(|other| other != one));
        }
    }

    #[test]
    fn reserved_addresses_are_sixteen() {
        let to = |last: u8| {
            let frame = [&[0x01, 0x80, 0xc2, 0, 0, last][..], &[2, 0, 0, 0, 0, 2, 8, 0]].concat();
            EthernetFrame::read(&frame, frame.len()).unwrap().is_reserved()
        };
        assert!(to(0) && to(0x0e) && to(0x0f));
        assert!(!to(0x10) && !to(0x21));
    }

    #[test]
    fn tags_come_off_and_on_between_addresses_and_rest() {
        let pool = FramePool::leak(2).unwrap();
        let mut frame = pool.allocate().unwrap();
        let bare = [&ADDRESSES_OF[..], &[8, 0, 1, 2, 3]].concat();
        assert!(frame.set(&bare));
        assert!(put_tags(&mut frame, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9]));
        assert_eq!(frame.data()[12..], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 8, 0, 1, 2, 3]);
        assert!(take_tags(&mut frame, 1));
        assert_eq!(frame.data(), [&ADDRESSES_OF[..], &[0x81, 0, 0, 9, 8, 0, 1, 2, 3]].concat());
        assert!(take_tags(&mut frame, 1));
        assert_eq!(frame.data(), bare);
        assert!(!take_tags(&mut frame, 1), "nothing would be left");
        assert_eq!(frame.data(), bare);
    }
}
