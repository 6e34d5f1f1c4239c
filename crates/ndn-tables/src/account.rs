//! Who a pending Interest is counted for.

use crate::FaceId;

/// The account that the waiting Interests of a face are counted in. All faces of another host have one, which is still theirs
/// when their faces are made anew; each face of an application has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account(u16);

/// Accounts of other hosts, and as many of applications; two hosts share one by chance alone, as the hash is keyed.
const EACH: u16 = 4096;

impl Account {
    /// Accounts there are.
    pub const COUNT: usize = 2 * EACH as usize;

    /// That of another host, by a hash of what it is known by.
    #[allow(clippy::cast_possible_truncation)] // Some bits are wanted.
    pub const fn of_host(hash: u64) -> Self {
        Self(hash as u16 % EACH)
    }

    /// That of an application, by the number of its face.
    #[allow(clippy::cast_possible_truncation)] // Some bits are wanted.
    pub const fn of_application(face: FaceId) -> Self {
        Self(EACH + face.0 as u16 % EACH)
    }

    /// Whether it is an application's.
    #[inline]
    pub const fn is_local(self) -> bool {
        self.0 >= EACH
    }

    /// Its place among all.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
