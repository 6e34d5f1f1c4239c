//! The datasets of a router, read.

use kaido_wire::ndn::tlv::{Element, Elements, integer};
use kaido_wire::ndn::{Name, types};
use miette::miette;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::face::FLAG_RELIABILITY;
use crate::mgmt::{HeavyHitterInfo, Sharing, WorkerInfo, kinds};

/// The flag of a face whose packets are acknowledged.
pub(super) const RELIABILITY: u64 = FLAG_RELIABILITY as u64;

/// A face.
#[derive(Debug, Default, Serialize)]
pub(super) struct Face {
    pub(super) face: u64,
    pub(super) remote: String,
    pub(super) local: String,
    pub(super) scope: &'static str,
    pub(super) persistency: &'static str,
    pub(super) link: &'static str,
    pub(super) mtu: u64,
    pub(super) flags: u64,
    /// Whether packets are acknowledged.
    pub(super) reliability: bool,
    pub(super) received: Traffic,
    pub(super) sent: Traffic,
}

/// What went one way.
#[derive(Debug, Default, Serialize)]
pub(super) struct Traffic {
    pub(super) interests: u64,
    pub(super) data: u64,
    pub(super) nacks: u64,
    pub(super) bytes: u64,
}

/// A route.
#[derive(Debug, Default, Serialize)]
pub(super) struct Route {
    pub(super) prefix: String,
    pub(super) face: u64,
    pub(super) origin: u64,
    pub(super) cost: u64,
    pub(super) inherit: bool,
    pub(super) capture: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_ms: Option<u64>,
}

/// A prefix and its strategy.
#[derive(Debug, Default, Serialize)]
pub(super) struct Choice {
    pub(super) prefix: String,
    pub(super) strategy: String,
}

/// The Content Store.
#[derive(Debug, Default, Serialize)]
pub(super) struct ContentStore {
    pub(super) capacity: u64,
    pub(super) entries: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Data that was not kept; Kaido says it.
    pub(super) refused: Option<u64>,
    /// Octets of memory; Kaido says it.
    pub(super) octets: Option<u64>,
    /// Of its tier on disk, if it has one.
    pub(super) disk: Option<Disk>,
    pub(super) admits: bool,
    pub(super) serves: bool,
}

/// The tier on disk of a Content Store.
#[derive(Debug, Serialize)]
pub(super) struct Disk {
    pub(super) packets: u64,
    pub(super) octets: u64,
    pub(super) octets_max: u64,
    pub(super) hits: u64,
}

/// What a router says of itself.
#[derive(Debug, Default, Serialize)]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) uptime_ms: u64,
    pub(super) fib_entries: u64,
    pub(super) pit_entries: u64,
    pub(super) cs_entries: u64,
    pub(super) received: Traffic,
    pub(super) sent: Traffic,
    pub(super) satisfied: u64,
    pub(super) unsatisfied: u64,
    /// What other routers do not say.
    #[serde(flatten)]
    pub(super) workers: Option<Workers>,
}

/// How the workers share the names; Kaido says it.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Workers {
    pub(crate) workers: Vec<Worker>,
    pub(crate) hot_names: Vec<HotName>,
}

/// A worker.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Worker {
    pub(crate) worker: u64,
    pub(crate) packets: u64,
    /// Its part of the packets of all.
    pub(crate) share: f64,
    pub(crate) handoffs: HandoffRow,
    pub(crate) pit_entries: u64,
    pub(crate) pit_max: u64,
    pub(crate) cs_entries: u64,
    pub(crate) cs_max: u64,
}

/// Packets that went to other workers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HandoffRow {
    pub(crate) interests: u64,
    pub(crate) data: u64,
    pub(crate) nacks: u64,
}

/// A name whose Interests are spread over all workers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HotName {
    /// None until one of its Interests was looked at.
    pub(crate) name: Option<String>,
    /// Its part of all Interests.
    pub(crate) share: f64,
}

impl From<&Sharing> for Workers {
    fn from(sharing: &Sharing) -> Self {
        let all: u64 = sharing.workers.iter().map(|worker| worker.packets).sum();
        #[allow(clippy::cast_precision_loss)] // Of shares some digits are enough.
        let share = |of: u64, all: u64| of as f64 / all.max(1) as f64;
        let worker = |info: &WorkerInfo| Worker {
            worker: info.number,
            packets: info.packets,
            share: share(info.packets, all),
            handoffs: HandoffRow {
                interests: info.handed_interests,
                data: info.handed_data,
                nacks: info.handed_nacks,
            },
            pit_entries: info.pit_entries,
            pit_max: info.pit_max,
            cs_entries: info.cs_entries,
            cs_max: info.cs_max,
        };
        let hot = |info: &HeavyHitterInfo| HotName {
            name: info.name.as_deref().map(|octets| name(Some(octets))),
            share: share(info.share_ppm, 1_000_000),
        };
        Self {
            workers: sharing.workers.iter().map(worker).collect(),
            hot_names: sharing.hot.iter().map(hot).collect(),
        }
    }
}

fn elements(octets: &[u8]) -> miette::Result<Vec<Element<'_>>> {
    Elements::new(octets).collect::<Result<_, _>>().map_err(|_| miette!("the router's answer cannot be read"))
}

/// The fields of each entry of a list.
fn entries(octets: &[u8]) -> miette::Result<Vec<Vec<Element<'_>>>> {
    elements(octets)?.into_iter().map(|entry| elements(entry.value)).collect()
}

fn find<'p>(fields: &[Element<'p>], kind: u32) -> Option<&'p [u8]> {
    fields.iter().find(|field| field.kind == kind).map(|field| field.value)
}

fn number(fields: &[Element<'_>], kind: u32) -> Option<u64> {
    integer(find(fields, kind)?).ok()
}

fn text(fields: &[Element<'_>], kind: u32) -> String {
    find(fields, kind).map(String::from_utf8_lossy).unwrap_or_default().into_owned()
}

fn name(octets: Option<&[u8]>) -> String {
    octets.and_then(|octets| Name::new(octets).ok()).map(|name| name.to_string()).unwrap_or_default()
}

fn traffic(fields: &[Element<'_>], [interests, data, nacks, bytes]: [u32; 4]) -> Traffic {
    let count = |kind| number(fields, kind).unwrap_or(0);
    Traffic { interests: count(interests), data: count(data), nacks: count(nacks), bytes: count(bytes) }
}

/// The words for the numbers of a field.
fn word(code: Option<u64>, words: &[&'static str]) -> &'static str {
    code.and_then(|code| words.get(usize::try_from(code).ok()?)).copied().unwrap_or("?")
}

/// `faces/list`.
pub(super) fn faces(octets: &[u8]) -> miette::Result<Vec<Face>> {
    let face = |fields: Vec<Element<'_>>| Face {
        face: number(&fields, 0x69).unwrap_or(0),
        remote: text(&fields, 0x72),
        local: text(&fields, 0x81),
        scope: word(number(&fields, 0x84), &["non-local", "local"]),
        persistency: word(number(&fields, 0x85), &["persistent", "on-demand", "permanent"]),
        link: word(number(&fields, 0x86), &["point-to-point", "multi-access", "ad-hoc"]),
        mtu: number(&fields, 0x89).unwrap_or(0),
        flags: number(&fields, 0x6c).unwrap_or(0),
        reliability: number(&fields, 0x6c).unwrap_or(0) & RELIABILITY != 0,
        received: traffic(&fields, [0x90, 0x91, 0x97, 0x94]),
        sent: traffic(&fields, [0x92, 0x93, 0x98, 0x95]),
    };
    Ok(entries(octets)?.into_iter().map(face).collect())
}

/// `rib/list`.
pub(super) fn routes(octets: &[u8]) -> miette::Result<Vec<Route>> {
    let mut routes = vec![];
    for entry in entries(octets)? {
        let prefix = name(find(&entry, types::NAME));
        for record in entry.iter().filter(|field| field.kind == 0x81) {
            let fields = elements(record.value)?;
            let flags = number(&fields, 0x6c).unwrap_or(0);
            routes.push(Route {
                prefix: prefix.clone(),
                face: number(&fields, 0x69).unwrap_or(0),
                origin: number(&fields, 0x6f).unwrap_or(0),
                cost: number(&fields, 0x6a).unwrap_or(0),
                inherit: flags & 1 != 0,
                capture: flags & 2 != 0,
                expires_ms: number(&fields, 0x6d),
            });
        }
    }
    Ok(routes)
}

/// `strategy-choice/list`.
pub(super) fn choices(octets: &[u8]) -> miette::Result<Vec<Choice>> {
    let choice = |fields: Vec<Element<'_>>| {
        let strategy = find(&fields, 0x6b).and_then(|value| Name::parse(value).ok());
        Choice {
            prefix: name(find(&fields, types::NAME)),
            strategy: strategy.map(|(name, _)| name.to_string()).unwrap_or_default(),
        }
    };
    Ok(entries(octets)?.into_iter().map(choice).collect())
}

/// `cs/info`.
pub(super) fn content_store(octets: &[u8]) -> miette::Result<ContentStore> {
    let fields = entries(octets)?.into_iter().next().unwrap_or_default();
    let count = |kind| number(&fields, kind).unwrap_or(0);
    let flags = count(0x6c);
    Ok(ContentStore {
        capacity: count(0x83),
        entries: count(0x87),
        hits: count(0x81),
        misses: count(0x82),
        refused: number(&fields, kinds::CS_REFUSED),
        octets: number(&fields, kinds::CS_OCTETS),
        disk: number(&fields, kinds::CS_DISK_CAPACITY).map(|octets_max| Disk {
            packets: count(kinds::CS_DISK_PACKETS),
            octets: count(kinds::CS_DISK_OCTETS),
            octets_max,
            hits: count(kinds::CS_DISK_HITS),
        }),
        admits: flags & 1 != 0,
        serves: flags & 2 != 0,
    })
}

/// `status/general`.
pub(super) fn status(octets: &[u8]) -> miette::Result<Status> {
    let fields = elements(octets)?;
    let count = |kind| number(&fields, kind).unwrap_or(0);
    Ok(Status {
        version: text(&fields, 0x80),
        uptime_ms: count(0x82).saturating_sub(count(0x81)),
        fib_entries: count(0x84),
        pit_entries: count(0x85),
        cs_entries: count(0x87),
        received: traffic(&fields, [0x90, 0x91, 0x97, 0]),
        sent: traffic(&fields, [0x92, 0x93, 0x98, 0]),
        satisfied: count(0x99),
        unsatisfied: count(0x9a),
        workers: None,
    })
}

/// `status/workers`.
pub(super) fn workers(octets: &[u8]) -> miette::Result<Workers> {
    let mut sharing = Sharing::default();
    for entry in elements(octets)? {
        let fields = elements(entry.value)?;
        let count = |kind| number(&fields, kind).unwrap_or(0);
        match entry.kind {
            kinds::WORKER => sharing.workers.push(WorkerInfo {
                number: count(kinds::WORKER_NUMBER),
                packets: count(kinds::WORKER_PACKETS),
                handed_interests: count(kinds::WORKER_HANDED_INTERESTS),
                handed_data: count(kinds::WORKER_HANDED_DATA),
                handed_nacks: count(kinds::WORKER_HANDED_NACKS),
                pit_entries: count(kinds::WORKER_PIT_ENTRIES),
                pit_max: count(kinds::WORKER_PIT_MAX),
                cs_entries: count(kinds::WORKER_CS_ENTRIES),
                cs_max: count(kinds::WORKER_CS_MAX),
            }),
            kinds::HOT_NAME => sharing.hot.push(HeavyHitterInfo {
                name: find(&fields, types::NAME).map(<[u8]>::to_vec),
                share_ppm: count(kinds::HOT_SHARE),
            }),
            _ => {}
        }
    }
    Ok(Workers::from(&sharing))
}
