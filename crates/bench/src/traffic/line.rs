//! A port in use: what it sends and receives, and who answers for its addresses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kaido_engine::port::Port;
use kaido_engine::{Batch, Frame, PoolCache};

use super::neighbour::Neighbours;
use super::{OpenPort, RunError};
use crate::generator::{Generator, link};
use crate::oracle::Rule;
use crate::stream::{LinkMode, Mac, PortSpec, Source, Traffic};

/// Time between two questions for a gateway.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// An open port, in L2 or L3 mode.
#[derive(Debug)]
pub struct Line {
    pub(super) name: String,
    pub(super) open: OpenPort,
    pub(super) cache: PoolCache,
    pub(super) neighbours: Option<Neighbours>,
}

/// Announces the ports' addresses, and asks until every gateway has answered. `carry` is called again and again meanwhile: a
/// device in memory does its part there.
///
/// # Errors
/// [`RunError::NoGateway`] when one has not `within` the time, or the run is stopped before.
pub fn resolve(
    lines: &mut [Line],
    within: Duration,
    stop: &AtomicBool,
    carry: &mut dyn FnMut(),
) -> Result<(), RunError> {
    let began = Instant::now();
    let mut asked: Option<Instant> = None;
    let mut batch = Batch::new();
    loop {
        let is_due = asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
        let mut missing = None;
        for line in lines.iter_mut() {
            let Some(neighbours) = &mut line.neighbours else { continue };
            if line.open.has_side() {
                // Answers of neighbour discovery are IP to our MAC address, and come in at the port itself.
                line.open.port.receive(&mut line.cache, &mut batch);
            }
            let port = line.open.neighbours_at();
            port.receive(&mut line.cache, &mut batch);
            for frame in batch.drain(..) {
                if let Some(answer) = neighbours.hear(&frame.to_vec()) {
                    send(port, &mut line.cache, &answer, None);
                }
                line.cache.release(frame);
            }
            if asked.is_none() {
                neighbours.announcements().for_each(|frame| send(port, &mut line.cache, &frame, None));
            }
            if is_due {
                for question in neighbours.questions() {
                    send(port, &mut line.cache, &question, None);
                }
            }
            if let Some(gateway) = neighbours.unresolved().next() {
                missing.get_or_insert_with(|| RunError::NoGateway { port: line.name.clone(), gateway });
            }
        }
        let Some(missing) = missing else { return Ok(()) };
        carry();
        if began.elapsed() >= within || stop.load(Ordering::Relaxed) {
            return Err(missing);
        }
        if is_due {
            asked = Some(Instant::now());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends one frame, now or never. The generator whose frames are of the same pool learns of it.
pub(super) fn send(
    port: &mut dyn Port,
    cache: &mut PoolCache,
    bytes: &[u8],
    generator: Option<&mut Generator>,
) {
    let mut batch = Batch::new();
    if let Some(frame) = Frame::from_slice(bytes, || cache.allocate()) {
        if let Some(generator) = generator {
            generator.forget(&frame);
        }
        batch.push(frame);
        port.transmit(cache, &mut batch);
        batch.drain(..).for_each(|frame| cache.release(frame));
    }
}

impl Line {
    /// An open port as its description says.
    ///
    /// # Errors
    /// [`RunError::NoMac`].
    pub fn new(spec: &PortSpec, open: OpenPort) -> Result<Self, RunError> {
        let neighbours = match &spec.link {
            LinkMode::L2 => None,
            LinkMode::L3 { addresses, gateways, mac, vlan } => {
                let mac = mac.map(Mac::octets).or(open.mac);
                let mac = mac.ok_or_else(|| RunError::NoMac { port: spec.name.clone() })?;
                Some(Neighbours::new(mac, *vlan, addresses, gateways))
            }
        };
        Ok(Self { name: spec.name.clone(), cache: open.pool.cache(), open, neighbours })
    }

    /// Own link address, and that of the next hop of a family, as far as they are known here.
    fn link(&self, is_ipv4: bool) -> [Option<[u8; 6]>; 2] {
        match &self.neighbours {
            Some(neighbours) => [Some(neighbours.mac()), neighbours.gateway(is_ipv4)],
            None => [self.open.mac, None],
        }
    }
}

/// The traffic with link addresses in its templates: in L3 mode those that were found, else the port's own where the
/// template has none.
pub fn addressed(traffic: &Traffic, lines: &[Line]) -> Traffic {
    let mut traffic = traffic.clone();
    for stream in &mut traffic.streams {
        let Some(line) = lines.iter().find(|line| line.name == stream.port) else { continue };
        let Source::Template(template) = &mut stream.source else { continue };
        let Some((at, _)) = link(&template.bytes) else { continue };
        let [own, gateway] = line.link(template.bytes.get(at).is_some_and(|version| version >> 4 == 4));
        let is_l3 = line.neighbours.is_some();
        if let Some(gateway) = gateway {
            template.bytes[..6].copy_from_slice(&gateway);
        }
        if let Some(own) = own.filter(|_| is_l3 || template.bytes[6..12] == [0; 6]) {
            template.bytes[6..12].copy_from_slice(&own);
        }
    }
    traffic
}

/// The rules with the link addresses that they do not say.
pub fn addressed_rules(rules: &[Rule], lines: &[Line]) -> Vec<Rule> {
    let mut rules = rules.to_vec();
    for rule in &mut rules {
        let Rule::Bearers(bearers) = rule else { continue };
        let (outer, inner) = (bearers.local.is_ipv4(), bearers.server.is_ipv4());
        for (side, is_ipv4) in [(&mut bearers.access, outer), (&mut bearers.core, inner)] {
            let Some(line) = lines.iter().find(|line| line.name == side.port) else { continue };
            let [own, gateway] = line.link(is_ipv4).map(|mac| mac.map(Mac::from));
            for (said, found) in [(&mut side.bench_mac, own), (&mut side.device_mac, gateway)] {
                if let Some(found) = found.filter(|_| *said == Mac::default()) {
                    *said = found;
                }
            }
        }
    }
    rules
}
