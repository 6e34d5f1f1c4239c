//! What rules name of the node: network instances and applications.

use crate::ids::{AppNumber, InstanceId};
use crate::node::{Node, NodeSettings};
use kaido_n4::{ApplicationId, Cause, NetworkInstance, Pdr, Rejection, RuleId};

/// The type of Application ID (TS 29.244 8.1.1).
const APPLICATION_ID: u16 = 24;

/// The instance of a rule without tunnel: that of the N6 side.
pub(super) fn instance(settings: &NodeSettings, pdr: &Pdr) -> Result<InstanceId, Rejection> {
    named_instance(settings, pdr, pdr.pdi.network_instance.as_ref())
}

/// The instance of a name that a rule gives.
pub(super) fn named_instance(
    settings: &NodeSettings,
    pdr: &Pdr,
    name: Option<&NetworkInstance>,
) -> Result<InstanceId, Rejection> {
    instance_named(settings, name).map_err(|fault| fault.rule(RuleId::Pdr(pdr.id)))
}

/// The instance of a name, or the one without a name.
pub(super) fn instance_named(
    settings: &NodeSettings,
    name: Option<&NetworkInstance>,
) -> Result<InstanceId, Rejection> {
    let name = name.map(|name| &*name.0);
    settings.instance(name).ok_or_else(|| {
        let detail = format!("network instance `{}` is not configured", name.unwrap_or_default());
        Rejection::new(Cause::RuleCreationOrModificationFailure, detail)
    })
}

/// The number of an application, whose PFDs must have been provisioned before (TS 29.244 8.2.1, cause 81).
pub(super) fn application(node: &Node, pdr: &Pdr, id: &ApplicationId) -> Result<AppNumber, Rejection> {
    node.applications.number(id).ok_or_else(|| {
        let detail = format!("PDR {}: nothing is known of application `{id}`", pdr.id);
        Rejection::new(Cause::UnknownApplicationId, detail).ie(APPLICATION_ID).rule(RuleId::Pdr(pdr.id))
    })
}
