//! Who may ask over TCP: a file with a line for each.
//!
//! ```text
//!   # name  role     what they show
//!   alice   operate  token:9f86d0…        the SHA-256 of a token, which only alice has
//!   grafana watch    certificate:60303a…  the SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` prints it
//! ```

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

use super::watched::Watched;
use crate::api::Role;

/// A SHA-256.
pub(super) type Fingerprint = [u8; 32];

/// Octets of a token, before they are written as text.
const TOKEN_LEN: usize = 32;
/// Longest name.
const NAME_MAX: usize = 64;

/// Somebody who may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) name: Arc<str>,
    pub(super) role: Role,
}

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entries {
    tokens: HashMap<Fingerprint, Known>,
    certificates: HashMap<Fingerprint, Known>,
}

/// The file.
pub(super) struct Tokens(Watched<Arc<Entries>>);

impl Tokens {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, and in which line.
    pub(super) fn open(file: PathBuf) -> Result<Self, String> {
        let read = {
            let file = file.clone();
            move || read(&file).map(Arc::new)
        };
        Watched::new(vec![file], read).map(Self)
    }

    /// Who has a token.
    pub(super) fn of_token(&self, token: &str) -> Option<Known> {
        self.0.value().tokens.get(&fingerprint(token.as_bytes())).cloned()
    }

    /// Who has a certificate.
    pub(super) fn of_certificate(&self, certificate: &Fingerprint) -> Option<Known> {
        self.0.value().certificates.get(certificate).cloned()
    }
}

/// The SHA-256 of octets.
pub(super) fn fingerprint(octets: &[u8]) -> Fingerprint {
    let digest = digest(&SHA256, octets);
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest.as_ref());
    fingerprint
}

fn read(file: &Path) -> Result<Entries, String> {
    let named = |why: String| format!("{}: {why}", file.display());
    let mode = fs::metadata(file).map_err(|error| named(error.to_string()))?.permissions().mode();
    if mode & 0o022 != 0 {
        return Err(named("others than its owner may write to it: `chmod go-w` mends it".to_owned()));
    }
    let text = fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    parse(&text).map_err(named)
}

fn parse(text: &str) -> Result<Entries, String> {
    let mut entries = Entries::default();
    for (number, line) in (1..).zip(text.lines()) {
        let words: Vec<_> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let [name, role, shown] = words[..] else {
            if words.is_empty() {
                continue;
            }
            return Err(format!("line {number}: it is not `NAME ROLE token:SHA256`"));
        };
        let place = format!("line {number}, {name}");
        let role =
            role_of(role).ok_or_else(|| format!("{place}: `{role}` is none of watch, read, operate"))?;
        let known = Known { name: check_name(name).map_err(|why| format!("{place}: {why}"))?.into(), role };
        let (of, digits) = shown.split_once(':').unwrap_or_default();
        let of = match of {
            "token" => &mut entries.tokens,
            "certificate" => &mut entries.certificates,
            _ => return Err(format!("{place}: `{shown}` begins with neither `token:` nor `certificate:`")),
        };
        let digits = hexadecimal(digits)
            .ok_or_else(|| format!("{place}: a SHA-256 has 64 hexadecimal digits, and `{digits}` is none"))?;
        of.insert(digits, known);
    }
    Ok(entries)
}

/// Reads the name of a role.
pub(crate) fn role_of(name: &str) -> Option<Role> {
    [Role::Watch, Role::Read, Role::Operate].into_iter().find(|role| role.name() == name)
}

fn check_name(name: &str) -> Result<&str, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if name.len() <= NAME_MAX && !name.is_empty() && name.chars().all(is_plain) {
        return Ok(name);
    }
    Err(format!("`{name}` is no name: up to {NAME_MAX} letters, digits, `-`, `_`, `.` and `@`"))
}

/// Reads 64 digits, which may stand in pairs with colons between.
fn hexadecimal(text: &str) -> Option<Fingerprint> {
    let digits: Vec<u8> =
        text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16)?.try_into().ok()).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let octets: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    rest.is_empty().then_some(octets)?.try_into().ok()
}

/// A new token, and the line of the file for it.
///
/// # Errors
/// A name that cannot be, or no random numbers.
pub(crate) fn new_token(name: &str, role: Role) -> Result<(String, String), String> {
    let name = check_name(name)?;
    let mut octets = [0; TOKEN_LEN];
    getrandom::fill(&mut octets).map_err(|error| format!("there are no random numbers: {error}"))?;
    let token = URL_SAFE_NO_PAD.encode(octets);
    let digits: String = fingerprint(token.as_bytes()).iter().map(|octet| format!("{octet:02x}")).collect();
    let line = format!("{name} {} token:{digits}\n", role.name());
    Ok((token, line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn folder() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kaido-tokens-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn who_has_a_token_is_known() {
        let file = folder().join("tokens");
        let (token, line) = new_token("alice", Role::Operate).unwrap();
        let (other, _) = new_token("bob", Role::Read).unwrap();
        fs::write(&file, format!("# ours\n\n{line}")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let tokens = Tokens::open(file.clone()).unwrap();
        assert_eq!(tokens.of_token(&token), Some(Known { name: "alice".into(), role: Role::Operate }));
        assert_eq!(tokens.of_token(&other), None);
        assert_eq!(tokens.of_token(""), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        let why = Tokens::open(file.clone()).err().unwrap();
        assert!(why.contains("may write to it"), "{why}");
        fs::remove_file(&file).unwrap();
        assert!(Tokens::open(file).err().unwrap().contains("No such file"));
    }

    #[test]
    fn a_certificate_is_written_as_openssl_prints_it() {
        let digits = "AB:".repeat(31) + "AB";
        let entries = parse(&format!("grafana watch certificate:{digits} # of 2026")).unwrap();
        assert_eq!(entries.certificates[&[0xab; 32]], Known { name: "grafana".into(), role: Role::Watch });
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let digits = "0".repeat(64);
        for (text, why) in [
            ("alice read".to_owned(), "line 1: it is not"),
            (format!("\nalice write token:{digits}"), "line 2, alice: `write` is none of"),
            (format!("alice read {digits}"), "begins with neither"),
            ("alice read token:12".to_owned(), "64 hexadecimal digits"),
            (format!("alice read token:{digits}0"), "64 hexadecimal digits"),
            (format!("al/ce read token:{digits}"), "is no name"),
        ] {
            let found = parse(&text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
        assert!(new_token("a b", Role::Read).is_err() && new_token("", Role::Read).is_err());
    }

    proptest! {
        #[test]
        fn any_file_is_read(text in "\\PC{0,80}") {
            let _ = parse(&text);
        }
    }
}
