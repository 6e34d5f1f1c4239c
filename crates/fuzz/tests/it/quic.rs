//! QUIC: whatever packets and frames come, a flow keeps no more than its bounds, and a server name is one.

use kaido_fuzz::{Script, fuzz_target};
use kaido_upf::apps::quic::{Hello, is_initial};

fuzz_target!(quic, 50_000, run);

/// Packets of a flow, or the frames of packets as if they had been opened.
fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let mut hello = Hello::default();
    while let Some(kind) = script.byte() {
        let octets = script.octets();
        match kind & 3 {
            0 => {
                let heard = hello.hear(octets).is_some();
                assert!(!heard || is_initial(octets), "a name out of what is no packet");
            }
            3 => hello.clear(),
            _ => hello.take_frames(octets),
        }
        assert!(hello.server_name().is_none_or(|name| !name.is_empty() && name.len() <= 253));
    }
}
