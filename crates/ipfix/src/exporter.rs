//! An Exporting Process over UDP (RFC 7011 section 10.3): nothing is acknowledged, so templates are sent again and again.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use crate::element::{Template, Value};
use crate::message::Message;

/// Most octets of a message: what comes through whole on every path that carries Ethernet's 1500 in a tunnel.
const MESSAGE_LEN_MAX: usize = 1400;

/// What an exporter has sent, and what not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Messages, once for each collector.
    pub messages: u64,
    /// Data Records.
    pub records: u64,
    /// Messages to a collector that the host did not take.
    pub failures: u64,
}

impl ExportCounts {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            records: self.records + other.records,
            failures: self.failures + other.failures,
        }
    }
}

/// Exports the records of one Observation Domain.
#[derive(Debug)]
pub struct Exporter {
    domain: u32,
    templates: &'static [Template],
    /// A record that collectors must know beside the templates, such as how packets are sampled.
    option: Option<(&'static Template, Vec<Value<'static>>)>,
    collectors: Vec<(SocketAddr, UdpSocket)>,
    template_interval: Duration,
    templates_sent: Option<Instant>,
    message: Message,
    /// Data Records sent so far.
    sequence: u32,
    counts: ExportCounts,
}

impl Exporter {
    /// An exporter for these collectors, which are told these templates at that interval.
    ///
    /// # Errors
    /// When a socket cannot be had.
    pub fn open(
        collectors: &[SocketAddr],
        domain: u32,
        templates: &'static [Template],
        template_interval: Duration,
    ) -> io::Result<Self> {
        let open = |&to: &SocketAddr| {
            let own: SocketAddr = match to {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(own)?;
            socket.set_nonblocking(true)?;
            Ok((to, socket))
        };
        Ok(Self {
            domain,
            templates,
            option: None,
            collectors: collectors.iter().map(open).collect::<io::Result<_>>()?,
            template_interval,
            templates_sent: None,
            message: Message::new(MESSAGE_LEN_MAX),
            sequence: 0,
            counts: ExportCounts::default(),
        })
    }

    /// The same, with a record that goes with the templates.
    #[must_use]
    pub fn with_option(mut self, template: &'static Template, values: Vec<Value<'static>>) -> Self {
        self.option = Some((template, values));
        self
    }

    /// What was sent.
    pub fn counts(&self) -> ExportCounts {
        self.counts
    }

    /// Adds a record, and sends what was added before where there is no more room.
    pub fn export(&mut self, template: &Template, values: &[Value<'_>], now: (Instant, SystemTime)) {
        self.refresh(now);
        if !self.message.add_record(template, values) {
            self.flush(now.1);
            self.message.add_record(template, values);
        }
    }

    /// Sends the templates when it is time.
    pub fn refresh(&mut self, now: (Instant, SystemTime)) {
        let is_due = |sent: Instant| now.0.saturating_duration_since(sent) >= self.template_interval;
        if !self.templates_sent.is_none_or(is_due) {
            return;
        }
        self.templates_sent = Some(now.0);
        self.flush(now.1);
        let of_option = self.option.as_ref().map(|(template, _)| *template);
        for template in self.templates.iter().chain(of_option) {
            if !self.message.add_template(template) {
                self.flush(now.1);
                self.message.add_template(template);
            }
        }
        // A collector must have the template before the record that is of it.
        self.flush(now.1);
        if let Some((template, values)) = &self.option {
            self.message.add_record(template, values);
        }
    }

    /// Sends what was added.
    pub fn flush(&mut self, now: SystemTime) {
        if self.message.is_empty() {
            return;
        }
        let records = self.message.records();
        let octets = self.message.finish(now, self.sequence, self.domain);
        for (to, socket) in &self.collectors {
            match socket.send_to(octets, to) {
                Ok(_) => self.counts.messages += 1,
                // The sequence number tells the collector how many records are missing.
                Err(_) => self.counts.failures += 1,
            }
        }
        self.message.clear();
        self.counts.records += u64::from(records);
        self.sequence = self.sequence.wrapping_add(records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;

    const FLOW: Template = Template { number: 256, scope: 0, elements: &[Element::FLOW_ID] };
    const SAMPLING: Template =
        Template { number: 258, scope: 1, elements: &[Element::OBSERVATION_DOMAIN_ID, Element::SELECTOR_ID] };

    fn received(collector: &UdpSocket) -> Vec<u8> {
        let mut octets = vec![0; 2000];
        let len = collector.recv(&mut octets).expect("a message");
        octets.truncate(len);
        octets
    }

    /// The sequence number and the numbers of the sets of a message.
    fn shape(octets: &[u8]) -> (u32, Vec<u16>) {
        let number = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        let mut sets = Vec::new();
        let mut at = 16;
        while at < octets.len() {
            sets.push(number(at));
            at += usize::from(number(at + 2));
        }
        (u32::from_be_bytes([octets[8], octets[9], octets[10], octets[11]]), sets)
    }

    #[test]
    fn templates_come_first_and_again_and_records_are_numbered() {
        let collector = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        collector.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let to = collector.local_addr().expect("an address");
        let interval = Duration::from_secs(60);
        let mut exporter = Exporter::open(&[to], 3, &[FLOW], interval)
            .expect("an exporter")
            .with_option(&SAMPLING, vec![Value::U32(3), Value::U64(1)]);
        let began = (Instant::now(), SystemTime::now());
        for number in 0..300 {
            exporter.export(&FLOW, &[Value::U64(number)], began);
        }
        exporter.flush(began.1);
        assert_eq!(shape(&received(&collector)), (0, vec![2, 3]));
        // 16 of the header, 4 of the set and 12 of the option, 4 of the set, and 8 a record.
        let first = received(&collector);
        assert_eq!((shape(&first), first.len()), ((0, vec![258, 256]), 16 + 16 + 4 + 170 * 8));
        assert_eq!(shape(&received(&collector)), (171, vec![256]));
        let later = (began.0 + interval, began.1);
        exporter.export(&FLOW, &[Value::U64(7)], later);
        exporter.flush(later.1);
        assert_eq!(shape(&received(&collector)), (301, vec![2, 3]));
        assert_eq!(shape(&received(&collector)), (301, vec![258, 256]));
        assert_eq!(exporter.counts(), ExportCounts { messages: 5, records: 303, failures: 0 });
    }

    #[test]
    fn who_cannot_be_reached_is_counted_and_the_others_get_it() {
        let collector = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        collector.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        // A socket may not send to all hosts unless it is told so.
        let nobody = (Ipv4Addr::BROADCAST, 4739).into();
        let to = collector.local_addr().expect("an address");
        let mut exporter =
            Exporter::open(&[nobody, to], 3, &[FLOW], Duration::from_secs(60)).expect("an exporter");
        exporter.refresh((Instant::now(), SystemTime::now()));
        assert_eq!(shape(&received(&collector)), (0, vec![2]));
        assert_eq!(exporter.counts(), ExportCounts { messages: 1, records: 0, failures: 1 });
    }
}
