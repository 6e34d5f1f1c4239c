//! What a traced packet says, for those who print, write and filter it.

use std::io;

use crate::api::TracedPacket;

/// The octets of a frame, which the node sends in hexadecimal.
pub(super) fn octets(hexadecimal: &str) -> io::Result<Vec<u8>> {
    let digit = |digit: u8| {
        char::from(digit)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
            .ok_or_else(|| io::Error::other("the node sent a frame that is no hexadecimal number"))
    };
    let pairs = hexadecimal.as_bytes().as_chunks::<2>().0.iter();
    pairs.map(|[high, low]| Ok(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// The rules in words; `no rule` for a packet that met none.
pub(super) fn rule_of(packet: &TracedPacket) -> String {
    let Some(rule) = &packet.rule else { return "no rule".to_owned() };
    let mut text = format!("PDR {}", rule.pdr);
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    for (name, value) in [
        ("precedence", rule.precedence.map(|precedence| precedence.to_string())),
        ("FAR", rule.far.map(|far| far.to_string())),
        ("QER", Some(list(&rule.qers))),
        ("URR", Some(list(&rule.urrs))),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            text.push_str(&format!(", {name} {value}"));
        }
    }
    text
}
