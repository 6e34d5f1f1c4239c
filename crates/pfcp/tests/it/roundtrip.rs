//! What the control plane's side writes, the user plane's side reads: every rule, whole.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::rig::{UPF, endpoint, exchange, smf};
use kaido_n4::{
    AddressMatch, ApplicationId, ApplyAction, BarId, BitRate, BufferingRule, Change, ChooseOr,
    DroppedTraffic, Duplicate, Establishment, EthernetFilter, FSeid, FTeid, Far, FarId, FlowEnd,
    ForwardingParameters, FramedRoute, Gate, Interface, Ipv6Prefix, LocalFTeid, Mac, MacList, MacMatch,
    MacRange, MeasurementInformation, MeasurementMethod, Modification, MonitoringTime, NetworkInstance,
    OuterHeaderCreation, OuterHeaderRemoval, PacketDelays, PacketLimit, PacketRate, PagingPolicyIndicator,
    Pdi, Pdr, PdrId, PlainHeaderCreation, PredefinedName, Proxying, Qer, QerCorrelationId, QerId, Qfi,
    QosMonitoring, RemovedForwarding, ReportingFrequency, ReportingTriggers, SdfFilter, Seid, Srr, SrrId,
    Steering, TagCreation, Teid, TimeQuotaMechanism, TimeUnit, TrafficEndpoint, TrafficEndpointId,
    UeIpAddress, UeIpRole, UpdateFar, UpdateForwardingParameters, UpdatePdr, UpdateQer, UpdateSrr,
    UpdateTrafficEndpoint, UpdateUrr, Urr, UrrId, VlanTag, VolumeThreshold, WantedDelays,
};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    (1u32..).prop_map(Ipv4Addr::from_bits)
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    (1u128..).prop_map(Ipv6Addr::from_bits)
}

fn both() -> impl Strategy<Value = (Option<Ipv4Addr>, Option<Ipv6Addr>)> {
    (of(v4()), of(v6())).prop_filter("an address", |(v4, v6)| v4.is_some() || v6.is_some())
}

fn interface() -> impl Strategy<Value = Interface> {
    select(vec![
        Interface::Access,
        Interface::Core,
        Interface::N6Lan,
        Interface::CpFunction,
        Interface::VnInternal,
    ])
}

fn name() -> impl Strategy<Value = NetworkInstance> {
    "[a-z]{1,12}(\\.[a-z]{1,5})?".prop_map(|text| NetworkInstance(text.into()))
}

fn local_f_teid() -> impl Strategy<Value = LocalFTeid> {
    let given = (1u32.., both());
    let given =
        given.prop_map(|(teid, (ipv4, ipv6))| LocalFTeid::Given(FTeid { teid: Teid(teid), ipv4, ipv6 }));
    let choose = (any::<bool>(), of(any::<u8>()));
    let choose = choose.prop_map(|(ipv4, choose_id)| LocalFTeid::Choose { ipv4, ipv6: !ipv4, choose_id });
    prop_oneof![given, choose]
}

fn ue() -> impl Strategy<Value = UeIpAddress> {
    let host = (0x0a00_0001u32..0x7f00_0000).prop_map(|bits| ChooseOr::Given(Ipv4Addr::from_bits(bits)));
    let ipv4 = prop_oneof![host, Just(ChooseOr::Choose)];
    // Of 2000::/3, global unicast.
    let global = |addr: Ipv6Addr| Ipv6Addr::from_bits(addr.to_bits() >> 3 | 1 << 125);
    let given =
        (v6(), 3u8..=128).prop_map(move |(addr, len)| ChooseOr::Given(Ipv6Prefix::of(global(addr), len)));
    let ipv6 = prop_oneof![given, Just(ChooseOr::Choose)];
    (of(ipv4), of(ipv6), select(vec![UeIpRole::Source, UeIpRole::Destination]))
        .prop_map(|(ipv4, ipv6, role)| UeIpAddress { ipv4, ipv6, role })
        .prop_filter("an address", |ue| ue.ipv4.is_some() || ue.ipv6.is_some())
}

fn flow_end() -> impl Strategy<Value = FlowEnd> {
    let network = (v4(), 1u8..=32).prop_map(|(address, length)| {
        let mask = u32::MAX << (32 - u32::from(length));
        AddressMatch::V4(Ipv4Addr::from_bits(address.to_bits() & mask), length)
    });
    let address = prop_oneof![Just(AddressMatch::Any), network];
    let ports = proptest::collection::vec((1u16..1000, 1000u16..).prop_map(|(low, high)| (low, high)), 0..3);
    (address, ports).prop_map(|(address, ports)| FlowEnd { address, ports })
}

fn filter() -> impl Strategy<Value = SdfFilter> {
    let sides = (select(vec![6u8, 17]), flow_end(), flow_end());
    let more = (of(any::<(u8, u8)>()), of(any::<u32>()), of(0u32..1 << 20), of(any::<u32>()));
    (sides, more).prop_map(|((protocol, remote, local), (tos, spi, flow_label, id))| SdfFilter {
        protocol: Some(protocol),
        remote,
        local,
        tos,
        spi,
        flow_label,
        id,
    })
}

fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(Mac)
}

fn mac_range() -> impl Strategy<Value = MacRange> {
    prop_oneof![
        mac().prop_map(MacRange::only),
        (mac(), mac()).prop_map(|(one, other)| MacRange { low: one.min(other), high: one.max(other) }),
    ]
}

fn mac_match() -> impl Strategy<Value = MacMatch> {
    (of(mac_range()), of(mac_range()))
        .prop_map(|(source, destination)| MacMatch { source, destination })
        .prop_filter("an address", |pair| *pair != MacMatch::default())
}

fn vlan_tag() -> impl Strategy<Value = VlanTag> {
    (of(0u16..4096), of(any::<bool>()), of(0u8..8))
        .prop_map(|(vid, drop_eligible, priority)| VlanTag { vid, drop_eligible, priority })
        .prop_filter("a part", |tag| *tag != VlanTag::default())
}

fn tag_creation() -> impl Strategy<Value = TagCreation> {
    let tag = || of((0u16..4096, vlan_tag()).prop_map(|(vid, tag)| VlanTag { vid: Some(vid), ..tag }));
    (tag(), tag())
        .prop_map(|(c_tag, s_tag)| TagCreation { c_tag, s_tag })
        .prop_filter("a tag", |tags| *tags != TagCreation::default())
}

prop_compose! {
    fn ethernet_filter()(
        id in of(any::<u32>()),
        bidirectional in any::<bool>(),
        addresses in proptest::collection::vec(mac_match(), 0..3),
        ethertype in 0x600u16..,
        c_tag in of(vlan_tag()),
        s_tag in of(vlan_tag()),
        flows in proptest::collection::vec(filter(), 0..2),
    ) -> EthernetFilter {
        let bidirectional = bidirectional && id.is_some();
        EthernetFilter { id, bidirectional, addresses, ethertype: Some(ethertype), c_tag, s_tag, flows }
    }
}

prop_compose! {
    fn mac_list()(
        addresses in proptest::collection::vec(mac(), 0..5),
        c_tag in of(vlan_tag()),
        s_tag in of(vlan_tag()),
    ) -> MacList {
        MacList { addresses, c_tag, s_tag }
    }
}

fn pdi() -> impl Strategy<Value = Pdi> {
    let lists = (
        proptest::collection::vec(ue(), 0..3),
        proptest::collection::vec((0u8..64).prop_map(Qfi), 0..3),
        proptest::collection::vec(filter(), 0..3),
    );
    let frames = (any::<bool>(), proptest::collection::vec(ethernet_filter(), 0..3));
    let whole = (interface(), of(local_f_teid()), of(name()), lists, framed_routes(), frames);
    let whole = whole.prop_map(
        |(
            source_interface,
            local_fteid,
            network_instance,
            (ue_ip, qfis, sdf_filters),
            framed_routes,
            (ethernet, ethernet_filters),
        )| Pdi {
            source_interface,
            local_fteid,
            network_instance,
            ue_ip,
            qfis,
            sdf_filter_ids: sdf_filters.iter().filter_map(|filter| filter.id).collect(),
            sdf_filters,
            framed_routes,
            application_id: Some(ApplicationId("video".into())),
            ethernet,
            ethernet_filter_ids: ethernet_filters.iter().filter_map(|filter| filter.id).collect(),
            ethernet_filters,
            ..Pdi::default()
        },
    );
    // Half of them say by traffic endpoints where packets come from.
    (whole, proptest::collection::vec(any::<u8>().prop_map(TrafficEndpointId), 1..3), any::<bool>()).prop_map(
        |(pdi, traffic_endpoints, by_endpoint)| match by_endpoint {
            false => pdi,
            true => Pdi {
                source_interface: pdi.source_interface,
                qfis: pdi.qfis,
                sdf_filters: pdi.sdf_filters,
                sdf_filter_ids: pdi.sdf_filter_ids,
                traffic_endpoints,
                ..Pdi::default()
            },
        },
    )
}

fn framed_route() -> impl Strategy<Value = FramedRoute> {
    prop_oneof![
        (v4(), 0u8..=32).prop_map(|(addr, len)| FramedRoute::of(addr.into(), len)),
        (v6(), 0u8..=64).prop_map(|(addr, len)| FramedRoute::of(addr.into(), len)),
    ]
}

/// As they are written: those of IPv4 first.
fn framed_routes() -> impl Strategy<Value = Vec<FramedRoute>> {
    proptest::collection::vec(framed_route(), 0..3).prop_map(|mut routes| {
        routes.sort_by_key(|route| route.network().is_ipv6());
        routes
    })
}

prop_compose! {
    fn traffic_endpoint(id: u8)(
        local_fteid in of(local_f_teid()),
        network_instance in of(name()),
        ue_ip in proptest::collection::vec(ue(), 1..3),
        framed_routes in framed_routes(),
        qfis in proptest::collection::vec((0u8..64).prop_map(Qfi), 0..3),
        ethernet in any::<bool>(),
    ) -> TrafficEndpoint {
        let id = TrafficEndpointId(id);
        TrafficEndpoint { id, local_fteid, network_instance, ue_ip, framed_routes, qfis, ethernet }
    }
}

fn removal() -> impl Strategy<Value = OuterHeaderRemoval> {
    use OuterHeaderRemoval as R;
    select(vec![R::GtpUUdpIpv4, R::GtpUUdpIpv6, R::GtpUUdpIp, R::ServiceTag, R::BothTags])
}

fn ids() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 0..3)
}

fn tunnel() -> impl Strategy<Value = OuterHeaderCreation> {
    (1u32.., both()).prop_map(|(teid, (ipv4, ipv6))| OuterHeaderCreation { teid: Teid(teid), ipv4, ipv6 })
}

fn action() -> impl Strategy<Value = ApplyAction> {
    let action = |drop, forward, buffer, notify_cp| ApplyAction {
        drop,
        forward,
        buffer,
        notify_cp,
        duplicate: false,
        report_buffered: notify_cp,
        report_discarded: notify_cp,
    };
    select(vec![
        action(true, false, false, false),
        action(false, true, false, false),
        action(false, false, true, false),
        action(false, false, true, true),
    ])
}

fn steering() -> impl Strategy<Value = Steering> {
    let peer = prop_oneof![
        (1u32..0xdfff_ffff).prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        v6().prop_map(IpAddr::V6)
    ];
    let peer = peer.prop_filter("a host", |peer| !peer.is_unspecified() && !peer.is_multicast());
    let header = (peer, of(1u16..)).prop_map(|(peer, port)| PlainHeaderCreation { peer, port });
    let text = || of("[a-z]{1,20}").prop_map(|text| text.map(Arc::from));
    let copy = (tunnel(), of(any::<u8>()))
        .prop_map(|(tunnel, transport_level_marking)| Duplicate { tunnel, transport_level_marking });
    let proxying = (any::<bool>(), any::<bool>()).prop_map(|(arp, neighbours)| Proxying { arp, neighbours });
    let copies = proptest::collection::vec(copy, 0..3);
    (of(header), text(), text(), copies, of(tag_creation()), of(proxying)).prop_map(
        |(header, redirect, policy, duplicates, tags, proxying)| {
            // A FAR has one header or the other.
            let tags = tags.filter(|_| header.is_none());
            Steering { header, redirect, policy, duplicates, tags, proxying }
        },
    )
}

fn forwarding() -> impl Strategy<Value = ForwardingParameters> {
    (interface(), of(name()), of(tunnel()), of(any::<u8>()), steering()).prop_map(
        |(destination_interface, network_instance, tunnel, transport_level_marking, steering)| {
            ForwardingParameters {
                destination_interface,
                network_instance,
                // A FAR has one header or the other.
                outer_header_creation: tunnel
                    .filter(|_| steering.header.is_none() && steering.tags.is_none()),
                transport_level_marking,
                steering: (steering != Steering::default()).then(|| Box::new(steering)),
            }
        },
    )
}

fn volume() -> impl Strategy<Value = VolumeThreshold> {
    (of(any::<u64>()), of(any::<u64>()), of(any::<u64>()))
        .prop_map(|(total, uplink, downlink)| VolumeThreshold { total, uplink, downlink })
        .prop_filter("a volume", |volume| *volume != VolumeThreshold::default())
}

fn rate() -> impl Strategy<Value = BitRate> {
    (0u64..1 << 40, 0u64..1 << 40)
        .prop_map(|(uplink_kbps, downlink_kbps)| BitRate { uplink_kbps, downlink_kbps })
}

fn packet_rate() -> impl Strategy<Value = PacketRate> {
    use TimeUnit as T;
    let unit = select(vec![T::Minute, T::SixMinutes, T::Hour, T::Day, T::Week]);
    let limit = of((any::<u16>(), unit).prop_map(|(packets, unit)| PacketLimit { packets, unit }));
    (limit.clone(), limit)
        .prop_map(|(uplink, downlink)| PacketRate { uplink, downlink })
        .prop_filter("a limit", |rate| *rate != PacketRate::default())
}

fn qer(id: u32) -> impl Strategy<Value = Qer> {
    let gate = any::<(bool, bool)>().prop_map(|(uplink, downlink)| Gate { uplink, downlink });
    let container =
        (of((0u8..64).prop_map(Qfi)), any::<bool>(), of((0u8..8).prop_map(PagingPolicyIndicator)));
    let window = of((0u64..1 << 32).prop_map(Duration::from_millis));
    let packets = (of(packet_rate()), any::<bool>());
    (gate, of(rate()), of(rate()), container, (window, packets), of(any::<u32>().prop_map(QerCorrelationId)))
        .prop_map(
            move |(
                gate,
                mbr,
                gbr,
                (qfi, reflective, paging_policy),
                (averaging_window, packets),
                correlation,
            )| Qer {
                id: QerId(id),
                correlation,
                gate,
                mbr,
                gbr,
                qfi,
                reflective,
                paging_policy,
                averaging_window,
                packet_rate: packets.0,
                reports_packet_rate: packets.1,
            },
        )
}

fn period() -> impl Strategy<Value = Duration> {
    (1u64..1 << 32).prop_map(Duration::from_secs)
}

fn stamp() -> impl Strategy<Value = SystemTime> {
    (1_700_000_000u64..1_900_000_000).prop_map(|at| std::time::UNIX_EPOCH + Duration::from_secs(at))
}

fn monitoring_time() -> impl Strategy<Value = MonitoringTime> {
    let thresholds = (of(volume()), of(period()), of(any::<u32>()));
    let quotas = (of(volume()), of(period()), of(any::<u32>()));
    (stamp(), thresholds, quotas).prop_map(|(at, thresholds, quotas)| MonitoringTime {
        at,
        volume_threshold: thresholds.0,
        time_threshold: thresholds.1,
        event_threshold: thresholds.2,
        volume_quota: quotas.0,
        time_quota: quotas.1,
        event_quota: quotas.2,
    })
}

fn delays() -> impl Strategy<Value = PacketDelays> {
    any::<[Option<u32>; 3]>()
        .prop_filter("some delay", |all| all.iter().any(Option::is_some))
        .prop_map(PacketDelays::of)
}

prop_compose! {
    fn qos_monitoring()(
        qfis in proptest::collection::btree_set(0u8..64, 1..5), wanted in 1u8..8, frequency in 1u8..8,
        thresholds in delays(), minimum_wait in of(period()), period in period(),
    ) -> QosMonitoring {
        let flag = |octet: u8, bit: u8| octet >> bit & 1 != 0;
        QosMonitoring {
            qfis: qfis.into_iter().map(Qfi).collect(),
            wanted: WantedDelays { downlink: flag(wanted, 0), uplink: flag(wanted, 1), round_trip: flag(wanted, 2) },
            frequency: ReportingFrequency {
                on_threshold: flag(frequency, 0),
                periodic: flag(frequency, 1),
                at_release: flag(frequency, 2),
            },
            thresholds,
            minimum_wait,
            period: Some(period),
        }
    }
}

fn srr(id: u8) -> impl Strategy<Value = Srr> {
    let monitoring = proptest::collection::vec(qos_monitoring(), 1..3);
    monitoring.prop_map(move |monitoring| Srr { id: SrrId(id), monitoring })
}

fn information() -> impl Strategy<Value = MeasurementInformation> {
    any::<[bool; 5]>().prop_map(|flags| MeasurementInformation {
        before_qos: flags[0],
        inactive: flags[1],
        reduced_application: flags[2],
        immediate_time: flags[3],
        count_packets: flags[4],
    })
}

prop_compose! {
    fn urr(id: u32)(
        (duration, event) in any::<(bool, bool)>(), triggers in any::<[u8; 3]>(), information in information(),
        periods in (period(), period(), period()), optional in (of(period()), of(period()), of(period())),
        (threshold, quota) in (volume(), of(volume())), events in (any::<u32>(), of(any::<u32>())),
        mechanism in of((any::<bool>(), period())), mut times in proptest::collection::vec(monitoring_time(), 0..4),
        linked in proptest::collection::vec(any::<u32>().prop_map(UrrId), 1..4), far in of(any::<u32>()),
        number_of_reports in of(any::<u16>()), dropped in (any::<u64>(), of(any::<u64>())),
        ethernet in of(period()),
    ) -> Urr {
        times.sort_by_key(|time| time.at);
        Urr {
            id: UrrId(id),
            method: MeasurementMethod { duration, volume: true, event },
            triggers: ReportingTriggers::from_octets(triggers),
            measurement_period: Some(periods.0),
            volume_threshold: Some(threshold),
            volume_quota: quota,
            time_threshold: Some(periods.1),
            time_quota: optional.0,
            event_threshold: Some(events.0),
            event_quota: events.1,
            dropped_threshold: Some(DroppedTraffic { packets: dropped.1, octets: Some(dropped.0) }),
            quota_holding_time: Some(periods.2),
            quota_validity_time: optional.1,
            inactivity_detection_time: optional.2,
            time_quota_mechanism: mechanism
                .map(|(continuous, interval)| TimeQuotaMechanism { continuous, interval }),
            ethernet_inactivity_timer: ethernet,
            monitoring_times: times,
            linked,
            quota_far: far.map(FarId),
            number_of_reports,
            information,
        }
    }
}

fn pdr(id: u16) -> impl Strategy<Value = Pdr> {
    (any::<u32>(), pdi(), of(removal()), ids(), ids(), (of(stamp()), of(stamp()))).prop_map(
        move |(precedence, pdi, outer_header_removal, urrs, qers, times)| Pdr {
            id: PdrId(id),
            precedence,
            pdi,
            outer_header_removal,
            deletes_container: outer_header_removal.is_some() && urrs.len() > 1,
            far_id: Some(FarId(1)),
            urr_ids: urrs.into_iter().map(UrrId).collect(),
            qer_ids: qers.into_iter().map(QerId).collect(),
            predefined: vec![PredefinedName("free".into()), PredefinedName("base".into())],
            activation: times.0,
            deactivation: times.1,
        },
    )
}

fn far(id: u32) -> impl Strategy<Value = Far> {
    (action(), forwarding(), of(any::<u8>())).prop_map(move |(apply_action, forwarding, bar)| Far {
        id: FarId(id),
        apply_action: ApplyAction {
            duplicate: forwarding.steering.as_ref().is_some_and(|steering| !steering.duplicates.is_empty()),
            ..apply_action
        },
        forwarding: Some(forwarding),
        bar_id: bar.map(BarId),
    })
}

fn establishment() -> impl Strategy<Value = Establishment> {
    let timer = of((1u32..).prop_map(|seconds| Duration::from_secs(seconds.into())));
    let bar = of(any::<u8>()).prop_map(|count| BufferingRule {
        id: BarId(1),
        suggested_packets: count,
        ..BufferingRule::default()
    });
    (
        pdr(1),
        pdr(65_535),
        far(1),
        far(2),
        qer(1),
        urr(u32::MAX),
        bar,
        (timer, traffic_endpoint(9), srr(255), any::<bool>(), of("[0-9]{1,15}")),
    )
        .prop_map(|(a, b, c, d, e, f, g, (timer, h, i, ethernet, imsi))| {
            let cp_fseid = FSeid { seid: Seid(1), ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)), ipv6: None };
            Establishment {
                cp_fseid,
                pdrs: vec![a, b],
                fars: vec![c, d],
                qers: vec![e],
                urrs: vec![f],
                bars: vec![g],
                inactivity_timer: timer,
                traffic_endpoints: vec![h],
                srrs: vec![i],
                ethernet,
                imsi: imsi.map(|digits| digits.parse().unwrap()),
            }
        })
}

prop_compose! {
    fn modification()(
        far in far(1), pdr in pdr(1), other in pdr(9), qer in qer(1), urr in urr(1), end_marker in any::<bool>(),
        flags in any::<(bool, bool)>(), timer in of(0u32..), moved in of(both()),
        endpoints in (traffic_endpoint(1), traffic_endpoint(2)), srrs in (srr(1), srr(2), 0u8..3),
        ethernet_context in proptest::collection::vec(mac_list(), 0..3),
    ) -> Modification {
        let forwarding = far.forwarding.unwrap();
        let removed = RemovedForwarding {
            network_instance: forwarding.network_instance.is_none(),
            outer_header_creation: forwarding.outer_header_creation.is_none()
                && forwarding
                    .steering
                    .as_ref()
                    .is_none_or(|steering| steering.header.is_none() && steering.tags.is_none()),
            transport_level_marking: forwarding.transport_level_marking.is_none(),
        };
        let list = |ids: Vec<UrrId>| (!ids.is_empty()).then_some(ids);
        Modification {
            cp_fseid: moved.map(|(ipv4, ipv6)| FSeid { seid: Seid(1), ipv4, ipv6 }),
            create_pdrs: vec![other],
            create_fars: vec![Far { id: FarId(7), forwarding: Some(forwarding.clone()), ..far }],
            update_pdrs: vec![UpdatePdr {
                id: pdr.id,
                precedence: Some(pdr.precedence),
                pdi: Some(pdr.pdi),
                outer_header_removal: pdr.outer_header_removal,
                deletes_container: pdr.outer_header_removal.map(|_| pdr.deletes_container),
                far_id: pdr.far_id,
                urr_ids: list(pdr.urr_ids),
                qer_ids: (!pdr.qer_ids.is_empty()).then_some(pdr.qer_ids),
                activate_predefined: pdr.predefined.clone(),
                activation: pdr.activation,
                deactivation: pdr.deactivation,
                deactivate_predefined: pdr.predefined,
                keeps_outer_header: pdr.outer_header_removal.is_none(),
            }],
            update_fars: vec![UpdateFar {
                id: far.id,
                apply_action: Some(far.apply_action),
                forwarding: Some(UpdateForwardingParameters {
                    destination_interface: Some(forwarding.destination_interface),
                    network_instance: forwarding.network_instance,
                    outer_header_creation: forwarding.outer_header_creation,
                    transport_level_marking: forwarding.transport_level_marking,
                    steering: forwarding.steering,
                    removed,
                    send_end_marker: end_marker,
                }),
                bar_id: far.bar_id,
                removes_bar: far.bar_id.is_none(),
            }],
            update_qers: vec![UpdateQer {
                id: qer.id,
                correlation: qer.correlation,
                gate: Some(qer.gate),
                mbr: qer.mbr,
                gbr: qer.gbr,
                qfi: qer.qfi,
                reflective: Some(qer.reflective),
                paging_policy: qer.paging_policy,
                averaging_window: qer.averaging_window,
                packet_rate: qer.packet_rate,
                reports_packet_rate: Some(qer.reports_packet_rate),
            }],
            update_urrs: vec![UpdateUrr {
                volume_quota: if flags.0 { Change::Remove } else { urr.volume_quota.into() },
                linked: Some(if flags.1 { Vec::new() } else { urr.linked.clone() }),
                ..UpdateUrr::whole(&urr)
            }],
            remove_traffic_endpoints: vec![TrafficEndpointId(7)],
            update_traffic_endpoints: vec![UpdateTrafficEndpoint {
                id: endpoints.1.id,
                local_fteid: endpoints.1.local_fteid,
                network_instance: endpoints.1.network_instance,
                ue_ip: Some(endpoints.1.ue_ip),
                framed_routes: (!endpoints.1.framed_routes.is_empty()).then_some(endpoints.1.framed_routes),
                qfis: (!endpoints.1.qfis.is_empty()).then_some(endpoints.1.qfis),
            }],
            create_traffic_endpoints: vec![endpoints.0],
            create_srrs: vec![srrs.0],
            update_srrs: vec![UpdateSrr {
                id: srrs.1.id,
                monitoring: match srrs.2 {
                    0 => None,
                    1 => Some(Vec::new()),
                    _ => Some(srrs.1.monitoring),
                },
            }],
            remove_srrs: vec![SrrId(9)],
            query_reference: flags.1.then_some(5),
            remove_fars: vec![FarId(5)],
            remove_qers: vec![QerId(6)],
            remove_bars: vec![BarId(2)],
            query_all_urrs: flags.0,
            drop_buffered: flags.1,
            inactivity_timer: timer.map(|seconds| Duration::from_secs(seconds.into())),
            ethernet_context,
            ..Modification::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_are_read_as_they_were_meant(request in establishment(), change in modification()) {
        let ((mut upf, now), mut smf) = (endpoint(), smf());
        let mut wire = Vec::new();
        smf.associate(now, UPF, &mut wire).unwrap();
        let seid = smf.establish(now, UPF, request.clone(), &mut wire).unwrap();
        exchange(now, &mut smf, &mut upf, wire);
        prop_assert_eq!(&upf.service().establishments, &[request]);
        let mut wire = Vec::new();
        smf.modify(now, seid, &change, &mut wire).unwrap();
        exchange(now, &mut smf, &mut upf, wire);
        let asked: Vec<_> = upf.service().modifications.iter().map(|(_, change)| change.clone()).collect();
        prop_assert_eq!(asked, vec![change]);
    }
}
