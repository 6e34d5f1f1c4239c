//! Faces, as the tables know them.

/// A face of the node, numbered as in the management protocol: 0 is none, 1 the node itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaceId(pub u32);
