//! VLAN tags: IEEE 802.1Q (0x8100), 802.1ad (0x88a8) and the older 0x9100, and the bounded walk over a stack.
//!
//! ```text
//!   | dst | src | 0x88a8 | PCP·DEI·VID | 0x8100 | PCP·DEI·VID | type | payload
//!                ╰──────── tag 0 ─────╯╰──────── tag 1 ─────╯
//! ```
//! A [`VlanView`] starts at the tag control information, so that it ends with the next EtherType.

use crate::bytes::{array_at, put_u16, room, u16_at, view};
use crate::ethernet::{EtherType, MacAddr};
use crate::{Error, EthernetView};

/// Octets of one tag.
pub const TAG_LEN: usize = 4;

/// Most tags [`link`] walks over; a frame with more is refused.
pub const TAGS_MAX: usize = 4;

view! {
    /// Tag control information and the EtherType after it, in place (IEEE 802.1Q clause 9.6).
    VlanView
}

impl<T: AsRef<[u8]>> VlanView<T> {
    /// Wraps the octets after a tag's EtherType.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        if buffer.as_ref().len() < TAG_LEN { Err(Error::Truncated) } else { Ok(Self { buffer }) }
    }

    /// Tag control information: PCP (3 bits), DEI (1), VID (12).
    #[inline]
    pub fn tci(&self) -> u16 {
        u16_at(self.octets(), 0)
    }

    /// What follows the tag.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16_at(self.octets(), 2))
    }

    /// All that follows the tag.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.octets()[TAG_LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> VlanView<T> {
    /// Sets the tag control information.
    #[inline]
    pub fn set_tci(&mut self, tci: u16) {
        put_u16(self.octets_mut(), 0, tci);
    }

    /// Sets what follows the tag.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: EtherType) {
        put_u16(self.octets_mut(), 2, ethertype.0);
    }
}

/// A VLAN tag as plain values (IEEE 802.1Q clause 9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanRepr {
    /// Priority code point, 0 to 7.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
    /// VLAN identifier, 0 (priority tag) to 4095 (reserved).
    pub vid: u16,
    /// What follows the tag.
    pub ethertype: EtherType,
}

impl VlanRepr {
    /// Reads a tag; every value is valid.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(view: &VlanView<T>) -> Result<Self, Error> {
        let tci = view.tci();
        Ok(Self {
            priority: (tci >> 13) as u8,
            drop_eligible: tci & 0x1000 != 0,
            vid: tci & 0x0fff,
            ethertype: view.ethertype(),
        })
    }

    /// Octets [`Self::emit`] writes.
    #[inline]
    pub const fn len(&self) -> usize {
        TAG_LEN
    }

    /// Writes the tag to the front of `buffer`; refuses a priority above 7 and a VID above 4095.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        if self.priority > 7 || self.vid > 0x0fff {
            return Err(Error::Range);
        }
        let mut view = VlanView { buffer: room(buffer, TAG_LEN)? };
        view.set_tci(u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12 | self.vid);
        view.set_ethertype(self.ethertype);
        Ok(TAG_LEN)
    }
}

/// The link layer of a frame: addresses, tags, and where and what the network layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// The EtherType after the last tag.
    pub ethertype: EtherType,
    /// Octets from the start of the frame to the network layer.
    pub payload_offset: u8,
    /// How many tags there are.
    pub tag_count: u8,
    /// Tag control information of each tag, outermost first; zero past `tag_count`.
    pub tci: [u16; TAGS_MAX],
}

impl Link {
    /// VLAN identifier of tag `index` (0 is the outermost), if there is such a tag.
    #[inline]
    pub fn vid(&self, index: usize) -> Option<u16> {
        let tci = self.tci.get(index)?;
        (index < usize::from(self.tag_count)).then_some(tci & 0x0fff)
    }
}

/// Reads the Ethernet header and walks over at most [`TAGS_MAX`] tags.
#[inline]
pub fn link(frame: &[u8]) -> Result<Link, Error> {
    let view = EthernetView::new_checked(frame)?;
    let mut link = Link {
        dst: view.dst(),
        src: view.src(),
        ethertype: view.ethertype(),
        payload_offset: 14,
        tag_count: 0,
        tci: [0; TAGS_MAX],
    };
    if link.ethertype.is_vlan() {
        walk(frame, &mut link)?;
    }
    Ok(link)
}

fn walk(frame: &[u8], link: &mut Link) -> Result<(), Error> {
    while link.ethertype.is_vlan() {
        let slot = link.tci.get_mut(usize::from(link.tag_count)).ok_or(Error::TooManyHeaders)?;
        let at = usize::from(link.payload_offset);
        if frame.len() < at + TAG_LEN {
            return Err(Error::Truncated);
        }
        let [tci_high, tci_low, type_high, type_low] = array_at(frame, at);
        *slot = u16::from_be_bytes([tci_high, tci_low]);
        link.ethertype = EtherType(u16::from_be_bytes([type_high, type_low]));
        link.payload_offset += 4;
        link.tag_count += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    #[test]
    fn reads_and_writes_a_tag() {
        let bytes = [0xb0, 0x64, 0x08, 0x00];
        let view = VlanView::new_checked([&bytes[..], b"payload"].concat()).unwrap();
        assert_eq!(view.payload(), b"payload");
        let repr = VlanRepr::parse(&view).unwrap();
        let expected = VlanRepr { priority: 5, drop_eligible: true, vid: 100, ethertype: EtherType::IPV4 };
        assert_eq!(repr, expected);
        let mut out = [0; 4];
        assert_eq!(repr.emit(&mut out), Ok(4));
        assert_eq!(out, bytes);
        assert_eq!(VlanRepr { vid: 4096, ..repr }.emit(&mut out), Err(Error::Range));
    }

    #[test]
    fn walks_a_stack_and_bounds_it() {
        let macs = "020000000301020000000601";
        let plain = link(&hex(&format!("{macs}0800"))).unwrap();
        assert_eq!((plain.payload_offset, plain.tag_count, plain.vid(0)), (14, 0, None));
        let two = link(&hex(&format!("{macs}88a8 0007 8100 0064 86dd"))).unwrap();
        assert_eq!((two.payload_offset, two.vid(0), two.vid(1), two.vid(2)), (22, Some(7), Some(100), None));
        assert_eq!(two.ethertype, EtherType::IPV6);
        let four = format!("{macs}9100 0001 9100 0002 8100 0003 8100 0004");
        assert_eq!(link(&hex(&format!("{four}0800"))).unwrap().tag_count, 4);
        assert_eq!(link(&hex(&format!("{four}8100 0005 0800"))), Err(Error::TooManyHeaders));
        assert_eq!(link(&hex(&format!("{macs}8100 0005 08"))), Err(Error::Truncated));
    }
}
