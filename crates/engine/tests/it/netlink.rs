//! The mirror of the kernel's routes and neighbours, against `ip` in namespaces of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kaido_engine::netlink::{self, InterfaceAddress, LinkEvents, NetlinkError, RouteWatcher, WatchSettings};
use kaido_engine::{
    NeighbourRequest, NextHop, NextHops, PortId, Resolution, Route, Routes, Vrf, VrfAddress, VrfId, VrfTable,
};

use crate::rig;
use crate::rig::{Pair, eventually, in_namespace, index, mac, run};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A watcher over ports 0, 1, ... behind `ke-a0`, `ke-a1`, ...
struct Watched {
    watcher: RouteWatcher,
    routes: Arc<Routes>,
    hops: NextHops,
}

impl Watched {
    fn start(links: u8, settings: WatchSettings) -> Self {
        Self::start_of(links, &[], settings)
    }

    fn start_of(links: u8, vrfs: &[Vrf], settings: WatchSettings) -> Self {
        let (routes, wanted) = Routes::new();
        vrfs.iter().for_each(|vrf| {
            routes.vrf(vrf.clone());
        });
        let ports = (0..links).map(|link| (PortId(link), index(&format!("ke-a{link}")))).collect();
        let watcher = RouteWatcher::start_with(routes.clone(), wanted, ports, settings).unwrap();
        Self { watcher, hops: routes.next_hops(), routes }
    }

    /// Waits until the destination resolves so; asks as a worker does, packet by packet.
    #[track_caller]
    fn expect(&mut self, destination: &str, expected: Resolution) {
        self.expect_in(VrfId::MAIN, destination, expected);
    }

    /// As [`Watched::expect`], by a VRF's routes.
    #[track_caller]
    fn expect_in(&mut self, vrf: VrfId, destination: &str, expected: Resolution) {
        let mut last = None;
        let deadline = std::time::Instant::now() + rig::PATIENCE;
        while last != Some(expected) {
            assert!(std::time::Instant::now() < deadline, "{destination}: {last:?}, not {expected:?}");
            last = Some(self.hops.resolve(VrfAddress { vrf, address: ip(destination) }));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn ready(port: u8, mac: [u8; 6]) -> Resolution {
    Resolution::Ready(NextHop { port: PortId(port), mac })
}

#[test]
fn an_interface_is_described() {
    if !rig::is_root("an_interface_is_described") {
        return;
    }
    Pair::run(1, 1400, |_| {
        // The kernel makes the link-local address a moment after the link is up.
        let interface = eventually("all addresses", || {
            Some(netlink::interface("ke-a0").unwrap()).filter(|interface| interface.addresses.len() == 3)
        });
        assert_eq!((interface.name.as_str(), interface.mtu, interface.up), ("ke-a0", 1400, true));
        let link = run("ip -o link show ke-a0");
        let text = interface.mac.map(|octet| format!("{octet:02x}")).join(":");
        assert!(link.contains(&text) && link.starts_with(&format!("{}:", interface.ifindex)), "{link}");
        let of = |address: &str| interface.addresses.iter().find(|a| a.address == ip(address)).copied();
        let expected = |address, prefix_len| {
            let (ifindex, address) = (interface.ifindex, ip(address));
            Some(InterfaceAddress { ifindex, address, prefix_len, link_local: false })
        };
        assert_eq!(of("10.77.0.1"), expected("10.77.0.1", 24));
        assert_eq!(of("fd77:0::1"), expected("fd77:0::1", 64));
        let local: Vec<_> = interface.addresses.iter().filter(|a| a.link_local).collect();
        assert!(local.len() == 1 && local[0].address.to_string().starts_with("fe80::"), "{local:?}");
        let missing = netlink::interface("ke-none").unwrap_err();
        assert!(matches!(&missing, NetlinkError::NoInterface { name } if name == "ke-none"));
        assert!(netlink::interfaces().unwrap().iter().any(|interface| interface.name == "lo"));
        assert_eq!(
            netlink::addresses().unwrap().iter().filter(|a| a.ifindex == interface.ifindex).count(),
            3
        );
        netlink::set_up(interface.ifindex, false).unwrap();
        assert!(!netlink::interface("ke-a0").unwrap().up);
        let refused = netlink::set_mtu(interface.ifindex, 1).unwrap_err();
        assert!(refused.to_string().starts_with("setting an interface's MTU: "), "{refused}");
    });
}

#[test]
fn neighbours_are_resolved_and_a_changed_address_is_followed() {
    if !rig::is_root("neighbours_are_resolved_and_a_changed_address_is_followed") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        let mut watched = Watched::start(1, WatchSettings::default());
        for far in ["10.77.0.2", "fd77:0::2"] {
            watched.expect(far, ready(0, pair.far_mac("ke-b0")));
        }
        // The far end announces its new address, as a failover pair does.
        pair.far(|| {
            std::fs::write("/proc/sys/net/ipv4/conf/ke-b0/arp_notify", "1").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/ke-b0/ndisc_notify", "1").unwrap();
            // An announcement is not believed within `locktime` of the last.
            std::thread::sleep(Duration::from_millis(1100));
            run("ip link set ke-b0 address 02:00:00:00:77:02");
        });
        watched.expect("10.77.0.2", ready(0, [2, 0, 0, 0, 0x77, 2]));
        watched.expect("fd77:0::2", ready(0, [2, 0, 0, 0, 0x77, 2]));
        // An absent one is asked for and stays pending; so does its route.
        watched.expect("10.77.0.99", Resolution::Pending);
        let asked = || run("ip neigh show 10.77.0.99 dev ke-a0");
        eventually("the kernel asks", || (!asked().is_empty()).then_some(()));
        assert_eq!(watched.hops.resolve(ip("10.77.0.99")), Resolution::Pending);
    });
}

#[test]
fn a_host_that_moved_in_silence_is_noticed() {
    if !rig::is_root("a_host_that_moved_in_silence_is_noticed") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        for (name, value) in
            [("base_reachable_time_ms", "200"), ("delay_first_probe_time", "1"), ("retrans_time_ms", "50")]
        {
            std::fs::write(format!("/proc/sys/net/ipv4/neigh/ke-a0/{name}"), value).unwrap();
        }
        let settings = WatchSettings {
            refresh_after: Duration::from_millis(200),
            ask_every: Duration::from_millis(100),
            ..WatchSettings::default()
        };
        let mut watched = Watched::start(1, settings);
        let old = pair.far_mac("ke-b0");
        watched.expect("10.77.0.2", ready(0, old));
        // Fails over without a word, and no packet of ours goes by the kernel.
        pair.far(|| run("ip link set ke-b0 address 02:00:00:00:77:03"));
        watched.expect("10.77.0.2", ready(0, [2, 0, 0, 0, 0x77, 3]));
    });
}

#[test]
fn set_neighbours_come_and_go_and_stay_permanent() {
    if !rig::is_root("set_neighbours_come_and_go_and_stay_permanent") {
        return;
    }
    Pair::run(1, 1500, |_| {
        run("ip neigh add 10.77.0.7 lladdr 02:00:00:00:00:07 dev ke-a0 nud permanent");
        let settings = WatchSettings { refresh_after: Duration::from_millis(50), ..WatchSettings::default() };
        let mut watched = Watched::start(1, settings);
        watched.expect("10.77.0.7", ready(0, [2, 0, 0, 0, 0, 7]));
        // Wanted before it was seen: it must not be asked for, or it would be permanent no longer.
        let ifindex = index("ke-a0");
        let (crowd, asked) = Routes::new();
        let twice =
            RouteWatcher::start(crowd.clone(), asked, vec![(PortId(0), ifindex), (PortId(9), ifindex)]);
        crowd.set_routes([(ip("10.77.0.0"), 24, Route { port: Some(PortId(9)), gateway: None, metric: 0 })]);
        assert_eq!(crowd.next_hops().resolve(ip("10.77.0.7")), Resolution::Pending);
        std::thread::sleep(Duration::from_millis(100));
        drop(twice);
        run("ip neigh add 10.77.0.8 lladdr 02:00:00:00:00:08 dev ke-a0 nud permanent");
        run("ip neigh add fd77:0::8 lladdr 02:00:00:00:00:18 dev ke-a0 nud noarp");
        watched.expect("10.77.0.8", ready(0, [2, 0, 0, 0, 0, 8]));
        watched.expect("fd77:0::8", ready(0, [2, 0, 0, 0, 0, 0x18]));
        run("ip neigh change 10.77.0.8 lladdr 02:00:00:00:00:09 dev ke-a0 nud permanent");
        watched.expect("10.77.0.8", ready(0, [2, 0, 0, 0, 0, 9]));
        std::thread::sleep(Duration::from_millis(300));
        assert!(run("ip neigh show 10.77.0.7").contains("PERMANENT"));
        run("ip neigh del 10.77.0.8 dev ke-a0");
        watched.expect("10.77.0.8", Resolution::Pending);
        let known = watched.routes.neighbours();
        let gone = NeighbourRequest { port: PortId(0), address: ip("10.77.0.8") };
        assert!(!known.iter().any(|(neighbour, _)| *neighbour == gone), "{known:?}");
    });
}

#[test]
fn routes_come_go_and_are_weighed() {
    if !rig::is_root("routes_come_go_and_are_weighed") {
        return;
    }
    Pair::run(2, 1500, |pair| {
        let macs = [pair.far_mac("ke-b0"), pair.far_mac("ke-b1")];
        run("ip route add 192.0.2.0/24 via 10.77.0.2 metric 100");
        let mut watched = Watched::start(2, WatchSettings::default());
        watched.expect("192.0.2.1", ready(0, macs[0]));
        run("ip route add 192.0.2.0/24 via 10.77.1.2 metric 50");
        watched.expect("192.0.2.1", ready(1, macs[1]));
        run("ip route add 192.0.2.64/26 via 10.77.0.2");
        watched.expect("192.0.2.65", ready(0, macs[0]));
        watched.expect("192.0.2.1", ready(1, macs[1]));
        run("ip route del 192.0.2.0/24 metric 50");
        watched.expect("192.0.2.1", ready(0, macs[0]));
        run("ip route add default via 10.77.1.2");
        watched.expect("8.8.8.8", ready(1, macs[1]));
        run("ip -6 route add 2001:db8::/32 via fd77:1::2");
        watched.expect("2001:db8::1", ready(1, macs[1]));
        run("ip route add 198.51.100.0/24 via inet6 fd77:0::2 dev ke-a0");
        watched.expect("198.51.100.1", ready(0, macs[0]));
        run("ip route del default");
        watched.expect("8.8.8.8", Resolution::NoRoute);
        run("ip -6 route del 2001:db8::/32");
        watched.expect("2001:db8::1", Resolution::NoRoute);
        // Not ours: another table, another kind, another interface.
        run("ip route add 203.0.113.0/24 via 10.77.0.2 table 100");
        run("ip route add blackhole 203.0.114.0/24");
        run("ip route add 203.0.115.0/24 dev lo");
        run("ip route add 203.0.116.0/24 via 10.77.0.2");
        watched.expect("203.0.116.1", ready(0, macs[0]));
        for none in ["203.0.113.1", "203.0.114.1", "203.0.115.1", "fe80::1", "127.0.0.1"] {
            assert_eq!(watched.hops.resolve(ip(none)), Resolution::NoRoute, "{none}");
        }
    });
}

/// Two data networks, each with a default route of its own: in one table by the metric, and in tables by number.
#[test]
fn each_vrf_has_its_own_default_route() {
    if !rig::is_root("each_vrf_has_its_own_default_route") {
        return;
    }
    Pair::run(2, 1500, |pair| {
        let macs = ["ke-b0", "ke-b1"].map(|name| pair.far_mac(name));
        run("ip route add default via 10.77.0.2 dev ke-a0 metric 10");
        run("ip route add default via 10.77.1.2 dev ke-a1 metric 20");
        let name = String::new;
        let of_port = |port| Vrf {
            name: name(),
            table: VrfTable::OfPort(PortId(port)),
            ports: Some(vec![PortId(port)]),
        };
        let of_number = |number| Vrf { name: name(), table: VrfTable::Number(number), ports: None };
        let vrfs = [Vrf::main(), of_port(0), of_port(1), of_number(77), of_number(7777)];
        let mut watched = Watched::start_of(2, &vrfs, WatchSettings::default());
        let [main, first, second, table, high] = vrfs.map(|vrf| watched.routes.vrf(vrf));
        let to = "192.0.2.1";
        watched.expect_in(main, to, ready(0, macs[0]));
        watched.expect_in(first, to, ready(0, macs[0]));
        watched.expect_in(second, to, ready(1, macs[1]));
        watched.expect_in(table, to, Resolution::NoRoute);
        run("ip route add default via 10.77.1.2 dev ke-a1 table 77");
        run("ip route add 192.0.2.0/24 via 10.77.0.2 dev ke-a0 table 7777");
        watched.expect_in(table, to, ready(1, macs[1]));
        watched.expect_in(high, to, ready(0, macs[0]));
        watched.expect_in(high, "198.51.100.1", Resolution::NoRoute);
        run("ip route add blackhole 192.0.2.0/28");
        watched.expect_in(second, to, Resolution::NoRoute);
        watched.expect_in(table, to, ready(1, macs[1]));
        // Of several ways at one metric each port has its own.
        run("ip route add 198.51.100.0/24 nexthop via 10.77.0.2 dev ke-a0 nexthop via 10.77.1.2 dev ke-a1");
        watched.expect_in(first, "198.51.100.1", ready(0, macs[0]));
        watched.expect_in(second, "198.51.100.1", ready(1, macs[1]));
        run("ip route flush table 77");
        watched.expect_in(table, to, Resolution::NoRoute);
    });
}

#[test]
fn a_port_of_a_vrf_device_has_the_routes_of_its_table() {
    let name = "a_port_of_a_vrf_device_has_the_routes_of_its_table";
    if !rig::is_root(name) {
        return;
    }
    Pair::run(1, 1500, |pair| {
        if !std::process::Command::new("ip")
            .args(["link", "add", "ke-vrf", "type", "vrf", "table", "77"])
            .status()
            .unwrap()
            .success()
        {
            let mut out = std::io::stdout();
            writeln!(out, "SKIPPED {name}: this kernel has no VRF devices").unwrap();
            return;
        }
        run("ip link set ke-vrf up");
        let vrf = Vrf { name: "internet".to_owned(), table: VrfTable::OfPort(PortId(0)), ports: None };
        let mut watched = Watched::start_of(1, std::slice::from_ref(&vrf), WatchSettings::default());
        let of_port = watched.routes.vrf(vrf);
        run("ip route add default via 10.77.0.2 dev ke-a0");
        watched.expect_in(of_port, "192.0.2.1", ready(0, pair.far_mac("ke-b0")));
        run("ip link set ke-a0 master ke-vrf");
        watched.expect_in(of_port, "192.0.2.1", Resolution::NoRoute);
        run("ip route add default via 10.77.0.2 dev ke-a0 table 77");
        watched.expect_in(of_port, "192.0.2.1", ready(0, pair.far_mac("ke-b0")));
        run("ip link set ke-a0 nomaster");
        watched.expect_in(of_port, "192.0.2.1", Resolution::NoRoute);
    });
}

#[test]
fn a_link_that_goes_down_takes_its_routes_along() {
    if !rig::is_root("a_link_that_goes_down_takes_its_routes_along") {
        return;
    }
    Pair::run(2, 1500, |pair| {
        let macs = [pair.far_mac("ke-b0"), pair.far_mac("ke-b1")];
        run("ip route add 192.0.2.0/24 nexthop via 10.77.0.2 nexthop via 10.77.1.2");
        run("ip -6 route add 2001:db8::/32 nexthop via fd77:0::2 nexthop via fd77:1::2");
        let mut watched = Watched::start(2, WatchSettings::default());
        watched.expect("192.0.2.1", ready(0, macs[0]));
        watched.expect("2001:db8::1", ready(0, macs[0]));
        // The carrier goes: the kernel keeps the routes, dead.
        pair.far(|| run("ip link set ke-b0 down"));
        watched.expect("192.0.2.1", ready(1, macs[1]));
        watched.expect("2001:db8::1", ready(1, macs[1]));
        watched.expect("10.77.0.2", Resolution::NoRoute);
        pair.far(|| run("ip link set ke-b0 up"));
        watched.expect("10.77.0.2", ready(0, macs[0]));
        watched.expect("192.0.2.1", ready(0, macs[0]));
        // The link goes: the kernel drops its routes, those of IPv4 without a word.
        run("ip link set ke-a0 down");
        watched.expect("10.77.0.2", Resolution::NoRoute);
        watched.expect("fd77:0::2", Resolution::NoRoute);
        watched.expect("10.77.1.2", ready(1, macs[1]));
        run("ip link set ke-a0 up");
        watched.expect("10.77.0.2", ready(0, macs[0]));
        run("ip link del ke-a1");
        watched.expect("10.77.1.2", Resolution::NoRoute);
        let left = |routes: &Routes| routes.neighbours().iter().any(|(known, _)| known.port == PortId(1));
        eventually("its neighbours go", || (!left(&watched.routes)).then_some(()));
    });
}

#[test]
fn a_port_is_bound_to_an_interface_that_was_made_again() {
    if !rig::is_root("a_port_is_bound_to_an_interface_that_was_made_again") {
        return;
    }
    Pair::run(2, 1500, |_| {
        let mut watched = Watched::start(2, WatchSettings::default());
        let mut events = LinkEvents::subscribe().unwrap();
        let before = index("ke-a1");
        run("ip link del ke-a1");
        let mut removed = Vec::new();
        eventually("the removal is heard of", || {
            removed.extend(events.wait(Duration::ZERO).unwrap().into_iter().flatten());
            removed.contains(&before).then_some(())
        });
        watched.expect("10.77.1.2", Resolution::NoRoute);
        run("ip link add ke-a1 type veth peer name ke-c1");
        run("ip link set ke-c1 up");
        run("ip link set ke-a1 up");
        run("ip address add 10.77.1.1/24 dev ke-a1");
        run("ip neigh replace 10.77.1.2 lladdr 02:00:00:00:00:07 dev ke-a1 nud permanent");
        let after = index("ke-a1");
        assert_ne!(after, before);
        assert!(eventually("what is made is heard of", || events.wait(Duration::ZERO).unwrap()).is_empty());
        watched.expect("10.77.1.2", Resolution::NoRoute);
        watched.watcher.rebind(PortId(1), after);
        watched.expect("10.77.1.2", ready(1, [2, 0, 0, 0, 0, 7]));
    });
}

#[test]
fn addresses_are_told_when_they_change() {
    if !rig::is_root("addresses_are_told_when_they_change") {
        return;
    }
    Pair::run(1, 1500, |_| {
        let told = Arc::new(Mutex::new(Vec::<Vec<IpAddr>>::new()));
        let hook = told.clone();
        let settings = WatchSettings {
            on_addresses: Some(Box::new(move |addresses| {
                hook.lock().unwrap().push(addresses.iter().map(|a| a.address).collect());
            })),
            ..WatchSettings::default()
        };
        let mut watched = Watched::start(1, settings);
        let last = || told.lock().unwrap().last().unwrap().clone();
        // Before `start` returned.
        assert!(last().contains(&ip("10.77.0.1")) && last().contains(&ip("127.0.0.1")));
        run("ip addr add 10.78.0.1/16 dev ke-a0");
        eventually("the new address", || last().contains(&ip("10.78.0.1")).then_some(()));
        watched.expect("10.78.9.9", Resolution::Pending);
        run("ip addr del 10.78.0.1/16 dev ke-a0");
        eventually("the old address", || (!last().contains(&ip("10.78.0.1"))).then_some(()));
        watched.expect("10.78.9.9", Resolution::NoRoute);
        let times = told.lock().unwrap().len();
        run("ip route add 192.0.2.0/24 via 10.77.0.2");
        watched.expect("192.0.2.1", Resolution::Pending);
        assert_eq!(told.lock().unwrap().len(), times, "told without a change");
    });
}

/// Messages that the kernel threw away for want of room, over the thread's namespace.
fn lost() -> u64 {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    sockets.lines().skip(1).map(|line| line.split_whitespace().nth(8).unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn messages_lost_in_a_storm_do_no_harm() {
    if !rig::is_root("messages_lost_in_a_storm_do_no_harm") {
        return;
    }
    Pair::run(1, 1500, |pair| {
        let settings = WatchSettings { receive_buffer: 1, ..WatchSettings::default() };
        let mut watched = Watched::start(1, settings);
        let mac = pair.far_mac("ke-b0");
        watched.expect("10.77.0.2", ready(0, mac));
        let (mut add, mut again, mut del) = (String::new(), String::new(), String::new());
        for number in 0..5000 {
            let (high, low) = (number / 250, number % 250);
            writeln!(add, "route add 100.64.{high}.{low}/32 via 10.77.0.2").unwrap();
            writeln!(again, "route replace 100.64.{high}.{low}/32 via 10.77.0.2").unwrap();
            if number % 2 == 0 {
                writeln!(del, "route del 100.64.{high}.{low}/32").unwrap();
            }
        }
        for host in 100..225 {
            writeln!(add, "neigh add 10.77.0.{host} lladdr 02:00:00:00:01:00 dev ke-a0").unwrap();
        }
        let batch = |lines: &str| {
            let path = std::env::temp_dir().join(format!("ke-batch-{}", std::process::id()));
            std::fs::write(&path, lines).unwrap();
            run(&format!("ip -batch {}", path.display()));
            std::fs::remove_file(path).unwrap();
        };
        batch(&add);
        // A reader that has a CPU of its own may keep up with one.
        for _ in 0..50 {
            if lost() > 0 {
                break;
            }
            batch(&again);
        }
        assert!(lost() > 0, "the storm was a breeze");
        watched.expect("100.64.19.249", ready(0, mac));
        watched.expect("100.64.0.0", ready(0, mac));
        for host in 100..225 {
            watched.expect(&format!("10.77.0.{host}"), ready(0, [2, 0, 0, 0, 1, 0]));
        }
        batch(&del);
        watched.expect("100.64.19.248", Resolution::NoRoute);
        watched.expect("100.64.0.0", Resolution::NoRoute);
        watched.expect("100.64.19.249", ready(0, mac));
        run("ip neigh flush dev ke-a0 nud all");
        watched.expect("10.77.0.150", Resolution::Pending);
    });
}

#[test]
fn a_watcher_ends_when_dropped() {
    if !rig::is_root("a_watcher_ends_when_dropped") {
        return;
    }
    Pair::run(1, 1500, |_| {
        let watched = Watched::start(1, WatchSettings::default());
        let (ended, told) = std::sync::mpsc::channel();
        let watcher = watched.watcher;
        std::thread::spawn(move || {
            drop(watcher);
            ended.send(()).unwrap();
        });
        told.recv_timeout(rig::PATIENCE).expect("it ends");
        // Nobody else holds the routes any more.
        drop(watched.hops);
        assert_eq!(Arc::strong_count(&watched.routes), 1);
    });
    in_namespace(|| assert_eq!(mac("lo"), [0; 6]));
}
