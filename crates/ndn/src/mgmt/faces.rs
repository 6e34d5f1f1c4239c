//! Commands of the module `faces`.

use std::sync::Arc;

use kaido_ndn_tables::FaceId;

use super::node::{CreateError, FaceRequest, Node};
use super::parameters::{ControlParameters, ControlResponse};
use crate::face::{
    FLAG_CONGESTION_MARKING, FLAG_LOCAL_FIELDS, FLAG_RELIABILITY, Face, LinkType, MTU_MIN, NotAFaceUri,
    Persistency, Scope,
};

/// The flags there are.
const FLAGS: u64 = (FLAG_LOCAL_FIELDS | FLAG_RELIABILITY | FLAG_CONGESTION_MARKING) as u64;

/// Why a face to many is not reliable.
const NO_RELIABILITY: &str = "reliability is for faces with one at the other end";

/// `faces/create`.
pub(super) fn create(node: &mut impl Node, asked: &ControlParameters) -> ControlResponse {
    let wish = match wish(asked) {
        Ok(wish) => wish,
        Err(text) => return ControlResponse::refusal(400, text),
    };
    if wish.flags & FLAG_RELIABILITY != 0 && wish.remote.is_group() {
        return ControlResponse::refusal(406, NO_RELIABILITY);
    }
    match node.create_face(&wish) {
        Ok(face) => ControlResponse::ok(described(&face)),
        Err(error @ CreateError::Exists(_)) => {
            let text = error.to_string();
            let CreateError::Exists(face) = error else { return ControlResponse::refusal(409, text) };
            ControlResponse { code: 409, text, body: Some(described(&face)) }
        }
        Err(error @ CreateError::Unsupported(_)) => ControlResponse::refusal(406, error.to_string()),
        Err(error @ CreateError::Full) => ControlResponse::refusal(503, error.to_string()),
        Err(error @ CreateError::Failed(_)) => ControlResponse::refusal(504, error.to_string()),
    }
}

/// The face that parameters ask for.
fn wish(asked: &ControlParameters) -> Result<FaceRequest, String> {
    let remote = asked.uri.as_deref().ok_or("the URI of the other end is missing")?;
    let remote = remote.parse().map_err(|error: NotAFaceUri| error.to_string())?;
    let local = asked.local_uri.as_deref().map(str::parse).transpose();
    let local = local.map_err(|error: NotAFaceUri| error.to_string())?;
    let persistency = match asked.face_persistency.map(Persistency::from_code) {
        None => Persistency::Persistent,
        Some(Some(persistency)) if persistency != Persistency::OnDemand => persistency,
        Some(_) => {
            return Err("such a persistency is not asked for: 0 persistent, 2 permanent".into());
        }
    };
    let mtu = asked.mtu.map(mtu).transpose()?;
    Ok(FaceRequest { remote, local, persistency, mtu, flags: flags(asked)?.0 })
}

/// `faces/update`: of the application's own face, if no other is named.
pub(super) fn update(node: &impl Node, asked: &ControlParameters, from: FaceId) -> ControlResponse {
    let id =
        asked.face.filter(|face| *face != 0).map_or(Some(from), |face| u32::try_from(face).ok().map(FaceId));
    let Some(face) = id.and_then(|id| node.faces().get(id)) else {
        return ControlResponse::refusal(404, "there is no such face");
    };
    let changes = mtu_of(asked).and_then(|mtu| Ok((mtu, flags(asked)?, persistency(asked, &face)?)));
    let (mtu, (flags, mask), persistency) = match changes {
        Ok(changes) => changes,
        Err(text) => return ControlResponse { code: 409, text, body: Some(described(&face)) },
    };
    if let Some(why) = refused(flags & mask, &face) {
        return ControlResponse { code: 409, text: why.into(), body: Some(described(&face)) };
    }
    if let Some(mtu) = mtu {
        face.set_mtu(mtu);
    }
    face.set_flags(flags, mask);
    if let Some(persistency) = persistency {
        face.set_persistency(persistency);
    }
    ControlResponse::ok(ControlParameters {
        face: Some(face.id().0.into()),
        face_persistency: Some(face.persistency().code()),
        flags: Some(face.flags().into()),
        mtu: asked.mtu.map(|_| face.mtu() as u64),
        ..ControlParameters::default()
    })
}

/// Why a face may not have flags that it is to have.
fn refused(flags: u8, face: &Face) -> Option<&'static str> {
    if flags & FLAG_LOCAL_FIELDS != 0 && face.scope() != Scope::Local {
        return Some("local fields are for applications of this host");
    }
    (flags & FLAG_RELIABILITY != 0 && face.link_type() == LinkType::MultiAccess).then_some(NO_RELIABILITY)
}

/// `faces/destroy`: a face that is not there is gone as well.
pub(super) fn destroy(node: &mut impl Node, asked: &ControlParameters) -> ControlResponse {
    let Some(number) = asked.face else {
        return ControlResponse::refusal(400, "the number of the face is missing");
    };
    if let Ok(id) = u32::try_from(number) {
        node.destroy_face(FaceId(id));
    }
    ControlResponse::ok(ControlParameters { face: Some(number), ..ControlParameters::default() })
}

fn persistency(asked: &ControlParameters, face: &Face) -> Result<Option<Persistency>, String> {
    let Some(code) = asked.face_persistency else { return Ok(None) };
    let wanted = Persistency::from_code(code)
        .ok_or("there is no such persistency: 0 persistent, 1 on demand, 2 permanent")?;
    let may = wanted == face.persistency() || wanted != Persistency::OnDemand;
    if may { Ok(Some(wanted)) } else { Err("a face does not become one on demand".into()) }
}

fn mtu_of(asked: &ControlParameters) -> Result<Option<u16>, String> {
    asked.mtu.map(mtu).transpose()
}

fn mtu(mtu: u64) -> Result<u16, String> {
    // More than any packet has is as good as no bound.
    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
    if mtu >= MTU_MIN { Ok(mtu) } else { Err(format!("the MTU is below {MTU_MIN}")) }
}

/// Flags, and which of them are meant: both or neither are said.
fn flags(asked: &ControlParameters) -> Result<(u8, u8), String> {
    match (asked.flags, asked.mask) {
        (None, None) => Ok((0, 0)),
        (Some(flags), Some(mask)) if mask & !FLAGS == 0 => {
            // Within the mask of the flags there are.
            Ok((u8::try_from(flags & mask).unwrap_or(0), u8::try_from(mask).unwrap_or(0)))
        }
        (Some(_), Some(_)) => Err("the mask has flags that there are not".into()),
        _ => Err("flags and mask are said together".into()),
    }
}

/// A face as a response describes it.
pub(super) fn described(face: &Arc<Face>) -> ControlParameters {
    ControlParameters {
        face: Some(face.id().0.into()),
        uri: Some(face.remote().to_string()),
        local_uri: Some(face.local().to_string()),
        face_persistency: Some(face.persistency().code()),
        flags: Some(face.flags().into()),
        mtu: Some(face.mtu() as u64),
        ..ControlParameters::default()
    }
}
