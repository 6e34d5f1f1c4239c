//! What `kaido status` shows of a user plane, and `kaido sessions`.

use std::net::IpAddr;
use std::path::Path;

use kaido_n4::Imsi;
use kaido_node::api::Status;
use kaido_node::show::{ask, counts, number, print_json, table};
use serde_json::Value;

use super::api::{
    BeginDrain, EndDrain, Form, GtpuPath, ListSessions, OtlpStatus, ReleaseAssociation, ReleaseSession,
    Sessions, SlowPath, UpfStatus,
};
use super::trace::seid;

/// Which sessions are listed; with several, those that meet all.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArgs {
    /// Only the sessions of a UE's address.
    #[arg(long, value_name = "ADDRESS")]
    ue: Option<IpAddr>,
    /// Only the sessions with that TEID at this node's end of a tunnel.
    #[arg(long, value_parser = teid)]
    teid: Option<u32>,
    /// Only the session with that SEID of this node.
    #[arg(long, value_parser = seid)]
    seid: Option<u64>,
    /// Only the sessions of a subscriber, where the control plane tells (User ID).
    #[arg(long)]
    imsi: Option<Imsi>,
    /// Only the sessions of the SMF, or PGW-C, with that address on N4.
    #[arg(long, value_name = "ADDRESS")]
    smf: Option<IpAddr>,
    /// Only the sessions with a rule that names that network instance: with most SMFs the DNN.
    #[arg(long, value_name = "NAME")]
    dnn: Option<String>,
}

impl SessionsArgs {
    /// As the node is asked.
    pub(crate) fn wanted(&self, skip: usize, limit: usize) -> ListSessions {
        ListSessions {
            skip,
            limit,
            ue: self.ue,
            teid: self.teid,
            seid: self.seid,
            imsi: self.imsi,
            smf: self.smf,
            dnn: self.dnn.clone(),
        }
    }
}

fn teid(text: &str) -> Result<u32, String> {
    let teid = number(text).and_then(|number| u32::try_from(number).ok());
    teid.ok_or_else(|| format!("`{text}` is no TEID; write 0x000003ef or a decimal number"))
}

/// The user plane's part of a status.
fn of(status: &Status) -> Option<UpfStatus> {
    serde_json::from_value(Value::Object(status.more.clone())).ok()
}

/// What is told of a user plane before its ports.
pub(super) fn print_summary(status: &Status) {
    let Some(upf) = of(status) else { return };
    println!(
        "{} of {} sessions, uplink {} B, downlink {} B; session records in {}",
        upf.sessions, upf.sessions_max, upf.uplink_bytes, upf.downlink_bytes, upf.table_pages
    );
    match &upf.store {
        Some(store) => {
            println!(
                "store: sessions survive the {}; {} batches, {} B written, {} segments to be folded",
                if store.durability == "disk" { "machine" } else { "process" },
                store.batches,
                store.bytes,
                store.segments
            );
            if store.failing {
                println!(
                    "store: the journal cannot be written, so requests are not answered; the log says why"
                );
            }
        }
        None => println!("store: off, a restart begins anew"),
    }
    if let Some(otlp) = &upf.otlp {
        print_otlp(otlp);
    }
    let Some(kernel) = &upf.kernel else { return };
    println!("{} records in the kernel", kernel.records);
    for refusal in &kernel.refusals {
        println!("datapath: the workers send out of port {}: {}", refusal.port, refusal.why);
    }
    if let Some(why) = &kernel.idle {
        println!("datapath: the kernel forwards nothing: {why}");
    }
}

/// What became of PFCP procedures that were traced.
fn print_otlp(otlp: &OtlpStatus) {
    let OtlpStatus { exported, queue_full, given_up, refused, fault } = otlp;
    println!(
        "otlp: {exported} procedures told; not told: {queue_full} as the queue was full, {given_up} given up, {refused} refused"
    );
    if let Some(fault) = fault {
        println!("otlp: the collector takes nothing now: {fault}");
    }
}

/// What is told of a user plane behind its ports and workers.
pub(super) fn print_status(status: &Status) {
    if let Some(upf) = of(status) {
        println!();
        upf_status(&upf);
    }
}

/// What only a user plane has.
fn upf_status(upf: &UpfStatus) {
    let peers: Vec<_> = upf
        .peers
        .iter()
        .map(|peer| {
            let state = if peer.up { "up" } else { "down" };
            vec![peer.node_id.clone(), peer.address.clone(), state.to_owned(), peer.sessions.to_string()]
        })
        .collect();
    table(&["control plane", "address", "state", "sessions"], &peers);
    if !upf.paths.is_empty() {
        println!();
        paths(&upf.paths);
    }
    if !upf.forms.is_empty() {
        println!();
        forms(&upf.forms);
    }
    if !upf.slow_path.is_empty() {
        println!();
        slow_path(&upf.slow_path);
    }
    println!();
    counts(["pfcp", "count"], &upf.pfcp);
    if let Some(kernel) = &upf.kernel {
        println!();
        counts(["left by the kernel", "packets"], &kernel.handed);
    }
}

/// Which sessions take the fast path, and why others may not.
fn forms(forms: &[Form]) {
    let row = |form: &Form| {
        let what = match (&*form.path, &form.reason) {
            (_, Some([_, why])) => why.clone(),
            ("fast", _) => "one rule a key, in its record".to_owned(),
            ("lines", _) => "several rules a key, in cache lines".to_owned(),
            _ => "the FAR buffers, drops or has no tunnel yet, or the gate is closed".to_owned(),
        };
        vec![form.path.clone(), form.sessions.to_string(), what]
    };
    table(&["path", "sessions", "rules"], &forms.iter().map(row).collect::<Vec<_>>());
}

/// What took the slow path, the most first.
fn slow_path(counts: &[SlowPath]) {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.packets));
    let row =
        |count: &&SlowPath| vec![count.reason.clone(), count.packets.to_string(), count.sentence.clone()];
    table(&["slow path", "packets", "why"], &counts.iter().map(row).collect::<Vec<_>>());
}

/// The GTP-U part of `kaido status`.
fn paths(paths: &[GtpuPath]) {
    let row = |path: &GtpuPath| {
        let state = match path.up {
            Some(true) => "up",
            Some(false) => "down",
            None => "asked",
        };
        vec![
            path.peer.clone(),
            state.to_owned(),
            path.tunnels.to_string(),
            path.echo_requests.to_string(),
            path.echo_responses.to_string(),
            path.failures.to_string(),
            path.restarts.to_string(),
        ]
    };
    let rows: Vec<_> = paths.iter().map(row).collect();
    table(&["gtp-u peer", "state", "tunnels", "echo requests", "responses", "failures", "restarts"], &rows);
}

/// The first addresses of a session: an Ethernet session may have many.
pub(super) fn shown(addresses: &[String]) -> String {
    const SHOWN: usize = 4;
    let mut text = addresses.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(" ");
    if let Some(more) = addresses.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        text.push_str(&format!(" +{more}"));
    }
    text
}

/// `kaido release`.
///
/// # Errors
/// When no user plane answers, or it does not have it.
pub(crate) fn release(
    socket: &Path,
    session: Option<u64>,
    association: Option<String>,
    grace_s: u64,
) -> miette::Result<()> {
    if let Some(seid) = session {
        ask(socket, &ReleaseSession { seid })?;
        println!("session {seid:#018x} has ended, and its control plane is told");
    }
    if let Some(node_id) = association {
        ask(socket, &ReleaseAssociation { node_id: node_id.clone(), grace_s })?;
        println!("{node_id} is asked to release its association; `kaido status` shows whether it has");
    }
    Ok(())
}

/// `kaido drain`: with so many seconds for control planes, or not any more.
///
/// # Errors
/// When no user plane answers.
pub(crate) fn drain(socket: &Path, grace_s: Option<u64>) -> miette::Result<()> {
    match grace_s {
        Some(grace_s) => {
            ask(socket, &BeginDrain { grace_s })?;
            println!("control planes are asked to release their associations; new sessions are refused");
        }
        None => {
            ask(socket, &EndDrain {})?;
            println!("new associations and sessions are taken again");
        }
    }
    Ok(())
}

/// `kaido sessions`.
///
/// # Errors
/// When no user plane answers.
pub(crate) fn sessions(socket: &Path, json: bool, wanted: &ListSessions) -> miette::Result<()> {
    let answer = ask(socket, wanted)?;
    if json {
        return print_json(&answer);
    }
    let Sessions { total, sessions } = answer;
    let rows: Vec<_> = sessions
        .iter()
        .map(|session| {
            vec![
                session.seid.clone(),
                shown(&session.ue),
                session.local.join(" "),
                session.remote.join(" "),
                format!("{}/{}/{}/{}", session.pdrs, session.fars, session.qers, session.urrs),
                session.uplink_bytes.to_string(),
                session.downlink_bytes.to_string(),
            ]
        })
        .collect();
    table(
        &["seid", "ue", "local tunnel", "remote tunnel", "pdr/far/qer/urr", "uplink B", "downlink B"],
        &rows,
    );
    let shown = wanted.skip + rows.len();
    if shown < total {
        println!("… {} more: --skip {shown}", total - shown);
    }
    Ok(())
}
