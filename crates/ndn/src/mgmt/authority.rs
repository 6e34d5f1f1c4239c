//! Whose commands are obeyed.
//!
//! A command is an Interest that is signed. The digest of its parameters is in its name. In the older form its last four
//! components are a time stamp, a nonce and the signature. An application of this host may sign with a SHA-256 that only
//! proves the command whole; any other must use a key that was configured.

use std::time::{Duration, SystemTime};

use kaido_wire::ndn::tlv::{Elements, integer};
use kaido_wire::ndn::{Component, Interest, Name, SignatureInfo, SignatureType, sha256, types};

use super::keys::TrustedKey;

/// How old a command of a key may be.
const GRACE: Duration = Duration::from_secs(120);

/// How far the time of a command may be ahead of ours, as clocks differ. For so long after its start a node obeys no key:
/// whatever a former process of it has obeyed has a time before that.
const AHEAD: Duration = Duration::from_secs(2);

/// Components that the older form of a command adds: time stamp, nonce, SignatureInfo, SignatureValue.
const OLD_FORM: usize = 4;

/// What a module's commands change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Module {
    /// Faces.
    Faces,
    /// Next hops.
    Fib,
    /// Routes.
    Rib,
    /// The Content Store.
    Cs,
    /// Strategies of prefixes.
    StrategyChoice,
}

impl Module {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Faces, Self::Fib, Self::Rib, Self::Cs, Self::StrategyChoice];

    /// Its name in the names of commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faces => "faces",
            Self::Fib => "fib",
            Self::Rib => "rib",
            Self::Cs => "cs",
            Self::StrategyChoice => "strategy-choice",
        }
    }

    /// The module of a name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|module| module.name().as_bytes() == name)
    }
}

/// From where a command came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The socket of this host's applications, whose mode says who may connect.
    Socket,
    /// A TCP connection within the host: anyone here, or who comes by a proxy of this host.
    Loopback,
    /// Another host.
    Elsewhere,
}

/// A key and what it may command.
#[derive(Debug)]
pub struct Grant {
    /// The key.
    pub key: TrustedKey,
    /// The modules whose commands it may sign.
    pub modules: Vec<Module>,
}

/// Why a command is not obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not signed.
    #[error("the command is not signed")]
    Unsigned,
    /// The digest of the parameters is wrong.
    #[error("the digest of the parameters is wrong")]
    Digest,
    /// The signature is wrong, or of a key that is not known.
    #[error("no known key verifies the signature")]
    Signature,
    /// The key is known and may not.
    #[error("the key may not command this module")]
    Privilege,
    /// It came over TCP, which says nothing of who sends.
    #[error(
        "over TCP a command needs a key: connect to the router's Unix socket, or allow the module in ndn.management.local_tcp"
    )]
    Loopback,
    /// A later one of its key was obeyed, or it is from before the node's start: it may be a repetition.
    #[error(
        "the command may be a repetition: its time is not after that of its key's last one, or not after the router's start"
    )]
    Repeated,
    /// It has no time.
    #[error("the command has no time")]
    Timeless,
    /// It is too old, or its signer's clock is behind.
    #[error("the command's time is {} s behind the router's clock: more than {}", .0.as_secs(), GRACE.as_secs())]
    Old(Duration),
    /// Its signer's clock is ahead.
    #[error("the command's time is {} s ahead of the router's clock: more than {}", .0.as_secs(), AHEAD.as_secs())]
    Early(Duration),
}

/// Who may command what.
#[derive(Debug, Default)]
pub struct Trust {
    /// The keys.
    pub grants: Vec<Grant>,
    /// The modules that applications of this host command with a digest alone.
    pub local: Vec<Module>,
    /// Those that whoever comes over TCP from this host does: it has no users and groups, so that this is for hosts whose every user
    /// may command.
    pub loopback: Vec<Module>,
}

/// What is trusted.
#[derive(Debug)]
pub struct Authority {
    trust: Trust,
    /// Commands of each of the keys are newer than this, in milliseconds.
    floors: Vec<u64>,
}

/// The signature of a command and what it covers.
struct CommandSignature<'p> {
    info: SignatureInfo<'p>,
    time_ms: Option<u64>,
    octets: Vec<u8>,
    value: &'p [u8],
}

impl Authority {
    /// An authority that obeys from `start` on.
    pub fn new(trust: Trust, start: SystemTime) -> Self {
        let floors = vec![milliseconds(start + AHEAD); trust.grants.len()];
        Self { trust, floors }
    }

    /// Obeys others from now on. A key that was trusted before goes on behind its last command; another may have been trusted at some
    /// time, and begins anew.
    pub fn trust(&mut self, trust: Trust, now: SystemTime) {
        let known = |grant: &Grant| {
            let before = self.trust.grants.iter().zip(&self.floors);
            before.into_iter().find(|(before, _)| before.key.is(&grant.key)).map(|(_, &floor)| floor)
        };
        let anew = milliseconds(now + AHEAD);
        let floors = trust.grants.iter().map(|grant| known(grant).unwrap_or(anew)).collect();
        (self.trust, self.floors) = (trust, floors);
    }

    /// Whether a command is obeyed: an Interest that lies in `packet`, for a module.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(
        &mut self,
        packet: &[u8],
        interest: &Interest<'_>,
        module: Module,
        origin: Origin,
        now: SystemTime,
    ) -> Result<(), Refusal> {
        if interest.parameters.is_some() && !interest.is_digest_right([packet]) {
            return Err(Refusal::Digest);
        }
        let signed = signed(interest).ok_or(Refusal::Unsigned)?;
        if signed.info.kind == SignatureType::DIGEST_SHA256 {
            let may = match origin {
                Origin::Socket => self.trust.local.contains(&module),
                Origin::Loopback => self.trust.loopback.contains(&module),
                Origin::Elsewhere => false,
            };
            return match sha256([&signed.octets[..]])[..] == *signed.value {
                false => Err(Refusal::Signature),
                true if may => Ok(()),
                true if origin == Origin::Loopback => Err(Refusal::Loopback),
                true => Err(Refusal::Privilege),
            };
        }
        let named = |grant: &Grant| signed.info.key_name.is_some_and(|name| grant.key.is_named_by(name));
        let verifies = |grant: &Grant| grant.key.verifies(signed.info.kind, &signed.octets, signed.value);
        let mut grants = self.trust.grants.iter().zip(&mut self.floors);
        let (grant, floor_ms) =
            grants.find(|(grant, _)| named(grant) && verifies(grant)).ok_or(Refusal::Signature)?;
        if !grant.modules.contains(&module) {
            return Err(Refusal::Privilege);
        }
        let time_ms = signed.time_ms.ok_or(Refusal::Timeless)?;
        is_near(time_ms, milliseconds(now))?;
        if time_ms <= *floor_ms {
            return Err(Refusal::Repeated);
        }
        *floor_ms = time_ms;
        Ok(())
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a time is as near to ours as it must be.
fn is_near(time_ms: u64, now_ms: u64) -> Result<(), Refusal> {
    let behind = Duration::from_millis(now_ms.saturating_sub(time_ms));
    let ahead = Duration::from_millis(time_ms.saturating_sub(now_ms));
    if behind > GRACE {
        return Err(Refusal::Old(behind));
    }
    if ahead > AHEAD { Err(Refusal::Early(ahead)) } else { Ok(()) }
}

/// The signature of a command in either form.
fn signed<'p>(interest: &Interest<'p>) -> Option<CommandSignature<'p>> {
    if let Some(signature) = interest.parameters.and_then(|parameters| parameters.signature) {
        let [before, behind] = interest.signed_name();
        let octets = [before, behind, signature.signed].concat();
        return Some(CommandSignature {
            info: signature.info,
            time_ms: signature.info.time_ms,
            octets,
            value: signature.value,
        });
    }
    let name = interest.name;
    let head = name.len().checked_sub(OLD_FORM)?;
    let value = only(name.component(head + 3)?, types::SIGNATURE_VALUE)?;
    let info = only(name.component(head + 2)?, types::SIGNATURE_INFO)?;
    Some(CommandSignature {
        info: SignatureInfo::parse(info).ok()?,
        time_ms: integer(name.component(head)?.value()).ok(),
        octets: name.prefix(head + 3).value().to_vec(),
        value,
    })
}

/// The value of the one element that a component holds, if it is of this type.
fn only(component: Component<'_>, kind: u32) -> Option<&[u8]> {
    let octets = component.value();
    let element = Elements::new(octets).next()?.ok()?;
    let is_alone = element.kind == kind && element.octets.len() == octets.len();
    (is_alone && u32::from(component.kind()) == types::GENERIC_COMPONENT).then_some(element.value)
}

/// Whether an Interest is signed in either form, rightly or not.
pub(super) fn is_signed(interest: &Interest<'_>) -> bool {
    signed(interest).is_some()
}

/// The name of a command without what signs it: the module, the verb and the parameters are the last three components.
pub(super) fn unsigned_name<'p>(interest: &Interest<'p>) -> Name<'p> {
    let name = interest.name;
    let signing = if interest.parameters.is_some() { 1 } else { OLD_FORM };
    name.prefix(name.len().saturating_sub(signing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::path::Path;

    /// A command that python-ndn signed: `vectors/ndn/commands.json`.
    struct Command {
        name: String,
        packet: Vec<u8>,
        time_ms: u64,
        key: Option<TrustedKey>,
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    fn commands() -> Vec<Command> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/ndn/commands.json");
        let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let steps: Vec<HashMap<String, String>> = serde_json::from_value(file["steps"].clone()).unwrap();
        let key_name = kaido_wire::ndn::name_from_uri("/operator/KEY/%01").unwrap();
        let command = |step: HashMap<String, String>| Command {
            name: step["name"].clone(),
            packet: hex(&step["in"]),
            time_ms: step["time"].parse().unwrap(),
            key: match (step.get("certificate"), step.get("secret")) {
                (Some(certificate), _) => Some(TrustedKey::from_certificate(&hex(certificate)).unwrap()),
                (None, Some(secret)) => Some(TrustedKey::shared(Name::new(&key_name).unwrap(), &hex(secret))),
                (None, None) => None,
            },
        };
        steps.into_iter().map(command).collect()
    }

    fn at(time_ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(time_ms)
    }

    fn judge(
        authority: &mut Authority,
        packet: &[u8],
        origin: Origin,
        now: SystemTime,
    ) -> Result<(), Refusal> {
        let interest = Interest::parse(packet, packet.len()).unwrap();
        authority.judge(packet, &interest, Module::Rib, origin, now)
    }

    fn authority(key: Option<TrustedKey>, modules: &[Module]) -> Authority {
        let grants = key.map(|key| Grant { key, modules: modules.to_vec() });
        let trust = Trust { grants: grants.into_iter().collect(), ..Trust::default() };
        Authority::new(trust, SystemTime::UNIX_EPOCH)
    }

    /// Conformance: NDN management ControlCommand | Signed with RSA, ECDSA, Ed25519, HMAC, in both forms
    #[test]
    fn keys_of_every_kind_command() {
        let mut kinds = 0;
        for command in commands().into_iter().filter(|command| command.key.is_some()) {
            let mut authority = authority(command.key, &[Module::Rib]);
            let now = at(command.time_ms + 60_000);
            assert_eq!(
                judge(&mut authority, &command.packet, Origin::Elsewhere, now),
                Ok(()),
                "{}",
                command.name
            );
            kinds += 1;
        }
        assert_eq!(kinds, 15);
    }

    #[test]
    fn a_changed_command_is_refused() {
        for command in commands() {
            let mut authority = authority(command.key, &[Module::Rib]);
            let now = at(command.time_ms);
            let whole = Interest::parse(&command.packet, command.packet.len()).unwrap();
            // What stands between the name and the parameters is not signed: selectors, nonce, lifetime.
            let parameters_at = whole.parameters.map_or(command.packet.len(), |parameters| parameters.at);
            for bit in (0..whole.nonce_at * 8).chain(parameters_at * 8..command.packet.len() * 8) {
                let mut packet = command.packet.clone();
                packet[bit / 8] ^= 1 << (bit % 8);
                let Ok(interest) = Interest::parse(&packet, packet.len()) else { continue };
                let judged = authority.judge(&packet, &interest, Module::Rib, Origin::Socket, now);
                assert!(judged.is_err(), "{}: bit {bit}", command.name);
            }
        }
    }

    /// Conformance: NDN management ControlCommand | A repetition, and a time far from ours, are refused
    #[test]
    fn a_command_is_obeyed_once() {
        let all = commands();
        for name in ["Ed25519", "HMAC"] {
            let find = |name: &str| commands().into_iter().find(|command| command.name == name).unwrap();
            let (first, later) = (find(name), find(&format!("{name}, a second later")));
            let mut authority = authority(first.key, &[Module::Rib]);
            let now = at(first.time_ms);
            let second = Duration::from_secs(1);
            let judged = judge(&mut authority, &first.packet, Origin::Socket, now + GRACE + second);
            assert_eq!(judged, Err(Refusal::Old(GRACE + second)));
            let judged = judge(&mut authority, &first.packet, Origin::Socket, now - AHEAD - second);
            assert_eq!(judged, Err(Refusal::Early(AHEAD + second)));
            assert_eq!(judge(&mut authority, &first.packet, Origin::Socket, now), Ok(()));
            assert_eq!(judge(&mut authority, &first.packet, Origin::Socket, now), Err(Refusal::Repeated));
            let judged = judge(&mut authority, &later.packet, Origin::Socket, now + GRACE + second + second);
            assert_eq!(judged, Err(Refusal::Old(GRACE + second)), "newer than the last is not enough");
            assert_eq!(judge(&mut authority, &later.packet, Origin::Socket, now), Ok(()));
            assert_eq!(judge(&mut authority, &first.packet, Origin::Socket, now), Err(Refusal::Repeated));
        }
        assert_eq!(all.len(), 17);
    }

    /// What a process has obeyed the next one does not, however soon it is back and whatever the signer's clock says.
    #[test]
    fn a_restart_does_not_let_commands_be_repeated() {
        let find = || commands().into_iter().find(|command| command.name == "Ed25519").unwrap();
        let of = |start| {
            let grant = Grant { key: find().key.unwrap(), modules: vec![Module::Rib] };
            Authority::new(Trust { grants: vec![grant], ..Trust::default() }, start)
        };
        let Command { packet, time_ms, .. } = find();
        let judge = |authority: &mut Authority, now| judge(authority, &packet, Origin::Elsewhere, now);
        // Signers whose clocks are right, behind, and ahead by as much as may be.
        for obeyed in [at(time_ms), at(time_ms + 100_000), at(time_ms) - AHEAD] {
            assert_eq!(judge(&mut of(SystemTime::UNIX_EPOCH), obeyed), Ok(()));
            let start = obeyed + Duration::from_millis(1);
            let mut restarted = of(start);
            for passed in [0, 500, 1999, 2000, 3000, 19_000] {
                let judged = judge(&mut restarted, start + Duration::from_millis(passed));
                assert!(matches!(judged, Err(Refusal::Repeated | Refusal::Early(_))), "{passed}: {judged:?}");
            }
        }
        let start = at(time_ms) - AHEAD - Duration::from_millis(1);
        assert_eq!(judge(&mut of(start), at(time_ms)), Ok(()), "a new one is obeyed soon after the start");
    }

    #[test]
    fn keys_that_change_let_no_command_be_repeated() {
        let find = |name: &str| commands().into_iter().find(|command| command.name == name).unwrap();
        let (first, later) = (find("Ed25519"), find("Ed25519, a second later"));
        let keys = || {
            let grant = Grant { key: find("Ed25519").key.unwrap(), modules: vec![Module::Rib] };
            Trust { grants: vec![grant], ..Trust::default() }
        };
        let now = at(first.time_ms);
        let judge =
            |authority: &mut Authority, packet: &[u8]| judge(authority, packet, Origin::Elsewhere, now);
        let mut authority = Authority::new(keys(), SystemTime::UNIX_EPOCH);
        assert_eq!(judge(&mut authority, &first.packet), Ok(()));
        authority.trust(keys(), now);
        assert_eq!(judge(&mut authority, &first.packet), Err(Refusal::Repeated), "its key stays");
        assert_eq!(judge(&mut authority, &later.packet), Ok(()));
        authority.trust(Trust::default(), now);
        assert_eq!(judge(&mut authority, &later.packet), Err(Refusal::Signature));
        authority.trust(keys(), now);
        assert_eq!(judge(&mut authority, &later.packet), Err(Refusal::Repeated), "its key is there again");
    }

    #[test]
    fn a_key_commands_what_it_was_granted() {
        for command in commands().into_iter().filter(|command| command.key.is_some()) {
            let mut authority = authority(command.key, &[Module::Faces, Module::Cs]);
            let now = at(command.time_ms);
            assert_eq!(judge(&mut authority, &command.packet, Origin::Socket, now), Err(Refusal::Privilege));
        }
        let command = commands().remove(0);
        let judged = judge(&mut authority(None, &[]), &command.packet, Origin::Socket, at(command.time_ms));
        assert_eq!(judged, Err(Refusal::Signature), "a key that is not known");
    }

    /// Conformance: NDN management ControlCommand | A digest suffices for who may connect to the applications' socket only
    #[test]
    fn a_digest_suffices_at_the_socket_only() {
        for command in commands().into_iter().filter(|command| command.key.is_none()) {
            let local = |module| Trust { local: vec![module], ..Trust::default() };
            let mut some = Authority::new(local(Module::Rib), SystemTime::UNIX_EPOCH);
            let now = at(command.time_ms);
            assert_eq!(judge(&mut some, &command.packet, Origin::Socket, now), Ok(()), "{}", command.name);
            assert_eq!(judge(&mut some, &command.packet, Origin::Elsewhere, now), Err(Refusal::Privilege));
            assert_eq!(judge(&mut some, &command.packet, Origin::Loopback, now), Err(Refusal::Loopback));
            some.trust(Trust { loopback: vec![Module::Rib], ..Trust::default() }, SystemTime::UNIX_EPOCH);
            assert_eq!(judge(&mut some, &command.packet, Origin::Loopback, now), Ok(()));
            assert_eq!(judge(&mut some, &command.packet, Origin::Elsewhere, now), Err(Refusal::Privilege));
            let mut none = Authority::new(local(Module::Faces), SystemTime::UNIX_EPOCH);
            assert_eq!(judge(&mut none, &command.packet, Origin::Socket, now), Err(Refusal::Privilege));
        }
    }

    #[test]
    fn what_is_no_certificate_says_why() {
        use crate::mgmt::CertificateError;
        let command = &commands()[0].packet;
        assert_eq!(TrustedKey::from_certificate(command).unwrap_err(), CertificateError::NotData);
        for (uri, content, error) in [
            ("/operator/KEY/%01/self", &b""[..], CertificateError::Name),
            ("/operator/%01/self/v=1", b"", CertificateError::Name),
            ("/operator/KEY/%01/self/v=1", b"no key", CertificateError::Key),
            // SubjectPublicKeyInfo of X25519.
            (
                "/operator/KEY/%01/self/v=1",
                b"\x30\x0a\x30\x05\x06\x03\x2b\x65\x6e\x03\x01\x00",
                CertificateError::Algorithm,
            ),
        ] {
            let name = kaido_wire::ndn::name_from_uri(uri).unwrap();
            let repr =
                kaido_wire::ndn::DataRepr { name: Name::new(&name).unwrap(), content, ..Default::default() };
            let mut packet = vec![0; repr.len()];
            repr.emit(&mut packet).unwrap();
            assert_eq!(TrustedKey::from_certificate(&packet).unwrap_err(), error, "{uri}");
        }
    }
}
