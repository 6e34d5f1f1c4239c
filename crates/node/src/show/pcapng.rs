//! A pcapng file of traced packets: each as it came in and as it left, its rules in the comment.
//!
//! Section Header Block, an Interface Description Block for each port, then an Enhanced Packet Block for each frame, in the
//! machine's byte order, times in nanoseconds.

use std::io::{self, Write};

use super::traced::{octets, rule_of};
use crate::api::{self, PacketDisposition, TracedFrame, TracedPacket};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_IF_NAME: u16 = 2;
const OPTION_EPB_FLAGS: u16 = 2;
const OPTION_USER_APPLICATION: u16 = 4;
const OPTION_IF_TSRESOL: u16 = 9;
/// Of the flags of a packet.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes traced packets.
#[derive(Debug)]
pub(crate) struct Pcapng<W: Write> {
    output: W,
    ports: Vec<String>,
}

impl<W: Write> Pcapng<W> {
    /// A file with an interface for each port.
    pub(crate) fn new(mut output: W, ports: &[String]) -> io::Result<Self> {
        let mut section = BYTE_ORDER.to_ne_bytes().to_vec();
        section.extend([1u16.to_ne_bytes(), 0u16.to_ne_bytes()].concat());
        // The section's length is not known.
        section.extend(u64::MAX.to_ne_bytes());
        option(
            &mut section,
            OPTION_USER_APPLICATION,
            concat!("kaido ", env!("CARGO_PKG_VERSION")).as_bytes(),
        );
        option(&mut section, OPTION_END, &[]);
        block(&mut output, SECTION_HEADER, &section)?;
        for port in ports {
            let mut interface = LINKTYPE_ETHERNET.to_ne_bytes().to_vec();
            // Reserved, and no limit of length.
            interface.extend([0; 6]);
            option(&mut interface, OPTION_IF_NAME, port.as_bytes());
            option(&mut interface, OPTION_IF_TSRESOL, &[9]);
            option(&mut interface, OPTION_END, &[]);
            block(&mut output, INTERFACE_DESCRIPTION, &interface)?;
        }
        Ok(Self { output, ports: ports.to_vec() })
    }

    /// Writes a packet as it came in, and what left because of it.
    pub(crate) fn packet(&mut self, packet: &TracedPacket) -> io::Result<()> {
        let reasons = packet.dispositions.iter().filter_map(|disposition| match disposition {
            PacketDisposition::Dropped { reason } => Some(format!(": {reason}")),
            _ => None,
        });
        let verdict = format!("{}{}", packet.verdict, reasons.collect::<String>());
        let comment = match packet.is_of_port() {
            true => verdict,
            false => format!(
                "{} of session {} by {}; {}; {verdict}",
                packet.direction,
                packet.seid,
                packet.key,
                rule_of(packet),
            ),
        };
        if packet.direction != api::OUT {
            self.frame(&packet.port, packet.time_ns, &packet.frame, INBOUND, &format!("in: {comment}"))?;
        }
        let left_ns = packet.time_ns + packet.took_ns;
        for disposition in &packet.dispositions {
            if let PacketDisposition::Sent { port, frame } = disposition {
                self.frame(port, left_ns, frame, OUTBOUND, &format!("out: {comment}"))?;
            }
        }
        Ok(())
    }

    /// Hands what was written to the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn frame(
        &mut self,
        port: &str,
        time_ns: u64,
        frame: &TracedFrame,
        flags: u32,
        comment: &str,
    ) -> io::Result<()> {
        let Some(interface) = self.ports.iter().position(|known| known == port) else { return Ok(()) };
        let octets = octets(&frame.octets)?;
        let lengths = [octets.len(), frame.len].map(|len| u32::try_from(len).unwrap_or(u32::MAX));
        let mut body = u32::try_from(interface).unwrap_or(u32::MAX).to_ne_bytes().to_vec();
        #[allow(clippy::cast_possible_truncation)] // The two halves.
        let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
        for word in [high, low, lengths[0], lengths[1]] {
            body.extend(word.to_ne_bytes());
        }
        body.extend(&octets);
        pad(&mut body);
        option(&mut body, OPTION_COMMENT, comment.as_bytes());
        option(&mut body, OPTION_EPB_FLAGS, &flags.to_ne_bytes());
        option(&mut body, OPTION_END, &[]);
        block(&mut self.output, ENHANCED_PACKET, &body)
    }
}

impl Pcapng<Vec<u8>> {
    /// Takes what was written since the last time.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }
}

fn pad(octets: &mut Vec<u8>) {
    octets.resize(octets.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    // A comment longer than an option may be is cut.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    body.extend([code.to_ne_bytes(), len.to_ne_bytes()].concat());
    body.extend(value);
    pad(body);
}

fn block(output: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let len = u32::try_from(body.len() + 12).map_err(io::Error::other)?.to_ne_bytes();
    output.write_all(&kind.to_ne_bytes())?;
    output.write_all(&len)?;
    output.write_all(body)?;
    output.write_all(&len)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::api::TracedRule;

    fn traced(dispositions: Vec<PacketDisposition>, verdict: &str) -> TracedPacket {
        TracedPacket {
            time_ns: 1_700_000_000_123_456_789,
            seid: "0x8000000000000001".to_owned(),
            direction: "downlink".to_owned(),
            port: "n6".to_owned(),
            key: "10.60.0.7".to_owned(),
            qfi: None,
            rule: Some(TracedRule {
                pdr: 2,
                precedence: Some(255),
                far: Some(2),
                qers: vec![],
                urrs: vec![1],
            }),
            matched_ns: Some(1000),
            took_ns: 2000,
            verdict: verdict.to_owned(),
            frame: frame(),
            dispositions,
        }
    }

    /// Ethernet, IPv4, UDP without data.
    fn frame() -> TracedFrame {
        let octets =
            "0200000006010200000006020800 4500001c00004000401166b2 08080808 0a3c0007 0035 0fa0 0008 0000";
        TracedFrame { len: 42, octets: octets.replace(' ', "") }
    }

    /// The dissector of Wireshark reads what we write, with the comments. Where it is not installed the blocks alone are
    /// looked at, and the integration tests look at the rest.
    #[test]
    fn a_capture_is_read_by_its_dissector() {
        let ports = ["n3", "n6"].map(str::to_owned);
        let mut writer = Pcapng::new(Vec::new(), &ports).unwrap();
        let sent = PacketDisposition::Sent { port: "n3".to_owned(), frame: frame() };
        writer.packet(&traced(vec![sent], "sent")).unwrap();
        let dropped = PacketDisposition::Dropped { reason: "gate_closed".to_owned() };
        writer.packet(&traced(vec![dropped], "dropped")).unwrap();
        let file = writer.output;
        let mut kinds = Vec::new();
        let mut rest = &file[..];
        while let Some((head, _)) = rest.split_first_chunk::<8>() {
            let [kind, len] =
                [0, 4].map(|at| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
            let len = usize::try_from(len).unwrap();
            assert_eq!(&rest[len - 4..len], &head[4..]);
            kinds.push(kind);
            rest = &rest[len..];
        }
        assert_eq!(kinds, [SECTION_HEADER, 1, 1, 6, 6, 6]);
        let path = std::env::temp_dir().join(format!("kaido-capture-{}.pcapng", std::process::id()));
        std::fs::write(&path, &file).unwrap();
        let fields =
            ["frame.interface_name", "frame.time_epoch", "frame.packet_flags_direction", "frame.comment"];
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&path).args(["-T", "fields", "-E", "separator=|"]);
        command.args(fields.iter().flat_map(|field| ["-e", field]));
        let ran = command.output();
        std::fs::remove_file(&path).unwrap();
        let Ok(ran) = ran else { return };
        let text = String::from_utf8_lossy(&ran.stdout);
        let rule = "downlink of session 0x8000000000000001 by 10.60.0.7; PDR 2, precedence 255, FAR 2, URR 1";
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text} {}", String::from_utf8_lossy(&ran.stderr));
        assert!(
            lines[0].starts_with("n6|1700000000.123456789|")
                && lines[0].ends_with(&format!("in: {rule}; sent"))
        );
        assert!(
            lines[1].starts_with("n3|1700000000.123458789|")
                && lines[1].ends_with(&format!("out: {rule}; sent"))
        );
        assert!(lines[2].ends_with("dropped: gate_closed"), "{}", lines[2]);
    }
}
