//! The snapshot: one SQLite database with the last value of everything, up to a batch.
//!
//! Each row has a checksum, and each kind the number of its rows and the sum of their checksums. So a row that is
//! changed, missing, or old is seen when all are read, which each start does. So have the numbers of the store and of
//! the batch.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Statement, Transaction, params};

use crate::change::{Kind, changes};
use crate::error::StoreError;
use crate::place::{Durability, FORMAT, remove_if_there};
use crate::segment::Segment;

/// `KAID`, by which `file` and SQLite know whose database it is.
const APPLICATION_ID: i32 = 0x4b41_4944;
/// Values that are put in before others may have the CPU, who wait for it: a scheduler may leave the control loop waiting for some
/// milliseconds, and has this thread wait as long for each time where CPUs are short.
const AT_ONCE: usize = 64;
/// Values in one transaction, and pages of the database's own log (4 MiB) before they are moved into it: what is brought to the disk
/// at once is waited for by the journal, and so by answers.
const TRANSACTION_MAX: usize = 1024;
const CHECKPOINT_PAGES: u32 = 1024;
/// KiB of pages kept in memory.
const CACHE_KIB: i32 = 16 << 10;

/// Octets of a page.
pub(crate) const PAGE: usize = 4096;
/// The pages from which the tables of the schema go, in its order.
pub(crate) const ROOT_OF_STORE: u32 = 2;
pub(crate) const ROOT_OF_STATE: u32 = 3;
pub(crate) const ROOT_OF_TOTAL: u32 = 4;

const SCHEMA: &str = "
    CREATE TABLE store (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE state (
        kind INTEGER NOT NULL, key INTEGER NOT NULL, value BLOB NOT NULL, sum INTEGER NOT NULL,
        PRIMARY KEY (kind, key)
    ) WITHOUT ROWID;
    CREATE TABLE total (kind INTEGER PRIMARY KEY, entries INTEGER NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
";

/// What a number of a kind has from now on: nothing where it is removed.
type Value<'a> = ((Kind, u64), Option<&'a [u8]>);

/// Whose snapshot it is, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) store: u64,
    /// The last batch whose changes are in it.
    pub(crate) folded: u64,
}

impl Identity {
    pub(crate) fn checksum(self) -> u64 {
        crc32c::crc32c_append(crc32c::crc32c(&self.store.to_le_bytes()), &self.folded.to_le_bytes()).into()
    }
}

/// All numbers that a row may have.
pub(crate) const EVERY_KEY: RangeInclusive<u64> = 0..=u64::MAX;

/// The rows of a kind, and the sum of their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) entries: i64,
    pub(crate) sum: i64,
}

impl Total {
    pub(crate) fn add(&mut self, sum: i64) {
        (self.entries, self.sum) = (self.entries + 1, self.sum.wrapping_add(sum));
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self { entries: self.entries + other.entries, sum: self.sum.wrapping_add(other.sum) }
    }

    fn subtract(&mut self, sum: i64) {
        (self.entries, self.sum) = (self.entries - 1, self.sum.wrapping_sub(sum));
    }
}

/// A row as it lies in the database.
#[derive(Debug)]
pub(crate) struct Row<'v> {
    pub(crate) kind: i64,
    pub(crate) key: u64,
    pub(crate) value: &'v [u8],
    pub(crate) sum: i64,
}

impl Row<'_> {
    pub(crate) fn is_sound(&self) -> bool {
        self.sum == checksum(self.kind, self.key, self.value)
    }
}

/// The database.
#[derive(Debug)]
pub(crate) struct Snapshot {
    connection: Connection,
    path: PathBuf,
}

/// The checksum of a row. What another kind or number has is no row of this one.
pub(crate) fn checksum(kind: i64, key: u64, value: &[u8]) -> i64 {
    let of_name = crc32c::crc32c_append(crc32c::crc32c(&kind.to_le_bytes()), &key.to_le_bytes());
    // Sums of 32 bits, of which 2^31 can be added up.
    i64::from(crc32c::crc32c_append(of_name, value))
}

impl Snapshot {
    /// Makes an empty one for a store.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn create(path: &Path, store: u64, durability: Durability) -> Result<Self, StoreError> {
        let snapshot =
            Self::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        snapshot.try_sqlite(|connection| connection.pragma_update(None, "page_size", PAGE as i64))?;
        snapshot.prepare(durability)?;
        snapshot.try_sqlite(|connection| {
            let transaction = connection.unchecked_transaction()?;
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", FORMAT)?;
            set(&transaction, Identity { store, folded: 0 })?;
            transaction.commit()
        })?;
        Ok(snapshot)
    }

    /// Opens one that is there.
    ///
    /// # Errors
    /// When it cannot be read, is no snapshot, or of another format.
    pub(crate) fn open(path: &Path, durability: Durability) -> Result<Self, StoreError> {
        let snapshot = Self::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        snapshot.verify()?;
        snapshot.prepare(durability)?;
        Ok(snapshot)
    }

    /// Opens one to look at. Nothing is written: its own log is read beside it.
    ///
    /// # Errors
    /// As [`Snapshot::open`].
    pub(crate) fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Snapshot { path: path.to_owned(), source };
        let file = fs::metadata(path).map_err(StoreError::file(path, "read"))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // Of a database without pages SQLite removes the log.
        let has_log = file.len() > 0 && fs::metadata(log_of(path)).is_ok_and(|log| log.len() > 0);
        let connection = if has_log {
            // An index of the log is in memory only where SQLite has the database for itself, for which it asks for a lock
            // that a file opened for reading cannot have; the lock of the store stands for it.
            let connection = Connection::open_with_flags_and_vfs(path, flags, "unix-none").map_err(failed)?;
            connection
                .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
                .and_then(|_| connection.pragma_update(None, "locking_mode", "EXCLUSIVE"))
                .map_err(failed)?;
            connection
        } else {
            let address = address_of(path);
            Connection::open_with_flags(address, flags | OpenFlags::SQLITE_OPEN_URI).map_err(failed)?
        };
        let snapshot = Self { connection, path: path.to_owned() };
        snapshot.verify()?;
        Ok(snapshot)
    }

    /// Says whether it is a snapshot of this format.
    fn verify(&self) -> Result<(), StoreError> {
        let [application, format] = ["application_id", "user_version"].map(|name| {
            self.try_sqlite(|connection| {
                connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0))
            })
        });
        if application? != APPLICATION_ID {
            return Err(self.damaged("it is no snapshot of Kaido's".into()));
        }
        let found = u32::try_from(format?).unwrap_or(0);
        if found != FORMAT {
            return Err(StoreError::Format { path: self.path.clone(), found, known: FORMAT });
        }
        Ok(())
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let connection =
            connection.map_err(|source| StoreError::Snapshot { path: path.to_owned(), source })?;
        Ok(Self { connection, path: path.to_owned() })
    }

    fn prepare(&self, durability: Durability) -> Result<(), StoreError> {
        self.try_sqlite(|connection| {
            // Nobody else opens it, so there is no index of its log in shared memory either.
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            let synchronous = if durability == Durability::Disk { "FULL" } else { "OFF" };
            connection.pragma_update(None, "synchronous", synchronous)?;
            connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
            connection.pragma_update(None, "cache_size", -CACHE_KIB)
        })
    }

    /// Writes all of it to a new file, which goes where the one that is open was.
    ///
    /// # Errors
    /// When it cannot be written; then nothing has changed.
    pub(crate) fn write_anew(&mut self, durability: Durability) -> Result<(), StoreError> {
        let new = self.path.with_extension("new");
        self.checkpoint()?;
        remove_if_there(&new).map_err(StoreError::file(&new, "remove"))?;
        self.try_sqlite(|connection| {
            let address = new.as_os_str().to_str().ok_or(rusqlite::Error::InvalidPath(new.clone()))?;
            connection.execute("VACUUM INTO ?1", [address])?;
            // When it is closed, what is then the log of the other stays.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        })?;
        let synced = File::open(&new).and_then(|file| file.sync_all());
        synced.map_err(StoreError::file(&new, "bring to the disk"))?;
        let log = log_of(&self.path);
        remove_if_there(&log).map_err(StoreError::file(&log, "remove"))?;
        fs::rename(&new, &self.path).map_err(StoreError::file(&self.path, "write the snapshot anew"))?;
        *self = Self::open(&self.path, durability)?;
        // Its log is begun, so that it can be seen whether that stays too.
        self.identity().map(drop)
    }

    /// Moves all of its own log into the database.
    pub(crate) fn checkpoint(&self) -> Result<(), StoreError> {
        self.try_sqlite(|connection| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())))
    }

    /// Moves all of its own log into the database, on the disk.
    pub(crate) fn bring_to_disk(&self) -> Result<(), StoreError> {
        self.try_sqlite(|connection| connection.pragma_update(None, "synchronous", "FULL"))?;
        self.checkpoint()
    }

    /// Which store it is of, and how far it is.
    ///
    /// # Errors
    /// When that is not what was written.
    pub(crate) fn identity(&self) -> Result<Identity, StoreError> {
        let [store, folded, sum] = ["store", "folded", "sum"].map(|name| self.number(name));
        let identity = Identity { store: store?, folded: folded? };
        if sum? != identity.checksum() {
            return Err(self.damaged("its `store` and `folded` have a wrong checksum".into()));
        }
        Ok(identity)
    }

    fn number(&self, name: &str) -> Result<u64, StoreError> {
        let found = self.try_sqlite(|connection| {
            let query = "SELECT value FROM store WHERE name = ?1";
            connection.query_row(query, [name], |row| row.get::<_, i64>(0)).optional()
        })?;
        found.map(i64::cast_unsigned).ok_or_else(|| self.damaged(format!("it has no `{name}`")))
    }

    /// Takes in the batches of a segment beyond those that it has, and says which is the last now.
    ///
    /// # Errors
    /// When a batch is missing between, or the database cannot be written; then nothing has changed.
    pub(crate) fn fold(&mut self, segment: &Segment) -> Result<u64, StoreError> {
        let Identity { folded, .. } = self.identity()?;
        let mut last_values: BTreeMap<(Kind, u64), Option<&[u8]>> = BTreeMap::new();
        let (batches, _) = segment.batches();
        let mut last = folded;
        for batch in batches.into_iter().filter(|batch| batch.number > folded) {
            if batch.number != last + 1 {
                return Err(self.damaged(format!("batch {} is missing behind it", last + 1)));
            }
            for change in changes(batch.changes) {
                let change =
                    change.map_err(|error| self.damaged(format!("batch {}: {error}", batch.number)))?;
                last_values.insert((change.kind, change.key), change.value);
            }
            last = batch.number;
        }
        if last > folded {
            self.apply(last_values, last)?;
        }
        Ok(last)
    }

    /// Puts values in the place of those that are there, some at a time. Where that ends early, it has values that are younger than it
    /// says: those that it lacks, and these once more, are in the journal until all are there.
    pub(crate) fn apply(
        &mut self,
        values: BTreeMap<(Kind, u64), Option<&[u8]>>,
        folded: u64,
    ) -> Result<(), StoreError> {
        let before = self.identity()?;
        let mut values = values.into_iter().peekable();
        loop {
            let some: Vec<_> = values.by_ref().take(TRANSACTION_MAX).collect();
            let are_all = values.peek().is_none();
            let identity = if are_all { Identity { folded, ..before } } else { before };
            let applied = apply(&self.connection, &some, identity);
            applied.map_err(|source| StoreError::Snapshot { path: self.path.clone(), source })?;
            if are_all {
                return Ok(());
            }
        }
    }

    /// Hands every row of a kind with some numbers to `each`, in the order of their numbers; what they add up to, which
    /// [`Snapshot::expect`] is to be told of all.
    ///
    /// # Errors
    /// When a row is damaged, and those of `each`.
    pub(crate) fn read<E: From<StoreError>>(
        &self,
        kind: Kind,
        keys: &RangeInclusive<u64>,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Total, E> {
        let mut total = Total::default();
        let mut before = None;
        self.rows(kind as i64, keys, |row| {
            if before.replace(row.key).is_some_and(|before| before >= row.key) {
                let what = format!("the {} with number {} is out of order", kind.name(), row.key);
                return Err(self.damaged(what).into());
            }
            self.check(kind, &row)?;
            total.add(row.sum);
            each(row.key, row.value)
        })?;
        Ok(total)
    }

    fn check(&self, kind: Kind, row: &Row<'_>) -> Result<(), StoreError> {
        let damaged =
            || self.damaged(format!("the {} with number {} has a wrong checksum", kind.name(), row.key));
        row.is_sound().then_some(()).ok_or_else(damaged)
    }

    /// Finds rows of a kind one by one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn finder(&self, kind: Kind) -> Result<RowFinder<'_>, StoreError> {
        let query = "SELECT value, sum FROM state WHERE kind = ?1 AND key = ?2";
        let statement = self.try_sqlite(|connection| connection.prepare(query))?;
        Ok(RowFinder { snapshot: self, kind, statement })
    }

    /// Whether the rows of a kind that were read are all.
    ///
    /// # Errors
    /// When one is missing.
    pub(crate) fn expect(&self, kind: Kind, total: Total) -> Result<(), StoreError> {
        let expected = self.total(kind)?;
        if total == expected {
            return Ok(());
        }
        let what = format!("it has {} of {} rows of kind {}", total.entries, expected.entries, kind.name());
        Err(self.damaged(what))
    }

    /// The greatest number of a row of a kind, of those below 2^63; 0 where there is none.
    pub(crate) fn last(&self, kind: Kind) -> Result<u64, StoreError> {
        let query = "SELECT max(key) FROM state WHERE kind = ?1";
        let last = self.try_sqlite(|connection| {
            connection.query_row(query, [kind as i64], |row| row.get::<_, Option<i64>>(0))
        });
        Ok(last?.and_then(|last| u64::try_from(last).ok()).unwrap_or(0))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Hands every row of a kind with some numbers to `each`, sound or not.
    pub(crate) fn rows<E: From<StoreError>>(
        &self,
        kind: i64,
        keys: &RangeInclusive<u64>,
        mut each: impl FnMut(Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |source| StoreError::Snapshot { path: self.path.clone(), source };
        // SQLite's numbers have a sign: those from 2^63 on are below zero there.
        let query =
            "SELECT key, value, sum FROM state WHERE kind = ?1 AND key BETWEEN ?2 AND ?3 ORDER BY key";
        for half in [0..=i64::MAX.cast_unsigned(), i64::MIN.cast_unsigned()..=u64::MAX] {
            let (first, last) = (half.start().max(keys.start()), half.end().min(keys.end()));
            if first > last {
                continue;
            }
            let mut statement = self.connection.prepare(query).map_err(failed)?;
            let mut rows =
                statement.query([kind, first.cast_signed(), last.cast_signed()]).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                let read = || {
                    let key = row.get::<_, i64>(0)?.cast_unsigned();
                    Ok(Row { kind, key, value: row.get_ref(1)?.as_blob()?, sum: row.get(2)? })
                };
                each(read().map_err(failed)?)?;
            }
        }
        Ok(())
    }

    /// What SQLite finds wrong with its pages and their order, ten things at most.
    pub(crate) fn structure(&self) -> Result<Vec<String>, StoreError> {
        self.try_sqlite(|connection| {
            let mut statement = connection.prepare("PRAGMA quick_check(10)")?;
            let said = statement.query_map([], |row| row.get::<_, String>(0))?;
            said.filter(|said| said.as_ref().map_or(true, |said| said != "ok")).collect()
        })
    }

    /// Rows of no kind that is known.
    pub(crate) fn unknown_rows(&self) -> Result<i64, StoreError> {
        self.try_sqlite(|connection| {
            let [first, last] = [Kind::ALL.first(), Kind::ALL.last()].map(|kind| kind.map(|kind| *kind as i64));
            let query = "SELECT (SELECT count(*) FROM state WHERE kind < ?1) + (SELECT count(*) FROM state WHERE kind > ?2)";
            connection.query_row(query, params![first, last], |row| row.get(0))
        })
    }

    /// What the rows of a kind are to add up to.
    pub(crate) fn total(&self, kind: Kind) -> Result<Total, StoreError> {
        self.try_sqlite(|connection| total(connection, kind))
    }

    pub(crate) fn damaged(&self, what: String) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), what }
    }

    fn try_sqlite<'s, T>(
        &'s self,
        run: impl FnOnce(&'s Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        run(&self.connection).map_err(|source| StoreError::Snapshot { path: self.path.clone(), source })
    }
}

/// Rows of a kind, found by their numbers.
#[derive(Debug)]
pub(crate) struct RowFinder<'s> {
    snapshot: &'s Snapshot,
    kind: Kind,
    statement: Statement<'s>,
}

impl RowFinder<'_> {
    /// Hands the value of a number to `take`, where it has one.
    ///
    /// # Errors
    /// When the row is damaged, and those of `take`.
    pub(crate) fn find<E: From<StoreError>>(
        &mut self,
        key: u64,
        take: impl FnOnce(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { snapshot, kind, statement } = self;
        let failed = |source| StoreError::Snapshot { path: snapshot.path.clone(), source };
        let mut rows = statement.query([*kind as i64, key.cast_signed()]).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else { return Ok(()) };
        let read =
            || Ok(Row { kind: *kind as i64, key, value: row.get_ref(0)?.as_blob()?, sum: row.get(1)? });
        let row = read().map_err(failed)?;
        snapshot.check(*kind, &row)?;
        take(key, row.value)
    }
}

/// The log that SQLite keeps beside a database.
pub(crate) fn log_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-wal");
    path.into()
}

/// A database's address, which says that nobody changes it.
fn address_of(path: &Path) -> String {
    let mut address = "file:".to_owned();
    for &octet in path.as_os_str().as_bytes() {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                address.push(char::from(octet));
            }
            _ => {
                // A string can always be written to.
                let _ = write!(address, "%{octet:02x}");
            }
        }
    }
    address + "?immutable=1"
}

fn set(transaction: &Transaction<'_>, identity: Identity) -> rusqlite::Result<()> {
    let Identity { store, folded } = identity;
    for (name, value) in [("store", store), ("folded", folded), ("sum", identity.checksum())] {
        let query = "INSERT OR REPLACE INTO store VALUES (?1, ?2)";
        transaction.execute(query, params![name, value.cast_signed()])?;
    }
    Ok(())
}

fn total(connection: &Connection, kind: Kind) -> rusqlite::Result<Total> {
    let query = "SELECT entries, sum FROM total WHERE kind = ?1";
    let read = |row: &rusqlite::Row<'_>| Ok(Total { entries: row.get(0)?, sum: row.get(1)? });
    connection.query_row(query, [kind as i64], read).optional().map(Option::unwrap_or_default)
}

fn apply(connection: &Connection, values: &[Value<'_>], identity: Identity) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    {
        let mut before = transaction.prepare("SELECT sum FROM state WHERE kind = ?1 AND key = ?2")?;
        let mut put = transaction.prepare("INSERT OR REPLACE INTO state VALUES (?1, ?2, ?3, ?4)")?;
        let mut remove = transaction.prepare("DELETE FROM state WHERE kind = ?1 AND key = ?2")?;
        let mut totals: BTreeMap<Kind, Total> = BTreeMap::new();
        for (at, &((kind, key), value)) in values.iter().enumerate() {
            if at % AT_ONCE == 0 {
                std::thread::yield_now();
            }
            let total = match totals.entry(kind) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => entry.insert(total(&transaction, kind)?),
            };
            if let Some(sum) = sum_of(&mut before, kind, key)? {
                total.subtract(sum);
            }
            let number = key.cast_signed();
            match value {
                Some(value) => {
                    let sum = checksum(kind as i64, key, value);
                    put.execute(params![kind as i64, number, value, sum])?;
                    total.add(sum);
                }
                None => {
                    remove.execute(params![kind as i64, number])?;
                }
            }
        }
        for (kind, Total { entries, sum }) in totals {
            let query = "INSERT OR REPLACE INTO total VALUES (?1, ?2, ?3)";
            transaction.execute(query, params![kind as i64, entries, sum])?;
        }
        set(&transaction, identity)?;
    }
    transaction.commit()
}

fn sum_of(before: &mut Statement<'_>, kind: Kind, key: u64) -> rusqlite::Result<Option<i64>> {
    before.query_row(params![kind as i64, key.cast_signed()], |row| row.get(0)).optional()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::place::SNAPSHOT;
    use crate::segment::path_of;
    use crate::{Journal, StoreConfig, StoreError, open};

    /// Opens a store, says what is in it, and waits until all is folded.
    fn begin(folder: &Path) -> (Journal, BTreeMap<u64, Vec<u8>>) {
        let config = StoreConfig { folder: folder.to_owned(), durability: Durability::Process, boot: 1 };
        let (mut journal, recovery) = open(config).unwrap();
        let mut found = BTreeMap::new();
        let read = recovery.read(Kind::Session, |key, value| {
            found.insert(key, value.to_vec());
            Ok::<_, StoreError>(())
        });
        read.unwrap();
        recovery.start(&mut journal, || {}).unwrap();
        while journal.status().segments > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        (journal, found)
    }

    #[test]
    fn what_is_folded_in_part_when_the_process_ends_is_folded_again() {
        let folder = std::env::temp_dir().join(format!("kaido-store-part-{}", std::process::id()));
        let count = 3 * TRANSACTION_MAX as u64;
        let mut all = BTreeMap::new();
        {
            let (mut journal, _) = begin(&folder);
            for key in 0..count {
                journal.recorder().put(Kind::Session, key, |value| value.extend(b"first"));
            }
            journal.flush().unwrap();
        }
        let (mut journal, _) = begin(&folder);
        for key in 0..2 * count {
            if key % 3 == 0 {
                journal.recorder().remove(Kind::Session, key);
            } else {
                journal.recorder().put(Kind::Session, key, |value| value.extend(b"second"));
                all.insert(key, b"second".to_vec());
            }
        }
        journal.flush().unwrap();
        drop(journal);
        {
            let mut snapshot = Snapshot::open(&folder.join(SNAPSHOT), Durability::Process).unwrap();
            let before = snapshot.identity().unwrap();
            let segment = Segment::read(&path_of(&folder, 2), 2, Some(before.store)).unwrap();
            // It ends at a value of the last transaction but one.
            let fails = format!(
                "CREATE TEMP TRIGGER fails BEFORE INSERT ON state WHEN NEW.key = {}
                 BEGIN SELECT RAISE(ABORT, 'no room'); END",
                2 * count - TRANSACTION_MAX as u64 - 1
            );
            snapshot.connection.execute_batch(&fails).unwrap();
            snapshot.fold(&segment).unwrap_err();
            assert_eq!(snapshot.identity().unwrap(), before);
            let of_second = "SELECT count(*) FROM state WHERE value = CAST('second' AS BLOB)";
            let some: i64 = snapshot.connection.query_row(of_second, [], |row| row.get(0)).unwrap();
            let some = usize::try_from(some).unwrap();
            assert!(some > 0 && some < all.len(), "{some} of {}", all.len());
        }
        for _ in 0..2 {
            let (_journal, found) = begin(&folder);
            assert!(found == all, "{} of {}", found.len(), all.len());
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
