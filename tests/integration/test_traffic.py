"""Ordinary programs through the tunnel: every family inside and outside, every driver."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from conftest import OVER_IPV4, OVER_IPV6, Attach
from rig.net import UE_IPV4, UE_IPV6, NetError, Topology, wait_until
from rig.node import Node, port

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")


def ping(net: Topology, device: str, address: str, *options: str) -> bool:
    """Whether all of three pings are answered."""
    return net.ran.pings(address, "-I", device, *options)


@pytest.mark.parametrize("base", [OVER_IPV4, OVER_IPV6], ids=["outer-ipv4", "outer-ipv6"])
@pytest.mark.parametrize("flow", ["--qfi 9", "--no-qfi"], ids=["5g", "lte"])
def test_ping_through_the_tunnel(node: Node, net: Topology, attach: Attach, base: str, flow: str) -> None:
    """IPv4 and IPv6 inside, small and full-size.

    Conformance: TS 29.281 4.4.2 | GTP-U over IPv4 and IPv6, with and without containers, towards real sockets
    """
    attach(f"--ues 2 --tuns 2 {flow}", base)
    for device in ("ue0", "ue1"):
        assert ping(net, device, "10.100.6.2")
        assert ping(net, device, "fd00:6::2")
        assert ping(net, device, "10.100.6.2", "-s", "1300")
        assert ping(net, device, "fd00:6::2", "-s", "1300")
    assert node.drops() == {}


@pytest.mark.parametrize("driver", ["af_packet"])
def test_other_drivers_carry_the_same(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, driver: str
) -> None:
    """What AF_XDP does, a packet socket does too, and the kernel stays silent about it."""
    node = Node(binary, net.upf, tmp_path, driver=driver).start()
    attach("--ues 1 --tuns 1 --qfi 9")
    assert ping(net, "ue0", "10.100.6.2")
    assert ping(net, "ue0", "fd00:6::2", "-s", "1300")
    assert net.ran.pings("10.100.3.1")
    assert node.stop() == 0


def test_workers_share_the_queues_of_every_port(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach
) -> None:
    """Two workers, two queues a port; with fewer workers than queues the node says what to do."""
    for space, name in ((net.upf, "n3"), (net.upf, "n6"), (net.ran, "gnb0"), (net.dn, "eth0")):
        space.run("ethtool", "-L", name, "rx", "2", "tx", "2")
    with pytest.raises(NetError, match="2 receive queues and there are 1 workers"):
        Node(binary, net.upf, tmp_path).start()
    node = Node(binary, net.upf, tmp_path, workers=2).start()
    net.echo()
    sim = attach("--ues 100 --tuns 1 --qfi 9 --traffic pps=1000,bytes=200,seconds=2,to=10.100.6.2:7")
    assert ping(net, "ue0", "10.100.6.2")
    assert ping(net, "ue0", "fd00:6::2")
    wait_until(lambda: "traffic done" in sim.log.read_text(), "the traffic ends")
    totals = sim.stop()["totals"]
    assert isinstance(totals, dict)
    assert totals["generated"]["received"] == totals["generated"]["sent"]
    assert node.stop() == 0


def test_a_tap_device_makes_this_host_the_data_network(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach
) -> None:
    """One interface is enough: behind the TAP device is the node's own kernel."""
    addresses = 'addresses = ["10.100.7.1/24", "fd00:7::1/64"]'
    instance = 'network_instance = "internet"'
    node = Node(
        binary, net.upf, tmp_path, n6=port("n6", "tap", addresses, instance, interface="kaido0")
    ).start()
    for network in (UE_IPV4, UE_IPV6):
        net.upf.ip("route", "add", network, "dev", "kaido0")
    attach("--ues 1 --tuns 1")
    assert ping(net, "ue0", "10.100.7.1")
    assert ping(net, "ue0", "fd00:7::1", "-s", "1300")
    assert node.stop() == 0
    assert "kaido0" not in [link["ifname"] for link in net.upf.links()]


def test_pfcp_works_over_ipv6(node: Node, net: Topology, attach: Attach) -> None:
    """IPv6 node IDs and F-SEIDs.

    Conformance: TS 29.244 8.2.38 | Node IDs and F-SEIDs that are IPv6 addresses
    """
    base = OVER_IPV6.replace("10.100.4.1", "fd00:4::1").replace("10.100.4.2", "fd00:4::2")
    attach("--ues 1 --tuns 1 --choose", base.replace("--upf-gtpu fd00:3::1", ""))
    assert ping(net, "ue0", "10.100.6.2")
    status = node.ask("status")
    assert status is not None
    peers = status["peers"]
    assert isinstance(peers, list)
    assert peers[0]["node_id"] == "fd00:4::2"


def test_the_nodes_own_addresses_answer(node: Node, net: Topology) -> None:
    """ARP, neighbour discovery and ICMP to N3 and N6 addresses are the kernel's."""
    assert not node.ended()
    for space, addresses in ((net.ran, ("10.100.3.1", "fd00:3::1")), (net.dn, ("10.100.6.1", "fd00:6::1"))):
        for address in addresses:
            assert space.pings(address)


def test_usage_is_what_the_data_network_counted(
    node: Node, net: Topology, attach: Attach, tmp_path: Path
) -> None:
    """Every UE's reports, added up, equal an independent count, to the byte.

    Conformance: TS 29.244 5.2.2.2 | All reports of a session add up to what was sent, to the byte
    """
    out = tmp_path / "count.json"
    counting = net.dn.start(sys.executable, "-m", "rig.count", "eth0", UE_IPV4, UE_IPV6, "--out", str(out))
    wait_until(out.with_suffix(".ready").exists, "the counter starts")
    net.echo()
    traffic = "pps=1000,bytes=300,seconds=4,to=10.100.6.2:7"
    sim = attach(f"--ues 200 --qfi 9 --threshold 10000 --traffic {traffic}")
    wait_until(lambda: "traffic done" in sim.log.read_text(), "the traffic ends")
    report = sim.stop()
    counting.send_signal(signal.SIGTERM)
    counting.wait(timeout=60)
    counted = json.loads(out.read_text())
    assert counted["missed"] == 0
    ues = report["ue"]
    assert isinstance(ues, list)
    assert len(ues) == 200
    for ue in ues:
        seen = counted["ues"][ue["ipv4"]]
        for name, value in seen.items():
            assert ue["usage"][name] == value, f"{ue['ipv4']}: {name}"
        assert seen["uplink_packets"] == 20
        assert ue["usage"]["reports"] > 1, "thresholds were crossed on the way"
    assert not node.ended()


def test_a_neighbour_that_moves_is_followed(node: Node, net: Topology, attach: Attach) -> None:
    """The data network's router gets another Ethernet address: traffic follows it."""
    attach("--ues 1 --tuns 1")
    assert ping(net, "ue0", "10.100.6.2")
    net.dn.ip("link", "set", "eth0", "address", "02:00:00:00:99:99")
    net.dn.run("ping", "-c", "1", "-W", "2", "10.100.6.1", check=False)
    wait_until(lambda: ping(net, "ue0", "10.100.6.2"), "traffic follows the new address", 120)
    assert not node.ended()
