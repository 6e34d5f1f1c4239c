//! A worker's side of traces of ports: packets go through the function one by one, and what it does with each is written down.
//! What it does is the same.

use std::time::{Duration, Instant, SystemTime};

use crate::batch::Batch;
use crate::function::{Function, Output};
use crate::port::PortId;
use crate::tracer::{PortRecord, Tracer};
use crate::witness::front_of;

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
        let (len, front) = (frame.packet_len(), front_of(&frame, snap));
        let (at, since) = (SystemTime::now(), Instant::now());
        one.push(frame);
        out.witness(snap);
        handle(&mut one, out);
        let fates = out.take_fates();
        tracer.push(PortRecord { at, port: Some(port), len, front, took: since.elapsed(), fates });
    }
}

/// Has a function do what its time has come for, and writes down what it sends.
#[cold]
pub(crate) fn tick(function: &mut dyn Function, out: &mut Output<'_>, to: (&Tracer<PortRecord>, usize)) {
    let (tracer, snap) = to;
    out.witness(snap);
    function.tick(out);
    // One record for each: what they have to do with each other only the function knows.
    for fate in out.take_fates() {
        let took = Duration::ZERO;
        let (at, fates) = (SystemTime::now(), vec![fate]);
        tracer.push(PortRecord { at, port: None, len: 0, front: Vec::new(), took, fates });
    }
}
