//! How much a PIT holds.

/// How much a PIT holds.
#[derive(Clone, Copy, Debug)]
pub struct PitSettings {
    /// Interests that can wait.
    pub entries: u32,
    /// Records beyond the first downstream and the first upstream of each, of all entries together.
    pub records: u32,
    /// Pieces of 252 octets of names longer than 128 octets, of all entries together.
    pub name_chunks: u32,
    /// The number of the worker, for its tokens.
    pub worker: u8,
    /// What one host or one application may have of it, in entries. A record beyond the first, and a piece of a long name,
    /// cost as many as there are entries for one of them.
    pub of_account: u32,
    /// What all other hosts together may have: the rest is for applications of this one.
    pub of_hosts: u32,
}

impl PitSettings {
    /// For so many entries: one in two with another downstream or upstream, one in sixteen with a long name. Nobody has a
    /// bound but these.
    pub fn for_entries(entries: u32, worker: u8) -> Self {
        Self {
            entries,
            records: entries / 2 + 256,
            name_chunks: entries / 16 + 256,
            worker,
            of_account: u32::MAX,
            of_hosts: u32::MAX,
        }
    }
}
