//! Commands of the modules `rib` and `fib`.
//!
//! A next hop that the module `fib` adds is a route that no longer prefix inherits, of an origin of its own. So the RIB is
//! the one place that knows what leads where.

use std::time::{Duration, Instant};

use kaido_ndn_tables::FaceId;
use kaido_wire::ndn::Name;

use super::node::Node;
use super::parameters::{ControlParameters, ControlResponse};
use super::rib::{Rib, RibError, Route, origin};

/// The origin of what the module `fib` adds: none that the RIB protocol knows.
pub(super) const FIB_ORIGIN: u64 = 0xfb1b;

/// `rib/register`: a route to a face, by default to that of the application.
pub(super) fn register(
    rib: &mut Rib,
    node: &impl Node,
    asked: &ControlParameters,
    from: FaceId,
    now: Instant,
) -> ControlResponse {
    let flags = asked.flags.unwrap_or(Route::CHILD_INHERIT);
    let expires = asked.expiration_period.map(|ms| now.checked_add(Duration::from_millis(ms)));
    let route = Route {
        face: face(asked, from),
        origin: asked.origin.unwrap_or(origin::APP),
        cost: asked.cost.unwrap_or(0),
        child_inherit: flags & Route::CHILD_INHERIT != 0,
        capture: flags & Route::CAPTURE != 0,
        expires: expires.flatten(),
    };
    let done = ControlParameters {
        origin: Some(route.origin),
        flags: Some(route.flags()),
        expiration_period: asked.expiration_period,
        ..ControlParameters::default()
    };
    take_in(rib, node, asked, route, done)
}

/// `rib/unregister`.
pub(super) fn unregister(
    rib: &mut Rib,
    node: &impl Node,
    asked: &ControlParameters,
    from: FaceId,
) -> ControlResponse {
    let origin = asked.origin.unwrap_or(origin::APP);
    let done = ControlParameters { origin: Some(origin), ..ControlParameters::default() };
    take_out(rib, node, asked, (face(asked, from), origin), done)
}

/// `fib/add-nexthop`.
pub(super) fn add_next_hop(
    rib: &mut Rib,
    node: &impl Node,
    asked: &ControlParameters,
    from: FaceId,
) -> ControlResponse {
    let route = Route {
        face: face(asked, from),
        origin: FIB_ORIGIN,
        cost: asked.cost.unwrap_or(0),
        child_inherit: false,
        capture: false,
        expires: None,
    };
    take_in(rib, node, asked, route, ControlParameters::default())
}

/// `fib/remove-nexthop`.
pub(super) fn remove_next_hop(
    rib: &mut Rib,
    node: &impl Node,
    asked: &ControlParameters,
    from: FaceId,
) -> ControlResponse {
    take_out(rib, node, asked, (face(asked, from), FIB_ORIGIN), ControlParameters::default())
}

/// The face that is meant: 0 and none are that of the application.
fn face(asked: &ControlParameters, from: FaceId) -> FaceId {
    // A number that no face can have finds none.
    asked.face.filter(|face| *face != 0).map_or(from, |face| FaceId(u32::try_from(face).unwrap_or(0)))
}

fn take_in(
    rib: &mut Rib,
    node: &impl Node,
    asked: &ControlParameters,
    route: Route,
    done: ControlParameters,
) -> ControlResponse {
    let Some(Ok(prefix)) = asked.name.as_deref().map(Name::new) else {
        return ControlResponse::refusal(400, "the prefix is missing");
    };
    if node.faces().get(route.face).is_none() {
        return ControlResponse::refusal(410, "there is no such face");
    }
    match rib.register(prefix, route, &mut node.fib()) {
        Ok(()) => ControlResponse::ok(ControlParameters {
            name: asked.name.clone(),
            face: Some(route.face.0.into()),
            cost: Some(route.cost),
            ..done
        }),
        Err(error @ RibError::Full(_)) => ControlResponse::refusal(503, error.to_string()),
        Err(error @ RibError::Fib(_)) => ControlResponse::refusal(414, error.to_string()),
    }
}

fn take_out(
    rib: &mut Rib,
    node: &impl Node,
    asked: &ControlParameters,
    (face, origin): (FaceId, u64),
    done: ControlParameters,
) -> ControlResponse {
    let Some(Ok(prefix)) = asked.name.as_deref().map(Name::new) else {
        return ControlResponse::refusal(400, "the prefix is missing");
    };
    // What is not there is gone as well.
    rib.unregister(prefix, face, origin, &mut node.fib());
    ControlResponse::ok(ControlParameters { name: asked.name.clone(), face: Some(face.0.into()), ..done })
}
