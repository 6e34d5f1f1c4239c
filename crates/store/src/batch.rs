//! Records that one thread reads and others take, many at a time.

use std::sync::mpsc::SyncSender;

/// Takes a record and its number.
pub type EachRecord<'e, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'e;

/// Records as they were read, one behind the other.
#[derive(Debug, Default)]
pub struct RecordBatch {
    octets: Vec<u8>,
    /// The number of each, and where it ends.
    ends: Vec<(u64, usize)>,
}

impl RecordBatch {
    fn push(&mut self, number: u64, record: &[u8]) {
        self.octets.extend_from_slice(record);
        self.ends.push((number, self.octets.len()));
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Hands all records to `each`.
    ///
    /// # Errors
    /// The first of `each`.
    pub fn each<E>(&self, mut each: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut begin = 0;
        self.ends.iter().try_for_each(|&(number, end)| {
            each(number, &self.octets[std::mem::replace(&mut begin, end)..end])
        })
    }
}

/// Sends all records that `read` hands out, so many in a batch, until nobody takes them.
///
/// # Errors
/// Those of `read`, and `nobody_takes` of the number that was read last. That nobody takes the last batch is none.
pub fn send_batches<E>(
    count: usize,
    read: impl FnOnce(&mut EachRecord<'_, E>) -> Result<(), E>,
    to: &SyncSender<RecordBatch>,
    nobody_takes: impl Fn(u64) -> E,
) -> Result<(), E> {
    let mut batch = RecordBatch::default();
    read(&mut |number, record| {
        batch.push(number, record);
        if batch.len() < count {
            return Ok(());
        }
        to.send(std::mem::take(&mut batch)).map_err(|_| nobody_takes(number))
    })?;
    // What was wrong is said where it is not taken.
    let _ = to.send(batch);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn batches_are_full_but_the_last() {
        let read = |to: &mut EachRecord<'_, u64>| (0..7).try_for_each(|number| to(number, &[7; 2]));
        let (sender, taken) = sync_channel(8);
        send_batches(3, read, &sender, |number| number).unwrap();
        drop(sender);
        let taken: Vec<RecordBatch> = taken.iter().collect();
        assert_eq!(taken.iter().map(RecordBatch::len).collect::<Vec<_>>(), [3, 3, 1]);
        assert!(taken.iter().all(|batch| !batch.is_empty()) && RecordBatch::default().is_empty());
        let (sender, taken) = sync_channel(8);
        drop(taken);
        assert_eq!(send_batches(3, read, &sender, |number| number), Err(2), "nobody takes the first");
    }
}
