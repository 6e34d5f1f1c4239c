//! Faces by Ethernet address.

use kaido_engine::{DropReason, Frame, PortId};
use kaido_ndn_tables::FaceId;
use kaido_wire::ndn::ETHERTYPE;
use kaido_wire::vlan::{self, TAG_LEN};
use kaido_wire::{EtherType, EthernetRepr, MacAddr, VlanRepr};
use std::collections::HashMap;

use super::{Link, PortKind};
use crate::NdnDrop;
use crate::face::{FaceReader, FaceSettings, FaceUri, LinkType, Persistency, Scope, Transport};

/// Octets of an Ethernet header without tags.
const HEADER: usize = 14;

/// A station or a group, as a port sees it.
type Address = (PortId, MacAddr, Option<u16>);

/// The faces of all addresses.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    faces: HashMap<Address, FaceId>,
    seen: u64,
    /// The one that was looked for last: most packets come as the one before.
    last: Option<(Address, FaceId)>,
}

impl Addresses {
    #[inline]
    fn face(&mut self, address: Address) -> Option<FaceId> {
        if let Some((last, id)) = self.last
            && last == address
        {
            return Some(id);
        }
        let id = *self.faces.get(&address)?;
        self.last = Some((address, id));
        Some(id)
    }

    /// Reads the table anew when it has changed; whether it has.
    #[inline]
    pub(super) fn refresh(&mut self, faces: &FaceReader) -> bool {
        let is_new = self.seen != faces.changes();
        if is_new {
            self.read(faces);
        }
        is_new
    }

    #[cold]
    fn read(&mut self, faces: &FaceReader) {
        self.seen = faces.changes();
        self.faces.clear();
        self.last = None;
        for face in faces.iter() {
            if let Transport::Ethernet { port, remote, vlan, .. } = *face.transport() {
                self.faces.insert((port, remote, vlan), face.id());
            }
        }
    }
}

impl Link {
    /// The face that an Ethernet frame belongs to, and the octets of its headers.
    pub(super) fn ethernet_face(
        &mut self,
        port: PortId,
        frame: &Frame,
    ) -> Result<(FaceId, usize), DropReason> {
        let link = vlan::link(frame.data()).map_err(|_| DropReason::ETHERNET_MALFORMED)?;
        if link.ethertype != ETHERTYPE {
            return Err(DropReason::NOT_OURS);
        }
        let Some(PortKind::Ethernet { mac, mtu, on_demand }) = self.settings.ports.get(port.index()).copied()
        else {
            return Err(DropReason::NOT_OURS);
        };
        let vlan = link.vid(0).filter(|vid| *vid != 0);
        let is_group = link.dst.is_multicast();
        if link.tag_count > 1 || !(is_group || link.dst == mac) {
            return Err(DropReason::NOT_OURS);
        }
        let from = if is_group { link.dst } else { link.src };
        let headers = usize::from(link.payload_offset);
        if let Some(id) = self.addresses.face((port, from, vlan)) {
            return Ok((id, headers));
        }
        if !on_demand || is_group || link.src.is_multicast() {
            return Err(NdnDrop::FACE_UNKNOWN);
        }
        let settings = FaceSettings {
            remote: FaceUri::Ether(link.src),
            local: FaceUri::Dev(format!("port{}", port.0)),
            scope: Scope::NonLocal,
            persistency: Persistency::OnDemand,
            link_type: LinkType::PointToPoint,
            mtu,
            flags: 0,
            transport: Transport::Ethernet { port, local: mac, remote: link.src, vlan },
        };
        let face = self.faces.table().find_or_create(settings).map_err(|_| NdnDrop::FACES_FULL)?;
        self.refresh();
        Ok((face.id(), headers))
    }
}

/// Puts an Ethernet header before a packet of the link; the frame comes back when there is no room.
pub(super) fn put_header(
    mut frame: Frame,
    local: MacAddr,
    remote: MacAddr,
    vlan: Option<u16>,
) -> Result<Frame, Frame> {
    let len = HEADER + vlan.map_or(0, |_| TAG_LEN);
    let Some(head) = frame.prepend(len) else { return Err(frame) };
    let (ethernet, tag) = head.split_at_mut(HEADER);
    let ethertype = if vlan.is_some() { EtherType::VLAN } else { ETHERTYPE };
    let mut is_written = EthernetRepr { dst: remote, src: local, ethertype }.emit(ethernet).is_ok();
    if let Some(vid) = vlan {
        let repr = VlanRepr { priority: 0, drop_eligible: false, vid, ethertype: ETHERTYPE };
        is_written &= repr.emit(tag).is_ok();
    }
    if is_written { Ok(frame) } else { Err(frame) }
}
