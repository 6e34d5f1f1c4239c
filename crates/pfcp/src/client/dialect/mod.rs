//! The N4 sessions of the SMFs of open cores: which rules each of them sends in which procedure.
//!
//! ```text
//!               F-TEID      downlink before the tunnel   QERs             URRs         idle
//!   plain       either      has the tunnel               AMBR, flow       as asked     BUFF|NOCP
//!   free5gc     the SMF's   FORW without tunnel          flow, AMBR+QFI   2, all PDRs  BUFF|NOCP, tunnel repeated
//!   open5gs     CHOOSE ID   BUFF|NOCP, BAR               AMBR+QFI         1, downlink  BUFF|NOCP, BAR
//!   oai         CHOOSE ID   no PDR                       none             none         all PDRs and FARs removed
//!   sd-core     CHOOSE      DROP                         AMBR+QFI         none         BUFF|NOCP
//! ```
//! The facts and where they were seen are in docs/interop.md. What a message has beside rules is in `additions`.

mod additions;
mod free5gc;
mod oai;
mod open5gs;
mod sd_core;

use std::str::FromStr;

use kaido_n4::{
    ApplyAction, CreatedPdr, Establishment, FTeid, Far, FarId, ForwardingParameters, Interface, LocalFTeid,
    Modification, NetworkInstance, OuterHeaderCreation, Pdr, PdrId, Qfi, SdfFilter, UpdateFar,
    UpdateForwardingParameters, UpdatePdr, UrrId,
};

use super::SessionTemplate;

/// The filter of a default QoS flow: it matches every packet.
const MATCH_ALL: &str = "permit out ip from any to assigned";
/// The rules of the dedicated QoS flow, beside the first two of the session.
const FLOW_ID: u16 = 8;
const FLOW_UPLINK_PDR: PdrId = PdrId(FLOW_ID);
const FLOW_DOWNLINK_PDR: PdrId = PdrId(FLOW_ID + 1);
const FLOW_UPLINK_FAR: FarId = FarId(FLOW_ID as u32);
const FLOW_DOWNLINK_FAR: FarId = FarId(FLOW_ID as u32 + 1);
/// Precedence of a dedicated QoS flow.
const FLOW_PRECEDENCE: u32 = 128;

/// Whose SMF a session is written like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// No one's: few rules, all that the standard asks for.
    #[default]
    Plain,
    /// free5GC's.
    Free5gc,
    /// Open5GS's.
    Open5gs,
    /// `OpenAirInterface`'s.
    Oai,
    /// SD-Core's.
    SdCore,
}

/// What usage reports of a session tell of its traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounting {
    /// Uplink volume is reported.
    pub uplink: bool,
    /// Downlink volume is reported.
    pub downlink: bool,
    /// Packets are reported beside octets.
    pub packets: bool,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Plain, Self::Free5gc, Self::Open5gs, Self::Oai, Self::SdCore];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Free5gc => "free5gc",
            Self::Open5gs => "open5gs",
            Self::Oai => "oai",
            Self::SdCore => "sd-core",
        }
    }

    /// Whether F-TEIDs are left to the user plane; `None` where either is written.
    pub const fn chooses_f_teids(self) -> Option<bool> {
        match self {
            Self::Plain => None,
            Self::Free5gc => Some(false),
            Self::Open5gs | Self::Oai | Self::SdCore => Some(true),
        }
    }

    /// The PDR whose F-TEID the gNB sends to.
    pub const fn uplink_pdr(self) -> PdrId {
        match self {
            Self::Open5gs => open5gs::UPLINK_PDR,
            _ => SessionTemplate::UPLINK_PDR,
        }
    }

    /// Whether packets for an idle UE are buffered and reported.
    pub const fn buffers(self) -> bool {
        !matches!(self, Self::Oai)
    }

    /// Whether a QoS flow is added to a session that carries data.
    pub const fn adds_flows(self) -> bool {
        !matches!(self, Self::Plain | Self::Oai)
    }

    /// Whether the old tunnel of a path switch gets an End Marker.
    pub const fn sends_end_markers(self) -> bool {
        !matches!(self, Self::Oai)
    }

    /// What usage is reported of.
    pub const fn accounting(self) -> Accounting {
        match self {
            Self::Plain | Self::Free5gc => Accounting { uplink: true, downlink: true, packets: true },
            Self::Open5gs => Accounting { uplink: false, downlink: true, packets: false },
            Self::Oai | Self::SdCore => Accounting { uplink: false, downlink: false, packets: false },
        }
    }

    /// Whether the reports of a URR are the session's usage: others measure the same packets again.
    pub fn counts(self, urr: UrrId) -> bool {
        self != Self::Free5gc || urr == free5gc::AFTER_QOS
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|dialect| dialect.name() == text);
        named.ok_or_else(|| format!("`{text}` is no dialect: give {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// A QoS flow beside the default one.
#[derive(Clone, Debug, PartialEq)]
pub struct DedicatedFlow {
    /// Its identifier.
    pub qfi: Qfi,
    /// Its packets.
    pub filter: SdfFilter,
}

/// A PDU session as an SMF knows it: what it was set up with, and what has come since.
///
/// A procedure is one request or more; each is sent once the one before is answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PduSession {
    dialect: Dialect,
    template: SessionTemplate,
    flow: Option<DedicatedFlow>,
    /// How often the UE has asked for service: OAI's SMF makes it the precedence.
    services: u32,
}

impl PduSession {
    /// A session that is not set up yet. `template.gnb` is used by [`Dialect::Plain`] alone: the others learn of it later.
    pub fn new(dialect: Dialect, template: SessionTemplate) -> Self {
        Self { dialect, template, flow: None, services: 0 }
    }

    /// The Session Establishment Request.
    pub fn establishment(&self) -> Establishment {
        match self.dialect {
            Dialect::Plain => self.template.establishment(),
            Dialect::Free5gc => free5gc::establishment(self),
            Dialect::Open5gs => open5gs::establishment(self),
            Dialect::Oai => oai::establishment(self),
            Dialect::SdCore => sd_core::establishment(self),
        }
    }

    /// Takes in what the user plane chose: the F-TEID that the gNB sends to, if one was chosen.
    pub fn established(&mut self, created: &[CreatedPdr]) -> Option<FTeid> {
        let uplink = created.iter().find(|pdr| pdr.id == self.dialect.uplink_pdr())?;
        let chosen = uplink.local_fteid?;
        self.template.n3 = LocalFTeid::Given(chosen);
        Some(chosen)
    }

    /// The gNB's tunnel has come (N2 PDU Session Resource Setup Response).
    pub fn activate(&mut self, tunnel: OuterHeaderCreation) -> Vec<Modification> {
        self.template.gnb = Some(tunnel);
        match self.dialect {
            Dialect::Plain => Vec::new(),
            Dialect::Free5gc => vec![free5gc::tunnel(self, false)],
            Dialect::Open5gs => vec![open5gs::tunnel(self, false)],
            Dialect::Oai => vec![oai::create_downlink(self)],
            Dialect::SdCore => vec![sd_core::tunnel(self, false)],
        }
    }

    /// The UE went idle (AN release).
    pub fn release_access(&mut self) -> Vec<Modification> {
        let request = match self.dialect {
            Dialect::Plain => SessionTemplate::buffer(),
            Dialect::Free5gc => free5gc::release_access(self),
            Dialect::Open5gs => open5gs::release_access(self),
            Dialect::Oai => oai::release_access(),
            Dialect::SdCore => sd_core::release_access(self),
        };
        vec![request]
    }

    /// The UE is back (service request).
    pub fn request_service(&mut self, tunnel: OuterHeaderCreation) -> Vec<Modification> {
        self.template.gnb = Some(tunnel);
        self.services = self.services.saturating_add(1);
        match self.dialect {
            Dialect::Plain => vec![SessionTemplate::forward(tunnel, false)],
            Dialect::Free5gc => vec![free5gc::tunnel(self, false)],
            Dialect::Open5gs => vec![open5gs::tunnel(self, false)],
            Dialect::Oai => vec![oai::create_uplink(self), oai::create_downlink(self)],
            Dialect::SdCore => vec![sd_core::tunnel(self, false)],
        }
    }

    /// Another gNB took over (path switch, N2 handover).
    pub fn switch_path(&mut self, tunnel: OuterHeaderCreation) -> Vec<Modification> {
        self.template.gnb = Some(tunnel);
        let request = match self.dialect {
            Dialect::Plain => SessionTemplate::forward(tunnel, true),
            Dialect::Free5gc => free5gc::tunnel(self, true),
            Dialect::Open5gs => open5gs::tunnel(self, true),
            Dialect::Oai => oai::switch_path(self),
            Dialect::SdCore => sd_core::tunnel(self, true),
        };
        vec![request]
    }

    /// A QoS flow is added. Empty where the dialect adds none.
    pub fn add_flow(&mut self, flow: DedicatedFlow) -> Vec<Modification> {
        if !self.dialect.adds_flows() {
            return Vec::new();
        }
        let requests = match self.dialect {
            Dialect::Plain | Dialect::Oai => Vec::new(),
            Dialect::Free5gc => vec![free5gc::add_flow(self, &flow)],
            Dialect::Open5gs => vec![open5gs::add_flow(self, &flow), open5gs::tunnel_of_flow(self)],
            Dialect::SdCore => vec![sd_core::add_flow(self, &flow), sd_core::tunnel_with(self, &flow)],
        };
        self.flow = Some(flow);
        requests
    }

    /// Whether a flow was added.
    pub const fn has_flow(&self) -> bool {
        self.flow.is_some()
    }

    /// The QoS flow that packets of the dedicated flow's filter belong to, or of the session if there is none.
    pub fn qfi(&self) -> Qfi {
        self.flow.as_ref().map_or(self.template.qfi, |flow| flow.qfi)
    }

    /// The QoS flow of all other packets.
    pub const fn default_qfi(&self) -> Qfi {
        self.template.qfi
    }

    /// What usage is reported of.
    pub const fn accounting(&self) -> Accounting {
        self.dialect.accounting()
    }

    /// URRs whose final reports are expected.
    pub fn counting_urrs(&self) -> u64 {
        match self.dialect {
            Dialect::Plain | Dialect::Free5gc => 1,
            Dialect::Open5gs => 1 + u64::from(self.flow.is_some()),
            Dialect::Oai | Dialect::SdCore => 0,
        }
    }

    /// The downlink FARs, the default flow's first.
    fn downlink_fars(&self, default: FarId) -> impl Iterator<Item = FarId> {
        [default].into_iter().chain(self.flow.as_ref().map(|_| FLOW_DOWNLINK_FAR))
    }

    /// The data network's name, as instance of both sides.
    fn dnn(&self) -> Option<NetworkInstance> {
        self.template.core.clone()
    }
}

/// A FAR that forwards.
fn forward(
    id: FarId,
    to: Interface,
    instance: Option<NetworkInstance>,
    tunnel: Option<OuterHeaderCreation>,
) -> Far {
    let forwarding = ForwardingParameters {
        destination_interface: to,
        network_instance: instance,
        outer_header_creation: tunnel,
        transport_level_marking: None,
        steering: None,
    };
    Far { id, apply_action: ApplyAction::FORWARD, forwarding: Some(forwarding), bar_id: None }
}

/// A FAR's new action and parameters.
fn update(id: FarId, action: ApplyAction, forwarding: Option<UpdateForwardingParameters>) -> UpdateFar {
    UpdateFar { id, apply_action: Some(action), forwarding, ..UpdateFar::default() }
}

/// Parameters that lead towards the access.
fn to_access(
    instance: Option<NetworkInstance>,
    tunnel: Option<OuterHeaderCreation>,
    send_end_marker: bool,
) -> UpdateForwardingParameters {
    UpdateForwardingParameters {
        destination_interface: Some(Interface::Access),
        network_instance: instance,
        outer_header_creation: tunnel,
        send_end_marker,
        ..UpdateForwardingParameters::default()
    }
}

/// A PDR written again, whole.
fn again(pdr: Pdr) -> UpdatePdr {
    UpdatePdr {
        id: pdr.id,
        precedence: Some(pdr.precedence),
        pdi: Some(pdr.pdi),
        outer_header_removal: pdr.outer_header_removal,
        far_id: pdr.far_id,
        urr_ids: (!pdr.urr_ids.is_empty()).then_some(pdr.urr_ids),
        qer_ids: (!pdr.qer_ids.is_empty()).then_some(pdr.qer_ids),
        ..UpdatePdr::default()
    }
}

fn match_all() -> Vec<SdfFilter> {
    // It is a flow description, as the tests read it.
    SdfFilter::parse(MATCH_ALL).into_iter().collect()
}
