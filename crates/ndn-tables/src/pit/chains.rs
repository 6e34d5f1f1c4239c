//! What does not fit beside the first of its kind: chained values from one bounded store.

use kaido_table::{RegionError, Slots};

/// The end of a chain, and an empty one.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    value: T,
    next: u32,
}

/// Chains of values.
#[derive(Debug)]
pub(crate) struct Chains<T> {
    nodes: Slots<Node<T>>,
    free: u32,
}

impl<T: Copy> Chains<T> {
    pub(crate) fn new(values_max: u32) -> Result<Self, RegionError> {
        Ok(Self { nodes: Slots::new(values_max)?, free: NONE })
    }

    /// Puts a value in front of a chain; `false` when the store is full.
    #[must_use]
    pub(crate) fn push(&mut self, chain: &mut u32, value: T) -> bool {
        let node = Node { value, next: *chain };
        if self.free != NONE {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            self.nodes[index as usize] = node;
            *chain = index;
            return true;
        }
        self.nodes.push(node).is_some_and(|index| {
            *chain = index;
            true
        })
    }

    /// The values of a chain, the last that was pushed first.
    pub(crate) fn iter(&self, chain: u32) -> impl Iterator<Item = &T> {
        let mut at = chain;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.next;
            Some(&node.value)
        })
    }

    /// The first value of a chain that fits, to change.
    pub(crate) fn find_mut(&mut self, chain: u32, fits: impl Fn(&T) -> bool) -> Option<&mut T> {
        let mut at = chain;
        while at != NONE && !fits(&self.nodes[at as usize].value) {
            at = self.nodes[at as usize].next;
        }
        self.nodes.get_mut(at as usize).map(|node| &mut node.value)
    }

    /// Frees a chain.
    pub(crate) fn free(&mut self, chain: &mut u32) {
        while *chain != NONE {
            let node = &mut self.nodes[*chain as usize];
            let next = std::mem::replace(&mut node.next, self.free);
            self.free = std::mem::replace(chain, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_share_a_bounded_store() {
        let mut chains = Chains::new(3).unwrap();
        let (mut one, mut other) = (NONE, NONE);
        assert!(chains.push(&mut one, 1) && chains.push(&mut other, 7) && chains.push(&mut one, 2));
        assert!(!chains.push(&mut other, 8));
        assert_eq!(chains.iter(one).copied().collect::<Vec<_>>(), [2, 1]);
        *chains.find_mut(one, |&value| value == 1).unwrap() = 5;
        assert_eq!(chains.find_mut(one, |&value| value == 1), None);
        assert_eq!(chains.iter(one).copied().collect::<Vec<_>>(), [2, 5]);
        chains.free(&mut one);
        assert_eq!(chains.iter(one).count(), 0);
        assert!(chains.push(&mut other, 8) && chains.push(&mut other, 9) && !chains.push(&mut one, 0));
        assert_eq!(chains.iter(other).copied().collect::<Vec<_>>(), [9, 8, 7]);
    }
}
