//! What a record says that holds its action itself.

use super::Record;
use super::exit::{exit_of_number, lan_of_exit, ues_of_number};
use super::fast_path::Flags;
use super::fold::{CELLS_MAX, GUARANTEED, QFI_BITS, THREE_RATES, TWO_RATES};
use crate::action::{Action, BufferBounds, CountScope, Destination, N6Exit, UsageSlots};
use crate::ids::InstanceId;
use crate::lan::LanId;
use crate::qos::{Enforcement, PolicerSlot};
use crate::tunnels::{EncapTemplateId, Tunnel, Tunnels};
use crate::usage::UsageSlot;
use kaido_n4::{ApplyAction, Teid};

/// What packets of a record that holds its action itself move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meters<'r> {
    /// Usage counters.
    pub(crate) usage: &'r [u32],
    /// Policers that packets are held to.
    pub(crate) policers: &'r [u32],
    /// The guaranteed rate.
    pub(crate) guarantee: Option<u32>,
}

impl Record {
    /// The QoS flow that a packet of a folded record must be of, if that matters.
    #[inline(always)]
    pub(crate) fn folded_qfi(&self) -> Option<u8> {
        self.flags.has(Flags::QFI_MATCH | Flags::FAST).then_some(self.buffer_suggested & QFI_BITS)
    }

    /// The counter of dropped packets of a record that holds its action itself, if it has one.
    fn folded_dropped(&self) -> Option<UsageSlot> {
        let at = self.folded_usage().len() + self.folded_rates().len();
        let number = *self.cells.get(at).filter(|_| at < self.cells_max())?;
        (number != 0).then_some(UsageSlot(!number))
    }

    /// The upper half of the UE's /64, where it has one.
    #[inline(always)]
    pub(super) fn upper_half(&self) -> u64 {
        let [.., high, low] = self.cells;
        u64::from(high) << 32 | u64::from(low)
    }

    /// The one counter of a plain record.
    #[inline(always)]
    pub(crate) fn plain_usage(&self) -> UsageSlot {
        UsageSlot(self.cells[0])
    }

    /// Whether routed packets of a record that holds its action itself may leave by a port of that network instance; a port that
    /// is not of N6 has none.
    #[inline(always)]
    pub(crate) fn leaves_by(&self, port: Option<InstanceId>) -> bool {
        port.is_some_and(|InstanceId(own)| self.teid.0 == 0 || self.teid.0 == u32::from(own) + 1)
    }

    /// The [number](exit_number) of what packets leave by, of a record that holds its action itself and leads into no tunnel.
    #[inline(always)]
    pub(crate) fn exit_number(&self) -> u32 {
        self.teid.0
    }

    /// The LAN of a record that holds its action itself, if that leads into one.
    #[inline(always)]
    pub(crate) fn folded_lan(&self) -> Option<LanId> {
        if self.flags.has(Flags::TUNNEL) { None } else { lan_of_exit(self.teid.0) }
    }

    /// The tunnel of a record that holds its action itself, if that leads into one.
    #[inline]
    pub(crate) fn folded_tunnel(&self) -> Option<(EncapTemplateId, Teid)> {
        self.flags.has(Flags::TUNNEL).then_some((EncapTemplateId::of_number(self.encap), self.teid))
    }

    /// The counters of a record that holds its action itself; which of them count before QoS
    /// enforcement matters only where something is dropped.
    #[inline(always)]
    pub(crate) fn folded_usage(&self) -> &[u32] {
        &self.cells[..usize::from(self.cell_bits & 7).min(CELLS_MAX)]
    }

    /// The rates of a record that holds its action itself, the guaranteed one behind the policers.
    #[inline(always)]
    pub(crate) fn folded_rates(&self) -> &[u32] {
        if !self.flags.has(Flags::POLICED) {
            return &[];
        }
        let first = usize::from(self.cell_bits & 7);
        let more = u8::from(self.cell_bits & TWO_RATES != 0);
        let more = more + u8::from(self.has_guarantee() && self.buffer_suggested & THREE_RATES != 0);
        self.cells.get(first..first + 1 + usize::from(more)).unwrap_or_default()
    }

    /// What packets of a record that holds its action itself are counted and metered by.
    #[inline(always)]
    pub(crate) fn folded_meters(&self) -> Meters<'_> {
        let (policers, guarantee) = match self.folded_rates() {
            [policers @ .., guarantee] if self.has_guarantee() => (policers, Some(*guarantee)),
            policers => (policers, None),
        };
        Meters { usage: self.folded_usage(), policers, guarantee }
    }

    #[inline(always)]
    fn has_guarantee(&self) -> bool {
        self.flags.has(Flags::POLICED | Flags::FAST) && self.buffer_suggested & GUARANTEED != 0
    }

    /// Whether a counter of a record that holds its action itself has a quota.
    #[inline(always)]
    pub(crate) fn has_folded_quotas(&self) -> bool {
        self.flags.has(Flags::QUOTAS)
    }

    /// As [`Record::admits`], of a record that holds its action itself.
    #[inline]
    pub(crate) fn admits_ipv4(&self, addr: u32) -> bool {
        (self.flags.has(Flags::UE_IPV4) && self.ue_ipv4 == addr) || self.is_relay()
    }

    /// As [`Record::admits`], of a record that holds its action itself and an address that is not
    /// link-local; `upper` is the upper half of the address.
    #[inline]
    pub(crate) fn admits_ipv6(&self, upper: u64) -> bool {
        (self.flags.has(Flags::UE_IPV6) && self.upper_half() == upper) || self.is_relay()
    }

    /// Whether packets go from tunnel to tunnel in a session that names no UE address: there is nothing to hold sources
    /// against, and nobody routes them here.
    #[inline]
    fn is_relay(&self) -> bool {
        self.flags.0 & (Flags::UE_IPV4 | Flags::UE_IPV6 | Flags::TUNNEL) == Flags::TUNNEL
    }

    pub(super) fn action(&self, tunnels: &Tunnels) -> Action {
        let mut usage = UsageSlots::default();
        for (at, &slot) in self.folded_usage().iter().enumerate() {
            let before_qos = at < 4 && self.cell_bits >> (4 + at) & 1 != 0;
            let what = if before_qos { CountScope::All } else { CountScope::Passed };
            // A record folds fewer counters than there is room for. That one of them has a quota is said of all: one
            // without is never used up.
            let _ = usage.push(UsageSlot(slot), what, self.has_folded_quotas());
        }
        if let Some(dropped) = self.folded_dropped() {
            // As above.
            let _ = usage.push(dropped, CountScope::Dropped, false);
        }
        let mut qos = Enforcement::default();
        let Meters { policers, guarantee, .. } = self.folded_meters();
        for &slot in policers {
            // As above.
            let _ = qos.push(PolicerSlot(slot));
        }
        guarantee.into_iter().for_each(|slot| qos.guarantee(PolicerSlot(slot)));
        let tunnel = self.folded_tunnel().and_then(|(id, teid)| {
            Some(Destination::Tunnel(Tunnel { encap: *tunnels.encap(id)?, id: Some(id), teid }))
        });
        let without =
            if self.flags.has(Flags::NO_TUNNEL) { Destination::NoTunnel } else { Destination::Routed };
        let (exit, other_ues) = match tunnel {
            Some(_) => (N6Exit::Any, None),
            None => (exit_of_number(self.teid.0), ues_of_number(self.encap)),
        };
        Action {
            pdr: self.pdr,
            apply: ApplyAction {
                drop: self.flags.has(Flags::DROP),
                forward: self.flags.has(Flags::FORWARD),
                buffer: self.flags.has(Flags::BUFFER),
                notify_cp: self.flags.has(Flags::NOTIFY_CP),
                ..ApplyAction::default()
            },
            gate_open: self.flags.has(Flags::GATE_OPEN),
            qos,
            destination: tunnel.unwrap_or(without),
            exit,
            other_ues,
            usage,
            buffer: BufferBounds {
                packets: self.flags.has(Flags::BUFFER_SUGGESTED).then_some(self.buffer_suggested.into()),
                time_ms: None,
            },
        }
    }
}
