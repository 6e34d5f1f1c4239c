//! The rule model of a PFCP session: what a control plane asks for, and what it is answered.
//!
//! These are the plain, validated forms of the information elements of TS 29.244 clause 7.5, free of
//! any encoding. `kaido-pfcp` decodes the wire into them; `kaido-upf` plans and applies them;
//! a REST or gRPC front end could fill them just as well. Names are the standard's.

mod change;
mod endpoint;
mod ethernet;
mod far;
mod flow_description;
mod framed;
mod id;
mod imsi;
mod path;
mod pdr;
mod pfd;
mod predefined;
mod qer;
mod request;
mod sdf;
mod srr;
mod steering;
mod urr;
mod usage_report;

pub use change::Change;
pub use endpoint::{CreatedTrafficEndpoint, TrafficEndpoint, TrafficEndpointId, UpdateTrafficEndpoint};
pub use ethernet::{
    EthernetFilter, EthernetTraffic, Mac, MacList, MacMatch, MacRange, Proxying, TagCreation, VlanTag,
};
pub use far::{
    ApplyAction, BufferingRule, Far, ForwardingParameters, Interface, OuterHeaderCreation, RemovedForwarding,
    UpdateBar, UpdateFar, UpdateForwardingParameters,
};
pub use flow_description::SdfError;
pub use framed::FramedRoute;
pub use id::{BarId, FarId, NetworkInstance, PdrId, QerId, Qfi, RuleId, Seid, SrrId, Teid, UrrId};
pub use imsi::{Imsi, NoImsi};
pub use path::{PathChange, PathEvent};
pub use pdr::{
    ChooseOr, FTeid, Ipv6Prefix, LocalFTeid, OuterHeaderRemoval, Pdi, Pdr, UeIpAddress, UeIpRole, UpdatePdr,
};
pub use pfd::{ApplicationId, DomainPattern, DomainSource, Pfd, PfdManagement, UrlPattern};
pub use predefined::{PredefinedName, PredefinedRule};
pub use qer::{
    BitRate, Gate, PacketLimit, PacketRate, PagingPolicyIndicator, Qer, QerCorrelationId, TimeUnit, UpdateQer,
};
pub use request::{
    Cause, CreatedPdr, DataStatus, DeletionResponse, DownlinkDataService, Established, Establishment, FSeid,
    Modification, Modified, Outcome, PacketRateStatus, Progress, Rejection, SessionEvent, SessionService,
    Ticket,
};
pub use sdf::{AddressMatch, FlowEnd, SdfFilter};
pub use srr::{
    PacketDelays, QosMonitoring, QosMonitoringReport, ReportingFrequency, SessionReport, Srr, UpdateSrr,
    WantedDelays,
};
pub use steering::{Duplicate, PlainHeaderCreation, Steering};
pub use urr::{
    DroppedTraffic, MeasurementInformation, MeasurementMethod, MonitoringTime, ReportingTriggers,
    TimeQuotaMechanism, UpdateUrr, Urr, UsageReportTrigger, VolumeThreshold,
};
pub use usage_report::{ApplicationDetection, Part, UsageReport, Volume};
