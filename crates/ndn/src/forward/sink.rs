//! What the forwarding needs of the rest of the node.

use kaido_engine::{DropReason, Frame};

use crate::packet::{Annotations, FaceId};

/// What the forwarding has to know of a face.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaceView {
    /// An application of this host: names under `/localhost` may go there.
    pub is_local: bool,
    /// Many hear what is sent: no Nacks go there.
    pub is_multi_access: bool,
    /// It has asked to be told where packets came from.
    pub local_fields: bool,
}

/// Where packets go.
pub trait Sink {
    /// A face that can send; `None` when there is none of this number, or it is down.
    fn face(&self, face: FaceId) -> Option<FaceView>;

    /// Sends a packet of the network layer, with what is to be said of it.
    fn send(&mut self, face: FaceId, frame: Frame, annotations: &Annotations);

    /// An empty frame.
    fn allocate(&mut self) -> Option<Frame>;

    /// Drops a packet that came from a face.
    fn drop(&mut self, face: FaceId, frame: Frame, reason: DropReason);
}
