//! What the node says of itself: lists of faces, routes, next hops, strategies, and counters.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kaido_wire::ndn::tlv::{Elements, is_critical};
use kaido_wire::ndn::types;

use super::node::{CsInfo, Node, Sharing};
use super::parameters::{Encoder, ParameterError, kinds};
use super::rib::{Rib, Route};
use super::routes::FIB_ORIGIN;
use crate::face::{
    DirectionTotals, Face, FaceEvent, FaceEventKind, FaceTotals, LinkType, Persistency, Scope,
};

/// An entry of a list.
const ENTRY: u32 = 0x80;
/// A route or a next hop of an entry.
const RECORD: u32 = 0x81;
/// An entry of the list of channels.
const CHANNEL: u32 = 0x82;
const SCHEMA: u32 = 0x83;
const SCOPE: u32 = 0x84;
const LINK_TYPE: u32 = 0x86;
const FACE_QUERY_FILTER: u32 = 0x96;
const FACE_EVENT: u32 = 0xc0;
const FACE_EVENT_KIND: u32 = 0xc1;

/// Bits of the flags of the Content Store.
pub(super) const CS_ADMITS: u64 = 1;
pub(super) const CS_SERVES: u64 = 2;

/// Which faces are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FaceFilter {
    face: Option<u64>,
    schema: Option<String>,
    uri: Option<String>,
    local_uri: Option<String>,
    scope: Option<u64>,
    persistency: Option<u64>,
    link_type: Option<u64>,
}

impl FaceFilter {
    /// Reads a FaceQueryFilter.
    pub(super) fn parse(octets: &[u8]) -> Result<Self, ParameterError> {
        let element = Elements::new(octets).next().ok_or(ParameterError)??;
        if element.kind != FACE_QUERY_FILTER {
            return Err(ParameterError);
        }
        let mut filter = Self::default();
        for element in Elements::new(element.value) {
            let element = element?;
            let text = || String::from_utf8(element.value.to_vec()).map_err(|_| ParameterError);
            match element.kind {
                kinds::FACE_ID => filter.face = Some(element.integer()?),
                SCHEMA => filter.schema = Some(text()?),
                kinds::URI => filter.uri = Some(text()?),
                kinds::LOCAL_URI => filter.local_uri = Some(text()?),
                SCOPE => filter.scope = Some(element.integer()?),
                kinds::FACE_PERSISTENCY => filter.persistency = Some(element.integer()?),
                LINK_TYPE => filter.link_type = Some(element.integer()?),
                kind if is_critical(kind) => return Err(ParameterError),
                _ => {}
            }
        }
        Ok(filter)
    }

    fn admits(&self, face: &Face) -> bool {
        let number = |wanted: Option<u64>, is: u64| wanted.is_none_or(|wanted| wanted == is);
        let text = |wanted: &Option<String>, is: &dyn Fn() -> String| {
            wanted.as_ref().is_none_or(|wanted| *wanted == is())
        };
        number(self.face, face.id().0.into())
            && number(self.scope, face.scope().code())
            && number(self.persistency, face.persistency().code())
            && number(self.link_type, face.link_type().code())
            && text(&self.schema, &|| face.remote().schema().to_owned())
            && text(&self.uri, &|| face.remote().to_string())
            && text(&self.local_uri, &|| face.local().to_string())
    }
}

/// `faces/list` and `faces/query`.
pub(super) fn faces(node: &impl Node, filter: &FaceFilter) -> Vec<u8> {
    let all = node.faces().all();
    list(all.iter().filter(|face| filter.admits(face)), face_status)
}

fn face_status(face: &Arc<Face>, entry: &mut Encoder) {
    face_identity(face, entry);
    entry.number(SCOPE, Some(face.scope().code()));
    entry.number(kinds::FACE_PERSISTENCY, Some(face.persistency().code()));
    entry.number(LINK_TYPE, Some(face.link_type().code()));
    entry.number(kinds::MTU, Some(face.mtu() as u64));
    let FaceTotals { received, sent } = face.totals();
    traffic(received, sent, entry);
    entry.number(0x94, Some(received.octets));
    entry.number(0x95, Some(sent.octets));
    entry.number(kinds::FLAGS, Some(face.flags().into()));
}

fn face_identity(face: &Face, entry: &mut Encoder) {
    entry.number(kinds::FACE_ID, Some(face.id().0.into()));
    entry.text(kinds::URI, Some(&face.remote().to_string()));
    entry.text(kinds::LOCAL_URI, Some(&face.local().to_string()));
}

/// Packets that came in and went out.
fn traffic(received: DirectionTotals, sent: DirectionTotals, entry: &mut Encoder) {
    entry.number(0x90, Some(received.interests));
    entry.number(0x91, Some(received.data));
    entry.number(0x97, Some(received.nacks));
    entry.number(0x92, Some(sent.interests));
    entry.number(0x93, Some(sent.data));
    entry.number(0x98, Some(sent.nacks));
}

/// `faces/channels`.
pub(super) fn channels(node: &impl Node) -> Vec<u8> {
    let mut whole = Encoder::default();
    for channel in node.channels() {
        let mut entry = Encoder::default();
        entry.text(kinds::LOCAL_URI, Some(&channel.to_string()));
        whole.element(CHANNEL, &entry.octets);
    }
    whole.octets
}

/// `fib/list`.
pub(super) fn fib(rib: &Rib) -> Vec<u8> {
    list(rib.entries(), |(prefix, _), entry| {
        entry.element(types::NAME, prefix);
        for hop in rib.hops(prefix) {
            let mut record = Encoder::default();
            record.number(kinds::FACE_ID, Some(hop.face.0.into()));
            record.number(kinds::COST, Some(hop.cost.into()));
            entry.element(RECORD, &record.octets);
        }
    })
}

/// `rib/list`; what the module `fib` added is no route.
pub(super) fn rib(rib: &Rib, now: Instant) -> Vec<u8> {
    let routes = |routes: &[Route]| -> Vec<Route> {
        routes.iter().filter(|route| route.origin != FIB_ORIGIN).copied().collect()
    };
    let entries = rib.entries().map(|(prefix, all)| (prefix, routes(all)));
    list(entries.filter(|(_, routes)| !routes.is_empty()), |(prefix, routes), entry| {
        entry.element(types::NAME, prefix);
        for route in routes {
            let mut record = Encoder::default();
            record.number(kinds::FACE_ID, Some(route.face.0.into()));
            record.number(kinds::ORIGIN, Some(route.origin));
            record.number(kinds::COST, Some(route.cost));
            record.number(kinds::FLAGS, Some(route.flags()));
            let left = route.expires.map(|expires| expires.saturating_duration_since(now).as_millis());
            record.number(kinds::EXPIRATION_PERIOD, left.map(|left| u64::try_from(left).unwrap_or(u64::MAX)));
            entry.element(RECORD, &record.octets);
        }
    })
}

/// `strategy-choice/list`.
pub(super) fn strategies(node: &impl Node) -> Vec<u8> {
    list(node.strategies().into_iter(), |(prefix, strategy), entry| {
        entry.element(types::NAME, &prefix);
        let mut name = Encoder::default();
        name.element(types::NAME, &strategy);
        entry.element(kinds::STRATEGY, &name.octets);
    })
}

/// `cs/info`.
pub(super) fn cs(info: &CsInfo) -> Vec<u8> {
    list(std::iter::once(info), |info, entry| {
        entry.number(kinds::CAPACITY, Some(info.capacity));
        entry.number(kinds::FLAGS, Some(cs_flags(info)));
        entry.number(0x87, Some(info.entries));
        entry.number(0x81, Some(info.hits));
        entry.number(0x82, Some(info.misses));
        entry.number(kinds::CS_REFUSED, Some(info.refused));
        entry.number(kinds::CS_OCTETS, Some(info.octets));
        entry.number(kinds::CS_DISK_PACKETS, info.disk.map(|disk| disk.packets));
        entry.number(kinds::CS_DISK_OCTETS, info.disk.map(|disk| disk.octets));
        entry.number(kinds::CS_DISK_CAPACITY, info.disk.map(|disk| disk.octets_max));
        entry.number(kinds::CS_DISK_HITS, info.disk.map(|disk| disk.answered));
    })
}

/// The flags of the Content Store.
pub(super) fn cs_flags(info: &CsInfo) -> u64 {
    u64::from(info.admits) * CS_ADMITS + u64::from(info.serves) * CS_SERVES
}

/// `status/general`.
pub(super) fn general(node: &impl Node, rib: &Rib, wall: SystemTime) -> Vec<u8> {
    let mut status = Encoder::default();
    let totals = node.totals();
    status.text(0x80, Some(concat!("Kaido ", env!("CARGO_PKG_VERSION"))));
    status.number(0x81, Some(milliseconds(node.began())));
    status.number(0x82, Some(milliseconds(wall)));
    // There is no tree of names: what would be in it is in the FIB, the PIT and the measurements.
    let fib_entries = rib.entries().count() as u64;
    status.number(0x83, Some(fib_entries + totals.pit_entries + totals.measurements));
    status.number(0x84, Some(fib_entries));
    status.number(0x85, Some(totals.pit_entries));
    status.number(0x86, Some(totals.measurements));
    status.number(0x87, Some(node.cs().entries));
    let FaceTotals { mut received, mut sent } = FaceTotals::default();
    for face in node.faces().all() {
        let of_face = face.totals();
        received += of_face.received;
        sent += of_face.sent;
    }
    traffic(received, sent, &mut status);
    status.number(0x99, Some(totals.satisfied));
    status.number(0x9a, Some(totals.unsatisfied));
    status.octets
}

/// `status/workers`, which is our own: how the workers share the names.
pub(super) fn workers(sharing: &Sharing) -> Vec<u8> {
    let mut whole = Encoder::default();
    for worker in &sharing.workers {
        let mut entry = Encoder::default();
        for (kind, value) in [
            (kinds::WORKER_NUMBER, worker.number),
            (kinds::WORKER_PACKETS, worker.packets),
            (kinds::WORKER_HANDED_INTERESTS, worker.handed_interests),
            (kinds::WORKER_HANDED_DATA, worker.handed_data),
            (kinds::WORKER_HANDED_NACKS, worker.handed_nacks),
            (kinds::WORKER_PIT_ENTRIES, worker.pit_entries),
            (kinds::WORKER_PIT_MAX, worker.pit_max),
            (kinds::WORKER_CS_ENTRIES, worker.cs_entries),
            (kinds::WORKER_CS_MAX, worker.cs_max),
        ] {
            entry.number(kind, Some(value));
        }
        whole.element(kinds::WORKER, &entry.octets);
    }
    for hot in &sharing.hot {
        let mut entry = Encoder::default();
        if let Some(name) = &hot.name {
            entry.element(types::NAME, name);
        }
        entry.number(kinds::HOT_SHARE, Some(hot.share_ppm));
        whole.element(kinds::HOT_NAME, &entry.octets);
    }
    whole.octets
}

/// A notification of `faces/events`.
pub(super) fn event(event: &FaceEvent) -> Vec<u8> {
    let kind = match event.kind {
        FaceEventKind::Created => 1,
        FaceEventKind::Destroyed => 2,
        FaceEventKind::Up => 3,
        FaceEventKind::Down => 4,
    };
    let mut fields = Encoder::default();
    fields.number(FACE_EVENT_KIND, Some(kind));
    face_identity(&event.face, &mut fields);
    fields.number(SCOPE, Some(Scope::code(event.face.scope())));
    fields.number(kinds::FACE_PERSISTENCY, Some(Persistency::code(event.face.persistency())));
    fields.number(LINK_TYPE, Some(LinkType::code(event.face.link_type())));
    fields.number(kinds::FLAGS, Some(event.face.flags().into()));
    let mut whole = Encoder::default();
    whole.element(FACE_EVENT, &fields.octets);
    whole.octets
}

/// Milliseconds since 1970.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Entries one after another.
fn list<T>(entries: impl Iterator<Item = T>, mut write: impl FnMut(T, &mut Encoder)) -> Vec<u8> {
    let mut whole = Encoder::default();
    for item in entries {
        let mut entry = Encoder::default();
        write(item, &mut entry);
        whole.element(ENTRY, &entry.octets);
    }
    whole.octets
}
