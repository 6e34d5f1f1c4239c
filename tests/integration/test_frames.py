"""Frames of both sizes: which a node takes, and that packets longer than one come through."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Attach
from rig.net import Topology
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

JUMBO = 9000


def frame_bytes(node: Node) -> object:
    """What the node says of its frames."""
    status = node.ask("status")
    assert status is not None
    return status["frame_bytes"]


def set_mtu(net: Topology, mtu: int) -> None:
    """Give every user-plane link an MTU."""
    for space, name in ((net.ran, "gnb0"), (net.upf, "n3"), (net.upf, "n6"), (net.dn, "eth0")):
        space.ip("link", "set", name, "mtu", str(mtu))


@pytest.mark.parametrize("driver", ["af_xdp", "af_packet"])
@pytest.mark.parametrize(
    ("mtu", "asked", "wanted"),
    [(1770, "", 2048), (1771, "", 4096), (JUMBO, "", 4096), (JUMBO, "frame_bytes = 2048", 2048)],
)
def test_frames_are_as_the_links_ask_and_every_packet_comes_through(
    binary: Path,
    net: Topology,
    tmp_path: Path,
    attach: Attach,
    driver: str,
    mtu: int,
    asked: str,
    wanted: int,
) -> None:
    """Packets as long as the links allow, of one frame and of several."""
    set_mtu(net, mtu)
    node = Node(binary, net.upf, tmp_path, driver=driver, node=asked).start()
    assert frame_bytes(node) == wanted
    inner = mtu - 60
    attach(f"--ues 1 --tuns 1 --mtu {inner}")
    for size in (100, 1400, inner - 48):
        assert net.ran.pings("10.100.6.2", "-I", "ue0", "-s", str(size), "-M", "do"), size
        assert net.ran.pings("fd00:6::2", "-I", "ue0", "-s", str(size), "-M", "do"), size
    assert node.drops() == {}
    assert node.stop() == 0
