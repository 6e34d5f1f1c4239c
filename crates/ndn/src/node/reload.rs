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

/// Faces that were made for a file, by their far ends.
pub(super) type NewFaces = Vec<(String, FaceId)>;

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

    /// Makes the faces that another file has and this one has not, all or none.
    ///
    /// # Errors
    /// Why one of them cannot be made.
    pub(super) fn make_faces(
        &self,
        next: &FileEntries,
        node: &mut impl Node,
    ) -> Result<NewFaces, ReloadRefusal> {
        let mut made = NewFaces::new();
        for wish in next.faces.iter().filter(|wish| self.entries.face(&wish.remote).is_none()) {
            match node.create_face(wish) {
                Ok(face) => made.push((wish.remote.to_string(), face.id())),
                Err(error) => {
                    destroy(&made, node);
                    return Err(ReloadRefusal { path: "ndn.face", why: format!("{}: {error}", wish.remote) });
                }
            }
        }
        Ok(made)
    }

    /// Has another file take the place of this one, whose new faces are made: what leads to packets first, so that none is without a
    /// way that has one in both.
    ///
    /// # Errors
    /// What could not be made, as one of several. The rest is.
    pub(super) fn take<N: Node>(
        &mut self,
        next: FileEntries,
        faces: NewFaces,
        manager: &mut Manager<N>,
    ) -> Result<(), Vec<String>> {
        let mut faults = Vec::new();
        self.faces.extend(faces);
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

/// Takes new faces away again.
pub(super) fn destroy(faces: &NewFaces, node: &mut impl Node) {
    faces.iter().for_each(|&(_, face)| node.destroy_face(face));
}

fn set_strategy(node: &mut impl Node, prefix: &[u8], choice: StrategyChoice) -> Result<(), String> {
    let name = name_from_uri(&format!("/localhost/nfd/strategy/{choice}"));
    let name = name.map_err(|error| error.to_string())?;
    node.set_strategy(prefix, &name).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Instant, SystemTime};

    use kaido_ndn_tables::Fib;

    use super::*;
    use crate::face::{Face, FaceSettings, Faces, LinkType, Scope, Transport};
    use crate::mgmt::{CreateError, CsInfo, CsUpdate, ErasureResult, Sharing, Totals};

    /// A node that makes faces, of one kind.
    struct FaceMaker(Faces);

    impl Node for FaceMaker {
        fn faces(&self) -> &Faces {
            &self.0
        }

        fn create_face(&mut self, wish: &FaceRequest) -> Result<Arc<Face>, CreateError> {
            if !matches!(wish.remote, FaceUri::Udp(_)) {
                return Err(CreateError::Failed("the port has too much to do".to_owned()));
            }
            let settings = FaceSettings {
                remote: wish.remote.clone(),
                local: FaceUri::Internal,
                scope: Scope::NonLocal,
                persistency: wish.persistency,
                link_type: LinkType::PointToPoint,
                mtu: 1500,
                flags: 0,
                transport: Transport::Internal,
            };
            self.0.create(settings).map_err(|_| CreateError::Full)
        }

        fn destroy_face(&mut self, id: FaceId) {
            self.0.destroy(id);
        }

        fn fib(&self) -> &Fib {
            unreachable!("nobody asks")
        }

        fn channels(&self) -> Vec<FaceUri> {
            unreachable!("nobody asks")
        }

        fn strategies(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
            unreachable!("nobody asks")
        }

        fn set_strategy(&mut self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, String> {
            unreachable!("nobody asks")
        }

        fn unset_strategy(&mut self, _: &[u8]) {}

        fn cs(&self) -> CsInfo {
            unreachable!("nobody asks")
        }

        fn configure_cs(&mut self, _: &CsUpdate) {}

        fn erase_cs(&mut self, _: &[u8], _: Option<u64>, _: u64) -> ErasureResult {
            unreachable!("nobody asks")
        }

        fn tick(&mut self, _: Instant) {}

        fn totals(&self) -> Totals {
            unreachable!("nobody asks")
        }

        fn sharing(&self) -> Sharing {
            unreachable!("nobody asks")
        }

        fn began(&self) -> SystemTime {
            unreachable!("nobody asks")
        }
    }

    fn file(remotes: &[&str]) -> FileEntries {
        let faces = remotes.iter().map(|remote| FaceRequest {
            remote: remote.parse().unwrap(),
            local: None,
            persistency: Persistency::Permanent,
            mtu: None,
            flags: 0,
        });
        FileEntries { faces: faces.collect(), ..FileEntries::default() }
    }

    #[test]
    fn where_one_face_cannot_be_made_none_is() {
        let mut node = FaceMaker(Faces::new(8));
        let before = file(&["udp4://192.0.2.1:6363"]);
        let made = InForce::default().make_faces(&before, &mut node).unwrap();
        let in_force = InForce { entries: before, faces: made.into_iter().collect() };
        let all = ["udp4://192.0.2.1:6363", "udp4://192.0.2.2:6363", "tcp4://192.0.2.3:6363"];
        let refused = in_force.make_faces(&file(&all), &mut node).unwrap_err();
        assert_eq!(
            (refused.path, refused.why.as_str()),
            ("ndn.face", "tcp4://192.0.2.3:6363: the port has too much to do")
        );
        let there: Vec<_> = node.0.all().iter().map(|face| face.remote().to_string()).collect();
        assert_eq!(there, [all[0]]);
        // Without it both are, and only the new one is made.
        let made = in_force.make_faces(&file(&all[..2]), &mut node).unwrap();
        assert_eq!(made.iter().map(|(remote, _)| remote.as_str()).collect::<Vec<_>>(), [all[1]]);
        destroy(&made, &mut node);
        assert_eq!(node.0.len(), 1);
    }
}
