//! A worker's side of traces of ports: packets go through the function one by one, and what it does with each is written down.
//! What it does is the same.

use std::time::{Duration, Instant, SystemTime};

use crate::batch::Batch;
use crate::function::{Function, Output};
use crate::port::PortId;
use crate::trace_recorder::head_of;
use crate::tracer::{PortRecord, Tracer};

/// Has each packet of a batch that came in on `port` handled alone. `to`: who is told, and of how many octets.
#[cold]
pub(crate) fn process(
    batch: &mut Batch,
    port: PortId,
    out: &mut Output<'_>,
    to: (&Tracer<PortRecord>, usize),
    mut handle: impl FnMut(&mut Batch, &mut Output<'_>),
) {
    let (tracer, snap) = to;
    let mut one = Batch::new();
    for frame in batch.drain(..) {
        let (len, head) = (frame.packet_len(), head_of(&frame, snap));
        let (at, since) = (SystemTime::now(), Instant::now());
        one.push(frame);
        out.record_trace(snap);
        handle(&mut one, out);
        let dispositions = out.take_dispositions();
        tracer.push(PortRecord { at, port: Some(port), len, head, took: since.elapsed(), dispositions });
    }
}

/// Has a function do what its time has come for, and writes down what it sends.
#[cold]
pub(crate) fn tick(function: &mut dyn Function, out: &mut Output<'_>, to: (&Tracer<PortRecord>, usize)) {
    let (tracer, snap) = to;
    out.record_trace(snap);
    function.tick(out);
    // One record for each: what they have to do with each other only the function knows.
    for disposition in out.take_dispositions() {
        let took = Duration::ZERO;
        let (at, dispositions) = (SystemTime::now(), vec![disposition]);
        tracer.push(PortRecord { at, port: None, len: 0, head: Vec::new(), took, dispositions });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::port::MemoryWire;
    use crate::tracer::{PortRecord, Tracer};
    use crate::{
        Batch, Disposition, DropReason, FramePool, Function, KernelPath, Output, Port, PortId, Worker,
        WorkerSettings,
    };

    /// Sends what comes in to the other port, all at once; drops what begins with a nought; sends a frame when told to tick.
    struct Sorter {
        ticks: usize,
    }

    impl Function for Sorter {
        fn name(&self) -> &'static str {
            "sorter"
        }

        fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
            for frame in batch.drain(..).collect::<Vec<_>>() {
                if frame.data()[0] == 0 {
                    out.drop(port, frame, DropReason::IP_MALFORMED);
                } else {
                    batch.push(frame);
                }
            }
            out.transmit_all(PortId(1 - port.0), batch);
        }

        fn tick(&mut self, out: &mut Output<'_>) {
            for _ in 0..std::mem::take(&mut self.ticks) {
                let mut frame = out.allocate().unwrap();
                frame.append(3).unwrap().fill(9);
                out.transmit(PortId(0), frame);
            }
        }
    }

    fn sent(port: u8, len: usize, head: &[u8]) -> Disposition {
        Disposition::Sent { port: PortId(port), len, head: head.to_vec() }
    }

    #[test]
    fn what_becomes_of_the_packets_of_a_port_is_written_down_and_is_the_same() {
        let pool = FramePool::leak(64).unwrap();
        let (a, b) = (MemoryWire::new(), MemoryWire::new());
        let queues = [&a, &b].map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None));
        let tracer = Arc::<Tracer<PortRecord>>::default();
        let sorter = Box::new(Sorter { ticks: 1 });
        let mut worker =
            Worker::new(pool, queues.into(), sorter, WorkerSettings::default()).with_tracer(tracer.clone());
        let [all, second] = [2, 2].map(|snap| tracer.open(snap).unwrap());
        tracer.watch(all, &[PortId(0), PortId(1)]);
        tracer.watch(second, &[PortId(1)]);
        for frame in [vec![1, 2, 3], vec![0, 1], vec![4, 5, 6, 7]] {
            a.send(frame);
        }
        while worker.step() > 0 {}
        let received = [b.receive(), b.receive(), b.receive(), a.receive()];
        assert_eq!(received, [Some(vec![1, 2, 3]), Some(vec![4, 5, 6, 7]), None, Some(vec![9, 9, 9])]);
        let read = |id| {
            let (records, lost) = tracer.read(id, 100, 1000);
            assert_eq!(lost, 0);
            let shown = |it: &Arc<PortRecord>| (it.port, it.len, it.head.clone(), it.dispositions.clone());
            let mut shown: Vec<_> = records.iter().map(shown).collect();
            shown.sort_by_key(|(port, _, head, _)| (*port, head.clone()));
            shown
        };
        let (from_a, crossed) = (Some(PortId(0)), |len, head: &[u8]| vec![sent(1, len, head)]);
        let through =
            [(from_a, 3, vec![1, 2], crossed(3, &[1, 2])), (from_a, 4, vec![4, 5], crossed(4, &[4, 5]))];
        let own = (None, 0, Vec::new(), vec![sent(0, 3, &[9, 9])]);
        let dropped = (from_a, 2, vec![0, 1], vec![Disposition::Dropped(DropReason::IP_MALFORMED)]);
        assert_eq!(read(all), [own, dropped, through[0].clone(), through[1].clone()]);
        assert_eq!(read(second), through, "what leaves by it");
        // Once nobody watches any more nothing is written down, and packets cross as before.
        [all, second].into_iter().for_each(|id| tracer.close(id));
        a.send(vec![8]);
        while worker.step() > 0 {}
        assert_eq!(b.receive(), Some(vec![8]));
        drop(worker);
        assert_eq!(pool.free_frames(), 64);
    }
}
