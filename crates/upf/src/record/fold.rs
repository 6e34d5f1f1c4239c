//! How a rule is folded into a record.

use std::net::Ipv4Addr;

use super::Record;
use super::exit::{exit_number, ues_number};
use super::fast_path::Flags;
use crate::action::{Action, CountScope, Destination, UsageSlots};
use crate::ids::SessionIndex;
use crate::key::upper_half;
use crate::qos::Enforcement;
use crate::rule::FilteredRule;
use crate::ue::{Direction, UeAddresses};
use kaido_n4::Teid;

/// Usage counters and policers that fold into a record together: free5GC's SMF asks for three counters and two rates.
pub(super) const CELLS_MAX: usize = 5;
/// Those beside the /64 of a UE that has one.
pub(super) const CELLS_BESIDE_IPV6: usize = 3;
/// Rates that fold into a record: the session's and the QoS flow's, and beside them what the flow is guaranteed.
pub(super) const POLICERS_MAX: usize = 2;
/// In [`Record::buffer_suggested`] of what is simply forwarded.
pub(super) const QFI_BITS: u8 = 0x3f;
pub(super) const THREE_RATES: u8 = 1 << 6;
pub(super) const GUARANTEED: u8 = 1 << 7;
/// In [`Record::cell_bits`].
pub(super) const TWO_RATES: u8 = 1 << 3;

impl Record {
    /// The record of the one rule that packets of the fast path can match, if there is no more than one, and whether that is
    /// all that there is to say of the key.
    pub(super) fn fold_of(
        session: SessionIndex,
        direction: Direction,
        ue: UeAddresses,
        rules: &[FilteredRule],
    ) -> (Option<Self>, bool) {
        let mut met = rules.iter().filter(|rule| rule.detection.is_met(direction));
        let (Some(rule), None) = (met.next(), met.next()) else { return (None, false) };
        if !rule.detection.matches_all_but_qfi() || rule.extended.is_some() || !rule.on_quota.is_empty() {
            return (None, false);
        }
        let Some(mut folded) = Self::fold(session, direction, ue, &rule.action) else {
            return (None, false);
        };
        let one_qfi = rule.detection.qfis.filter(|qfis| qfis.is_power_of_two());
        match rule.detection.qfis {
            None => (Some(folded), rules.len() == 1),
            Some(_) if one_qfi.is_none() || !folded.flags.has(Flags::FAST) => (None, false),
            Some(qfis) => {
                folded.flags = folded.flags.with(Flags::QFI_MATCH, true).without(Flags::PLAIN);
                folded.buffer_suggested |= u8::try_from(qfis.trailing_zeros()).unwrap_or(u8::MAX) & QFI_BITS;
                (Some(folded), rules.len() == 1)
            }
        }
    }

    /// A record that holds its one action itself; `None` where that does not fit.
    pub(super) fn fold(
        session: SessionIndex,
        direction: Direction,
        ue: UeAddresses,
        action: &Action,
    ) -> Option<Self> {
        let apply = action.apply;
        if apply.duplicate {
            return None;
        }
        let no_tunnel = action.destination == Destination::NoTunnel;
        let is_fast = action.gate_open && apply.forward && !apply.drop && !apply.buffer && !no_tunnel;
        let flags = Flags(0)
            .with(Flags::UPLINK, direction == Direction::Uplink)
            .with(Flags::DROP, apply.drop)
            .with(Flags::FORWARD, apply.forward)
            .with(Flags::BUFFER, apply.buffer)
            .with(Flags::NOTIFY_CP, apply.notify_cp)
            .with(Flags::GATE_OPEN, action.gate_open)
            .with(Flags::UE_IPV4, ue.ipv4.is_some())
            .with(Flags::UE_IPV6, ue.ipv6.is_some())
            .with(Flags::BUFFER_SUGGESTED, !is_fast && action.buffer.packets.is_some())
            .with(Flags::FAST, is_fast)
            .with(Flags::NO_TUNNEL, no_tunnel);
        let mut record = Self { pdr: action.pdr, ..Self::empty(session, flags) };
        record.ue_ipv4 = ue.ipv4.map_or(0, Ipv4Addr::to_bits);
        if let Some(prefix) = ue.ipv6 {
            if prefix.len != 64 {
                return None;
            }
            record.put_upper_half(upper_half(prefix.addr));
        }
        if let Destination::Tunnel(tunnel) = action.destination {
            record.flags = record.flags.with(Flags::TUNNEL, true);
            (record.encap, record.teid) = (tunnel.id?.number(), tunnel.teid);
        } else {
            (record.encap, record.teid) = (ues_number(action.other_ues)?, Teid(exit_number(action.exit)));
        }
        if action.buffer.time_ms.is_some() || apply.report_buffered || apply.report_discarded {
            return None;
        }
        if !is_fast {
            record.buffer_suggested = u8::try_from(action.buffer.packets.unwrap_or(0)).ok()?;
        }
        record.put_cells(&action.usage, &action.qos)?;
        let counts_once = record.folded_usage().len() == 1 && !record.has_folded_quotas();
        let is_simple =
            is_fast && counts_once && !record.flags.has(Flags::POLICED) && record.folded_lan().is_none();
        record.flags = record.flags.with(Flags::PLAIN, is_simple);
        Some(record)
    }

    /// Names counters and policers in the record; `None` when it has no room for all.
    fn put_cells(&mut self, usage: &UsageSlots, qos: &Enforcement) -> Option<()> {
        if qos.packets().is_some() || (qos.guaranteed().is_some() && !self.flags.has(Flags::FAST)) {
            return None;
        }
        let rates = || qos.policers().chain(qos.guaranteed());
        let (policers, rates_len) = (qos.policers().count(), rates().count());
        let of_dropped = || usage.iter().filter(|(_, what)| *what == CountScope::Dropped);
        let (counters, apart) = (usage.of_passed().count(), of_dropped().count());
        if policers > POLICERS_MAX || apart > 1 || counters + rates_len + apart > self.cells_max() {
            return None;
        }
        let numbers = usage.of_passed().map(|slot| slot.0).chain(rates().map(|slot| slot.0));
        let numbers = numbers.chain(of_dropped().map(|(slot, _)| !slot.0));
        self.cells.iter_mut().zip(numbers).for_each(|(cell, number)| *cell = number);
        self.cell_bits = u8::try_from(counters).ok()? | if rates_len > 1 { TWO_RATES } else { 0 };
        if qos.guaranteed().is_some() {
            self.buffer_suggested = GUARANTEED | if rates_len > 2 { THREE_RATES } else { 0 };
        }
        let whats = usage.iter().map(|(_, what)| what).filter(|what| *what != CountScope::Dropped);
        for (at, _) in whats.enumerate().filter(|(_, what)| *what == CountScope::All) {
            self.cell_bits |= (at < 4).then_some(0x10 << at)?;
        }
        self.flags = self.flags.with(Flags::POLICED, rates_len > 0).with(Flags::QUOTAS, usage.has_quotas());
        Some(())
    }

    /// How many numbers there is room for.
    pub(super) const fn cells_max(&self) -> usize {
        if self.flags.has(Flags::UE_IPV6) { CELLS_BESIDE_IPV6 } else { CELLS_MAX }
    }

    fn put_upper_half(&mut self, upper: u64) {
        #[allow(clippy::cast_possible_truncation)] // The lower half is kept apart.
        let halves = [(upper >> 32) as u32, upper as u32];
        self.cells[CELLS_BESIDE_IPV6..].copy_from_slice(&halves);
    }
}
