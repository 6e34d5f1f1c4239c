//! By what packets leave N6-wards, and whose UEs they are looked for among before, as numbers that fit in a record.

use crate::action::N6Exit;
use crate::ids::InstanceId;
use crate::lan::LanId;

/// The bit of the [number](exit_number) of a LAN.
const LAN: u32 = 1 << 31;

/// What packets leave by, as a number: 0 for any port, the number of the network instance plus one, or that of the LAN with a bit
/// of its own.
pub(crate) fn exit_number(exit: N6Exit) -> u32 {
    match exit {
        N6Exit::Any => 0,
        N6Exit::Instance(InstanceId(instance)) => u32::from(instance) + 1,
        N6Exit::Lan(LanId(lan)) => LAN | u32::from(lan),
    }
}

pub(super) fn exit_of_number(number: u32) -> N6Exit {
    let instance = || number.checked_sub(1).and_then(|instance| u16::try_from(instance).ok());
    match lan_of_exit(number) {
        Some(lan) => N6Exit::Lan(lan),
        None => instance().map_or(N6Exit::Any, |instance| N6Exit::Instance(InstanceId(instance))),
    }
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // The bit is above the number.
pub(super) const fn lan_of_exit(number: u32) -> Option<LanId> {
    if number & LAN == 0 { None } else { Some(LanId(number as u16)) }
}

/// The network instance of other UEs as a number: 0 for none; `None` where it does not fit.
pub(super) fn ues_number(other_ues: Option<InstanceId>) -> Option<u16> {
    other_ues.map_or(Some(0), |InstanceId(instance)| instance.checked_add(1))
}

pub(super) fn ues_of_number(number: u16) -> Option<InstanceId> {
    number.checked_sub(1).map(InstanceId)
}
