//! SHA-256 over the segments of a packet.

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

/// Octets of a SHA-256.
pub const DIGEST_LEN: usize = SHA256_OUTPUT_LEN;

/// A SHA-256.
pub type Digest = [u8; DIGEST_LEN];

/// The digest of octets that lie in several parts.
pub fn sha256<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> Digest {
    let mut sha = Context::new(&SHA256);
    for part in parts {
        sha.update(part);
    }
    let mut digest = [0; DIGEST_LEN];
    digest.copy_from_slice(sha.finish().as_ref());
    digest
}

/// The implicit digest of a Data: that of the whole packet, given as its segments.
pub fn implicit_digest<'p>(segments: impl IntoIterator<Item = &'p [u8]>) -> Digest {
    sha256(segments)
}

/// The digest of an Interest's parameters: from ApplicationParameters, which begins `at` octets into the packet, to its end.
pub fn parameters_digest<'p>(segments: impl IntoIterator<Item = &'p [u8]>, at: usize) -> Digest {
    let mut before = at;
    sha256(segments.into_iter().map(|segment| {
        let skipped = before.min(segment.len());
        before -= skipped;
        &segment[skipped..]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    #[test]
    fn parts_make_no_difference() {
        let abc = hex("ba7816bf 8f01cfea 414140de 5dae2223 b00361a3 96177a9c b410ff61 f20015ad");
        assert_eq!(sha256([&b"abc"[..]])[..], abc);
        assert_eq!(sha256([&b"a"[..], b"", b"bc"])[..], abc);
        for parts in [vec![&b"xxabc"[..]], vec![b"x", b"xa", b"bc"], vec![b"xx", b"abc"], vec![b"xxab", b"c"]]
        {
            assert_eq!(parameters_digest(parts, 2)[..], abc);
        }
    }
}
