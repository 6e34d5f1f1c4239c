//! `kaido sim`: a small SMF, gNB and UEs in one process, to exercise a UPF with.
//!
//! ```text
//!   Smf ◀──PFCP──▶ UPF          smf, link      associations, sessions, usage reports
//!   gNB ◀─GTP-U──▶ UPF          gnb, downlink  one UDP socket for all tunnels
//!    ├── TUN ue0, ue1 …         tun            ping, curl and iperf3 as the UE's applications
//!    └── numbered datagrams     traffic        loss, copies and changes are known
//! ```
//!
//! `online` runs it against a UPF on the network, `offline` against one in this process, without root;
//! `churn` has UEs come, go, move and sleep for as long as wanted.

mod args;
mod churn;
mod downlink;
mod fault;
mod gnb;
mod link;
mod numbered;
mod offline;
mod online;
mod plan;
mod progress;
mod report;
mod smf;
mod traffic;
mod tun;
mod ue;

pub use args::{SimArgs, pfcp_address};

/// Runs the sim as the arguments say.
///
/// # Errors
/// When the UPF does not answer or refuses, when something cannot be set up, or when an offline run finds a
/// difference.
pub fn run(args: &SimArgs) -> miette::Result<()> {
    match &args.offline {
        Some(dir) => offline::run(args, dir)?,
        None => match args.churn_plan()? {
            Some(plan) => churn::run(&plan)?,
            None => online::run(&args.plan()?)?,
        },
    }
    Ok(())
}
