//! Rings without a kernel: the four rings of a socket in memory of this process, and their other ends for who plays the kernel. What
//! works the one side of them cannot tell it from a socket's rings, but that nothing asks to be woken.

use crate::ring::{Consumer, Producer};
use crate::rings::RingMapping;
use crate::{CompletionRing, Desc, Error, FillRing, Rings, RxRing, TxRing};

/// The kernel's ends of the rings.
#[derive(Debug)]
pub struct PeerRings {
    /// Empty chunks from the port, to receive into.
    pub fill: Consumer<u64, RingMapping<u64>>,
    /// Sent chunks on their way back to the port.
    pub completion: Producer<u64, RingMapping<u64>>,
    /// Packets on their way to the port.
    pub rx: Producer<Desc, RingMapping<Desc>>,
    /// Packets that the port sends.
    pub tx: Consumer<Desc, RingMapping<Desc>>,
}

impl PeerRings {
    /// Makes empty rings of so many entries, powers of two up to 2²⁴: fill, completion, RX and TX.
    ///
    /// # Errors
    /// [`Error::RingSize`]; [`Error::Sys`] when there is no memory.
    pub fn pair(fill: u32, completion: u32, rx: u32, tx: u32) -> Result<(Rings, Self), Error> {
        Error::check_ring_sizes(fill, completion, rx, tx)?;
        let (fill, completion) = (RingMapping::in_memory(fill)?, RingMapping::in_memory(completion)?);
        let (rx, tx) = (RingMapping::in_memory(rx)?, RingMapping::in_memory(tx)?);
        // SAFETY: rings just made, of which no one else knows: each end of each is made once.
        Ok(unsafe {
            let peer = Self {
                fill: Consumer::new(fill.clone()),
                completion: Producer::new(completion.clone()),
                rx: Producer::new(rx.clone()),
                tx: Consumer::new(tx.clone()),
            };
            let rings = Rings {
                fill: FillRing(Producer::new(fill)),
                completion: CompletionRing(Consumer::new(completion)),
                rx: RxRing(Consumer::new(rx)),
                tx: TxRing { ring: Producer::new(tx), always_wake: false },
            };
            (rings, peer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_end_gives_the_other_takes() {
        let (mut rings, mut peer) = PeerRings::pair(4, 8, 16, 2).unwrap();
        let capacities = (rings.fill.capacity(), rings.completion.capacity(), rings.rx.capacity());
        assert_eq!((capacities, rings.tx.capacity()), ((4, 8, 16), 2));
        let mut chunks = [0; 8];
        for turn in 0..100u64 {
            // SAFETY: numbers, which stand for no memory.
            assert_eq!(unsafe { rings.fill.supply(&[turn; 5]) }, 4, "no more than there is room for");
            assert_eq!((peer.fill.pop(&mut chunks), chunks[3]), (4, turn));
            assert_eq!(peer.rx.push(&[Desc::new(turn, 60)]), 1);
            let mut descs = [Desc::default(); 2];
            assert_eq!((rings.rx.receive(&mut descs), descs[0]), (1, Desc::new(turn, 60)));
            // SAFETY: as above.
            assert_eq!(unsafe { rings.tx.send(&descs) }, 2);
            assert_eq!((rings.tx.free(), peer.tx.pop(&mut descs)), (0, 2));
            assert_eq!(peer.completion.push(&[turn, turn + 1]), 2);
            assert_eq!((rings.completion.reap(&mut chunks), chunks[1]), (2, turn + 1));
        }
        assert!(!rings.fill.needs_wakeup() && !rings.tx.needs_wakeup());
    }

    #[test]
    fn sizes_that_a_socket_would_not_take_are_refused() {
        for sizes in [[3, 4, 4, 4], [4, 0, 4, 4], [4, 4, 1 << 25, 4], [4, 4, 4, 6]] {
            let [fill, completion, rx, tx] = sizes;
            let refused = PeerRings::pair(fill, completion, rx, tx).unwrap_err();
            assert!(matches!(refused, Error::RingSize { .. }), "{refused}");
        }
    }
}
