//! Random frames under random back-pressure: the core and the software give the same bytes, or drop for the same reason. What the
//! core leaves to the host is as it came, and is what a core leaves to the host.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use kaido_engine::PortId;
use kaido_gre::{Pieces, Settings, Verdict};
use kaido_twin::{CoreEvent, Disposition, Event, GreCore, Outcome, Pressure, Size};
use kaido_wire::{EtherType, IpProtocol, gre, ipv4, ipv6, vlan};

use crate::random::{Random, frame, settings};
use crate::software::Software;

/// Frames of one run of a core, with settings of their own.
const RUN: usize = 100;

/// A number that the environment may have.
pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

/// Octets of Ethernet, IP and GRE, if it is a tunnel packet that can be read, and what GRE says.
fn outer(frame: &[u8]) -> Option<(usize, gre::GreHeader)> {
    let link = vlan::link(frame).ok()?;
    let at = usize::from(link.payload_offset);
    let packet = &frame[at..];
    let ip_len = match link.ethertype {
        EtherType::IPV4 => usize::from(ipv4::header(packet).ok()?.header_len),
        EtherType::IPV6 => usize::from(ipv6::header(packet).ok()?.header_len),
        _ => return None,
    };
    let header = gre::header(&packet[ip_len..]).ok()?;
    Some((at + ip_len + usize::from(header.header_len), header))
}

/// Whether a core may leave the frame to the host for this reason.
fn is_hosts(event: Event, frame: &[u8], settings: &Settings, size: Size) -> bool {
    // That a frame is cut off behind the window is not known when it is judged: the host finds out.
    let mut frame = frame.to_vec();
    if frame.len() > size.window() {
        frame.resize(frame.len() + (1 << 16), 0);
    }
    let frame = &frame[..];
    let link = vlan::link(frame);
    let packet = link.as_ref().map_or(&[][..], |link| &frame[usize::from(link.payload_offset)..]);
    let decapsulates = |verdict: &Verdict| matches!(verdict, Verdict::Decapsulate { .. });
    let verdicts =
        || settings.rules.iter().map(|rule| rule.verdict).chain([settings.unmatched, settings.unreadable]);
    match event {
        // A tag that is cut off is not walked; the core does not look where the frame ends behind the third type.
        Event::HostTags => {
            link.is_ok_and(|link| link.tag_count > 2) || (link.is_err() && (22..30).contains(&frame.len()))
        }
        Event::HostExtension => {
            link.is_ok_and(|link| link.ethertype == EtherType::IPV6)
                && matches!(
                    packet.get(6).map(|&next| IpProtocol(next)),
                    Some(
                        IpProtocol::HOP_BY_HOP
                            | IpProtocol::ROUTING
                            | IpProtocol::FRAGMENT
                            | IpProtocol::AH
                            | IpProtocol::DESTINATION_OPTIONS,
                    )
                )
        }
        Event::HostDeep => {
            let end = outer(frame).map_or(14 + 8 + 60 + 4, |(len, _)| len);
            end + 2 > size.window() || (end + 4 > size.window() && packet[0] >> 4 == 4)
        }
        Event::HostFragment => {
            settings.pieces == Pieces::Assemble
                && ipv4::header(packet).is_ok_and(|header| header.fragment.is_some())
        }
        Event::HostRoute => verdicts().any(|verdict| decapsulates(&verdict)),
        Event::HostPunt => verdicts().any(|verdict| verdict == Verdict::Punt),
        _ => false,
    }
}

/// One run of random frames; which events there were is added to `seen`.
fn run(core: &mut GreCore, size: Size, seed: u64, seen: &mut BTreeMap<&'static str, u64>) {
    let mut random = Random::new(seed);
    let settings = settings(&mut random);
    let frames: Vec<_> = (0..RUN).map(|_| frame(&mut random)).collect();
    let pressure = Pressure::seeded(random.word());
    for event in compare(core, size, &settings, &frames, pressure, &format!("seed {seed}")) {
        *seen.entry(event.name()).or_default() += 1;
    }
}

/// Passes frames through a core and the software, and compares what becomes of each. The events.
pub(crate) fn compare(
    core: &mut GreCore,
    size: Size,
    settings: &Settings,
    frames: &[Vec<u8>],
    pressure: Pressure,
    name: &str,
) -> Vec<Event> {
    core.reset();
    core.configure(settings, PortId(0)).unwrap();
    let (outcomes, _timing) =
        core.run(frames, pressure).unwrap_or_else(|error| panic!("{name}, {size:?}: {error}"));
    let mut software = Software::new(settings.clone());
    let mut events = Vec::new();
    for (number, (frame, Outcome { event, disposition })) in frames.iter().zip(outcomes).enumerate() {
        let at = || format!("{name}, frame {number} of {size:?}, {event:?}: {frame:02x?}\n{settings:?}");
        events.push(event);
        if event.is_host() {
            assert_eq!(disposition, Disposition::Host(frame.clone()), "{}", at());
            assert!(is_hosts(event, frame, settings, size), "{}", at());
            continue;
        }
        let judged = software.pass(frame.clone());
        let (out, drop) = match disposition {
            Disposition::Out(out) => (vec![out], None),
            _ => (Vec::new(), Some(event.name())),
        };
        assert_eq!((&judged.out, judged.drop), (&out, drop), "{}", at());
    }
    let counted = core.rule_totals(settings.rules.len()).unwrap();
    assert_eq!(counted, software.rule_totals(), "{name}, {size:?}: what rules have counted");
    events
}

#[test]
fn random_frames_come_out_as_of_the_software() {
    let frames = number("KAIDO_TWIN_FRAMES", 50_000);
    let first = number("KAIDO_TWIN_SEED", 1);
    let mut seen = BTreeMap::new();
    let runs = frames.div_ceil(RUN as u64 * Size::ALL.len() as u64);
    for size in Size::ALL {
        let Some(mut core) = crate::core("random_frames_come_out_as_of_the_software", size) else { continue };
        (first..first + runs).for_each(|seed| run(&mut core, size, seed, &mut seen));
    }
    println!("{frames} frames: {seen:?}");
    // All that there is has come, but what only a MAC or a host with tunnels brings.
    let missing: Vec<_> =
        Event::ALL.iter().map(|event| event.name()).filter(|name| !seen.contains_key(name)).collect();
    if !seen.is_empty() && frames >= 50_000 {
        assert_eq!(missing, ["frame_error", "host_other"]);
    }
}
