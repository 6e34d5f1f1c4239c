//! What management needs of the node: the tables that it writes, and what only others can do.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kaido_ndn_tables::{FaceId, Fib};

use crate::face::{Face, FaceUri, Faces, Persistency};

/// A face that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceRequest {
    /// The other end.
    pub remote: FaceUri,
    /// This end, if it matters.
    pub local: Option<FaceUri>,
    /// When it goes.
    pub persistency: Persistency,
    /// Octets of a packet of the link, at most, if not as many as its kind carries.
    pub mtu: Option<u16>,
    /// `FLAG_...`.
    pub flags: u8,
}

/// Why a face is not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// There is one to the same other end.
    #[error("there is a face to it already")]
    Exists(Arc<Face>),
    /// Faces of this kind are not made on command, or not with this persistency.
    #[error("{0}")]
    Unsupported(&'static str),
    /// There are as many as may be.
    #[error("there are as many faces as may be")]
    Full,
    /// The system does not make it.
    #[error("{0}")]
    Failed(String),
}

/// The Content Store, all workers' parts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsInfo {
    /// Packets it may hold.
    pub capacity: u64,
    /// Whether it takes Data in.
    pub admits: bool,
    /// Whether it answers Interests.
    pub serves: bool,
    /// Packets it holds.
    pub entries: u64,
    /// Interests that it has answered.
    pub hits: u64,
    /// Interests that it was asked in vain.
    pub misses: u64,
    /// Data that were not asked for often enough to be kept.
    pub refused: u64,
    /// Octets of memory in use.
    pub octets: u64,
    /// Its tier on disk, if there is one.
    pub disk: Option<DiskInfo>,
}

/// The tier on disk of a Content Store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskInfo {
    /// Packets that can be found there.
    pub packets: u64,
    /// Octets that they take.
    pub octets: u64,
    /// Octets that there may be.
    pub octets_max: u64,
    /// Interests that were answered from there.
    pub answered: u64,
}

/// What is to be changed of the Content Store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsUpdate {
    /// Packets it may hold.
    pub capacity: Option<u64>,
    /// Whether it takes Data in.
    pub admits: Option<bool>,
    /// Whether it answers Interests.
    pub serves: Option<bool>,
}

/// What has come of an erasure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErasureResult {
    /// Data that were erased. Where all of a prefix is erased on disk, what is there is not counted.
    pub count: u64,
    /// There may be more that was asked for.
    pub has_more: bool,
}

/// What the forwarder has done, all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Interests that wait for Data.
    pub pit_entries: u64,
    /// Prefixes with measurements.
    pub measurements: u64,
    /// Interests that Data came for.
    pub satisfied: u64,
    /// Interests that none came for.
    pub unsatisfied: u64,
}

/// A worker of the forwarder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Its number.
    pub number: u64,
    /// Packets that it has forwarded or answered, whoever had received them.
    pub packets: u64,
    /// Interests that it received and handed to other workers.
    pub handed_interests: u64,
    /// Data that it received and handed to other workers.
    pub handed_data: u64,
    /// Nacks that it received and handed to other workers.
    pub handed_nacks: u64,
    /// Interests that wait with it.
    pub pit_entries: u64,
    /// Interests that may.
    pub pit_max: u64,
    /// Data that it has cached.
    pub cs_entries: u64,
    /// Data that it may.
    pub cs_max: u64,
}

/// A name that is asked for so often that its Interests are spread over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeavyHitterInfo {
    /// Its components, the first ones of a long name; `None` while it is known by its hash alone.
    pub name: Option<Vec<u8>>,
    /// Its share of all Interests, in parts of a million.
    pub share_ppm: u64,
}

/// How the workers share the names. A worker that has no time to say how it is, is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// The workers.
    pub workers: Vec<WorkerInfo>,
    /// The names that are hot now, the most popular first.
    pub hot: Vec<HeavyHitterInfo>,
}

/// The node.
pub trait Node {
    /// Its faces.
    fn faces(&self) -> &Faces;

    /// Its next hops.
    fn fib(&self) -> &Fib;

    /// Makes a face.
    ///
    /// # Errors
    /// [`CreateError`].
    fn create_face(&mut self, wish: &FaceRequest) -> Result<Arc<Face>, CreateError>;

    /// Where it listens.
    fn channels(&self) -> Vec<FaceUri>;

    /// Removes a face, if there is one of this number.
    fn destroy_face(&mut self, id: FaceId);

    /// The prefixes that have a strategy of their own, and the strategies' names: components of both.
    fn strategies(&self) -> Vec<(Vec<u8>, Vec<u8>)>;

    /// Gives a prefix a strategy, by the components of its name, with a version or without; the name with its version.
    ///
    /// # Errors
    /// When there is no such strategy, or no entry can be made for the prefix: why.
    fn set_strategy(&mut self, prefix: &[u8], strategy: &[u8]) -> Result<Vec<u8>, String>;

    /// Gives a prefix the strategy of the shorter one again.
    fn unset_strategy(&mut self, prefix: &[u8]);

    /// The Content Store.
    fn cs(&self) -> CsInfo;

    /// Changes the Content Store.
    fn configure_cs(&mut self, wish: &CsUpdate);

    /// Erases Data of a prefix, up to `count` of them, or all there are: with one call up to `limit`, and what can be in two seconds
    /// or so. The next call of that prefix goes on where this one has ended, if there is more.
    fn erase_cs(&mut self, prefix: &[u8], count: Option<u64>, limit: u64) -> ErasureResult;

    /// Does what is due from time to time.
    fn tick(&mut self, now: Instant);

    /// What it has done.
    fn totals(&self) -> Totals;

    /// How its workers share the names.
    fn sharing(&self) -> Sharing;

    /// When it began.
    fn began(&self) -> SystemTime;
}
