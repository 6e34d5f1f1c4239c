//! ControlParameters and ControlResponse: what a command asks, and what is answered.

use kaido_wire::ndn::tlv::{Elements, Writer, element_len, integer_len, is_critical};
use kaido_wire::ndn::{Name, types};

/// Types of the management protocol.
pub mod kinds {
    /// ControlParameters.
    pub const CONTROL_PARAMETERS: u32 = 0x68;
    /// ControlResponse.
    pub const CONTROL_RESPONSE: u32 = 0x65;
    /// StatusCode.
    pub const STATUS_CODE: u32 = 0x66;
    /// StatusText.
    pub const STATUS_TEXT: u32 = 0x67;
    /// FaceId.
    pub const FACE_ID: u32 = 0x69;
    /// Cost.
    pub const COST: u32 = 0x6a;
    /// Strategy: a Name.
    pub const STRATEGY: u32 = 0x6b;
    /// Flags.
    pub const FLAGS: u32 = 0x6c;
    /// ExpirationPeriod, in milliseconds.
    pub const EXPIRATION_PERIOD: u32 = 0x6d;
    /// Origin.
    pub const ORIGIN: u32 = 0x6f;
    /// Mask.
    pub const MASK: u32 = 0x70;
    /// Uri.
    pub const URI: u32 = 0x72;
    /// LocalUri.
    pub const LOCAL_URI: u32 = 0x81;
    /// Capacity.
    pub const CAPACITY: u32 = 0x83;
    /// Count.
    pub const COUNT: u32 = 0x84;
    /// FacePersistency.
    pub const FACE_PERSISTENCY: u32 = 0x85;
    /// BaseCongestionMarkingInterval, in nanoseconds.
    pub const BASE_CONGESTION_MARKING_INTERVAL: u32 = 0x87;
    /// DefaultCongestionThreshold, in octets.
    pub const DEFAULT_CONGESTION_THRESHOLD: u32 = 0x88;
    /// Mtu.
    pub const MTU: u32 = 0x89;
    /// Of our own, in `cs/info`, even so that others skip it: Data that the Content Store did not keep.
    pub const CS_REFUSED: u32 = 0xe0;
    /// As above: octets of its memory in use.
    pub const CS_OCTETS: u32 = 0xe2;
    /// As above: packets that its tier on disk has.
    pub const CS_DISK_PACKETS: u32 = 0xe4;
    /// As above: octets of those.
    pub const CS_DISK_OCTETS: u32 = 0xe6;
    /// As above: octets that it may have.
    pub const CS_DISK_CAPACITY: u32 = 0xe8;
    /// As above: Interests that were answered from there.
    pub const CS_DISK_HITS: u32 = 0xea;
    /// Of our own, in `status/workers`: a worker.
    pub const WORKER: u32 = 0x200;
    /// Of a worker: its number.
    pub const WORKER_NUMBER: u32 = 0x202;
    /// Of a worker: packets that it forwarded or answered.
    pub const WORKER_PACKETS: u32 = 0x204;
    /// Of a worker: Interests that it handed to others.
    pub const WORKER_HANDED_INTERESTS: u32 = 0x206;
    /// Of a worker: Data that it handed to others.
    pub const WORKER_HANDED_DATA: u32 = 0x208;
    /// Of a worker: Nacks that it handed to others.
    pub const WORKER_HANDED_NACKS: u32 = 0x20a;
    /// Of a worker: Interests that wait.
    pub const WORKER_PIT_ENTRIES: u32 = 0x20c;
    /// Of a worker: Interests that may wait.
    pub const WORKER_PIT_MAX: u32 = 0x20e;
    /// Of a worker: Data that it has cached.
    pub const WORKER_CS_ENTRIES: u32 = 0x210;
    /// Of a worker: Data that it may cache.
    pub const WORKER_CS_MAX: u32 = 0x212;
    /// Of our own, in `status/workers`: a name that is hot, with its Name unless that is not known yet.
    pub const HOT_NAME: u32 = 0x220;
    /// Of a hot name: its share of all Interests, in parts of a million.
    pub const HOT_SHARE: u32 = 0x222;
}

/// Why parameters could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parameters are malformed")]
pub struct ParameterError;

impl From<kaido_wire::Error> for ParameterError {
    fn from(_: kaido_wire::Error) -> Self {
        Self
    }
}

/// ControlParameters. What is `None` is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlParameters {
    /// The components of Name.
    pub name: Option<Vec<u8>>,
    /// FaceId.
    pub face: Option<u64>,
    /// Uri: of a face's other end.
    pub uri: Option<String>,
    /// LocalUri.
    pub local_uri: Option<String>,
    /// Origin of a route.
    pub origin: Option<u64>,
    /// Cost of a route or a next hop.
    pub cost: Option<u64>,
    /// Capacity of the Content Store, in packets.
    pub capacity: Option<u64>,
    /// How many entries are to be erased, or were.
    pub count: Option<u64>,
    /// Of a face's congestion marking, in nanoseconds.
    pub base_congestion_marking_interval: Option<u64>,
    /// Of a face's congestion marking, in octets.
    pub default_congestion_threshold: Option<u64>,
    /// Of a face, in octets.
    pub mtu: Option<u64>,
    /// Flags.
    pub flags: Option<u64>,
    /// Which of the flags are meant.
    pub mask: Option<u64>,
    /// The components of a strategy's name.
    pub strategy: Option<Vec<u8>>,
    /// Of a route, in milliseconds.
    pub expiration_period: Option<u64>,
    /// FacePersistency.
    pub face_persistency: Option<u64>,
}

impl ControlParameters {
    /// The parameters whose element begins `octets`; unknown elements that are not critical are passed over.
    ///
    /// # Errors
    /// When it is something else, or an element in it is not what it must be.
    pub fn parse(octets: &[u8]) -> Result<Self, ParameterError> {
        let element = Elements::new(octets).next().ok_or(ParameterError)??;
        if element.kind != kinds::CONTROL_PARAMETERS {
            return Err(ParameterError);
        }
        let mut read = Self::default();
        for element in Elements::new(element.value) {
            let element = element?;
            let text = || String::from_utf8(element.value.to_vec()).map_err(|_| ParameterError);
            match element.kind {
                types::NAME => read.name = Some(Name::new(element.value)?.value().to_vec()),
                kinds::URI => read.uri = Some(text()?),
                kinds::LOCAL_URI => read.local_uri = Some(text()?),
                kinds::STRATEGY => {
                    let (name, len) = Name::parse(element.value)?;
                    if len != element.value.len() {
                        return Err(ParameterError);
                    }
                    read.strategy = Some(name.value().to_vec());
                }
                kind => match read.number_mut(kind) {
                    Some(number) => *number = Some(element.integer()?),
                    None if is_critical(kind) => return Err(ParameterError),
                    None => {}
                },
            }
        }
        Ok(read)
    }

    /// The field of a type whose value is a number.
    fn number_mut(&mut self, kind: u32) -> Option<&mut Option<u64>> {
        Some(match kind {
            kinds::FACE_ID => &mut self.face,
            kinds::ORIGIN => &mut self.origin,
            kinds::COST => &mut self.cost,
            kinds::CAPACITY => &mut self.capacity,
            kinds::COUNT => &mut self.count,
            kinds::BASE_CONGESTION_MARKING_INTERVAL => &mut self.base_congestion_marking_interval,
            kinds::DEFAULT_CONGESTION_THRESHOLD => &mut self.default_congestion_threshold,
            kinds::MTU => &mut self.mtu,
            kinds::FLAGS => &mut self.flags,
            kinds::MASK => &mut self.mask,
            kinds::EXPIRATION_PERIOD => &mut self.expiration_period,
            kinds::FACE_PERSISTENCY => &mut self.face_persistency,
            _ => return None,
        })
    }

    /// The element.
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Encoder::default();
        if let Some(name) = &self.name {
            fields.element(types::NAME, name);
        }
        fields.number(kinds::FACE_ID, self.face);
        fields.text(kinds::URI, self.uri.as_deref());
        fields.text(kinds::LOCAL_URI, self.local_uri.as_deref());
        fields.number(kinds::ORIGIN, self.origin);
        fields.number(kinds::COST, self.cost);
        fields.number(kinds::CAPACITY, self.capacity);
        fields.number(kinds::COUNT, self.count);
        fields.number(kinds::BASE_CONGESTION_MARKING_INTERVAL, self.base_congestion_marking_interval);
        fields.number(kinds::DEFAULT_CONGESTION_THRESHOLD, self.default_congestion_threshold);
        fields.number(kinds::MTU, self.mtu);
        fields.number(kinds::FLAGS, self.flags);
        fields.number(kinds::MASK, self.mask);
        if let Some(strategy) = &self.strategy {
            let mut name = Encoder::default();
            name.element(types::NAME, strategy);
            fields.element(kinds::STRATEGY, &name.octets);
        }
        fields.number(kinds::EXPIRATION_PERIOD, self.expiration_period);
        fields.number(kinds::FACE_PERSISTENCY, self.face_persistency);
        let mut whole = Encoder::default();
        whole.element(kinds::CONTROL_PARAMETERS, &fields.octets);
        whole.octets
    }
}

/// A ControlResponse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlResponse {
    /// StatusCode; 200 is success.
    pub code: u64,
    /// StatusText.
    pub text: String,
    /// The parameters as they are now.
    pub body: Option<ControlParameters>,
}

impl ControlResponse {
    /// Success.
    pub fn ok(body: ControlParameters) -> Self {
        Self { code: 200, text: "OK".into(), body: Some(body) }
    }

    /// A refusal: 400 malformed, 403 not permitted, 404 unknown, 409 conflict, 503 too many, 501 not supported.
    pub fn refusal(code: u64, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), body: None }
    }

    /// The element.
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Encoder::default();
        fields.number(kinds::STATUS_CODE, Some(self.code));
        fields.text(kinds::STATUS_TEXT, Some(&self.text));
        if let Some(body) = &self.body {
            fields.octets.extend(body.encode());
        }
        let mut whole = Encoder::default();
        whole.element(kinds::CONTROL_RESPONSE, &fields.octets);
        whole.octets
    }

    /// The response that a Data's Content is.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(octets: &[u8]) -> Result<Self, ParameterError> {
        let element = Elements::new(octets).next().ok_or(ParameterError)??;
        if element.kind != kinds::CONTROL_RESPONSE {
            return Err(ParameterError);
        }
        let (mut code, mut text, mut body) = (None, String::new(), None);
        for element in Elements::new(element.value) {
            let element = element?;
            match element.kind {
                kinds::STATUS_CODE => code = Some(element.integer()?),
                kinds::STATUS_TEXT => text = String::from_utf8_lossy(element.value).into_owned(),
                kinds::CONTROL_PARAMETERS => body = Some(ControlParameters::parse(element.octets)?),
                _ => {}
            }
        }
        Ok(Self { code: code.ok_or(ParameterError)?, text, body })
    }
}

/// Elements one after another in memory of their own.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    pub(super) octets: Vec<u8>,
}

impl Encoder {
    /// Adds an element.
    pub(super) fn element(&mut self, kind: u32, value: &[u8]) {
        self.write(element_len(kind, value.len()), |writer| writer.element(kind, value));
    }

    /// Adds a number, if there is one.
    pub(super) fn number(&mut self, kind: u32, value: Option<u64>) {
        if let Some(value) = value {
            self.write(element_len(kind, integer_len(value)), |writer| writer.integer(kind, value));
        }
    }

    /// Adds a text, if there is one.
    pub(super) fn text(&mut self, kind: u32, value: Option<&str>) {
        if let Some(value) = value {
            self.element(kind, value.as_bytes());
        }
    }

    /// Adds what is written into `len` octets: the room is as large as what goes in.
    fn write(&mut self, len: usize, write: impl FnOnce(&mut Writer<'_>) -> Result<(), kaido_wire::Error>) {
        let at = self.octets.len();
        self.octets.resize(at + len, 0);
        let written = write(&mut Writer::new(&mut self.octets[at..]));
        debug_assert!(written.is_ok(), "{written:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> ControlParameters {
        ControlParameters {
            name: Some(vec![8, 1, b'a']),
            face: Some(256),
            uri: Some("udp4://192.0.2.1:6363".into()),
            local_uri: Some("udp4://192.0.2.2:6363".into()),
            origin: Some(255),
            cost: Some(70_000),
            capacity: Some(1 << 33),
            count: Some(0),
            base_congestion_marking_interval: Some(100_000_000),
            default_congestion_threshold: Some(65_536),
            mtu: Some(1452),
            flags: Some(3),
            mask: Some(1),
            strategy: Some(vec![8, 1, b's']),
            expiration_period: Some(3_600_000),
            face_persistency: Some(2),
        }
    }

    #[test]
    fn read_is_what_was_written() {
        for parameters in [everything(), ControlParameters::default()] {
            assert_eq!(ControlParameters::parse(&parameters.encode()), Ok(parameters.clone()));
            let response = ControlResponse::ok(parameters);
            assert_eq!(ControlResponse::parse(&response.encode()), Ok(response));
        }
        let refusal = ControlResponse::refusal(404, "no such face");
        assert_eq!(ControlResponse::parse(&refusal.encode()), Ok(refusal));
    }

    #[test]
    fn a_cut_or_changed_element_is_refused_or_read() {
        let octets = everything().encode();
        for len in 0..octets.len() {
            assert_eq!(ControlParameters::parse(&octets[..len]), Err(ParameterError), "{len} octets");
        }
        for at in 0..octets.len() {
            for value in [0, 1, 0x69, 0xfd, 0xff] {
                let mut changed = octets.clone();
                changed[at] = value;
                if let Ok(read) = ControlParameters::parse(&changed) {
                    assert_eq!(ControlParameters::parse(&read.encode()), Ok(read));
                }
            }
        }
    }

    #[test]
    fn unknown_elements_are_judged_by_their_type() {
        assert_eq!(ControlParameters::parse(&[0x68, 2, 0x9a, 0]), Ok(ControlParameters::default()));
        assert_eq!(ControlParameters::parse(&[0x68, 2, 0x9b, 0]), Err(ParameterError));
        assert_eq!(
            ControlParameters::parse(&[0x68, 4, 0x72, 2, 0xff, 0xfe]),
            Err(ParameterError),
            "not UTF-8"
        );
    }
}
