//! The exporter: a queue that never blocks who offers, and a thread that sends what is in it.
//!
//! ```text
//!   Queue::offer ──try_send, 4096──▶ first ─ 200 ms ─▶ batch, up to 512 ──▶ POST ──▶ taken
//!        └ no room: dropped, counted                     ▲      └ busy or away: a pause, the same again
//!                                                        └──────── for a minute, then given up, counted
//! ```

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use prost::Message;
use tokio::runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::client::{Client, Collector, Fault, Taken};
use crate::random::Random;
use crate::retry::Backoff;
use crate::span::{Resource, Span, SpanIds};

/// Most of what was offered that waits to be sent.
pub const QUEUE_MAX: usize = 4096;
/// Most of it in a request.
const BATCH_MAX: usize = 512;
/// How long others are waited for before what has come alone is sent.
const LINGER: Duration = Duration::from_millis(200);
/// How long a batch is tried, before the next has its turn.
const TRIED_FOR: Duration = Duration::from_secs(60);
/// How long what waits may take when the node stops.
const END_GRACE: Duration = Duration::from_secs(2);
/// How often it is told that nothing is taken.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// What was done, and what not. Each is a number of what was offered, unless it says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Taken by the collector.
    pub exported: u64,
    /// Dropped, as the queue was full.
    pub queue_full: u64,
    /// Given up, as the collector was away or busy.
    pub given_up: u64,
    /// Refused by the collector.
    pub refused: u64,
    /// Requests that failed, as the collector was not reached, or was busy, or has refused them.
    pub failures: [u64; 3],
    /// Spans that the collector has refused of what it has taken.
    pub rejected_spans: u64,
    /// Why the last request has failed, if it has.
    pub fault: Option<String>,
}

impl ExportCounts {
    /// All that no collector has.
    pub const fn lost(&self) -> u64 {
        self.queue_full + self.given_up + self.refused
    }
}

/// The counts as both threads have them.
#[derive(Debug, Default)]
struct Shared {
    exported: AtomicU64,
    queue_full: AtomicU64,
    given_up: AtomicU64,
    refused: AtomicU64,
    failures: [AtomicU64; 3],
    rejected_spans: AtomicU64,
    fault: Mutex<Option<String>>,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl Shared {
    fn counts(&self) -> ExportCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let [unreachable, busy, refusing] = &self.failures;
        ExportCounts {
            exported: read(&self.exported),
            queue_full: read(&self.queue_full),
            given_up: read(&self.given_up),
            refused: read(&self.refused),
            failures: [read(unreachable), read(busy), read(refusing)],
            rejected_spans: read(&self.rejected_spans),
            fault: self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn set_fault(&self, fault: Option<String>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    fn failed(&self, fault: &Fault) {
        let kind = match fault {
            Fault::Busy(..) => 1,
            Fault::Refused(_) => 2,
            _ => 0,
        };
        add(&self.failures[kind], 1);
        self.set_fault(Some(fault.to_string()));
    }
}

/// Where what is to be told is offered. The exporter ends with it.
#[derive(Debug)]
pub struct Queue<T> {
    waiting: Option<mpsc::Sender<T>>,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    ended: Receiver<()>,
}

impl<T> Queue<T> {
    /// Has something told; drops it where there is no room. It never waits.
    pub fn offer(&self, told: T) {
        if self.waiting.as_ref().is_none_or(|waiting| waiting.try_send(told).is_err()) {
            add(&self.shared.queue_full, 1);
        }
    }

    /// What was done.
    pub fn counts(&self) -> ExportCounts {
        self.shared.counts()
    }

    /// Who asks for that in another thread.
    pub fn monitor(&self) -> Monitor {
        Monitor(self.shared.clone())
    }
}

/// Where the counts are read.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Shared>);

impl Monitor {
    /// What was done.
    pub fn counts(&self) -> ExportCounts {
        self.0.counts()
    }
}

impl<T> Drop for Queue<T> {
    /// Ends the exporter, when what waits is sent or two seconds have passed.
    fn drop(&mut self) {
        self.waiting = None;
        self.stop.send_replace(true);
        // Its other end is dropped with the thread.
        if self.ended.recv_timeout(END_GRACE + LINGER) == Err(RecvTimeoutError::Timeout) {
            tracing::debug!("the thread of the OTLP exporter has not ended in time");
        }
    }
}

/// What the exporter's thread has.
pub struct Exporter<T, F> {
    waiting: mpsc::Receiver<T>,
    to_spans: F,
    ids: SpanIds,
    resource: Resource,
    collector: String,
    client: Client,
    backoff: Backoff,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    outage: OutageLog,
    rejections: OutageLog,
    drops: OutageLog,
}

/// What was told in the log.
#[derive(Debug, Default)]
struct OutageLog {
    told: Option<Instant>,
    /// It was not told that it is over.
    is_open: bool,
    /// What was lost by then.
    lost: u64,
}

impl<T, F> Exporter<T, F>
where
    T: Send + 'static,
    F: FnMut(T, &mut SpanIds, &mut Vec<Span>) + Send + 'static,
{
    /// Starts a thread of that name, which makes spans of what is offered and sends them.
    ///
    /// # Errors
    /// When thread or runtime cannot be made.
    pub fn start(name: &str, collector: Collector, resource: Resource, to_spans: F) -> io::Result<Queue<T>> {
        Self::start_bounded(name, collector, resource, to_spans, QUEUE_MAX)
    }

    fn start_bounded(
        name: &str,
        collector: Collector,
        resource: Resource,
        to_spans: F,
        queue_max: usize,
    ) -> io::Result<Queue<T>> {
        let mut builder = runtime::Builder::new_current_thread();
        let runtime = builder.enable_io().enable_time().max_blocking_threads(1).build()?;
        let (offer, waiting) = mpsc::channel(queue_max);
        let (stop, stopped) = watch::channel(false);
        let (alive, ended) = channel::<()>();
        let shared = Arc::<Shared>::default();
        let exporter = Self {
            waiting,
            to_spans,
            ids: SpanIds::default(),
            resource,
            collector: collector.name(),
            client: Client::new(collector),
            backoff: Backoff::new(Random::new()),
            shared: shared.clone(),
            stop: stopped.clone(),
            outage: OutageLog::default(),
            rejections: OutageLog::default(),
            drops: OutageLog::default(),
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = exporter.run() => {}
                    () = end_grace(stopped) => {}
                }
            });
            // A name that is being looked up keeps nobody.
            runtime.shutdown_background();
            drop(alive);
        })?;
        Ok(Queue { waiting: Some(offer), shared, stop, ended })
    }

    async fn run(mut self) {
        let mut batch = Vec::new();
        while let Some(first) = self.waiting.recv().await {
            batch.push(first);
            pause(LINGER, &mut self.stop).await;
            loop {
                while batch.len() < BATCH_MAX
                    && let Ok(next) = self.waiting.try_recv()
                {
                    batch.push(next);
                }
                let is_full = batch.len() == BATCH_MAX;
                self.deliver(&mut batch).await;
                self.log_drops();
                if !is_full {
                    break;
                }
            }
        }
    }

    /// Sends a batch until it is taken, refused, or given up.
    async fn deliver(&mut self, batch: &mut Vec<T>) {
        let count = batch.len() as u64;
        if count == 0 {
            return;
        }
        let mut spans = Vec::new();
        batch.drain(..).for_each(|told| (self.to_spans)(told, &mut self.ids, &mut spans));
        let octets = Bytes::from(self.resource.request(spans).encode_to_vec());
        let began = Instant::now();
        loop {
            let fault = match self.client.send(octets.clone()).await {
                Ok(taken) => return self.taken(count, &taken),
                Err(fault) => fault,
            };
            self.shared.failed(&fault);
            if !fault.is_passing() {
                add(&self.shared.refused, count);
                return self.log_outage(&fault);
            }
            let wait = self.backoff.pause(fault.asked());
            let is_over = *self.stop.borrow() || began.elapsed() >= TRIED_FOR;
            if is_over {
                add(&self.shared.given_up, count);
            }
            self.log_outage(&fault);
            if !*self.stop.borrow() {
                pause(wait, &mut self.stop).await;
            }
            if is_over {
                return;
            }
        }
    }

    fn taken(&mut self, count: u64, taken: &Taken) {
        add(&self.shared.exported, count);
        add(&self.shared.rejected_spans, taken.rejected);
        self.backoff.reset();
        self.shared.set_fault(None);
        if taken.rejected > 0 && self.rejections.is_due() {
            let (collector, spans, why) = (&self.collector, taken.rejected, &taken.why);
            tracing::warn!(collector, spans, why, "an OTLP collector has not taken all spans");
        }
        let counts = self.shared.counts();
        if let Some(lost) = self.outage.end(counts.lost()) {
            // What has just been told of is not told again as dropped.
            self.drops.since(counts.queue_full);
            tracing::info!(collector = self.collector, lost, "the OTLP collector takes spans again");
        }
    }

    /// Tells that more was offered than has room, where that is not because nothing was taken.
    fn log_drops(&mut self) {
        let dropped = self.shared.queue_full.load(Ordering::Relaxed);
        if !self.outage.is_open && dropped > self.drops.lost && self.drops.is_due() {
            let dropped = self.drops.since(dropped);
            tracing::warn!(dropped, "more comes than the queue of the OTLP exporter has room for");
        }
    }

    /// Tells what is the matter, and not again and again.
    fn log_outage(&mut self, fault: &Fault) {
        if self.outage.is_due() {
            self.outage.is_open = true;
            let lost = self.outage.since(self.shared.counts().lost());
            tracing::warn!(
                collector = self.collector,
                %fault,
                lost,
                "an OTLP collector does not take spans; PFCP does not wait for it"
            );
        }
    }
}

impl OutageLog {
    /// Whether the last line is long ago.
    fn is_due(&mut self) -> bool {
        let is_due = self.told.is_none_or(|told| told.elapsed() >= LOGGED_EVERY);
        if is_due {
            self.told = Some(Instant::now());
        }
        is_due
    }

    /// What was lost since the last line.
    const fn since(&mut self, lost: u64) -> u64 {
        let since = lost - self.lost;
        self.lost = lost;
        since
    }

    /// What was lost since the last line, if it is to be told that it is over.
    const fn end(&mut self, lost: u64) -> Option<u64> {
        if std::mem::replace(&mut self.is_open, false) { Some(self.since(lost)) } else { None }
    }
}

/// Waits, unless the exporter is to end.
async fn pause(wait: Duration, stop: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = sleep(wait) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// How long the exporter may go on.
async fn end_grace(mut stop: watch::Receiver<bool>) {
    // Without its sender it is to stop as well.
    let _ = stop.wait_for(|stop| *stop).await;
    sleep(END_GRACE).await;
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread::{JoinHandle, spawn};
    use std::time::SystemTime;

    use super::*;
    use crate::headers::Headers;
    use crate::message::ExportTraceServiceRequest;
    use crate::span::{SpanKind, TraceId};

    fn start(to: &TcpListener, queue_max: usize) -> Queue<u128> {
        let endpoint = format!("http://{}", to.local_addr().unwrap());
        let collector = Collector::new(Collector::uri(&endpoint).unwrap(), Headers::default(), None);
        let to_spans = |trace: u128, ids: &mut SpanIds, out: &mut Vec<Span>| {
            let now = SystemTime::now();
            out.push(Span::root(TraceId(trace), ids, "span", SpanKind::Server, (now, now)));
        };
        let resource = Resource::new(&[("service.name", "test")], ("test", "1"));
        Exporter::start_bounded("otlp", collector, resource, to_spans, queue_max).unwrap()
    }

    /// Answers requests, each on a connection of its own, and gives the traces of each.
    fn collector(listener: TcpListener, answers: &'static [&'static str]) -> JoinHandle<Vec<Vec<u8>>> {
        spawn(move || {
            let answer = |answer: &&str| {
                let mut stream = listener.accept().unwrap().0;
                let mut octets = Vec::new();
                let body = loop {
                    let mut more = [0; 4096];
                    let len = stream.read(&mut more).unwrap();
                    octets.extend_from_slice(&more[..len]);
                    let Some(end) = octets.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                    let (head, body) = octets.split_at(end + 4);
                    let head = String::from_utf8_lossy(head);
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                    if body.len() == length.parse::<usize>().unwrap() {
                        break body.to_vec();
                    }
                };
                stream
                    .write_all(
                        format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                            .as_bytes(),
                    )
                    .unwrap();
                let read = ExportTraceServiceRequest::decode(&*body).unwrap();
                let spans = read.resource_spans.into_iter().flat_map(|of| of.scope_spans);
                spans.flat_map(|of| of.spans).map(|span| span.trace_id[15]).collect()
            };
            answers.iter().map(answer).collect()
        })
    }

    fn wait(until: impl Fn() -> bool) {
        let began = Instant::now();
        while !until() {
            assert!(began.elapsed() < Duration::from_secs(20), "in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_a_busy_collector_refuses_comes_again_when_it_says() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let queue = start(&listener, 100);
        let answered =
            collector(listener, &["503 Busy\r\nretry-after: 1", "429 Busy\r\nretry-after: 0", "200 OK"]);
        let began = Instant::now();
        queue.offer(1);
        queue.offer(2);
        wait(|| queue.counts().exported == 2);
        assert!(began.elapsed() >= Duration::from_secs(1), "as it asked");
        assert_eq!(answered.join().unwrap(), [[1, 2], [1, 2], [1, 2]]);
        let counts = queue.counts();
        assert_eq!((counts.failures, counts.lost(), counts.fault), ([0, 2, 0], 0, None));
    }

    #[test]
    fn what_is_refused_does_not_come_again_and_others_do() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let queue = start(&listener, 100);
        let answered = collector(listener, &["400 No", "200 OK"]);
        queue.offer(1);
        wait(|| queue.counts().refused == 1);
        assert_eq!(queue.counts().fault.as_deref(), Some("it answers 400 Bad Request"));
        queue.offer(2);
        wait(|| queue.counts().exported == 1);
        assert_eq!(answered.join().unwrap(), [[1], [2]]);
    }

    #[test]
    fn who_offers_never_waits_and_what_has_no_room_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let queue = start(&listener, 8);
        drop(listener);
        queue.offer(0);
        wait(|| queue.counts().failures[0] > 0);
        let began = Instant::now();
        (0..100).for_each(|number| queue.offer(number));
        assert!(began.elapsed() < Duration::from_secs(1));
        assert_eq!(queue.counts().queue_full, 92);
        let began = Instant::now();
        drop(queue);
        assert!(began.elapsed() < END_GRACE + Duration::from_secs(1), "nobody is there to be told");
    }

    #[test]
    fn what_waits_at_the_end_is_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let queue = start(&listener, 100);
        let answered = collector(listener, &["200 OK"]);
        queue.offer(1);
        drop(queue);
        assert_eq!(answered.join().unwrap(), [[1]]);
    }
}
