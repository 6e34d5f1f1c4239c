//! What the kernel says beside a packet, and undoing what it left to a device or took off.

use kaido_wire::checksum::{combine, sum};
use kaido_wire::vlan::TAG_LEN;
use kaido_wire::{ethernet, layout};

use crate::frame::Frame;

/// `struct virtio_net_hdr`: flags, GSO type, header length, GSO size, checksum start, checksum offset.
pub(super) const VNET_HEADER: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;

/// `TP_STATUS_VLAN_VALID` and `TP_STATUS_VLAN_TPID_VALID` of `struct tpacket_auxdata`.
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;

/// IEEE 802.1Q, for drivers that do not say which.
const TPID_CUSTOMER: u16 = 0x8100;

/// Where the source address ends and a VLAN tag begins.
const ADDRESSES: usize = ethernet::TYPE_AT;

/// What came with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VnetHeaderInfo {
    /// Its bytes as the kernel gave them.
    pub(super) len: usize,
    /// Whether it was longer.
    pub(super) truncated: bool,
    pub(super) vnet: [u8; VNET_HEADER],
    /// Identifier and tag that were taken off.
    pub(super) vlan: Option<(u16, u16)>,
}

impl VnetHeaderInfo {
    /// Whether the packet stands for several (`gso_type`).
    pub(super) fn is_coalesced(&self) -> bool {
        self.vnet[1] != 0
    }

    /// Where the checksum sums from, and where its field is from there; `None` when it is finished.
    fn unfinished_checksum(&self) -> Option<(usize, usize)> {
        let field = |at: usize| usize::from(u16::from_ne_bytes([self.vnet[at], self.vnet[at + 1]]));
        (self.vnet[0] & NEEDS_CHECKSUM != 0).then(|| (field(6), field(8)))
    }

    /// Makes the frame what a wire would have carried; false when that is not possible.
    pub(super) fn apply(&self, frame: &mut Frame) -> bool {
        if let Some((start, offset)) = self.unfinished_checksum()
            && !complete_checksum(frame, start, offset)
        {
            return false;
        }
        self.put_tag(frame)
    }

    /// Puts the tag back that was taken off; false where there is no room for it.
    pub(super) fn put_tag(&self, frame: &mut Frame) -> bool {
        self.vlan.is_none_or(|(tpid, tag)| insert_tag(frame, tpid, tag))
    }
}

/// The VLAN tag in a `struct tpacket_auxdata`: status, length, captured length, offsets, tag, identifier.
pub(super) fn read_auxdata(bytes: &[u8]) -> Option<(u16, u16)> {
    let status = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    if status & VLAN_VALID == 0 {
        return None;
    }
    let tpid = if status & VLAN_TPID_VALID == 0 { TPID_CUSTOMER } else { half(18)? };
    Some((tpid, half(16)?))
}

/// Sums from `start` to the packet's end into the field at `start + offset`, which holds the sum of the
/// pseudo-header already (`Documentation/networking/checksum-offloads.rst`).
pub(in crate::port) fn complete_checksum(frame: &mut Frame, start: usize, offset: usize) -> bool {
    let field = start + offset;
    if field + 2 > frame.data().len() {
        return false;
    }
    let mut total = 0;
    let mut at = 0;
    for segment in frame.segments() {
        let skipped = start.saturating_sub(at).min(segment.len());
        let part = sum(&segment[skipped..]);
        // A part that begins at an odd place has its octets in the other halves of the words.
        let odd = (at + skipped).wrapping_sub(start) % 2 == 1;
        total = combine(&[total, if odd { part.swap_bytes() } else { part }]);
        at += segment.len();
    }
    // Zero would say that there is none (RFC 768); for TCP the two forms of zero are alike.
    let checksum = if total == 0xffff { 0xffff } else { !total };
    frame.data_mut()[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// Puts a tag between the addresses and the EtherType.
fn insert_tag(frame: &mut Frame, tpid: u16, tag: u16) -> bool {
    if frame.data().len() < ADDRESSES + 2 {
        return false;
    }
    let Some(data) = frame.prepend(TAG_LEN) else { return false };
    data.copy_within(TAG_LEN..TAG_LEN + ADDRESSES, 0);
    let [[t0, t1], [c0, c1]] = [tpid, tag].map(u16::to_be_bytes);
    *layout::at_mut(data, ADDRESSES) = [t0, t1, c0, c1];
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::FramePool;

    fn needs_checksum(start: u16, offset: u16) -> [u8; VNET_HEADER] {
        let mut vnet = [0; VNET_HEADER];
        vnet[0] = NEEDS_CHECKSUM;
        vnet[6..8].copy_from_slice(&start.to_ne_bytes());
        vnet[8..10].copy_from_slice(&offset.to_ne_bytes());
        vnet
    }

    #[test]
    fn a_checksum_is_completed_over_all_segments() {
        let pool = FramePool::leak(8).unwrap();
        for len in [50, 51, 3840, 3841, 5000, 9001] {
            for start in [34, 35] {
                let bytes: Vec<u8> = (0..len).map(|at| u8::try_from(at * 7 % 256).unwrap()).collect();
                let mut frame = Frame::from_slice(&bytes, || pool.allocate()).unwrap();
                // A short first segment that ends at an odd place.
                let mut whole = pool.allocate().unwrap();
                assert!(whole.set(&bytes[..45]) && frame.strip(45));
                whole.push_segment(frame);
                let vnet = needs_checksum(start, 6);
                assert!(VnetHeaderInfo { len, vnet, ..VnetHeaderInfo::default() }.apply(&mut whole));
                let mut expected = bytes.clone();
                let (start, at) = (usize::from(start), usize::from(start) + 6);
                let checksum = !sum(&bytes[start..]);
                expected[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
                assert_eq!(whole.to_vec(), expected, "{len} bytes from {start}");
            }
        }
    }

    #[test]
    fn a_checksum_of_zero_goes_out_as_ones() {
        let pool = FramePool::leak(1).unwrap();
        let mut frame = Frame::from_slice(&[0xff; 60], || pool.allocate()).unwrap();
        assert!(complete_checksum(&mut frame, 20, 6));
        assert_eq!(frame.to_vec(), [0xff; 60]);
    }

    #[test]
    fn a_field_beyond_the_packet_is_refused() {
        let pool = FramePool::leak(1).unwrap();
        let mut frame = Frame::from_slice(&[1; 60], || pool.allocate()).unwrap();
        for (start, offset) in [(60, 6), (54, 6), (53, 6), (u16::MAX, u16::MAX)] {
            let arrival = VnetHeaderInfo { vnet: needs_checksum(start, offset), ..VnetHeaderInfo::default() };
            assert_eq!(arrival.apply(&mut frame), (start, offset) == (52, 6), "{start}+{offset}");
        }
        assert_eq!(frame.to_vec(), [1; 60]);
    }

    #[test]
    fn a_tag_goes_back_to_its_place() {
        let pool = FramePool::leak(1).unwrap();
        let bytes: Vec<u8> = (0..60).collect();
        let mut frame = Frame::from_slice(&bytes, || pool.allocate()).unwrap();
        let mut auxdata = [0; 20];
        auxdata[..4].copy_from_slice(&(VLAN_VALID | VLAN_TPID_VALID).to_ne_bytes());
        auxdata[16..18].copy_from_slice(&0x2064u16.to_ne_bytes());
        auxdata[18..20].copy_from_slice(&0x88a8u16.to_ne_bytes());
        let vlan = read_auxdata(&auxdata);
        assert!(VnetHeaderInfo { vlan, ..VnetHeaderInfo::default() }.apply(&mut frame));
        assert_eq!(frame.to_vec(), [&bytes[..12], &[0x88, 0xa8, 0x20, 0x64], &bytes[12..]].concat());
        auxdata[..4].copy_from_slice(&VLAN_VALID.to_ne_bytes());
        assert_eq!(read_auxdata(&auxdata), Some((TPID_CUSTOMER, 0x2064)));
        auxdata[..4].fill(0);
        assert_eq!(read_auxdata(&auxdata), None);
        assert_eq!(read_auxdata(&auxdata[..3]), None);
    }
}
