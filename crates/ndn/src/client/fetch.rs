//! Fetching what lies in several Data: segments `/name/v=VERSION/seg=0` to the last, which the Data say.
//!
//! Several Interests are under way at once: a window. It grows by one for each window of Data. It is halved when one is lost
//! or the network says that it is congested (RFC 5681 in the units of Interests).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kaido_wire::ndn::{Data, InterestRepr, Name, types};

use super::consumer::{Consumer, NoData, is_whole, with_number, write};
use crate::NackReason;

/// How segments are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchOptions {
    /// Interests under way at once, at most.
    pub window_max: usize,
    /// How long an Interest waits.
    pub lifetime: Duration,
    /// How often an Interest is sent again.
    pub retries: u32,
    /// Stop when there are so many octets.
    pub octets_max: usize,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self { window_max: 64, lifetime: Duration::from_secs(1), retries: 8, octets_max: 1 << 30 }
    }
}

/// Why something could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The first Data did not come.
    #[error("{name}: {why}")]
    First {
        /// What was asked for.
        name: String,
        /// Why it did not come.
        why: NoData,
    },
    /// The Data has no segments.
    #[error("{0}: the Data has no number of a segment")]
    NoSegment(String),
    /// A segment did not come.
    #[error("segment {segment}: {why}")]
    Segment {
        /// Which.
        segment: u64,
        /// Why it did not come.
        why: NoData,
    },
    /// It is longer than was asked for.
    #[error("more than {0} octets")]
    TooLong(usize),
}

/// An Interest under way.
struct Pending {
    sent: Instant,
    tries: u32,
}

/// What has come so far.
struct Fetch<'n> {
    /// The name before the number of the segment.
    name: Name<'n>,
    options: FetchOptions,
    pending: BTreeMap<u64, Pending>,
    /// Segments that came before others in front of them.
    early: BTreeMap<u64, Vec<u8>>,
    content: Vec<u8>,
    /// Octets in `early`.
    waiting: usize,
    /// The segment that `content` lacks next.
    next: u64,
    /// The segment to be asked for next.
    ahead: u64,
    last: Option<u64>,
    window: f64,
    /// When the window was halved.
    halved: Instant,
}

/// Fetches the newest version of `name`: a Data is asked for whose name begins with it, and then the segments of its version.
///
/// # Errors
/// [`FetchError`].
pub fn fetch_versioned(
    consumer: &mut Consumer,
    name: Name<'_>,
    options: &FetchOptions,
) -> Result<Vec<u8>, FetchError> {
    let interest = InterestRepr {
        name,
        can_be_prefix: true,
        must_be_fresh: true,
        lifetime_ms: Some(milliseconds(options.lifetime)),
        ..InterestRepr::default()
    };
    let failed = |why| FetchError::First { name: name.to_string(), why };
    let mut tries = 0;
    let answer = loop {
        match consumer.ask(&interest) {
            Err(NoData::Timeout(_)) if tries < options.retries => tries += 1,
            other => break other.map_err(failed)?,
        }
    };
    let data = answer.data().map_err(|error| failed(error.into()))?;
    if segment(&data).is_none() {
        return Err(FetchError::NoSegment(data.name.to_string()));
    }
    fetch(consumer, data.name.parent(), options)
}

/// Fetches the segments of `name`, whose last component is the version.
///
/// # Errors
/// [`FetchError`].
pub fn fetch(consumer: &mut Consumer, name: Name<'_>, options: &FetchOptions) -> Result<Vec<u8>, FetchError> {
    let fetch = Fetch {
        name,
        options: *options,
        pending: BTreeMap::new(),
        early: BTreeMap::new(),
        content: Vec::new(),
        waiting: 0,
        next: 0,
        ahead: 0,
        last: None,
        window: 4.0_f64.min(options.window_max as f64),
        halved: Instant::now(),
    };
    fetch.run(consumer)
}

impl Fetch<'_> {
    fn run(mut self, consumer: &mut Consumer) -> Result<Vec<u8>, FetchError> {
        while self.last.is_none_or(|last| self.next <= last) {
            self.fill(consumer)?;
            let wait = self.pending.values().map(|pending| pending.sent + self.options.lifetime).min();
            let received = consumer.connection.receive(wait.unwrap_or_else(Instant::now));
            match received.map_err(|error| self.failed(error.into()))? {
                Some(received) => {
                    if let Some((header, packet)) = received.packet() {
                        if header.congestion_mark != 0 {
                            self.halve();
                        }
                        match header.nack {
                            Some(code) => self.refused(packet, NackReason::from_code(code))?,
                            None => self.came(packet)?,
                        }
                    }
                }
                None => self.late(consumer)?,
            }
        }
        Ok(self.content)
    }

    /// Sends Interests as far as the window allows.
    fn fill(&mut self, consumer: &mut Consumer) -> Result<(), FetchError> {
        let mut packets = Vec::new();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // At least 1, at most `window_max`.
        let window = self.window as usize;
        while self.pending.len() < window && self.last.is_none_or(|last| self.ahead <= last) {
            packets.extend(self.interest(self.ahead)?);
            self.pending.insert(self.ahead, Pending { sent: Instant::now(), tries: 0 });
            self.ahead += 1;
        }
        consumer.connection.send(&packets).map_err(|error| self.failed(error.into()))
    }

    fn interest(&self, segment: u64) -> Result<Vec<u8>, FetchError> {
        let name = with_number(self.name, types::SEGMENT_COMPONENT, segment);
        let lifetime_ms = Some(milliseconds(self.options.lifetime));
        let written = Name::new(&name)
            .and_then(|name| write(&InterestRepr { name, lifetime_ms, ..InterestRepr::default() }));
        written.map_err(|error| FetchError::Segment { segment, why: error.into() })
    }

    /// Takes a Data in that came.
    fn came(&mut self, packet: &[u8]) -> Result<(), FetchError> {
        let Ok(data) = Data::parse(packet, packet.len()) else { return Ok(()) };
        let Some(number) = segment(&data).filter(|_| data.name.parent() == self.name) else { return Ok(()) };
        if self.pending.remove(&number).is_none() {
            return Ok(());
        }
        if !is_whole(&data) {
            return Err(FetchError::Segment { segment: number, why: NoData::Corrupt });
        }
        if let Some(last) = data.meta.final_block.and_then(|last| last.number(types::SEGMENT_COMPONENT)) {
            self.last = Some(last);
            self.pending.retain(|asked, _| *asked <= last);
            self.ahead = self.ahead.min(last + 1);
        }
        self.window = (self.window + 1.0 / self.window).min(self.options.window_max as f64);
        self.waiting += data.content.len();
        if self.content.len() + self.waiting > self.options.octets_max {
            return Err(FetchError::TooLong(self.options.octets_max));
        }
        self.early.insert(number, data.content.to_vec());
        while let Some(content) = self.early.remove(&self.next) {
            self.waiting -= content.len();
            self.content.extend(content);
            self.next += 1;
        }
        Ok(())
    }

    /// An Interest came back: it is sent again when its time is over, if congestion is the reason.
    fn refused(&mut self, packet: &[u8], reason: NackReason) -> Result<(), FetchError> {
        let Ok(interest) = kaido_wire::ndn::Interest::parse(packet, packet.len()) else { return Ok(()) };
        let last = interest.name.last().and_then(|last| last.number(types::SEGMENT_COMPONENT));
        let Some(segment) = last.filter(|_| interest.name.parent() == self.name) else { return Ok(()) };
        if !self.pending.contains_key(&segment) {
            return Ok(());
        }
        self.halve();
        match reason {
            NackReason::Congestion | NackReason::Duplicate => Ok(()),
            reason => Err(FetchError::Segment { segment, why: NoData::Nack(reason) }),
        }
    }

    /// Sends again what has waited too long.
    fn late(&mut self, consumer: &mut Consumer) -> Result<(), FetchError> {
        let now = Instant::now();
        let lifetime = self.options.lifetime;
        let late = self.pending.iter().filter(|(_, pending)| now >= pending.sent + lifetime);
        let late: Vec<u64> = late.map(|(segment, _)| *segment).collect();
        for segment in late {
            let again = self.interest(segment)?;
            let Some(pending) = self.pending.get_mut(&segment) else { continue };
            pending.tries += 1;
            pending.sent = now;
            if pending.tries > self.options.retries {
                return Err(FetchError::Segment { segment, why: NoData::Timeout(lifetime) });
            }
            self.halve();
            consumer.connection.send(&again).map_err(|error| self.failed(error.into()))?;
        }
        Ok(())
    }

    /// Halves the window, once for what was lost in one.
    fn halve(&mut self) {
        if self.halved.elapsed() >= self.options.lifetime / 8 {
            self.window = (self.window / 2.0).max(1.0);
            self.halved = Instant::now();
        }
    }

    fn failed(&self, why: NoData) -> FetchError {
        FetchError::Segment { segment: self.next, why }
    }
}

/// The number of the segment that a Data is.
fn segment(data: &Data<'_>) -> Option<u64> {
    data.name.last()?.number(types::SEGMENT_COMPONENT)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Connection, Publication};
    use kaido_wire::ndn::{Interest, LpHeader, name_from_uri};
    use std::collections::HashSet;
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;

    /// What a network does to an answer.
    enum AnswerLoss {
        Arrives,
        /// It is lost.
        Lost,
        /// The Interest comes back with this reason.
        Nack(u64),
        /// It arrives with an octet changed.
        Changed,
    }

    fn publication(octets: usize) -> (Publication, Vec<u8>) {
        let content: Vec<u8> = (0..octets).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let prefix = name_from_uri("/a").unwrap();
        let publication =
            Publication::new(Name::new(&prefix).unwrap(), 3, content.clone(), 100, 1000).unwrap();
        (publication, content)
    }

    /// One that answers from a publication until the other end is closed; how many Interests there were.
    fn serve(
        publication: Publication,
        mut fate: impl FnMut(u64, bool) -> AnswerLoss + Send + 'static,
    ) -> (Consumer, JoinHandle<usize>) {
        let (near, far) = UnixStream::pair().unwrap();
        let mut connection = Connection::over_stream(far);
        let thread = std::thread::spawn(move || {
            let (mut interests, mut seen) = (0, HashSet::new());
            while let Ok(received) = connection.receive(Instant::now() + Duration::from_secs(10)) {
                let Some(received) = received else { break };
                let (_, packet) = received.packet().unwrap();
                let interest = Interest::parse(packet, packet.len()).unwrap();
                interests += 1;
                let Some(data) = publication.answer(&interest) else { continue };
                let number = interest.name.last().and_then(|last| last.number(types::SEGMENT_COMPONENT));
                let number = number.unwrap_or_default();
                let sent = match fate(number, seen.insert(number)) {
                    AnswerLoss::Arrives => data,
                    AnswerLoss::Lost => continue,
                    AnswerLoss::Nack(reason) => {
                        let header = LpHeader { nack: Some(reason), ..LpHeader::default() };
                        let mut nack = vec![0; header.len(packet.len())];
                        header.emit(packet.len(), &mut nack).unwrap();
                        [nack, packet.to_vec()].concat()
                    }
                    AnswerLoss::Changed => {
                        let mut data = data;
                        let at = data.len() - 50;
                        data[at] ^= 1;
                        data
                    }
                };
                if connection.send(&sent).is_err() {
                    break;
                }
            }
            interests
        });
        (Consumer::over(Connection::over_stream(near)), thread)
    }

    /// Of an answer that never comes it is known soon, of one that does not come at once it is not given up soon.
    fn impatient() -> FetchOptions {
        FetchOptions { lifetime: Duration::from_millis(40), retries: 20, ..FetchOptions::default() }
    }

    fn get(consumer: &mut Consumer, options: &FetchOptions) -> Result<Vec<u8>, FetchError> {
        let name = name_from_uri("/a").unwrap();
        fetch_versioned(consumer, Name::new(&name).unwrap(), options)
    }

    #[test]
    fn all_comes_in_order_and_is_asked_for_once() {
        for octets in [0, 1, 100, 101, 100_000] {
            let (publication, content) = publication(octets);
            let segments = usize::try_from(publication.segments()).unwrap();
            let (mut consumer, thread) = serve(publication, |_, _| AnswerLoss::Arrives);
            assert_eq!(get(&mut consumer, &FetchOptions::default()).unwrap(), content);
            drop(consumer);
            let asked = thread.join().unwrap();
            // One for the version; those behind the end that were under way before it was known find nothing.
            assert!((segments + 1..segments + 5).contains(&asked), "{asked} for {segments}");
        }
    }

    #[test]
    fn what_is_lost_or_refused_for_congestion_is_asked_for_again() {
        let (publication, content) = publication(20_000);
        let (mut consumer, _thread) = serve(publication, |number, first| match number % 5 {
            1 if first => AnswerLoss::Lost,
            3 if first => AnswerLoss::Nack(50),
            _ => AnswerLoss::Arrives,
        });
        assert_eq!(get(&mut consumer, &impatient()).unwrap(), content);
    }

    #[test]
    fn failures_name_the_segment() {
        let (publication, _) = publication(2000);
        let few = FetchOptions { retries: 1, ..FetchOptions::default() };
        let (mut consumer, _thread) =
            serve(
                publication.clone(),
                |number, _| if number == 7 { AnswerLoss::Lost } else { AnswerLoss::Arrives },
            );
        let error =
            get(&mut consumer, &FetchOptions { lifetime: Duration::from_millis(500), ..few }).unwrap_err();
        assert!(matches!(error, FetchError::Segment { segment: 7, why: NoData::Timeout(_) }), "{error}");
        let (mut consumer, _thread) =
            serve(
                publication.clone(),
                |number, _| if number == 7 { AnswerLoss::Nack(150) } else { AnswerLoss::Arrives },
            );
        let error = get(&mut consumer, &few).unwrap_err();
        assert_eq!(error.to_string(), "segment 7: refused by the router: no route leads to the name");
        let (mut consumer, _thread) =
            serve(
                publication.clone(),
                |number, _| if number == 7 { AnswerLoss::Changed } else { AnswerLoss::Arrives },
            );
        let error = get(&mut consumer, &few).unwrap_err();
        assert!(matches!(error, FetchError::Segment { segment: 7, why: NoData::Corrupt }), "{error}");
        let (mut consumer, _thread) = serve(publication.clone(), |_, _| AnswerLoss::Nack(150));
        assert!(matches!(
            get(&mut consumer, &few).unwrap_err(),
            FetchError::First { why: NoData::Nack(_), .. }
        ));
        let (mut consumer, _thread) = serve(publication, |_, _| AnswerLoss::Arrives);
        let small = FetchOptions { octets_max: 500, ..few };
        assert!(matches!(get(&mut consumer, &small).unwrap_err(), FetchError::TooLong(500)));
    }
}
