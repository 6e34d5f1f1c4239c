//! TUN devices: the kernel as the UE's host, so that ping, curl and iperf3 are its applications.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kaido_engine::port::{Layer, Tun};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::fault::SimFault;
use super::gnb::{Gnb, count};
use super::numbered;
use super::plan::TunPlan;
use super::ue::Ue;

/// Metric of a default route, the interface's index added: behind every route that the machine has already,
/// and no two alike.
const METRIC: u32 = 20_000;
/// Packets that wait in a device: the kernel drops what a sender puts there beyond, without holding it back.
const QUEUE: u32 = 5000;
/// Packets taken from one device before the next is looked at.
const BURST: usize = 64;
/// How often a forwarder without packets looks whether it shall end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Before a device that failed is looked at again.
const PAUSE: Duration = Duration::from_millis(10);

/// Makes the devices of the first UEs.
pub(super) fn open_all(plan: &TunPlan, ues: &[Ue]) -> Result<Vec<Tun>, SimFault> {
    (0..plan.count).zip(ues).map(|(n, ue)| open(plan, n, ue)).collect()
}

/// A device with the addresses of a UE, up, and with default routes of a metric of its own.
fn open(plan: &TunPlan, n: u32, ue: &Ue) -> Result<Tun, SimFault> {
    let name = format!("{}{n}", plan.prefix);
    let fail = |reason: String| {
        let help = "TUN devices need root (CAP_NET_ADMIN), /dev/net/tun, and a name that is free; \
                    --offline needs neither";
        SimFault::Tun { name: name.clone(), reason, help }
    };
    let tun = Tun::create(&name, Layer::Ip).map_err(|error| fail(error.to_string()))?;
    quieten(&name);
    tun.set_mtu(plan.mtu.into()).map_err(|error| fail(error.to_string()))?;
    let addresses = [(ue.ipv4.map(IpAddr::V4), 32), (ue.ipv6_address().map(IpAddr::V6), 64)];
    let addresses = addresses.into_iter().filter_map(|(address, len)| Some((address?, len)));
    for (address, len) in addresses.clone() {
        tun.add_address(address, len).map_err(|error| fail(error.to_string()))?;
    }
    let queue = QUEUE.to_string();
    ip(&["link", "set", "dev", &name, "txqueuelen", &queue]).map_err(fail)?;
    tun.set_up().map_err(|error| fail(error.to_string()))?;
    let metric = (METRIC + tun.ifindex()).to_string();
    for (address, _) in addresses {
        let family = if address.is_ipv6() { "-6" } else { "-4" };
        ip(&[family, "route", "add", "default", "dev", &name, "metric", &metric]).map_err(fail)?;
    }
    Ok(tun)
}

/// Keeps the kernel from speaking on its own (link-local addresses, router solicitations), and from
/// dropping replies whose way back is another device's. A system that lacks a knob is quiet already.
fn quieten(name: &str) {
    for (knob, value) in [
        ("ipv6/conf", ("addr_gen_mode", "1")),
        ("ipv6/conf", ("accept_ra", "0")),
        ("ipv4/conf", ("rp_filter", "2")),
    ]
    .map(|(family, (key, value))| (PathBuf::from("/proc/sys/net").join(family).join(name).join(key), value))
    {
        let _ = std::fs::write(knob, value);
    }
}

/// Runs `ip` of iproute2.
fn ip(arguments: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(arguments).output();
    let done = done.map_err(|error| format!("cannot run `ip` of iproute2: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("`ip {}`: {}", arguments.join(" "), said.trim()))
}

/// Forwards what the devices send into their UEs' tunnels, until `stop`.
pub(super) fn forward(gnb: &Gnb, ues: &[Ue], tuns: &[Tun], stop: &AtomicBool) {
    let mut uplink = gnb.uplink();
    let mut polled: Vec<_> =
        tuns.iter().map(|tun| PollFd::from_borrowed_fd(tun.as_fd(), PollFlags::IN)).collect();
    while !stop.load(Ordering::Relaxed) {
        // An interrupted wait is only a shorter one.
        if !matches!(poll(&mut polled, Some(&LOOK)), Ok(1..)) {
            continue;
        }
        for ((tun, ue), poll) in tuns.iter().zip(ues).zip(&mut polled) {
            if !poll.revents().is_empty() {
                take(gnb, ue, tun, &mut uplink);
            }
        }
        uplink.flush();
    }
}

fn take(gnb: &Gnb, ue: &Ue, tun: &Tun, uplink: &mut super::gnb::Uplink<'_>) {
    for _ in 0..BURST {
        let space = uplink.space();
        let len = match tun.read(space) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {
                // Down or gone: always readable, and never with a packet.
                count(&gnb.counters.tun_errors);
                return std::thread::sleep(PAUSE);
            }
        };
        if !may_send(space.get(..len).unwrap_or_default()) {
            count(&gnb.counters.tun_ignored);
            continue;
        }
        ue.counters.tun_sent.add(len);
        uplink.push(ue, len);
    }
}

/// Whether a packet is a user's: the kernel's own talk on the link stays there.
fn may_send(packet: &[u8]) -> bool {
    match numbered::addresses(packet) {
        Some((IpAddr::V6(src), _)) => !src.is_unspecified() && !src.is_unicast_link_local(),
        Some((IpAddr::V4(src), _)) => !src.is_unspecified(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_talk_stays_on_the_link() {
        let from = |src: &str, dst: &str| {
            let mut packet = vec![0; 100];
            numbered::write(&mut packet, 1, src.parse().unwrap(), dst.parse().unwrap()).unwrap();
            may_send(&packet)
        };
        assert!(from("10.60.0.1:1", "1.1.1.1:1") && from("[2001:db8::1]:1", "[2001:db8::2]:1"));
        assert!(!from("[fe80::1]:1", "[ff02::2]:1") && !from("[::]:1", "[ff02::16]:1"));
        assert!(!from("0.0.0.0:68", "255.255.255.255:67") && !may_send(&[]));
    }
}
