//! What of a node's state is kept, and changes of it that are yet to be written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postcard::ser_flavors::Flavor;
use serde::Serialize;

/// What a number names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// What the node is to its peers: its Recovery Time Stamp.
    Node = 1,
    /// A PFCP association.
    Peer = 2,
    /// A session: its rules and what is measured.
    Session = 3,
    /// Which association a session belongs to.
    Binding = 4,
    /// An answer that was given lately.
    Answer = 5,
    /// A request of ours without an answer yet.
    Request = 6,
    /// Packet flow descriptions of an application.
    Pfd = 7,
    /// What a usage counter has counted.
    Usage = 8,
    /// Sessions that a peer has had deleted and that are not yet, and those that came later.
    Selection = 9,
    /// A subscription of an event exposure consumer.
    Subscription = 10,
    /// What such a consumer was told.
    Baseline = 11,
    /// What a session has carried beside what its counters say, while a consumer subscribes.
    Offset = 12,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Node,
        Self::Peer,
        Self::Session,
        Self::Binding,
        Self::Answer,
        Self::Request,
        Self::Pfd,
        Self::Usage,
        Self::Selection,
        Self::Subscription,
        Self::Baseline,
        Self::Offset,
    ];

    /// The kind of that number.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// As `kaido store` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Peer => "peer",
            Self::Session => "session",
            Self::Binding => "binding",
            Self::Answer => "answer",
            Self::Request => "request",
            Self::Pfd => "pfd",
            Self::Usage => "usage",
            Self::Selection => "selection",
            Self::Subscription => "subscription",
            Self::Baseline => "baseline",
            Self::Offset => "offset",
        }
    }
}

/// A change that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'c> {
    /// What its number names.
    pub kind: Kind,
    /// Which of that kind.
    pub key: u64,
    /// What it is now; `None` if it is gone.
    pub value: Option<&'c [u8]>,
}

/// In the octet of a kind: it is gone.
const GONE: u8 = 0x80;
/// Octets before a value.
const HEAD: usize = 13;

/// Takes down changes until they are written. Clones record into the same batch. By default it takes down nothing.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Option<Arc<Records>>);

#[derive(Debug, Default)]
struct Records {
    batch: Mutex<Vec<u8>>,
    /// How often a batch was taken out, and how often that was when all of them were written.
    taken: AtomicU64,
    written: AtomicU64,
}

/// A moment between two changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64);

impl Recorder {
    /// One that takes down changes.
    pub fn on() -> Self {
        Self(Some(Arc::default()))
    }

    /// Whether changes are taken down.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records what something is now: `write` appends its octets, 4 GiB at most.
    #[inline]
    pub fn put(&self, kind: Kind, key: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(mut batch) = self.batch() else { return };
        let begins = batch.len();
        head(&mut batch, kind as u8, key);
        write(&mut batch);
        let len = u32::try_from(batch.len() - begins - HEAD).unwrap_or(u32::MAX);
        batch[begins + HEAD - 4..begins + HEAD].copy_from_slice(&len.to_le_bytes());
    }

    /// As [`Recorder::put`], of a value as `postcard` writes it.
    pub fn put_value(&self, kind: Kind, key: u64, value: &impl Serialize) {
        self.put(kind, key, |record| {
            let begins = record.len();
            if let Err(error) = append(record, value) {
                // What is in memory can be written there.
                tracing::error!(%error, kind = kind.name(), key, "a record could not be made");
                record.truncate(begins);
            }
        });
    }

    /// Records that something is gone.
    pub fn remove(&self, kind: Kind, key: u64) {
        if let Some(mut batch) = self.batch() {
            head(&mut batch, kind as u8 | GONE, key);
        }
    }

    /// Takes what was recorded out of it, into room that is empty.
    pub fn take(&self, room: &mut Vec<u8>) {
        if let Some(records) = &self.0
            && let Some(mut batch) = self.batch()
        {
            std::mem::swap(&mut *batch, room);
            records.taken.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All that was taken out of it is written: it outlives the process.
    pub fn wrote_all(&self) {
        if let Some(records) = &self.0 {
            records.written.store(records.taken.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// This moment.
    pub fn moment(&self) -> Moment {
        Moment(self.0.as_ref().map_or(0, |records| records.taken.load(Ordering::Relaxed) + 1))
    }

    /// Whether all that was recorded before a moment outlives the process, or nothing does.
    pub fn is_written(&self, moment: Moment) -> bool {
        self.0.as_ref().is_none_or(|records| records.written.load(Ordering::Relaxed) >= moment.0)
    }

    fn batch(&self) -> Option<MutexGuard<'_, Vec<u8>>> {
        // Octets are whole between two calls, whoever panicked.
        self.0.as_ref().map(|records| records.batch.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Appends a value as `postcard` writes it.
///
/// # Errors
/// Of a value that cannot be written, of which a part is there then.
pub fn append(octets: &mut Vec<u8>, value: &impl Serialize) -> postcard::Result<()> {
    postcard::serialize_with_flavor(value, Room(octets))
}

/// Octets that are written to room that is there.
struct Room<'r>(&'r mut Vec<u8>);

impl Flavor for Room<'_> {
    type Output = ();

    fn try_push(&mut self, octet: u8) -> postcard::Result<()> {
        self.0.push(octet);
        Ok(())
    }

    fn try_extend(&mut self, octets: &[u8]) -> postcard::Result<()> {
        match *octets {
            // Most numbers.
            [only] => self.0.push(only),
            _ => self.0.extend_from_slice(octets),
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

fn head(batch: &mut Vec<u8>, kind: u8, key: u64) {
    let mut head = [0; HEAD];
    head[0] = kind;
    head[1..9].copy_from_slice(&key.to_le_bytes());
    batch.extend_from_slice(&head);
}

/// Octets that are no changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("octets that are no change, or one of a kind that a later version of the program has")]
pub struct Malformed;

/// The changes of a batch, in their order, up to what is none.
pub fn changes(mut batch: &[u8]) -> impl Iterator<Item = Result<Change<'_>, Malformed>> {
    std::iter::from_fn(move || {
        if batch.is_empty() {
            return None;
        }
        let (change, rest) = first(batch).unwrap_or((Err(Malformed), &[]));
        batch = rest;
        Some(change)
    })
}

fn first(batch: &[u8]) -> Option<(Result<Change<'_>, Malformed>, &[u8])> {
    let (head, rest) = batch.split_first_chunk::<HEAD>()?;
    let (&[mark], key, len) =
        (head.first_chunk::<1>()?, head[1..9].try_into().ok()?, head[9..].try_into().ok()?);
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(len) as usize)?;
    let kind = Kind::of(mark & !GONE)?;
    let change = Change { kind, key: u64::from_le_bytes(key), value: (mark & GONE == 0).then_some(value) };
    Some((Ok(change), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_read() {
        let recorder = Recorder::on();
        let other = recorder.clone();
        recorder.put(Kind::Session, u64::MAX, |octets| octets.extend_from_slice(b"abc"));
        other.remove(Kind::Peer, 7);
        other.put(Kind::Usage, 0, |_| {});
        let mut batch = Vec::new();
        recorder.take(&mut batch);
        let read: Vec<_> = changes(&batch).map(Result::unwrap).collect();
        let expected = [
            Change { kind: Kind::Session, key: u64::MAX, value: Some(&b"abc"[..]) },
            Change { kind: Kind::Peer, key: 7, value: None },
            Change { kind: Kind::Usage, key: 0, value: Some(&[][..]) },
        ];
        assert_eq!(read, expected);
        let cut: Vec<_> = changes(&batch[..batch.len() - 1]).collect();
        assert_eq!(cut, [Ok(expected[0]), Ok(expected[1]), Err(Malformed)]);
        let unknown = [&[99][..], &[0; 12]].concat();
        assert_eq!(changes(&unknown).collect::<Vec<_>>(), [Err(Malformed)]);
        batch.clear();
        recorder.take(&mut batch);
        assert!(batch.is_empty(), "taken already");
    }

    #[test]
    fn what_is_written_is_known_by_its_moment() {
        let recorder = Recorder::on();
        recorder.remove(Kind::Peer, 7);
        let first = recorder.moment();
        let (mut batch, mut next) = (Vec::new(), Vec::new());
        recorder.take(&mut batch);
        let second = recorder.moment();
        assert!(!recorder.is_written(first));
        recorder.wrote_all();
        assert!(recorder.is_written(first) && !recorder.is_written(second));
        recorder.take(&mut next);
        recorder.wrote_all();
        assert!(recorder.is_written(second));
        let off = Recorder::default();
        assert!(off.is_written(off.moment()), "nothing is to wait for");
    }

    #[test]
    fn a_value_is_recorded_as_postcard_writes_it() {
        let (recorder, mut batch) = (Recorder::on(), Vec::new());
        assert!(recorder.is_on());
        recorder.put_value(Kind::Pfd, 3, &(300u16, "text"));
        recorder.take(&mut batch);
        let read: Vec<_> = changes(&batch).map(Result::unwrap).collect();
        let octets = postcard::to_allocvec(&(300u16, "text")).unwrap();
        assert_eq!(read, [Change { kind: Kind::Pfd, key: 3, value: Some(&octets[..]) }]);
    }

    #[test]
    fn nothing_is_recorded_where_nothing_is_kept() {
        let recorder = Recorder::default();
        recorder.put(Kind::Node, 1, |_| panic!("nobody reads it"));
        recorder.remove(Kind::Node, 1);
        assert!(!recorder.is_on());
    }
}
