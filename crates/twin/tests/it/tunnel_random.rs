//! Random frames and tunnels under random back-pressure: the core and the software give the same bytes, or drop for the same reason.
//! What the core leaves to the host is as it came, and is what a core leaves to the host.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use kaido_engine::PortId;
use kaido_gre::{DontFragment, ForwardingMode, Settings};
use kaido_twin::gtpu::Width;
use kaido_twin::tunnel::{Event, TunnelCore};
use kaido_twin::{CoreEvent, Disposition, Outcome, Pressure};
use kaido_wire::{EtherType, IpProtocol, vlan};

use crate::gre_random::number;
use crate::random::{Random, encapsulations, plain, settings};
use crate::software::Software;

/// Clocks of 256 bits from the last beat of a frame in to its first beat out.
const CLOCKS_256: u64 = 8;
/// Frames of one run of a core, with settings of their own.
const RUN: usize = 100;

/// Whether the core may leave the frame to the host for this reason.
fn is_hosts(event: Event, frame: &[u8], settings: &Settings) -> bool {
    let link = vlan::link(frame);
    let packet = link.as_ref().map_or(&[][..], |link| &frame[usize::from(link.payload_offset)..]);
    let ethertype = link.as_ref().map(|link| link.ethertype).ok();
    let any = |is: &dyn Fn(&kaido_gre::Encapsulation) -> bool| settings.encapsulations.iter().any(is);
    let hops = if ethertype == Some(EtherType::IPV4) { packet.get(8) } else { packet.get(7) };
    match event {
        Event::HostShort => link.is_err(),
        Event::HostTags => link.is_err() || link.is_ok_and(|link| link.tag_count > 2),
        Event::HostTunnel => match ethertype {
            Some(EtherType::IPV4) => packet.get(9) == Some(&IpProtocol::GRE.0),
            _ => packet.get(6) == Some(&IpProtocol::GRE.0),
        },
        Event::HostExtension => {
            ethertype == Some(EtherType::IPV6) && [0, 43, 44, 51, 60].contains(&packet[6])
        }
        Event::HostDeep => ethertype == Some(EtherType::IPV4) && packet[0] & 15 > 10,
        Event::HostChecksum => any(&|tunnel| tunnel.ethernet && tunnel.checksum),
        Event::HostRoute => any(&|tunnel| tunnel.forward == ForwardingMode::Route),
        Event::HostTtl => hops.is_some_and(|&hops| hops <= 1),
        Event::HostMtu => frame.len() + 52 > settings.ports[1].mtu,
        Event::HostNumber => {
            any(&|tunnel| tunnel.dont_fragment != DontFragment::Set && tunnel.remote.is_ipv4())
        }
        _ => false,
    }
}

/// One run of random frames; which events there were is added to `seen`.
fn run(core: &mut TunnelCore, width: Width, seed: u64, seen: &mut BTreeMap<&'static str, u64>) {
    let mut random = Random::new(seed);
    // Of the rules none matters: all that may be a tunnel packet is the host's.
    let settings = Settings { encapsulations: encapsulations(&mut random), ..settings(&mut random) };
    let settings = Settings { rules: Vec::new(), ..settings };
    let frames: Vec<_> = (0..RUN).map(|_| plain(&mut random)).collect();
    core.reset();
    core.configure(&settings, PortId(0), &[]).unwrap();
    let name = format!("seed {seed}, {width:?}");
    let (outcomes, _timing) =
        core.run(&frames, Pressure::seeded(random.word())).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut software = Software::new(settings.clone());
    for (number, (frame, Outcome { event, disposition })) in frames.iter().zip(outcomes).enumerate() {
        let at = || format!("{name}, frame {number}, {event:?}: {frame:02x?}\n{settings:?}");
        *seen.entry(event.name()).or_default() += 1;
        if event.is_host() {
            assert_eq!(disposition, Disposition::Host(frame.clone()), "{}", at());
            assert!(is_hosts(event, frame, &settings), "{}", at());
            continue;
        }
        let judged = software.pass(frame.clone());
        let (out, drop) = match disposition {
            Disposition::Out(out) => (vec![out], None),
            _ => (Vec::new(), Some(event.name())),
        };
        assert_eq!((&judged.out, judged.drop), (&out, drop), "{}", at());
    }
    let counted = core.totals(settings.encapsulations.len()).unwrap();
    assert_eq!(counted, software.rule_totals(), "{name}: what tunnels have counted");
}

#[test]
fn random_frames_go_into_tunnels_as_of_the_software() {
    let frames = number("KAIDO_TWIN_FRAMES", 50_000);
    let first = number("KAIDO_TWIN_SEED", 1);
    let mut seen = BTreeMap::new();
    let runs = frames.div_ceil(RUN as u64 * Width::ALL.len() as u64);
    for width in Width::ALL {
        let name = "random_frames_go_into_tunnels_as_of_the_software";
        let Some(mut core) = crate::tunnel_core(name, width) else { continue };
        (first..first + runs).for_each(|seed| run(&mut core, width, seed, &mut seen));
    }
    println!("{frames} frames: {seen:?}");
    // All that there is has come, but what only a MAC brings, and the last hop, which needs a next hop that is known.
    let missing: Vec<_> =
        Event::ALL.iter().map(|event| event.name()).filter(|name| !seen.contains_key(name)).collect();
    if !seen.is_empty() && frames >= 50_000 {
        assert_eq!(missing, ["frame_error", "host_ttl"]);
    }
}

/// A beat leaves each clock, and the first a few clocks after the last came in.
#[test]
fn a_packet_waits_for_its_end_and_then_for_nothing() {
    for width in Width::ALL {
        let name = "a_packet_waits_for_its_end_and_then_for_nothing";
        let Some(mut core) = crate::tunnel_core(name, width) else { continue };
        let mut random = Random::new(1);
        let none = Settings { rules: Vec::new(), ..settings(&mut random) };
        core.configure(&none, PortId(0), &[]).unwrap();
        // After reset counters are cleared before a beat is taken.
        core.run(&[vec![0x88; 60]], Pressure::NONE).unwrap();
        // One in the first window, two in the memory, the others in the stages.
        let clocks = if width == Width::Bits256 { CLOCKS_256 } else { CLOCKS_256 - 1 };
        for len in [60, 64, 65, 100, 128] {
            let frames = vec![vec![0x88; len]; 64];
            let (outcomes, timing) = core.run(&frames, Pressure::NONE).unwrap();
            assert!(outcomes.iter().all(|outcome| outcome.event == Event::Passed));
            let beats = len.div_ceil(width.octets()) as u64;
            assert_eq!(timing.latencies, [beats - 1 + clocks; 64], "{len} octets, {width:?}");
            assert_eq!(timing.waited, 0, "{len} octets, {width:?}");
        }
    }
}
