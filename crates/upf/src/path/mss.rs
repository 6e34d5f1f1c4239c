//! MSS clamping (RFC 4459 3.2 calls for it where tunnels make the way narrower). A TCP SYN that announces larger segments
//! than the way takes has its option lowered, and its checksum with it.

use kaido_wire::layout::TcpFields;
use kaido_wire::{IpProtocol, TcpFlags, TcpView, ip};

/// Whether a packet without IP options or extension headers may be a TCP SYN; whoever says yes looks closer.
#[inline(always)]
pub(super) fn may_be_syn(packet: &[u8]) -> bool {
    let Some((protocol, segment)) = ip::plain_upper(packet) else { return false };
    let is_syn = |header| TcpFlags(TcpFields::new(header).flags()).contains(TcpFlags::SYN);
    protocol == IpProtocol::TCP && segment.first_chunk().is_none_or(is_syn)
}

/// Lowers the MSS that a TCP segment announces to `most`, if it is a SYN and announces more. Its payload may lie elsewhere.
pub(super) fn clamp(segment: &mut [u8], most: u16) {
    if let Ok(mut view) = TcpView::new_checked(segment)
        && view.flags().contains(TcpFlags::SYN)
    {
        view.clamp_mss(most);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use kaido_wire::checksum;
    use proptest::prelude::*;

    use super::*;

    const FLAG_SYN: u8 = TcpFlags::SYN.0;
    const TCP_LEN: usize = 20;
    const TCP_FLAGS_AT: usize = 13;
    const TCP_CHECKSUM_AT: usize = 16;

    const ENDS: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 60, 0, 1), Ipv4Addr::new(8, 8, 8, 8));

    fn segment(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let header_len = TCP_LEN + options.len();
        let mut segment = vec![0; TCP_LEN];
        segment[..4].copy_from_slice(&[0x9c, 0x40, 0, 80]);
        segment[12] = u8::try_from(header_len / 4).unwrap() << 4;
        segment[TCP_FLAGS_AT] = flags;
        segment.extend_from_slice(options);
        segment.extend_from_slice(payload);
        let sum = !sum_of(&segment);
        segment[TCP_CHECKSUM_AT..TCP_CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        segment
    }

    fn sum_of(segment: &[u8]) -> u16 {
        let len = u16::try_from(segment.len()).unwrap();
        checksum::combine(&[
            checksum::pseudo_v4(ENDS.0, ENDS.1, IpProtocol::TCP, len),
            checksum::sum(segment),
        ])
    }

    #[test]
    fn a_larger_mss_is_lowered_and_a_smaller_one_is_not() {
        let syn = |mss: u16| segment(2, &[&[2, 4], &mss.to_be_bytes()[..], &[1, 3, 3, 7]].concat(), &[]);
        let mut large = syn(1460);
        clamp(&mut large, 1356);
        assert_eq!(large, syn(1356));
        clamp(&mut large, 1400);
        assert_eq!(large, syn(1356));
        let mut other = segment(0x10, &[2, 4, 5, 0xb4], &[]);
        let before = other.clone();
        clamp(&mut other, 536);
        assert_eq!(other, before, "no SYN");
    }

    proptest! {
        /// The checksum stays right wherever the option is, and octets of any kind do no harm.
        #[test]
        fn the_checksum_stays_right(padding in 0_usize..20, mss: u16, most: u16, payload in prop::collection::vec(any::<u8>(), 0..9)) {
            let mut options = vec![1; padding];
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
            options.resize(options.len().next_multiple_of(4), 0);
            let mut clamped = segment(2, &options, &payload);
            clamp(&mut clamped, most);
            prop_assert_eq!(sum_of(&clamped), 0xffff);
            let at = TCP_LEN + padding + 2;
            prop_assert_eq!(u16::from_be_bytes([clamped[at], clamped[at + 1]]), mss.min(most));
        }

        #[test]
        fn any_octets_do_no_harm(mut octets in prop::collection::vec(any::<u8>(), 0..80), most: u16) {
            let len = octets.len();
            if let Some(flags) = octets.get_mut(TCP_FLAGS_AT) {
                *flags |= FLAG_SYN;
            }
            clamp(&mut octets, most);
            let _ = may_be_syn(&octets);
            prop_assert_eq!(octets.len(), len);
        }
    }
}
