//! Erasing what lies below a prefix, some packets at a time: a CS of millions is looked through while packets pass.

use super::cs::Cs;

/// How far an erasure has come.
#[derive(Clone, Debug)]
pub struct Erasing {
    prefix: Vec<u8>,
    most: u32,
    erased: u32,
    next: u32,
}

impl Erasing {
    /// The erasure of up to `most` packets whose names have a prefix.
    pub fn new(prefix: Vec<u8>, most: u32) -> Self {
        Self { prefix, most, erased: 0, next: 0 }
    }

    /// Packets that it has erased so far.
    pub fn erased(&self) -> u32 {
        self.erased
    }
}

impl Cs {
    /// Goes on with an erasure, over so many packets at most; whether it has come to its end. What comes in meanwhile may
    /// be erased or not.
    pub fn erase(&mut self, erasing: &mut Erasing, looked_at_max: u32) -> bool {
        let len = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let end = erasing.next.saturating_add(looked_at_max).min(len);
        for number in erasing.next..end {
            if erasing.erased == erasing.most {
                return true;
            }
            let entry = &self.entries[number as usize];
            if entry.is_live
                && usize::from(entry.name_len) >= erasing.prefix.len()
                && self.payloads.is_at(entry.first_block, entry.name_at.into(), &erasing.prefix)
            {
                self.remove(number);
                erasing.erased += 1;
            }
        }
        erasing.next = end;
        end == len
    }
}
