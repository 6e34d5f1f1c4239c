"""Interfaces that go and come back, and change, under a running node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Attach
from rig.net import CABLES, Namespace, Topology, run, wait_until
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping", "curl")

LISTEN = "127.0.0.1:9105"
METRICS = f'\n[metrics]\nlisten = "{LISTEN}"\n'
DATAPATHS = ["af_xdp", "af_packet", "xdp"]


def health(space: Namespace) -> tuple[int, str]:
    """Code and body of `/healthz`."""
    url = f"http://{LISTEN}/healthz"
    done = space.run("curl", "--silent", "--max-time", "10", "--write-out", "\n%{http_code}", url)
    body, _, code = done.stdout.rpartition("\n")
    return int(code), body.strip()


def shown(node: Node, name: str) -> dict[str, Any]:
    """A port of `kaido status`."""
    status = node.ask("status")
    assert status is not None
    ports = status["ports"]
    assert isinstance(ports, list)
    return next(dict(port) for port in ports if port["name"] == name)


def forwards(net: Topology) -> bool:
    """Whether a UE reaches the data network."""
    return net.ran.pings("10.100.6.2", "-I", "ue0", count=1, patience=1)


@pytest.fixture(params=DATAPATHS)
def running(request: pytest.FixtureRequest, binary: Path, net: Topology, tmp_path: Path) -> Iterator[Node]:
    """A node of every datapath, with metrics."""
    driver = "af_xdp" if request.param == "xdp" else request.param
    settings = 'datapath = "xdp"' if request.param == "xdp" else ""
    for space, name in ((net.ran, "gnb0"), (net.dn, "eth0")):
        space.run("ethtool", "-K", name, "gro", "on", check=False)
    node = Node(binary, net.upf, tmp_path, driver=driver, more=METRICS, node=settings).start()
    yield node
    assert node.ended() or node.stop() == 0


@pytest.mark.parametrize("name", ["n3", "n6"])
def test_an_interface_that_is_made_again_carries_packets_again(
    running: Node, net: Topology, attach: Attach, name: str
) -> None:
    """Deleted and made again: said everywhere while it is gone, and bound again when it is back."""
    attach("--ues 1 --tuns 1")
    wait_until(lambda: forwards(net), "packets go through")
    assert health(net.upf) == (200, "ok")
    assert shown(running, name)["state"] == "up"
    net.upf.ip("link", "delete", name)
    wait_until(lambda: shown(running, name)["state"] == "gone", "the node sees that it is gone")
    assert health(net.upf) == (503, f"port {name}: the interface is gone")
    assert "the interface is gone" in running.log.read_text()
    cable = next(cable for cable in CABLES if cable.right_name == name)
    net.lay(cable)
    net.spaces[cable.left].run("ethtool", "-K", cable.left_name, "gro", "on", check=False)
    if name == "n6":
        net.route()
    wait_until(lambda: health(net.upf) == (200, "ok"), "the node sees that it is back")
    wait_until(lambda: forwards(net), "packets go through again")
    assert "its port is bound to it" in running.log.read_text()
    text = net.upf.run("curl", "--silent", f"http://{LISTEN}/metrics").stdout
    assert f'kaido_port_up{{port="{name}"}} 1' in text
    assert f'kaido_port_rebinds_total{{port="{name}"}} 1' in text


def test_another_ethernet_address_of_its_own_is_followed(
    running: Node, net: Topology, attach: Attach
) -> None:
    """Both ports get other addresses: frames have them, and frames to them are taken."""
    attach("--ues 1 --tuns 1")
    wait_until(lambda: forwards(net), "packets go through")
    for name, far, mac in (("n3", net.ran, "02:00:00:00:33:33"), ("n6", net.dn, "02:00:00:00:66:66")):
        net.upf.ip("link", "set", name, "address", mac)
        far.ip("neigh", "flush", "all")
    wait_until(lambda: forwards(net), "packets go by the new addresses")
    assert not running.ended()


def test_another_mtu_is_followed(running: Node, net: Topology, attach: Attach) -> None:
    """Smaller: what is too large is refused with the new MTU; and larger again."""
    attach("--ues 1 --tuns 1")
    wait_until(lambda: forwards(net), "packets go through")
    large = ("ping", "-c", "1", "-W", "2", "-M", "do", "-s", "1372", "-I", "ue0", "10.100.6.2")
    wait_until(lambda: net.ran.run(*large, check=False).returncode == 0, "1400 octets go through")
    net.upf.ip("link", "set", "n6", "mtu", "1300")
    wait_until(lambda: shown(running, "n6")["mtu"] == 1300, "the node sees the MTU")
    wait_until(lambda: "1300" in net.ran.run(*large, check=False).stdout, "the UE is told the new MTU")
    net.upf.ip("link", "set", "n6", "mtu", "1500")
    wait_until(lambda: shown(running, "n6")["mtu"] == 1500, "the node sees the MTU")
    net.ran.ip("route", "flush", "cache")
    wait_until(lambda: net.ran.run(*large, check=False).returncode == 0, "1400 octets go through again")


def test_a_link_that_is_down_and_an_address_that_is_gone_are_said(
    binary: Path, net: Topology, tmp_path: Path
) -> None:
    """What keeps packets away is the reason of `/healthz`."""
    node = Node(binary, net.upf, tmp_path, more=METRICS).start()
    net.upf.ip("link", "set", "n6", "down")
    down = (503, "port n6: the interface is down or has no carrier")
    wait_until(lambda: health(net.upf) == down, "a link is down")
    net.upf.ip("link", "set", "n6", "up")
    wait_until(lambda: health(net.upf)[0] == 200, "the link is up")
    net.upf.ip("address", "delete", "10.100.3.1/24", "dev", "n3")
    wait_until(lambda: "tunnels come to 10.100.3.1" in health(net.upf)[1], "the address is missed")
    printed = run(str(binary), "status", "--socket", str(node.socket)).stdout
    assert "port n3: tunnels come to 10.100.3.1" in printed
    net.upf.ip("address", "add", "10.100.3.1/24", "dev", "n3")
    wait_until(lambda: health(net.upf)[0] == 200, "the address is back")
    assert node.stop() == 0


def test_a_tap_device_that_is_removed_is_made_again(binary: Path, net: Topology, tmp_path: Path) -> None:
    """What the node made itself it makes again."""
    n6 = (
        '\n[[port]]\nname = "n6"\ndriver = "tap"\ninterface = "kaido0"\nroles = ["n6"]\n'
        'network_instance = "internet"\naddresses = ["10.100.7.1/24"]\n'
    )
    node = Node(binary, net.upf, tmp_path, n6=n6, more=METRICS).start()
    net.upf.ip("link", "delete", "kaido0")
    wait_until(lambda: "its port is bound to it" in node.log.read_text(), "the device is made again")
    wait_until(lambda: health(net.upf) == (200, "ok"), "all is well")
    assert "kaido0" in [link["ifname"] for link in net.upf.links()]
    assert node.stop() == 0
