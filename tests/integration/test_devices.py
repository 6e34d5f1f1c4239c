"""Ports on devices that hosts of containers have: macvlan, and a bridge."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Attach
from rig.flow import flow
from rig.net import FAR, Namespace, Topology, wait_until
from rig.node import Node, port

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

ADDRESSES = {"n3": "10.100.3.1/24", "n6": "10.100.6.1/24"}


def put_on(kind: str, space: Namespace, interface: str) -> str:
    """Make a device of a kind over an interface, which gives it its address."""
    device = f"v{interface}"
    space.ip("address", "flush", "dev", interface)
    if kind == "macvlan":
        space.ip("link", "add", "link", interface, "name", device, "type", "macvlan", "mode", "bridge")
    else:
        space.ip("link", "add", device, "type", "bridge")
        space.ip("link", "set", interface, "master", device)
        # It joins packets before the node sees them.
        space.run("ethtool", "-K", device, "gro", "off")
    space.ip("address", "add", ADDRESSES[interface], "dev", device)
    space.ip("link", "set", device, "up")
    return device


@pytest.mark.parametrize("kind", ["macvlan", "bridge"])
@pytest.mark.parametrize(
    ("driver", "datapath"), [("af_packet", "engine"), ("af_xdp", "engine"), ("af_xdp", "xdp")]
)
def test_a_port_may_be_on_such_a_device(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, kind: str, driver: str, datapath: str
) -> None:
    """Packets of a UE go both ways, and the kernel is answered as before."""
    net.beyond()
    devices = {interface: put_on(kind, net.upf, interface) for interface in ADDRESSES}
    net.upf.ip("route", "add", "default", "via", "10.100.6.2")
    for address in ("10.100.3.2", "10.100.6.2"):
        # A bridge forwards nothing at first.
        wait_until(lambda address=address: net.upf.pings(address, count=1, patience=1), "the device forwards")
    n3 = port("n3", driver, interface=devices["n3"])
    n6 = port("n6", driver, 'network_instance = "internet"', interface=devices["n6"])
    node = Node(binary, net.upf, tmp_path, datapath=datapath, n3=n3, n6=n6).start()
    attach("--ues 1 --tuns 1")
    assert net.ran.pings(FAR, "-I", "ue0")
    assert flow(net.ran, "10.60.0.1", net.dn, FAR, 100, 300) == list(range(100))
    assert flow(net.dn, FAR, net.ran, "10.60.0.1", 100, 300) == list(range(100))
    assert net.ran.pings("10.100.3.1", count=1)
    assert net.dn.pings("10.100.6.1", count=1)
    assert node.drops() == {}
    assert node.stop() == 0
