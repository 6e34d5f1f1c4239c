"""N3 behind a VLAN, N3 and N6 as VLANs of one interface, and tenants' VLANs in the kernel's datapath."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import OVER_IPV4, OVER_IPV6, Attach
from rig.gtpu import G_PDU, gtpu, ipv4, udp
from rig.net import CABLES, UE_IPV4, UE_IPV6, Namespace, Topology, run, wait_until
from rig.node import Node, port
from rig.vlan import split

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

#: The node's addresses.
N3, N6 = ("10.100.3.1/24", "fd00:3::1/64"), ("10.100.6.1/24", "fd00:6::1/64")
#: Those at the far ends.
GNB, DN = ("10.100.3.2/24", "fd00:3::2/64"), ("10.100.6.2/24", "fd00:6::2/64")
#: A host behind the data network's router.
FAR, FAR6 = "10.200.0.1", "fd00:200::1"
#: The largest ping of each family whose packet has 1500 octets.
FULL, FULL6 = 1500 - 28, 1500 - 48

#: An Ethernet address that the interface gets.
MOVED = "02:00:00:00:33:33"

#: Drivers and datapaths.
WAYS = [("af_xdp", "engine"), ("af_packet", "engine"), ("af_xdp", "xdp")]

Start = Callable[..., Node]


def address(space: Namespace, device: str, addresses: tuple[str, ...]) -> None:
    """Brings a device up with these addresses."""
    space.ip("link", "set", device, "up")
    for each in addresses:
        space.ip("address", "replace", each, "dev", device, *(["nodad"] if ":" in each else []))


def far_ends(net: Topology, vlans: dict[int, str]) -> subprocess.Popen[str]:
    """The access as VLAN 100 of its cable; with VLAN 200 the data network too, by no cable of its own."""
    net.ran.ip("address", "flush", "dev", "gnb0")
    net.upf.ip("address", "flush", "dev", "n3")
    bridge = split(net.ran, "gnb0", vlans, 1600)
    address(net.ran, vlans[100], GNB)
    if 200 in vlans:
        net.dn.ip("address", "flush", "dev", "eth0")
        net.upf.ip("address", "flush", "dev", "n6")
        net.ran.ip("link", "set", vlans[200], "netns", net.dn.name, "mtu", "1500")
        address(net.dn, vlans[200], DN)
        net.dn.ip("route", "replace", UE_IPV4, "via", "10.100.6.1")
        net.dn.ip("route", "replace", UE_IPV6, "via", "fd00:6::1")
    return bridge


def vlan(role: str, driver: str, vid: int, addresses: tuple[str, ...], *more: str) -> str:
    """A port that is a VLAN of `n3`."""
    return port(role, driver, f"vlan = {vid}", f"addresses = {json.dumps(addresses)}", *more, interface="n3")


def ports(node: Node) -> dict[str, dict[str, Any]]:
    """The ports of `kaido status`."""
    status = node.ask("status")
    assert status is not None
    listed = status["ports"]
    assert isinstance(listed, list)
    return {port["name"]: port for port in listed}


def records(node: Node) -> int:
    """How many records the kernel has."""
    status = node.ask("status")
    assert status is not None
    kernel = status["kernel"]
    assert isinstance(kernel, dict)
    return int(kernel["records"])


@pytest.fixture
def start(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Start]:
    """Starts a node: `start("xdp", n3, n6)`, and waits until it knows its neighbours."""
    nodes: list[Node] = []

    def begin(
        datapath: str, n3: str, n6: str | None = None, more: str = "", node_more: str = "", **others: Any
    ) -> Node:
        net.take_redirected()
        quiet = "\n[gtpu]\necho_interval_s = 0\n"
        settings = f'datapath = "{datapath}"\n{node_more}'
        node = Node(binary, net.upf, tmp_path, node=settings, n3=n3, n6=n6, more=more + quiet, **others)
        nodes.append(node.start())
        for prefix, gateway in (("0.0.0.0/0", "10.100.6.2"), ("::/0", "fd00:6::2")):
            net.upf.ip("route", "replace", prefix, "via", gateway)
        for each in (f"{FAR}/32", f"{FAR6}/128"):
            net.dn.ip("address", "replace", each, "dev", "lo")
        neighbours = ("10.100.3.2", "fd00:3::2", "10.100.6.2", "fd00:6::2")
        assert all(net.upf.pings(neighbour, count=1) for neighbour in neighbours)
        return node

    yield begin
    for node in nodes:
        assert node.ended() or node.stop() == 0


@pytest.fixture
def both(net: Topology) -> subprocess.Popen[str]:
    """One cable to the node: VLAN 100 is N3, VLAN 200 leads to the data network."""
    return far_ends(net, {100: "gnb0.100", 200: "eth0.200"})


def two_vlans(driver: str) -> tuple[str, str]:
    """N3 and N6 of one interface."""
    n6 = vlan("n6", driver, 200, N6, 'network_instance = "internet"', "mtu = 1500")
    return vlan("n3", driver, 100, N3), n6


def echo(net: Topology) -> None:
    """An echo server on the host behind the router."""
    net.dn.start(sys.executable, "-m", "rig.echo", FAR, "7")
    listening = ("ss", "--listening", "--udp", "--numeric")
    wait_until(lambda: f"{FAR}:7 " in net.dn.run(*listening).stdout, "the echo server starts")


def talk(net: Topology) -> None:
    """Pings of both families and of all sizes, near and far, from two UEs."""
    for device in ("ue0", "ue1"):
        net.ran.ip("link", "set", device, "mtu", "1500")
        for near, far, full in (("10.100.6.2", FAR, FULL), ("fd00:6::2", FAR6, FULL6)):
            assert net.ran.pings(near, "-I", device)
            assert net.ran.pings(far, "-I", device, "-s", str(full), "-M", "do")


@pytest.mark.parametrize(("driver", "datapath"), WAYS)
def test_n3_alone_is_a_vlan(start: Start, net: Topology, attach: Attach, driver: str, datapath: str) -> None:
    """N6 has an interface of its own."""
    far_ends(net, {100: "gnb0.100"})
    node = start(datapath, vlan("n3", driver, 100, N3), port("n6", driver, 'network_instance = "internet"'))
    attach("--ues 2 --tuns 2 --qfi 9")
    talk(net)
    assert net.ran.pings("10.100.3.1") and net.ran.pings("fd00:3::1"), "ARP, ND and ping are the TAP device's"
    seen = ports(node)
    assert node.drops() == {}
    assert "vlan 100 of n3" in seen["n3"]["how"] and "vlan" not in seen["n6"]["how"]
    for name in ("n3", "n6"):
        assert (seen[name]["kernel_packets"] >= 12) == (datapath == "xdp"), seen
    assert not any(link["ifname"] == "n3" for link in net.ran.links())


@pytest.mark.parametrize(("driver", "datapath"), WAYS)
def test_n3_and_n6_are_vlans_of_one_interface(
    start: Start, net: Topology, both: subprocess.Popen[str], attach: Attach, driver: str, datapath: str
) -> None:
    """All by one cable, and every packet is counted where it belongs, octet by octet."""
    node = start(datapath, *two_vlans(driver))
    first = attach("--ues 2 --tuns 2 --qfi 9")
    talk(net)
    first.stop()
    echo(net)
    before = ports(node)
    sim = attach(f"--ues 20 --qfi 9 --traffic pps=300,bytes=300,seconds=2,to={FAR}:7")
    wait_until(lambda: "traffic done" in sim.log.read_text(), "the traffic ends")
    after = ports(node)
    totals = sim.stop()["totals"]
    assert isinstance(totals, dict)
    assert (
        totals["generated"]["received"] == totals["generated"]["sent"] == {"packets": 600, "bytes": 180_000}
    )
    assert node.drops() == {}
    inside, outside = 14 + 300, 14 + 44 + 300
    for name, octets in (("n3", outside), ("n6", inside)):
        for way in ("rx", "tx"):
            packets, volume = (
                after[name][f"{way}_{unit}"] - before[name][f"{way}_{unit}"] for unit in ("packets", "bytes")
            )
            assert 600 <= packets <= 620, f"{name} {way}: ARP and ND may be among them"
            assert abs(volume - 600 * octets) <= 150 * (packets - 600), f"{name} {way}"
        forwarded = after[name]["kernel_packets"] - before[name]["kernel_packets"]
        assert forwarded == (600 if datapath == "xdp" else 0), name


def test_workers_share_a_trunk(
    start: Start, net: Topology, both: subprocess.Popen[str], attach: Attach
) -> None:
    """Two workers, one queue, and a hash of the UE: each worker has both VLANs and their TAP devices."""
    node = start("engine", *two_vlans("af_xdp"), node_more='steer_by = "ue"', workers=2)
    echo(net)
    sim = attach(f"--ues 40 --tuns 2 --qfi 9 --traffic pps=1000,bytes=200,seconds=2,to={FAR}:7")
    talk(net)
    wait_until(lambda: "traffic done" in sim.log.read_text(), "the traffic ends")
    status = node.ask("status")
    assert status is not None
    workers = status["per_worker"]
    assert isinstance(workers, list)
    for worker in workers:
        assert all(port["rx_packets"] > 100 and port["tx_packets"] > 100 for port in worker["ports"]), workers
    totals = sim.stop()["totals"]
    assert isinstance(totals, dict)
    assert totals["generated"]["received"] == totals["generated"]["sent"]
    assert node.drops() == {}


@pytest.mark.parametrize(("driver", "datapath"), WAYS)
def test_a_vlan_beside_untagged_frames(
    start: Start, net: Topology, attach: Attach, driver: str, datapath: str
) -> None:
    """N6 is the cable without a tag. N3 and N4 are a VLAN of it, over IPv4 and IPv6."""
    for space, device in ((net.dn, "eth0"), (net.upf, "n6")):
        space.ip("link", "set", device, "mtu", "1600")
    net.ran.ip("address", "flush", "dev", "gnb0")
    net.upf.ip("address", "flush", "dev", "n3")
    split(net.dn, "eth0", {100: "gnb0.100"}, 1600)
    net.dn.ip("link", "set", "gnb0.100", "netns", net.ran.name)
    address(net.ran, "gnb0.100", GNB)
    n3 = port("n3", driver, "vlan = 100", f"addresses = {json.dumps(N3)}", "mtu = 1596", interface="n6")
    n6 = port("n6", driver, 'network_instance = "internet"')
    node = start(datapath, n3, n6, listen=("10.100.3.1", "fd00:3::1"))
    first = attach("--ues 2 --tuns 2 --qfi 9", OVER_IPV4.replace("10.100.4.", "10.100.3."))
    talk(net)
    assert net.ran.pings("10.100.3.1", "-s", str(1596 - 28), "-M", "do")
    assert net.dn.pings("10.100.6.1")
    seen = ports(node)
    assert seen["n3"]["mtu"] == 1596 and seen["n3"]["how"].endswith("vlan 100 of n6")
    assert seen["n6"]["mtu"] == 1600 and "vlan" not in seen["n6"]["how"]
    assert node.drops() == {}
    for name in ("n3", "n6"):
        assert (seen[name]["kernel_packets"] >= 12) == (datapath == "xdp"), seen
    first.stop()
    attach("--ues 1 --tuns 1 --qfi 9", OVER_IPV6.replace("10.100.4.", "10.100.3."))
    assert net.ran.pings(FAR, "-I", "ue0")


@pytest.mark.parametrize("driver", ["af_xdp", "af_packet"])
def test_what_is_in_no_vlan_of_the_node_is_counted_as_the_kernels(
    start: Start, net: Topology, both: subprocess.Popen[str], driver: str
) -> None:
    """Untagged frames stay the kernel's; what is in other VLANs reaches nobody. Both are counted."""
    node = start("engine", *two_vlans(driver))
    split(net.ran, "gnb0", {300: "other"})
    address(net.ran, "other", ("10.100.30.2/24",))
    address(net.ran, "gnb0", ("10.100.9.2/24",))
    address(net.upf, "n3", ("10.100.9.1/24",))
    before = ports(node)["n3"]["to_kernel"]
    assert net.ran.pings("10.100.9.1"), "the kernel answers"
    assert not net.ran.pings("10.100.30.1", count=3, patience=1)
    wait_until(lambda: ports(node)["n3"]["to_kernel"] >= before + 6, "they are counted")
    assert node.drops() == {}


#: Sends frames out of a device.
INJECT = """
import socket, sys
device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
device.bind((sys.argv[1], 0))
for frame in sys.argv[2:]:
    device.send(bytes.fromhex(frame))
"""


@pytest.mark.parametrize(("driver", "datapath"), WAYS)
def test_frames_with_two_tags_are_left_to_the_kernel_and_counted(
    start: Start, net: Topology, both: subprocess.Popen[str], attach: Attach, driver: str, datapath: str
) -> None:
    """A packet to a UE, and a G-PDU, in a VLAN within a VLAN: neither is forwarded."""
    node = start(datapath, *two_vlans(driver))
    attach("--ues 1 --tuns 1")
    assert net.ran.pings(FAR, "-I", "ue0", count=1)
    own = net.upf.mac("n3")
    mac = bytes.fromhex(own.replace(":", ""))
    to_ue = ipv4("10.100.6.2", "10.60.0.1", udp(7, 7, bytes(64)))
    g_pdu = ipv4("10.100.3.2", "10.100.3.1", udp(2152, 2152, gtpu(G_PDU, 1, to_ue)))

    def frame(outer: tuple[int, int], inner: int, packet: bytes) -> str:
        tags = struct.pack("!HHHHH", *outer, 0x8100, inner, 0x0800)
        return (mac + bytes.fromhex("020000000099") + tags + packet).hex()

    wait_until(lambda: net.ran.pings("10.100.3.1", count=1), "what came before is over")
    before = ports(node)
    frames = [frame((kind, 200), 7, to_ue) for kind in (0x88A8, 0x8100)]
    frames += [frame((kind, 100), 7, g_pdu) for kind in (0x88A8, 0x8100)]
    # In a VLAN of nobody's, with a port's inside: the first port counts what is left to the kernel.
    frames += [frame((kind, 7), 200, to_ue) for kind in (0x88A8, 0x8100)]
    net.ran.run(sys.executable, "-c", INJECT, "gnb0", *frames)

    def left(name: str) -> int:
        return int(ports(node)[name]["to_kernel"]) - int(before[name]["to_kernel"])

    wait_until(lambda: left("n6") >= 2 and left("n3") >= 4, "they are counted")
    after = ports(node)
    for name in ("n3", "n6"):
        assert after[name]["kernel_packets"] == before[name]["kernel_packets"]
    assert after["n3"]["tx_packets"] - before["n3"]["tx_packets"] <= 2, "but for ARP and ND nothing is sent"
    assert node.drops() == {}


@pytest.mark.parametrize(("driver", "datapath"), WAYS)
def test_a_trunk_that_is_made_again_carries_packets_again(
    start: Start, net: Topology, both: subprocess.Popen[str], attach: Attach, driver: str, datapath: str
) -> None:
    """Gone and back; with another Ethernet address and MTU; with a TAP device that was removed."""
    node = start(datapath, *two_vlans(driver))
    attach("--ues 1 --tuns 1")

    def forwards() -> bool:
        return net.ran.pings(FAR, "-I", "ue0", count=1, patience=1)

    def states() -> set[str]:
        return {port["state"] for port in ports(node).values()}

    wait_until(forwards, "packets go through")
    net.upf.ip("link", "set", "n3", "address", MOVED)
    for space in (net.ran, net.dn):
        space.ip("neigh", "flush", "all")
    ours = {"n3", "n3.100", "n6.200"}
    wait_until(
        lambda: {link["address"] for link in net.upf.links() if link["ifname"] in ours} == {MOVED},
        "the TAP devices follow the interface",
    )
    wait_until(forwards, "packets go by the new address")
    net.upf.ip("link", "set", "n3", "mtu", "1580")
    wait_until(lambda: ports(node)["n3"]["mtu"] == 1580, "the MTU of the interface is the VLAN's")
    assert ports(node)["n6"]["mtu"] == 1500, "this one has an MTU of its own"
    wait_until(forwards, "packets go by the new MTU")
    net.upf.ip("link", "delete", "n3.100")
    wait_until(lambda: "is made again" in node.log.read_text(), "the TAP device is made again")
    wait_until(forwards, "packets go through again")
    assert net.ran.pings("10.100.3.1")
    net.upf.ip("link", "delete", "n3")
    wait_until(lambda: states() == {"gone"}, "the node sees that both ports are gone")
    both.terminate()
    both.wait(timeout=10)
    net.lay(next(cable for cable in CABLES if cable.right_name == "n3"))
    net.ran.run("ethtool", "-K", "gnb0", "gro", "on")
    far_ends(net, {100: "gnb0.100", 200: "eth0.200"})
    wait_until(lambda: states() == {"up"}, "the node sees that it is back")
    wait_until(forwards, "packets go through once more")


def test_a_tenants_lan_is_forwarded_in_the_kernel(start: Start, net: Topology, attach: Attach) -> None:
    """Both ways, by a gateway of configured address; hosts on the link itself are the workers'."""
    split(net.dn, "eth0", {300: "tenant"})
    net.dn.ip("address", "flush", "dev", "eth0")
    address(net.dn, "tenant", ("192.0.2.254/24", "2001:db8:2::fe/64"))
    mac = net.dn.mac("tenant")
    own = net.upf.mac("n6")
    for family, network, node_address in (("-4", UE_IPV4, "192.0.2.1"), ("-6", UE_IPV6, "2001:db8:2::1")):
        net.dn.ip(family, "neigh", "replace", node_address, "lladdr", str(own), "dev", "tenant")
        net.dn.ip(family, "route", "replace", network, "via", node_address)
    address(net.dn, "eth0", DN)
    lan = f"""
[[network_instance]]
name = "acme"
port = "n6"
vlan = 300
addresses = ["192.0.2.1/24", "2001:db8:2::1/64"]
gateways = ["192.0.2.254", "2001:db8:2::fe"]
gateway_mac = "{mac}"
"""
    n6 = port("n6", "af_xdp", 'network_instance = "internet"')
    node = start("xdp", port("n3", "af_xdp"), n6, lan)
    sim = attach("--ues 2 --tuns 2 --qfi 9", OVER_IPV4.replace("internet", "acme"))
    assert records(node) == 6, "for each UE a tunnel and two addresses"
    for device in ("ue0", "ue1"):
        for address_, full in ((FAR, FULL), (FAR6, FULL6)):
            net.ran.ip("link", "set", device, "mtu", "1500")
            assert net.ran.pings(address_, "-I", device, "-s", str(full), "-M", "do")
    seen = ports(node)
    assert seen["n3"]["kernel_packets"] >= 12 and seen["n6"]["kernel_packets"] >= 12, seen
    assert net.ran.pings("192.0.2.254", "-I", "ue0"), "it is on the link, where nobody need route"
    after = ports(node)
    assert after["n3"]["kernel_packets"] == seen["n3"]["kernel_packets"]
    assert after["n6"]["kernel_packets"] >= seen["n6"]["kernel_packets"] + 3
    assert node.drops() == {}
    sim.stop()
    assert records(node) == 0


def test_what_cannot_be_is_said_before_anything_is_opened(binary: Path, tmp_path: Path) -> None:
    """`kaido check` names the line, the field, and what to do."""
    file = tmp_path / "kaido.toml"
    n3, n6 = two_vlans("af_xdp")
    file.write_text(Node(binary, Namespace("none"), tmp_path, n3=n3, n6=n6.replace("200", "100")).config)
    done = run(str(binary), "check", "-c", str(file), check=False)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "port.vlan" in said and "has a port with VLAN 100 already" in said, said
