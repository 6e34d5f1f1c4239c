//! What a running router takes of its file when that is read again: faces, routes and strategies.
//!
//! What differs between the file of before and the one of now is made and taken away, by the management thread between two commands. What
//! commands have made stays.

use std::collections::{BTreeMap, HashMap};

use kaido_ndn_tables::FaceId;
use kaido_node::config::Spanned;
use kaido_node::function::ReloadRefusal;
use kaido_wire::ndn::{Name, name_from_uri};

use super::config::NdnConfig;
use crate::face::{FLAG_RELIABILITY, FaceUri, Persistency};
use crate::forward::StrategyChoice;
use crate::mgmt::{FaceRequest, Manager, Node, Route, origin};

/// Properties of a route of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RouteProperties {
    cost: u64,
    inherit: bool,
    capture: bool,
}

/// What a file says of faces, routes and strategies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileEntries {
    faces: Vec<FaceRequest>,
    /// By prefix and far end. Of two that are the same the last counts.
    routes: BTreeMap<(Vec<u8>, String), RouteProperties>,
    /// By prefix.
    strategies: BTreeMap<Vec<u8>, StrategyChoice>,
}

impl FileEntries {
    pub(super) fn of(config: &NdnConfig) -> Self {
        let ndn = &config.ndn;
        let faces = ndn.faces.iter().map(Spanned::get_ref).map(|face| FaceRequest {
            remote: face.remote.get_ref().0.clone(),
            local: face.local.as_ref().map(|local| local.get_ref().0.clone()),
            persistency: Persistency::Permanent,
            mtu: face.mtu.as_ref().map(|mtu| *mtu.get_ref()),
            flags: if face.reliability { FLAG_RELIABILITY } else { 0 },
        });
        let routes = ndn.routes.iter().map(Spanned::get_ref).map(|route| {
            let key = (route.prefix.0.clone(), route.to.get_ref().0.to_string());
            let (inherit, capture) = (route.inherit, route.capture);
            (key, RouteProperties { cost: route.cost.into(), inherit, capture })
        });
        let strategies = ndn.strategies.iter().map(Spanned::get_ref);
        let strategies = strategies.filter_map(|own| Some((own.prefix.0.clone(), own.choice()?)));
        Self { faces: faces.collect(), routes: routes.collect(), strategies: strategies.collect() }
    }

    fn face(&self, remote: &FaceUri) -> Option<&FaceRequest> {
        self.faces.iter().find(|face| face.remote == *remote)
    }
}

/// What of the file is in force.
#[derive(Debug, Default)]
pub(super) struct InForce {
    entries: FileEntries,
    /// Numbers of its faces, by their far ends.
    faces: HashMap<String, FaceId>,
}

impl InForce {
    /// Why another file cannot take the place of this one; nothing where it can.
    pub(super) fn refusals<N: Node>(&self, next: &FileEntries, manager: &Manager<N>) -> Vec<ReloadRefusal> {
        let mut refusals = Vec::new();
        let mut refuse = |path, why: String| refusals.push(ReloadRefusal { path, why });
        let faces = manager.node().faces();
        let mut new = 0;
        for wish in &next.faces {
            let remote = &wish.remote;
            match self.entries.face(remote) {
                Some(before) if before != wish => {
                    refuse("ndn.face", format!("the face to {remote} was made with what it has"));
                }
                Some(_) => {}
                None if faces.all().iter().any(|face| face.remote() == remote) => {
                    refuse("ndn.face", format!("there is a face to {remote} that is not the file's"));
                }
                None => new += 1,
            }
        }
        // Those that go are there until those that come are made.
        if faces.len() + new > faces.capacity() {
            refuse("ndn.face", format!("there would be more than {} faces", faces.capacity()));
        }
        for (key, properties) in &next.routes {
            let is_new = self.entries.routes.get(key) != Some(properties);
            let face = self.entries.faces.iter().find(|face| face.remote.to_string() == key.1);
            if let Some(FaceRequest { remote, .. }) = face.filter(|_| is_new)
                && self.face(remote, manager).is_none()
            {
                refuse("ndn.route", format!("the face to {remote} was ended by a command"));
            }
        }
        let new = next.routes.keys().filter(|key| !self.entries.routes.contains_key(key)).count();
        let room = manager.rib().0.room();
        if new > room {
            refuse("ndn.route", format!("there is room for {room} routes more"));
        }
        refusals
    }

    /// A face of the file, if no command has ended it.
    fn face<N: Node>(&self, remote: &FaceUri, manager: &Manager<N>) -> Option<FaceId> {
        let id = *self.faces.get(&remote.to_string())?;
        manager.node().faces().get(id).filter(|face| face.remote() == remote).map(|face| face.id())
    }

    /// Has another file take the place of this one: what leads to packets first, so that none is without a way that has one in both.
    ///
    /// # Errors
    /// What could not be made, as one of several. The rest is.
    pub(super) fn take<N: Node>(
        &mut self,
        next: FileEntries,
        manager: &mut Manager<N>,
    ) -> Result<(), Vec<String>> {
        let mut faults = Vec::new();
        for wish in &next.faces {
            let remote = wish.remote.to_string();
            if self.entries.face(&wish.remote).is_none() {
                match manager.node_mut().create_face(wish) {
                    Ok(made) => {
                        self.faces.insert(remote, made.id());
                    }
                    Err(error) => faults.push(format!("ndn.face: {remote}: {error}")),
                }
            }
        }
        for (prefix, choice) in &next.strategies {
            if self.entries.strategies.get(prefix) != Some(choice)
                && let Err(why) = set_strategy(manager.node_mut(), prefix, *choice)
            {
                faults.push(format!("ndn.strategy: {}: {why}", Name::new(prefix).unwrap_or_default()));
            }
        }
        for (key, properties) in &next.routes {
            if self.entries.routes.get(key) != Some(properties)
                && let Err(why) = self.register(key, *properties, manager)
            {
                faults.push(why);
            }
        }
        let gone = |key: &&(Vec<u8>, String)| !next.routes.contains_key(*key);
        for (prefix, to) in self.entries.routes.keys().filter(gone) {
            if let (Ok(prefix), Some(&face)) = (Name::new(prefix), self.faces.get(to)) {
                let (mut rib, node) = manager.rib();
                rib.unregister(prefix, face, origin::STATIC, &mut node.fib());
            }
        }
        for prefix in self.entries.strategies.keys().filter(|prefix| !next.strategies.contains_key(*prefix)) {
            if !prefix.is_empty() {
                manager.node_mut().unset_strategy(prefix);
            } else if let Err(why) = set_strategy(manager.node_mut(), prefix, StrategyChoice::default()) {
                // The root always has one.
                faults.push(format!("ndn.strategy: /: {why}"));
            }
        }
        for wish in self.entries.faces.iter().filter(|wish| next.face(&wish.remote).is_none()) {
            let face = self.face(&wish.remote, manager);
            self.faces.remove(&wish.remote.to_string());
            if let Some(face) = face {
                manager.node_mut().destroy_face(face);
            }
        }
        self.entries = next;
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn register<N: Node>(
        &self,
        (prefix, to): &(Vec<u8>, String),
        properties: RouteProperties,
        manager: &Manager<N>,
    ) -> Result<(), String> {
        let RouteProperties { cost, inherit, capture } = properties;
        let face = *self.faces.get(to).ok_or_else(|| format!("ndn.route: no face leads to {to}"))?;
        let route =
            Route { face, origin: origin::STATIC, cost, child_inherit: inherit, capture, expires: None };
        let prefix = Name::new(prefix).unwrap_or_default();
        let (mut rib, node) = manager.rib();
        rib.register(prefix, route, &mut node.fib()).map_err(|error| format!("ndn.route: {prefix}: {error}"))
    }
}

fn set_strategy(node: &mut impl Node, prefix: &[u8], choice: StrategyChoice) -> Result<(), String> {
    let name = name_from_uri(&format!("/localhost/nfd/strategy/{choice}"));
    let name = name.map_err(|error| error.to_string())?;
    node.set_strategy(prefix, &name).map(drop)
}
