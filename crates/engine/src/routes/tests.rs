use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn route(port: u8, gateway: Option<&str>, metric: u32) -> Route {
    Route { port: Some(PortId(port)), gateway: gateway.map(ip), metric }
}

#[test]
fn the_longest_prefix_wins_and_then_the_lowest_metric() {
    let (routes, _asked) = Routes::new();
    routes.set_routes([
        (ip("0.0.0.0"), 0, route(1, Some("10.1.0.1"), 100)),
        (ip("0.0.0.0"), 0, route(1, Some("10.1.0.2"), 50)),
        (ip("10.0.0.0"), 24, route(0, None, 0)),
        (ip("2001:db8::"), 32, route(2, None, 0)),
    ]);
    for (port, address, mac) in [(1, "10.1.0.2", 2), (0, "10.0.0.9", 9), (2, "2001:db8::5", 5)] {
        routes.set_neighbour(NeighbourRequest { port: PortId(port), address: ip(address) }, Some([mac; 6]));
    }
    let mut hops = routes.next_hops();
    let ready = |port, mac| Resolution::Ready(NextHop { port: PortId(port), mac: [mac; 6] });
    for _ in 0..2 {
        assert_eq!(hops.resolve(ip("8.8.8.8")), ready(1, 2));
        assert_eq!(hops.resolve(ip("10.0.0.9")), ready(0, 9));
        assert_eq!(hops.resolve(ip("2001:db8::5")), ready(2, 5));
        assert_eq!(hops.resolve(ip("2001:db9::5")), Resolution::NoRoute);
    }
}

#[test]
fn of_equal_prefixes_and_metrics_the_first_given_counts() {
    let (routes, _asked) = Routes::new();
    routes.set_fixed_routes(vec![
        (ip("10.0.0.0"), 8, route(3, None, 5)),
        (ip("10.1.0.0"), 16, route(3, None, 0)),
    ]);
    for ports in [[0, 1], [1, 0]] {
        let equal = |prefix, len| ports.map(|port| (ip(prefix), len, route(port, None, 5)));
        routes.set_routes(
            equal("10.0.0.0", 8).into_iter().chain(equal("10.1.0.0", 16)).chain(equal("2001:db8::", 32)),
        );
        let mut hops = routes.next_hops();
        hops.refresh();
        let first = Some(PortId(ports[0]));
        assert_eq!(hops.port_of(ip("10.0.0.1")), first, "before a fixed one");
        assert_eq!(hops.port_of(ip("10.1.0.1")), Some(PortId(3)), "a fixed one of a lower metric");
        assert_eq!(hops.port_of(ip("2001:db8::1")), first);
        let ways = hops.prefix_routes(VrfId::MAIN, true);
        assert_eq!(ways.iter().map(|way| way.port).collect::<Vec<_>>(), [first, Some(PortId(3))]);
    }
}

/// A worker that sleeps has packets that wait for what changes.
#[test]
fn each_change_wakes_the_workers() {
    let (routes, _asked) = Routes::new();
    let notifiers = [Notifier::new().unwrap(), Notifier::new().unwrap()];
    notifiers.iter().for_each(|notifier| routes.next_hops().attach(notifier));
    let woken = |change: &dyn Fn()| {
        notifiers.iter().for_each(|notifier| notifier.arm());
        change();
        let heard = notifiers.each_ref().map(|notifier| rustix::io::read(notifier, &mut [0; 8]).is_ok());
        notifiers.iter().for_each(|notifier| notifier.disarm());
        heard
    };
    let neighbour = NeighbourRequest { port: PortId(0), address: ip("10.0.0.1") };
    assert_eq!(woken(&|| routes.set_routes([(ip("10.0.0.0"), 8, route(0, None, 0))])), [true; 2]);
    assert_eq!(woken(&|| routes.set_neighbour(neighbour, Some([1; 6]))), [true; 2]);
    assert_eq!(woken(&|| routes.set_neighbour(neighbour, Some([1; 6]))), [false; 2], "nothing changes");
    assert_eq!(woken(&|| routes.set_neighbour(neighbour, None)), [true; 2]);
    assert_eq!(woken(&|| routes.links_changed()), [true; 2]);
    assert_eq!(woken(&|| routes.set_sole_neighbour(PortId(1), [1; 6])), [true; 2]);
    assert_eq!(woken(&|| routes.set_elsewhere(PortId(1))), [true; 2]);
}

#[test]
fn an_unknown_neighbour_is_asked_for_and_a_change_is_seen_at_once() {
    let (routes, asked) = Routes::new();
    routes.set_routes([(ip("10.0.0.0"), 8, route(0, None, 0))]);
    let mut hops = routes.next_hops();
    assert_eq!(hops.resolve(ip("10.0.0.1")), Resolution::Pending);
    let wanted = asked.try_recv().unwrap();
    assert_eq!(wanted, NeighbourRequest { port: PortId(0), address: ip("10.0.0.1") });
    routes.set_neighbour(wanted, Some([1; 6]));
    assert_eq!(hops.resolve(ip("10.0.0.1")), Resolution::Ready(NextHop { port: PortId(0), mac: [1; 6] }));
    routes.set_neighbour(wanted, Some([2; 6]));
    assert_eq!(hops.resolve(ip("10.0.0.1")), Resolution::Ready(NextHop { port: PortId(0), mac: [2; 6] }));
    routes.set_neighbour(wanted, None);
    assert_eq!(hops.resolve(ip("10.0.0.1")), Resolution::Pending);
}

#[test]
fn a_longer_prefix_that_is_not_ours_hides_a_shorter_one_that_is() {
    let (routes, _asked) = Routes::new();
    let elsewhere = Route { port: None, gateway: None, metric: 0 };
    routes.set_routes([(ip("0.0.0.0"), 0, route(1, None, 0)), (ip("192.0.2.0"), 24, elsewhere)]);
    let mut hops = routes.next_hops();
    assert_eq!(hops.resolve(ip("8.8.8.8")), Resolution::Pending);
    assert_eq!(hops.resolve(ip("192.0.2.1")), Resolution::NoRoute);
    assert!(hops.is_kernels(ip("192.0.2.1")) && !hops.is_kernels(ip("8.8.8.8")));
    routes.set_sole_neighbour(PortId(2), [2; 6]);
    routes.set_elsewhere(PortId(2));
    assert_eq!(hops.resolve(ip("192.0.2.1")), Resolution::Ready(NextHop { port: PortId(2), mac: [2; 6] }));
    assert!(hops.is_kernels(ip("192.0.2.1")) && !hops.is_kernels(ip("8.8.8.8")));
}

#[test]
fn fixed_routes_stay_and_a_sole_neighbour_has_every_address() {
    let (routes, asked) = Routes::new();
    routes.set_sole_neighbour(PortId(1), [1; 6]);
    routes.set_fixed_routes(vec![(ip("0.0.0.0"), 0, route(1, None, u32::MAX))]);
    let mut hops = routes.next_hops();
    let expected = Resolution::Ready(NextHop { port: PortId(1), mac: [1; 6] });
    assert_eq!(hops.resolve(ip("8.8.8.8")), expected);
    routes.set_routes([(ip("10.0.0.0"), 8, route(0, None, 0))]);
    assert_eq!(hops.resolve(ip("8.8.8.8")), expected);
    assert_eq!(hops.resolve(ip("10.0.0.1")), Resolution::Pending);
    assert_eq!(asked.try_iter().count(), 1);
}

#[test]
fn the_ways_follow_the_routes_and_their_gateways_are_asked_for() {
    let (routes, asked) = Routes::new();
    let mut hops = routes.next_hops();
    assert_eq!(hops.prefix_routes(VrfId::MAIN, true), []);
    let near = (ip("10.1.0.0"), 24, route(1, None, 0));
    routes.set_routes([near, (ip("0.0.0.0"), 0, route(1, Some("10.1.0.1"), 0))]);
    let port = Some(PortId(1));
    let link = PrefixRoute { to: (ip("10.1.0.0"), 24), port, gateway: None };
    let default = |gateway| PrefixRoute { to: (ip("0.0.0.0"), 0), port, gateway: Some(gateway) };
    assert_eq!(hops.prefix_routes(VrfId::MAIN, true), [default(Resolution::Pending), link]);
    let gateway = asked.try_recv().unwrap();
    routes.set_neighbour(gateway, Some([1; 6]));
    let ready = Resolution::Ready(NextHop { port: PortId(1), mac: [1; 6] });
    assert_eq!(hops.prefix_routes(VrfId::MAIN, true), [default(ready), link]);
    assert_eq!(hops.neighbours(), [(gateway, [1; 6])]);
    routes.set_routes([near]);
    assert_eq!(hops.prefix_routes(VrfId::MAIN, true), [link]);
}

#[test]
fn a_scan_of_a_subnet_does_not_grow_the_queue() {
    let (routes, asked) = Routes::new();
    routes.set_routes([(ip("10.0.0.0"), 8, route(0, None, 0))]);
    let mut hops = routes.next_hops();
    for host in 0..10_000u32 {
        hops.resolve(IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + host)));
    }
    assert_eq!(asked.try_iter().count(), WANTED_MAX);
}

#[test]
fn routes_are_listed_by_prefix_and_of_equal_ones_one_is_used() {
    let (routes, _asked) = Routes::new();
    routes.set_elsewhere(PortId(9));
    let nowhere = Route { port: None, gateway: None, metric: 7 };
    routes.set_routes([
        (ip("2001:db8::"), 32, route(1, None, 0)),
        (ip("10.1.2.3"), 16, route(0, Some("10.0.0.1"), 5)),
        (ip("10.1.0.0"), 16, route(1, Some("10.0.0.2"), 3)),
        (ip("10.0.0.0"), 8, route(0, None, 0)),
        (ip("10.1.0.0"), 24, nowhere),
    ]);
    let listed: Vec<_> = routes.tables()[0]
        .iter()
        .map(|of| (format!("{}/{}", of.prefix, of.prefix_len), of.route.port.unwrap().0, of.is_used))
        .collect();
    let expected = [
        ("10.0.0.0/8", 0, true),
        ("10.1.0.0/16", 0, false),
        ("10.1.0.0/16", 1, true),
        ("10.1.0.0/24", 9, true),
        ("2001:db8::/32", 1, true),
    ];
    assert_eq!(listed, expected.map(|(prefix, port, is_used)| (prefix.to_owned(), port, is_used)));
}

#[test]
fn a_vrf_has_the_routes_by_its_ports_and_other_vrfs_have_theirs() {
    let (routes, _asked) = Routes::new();
    let of = |port| Vrf {
        name: format!("port {port}"),
        table: VrfTable::OfPort(PortId(port)),
        ports: Some(vec![PortId(port)]),
    };
    let [two, three] = [2, 3].map(|port| routes.vrf(of(port)));
    assert_eq!((routes.vrf(of(2)), routes.vrf(Vrf::main())), (two, VrfId::MAIN), "known already");
    let blackhole = Route { port: None, gateway: None, metric: 0 };
    routes.set_routes([
        (ip("0.0.0.0"), 0, route(2, Some("10.2.0.1"), 0)),
        (ip("0.0.0.0"), 0, route(3, Some("10.3.0.1"), 100)),
        (ip("10.0.0.0"), 8, blackhole),
        (ip("10.3.0.0"), 24, route(3, None, 0)),
        (ip("::"), 0, route(3, Some("fd03::1"), 0)),
    ]);
    for (port, address, mac) in
        [(2, "10.2.0.1", 2), (3, "10.3.0.1", 3), (3, "10.3.0.9", 9), (3, "fd03::1", 3)]
    {
        routes.set_neighbour(NeighbourRequest { port: PortId(port), address: ip(address) }, Some([mac; 6]));
    }
    let mut hops = routes.next_hops();
    let by = |port, mac| Resolution::Ready(NextHop { port: PortId(port), mac: [mac; 6] });
    let rows = [
        // To: by the main table, by the first VRF, by the second.
        ("8.8.8.8", [by(2, 2), by(2, 2), by(3, 3)]),
        ("10.1.1.1", [Resolution::NoRoute; 3]),
        ("10.3.0.9", [by(3, 9), Resolution::NoRoute, by(3, 9)]),
        ("2001:db8::1", [by(3, 3), Resolution::NoRoute, by(3, 3)]),
    ];
    for _ in 0..2 {
        for (to, expected) in rows {
            assert_eq!(
                [VrfId::MAIN, two, three].map(|vrf| hops.resolve(VrfAddress { vrf, address: ip(to) })),
                expected,
                "{to}"
            );
        }
    }
    let known = |vrf, to: &str| match ip(to) {
        IpAddr::V4(to) => hops.known_v4(vrf, to.to_bits()).copied(),
        IpAddr::V6(to) => hops.known_v6(vrf, to.to_bits()).copied(),
    };
    for (to, expected) in rows {
        for (vrf, expected) in [VrfId::MAIN, two, three].into_iter().zip(expected) {
            let expected = if let Resolution::Ready(hop) = expected { Some(hop) } else { None };
            assert_eq!(known(vrf, to), expected, "{to}");
        }
    }
    assert_eq!(hops.port_of(VrfAddress { vrf: three, address: ip("8.8.8.8") }), Some(PortId(3)));
    let ways: Vec<_> = hops.prefix_routes(two, true).iter().map(|way| (way.to, way.port)).collect();
    assert_eq!(ways, [((ip("0.0.0.0"), 0), Some(PortId(2))), ((ip("10.0.0.0"), 8), None)]);
}

/// On the link the same address is another host behind another port.
#[test]
fn vrfs_share_no_neighbours() {
    let (routes, _asked) = Routes::new();
    let numbers = [100, 200].map(VrfTable::Number);
    let vrfs = numbers.map(|table| routes.vrf(Vrf { name: format!("{table:?}"), table, ports: None }));
    let on_link = |port| vec![(ip("192.0.2.0"), 24, route(port, None, 0))];
    routes.set_vrf_routes(&[vec![], on_link(1), on_link(2)].map(Arc::new));
    for port in [1, 2] {
        let neighbour = NeighbourRequest { port: PortId(port), address: ip("192.0.2.1") };
        routes.set_neighbour(neighbour, Some([port; 6]));
    }
    let mut hops = routes.next_hops();
    for _ in 0..2 {
        let found = vrfs.map(|vrf| hops.resolve(VrfAddress { vrf, address: ip("192.0.2.1") }));
        let expected = [1, 2].map(|port| Resolution::Ready(NextHop { port: PortId(port), mac: [port; 6] }));
        assert_eq!(found, expected);
        let number = Ipv4Addr::new(192, 0, 2, 1).to_bits();
        assert_eq!(vrfs.map(|vrf| hops.known_v4(vrf, number).unwrap().port), [PortId(1), PortId(2)]);
    }
    assert_eq!(hops.resolve(ip("192.0.2.1")), Resolution::NoRoute);
    let tables: Vec<_> = routes.tables().iter().map(|table| table.vrf.table).collect();
    assert_eq!(tables, [VrfTable::Main, numbers[0], numbers[1]]);
    routes.set_routes(on_link(1));
    assert_eq!(
        hops.resolve(VrfAddress { vrf: vrfs[0], address: ip("192.0.2.1") }),
        Resolution::NoRoute,
        "not of that table"
    );
    let same = routes.vrf(Vrf { name: "same".to_owned(), table: VrfTable::OfPort(PortId(1)), ports: None });
    assert!(matches!(hops.resolve(VrfAddress { vrf: same, address: ip("192.0.2.1") }), Resolution::Ready(_)));
    assert!(routes.tables().iter().all(|table| table.vrf.name != "same"), "it has the main table's");
}
