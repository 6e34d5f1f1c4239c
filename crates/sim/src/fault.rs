//! What can go wrong in a run, as its user reads it: what happened, and what to look at.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use kaido_n4::RuleId;
use kaido_pfcp::{MsgType, cause_name};
use miette::Diagnostic;
use thiserror::Error;

/// Why a run failed.
#[derive(Debug, Error, Diagnostic)]
pub(super) enum SimFault {
    /// The arguments contradict each other.
    #[error("{message}")]
    Args {
        /// What.
        message: String,
        /// How to mend it.
        #[help]
        help: &'static str,
    },
    /// A socket cannot be bound.
    #[error("cannot bind the {what} to {address}: {error}")]
    Bind {
        /// Whose socket.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
        /// How to mend it.
        #[help]
        help: &'static str,
    },
    /// A request had no answer.
    #[error("the UPF at {upf} does not answer {request} ({tries} requests in {seconds} s)")]
    NoAnswer {
        /// The UPF.
        upf: SocketAddr,
        /// Which request.
        request: &'static str,
        /// How often it was sent.
        tries: u32,
        /// For how long.
        seconds: u64,
        /// What to look at.
        #[help]
        help: &'static str,
    },
    /// A request was refused.
    #[error("the UPF at {upf} refuses {request}: cause {cause} ({name}){details}", name = cause_name(*cause))]
    Refused {
        /// The UPF.
        upf: SocketAddr,
        /// Which request.
        request: &'static str,
        /// The Cause.
        cause: u8,
        /// UE, Offending IE and Failed Rule ID, as far as there are.
        details: String,
        /// What to look at.
        #[help]
        help: &'static str,
    },
    /// A session was set up without what it was asked for.
    #[error("the UPF set up the session of UE {ue} but chose no {what} for it")]
    NotChosen {
        /// Which UE.
        ue: u32,
        /// What is missing.
        what: &'static str,
        /// What to do.
        #[help]
        help: &'static str,
    },
    /// A TUN device cannot be made.
    #[error("cannot make the TUN device {name}: {reason}")]
    Tun {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
        /// What to do.
        #[help]
        help: &'static str,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    #[diagnostic(help("name a file in a directory that exists and may be written to"))]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The system refuses something that should work.
    #[error("{what}: {error}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
    /// A node cannot be built in this process.
    #[error("cannot set up the offline node: {0}")]
    #[diagnostic(help("there is not enough memory, or the addresses of UEs and node contradict each other"))]
    Node(String),
    /// A capture cannot be written or read.
    #[error("a capture failed: {0}")]
    #[diagnostic(help("is there room on the disk, and may the directory be written to?"))]
    Capture(String),
    /// The offline run found something else than was expected.
    #[error("{count} of {of} checks found something else than was expected")]
    #[diagnostic(help("the table above says which; the captures are in {dir}"))]
    Differs {
        /// How many.
        count: usize,
        /// Of how many.
        of: usize,
        /// Where the captures are.
        dir: String,
    },
}

impl SimFault {
    pub(super) fn args(message: impl Into<String>, help: &'static str) -> Self {
        Self::Args { message: message.into(), help }
    }

    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    pub(super) fn bind(what: &'static str, address: SocketAddr, error: io::Error) -> Self {
        let help = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "another process has this address and port (ss -lunp shows it); a second sim on one host \
                 needs other addresses, or another port after --smf"
            }
            io::ErrorKind::AddrNotAvailable => {
                "the address is not one of this machine, or of this network namespace (ip address shows them)"
            }
            _ => "see `kaido sim --help`",
        };
        Self::Bind { what, address, error, help }
    }

    pub(super) fn no_answer(upf: SocketAddr, request: MsgType, tries: u32, seconds: u64) -> Self {
        let help = match request {
            MsgType::AssociationSetupRequest => {
                "is the UPF running, is --upf-pfcp its address, is there a route in this network namespace, \
                 and does UDP 8805 pass?"
            }
            _ => "the UPF answered before: has it ended? `kaido status` and its log tell",
        };
        Self::NoAnswer { upf, request: procedure(request), tries, seconds, help }
    }

    pub(super) fn refused(
        upf: SocketAddr,
        request: MsgType,
        ue: Option<u32>,
        cause: u8,
        offending_ie: Option<u16>,
        failed_rule: Option<RuleId>,
    ) -> Self {
        let ue = ue.map(|ue| format!(", UE {ue}"));
        let ie = offending_ie.map(|ie| format!(", offending IE {ie}"));
        let rule = failed_rule.map(|rule| format!(", failed rule {}", name_of(rule)));
        let details = [ue, ie, rule].into_iter().flatten().collect();
        Self::Refused { upf, request: procedure(request), cause, details, help: advice(cause) }
    }
}

fn name_of(rule: RuleId) -> String {
    match rule {
        RuleId::Pdr(id) => format!("PDR {id}"),
        RuleId::Far(id) => format!("FAR {id}"),
        RuleId::Qer(id) => format!("QER {id}"),
        RuleId::Urr(id) => format!("URR {id}"),
        RuleId::Bar(id) => format!("BAR {id}"),
        RuleId::Srr(id) => format!("SRR {id}"),
    }
}

/// The name of a request in a sentence.
fn procedure(request: MsgType) -> &'static str {
    match request {
        MsgType::AssociationSetupRequest => "the association setup",
        MsgType::AssociationReleaseRequest => "the association release",
        MsgType::HeartbeatRequest => "a heartbeat",
        MsgType::SessionEstablishmentRequest => "a session establishment",
        MsgType::SessionModificationRequest => "a session modification",
        MsgType::SessionDeletionRequest => "a session deletion",
        _ => "a request",
    }
}

/// What to look at after a refusal (TS 29.244 8.2.1).
fn advice(cause: u8) -> &'static str {
    match cause {
        65 => "the UPF lost the session: it restarted, or another control plane released the association",
        66..=69 => "the UPF could not read the request; its log at level debug names the element",
        71 => "leave out --choose, or give --upf-gtpu an N3 address that the UPF has",
        72 => "the UPF forgot the association: it restarted, or another sim with this address released it",
        73 => {
            "the UPF cannot do a rule as asked; its log at level debug says which and why. Are the addresses of \
             the UEs taken, or --first-teid, or does it not have --upf-gtpu or --network-instance?"
        }
        74 => {
            "the UPF is overloaded: ask for fewer sessions at a time (--window), or give it more of the CPU"
        }
        75 => "the UPF has no room: raise node.sessions_max in its configuration, or attach fewer UEs",
        76 => "the UPF has no pool for the UEs' addresses: leave out --ue-from-upf, or add a ue_pool to it",
        79 => "the UPF's pool of UE addresses is used up: enlarge its ue_pool, or attach fewer UEs",
        _ => "the UPF's log at level debug says why",
    }
}
