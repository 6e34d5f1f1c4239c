//! One field of a classifier: a row of bits for each piece of its range.

/// Most pieces of a field. Filters that would cut it into more are told apart by the other fields.
const PIECES_MAX: usize = 1024;

/// Starts of pieces that are counted rather than halved.
const COUNTED_MAX: usize = 16;

/// A number that a packet may have, and what filters ask of it.
pub(super) trait Value: Copy + Ord {
    /// The least of all.
    const MIN: Self;

    /// The next greater, if there is one.
    fn next(self) -> Option<Self>;
}

impl Value for u32 {
    const MIN: Self = 0;

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Value for u128 {
    const MIN: Self = 0;

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

/// The pieces of a field, each from its start to the next one's, and the filters that match there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field<T> {
    starts: Box<[T]>,
    /// A row a piece, and one more for packets that do not have the field.
    rows: Box<[u64]>,
    /// Words a row.
    words: usize,
}

impl<T: Value> Field<T> {
    /// The field of filters, each with the intervals that it asks for, both ends included, or `None` where it asks for
    /// nothing. `None` where no filter asks, or where there would be too many pieces.
    pub(super) fn new(filters: impl Iterator<Item = Option<Vec<(T, T)>>>) -> Option<Self> {
        let filters: Vec<_> = filters.collect();
        if filters.iter().all(Option::is_none) {
            return None;
        }
        let mut starts = vec![T::MIN];
        for &(low, high) in filters.iter().flatten().flatten() {
            starts.push(low);
            starts.extend(high.next());
        }
        starts.sort_unstable();
        starts.dedup();
        if starts.len() > PIECES_MAX {
            return None;
        }
        let words = filters.len().div_ceil(64);
        let mut rows = vec![0; words * (starts.len() + 1)];
        for (at, filter) in filters.iter().enumerate() {
            let bit = 1u64 << (at % 64);
            let Some(ranges) = filter else {
                rows.iter_mut().skip(at / 64).step_by(words).for_each(|word| *word |= bit);
                continue;
            };
            for (low, high) in ranges {
                let from = starts.partition_point(|start| start < low);
                let to = starts.partition_point(|start| start <= high);
                for piece in from..to {
                    rows[piece * words + at / 64] |= bit;
                }
            }
        }
        Some(Self { starts: starts.into(), rows: rows.into(), words })
    }

    /// The filters that match a packet with that value, or without any.
    #[inline]
    pub(super) fn row(&self, value: Option<T>) -> &[u64] {
        let piece = value.map_or(self.starts.len(), |value| self.piece(value));
        &self.rows[piece * self.words..][..self.words]
    }

    /// The piece that a value lies in: halves while there are many, then counts, which asks for no branch.
    #[inline]
    fn piece(&self, value: T) -> usize {
        let (mut before, mut starts) = (0, &*self.starts);
        while starts.len() > COUNTED_MAX {
            let half = starts.len() / 2;
            let (lower, higher) = starts.split_at(half);
            (before, starts) = if higher[0] <= value { (before + half, higher) } else { (before, lower) };
        }
        // The first piece starts at the least value: there is always one.
        let counted: u32 = starts.iter().map(|start| u32::from(*start <= value)).sum();
        (before + counted as usize).saturating_sub(1)
    }

    /// Octets taken.
    pub(super) fn size(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters_at(field: &Field<u32>, value: Option<u32>) -> Vec<usize> {
        let row = field.row(value);
        (0..row.len() * 64).filter(|at| row[at / 64] >> (at % 64) & 1 != 0).collect()
    }

    #[test]
    fn pieces_are_cut_at_both_ends_of_every_interval() {
        let field: Field<u32> = Field::new(
            [Some(vec![(10, 20)]), None, Some(vec![(15, u32::MAX), (0, 0)]), Some(vec![])].into_iter(),
        )
        .unwrap();
        for (value, expected) in [
            (0, &[1, 2][..]),
            (1, &[1]),
            (9, &[1]),
            (10, &[0, 1]),
            (14, &[0, 1]),
            (15, &[0, 1, 2]),
            (20, &[0, 1, 2]),
            (21, &[1, 2]),
            (u32::MAX, &[1, 2]),
        ] {
            assert_eq!(filters_at(&field, Some(value)), expected, "{value}");
        }
        assert_eq!(filters_at(&field, None), [1]);
    }

    #[test]
    fn a_field_that_nobody_asks_for_is_none() {
        assert_eq!(Field::<u32>::new([None, None].into_iter()), None);
        let many = (0..1000u32).map(|at| Some(vec![(at * 4, at * 4 + 1)]));
        assert_eq!(Field::new(many), None, "too many pieces");
    }
}
