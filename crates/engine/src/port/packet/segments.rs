//! Packets that the kernel has joined, or that a sender on the same host has left to its device to cut (GRO, GSO): cut again into those that
//! would be on a wire, as the kernel does before a device that cannot.
//!
//! Source: kernel `net/ipv4/tcp_offload.c`, `net/ipv4/udp_offload.c`, `include/uapi/linux/virtio_net.h`.

use kaido_wire::layout::{self, Ipv4Fields, Ipv6Fields, TcpFields, UdpFields};
use kaido_wire::{IpProtocol, checksum, ipv4, ipv6, tcp, udp};

use super::offload::VNET_HEADER;
use crate::port::checksums::ip_at;

/// `gso_type` of `struct virtio_net_hdr`; the bit says that a segment of TCP carries marks of congestion.
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP_L4: u8 = 5;
const ECN: u8 = 0x80;

/// Control bits of TCP: what the last segment alone has, and the first (RFC 9293 3.1, RFC 3168 6.1.2).
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// What a packet is made of that stands for several.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinedPacket<'p> {
    headers: &'p [u8],
    payload: &'p [u8],
    /// Where the IP header begins, and where that of TCP or UDP.
    ip_at: usize,
    upper_at: usize,
    is_tcp: bool,
    /// Octets of payload in each, but for the last.
    size: usize,
}

impl<'p> JoinedPacket<'p> {
    /// Reads a frame by what the kernel says beside it; `None` of what it cannot be, or what nobody cuts here: tunnels, extension
    /// headers, fragments.
    pub(super) fn read(vnet: &[u8; VNET_HEADER], frame: &'p [u8]) -> Option<Self> {
        let kind = vnet[1] & !ECN;
        let size = usize::from(u16::from_ne_bytes([vnet[4], vnet[5]]));
        let ip_at = ip_at(frame)?;
        let ip = frame.get(ip_at..)?;
        let (protocol, ip_len, total) = match ip.first()? >> 4 {
            4 => {
                let header = Ipv4Fields::new(ip.first_chunk()?);
                let is_whole = header.flags_offset() & 0x3fff == 0;
                let len = usize::from(header.version_ihl() & 15) * 4;
                is_whole.then_some((header.protocol(), len, usize::from(header.total_len())))?
            }
            6 => {
                let header = Ipv6Fields::new(ip.first_chunk()?);
                let total = ipv6::HEADER_LEN + usize::from(header.payload_len());
                (header.next_header(), ipv6::HEADER_LEN, total)
            }
            _ => return None,
        };
        let is_tcp = match (kind, IpProtocol(protocol)) {
            (TCP_V4 | TCP_V6, IpProtocol::TCP) => true,
            (UDP_L4, IpProtocol::UDP) => false,
            _ => return None,
        };
        let upper = ip.get(ip_len..total)?;
        let upper_len = if is_tcp {
            usize::from(TcpFields::new(upper.first_chunk()?).data_offset() >> 4) * 4
        } else {
            udp::HEADER_LEN
        };
        let least = if is_tcp { tcp::HEADER_LEN } else { udp::HEADER_LEN };
        let (upper_at, headers_len) = (ip_at + ip_len, ip_at + ip_len + upper_len);
        let is_sound = ip_len >= ipv4::HEADER_LEN && upper_len >= least && size > 0;
        let payload = upper.get(upper_len..).filter(|payload| is_sound && !payload.is_empty())?;
        Some(Self { headers: frame.get(..headers_len)?, payload, ip_at, upper_at, is_tcp, size })
    }

    /// The packets that it stands for, in their order.
    pub(super) fn packets(self) -> impl Iterator<Item = Vec<u8>> + 'p {
        let count = self.payload.len().div_ceil(self.size);
        (0u32..).zip(self.payload.chunks(self.size)).map(move |(number, part)| {
            let is_last = number as usize + 1 == count;
            let mut packet = [self.headers, part].concat();
            self.settle(number, is_last, &mut packet);
            packet
        })
    }

    /// Has the headers be those of the packet of that number.
    #[allow(clippy::cast_possible_truncation)] // Packets of at most 65 535 octets.
    fn settle(&self, number: u32, is_last: bool, packet: &mut [u8]) {
        let (ip_len, upper_len) = (self.upper_at - self.ip_at, (packet.len() - self.upper_at) as u16);
        let (before, upper) = packet.split_at_mut(self.upper_at);
        if self.is_tcp {
            let mut header = TcpFields::new(layout::at_mut(upper, 0));
            header.set_sequence(header.sequence().wrapping_add(number.wrapping_mul(self.size as u32)));
            let cleared = if is_last { 0 } else { FIN_PSH } | if number == 0 { 0 } else { CWR };
            header.set_flags(header.flags() & !cleared);
            header.set_checksum(0);
        } else {
            let mut header = UdpFields::new(layout::at_mut(upper, 0));
            header.set_len(upper_len);
            header.set_checksum(0);
        }
        let ip = &mut before[self.ip_at..];
        let protocol = if self.is_tcp { IpProtocol::TCP } else { IpProtocol::UDP };
        let pseudo = if ip[0] >> 4 == 4 {
            let mut header = Ipv4Fields::new(layout::at_mut(ip, 0));
            header.set_total_len(ip_len as u16 + upper_len);
            header.set_identification(header.identification().wrapping_add(number as u16));
            let (src, dst) = (header.src().into(), header.dst().into());
            ipv4::fill_checksum(ip);
            checksum::pseudo_v4(src, dst, protocol, upper_len)
        } else {
            let mut header = Ipv6Fields::new(layout::at_mut(ip, 0));
            header.set_payload_len(upper_len);
            checksum::pseudo_v6(header.src().into(), header.dst().into(), protocol, upper_len.into())
        };
        let sum = !checksum::combine(&[pseudo, checksum::sum(upper)]);
        if self.is_tcp {
            TcpFields::new(layout::at_mut(upper, 0)).set_checksum(sum);
        } else {
            UdpFields::new(layout::at_mut(upper, 0)).set_checksum(checksum::udp_sent(sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use kaido_wire::ip;

    use super::*;

    fn vnet(kind: u8, size: u16) -> [u8; VNET_HEADER] {
        let mut vnet = [0; VNET_HEADER];
        vnet[1] = kind;
        vnet[4..6].copy_from_slice(&size.to_ne_bytes());
        vnet
    }

    /// A frame of TCP with options or of UDP, over IPv4 with options or IPv6, behind a tag or none.
    fn frame(is_v4: bool, is_tcp: bool, tags: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut upper = vec![0x1f, 0x90, 0x80, 0];
        if is_tcp {
            upper.extend([
                0xff,
                0xff,
                0xff,
                0xf0,
                0,
                0,
                0,
                9,
                8 << 4,
                0x80 | 0x40 | 0x18 | 0x01,
                1,
                0,
                0,
                0,
                0,
                0,
            ]);
            upper.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        } else {
            upper.extend(u16::try_from(8 + payload.len()).unwrap().to_be_bytes());
            upper.extend([0, 0]);
        }
        upper.extend(payload);
        let len = u16::try_from(upper.len()).unwrap();
        let protocol = if is_tcp { 6 } else { 17 };
        let mut frame = vec![2; 12];
        frame.extend(tags);
        if is_v4 {
            frame.extend([8, 0, 0x46, 0]);
            frame.extend((24 + len).to_be_bytes());
            frame.extend([0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 10, 60, 0, 1, 1, 1, 1, 0]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend([0x20; 32]);
        }
        frame.extend(upper);
        frame
    }

    fn is_right(ip: &[u8]) -> bool {
        let (protocol, at, pseudo) = if ip[0] >> 4 == 4 {
            let header = Ipv4Fields::new(ip.first_chunk().unwrap());
            assert!(ipv4::checksum_ok(ip, 24));
            let len = header.total_len() - 24;
            (
                header.protocol(),
                24,
                checksum::pseudo_v4(
                    header.src().into(),
                    header.dst().into(),
                    IpProtocol(header.protocol()),
                    len,
                ),
            )
        } else {
            let header = Ipv6Fields::new(ip.first_chunk().unwrap());
            let (protocol, len) = (IpProtocol(header.next_header()), header.payload_len());
            (
                protocol.0,
                40,
                checksum::pseudo_v6(header.src().into(), header.dst().into(), protocol, len.into()),
            )
        };
        assert!([6, 17].contains(&protocol));
        checksum::combine(&[pseudo, checksum::sum(&ip[at..])]) == u16::MAX
    }

    #[test]
    fn the_packets_are_those_that_a_wire_would_carry() {
        for is_v4 in [true, false] {
            for is_tcp in [true, false] {
                for tags in [&[][..], &[0x81, 0, 0, 5]] {
                    for len in [1, 1000, 1001, 2000, 60_000] {
                        let payload: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
                        let whole = frame(is_v4, is_tcp, tags, &payload);
                        let kind = match (is_v4, is_tcp) {
                            (true, true) => TCP_V4 | ECN,
                            (false, true) => TCP_V6,
                            (_, false) => UDP_L4,
                        };
                        let packets: Vec<Vec<u8>> =
                            JoinedPacket::read(&vnet(kind, 1000), &whole).unwrap().packets().collect();
                        assert_eq!(packets.len(), usize::div_ceil(len, 1000));
                        let headers = whole.len() - len;
                        let joined: Vec<u8> =
                            packets.iter().flat_map(|packet| packet[headers..].to_vec()).collect();
                        assert_eq!(joined, payload);
                        let ip_at = 14 + tags.len();
                        for (number, packet) in packets.iter().enumerate() {
                            let (ip, is_last) = (&packet[ip_at..], number + 1 == packets.len());
                            assert_eq!(usize::from(ip::length(ip).unwrap()), ip.len());
                            assert!(is_right(ip), "{number}");
                            if is_v4 {
                                let id = Ipv4Fields::new(ip.first_chunk().unwrap()).identification();
                                assert_eq!(id, 0xfffe_u16.wrapping_add(u16::try_from(number).unwrap()));
                            }
                            let upper = &packet[headers - if is_tcp { 32 } else { 8 }..];
                            if is_tcp {
                                let header = TcpFields::new(upper.first_chunk().unwrap());
                                let sent = u32::try_from(number * 1000).unwrap();
                                assert_eq!(header.sequence(), 0xffff_fff0_u32.wrapping_add(sent));
                                let first = if number == 0 { 0x80 } else { 0 };
                                assert_eq!(header.flags(), 0x50 | first | if is_last { 0x09 } else { 0 });
                            } else {
                                let header = UdpFields::new(upper.first_chunk().unwrap());
                                assert_eq!(usize::from(header.len()), upper.len());
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_sound_is_not_cut() {
        let payload = [7; 3000];
        let good = frame(true, true, &[], &payload);
        let read = |vnet: [u8; VNET_HEADER], frame: &[u8]| JoinedPacket::read(&vnet, frame).is_some();
        assert!(read(vnet(TCP_V4, 1000), &good));
        for cut in 0..good.len() {
            assert!(!read(vnet(TCP_V4, 1000), &good[..cut]), "{cut}");
        }
        assert!(
            !read(vnet(TCP_V4, 0), &good) && !read(vnet(UDP_L4, 1000), &good) && !read(vnet(3, 1000), &good)
        );
        let changed = |at: usize, octet: u8| {
            let mut frame = good.clone();
            frame[at] = octet;
            frame
        };
        // The version, the header's length, a fragment, another protocol, the length of TCP's header.
        for (at, octet) in [(14, 0x56), (14, 0x44), (20, 0x20), (23, 47), (38 + 12, 4 << 4), (38 + 12, 0)] {
            assert!(!read(vnet(TCP_V4, 1000), &changed(at, octet)), "{at} {octet:#x}");
        }
        let headers_only = frame(true, true, &[], &[]);
        assert!(!read(vnet(TCP_V4, 1000), &headers_only));
        let mut v6 = frame(false, false, &[], &payload);
        assert!(read(vnet(UDP_L4, 1000), &v6));
        v6[20] = 44;
        assert!(!read(vnet(UDP_L4, 1000), &v6), "a fragment header");
    }
}
