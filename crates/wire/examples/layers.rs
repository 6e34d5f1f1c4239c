//! Prints the layers of an Ethernet frame given in hexadecimal, as far down as GTP-U and its T-PDU.
//!
//! ```text
//! cargo run -p kaido-wire --example layers -- 0200000003010200000003020800 4500…
//! ```

use std::process::ExitCode;

use kaido_wire::gtpu::{self, Message, MessageType};
use kaido_wire::{Error, EtherType, IpProtocol, icmpv4, icmpv6, ip, ipv4, ipv6, udp, vlan};

fn main() -> ExitCode {
    let text: String = std::env::args().skip(1).collect();
    let Some(frame) = unhex(&text).filter(|frame| !frame.is_empty()) else {
        eprintln!("usage: layers <frame in hexadecimal>");
        return ExitCode::FAILURE;
    };
    match ethernet(&frame) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the next layer is not readable: {error}");
            ExitCode::FAILURE
        }
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let octets = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(high * 16 + low).ok(),
        _ => None,
    });
    octets.collect()
}

fn ethernet(frame: &[u8]) -> Result<(), Error> {
    let link = vlan::link(frame)?;
    println!("Ethernet  {} -> {}  {:?}", link.src, link.dst, link.ethertype);
    for index in 0..usize::from(link.tag_count) {
        println!("  VLAN    {}", link.vid(index).unwrap_or_default());
    }
    let payload = &frame[usize::from(link.payload_offset)..];
    match link.ethertype {
        EtherType::IPV4 | EtherType::IPV6 => internet(payload, ""),
        _ => Ok(()),
    }
}

fn internet(packet: &[u8], indent: &str) -> Result<(), Error> {
    let (protocol, upper) = if packet.first().is_some_and(|first| first >> 4 == 4) {
        let header = ipv4::header(packet)?;
        let sum = if ipv4::checksum_ok(packet, header.header_len) { "right" } else { "wrong" };
        println!(
            "{indent}IPv4      {} -> {}  ttl {}  tos 0x{:02x}",
            header.src, header.dst, header.ttl, header.tos
        );
        println!(
            "{indent}          {} octets, header {}, checksum {sum}",
            header.total_len, header.header_len
        );
        if let Some(fragment) = header.fragment {
            println!("{indent}          {fragment:?}");
        }
        (header.protocol, &packet[header.header_len.into()..header.total_len.into()])
    } else {
        let header = ipv6::header(packet)?;
        let total_len = usize::try_from(header.total_len).map_err(|_| Error::Length)?;
        println!("{indent}IPv6      {} -> {}  hop limit {}", header.src, header.dst, header.hop_limit);
        println!(
            "{indent}          {total_len} octets, headers {}, {:?}",
            header.header_len, header.fragment
        );
        (header.protocol, &packet[header.header_len.into()..total_len])
    };
    transport(protocol, upper, indent)
}

fn transport(protocol: IpProtocol, upper: &[u8], indent: &str) -> Result<(), Error> {
    match protocol {
        IpProtocol::UDP => {
            let header = udp::header(upper)?;
            println!(
                "{indent}UDP       {} -> {}  {} octets",
                header.src_port, header.dst_port, header.length
            );
            if header.dst_port == gtpu::UDP_PORT && indent.is_empty() {
                return tunnel(&upper[udp::HEADER_LEN..header.length.into()]);
            }
        }
        IpProtocol::ICMP => {
            let view = icmpv4::Icmpv4View::new_checked(upper)?;
            println!("{indent}ICMP      type {} code {}", view.message_type(), view.code());
        }
        IpProtocol::ICMPV6 => {
            let view = icmpv6::Icmpv6View::new_checked(upper)?;
            println!("{indent}ICMPv6    type {} code {}", view.message_type(), view.code());
        }
        other => println!("{indent}{other:?}  ports {:?}, {} octets", ip::ports(other, upper), upper.len()),
    }
    Ok(())
}

fn tunnel(payload: &[u8]) -> Result<(), Error> {
    let header = gtpu::header(payload)?;
    println!("GTP-U     {:?}  teid {}  sequence {:?}", header.message_type, header.teid, header.sequence);
    println!("          {} extensions, qfi {:?}", header.extension_count, header.qfi);
    if let Some(kind) = header.unknown_mandatory {
        println!("          extension 0x{kind:02x} requires comprehension and is not understood");
    }
    if header.message_type == MessageType::G_PDU {
        let end = usize::from(header.payload_offset) + usize::from(header.payload_len);
        return internet(&payload[header.payload_offset.into()..end], "  ");
    }
    println!("          {:?}", Message::parse(payload)?);
    Ok(())
}
