//! Names from the texts of their components: for a program that has no parser of URIs, and for tests.

/// The octets of a name of generic components, which are written with slashes between them and taken as they are.
pub fn name(text: &str) -> Vec<u8> {
    let mut octets = Vec::new();
    for component in text.split('/').filter(|component| !component.is_empty()) {
        octets.push(8);
        match u8::try_from(component.len()) {
            Ok(len @ 0..253) => octets.push(len),
            // More than 16 bits of length are in no name that the tables take.
            _ => {
                octets.push(253);
                octets.extend(u16::try_from(component.len()).unwrap_or(u16::MAX).to_be_bytes());
            }
        }
        octets.extend(component.as_bytes());
    }
    octets
}

/// As [`name`], with an implicit digest behind.
pub fn with_digest(text: &str, digest: [u8; 32]) -> Vec<u8> {
    [&name(text)[..], &[1, 32], &digest].concat()
}
