//! A rate lets through what it says, to a hundredth, for sessions as SMFs make them, on every datapath (TS 29.244 5.4.4).

use std::time::{Duration, Instant};

use kaido_n4::BitRate;

use super::systems::System;
use crate::family::Family;
use crate::frames::{Direction, Template};
use crate::node::settings;
use crate::shape::Shape;

const KBPS: u64 = 20_000;
/// A burst is as long.
const WINDOW: Duration = Duration::from_millis(10);
const FRAME_BYTES: usize = 1000;
/// Packets are offered for so long, at least at twice the rate.
const OFFERED: Duration = Duration::from_millis(100);
/// So often a run is begun anew of a system whose clock is the machine's, if that paused for as long as a burst is.
const TRIES: usize = 50;

/// What passed between two refusals, when the bucket was empty, with nothing between them in which it may have been full.
struct PassedTraffic {
    octets: u64,
    /// The time between them, at least and at most.
    time: [Duration; 2],
    /// Octets of a packet.
    packet: u64,
}

/// Offers packets; `None` when there was a pause.
fn offer(system: &mut System, direction: Direction, frame: &[u8]) -> Option<PassedTraffic> {
    let packet = (FRAME_BYTES - 14 - if direction == Direction::Uplink { 36 + 8 } else { 0 }) as u64;
    let step = Duration::from_nanos(packet * 8 * 1_000_000 / KBPS / 2);
    let clock = |system: &System| system.clock.unwrap_or_else(Instant::now);
    let began = clock(system);
    let mut first = None;
    let mut passed = PassedTraffic { octets: 0, time: [Duration::ZERO; 2], packet };
    let (mut octets, mut refused) = (0, began);
    loop {
        if let Some(clock) = &mut system.clock {
            *clock += step;
        }
        let before = clock(system);
        if before - began > OFFERED {
            return first.map(|_| passed);
        }
        let sent = system.pass(direction, frame).len() as u64;
        let after = clock(system);
        octets += sent * packet;
        if sent > 0 {
            continue;
        }
        match first {
            None => (first, octets) = (Some((before, after)), 0),
            Some(_) if after - refused > WINDOW => return None,
            Some((early, late)) => {
                (passed.octets, passed.time) =
                    (octets, [before.saturating_duration_since(late), after - early]);
            }
        }
        refused = before;
    }
}

fn limited(shape: Shape, session: u32) -> kaido_n4::Establishment {
    let mut request = shape.establishment(Family::V4, session);
    let has_rates = request.qers.iter().any(|qer| qer.mbr.is_some());
    for qer in request.qers.iter_mut().filter(|qer| !has_rates || qer.mbr.is_some()) {
        qer.mbr = Some(BitRate { uplink_kbps: KBPS, downlink_kbps: KBPS });
        qer.averaging_window = Some(WINDOW);
    }
    request
}

fn hold_to_rate(system: &mut System, shape: Shape) {
    for (session, direction) in (0..).zip(Direction::ALL) {
        let frame = Template::of_shape(shape, direction, FRAME_BYTES).packet(session);
        let seid = system.establish(&limited(shape, session));
        let offered = (0..TRIES).find_map(|_| offer(system, direction, &frame));
        let Some(PassedTraffic { octets, time, packet }) = offered else {
            println!("SKIPPED rates of {} by {}: the machine pauses too long", shape.name(), system.name);
            continue;
        };
        let [least, most] = time.map(|time| KBPS as f64 * 1000.0 / 8.0 * time.as_secs_f64());
        // At both ends a packet may have gone beyond.
        let bound = 0.01 * most + 2.0 * packet as f64;
        let is_exact = (least - bound..=most + bound).contains(&(octets as f64));
        let name = system.name;
        assert!(is_exact, "{} {direction:?} by {name}: {octets}, not {least:.0} to {most:.0}", shape.name());
        system.delete(seid);
    }
}

/// Conformance: TS 29.244 5.4.4 | Sessions as SMFs make them are held to their rate to a hundredth, on every datapath
#[test]
fn rates_are_exact_for_every_shape_on_every_datapath() {
    for shape in Shape::ALL {
        let settings = || settings(Family::V4, shape, 64);
        let kernel = System::kernel(settings());
        if let Err(reason) = &kernel {
            println!("SKIPPED rates_are_exact_for_every_shape_on_every_datapath, in the kernel: {reason}");
        }
        let systems = [Ok(System::fast(settings())), Ok(System::slow(settings())), kernel];
        systems.into_iter().flatten().for_each(|mut system| hold_to_rate(&mut system, shape));
    }
}
