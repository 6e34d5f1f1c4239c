//! A message that is being filled (RFC 7011 section 3).
//!
//! ```text
//!   0         2        4             8            12                    16
//!   +---------+--------+-------------+------------+---------------------+-- sets
//!   | 10      | length | export time | sequence   | observation domain  |
//!   +---------+--------+-------------+------------+---------------------+--
//!   a set: number (2 templates, 3 options templates, or that of a template), length, records
//! ```

use std::time::SystemTime;

use crate::element::{Template, Value};

/// Version Number.
const VERSION: u16 = 10;
/// Octets before the sets.
const HEADER_LEN: usize = 16;
/// Octets before the records of a set.
const SET_HEADER_LEN: usize = 4;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;

/// A message in the making, of at most so many octets.
#[derive(Debug)]
pub(crate) struct Message {
    octets: Vec<u8>,
    len_max: usize,
    /// The set that records are added to: its number, and where it begins.
    set: Option<(u16, usize)>,
    /// Data Records in it.
    records: u32,
}

impl Message {
    pub(crate) fn new(len_max: usize) -> Self {
        let mut octets = Vec::with_capacity(len_max);
        octets.resize(HEADER_LEN, 0);
        Self { octets, len_max, set: None, records: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.octets.len() == HEADER_LEN
    }

    /// Data Records in it: what the sequence number counts.
    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Adds a template; whether there was room.
    pub(crate) fn add_template(&mut self, template: &Template) -> bool {
        let mut octets = template.number.to_be_bytes().to_vec();
        let count = u16::try_from(template.elements.len()).unwrap_or(u16::MAX);
        octets.extend(count.to_be_bytes());
        let is_option = template.scope > 0;
        if is_option {
            octets.extend(template.scope.to_be_bytes());
        }
        template.elements.iter().for_each(|element| element.write(&mut octets));
        self.add(if is_option { OPTIONS_TEMPLATE_SET } else { TEMPLATE_SET }, &octets)
    }

    /// Adds a record of a template; whether there was room.
    pub(crate) fn add_record(&mut self, template: &Template, values: &[Value<'_>]) -> bool {
        debug_assert!(
            template.elements.len() == values.len()
                && template.elements.iter().zip(values).all(|(element, value)| element.takes(value)),
            "template {} has other elements",
            template.number
        );
        let mut octets = Vec::new();
        for (element, value) in template.elements.iter().zip(values) {
            element.write_value(value, &mut octets);
        }
        let added = self.add(template.number, &octets);
        self.records += u32::from(added);
        added
    }

    fn add(&mut self, set: u16, octets: &[u8]) -> bool {
        let is_open = self.set.is_some_and(|(open, _)| open == set);
        let header = if is_open { 0 } else { SET_HEADER_LEN };
        if self.octets.len() + header + octets.len() > self.len_max {
            return false;
        }
        if !is_open {
            self.close_set();
            self.set = Some((set, self.octets.len()));
            self.octets.extend(set.to_be_bytes());
            self.octets.extend([0; 2]);
        }
        self.octets.extend_from_slice(octets);
        true
    }

    /// Fills in the length of the set that was added to last.
    fn close_set(&mut self) {
        let Some((_, at)) = self.set.take() else { return };
        let len = short(self.octets.len() - at);
        self.put(at + 2, &len);
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        if let Some(field) = self.octets.get_mut(at..at + value.len()) {
            field.copy_from_slice(value);
        }
    }

    /// The whole message, to be [emptied](Self::clear) when it is sent.
    pub(crate) fn finish(&mut self, now: SystemTime, sequence: u32, domain: u32) -> &[u8] {
        self.close_set();
        let len = short(self.octets.len());
        // The field has 32 bits of seconds, until 2106.
        #[allow(clippy::cast_possible_truncation)]
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() as u32;
        self.put(0, &VERSION.to_be_bytes());
        self.put(2, &len);
        self.put(4, &seconds.to_be_bytes());
        self.put(8, &sequence.to_be_bytes());
        self.put(12, &domain.to_be_bytes());
        &self.octets
    }

    pub(crate) fn clear(&mut self) {
        self.octets.truncate(HEADER_LEN);
        self.set = None;
        self.records = 0;
    }
}

/// A length: that of a datagram at most.
fn short(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;
    use crate::element::Element;

    const FLOW: Template = Template {
        number: 256,
        scope: 0,
        elements: &[
            Element::SOURCE_IPV4_ADDRESS,
            Element::MOBILE_IMSI,
            Element::OCTET_DELTA_COUNT,
            Element::OCTET_DELTA_COUNT.reverse(),
        ],
    };
    const OPTION: Template = Template {
        number: 257,
        scope: 1,
        elements: &[Element::OBSERVATION_DOMAIN_ID, Element::SAMPLING_PACKET_SPACE],
    };

    fn record(text: &str) -> [Value<'_>; 4] {
        [Value::Ipv4(Ipv4Addr::new(10, 60, 0, 1)), Value::Text(text), Value::U64(1), Value::U64(2)]
    }

    /// RFC 7011 3.1 to 3.4 and 7, RFC 5103 6.1: octet by octet.
    #[test]
    fn a_message_is_as_the_standard_has_it() {
        let mut message = Message::new(1400);
        assert!(message.is_empty());
        assert!(message.add_template(&FLOW) && message.add_template(&OPTION));
        assert!(message.add_record(&FLOW, &record("00101")));
        assert!(message.add_record(&FLOW, &record("")));
        assert!(message.add_record(&OPTION, &[Value::U32(7), Value::U32(99)]));
        assert_eq!(message.records(), 3);
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(0x0102_0304);
        let octets = message.finish(at, 5, 7).to_vec();
        let address = [10, 60, 0, 1];
        let counts = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
        let parts: [&[u8]; 12] = [
            // The header.
            &[0, 10, 0, 148, 1, 2, 3, 4, 0, 0, 0, 5, 0, 0, 0, 7],
            // A template.
            &[0, 2, 0, 28, 1, 0, 0, 4, 0, 8, 0, 4, 0x01, 0xc7, 0, 15, 0, 1, 0, 8],
            &[0x80, 1, 0, 8, 0, 0, 0x72, 0x79],
            // An options template.
            &[0, 3, 0, 18, 1, 1, 0, 2, 0, 1, 0, 149, 0, 4, 1, 50, 0, 4],
            // Two records.
            &[1, 0, 0, 74],
            &address,
            b"00101\0\0\0\0\0\0\0\0\0\0",
            &counts,
            &address,
            &[0; 15],
            &counts,
            // An option.
            &[1, 1, 0, 12, 0, 0, 0, 7, 0, 0, 0, 99],
        ];
        assert_eq!(octets, parts.concat());
        message.clear();
        assert!(message.is_empty() && message.records() == 0);
    }

    #[test]
    fn what_has_no_room_waits_for_the_next() {
        let mut message = Message::new(16 + 4 + 2 * 35);
        assert!(message.add_record(&FLOW, &record("1")));
        assert!(message.add_record(&FLOW, &record("")));
        assert!(!message.add_record(&FLOW, &record("")));
        assert!(!message.add_record(&OPTION, &[Value::U32(7), Value::U32(99)]));
        assert_eq!(message.records(), 2);
        let octets = message.finish(SystemTime::UNIX_EPOCH, 0, 0);
        assert_eq!((octets.len(), &octets[2..4], &octets[18..20]), (90, &[0, 90][..], &[0, 74][..]));
    }

    #[test]
    fn long_strings_are_cut_between_characters() {
        let mut octets = Vec::new();
        Element::MOBILE_IMSI.write_value(&Value::Text(&"ü".repeat(9)), &mut octets);
        assert_eq!(octets, [&"ü".repeat(7).into_bytes()[..], &[0]].concat());
    }

    #[test]
    #[should_panic(expected = "other elements")]
    #[cfg(debug_assertions)]
    fn a_record_has_what_its_template_says() {
        Message::new(1400).add_record(&OPTION, &[Value::U32(7), Value::U64(99)]);
    }
}
