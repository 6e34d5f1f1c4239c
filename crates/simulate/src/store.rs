//! The store of the node: a model with the contract of the journal, or [the journal itself](crate::journal).
//!
//! ```text
//!  Recorder ─ flush ─▶ written ─ sync ─▶ durable
//!  a crash of the process loses what is not written, one of the machine any end of what is not durable
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use kaido_store::{Change, Durability, Recorder, changes};

use crate::disk::{Kept, SyncTimer};
use crate::faults::Sabotage;
use crate::journal::JournalStore;
use crate::random::Random;

/// A store in memory.
#[derive(Debug)]
pub(crate) struct ModelStore {
    durability: Durability,
    sabotage: Option<Sabotage>,
    recorder: Recorder,
    /// What is durable.
    kept: Kept,
    /// Batches that are written and not durable, oldest first.
    written: VecDeque<Vec<u8>>,
    /// What could not be written.
    unwritten: Vec<u8>,
    /// The number of the last batch that is durable.
    durable: u64,
    /// The number of the last batch that counts as durable, though it may not be.
    believed: u64,
    sync: SyncTimer,
    /// Nothing can be written.
    pub is_full: bool,
    /// Nothing can be synced.
    pub fails_to_sync: bool,
}

impl ModelStore {
    /// One that has nothing.
    pub(crate) fn new(durability: Durability, sabotage: Option<Sabotage>) -> Self {
        Self {
            durability,
            sabotage,
            recorder: Recorder::on(),
            kept: Kept::new(),
            written: VecDeque::new(),
            unwritten: Vec::new(),
            durable: 0,
            believed: 0,
            sync: SyncTimer::default(),
            is_full: false,
            fails_to_sync: false,
        }
    }

    fn last_written(&self) -> u64 {
        self.durable + self.written.len() as u64
    }

    fn flush(&mut self) -> Result<u64, u64> {
        let mut more = Vec::new();
        self.recorder.take(&mut more);
        self.unwritten.append(&mut more);
        if self.unwritten.is_empty() {
            self.recorder.wrote_all();
            return Ok(self.last_written());
        }
        if self.is_full {
            return Err(self.last_written() + 1);
        }
        self.recorder.wrote_all();
        self.written.push_back(std::mem::take(&mut self.unwritten));
        let number = self.last_written();
        if self.durability == Durability::Process {
            self.bring_to_disk(number);
        }
        Ok(number)
    }

    fn bring_to_disk(&mut self, number: u64) {
        while self.durable < number
            && let Some(batch) = self.written.pop_front()
        {
            self.durable += 1;
            apply(&mut self.kept, &batch, self.sabotage);
        }
    }

    /// What a start reads.
    fn read(&self) -> Kept {
        let mut read = self.kept.clone();
        self.written.iter().for_each(|batch| apply(&mut read, batch, self.sabotage));
        read
    }

    /// Time has passed: a sync ends, and the next begins.
    fn turn(&mut self, now: Duration, random: &mut Random) {
        if let Some(number) = self.sync.ended(now)
            && !self.fails_to_sync
        {
            self.bring_to_disk(number);
        }
        let last = (!self.written.is_empty()).then(|| self.last_written());
        self.sync.begin(now, last, random);
    }

    fn begin_anew(&mut self) {
        // Nobody's recorder of before writes to this one.
        self.recorder = Recorder::on();
        self.unwritten.clear();
        self.sync = SyncTimer::default();
    }
}

/// Makes the changes of a batch.
fn apply(kept: &mut Kept, batch: &[u8], sabotage: Option<Sabotage>) {
    for change in changes(batch).map_while(Result::ok) {
        let is_forgotten = sabotage.is_some_and(|sabotage| sabotage.forgets(&change, kept));
        let Change { kind, key, value } = change;
        match value {
            _ if is_forgotten => {}
            Some(value) => _ = kept.insert((kind, key), value.to_vec()),
            None => _ = kept.remove(&(kind, key)),
        }
    }
}

/// The store of a run.
#[derive(Debug)]
pub(crate) enum Store {
    /// In memory.
    Model(ModelStore),
    /// In files.
    Journal(Box<JournalStore>),
}

impl Store {
    /// What is there at a start of the node, which records from here on.
    ///
    /// # Errors
    /// When the files cannot be used.
    pub(crate) fn open(&mut self) -> Result<(Kept, Recorder), String> {
        match self {
            Self::Model(model) => {
                model.begin_anew();
                Ok((model.read(), model.recorder.clone()))
            }
            Self::Journal(journal) => journal.open(),
        }
    }

    /// Writes what was recorded, and says behind which batch answers are to leave, as `NodeStore::flush` does; `None` if they may
    /// leave now.
    pub(crate) fn flush(&mut self) -> Option<u64> {
        let number = match self {
            Self::Model(model) => model.flush().unwrap_or_else(|next| next),
            Self::Journal(journal) => journal.flush(),
        };
        (!self.is_durable(number)).then_some(number)
    }

    /// The number of the batch that will have what is recorded now.
    pub(crate) fn next_number(&self) -> u64 {
        match self {
            Self::Model(model) => model.last_written() + 1,
            Self::Journal(journal) => journal.next_number(),
        }
    }

    /// Whether what was recorded by a batch is durable.
    pub(crate) fn is_durable(&self, number: u64) -> bool {
        match self {
            Self::Model(model) => model.durable.max(model.believed) >= number,
            Self::Journal(journal) => journal.is_durable(number),
        }
    }

    /// Whether all that was recorded and flushed is durable.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Model(model) => model.written.is_empty() && model.unwritten.is_empty(),
            Self::Journal(journal) => journal.is_settled(),
        }
    }

    /// Time has passed.
    pub(crate) fn turn(&mut self, now: Duration, random: &mut Random) {
        match self {
            Self::Model(model) => model.turn(now, random),
            Self::Journal(journal) => journal.turn(now, random),
        }
    }

    /// The process ends without notice.
    pub(crate) fn crash_process(&mut self) {
        match self {
            Self::Model(model) => {
                // The page cache has it, and whoever opens the store brings it to the disk first.
                match model.sabotage {
                    Some(Sabotage::NoSyncAtStart) => model.believed = model.last_written(),
                    _ => model.bring_to_disk(model.last_written()),
                }
                model.begin_anew();
            }
            Self::Journal(journal) => journal.crash_process(),
        }
    }

    /// The machine ends without notice: says how many of the batches that were not durable are there still.
    ///
    /// # Errors
    /// When the files cannot be changed.
    pub(crate) fn crash_machine(&mut self, random: &mut Random) -> Result<u64, String> {
        let model = match self {
            Self::Model(model) => model,
            Self::Journal(journal) => return journal.crash_machine(random),
        };
        let survive = random.below(model.written.len() as u64 + 1);
        model.bring_to_disk(model.durable + survive);
        // Their numbers are given again.
        model.written.clear();
        model.believed = 0;
        model.begin_anew();
        Ok(survive)
    }

    /// What is kept now, of a store in memory.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        match self {
            Self::Model(model) => Some(&model.kept),
            Self::Journal(_) => None,
        }
    }

    /// The model, to have it fail.
    pub(crate) fn model(&mut self) -> Option<&mut ModelStore> {
        match self {
            Self::Model(model) => Some(model),
            Self::Journal(_) => None,
        }
    }
}
