//! Faces, slot by slot of their table.

use std::sync::Arc;
use std::time::Instant;

use kaido_node::api::Problem;

use super::{Listing, TURN_MAX, Tables, is_over, limit, no_page};
use crate::face::{
    DirectionTotals, FLAG_RELIABILITY, Face, FaceState, FaceTotals, LinkType, Persistency, Scope,
};
use crate::node::api::{ListNdnFaces, NdnFace, NdnFaces, NdnTraffic};

/// Slots that are looked at under the lock of the table, which workers take when it has changed.
const SLOTS_A_TURN: usize = 256;

/// How far a list of faces is.
pub(super) struct FaceListing {
    asked: ListNdnFaces,
    limit: usize,
    /// The next slot.
    at: usize,
    faces: Vec<NdnFace>,
}

impl FaceListing {
    fn admits(&self, face: &Face) -> bool {
        let ListNdnFaces { face: number, remote, .. } = &self.asked;
        number.is_none_or(|number| number == u64::from(face.id().0))
            && remote.as_ref().is_none_or(|text| face.remote().to_string().contains(text))
    }
}

impl Listing for FaceListing {
    type Asked = ListNdnFaces;

    fn begin(asked: ListNdnFaces) -> Result<Self, Problem> {
        let at = asked.from.as_deref().map_or(Ok(0), |from| from.parse().map_err(|_| no_page(from)))?;
        Ok(Self { limit: limit(asked.limit)?, asked, at, faces: Vec::new() })
    }

    fn turn(&mut self, Tables { router, .. }: &Tables<'_>) -> Result<Option<NdnFaces>, Problem> {
        let until = Instant::now() + TURN_MAX;
        let (found, next) = router.faces_from(self.at, SLOTS_A_TURN);
        let whole = |faces: &mut Vec<NdnFace>, next: Option<usize>| NdnFaces {
            total: router.faces(),
            faces: std::mem::take(faces),
            next: next.map(|at| at.to_string()),
        };
        for (looked_at, (slot, face)) in found.iter().enumerate() {
            self.at = *slot;
            if self.faces.len() == self.limit {
                return Ok(Some(whole(&mut self.faces, Some(*slot))));
            }
            if is_over(looked_at, until) {
                return Ok(None);
            }
            if self.admits(face) {
                self.faces.push(shown(face));
            }
        }
        match next {
            Some(at) => {
                self.at = at;
                Ok(None)
            }
            None => Ok(Some(whole(&mut self.faces, None))),
        }
    }
}

fn shown(face: &Arc<Face>) -> NdnFace {
    let FaceTotals { received, sent } = face.totals();
    let word = |word: &str| word.to_owned();
    NdnFace {
        face: face.id().0.into(),
        remote: face.remote().to_string(),
        local: face.local().to_string(),
        state: word(if face.state() == FaceState::Up { "up" } else { "down" }),
        scope: word(if face.scope() == Scope::Local { "local" } else { "non-local" }),
        persistency: word(match face.persistency() {
            Persistency::OnDemand => "on-demand",
            Persistency::Persistent => "persistent",
            Persistency::Permanent => "permanent",
        }),
        link: word(match face.link_type() {
            LinkType::PointToPoint => "point-to-point",
            LinkType::MultiAccess => "multi-access",
        }),
        mtu: face.mtu(),
        reliability: face.flags() & FLAG_RELIABILITY != 0,
        backlog_bytes: face.backlog(),
        received: traffic(received),
        sent: traffic(sent),
    }
}

const fn traffic(DirectionTotals { interests, data, nacks, octets }: DirectionTotals) -> NdnTraffic {
    NdnTraffic { interests, data, nacks, bytes: octets }
}
