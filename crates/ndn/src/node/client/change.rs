//! Commands that change the router.

use kaido_wire::ndn::{Name, name_from_uri};
use miette::miette;

use super::entries::{self, RELIABILITY};
use super::{NameArg, list};
use crate::client::{CommandError, Consumer, command};
use crate::mgmt::{ControlParameters, Module, origin};

/// A route that is asked for.
pub(super) struct RouteRequest {
    pub(super) cost: u64,
    pub(super) inherit: bool,
    pub(super) capture: bool,
    /// In seconds.
    pub(super) expires: Option<u64>,
}

/// What of a face can be changed.
pub(super) struct FaceRequest {
    pub(super) mtu: Option<u64>,
    pub(super) reliability: Option<bool>,
}

impl FaceRequest {
    fn parameters(&self) -> ControlParameters {
        ControlParameters {
            mtu: self.mtu,
            flags: self.reliability.map(|on| if on { RELIABILITY } else { 0 }),
            mask: self.reliability.map(|_| RELIABILITY),
            ..ControlParameters::default()
        }
    }
}

fn refused(error: CommandError) -> miette::Report {
    match error {
        CommandError::Refused(response) if response.code == 403 => miette!(
            help = "commands are obeyed from this host's applications, or with a key that the router knows",
            "the router refuses: {} (403)",
            response.text
        ),
        error => miette!("{error}"),
    }
}

/// `kaido ndn face create`.
pub(super) fn create_face(
    router: &mut Consumer,
    json: bool,
    remote: &str,
    local: Option<&str>,
    permanent: bool,
    wish: &FaceRequest,
) -> miette::Result<()> {
    let asked = ControlParameters {
        uri: Some(remote.to_owned()),
        local_uri: local.map(str::to_owned),
        face_persistency: Some(if permanent { 2 } else { 0 }),
        ..wish.parameters()
    };
    let made = command(router, Module::Faces, "create", &asked).map_err(refused)?;
    let face = made.face.unwrap_or(0);
    if json {
        return list::print(
            &serde_json::json!({ "face": face, "remote": made.uri, "local": made.local_uri }),
        );
    }
    println!("face {face} to {}", made.uri.as_deref().unwrap_or(remote));
    Ok(())
}

/// `kaido ndn face update`.
pub(super) fn update_face(router: &mut Consumer, face: u64, wish: &FaceRequest) -> miette::Result<()> {
    let asked = ControlParameters { face: Some(face), ..wish.parameters() };
    let now = command(router, Module::Faces, "update", &asked).map_err(refused)?;
    let word = if now.flags.unwrap_or(0) & RELIABILITY != 0 { "on" } else { "off" };
    println!("face {face}: reliability {word}");
    Ok(())
}

/// `kaido ndn face destroy`.
pub(super) fn destroy_face(router: &mut Consumer, face: u64) -> miette::Result<()> {
    let asked = ControlParameters { face: Some(face), ..ControlParameters::default() };
    command(router, Module::Faces, "destroy", &asked).map_err(refused)?;
    println!("face {face} is gone");
    Ok(())
}

/// `kaido ndn route add`.
pub(super) fn add_route(
    router: &mut Consumer,
    prefix: &NameArg,
    to: &str,
    wish: &RouteRequest,
) -> miette::Result<()> {
    let face = match find_face(router, to)? {
        Some(face) => face,
        None => {
            let asked = ControlParameters { uri: Some(to.to_owned()), ..ControlParameters::default() };
            let made = command(router, Module::Faces, "create", &asked).map_err(refused)?;
            made.face.ok_or_else(|| miette!("the router made a face and does not say which"))?
        }
    };
    let asked = ControlParameters {
        name: Some(prefix.0.clone()),
        face: Some(face),
        origin: Some(origin::STATIC),
        cost: Some(wish.cost),
        flags: Some(u64::from(wish.inherit) + 2 * u64::from(wish.capture)),
        expiration_period: wish.expires.map(|seconds| seconds.saturating_mul(1000)),
        ..ControlParameters::default()
    };
    command(router, Module::Rib, "register", &asked).map_err(refused)?;
    println!("{} leads to face {face}, cost {}", prefix.name(), wish.cost);
    Ok(())
}

/// `kaido ndn route remove`.
pub(super) fn remove_route(router: &mut Consumer, prefix: &NameArg, to: &str) -> miette::Result<()> {
    let face =
        find_face(router, to)?.ok_or_else(|| miette!("no face leads to {to}: see `kaido ndn face list`"))?;
    let asked = ControlParameters {
        name: Some(prefix.0.clone()),
        face: Some(face),
        origin: Some(origin::STATIC),
        ..ControlParameters::default()
    };
    command(router, Module::Rib, "unregister", &asked).map_err(refused)?;
    println!("{} no longer leads to face {face}", prefix.name());
    Ok(())
}

/// The face of a number, or with this other end.
fn find_face(router: &mut Consumer, to: &str) -> miette::Result<Option<u64>> {
    if let Ok(number) = to.parse() {
        return Ok(Some(number));
    }
    let wanted: crate::face::FaceUri = to.parse().map_err(|error| miette!("{error}"))?;
    let faces = entries::faces(&list::fetch(router, "faces/list")?)?;
    let same = |face: &&entries::Face| {
        face.remote.parse().is_ok_and(|remote: crate::face::FaceUri| remote == wanted)
    };
    Ok(faces.iter().find(same).map(|face| face.face))
}

/// `kaido ndn cs config`.
pub(super) fn configure_cs(
    router: &mut Consumer,
    capacity: Option<u64>,
    admit: Option<bool>,
    serve: Option<bool>,
) -> miette::Result<()> {
    let bit = |on: Option<bool>, bit: u64| on.map_or((0, 0), |on| (u64::from(on) * bit, bit));
    let ((admits, admit_mask), (serves, serve_mask)) = (bit(admit, 1), bit(serve, 2));
    let mask = admit_mask | serve_mask;
    let asked = ControlParameters {
        capacity,
        flags: (mask != 0).then_some(admits | serves),
        mask: (mask != 0).then_some(mask),
        ..ControlParameters::default()
    };
    let now = command(router, Module::Cs, "config", &asked).map_err(refused)?;
    let word = |bit| if now.flags.unwrap_or(0) & bit != 0 { "on" } else { "off" };
    println!("{} packets, admit {}, serve {}", now.capacity.unwrap_or(0), word(1), word(2));
    Ok(())
}

/// `kaido ndn cs erase`: as often as the router says that there may be more.
pub(super) fn erase_cs(router: &mut Consumer, prefix: &NameArg, count: Option<u64>) -> miette::Result<()> {
    let mut erased = 0;
    loop {
        let left = count.map(|count| count - erased);
        let asked =
            ControlParameters { name: Some(prefix.0.clone()), count: left, ..ControlParameters::default() };
        let done = command(router, Module::Cs, "erase", &asked).map_err(refused)?;
        erased += done.count.unwrap_or(0);
        // With a capacity there may be more, though none was found in the time that one command has.
        if done.capacity.is_none() || count.is_some_and(|count| erased >= count) {
            break;
        }
    }
    println!("erased {erased} Data of {}", prefix.name());
    Ok(())
}

/// `kaido ndn strategy set`.
pub(super) fn set_strategy(router: &mut Consumer, prefix: &NameArg, strategy: &str) -> miette::Result<()> {
    let whole = if strategy.starts_with('/') {
        strategy.to_owned()
    } else {
        format!("/localhost/nfd/strategy/{strategy}")
    };
    let name = name_from_uri(&whole).map_err(|_| miette!("{strategy:?} is no name of a strategy"))?;
    let asked = ControlParameters {
        name: Some(prefix.0.clone()),
        strategy: Some(name),
        ..ControlParameters::default()
    };
    let chosen = command(router, Module::StrategyChoice, "set", &asked).map_err(refused)?;
    let chosen = chosen.strategy.unwrap_or_default();
    println!("{} has {}", prefix.name(), Name::new(&chosen).unwrap_or_default());
    Ok(())
}

/// `kaido ndn strategy unset`.
pub(super) fn unset_strategy(router: &mut Consumer, prefix: &NameArg) -> miette::Result<()> {
    let asked = ControlParameters { name: Some(prefix.0.clone()), ..ControlParameters::default() };
    command(router, Module::StrategyChoice, "unset", &asked).map_err(refused)?;
    println!("{} has the strategy of the shorter prefix", prefix.name());
    Ok(())
}
