//! End Markers (TS 29.281 7.3.2): those that come are sent on where the packets before them went.

use arrayvec::ArrayVec;
use kaido_engine::{Frame, Output, PortId};
use kaido_table::Guard;

use super::Worker;
use super::parse::OuterTunnel;
use crate::UpfDrop;
use crate::key::SessionKey;
use crate::record::Rules;
use crate::tunnels::Tunnel;
use kaido_n4::Teid;

/// Tunnels into which one End Marker goes at most: the flows of a tunnel rarely lead to more than one.
const TUNNELS_MAX: usize = 8;

impl Worker {
    /// An End Marker that came: the last packet of a tunnel. If packets of that tunnel go into another (N9, forwarding
    /// between access nodes), it goes there behind them; else it has done its work. Only peers of this node are believed.
    #[cold]
    pub(super) fn end_marker_came(
        &mut self,
        guard: &Guard<'_>,
        outer: &OuterTunnel,
        port: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let node = self.node.clone();
        let key = SessionKey::tunnel(outer.endpoint, Teid(outer.header.teid));
        let record = node.table.get(guard, &key).filter(|_| node.tunnels.leads_to(outer.src));
        let mut tunnels: ArrayVec<Tunnel, TUNNELS_MAX> = ArrayVec::new();
        let mut note = |tunnel: Option<Tunnel>| {
            if let Some(tunnel) = tunnel.filter(|tunnel| !tunnels.contains(tunnel)) {
                // What does not fit any more goes without.
                let _ = tunnels.try_push(tunnel);
            }
        };
        match record.map(|record| record.rules(&node.tunnels)) {
            Some(Rules::One(action)) => note(action.open_tunnel()),
            Some(Rules::Filtered(rules)) => {
                rules.iter().for_each(|rule| note(rule.action(&node.tunnels).open_tunnel()));
            }
            None => {}
        }
        for tunnel in &tunnels {
            self.end_marker(tunnel, out);
        }
        out.drop(port, frame, UpfDrop::END_MARKER);
    }
}
