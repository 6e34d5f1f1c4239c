//! Traces of ports, for functions without sessions: what becomes of each packet that comes in or leaves by one.

use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use kaido_engine::tracer::{PortRecord, Tracer, WatchId};
use kaido_engine::{Disposition, DropTable, PortId};

use super::board::PortBoard;
use crate::api::{self, PacketDisposition, Problem, TraceBegun, TraceOf, TraceRead};
use crate::view::Traces;

/// A reader that does not come back for so long has gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// Packets in one answer, and about how many octets of them.
pub const READ_MAX: (usize, usize) = (512, 1 << 20);
/// Octets of a frame that are kept at most: longer than any.
pub const SNAP_MAX: usize = 65_536;

/// A watch and when it was read last.
#[derive(Debug)]
struct Reader {
    id: WatchId,
    /// Names of its ports.
    ports: Vec<String>,
    read: Instant,
}

/// The control side of traces of ports.
pub struct PortTraces {
    tracer: Arc<Tracer<PortRecord>>,
    board: PortBoard,
    /// The function's.
    reasons: &'static DropTable,
    /// Names of the ports of Ethernet, which come first; others have no frames to show.
    named: Vec<String>,
    readers: Vec<Reader>,
}

impl PortTraces {
    /// Traces by those workers of a function with these drop reasons, of the ports of Ethernet that are on the board now.
    pub fn new(tracer: Arc<Tracer<PortRecord>>, reasons: &'static DropTable, board: PortBoard) -> Self {
        let named = board.list().into_iter().map(|port| port.name).collect();
        Self { tracer, board, reasons, named, readers: Vec::new() }
    }

    /// Ends what nobody reads any more.
    pub fn turn(&mut self) {
        let Self { tracer, readers, .. } = self;
        readers.retain(|reader| {
            let is_read = reader.read.elapsed() < PATIENCE;
            if !is_read {
                tracer.close(reader.id);
            }
            is_read
        });
    }
}

impl Traces for PortTraces {
    fn begin(&mut self, of: &TraceOf, snap: usize) -> Result<TraceBegun, Problem> {
        let TraceOf::Ports(wanted) = of else {
            return Err(Problem::bad_request(
                "this node has no sessions; name a port with --port, or nothing for all ports".to_owned(),
            ));
        };
        let ports = if wanted.is_empty() { self.named.clone() } else { wanted.clone() };
        if ports.is_empty() {
            let why = "this node has no port of Ethernet; tcpdump sees what its TCP and UDP faces carry";
            return Err(Problem::conflict(why.to_owned()));
        }
        let mut keys = Vec::new();
        for name in &ports {
            let at = self.named.iter().position(|known| known == name);
            let Some(number) = at.and_then(|at| u8::try_from(at).ok()) else {
                let known = self.named.join(", ");
                let why = format!("there is no port {name} whose packets could be traced, only {known}");
                return Err(Problem::not_found(why));
            };
            keys.push(PortId(number));
        }
        let id = self.tracer.open(snap.min(SNAP_MAX)).ok_or_else(too_many_traces)?;
        self.tracer.watch(id, &keys);
        self.readers.push(Reader { id, ports, read: Instant::now() });
        Ok(TraceBegun { id: id.0, ports: self.named.clone() })
    }

    fn read(&mut self, id: u32) -> Result<TraceRead, Problem> {
        let reader = self.readers.iter_mut().find(|reader| reader.id.0 == id).ok_or_else(no_trace)?;
        reader.read = Instant::now();
        let (records, lost) = self.tracer.read(reader.id, READ_MAX.0, READ_MAX.1);
        let all: Vec<_> = self.board.list().into_iter().map(|port| port.name).collect();
        let packets = records.iter().map(|record| traced(record, self.reasons, &all)).collect();
        Ok(TraceRead { of: reader.ports.clone(), lost, packets })
    }

    fn end(&mut self, id: u32) {
        self.readers.retain(|reader| reader.id.0 != id);
        self.tracer.close(WatchId(id));
    }
}

/// That no further trace can begin.
pub fn too_many_traces() -> Problem {
    Problem::conflict("there are too many traces already".to_owned())
}

/// That a trace is not there.
pub fn no_trace() -> Problem {
    Problem::not_found("the trace has ended: nobody had read it for a while".to_owned())
}

fn traced(record: &PortRecord, reasons: &DropTable, ports: &[String]) -> api::TracedPacket {
    let leaves = record.dispositions.iter().find_map(|disposition| match disposition {
        Disposition::Sent { port, .. } => Some(*port),
        _ => None,
    });
    let port = record.port.or(leaves).map(|port| name(ports, port)).unwrap_or_default();
    api::TracedPacket {
        time_ns: nanoseconds(record.at.duration_since(UNIX_EPOCH).unwrap_or_default()),
        seid: String::new(),
        direction: if record.port.is_some() { api::IN } else { api::OUT }.to_owned(),
        port,
        key: String::new(),
        qfi: None,
        rule: None,
        matched_ns: None,
        took_ns: nanoseconds(record.took),
        verdict: verdict(&record.dispositions, false).to_owned(),
        frame: frame(record.len, &record.head),
        dispositions: record
            .dispositions
            .iter()
            .map(|disposition| shown_disposition(disposition, reasons, |port| name(ports, port)))
            .collect(),
    }
}

fn name(ports: &[String], port: PortId) -> String {
    ports.get(port.index()).cloned().unwrap_or_else(|| format!("port {}", port.0))
}

/// What became of a packet, in one word.
pub fn verdict(dispositions: &[Disposition], is_buffered: bool) -> &'static str {
    match dispositions.last() {
        Some(Disposition::Sent { .. }) => "sent",
        Some(Disposition::Dropped(_)) => "dropped",
        Some(Disposition::ToKernel) => "kernel",
        None if is_buffered => "buffered",
        None => "waits",
    }
}

/// A duration in nanoseconds; the largest number for one that has more.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A frame, its front in hexadecimal.
pub fn frame(len: usize, head: &[u8]) -> api::TracedFrame {
    let mut octets = String::with_capacity(2 * head.len());
    for octet in head {
        octets
            .extend([octet >> 4, octet & 0xf].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('?')));
    }
    api::TracedFrame { len, octets }
}

/// A disposition, with the name of its port or of its drop reason.
pub fn shown_disposition(
    disposition: &Disposition,
    reasons: &DropTable,
    name: impl Fn(PortId) -> String,
) -> PacketDisposition {
    match disposition {
        Disposition::Sent { port, len, head } => {
            PacketDisposition::Sent { port: name(*port), frame: frame(*len, head) }
        }
        Disposition::Dropped(reason) => {
            PacketDisposition::Dropped { reason: reasons.name(*reason).to_owned() }
        }
        Disposition::ToKernel => PacketDisposition::Kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::PortView;

    fn traces() -> PortTraces {
        let ports = ["wan", "lan"].map(|name| PortView::steady(name, "af_packet", 1500));
        PortTraces::new(Arc::default(), DropTable::ENGINE, PortBoard::new(ports.to_vec()))
    }

    fn begin(traces: &mut PortTraces, ports: &[&str]) -> Result<TraceBegun, Problem> {
        let ports = ports.iter().map(|&port| port.to_owned()).collect();
        traces.begin(&TraceOf::Ports(ports), 64)
    }

    #[test]
    fn ports_are_named_or_all() {
        let mut traces = traces();
        begin(&mut traces, &[]).unwrap();
        assert_eq!(traces.tracer.traced().keys[..], [PortId(0), PortId(1)]);
        assert_eq!(begin(&mut traces, &["lan"]).unwrap().id, 2);
        let Problem { status, detail, .. } = begin(&mut traces, &["vlan"]).unwrap_err();
        assert_eq!(status, 404);
        assert!(detail.contains("no port vlan") && detail.contains("wan, lan"), "{detail}");
    }

    #[test]
    fn what_nobody_reads_ends() {
        let mut traces = traces();
        begin(&mut traces, &[]).unwrap();
        traces.turn();
        assert!(!traces.tracer.traced().keys.is_empty());
        traces.readers[0].read -= PATIENCE;
        traces.turn();
        assert!(traces.tracer.traced().keys.is_empty());
        assert_eq!(traces.read(1), Err(no_trace()));
    }
}
